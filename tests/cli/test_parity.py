#!/usr/bin/env python3
"""Every CUDA variant, weight type and default geometry against the float64 oracle on the simulator, with
all its checks on: numbers within their bounds and no report.

usage: test_parity.py KILN SLOT [SLOT …]; skipped (77) where there is no NVRTC.
"""
import json
import os
import subprocess
import sys
import tempfile

kiln, slots = sys.argv[1], sys.argv[2:]
with tempfile.TemporaryDirectory() as cache:
    result = subprocess.run([kiln, "gate", "parity", *slots, "--all", "--device", "sim", "-t", "1", "--json"],
                            capture_output=True, text=True, timeout=900, env=dict(os.environ, KILN_CACHE_DIR=cache))
if result.returncode == 4 and "NVRTC" in result.stderr and "is not here" in result.stderr:
    print(result.stderr)
    sys.exit(77)
try:
    document = json.loads(result.stdout)
except ValueError:
    print(result.stdout[-2000:], result.stderr[-2000:])
    sys.exit(1)
cases = document["cases"]
groups = {}
for case in cases:
    key = case["slot"] + " " + case["plugin"] + "/" + case["variant"]
    groups.setdefault(key, {"passed": 0, "failed": 0, "skipped": 0})[case["result"]] += 1
    if case["result"] == "failed":
        print("FAILED", key, case["case"], case["reason"])
for key, counts in groups.items():
    print(key, counts)


def expected(case):
    """A variant that the simulated target or its operands rule out says so. Nothing else is skipped."""
    reason = case["reason"]
    return "is there on sm_90a alone" in reason or "only block types are handled" in reason


odd = [case["variant"] + ": " + case["reason"] for case in cases if case["result"] == "skipped" and not expected(case)]
assert not odd, odd[:3]
assert document["failed"] == 0 and document["passed"] > 0 and result.returncode == 0, result.stderr
assert document["device"].startswith("sim:") and all(case["grade"] == "simulated" for case in cases)
# The launch that takes rope_kv and the attention of one row together is judged by both ops' oracle.
if {"rope_kv", "attention.decode"} & set(slots):
    both = [case["case"] for case in cases if case["variant"] == "rope_splitkv"]
    assert len(both) == 15 and all(any("hd=%d " % size in case for case in both) for size in (64, 128, 256)), both
# What is bound to the gate of an FFN beside the slot's own binding is judged, too, once each.
if "matmul.q4_K.prefill" in slots:
    config = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs/gpu-f16-expand.ini")
    with tempfile.TemporaryDirectory() as cache:
        result = subprocess.run([kiln, "gate", "parity", "matmul.q4_K.prefill", "--config", config, "--device", "sim",
                                 "--json"], capture_output=True, text=True, timeout=300,
                                env=dict(os.environ, KILN_CACHE_DIR=cache))
    cases = [case["variant"] for case in json.loads(result.stdout)["cases"]]
    assert result.returncode == 0, result.stderr
    assert cases == ["f16_expand"] * 6 + ["f16_expand_glu"] * 6, cases
