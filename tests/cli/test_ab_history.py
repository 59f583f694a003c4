#!/usr/bin/env python3
"""kiln ab --history: the campaign's rounds as rows, those that cannot run here with the reason; and a
campaign of CPU variants, whose rounds all run.

usage: test_ab_history.py KILN SOURCE_ROOT. Exit status 1 when a case fails.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

kiln, source = sys.argv[1:3]
model = os.path.join(source, "tests/golden/tiny/llama-quant-q8_0.gguf")
failures = 0


def case(what, args, code=0, err="", out="", program=kiln):
    global failures
    result = subprocess.run([program, "ab", *args], capture_output=True, text=True, timeout=120, check=False)
    good = (result.returncode == code and re.search(err, result.stderr, re.S) and re.search(out, result.stdout, re.S))
    print("ok  " if good else "FAIL", what, flush=True)
    if not good:
        failures += 1
        print("    exit", result.returncode, "\n    out", result.stdout[-1500:], "\n    err", result.stderr[-800:])
    return result.stdout


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def shipped_cases():
    shape = ["-m", model, "--device", "cpu", "-p", "16", "-r", "6"]
    text = case("every round is a row, and none could run", ["--history", *shape], 1, err="none of the 9 rounds could run here.*does not run on cpu", out=r"\| r44 .*\| r57 ")
    check("a round that cannot run says why", len(re.findall(r"^\| r\d\d .*not run: .*does not run on cpu", text, re.M)) == 9, text)
    rows = json.loads(case("JSON", ["--history", "r46", "r50", "r57", *shape, "--json"], 1))["rows"]
    check("the rounds asked for", [row["round"] for row in rows] == ["r46", "r50", "r57"], rows)
    check("the campaign's figures", rows[0]["there"] == {"verdict": "REVERTED", "why": "below the bar", "kernel_pct": -11,
                                                         "wall_pct": 0.27} and rows[2]["there"]["wall_pct"] is None, rows)
    check("none of this device", all(row["here"] is None and row["reason"] and row["agrees"] == "not run" for row in rows))
    runnable = "r44 r45 r46 r48 r49 r50 r51 r52 r57$"
    case("no such round", ["--history", "R64", *shape], 2, err=r"has no round 'R64' \(did you mean 'r44'\?\); those .* one by one: " + runnable, out="^$")
    case("far from any", ["--history", "r46,r48,r50", *shape], 2, err="has no round 'r46,r48,r50'; those that can be run.*: " + runnable)
    case("one wrong among several", ["--history", "r46", "r50", "r99", *shape], 2, err="no round 'r99'", out="^$")
    case("a round without configurations", ["--history", "r47", *shape], 2, err="no configurations of round 'r47'.*can: " + runnable, out="^$")
    case("a round told twice is run once", ["--history", "r46", "r46", *shape], 1, err="the round could not run here: .*does not run on cpu")
    case("a model that is not there", ["--history", "-m", model + "x", "--device", "cpu"], 3, err="cannot open it", out="^$")
    case("a folder for a model", ["--history", "r46", "-m", source, "--device", "cpu"], 3, err="is a directory", out="^$")
    case("no such device", ["--history", "-m", model, "--device", "cpuu"], 2, err="no such device", out="^$")
    case("a device without a clock", ["--history", "-m", model, "--device", "sim"], 2, err="sim:sm_80 has no clock", out="^$")
    case("too many rounds", ["--history", *["r46"] * 65, *shape], 2, err="takes 64 rounds at most", out="^$")
    case("no model", ["--history"], 2, err="no model")
    case("one prompt length", ["--history", "-m", model, "-p", "16,32"], 2, err="one -p")
    case("not kept", ["--history", "-m", model, "--save", "x.json"], 2, err="--save")
    case("three files are no comparison", ["a", "b", "c", "-m", model], 2, err="unexpected argument 'c'")


def cpu_campaign(folder):
    """A program of its own, whose campaign is of CPU variants."""
    program = os.path.join(folder, "kiln")
    shutil.copy(kiln, program)
    os.symlink(os.path.join(os.path.dirname(kiln), "plugins"), os.path.join(folder, "plugins"))
    history = os.path.join(folder, "configs/history")
    os.makedirs(history)
    shutil.copy(os.path.join(source, "configs/default.ini"), os.path.join(folder, "configs"))
    texts = {"exact.ini": "", "same.ini": "", "int8.ini": "[matmul.*.prefill]\nvariant = exact_q8\n"}
    for name, text in texts.items():
        with open(os.path.join(history, name), "w", encoding="ascii") as out:
            out.write(text)
    common = {"provenance": "test", "slots": ["matmul.q8_0.prefill"], "mechanism": "m", "title": "t", "base": "exact.ini"}
    figures = [{"id": "kernel_pct", "what": "k", "value": -30, "unit": "%", "grade": "measured"}]
    rounds = [{**common, "name": "t1", "verdict": "LANDED", "change": "int8.ini", "figures": figures},
              {**common, "name": "t2", "verdict": "REVERTED", "why": "below the bar", "retry": "device is x",
               "change": "same.ini"},
              {**common, "name": "t3", "verdict": "REVERTED", "why": "gate", "retry": "device is x", "change": "int8.ini"}]
    with open(os.path.join(history, "campaign.json"), "w", encoding="ascii") as out:
        json.dump({"device": "nowhere", "experiments": rounds}, out)
    return program


def running_cases(folder):
    program = cpu_campaign(folder)
    shape = ["--history", "-m", model, "--device", "cpu", "-p", "16", "-r", "6"]
    done = json.loads(case("rounds that run", [*shape, "--json"], program=program))
    rows = {row["round"]: row for row in done["rows"]}
    check("the device", done["device"] == "cpu" and done["there"] == "nowhere", done)
    here = rows["t1"]["here"]
    check("a row's figures", here and here["pairs"] == 6 and 0 < here["share_pct"] < 100 and here["kernel_pct"] > -100
          and here["interval_pct"][0] <= here["wall_pct"] <= here["interval_pct"][1]
          and abs(here["ceiling_pct"] + here["share_pct"] * here["kernel_pct"] / 100) < 1e-9, rows)
    check("what ran", "cpu/exact" in here["base_kernel"] and "exact_q8" in here["change_kernel"], here)
    check("agreement is of verdicts", rows["t1"]["agrees"] == ("yes" if here["verdict"] == "LAND" else "no"), rows)
    check("the same kernels on both sides", rows["t2"]["here"] is None and "same kernels" in rows["t2"]["reason"], rows)
    check("a gate's round is not judged", rows["t3"]["agrees"].startswith("not judged"), rows)
    case("the table", shape, program=program,
         out=r"\| t1 \| -30.00 \| [+-][\d.]+ \| not told \| [+-].* to .*\| LANDED \| (LAND|REVERT|NEUTRAL) \|.*"
             r"expected: m\n  measured: cpu/exact.* -> cpu/exact_q8")


def damaged_cases(folder):
    program = cpu_campaign(folder)
    history = os.path.join(folder, "configs/history")
    shape = ["--history", "-m", model, "--device", "cpu", "-p", "16", "-r", "6"]
    os.remove(os.path.join(history, "int8.ini"))
    case("a round's file is missing", [*shape, "t1"], 3, err="history/int8.ini: cannot open it", program=program)
    for text, says in (("{", "campaign.json:1: .*no JSON document"), ("[]", 'campaign.json: no array "experiments"')):
        with open(os.path.join(history, "campaign.json"), "w", encoding="ascii") as out:
            out.write(text)
        case("a campaign that says " + text, shape, 3, err=says, out="^$", program=program)


def main():
    shipped_cases()
    with tempfile.TemporaryDirectory() as folder:
        running_cases(folder)
    with tempfile.TemporaryDirectory() as folder:
        damaged_cases(folder)
    return 1 if failures else 0


sys.exit(main())
