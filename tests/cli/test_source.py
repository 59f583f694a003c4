#!/usr/bin/env python3
"""`source = FILE` in an INI file puts a CUDA file in place of a variant's own, as `kiln jit` shows it without a GPU.

usage: test_source.py KILN SOURCE_ROOT; skipped (77) where there is no NVRTC. Exit status 1 when a case fails.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

kiln, source = sys.argv[1:3]
failures = 0
SPELLED = """#include "mine.cuh"
#include "common/ptx.cuh"
#include "elementwise/ew_args.cuh"
extern "C" __global__ void ew_norm(const float *in, const float *weight, const float *residual, void *out,
        const int *n_tokens, const ew_args args) {
    ((float *)out)[threadIdx.x] = ptx_warp_sum(in[threadIdx.x] * MINE) + THREADS;
}
"""


def jit(folder, *args, cwd="/", slots=("norm",)):
    return subprocess.run([kiln, "jit", *slots, "--target", "sm_80", "--json", *args], capture_output=True, text=True,
                          timeout=120, cwd=cwd, env=dict(os.environ, KILN_CACHE_DIR=os.path.join(folder, "cache")),
                          check=False)


def check(what, condition, result):
    global failures
    print("ok  " if condition else "FAIL", what, flush=True)
    if not condition:
        failures += 1
        print("    exit", result.returncode, "\n    out", result.stdout[-800:], "\n    err", result.stderr[-1200:])


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="ascii") as out:
        out.write(text)
    return path


def row(result, kernel="ew_norm"):
    return [one for one in json.loads(result.stdout)["kernels"] if one["kernel"] == kernel][0]


def replaced(folder):
    ini = write(folder, "x.ini", "[norm]\nvariant = rms\nsource = ./my_norm.cu\nTHREADS = 256\n")
    named = ["--config", ini]
    mine = os.path.join(folder, "my_norm.cu")
    result = jit(folder, *named)
    check("a file that is not there", result.returncode == 2 and
          "%s:3: [norm] source: %s: cannot open it: No such file" % (ini, mine) in result.stderr, result)
    write(folder, "my_norm.cu", SPELLED)
    write(folder, "mine.cuh", "#define MINE 2.0f\n")
    own = jit(folder)
    result = jit(folder, *named)
    check("its own headers and the plugin's, from any folder", result.returncode == 0 and not row(result)["cached"]
          and row(result)["registers"] != row(own)["registers"], result)
    check("and from the cache", row(jit(folder, *named))["cached"], result)
    write(folder, "mine.cuh", "#define MINE 3.0f\n")
    check("an edited header is another kernel", not row(jit(folder, *named))["cached"], result)
    write(folder, "my_norm.cu", SPELLED.replace("+ THREADS", "+ THREADS + absent"))
    result = jit(folder, *named)
    check("an error has the file's own line and the geometry", result.returncode == 4 and re.search(
        re.escape(mine) + r'\(6\): error: identifier "absent" is undefined; geometry KILN_SMEM=\d+ OUT_Q8=0 THREADS=256',
        result.stderr), result)
    check("names keep their slash", 'compilation of "%s"' % mine in result.stderr, result)
    write(folder, "my_norm.cu", SPELLED)
    write(folder, "mine.cuh", "#define MINE 2.0f\nint x = ;\n")
    result = jit(folder, *named)
    check("so has one in a header", result.returncode == 4 and
          os.path.join(folder, "mine.cuh") + "(2): error" in result.stderr, result)
    write(folder, "my_norm.cu", "// ew_norm was here\n")
    result = jit(folder, *named)
    check("a file with none of the kernels", result.returncode == 2 and re.search(
        r":3: \[norm\] source: .*my_norm\.cu has none of the kernels of variant rms: .*ew_norm", result.stderr), result)


def one_of_two(folder):
    """A variant of two sources: the file stands for the kernel that it has, the other one keeps its own."""
    with open(os.path.join(source, "kernels_src/attention/splitkv_combine.cu"), encoding="ascii") as file:
        path = write(folder, "my_combine.cu", file.read() + "\n// mine\n")
    before = jit(folder, slots=["attention.decode"])
    result = jit(folder, "--set", "attention.decode.source=" + path, slots=["attention.decode"])
    check("one kernel of two", result.returncode == 0 and row(before, "splitkv")["variant"] == "splitkv"
          and row(result, "splitkv")["cached"] and not row(result, "splitkv_combine")["cached"], result)


def not_utf8(folder):
    """A cache whose name is no UTF-8: the document is one of JSON all the same."""
    odd = os.path.join(folder, os.fsdecode(b"\xff"))
    result = jit(odd)
    check("a cache whose name is no UTF-8", result.returncode == 0 and row(result)["registers"] > 0
          and json.loads(result.stdout)["cache"].endswith("\ufffd/cache/kernels"), result)
    for args in (["list"], ["verify"], ["clear"]):
        result = subprocess.run([kiln, "cache", *args, "--json"], capture_output=True, text=True, timeout=60, check=False,
                                env=dict(os.environ, KILN_CACHE_DIR=os.path.join(odd, "cache")))
        check("cache %s of it" % args[0], result.returncode == 0 and "\ufffd" in json.loads(result.stdout)["dir"], result)


with tempfile.TemporaryDirectory() as temporary:
    first = jit(temporary)
    if first.returncode == 4 and "is not here" in first.stderr:
        print(first.stderr)
        sys.exit(77)
    replaced(temporary)
    one_of_two(temporary)
    not_utf8(temporary)
print("%d failed" % failures)
sys.exit(1 if failures else 0)
