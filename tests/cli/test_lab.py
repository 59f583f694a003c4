#!/usr/bin/env python3
"""The lab's commands on a tiny model: what they print, their documents, their exit codes. No timing
decides a case but that of a planted delay, which is many times the rest.

usage: test_lab.py KILN SOURCE_ROOT PLUGINS_DELAY. Exit status 1 when a case fails.
"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile

kiln, source, delay_plugins = sys.argv[1:4]
model = os.path.join(source, "tests/golden/tiny/llama-quant-q8_0.gguf")
failures = 0


# FAKE_NCU=1: a millisecond for a kernel of each slot; 0: of attention alone; -1: no permission.
FAKE_NCU = """#!%s
import os, subprocess, sys
asked = int(os.environ["FAKE_NCU"])
if asked < 0:
    sys.exit("ERR_NVGPUCTRPERM")
log = sys.argv.index("--log-file") + 1
names = ["fap2", "mm_f16", "mm_gemv", "ew_norm", "ew_rope_kv", "ew_activation", "ew_embed"][:7 if asked else 1]
with open(sys.argv[log], "w") as out:
    out.write('"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\\n')
    for i, name in enumerate(names):
        out.write('"%%d","%%s","Command line profiler metrics","gpu__time_duration.sum","ms","2"\\n' %% (i, name))
sys.exit(subprocess.run(sys.argv[log + 1:], stdout=subprocess.DEVNULL).returncode)
"""


def check(what, condition, result):
    global failures
    print("ok  " if condition else "FAIL", what)
    if not condition:
        failures += 1
        print("    exit", result.returncode, "\n    out", result.stdout[-800:], "\n    err", result.stderr[-800:])


def run(*args):
    return subprocess.run([kiln, *args], capture_output=True, text=True, timeout=120)


def case(what, args, code, err="", out=""):
    result = run(*args)
    codes = code if isinstance(code, tuple) else (code,)
    check(what, result.returncode in codes and re.search(err, result.stderr, re.S)
          and re.search(out, result.stdout, re.S), result)
    return result


def document(what, args, code):
    result = case(what, [*args, "--json"], code)
    try:
        return json.loads(result.stdout), result
    except ValueError:
        check(what + ": one JSON document", False, result)
        return {}, result


def kept(what, path, kind, result):
    """The file that --save wrote holds what --json printed, and says what it was taken of."""
    try:
        with open(path, encoding="utf-8") as text:
            saved = json.load(text)
    except (OSError, ValueError):
        saved = {}
    check(what + ": kept", saved.get("kind") == kind and saved["result"] == json.loads(result.stdout)
          and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", saved["date"]) and saved["driver"] is None
          and re.fullmatch("[0-9a-f]{16}", saved["sources"]) and "[engine]" in saved["config"] and saved["kiln"]
          and saved["device"] and saved["grade"] in ("measured", "derived", "simulated"), result)
    return saved


def ab_cases(folder, base, int8):
    shape = ["-m", model, "--device", "cpu", "-p", "16", "-r", "6"]
    saved = os.path.join(folder, "ab.json")
    ab, result = document("ab: one comparison", ["ab", base, int8, *shape, "--save", saved], (0, 1))
    both = kept("ab", saved, "ab", result)
    check("ab: whose model it is", ab["model_file"] == os.path.basename(model), ab)
    check("ab: both configs are kept", "exact_q8" in both.get("config", "") and "base_config" in both
          and "exact_q8" not in both["base_config"] and both["sources"] != both["base_sources"], result)
    pairs = ab.get("pairs", [])
    check("ab: fields", ab.get("verdict") in ("LAND", "REVERT", "NEUTRAL") and len(pairs) == 6
          and ab["grade"] == "measured" and ab["interval_pct"][0] <= ab["median_pct"] <= ab["interval_pct"][1]
          and ab["noise_pct"] >= 0 and all(p["base_s"] > 0 and p["change_s"] > 0 for p in pairs), result)
    check("ab: exit 0 exactly when it lands", (ab.get("verdict") == "LAND") == (result.returncode == 0), result)
    middle = sorted(p["pct"] for p in pairs)
    check("ab: the median is that of the pairs",
          len(middle) == 6 and abs(ab["median_pct"] - (middle[2] + middle[3]) / 2) < 1e-9, result)
    check("ab: a pair's percent is change against base",
          all(abs(p["pct"] - 100 * (p["base_s"] / p["change_s"] - 1)) < 1e-6 for p in pairs), result)
    kernels = ab.get("kernels", {})
    slots = {s["slot"]: s for s in kernels.get("slots", [])}
    matmul, quantize = slots.get("matmul.q8_0.prefill", {}), slots.get("quantize", {})
    check("ab: the kernels of the slots that differ", set(slots) == {"matmul.q8_0.prefill", "matmul.q8_0.decode", "quantize"} and kernels["runs"] == 2
          and matmul["base"] == "cpu/exact" and "exact_q8" in matmul["change"] and min(matmul["base_ms"], matmul["change_ms"]) > 0
          and abs(matmul["pct"] - 100 * (matmul["base_ms"] / matmul["change_ms"] - 1)) < 1e-6 and 0 < matmul["share_pct"] <= 100
          and quantize["base"] == "none" and quantize["pct"] is None and quantize["share_pct"] == 0 and quantize["change_ms"] > 0
          and abs(kernels["all"]["change_ms"] - sum(s["change_ms"] for s in slots.values())) < 1e-9, result)
    sweep, result = document("ab: a sweep", ["ab", base, base, "-m", model, "--device", "cpu", "-p", "8,16", "-n", "2",
                                             "-d", "0,8", "-ub", "8,16", "-r", "6"], (0, 1))
    check("ab: a row for each point", len(sweep.get("rows", [])) == 12, result)
    check("ab: a config against itself has no kernels to tell apart", len(sweep.get("rows", [])) == 12 and all(
        row["kernels"] == {"runs": 0, "slots": [], "all": None} for row in sweep["rows"]), result)
    row, pair = r"\| pp16 \| \d+ \| .* \| (LAND|NEUTRAL|REVERT) \|\n", r"(\| \d \| [\d.]+ \| [\d.]+ \| \S+ \| \S+ \| - \| - \| - \|  \|\n){6}"
    case("ab: the table, kernels beside the wall, pairs", ["ab", base, int8, *shape], (0, 1), out=row + r"\nKernels of .*"
         r"\| pp16 \| \d+ \| matmul.q8_0.prefill \| .*\| cpu/exact \| cpu/exact_q8 \|\n.*\| quantize \| 0.000 \| .*"
         r"\| all of them \| .*\nPairs of pp16, ubatch \d+:\n\n.*\n" + pair + r"\Z")
    case("ab: nothing differs", ["ab", base, base, *shape], (0, 1), out=row + r"\nBase and change run the same kernels in "
         r"every slot.\n\nPairs of ")
    two = ["ab", base, base, *shape, "-n", "2"]
    check("ab: pairs of a sweep on demand", "Pairs" not in case("ab: two rows", two, (0, 1)).stdout, result)
    case("ab: --pairs", [*two, "--pairs"], (0, 1), out=r"Pairs of pp16, .*Pairs of tg2, ")
    case("ab: its help tells the fewest rounds", ["ab", "--help"], 0, out=r"-r R .*at least 6")
    case("ab: until decided", ["ab", base, base, *shape[:-1], "12", "--until-decided"], (0, 1))
    case("ab: one file", ["ab", base, *shape], 2, err="BASE.ini CHANGE.ini")
    case("ab: no model", ["ab", base, base], 2, err="no model")
    case("ab: nothing to do", ["ab", base, base, "-m", model, "--device", "cpu", "-p", "0"], 2, err="both 0")
    case("ab: too long", ["ab", base, base, "-m", model, "--device", "cpu", "-p", "64", "-c", "32"], 2, err="do not fit")
    case("ab: few rounds", ["ab", base, base, *shape[:-1], "2"], 2, err="-r takes")


def planted_cases(folder):
    """A kernel that takes longer by a known time: lost, won back, and the same on both sides. Both wait, so that
    a busy machine hardly shows."""
    files = {}
    for name, wait in (("quick", 10000), ("slow", 40000)):
        files[name] = os.path.join(folder, name + ".ini")
        with open(files[name], "w", encoding="ascii") as out:
            out.write("[activation]\nplugin = delay\nvariant = wait\nWAIT_US = %d\n" % wait)
    shape = ["-m", model, "--device", "cpu", "-p", "16", "-r", "12", "--plugin-dir", delay_plugins]
    for base, change, verdict, code in (("quick", "slow", "REVERT", 1), ("slow", "quick", "LAND", 0),
                                        ("slow", "slow", "NEUTRAL", 1)):
        for _ in range(6):  # a machine that others use may leave nothing to judge; it never says the contrary
            ab, result = document("ab: %s against %s" % (base, change), ["ab", files[base], files[change], *shape],
                                  (0, 1))
            if ab.get("verdict") != "NEUTRAL":
                break
        check("ab: %s against %s: %s" % (base, change, verdict),
              ab.get("verdict") == verdict and result.returncode == code, result)
        slots = ab.get("kernels", {}).get("slots", [])
        if base == change:
            check("ab: the same delay on both sides is no difference", slots == [], result)
            continue
        check("ab: the delay is seen in its slot, and what it does to the wall", [s["slot"] for s in slots] == ["activation"]
              and "WAIT_US=" in slots[0]["base"] and slots[0]["share_pct"] > 20
              and (slots[0]["pct"] < -40 and slots[0]["predicted_pct"] < -30 if change == "slow" else
                   slots[0]["pct"] > 40 and slots[0]["predicted_pct"] > 30), result)
    case("ab: stops when it is decided", ["ab", files["quick"], files["slow"], *shape[:-3], "60", *shape[-2:],
                                          "--until-decided"], 1, out=r"\| (6|12|18|24) \| REVERT \|")
    prompts = os.path.join(folder, "planted.jsonl")
    with open(prompts, "w", encoding="ascii") as out:
        out.write(json.dumps({"prompt_ids": list(range(1, 9))}) + "\n")
    case("greedy: a delay changes no token", ["gate", "greedy", files["quick"], files["slow"], "-m", model, "--device",
                                              "cpu", "--prompts", prompts, "-n", "2", "--plugin-dir", delay_plugins], 0)


def growth_cases(folder, base, shape):
    """A coarse change (activations in int8 at a tiny vocabulary) forks soon, and says where it came from."""
    prompts = os.path.join(folder, "many.jsonl")
    with open(prompts, "w", encoding="ascii") as out:
        for start in range(1, 60):
            out.write(json.dumps({"prompt_ids": [start * 3 % 250 + i for i in range(6)]}) + "\n")
    late = os.path.join(folder, "late.ini")
    with open(late, "w", encoding="ascii") as out:
        out.write("[matmul.*.prefill]\nwhen = layer=1..99\nvariant = exact_q8\n"
                  "[matmul.*.decode]\nwhen = layer=1..99\nvariant = exact_q8\n")
    shape = [*shape[:-1], prompts]
    gate, result = document("greedy: forks", ["gate", "greedy", base, late, *shape, "-n", "24"], 1)
    forks = [c for c in gate.get("cases", []) if c["fork"] >= 0]
    check("greedy: some fork", len(forks) > 0, result)
    check("greedy: a path to each", all(len(c["path"]) == c["steps"] and c["path"][-1]["noise"] == c["fork_noise"]
                                        for c in forks), result)
    for c in forks:
        rows = c["growth"]
        check("greedy: layer 0 is the same, layer 1 is not, the logits are the last",
              rows and all(r["max"] == 0 for r in rows if r["layer"] == 0)
              and any(r["max"] > 0 for r in rows if r["layer"] == 1)
              and abs(rows[-1]["max"] - c["fork_noise"]) <= 1e-6 * c["fork_noise"]
              and all(r["max"] >= r["rms"] >= 0 for r in rows), result)
        check("greedy: the fork was within the noise", c["base"]["gap"] <= 2 * c["fork_noise"] and
              0 <= c["exposed"] <= c["fork"], result)
    case("greedy: a fork in words", ["gate", "greedy", base, late, *shape, "-n", "24"], 1,
         out=r"fork at step .*could flip.*differ from layer 1 matmul.*layer +0 +leaves 0.00e\+00.*logits .*against a gap")


def gate_cases(folder, base, int8, float_sums):
    prompts = os.path.join(folder, "prompts.jsonl")
    with open(prompts, "w", encoding="ascii") as out:
        for start in (1, 20):
            out.write(json.dumps({"prompt_ids": list(range(start, start + 12))}) + "\n")
    shape = ["-m", model, "--device", "cpu", "--prompts", prompts]
    saved = os.path.join(folder, "gate.json")
    gate, result = document("greedy: the same config",
                            ["gate", "greedy", base, base, *shape, "-n", "8", "--save", saved], 0)
    kept("greedy", saved, "gate", result)
    check("greedy: whose model it is", gate["model_file"] == os.path.basename(model), gate)
    check("greedy: identical", gate.get("verdict") == "PASS" and gate["passed"] == 2 and gate["failed"] == 0
          and not gate["regroups"] and all(c["fork"] == -1 and c["noise"] == 0 and c["steps"] == 8
                                           for c in gate["cases"]), result)
    gate, result = document("greedy: a regrouping change", ["gate", "greedy", base, int8, *shape, "-n", "8"], (0, 1))
    check("greedy: says that it regroups", gate.get("regroups") and "exact_q8" in gate["regrouped"]
          and all(c["noise"] > 0 for c in gate["cases"]), result)
    for c in gate.get("cases", []):
        check("greedy: a fork has both sides, identity none",
              ("base" in c and c["base"]["id"] != c["change"]["id"] and c["base"]["gap"] >= 0
               and c["fork"] == c["steps"] - 1) if c["fork"] >= 0 else "base" not in c, result)
    growth_cases(folder, base, shape)
    half = os.path.join(folder, "half.ini")
    with open(half, "w", encoding="ascii") as out:
        out.write("[engine]\nkv_type = f16\n")
    gate, result = document("greedy: another KV cache", ["gate", "greedy", base, half, *shape, "-n", "2"], (0, 1))
    check("greedy: says that the KV cache is another", gate.get("regroups")
          and gate["regrouped"] == "  base    KV cache f32\n  change  KV cache f16\n", result)
    parity, result = document("parity", ["gate", "parity", "norm", "--device", "cpu", "--save", saved], 0)
    kept("parity", saved, "gate", result)
    op, result = document("op", ["op", "norm", "--shape", "m=2,k=64", "--device", "cpu", "-r", "1", "--save", saved], 0)
    kept("op", saved, "op", result)
    check("parity and op: judged", parity.get("passed", 0) > 0 and len(op) > 0, result)
    for name in ("gate parity norm", "op norm --shape m=2,k=64 -r 1"):
        case(name + ": a full disk", [*name.split(), "--device", "cpu", "--save", "/dev/full"], 3, err="/dev/full")
    case("greedy: fewer tokens are no pass", ["gate", "greedy", base, base, *shape, "-n", "32", "-c", "16"], 2,
         err="prompt 0: .*do not fit the context")
    case("greedy: no prompts", ["gate", "greedy", base, base, "-m", model, "--device", "cpu"], 2, err="--prompts FILE")
    tolerance_cases(folder, base, int8, float_sums, half, shape)
    gate, result = document("parity: the CPU's variants", ["gate", "parity", "norm", "attention.decode", "quantize",
                                                           "--all", "--device", "cpu"], 0)
    check("parity: fields", gate.get("verdict") == "PASS" and gate["passed"] == len(gate["cases"]) > 40
          and gate["failed"] == gate["skipped"] == 0 and gate["device"] == "cpu"
          and all(0 <= c["worst"] <= 1 and c["bound"] >= 0 and c["case"] and c["grade"] == "measured"
                  for c in gate["cases"]), result)
    case("parity: what is bound, and what was skipped", ["gate", "parity", "matmul.f16.decode", "--device", "cpu"], 0,
         out=r"matmul.f16.decode +cpu/exact: 6 passed, 0 failed.*\n6 passed, 0 failed, 0 skipped\n")
    case("parity: nothing but declined", ["gate", "parity", "matmul.f16.decode", "--all", "--variant", "exact_q8",
                                          "--device", "cpu"], 1, out="skipped .*not handled.*0 passed, 0 failed, 6 skipped")
    case("parity: unknown slot", ["gate", "parity", "nrom", "--device", "cpu"], 2, err="norm")
    case("parity: unknown variant", ["gate", "parity", "norm", "--all", "--variant", "no", "--device", "cpu"], 2,
         err="no variant to judge")
    case("gate: what", ["gate"], 2, err="what")
    case("gate: unknown", ["gate", "gredy"], 2, err="did you mean 'greedy'")


def tolerance_cases(folder, base, int8, same, half, shape):
    """half: differs a little; int8: by more than that; same: regroups nothing on a CPU."""
    tolerance = ["gate", "tolerance", base]
    saved = os.path.join(folder, "tolerance.json")
    gate, result = document("tolerance: the control as change",
                            [*tolerance, half, "--control", half, *shape, "--save", saved], 0)
    kept("tolerance", saved, "gate", result)
    control, bounds = gate.get("control", {}), gate.get("bounds", {})
    reach = 2 * (abs(control["nll_diff"]) + 2 * control["nll_error"])
    check("tolerance: the control bounds every figure", gate.get("verdict") == "PASS" and gate["passed"] == 3
          and gate["rests_on"] == "control" and gate["factor"] == 2 and gate["change"] == control
          and abs(bounds["gap"] - 2 * control["noise"]) < 1e-9 and bounds["logit"] == bounds["gap"] == gate["bound"]
          and abs(bounds["kl_mean"] - 4 * control["kl_mean"]) < 1e-12
          and abs(bounds["kl_max"] - 4 * control["kl_max"]) < 1e-12
          and abs(bounds["ppl_pct"] - 100 * math.expm1(reach)) < 1e-9, result)
    check("tolerance: rows and continuations", all(c["change"]["rows"] == 12 and c["change"]["kl_mean"] > 0
          and c["change"]["steps"] == 32 and c["change"]["forks"] == 0 and not c["failed"] and c["self_noise"] == 0
          for c in gate["cases"][:2]) and gate["cases"][2]["prompt"] == "all" and control["kl_error"] > 0, result)
    check("tolerance: few rows prove little", any("24 rows prove little" in n for n in gate["notes"]), result)
    gate, result = document("tolerance: more than the control", [*tolerance, int8, "--control", half, *shape], 1)
    fork = gate["cases"][0]["change"].get("fork", {})
    check("tolerance: which bounds are broken", gate["failed"] == 3
          and {"argmax", "fork", "logit", "kl_max"} == set(gate["cases"][0]["failed"])
          and {"logit", "kl_max"} == set(gate["cases"][1]["failed"])
          and {"kl_mean", "perplexity"} == set(gate["cases"][2]["failed"]), result)
    check("tolerance: a fork has step, tokens and gap", fork and fork["base"]["id"] != fork["other"]["id"]
          and fork["step"] == gate["cases"][0]["change"]["steps"] - 1 and fork["base"]["gap"] > gate["bound"]
          and gate["change"]["forks_above_bound"] == 1, result)
    case("tolerance: the same in words", [*tolerance, int8, "--control", half, *shape], 1,
         out=r"prompt 0: fork at step \d+: base \d+ .*change \d+ .*forks at a gap above the bound.*\| may be at most .*"
             r"all prompts: the perplexity", err="FAIL: 3 of 3")
    wide = ["--bound", "9", "--max-diff", "9", "--max-kl", "9", "--max-row-kl", "9", "--max-ppl", "99"]
    gate, result = document("tolerance: options override", [*tolerance, int8, "--control", half, *wide, *shape], 0)
    check("tolerance: options and control", gate["rests_on"] == "control and options" and gate["bound"] == 9
          and abs(gate["bounds"]["ppl_pct"] - 99) < 1e-9, result)
    case("tolerance: a larger factor", [*tolerance, int8, "--control", half, "--factor", "1000", *shape], 0)
    for option, broken in (("--bound", "forks at a gap"), ("--max-diff", "a logit differs"), ("--max-kl", "the mean KL"),
                           ("--max-row-kl", "KL divergence of a row"), ("--max-ppl", "perplexity may be off")):
        words = [*tolerance, int8, "--control", half, "--factor", "1000", *shape, option, "1e-6"]
        case("tolerance: judged by " + option, words, 1, out=broken)
    case("tolerance: a bound alone", [*tolerance, int8, "--bound", "1000", *shape], 0,
         err="no control.*rests on the bounds given", out=r"\| may be at most \| \| any \| \| 1000 \| any \|")
    for change, code in ((int8, 1), (same, 0)):
        gate, result = document("tolerance: a control that is the base", [*tolerance, change, "--control", same, *shape], code)
        check("tolerance: which is none", "it is no control and sets no bound" in gate["notes"][0]
              and "only a change without any difference passes" in gate["notes"][1]
              and gate["rests_on"] == "identity" and gate["bound"] == 0, result)
    gate, result = document("tolerance: that and a bound", [*tolerance, int8, "--control", same, "--bound", "9", *shape], 0)
    check("tolerance: rests on the bound", gate["rests_on"] == "options" and gate["bounds"]["kl_mean"] is None, result)
    case("tolerance: no bound", [*tolerance, int8, *shape], 2, err="--control FILE")
    case("tolerance: no room to go on", [*tolerance, int8, "--bound", "9", *shape, "-c", "16"], 2,
         err="prompt 0: .*do not fit the context")


def wall_cases(folder):
    saved = os.path.join(folder, "wall.json")
    shape = ["wall", "-m", model, "--device", "cpu", "-p", "16", "-r", "2"]
    wall, result = document("wall: prefill", [*shape, "--save", saved, "--lever", "attention.prefill=-11%"], 0)
    kept("wall", saved, "wall", result)
    lines = [s["ms"] for s in wall.get("slices", [])]
    total = sum(lines) + wall.get("host_ms", 0) - wall.get("instrumenting_ms", 0)
    check("wall: adds up", lines and abs(total - wall["wall_ms"]) < 1e-6 * wall["wall_ms"] + 1e-6
          and lines == sorted(lines, reverse=True) and wall["grade"] == "measured", result)
    slots = {s["slot"]: s for s in wall.get("slices", [])}
    check("wall: every op", {"embed", "norm", "rope_kv", "attention.prefill", "activation", "matmul.q8_0.prefill"} <=
          set(slots) and slots["norm"]["steps"] > 1, result)
    wide, _ = document("wall: a wide context", [*shape, "-c", "48"], 0)
    work = [sum(s["tflop_s"] * s["ms"] for s in doc.get("slices", []) if s["slot"] == "attention.prefill")
            for doc in (wall, wide)]
    check("wall: keys that are not there are no work", work[0] > 0 and abs(work[1] / work[0] - 1) < 1e-9, work)
    lever = wall.get("levers", [{}])[0]
    check("wall: a lever's value is share times magnitude",
          lever and abs(lever["ceiling_pct"] + 0.11 * slots["attention.prefill"]["share_pct"]) < 1e-9
          and lever["grade"] == "derived", result)
    check("wall: a CPU has no ceilings", all(s["memory_pct"] is s["peak"] is s["peak_pct"] is s["bound_ms"] is s["bound_by"]
          is None for s in slots.values()) and wall["roofline"] == {"grade": "derived", "device_file": None, "memory_gb_s":
          None, "f16_tflop_s": None, "int8_tflop_s": None, "f32_tflop_s": None, "bound_ms": None}, result)
    case("wall: no lever to a roofline that is not known", [*shape, "--lever", "attention.prefill=roofline"], 2,
         err="attention.prefill=roofline: no ceiling of this device is known")
    case("wall: against itself", [*shape, "--against", saved], 0, out=r"\| attention.prefill \| [\d.]+ \| [\d.]+ \|")
    fresh = case("wall: not stale", [*shape, "--against", saved], 0)
    check("wall: says nothing of a fresh one", "stale" not in fresh.stderr, fresh)
    case("wall: stale by config", [*shape, "--against", saved, "--set", "attention.prefill.variant=exact",
                                   "--set", "engine.ubatch=8"], 0, err="stale: its config is another")
    case("wall: stale by sources", [*shape, "--against", saved, "--set", "matmul.*.prefill.variant=exact_q8"], 0,
         err="stale: its sources are others")
    case("wall: stale by workload", ["wall", "-m", model, "--device", "cpu", "-n", "2", "-r", "1", "--against", saved], 0,
         err="stale: its n_prompt", out="decode of 2 tokens")
    check("wall: marks have a cost, a CPU no clock", wall["mark_us"] > 0 and wall["sm_mhz"] == wall["full_sm_mhz"] == 0
          and wall["capped"] == 0, result)
    check("wall: unpaced unless asked", "paced" not in wall and all("paced_ms" not in s for s in wall["slices"]), result)
    paced_cases(folder, shape, saved)
    case("wall: no such slice", [*shape, "--lever", "attention.decode=-11%"], 2, err="there are .*attention.prefill")
    late = case("wall: no such slot", [*shape, "--lever", "attention.perfil=-11%"], 2, err="--lever: .*did you mean 'prefill'")
    check("wall: which is said before anything is measured", not late.stdout, late.stdout)
    for words in (["--kernels", "kiln"], ["--passes", "2"], ["--against", saved, "--kernels", "kiln"]):
        case("wall: no profile for " + " ".join(words), [*shape, *words], 2, err="profile")
    case("wall: bad lever", [*shape, "--lever", "attention.prefill"], 2, err="--lever takes SLOT=PERCENT")
    case("wall: bad word of a lever", [*shape, "--lever", "attention.prefill=roof"], 2, err="or SLOT=roofline, not ")
    with open(saved, "w", encoding="ascii") as out:
        out.write("{}")
    case("wall: not a wall", [*shape, "--against", saved], 3, err="kiln wall --save")
    late = case("wall: cannot be kept", [*shape, "--save", os.path.join(folder, "no/such/file")], 3, err="no/such/file")
    check("wall: which is said before anything is measured", not late.stdout, late.stdout)
    late = case("ab: cannot be kept", ["ab", os.devnull, os.devnull, "-m", model, "--device", "cpu", "-p", "16", "--save", folder],
                3, err="is a directory")
    check("ab: which is said before anything is measured", not late.stdout, late.stdout)
    bytes_only = os.path.join(folder, b"m\xff.gguf".decode(errors="surrogateescape"))
    os.symlink(model, bytes_only)
    config = os.path.join(folder, b"c\xff.ini".decode(errors="surrogateescape"))
    with open(config, "w", encoding="ascii") as out:
        out.write("[norm]\nvariant = exact\n")
    wall, result = document("wall: names that are no UTF-8", ["wall", "-m", bytes_only, "--device", "cpu", "-p", "16", "-r", "1",
                                                             "--config", config, "--save", saved], 0)
    kept("wall: names that are no UTF-8", saved, "wall", result)
    check("wall: names that are no UTF-8, as they can be told", wall.get("model", "").endswith("m\ufffd.gguf"), result)


def paced_cases(folder, shape, unpaced):
    """Paced runs: beside the wall, no part of it; compared where both sides have them."""
    saved = os.path.join(folder, "paced.json")
    wall, result = document("paced", [*shape, "--paced", "--save", saved], 0)
    slices, pace = wall.get("slices", []), wall.get("paced", {})
    total = sum(s["ms"] for s in slices) + wall.get("host_ms", 0) - wall.get("instrumenting_ms", 0)
    check("paced: no part of the sum", slices and abs(total - wall["wall_ms"]) < 1e-6 * wall["wall_ms"] + 1e-6, result)
    steps = sum(s["steps"] for s in slices)
    check("paced: every slice, a look a step", all(s["paced_ms"] >= 0 for s in slices) and pace["runs"] == 2
          and pace["ms"] > 0
          and abs(pace["ms"] - sum(s["paced_ms"] for s in slices)) < 1e-6 and pace["looks"] == 2 * steps, result)
    check("paced: rests are 4 times as long and 2 ms at least", pace["rest_ms"] >= max(2 * steps, 4 * pace["ms"]), result)
    case("paced: in words", [*shape, "--paced"], 0, out=r"wall\n.*paced, measured, mean of 2 runs: every step alone, behind "
         r"it rest of 4 times as long, 2 ms at least\n.*attention.prefill .*all slices")
    columns = r"\| slot \| %s ms \| kiln ms \| ratio \|%s\n"
    case("paced: against paced", [*shape, "--paced", "--against", saved], 0,
         out=columns % ("then", r" then paced ms \| paced ms \| paced ratio \|"))
    case("paced: against one that is not", [*shape, "--paced", "--against", unpaced], 0, out=columns % ("then", ""))
    case("paced: one that is not against paced", [*shape, "--against", saved], 0, out=columns % ("then", ""))
    ncu = os.path.join(source, "tests/golden/profiles/ncu_metric.csv")
    args = [*shape, "--paced", "--against", ncu, "--kernels", "kiln"]
    case("paced: against a profile", args, 0, out=columns % ("its", r" paced ms \| paced ratio \|"))
    wall, result = document("paced: against a profile", args, 0)
    rows = {r["slot"]: r for r in wall.get("against", {}).get("rows", [])}
    row = rows.get("attention.prefill", {})
    # On a busy machine a mark may take longer than the slice.
    check("paced: the ratio is that of the paced", row and abs((row["paced_ratio"] or 0) * row["then_ms"] - row["paced_ms"]) < 1e-9
          and row["then_paced_ms"] == row["then_ms"] and rows["norm"]["paced_ratio"] is None, result)


def beside_ncu_cases(folder):
    """bench/wall_vs_ncu.py, with a profiler that gives every slice a time that it is told."""
    fake = os.path.join(folder, "ncu")
    with open(fake, "w", encoding="ascii") as out:
        out.write(FAKE_NCU % sys.executable)
    os.chmod(fake, 0o755)
    script = [sys.executable, os.path.join(source, "bench/wall_vs_ncu.py"), model, "--kiln", kiln, "--ncu", fake,
              "--device", "cpu", "-p", "16", "-r", "1", "--least", "0.000001"]
    for what, times, within, code, out in (
            ("far off", "1", "3", 1, r"NOT WITHIN.*slots of 1e-06 ms and more: NOT all within 3 %"),
            ("within a wide bound", "1", "1000000", 0, r"attention.prefill .* within \|.*: all within 1e\+06 %"),
            ("a slot that ncu has not", "0", "1000000", 1, r"norm \| 0.000 .* - \| NOT WITHIN"),
            ("ncu is refused", "-1", "3", 2, "")):
        result = subprocess.run([*script, "--within", within], capture_output=True, text=True, timeout=120,
                                env={**os.environ, "FAKE_NCU": times})
        check("beside ncu: " + what, result.returncode == code and re.search(out, result.stdout, re.S),
              "exit %d: %s %s" % (result.returncode, result.stdout, result.stderr))


def nan_cases(folder, base):
    """A model whose logits are NaN is timed, and said to be broken."""
    broken = os.path.join(folder, "nan.gguf")
    with open(os.path.join(source, "tests/golden/tiny/llama-f32-gqa4x2.gguf"), "rb") as text:
        weights = text.read()
    with open(broken, "wb") as out:
        out.write(weights[:-256] + b"\xff" * 256)
    shape = ["-m", broken, "--device", "cpu", "-p", "8"]
    case("nan: wall", ["wall", *shape, "-r", "1"], 0, err="logits are NaN")
    case("nan: bench", ["bench", *shape, "-n", "0", "-r", "1"], 0, err="logits are NaN")
    case("nan: ab", ["ab", base, base, *shape, "-r", "6"], (0, 1), err="base: .*NaN.*change: .*NaN")


def against_cases(folder):
    """Another engine's profile: its kernels by slot, what is not mapped, what is malformed."""
    shape = ["wall", "-m", model, "--device", "cpu", "-p", "16", "-r", "1"]
    profiles = os.path.join(source, "tests/golden/profiles")
    sums = os.path.join(profiles, "kern_sum.csv")
    wall, result = document("against: nsys", [*shape, "--against", sums, "--passes", "2"], 0)
    against = wall.get("against", {})
    rows = {r["slot"]: r for r in against.get("rows", [])}
    slots = {}
    for s in wall.get("slices", []):
        slots[s["slot"]] = slots.get(s["slot"], 0) + s["ms"]
    check("against: times a pass, by slot", against.get("kind") == "nsys cuda_gpu_kern_sum"
          and rows["matmul.q8_0.prefill"]["then_ms"] == 3 and rows["attention.prefill"]["then_ms"] == 1
          and rows["quantize"]["then_ms"] == 0.5 and rows["norm"]["then_ms"] == 0.25
          and abs(against["then_ms"] - 5) < 1e-9, result)
    check("against: kiln's own beside", all(abs(rows[s]["now_ms"] - ms) < 1e-6 for s, ms in slots.items())
          and rows["quantize"]["ratio"] is None, result)
    check("against: what is not mapped", against.get("unmapped") ==
          [{"kernel": 'a kernel, "quoted" and unknown', "ms": 0.25, "launches": 4}], result)
    case("against: the table", [*shape, "--against", sums], 0,
         out=r"\| matmul.q8_0.prefill \| 6.000 \| [\d.]+ \| [\d.]+ \|.*all kernels.*0.500 ms .*a kernel, \"quoted")
    wall, result = document("against: a build with cuBLAS",
                            [*shape, "--against", os.path.join(profiles, "kern_sum_cublas.csv")], 0)
    rows = {r["slot"]: r for r in wall.get("against", {}).get("rows", [])}
    check("against: cuBLAS's kernels and what they need are matmul",
          abs(rows["matmul.*.prefill"]["then_ms"] - 9.5) < 1e-9 and rows["quantize"]["then_ms"] == 0.5
          and not wall["against"]["unmapped"], result)
    wall, result = document("against: a trace", [*shape, "--against", os.path.join(profiles, "gpu_trace.csv")], 0)
    check("against: copies do not count", abs(wall.get("against", {}).get("then_ms", 0) - 5) < 1e-9, result)
    ours = os.path.join(folder, "ours.ini")
    with open(ours, "w", encoding="ascii") as out:
        out.write("[attention.*]\nmatch = fap2\n")
    for name, ms in (("ncu_details.csv", 2), ("ncu_raw.csv", 2)):
        wall, result = document("against: " + name, [*shape, "--against", os.path.join(profiles, name),
                                                     "--kernels", ours], 0)
        check("against: durations of " + name, abs(wall.get("against", {}).get("then_ms", 0) - ms) < 1e-9
              and not wall["against"]["unmapped"], result)
    ncu = os.path.join(profiles, "ncu_metric.csv")
    wall, result = document("against: kiln's own kernels", [*shape, "--against", ncu, "--kernels", "kiln"], 0)
    against = wall.get("against", {})
    rows = {r["slot"]: r for r in against.get("rows", [])}
    check("against: kiln's own kernels by slot", abs(rows["attention.prefill"]["then_ms"] - 1) < 1e-9
          and "matmul.*.prefill" not in rows and not against["unmapped"], result)
    check("against: no clock to set right", against["full_clock"] == 0, result)
    with open(sums, encoding="ascii") as text:
        good = text.read()
    broken = {"empty": "", "header alone": good[:good.index("60.0")], "cut": good[:good.rindex("125000.0,120000")],
              "open quote": good[:good.rindex('"')], "no number": good.replace("6000000", "many"),
              "words": "hello, world\n", "nul": "a\0b,c\n", "json": "[1, 2]", "half json": '{"slices": [',
              "slice": '{"wall_ms": 1, "slices": [{"slot": 3}]}',
              "less than nothing": open(os.path.join(profiles, "ncu_raw.csv"), encoding="ascii").read().replace('"2.0"', '"-2.0"'),
              "unit": open(os.path.join(profiles, "ncu_raw.csv"), encoding="ascii").read().replace('"ms"', '"parsec"')}
    for what, text in broken.items():
        path = os.path.join(folder, "broken")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        case("against: " + what, [*shape, "--against", path], 3, err="broken")
    bad = os.path.join(folder, "bad.ini")
    with open(bad, "w", encoding="ascii") as out:
        out.write("[norm]\nmatch = (\n")
    case("against: a bad pattern", [*shape, "--against", sums, "--kernels", bad], 2, err=r"bad.ini:2: \[norm\] match")
    for section, hint in (("nrom", "did you mean 'norm'"), ("atention.prefill", "did you mean 'attention'"),
                          ("attention.perfill", "did you mean 'prefill'"), ("matmul.q4_k.prefill", "did you mean 'q4_K'"),
                          ("attention", r"followed by \.prefill or \.decode"), ("norm.prefill", "nothing follows 'norm'")):
        with open(bad, "w", encoding="ascii") as out:
            out.write(f"[{section}]\nmatch = x\n")
        case("against: no slot " + section, [*shape, "--against", sums, "--kernels", bad], 2,
             err=r"bad.ini:1: \[" + section + r"\]: .*" + hint)
    with open(bad, "w", encoding="ascii") as out:
        out.write("[transpose]\nmatch = quantize\n[matmul.*.*]\nmatch = mul_mat\n")
    case("against: work without a slot", [*shape, "--against", sums, "--kernels", bad], 0, out=r"\| transpose \|")
    case("against: no table", [*shape, "--against", sums, "--kernels", "no.ini"], 3, err="no.ini")


def main():
    with tempfile.TemporaryDirectory() as folder:
        def ini(name, text):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="ascii") as out:
                out.write(text)
            return path
        base = ini("base.ini", "")
        int8 = ini("int8.ini", "[matmul.*.prefill]\nvariant = exact_q8\n[matmul.*.decode]\nvariant = exact_q8\n")
        cut = ini("cut.ini", "[engine]\nubatch = 4\n")
        ab_cases(folder, base, int8)
        planted_cases(folder)
        gate_cases(folder, base, int8, cut)
        wall_cases(folder)
        beside_ncu_cases(folder)
        nan_cases(folder, base)
        against_cases(folder)
    return 1 if failures else 0


sys.exit(main())
