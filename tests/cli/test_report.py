#!/usr/bin/env python3
"""kiln report: one HTML file that stands alone: every figure of a picture is in a table, nothing is
fetched, what files hold is text; and, where there is a browser, that it opens at a phone's and a desk's
width and in the dark without a word on its console, with its labels where they can be read.

usage: test_report.py KILN SOURCE_ROOT. Exit status 1 when a case fails. The browser is `chromium` (or
KILN_BROWSER); without one its cases are skipped, and that is said.
"""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import browser

kiln, source = sys.argv[1:3]
failures = 0
HOSTILE = '<script>alert(1)</script>"\'&<img src=x onerror=y>\u2028 ]]> --> %s \x01'


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def run(*args, code=0, err=""):
    done = subprocess.run([kiln, "report", *args], capture_output=True, text=True, timeout=60, check=False)
    check("exit %d: %s" % (code, " ".join(os.path.basename(a) for a in args)),
          done.returncode == code and re.search(err, done.stderr, re.S), done.stderr)
    return done.stdout


class Page(html.parser.HTMLParser):
    """Tags are balanced; collects figures, cells, tips, attributes."""

    VOID = ("meta", "rect", "circle", "line")

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.wrong, self.cells, self.figures, self.tips, self.attributes, self.tags = [], [], [], [], [], [], set()
        self.feed(text)
        self.close()
        if self.stack:
            self.wrong.append("open at the end: %s" % self.stack)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag in ("td", "th"):
            self.cells.append("")
        if tag == "text" and ("class", "f") in attrs:
            self.figures.append("")
        if tag == "title" and "svg" in self.stack:
            self.tips.append("")
        if tag not in ("meta",):
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.stack.pop()

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop() != tag:
            self.wrong.append("end of %s" % tag)

    def handle_data(self, data):
        if not self.stack:
            return
        if self.stack[-1] in ("td", "th"):
            self.cells[-1] += data
        elif self.stack[-1] == "text" and self.figures and self.get_starttag_text().startswith('<text class="f"'):
            self.figures[-1] += data
        elif self.stack[-1] == "title" and "svg" in self.stack:
            self.tips[-1] += data


def sound(what, text):
    page = Page(text)
    check(what + ": tags match", not page.wrong, page.wrong)
    check(what + ": no script, no frame, no image", not page.tags & {"script", "iframe", "img", "link", "object", "form"})
    check(what + ": no address", not re.search(r"(?i)(https?:|//[a-z]|url\(|@import|javascript:)", re.sub(
        r"<(td|th|title|h1|h2|p|text)\b.*?</\1>", "", text, flags=re.S)))
    check(what + ": no handler", not [a for a in page.attributes if a[1].startswith("on") or a[1] in ("src", "href")])
    cells = set(page.cells)
    check(what + ": figures of pictures are in the tables", page.figures and not set(page.figures) - cells,
          sorted(set(page.figures) - cells)[:5])
    number = r"(?<![\w.])[+-]?\d[\d.]*(?![\w.])"
    known = {w for cell in cells for w in re.findall(number, cell)}
    loose = [w for tip in page.tips for w in re.findall(number, tip) if w not in known]
    check(what + ": so are those of tips", not loose, loose[:5])
    return page


def save(folder, name, value):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out)
    return path


def documents(folder):
    wall = {"kiln": "0", "kind": "wall", "device": "NVIDIA GB10", "grade": "measured", "result": {
        "n_prompt": 3325, "n_gen": 0, "n_depth": 0, "wall_ms": 1250.0, "host_ms": 25.0, "roofline": {"grade": "derived", "bound_ms": 437.625},
        "slices": [
            {"slot": "matmul.q4_K.prefill", "name": "matmul/mmq BM=128", "ms": 900.0, "share_pct": 72.0, "memory_pct": 3.25,
             "peak": "int8", "peak_pct": 46.75, "bound_ms": 420.75, "bound_by": "int8"},
            {"slot": "attention.prefill", "name": "attention/fap1", "ms": 127.5, "share_pct": 10.2},
            {"slot": "norm", "name": HOSTILE, "ms": 62.5, "share_pct": 5.0},
            {"slot": HOSTILE, "name": "x", "ms": 135.0, "share_pct": 10.8}, {"slot": "\u20ac" * 99, "name": "\u20ac" * 500, "ms": 0}]}}
    row = {"verdict": "LAND", "n_prompt": 512, "n_gen": 0, "n_depth": 0, "base_ts": 2603.5, "change_ts": 2749.9,
           "median_pct": 5.62, "interval_pct": [5.1, 6.2], "noise_pct": 0.41,
           "pairs": [{"base_s": 0.2 + i / 1e4, "change_s": 0.19, "pct": 5 + i / 7, "control_pct": 0.1 * i,
                      "disturbed": i == 3} for i in range(7)]}
    audit = {"kernels": [
        {"slot": "attention.prefill", "variant": "fap2", "target": "sm_121", "geometry": {"FA_TQ": 64, "FA_TKV": tkv},
         "occupancy": occupancy, "blocks_per_sm": blocks, "limiter": "shared memory", "smem_requested": 34816,
         "registers": 124, "grade": "derived"} for tkv, occupancy, blocks in ((64, .0833, 1), (32, .1667, 2), (16, .25, 3))]}
    pair = {"slot": "attention.prefill", "target": "sm_121", "base": audit["kernels"][1], "change": audit["kernels"][2]}
    diff = {"diff": [pair, {"slot": "norm", "target": "sm_121", "base": None, "change": {
        "slot": "norm", "variant": "a" + "\u20ac" * 70, "kernel": HOSTILE, "target": "sm_121", "geometry": {"THREADS": 1024}}}]}
    calls = [{"slot": "attention.prefill", "shape": "m=%d kv=64 heads=4/2 hd=64 %s" % (m, "q=f16 cache=f16 out=f16" * (m > 64)),
              "variant": "fap2", "geometry": {"FA_TQ": m, "FA_TKV": 32}, "parity": {"passed": m < 128},
              "warm": {"median_us": 1.5 * m, "gb_s": 12.25, "memory_pct": 0.31, "tflop_s": 1.5, "peak_pct": 7.25},
              "cold": {"median_us": 2.25 * m} if m < 128 else None, "warp_instructions": 0} for m in (32, 64, 128)]
    op = {"kiln": "0", "kind": "op", "device": "NVIDIA GB10", "grade": "measured", "result": {"passed": False, "results": calls}}
    untimed = {"results": [{**calls[0], "warm": None, "cold": None, "warp_instructions": 17584}]}
    sweep = {"slot": "\u20ac" * 50, "problems": [{"problem": "m=3325" + "\u20ac" * 60, "candidates": [
        {"variant": "fap2", "geometry": {"FA_TQ": tq, "FA_TKV": tkv, "FA_KPAD": pad}, "status": "fault" if tkv == 48 else "ok",
         "cause": "signal 11" if tkv == 48 else "", "warm_us": {"median": tq * 2.0 + tkv + pad}}
        for tq in (32, 64, 128) for tkv in (16, 32, 48, 64) for pad in (0, 8)]}]}
    t4 = {"schema_version": "1.0.0", "results": [
        {"configuration": {"variant": "v%d" % a, "a": a, "b": b}, "invalidity": "correct" if a < 4 else "runtime",
         "measurements": [{"name": "time", "value": 0.25 * a * b, "unit": "milliseconds"}]} for a in (1, 2, 4) for b in (1, 2)]}
    finalist = {"variant": "fap2", "us": 64.0, "interval_pct": [0, 0], "noise_pct": 0, "median_pct": 0, "verdict": "base"}
    rows = [{"plugin": "p", "variant": "fap2", "geometry": {"FA_TQ": tq}, "status": "ok", "bound": tq == 64, "warm_us": {"median": tq + 0.25}}
            for tq in (32, 64)]
    winner = {"plugin": "p", "variant": "fap2", "geometry": {"FA_TQ": 32}, "kept": False}
    final = [{**finalist, "geometry": {"FA_TQ": 64}}, {**finalist, "geometry": {"FA_TQ": 32}, "us": 33.125, "median_pct": 93.21,
                                                       "interval_pct": [90.5, 95.75], "noise_pct": 1.375, "verdict": "LAND", "tied": True}]
    tune = {"kiln": "0", "kind": "tune", "device": "NVIDIA GB10", "grade": "measured", "result": {"slot": "attention.prefill", "problems": [
        {"problem": "m=1", "candidates": [], "final": [], "winner": None},
        {"problem": "m=3325", "candidates": rows, "final": final, "winner": winner},
        {"problem": "m=512", "candidates": rows, "final": final[:1], "winner": {**winner, "geometry": {"FA_TQ": 64}, "kept": True}},
        {"problem": "m=16", "candidates": rows, "final": [], "winner": None}]}}
    gate = {"gate": "greedy", "verdict": "FAIL", "passed": 2, "failed": 1, "skipped": 0, "cases": []}
    bench = {"rows": [{"model": HOSTILE, "n_prompt": 512, "avg_ts": 1234.5, "good": True}]}
    return {name: save(folder, name + ".json", value) for name, value in (
        ("wall", wall), ("ab", {**row, "rows": [{**row, "kernels": {"runs": 5, "all": None, "slots": [
            {"slot": "quantize", "base": "none", "change": HOSTILE, "base_ms": 0, "change_ms": 3.375, "pct": None, "share_pct": 0,
             "predicted_pct": -1.75}, {"slot": "activation", "base": "e/act", "change": "e/act T=256", "base_ms": 9.125,
                                       "change_ms": 4.5625, "pct": 100.0, "share_pct": 4.64, "predicted_pct": 2.38}]}}, {**row, "n_prompt": 3325, "median_pct": -0.02, "verdict": "NEUTRAL"}]}),
        ("audit", audit), ("diff", diff), ("op", op), ("untimed", untimed), ("sweep", sweep), ("t4", t4), ("tune", tune), ("gate", gate), ("bench", bench))}


def kinds(files):
    for name, wanted in (("wall", ["127.500", "10.20", "1250.000", "between the parts of a pass", "roofline ms, derived",
                                   "3.2", "46.8", "int8", "420.750", "437.625"]),
                         ("ab", ["+5.62", "0.41", "2749.90 t/s", "disturbed", "LAND; interval +5.10 to +6.20", "3.375", "-1.75", "9.125",
                                 "+100.00", "+2.38", "e/act T=256"]),
                         ("audit", ["8.3", "16.7", "25.0", "FA_TQ=64 FA_TKV=16"]),
                         ("diff", ["16.7", "25.0", "not known", "the first is the base"]),
                         ("op", ["48.00", "72.00", "192.00", "12.2", "FAILED", "m=64 kv=64 heads=4/2 hd=64"]),
                         ("sweep", ["80.00", "none", "signal 11", "FA_TQ \\ FA_TKV"]),
                         ("t4", ["250.00", "1000.00", "runtime"])):
        text = run(files[name])
        page = sound(name, text)
        lost = [w for w in wanted if not any(w in c for c in page.cells) and w not in text]
        check(name + ": its figures", not lost, lost)
    for name, wanted in (("gate", "greedy"), ("bench", "1234.5"), ("untimed", "17584")):
        check(name + ": its figures", wanted in Page(run(files[name])).cells)
    text = run(files["tune"])
    cells = Page(text).cells
    row = cells.index("fap2 FA_TQ=32")
    check("tune: the final", cells[row:row + 6] == ["fap2 FA_TQ=32", "33.12", "+93.21", "+90.50 to +95.75", "1.38", "LAND, tied, winner"]
          and cells[row - 6:row] == ["fap2 FA_TQ=64", "64.00", "", "", "", "base"], cells)
    check("tune: what is bound", [cells[i + 1] for i, cell in enumerate(cells) if cell == "fap2 (bound)"] == ["FA_TQ=64"] * 3, cells)
    for says in ("Final of attention.prefill, m=3325", "tune.json, NVIDIA GB10, measured, 2 candidates; winner: fap2 FA_TQ=32, +93.21 % against",
                 "kept: fap2 FA_TQ=64, which is bound", "Candidates of attention.prefill, m=16", "no winner: no final was played"):
        check("tune: " + says, says in text, text)
    check("tune: a final for each that was played", text.count("Final of") == 2 and "base, kept" in cells, cells)
    drawn = Page(run(files["sweep"], "--keys", "FA_KPAD,FA_TKV")).cells
    check("sweep: over the keys asked for", "FA_TKV \\ FA_KPAD" in drawn, drawn[:9])
    run(files["sweep"], "--keys", "FA_KPAD,FA_TVK", err="no candidate has a key FA_TVK")
    run(files["sweep"], "--keys", "FA_KPAD", code=2, err="two keys")


def whole(folder, files):
    out = os.path.join(folder, "report.html")
    run(*files.values(), "--campaign", "--title", HOSTILE, "-o", out)
    text = open(out, encoding="utf-8").read()
    page = sound("all", text)
    check("all: hostile text is text", any("<script>alert(1)</script>" in cell for cell in page.cells))
    check("all: a timeline", {"r46", "r50", "8n"} <= set(page.figures))
    check("all: for phones and in the dark", 'name="viewport"' in text and "prefers-color-scheme:dark" in text)
    plain = run(*files.values(), "--campaign", "--text")
    unescaped = re.sub(r"\\(.)", r"\1", plain)
    missing = [c for c in page.cells if c and c not in unescaped]
    check("text: the same cells", not missing, missing[:4])
    run(code=2, err="of what")
    run(save(folder, "none.json", {"a": 1}), code=3, err="none.json: no result")
    run(save(folder, "list.json", [1, 2]), code=3, err="list.json: no result")
    run(os.path.join(folder, "gone.json"), code=3, err="gone.json")
    run("--ledger", os.path.join(folder, "gone.db"), code=3, err="gone.db: there is no such file")
    ledger(folder)
    run(files["wall"], "-o", "/dev/full", code=3, err="/dev/full")
    return out


def ledger(folder):
    """The results of a ledger, beside its experiments."""
    path = os.path.join(folder, "ledger.db")
    result = {"kiln": "0.1.0", "kind": "tune", "device": "NVIDIA GB10", "device_id": "cuda:0", "target": "sm_121", "driver": "d", "grade": "measured",
              "date": "2026-12-01T00:00:00Z", "sources": "0", "config": "", "result": {"slot": "norm", "problems": [
                  {"problem": "m=%d" % m, "candidates": [], "winner": {"variant": "rms", "geometry": {"THREADS": 64}, "kept": m == 2}} for m in (1, 2)]}}
    done = subprocess.run([kiln, "record", "add", save(folder, "kept.json", result), "--ledger", path], capture_output=True, text=True,
                          timeout=60, check=False)
    check("ledger: a sweep is taken in", done.returncode == 0, done.stderr)
    text = run("--ledger", path)
    check("ledger: what came out of it", 'tune: norm; m=1: rms {"THREADS":64} of 0; m=2: kept rms {"THREADS":64} of 0' in Page(text).cells, text)
    check("ledger: no timeline of nothing", "The ledger in time" not in text, text)


def odd_documents(folder):
    """Members of other types, missing or absurd: a page or a message, never a crash."""
    for i, value in enumerate(({"slices": []}, {"slices": [1, None, {}]}, {"slices": [{"slot": 3, "ms": "x"}], "wall_ms": 0},
                               {"pairs": []}, {"pairs": [{}, 1]}, {"rows": [{"pairs": [{"pct": 1e308}, {"pct": -1e308}]}]},
                               {"kernels": [{}, 1]}, {"kernels": []}, {"diff": []}, {"diff": [{}, 1]},
                               {"diff": [{"base": {"geometry": 3, "occupancy": 1e300}}]}, {"results": [{"shape": "m", "warm": 3}, 1]},
                               {"results": [{"shape": "x" * 999, "warm": {"median_us": -1e300}, "geometry": {"A" * 99: "x"}}]}, {"experiments": [{}, 2]}, {"experiments": []},
                               {"candidates": [{"geometry": {}}]}, {"candidates": [{"geometry": {"A": 1}}, 3]},
                               {"candidates": [{"geometry": {"A": "x" * 99, "B": None}, "status": "ok", "warm_us": -1}]}, {"problems": [{}]},
                               {"problems": [{"candidates": [{"geometry": {"A": 1, "B": 1}, "status": "ok"}]}, 3]},
                               {"rows": [{}]}, {"rows": [{"a": {"b": [1]}}]}, {"gate": "x"})):
        path = save(folder, "odd%d.json" % i, value)
        done = subprocess.run([kiln, "report", path], capture_output=True, text=True, timeout=60, check=False)
        check("odd document %d" % i, done.returncode in (0, 3) and (done.returncode == 3 or not Page(done.stdout).wrong),
              "%s: exit %d, %s" % (value, done.returncode, done.stderr))


# What a page looks like, asked of the browser: widths, colours, and labels that leave their picture or are too small.
LOOK = """(() => {
  const all = query => [...document.querySelectorAll(query)];
  const lost = all('svg text').filter(text => {
    const own = text.getBoundingClientRect(), whole = text.closest('svg').getBoundingClientRect();
    return own.left < whole.left - 1 || own.right > whole.right + 1 || own.top < whole.top - 1 || own.bottom > whole.bottom + 1;
  });
  const cells = new Set(all('th, td').map(cell => cell.textContent));
  return {inner: innerWidth, page: document.documentElement.scrollWidth,
    background: getComputedStyle(document.body).backgroundColor, lost: lost.map(text => text.textContent),
    small: Math.min(...all('svg text').map(text => text.getBoundingClientRect().height)), pictures: all('svg').length,
    loose: all('svg text.f').map(text => text.textContent).filter(text => !cells.has(text))};
})()"""


def browser_cases(folder, page):
    program = os.environ.get("KILN_BROWSER") or shutil.which("chromium")
    if not program:
        print("skip in a browser: no chromium on PATH (Debian: chromium), and KILN_BROWSER names none", flush=True)
        return
    try:
        driven = browser.Browser(program, folder)
    except (OSError, RuntimeError) as no:
        print("skip in a browser: %s does not start here: %s" % (program, no), flush=True)
        return
    try:
        for width, height, dark in ((360, 740, False), (1280, 900, False), (1280, 900, True)):
            name = "browser, %d wide%s: " % (width, ", dark" if dark else "")
            said = driven.open(page, width, height, dark)
            look = driven.evaluate(LOOK)
            check(name + "nothing on the console", not said, said[:3])
            check(name + "all pictures, at that width", look["pictures"] >= 9 and look["inner"] == width, look)
            check(name + "the page is no wider than the screen", look["page"] <= width, look["page"])
            check(name + "labels lie in their pictures", not look["lost"], look["lost"][:5])
            check(name + "labels can be read", look["small"] >= 10, look["small"])
            check(name + "every figure of a picture is in a table", not look["loose"], look["loose"][:5])
            check(name + "its colours", (look["background"] == "rgb(255, 255, 255)") != dark, look["background"])
            check(name + "a picture of it", len(driven.picture()) > 20000)
    finally:
        driven.close()


def main():
    with tempfile.TemporaryDirectory() as folder:
        files = documents(folder)
        kinds(files)
        page = whole(folder, files)
        odd_documents(folder)
        browser_cases(folder, page)
    return 1 if failures else 0


sys.exit(main())
