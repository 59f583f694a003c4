#!/usr/bin/env python3
"""`kiln audit --simulate`: structure and behaviour of every CUDA variant that ships, from the simulator alone.

usage: test_audit_sim.py KILN; skipped (77) where there is no NVRTC. Each variant once, with q4_K weights, bound in as few
configurations as there are variants of the slot that has most; for an A100, what is made for Hopper for an H200. The int8
products once by tiles and once by shared steps: which of them a call takes follows its size, and sim runs a small one.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

kiln = sys.argv[1]
cache = tempfile.TemporaryDirectory()
env = dict(os.environ, KILN_CACHE_DIR=cache.name)
failures = 0


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def run(*words):
    result = subprocess.run([kiln, *words], capture_output=True, text=True, check=False, timeout=240, env=env)
    assert result.returncode == 0, (words, result.stderr)
    return json.loads(result.stdout)


def shipped():
    """Slot -> variants that take it alone, and those that take the ops behind it, too."""
    slots, groups = {}, set()
    for plugin in ("attention", "matmul", "elementwise"):
        for variant in run("plugins", "inspect", plugin, "--json")["variants"]:
            assert "cuda" in variant["devices"], variant
            if variant["follows"]:
                groups.add(variant["name"])
                continue
            for slot in {slot.replace("*", "q4_K") for slot in variant["slots"]}:
                if "matmul" not in slot or "q4_K" in slot:
                    slots.setdefault(slot, []).append(variant["name"])
    return slots, groups


def place(line):
    return line.get("file") and line.get("line", 0) > 0


def look_at(row):
    """Structure by source line, and what was counted."""
    name = "%s %s %s" % (row["slot"], row["variant"], row["kernel"])
    lines = (row["structure"] or {}).get("lines", [])
    named = [line for line in lines if place(line) and line["instructions"]]
    check(name + ": structure by source line", len(named) >= 5 and any(line["units"] for line in named) and
          any(line.get("source") for line in named) and row["structure"]["grade"] == "derived", lines[:3])
    sim = row["simulated"] or {}
    check(name + ": simulated, no fault", sim.get("grade") == "simulated" and sim.get("faults") == 0 and
          sim.get("warp_instructions", 0) > 0 and sim.get("barriers_per_block", -1) >= 0, str(sim)[:400])
    check(name + ": sectors a request", sim.get("global") and all(
        place(site) and 1 <= site["sectors_per_request"] <= 32 for site in sim["global"]), str(sim)[:400])
    banks = [bank for bank in row["banks"] if bank["grade"] == "simulated"]
    check(name + ": bank ways by site", bool(banks) == (sim.get("smem_used", 0) > 0) and
          all(place(bank) and bank["ways"] >= 1 for bank in banks), str(banks)[:400])
    loops = (row["structure"] or {}).get("loops", [])
    check(name + ": barriers a tile", all(isinstance(loop["barriers"], int) for loop in loops) and
          ("barriers_per_turn" in row), str(loops)[:400])


def simulate(sets, slots, stream=0):
    words = [word for slot, variant in sets for word in ("--set", "%s.variant=%s" % (slot, variant))]
    words += [word for slot, variant in sets if variant.startswith("mmq")
              for word in ("--set", "%s.STREAM_K=%d" % (slot, stream))]
    return run("audit", *slots, "--simulate", "--target", "a100", "--json", *words)


def look_at_op(slot, variant):
    """Of an op that is no part of the audited pass: what `op` counted."""
    shape = "m=2,n=1000" if slot == "argmax" else "m=3,k=512"
    document = run("op", slot, "--set", "%s.variant=%s" % (slot, variant), "--shape", shape, "--device", "sim", "--json")
    check("%s %s: simulated, no fault" % (slot, variant), document["passed"] and document["sim"]["faults"] == 0,
          str(document)[:400])
    for kernel in document["sim"]["kernels"]:
        total = kernel["total"]
        check("%s %s %s: counted by line" % (slot, variant, kernel["kernel"]), kernel["grade"] == "simulated" and
              total["global_load_sectors"] >= total["global_loads"] > 0 and total["barriers"] >= 0 and
              all(place(site) for site in kernel["sites"]) and bool(kernel["lines"]), str(kernel)[:400])


slots, groups = shipped()
for names in slots.values():  # the formats that norm and activation can write are those that int8 products read
    names.sort(key=lambda name: not name.startswith("mmq"))
alone, prefill = ("argmax", "quantize"), "matmul.q4_K.prefill"
hopper = [name for name in slots[prefill] + sorted(groups) if name.startswith("f16_wgmma")]
slots[prefill] = [name for name in slots[prefill] if name not in hopper]
groups -= set(hopper)
# Those that take more ops than one, where the configuration binds none of these ops by itself; then the others.
rounds = [([], ["norm", "rope_kv"]),
          ([("matmul.q4_K.prefill", "f16_expand_glu")], ["matmul.q4_K.prefill"])]
for number in range(max(len(names) for names in slots.values())):
    sets = [(slot, names[number]) for slot, names in slots.items() if number < len(names) and slot not in alone]
    rounds.append((sets, [slot for slot, _ in sets]))
seen = set()
for sets, asked in rounds:
    document = simulate(sets, asked)
    if document["registers_unknown"] is not None:
        print(document["registers_unknown"])
        sys.exit(77)
    for row in document["kernels"]:
        if row["kernel"] and (row["variant"], row["kernel"]) not in seen:
            seen.add((row["variant"], row["kernel"]))
            look_at(row)
streamed = [row for name in ("mmq", "mmq_async", "mmq_expand")
            for row in simulate([("matmul.q4_K.prefill", name)], ["matmul.q4_K.prefill"], stream=1)["kernels"]]
check("products of shared steps", [row["kernel"] for row in streamed].count("mm_mmq_seams") == 3,
      [row["kernel"] for row in streamed])
for row in streamed:
    look_at(row)
missing = {name for slot, names in slots.items() if slot not in alone for name in names} | groups
missing -= {variant for variant, _ in seen}
check("every variant", not missing and len(seen) > 20, missing)
for slot in alone:
    for variant in slots[slot]:
        look_at_op(slot, variant)
check("there are variants for Hopper", "f16_wgmma" in hopper, hopper)
for variant in hopper:
    asked = [prefill] if variant in ("f16_wgmma",) else [prefill, "activation"]
    rows = run("audit", *asked, "--simulate", "--target", "h200", "--json", "--set", prefill + ".variant=" + variant)["kernels"]
    rows = [row for row in rows if row["variant"] == variant and "wgmma" in row["kernel"]]
    check(variant + " is audited", bool(rows), variant)
    for row in rows:
        look_at(row)
        # Each warp of four does 16 rows by BN by 16 at a time; a block does BM rows, and the k that the problem says.
        sim = row["simulated"] or {}
        k = int(re.search(r"k=(\d+)", sim.get("problem", "k=0")).group(1))
        check(variant + ": tensor-core operations", sim.get("tensor_ops_per_block") == row["geometry"]["BM"] / 16 * k / 16, sim)
files = [os.path.join(cache.name, "tile%d.ini" % tile) for tile in (32, 48)]
for tile, name in zip((32, 48), files):
    with open(name, "w", encoding="ascii") as out:
        out.write("[attention.prefill]\nvariant = fap2\nFA_TKV = %d\n" % tile)
changes = run("audit", "--diff", *files, "attention.prefill", "--simulate", "--target", "h200", "--json")["diff"][0]["changes"]
check("a difference has what was simulated", changes.get("simulated_barriers") == ["9", "7"], changes)
stages = {key: value for key, value in changes.items() if re.fullmatch(r"structure fap2\.cu:\d+", key)}
check("a difference has the stages by line", len(stages) > 2 and all(a != b for a, b in stages.values()) and
      any(re.match(r"\d+ mma \d+ ldmatrix", a) and re.match(r"\d+ mma", b) for a, b in stages.values()), changes)
for name, text in zip(files, ("64", "32\nFA_SPAD = 4")):
    with open(name, "w", encoding="ascii") as out:
        out.write("[attention.prefill]\nvariant = fap1\nFA_TKV = %s\n" % text)
changes = run("audit", "--diff", *files, "attention.prefill", "--simulate", "--target", "h200", "--json")["diff"][0]["changes"]
sites = {key: value for key, value in changes.items() if re.fullmatch(r"simulated \S+\.cuh?:\d+ st\.shared\S*", key)}
check("a difference has the sites by line", ["1-way, 1 wavefronts", "2-way, 2 wavefronts"] in sites.values(), changes)
same = run("audit", "--diff", files[0], files[0], "attention.prefill", "--simulate", "--target", "h200", "--json")
check("none without a difference", same["diff"][0]["changes"] == {}, str(same["diff"][0]["changes"]))
cache.cleanup()
print("%d failed" % failures)
sys.exit(1 if failures else 0)
