#!/usr/bin/env python3
"""What `kiln plugins new` prints works as it stands, and so does docs/writing-a-plugin.md.

usage: test_plugins_new.py SOURCE_ROOT BUILD_ROOT. Both are tried with the kiln of the build tree and with one that is
installed into a temporary folder. The models are the tiny ones, which have no tokenizer: "-p TEXT" becomes
"--prompt-ids FILE". With KILN_MODEL_SMOLLM2 that model runs too, with the lines unchanged. Exit status 1 when a case
fails.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

source, build = sys.argv[1:3]
tiny = os.path.join(source, "tests/golden/tiny")
failures = 0


class Kiln:
    """A kiln to try: its program, and what the environment needs so that a compiler finds its header."""

    def __init__(self, name, program, env):
        self.name, self.program, self.env = name, program, env

    def shell(self, line, folder, **env):
        full = {key: value for key, value in os.environ.items() if not key.startswith(("KILN_PLUGIN", "MAKE"))}
        full.update(self.env, CC=os.environ.get("CC", "cc"), **env)
        return subprocess.run(["sh", "-c", line], cwd=folder, env=full, capture_output=True, text=True, timeout=240,
                              check=False)


def check(what, condition, result=None):
    global failures
    print("ok  " if condition else "FAIL", what, flush=True)
    if not condition:
        failures += 1
        if result is not None:
            print("    exit", result.returncode, "\n    out", result.stdout[-800:], "\n    err", result.stderr[-1200:])


def parts(text):
    """The indented lines of a guide, by the word that heads them."""
    found, head = {}, None
    for line in text.splitlines():
        if line and not line.startswith(" "):
            head = line.split()[0].rstrip(":,")
            found[head] = []
        elif head:
            found[head].append(line[2:])
    return {head: "\n".join(lines).strip() for head, lines in found.items()}


def with_ids(line, folder):
    """The line for a model without a tokenizer."""
    ids = os.path.join(folder, "ids")
    with open(ids, "w", encoding="ascii") as out:
        out.write("1 5 9 2 7 3")
    changed = re.sub(r'-p "[^"]*"', lambda _: "--prompt-ids " + shlex.quote(ids), line)
    assert changed != line, line
    return changed


def greedy_ids(kiln, line, folder, model):
    result = kiln.shell(line + " --json", folder, MODEL=model)
    if result.returncode != 0:
        return None, result
    return json.loads(result.stdout)["ids"], result


def reference_ids(kiln, line, folder, model):
    """The ids of the same line without the plugin and its binding."""
    bare = re.sub(r" --plugin-dir \S+ --config \S+", "", line)
    assert bare != line, line
    return greedy_ids(kiln, bare, folder, model)[0]


# What breaks each kernel: that the ids change then shows that it is the plugin which ran.
SABOTAGE = {"norm": ("float value = in", "float value = 0.25F - in"), "activation": ("* up[i]", "* -up[i]"),
            "matmul": ("float value = dot(", "float value = -dot(")}
MODELS = {"norm": "gemma3-q8_0-window32", "activation": "llama-quant-q4_k_m", "matmul": "llama-f32-gqa4x2"}


def try_slot(kiln, slot, folder):
    name = "my" + slot
    label = kiln.name + ", " + slot + ": "
    made = kiln.shell(shlex.join([kiln.program, "plugins", "new", name, "--slot", slot]), folder)
    check(label + "plugins new", made.returncode == 0, made)
    guide = parts(made.stdout)
    built = kiln.shell(guide["build"], folder)
    check(label + "the build line, without a warning", built.returncode == 0 and "warning" not in built.stderr, built)
    verified = kiln.shell(guide["verify"], folder)
    check(label + "the verify line", verified.returncode == 0 and "failed" not in verified.stdout, verified)
    with open(os.path.join(folder, name, name + ".ini"), encoding="ascii") as ini:
        check(label + "the section printed is the one in the file", ini.read().strip() == guide["bind"])
    line = with_ids(guide["run"], folder)
    model = os.path.join(tiny, MODELS[slot] + ".gguf")
    ids, result = greedy_ids(kiln, line, folder, model)
    expected = reference_ids(kiln, line, folder, model)
    check(label + "the run line gives the ids of `exact`", ids is not None and ids == expected and len(ids) == 32,
          result)
    check(label + "no word on stderr", "warning" not in result.stderr and "declined" not in result.stderr, result)
    big = os.environ.get("KILN_MODEL_SMOLLM2")
    if big and slot == "norm":
        ids, result = greedy_ids(kiln, guide["run"], folder, big)
        check(label + "the run line as printed, SmolLM2",
              ids is not None and ids == reference_ids(kiln, guide["run"], folder, big), result)
    path = os.path.join(folder, name, name + ".c")
    with open(path, encoding="ascii") as text:
        code = text.read()
    before, after = SABOTAGE[slot]
    assert code.count(before) == 1, before
    with open(path, "w", encoding="ascii") as text:
        text.write(code.replace(before, after))
    built = kiln.shell(guide["build"], folder)
    wrong, result = greedy_ids(kiln, line, folder, model)
    check(label + "an edited kernel is the one that runs", built.returncode == 0 and wrong is not None
          and wrong != expected, result)


def try_cuda(kiln, folder):
    """`--cuda`: every line that is printed; jit where there is NVRTC, the run line on the CPU."""
    label = kiln.name + ", --cuda: "
    made = kiln.shell(shlex.join([kiln.program, "plugins", "new", "mycuda", "--slot", "norm", "--cuda"]), folder)
    check(label + "plugins new", made.returncode == 0 and os.path.exists(os.path.join(folder, "mycuda/mycuda.cu")), made)
    guide = parts(made.stdout)
    built = kiln.shell(guide["build"], folder)
    check(label + "the build line, without a warning", built.returncode == 0 and "warning" not in built.stderr, built)
    verified = kiln.shell(guide["verify"], folder)
    check(label + "the verify line", verified.returncode == 0 and "'rows' for norm" in verified.stdout, verified)
    jit = guide["jit"] + " --target sm_75,sm_90a"
    result = kiln.shell(jit, folder)
    if "NVRTC" not in result.stderr:
        check(label + "the jit line", result.returncode == 0 and result.stdout.count("norm_rows") == 2, result)
        ini = os.path.join(folder, "mycuda/mycuda.ini")
        with open(ini, "a", encoding="ascii") as out:
            out.write("source  = ./mycuda.cu\n")
        with open(os.path.join(folder, "mycuda/mycuda.cu"), "a", encoding="ascii") as out:
            out.write("oops\n")
        result = kiln.shell(jit, folder)
        check(label + "an edit needs no make", result.returncode == 4 and "mycuda/mycuda.cu(" in result.stderr, result)
    line = with_ids(guide["run"], folder) + " --device cpu"
    model = os.path.join(tiny, MODELS["norm"] + ".gguf")
    ids, result = greedy_ids(kiln, line, folder, model)
    check(label + "the run line gives the ids of `exact`",
          ids is not None and ids == reference_ids(kiln, line, folder, model), result)


def try_refusals(kiln, folder):
    def case(what, args, code, err):
        result = kiln.shell(shlex.join([kiln.program, "plugins", "new", *args]), folder)
        check(kiln.name + ": " + what, result.returncode == code and re.search(err, result.stderr) is not None
              and not result.stdout, result)

    before = sorted(os.listdir(folder))
    case("an existing folder stays", ["mynorm", "--slot", "norm"], 3, "mynorm is there already")
    case("no template", ["other", "--slot", "argmax"], 2, "There is one for: norm, activation, matmul")
    case("a name that is no name", ["my-norm", "--slot", "norm"], 2, r"\[a-z0-9_\]\+")
    case("a name that is taken", ["cpu", "--slot", "norm"], 2, "'cpu' is there already")
    case("no CUDA template", ["other", "--slot", "matmul", "--cuda"], 2, "There is one for: norm")
    case("no slot", ["other"], 2, "needs a slot")
    case("no name", [], 2, "needs a name")
    check(kiln.name + ": nothing was made", sorted(os.listdir(folder)) == before)
    odd = os.path.join(folder, "it's a folder")
    os.makedirs(odd)
    made = kiln.shell(shlex.join([kiln.program, "plugins", "new", "there", "--slot", "norm", "--dir", odd]), folder)
    guide = parts(made.stdout)
    for head in ("build", "verify"):
        result = kiln.shell(guide[head], folder)
        check(kiln.name + ": the " + head + " line in a folder with blanks and quotes", result.returncode == 0, result)


def example_builds(kiln, folder):
    """plugins/example as a third party copies it."""
    copy = os.path.join(folder, "example")
    result = kiln.shell(" && ".join((
        shlex.join(["cp", "-R", os.path.join(source, "plugins/example"), copy]), "cd example",
        "rm -f example.so", "make",
        shlex.join([kiln.program, "plugins", "verify", "./example.so"]))), folder)
    check(kiln.name + ": plugins/example builds and passes verify", result.returncode == 0, result)


def document_works(kiln, name, section, n_lines, folder):
    """Every command of a page's section, in order, in one shell, where `build` is the build folder."""
    with open(os.path.join(source, name), encoding="utf-8") as page:
        text = re.search(section, page.read(), re.S | re.M)[0]
    script = "set -e\n" + "".join(re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M))
    assert script.count("tools/fetch-model") == 1 and script.count("\n") == n_lines, script
    script = re.sub(r"^.*tools/fetch-model.*\n", "", script, flags=re.M)  # MODEL is a tiny one
    script = re.sub(r"^(kiln run .*)$", lambda line: with_ids(line[1], folder), script, flags=re.M)
    os.symlink(build, os.path.join(folder, "build"))
    result = kiln.shell(script, folder, MODEL=os.path.join(tiny, MODELS["norm"] + ".gguf"))
    check("the commands of " + name, result.returncode == 0, result)


def installed(folder):
    done = subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder],
                          capture_output=True, text=True, timeout=120, check=False)
    check("meson install", done.returncode == 0, done)
    programs = [os.path.join(path, "kiln") for path, _, files in os.walk(folder)
                if "kiln" in files and os.path.basename(path) == "bin"]
    return Kiln("installed", programs[0], {"PKG_CONFIG_SYSROOT_DIR": folder})


with tempfile.TemporaryDirectory() as temporary:
    places = {}
    for place in ("prefix", "uninstalled", "installed", "page", "readme"):
        places[place] = os.path.join(temporary, place)
        os.makedirs(places[place])
    here = Kiln("uninstalled", os.path.join(build, "kiln"), {})
    there = installed(places["prefix"])
    for one in (here, there):
        for every in SABOTAGE:
            try_slot(one, every, places[one.name])
        try_cuda(one, places[one.name])
        try_refusals(one, places[one.name])
    example_builds(Kiln("uninstalled", here.program, {"PKG_CONFIG_PATH": build}), places["uninstalled"])
    document_works(here, "docs/writing-a-plugin.md", r".*", 12, places["page"])
    document_works(here, "README.md", r"^## Writing a plugin$.*?^## ", 7, places["readme"])
print("%d failed" % failures)
sys.exit(1 if failures else 0)
