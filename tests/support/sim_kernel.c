// sim_kernel: see the header.
#include "sim_kernel.h"

#include "base/file.h"
#include "base/mem.h"
#include "device/sim/ptx.h"
#include "device/sim/sim.h"
#include "jit/nvrtc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    MAX_OPTIONS = 32,
    MAX_SOURCE = 1 << 22,
    THREADS = 2
};

static struct kiln_nvrtc *nvrtc; // open until the program ends

static void must(enum kiln_status status, const struct kiln_err *err) {
    if (status != KILN_STATUS_OK) {
        fail_msg("%s: %s", kiln_status_name(status), err->text);
    }
}

static const char *source_root(void) {
    const char *root = getenv("KILN_TEST_SRC");
    return root ? root : ".";
}

int sim_can_compile(int cuda_headers) {
    struct kiln_err err = {0};
    if (!nvrtc && kiln_nvrtc_open(&nvrtc, &err) != KILN_STATUS_OK) {
        printf("%s\n", err.text);
        return 0;
    }
    char *folder = cuda_headers ? kiln_cuda_include_dir(nvrtc) : NULL;
    int there = !cuda_headers || folder != NULL;
    if (!there) {
        printf("no CUDA toolkit with cuda_fp16.h and mma.h\n");
    }
    kiln_free(folder);
    return there;
}

char *sim_read_source(const char *path) {
    struct kiln_err err = {0};
    char *whole = kiln_asprintf("%s/%s", source_root(), path), *text;
    size_t size;
    assert_non_null(whole);
    must(kiln_file_read(whole, MAX_SOURCE, &text, &size, &err), &err);
    kiln_free(whole);
    return text;
}

char *sim_replace(const char *text, const char *from, const char *to, int times) {
    size_t size = strlen(text) + 1 + (size_t)times * strlen(to), used = 0;
    char *out = kiln_alloc(size);
    assert_non_null(out);
    int n = 0;
    for (const char *next; (next = strstr(text, from)) != NULL; text = next + strlen(from)) {
        assert_true(++n <= times);
        memcpy(out + used, text, (size_t)(next - text));
        used += (size_t)(next - text);
        memcpy(out + used, to, strlen(to));
        used += strlen(to);
    }
    memcpy(out + used, text, strlen(text) + 1);
    if (n != times) {
        fail_msg("'%s' stands in the source %d times, not %d", from, n, times);
    }
    return out;
}

uint32_t sim_line_of(const char *text, const char *word, int n) {
    uint32_t line = 1;
    for (const char *at = text; *at; at++) {
        if (strncmp(at, word, strlen(word)) == 0 && --n == 0) {
            return line;
        }
        line += *at == '\n';
    }
    return 0;
}

// ---- Compiling ----------------------------------------------------------------------------------
static void compile(struct sim_kernel *kernel, const struct sim_source *source, const char *text) {
    struct kiln_err err = {0};
    const char *architecture = source->architecture ? source->architecture : "compute_80";
    char *target = kiln_asprintf("--gpu-architecture=%s", architecture);
    const char *options[MAX_OPTIONS] = {target, "-std=c++17", "-lineinfo"};
    int n = 3;
    char *ours = kiln_asprintf("--include-path=%s/kernels_src", source_root());
    char *folder = source->cuda_headers ? kiln_cuda_include_dir(nvrtc) : NULL;
    char *theirs = folder ? kiln_asprintf("--include-path=%s", folder) : NULL;
    // A slash in front, or the compiler puts the current folder there.
    char *name = kiln_asprintf("/%s", source->name);
    assert_true(target && ours && name && (theirs || !folder));
    options[n++] = ours;
    if (theirs) {
        options[n++] = theirs;
    }
    for (int i = 0; source->options && source->options[i]; i++) {
        assert_true(n < MAX_OPTIONS);
        options[n++] = source->options[i];
    }
    const struct kiln_nvrtc_program program = {
            .name = name, .text = text, .options = options, .n_options = n, .ptx = 1};
    struct kiln_nvrtc_result result = {0};
    if (kiln_nvrtc_compile(nvrtc, &program, &result, &err) != KILN_STATUS_OK) {
        fail_msg("%s: %s\n%s", source->name, err.text, result.log ? result.log : "");
    }
    kernel->ptx = result.image;
    result.image = NULL;
    kiln_nvrtc_result_finish(&result);
    kiln_free(target);
    kiln_free(ours);
    kiln_free(folder);
    kiln_free(theirs);
    kiln_free(name);
}

void sim_kernel_open(struct sim_kernel *kernel, const struct sim_source *source) {
    struct kiln_err err = {0};
    *kernel = (struct sim_kernel){0};
    char path[256];
    (void)snprintf(path, sizeof(path), "tests/sim_kernels/%s", source->name);
    char *text = source->text ? NULL : sim_read_source(path);
    compile(kernel, source, text ? text : source->text);
    kiln_free(text);
    size_t bytes = strlen(kernel->ptx);
    must(kiln_ptx_open(&kernel->module, source->name, kernel->ptx, bytes, &err), &err);
    kiln_sim_file_names(kernel->module);
    must(kiln_sim_create(&kernel->sim, THREADS, &err), &err);
    must(kiln_sim_report_create(&kernel->report, &err), &err);
    must(kiln_sim_load(kernel->sim, kernel->module, &kernel->code, &err), &err);
    kernel->entry = kiln_sim_find(kernel->code, source->entry);
    if (!kernel->entry) {
        fail_msg("%s has no kernel %s", source->name, source->entry);
    }
}

void sim_kernel_close(struct sim_kernel *kernel) {
    kiln_sim_report_destroy(kernel->report);
    kiln_sim_unload(kernel->sim, kernel->code);
    kiln_sim_destroy(kernel->sim);
    kiln_ptx_close(kernel->module);
    kiln_free(kernel->ptx);
}

// ---- Running ------------------------------------------------------------------------------------
uint64_t sim_kernel_out(struct sim_kernel *kernel, const char *name, size_t bytes) {
    struct kiln_err err = {0};
    uint64_t address = 0;
    must(kiln_sim_alloc(kernel->sim, name, bytes, &address, &err), &err);
    return address;
}

uint64_t sim_kernel_in(
        struct sim_kernel *kernel, const char *name, const void *data, size_t bytes) {
    struct kiln_err err = {0};
    uint64_t address = sim_kernel_out(kernel, name, bytes);
    must(kiln_sim_write(kernel->sim, address, data, bytes, &err), &err);
    return address;
}

void sim_kernel_read(struct sim_kernel *kernel, void *to, uint64_t from, size_t bytes) {
    struct kiln_err err = {0};
    must(kiln_sim_read(kernel->sim, to, from, bytes, &err), &err);
}

void sim_kernel_run(struct sim_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
        uint32_t shared_bytes, const void *params, uint32_t param_bytes) {
    struct kiln_err err = {0};
    struct kiln_sim_launch launch = {.kernel = kernel->entry,
            .shared_bytes = shared_bytes,
            .params = params,
            .param_bytes = param_bytes};
    memcpy(launch.grid, grid, sizeof(launch.grid));
    memcpy(launch.block, block, sizeof(launch.block));
    assert_true(param_bytes >= kiln_sim_param_bytes(kernel->entry));
    const struct kiln_sim_options options = {.checks = KILN_SIM_CHECK_ALL, .counters = 1};
    must(kiln_sim_launch(kernel->sim, &launch, &options, kernel->report, &err), &err);
}

const struct kiln_sim_kernel_counts *sim_kernel_counts(struct sim_kernel *kernel) {
    const struct kiln_sim_kernel_counts *counts;
    assert_int_equal(kiln_sim_kernels(kernel->report, &counts), 1);
    return counts;
}

void sim_kernel_expect_silence(struct sim_kernel *kernel) {
    const struct kiln_sim_finding *found;
    uint32_t n = kiln_sim_findings(kernel->report, &found);
    for (uint32_t i = 0; i < n; i++) {
        print_error("%s\n", found[i].text);
    }
    assert_int_equal(n, 0);
}

// ---- Counts -------------------------------------------------------------------------------------
static void add_counts(struct kiln_sim_counts *to, const struct kiln_sim_counts *from) {
    to->instructions += from->instructions;
    for (int i = 0; i < KILN_SIM_CLASS_COUNT; i++) {
        to->by_class[i] += from->by_class[i];
    }
    to->global_loads += from->global_loads;
    to->global_stores += from->global_stores;
    to->shared_loads += from->shared_loads;
    to->shared_stores += from->shared_stores;
    to->barriers += from->barriers;
}

int sim_report_total(
        struct kiln_sim_report *report, const char *kernel, struct kiln_sim_kernel_counts *total) {
    const struct kiln_sim_kernel_counts *counts;
    uint32_t n = kiln_sim_kernels(report, &counts);
    int found = 0;
    *total = (struct kiln_sim_kernel_counts){0};
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(counts[i].kernel, kernel) == 0) {
            total->launches += counts[i].launches;
            total->blocks += counts[i].blocks;
            total->warps += counts[i].warps;
            add_counts(&total->total, &counts[i].total);
            found++;
        }
    }
    return found;
}

uint64_t sim_report_sites(
        struct kiln_sim_report *report, const char *kernel, const char *opcode, uint32_t *ways) {
    const struct kiln_sim_kernel_counts *counts;
    uint32_t n = kiln_sim_kernels(report, &counts), worst = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; strcmp(counts[i].kernel, kernel) == 0 && k < counts[i].n_sites; k++) {
            const struct kiln_sim_site *site = &counts[i].sites[k];
            if (strncmp(site->opcode, opcode, strlen(opcode)) == 0) {
                sum += site->counts.instructions;
                worst = site->counts.shared_ways > worst ? site->counts.shared_ways : worst;
            }
        }
    }
    if (ways) {
        *ways = worst;
    }
    return sum;
}

static int ends_in(const char *text, const char *end) {
    size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

uint64_t sim_report_lines(struct kiln_sim_report *report, const char *kernel, const char *file) {
    const struct kiln_sim_kernel_counts *counts;
    uint32_t n = kiln_sim_kernels(report, &counts);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; strcmp(counts[i].kernel, kernel) == 0 && k < counts[i].n_lines; k++) {
            const struct kiln_sim_line *line = &counts[i].lines[k];
            sum += ends_in(line->file, file) ? line->counts.instructions : 0;
        }
    }
    return sum;
}

uint64_t sim_report_mma(struct kiln_sim_report *report, const char *kernel, const char *shape) {
    const struct kiln_sim_kernel_counts *counts;
    uint32_t n = kiln_sim_kernels(report, &counts);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; strcmp(counts[i].kernel, kernel) == 0 && k < counts[i].n_mma; k++) {
            const struct kiln_sim_mma *mma = &counts[i].mma[k];
            sum += strncmp(mma->shape, shape, strlen(shape)) == 0 ? mma->count : 0;
        }
    }
    return sum;
}
