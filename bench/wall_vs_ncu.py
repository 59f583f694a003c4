#!/usr/bin/env python3
"""Whether a wall's slices are what Nsight Compute says of the same kernels, in one run on the same card.

  bench/wall_vs_ncu.py MODEL.gguf [--kiln build/kiln] [--ncu ncu] [-p 3325] [-ub 4096] [-r 3] [--within 3] [--least 1]
                       [--set SECTION.KEY=VALUE ...] [--config FILE ...] [--json FILE]

ncu runs `kiln bench` of one prefill (and the one that warms up) with --cache-control none and --clock-control none, a
launch at a time. `kiln wall --paced` runs the same prefill as users do, then with a rest behind each step, so that the
card's clock is full as ncu finds it. The table has both beside ncu's sums by slot. The exit status is 1 when a slot
that takes --least milliseconds or more in either differs by more than --within percent, paced; 2 when ncu fails.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NCU_PASSES = 2  # of the workload: bench warms up with one


def run(command, code):
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit("%s: %s" % (command[0], error))
    if result.returncode != 0:
        print("%s: exit status %d: %s%s" % (" ".join(command), result.returncode, result.stdout[-1000:],
                                            result.stderr[-1500:]), file=sys.stderr)
        sys.exit(code)
    return result.stdout


def find_ncu(name):
    """On the path, else where a CUDA toolkit has it."""
    return shutil.which(name) or shutil.which("/usr/local/cuda/bin/" + name) or name


def measure(options, folder):
    """The document of the wall, with ncu's sums in it."""
    profile = os.path.join(folder, "ncu.csv")
    load = ["-m", options.model, "--device", options.device, "-p", str(options.p), "-ub", str(options.ub)]
    for name, values in (("--set", options.set), ("--config", options.config)):
        for value in values:
            load += [name, value]
    bench = [options.kiln, "bench", *load, "-n", "0", "-r", "1"]
    run(bench, 4)  # so that ncu meets compiled kernels
    run([find_ncu(options.ncu), "--metrics", "gpu__time_duration.sum", "--cache-control", "none", "--clock-control",
         "none", "--csv", "--log-file", profile, *bench], 2)
    return json.loads(run([options.kiln, "wall", *load, "-r", str(options.r), "--paced", "--against", profile,
                           "--kernels", "kiln", "--passes", str(NCU_PASSES), "--json"], 4))


def compare(options, wall):
    """Prints the table; whether each slot that takes long enough is within the bound."""
    pace, good, judged = wall["paced"], True, 0
    print("wall %.3f ms at %.0f of %.0f MHz, power limit in %d of %d looks; paced slices %.3f ms at %.0f MHz, %.0f W, "
          "%d of %d" % (wall["wall_ms"], wall["sm_mhz"], wall["full_sm_mhz"], wall["capped"], 2 * wall["runs"],
                        pace["ms"], pace["sm_mhz"], pace["watts"], pace["capped"], pace["looks"]))
    print("| slot | ncu ms | wall ms | / ncu | paced ms | / ncu | |\n| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for row in wall["against"]["rows"]:
        ncu, ratio = row["then_ms"], row["paced_ratio"]
        said = ""
        # The wall has no step for weights that are expanded at the load.
        if row["paced_ms"] > 0 and max(ncu, row["paced_ms"]) >= options.least:
            judged += 1
            within = ratio is not None and abs(ratio - 1) <= options.within / 100
            said, good = "within" if within else "NOT WITHIN", good and within
        print("| %s | %.3f | %.3f | %s | %.3f | %s | %s |" % (
            row["slot"], ncu, row["now_ms"], "-" if row["ratio"] is None else "%.3f" % row["ratio"], row["paced_ms"],
            "-" if ratio is None else "%.3f" % ratio, said))
    print("%d slots of %g ms and more: %s %g %% of ncu, paced" % (
        judged, options.least, "all within" if good and judged else "NOT all within", options.within))
    return good and judged > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--kiln", default=os.path.join(ROOT, "build", "kiln"))
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-p", type=int, default=3325)
    parser.add_argument("-ub", type=int, default=4096)
    parser.add_argument("-r", type=int, default=3)
    parser.add_argument("--within", type=float, default=3, help="percent")
    parser.add_argument("--least", type=float, default=1, help="milliseconds")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--json", metavar="FILE", help="the wall's document, for other programs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wall = measure(options, folder)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(wall, out, indent=1)
    return 0 if compare(options, wall) else 1


if __name__ == "__main__":
    sys.exit(main())
