#!/usr/bin/env python3
"""kiln sim on small PTX kernels: results, faults, counters, and files and arguments that are wrong. Needs no NVRTC.

usage: test_sim.py KILN. Exit status 1 when a case fails.
"""
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

kiln = sys.argv[1]
failures = 0
AXPY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n)
{
.reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<5>; .reg .b64 %rd<6>;
.loc 1 1 1
ld.param.f32 %f1, [a];
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
ld.param.u32 %r5, [n];
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mov.u32 %r3, %tid.x;
mad.lo.s32 %r4, %r1, %r2, %r3;
setp.ge.s32 %p1, %r4, %r5;
@%p1 bra DONE;
mul.wide.s32 %rd3, %r4, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
.loc 1 7 1
ld.global.f32 %f2, [%rd4];
ld.global.f32 %f3, [%rd5];
fma.rn.f32 %f4, %f1, %f2, %f3;
st.global.f32 [%rd5], %f4;
DONE:
ret;
}
.file 1 "axpy.cu"
"""
# A warp copies 512 bytes: 16 sectors of global memory, into shared memory in 4 wavefronts or, 128 bytes apart, in 32. .cg reads a sector
# twice whose halves do not go beside each other in one row of banks; .ca does not. The numbers of sectors are an H200's.
COPY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 x, .param .u32 apart, .param .u32 first)
{
.reg .b32 %r<7>; .reg .b64 %rd<4>;
.shared .align 128 .b8 tile[4096];
ld.param.u64 %rd1, [x];
ld.param.u32 %r1, [apart];
mov.u32 %r2, %tid.x;
mul.wide.u32 %rd2, %r2, 16;
add.s64 %rd3, %rd1, %rd2;
ld.param.u32 %r5, [first];
mov.u32 %r3, tile;
add.s32 %r6, %r3, %r5;
mad.lo.s32 %r4, %r2, %r1, %r6;
cp.async.cg.shared.global [%r4], [%rd3], 16;
cp.async.commit_group;
cp.async.wait_group 0;
ret;
}
"""


# What interpreters are known to get wrong; the results are the hardware's.
ODD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry odd(.param .u64 out)
{
.reg .pred %p<2>; .reg .b32 %r<10>; .reg .f32 %f<7>; .reg .b64 %rd<8>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0;
@!%p1 bra DONE;
selp.b32 %r2, 7, 9, !%p1;
st.global.u32 [%rd1], %r2;
mov.b32 %r3, 0xFFFFFFFF;
mov.b32 %r9, 32;
bfe.u32 %r4, %r3, %r9, 8;
st.global.u32 [%rd1+4], %r4;
mov.b32 %r9, 28;
bfe.u32 %r4, %r3, %r9, 8;
st.global.u32 [%rd1+8], %r4;
mov.f32 %f1, 0f3F800000;
mov.f32 %f2, 0f30800000;
add.rm.f32 %f3, %f1, %f2;
st.global.f32 [%rd1+12], %f3;
add.rp.f32 %f3, %f1, %f2;
st.global.f32 [%rd1+16], %f3;
mov.b32 %r5, 16777219;
cvt.rz.f32.s32 %f4, %r5;
cvt.rzi.s32.f32 %r6, %f4;
st.global.u32 [%rd1+20], %r6;
mov.b64 %rd2, 0xFFFFFFFF00000000;
mov.b64 %rd3, 0x0000000100000001;
add.u64 %rd4, %rd2, %rd3;
st.global.u64 [%rd1+24], %rd4;
mov.f32 %f5, 0f80200000;
mul.ftz.f32 %f6, %f5, %f1;
st.global.f32 [%rd1+32], %f6;
mul.f32 %f6, %f5, %f1;
st.global.f32 [%rd1+36], %f6;
DONE:
ret;
}
"""


# Rows of a table of 4 KiB: a lane reads 8 and 16 bytes at (lane >> shift & mask) * 16.
WIDE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry wide(.param .u32 shift, .param .u32 mask)
{
.reg .b32 %r<7>; .reg .f32 %f<7>;
.shared .align 16 .b8 table[4096];
ld.param.u32 %r1, [shift];
ld.param.u32 %r2, [mask];
mov.u32 %r3, %tid.x;
shr.u32 %r4, %r3, %r1;
and.b32 %r4, %r4, %r2;
mov.u32 %r5, table;
mad.lo.s32 %r6, %r4, 16, %r5;
ld.shared.v2.f32 {%f1, %f2}, [%r6];
ld.shared.v4.f32 {%f3, %f4, %f5, %f6}, [%r6];
ret;
}
"""
# printf("%s %*d\\n", "kiln", 6, 8): of a string PTX leaves out the zero at its end.
PRINT = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 form[8] = {37, 115, 32, 37, 42, 100, 10};
.global .align 1 .b8 text[5] = {107, 105, 108, 110};
.visible .entry print()
{
.local .align 8 .b8 pack[16];
.reg .b32 %r<3>; .reg .b64 %rd<6>;
mov.u64 %rd1, text;
cvta.global.u64 %rd2, %rd1;
st.local.u64 [pack], %rd2;
st.local.u32 [pack+8], 6;
st.local.u32 [pack+12], 8;
mov.u64 %rd3, form;
cvta.global.u64 %rd3, %rd3;
mov.u64 %rd4, pack;
cvta.local.u64 %rd4, %rd4;
{
.param .b64 f; .param .b64 a; .param .b32 r;
st.param.b64 [f], %rd3;
st.param.b64 [a], %rd4;
call.uni (r), vprintf, (f, a);
ld.param.b32 %r1, [r];
}
ret;
}
"""

# Memory that a device keeps for libraries, beside the kernel's own, zero from the start; modifiers in the order of CUDA's headers.
KEPT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry kept(.param .u64 out)
{
.reg .b32 %r<7>; .reg .b64 %rd<3>;
.shared .align 4 .b8 own[4];
ld.param.u64 %rd1, [out];
mov.u32 %r1, %reserved_smem_offset_1;
mov.u32 %r2, own;
mov.u32 %r3, 7;
st.shared.u32 [%r2], %r3;
red.shared.add.release.cta.u32 [%r1], 1;
bar.sync 0;
ld.shared.u32 %r4, [%r1];
ld.shared.u32 %r5, [%r2];
mad.lo.s32 %r6, %r5, 100, %r4;
st.global.u32 [%rd1], %r6;
ret;
}
"""

BEFORE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry before(.param .u64 out)
{
.reg .b64 %rd<2>; .reg .b32 %r<2>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, 1;
st.global.u32 [%rd1+-4], %r1;
ret;
}
"""
ENDLESS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry endless()
{
.reg .b32 %r<2>;
.loc 1 5 1
mov.u32 %r1, 0;
AGAIN:
.loc 1 5 1
add.s32 %r1, %r1, 1;
bra AGAIN;
}
.file 1 "endless.cu"
"""


def check(what, condition, more=""):
    global failures
    print("ok  " if condition else "FAIL", what, "" if condition else more, flush=True)
    failures += not condition


def sim(*words):
    return subprocess.run([kiln, "sim", *words], capture_output=True, text=True, check=False, timeout=60)


def npy(values, descr="<f4", order="False", shape=None, mark=b"\x93NUMPY\x01\x00"):
    head = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n" % (descr, order, shape or "(%d,)" % len(values))
    return mark + struct.pack("<H", len(head)) + head.encode() + struct.pack("<%df" % len(values), *values)


def write(path, data):
    with open(path, "wb") as out:
        out.write(data if isinstance(data, bytes) else data.encode())


def floats(path):
    with open(path, "rb") as file:
        data = file.read()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    return list(struct.unpack("<%df" % ((len(data) - start) // 4), data[start:]))


def run_cases():
    write("axpy.ptx", AXPY)
    write("before.ptx", BEFORE)
    write("endless.ptx", ENDLESS)
    write("x.npy", npy([float(i) for i in range(100)]))
    base = ["axpy.ptx", "--grid", "4", "--block", "32", "--arg", "f32:2"]
    good = sim(*base, "--arg", "in:x.npy", "--arg", "ramp:f32:100:y.npy", "--arg", "i32:100", "--json")
    check("axpy runs", good.returncode == 0, good.stderr)
    report = json.loads(good.stdout)
    check("axpy is right", floats("y.npy") == [3.0 * i for i in range(100)])
    check("axpy has no fault", report["faults"] == 0 and report["findings"] == [], good.stdout)
    check("counters", report["kernels"][0]["blocks"] == 4 and report["kernels"][0]["total"]["global_stores"] == 4, good.stdout)
    write("copy.ptx", COPY)
    write("copy_ca.ptx", COPY.replace("cp.async.cg", "cp.async.ca"))
    for file, apart, first, sectors, wavefronts, ways in (
            ("copy", 16, 0, 16, 4, 1), ("copy", 16, 16, 20, 4, 1), ("copy", 16, 32, 16, 4, 1), ("copy", 16, 112, 20, 4, 1),
            ("copy", 48, 0, 32, 4, 1), ("copy", 128, 0, 32, 32, 8), ("copy_ca", 16, 16, 16, 4, 1)):
        copy = sim(file + ".ptx", "--grid", "1", "--block", "32", "--arg", "ramp:f32:128", "--arg", "i32:%d" % apart, "--arg", "i32:%d" % first,
                   "--json")
        total = json.loads(copy.stdout)["kernels"][0]["total"]
        check("cp.async of %s, rows %d bytes apart from %d on" % (file, apart, first),
              (total["global_loads"], total["global_load_sectors"], total["shared_loads"], total["shared_load_wavefronts"]) ==
              (1, sectors, 0, 0) and
              (total["shared_stores"], total["shared_store_wavefronts"], total["shared_ways"]) == (1, wavefronts, ways), copy.stdout)
    over = sim(*base, "--arg", "in:x.npy", "--arg", "ramp:f32:128", "--arg", "i32:101")
    check("a read past the end ends with 1", over.returncode == 1, over.stderr)
    check("it is named with line, block and thread", "axpy.cu:7" in over.stdout and "block (3, 0, 0)" in over.stdout
          and "thread (4, 0, 0)" in over.stdout, over.stdout)
    before = sim("before.ptx", "--arg", "zeros:u32:64")
    check("a write before the beginning", before.returncode == 1 and "4 bytes before the beginning of 'argument 1 (zeros:u32:64)'" in before.stdout,
          before.stdout)
    for wait in (0.2, 1, 5, 20):  # until it runs
        endless = subprocess.Popen([kiln, "sim", "endless.ptx"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(wait)
        endless.send_signal(signal.SIGINT)
        _, said = endless.communicate(timeout=60)
        if "endless" in said:
            break
    check("an endless loop, interrupted, is named", endless.returncode != 0 and "kernel endless" in said and "endless.cu:5" in said, said)
    for limit in ("1", "100000"):
        endless = sim("endless.ptx", "--max-instructions", limit)
        check("an endless loop ends at %s instructions" % limit, endless.returncode == 4 and
              re.search(r"kernel endless, endless\.cu:5 .* ran \d{1,6} warp instructions and has not ended; %s are allowed.*"
                        r"--max-instructions" % limit, endless.stderr), endless.stderr)
    check("as many as are needed are enough", sim(*base, "--arg", "in:x.npy", "--arg", "zeros:f32:100", "--arg", "i32:100",
                                                  "--max-instructions", "100").returncode == 0)
    check("a bad number of them", sim("endless.ptx", "--max-instructions", "0").returncode == 2)
    blank = sim(*base, "--arg", "in:x.npy", "--arg", "out:f32:10x10:z.npy", "--arg", "i32:100")
    check("memory that nobody wrote", blank.returncode == 1 and "axpy.cu:7" in blank.stdout, blank.stdout)
    off = sim(*base, "--arg", "in:x.npy", "--arg", "out:f32:100:z.npy", "--arg", "i32:100", "--sim-check", "bounds")
    check("only what was asked for", off.returncode == 0, off.stdout + off.stderr)
    # Not the file's shape: in place.
    once = sim(*base, "--arg", "in:x.npy", "--arg", "inout:y.npy:w.npy", "--arg", "i32:100")
    check("inout writes elsewhere", once.returncode == 0 and floats("w.npy")[7] == 35.0 and floats("y.npy")[7] == 21.0, once.stderr)


def arithmetic_cases():
    write("odd.ptx", ODD)
    result = sim("odd.ptx", "--arg", "out:u32:10:odd.npy")
    check("odd arithmetic runs", result.returncode == 0, result.stdout + result.stderr)
    with open("odd.npy", "rb") as file:
        bits = struct.unpack("<10I", file.read()[-40:])
    check("odd arithmetic, bit for bit", bits == (
        9, 0, 15, 0x3f800000, 0x3f800001, 16777218, 1, 0, 0x80000000, 0x80200000), str(bits))


def other_cases():
    write("wide.ptx", WIDE)
    # 8 bytes a lane are read in halves, 16 in quarters; two of them at once where lanes one or two apart want the same.
    for shift, mask, wavefronts in ((0, 31, 4 + 4), (1, 31, 2 + 2), (5, 31, 1 + 2), (0, 3, 2 + 4), (0, 1, 1 + 2)):
        wide = sim("wide.ptx", "--sim-check", "none", "--arg", "i32:%d" % shift, "--arg", "i32:%d" % mask, "--json")
        check("wide reads, lane >> %d & %d" % (shift, mask),
              wide.returncode == 0 and json.loads(wide.stdout)["kernels"][0]["total"]["shared_load_wavefronts"] == wavefronts, wide.stdout)
    write("kept.ptx", KEPT)
    kept = sim("kept.ptx", "--arg", "out:u32:1:k.npy", "--block", "32")
    with open("k.npy", "rb") as file:
        check("memory kept for libraries", kept.returncode == 0 and struct.unpack("<I", file.read()[-4:]) == (732,), kept.stdout + kept.stderr)
    write("print.ptx", PRINT)
    line = "kiln      8\n"
    printed = sim("print.ptx", "--block", "1")
    check("printf", printed.returncode == 0 and printed.stdout.startswith(line), printed.stdout + printed.stderr)
    aside = sim("print.ptx", "--block", "1", "--json")
    check("printf beside JSON", aside.stderr == line and json.loads(aside.stdout)["faults"] == 0, aside.stdout + aside.stderr)


def refusal_cases():
    bare = subprocess.run([kiln, "gate", "parity", "norm", "--device", "sim"], capture_output=True, text=True, check=False, timeout=60,
                          env=dict(os.environ, KILN_NVRTC="/nonexistent"))
    check("parity without NVRTC", bare.returncode == 4 and "tools/fetch-nvrtc" in bare.stderr and bare.stdout == "", bare.stderr)
    rest = ["--arg", "zeros:f32:100", "--arg", "i32:100"]
    bad = {"mark": npy([1.0], mark=b"\x93NUMPX\x01\x00"), "big": npy([1.0], descr=">f4"), "short": npy([1.0])[:-1],
           "long": npy([1.0]) + b"x", "fortran": npy([1.0], order="True", shape="(1, 1)"), "shape": npy([1.0], shape="(9,)"),
           "huge": npy([1.0], shape="(99999999999, 99999999999)"), "objects": npy([1.0], descr="|O8"), "empty": b"",
           "negative": npy([1.0], shape="(-1,)"), "version": npy([1.0], mark=b"\x93NUMPY\x07\x00")}
    for name, data in bad.items():
        write(name + ".npy", data)
        result = sim("axpy.ptx", "--arg", "f32:1", "--arg", "in:%s.npy" % name, *rest)
        check("npy " + name, result.returncode == 3 and name + ".npy" in result.stderr, result.stderr)
    for text in ("f32:x", "i32:5000000000", "u8:-1", "out:f32:4", "zeros:f31:4", "zeros:f32:0", "rand:f32:4:z:z:z", "what", "bytes:0"):
        result = sim("axpy.ptx", "--arg", text)
        check("--arg " + text, result.returncode == 2 and text in result.stderr, result.stderr)
    few = sim("axpy.ptx", "--arg", "f32:1")
    check("arguments missing", few.returncode == 2 and "4 parameters" in few.stderr, few.stderr)
    wide = sim("axpy.ptx", "--arg", "f64:1", "--arg", "in:x.npy", *rest)
    check("an argument too wide", wide.returncode == 2 and "has 4 bytes, this has 8" in wide.stderr, wide.stderr)
    check("no such entry", sim("axpy.ptx", "--entry", "axpyy").returncode == 2)
    write("two.cu", "__global__ void __launch_bounds__(64) first(int *p) { *p = 1; }\ntemplate <int N> __global__ void second\n(int *p) { *p = N; }\n")
    two = sim("two.cu")
    check("two kernels are named", two.returncode == 2 and "first, second" in two.stderr, two.stderr)
    write("talk.cu", "// __global__ void no(int)\n/* __global__ void neither(int) */ __global__ void a(int *p) {} __global__ void b(int *p) {}\n")
    talk = sim("talk.cu")
    check("comments have no kernels", talk.returncode == 2 and "names one of: a, b" in talk.stderr, talk.stderr)
    write("macro.cu", "#define KERNEL(name) __global__ void name\nKERNEL(k)(int *p) { *p = 1; }\n")
    macro = sim("macro.cu")
    check("a macro's name is no kernel's", macro.returncode == 2 and "a macro writes kernels" in macro.stderr, macro.stderr)
    write("none.cu", "/* __global__ void k() {} ")
    none = sim("none.cu")
    check("a file without kernels", none.returncode == 3 and "has no kernel" in none.stderr, none.stderr)
    kind = sim("axpy.ptx", "--arg", "i32:2", "--arg", "in:x.npy", *rest)
    check("an integer for a float", kind.returncode == 2 and "is a float" in kind.stderr, kind.stderr)
    for shape, say in (("--block=1,1,65", "65 in z; it takes at most 64"), ("--grid=1,65536", "65536 in y; it takes at most 65535")):
        deep = sim("axpy.ptx", *shape.split("="), "--arg", "f32:1", "--arg", "in:x.npy", *rest)
        check(shape, deep.returncode == 2 and say in deep.stderr, deep.stderr)
    good = ["--arg", "f32:1", "--arg", "ramp:f32:100", *rest]
    for target, most in (("sm_75", 64), ("sm_80", 163), ("sm_86", 99), ("sm_89", 99), ("sm_90", 227), ("sm_120", 99), ("gb10", 99)):
        older = ".target sm_75" if target == "sm_75" else ".target sm_80"
        write("axpy.ptx", AXPY.replace(".target sm_80", older))
        fits = sim("axpy.ptx", *good, "--target", target, "--smem", str(most * 1024))
        check("%s has %d KB of shared memory" % (target, most), fits.returncode == 0, fits.stderr)
        more = sim("axpy.ptx", *good, "--target", target, "--smem", str(most * 1024 + 1))
        check("%s has no more" % target, more.returncode == 2 and re.search(
            r"%d bytes of shared memory a block, .* sm_\d+ has %d for it" % (most * 1024 + 1, most * 1024), more.stderr), more.stderr)
    write("axpy.ptx", AXPY)
    own = sim("axpy.ptx", *good, "--smem", "166913")
    check("PTX says what it is for", own.returncode == 2 and "sm_80 has 166912 for it" in own.stderr, own.stderr)
    write("old.ptx", AXPY.replace("sm_80", "sm_70"))
    old = sim("old.ptx", *good, "--smem", "232449")
    check("a target that is not described", old.returncode == 2 and "the largest GPU has 232448" in old.stderr, old.stderr)
    older = sim("axpy.ptx", *good, "--target", "sm_75")
    check("PTX for a newer target", older.returncode == 2 and "for sm_80, which --target sm_75 cannot run" in older.stderr, older.stderr)
    for target in ("sm_99", "", "nonsense", "sm_80x"):
        for file in ("axpy.ptx", "two.cu"):
            wrong = sim(file, "--target", target)
            check("--target '%s' of %s" % (target, file), wrong.returncode == 2 and "known" in wrong.stderr, wrong.stderr)
    check("no such file", sim("none.ptx").returncode == 3)
    check("a bad shape", sim("axpy.ptx", "--grid", "0").returncode == 2)
    check("a bad check", sim("axpy.ptx", "--sim-check", "racy").returncode == 2)
    write("odd.ptx", AXPY.replace("fma.rn.f32", "fmb.rn.f32"))
    odd = sim("odd.ptx", "--arg", "f32:1", "--arg", "in:x.npy", *rest)
    check("an unknown instruction", odd.returncode == 3 and "axpy.cu:7" in odd.stderr and "fmb" in odd.stderr, odd.stderr)


with tempfile.TemporaryDirectory() as scratch:
    kiln = os.path.abspath(kiln)
    os.chdir(scratch)
    run_cases()
    arithmetic_cases()
    other_cases()
    refusal_cases()
sys.exit(1 if failures else 0)
