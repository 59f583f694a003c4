#!/usr/bin/env python3
"""Kernels that have the copy engine bring their weights, on sim:sm_90a with all checks on: numbers within their bounds
and no report; and copies of them with a wait, an arrival or a fence taken away: a report of the right kind.

usage: test_bulk.py KILN SOURCE_ROOT; skipped (77) where there is no NVRTC. Exit status 1 when a case fails.
"""
import json
import os
import subprocess
import sys
import tempfile

kiln, root = os.path.abspath(sys.argv[1]), sys.argv[2]
failures = 0
FEW_WARPS = "GEMV_WARPS=2"  # so that K of the gate's shapes is long enough for the copy engine


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def run(*words):
    result = subprocess.run([kiln, *words, "--device", "sim:sm_90a", "--sim-check", "all", "--json"], capture_output=True,
                            text=True, check=False, timeout=300)
    if result.returncode == 4 and "NVRTC" in result.stderr and "is not here" in result.stderr:
        print(result.stderr)
        sys.exit(77)
    try:
        return json.loads(result.stdout), result
    except ValueError:
        return {}, result


def gates():
    for section, variant, slots in (("matmul.*.decode", "gemv", ["q4_K", "q6_K", "q4_0"]),
                                    ("matmul.*.decode", "gemv_q8", ["q4_K", "q8_0"]), ("norm", "norm_qkv", []),
                                    ("norm", "norm_glu", [])):
        names = ["matmul.%s.decode" % kind for kind in slots] or ["norm"]
        gate, result = run("gate", "parity", *names, "--set", section + ".variant=" + variant, "--set",
                           section + "." + FEW_WARPS)
        check("parity of " + variant, gate.get("verdict") == "PASS" and gate["passed"] > 0 and gate["skipped"] == 0 and
              all(case["variant"] == variant for case in gate["cases"]), result.stdout[-3000:] + result.stderr)


def op(slot, shape, *more):
    document, result = run("op", slot, "--shape", shape, "--once", *more)
    return document.get("sim", {"findings": [], "kernels": [], "faults": -1}), result


def shapes():
    """Rows that begin and end anywhere, a last tile that is not full, a last unit that is no whole one."""
    for slot, shape in (("matmul.q4_K.decode", "m=2,n=257,k=4352"), ("matmul.q6_K.decode", "m=1,n=257,k=4352"),
                        ("matmul.q8_0.decode", "m=1,n=300,k=4384"), ("matmul.q4_0.decode", "m=1,n=1,k=2336"),
                        ("norm", "m=1,n=256,k=3584")):
        sim, result = op(slot, shape, "--set", "norm.variant=norm_glu")
        total = sim["kernels"][0]["total"] if sim["kernels"] else {}
        check("%s %s: nothing is found" % (slot, shape), sim["faults"] == 0 and not sim["findings"], result.stdout + result.stderr)
        check("... and the copy engine was there", total.get("bulk_copies", 0) > 0 and total["mbarriers"] > 0 and
              total["bulk_sectors"] * 32 >= total["bulk_bytes"] > 0, str(total))


def edited(name, edits):
    """A config that takes mm_stream from a copy in which mv_bulk.cuh has the second of each pair in place of the first."""
    sources = os.path.join(root, "kernels_src", "matmul")
    with open(os.path.join(sources, "mv_bulk.cuh"), encoding="utf-8") as file:
        text = file.read()
    for old, new in edits:
        assert text.count(old) == 1, (name, old, text.count(old))
        text = text.replace(old, new)
    os.makedirs(name)
    with open(os.path.join(name, "my_bulk.cuh"), "w", encoding="utf-8") as file:
        file.write(text)
    with open(os.path.join(sources, "mm_stream.cu"), encoding="utf-8") as file:
        kernel = file.read()
    with open(os.path.join(name, "mm_stream.cu"), "w", encoding="utf-8") as file:
        file.write(kernel.replace('"matmul/mv_bulk.cuh"', '"my_bulk.cuh"'))
    path = os.path.join(name, "my.ini")
    with open(path, "w", encoding="utf-8") as file:
        for slot, variant in (("matmul.*.decode", "gemv"), ("norm", "norm_qkv")):
            file.write("[%s]\nvariant = %s\nsource = ./mm_stream.cu\nGEMV_BULK = 2\n" % (slot, variant))
    return path


WAIT_FULL = "bulk_wait(ring.full + (unsigned)(at.stage * 8), at.parity);"
WAIT_EMPTY = "bulk_wait(ring.empty + (unsigned)(at.stage * 8), at.parity);"
ARRIVE = """                if (ptx_lane() == 0) {
                    bulk_arrive(ring.empty + (unsigned)(at.stage * 8));
                }
"""
SHORT = ("matmul.q4_K.decode", "m=1,n=2400,k=4352")
# Three matrices, whose last rows end anywhere; stages in which one ends are used again.
THREE = ("norm", "m=1,n=5001,k=2560,weight=q6_K")
# What is changed, how, and what is found; sim runs the warps that read before the one that copies.
FAULTS = (
    (SHORT, "nothing", [], set()),
    (SHORT, "no wait for the copies", [(WAIT_FULL, "")], {"uninit-shared"}),
    (SHORT, "no wait for those who read", [(WAIT_EMPTY, "")], {"deadlock"}),
    (SHORT, "nobody says that it has read", [(ARRIVE, "")], {"deadlock"}),
    (SHORT, "said before it is read", [(ARRIVE, ""), (WAIT_FULL, WAIT_FULL + ARRIVE)], {"race"}),
    (SHORT, "sums joined too soon", [("bulk_sync_some(1, MV_THREADS);", "")], {"race"}),
    (SHORT, "another warp's activations", [("unit < MV_UNITS ? unit : unit - MV_CHUNK", "min(unit, MV_UNITS - 1)")], {"race"}),
    (SHORT, "barriers not shown to the copy engine", [("bulk_barriers_begun();", "")], {"mbarrier"}),
    (SHORT, "more bytes expected than come", [("(barrier, (unsigned)all)", "(barrier, (unsigned)all + 16)")], {"deadlock"}),
    (THREE, "nothing", [], set()),
    (THREE, "a lane's writes not shown to the copy engine", [("            bulk_written();", "")], {"race"}),
)


def faults():
    for number, (which, what, edits, kinds) in enumerate(FAULTS):
        sim, result = op(*which, "--config", edited("edit%d" % number, edits))
        found = {finding["check"] for finding in sim["findings"] if not finding["advice"]}
        check("%s, changed: %s; found: %s" % (which[0], what, ", ".join(sorted(found))),
              found >= kinds and bool(found) == bool(kinds) and bool(sim["kernels"]), result.stderr)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    os.environ["KILN_CACHE_DIR"] = os.path.join(scratch, "cache")
    gates()
    shapes()
    faults()
sys.exit(1 if failures else 0)
