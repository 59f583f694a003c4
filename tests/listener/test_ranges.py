#!/usr/bin/env python3
"""The ranges that a profiler is shown: their nesting, names and counts, on the CPU.

usage: test_ranges.py KILN SOURCE_ROOT LISTENER. Exit status 1 when a case fails.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile

kiln, source, listener = sys.argv[1:4]
model = os.path.join(source, "tests/golden/tiny/llama-quant-q4_k_m.gguf")
failures = 0


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def listen(folder, *args):
    """Runs kiln with the listener; its JSON, and what was heard as [(path of names, number)]."""
    heard = os.path.join(folder, "heard")
    result = subprocess.run([kiln, *args], capture_output=True, text=True, timeout=100, check=False, env=dict(
        os.environ, NVTX_INJECTION64_PATH=listener, LISTENER_OUT=heard))
    check(" ".join(args[:1]) + " runs", result.returncode == 0, result.stderr)
    ranges, path = [], []
    with open(heard, encoding="utf-8") as file:
        for line in file.read().splitlines():
            if line == "<":
                check("a range is open to be closed", path) if not path else path.pop()
                continue
            _, number, name = line.split(" ", 2)
            path.append(name)
            ranges.append((tuple(path), int(number)))
    check("every range is closed", not path, str(path))
    return json.loads(result.stdout), ranges


def run_cases(folder, layers):
    ids, tokens, chunk = [1, 2, 3, 4, 5, 6, 7], 4, 4
    prompt = os.path.join(folder, "ids")
    with open(prompt, "w", encoding="ascii") as file:
        file.write(" ".join(map(str, ids)))
    document, ranges = listen(folder, "run", "--device", "cpu", "-m", model, "--prompt-ids", prompt, "-n", str(tokens),
                              "--greedy", "--json", "-ub", str(chunk))
    check("the output is what it is without", len(document["ids"]) == tokens)
    check("the CPU has no graph", document["graph"] == "off")
    at = collections.Counter(path for path, _ in ranges)
    passes = {"prefill": 2, "decode step": tokens - 1}  # 7 ids in chunks of 4
    check("one run", [n for path, n in ranges if path == ("run",)] == [len(ids)])
    check("its passes", {name: at["run", name] for name in passes} == passes, str(at))
    check("a prefill's number is its tokens", [n for path, n in ranges if path == ("run", "prefill")] == [4, 3])
    check("nothing else is directly in the run", sum(len(path) == 2 for path, _ in ranges) == sum(passes.values()))
    for phase, count in passes.items():
        inside = [(path[2:], n) for path, n in ranges if path[:2] == ("run", phase)]
        check("layers of " + phase, [n for path, n in inside if len(path) == 1 and path[0].startswith("layer")]
              == list(range(layers)) * count)
        check("a layer's name has its number", all(path[0] == "layer %d" % n for path, n in inside
              if path and path[0].startswith("layer")))
        slots = collections.Counter(path[-1] for path, _ in inside if len(path) == 2)
        word = "prefill" if phase == "prefill" else "decode"
        once = {"attention.%s exact" % word: 1, "rope_kv exact": 1, "activation exact": 1, "norm exact": 2}
        check("slots of %s" % phase, all(slots[name] == layers * count * n for name, n in once.items()), str(slots))
        matmuls = sum(n for name, n in slots.items() if name.startswith("matmul.") and word in name)
        check("seven matmuls a layer of " + phase, matmuls == 7 * layers * count, str(slots))
        check("nothing else is in a layer", sum(slots.values()) == layers * count * 12, str(slots))
        outside = collections.Counter(path[0] for path, _ in inside if len(path) == 1 and path[0][:5] != "layer")
        check("embed is in no layer", outside["embed exact"] == count, str(outside))
    check("nothing is deeper than a slot", max(len(path) for path, _ in ranges) == 4)


def bench_cases(folder):
    rows, ranges = listen(folder, "bench", "--device", "cpu", "-m", model, "-p", "8", "-n", "2", "-r", "1", "--json")
    # Each is run once before it is measured.
    check("bench has a run for each", [n for path, n in ranges if path == ("run",)] == [8, 8, 2, 2])
    check("bench says that there is no graph", all(row["graph"] == "off" for row in rows))


def silent_cases(folder):
    """A library that is no tool is none: the run is as without it."""
    prompt = os.path.join(folder, "ids")
    result = subprocess.run([kiln, "run", "--device", "cpu", "-m", model, "--prompt-ids", prompt, "-n", "1",
                             "--json"], capture_output=True, text=True, timeout=100, check=False,
                            env=dict(os.environ, NVTX_INJECTION64_PATH=os.path.join(folder, "nothing.so")))
    check("a listener that is not there", result.returncode == 0, result.stderr)


info = json.loads(subprocess.run([kiln, "model", "info", model, "--json"], capture_output=True, text=True, check=True,
                                 timeout=60).stdout)
with tempfile.TemporaryDirectory() as scratch:
    run_cases(scratch, info["keys"]["llama.block_count"])
    bench_cases(scratch)
    silent_cases(scratch)
sys.exit(1 if failures else 0)
