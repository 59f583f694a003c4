#!/usr/bin/env python3
"""Every CUDA variant, weight type and default geometry against the float64 oracle on the simulator, with
all its checks on: numbers within their bounds and no report.

usage: test_parity.py KILN [--hopper PREFIX] SLOT [SLOT …]; skipped (77) where there is no NVRTC. With a PREFIX those variants
alone whose name begins with it, for sm_90a.
"""
import json
import os
import subprocess
import sys
import tempfile

kiln, slots = sys.argv[1], sys.argv[2:]
hopper = slots[1] if slots[0] == "--hopper" else None


def judged(cache, words):
    """What `gate parity` says, as JSON."""
    result = subprocess.run([kiln, "gate", "parity", *words, "-t", "1", "--json"], capture_output=True, text=True,
                            timeout=900, env=dict(os.environ, KILN_CACHE_DIR=cache), check=False)
    if result.returncode == 4 and "NVRTC" in result.stderr and "is not here" in result.stderr:
        print(result.stderr)
        sys.exit(77)
    try:
        document = json.loads(result.stdout)
    except ValueError:
        print(result.stdout[-2000:], result.stderr[-2000:])
        sys.exit(1)
    assert result.returncode == (1 if document["failed"] else 0), result.stderr
    return document


def named(prefix):
    """Variants of kiln's own plugins."""
    listed = json.loads(subprocess.run([kiln, "plugins", "inspect", "matmul", "--json"], capture_output=True, text=True,
                                       check=True, timeout=60).stdout)
    return [variant["name"] for variant in listed["variants"] if variant["name"].startswith(prefix)]


with tempfile.TemporaryDirectory() as folder:
    if hopper:
        documents = [judged(folder, [*slots[2:], "--variant", name, "--device", "sim:sm_90a"]) for name in named(hopper)]
    else:
        documents = [judged(folder, [*slots, "--all", "--device", "sim"])]
cases = [case for document in documents for case in document["cases"]]
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
for document in documents:
    assert document["failed"] == 0 and document["passed"] > 0, document["failed"]
    assert document["device"] == ("sim:sm_90a" if hopper else "sim:sm_80"), document["device"]
assert documents and all(case["grade"] == "simulated" for case in cases)
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
    assert cases == ["f16_expand"] * 9 + ["f16_expand_glu"] * 9, cases
