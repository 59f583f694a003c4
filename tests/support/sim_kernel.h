// sim_kernel: one CUDA kernel compiled by NVRTC and run on the interpreter, for tests that judge
// what sim computes, finds and counts. Whatever goes wrong on the way fails the running cmocka
// test. Not here: plugins and plans; a kernel is launched as the test says.
#ifndef KILN_TESTS_SUPPORT_SIM_KERNEL_H
#define KILN_TESTS_SUPPORT_SIM_KERNEL_H

#include "device/sim/exec.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SIM_SKIPPED = 77 // exit status of a test program that needs NVRTC where there is none
};

struct sim_source {
    const char *name;           // "fap2.cu", as reports call it
    const char *text;           // NULL: that of tests/sim_kernels/<name>
    const char *entry;          // extern "C"
    const char *const *options; // of NVRTC, NULL-ended, or NULL
    int cuda_headers;           // it includes cuda_fp16.h, mma.h: a toolkit must be there
    const char *architecture;   // "compute_90"; NULL: compute_80
};

struct sim_kernel {
    struct kiln_sim *sim;
    struct kiln_sim_code *code;
    struct kiln_sim_report *report;
    struct kiln_ptx_module *module;
    const struct kiln_sim_kernel *entry;
    char *ptx;
};

// Whether kernels can be compiled here; with cuda_headers, whether CUDA's headers are there too.
// Says what is missing.
int sim_can_compile(int cuda_headers);

// Headers of kernels_src are found. The caller ends *kernel with sim_kernel_close.
void sim_kernel_open(struct sim_kernel *kernel, const struct sim_source *source);
void sim_kernel_close(struct sim_kernel *kernel);

// Device memory that holds `data`; memory that nobody wrote.
uint64_t sim_kernel_in(struct sim_kernel *kernel, const char *name, const void *data, size_t bytes);
uint64_t sim_kernel_out(struct sim_kernel *kernel, const char *name, size_t bytes);
void sim_kernel_read(struct sim_kernel *kernel, void *to, uint64_t from, size_t bytes);

// Launches with all checks and counters, and waits. params: as the entry's parameters lie.
void sim_kernel_run(struct sim_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
        uint32_t shared_bytes, const void *params, uint32_t param_bytes);
// Of the one kernel, over all its runs; holds until the next run or call.
const struct kiln_sim_kernel_counts *sim_kernel_counts(struct sim_kernel *kernel);
// Fails the test, and prints them, when there are findings; advice counts as well.
void sim_kernel_expect_silence(struct sim_kernel *kernel);

// The text of a file under the source tree; the caller frees it.
char *sim_read_source(const char *path);
// `text` with `from` made `to`, which must stand in it `times` times; the caller frees it.
char *sim_replace(const char *text, const char *from, const char *to, int times);
// The line, from 1 on, on which the n-th (from 1 on) `word` of the text stands; 0: there is none.
uint32_t sim_line_of(const char *text, const char *word, int n);

// Over kernels with this name in the report: their counts added up. 0: there is none.
int sim_report_total(
        struct kiln_sim_report *report, const char *kernel, struct kiln_sim_kernel_counts *total);
// The requests of the sites of those kernels whose opcode begins with `opcode`, and the worst bank
// conflict of one.
uint64_t sim_report_sites(
        struct kiln_sim_report *report, const char *kernel, const char *opcode, uint32_t *ways);
// Instructions of those kernels on lines of files whose name ends in `file`.
uint64_t sim_report_lines(struct kiln_sim_report *report, const char *kernel, const char *file);
// Tensor-core operations of those kernels whose shape begins with `shape`.
uint64_t sim_report_mma(struct kiln_sim_report *report, const char *kernel, const char *shape);

#endif
