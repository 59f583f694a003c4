#!/usr/bin/env python3
"""Every kernel that the default configuration binds compiles for every GPU generation, without spills.

usage: test_jit_matrix.py KILN; skipped (77) where there is no NVRTC. A kernel that a generation cannot run is
a row that says why, and no failure.
"""
import json
import os
import subprocess
import sys
import tempfile

kiln = sys.argv[1]
TARGETS = "sm_75,sm_80,sm_86,sm_89,sm_90a,sm_100,sm_120,sm_121"
with tempfile.TemporaryDirectory() as cache:
    result = subprocess.run([kiln, "jit", "--target", TARGETS, "--json"], capture_output=True, text=True,
                            timeout=900, env=dict(os.environ, KILN_CACHE_DIR=cache))
if result.returncode == 4 and "is not here" in result.stderr:
    print(result.stderr)
    sys.exit(77)
rows = json.loads(result.stdout)["kernels"]
bad = [row for row in rows if not row.get("unsupported") and row.get("spill_bytes", -1) != 0]
for row in rows:
    print(row["target"], row["slot"], row["variant"], row["kernel"], row.get("unsupported")
          or "%s registers, %s bytes spilled" % (row["registers"], row["spill_bytes"]))
compiled = [row for row in rows if not row.get("unsupported")]
assert {row["target"] for row in compiled} == set(TARGETS.split(",")), "a target has no kernel at all"
assert len(compiled) >= 8 * 8, "only %d kernels" % len(compiled)
assert result.returncode == 0, result.stderr
assert not bad, "spills: %s" % [(row["target"], row["kernel"], row["spill_bytes"]) for row in bad]
