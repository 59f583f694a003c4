#!/usr/bin/env python3
"""The ledger under many writers and under kills: nothing that was acknowledged is lost.

usage: ledger_stress.py KILN [--writers 64] [--rows 20] [--kills 1000] [--seed 1] [--folder DIR]

  writers  processes that begin at once on a file that is not there yet, each adding `rows` results
           one by one; afterwards every one of them is in it once
  kills    times that a writer is killed (SIGKILL) at a random moment; what it had acknowledged by
           then must be there, and the file sound

Exit status 1 when something was lost, doubled or damaged.
"""
import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time


def envelope(mark):
    """A result that no other has the digest of."""
    return {"kiln": "0.1.0", "kind": "ab", "date": "2026-11-30T00:00:00Z", "device": "test", "driver": None,
            "config": "", "sources": "0" * 16, "grade": "measured",
            "result": {"mark": mark, "verdict": "NEUTRAL", "n_prompt": 16, "median_pct": 0.0, "interval_pct": [-1.0, 1.0],
                       "rows": []}}


def write(folder, mark):
    path = os.path.join(folder, mark + ".json")
    with open(path, "w", encoding="ascii") as out:
        json.dump(envelope(mark), out)
    return path


def marks_in(ledger):
    with sqlite3.connect(ledger) as db:
        sound = db.execute("PRAGMA integrity_check").fetchone()[0]
        marks = [json.loads(row[0])["mark"] for row in db.execute("SELECT document FROM result")]
        words = db.execute("SELECT count(*) FROM words").fetchone()[0]
    db.close()
    return sound, marks, words


def run_writers(kiln, folder, writers, rows):
    ledger = os.path.join(folder, "writers.db")
    children = []
    for writer in range(writers):
        script = []
        for row in range(rows):
            path = write(folder, "w%d-%d" % (writer, row))
            script.append('"$0" record add --ledger "$1" %s >/dev/null || exit 1' % path)
        children.append(subprocess.Popen(["sh", "-c", "\n".join(script), kiln, ledger], stderr=subprocess.PIPE))
    failed = [child.stderr.read().decode() for child in children if child.wait() != 0]
    sound, marks, words = marks_in(ledger)
    wanted = {"w%d-%d" % (w, r) for w in range(writers) for r in range(rows)}
    good = not failed and sound == "ok" and set(marks) == wanted and len(marks) == len(wanted) == words
    print("%s writers: %d at once, %d rows each: %d in the ledger, %d lost, %d doubled, %d writers failed, file %s"
          % ("ok  " if good else "FAIL", writers, rows, len(marks), len(wanted - set(marks)),
             len(marks) - len(set(marks)), len(failed), sound), *failed[:3], flush=True)
    return good


def run_kills(kiln, folder, kills, chance):
    ledger = os.path.join(folder, "kills.db")
    acknowledged, tried = set(), 0
    start = time.monotonic()
    path = write(folder, "k-first")
    subprocess.run([kiln, "record", "add", "--ledger", ledger, path], check=True, stdout=subprocess.DEVNULL)
    usual = time.monotonic() - start
    acknowledged.add("k-first")
    killed = 0
    while killed < kills:
        mark = "k%d" % tried
        tried += 1
        path = write(folder, mark)
        child = subprocess.Popen([kiln, "record", "add", "--ledger", ledger, path], stdout=subprocess.PIPE)
        time.sleep(chance.uniform(0, 1.2 * usual))
        child.send_signal(signal.SIGKILL)
        said = child.stdout.read()
        child.stdout.close()
        killed += child.wait() == -signal.SIGKILL
        if said.startswith(b"#"):
            acknowledged.add(mark)
        os.unlink(path)
        if killed % 100 == 0 and sqlite_is_bad(ledger):
            break
    sound, marks, words = marks_in(ledger)
    lost = acknowledged - set(marks)
    good = sound == "ok" and not lost and len(marks) == len(set(marks)) == words and killed >= kills
    print("%s kills: %d of %d adds killed, %d acknowledged, %d in the ledger, %d lost, %d doubled, file %s"
          % ("ok  " if good else "FAIL", killed, tried, len(acknowledged), len(marks), len(lost),
             len(marks) - len(set(marks)), sound), flush=True)
    return good


def sqlite_is_bad(ledger):
    return marks_in(ledger)[0] != "ok"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kiln")
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        good = run_writers(args.kiln, folder, args.writers, args.rows)
        good &= run_kills(args.kiln, folder, args.kills, random.Random(args.seed))
    return 0 if good else 1


sys.exit(main())
