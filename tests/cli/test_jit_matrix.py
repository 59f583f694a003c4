#!/usr/bin/env python3
"""Every kernel that the default configuration binds compiles for every GPU generation, without spills; so do the
int8 variants for prefill, which need the most registers, and gate and up fused with either activation.

usage: test_jit_matrix.py KILN; skipped (77) where there is no NVRTC. A kernel that a generation cannot run is
a row that says why, and no failure. With KILN_TEST_LONG=1: every default of every variant, weight type and head
size (some ten minutes on two cores).
"""
import json
import os
import subprocess
import sys
import tempfile

kiln = sys.argv[1]
TARGETS = "sm_75,sm_80,sm_86,sm_89,sm_90a,sm_100,sm_120,sm_121"
INT8 = ["mmq", "mmq_async", "mmq_expand"]
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FUSED = ["--config", os.path.join(TESTS, "../configs/gpu-f16-expand.ini")]
GEMMA = os.path.join(TESTS, "golden/tiny/gemma3-q8_0-window32.gguf")


def matrix(cache, *args, everywhere=False):
    result = subprocess.run([kiln, "jit", *args, "--target", TARGETS, "--json"], capture_output=True, text=True,
                            env=dict(os.environ, KILN_CACHE_DIR=cache))
    if result.returncode == 4 and "is not here" in result.stderr:
        print(result.stderr)
        sys.exit(77)
    rows = json.loads(result.stdout)["kernels"]
    for row in rows:
        print(row["target"], row["slot"], row["variant"], row["kernel"] if "kernel" in row else "-",
              row.get("unsupported") or row.get("error")
              or "%s registers, %s bytes spilled" % (row["registers"], row["spill_bytes"]))
    compiled = [row for row in rows if not row.get("unsupported")]
    assert result.returncode == 0, result.stderr
    assert not everywhere or len(compiled) == len(rows), "a default does not run on every target"
    bad = [row for row in compiled if row.get("spill_bytes", -1) != 0]
    assert not bad, "spills: %s" % [(row["target"], row["slot"], row["variant"], row["kernel"], row["spill_bytes"])
                                    for row in bad]
    return compiled


def check(cache):
    compiled = matrix(cache, everywhere=True)
    assert {row["target"] for row in compiled} == set(TARGETS.split(",")), "a target has no kernel at all"
    assert len(compiled) >= 8 * 8, "only %d kernels" % len(compiled)
    fused = {row["target"] for row in compiled if row["variant"] == "f16_wgmma_glu"}
    assert fused == {"sm_90a"} and not [row for row in compiled if row["slot"] == "activation" and row["target"] in fused]
    for variant in INT8:
        compiled = matrix(cache, "matmul.*.prefill", "--set", "matmul.*.prefill.variant=" + variant)
        found = {(row["target"], row["slot"]) for row in compiled if row["kernel"] == "mm_mmq"}
        lacking = 1 if variant == "mmq_async" else 0  # sm_75 has no cp.async
        assert len(found) == 2 * (8 - lacking), "%s: only %s" % (variant, sorted(found))
    for model in ([], ["-m", GEMMA]):  # silu, gelu_tanh
        compiled = matrix(cache, "matmul.*.prefill", *FUSED, *model)
        found = [row["target"] for row in compiled if row["variant"] == "f16_expand_glu" and row["kernel"] == "mm_f16"]
        assert sorted(found) == sorted(TARGETS.split(",")), found
        # What the fused launch writes is what the down product reads: no kernel makes f16 of it.
        assert model or not [row for row in compiled if row["kernel"] == "mm_rows"], "f16 is made of f16"
    # Above, what a target does at one length of prompt; here every target shares steps.
    compiled = matrix(cache, "matmul.*.prefill", "--set", "matmul.*.prefill.variant=mmq", "--set",
                      "matmul.*.prefill.STREAM_K=1")
    assert len([row for row in compiled if row["kernel"] == "mm_mmq_seams"]) >= 2 * 8, "shared steps on too few targets"
    if os.environ.get("KILN_TEST_LONG"):
        matrix(cache, "--all")


with tempfile.TemporaryDirectory() as folder:
    check(folder)
