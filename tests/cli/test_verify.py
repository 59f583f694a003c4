#!/usr/bin/env python3
"""`kiln plugins verify` runs the corners of a schema on the simulator: a kernel that is wrong only where FA_TQ and
FA_TKV differ is found, the corner named; the same one mended passes, and so do the smallest of kiln's own. What
declines the simulator's default target is run on Hopper.

usage: test_verify.py KILN PLUGINS_CORNER PLUGINS. Without NVRTC only what needs none is looked at.
"""
import os
import re
import subprocess
import sys
import tempfile

kiln, planted, shipped = sys.argv[1:4]
failures = 0


def check(what, condition, result):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else result.stdout[-4000:] + result.stderr, flush=True)
    failures += not condition


def verify(plugin, *more, **env):
    return subprocess.run([kiln, "plugins", "verify", plugin, *more], capture_output=True, text=True, check=False,
                          timeout=300, env=dict(os.environ, KILN_CACHE_DIR=cache.name, **env))


def corners(result, target="sm_80"):
    """What was said of each corner: (FA_TQ, FA_TKV) -> verdict."""
    lines = re.findall(r"^(\w+) +'tiles' for activation on sim:" + target + r", FA_TQ=(\d+) FA_TKV=(\d+): ", result.stdout, re.M)
    return {(int(tq), int(tkv)): verdict for verdict, tq, tkv in lines}


cache = tempfile.TemporaryDirectory()
good, bad, hopper = (os.path.join(planted, name + ".so") for name in ("corner_good", "corner_bad", "corner_hopper"))
result = verify(good, KILN_NVRTC=os.path.join(cache.name, "nowhere"))
check("without a compiler: said, and no failure", result.returncode == 0 and
      re.search(r"^skipped +corners on sim: .*NVRTC", result.stdout, re.M) and not corners(result), result)
result = verify(bad, "--no-sim")
check("plans alone find nothing", result.returncode == 0 and "sim" not in result.stdout, result)
result = verify(good)
if "skipped " in result.stdout:
    print("NVRTC is not here: no kernel was run")
else:
    sizes = [(tq, tkv) for tq in (8, 16, 256) for tkv in (4, 16, 256)]
    want = {size: "declined" if size == (8, 256) else "refused" if size == (256, 256) else "ok" for size in sizes}
    check("mended: every corner", result.returncode == 0 and corners(result) == want, result)
    check("mended: counted", "corners on sim:sm_80: 7 right, 1 declined, 1 refused" in result.stdout, result)
    check("mended: what is refused says why", "bytes of shared memory" in result.stdout, result)
    result = verify(bad, "-t", "1")
    want = {size: "failed" if verdict == "ok" and size != (16, 16) else verdict for size, verdict in want.items()}
    check("planted: the corners where the two differ, no others", corners(result) == want, result)
    check("planted: exit code", result.returncode == 1 and "6 of 14 checks failed" in result.stderr, result)
    check("planted: by its line", re.search(
        r"FA_TQ=16 FA_TKV=4: m=1 k=1: tiles\.cu:13: bounds: .* up to byte 260 of shared memory", result.stdout), result)
    result = verify(hopper)
    want = {size: "ok" if size == (256, 256) and verdict == "refused" else verdict for size, verdict in want.items()}
    check("for Hopper alone: run there", result.returncode == 1 and not corners(result) and
          "corners on sim:sm_80: 0 right, 0 declined, 0 refused" in result.stdout and
          {size for size, verdict in corners(result, "sm_90a").items() if verdict == "failed"} ==
          {size for size, verdict in want.items() if verdict == "failed"}, result)
    result = verify(hopper, "--device", "sim:sm_80")
    check("for Hopper alone: on a target that is named, nowhere else", result.returncode == 0 and re.search(
        r"^declined +'tiles' for activation on sim:sm_80, 9 corners: made for sm_90a$", result.stdout, re.M) and
          "sim:sm_90a" not in result.stdout, result)
    result = verify(good, "--device", "sim:sm_90a")
    check("a target that is named", result.returncode == 0 and len(corners(result, "sm_90a")) == 9 and
          not corners(result), result)
    result = verify(good, "--device", "cpu")
    check("no kernel runs there", result.returncode == 2 and "sim:sm_XX" in result.stderr, result)
    result = verify(os.path.join(shipped, "elementwise/elementwise.so"))
    check("a plugin of kiln's own", result.returncode == 0 and "0 declined, 0 refused" in result.stdout and
          "'rms' for norm on sim:sm_80, THREADS=32 THREADS_MANY=128: 2 calls" in result.stdout, result)
cache.cleanup()
print("%d failed" % failures)
sys.exit(1 if failures else 0)
