#!/usr/bin/env python3
"""kiln's GPU speed beside llama.cpp's, in one run on the same card.

  bench/gpu_vs_llama.py MODEL.gguf --llama-bench PATH [--llama-cublas PATH] [--kiln build/kiln] [--rounds 3]
                        [-p 3325,512] [-n 128] [--llama-ub 2048,4096] [--kiln-ub 4096] [--json FILE]

llama-bench is one that was built with -DGGML_CUDA=ON; its int8 products are that build's default. It
runs with flash attention at each of --llama-ub, and the best of them for each test is what kiln is
held against. --llama-cublas is one built with -DGGML_CUDA_FORCE_CUBLAS=ON as well, whose products are
cuBLAS's in f16 of weights that it dequantizes for each: it runs the prefills in the same rounds, at
the last of --llama-ub, and each engine's ratio to it is a column of its own. kiln runs as it is bound
by itself ("default") and with all products of a prefill in `f16_expand` (configs/gpu-f16-expand.ini)
and in `mmq` (int8), the latter with activations quantized before every product ("mmq"), once for all
of its readers ("mmq shared") and by what makes them (configs/gpu-int8.ini, "int8").

Each round starts every engine once, in an order that turns round from round to round, so that a card
that warms up does not favour one; a figure is the median of the rounds. An engine warms up by itself
and then measures each test --repeats times. Every ratio is kiln / llama: above 1 kiln is faster. The
exit status is 1 when "mmq" is below --bar times llama.cpp at the first of the prefills.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIGS = os.path.join(ROOT, "configs")
VARIANT = "matmul.*.prefill.variant="
MMQ = ["--set", VARIANT + "mmq"]
BINDINGS = {
    "default": [],
    "mmq": MMQ,
    "mmq shared": MMQ + ["--set", "quantize.variant=shared"],
    "int8": ["--config", os.path.join(CONFIGS, "gpu-int8.ini")],
    "f16_expand": ["--config", os.path.join(CONFIGS, "gpu-f16-expand.ini")],
}
BARRED = "mmq"
INT8, CUBLAS = "llama.cpp -ub ", "llama.cpp cuBLAS -ub "


def run(command):
    """The rows of an engine's JSON: {(test, tokens): tokens a second}."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit("%s: %s" % (command[0], error))
    if result.returncode != 0:
        sys.exit("%s: exit status %d: %s" % (" ".join(command), result.returncode, result.stderr[-1500:]))
    return {("pp" if row["n_prompt"] else "tg") + str(row["n_prompt"] or row["n_gen"]): row["avg_ts"]
            for row in json.loads(result.stdout)}


def kiln_command(options, binding, prompts, gens):
    return [options.kiln, "bench", "-m", options.model, "--device", options.device, "-p", prompts, "-n", gens,
            "-ub", str(options.kiln_ub), "-r", str(options.repeats), "--json"] + binding


def llama_command(options, program, ubatch, prompts, gens):
    command = [program, "-m", options.model, "-fa", "1", "-r", str(options.repeats), "-o", "json",
               "-b", str(max(ubatch, 2048)), "-ub", str(ubatch), "-p", prompts, "-n", gens]
    return command + (["-ngl", "0"] if options.device == "cpu" else [])


def engines(options):
    """Name and command of each; the decode, which no binding of a prefill changes, once a side."""
    found = []
    for name, binding in BINDINGS.items():
        found.append(("kiln " + name, kiln_command(options, binding, options.p, "0" if binding else options.n)))
    ubatches = options.llama_ub.split(",")
    for i, ubatch in enumerate(ubatches):
        found.append((INT8 + ubatch, llama_command(options, options.llama_bench, int(ubatch), options.p,
                                                   options.n if i == 0 else "0")))
    if options.llama_cublas:
        found.append((CUBLAS + ubatches[-1],
                      llama_command(options, options.llama_cublas, int(ubatches[-1]), options.p, "0")))
    return found


def measure(options):
    rates = {}
    all_engines = engines(options)
    for turn in range(options.rounds):
        for name, command in all_engines if turn % 2 == 0 else all_engines[::-1]:
            for test, rate in run(command).items():
                rates.setdefault(test, {}).setdefault(name, []).append(rate)
    return rates


def spread(values):
    return 100 * (max(values) - min(values)) / statistics.median(values)


def compare(options, rates):
    rows = []
    print("| test | engine | t/s | spread % | / best llama.cpp | / its cuBLAS |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for test, sides in rates.items():
        middle = {name: statistics.median(values) for name, values in sides.items()}
        best = max(rate for name, rate in middle.items() if name.startswith(INT8))
        cublas = next((rate for name, rate in middle.items() if name.startswith(CUBLAS)), None)
        for name, values in sides.items():
            row = {"test": test, "engine": name, "ts": middle[name], "samples": values, "ratio": middle[name] / best,
                   "cublas_ratio": middle[name] / cublas if cublas else None}
            print("| %s | %s | %.1f | %.1f | %.3f | %s |" % (test, name, row["ts"], spread(values), row["ratio"],
                                                          "%.3f" % row["cublas_ratio"] if cublas else ""))
            rows.append(row)
    first = "pp" + options.p.split(",")[0]
    ratio = next((r["ratio"] for r in rows if r["test"] == first and r["engine"] == "kiln " + BARRED), None)
    if ratio is not None:
        print("%s: %s is %.3f times llama.cpp at its best micro-batch; the bar is %.2f: %s" % (
            first, BARRED, ratio, options.bar, "met" if ratio >= options.bar else "NOT MET"))
    return rows, ratio is None or ratio >= options.bar


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--llama-cublas", metavar="PATH", help="a llama-bench whose products are cuBLAS's")
    parser.add_argument("--kiln", default=os.path.join(ROOT, "build", "kiln"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-p", default="3325,512")
    parser.add_argument("-n", default="128")
    parser.add_argument("--llama-ub", default="2048,4096")
    parser.add_argument("--kiln-ub", type=int, default=4096)
    parser.add_argument("--bar", type=float, default=1.15)
    parser.add_argument("--json", metavar="FILE", help="the rows, for other programs")
    options = parser.parse_args()
    rows, met = compare(options, measure(options))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(rows, out, indent=1)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
