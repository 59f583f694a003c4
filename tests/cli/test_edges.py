#!/usr/bin/env python3
"""Every command where its surroundings are at fault: output that is closed or full, input that is closed, words that are no
text, files that cannot be written, Ctrl-C while it waits or measures. Each ends in one message and the code of docs/errors.md.

usage: test_edges.py KILN SOURCE_ROOT. Exit status 1 when a case fails.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

kiln, source = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
model = os.path.join(source, "tests/golden/tiny/llama-quant-q8_0.gguf")
failures = 0
# A line of each command that ends well, or (tune, ab) with a check that is not met.
COMMANDS = (
    ("run", "-m", model, "--prompt-ids", "ids", "-n", "2", "--greedy", "--device", "cpu"),
    ("bench", "-m", model, "-p", "8", "-n", "2", "-r", "1", "--device", "cpu"),
    ("ab", "a.ini", "b.ini", "-m", model, "-p", "4", "-r", "6", "--device", "cpu"),
    ("gate", "parity", "norm", "--device", "cpu"),
    ("gate", "greedy", "a.ini", "b.ini", "-m", model, "--prompts", "prompts.jsonl", "-n", "2", "--device", "cpu"),
    ("op", "norm", "--shape", "m=2,k=64", "--device", "cpu", "-r", "1"),
    ("wall", "-m", model, "-p", "8", "-r", "1", "--device", "cpu"),
    ("tune", "norm", "--device", "cpu", "--shape", "m=2,k=64", "--store", "tune.db", "--out", "-", "--samples", "1", "--cold-samples", "0",
     "-r", "6"),
    ("record", "export"),
    ("report", "--campaign"),
    ("model", "info", model),
    ("plugins", "list"),
    ("config", "show"),
    ("devices",),
    ("audit", "norm", "--target", "sm_80"),
    ("sim", "empty.ptx"),
    ("cache", "list"),
)
EMPTY = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry empty()\n{\nret;\n}\n"


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def run(words, closed=(), **more):
    def close():
        for number in closed:
            os.close(number)

    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    done = subprocess.run([kiln, *words], timeout=100, check=False, preexec_fn=close if closed else None, **options)
    said = (done.stderr or b"").decode("utf-8", "backslashreplace")
    return done, [line for line in said.splitlines() if line.startswith("kiln: ")], said


def output_cases():
    for words in COMMANDS:
        name = " ".join(words[:2] if words[0] in ("gate", "record", "model", "plugins", "config", "cache") else words[:1])
        done, lines, said = run(words, closed=(1,), stdout=None)
        check("%s, output closed" % name, done.returncode == 3 and "output" in lines[-1], said)
        with open("/dev/full", "wb") as full:
            done, lines, said = run(words, stdout=full)
        check("%s, disk full" % name, done.returncode == 3 and "output" in lines[-1] and "No space" in lines[-1], said)
        done, lines, said = run(words, closed=(0,), stdin=None)
        check("%s, input closed" % name, done.returncode in (0, 1), said)
        done, lines, said = run([*words, b"\xff\x1b[31m"])
        check("%s, a word that is no text" % name, done.returncode in (2, 3) and len(lines) == 1 and "\\xff\\x1b[31m" in lines[0]
              and not set(done.stderr) - set(range(32, 127)) - {10} - set("…".encode()), said)
    # Nothing that is opened lies where output was: the file would have what was printed in it.
    done, lines, said = run(("model", "synth", "--like", "tiny", "all-closed.gguf"), closed=(0, 1, 2), stdin=None, stdout=None, stderr=None)
    check("all closed", done.returncode in (0, 3), str(done.returncode))
    done, lines, said = run(("model", "info", "all-closed.gguf"))
    check("all closed: the file is whole", done.returncode == 0, said)


def file_cases():
    for words in (("op", "norm", "--shape", "m=2,k=64", "--device", "cpu", "--save"), ("tune", *COMMANDS[7][1:], "--save"),
                  ("tune", *COMMANDS[7][1:], "--export"), ("tune", "norm", "--device", "cpu", "--shape", "m=2,k=64", "--store", "t.db", "--out")):
        for path in ("", "folder"):
            done, lines, said = run((*words, path))
            check("%s %s '%s' is refused before anything is measured" % (words[0], words[-1], path), done.returncode == 3 and
                  "cannot write it" in lines[0] and done.stdout == b"", said)
    done, lines, said = run(("tune", *COMMANDS[7][1:], "-m", "gone.gguf"))
    check("tune: so is a model that is not there", done.returncode == 3 and "gone.gguf: cannot open it" in lines[0] and done.stdout == b"", said)
    done, lines, said = run(("record", "list", "--ledger", ""))
    check("an empty --ledger", done.returncode == 2 and "--ledger is empty" in lines[0], said)


def interrupted(what, words, after):
    with subprocess.Popen([kiln, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        time.sleep(after)
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=60)[1].decode()
        took = time.monotonic() - begun
    # A command that has caught nothing yet is ended by the signal itself, which a shell shows as 130.
    check(what, child.returncode in (130, -signal.SIGINT) and took < 20, "exit %d after %.1f s: %s" % (child.returncode, took, said))


def signal_cases():
    long = ("op", "norm", "--shape", "m=512,k=4096", "--device", "cpu", "-r", "100000")
    interrupted("op, while it measures", long, 1.5)
    os.mkfifo("pipe")
    interrupted("a pipe that nobody writes, as a configuration", ("bench", "-m", model, "--config", "pipe", "--device", "cpu"), 0.5)
    interrupted("a pipe that nobody reads, as a result", (*COMMANDS[2], "--save", "pipe"), 2)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    os.mkdir("folder")
    os.environ.update(KILN_CACHE_DIR=os.path.join(scratch, "cache"), KILN_LEDGER=os.path.join(scratch, "ledger.db"))
    for file, text in (("ids", "1 2 3"), ("a.ini", ""), ("b.ini", ""), ("prompts.jsonl", '{"prompt_ids":[1,2,3]}\n'), ("empty.ptx", EMPTY)):
        with open(file, "w", encoding="ascii") as out:
            out.write(text)
    output_cases()
    file_cases()
    signal_cases()
    os.chdir("/")
sys.exit(1 if failures else 0)
