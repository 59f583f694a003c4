#!/usr/bin/env python3
"""The kiln program on damaged models, empty prompts and refused plugins: it says what is wrong and ends by itself.

usage: test_hostile.py KILN SOURCE_ROOT BUILD_ROOT [SEED]. Exit status 1 when a case fails; what a failed case ran on is
printed as a seed to repeat it with.
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

kiln, source, build = sys.argv[1:4]
sys.path.insert(0, os.path.join(source, "tests/fuzz"))
sys.dont_write_bytecode = True
import make_seeds  # noqa: E402: it lies beside the fuzz targets

tiny = os.path.join(source, "tests/golden/tiny/llama-quant-q8_0.gguf")
# What the caller has set for kiln is not this test's: it looks at warnings, and at which plugins are there.
clean = {name: value for name, value in os.environ.items() if not name.startswith("KILN_")}
failures = 0
MUTATIONS = 300
PLACE = re.compile(r"key '|tensor '|keys? number|tensor number|tensors '|byte \d|the key '")


def check(what, condition, result=None):
    global failures
    print("ok  " if condition else "FAIL", what)
    if not condition:
        failures += 1
        if result is not None:
            print("    exit", result.returncode, "\n    out", result.stdout[-600:], "\n    err", result.stderr[-600:])


def run(*args, timeout=120):
    """Bytes that are no text may come out of a damaged vocabulary."""
    return subprocess.run([kiln, *args], input="", capture_output=True, text=True, errors="replace", timeout=timeout,
                          env=clean, check=False)


def case(what, args, code, err="", out=""):
    result = run(*args)
    check(what, result.returncode == code and re.search(err, result.stderr, re.S)
          and re.search(out, result.stdout, re.S), result)
    return result


def write(folder, name, data):
    path = os.path.join(folder, name)
    with open(path, "wb") as out:
        out.write(data)
    return path


# ---- damaged models


def mutate(rng, data):
    """A few changes of the kinds that damage and malice make; mostly where keys and descriptions are."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) if rng.random() < 0.1 else min(len(data), 1800))
        kind = rng.randrange(6)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice((0, 1, 0x7f, 0x80, 0xff))
        elif kind == 2:
            size = rng.choice((4, 8))
            value = rng.choice((0, 1, 2, 3, 0xff, 0xffff, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1))
            data[at:at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        elif kind == 3:
            del data[at:at + rng.choice((1, 4, 8, 40))]
        elif kind == 4:
            data[at:at] = data[at // 2:at // 2 + rng.choice((1, 4, 8, 40))]
        else:
            del data[at:]
        if len(data) < 2:
            break
    return bytes(data)


def verdict(result):
    """What is wrong with how the program ended; None when nothing is."""
    if result.returncode == 0:
        return None
    if result.returncode == 1 and "logits are not numbers" in result.stderr:
        return None  # nothing in the file is wrong but its numbers
    if result.returncode not in (2, 3):
        return "exit %d" % result.returncode
    if result.returncode == 3 and not PLACE.search(result.stderr):
        return "no key, tensor or offset named"
    if any(ord(c) < 0x20 and c != "\n" for c in result.stderr):
        return "bytes of the file reach the terminal raw"
    return None


def mutation_cases(folder, seed):
    seeds = {name: data for name, data in make_seeds.gguf_seeds() if name in (
        "llama", "llama_bpe", "llama_yarn", "llama_q8_0", "qwen2", "qwen3", "gemma3", "llama3_scaled")}
    ids = write(folder, "ids", b"1 2 3")
    for name, data in seeds.items():
        path = write(folder, "intact.gguf", data)
        if name != "llama_bpe":  # its frequencies are divided by 0
            case("intact " + name, ["run", "-m", path, "--prompt-ids", ids, "-n", "2", "--ignore-eos"], 0)
        else:
            case("a RoPE divisor of 0", ["run", "-m", path, "--prompt-ids", ids], 3, err="'rope_freqs.weight' at byte")
    names, codes, bad, slowest = sorted(seeds), {}, [], 0.0
    start = time.monotonic()
    for i in range(MUTATIONS):
        if time.monotonic() - start > 60:  # a slow machine: fewer
            break
        rng = random.Random(seed * 1000003 + i)
        path = write(folder, "mutated.gguf", mutate(rng, seeds[rng.choice(names)]))
        for args in (["model", "info", path], ["run", "-m", path, "--prompt-ids", ids, "-n", "2", "-t", "1"]):
            before = os.times()
            try:
                result = run(*args, timeout=30)
                wrong = verdict(result)
            except subprocess.TimeoutExpired:
                result, wrong = None, "still running after 30 s"
            after = os.times()
            used = after.children_user + after.children_system - before.children_user - before.children_system
            slowest = max(slowest, used)
            if used > 2:
                wrong = wrong or "%.1f s of processor time" % used
            codes[result.returncode if result else -1] = codes.get(result.returncode if result else -1, 0) + 1
            if wrong:
                kept = shutil.copy(path, os.path.join(tempfile.gettempdir(), "kiln-hostile-%d-%d.gguf" % (seed, i)))
                bad.append((wrong, args[0], kept, result.stderr[-300:] if result else ""))
    print("    %d mutations, exits %s, slowest %.2f s" % (i + 1, codes, slowest))
    for line in bad[:10]:
        print("   ", *line)
    check("mutated models are read or refused by name (seed %d)" % seed, not bad)
    check("mutations are refused and accepted", codes.get(3, 0) > 50 and codes.get(0, 0) > 20)


def truncation_cases(folder):
    """`model info` in one process each is slow, so only around what ends; test_gguf cuts at every byte."""
    data = dict(make_seeds.gguf_seeds())["llama"]
    sizes = sorted({0, 1, 3, 4, 23, 24, 25, 31, 32, 60, 100, 500, 1000, len(data) // 2, len(data) - 33, len(data) - 32,
                    len(data) - 25})
    for size in sizes:
        path = write(folder, "cut.gguf", data[:size])
        result = run("model", "info", path)
        check("cut to %d of %d bytes" % (size, len(data)), result.returncode == 3 and verdict(result) is None
              and "cut.gguf" in result.stderr, result)


def shrink_case(folder):
    """The file loses its second half while tokens are made."""
    with open(tiny, "rb") as whole:
        path = write(folder, "shrinks.gguf", whole.read())
    ids = write(folder, "ids", b"1 2 3")
    child = subprocess.Popen([kiln, "run", "-m", path, "--prompt-ids", ids, "-n", "100000", "-c", "100000",
                              "--ignore-eos", "--greedy", "-t", "1"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True, env=clean)
    time.sleep(1.0)
    running = child.poll() is None
    os.truncate(path, 4096)
    err = child.communicate(timeout=60)[1]
    check("the file shrinks during a run", running and child.returncode == 3 and path in err and "shrank" in err,
          subprocess.CompletedProcess([], child.returncode, "", err))


# ---- empty prompts


def prompt_cases(folder):
    seeds = dict(make_seeds.gguf_seeds())
    with_start = write(folder, "with_start.gguf", seeds["llama"])
    without = write(folder, "without.gguf", seeds["qwen2"])
    for name, text in (("nothing", b""), ("a byte-order mark", b"\xef\xbb\xbf"), ("a newline", b"\n")):
        file = write(folder, "prompt", text)
        for tokens in ("0", "8"):
            for how in (["-p", text.decode()], ["-f", file]):
                end = how + ["-n", tokens, "--ignore-eos", "--json"]
                result = case("prompt of %s by %s, %s tokens" % (name, how[0], tokens), ["run", "-m", with_start, *end], 0)
                if result.returncode == 0:
                    document = json.loads(result.stdout)
                    check("... starts with the start token", document["prompt_ids"][0] == 1
                          and len(document["ids"]) == int(tokens) and min(document["ids"] + [0]) >= 0, result)
                case("... without a start token", ["run", "-m", without, *end], 2, err="prompt is empty")


# ---- refused plugins


def plugin_cases(folder):
    plugins = os.path.join(folder, "plugins")
    os.makedirs(plugins)
    for name in ("major", "good", "needs", "undefined"):
        shutil.copy(os.path.join(build, "tests/plugins_bad", name + ".so"), plugins)
    shutil.copy(os.path.join(plugins, "good.so"), os.path.join(plugins, "zcopy.so"))
    os.symlink(plugins, os.path.join(folder, "link"))
    ids = write(folder, "ids", b"1 2 3")
    dirs = ["--plugin-dir", plugins, "--plugin-dir", plugins, "--plugin-dir", os.path.join(folder, "link")]
    generate = ["run", "-m", tiny, "--prompt-ids", ids, "-n", "32", "--ignore-eos", "--greedy", "--json"]
    plain = json.loads(run(*generate).stdout)["ids"]
    result = case("refused plugins beside good ones", generate + dirs, 0)
    lines = result.stderr.splitlines()
    check("... one line names both ABI numbers", len([l for l in lines if "major.so" in l and "2.0" in l and "1.0" in l]) == 1,
          result)
    check("... one line names the absent library", len([l for l in lines if "libkiln_nodep.so.1" in l]) == 1, result)
    check("... one line names the absent function", len([l for l in lines if "kiln_no_such_fn" in l]) == 1, result)
    check("... one line names both copies of one plugin",
          len([l for l in lines if "zcopy.so" in l and "good.so" in l]) == 1, result)
    check("... and the tokens are the same", result.returncode == 0 and json.loads(result.stdout)["ids"] == plain, result)
    result = case("the refused one is not listed, the good one once", ["plugins", "list"] + dirs, 0)
    check("... once", not re.search(r"^major ", result.stdout, re.M) and
          len(re.findall(r"^good ", result.stdout, re.M)) == 1, result)
    shutil.copy(os.path.join(build, "tests/plugins_bad/crashes.so"), plugins)
    sanitized = b"__asan_init" in open(kiln, "rb").read()  # it has handlers of its own, which come first
    result = case("a plugin that crashes", generate + dirs + ["--set", "norm.plugin=crashes", "--set",
                  "norm.variant=only"], 1 if sanitized else 3)
    check("... is named, with what was called", sanitized or re.search(
        r"^kiln: plugin 'crashes': crashed with SIGSEGV in plan\(\) of variant 'only'.*plugins verify",
        result.stderr, re.M), result)
    case("the refused one is asked for", generate + dirs + ["--set", "norm.variant=exact", "--set", "norm.plugin=major"],
         2, err="major")


with tempfile.TemporaryDirectory() as temporary:
    mutation_cases(temporary, int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    truncation_cases(temporary)
    shrink_case(temporary)
    prompt_cases(temporary)
    plugin_cases(temporary)
print("%d failed" % failures)
sys.exit(1 if failures else 0)
