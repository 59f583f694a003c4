#!/usr/bin/env python3
"""Runs on the CUDA device over a driver that does nothing, or fails where the test says (fake.c).

usage: test_cuda_fake.py KILN SOURCE_ROOT FAKE LISTENER (or ''). Exit status 1 when a case fails.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

kiln, source, fake, listener = sys.argv[1:5]
model = os.path.join(source, "tests/golden/tiny/llama-quant-q4_k_m.gguf")
failures = 0


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


class Runs:
    """Runs of kiln in a folder of their own, all with one kernel cache."""

    def __init__(self, folder):
        self.folder = folder
        self.log = os.path.join(folder, "log")
        self.prompt = os.path.join(folder, "ids")
        with open(self.prompt, "w", encoding="ascii") as file:
            file.write("1 2 3")

    def kiln(self, *args, **env):
        return subprocess.run([kiln, *args], capture_output=True, text=True, timeout=100, check=False, env=dict(
            os.environ, KILN_CUDA=fake, KILN_NVRTC=fake, KILN_CACHE_DIR=os.path.join(self.folder, "cache"),
            FAKE_CUDA_LOG=self.log, **env))

    def run(self, *args, **env):
        return self.kiln("run", "-m", model, "--device", "cuda", "--prompt-ids", self.prompt, "-n", "4", "--greedy",
                         "--json", *args, **env)

    def calls(self):
        with open(self.log, encoding="ascii") as file:
            return {name: int(n) for name, n in (line.split() for line in file)}


def good_run(runs, what, *args, **env):
    result = runs.run(*args, **env)
    check(what, result.returncode == 0, result.stderr)
    return json.loads(result.stdout), runs.calls()


def graph_cases(runs):
    on, on_calls = good_run(runs, "a run")
    check("it has a graph", on["device"] == "cuda:0" and on["graph"] == "on")
    # Three decode steps, body and head, and the head once behind the prefill.
    check("every decode step is one replay", on_calls["cuGraphLaunch"] == 3 + 1, str(on_calls))
    # The head, and a step for each of the two places that ids come to by turns.
    check("recorded once", on_calls["cuGraphInstantiateWithFlags"] == 3, str(on_calls))
    # One brings the logits behind the prompt, the steps' ids are waited for one by one.
    check("the device picks", on_calls["cuMemcpyDtoHAsync_v2"] == 1 and on_calls["cuEventSynchronize"] >= 3,
          str(on_calls))
    _, drawn = good_run(runs, "temperature", "--repeat-penalty", "1.1")
    check("a penalty needs the logits", drawn["cuMemcpyDtoHAsync_v2"] == 4 and drawn["cuGraphInstantiateWithFlags"] == 2,
          str(drawn))
    off, off_calls = good_run(runs, "--graph off", "--graph", "off")
    check("it has none", off["graph"] == "off" and "cuGraphLaunch" not in off_calls
          and "cuStreamBeginCapture_v2" not in off_calls, str(off_calls))
    check("every launch is queued by itself", off_calls["cuLaunchKernelEx"] > on_calls["cuLaunchKernelEx"])
    check("the same ids", on["ids"] == off["ids"])
    check("by the configuration", good_run(runs, "graph = off", "--set", "engine.graph=off")[0]["graph"] == "off")
    check("all memory is given back", on_calls["bytes"] == off_calls["bytes"] == 0)
    if listener:
        heard = os.path.join(runs.folder, "heard")
        env = {"NVTX_INJECTION64_PATH": listener, "LISTENER_OUT": heard}
        document, calls = good_run(runs, "with a listener", **env)
        check("a listener turns it off", document["graph"] == "off" and "cuGraphLaunch" not in calls)
        with open(heard, encoding="utf-8") as file:
            text = file.read()
        slot = re.findall(r"> \d+ (attention\.\w+ .*)", text)
        check("a range tells variant and geometry", any(re.search(r"^attention\.prefill fap2 .*FA_TQ=\d+", name)
              for name in slot), str(slot))
        check("layers of the prefill and three decode steps", len(re.findall("> 1 layer 1$", text, re.M)) == 4)
        document, _ = good_run(runs, "--graph on with a listener", "--graph", "on", **env)
        check("who asks for it has it", document["graph"] == "on")


def wall_cases(runs):
    """Marks of half a millisecond each: a slice is what is left without its own."""
    result = runs.kiln("wall", "-m", model, "--device", "cuda", "-p", "4", "-r", "1", "--json")
    check("a wall", result.returncode == 0, result.stderr)
    wall, calls = json.loads(result.stdout or "{}"), runs.calls()
    check("a mark's own time is off its slice", abs(wall["mark_us"] - 500) < 1 and
          all(s["ms"] == s["gb_s"] == 0 for s in wall["slices"]), result.stdout)
    check("it is taken behind work", calls["cuMemsetD8Async"] >= 64, str(calls))
    check("a mark is made once", 0 < calls["cuEventCreate"] <= sum(s["steps"] for s in wall["slices"]) + 40, str(calls))
    norm = os.path.join(source, "kernels_src/elementwise/ew_norm.cu")
    result = runs.kiln("wall", "-m", model, "--device", "cuda", "-p", "4", "-r", "1", "--json", "--set", "norm.source=" + norm)
    names = [s["name"] for s in json.loads(result.stdout or '{"slices": []}')["slices"] if s["slot"] == "norm"]
    check("a source of one's own is in the slice's name", names and all(n.endswith(" source=" + norm) for n in names),
          result.stdout + result.stderr)
    result = runs.kiln("wall", "-m", model, "--device", "cuda", "-p", "4", "-r", "1", "--paced", "--json")
    check("a paced wall", result.returncode == 0, result.stderr)
    paced, more = json.loads(result.stdout or "{}"), runs.calls()
    steps = sum(s["steps"] for s in paced["slices"])
    check("paced slices are without marks, too", steps > 20 and all(s["paced_ms"] == 0 for s in paced["slices"]),
          result.stdout)
    check("awake in a rest, busy before a step", more["cuGraphLaunch"] >= 2 * steps, str(more))
    check("a step rests for 2 ms, or for 4 times as long", paced["paced"]["rest_ms"] >= 2 * steps, result.stdout)


def roofline_cases(runs):
    """Ceilings of a card whose name the driver gives, with slices that take 2 ms a launch."""
    card = {"FAKE_CUDA_NAME": "NVIDIA GeForce RTX 3090", "FAKE_CUDA_SMS": "82", "FAKE_CUDA_MS": "2"}
    words = ["wall", "-m", model, "--device", "cuda", "-p", "16", "-r", "1"]
    q8 = ["--set", "matmul.q4_K.prefill.variant=mmq"]
    result = runs.kiln(*words, *q8, "--lever", "attention.prefill=roofline", "--json", **card)
    check("a wall with ceilings", result.returncode == 0, result.stderr)
    wall = json.loads(result.stdout or "{}")
    roof, slices = wall["roofline"], {s["slot"]: s for s in wall["slices"]}
    check("the peaks are of the card's file", roof["device_file"] == "rtx3090" and roof["grade"] == "derived" and
          (roof["f16_tflop_s"], roof["int8_tflop_s"], roof["f32_tflop_s"]) == (71, 284, 35.6), roof)
    peaks = {slot: slices[slot]["peak"] for slot in slices}
    check("each slice by what its products are of", peaks["matmul.q4_K.prefill"] == "int8" and peaks["matmul.q6_K.prefill"] ==
          peaks["attention.prefill"] == "f16" and peaks["norm"] == peaks["quantize"] == "f32" and
          peaks["matmul.q6_K.decode"] == "int8 / 2", peaks)
    rate = {"f16": 71, "int8": 284, "int8 / 2": 142, "f32": 35.6}
    for slot, s in slices.items():
        percent = [100 * s["gb_s"] / roof["memory_gb_s"], 100 * s["tflop_s"] / rate[s["peak"]]]
        parts = [s["ms"] * p / 100 for p in percent]
        check("percents and bound of %s" % slot, s["ms"] > 1.99 and abs(percent[0] - s["memory_pct"]) < 1e-6 * percent[0] and
              abs(percent[1] - s["peak_pct"]) < 1e-6 * percent[1] and
              max(parts) * (1 - 1e-9) <= s["bound_ms"] <= sum(parts) and s["bound_by"] in ("memory", s["peak"]), s)
    check("the bound of all is their sum", abs(roof["bound_ms"] - sum(s["bound_ms"] for s in slices.values())) < 1e-9, roof)
    lever, s = wall["levers"][0], slices["attention.prefill"]
    check("a lever to the roofline", lever["roofline"] is True and lever["grade"] == "derived" and
          abs(lever["magnitude_pct"] - 100 * (s["bound_ms"] / s["ms"] - 1)) < 1e-9 and
          abs(lever["ceiling_pct"] - lever["share_pct"] * lever["magnitude_pct"] / 100) < 1e-6 * lever["share_pct"], lever)
    result = runs.kiln(*words, *q8, "--lever", "norm=roofline", **card)
    check("in words", result.returncode == 0 and re.search(
        r"% of memory\) .* TFLOP/s \( *[\d.]+ % of int8\)  matmul/mmq .*\n\nroofline, derived: .*912 GB/s and the peaks of "
        r"configs/devices/rtx3090\.ini\n.* all slices\nlever norm to its roofline, -[\d.]+ %.*\(derived\)",
        result.stdout, re.S), result.stdout + result.stderr)
    fast = runs.kiln(*words, "--lever", "norm=roofline", "--json", **dict(card, FAKE_CUDA_MS="0.0000001"))
    lever = json.loads(fast.stdout or "{}").get("levers", [{}])[0]
    check("a slot below its bound has nothing to gain", lever.get("magnitude_pct") == lever.get("ceiling_pct") == 0,
          fast.stdout + fast.stderr)
    part = dict(card, FAKE_CUDA_SMS="16")
    for env, file, says in ((card, "rtx3090", "peaks of configs/devices/rtx3090.ini"), (part, None, "peaks not known")):
        found = json.loads(runs.kiln("devices", "--json", **env).stdout)["devices"][1]
        text = runs.kiln("devices", **env).stdout
        check("devices: %s" % says, found["id"] == "cuda:0" and found["device_file"] == file and says in text, text)
    wall = json.loads(runs.kiln(*words, "--json", **part).stdout or "{}")
    check("a part of a card has no peaks, but memory", wall["roofline"]["device_file"] is None and all(
        s["peak"] is s["peak_pct"] is None and s["bound_by"] == "memory" for s in wall["slices"]), wall)
    result = runs.kiln(*words, **part)
    check("... which is said", "912 GB/s alone; configs/devices has no file of this NVIDIA GeForce RTX 3090, so that its peaks "
          "are not known\n" in result.stdout, result.stdout)


def op_cases(runs):
    """A kernel alone beside the peak of its own arithmetic: its numbers are wrong, since nothing runs, and its times are such
    that the host waits longer."""
    times = {"FAKE_CUDA_MARK": "0", "FAKE_CUDA_MS": "0.0001"}
    card = {"FAKE_CUDA_NAME": "NVIDIA GeForce RTX 3090", "FAKE_CUDA_SMS": "82", **times}
    matmul = ["--shape", "m=64,n=256,k=512", "--device", "cuda", "-r", "1"]
    row, norm = ["--shape", "m=1,n=256,k=512", *matmul[2:]], ["--shape", "m=64,k=512", *matmul[2:]]
    for words, peak, rate in ((["matmul.q4_K.prefill", *matmul, "--set", "matmul.*.prefill.variant=mmq"], "int8", 284),
                              (["matmul.q4_K.prefill", *matmul], "f16", 71), (["matmul.q4_K.decode", *row], "int8 / 2", 142),
                              (["norm", *norm], "f32", 35.6), (["norm", *norm, "--peak", "3"], "given", 3)):
        result = runs.kiln("op", *words, "--json", **card)
        doc = json.loads(result.stdout or "{}")
        one = doc.get("results", [{}])[0]
        warm = one.get("warm") or {"peak_pct": 0, "tflop_s": 1}
        check("op: %s is held to %s" % (" ".join(words), peak), one.get("peak") == peak and one["peak_tflop_s"] == rate and
              abs(warm["peak_pct"] - 100 * warm["tflop_s"] / rate) < 1e-6 * warm["peak_pct"] and doc["device_file"] == "rtx3090" and doc["peak_tflop_s"] == (3 if peak == "given" else None),
              result.stdout + result.stderr)
    text = runs.kiln("op", "matmul.q4_K.prefill", *matmul, **card).stdout
    check("op: in words", re.search(r"% of f16\)\n.*arithmetic: 71\.0 TFLOP/s of f16 \(configs/devices/rtx3090\.ini\)", text, re.S),
          text)
    text = runs.kiln("op", "matmul.q4_K.prefill", *matmul, "-ub", "16,64", **card).stdout
    check("op: in a table", "| % of peak | peak |\n" in text and text.count(" | f16 |\n") == 2, text)
    doc = json.loads(runs.kiln("op", "matmul.q4_K.prefill", *matmul, "--json", **times).stdout or "{}")
    check("op: no card's file", doc["device_file"] is None and doc["results"][0]["peak"] is None and
          doc["results"][0]["peak_tflop_s"] is None, doc)


def ab_cases(runs):
    """The runs with events between the steps, behind the rounds of an A/B, and what fails there."""
    files = []
    for threads in (256, 128):
        files.append(os.path.join(runs.folder, "norm%d.ini" % threads))
        with open(files[-1], "w", encoding="ascii") as out:
            out.write("[norm]\nvariant = rms\nTHREADS = %d\n" % threads)
    words = ["ab", *files, "-m", model, "--device", "cuda", "-p", "16", "-r", "6"]
    result = runs.kiln(*words, "--json")
    calls = runs.calls()
    check("ab", result.returncode in (0, 1) and result.stdout, result.stderr)
    kernels = json.loads(result.stdout)["kernels"]
    bound = ["elementwise/rms THREADS=%d THREADS_MANY=128" % threads for threads in (256, 128)]
    check("... sees the slot that differs", kernels["runs"] == 2 and [(slot["slot"], slot["base"], slot["change"]) for slot in
          kernels["slots"]] == [("norm", *bound)], kernels)
    check("... takes what a mark costs away", kernels["slots"][0]["base_ms"] == 0, kernels)  # the fake's times are all alike
    check("... makes a mark once", 0 < calls["cuEventCreate"] < calls["cuEventRecord"] / 4, calls)
    check("... gives all memory back", calls["bytes"] == 0, calls)
    for name in ("cuEventCreate", "cuEventRecord", "cuEventElapsedTime"):
        for number in (1, calls[name] // 2, calls[name]):
            what = "ab: fault in %s %d of %d" % (name, number, calls[name])
            result = runs.kiln(*words, FAKE_CUDA_FAIL="%s %d 700" % (name, number))
            check(what, result.returncode == 4 and re.search(r"kiln: .*%s failed with FAKE_FAULT" % name, result.stderr),
                  result.stderr)
            check(what + " gives all memory back", runs.calls()["bytes"] == 0)


def memory_cases(runs):
    document, calls = good_run(runs, "memory", "-c", "256")
    memory = document["device_memory"]
    named = sum(memory[name] for name in ("weights", "expansion", "kv", "work"))
    # Of a piece at most 511 bytes are lost; a tiny model has a hundred.
    check("what is used is named", named <= memory["used"] < named + 100 * 512, str(memory))
    check("held, peak, budget", memory["used"] <= memory["held"] <= memory["peak"] < memory["budget"] == 1 << 30)
    check("a pool, not an allocation a tensor", calls["cuMemAlloc_v2"] <= 4, str(calls))
    check("the cache of 256 tokens", memory["kv"] == 256 * 64 * 2 * 2 * 2, str(memory))
    expanded, _ = good_run(runs, "expanded weights", "-c", "256", "--set", "matmul.*.prefill.variant=f16_expand")
    # f16 of the layers' matmuls: 1.5 MB at least for what is 0.4 MB in the file.
    check("expansion is told", expanded["device_memory"]["expansion"] > 2 * memory["weights"]
          and expanded["device_memory"]["weights"] == memory["weights"], str(expanded["device_memory"]))
    said = runs.run("-v").stderr
    check("-v says it", re.search(r"weights [\d.]+, expanded weights 0.0, KV cache .*at most .*budget of 1024.0", said),
          said)
    for mib in (1, 3):
        result = runs.run("-c", "1024", FAKE_CUDA_MEMORY=str(mib << 20))
        check("%d MiB are not enough" % mib, result.returncode == 4 and re.search(
            r"cuMemAlloc failed with FAKE_OUT_OF_MEMORY .* bytes wanted; kiln holds .* budget of %d" % (mib << 20),
            result.stderr), result.stderr)


def compile_cases(runs):
    """A compiler that crashes or hangs costs a sweep the candidate that it was at."""
    result = runs.kiln("tune", "attention.prefill", "--device", "cuda", "--shape", "m=16,h=2,hkv=1,hd=64", "--space",
                       "variant=fap2 FA_TKV=16,48,64,80 *=default", "--timeout", "1", "--json", "--out", "-", "--store",
                       os.path.join(runs.folder, "tune.db"), FAKE_NVRTC_CRASH="#define FA_TKV 80",
                       FAKE_NVRTC_HANG="#define FA_TKV 48")
    try:
        candidates = json.loads(result.stdout)["problems"][0]["candidates"]
    except (ValueError, LookupError):
        candidates = []
    found = {c["geometry"]["FA_TKV"]: (c["status"], c["cause"] or "") for c in candidates}
    check("a sweep outlives its compiler", {16, 48, 64, 80} <= set(found), result.stdout + result.stderr)
    check("a crash costs one candidate", found.get(80, [""])[0] == "compile" and "crashed: signal 11" in found[80][1],
          str(found))
    check("a hang costs one candidate", found.get(48, [""])[0] == "compile" and "not done within 4 s" in found[48][1],
          str(found))
    check("the others were run", all(found.get(n, ["compile"])[0] not in ("compile", "running") for n in (16, 64)),
          str(found))


def fault_cases(runs):
    out = os.path.join(runs.folder, "tokens")
    calls = good_run(runs, "a run to count calls")[1]
    off_calls = good_run(runs, "another without a graph", "--graph", "off")[1]
    for name, code in (("cuStreamSynchronize", 700), ("cuMemcpyHtoDAsync_v2", 719), ("cuMemcpyDtoHAsync_v2", 716),
                       ("cuMemcpyDtoDAsync_v2", 715), ("cuLaunchKernelEx", 702), ("cuGraphLaunch", 700),
                       ("cuStreamEndCapture", 718), ("cuEventSynchronize", 714), ("cuModuleLoadDataEx", 700),
                       ("cuMemHostAlloc", 999), ("cuMemAlloc_v2", 700)):
        graph = "on" if name in calls and name not in off_calls else "off"
        total = (calls if graph == "on" else off_calls)[name]
        if name == "cuStreamSynchronize":
            total = 2  # further ones are of the end, when all has been said
        for number in sorted({1, (total + 1) // 2, total}):
            with open(out, "w", encoding="ascii") as file:
                file.write("before\n")
            result = runs.run("--graph", graph, "--tokens-out", out, FAKE_CUDA_FAIL="%s %d %d" % (name, number, code))
            what = "fault %d in %s %d of %d" % (code, name, number, total)
            call = re.sub("_v2$", "", name)
            check(what, result.returncode == 4 and re.search(r"^kiln: .*%s failed with FAKE_FAULT \(%d" % (call, code),
                  result.stderr) and result.stderr.count("\n") == 1 and not result.stdout, result.stderr + result.stdout)
            if name in ("cuMemcpyDtoHAsync_v2", "cuGraphLaunch", "cuLaunchKernelEx", "cuMemcpyDtoDAsync_v2"):
                check(what + " names the kernel", re.search(r"kernel \w+ \(.*\w+=\d+.*\), grid \d+,\d+,\d+, block \d+",
                      result.stderr), result.stderr)
            with open(out, encoding="ascii") as file:
                check(what + " leaves files alone", file.read() == "before\n")
            check(what + " gives all memory back", runs.calls()["bytes"] == 0)
    result = runs.kiln("cache", "verify")
    check("the cache is whole", result.returncode == 0, result.stdout + result.stderr)
    env = {"KILN_NO_COMPILE": "1"}
    good_run(runs, "and serves", **env)


def shared_cases(runs):
    """Requests of exactly 48 KiB of shared memory, alone and beside static; the fake refuses what was not allowed."""
    for file, tiles in (("llama-f16-mha-hd128-vocab509.gguf", ("FA_TQ=96", "FA_TKV=16")),
                        ("llama-f16-gqa3x1-untied.gguf", ("FA_TQ=192", "FA_TKV=16"))):
        words = ["-m", os.path.join(source, "tests/golden/tiny", file)]
        for key in ("variant=fap2", *tiles, "FA_KPAD=0"):
            words += ["--set", "attention.prefill." + key]
        for fixed in ("0", "1024"):
            document, calls = good_run(runs, "%s of 48 KiB, %s static" % (" ".join(tiles), fixed), *words,
                                       FAKE_CUDA_STATIC=fixed)
            check("... launches", document["device"] == "cuda:0" and calls["cuLaunchKernelEx"] > 0)
        result = runs.run(*words, FAKE_CUDA_STATIC="60000")
        check("... more than a block may use", result.returncode == 4 and re.search(
            r"\d+ bytes of dynamic and 60000 of static shared memory exceed the 101376", result.stderr), result.stderr)


def refusal_cases(runs):
    """A driver that takes no PTX, or shows no device."""
    result = runs.run(FAKE_CUDA_FAIL="cuModuleLoadDataEx 1 222")
    check("PTX that the driver refuses", result.returncode == 4 and re.search(
        r"failed with FAKE_ERROR \(222.*PTX of NVRTC 13\.0 for sm_\d+, driver for CUDA 13\.0: ptxas fatal: Unsupported "
        r"\.version 99\.0; .*KILN_NVRTC", result.stderr), result.stderr)
    hidden = {"FAKE_CUDA_FAIL": "cuInit 0 100", "CUDA_VISIBLE_DEVICES": ""}
    result = runs.run(**hidden)
    check("no device is visible", result.returncode == 4 and re.search(
        r"sees no device \(CUDA_VISIBLE_DEVICES is ''\); --device cpu", result.stderr), result.stderr)
    result = runs.run("--device", "auto", **hidden)
    check("... then auto takes the CPU", result.returncode == 0 and json.loads(result.stdout)["device"] == "cpu",
          result.stderr)
    check("... and devices are listed", runs.kiln("devices", **hidden).returncode == 0)


with tempfile.TemporaryDirectory() as scratch:
    all_runs = Runs(scratch)
    graph_cases(all_runs)
    wall_cases(all_runs)
    roofline_cases(all_runs)
    op_cases(all_runs)
    ab_cases(all_runs)
    memory_cases(all_runs)
    compile_cases(all_runs)
    fault_cases(all_runs)
    shared_cases(all_runs)
    refusal_cases(all_runs)
sys.exit(1 if failures else 0)
