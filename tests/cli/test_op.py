#!/usr/bin/env python3
"""`kiln op` and `kiln run --capture`: one kernel alone, from a shape and from a call of a run, on the CPU and on sim.

usage: test_op.py KILN SOURCE_ROOT. Where there is no NVRTC, sim is left out and said so. Exit status 1 when a
case fails.
"""
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

kiln, source = sys.argv[1:3]
model = os.path.join(source, "tests/golden/tiny/llama-f32-gqa4x2.gguf")
failures = 0
folder = tempfile.TemporaryDirectory()
env = dict(os.environ, KILN_CACHE_DIR=os.path.join(folder.name, "cache"))


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def run(*words, **more):
    return subprocess.run([kiln, *words], capture_output=True, text=True, check=False, timeout=120, env=env, **more)


def op(*words, code=0):
    result = run("op", *words, "--json")
    check("kiln op %s ends with %d" % (" ".join(words), code), result.returncode == code, result.stderr)
    return json.loads(result.stdout) if result.stdout else {}


def at(name):
    return os.path.join(folder.name, name)


# ---- From a shape -----------------------------------------------------------------------------------------------------

SHAPES = [
    ("matmul.q4_K.decode", "m=1,n=96,k=512"),
    ("matmul.f16.prefill", "m=33,n=65,k=256,with=bias+residual"),
    ("attention.prefill", "m=17,h=4,hkv=2,hd=64,kv=40"),
    ("norm", "m=5,k=256"),
    ("rope_kv", "nt=3,h=4,hkv=1,hd=64,with=norms"),
    ("activation", "m=4,k=128,act=gelu_tanh"),
]
for slot, shape in SHAPES:
    for doc in (op(slot, "--shape", shape, "--device", "cpu", "-r", "3"),):
        row = doc["results"][0]
        check(slot + ": parity passed", doc["passed"] and row["parity"]["passed"] and row["parity"]["worst"] <= 1, row)
        check(slot + ": measured, warm and cold", doc["grade"] == "measured" and
              0 < row["warm"]["min_us"] <= row["warm"]["median_us"] <= row["warm"]["max_us"] and
              row["cold"]["samples"] == 3, row)
        check(slot + ": an unknown ceiling is no number", doc["peak_tflop_s"] is None, doc)

table = op("attention.prefill", "--shape", "h=4,hkv=2,hd=64", "-ub", "1,16", "-d", "0,50", "--device", "cpu", "-r", "1")
check("a table over micro-batch and depth", [row["shape"].split(" heads")[0] for row in table["results"]] ==
      ["m=1 kv=1", "m=1 kv=51", "m=16 kv=16", "m=16 kv=66"], table)
text = run("op", "attention.prefill", "--shape", "h=4,hkv=2,hd=64", "-ub", "1,16", "--device", "cpu", "-r", "1").stdout
check("as Markdown", text.count("\n| ") == 4 and "| passed |" in text, text)
once = op("norm", "--shape", "m=5,k=256", "--device", "cpu", "--once")
check("--once looks at nothing", once["results"][0]["parity"] is None and once["results"][0]["warm"] is None, once)
peak = op("matmul.f32.decode", "--shape", "m=1,n=64,k=64", "--device", "cpu", "--peak", "0.5", "-r", "1")
warm = peak["results"][0]["warm"]
check("percent of a peak that is given", warm["tflop_s"] is None or
      abs(warm["peak_pct"] - 200 * warm["tflop_s"]) < 1e-6 and peak["results"][0]["peak"] == "given", peak)

for words, says in [
        (["--shape", "m=1,windw=64"], "did you mean 'window'"),
        (["--shape", "m=0"], "from 1 to"),
        (["--shape", "m=4,nt=4"], "given twice"),
        (["--shape", "k=100"], "k"),
        (["-ub", "0"], "-ub takes"),
        (["--from", "x"], "takes a slot"),
]:
    result = run("op", "matmul.q4_K.decode", *words, "--device", "cpu")
    check("refused: " + " ".join(words), result.returncode == 2 and says in result.stderr, result.stderr)
for slot, shape, says in [
        ("norm", "n=64,m=4", "nothing in norm exact reads n; read are m, nt, k, bound, "),
        ("norm", "m=4,k=64,with=bias", "reads with=bias; .*with=residual[+]in_place"),
        ("norm", "m=4,k=64,hd=64", "reads hd"),
        ("matmul.q4_K.decode", "m=1,n=96,k=512,weight=q6_K", "reads weight"),
        ("matmul.q4_K.decode", "m=1,n=96,k=512,kv=9", "reads kv"),
        ("attention.decode", "m=1,h=2,hkv=1,hd=64,kv=9,k=64", "reads k; .*softcap"),
        ("activation", "m=4,k=128,n=128", "reads n; .*act"),
        ("argmax", "m=1,n=64,k=64", "reads k; read are m, nt, n, bound"),
]:
    result = run("op", slot, "--shape", shape, "--device", "cpu", "-r", "0")
    check("refused: %s does not read all of %s" % (slot, shape), result.returncode == 2 and re.search(says, result.stderr),
          result.stderr)
for slot, shape in [("embed", "m=2,n=64,k=256,weight=q8_0"), ("argmax", "m=1,n=64,bound=4"),
                    ("attention.decode", "m=1,h=2,hkv=1,hd=64,kv=9,window=4,softcap=30,kvtype=f16"),
                    ("norm", "m=4,k=64,with=residual+in_place")]:
    check("taken: %s %s" % (slot, shape), op(slot, "--shape", shape, "--device", "cpu", "-r", "0")["passed"], "")
result = run("op", "matmul.q4_L.decode", "--device", "cpu")
check("an unknown slot is bad usage", result.returncode == 2 and "q4_L" in result.stderr, result.stderr)

# ---- Captures ---------------------------------------------------------------------------------------------------------

ids = at("ids")
with open(ids, "w", encoding="ascii") as file:
    file.write("1 17 300 4 99\n")


def capture(what, to, *words, **more):
    return run("run", "-m", model, "--prompt-ids", ids, "-n", "2", "--greedy", "--device", "cpu", "--capture", what, to,
               *words, **more)


CALLS = ["attention.prefill@1", "matmul.f32.prefill@0:ffn_down", "matmul.*.decode@1", "rope_kv@0", "norm", "embed"]
plain = run("run", "-m", model, "--prompt-ids", ids, "-n", "2", "--greedy", "--device", "cpu")
for number, what in enumerate(CALLS):
    result = capture(what, at("call%d" % number))
    check("captured: " + what, result.returncode == 0 and "captured in" in result.stderr, result.stderr)
    check("and the text is what it was", result.stdout == plain.stdout, result.stdout)
    doc = op("--from", at("call%d" % number), "--device", "cpu", "-r", "1")
    seen = doc["results"][0]["captured"]
    check("replayed: the same bits", seen["passed"] and seen["differ"] == 0 and seen["elements"] > 100, seen)
    check("and right", doc["results"][0]["parity"]["passed"], doc["results"][0]["parity"])
with open(at("call1/capture.json"), encoding="utf-8") as file:
    described = json.load(file)
check("the role was asked for", described["ops"][0]["role"] == "ffn_down" and described["layer"] == 0, described)

# The cache holds the whole context; the call saw the keys that were in it.
with open(at("call0/op0_kv_len.bin"), "rb") as file:
    keys = struct.unpack("<i", file.read(4))[0]
with open(at("call0/capture.json"), encoding="utf-8") as file:
    call = json.load(file)["ops"][0]
row = op("--from", at("call0"), "--device", "cpu", "-r", "0")["results"][0]
check("work is counted of the keys that are there", row["flops"] == 4 * keys * (keys + 1) / 2 * call["n_heads"] *
      call["head_size"], (row["flops"], keys, call["n_heads"], call["head_size"]))

# An index that points outside, as in a file made by hand.
shutil.copytree(at("call5"), at("index"))
with open(at("index/op0_ids.bin"), "r+b") as file:
    file.write(struct.pack("<i", 1 << 20))
result = run("op", "--from", at("index"), "--device", "cpu")
check("an index outside is refused", result.returncode == 3 and "an index outside" in result.stderr, result.stderr)

# One number of the captured output changed: the replay fails; a file cut short is no capture.
bad = at("bad")
shutil.copytree(at("call0"), bad)
with open(os.path.join(bad, "op0_out.after.bin"), "r+b") as file:
    file.seek(64)
    file.write(struct.pack("<f", 1e3))
doc = op("--from", bad, "--device", "cpu", "-r", "0", code=1)
check("a wrong number is found", doc["results"][0]["captured"]["differ"] == 1 and not doc["passed"], doc)
with open(os.path.join(bad, "op0_q.bin"), "r+b") as file:
    file.truncate(100)
result = run("op", "--from", bad, "--device", "cpu")
check("a file cut short is a bad file", result.returncode == 3 and "op0_q.bin" in result.stderr, result.stderr)
for key, value in [("n_dims", 9), ("dims", [1 << 40, 1 << 40, 1, 1]), ("strides", [4, 4, 4, 4]), ("operand", "nose"),
                   ("before", "../ids")]:
    shutil.rmtree(bad)
    shutil.copytree(at("call0"), bad)
    with open(os.path.join(bad, "capture.json"), encoding="utf-8") as file:
        document = json.load(file)
    document["ops"][0]["operands"][0][key] = value
    with open(os.path.join(bad, "capture.json"), "w", encoding="utf-8") as file:
        json.dump(document, file)
    result = run("op", "--from", bad, "--device", "cpu")
    check("refused: %s = %s" % (key, value), result.returncode == 3 and "capture.json" in result.stderr, result.stderr)

result = run("op", "norm", "--shape", "m=2,k=64", "--device", "cpu", "-d", "64")
check("no depth without a cache", result.returncode == 2 and "norm has no cache" in result.stderr, result.stderr)

result = capture("attention.prefill@0", at("call0"))
check("a folder with content is refused", result.returncode == 3 and "holds something" in result.stderr, result.stderr)
os.mkdir(at("empty"))
result = capture("attention.prefill@0", at("empty"))
check("an empty one is taken", result.returncode == 0 and "capture.json" in os.listdir(at("empty")), result.stderr)
result = capture("attention.prefill@9", at("none"))
check("no such call", result.returncode == 2 and "layers 0 to 1" in result.stderr and "attention.prefill:" in result.stderr and
      not os.path.exists(at("none")), result.stderr)
for what in ["attention", "attention.prefill@x", "attention.prefill@-1", "@1", "attention.prefill@1:"]:
    result = capture(what, at("none"))
    check("refused: " + what, result.returncode == 2, result.stderr)


def small_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


result = capture("attention.prefill@0", at("full/deep"), preexec_fn=small_files)
check("a disk that takes no more: 3, and nothing is left", result.returncode == 3 and
      os.listdir(at("full")) == [], result.stderr)

# ---- On sim -----------------------------------------------------------------------------------------------------------

probe = run("op", "norm", "--shape", "m=3,k=256", "--device", "sim", "--json")
if probe.returncode != 0 and "NVRTC" in probe.stderr:
    print("no NVRTC here: sim is left out")
else:
    doc = json.loads(probe.stdout)
    check("sim: simulated, parity, no times", doc["grade"] == "simulated" and doc["passed"] and
          doc["results"][0]["parity"]["passed"] and doc["results"][0]["warm"] is None and
          doc["results"][0]["warp_instructions"] > 0, doc)
    check("sim: counters", doc["sim"]["faults"] == 0 and doc["sim"]["kernels"][0]["kernel"] == "ew_norm" and
          doc["sim"]["kernels"][0]["total"]["global_load_sectors"] > 0, doc["sim"])
    doc = op("norm", "--shape", "m=3,k=64", "--device", "sim", "-r", "0", "--save", at("kept.json"))
    with open(at("kept.json"), encoding="utf-8") as file:
        check("sim: what is kept is what is printed", json.load(file)["result"] == doc and "sim" in doc, doc)
    for rows, threads in ((431, 640), (432, 128)):  # 4 rows a multiprocessor of 108: small blocks, as many as fit
        doc = op("norm", "--shape", "m=%d,k=2560" % rows, "--device", "sim:sm_80", "-r", "0")
        check("sim: a norm of %d rows takes %d threads a row" % (rows, threads),
              doc["passed"] and doc["results"][0]["launches"][0].startswith("ew_norm <%d,1,1> x %d threads" % (rows, threads)),
              doc["results"])
    doc = op("--from", at("call3"), "--device", "sim", "--sim-check", "all")
    check("sim replays what the CPU ran", doc["passed"] and doc["results"][0]["plugin"] == "elementwise" and
          doc["results"][0]["parity"]["passed"], doc)

    for words in (("op", "norm", "--shape", "m=3,k=256"), ("run", "-m", model, "--prompt-ids", ids, "-n", "1")):
        result = run(*words, "--device", "sim", "--max-instructions", "1")
        check("sim: %s is given up at its bound" % words[0], result.returncode == 4 and
              "1 are allowed" in result.stderr and ".cu:" in result.stderr, result.stderr)

    # And the other way: what sim ran with halves, widened for the CPU.
    result = run("run", "-m", model, "--prompt-ids", ids, "-n", "1", "--greedy", "--device", "sim", "--capture",
                 "attention.prefill@1", at("sim"))
    check("captured on sim", result.returncode == 0, result.stderr)
    doc = op("--from", at("sim"), "--device", "sim")
    check("sim repeats its bits", doc["passed"] and doc["results"][0]["captured"]["differ"] == 0, doc)
    # Quantized outputs are held by their values: what pads a block's bytes is nobody's.
    quantized = [word for setting in ("norm.variant=rms_q8", "quantize.variant=shared", "matmul.*.prefill.variant=mmq")
                 for word in ("--set", setting)]
    blocks = os.path.join(os.path.dirname(model), "qwen2-q4_k_m-hd128-untied.gguf")
    result = run("run", "-m", blocks, "--prompt-ids", ids, "-n", "1", "--greedy", "--device", "sim", *quantized, "--capture",
                 "norm@1", at("q8"))
    check("captured with quantized outputs", result.returncode == 0, result.stderr)
    doc = op("--from", at("q8"), "--device", "sim", *quantized)
    check("sim repeats the bits of blocks", doc["passed"] and doc["results"][0]["variant"] == "rms_q8" and
          doc["results"][0]["captured"]["differ"] == 0 and doc["results"][0]["captured"]["elements"] > 100 and
          doc["results"][0]["captured"]["elements"] % 32 == 0, doc)

    doc = op("--from", at("sim"), "--device", "cpu", "-r", "1")
    check("the CPU replays what sim ran", doc["passed"] and doc["results"][0]["plugin"] == "cpu" and
          "widened" in doc["results"][0]["shape"] and doc["results"][0]["captured"]["elements"] > 100, doc)

print("%d failed" % failures)
sys.exit(failures > 0)
