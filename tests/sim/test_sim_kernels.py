#!/usr/bin/env python3
"""kiln sim on textbook kernels as files: entry, shapes, results, conflicts; a fault planted in one.

usage: test_sim_kernels.py KILN SOURCE_ROOT. Skipped (77) where there is no NVRTC. Exit status 1 when a case fails.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

kiln, root = os.path.abspath(sys.argv[1]), sys.argv[2]
kernels = os.path.join(root, "tests", "sim_kernels")
failures = 0


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def sim(*words):
    return subprocess.run([kiln, "sim", *words, "--json"], capture_output=True, text=True, check=False, timeout=120)


def values(path, kind):
    with open(path, "rb") as file:
        data = file.read()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    return list(struct.unpack("<%d%s" % ((len(data) - start) // 4, kind), data[start:]))


def run_cases():
    words = [os.path.join(kernels, "transpose.cu"), "--grid", "3,2", "--block", "32,8", "--arg", "ramp:f32:3150", "--arg", "null",
             "--arg", "out:f32:3150:t.npy", "--arg", "i32:0"]
    first = sim(*words, "--entry", "transpose_padded")
    if first.returncode == 4 and "NVRTC" in first.stderr:
        print(first.stderr)
        sys.exit(77)
    check("transpose runs", first.returncode == 0, first.stdout + first.stderr)
    check("transpose is right", values("t.npy", "f") == [float(row * 70 + column) for column in range(70) for row in range(45)])
    check("padded: no conflict", json.loads(first.stdout)["kernels"][0]["total"]["shared_ways"] == 1, first.stdout)
    tiled = sim(*words, "--entry", "transpose_tiled")
    check("tiled: 32 ways", json.loads(tiled.stdout)["kernels"][0]["total"]["shared_ways"] == 32, tiled.stdout)
    scan = [os.path.join(kernels, "scan.cu"), "--entry", "scan_blelloch", "--block", "256", "--arg", "ramp:i32:512", "--arg",
            "null", "--arg", "out:i32:512:s.npy", "--arg", "i32:512"]
    good = sim(*scan)
    check("scan runs", good.returncode == 0, good.stdout + good.stderr)
    check("scan is right", values("s.npy", "i") == [i * (i - 1) // 2 for i in range(512)])
    with open(scan[0], encoding="utf-8") as file:
        text = file.read()
    at = text.index("__syncthreads();\n        if (thread < active) {\n            int low")
    text = text[:at] + text[at:].replace("__syncthreads();", "", 1)
    with open("scan.cu", "w", encoding="utf-8") as file:
        file.write(text)
    bad = sim("scan.cu", *scan[1:])
    lines = {finding["line"] for finding in json.loads(bad.stdout)["findings"] if finding["check"] == "race"}
    wanted = {i + 1 for i, line in enumerate(text.split("\n")) if "tree[low]" in line or "tree[high]" in line}
    check("without a barrier it races, on the lines of the exchange", bad.returncode == 1 and lines and lines <= wanted,
          bad.stdout + bad.stderr)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    run_cases()
sys.exit(1 if failures else 0)
