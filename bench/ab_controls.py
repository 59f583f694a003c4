#!/usr/bin/env python3
"""Does `kiln ab` tell noise from change on this device? Base against base (nothing may be decided),
a planted loss (REVERT) and a planted gain (LAND). What is planted is a delay in one kernel: `embed`
waits by the device's own clock, once a prefill.

A card at its power limit wins a part of a delay back: the wait draws less power than the products, and
what it saves the clock gets. So a delay of known length is tried first, and the planted ones are made
so long that the wall really is that much longer. --reference says it once more without `kiln ab`:
`kiln bench` of either side in processes of their own.

usage: ab_controls.py KILN MODEL [--source ROOT] [-p N] [-ub N] [-r ROUNDS] [--base-r ROUNDS] [--rest MS]
                      [--soak S] [--base N] [--loss N] [--gain N] [--reference N] [--scale X] [--out DIR]

--base, --loss, --gain: how often each is tried; -r: rounds at most, planted ones stop when they are
decided. --scale: what share of a delay the wall shows, instead of trying. All tries of a kind run in one
process. Exit status 1 when a verdict is not the one that it must be (a planted gain may miss one try in
ten).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

LOSS_PCT, GAIN_PCT, PROBE_PCT = -3.0, 2.0, 10.0
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


def compare(options, what, sides, times, *more):
    """`kiln ab` of two files, so many times in one process: its rows."""
    command = [options.kiln, "ab", *sides, "-m", options.model, "-p", ",".join([str(options.p)] * times),
               "-ub", str(options.ub), "--rest", str(options.rest), "--soak", str(options.soak), "--device",
               options.device, "--json", *more]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode not in (0, 1):
        sys.exit("%s: exit %d: %s" % (what, result.returncode, result.stderr[-2000:]))
    document = json.loads(result.stdout)
    if options.out:
        write(options.out, what.replace(" ", "_") + ".json", result.stdout)
    for row in document["rows"]:
        print("%-12s %-8s median %+6.2f %%  interval %+6.2f to %+6.2f  noise %.2f  %3d rounds  %8.1f t/s  disturbed %d"
              % (what, row["verdict"], row["median_pct"], *row["interval_pct"], row["noise_pct"], len(row["pairs"]),
                 row["base_ts"], row["disturbed"]), flush=True)
    return document["rows"]


def seen_share(options, folder, base, wall):
    """Of a delay, the share by which the wall is longer: 1 where no power limit plays in."""
    slow = delayed(options, folder, "probe", wall * PROBE_PCT / 100)
    row = compare(options, "probe", [base, slow], 1, "-r", str(max(options.r // 2, 6)))[0]
    share = (1 / (1 + row["median_pct"] / 100) - 1) / (PROBE_PCT / 100)
    if share <= 0:
        sys.exit("a delay of %g %% of the wall does not show" % PROBE_PCT)
    print("a delay of %g %% of the wall makes it %.2f %% longer: planted delays are 1 / %.3f times as long"
          % (PROBE_PCT, share * PROBE_PCT, share), flush=True)
    return share


def reference(options, what, sides):
    """The same pair by `kiln bench`, a process a side, in turns: percent, change against base."""
    rates = ([], [])
    for turn in range(options.reference):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            command = [options.kiln, "bench", "-m", options.model, "--device", options.device, "-p", str(options.p),
                       "-n", "0", "-ub", str(options.ub), "-r", str(options.r), "--config", sides[side], "--json"]
            result = subprocess.run(command, capture_output=True, text=True, check=True)
            rates[side].append(json.loads(result.stdout)[0]["avg_ts"])
    if options.reference:
        print("%-12s by kiln bench, %d processes a side: %+.2f %%" % (
            what, options.reference, 100 * (statistics.mean(rates[1]) / statistics.mean(rates[0]) - 1)), flush=True)


def planted(options, what, sides, times, wanted):
    """How many of the tries did not say what they must."""
    reference(options, what, sides)
    rows = compare(options, what, sides, times, "-r", str(options.r), "--until-decided")
    missed = sum(row["verdict"] != wanted for row in rows)
    print("%-12s %s: %d of %d; medians %+.2f %% in the mean" % (
        what, wanted, times - missed, times, statistics.mean(row["median_pct"] for row in rows)), flush=True)
    return missed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kiln")
    parser.add_argument("model")
    parser.add_argument("--source", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out")
    parser.add_argument("--soak", type=float, default=8)
    parser.add_argument("--scale", type=float)
    for name, value in (("-p", 3325), ("-ub", 4096), ("-r", 40), ("--base-r", 0), ("--rest", 0), ("--base", 5),
                        ("--loss", 3), ("--gain", 3), ("--reference", 0)):
        parser.add_argument(name, type=int, default=value)
    options = parser.parse_args()
    if options.out:
        os.makedirs(options.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        base = write(folder, "base.ini", "")
        rows = compare(options, "base", [base, base], max(options.base, 1), "-r", str(options.base_r or options.r))
        wall = options.p / rows[0]["base_ts"]
        wrong = sum(row["verdict"] != "NEUTRAL" for row in rows)
        share = 1.0
        if options.loss or options.gain:
            share = options.scale or seen_share(options, folder, base, wall)
        if options.loss:
            slow = delayed(options, folder, "loss", wall * (1 / (1 + LOSS_PCT / 100) - 1) / share)
            wrong += planted(options, "loss -3 %", [base, slow], options.loss, "REVERT")
        if options.gain:
            slow = delayed(options, folder, "gain", wall * GAIN_PCT / 100 / share)
            missed = planted(options, "gain +2 %", [slow, base], options.gain, "LAND")
            wrong += max(0, missed - options.gain // 10)
    print("%d wrong" % wrong)
    return 1 if wrong else 0


sys.exit(main())
