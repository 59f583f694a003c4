#!/usr/bin/env python3
"""bench/gpu_vs_llama.py with programs that print fixed rates: which it runs and how, ratios, the bar.

usage: test_gpu_vs_llama.py SOURCE_ROOT. Exit status 1 when a case fails.
"""
import json
import os
import subprocess
import sys
import tempfile

bench = os.path.join(sys.argv[1], "bench/gpu_vs_llama.py")
failures = 0
# Prints a row for each -p and -n that is not 0 and keeps how it was called; the micro-batch 2048 is a tenth faster.
ENGINE = """#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
value = lambda key: next((words[i + 1] for i, word in enumerate(words) if word == key), "0")
with open(os.path.join(os.path.dirname(sys.argv[0]), "calls"), "a", encoding="utf-8") as file:
    print(os.path.basename(sys.argv[0]), *words, file=file)
rate = RATE * (1.1 if value("-ub") == "2048" else 1) * (2 if "gpu-f16-expand" in str(words) else 1)
rows = [{"n_prompt": int(n), "n_gen": 0, "avg_ts": rate} for n in value("-p").split(",") if n != "0"]
rows += [{"n_prompt": 0, "n_gen": int(n), "avg_ts": rate / 10} for n in value("-n").split(",") if n != "0"]
print(json.dumps(rows))
"""


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def engine(folder, name, rate):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(ENGINE.replace("RATE", str(rate)))
    os.chmod(path, 0o755)
    return path


def compare(folder, *more):
    command = [sys.executable, bench, "x.gguf", "--kiln", engine(folder, "kiln", 1000), "--llama-bench",
               engine(folder, "int8", 500), "--rounds", "2", "--json", os.path.join(folder, "rows"), *more]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    with open(os.path.join(folder, "rows"), encoding="utf-8") as file:
        rows = {(row["test"], row["engine"]): row for row in json.load(file)}
    return result, rows


def near(value, wanted):
    return value is not None and abs(value - wanted) < 1e-6


with tempfile.TemporaryDirectory() as folder:
    result, rows = compare(folder)
    check("the bar is met", result.returncode == 0 and "the bar is 1.15: met" in result.stdout, result.stdout + result.stderr)
    check("against the best micro-batch", near(rows["pp3325", "kiln mmq"]["ratio"], 1000 / 550), rows)
    check("no cuBLAS, no ratio", rows["pp3325", "kiln mmq"]["cublas_ratio"] is None, rows)
    result, rows = compare(folder, "--bar", "2")
    check("the bar is not met", result.returncode == 1 and "NOT MET" in result.stdout, result.stdout)
    os.remove(os.path.join(folder, "calls"))
    result, rows = compare(folder, "--llama-cublas", engine(folder, "cublas", 2000))
    check("cuBLAS is not what the bar is for", result.returncode == 0, result.stdout)
    check("ratios to cuBLAS", near(rows["pp3325", "kiln mmq"]["cublas_ratio"], 0.5) and
          near(rows["pp3325", "kiln f16_expand"]["cublas_ratio"], 1), rows)
    check("and cuBLAS against int8", near(rows["pp3325", "llama.cpp cuBLAS -ub 4096"]["ratio"], 2000 / 550), rows)
    check("a decode has none", rows["tg128", "kiln default"]["cublas_ratio"] is None, rows)
    check("printed", "| pp3325 | kiln f16_expand | 2000.0 | 0.0 | 3.636 | 1.000 |" in result.stdout, result.stdout)
    with open(os.path.join(folder, "calls"), encoding="utf-8") as file:
        calls = [line.split() for line in file if line.startswith("cublas ")]
    check("one call a round, prefills alone, -ub 4096", len(calls) == 2 and all(
        call[call.index("-ub") + 1] == "4096" and call[call.index("-n") + 1] == "0" for call in calls), calls)
sys.exit(failures != 0)
