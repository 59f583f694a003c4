#!/usr/bin/env python3
"""`kiln audit`: the campaign's table to the byte, bank conflicts by site, differences, no compiler.

usage: test_audit.py KILN PLUGINS_JIT. Where there is no NVRTC, what needs one is left out and said so. Exit
status 1 when a case fails.
"""
import json
import os
import subprocess
import sys
import tempfile

kiln, planted_plugins = sys.argv[1:3]
failures = 0
cache = tempfile.TemporaryDirectory()
env = dict(os.environ, KILN_CACHE_DIR=cache.name)


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def run(*words, **more):
    return subprocess.run([kiln, *words], capture_output=True, text=True, check=False, timeout=120,
                          env=dict(env, **more))


def sets(section, **values):
    return [word for key, value in values.items() for word in ("--set", "%s.%s=%s" % (section, key, value))]


def kernels(*words, **more):
    result = run("audit", *words, "--json", **more)
    if result.returncode != 0:
        check("kiln audit " + " ".join(words), False, result.stderr)
        return []
    return json.loads(result.stdout)["kernels"]


# What is not compiled is quick; what the plans alone say needs no more.
NO_COMPILER = {"KILN_NVRTC": os.path.join(cache.name, "nowhere")}


def attention(more=None, **values):
    rows = kernels("attention.prefill", "--target", "gb10", *sets("attention.prefill", **values), **(more or {}))
    return rows[0] if rows else {}


for targets in ("", "gb10,", ",gb10"):
    result = run("audit", "attention.prefill", "--target", targets, **NO_COMPILER)
    check("--target '%s' is refused" % targets, result.returncode == 2 and "separated by commas" in result.stderr, result.stderr)
first = run("audit", "attention.prefill", "--target", "gb10", "--json")
compiler = first.returncode == 0 and json.loads(first.stdout)["registers_unknown"] is None
print("NVRTC:", "here" if compiler else "not here: layouts and registers are not looked at")

# variant, geometry, bytes asked for, bytes of the layout, blocks a multiprocessor, the layout's, warps, occupancy
TABLE = [
    ("fap1", dict(FA_TKV=64, FA_SPAD=0), 69376, 69376, 1, 1, 8, 16.7),
    ("fap1", dict(FA_TKV=32, FA_SPAD=0, FA_LEGACY_SMEM=1), 61184, 43776, 1, 2, 8, 16.7),
    ("fap1", dict(FA_TKV=32, FA_SPAD=0), 43776, 43776, 2, 2, 16, 33.3),
    ("fap1", dict(FA_TKV=64, FA_SPAD=8), 71424, 71424, 1, 1, 8, 16.7),
    ("fap1", dict(FA_TKV=32, FA_SPAD=8), 45824, 45824, 2, 2, 16, 33.3),
    ("fap2", dict(FA_TQ=64, FA_TKV=32), 34816, 34816, 2, 2, 8, 16.7),
    ("fap2", dict(FA_TQ=64, FA_TKV=16), 32768, 32768, 3, 3, 12, 25.0),
    ("fap2db", dict(FA_TQ=64, FA_TKV=32), 52224, 52224, 1, 1, 4, 8.3),
    ("fap2db", dict(FA_TQ=48, FA_TKV=32), 47872, 47872, 2, 2, 6, 12.5),
]
for variant, geometry, asked, used, blocks, own_blocks, warps, percent in TABLE:
    row = attention(variant=variant, **geometry)
    name = "%s %s" % (variant, geometry)
    got = (row.get("smem_requested"), row.get("blocks_per_sm"), row.get("warps_per_sm"),
           round(100 * row.get("occupancy", 0), 1))
    check(name, got == (asked, blocks, warps, percent), got)
    check(name + ": what limits", row.get("limiter") == "shared memory", row.get("limiter"))
    if compiler:
        got = (row["smem_layout"], row["smem_over"], row["blocks_per_sm_layout"], row["spill_bytes"])
        check(name + ": layout", got == (used, asked - used, own_blocks, 0), got)
        check(name + ": registers", row["registers"] > 32, row["registers"])
    else:
        check(name + ": layout", row.get("smem_layout", 0) is None and row.get("registers", 0) is None)


def ways(row):
    return {bank["site"]: (bank["stride_bytes"], bank["ways"]) for bank in row.get("banks", [])}


def bank_cases():
    for pad, stride, count in ((0, 256, 8), (8, 272, 1)):
        for variant in ("fap1", "fap2", "fap2db"):
            got = ways(attention(NO_COMPILER, variant=variant, FA_KPAD=pad))
            check("%s: staged rows, %d halves behind" % (variant, pad),
                  all(got.get(site) == (stride, count) for site in ("Q ldmatrix", "K ldmatrix", "V ldmatrix.trans")),
                  got)
    for pad, stride, store, load in ((0, 256, 4, 8), (4, 272, 2, 1), (8, 288, 1, 2)):
        row = attention(NO_COMPILER, variant="fap1", FA_TKV=64, FA_SPAD=pad)
        got = ways(row)
        check("fap1: scores and weights, %d floats behind" % pad,
              got.get("S store") == (stride, store) and got.get("P ldmatrix") == (stride, load), got)
        check("a grade on every site", all(bank["grade"] == "derived" for bank in row["banks"]))


def shape_cases():
    devices = "gb10,h200,h100,a100,rtx3090,rtx4090,rtx5090,b200"
    rows = kernels("attention.prefill", "--target", devices, **NO_COMPILER)
    check("a row a device", [row["target"] for row in rows] ==
          ["sm_121", "sm_90a", "sm_90a", "sm_80", "sm_86", "sm_89", "sm_120", "sm_100a"],
          [row["target"] for row in rows])
    keys = {"slot", "plugin", "variant", "kernel", "target", "geometry", "smem_requested", "smem_layout", "smem_over",
            "blocks_per_sm", "blocks_per_sm_layout", "limiter", "warps_per_sm", "occupancy", "registers",
            "spill_bytes", "banks"}
    check("the promised keys", all(keys <= set(row) for row in rows), keys - set(rows[0]))
    call = rows[0]["calls"][0]
    check("the 7B problem", call["ops"] == 28 and call["grid"] == [52, 28, 1] and call["flops"] > 7e10, call)
    rows = kernels("--target", "gb10", "--tokens", "512", **NO_COMPILER)
    slots = {row["slot"] for row in rows}
    check("every slot of the pass", {"embed", "norm", "rope_kv", "activation", "attention.prefill",
                                     "matmul.q4_K.prefill", "matmul.q6_K.decode"} <= slots, slots)
    check("two ops in one launch", "attention.decode" not in slots and "rope_splitkv" in {row["variant"] for row in rows},
          slots)
    roles = [call["role"] for row in rows if row["slot"] == "matmul.q4_K.decode" for call in row["calls"]]
    check("a call a role", "ffn_down" in roles and len(roles) == len(set(roles)), roles)
    text = run("audit", "attention.prefill", "--target", "gb10").stdout
    check("text", "resources  [derived]  2 blocks/SM, 8 of 48 warps, occupancy 16.7 %" in text and
          "34,816 B asked for" in text and "behaviour  [derived]" in text, text)
    rows = kernels("attention.prefill", "norm", "--device", "cpu")
    check("on the CPU", rows and all(row["variant"] == "exact" and row["blocks_per_sm"] is None for row in rows), rows)


def over_cases():
    words = sets("attention.prefill", variant="fap1", FA_LEGACY_SMEM=1, FA_SPAD=0)
    result = run("audit", "attention.prefill", "--target", "gb10", *words)
    check("the launcher that was not fixed", "asks for 17,408 B that its layout does not use: 1 block/SM, 2 without "
          "them" in result.stdout, result.stdout)


def structure_cases():
    """Which stage runs where, by the kernel's own lines."""
    def units(row):
        return {line.get("source", "").split("(")[0].split("<")[0]: line["units"] for line in row["structure"]["lines"]
                if line["units"]}
    row = attention(variant="fap1")
    got = units(row)
    check("fap1: scores and weights go through shared memory",
          got.get("fa_make_scores") == "tensor cores, shared memory" and
          got.get("fa_softmax_row") == "shared memory, ALU" and
          got.get("fa_add_values") == "tensor cores, shared memory, ALU", got)
    check("fap1: 4 barriers a tile", row["barriers_per_turn"] == 4, row["structure"]["loops"])
    for barriers in (2, 3):
        row = attention(variant="fap2", FA_SYNC=barriers)
        check("fap2: FA_SYNC=%d" % barriers, row["barriers_per_turn"] == barriers, row["structure"]["loops"])
    got = units(row)
    check("fap2: softmax in registers", got.get("fa_softmax") == "ALU" and
          got.get("fa_scores") == "tensor cores, shared memory", got)
    loop = max(row["structure"]["loops"], key=lambda loop: loop["instructions"].get("mma", 0))
    check("fap2: nothing is stored to shared memory in its loop", "st.shared" not in loop["instructions"] and
          loop["instructions"]["ldmatrix"] > 0, loop)
    text = run("audit", "attention.prefill", "--target", "gb10", *sets("attention.prefill", variant="fap1")).stdout
    check("structure as text", "structure  [derived]  4 barriers a turn of the loop at fap1.cu:" in text and
          "| fa_softmax_row(" in text, text)


def planted(command, variant, *more, **geometry):
    return run(command, "norm", "--target", "gb10", "--plugin-dir", planted_plugins,
               *sets("norm", plugin="jitlab", variant=variant, **geometry), *more)


def planted_cases():
    for command in ("audit", "jit"):
        result = planted(command, "lab_legacy", "--device", "sim")
        check("%s: --device and --target" % command, result.returncode == 2 and
              "--device sim and --target gb10: one of the two" in result.stderr, result.stderr)
        result = planted(command, "lab_legacy", "--json")
        row = json.loads(result.stdout or '{"kernels": [{}]}')["kernels"][0]
        got = [row.get(key) for key in ("smem_requested", "smem_layout", "smem_over", "blocks_per_sm",
                                        "blocks_per_sm_layout")]
        check("%s: a launcher that asks for 3 tiles of queries" % command, got == [52224, 34816, 17408, 1, 2], got)
        check("%s: loading says so, once" % command, result.stderr.count("17408 bytes too many, which leaves 1 of 2 "
              "blocks a multiprocessor") == 1, result.stderr)
        result = planted(command, "lab_legacy", LAB_TKV=64)
        check("%s: the formula is right when the tiles are alike" % command,
              result.returncode == 0 and "too many" not in result.stderr, result.stderr)
        result = planted(command, "lab_stingy")
        check("%s: one that asks for too little" % command, result.returncode == 4 and
              'lab_tiles.cu(2): error: static assertion failed with "KILN_SMEM: the launcher asks for too little"' in
              result.stderr and "KILN_SMEM=26112" in result.stderr, result.stderr)
        result = planted(command, "lab_limits", LAB_SUMS=96)
        check("%s: more registers than a block may use" % command, result.returncode == 4 and
              "1024 threads with 2" in result.stderr and "sm_121 allows 65536 a block" in result.stderr and
              "change LAB_THREADS" in result.stderr, result.stderr)
        result = planted(command, "lab_limits", LAB_SUMS=96, LAB_THREADS=256)
        check("%s: fewer threads" % command, result.returncode == 0, result.stderr)
    text = planted("audit", "lab_legacy").stdout
    check("the planted launcher as text", "asks for 17,408 B that its layout does not use: 1 block/SM, 2 without them"
          in text, text)
    text = planted("audit", "lab_limits", LAB_SMEM=114688).stdout
    check("a plan that exceeds the device", "exceeds the device: " in text and "it fits with LAB_SMEM=98304" in text,
          text)


def diff_cases(folder):
    base, change = os.path.join(folder, "base.ini"), os.path.join(folder, "change.ini")
    with open(base, "w", encoding="ascii") as file:
        file.write("[attention.prefill]\nvariant = fap1\nFA_TKV = 64\n")
    with open(change, "w", encoding="ascii") as file:
        file.write("[attention.prefill]\nvariant = fap1\nFA_TKV = 32\nFA_SPAD = 4\n")
    result = run("audit", "--diff", base, change, "--target", "gb10", "--json", **NO_COMPILER)
    rows = [row for row in json.loads(result.stdout or '{"diff": []}')["diff"] if row["changes"]]
    check("one kernel differs", result.returncode == 0 and [row["slot"] for row in rows] == ["attention.prefill"],
          result.stderr)
    changes = rows[0]["changes"] if rows else {}
    want = {"FA_TKV": ["64", "32"], "FA_SPAD": ["8", "4"], "smem_requested": ["71424", "44800"],
            "blocks_per_sm": ["1", "2"], "occupancy": ["16.7 %", "33.3 %"],
            "banks P ldmatrix": ["2-way, 288 B", "1-way, 144 B"]}
    check("what differs", all(changes.get(key) == value for key, value in want.items()), changes)
    check("what does not", "variant" not in changes and "threads" not in changes and "limiter" not in changes, changes)
    text = run("audit", "--diff", base, change, "attention.prefill", "--target", "gb10", **NO_COMPILER).stdout
    check("as text", "1 of 1 kernels differ" in text and "FA_TKV" in text, text)
    check("two files are needed", run("audit", "--diff", base).returncode == 2)
    check("the same twice", "0 of 1 kernels differ" in
          run("audit", "--diff", base, base, "attention.prefill", "--target", "gb10", **NO_COMPILER).stdout)


def refusal_cases():
    result = run("audit", "atention.prefill")
    check("a slot that is not there", result.returncode == 2 and "'attention'" in result.stderr, result.stderr)
    result = run("audit", "--target", "gb11")
    check("a device that is not there", result.returncode == 2 and "rtx5090" in result.stderr, result.stderr)
    result = run("audit", "--device", "cuda:x")
    check("a number that is none", result.returncode == 2 and "cuda:x" in result.stderr, result.stderr)
    rows = kernels("attention.prefill", "--target", "gb10", **NO_COMPILER)
    check("without a compiler", rows and rows[0]["registers"] is None and rows[0]["blocks_per_sm"] == 2, rows)


def measured_cases():
    """Counters of a profiler's export beside the derived figures."""
    profiles = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/profiles")
    details, raw = (os.path.join(profiles, name) for name in ("ncu_details.csv", "ncu_raw.csv"))
    slot = ["attention.prefill", "--target", "h200", *sets("attention.prefill", variant="fap2")]
    rows = kernels(*slot, "--ncu", details, **NO_COMPILER)
    ncu = rows[0]["ncu"] if rows else {}
    check("ncu: the details page", ncu.get("launches") == 2 and abs(ncu["ms"] - 1) < 1e-9 and ncu["sm_busy_pct"] == 65
          and ncu["memory_pct"] == 41.5 and ncu["dram_pct"] is None and ncu["grade"] == "measured"
          and ncu["stalls"] == [{"stall": "barrier", "cycles": 2.5}, {"stall": "long scoreboard", "cycles": 1.25}]
          and ncu["speedup_pct"] == 7 and ncu["speedup_type"] == "global"
          and ncu["rule"] == "SOLBottleneck", rows)
    rows = kernels(*slot, "--ncu", raw, **NO_COMPILER)
    ncu = rows[0]["ncu"] if rows else {}
    check("ncu: the raw page", ncu.get("launches") == 1 and abs(ncu["ms"] - 2) < 1e-9 and ncu["sm_busy_pct"] == 50
          and ncu["stalls"] == [{"stall": "barrier", "cycles": 3.5}], rows)
    real_cases(profiles)
    text = run("audit", *slot, "--ncu", details, **NO_COMPILER).stdout
    check("ncu: in words", "[measured] 1.000 ms a launch, mean of 2, SM busy 65.0 %" in text
          and "stalls: barrier 2.50, long scoreboard 1.25" in text and "7.0 % (SOLBottleneck)" in text, text)
    result = run("audit", "norm", "--target", "h200", "--ncu", details, **NO_COMPILER)
    check("ncu: of other kernels", result.returncode == 0 and "its first is fap2" in result.stderr, result.stderr)
    rows = kernels(*slot, **NO_COMPILER)
    check("ncu: not given", rows and rows[0]["ncu"] is None, rows)
    result = run("audit", *slot, "--ncu", os.path.join(profiles, "kern_sum.csv"), **NO_COMPILER)
    check("ncu: no export of it", result.returncode == 3 and "Nsight Compute" in result.stderr, result.stderr)


def real_cases(profiles):
    """What ncu of CUDA 13.0 wrote of launches on an H200: the pages say the same of the same launches."""
    slot = ["matmul.q4_K.prefill", "--target", "h200", "--set", "matmul.q4_K.prefill.variant=f16_wgmma"]
    ncu = {}
    for page in "details", "raw":
        rows = kernels(*slot, "--ncu", os.path.join(profiles, "ncu_%s_h200.csv" % page), **NO_COMPILER)
        measured = [row["ncu"] for row in rows if row["ncu"]]
        check("ncu of an H200: " + page, len(measured) == 1 and measured[0]["kernel"] == "mm_expand", rows)
        ncu[page] = measured[0] if measured else {}
    for key in "sm_busy_pct", "issue_pct", "compute_pct", "memory_pct", "dram_pct", "occupancy_pct":
        one, other = (ncu[page].get(key) for page in ("details", "raw"))
        check("ncu of an H200: %s of both pages" % key, one and other and abs(one - other) < 0.006, ncu)
    check("ncu of an H200: time of both pages", abs(ncu["details"]["ms"] - ncu["raw"]["ms"]) < 1e-5, ncu)
    stalls = [{s["stall"]: s["cycles"] for s in ncu[page]["stalls"]} for page in ("details", "raw")]
    check("ncu of an H200: stalls of both pages", stalls[0].keys() == stalls[1].keys() and "selected" not in stalls[0]
          and all(abs(stalls[0][k] - stalls[1][k]) < 0.006 for k in stalls[0]), stalls)
    check("ncu of an H200: of the kernel's time before of a part", ncu["details"]["speedup_type"] == "global"
          and ncu["details"]["rule"] == "LaunchConfiguration", ncu)
    rows = kernels("attention.prefill", "--target", "h200", *sets("attention.prefill", variant="fap2"), "--ncu",
                   os.path.join(profiles, "ncu_metric.csv"), **NO_COMPILER)
    check("ncu: time asked for by name", rows and abs(rows[0]["ncu"]["ms"] - 0.5) < 1e-9
          and rows[0]["ncu"]["launches"] == 2, rows)


def simulated_cases():
    """Counted on the simulator: what the derived rows say, and what they cannot know."""
    slot = ["attention.prefill", "--target", "gb10", "--simulate"]
    rows = kernels(*slot, *sets("attention.prefill", variant="fap2", FA_TQ=64, FA_TKV=32, FA_KPAD=8, FA_SYNC=2))
    sim = rows[0]["simulated"] if rows else {}
    banks = [b for b in rows[0]["banks"] if b["grade"] == "simulated"] if rows else []
    check("simulated: ran without a fault", sim.get("faults") == 0 and sim["tensor_ops_per_block"] > 0
          and sim["barriers_per_block"] > 1 and 0 < sim["smem_used"] <= sim["smem_requested"] == 34816
          and sim["grade"] == "simulated", rows)
    check("simulated: padded rows conflict nowhere under ldmatrix",
          [b["ways"] for b in banks if "ldmatrix" in b["opcode"]] and
          all(b["ways"] == 1 for b in banks if "ldmatrix" in b["opcode"]), banks)
    check("simulated: derived rows stand beside", any(b["grade"] == "derived" for b in rows[0]["banks"]), rows)
    bare = kernels(*slot, *sets("attention.prefill", variant="fap2", FA_TQ=64, FA_TKV=32, FA_KPAD=0))
    ways = [b["ways"] for b in bare[0]["banks"] if b["grade"] == "simulated" and "ldmatrix" in b["opcode"]]
    check("simulated: rows without padding are 8-way", ways and max(ways) == 8, bare)
    rows = kernels("matmul.q4_K.decode", "--target", "h200", "--simulate")
    check("simulated: kernels of one row at their own columns, by the copy engine",
          {row["simulated"]["problem"] for row in rows} == {"m=1 n=256 k=3584 q4_K", "m=1 n=256 k=18944 q4_K"} and
          all(row["simulated"]["faults"] == 0 and row["simulated"]["smem_used"] == row["smem_requested"] for row in rows), rows)
    text = run("audit", *slot).stdout
    check("simulated: in words", "[simulated] at m=130" in text and "barriers a block" in text, text)


bank_cases()
shape_cases()
measured_cases()
if compiler:
    simulated_cases()
    structure_cases()
    over_cases()
    planted_cases()
diff_cases(cache.name)
refusal_cases()
cache.cleanup()
print("%d failed" % failures)
sys.exit(1 if failures else 0)
