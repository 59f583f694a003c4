#!/usr/bin/env python3
"""Turns text files into C arrays, so that a plugin carries its CUDA sources in itself.

usage: embed.py OUT.h NAME=FILE ...

Each FILE becomes `static const char embed_NAME[]`, NUL-terminated. Plain numbers, not string literals: those have a
length limit in the C standard. Files must be ASCII, so that no compiler need care about the sign of char.
"""
import sys


def array(name, path):
    with open(path, "rb") as file:
        data = file.read()
    for at, byte in enumerate(data):
        if byte == 0 or byte > 126:
            line = data.count(b"\n", 0, at) + 1
            sys.exit(f"embed.py: {path}:{line}: byte 0x{byte:02x}; only ASCII text can be embedded")
    numbers = [str(byte) for byte in data] + ["0"]
    lines = [",".join(numbers[i : i + 32]) for i in range(0, len(numbers), 32)]
    return f"static const char embed_{name}[] = {{\n" + ",\n".join(lines) + "};\n"


def main(args):
    if len(args) < 2 or any("=" not in arg for arg in args[1:]):
        sys.exit(__doc__)
    parts = [array(*arg.split("=", 1)) for arg in args[1:]]
    with open(args[0], "w", encoding="ascii") as out:
        out.write("// Made by tools/embed.py; do not edit.\n")
        out.write("".join(parts))


if __name__ == "__main__":
    main(sys.argv[1:])
