#!/usr/bin/env python3
"""A widened model has the same function: SmolLM2 at head size 128 gives the reference's greedy ids.

usage: test_widen.py KILN SOURCE_ROOT; skipped (77) without KILN_MODEL_SMOLLM2.
"""
import json
import os
import subprocess
import sys
import tempfile

kiln, source = sys.argv[1:3]
model = os.environ.get("KILN_MODEL_SMOLLM2")
if not model:
    sys.exit(77)
KNIFE_EDGE = 0.002  # a reference step with a smaller top-2 gap may come out either way
with open(os.path.join(source, "tests/golden/exact/exact_smollm2.jsonl"), encoding="utf-8") as lines:
    cases = [json.loads(line) for line in lines]
with tempfile.TemporaryDirectory() as folder:
    wide = os.path.join(folder, "wide.gguf")
    subprocess.run([kiln, "model", "widen", "--head-size", "128", model, wide], check=True, timeout=300)
    info = json.loads(subprocess.run([kiln, "model", "info", wide, "--json"], check=True, timeout=60,
                                     capture_output=True).stdout)
    assert info["keys"]["llama.attention.key_length"] == 128, info["keys"]
    for case in cases:
        prompt = os.path.join(folder, "ids")
        with open(prompt, "w", encoding="ascii") as out:
            out.write(" ".join(map(str, case["prompt_ids"])))
        result = subprocess.run([kiln, "run", "-m", wide, "--prompt-ids", prompt, "-n", "32", "--greedy",
                                 "--ignore-eos", "--json", "--device", "cpu"], check=True, timeout=300,
                                capture_output=True)
        ids = json.loads(result.stdout)["ids"]
        step = next((i for i in range(32) if ids[i] != case["greedy_ids"][i]), None)
        print(case["prompt"], "same" if step is None else "differs at step %d" % step)
        assert step is None or case["top2_gap"][step] < KNIFE_EDGE
