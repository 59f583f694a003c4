// nvrtc: NVIDIA's runtime compiler, opened with dlopen: finding it, its version, one compile.
//
// Where it is looked for, in this order:
//   1. KILN_NVRTC: the library itself, or a folder that holds it (or its lib, lib64). When it is
//      set, nothing else is tried.
//   2. the loader's own path: libnvrtc.so.13, libnvrtc.so.12, libnvrtc.so.
//   3. a CUDA toolkit: CUDA_HOME, CUDA_PATH, /usr/local/cuda, /usr/local/cuda-* (newest first),
//      /usr/lib/x86_64-linux-gnu.
//   4. the wheel that tools/fetch-nvrtc unpacked into kiln's cache folder.
// kiln never links it: where it is absent everything else works.
//
// Threads: NVRTC 13.0 compiles side by side in the threads of one process. Four compiles of 0.27 s
// on two cores, 2026-11-29: one thread 1.10 s, two threads 0.61 s, two processes 0.58 s; two
// compiling threads were both running in 99 % of 5,116 samples. So kiln uses threads.
#ifndef KILN_JIT_NVRTC_H
#define KILN_JIT_NVRTC_H

#include "base/buf.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_nvrtc_api; // the functions

struct kiln_nvrtc {
    void *handle;
    struct kiln_nvrtc_api *api;
    char *path; // of the library's file
    int major, minor;
    // Which build this is: version, and build id or content digest of the library and of the
    // builtins library beside it. Two builds of one version differ here.
    char *identity;
    int *archs; // compute capabilities * 10 that it compiles for, ascending
    size_t n_archs;
};

// Finds and opens it. KILN_STATUS_DEVICE when there is none, with every place that was searched and
// how to get it, or when what KILN_NVRTC names is none, with what it is. The caller ends *nvrtc
// with kiln_nvrtc_close. May be used from any thread afterwards.
KILN_MUST_CHECK enum kiln_status kiln_nvrtc_open(struct kiln_nvrtc **nvrtc, struct kiln_err *err);
void kiln_nvrtc_close(struct kiln_nvrtc *nvrtc); // NULL is fine

// "sm_90a" -> 90 and "a"; "compute_80" likewise. 0, or -1 when it is no target.
int kiln_target_parse(const char *target, int *cc, const char **suffix);
// What --gpu-architecture becomes for a target: itself when this NVRTC makes machine code for it;
// for a GPU newer than the NVRTC the newest virtual architecture ("compute_121", PTX, which the
// driver finishes). `ptx`: the target's own virtual architecture. KILN_STATUS_DEVICE when it cannot
// be compiled for: the message names version and targets known.
KILN_MUST_CHECK enum kiln_status kiln_nvrtc_arch(const struct kiln_nvrtc *nvrtc, const char *target,
        int ptx, char arch[32], struct kiln_err *err);

struct kiln_nvrtc_program {
    const char *name; // for messages
    const char *text;
    const char *const *header_names, *const *header_texts;
    int n_headers;
    const char *const *options;
    int n_options;
    const char *instance; // a name expression, or NULL
    int ptx;              // wanted: PTX text, else a cubin
};

struct kiln_nvrtc_result {
    char *image; // cubin, or PTX (NUL-terminated); the caller frees it
    size_t image_size;
    char *lowered; // of the instance, or NULL; the caller frees it
    char *log;     // of the compile, never NULL after a return of OK or DEVICE; the caller frees it
};

// Compiles. KILN_STATUS_DEVICE with NVRTC's word for the failure; result->log says the rest.
KILN_MUST_CHECK enum kiln_status kiln_nvrtc_compile(const struct kiln_nvrtc *nvrtc,
        const struct kiln_nvrtc_program *program, struct kiln_nvrtc_result *result,
        struct kiln_err *err);
void kiln_nvrtc_result_finish(struct kiln_nvrtc_result *result);

// (nvrtc_find.c) Opens the first library found; *searched lists the places, one a line.
void *kiln_nvrtc_find(struct kiln_buf *searched);
// (nvrtc_find.c) What KILN_NVRTC says; NULL when it is unset or empty.
const char *kiln_nvrtc_named(void);
// (nvrtc_find.c) The folder with CUDA's headers (cuda_fp16.h), the caller's; NULL when there is
// none. Looked for in CUDA_HOME, CUDA_PATH, beside the NVRTC library, in /usr/local/cuda,
// /usr/include.
char *kiln_cuda_include_dir(const struct kiln_nvrtc *nvrtc);

#endif
