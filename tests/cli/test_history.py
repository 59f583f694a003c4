#!/usr/bin/env python3
"""Each round in configs/history is a sound configuration, and differs from its base in one way.

usage: test_history.py KILN SOURCE_ROOT. Exit status 1 when a case fails.
"""
import configparser
import glob
import json
import os
import subprocess
import sys

kiln, source = sys.argv[1:3]
folder = os.path.join(source, "configs", "history")
rounds = ["r44", "r45", "r46", "r48", "r49", "r50", "r51", "r52", "r57"]
failures = 0


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def read(path):
    parser = configparser.ConfigParser()
    parser.optionxform = str
    parser.read(path)
    return {name: dict(parser[name]) for name in parser.sections()}


def params_of(plugin):
    done = subprocess.run([kiln, "plugins", "inspect", plugin, "--json"], capture_output=True, text=True, timeout=60)
    return {v["name"]: {p["name"] for p in v["params"]} for v in json.loads(done.stdout)["variants"]}


params = {**params_of("attention"), **params_of("matmul"), **params_of("elementwise")}
files = sorted(os.path.basename(path) for path in glob.glob(os.path.join(folder, "*.ini")))
wanted = sorted(name + kind + ".ini" for name in rounds for kind in ("", ".base"))
check("one pair a round", files == wanted, str(files))
for name in files:
    path = os.path.join(folder, name)
    done = subprocess.run([kiln, "config", "check", "--config", path], capture_output=True, text=True, timeout=60)
    check(f"{name} is sound", done.returncode == 0, done.stderr)
    head = open(path, encoding="utf-8").read().split("\n\n")[0]
    check(f"{name} says what was measured", "GB10" in head and ("wall" in head or "greedy" in head), head)
for name in rounds:
    base, change = (read(os.path.join(folder, name + kind)) for kind in (".base.ini", ".ini"))
    differ = [s for s in sorted(set(base) | set(change)) if base.get(s) != change.get(s)]
    check(f"{name} changes one section", len(differ) == 1, str(differ))
    # A key that the base sets and the change's variant has too is set there as well: else that variant's default would
    # move the figure beside the lever.
    for section in differ:
        geometry = params.get(change[section]["variant"], set())
        left = sorted(key for key in base[section] if key in geometry and key not in change[section])
        check(f"{name} leaves no key of {section} to a default", not left, str(left))
sys.exit(failures != 0)
