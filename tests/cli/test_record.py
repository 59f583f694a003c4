#!/usr/bin/env python3
"""kiln record: the ledger by its commands: taking in, experiments, levers that are due, the page of a
round, export, search; and files that are read-only, empty, broken, somebody else's or full.

usage: test_record.py KILN SOURCE_ROOT. Exit status 1 when a case fails.
"""
import csv
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile

kiln, source = sys.argv[1:3]
failures = 0


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def case(what, args, code=0, err="", out="", env=None, user=None, **more):
    result = subprocess.run([kiln, "record", *args], capture_output=True, text=True, timeout=60, env=env, user=user,
                            **more)
    good = result.returncode == code and re.search(err, result.stderr, re.S) and re.search(out, result.stdout, re.S)
    check(what, good, "exit %d\n  out %s\n  err %s" % (result.returncode, result.stdout[-1500:], result.stderr[-1500:]))
    return result.stdout


def envelope(kind, date, result, **more):
    return {"kiln": "0.1.0", "kind": kind, "date": date, "device": "NVIDIA GB10", "device_id": "cuda:0",
            "target": "sm_121", "driver": "CUDA 13.0, 580.159", "config": "[attention.prefill]\nFA_TKV = 16\n",
            "base_config": "[attention.prefill]\nFA_TKV = 32\n", "sources": "0123456789abcdef", "grade": "measured",
            "result": result, **more}


def wall(date, share):
    return envelope("wall", date, {
        "n_prompt": 3325, "n_gen": 0, "n_depth": 0, "wall_ms": 1250.0, "slices": [
            {"slot": "matmul.q4_K.prefill", "name": "m", "ms": 900.0, "share_pct": 72.0},
            {"slot": "attention.prefill", "name": "a", "ms": 12.5 * share, "share_pct": share}]})


def ab(date, verdict, median, **more):
    row = {"verdict": verdict, "n_prompt": 3325, "n_gen": 0, "n_depth": 0, "base_ts": 2832.9, "change_ts": 2818.7,
           "median_pct": median, "interval_pct": [median - 0.4, median + 0.4], "noise_pct": 0.3,
           "pairs": [{"pct": median, "control_pct": 0.0}], **more}
    return envelope("ab", date, {**row, "rows": [row]})


def gate(date, verdict):
    return envelope("gate", date, {"gate": "greedy", "verdict": verdict, "passed": 3, "failed": int(verdict == "FAIL"),
                                   "skipped": 0, "cases": []})


def parity(date, **verdicts):
    """verdicts: of a case each, by slot with _ for its dots."""
    cases = [{"slot": slot.replace("_", "."), "plugin": "p", "variant": "v", "case": "c", "result": result}
             for slot, result in verdicts.items()]
    failed = sum(c["result"] == "failed" for c in cases)
    return envelope("gate", date, {"gate": "parity", "verdict": "FAIL" if failed else "PASS", "cases": cases,
                                   "passed": len(cases) - failed, "failed": failed, "skipped": 0})


def audit(date):
    return envelope("audit", date, {"kernels": [
        {"slot": "attention.prefill", "variant": "fap2", "target": "sm_121", "smem_requested": 34816, "blocks_per_sm": 2,
         "limiter": "shared memory", "occupancy": 0.1667, "registers": 124, "spill_bytes": 0,
         "banks": [{"site": "K", "ways": 8}, {"site": "V", "ways": 2}]}]}, grade="derived")


def of_model(value, path):
    """The result as one of the model in this file, as its kind says that."""
    result = value["result"]
    if value["kind"] == "wall":
        result["model"] = path
    else:
        result["model_file"] = os.path.basename(path)
        for row in result.get("rows", []):
            row["model_file"] = result["model_file"]
    return value


def model_cases(folder):
    """A lever judged on one model, and results of another that are newer."""
    ledger = ["--ledger", os.path.join(folder, "models.db")]

    def add(name, value, path, *more):
        case("models: add " + name, ["add", save(folder, name + ".json", of_model(value, path) if path else value), *more, *ledger])

    def due(what, name, state, why):
        levers = {x["name"]: x for x in json.loads(case("models: due", ["due", "--json", *ledger]))["levers"]}
        check("models: " + what, levers[name]["state"] == state and why in levers[name]["why"], levers[name])

    share = ["--slot", "attention.prefill", "--retry", "wall share of attention.prefill > 8 %", "--title", "t"]
    add("a7", ab("2026-11-20T10:00:00Z", "NEUTRAL", -0.5), "/m/big.gguf", "--experiment", "tile", *share)
    add("w1", wall("2026-11-21T10:00:00Z", 4.7), "/elsewhere/small.gguf")
    due("none of its model", "tile", "unknown", "wall share of attention.prefill is not known: nothing of big.gguf, which it was judged on")
    add("w2", wall("2026-11-22T10:00:00Z", 10.2), "/here/big.gguf")
    add("w3", wall("2026-11-23T10:00:00Z", 3.1), "small.gguf")
    due("the newest of its model", "tile", "due", "is 10.2 % (wall #3")
    add("w4", wall("2026-11-24T10:00:00Z", 5.5), None)
    due("one that does not say its model", "tile", "no", "is 5.5 % (wall #5")
    add("w5", wall("2026-11-25T10:00:00Z", 9.5), "big.gguf")
    case("models: tok/s", ["add", "--experiment", "tile", "--update", "--retry", "tok/s of pp3325 > 3000 and gate greedy is PASS", *ledger])
    add("a8", ab("2026-11-26T10:00:00Z", "LAND", 5, base_ts=9999.0), "small.gguf")
    add("g1", gate("2026-11-26T10:00:00Z", "PASS"), "small.gguf")
    due("rates and gates, too", "tile", "no", "tok/s of pp3325 is 2660 (wall #6")
    add("g2", gate("2026-11-26T11:00:00Z", "FAIL"), "big.gguf")
    due("rates and gates, too", "tile", "no", "gate greedy is FAIL (gate #9")
    add("w6", wall("2026-11-19T10:00:00Z", 77.25), "small.gguf")
    add("w7", wall("2026-11-18T10:00:00Z", 66.25), "big.gguf")
    page = case("models: draft", ["draft", "tile", *ledger])
    check("models: the page shows its model's wall", "66.25" in page and "77.25" not in page, page)


def save(folder, name, value):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out)
    return path


def round_cases(folder):
    ledger = ["--ledger", os.path.join(folder, "data/kiln/ledger.db")]
    first, second = (save(folder, "wall%d.json" % i, wall("2026-11-%02dT10:00:00Z" % (27 + i), share))
                     for i, share in ((1, 10.2), (2, 4.7)))
    compared = save(folder, "ab.json", ab("2026-11-30T10:00:00Z", "NEUTRAL", -0.5, kernels={"runs": 5, "all": None, "slots": [
        {"slot": "attention.prefill", "base": "a/fap2 FA_TKV=32", "change": "a/fap2 FA_TKV=16", "base_ms": 120.5, "change_ms": 118.25,
         "pct": 1.9, "share_pct": 10.25, "predicted_pct": 0.19}]}))
    forked = save(folder, "gate.json", gate("2026-11-30T11:00:00Z", "FAIL"))
    audited = save(folder, "audit.json", audit("2026-11-30T09:00:00Z"))
    case("list: nothing there", ["list", *ledger], err="nothing there")
    check("list makes no file", not os.path.exists(os.path.join(folder, "data")))
    case("add: a wall", ["add", first, *ledger], out="^#1 .*wall1.json\n$")
    case("add: the same again", ["add", first, *ledger], out="^#1 .*was there already")
    condition = "retry when wall share of attention.prefill > 8 % and gate greedy is not PASS"
    case("add: a verdict wants its reasons", ["add", compared, "--experiment", "tile16", *ledger], 2, err="--retry")
    case("add: nothing of a refused call is kept", ["list", "--kind", "ab", *ledger], err="nothing of that kind")
    case("add: an experiment", ["add", compared, forked, audited, "--experiment", "tile16", "--title", "FA_TKV 32 to 16",
                                "--slot", "attention.prefill", "--mechanism", "three blocks", "--retry", condition, *ledger],
         out="tile16 REVERTED: a gate failed")
    for words in (["--verdict", "LANDED"], ["--why", "x"], ["--result", "1"], ["--update"], ["--title", ""]):
        case("add: %s without an experiment" % words[0], ["add", compared, *words, *ledger], 2, err=words[0] + " is said of an experiment: --exp")
    case("add: a name is there once", ["add", "--experiment", "tile16", *ledger], 2, err="already; --update")
    case("add: none to update", ["add", "--experiment", "tile17", "--update", *ledger], 2, err="no experiment tile17")
    case("list: no such kind", ["list", "--kind", "walls", *ledger], 2, err="did you mean 'wall'")
    case("list: no such verdict", ["list", "--verdict", "LANDEDD", *ledger], 2, err="did you mean 'LANDED'")
    case("add: no such day", ["add", "--experiment", "x", "--date", "2026-02-30", *ledger], 2, err="a date is written")
    case("add: no such slot", ["add", "--experiment", "x", "--retry", "time of attention.prefil > 8 ms", *ledger], 2,
         err="did you mean 'prefill'")
    case("add: no UTF-8", ["add", "--experiment", "x", "--title", b"a\xff", *ledger], 2, err="--title is not UTF-8")
    case("add: no such verdict", ["add", "--experiment", "x", "--verdict", "GOOD", *ledger], 2, err="LANDED, REVERTED")
    case("add: a name is no number", ["add", "--experiment", "12", *ledger], 2, err="at least one letter")
    case("add: what", ["add", *ledger], 2, err="what")
    case("add: a bad condition points", ["add", "--experiment", "x", "--retry", "wall shaer of norm > 3", *ledger], 2,
         err=r"'wall'.*did you mean|'wall': here a figure is needed.*\^ here")
    case("add: none of --save's", ["add", save(folder, "none.json", {"a": 1}), *ledger], 3, err='none.json: no "kiln"')
    case("add: another kind", ["add", save(folder, "kind.json", envelope("wal", "2026-11-30", {})), *ledger], 3, err="'wal'")
    case("add: another date", ["add", save(folder, "date.json", envelope("wall", "yesterday", {})), *ledger], 3,
         err="'yesterday'")
    case("add: no such file", ["add", os.path.join(folder, "gone.json"), *ledger], 3, err="gone.json")
    case("due: the condition holds", ["due", *ledger],
         out=r"tile16 +due.*wall share of attention.prefill is 10.2 % \(wall #1 of 2026-11-28.*1 of 1 dead levers are due")
    case("add: a newer wall", ["add", second, *ledger], out="#5")
    case("due: no longer", ["due", "--all", *ledger], out=r"tile16 +no .*is 4.7 % \(wall #5")
    case("due: on another device", ["due", "--all", "--on", "h200", *ledger], out=r"tile16 +unknown")
    case("due: the campaign's levers on this ledger", ["due", "--campaign", "--all", *ledger],
         out=r"r50 +no .*r46 +no .*is 4.7 %")
    case("due: JSON", ["due", "--json", *ledger], out='"state": "no"')
    figures = {"blocks of attention.prefill = 2": "due", "occupancy of attention.prefill < 16 %": "no",
               "bank ways of attention.prefill >= 8": "due", "tok/s of pp3325 < 2900": "due",
               "noise of pp3325 <= 0.3 %": "due", "time of matmul.*.prefill > 899 ms": "due", "driver >= 580.2": "due", "driver > 590": "no",
               "device is gb10": "due", "device is not sm_121": "no", "registers of attention.prefill > 123": "due",
               "smem of attention.prefill = 34816 B": "due", "spills of attention.prefill != 0": "no",
               "gate tolerance is PASS": "unknown", "gate tolerance is PASS or gate greedy is FAIL": "due",
               "not (driver < 580 or time of norm > 1)": "unknown"}
    for text, state in figures.items():
        case("update: " + text, ["add", "--experiment", "tile16", "--update", "--retry", text, *ledger], out="tile16 updated")
        levers = json.loads(case("due: " + text, ["due", "--json", *ledger]))["levers"]
        check("%s is %s" % (text, state), levers[0]["state"] == state, levers)
    page = case("draft", ["draft", "tile16", *ledger], out="# tile16: FA_TKV 32 to 16")
    wanted = ["## 1. Background", "## 2. Principle", "## 3. Implementation", "## 4. Verification", "## 5. Results",
              "## 6. Lessons", "| attention.prefill | 58.750 | 4.70 |", "- [attention.prefill] FA_TKV = 32\n+ [attention.prefill] FA_TKV = 16\n```",
              "| pp3325 | 2832.90 | 2818.70 | -0.50 | -0.90 to -0.10 | 0.30 | 1 | NEUTRAL |", "greedy: FAIL",
              "- pp3325: attention.prefill: 120.500 ms to 118.250 ms, 10.25 % of the base's wall: that predicts +0.19 % for the wall, "
              "which moved by -0.50 % (`a/fap2 FA_TKV=32` to `a/fap2 FA_TKV=16`)\n",
              "| attention.prefill | fap2 | 34816 | 2 | shared memory | 16.7 | 124 | 0 |", "0123456789abcdef"]
    at = [page.find(text) for text in wanted]
    check("draft: what was measured", min(at) >= 0, [text for text, place in zip(wanted, at) if place < 0])
    check("draft: six sections in order", at[:6] == sorted(at[:6]), page)
    out = os.path.join(folder, "page.md")
    case("draft: to a file", ["draft", "tile16", "-o", out, *ledger])
    check("draft: the same", open(out, encoding="utf-8").read() == page)
    case("draft: nobody", ["draft", "tile17", *ledger], 2, err="no experiment is named tile17")
    case("show: a result", ["show", "#2", *ledger], out="summary +ab: pp3325 -0.50 %.*NEUTRAL")
    case("show: a result that is not there", ["show", "99", *ledger], 2, err="no result is number 99")
    case("search", ["search", "three", "block*", *ledger], out="^tile16")
    case("search: signs are words", ["search", 'FA_TKV"', "AND", *ledger], out="^$")
    case("search: nothing", ["search", *ledger], 2, err="searched")
    case("list: by verdict", ["list", "--verdict", "REVERTED", *ledger], out="^2[^\n]*tile16 [^\n]*\n$")
    case("list: by kind", ["list", "--kind", "wall", "--newest", "1", *ledger], out="^2026-11-29  #5 [^\n]*\n$")
    return ledger



def gate_cases(folder):
    """A condition on a gate is about the lever's own slot: results of other slots say nothing of it."""
    ledger = ["--ledger", os.path.join(folder, "gates.db")]

    def add(name, value, *more):
        case("gates: add " + name, ["add", save(folder, name + ".json", value), *more, *ledger])

    def state(what, lever, retry, wanted, why=""):
        case("gates: " + what, ["add", "--experiment", lever, "--update", "--retry", retry, *ledger])
        levers = {x["name"]: x for x in json.loads(case("gates: due", ["due", "--json", *ledger]))["levers"]}
        check("gates: %s: %s" % (what, wanted), levers[lever]["state"] == wanted and why in levers[lever]["why"],
              levers[lever])

    def lever(name, *slot):
        case("gates: lever " + name, ["add", "--experiment", name, "--verdict", "MEAS-ONLY", *slot, *ledger])

    lever("tile", "--slot", "attention.prefill")
    lever("products", "--slot", "matmul.*.prefill")
    lever("nothing")
    passes = "gate parity is PASS"
    add("norm", parity("2026-11-01T10:00:00Z", norm="passed"))
    state("parity of another slot", "tile", passes, "unknown", "gate parity is not known")
    state("parity, and no slot to ask about", "nothing", passes, "due", "PASS (gate #1")
    add("both", parity("2026-11-02T10:00:00Z", norm="passed", attention_prefill="failed", matmul_q4_K_prefill="passed"))
    state("parity of several: the slot's cases", "tile", passes, "no", "FAIL (gate #2")
    state("parity of several: a pattern", "products", passes, "due", "PASS (gate #2")
    state("parity of several: as a whole", "nothing", passes, "no", "FAIL (gate #2")
    state("a slot that is named", "tile", "gate parity of norm is PASS", "due", "gate parity of norm is PASS (gate #2")
    add("later", parity("2026-11-03T10:00:00Z", attention_prefill="passed", matmul_q4_K_prefill="failed"))
    state("the newest of the slot", "tile", passes, "due", "PASS (gate #3")
    state("the newest of a pattern", "products", passes, "no", "FAIL (gate #3")
    add("norms", parity("2026-11-04T10:00:00Z", norm="failed"))
    state("a newer one of another slot", "tile", passes, "due", "PASS (gate #3")
    add("skipped", parity("2026-11-05T10:00:00Z", attention_prefill="skipped"))
    state("what was skipped says nothing", "tile", passes, "due", "PASS (gate #3")
    forked = "gate greedy is FAIL"
    add("greedy", gate("2026-11-06T10:00:00Z", "FAIL"))
    state("greedy: two configs that differ in the slot", "tile", forked, "due", "FAIL (gate #6")
    state("greedy: that do not", "products", forked, "unknown")
    state("greedy: of no slot", "nothing", forked, "due")
    state("greedy: of a slot that is named", "products", "gate greedy of attention.* is FAIL", "due")
    other = "[matmul.q4_K.prefill/long]\nvariant = %s\n[attention.prefill]\nFA_TKV = 32\n"
    add("expand", {**gate("2026-11-07T10:00:00Z", "PASS"), "config": other % "f16_expand", "base_config": other % "f16"})
    state("greedy: a newer one of another slot", "tile", forked, "due", "FAIL (gate #6")
    state("greedy: a section with a label", "products", "gate greedy is PASS", "due", "PASS (gate #7")
    add("same", {**gate("2026-11-08T10:00:00Z", "PASS"), "config": other % "f16", "base_config": other % "f16"})
    state("greedy: base against base is of no slot", "products", "gate greedy is PASS", "due", "(gate #7")
    case("gates: a slot is needed", ["add", "--experiment", "x", "--retry", "gate parity of is PASS", *ledger], 2,
         err="'is' or 'is not' is needed")
    # Many of one slot must not hide those of another.
    many = [save(folder, "many%d.json" % i, parity("2026-12-01T%02d:%02d:00Z" % (i // 60, i % 60), norm="passed"))
            for i in range(120)]
    for first in (0, 60):
        case("gates: many", ["add", *many[first:first + 60], *ledger])
    state("behind many of another", "tile", passes, "due", "PASS (gate #3")


def summary_cases(folder):
    """What a list says of op and of audit --diff."""
    ledger = ["--ledger", os.path.join(folder, "summaries.db")]
    call = {"slot": "norm", "variant": "rms", "shape": "m=64 k=3584", "parity": {"passed": True},
            "warm": {"median_us": 3.5}, "cold": None}
    calls = {"results": [call, {**call, "parity": {"passed": False}, "warm": None}, {**call, "parity": None}, call, 1]}
    kernel = audit("2026-11-30T09:00:00Z")["result"]["kernels"][0]
    pairs = {"diff": [{"slot": "attention.prefill", "target": "sm_121", "base": None, "change": kernel}]}
    case("add: op, and a pair of audits", ["add", save(folder, "op.json", envelope("op", "2026-11-30T09:00:00Z", calls)),
                                           save(folder, "diff.json", envelope("audit", "2026-11-30T09:00:01Z", pairs)), *ledger])
    case("list: op and pairs", ["list", *ledger],
         out=r"audit: 1 kernels compared; attention.prefill fap2 on sm_121.*op: norm rms m=64 k=3584, 3.50 us warm, passed; norm rms "
         r"m=64 k=3584, FAILED; norm rms m=64 k=3584, 3.50 us warm; … \(5\)")


def export_cases(folder, ledger):
    title = 'comma, "quote"\nline | pipe'
    case("add: odd letters", ["add", "--experiment", "odd", "--title", title, "--note", "ß ✓ 𝔘", *ledger])
    whole = json.loads(case("export: JSON", ["export", *ledger]))
    check("export: all entries", len(whole["results"]) == 5 and len(whole["experiments"]) == 2
          and whole["results"][0]["result"], whole.keys())
    rows = list(csv.DictReader(io.StringIO(case("export: CSV", ["export", "--format", "csv", *ledger]), newline="")))
    check("export: CSV reads back", len(rows) == 7 and rows[0]["title"] == title and rows[0]["note"] == "ß ✓ 𝔘"
          and rows[1]["name"] == "tile16" and {row["what"] for row in rows} == {"experiment", "result"}, rows[:2])
    text = case("export: Markdown", ["export", "--format", "markdown", *ledger], out="## Experiments: 2")
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| odd")}
    check("export: a pipe ends no cell", widths == {9}, text)
    case("export: another form", ["export", "--format", "xml", *ledger], 2, err="json, csv or markdown")
    case("export: a full disk", ["export", "-o", "/dev/full", *ledger], 3, err="/dev/full")


def campaign_cases():
    with open(os.path.join(source, "configs/history/campaign.json"), encoding="utf-8") as file:
        campaign = json.load(file)
    names = [entry["name"] for entry in campaign["experiments"]]
    for name in ("8n", "P5.0", "P5.3", "r23", "r24", "r44", "r46", "r48", "r50", "r57"):
        check("campaign: has " + name, name in names)
    shown = json.loads(case("campaign: list", ["list", "--campaign", "--json"]))["experiments"]
    check("campaign: the ledger is its text", [row["name"] for row in reversed(shown)] == names)
    for row in shown:
        check("campaign: %s says where it is from" % row["name"], row["provenance"] and all(
            f["grade"] in ("measured", "derived") for f in row["figures"] or []), row)
        check("campaign: %s can be tried again" % row["name"], row["verdict"] != "REVERTED" or (row["why"] and row["retry"]))
        for side in ("base", "change"):
            check("campaign: %s has its %s" % (row["name"], side), not row[side] or os.path.exists(
                os.path.join(source, "configs/history", row[side])))
    case("campaign: a page", ["draft", "r46", "--campaign"], out="5.16 to 4.58 ms")
    case("campaign: search", ["search", "greedy", "--campaign"], out="r57.*r50|r50.*r57")


def hostile_cases(folder, saved):
    broken = os.path.join(folder, "broken.db")
    with open(broken, "wb") as out:
        out.write(bytes([0x93, 0, 0xff, 7, 0x81, 0xfe, 3, 0x90, 0x80, 1, 0xc0, 0xc1, 9, 0xf8, 0, 0xff]))
    case("broken: refused for reading", ["list", "--ledger", broken], 3, err="no ledger of kiln")
    case("broken: set aside for writing", ["add", saved, "--ledger", broken], err="set aside as .*broken.db.broken-", out="#1")
    aside = [name for name in os.listdir(folder) if name.startswith("broken.db.broken-")]
    check("broken: its bytes are kept", len(aside) == 1 and os.path.getsize(os.path.join(folder, aside[0])) == 16, aside)
    empty = os.path.join(folder, "empty.db")
    open(empty, "wb").close()
    case("empty: reads as nothing", ["list", "--ledger", empty], err="nothing there")
    case("empty: is begun", ["add", saved, "--ledger", empty], out="#1")
    text = save(folder, "text.json", {})
    case("text is not set aside", ["add", saved, "--ledger", text], 3, err="left as it is")
    model = os.path.join(source, "tests/golden/tiny/llama-quant-q8_0.gguf")
    case("nor a model", ["add", saved, "--ledger", model], 3, err="left as it is")
    other = os.path.join(folder, "other.db")
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE songs(name)")
    db.close()
    case("another program's database", ["add", saved, "--ledger", other], 3, err="no ledger of kiln; name another")
    newer = os.path.join(folder, "newer.db")
    case("a ledger", ["add", saved, "--ledger", newer])
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    case("a newer schema", ["list", "--ledger", newer], 3, err="version 99")
    cut = os.path.join(folder, "cut.db")
    case("a ledger to be cut", ["add", saved, "--ledger", cut])
    with open(cut, "r+b") as file:
        file.truncate(os.path.getsize(cut) // 2)
    case("a damaged file", ["add", saved, "--ledger", cut], 3, err="damaged")
    case("a folder", ["list", "--ledger", folder], 3, err="directory")
    case("no place", ["list"], 2, err="KILN_LEDGER", env={"PATH": "/bin"})
    case("KILN_LEDGER", ["list"], out="#1", env={"KILN_LEDGER": empty})
    case("XDG_DATA_HOME", ["add", saved], out="#1", env={"XDG_DATA_HOME": folder + "/xdg", "HOME": "/nonexistent"})
    check("XDG_DATA_HOME: is where it says", os.path.exists(folder + "/xdg/kiln/ledger.db"))


def read_only_cases(folder, saved):
    closed = os.path.join(folder, "closed")
    os.mkdir(closed)
    path = os.path.join(closed, "ledger.db")
    case("a ledger", ["add", saved, "--ledger", path])
    os.chmod(path, 0o444)
    os.chmod(closed, 0o555)
    os.chmod(folder, 0o755)
    user = "nobody" if os.geteuid() == 0 else None
    if user and subprocess.run(["test", "-x", kiln], user=user, check=False).returncode != 0:
        print("skip read-only: nobody may not run", kiln)
        return
    case("read-only: list", ["list", "--ledger", path], out="#1", user=user)
    case("read-only: search", ["search", "GB10", "--ledger", path], out="#1", user=user)
    case("read-only: add", ["add", saved, "--ledger", path], 3, err="read-only|readonly|cannot", user=user)
    case("read-only: a new one", ["add", saved, "--ledger", os.path.join(closed, "new.db")], 3, err="new.db", user=user)
    os.chmod(closed, 0o755)


def full_disk_cases(folder, saved):
    path = os.path.join(folder, "full.db")
    case("full disk: a ledger", ["add", saved, "--ledger", path])
    large = save(folder, "large.json", envelope("tune", "2026-11-30", {"rows": ["x" * 100] * 20000}))
    done = subprocess.run(["bash", "-c", 'ulimit -f 512; exec "$0" record add "$1" --ledger "$2"', kiln, large, path],
                          capture_output=True, text=True, timeout=60)
    check("full disk: a message", done.returncode == 3 and path in done.stderr, done)
    with sqlite3.connect(path) as db:
        check("full disk: what was there is there", db.execute("SELECT count(*) FROM result").fetchone()[0] == 1
              and db.execute("PRAGMA integrity_check").fetchone()[0] == "ok")
    db.close()
    case("full disk: later it fits", ["add", large, "--ledger", path], out="#2")


def older_schema_cases(folder, saved):
    path = os.path.join(folder, "older.db")
    case("older: a ledger", ["add", saved, "--experiment", "old", "--verdict", "LANDED", "--ledger", path])
    with sqlite3.connect(path) as db:  # version 1 had no full text
        for name in ("result_words", "experiment_words", "experiment_words_again"):
            db.execute("DROP TRIGGER " + name)
        db.execute("DROP TABLE words")
        db.execute("PRAGMA user_version = 1")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    before = open(path, "rb").read()
    case("older: searched without writing", ["search", "old", "--ledger", path], out="^old")
    check("older: not a byte is another", open(path, "rb").read() == before)
    case("older: brought up to date", ["add", "--experiment", "new", "--ledger", path])
    case("older: both are found", ["search", "LANDED", "--ledger", path], out="^old")
    with sqlite3.connect(path) as db:
        check("older: its version", db.execute("PRAGMA user_version").fetchone()[0] == 2)
    db.close()


def update_cases(folder):
    """What an update says of the verdict: nothing where the new results say nothing, else all results do."""
    ledger = ["--ledger", os.path.join(folder, "updates.db")]
    files = {name: save(folder, "update-%s.json" % name, value) for name, value in (
        ("land", ab("2026-11-30T10:00:00Z", "LAND", 4.0)), ("wall", wall("2026-11-30T10:00:01Z", 9.0)),
        ("pass", gate("2026-11-30T10:00:02Z", "PASS")), ("fail", gate("2026-11-30T10:00:03Z", "FAIL")),
        ("faster", ab("2026-11-30T10:00:04Z", "LAND", 5.0)))}
    case("update: begun", ["add", files["land"], "--experiment", "e", *ledger], out="e LANDED")
    for name, out in (("wall", "e updated"), ("pass", "e updated"), ("fail", "e REVERTED: a gate failed"),
                      ("faster", "e REVERTED: a gate failed")):
        case("update: " + name, ["add", files[name], "--experiment", "e", "--update", *ledger], out=out)
    case("update: all are there", ["show", "e", *ledger], out="verdict +REVERTED.*results +#1 #2 #3 #4 #5\n")
    case("update: the author's word", ["add", "--experiment", "e", "--update", "--verdict", "LANDED", *ledger], out="e LANDED")
    shown = case("update: landed", ["show", "e", *ledger], out="verdict +LANDED")
    check("update: no reason to have it back any more", "why" not in shown, shown)


def odd_bytes_cases(folder):
    """Text that is no UTF-8, as another program may have written it, hides nothing else."""
    path = os.path.join(folder, "odd.db")
    for name in ("odd", "plain"):
        case("odd bytes: " + name, ["add", "--experiment", name, "--title", "text", "--ledger", path])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE experiment SET title = CAST(x'61ff62' AS TEXT) WHERE name = 'odd'")
    db.close()
    case("odd bytes: a ledger's name", ["list", "--json", "--ledger", os.fsencode(folder) + b"/\xff.db"], out="ledger.: .*\ufffd")
    case("odd bytes: list", ["list", "--ledger", path], out="odd +MEAS-ONLY +a\ufffdb")
    case("odd bytes: export", ["export", "--ledger", path], out='"a\ufffdb"')


def main():
    with tempfile.TemporaryDirectory() as folder:
        ledger = round_cases(folder)
        gate_cases(folder)
        model_cases(folder)
        export_cases(folder, ledger)
        summary_cases(folder)
        campaign_cases()
        saved = save(folder, "saved.json", wall("2026-11-28T10:00:00Z", 10.2))
        hostile_cases(folder, saved)
        read_only_cases(folder, saved)
        full_disk_cases(folder, saved)
        older_schema_cases(folder, saved)
        update_cases(folder)
        odd_bytes_cases(folder)
    return 1 if failures else 0


sys.exit(main())
