#!/usr/bin/env python3
"""The commands that README.md shows work as they stand there: those under "Using it", and the tour: the one without a
GPU, and the one with where there is a GPU. Each line with its time.

usage: test_readme.py SOURCE_ROOT BUILD_ROOT; skipped (77) without KILN_MODEL_SMOLLM2.
"""
import os
import re
import subprocess
import sys
import tempfile
import time

source, build = (os.path.abspath(path) for path in sys.argv[1:3])
model = os.environ.get("KILN_MODEL_SMOLLM2")
if not model:
    sys.exit(77)
with open(os.path.join(source, "README.md"), encoding="utf-8") as readme:
    text = readme.read()


def blocks(heading):
    """The commands of each sh block under a heading, continued lines joined."""
    section = re.search(r"^## %s\n(.*?)^## " % heading, text, re.S | re.M).group(1)
    found = [block.replace("\\\n", "") for block in re.findall(r"^```sh\n(.*?)^```", section, re.S | re.M)]
    return [[line for line in block.splitlines() if line.strip()] for block in found]


def shell(command, folder, env, codes=(0,)):
    start = time.monotonic()
    print("$", command, flush=True)
    code = subprocess.run(["bash", "-c", command], timeout=300, cwd=folder, env=env, check=False).returncode
    print("  exit %d, %.1f s" % (code, time.monotonic() - start), flush=True)
    assert code in codes, command


def using_it():
    commands = blocks("Using it")[0]
    assert len(commands) >= 9, commands
    for command in commands[1:]:  # the first fetches the model
        shell(command.replace("build/kiln", '"$KILN"'), source,
              dict(os.environ, MODEL=model, KILN=os.path.join(build, "kiln")))


def tour(commands, least):
    """In a folder of its own; the build and the model are there already."""
    with tempfile.TemporaryDirectory() as home:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "KILN_LEDGER"))}
        env.update(HOME=home, MODEL=model, PATH=build + os.pathsep + os.environ["PATH"])
        walked = [line for line in commands if not re.match(r"tools/demo |MODEL=\$\(tools/|export PATH=", line)]
        assert len(walked) >= least, walked
        for command in walked:
            shell(command, home, env, (0, 1) if command.startswith("kiln ab ") else (0,))
        with open(os.path.join(home, "report.html"), encoding="utf-8") as page:
            assert "LANDED" in page.read() or "REVERTED" in page.read()


def has_gpu():
    devices = subprocess.run([os.path.join(build, "kiln"), "devices"], capture_output=True, text=True, check=False)
    return re.search(r"^cuda:0\b", devices.stdout, re.M) is not None


def has_avx2():
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpus:
            return re.search(r"^flags.*\bavx2\b", cpus.read(), re.M) is not None
    except OSError:
        return False


using_it()
with_gpu, without = blocks("A tour")
if has_gpu():
    tour(with_gpu, 8)
if has_avx2():
    tour(without, 6)
