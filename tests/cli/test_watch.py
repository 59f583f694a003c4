#!/usr/bin/env python3
"""`kiln run --watch` under a person who edits its configuration, and (with KILN_MODEL_SMOLLM2) an
interactive run, at a pipe and at a terminal.

usage: test_watch.py KILN SOURCE_ROOT. Exit status 1 when a case fails.
"""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

kiln, source = sys.argv[1:3]
tiny = os.path.join(source, "tests/golden/tiny/llama-quant-q4_k_m.gguf")
real = os.environ.get("KILN_MODEL_SMOLLM2")
failures = 0


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


class Child:
    """A kiln run whose output can be waited for."""

    def __init__(self, *args, terminal=False):
        self.seen = ""
        if terminal:
            self.fd, other = pty.openpty()
            ends = {"stdin": other, "stdout": other, "stderr": other}
        else:
            self.fd, other = os.pipe()
            ends = {"stdin": subprocess.PIPE, "stdout": other, "stderr": other}
        self.process = subprocess.Popen([kiln, "run", "--device", "cpu", "--greedy", *args], bufsize=0, **ends)
        os.close(other)
        self.input = self.fd if terminal else self.process.stdin.fileno()

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                more = os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:  # a terminal whose other end is closed
                more = ""
            self.seen += more
            return bool(more)
        return None

    def expect(self, what, pattern, seconds=60):
        """Waits until the pattern comes, and drops everything up to its end."""
        deadline = time.time() + seconds
        found = re.search(pattern, self.seen, re.S)
        while not found and time.time() < deadline and self.read(0.2) is not False:
            found = re.search(pattern, self.seen, re.S)
        check(what, bool(found), "\n    seen: " + self.seen[-800:])
        self.seen = self.seen[found.end():] if found else ""
        return found

    def type(self, text):
        os.write(self.input, text.encode())

    def end(self, what, code, by=signal.SIGINT):
        if by:
            self.process.send_signal(by)
        while self.read(20):
            pass
        check(what, self.process.wait(timeout=30) == code, "\n    exit %s" % self.process.returncode)
        os.close(self.fd)


def write(path, text):
    with open(path, "w", encoding="ascii") as out:
        out.write(text)


def replace(path, text):
    write(path + "~", text)
    os.rename(path + "~", path)


def watched(folder):
    ini, ids = os.path.join(folder, "a.ini"), os.path.join(folder, "ids")
    out = os.path.join(folder, "out")
    write(ini, "")
    write(ids, "12 91 74 233 214 144")
    child = Child("-m", tiny, "--prompt-ids", ids, "-n", "4", "--watch", "--config", ini, "--tokens-out", out)
    first = child.expect("the prompt is answered", r"((?:\d+\n){4}).*watching")
    write(ini, "[matmul.q4_K.prefill]\nvariant = exact_q8\n")
    child.expect("an edit is said", r"matmul\.q4_K\.prefill: cpu/exact -> cpu/exact_q8 \(\d+ steps\)")
    took = child.expect("and how long it took", r"switched in [\d.]+ ms, ([\d.]+) ms after the edit \(swap ")
    check("soon", took and float(took.group(1)) < 5000)
    child.expect("the prompt runs again", r"4 tokens out.*watching")
    write(ini, "; said otherwise\n[matmul.q4_K.prefill]\nvariant=exact_q8\n")
    child.expect("a comment changes nothing", r"nothing in force has changed")
    write(ini, "[matmul.q4_K.prefill]\nvariant = exactq8\n")
    child.expect("a mistake is refused as at the start",
                 r"not switched, the configuration in force stays: " + re.escape(ini) +
                 r":2: \[matmul\.q4_K\.prefill\] variant: .*did you mean 'exact_q8'")
    os.remove(ini)
    child.expect("so is a file that is gone", r"not switched[^\n]*a\.ini[^\n]*No such file")
    replace(ini, "[matmul.q4_K.prefill]\nvariant = exact\n")
    child.expect("a file that is renamed into place", r"cpu/exact_q8 -> cpu/exact \(")
    again = child.expect("gives what was there at first", r"((?:\d+\n){4}).*watching")
    check("the same ids", first and again and first.group(1) == again.group(1))
    with open(out, encoding="ascii") as file:
        check("--tokens-out holds the last ones", again and file.read() == again.group(1))
    child.end("Ctrl-C ends with 130", 130)
    long = Child("-m", tiny, "--prompt-ids", ids, "-n", "100000", "-c", "4096", "--ignore-eos", "--watch",
                 "--config", ini)
    long.expect("a long answer begins", r"(?:\d+\n){20}")
    replace(ini, "[matmul.q4_K.decode]\nvariant = exact_q8\n")
    long.expect("an edit takes effect in the middle of it", r"\d\nkiln: matmul\.q4_K\.decode: [^\n]*\n.*"
                r"switched in[^\n]*\n(?:kiln[^\n]*\n)*\d+\n")
    long.end("Ctrl-C ends the answer", 130)
    result = subprocess.run([kiln, "run", "-m", tiny, "--prompt-ids", ids, "--watch", "--json"],
                            capture_output=True, text=True, timeout=60, check=False)
    check("--json with --watch is refused", result.returncode == 2 and "--json is one document" in result.stderr)


def interactive(folder, terminal, chat):
    what = ("chat" if chat else "text") + (" at a terminal: " if terminal else " at a pipe: ")
    ini = os.path.join(folder, "b.ini")
    write(ini, "")
    child = Child("-m", real, "-n", "3", "-c", "256", "--config", ini, *(["--chat"] if chat else []),
                  terminal=terminal)
    child.expect(what + "the prompt", r"/help lists the commands.*> ")
    child.type("/help\n")
    child.expect(what + "/help", r"/set SECTION\.KEY=VALUE.*/config.*/reset.*/exit.*> ")
    child.type("/set attention.prefill.varian=x\n")
    child.expect(what + "a mistake", r"not switched[^\n]*--set: \[attention\.prefill\] varian: unknown key.*> ")
    child.type("/set matmul.q4_1.prefill.variant=exact_q8\n")
    child.expect(what + "/set", r"matmul\.q4_1\.prefill: cpu/exact -> cpu/exact_q8.*switched in.*> ")
    child.type("/config\n")
    child.expect(what + "/config", r"matmul\.q4_1\.prefill: cpu/exact_q8.*file [^\n]*b\.ini.*"
                 r"set matmul\.q4_1\.prefill\.variant=exact_q8.*> ")
    replace(ini, "[norm/a]\nwhen = layer=0\nvariant = exact\n")
    child.expect(what + "an edit while it waits", r"switched in[^\n]*\n> ")
    replace(ini, "[engine]\nctx = 128\n")  # -c is on top
    child.type("One, two, three,\n")
    child.expect(what + "an edit before a line", r"switched in.*> ")
    child.type("/reset\n")
    child.expect(what + "/reset", r"a new (text|conversation).*> ")
    child.type("/exit\n")
    child.end(what + "/exit", 0, by=None)


with tempfile.TemporaryDirectory() as temporary:
    watched(temporary)
    if real:
        interactive(temporary, terminal=False, chat=False)
        interactive(temporary, terminal=True, chat=True)
print("%d failed" % failures)
sys.exit(1 if failures else 0)
