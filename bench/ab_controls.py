#!/usr/bin/env python3
"""Does `kiln ab` tell noise from change on this device? Base against base (nothing may be decided),
a planted loss (REVERT) and a planted gain (LAND). What is planted is a delay of known length in one
kernel: `embed` waits by the device's own clock, once a prefill.

usage: ab_controls.py KILN MODEL [--source ROOT] [-p N] [-ub N] [-r ROUNDS] [--rest MS]
                      [--base N] [--loss N] [--gain N] [--out DIR]

--base, --loss, --gain: how often each is tried. All tries of a kind run in one process. Exit status 1
when a verdict is not the one that it must be (a planted gain may miss one try in ten).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

LOSS_PCT, GAIN_PCT = -3.0, 2.0
# Blocks enough to keep every multiprocessor busy while it lasts: a wait that draws no power would be
# made up for, in part, by a card at its power limit.
WAIT = """
    if (blockIdx.x < 528 && blockIdx.y == 0) {
        unsigned long long from, now;
        float c[4] = {1e-3f * threadIdx.x, 1.f, 2.f, 3.f};
        unsigned a = 0x3c003800u + threadIdx.x * 0x10001u, b = 0x34003600u ^ threadIdx.x;
        asm volatile("mov.u64 %%0, %%globaltimer;" : "=l"(from));
        do {
            for (int i = 0; i < 64; i++) {
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%%0,%%1,%%2,%%3}, "
                             "{%%4,%%5,%%4,%%5}, {%%6,%%7}, {%%0,%%1,%%2,%%3};"
                             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                             : "r"(a), "r"(a ^ 0x155), "r"(b), "r"(b ^ 0x2aa));
            }
            asm volatile("mov.u64 %%0, %%globaltimer;" : "=l"(now));
        } while (now - from < %dull);
        if (c[0] == 1.2345e30f) {
            out[0] = c[1];
        }
    }
"""


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def delayed(options, folder, name, seconds):
    """An INI whose embed kernel takes so much longer. At 4 blocks a multiprocessor the wait is one wave."""
    with open(os.path.join(options.source, "kernels_src/elementwise/ew_embed.cu"), encoding="utf-8") as text:
        code = text.read()
    head = code.index("{", code.index("ew_embed(")) + 1
    write(folder, name + ".cu", code[:head] + WAIT % round(seconds * 1e9) + code[head:])
    return write(folder, name + ".ini", "[embed]\nvariant = gather\nsource = ./%s.cu\n" % name)


def compare(options, what, base, change, times):
    command = [options.kiln, "ab", base, change, "-m", options.model, "-p", ",".join([str(options.p)] * times),
               "-ub", str(options.ub), "-r", str(options.r), "--rest", str(options.rest), "--device", options.device,
               "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode not in (0, 1):
        sys.exit("%s: exit %d: %s" % (what, result.returncode, result.stderr[-2000:]))
    document = json.loads(result.stdout)
    if options.out:
        write(options.out, what.replace(" ", "_") + ".json", result.stdout)
    for row in document["rows"]:
        print("%-12s %-8s median %+6.2f %%  interval %+6.2f to %+6.2f  noise %.2f  %8.1f t/s  disturbed %d of %d"
              % (what, row["verdict"], row["median_pct"], *row["interval_pct"], row["noise_pct"], row["base_ts"],
                 row["disturbed"], len(row["pairs"])), flush=True)
    return document["rows"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kiln")
    parser.add_argument("model")
    parser.add_argument("--source", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out")
    for name, value in (("-p", 3325), ("-ub", 4096), ("-r", 40), ("--rest", 0), ("--base", 5), ("--loss", 3),
                        ("--gain", 3)):
        parser.add_argument(name, type=int, default=value)
    options = parser.parse_args()
    if options.out:
        os.makedirs(options.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        base = write(folder, "base.ini", "")
        rows = compare(options, "base", base, base, max(options.base, 1))
        wall = options.p / rows[0]["base_ts"]
        wrong = sum(row["verdict"] != "NEUTRAL" for row in rows)
        if options.loss:
            slow = delayed(options, folder, "loss", wall * (1 / (1 + LOSS_PCT / 100) - 1))
            rows = compare(options, "loss -3 %", base, slow, options.loss)
            wrong += sum(row["verdict"] != "REVERT" for row in rows)
        if options.gain:
            slow = delayed(options, folder, "gain", wall * GAIN_PCT / 100)
            rows = compare(options, "gain +2 %", slow, base, options.gain)
            missed = sum(row["verdict"] != "LAND" for row in rows)
            wrong += max(0, missed - options.gain // 10)
    print("%d wrong" % wrong)
    return 1 if wrong else 0


sys.exit(main())
