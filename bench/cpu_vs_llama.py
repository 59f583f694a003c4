#!/usr/bin/env python3
"""kiln's CPU speed beside llama.cpp's, in one run on the same threads.

  bench/cpu_vs_llama.py [--kiln build/kiln] [--llama-bench PATH] [-t 2] [--rounds 3] [MODEL.gguf ...]

Without models: SmolLM2 and Gemma 3 as tools/fetch-model gives them. llama-bench is taken from
--llama-bench, else from LLAMA_BENCH, else it is built from the source package of llama-cpp-python
(vendor/llama.cpp; needs pip, cmake and a C++ compiler) into --work and kept there.

Each round measures all, then all the other way round, so that a machine that speeds up or slows
down does not favour one; figures are medians. pp512 and tg64 as the programs themselves print them, then the
same from outside: the wall time of a whole process, less that of one that does a single token. The
last table is peak memory with a context of 2048 tokens that is full, less the model file, which is
mapped. Every ratio is kiln / llama: above 1 kiln is faster.

kiln is measured with two bindings: "exact", which is its default, and "q8", which is
configs/cpu-int8.ini. llama.cpp's settings are its defaults: 8-bit activations too. The bars are for
q8; the exit status is 1 when one of them is not met.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROMPT, GENERATE = 512, 64
BARS = {"pp512": 1.5, "tg64": 1.0}
BARRED = "q8"  # the binding that the bars are for


def say(text):
    print("cpu_vs_llama: " + text, file=sys.stderr, flush=True)


def die(text):
    say(text)
    sys.exit(3)


def call(command, **more):
    try:
        return subprocess.run(command, check=True, **more)
    except (OSError, subprocess.CalledProcessError) as error:
        die("%s: %s" % (" ".join(command), error))


# ---- llama-bench --------------------------------------------------------------------------------


def python_with_pip():
    return "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


def build_llama(work):
    program = os.path.join(work, "build", "bin", "llama-bench")
    if os.path.exists(program):
        return program
    if not shutil.which("cmake"):
        die("llama-bench is not there and cmake, which builds it, neither; --llama-bench names one")
    os.makedirs(work, exist_ok=True)
    say("building llama-bench in %s (many minutes)" % work)
    call([python_with_pip(), "-m", "pip", "download", "--no-binary", "llama-cpp-python", "--no-deps",
          "-d", work, "llama-cpp-python"], stdout=sys.stderr)
    archives = sorted(f for f in os.listdir(work) if f.endswith(".tar.gz"))
    with tarfile.open(os.path.join(work, archives[-1])) as archive:
        archive.extractall(work)
    source = os.path.join(work, archives[-1][: -len(".tar.gz")], "vendor", "llama.cpp")
    call(["cmake", "-S", source, "-B", os.path.join(work, "build"), "-DCMAKE_BUILD_TYPE=Release",
          "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF",
          "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF",
          "-DLLAMA_BUILD_TOOLS=ON"], stdout=sys.stderr)
    call(["cmake", "--build", os.path.join(work, "build"), "--target", "llama-bench", "-j",
          str(len(os.sched_getaffinity(0)))], stdout=sys.stderr)
    return program


# ---- Measuring ----------------------------------------------------------------------------------


def run(command):
    """Runs a program: its stdout, wall seconds, peak resident bytes."""
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # Both programs print little: reading one pipe after the other cannot block them.
        out, errors = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - start
    if process.returncode != 0:
        sys.stderr.buffer.write(errors)
        die("%s: exit status %d" % (" ".join(command), process.returncode))
    return out, wall, usage.ru_maxrss * 1024


class Kiln:
    def __init__(self, program, threads, name, config=None):
        self.name = name
        self.command = [program, "bench", "--device", "cpu", "-t", str(threads), "--json"]
        if config:
            self.command += ["--config", config]

    def bench(self, model, prompt, generate, context=None):
        more = ["-c", str(context)] if context else []
        return run(self.command + more +
                   ["-m", model, "-p", str(prompt), "-n", str(generate), "-r", "1"])

    def rates(self, out):
        return json.loads(out)

    def tokens(self, count):  # it does each test once before it counts
        return 2 * count


class Llama:
    name = "llama.cpp"

    def __init__(self, program, threads):
        self.command = [program, "-t", str(threads), "-ngl", "0", "-o", "json"]

    def bench(self, model, prompt, generate, context=None):
        # Its warm-up would count into the wall time: a row of its own is left out below instead.
        return run(self.command + ["-m", model, "-p", str(prompt), "-n", str(generate), "-r", "1"] +
                   ([] if prompt and generate else ["--no-warmup"]))

    def rates(self, out):
        return json.loads(out)

    def tokens(self, count):
        return count


def inside(engine, model, found):
    out, _, _ = engine.bench(model, PROMPT, GENERATE)
    for row in engine.rates(out):
        test = "pp512" if row["n_prompt"] else "tg64"
        found.setdefault((engine.name, test), []).append(row["avg_ts"])


def outside(engine, model, found):
    for test, prompt, generate in (("pp512", PROMPT, 0), ("tg64", 0, GENERATE)):
        _, whole, _ = engine.bench(model, prompt, generate)
        _, one, _ = engine.bench(model, min(prompt, 1), min(generate, 1))
        count = engine.tokens((prompt or generate) - 1)
        found.setdefault((engine.name, test), []).append(count / max(whole - one, 1e-9))


def compare(title, engines, model, rounds, measure):
    found = {}
    for _ in range(rounds):
        for engine in engines + engines[::-1]:
            measure(engine, model, found)
    rows = []
    for test in BARS:
        rate = {e.name: statistics.median(found[e.name, test]) for e in engines}
        spread = {e.name: 100 * (max(found[e.name, test]) - min(found[e.name, test])) /
                  (2 * rate[e.name]) for e in engines}
        for engine in engines[:-1]:
            name, llama = engine.name, engines[-1].name
            ratio = rate[name] / rate[llama]
            bar = BARS[test] if name == BARRED else None
            met = bar is None or ratio >= bar
            rows.append({"model": os.path.basename(model), "from": title, "test": test,
                         "binding": name, "kiln_ts": rate[name], "llama_ts": rate[llama],
                         "ratio": ratio, "bar": bar, "met": met})
            print("| %-36s | %-7s | %-5s | %-5s | %8.2f ±%3.0f %% | %8.2f ±%3.0f %% | %5.2f | %s |" % (
                os.path.basename(model)[:36], title, test, name, rate[name], spread[name],
                rate[llama], spread[llama], ratio,
                "" if bar is None else "%.1f %s" % (bar, "met" if met else "NOT MET")), flush=True)
    return rows


def memory(engine, model):
    _, _, peak = engine.bench(model, 2048, 0, context=2048)
    above = (peak - os.path.getsize(model)) / 1e6
    print("%s: %s, full context of 2048: %.0f MB above the mapped file" % (
        os.path.basename(model), engine.name, above), flush=True)
    return above


def fetch(name):
    script = os.path.join(ROOT, "tools", "fetch-model")
    return call([script, name], stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parser.add_argument("--kiln", default=os.path.join(ROOT, "build", "kiln"))
    parser.add_argument("--llama-bench", default=os.environ.get("LLAMA_BENCH"))
    parser.add_argument("--work", default=os.path.join(cache, "kiln", "llama.cpp"))
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="the rows, for other programs")
    parser.add_argument("models", nargs="*", metavar="MODEL.gguf")
    options = parser.parse_args()
    llama = options.llama_bench or build_llama(options.work)
    models = options.models or [fetch("smollm2"), fetch("gemma3")]
    engines = [Kiln(options.kiln, options.threads, "exact"),
               Kiln(options.kiln, options.threads, "q8",
                    os.path.join(ROOT, "configs", "cpu-int8.ini")),
               Llama(llama, options.threads)]
    print("%s, %d threads, load average %.1f" % (
        time.strftime("%Y-%m-%d"), options.threads, os.getloadavg()[0]))
    print("| model | timed | test | binding | kiln t/s | llama.cpp t/s | ratio | bar |\n"
          "|---|---|---|---|---:|---:|---:|---|", flush=True)
    rows = []
    for model in models:
        rows += compare("inside", engines, model, options.rounds, inside)
        rows += compare("outside", engines, model, options.rounds, outside)
    print()
    above = {"%s, %s" % (os.path.basename(model), engine.name): memory(engine, model)
             for model in models for engine in engines[:-1]}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "mb_above_file": above}, file, indent=1)
    return 0 if all(row["met"] for row in rows) and all(mb < 150 for mb in above.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
