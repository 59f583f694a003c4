#!/usr/bin/env python3
"""The man page names every command and option that `--help` does, and bash completes them.

usage: test_manual.py KILN SOURCE_ROOT. Exit status 1 when a case fails.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

kiln, source = sys.argv[1:3]
failures = 0


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def help_of(*words):
    return subprocess.run([kiln, *words, "--help"], capture_output=True, text=True, check=True, timeout=20).stdout


def all_commands():
    """Every command's words and its options, each as a list of its spellings."""
    for name in re.findall(r"^  ([a-z]+)  +\S", help_of().split("Exit codes")[0], re.M):
        text = help_of(name)
        below = re.findall(rf"^  kiln {name} ([a-z]+)", text.split("example:")[0], re.M)
        for words in [(name, sub) for sub in below] or [(name,)]:
            rows = re.findall(r"^  (-[^ ,]+)(?:, (-[^ ]+))?", help_of(*words), re.M)
            yield words, [[spelling for spelling in row if spelling] for row in rows]


def complete(folder, *words):
    """What bash offers for the last word."""
    script = """. %s
        compopt() { :; }
        COMP_WORDS=(%s)
        COMP_CWORD=%d
        _kiln
        printf '%%s\\n' "${COMPREPLY[@]}"
        """ % (shlex.quote(os.path.join(source, "tools/completion/kiln.bash")),
               shlex.join([kiln, *words]), len(words))
    result = subprocess.run(["bash", "--norc", "-euo", "pipefail", "-c", script], capture_output=True, text=True,
                            check=False, timeout=20, cwd=folder)
    if result.returncode != 0 or result.stderr:
        check("completion of " + " ".join(words), False, result.stderr)
    return result.stdout.split()


def environment_cases():
    """The README's table, the page and the overview have the same variables, what the program reads among them."""
    names = {}
    for file, pattern in (("README.md", r"^\| `(KILN_\w+|NVTX_\w+)` \|"), ("docs/kiln.1", r"^\.It Ev (\w+)$")):
        with open(os.path.join(source, file), encoding="utf-8") as text:
            names[file] = set(re.findall(pattern, text.read(), re.M))
    overview = subprocess.run([kiln, "--help"], capture_output=True, text=True, timeout=60, check=False).stdout
    names["--help"] = set(re.findall(r"^  ([A-Z][A-Z0-9_]+) ", overview, re.M))
    read = {"NVTX_INJECTION64_PATH", "KILN_MODEL_DIR"}  # read by NVTX, and by a script
    for folder, _, files in [*os.walk(os.path.join(source, "core")), *os.walk(os.path.join(source, "tools"))]:
        for file in files:
            if file.endswith(".c"):
                with open(os.path.join(folder, file), encoding="utf-8") as text:
                    read |= set(re.findall(r'getenv\("(KILN_\w+)"\)', text.read()))
    for place, found in names.items():
        check("variables of " + place, read <= found and found == names["README.md"], (read - found, found))


def page_cases(commands):
    path = os.path.join(source, "docs/kiln.1")
    with open(path, encoding="ascii") as file:
        page = file.read().replace("\\-", "-")
    # "Ss NAME" begins a command's part; an option is an item, ".It Fl t , Fl -threads Ar N".
    pieces = re.split(r"^\.Ss (.*)\n", page, flags=re.M)
    sections = {name: re.split(r"^\.Sh ", text, flags=re.M)[0] for name, text in zip(pieces[1::2], pieces[2::2])}
    shared = sections.get("Options of several commands", "")
    for words, options in commands:
        name = " ".join(words)
        check("kiln.1 describes " + name, name in sections)
        items = " ".join(re.findall(r"^\.It (.*)$", sections.get(name, "") + shared, re.M))
        known = {"-" + word for word in re.findall(r"Fl (\S+)", items)}
        missing = [spelling for option in options for spelling in option if spelling not in known]
        check("kiln.1 has the options of " + name, not missing, missing)
        own = {"-" + word for line in re.findall(r"^\.It (.*)$", sections.get(name, ""), re.M)
               for word in re.findall(r"Fl (\S+)", line)}
        extra = own - {spelling for option in options for spelling in option}
        check("kiln.1 has no other option of " + name, not extra, extra)
    gone = set(sections) - {" ".join(words) for words, _ in commands} - {"Options of several commands"}
    check("kiln.1 describes no command that is not there", not gone, gone)
    if shutil.which("groff"):
        result = subprocess.run(["groff", "-mdoc", "-ww", "-Tutf8", "-z", path], capture_output=True, text=True,
                                check=False, timeout=60)
        check("groff has nothing to say about kiln.1", result.returncode == 0 and not result.stderr, result.stderr)


def refusal_cases():
    """The messages that docs/plugin-abi.md quotes are those of the source."""
    with open(os.path.join(source, "docs/plugin-abi.md"), encoding="utf-8") as file:
        section = file.read().split("\n## Refusals\n")[1]
    folder = os.path.join(source, "core/plugin")
    code = ""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".c"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                code += re.sub(r'"\s*\n\s*"', "", file.read())
    code = re.sub(r"%[.*\d]*(?:ll|z|t)?[a-z]", "\0", code)
    messages = re.findall(r"^\| `([^`]*)`", section, re.M)
    check("messages are quoted", len(messages) >= 14, messages)
    for message in messages:
        parts = re.split(r"NAME|PATH|SLOT|HOST|a host function|[0-9.]+|…|decline|kiln_plugin_entry", message)
        missing = [part for part in parts if len(part) > 3 and part not in code]
        check("a message of the source: " + message, not missing, missing)


def completion_cases(commands, folder):
    open(os.path.join(folder, "a.ini"), "w", encoding="ascii").close()
    os.makedirs(os.path.join(folder, "plugs"))
    first = complete(folder, "")
    check("commands complete", {words[0] for words, _ in commands} <= set(first), first)
    check("a prefix narrows them", complete(folder, "perp") == ["perplexity"])
    for words, options in commands:
        if len(words) == 2:
            offered = complete(folder, words[0], "")
            check("subcommand %s %s completes" % words, words[1] in offered, offered)
        offered = complete(folder, *words, "-")
        missing = [spelling for option in options for spelling in option if spelling not in offered]
        check("options of %s complete" % " ".join(words), not missing, missing)
        longer = [option[-1] for option in options if option[-1].startswith("--")]
        check("a prefix of %s" % " ".join(words), longer[-1] in complete(folder, *words, longer[-1][:4]))
    check("a file behind --config", sorted(complete(folder, "run", "--config", "")) == ["a.ini", "plugs"])
    check("a folder behind --plugin-dir", complete(folder, "run", "--plugin-dir", "") == ["plugs"])
    check("devices behind --device", complete(folder, "run", "--device", "c") == ["cpu", "cuda"])
    check("files where a file belongs", "a.ini" in complete(folder, "plugins", "verify", "a"))
    slots = complete(folder, "plugins", "new", "mine", "--slot", "")
    named = re.search(r"^  --slot SLOT +(.*)", help_of("plugins", "new"), re.M)[1]
    check("slots behind --slot are those of the templates", slots == re.findall(r"(\w+)(?:,| or |$)", named), slots)


found = list(all_commands())
check("there are commands to look at", len(found) >= 14 and all(options for _, options in found))
environment_cases()
page_cases(found)
refusal_cases()
with tempfile.TemporaryDirectory() as temporary:
    completion_cases(found, temporary)
print("%d failed" % failures)
sys.exit(1 if failures else 0)
