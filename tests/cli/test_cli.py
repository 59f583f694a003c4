#!/usr/bin/env python3
"""The kiln program as a person or a script meets it: output, messages and exit codes.

usage: test_cli.py KILN SOURCE_ROOT; needs no model but the tiny ones. Exit status 1 when a case fails.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

kiln, source = sys.argv[1:3]
tiny = os.path.join(source, "tests/golden/tiny")
model = os.path.join(tiny, "llama-quant-q8_0.gguf")
failures = 0


def run(*args, stdin="", env=None, **more):
    return subprocess.run([kiln, *args], input=stdin, capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, **(env or {})), **more)


def check(what, condition, result=None):
    global failures
    print("ok  " if condition else "FAIL", what)
    if not condition:
        failures += 1
        if result is not None:
            print("    exit", result.returncode, "\n    out", result.stdout[-600:], "\n    err", result.stderr[-600:])


def case(what, args, code, err="", out="", **more):
    result = run(*args, **more)
    good = (result.returncode == code and re.search(err, result.stderr, re.S)
            and re.search(out, result.stdout, re.S))
    check(what, bool(good), result)
    return result


def ids_file(folder, ids):
    path = os.path.join(folder, "ids")
    with open(path, "w", encoding="ascii") as out:
        out.write("\n".join(map(str, ids)))
    return path


def usage_cases():
    case("no command", [], 2, err="usage: kiln COMMAND")
    case("help", ["--help"], 0, out="run .*tokenize .*perplexity .*bench")
    case("version", ["--version"], 0, out=r"kiln \d+\.\d+\.\d+ \(plugin ABI 1\.0\)")
    case("a level of the log that is none", ["--version"], 0, env={"KILN_LOG": "inof"},
         err="KILN_LOG is 'inof'; allowed are error, warn, info and debug .did you mean info")
    case("unknown command", ["rnu"], 2, err="unknown command 'rnu'; did you mean 'run'")
    for command in ("run", "tokenize", "perplexity", "bench", "devices", "model info", "plugins list",
                    "plugins inspect", "plugins verify", "config show", "config check"):
        case("help of " + command, command.split() + ["--help"], 0, out="usage: kiln.*example:\n  kiln ")
    for command in ("model", "plugins", "config"):
        case("help of " + command, [command, "--help"], 0, out="example:\n  kiln ")
        case("no subcommand of " + command, [command], 2, err="--help")
        case("bad subcommand of " + command, [command, "xyzzy"], 2, err="unknown subcommand 'xyzzy'")
    case("unknown option", ["run", "--gredy"], 2, err="unknown option '--gredy'; did you mean '--greedy'")
    case("missing value", ["run", "-n"], 2, err="-n needs a value")
    case("junk in a number", ["run", "-n", "12x"], 2, err="-n takes a whole number.*'12x'")
    case("number out of range", ["run", "-t", "0"], 2, err="-t takes a whole number from 1 to 1024")
    case("nothing to measure", ["bench", "-m", model, "-p", "0", "-n", "0"], 2, err="-p and -n are both 0")
    case("a file of no name", ["run", "-m", "", "-p", "x"], 3, err=r"^kiln: '' \(no name\): cannot open")
    case("not a number", ["run", "--temp", "nan"], 2, err="--temp takes a number")
    case("stray argument", ["devices", "cpu"], 2, err="unexpected argument 'cpu'")
    case("no model", ["run", "-p", "x"], 2, err="fetch-model")
    case("two prompts", ["run", "-m", model, "-p", "x", "-f", "y"], 2, err="once")
    case("a chat by token ids", ["run", "-m", model, "--chat", "--prompt-ids", "/dev/null"], 2, err="--chat")
    case("--system without --chat", ["run", "-m", model, "--system", "x", "-p", "x"], 2, err="--chat")
    case("--json without a prompt", ["run", "-m", model, "--json"], 2, err="--json")
    case("unknown device", ["run", "-m", model, "--prompt-ids", "/dev/null", "--device", "cpuu"], 2,
         err="did you mean 'cpu'")


def full_output(result):
    return result.returncode == 3 and "output could not be written: No space left" in result.stderr


def file_cases(folder):
    case("model is not there", ["run", "-m", "/nonexistent.gguf", "-p", "x"], 3, err="/nonexistent.gguf")
    case("model is a folder", ["run", "-m", folder, "-p", "x"], 3, err=re.escape(folder))
    with open(model, "rb") as whole:
        data = whole.read()
    for size in (0, 3, 23, 24, 200, len(data) // 2, len(data) - 1):
        cut = os.path.join(folder, "cut.gguf")
        with open(cut, "wb") as out:
            out.write(data[:size])
        case("model cut to %d bytes" % size, ["model", "info", cut], 3, err="cut.gguf")
    renamed = os.path.join(folder, "renamed.gguf")
    with open(renamed, "wb") as out:
        out.write(data.replace(b"blk.0.attn_q.weight", b"blk.0.attn_x.weight"))
    case("a tensor is missing", ["run", "-m", renamed, "--prompt-ids", "/dev/null"], 3,
         err="'blk.0.attn_q.weight' is missing")
    other = os.path.join(folder, "other.gguf")
    with open(other, "wb") as out:
        out.write(data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0llamx", 1))
    case("unknown architecture", ["run", "-m", other, "--prompt-ids", "/dev/null"], 3,
         err="unknown architecture 'llamx'; known: gemma3, llama, qwen2, qwen3")
    case("text for a model without a tokenizer", ["run", "-m", model, "-p", "x"], 2, err="--prompt-ids")
    case("chat without a tokenizer", ["run", "-m", model, "--chat", "-p", "x"], 3, err="tokenizer.ggml.model")
    case("tokenize without a tokenizer", ["tokenize", "-m", model, "-p", "x"], 3, err="tokenizer")
    case("output file cannot be written", ["run", "-m", model, "--prompt-ids", ids_file(folder, [1]), "-n",
         "1", "--tokens-out", "/nonexistent/x"], 3, err="/nonexistent/x")
    result = case("... which is said before anything is generated", ["run", "-m", model, "--prompt-ids",
                  ids_file(folder, [1]), "-n", "1", "--tokens-out", folder], 3, err="is a directory")
    check("... so that nothing comes out", result.stdout == "", result)
    with open("/dev/full", "w", encoding="ascii") as full:
        result = subprocess.run([kiln, "model", "info", model], stdout=full, stderr=subprocess.PIPE,
                                text=True, timeout=60, check=False)
        check("standard output is full", full_output(result))
        for args in (["--help"], ["--version"], ["run", "--help"], ["plugins", "--help"]):
            result = subprocess.run([kiln, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                    check=False)
            check("standard output is full: " + " ".join(args), full_output(result))


def run_cases(folder):
    prompt = ids_file(folder, [1, 2, 3])
    tokens = os.path.join(folder, "tokens")
    result = case("greedy ids as JSON", ["run", "-m", model, "--prompt-ids", prompt, "-n", "5", "--greedy",
                  "--json", "--tokens-out", tokens], 0)
    document = json.loads(result.stdout)
    check("JSON has its fields", {"text", "prompt_ids", "ids", "device", "timings"} <= set(document))
    check("five ids", len(document["ids"]) == 5 and document["prompt_ids"] == [1, 2, 3]
          and document["device"] == "cpu")
    with open(tokens, encoding="ascii") as written:
        check("tokens-out has the same", [int(line) for line in written] == document["ids"])
    through = os.path.join(folder, "through")
    with open(through, "w", encoding="ascii") as out:
        out.write("before\n")
        out.flush()
        subprocess.run([kiln, "run", "-m", model, "--prompt-ids", prompt, "-n", "2", "--greedy",
                        "--tokens-out", "/dev/stdout"], stdout=out, stderr=subprocess.DEVNULL, timeout=60,
                       check=True)
    with open(through, encoding="ascii") as out:
        check("tokens-out to /dev/stdout keeps what is there", out.read().startswith("before\n"))
    case("a context beyond what the model was trained for", ["run", "-m", model, "--prompt-ids", prompt, "-n", "1",
         "-c", "65536"], 0, err=r"warning: the context holds 65536 tokens, the model was trained with \d+")
    again = json.loads(run("run", "-m", model, "--prompt-ids", prompt, "-n", "5", "--greedy", "--json", "-t",
                           "1").stdout)
    check("one thread gives the same ids", again["ids"] == document["ids"])
    seeds = [json.loads(run("run", "-m", model, "--prompt-ids", prompt, "-n", "8", "--seed", seed, "--temp",
                            "2", "--json").stdout)["ids"] for seed in ("1", "1", "2")]
    check("a seed repeats, another differs", seeds[0] == seeds[1] != seeds[2])
    for state in ("on", "off"):
        result = run("run", "-m", model, "--prompt-ids", prompt, "-n", "5", "--greedy", "--json", "--graph", state)
        check("the CPU has no graph to turn " + state, result.returncode == 0 and
              json.loads(result.stdout)["ids"] == document["ids"] and json.loads(result.stdout)["graph"] == "off")
    case("no state of a graph", ["run", "-m", model, "--prompt-ids", prompt, "--graph", "maybe"], 2,
         err="graph: 'maybe' is not allowed; allowed: auto, on or off")
    case("no tokens", ["run", "-m", model, "--prompt-ids", prompt, "-n", "0"], 0)
    case("the context fills", ["run", "-m", model, "--prompt-ids", prompt, "-n", "50", "-c", "16", "--greedy"],
         0, err="context of 16 tokens is full")
    case("the prompt does not fit", ["run", "-m", model, "--prompt-ids", ids_file(folder, range(17)), "-c",
         "16"], 2, err="17 tokens do not fit")
    case("an id is no token", ["run", "-m", model, "--prompt-ids", ids_file(folder, [9999])], 2,
         err="token id 9999")
    case("an id is no number", ["run", "-m", model, "--prompt-ids", ids_file(folder, ["1", "x"])], 2,
         err="no token id")
    case("an empty prompt, no begin-of-text", ["run", "-m", model, "--prompt-ids", "/dev/null"], 2,
         err="prompt is empty")
    rows = json.loads(case("bench as JSON", ["bench", "-m", model, "-p", "8,16", "-n", "4", "-r", "2",
                           "--json"], 0).stdout)
    check("bench has its rows", [(r["n_prompt"], r["n_gen"]) for r in rows] == [(8, 0), (16, 0), (0, 4)]
          and all(r["avg_ts"] > 0 and r["stddev_ts"] >= 0 for r in rows))
    check("bench takes the chunk from the config", json.loads(run("bench", "-m", model, "-p", "8", "-n", "0", "-r", "1",
          "--set", "engine.ubatch=4", "--json").stdout)[0]["n_ubatch"] == 4)
    case("bench as a table", ["bench", "-m", model, "-p", "8", "-n", "0", "-r", "1", "-d", "4"], 0,
         out=r"\| pp8 @ d4 +\| +[\d.]+ ± ")
    case("model info", ["model", "info", model, "--tensors"], 0, out="general.architecture.*'llama'.*q8_0")
    check("model info as JSON", json.loads(run("model", "info", model, "--json").stdout)["version"] == 3)


def config_cases(folder):
    case("config show", ["config", "show"], 0, out=r"ubatch = 512")
    case("config check", ["config", "check"], 0, out="ok")
    case("a misspelled key", ["config", "check", "--set", "engine.ctxx=5"], 2, err="ctxx.*ctx")
    ini = os.path.join(folder, "my.ini")
    with open(ini, "w", encoding="ascii") as out:
        out.write("[norm]\nvariant = exakt\n")
    case("a misspelled variant", ["config", "check", "--config", ini], 2, err=r"my\.ini:2.*exakt.*exact")
    case("a file wins over defaults, --set over it", ["config", "show", "--set", "engine.ubatch=64"], 0,
         out="ubatch = 64")
    case("plugins list", ["plugins", "list"], 0, out="cpu .*exact")
    case("plugins inspect", ["plugins", "inspect", "cpu"], 0, out="matmul")
    case("no such plugin", ["plugins", "inspect", "nope"], 3, err="no plugin 'nope'")
    case("devices", ["devices"], 0, out="^cpu ")
    bad = os.path.join(folder, "plugins")
    os.makedirs(bad)
    with open(os.path.join(bad, "fa.so"), "w", encoding="ascii") as out:
        out.write("this is text\n")
    with open(os.path.join(os.path.dirname(kiln), "plugins/cpu/cpu.so"), "rb") as whole:
        library = whole.read()
    for size in (40, 100, 3000, len(library) // 2, len(library) - 1):
        with open(os.path.join(bad, "cut%d.so" % size), "wb") as out:
            out.write(library[:size])
    case("libraries that are cut short are named and the rest runs", ["plugins", "list", "--plugin-dir", bad],
         0, err=r"cut3000\.so.*cut short", out="cpu .*exact")
    case("an empty --plugin-dir is not the current folder", ["plugins", "list", "--plugin-dir", ""], 2,
         err="--plugin-dir is empty")
    case("--set before the variant counts too", ["config", "check", "--set", "norm.NONE=3", "--set",
         "norm.variant=exact"], 2, err="NONE")
    case("a broken plugin is named and the rest runs", ["plugins", "list", "--plugin-dir", bad], 0,
         err=r"fa\.so", out="cpu .*exact")


def signal_case(folder):
    child = subprocess.Popen([kiln, "run", "-m", model, "--prompt-ids", ids_file(folder, [1]), "-n",
                              "1000000", "-c", "1000000", "--ignore-eos"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    err = child.communicate(timeout=60)[1]
    check("Ctrl-C ends with 130 and a word", child.returncode == 130 and "interrupted" in err)


with tempfile.TemporaryDirectory() as temporary:
    usage_cases()
    file_cases(temporary)
    run_cases(temporary)
    config_cases(temporary)
    signal_case(temporary)
print("%d failed" % failures)
sys.exit(1 if failures else 0)
