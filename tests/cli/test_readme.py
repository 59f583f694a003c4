#!/usr/bin/env python3
"""The commands that README.md shows under "Using it" work as they stand there.

usage: test_readme.py SOURCE_ROOT BUILD_ROOT; skipped (77) without KILN_MODEL_SMOLLM2.
"""
import os
import re
import subprocess
import sys

source, build = sys.argv[1:3]
model = os.environ.get("KILN_MODEL_SMOLLM2")
if not model:
    sys.exit(77)
with open(os.path.join(source, "README.md"), encoding="utf-8") as readme:
    section = re.search(r"^## Using it\n.*?^```sh\n(.*?)^```", readme.read(), re.S | re.M)
commands = section.group(1).splitlines()
assert len(commands) >= 9, commands
for command in commands[1:]:  # the first fetches the model
    print("$", command, flush=True)
    command = command.replace("build/kiln", '"$KILN"')
    subprocess.run(["sh", "-c", command], check=True, timeout=300, cwd=source,
                   env=dict(os.environ, MODEL=model, KILN=os.path.join(build, "kiln")))
