#!/usr/bin/env python3
"""Candidates a second of kiln tune and of Kernel Tuner, over the same CUDA kernel, space and repeats.

usage: tune_vs_kernel_tuner.py KILN FOLDER_OF_KERNELS_SRC [--most-seconds N]
Needs an NVIDIA GPU, CuPy and kernel_tuner (pip install kernel_tuner cupy-cuda13x).

Both sweep fap2, the prefill attention of a 7B model (3325 tokens, 28 heads over 4, head size 128), over FA_TQ, FA_TKV and
MIN_BLOCKS, compile every candidate anew, check its results before its time counts, and time it 15 times. Kernel Tuner gets
the text that kiln jit --dump writes, with its options. What differs, in Kernel Tuner's favour: the seconds are the whole
command's for kiln (start, reference, final) and tune_kernel's alone for Kernel Tuner, whose reference is made before; kiln
compares with float64 within bounds of its own, Kernel Tuner within 0.02 with a reference of float32. Kernel Tuner passes no
structures by value, so the kernel that it gets reads its last parameter through a pointer. The space holds what fits 48 KiB
of shared memory, since its CuPy backend asks for no more. Kernel Tuner compiles one candidate after the other, and its first
one twice, to warm up; kiln compiles on all cores while the GPU measures. Both have the same cores, and no cache of either is
filled before.
"""
import argparse
import glob
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

ROWS, HEADS, KV_HEADS, SIZE = 3325, 28, 4, 128
TQ, TKV, BLOCKS, REPEATS = (32, 48, 64, 96), (16, 32), (1, 2, 3), 15
GEOMETRY = "FA_KPAD=8 FA_SYNC=2 FA_AHEAD=1 FA_QREG=1"


def seconds_of_kiln(kiln, folder):
    space = "variant=fap2 FA_TQ=%s FA_TKV=%s MIN_BLOCKS=%s %s" % (
        *(",".join(map(str, values)) for values in (TQ, TKV, BLOCKS)), GEOMETRY)
    start = time.monotonic()
    result = subprocess.run(
        [kiln, "tune", "attention.prefill", "--device", "cuda", "--space", space, "--json", "--samples", str(REPEATS),
         "--cold-samples", "0", "--store", os.path.join(folder, "tune.db"), "--out", "-"],
        capture_output=True, text=True, check=False, env={**os.environ, "KILN_CACHE_DIR": os.path.join(folder, "cache")})
    seconds = time.monotonic() - start
    if result.returncode != 0:
        sys.exit("kiln tune: exit code %d\n%s" % (result.returncode, result.stderr))
    problem = json.loads(result.stdout)["problems"][0]
    times = {(c["geometry"]["FA_TQ"], c["geometry"]["FA_TKV"], c["geometry"]["MIN_BLOCKS"]): c["warm_us"]["median"]
             for c in problem["candidates"] if c["status"] == "ok"}
    return problem["measured"], seconds, times


def source_and_options(kiln, folder, sources):
    """The text without what the geometry defines, which Kernel Tuner puts in front of it again."""
    dump = os.path.join(folder, "dump")
    subprocess.run([kiln, "jit", "attention.prefill", "--target", "sm_90a", "--dump", dump,
                    "--set", "attention.prefill.variant=fap2"], check=True, capture_output=True)
    with open(glob.glob(os.path.join(dump, "*.cu"))[0], encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"^#define (FA_TQ|FA_TKV|MIN_BLOCKS|KILN_SMEM|FA_KPAD|FA_SYNC|FA_AHEAD|FA_QREG) .*\n", "", text,
                  flags=re.MULTILINE)
    by_value, count = re.subn(r"const fa_args args\) \{", "const fa_args *__restrict__ args_at) {\n    const fa_args args = "
                              "*args_at;", text)
    if count != 1:
        sys.exit("the kernel's last parameter is not where it was")
    return by_value, ["-std=c++17", "-lineinfo", "-I" + os.path.abspath(sources)]


def arguments(numpy):
    random = numpy.random.default_rng(20260906)
    q, k, v = (random.standard_normal((ROWS, heads * SIZE), dtype=numpy.float32).astype(numpy.float16)
               for heads in (HEADS, KV_HEADS, KV_HEADS))
    args = numpy.zeros(1, dtype=[("strides", "i8", 4), ("ints", "i4", 8), ("floats", "f4", 2)])
    args["strides"] = [HEADS * SIZE, HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE]
    args["ints"] = [ROWS, ROWS, HEADS, KV_HEADS, SIZE, 0, 0, 0]
    args["floats"] = [math.log2(math.e) / math.sqrt(SIZE), 0]
    count = numpy.array([ROWS], dtype=numpy.int32)
    return [q, k, v, numpy.arange(ROWS, dtype=numpy.int32), numpy.zeros_like(q), count, count.copy(),
            args.view(numpy.uint8)]


def reference(numpy, q, k, v):
    out = numpy.empty((ROWS, HEADS * SIZE), dtype=numpy.float32)
    hidden = numpy.triu(numpy.full((ROWS, ROWS), -numpy.inf, dtype=numpy.float32), 1)
    for head in range(HEADS):
        own = slice(head * SIZE, (head + 1) * SIZE)
        kv = head // (HEADS // KV_HEADS)
        shared = slice(kv * SIZE, (kv + 1) * SIZE)
        scores = q[:, own].astype(numpy.float32) @ k[:, shared].astype(numpy.float32).T
        scores = scores / numpy.float32(math.sqrt(SIZE)) + hidden
        scores = numpy.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, own] = scores @ v[:, shared].astype(numpy.float32) / scores.sum(axis=1, keepdims=True)
    return out


def seconds_of_kernel_tuner(kiln, folder, sources, most):
    os.environ["CUPY_CACHE_DIR"] = os.path.join(folder, "cupy")  # read when it is imported
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    import cupy
    import numpy
    import kernel_tuner
    properties = cupy.cuda.runtime.getDeviceProperties
    # CuPy ends a device's UUID at its first zero byte, which Kernel Tuner does not take for one.
    cupy.cuda.runtime.getDeviceProperties = lambda n: {**properties(n), "uuid": properties(n)["uuid"].ljust(16, b"\0")}
    text, options = source_and_options(kiln, folder, sources)
    given = arguments(numpy)
    answer = [None, None, None, None, reference(numpy, *given[:3]), None, None, None]
    params = {"FA_TQ": list(TQ), "FA_TKV": list(TKV), "MIN_BLOCKS": list(BLOCKS), "KT_THREADS": sorted({2 * tq for tq in TQ})}
    params.update((name, [int(value)]) for name, value in (entry.split("=") for entry in GEOMETRY.split()))

    def shared(p):
        return max((p["FA_TQ"] + 2 * p["FA_TKV"]) * (SIZE + p["FA_KPAD"]) * 2, p["FA_TQ"] * SIZE * 4)

    def check(wanted, got, atol=None):
        return bool(numpy.abs(wanted[4] - got[4]).max() <= 0.02)

    def with_size(p):
        return "#define KILN_SMEM %d\n" % shared(p) + text

    strategy = {"strategy": "random_sample", "strategy_options": {"fraction": 1, "time_limit": most}} if most else {}
    start = time.monotonic()
    results, _ = kernel_tuner.tune_kernel(
        "fap2", with_size, (ROWS, HEADS), given, params, grid_div_x=["FA_TQ"], grid_div_y=[], block_size_names=["KT_THREADS"],
        restrictions=["KT_THREADS == 2 * FA_TQ"], smem_args={"size": shared}, lang="CUPY", answer=answer,
        verify=check, iterations=REPEATS, compiler_options=options, quiet=True, **strategy)
    seconds = time.monotonic() - start
    times = {(r["FA_TQ"], r["FA_TKV"], r["MIN_BLOCKS"]): r["time"] * 1000 for r in results if "__error__" not in r}
    parts = [sum(r[part + "_time"] for r in results) / 1000 for part in ("compile", "verification", "benchmark")]
    return len(results), seconds, times, parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kiln")
    parser.add_argument("sources", help="the tree's kernels_src")
    parser.add_argument("--most-seconds", type=float, help="Kernel Tuner takes up nothing new after so long")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        n, seconds, times = seconds_of_kiln(options.kiln, folder)
        print("kiln tune      %3d candidates, %3d right, in %6.2f s: %6.2f a second" % (n, len(times), seconds, n / seconds),
              flush=True)
        m, other, theirs, parts = seconds_of_kernel_tuner(options.kiln, folder, options.sources, options.most_seconds)
        print("Kernel Tuner   %3d candidates, %3d right, in %6.2f s: %6.2f a second" % (m, len(theirs), other, m / other))
        print("  (%d cores; of its seconds, compiling %.2f, checking %.2f, measuring %.2f)" % (os.cpu_count(), *parts))
        print("kiln does %.1f times as many" % (n / seconds / (m / other)))
        both = sorted(set(times) & set(theirs), key=times.get)[:5]
        for key in both:
            print("  FA_TQ %3d FA_TKV %3d MIN_BLOCKS %d: %8.1f us, Kernel Tuner %8.1f us" % (*key, times[key], theirs[key]))
    sys.exit(0 if n / seconds >= 3 * m / other else 1)


main()
