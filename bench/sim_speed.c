// sim_speed [ROWS] [KERNELS_SRC]: warp instructions a second of the sim device on prefill
// attention, with checks off and with all of them, and the largest error against f64. Compiles
// KERNELS_SRC/attention/fap2.cu (kernels_src of the current folder unless said otherwise) by NVRTC
// for sm_80, with tiles of 64, f32 in and out.
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/pool.h"
#include "device/sim/exec.h"
#include "device/sim/ptx.h"
#include "jit/nvrtc.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attention/fa_args.cuh"

enum {
    HEADS = 4,
    KV_HEADS = 2,
    HEAD = 64,
    TILE = 64,
    SHARED = 27648,
    REPEATS = 3,
    MAX_SOURCE = 1 << 20,
};

struct params {
    uint64_t q, k, v, positions, out, n_tokens, kv_len;
    struct fa_args args;
};

struct data {
    uint32_t rows;
    float *q, *out;  // (rows, HEADS * HEAD)
    uint16_t *k, *v; // (rows, KV_HEADS * HEAD) f16
    int32_t *at;     // (rows)
};

static void must(enum kiln_status status, const struct kiln_err *err) {
    if (status != KILN_STATUS_OK) {
        fprintf(stderr, "sim_speed: %s\n", err->text);
        exit(kiln_status_exit_code(status));
    }
}

// Numbers of 1/16 from -1 to 1, which an f16 holds: the float and its f16 bits.
static float number(uint32_t *seed, uint16_t *half) {
    *seed = *seed * 1664525 + 1013904223;
    int32_t n = (int32_t)(*seed >> 16) % 17, e = 0;
    float value = (float)n / 16;
    int negative = *seed >> 31;
    if (n > 0) {
        int top = 31 - __builtin_clz((unsigned)n);
        e = (top - 4 + 15) << 10 | (n << (10 - top) & 1023);
    }
    if (half) {
        *half = (uint16_t)(e | negative << 15);
    }
    return negative ? -value : value;
}

static float half_value(uint16_t half) {
    int exponent = half >> 10 & 31;
    float value = exponent ? ldexpf((float)(1024 + (half & 1023)), exponent - 25) : 0;
    return half & 0x8000 ? -value : value;
}

static int make(struct data *d, uint32_t rows) {
    uint32_t seed = 1;
    size_t nq = (size_t)rows * HEADS * HEAD, nk = (size_t)rows * KV_HEADS * HEAD;
    d->rows = rows;
    d->q = kiln_alloc(nq * sizeof(float));
    d->out = kiln_alloc(nq * sizeof(float));
    d->k = kiln_alloc(nk * sizeof(uint16_t));
    d->v = kiln_alloc(nk * sizeof(uint16_t));
    d->at = kiln_alloc(rows * sizeof(int32_t));
    if (!d->q || !d->out || !d->k || !d->v || !d->at) {
        return 0;
    }
    for (size_t i = 0; i < nq; i++) {
        d->q[i] = number(&seed, NULL);
    }
    for (size_t i = 0; i < nk; i++) {
        (void)number(&seed, &d->k[i]);
        (void)number(&seed, &d->v[i]);
    }
    for (uint32_t i = 0; i < rows; i++) {
        d->at[i] = (int32_t)i;
    }
    return 1;
}

// The largest error of one row in every 17, against f64.
static double worst_error(const struct data *d) {
    double worst = 0, *weight = kiln_alloc(d->rows * sizeof(double));
    for (uint32_t row = 0; weight && row < d->rows; row += 17) {
        uint32_t head = row % HEADS, kv = head / (HEADS / KV_HEADS);
        const float *q = d->q + ((size_t)row * HEADS + head) * HEAD;
        double sum = 0;
        for (uint32_t j = 0; j <= row; j++) {
            double score = 0;
            for (uint32_t e = 0; e < HEAD; e++) {
                score += (double)q[e] * (double)half_value(d->k[(j * KV_HEADS + kv) * HEAD + e]);
            }
            weight[j] = exp(score * 0.125);
            sum += weight[j];
        }
        for (uint32_t e = 0; e < HEAD; e++) {
            double value = 0;
            for (uint32_t j = 0; j <= row; j++) {
                value += weight[j] * (double)half_value(d->v[(j * KV_HEADS + kv) * HEAD + e]);
            }
            double error =
                    fabs(value / sum - (double)d->out[((size_t)row * HEADS + head) * HEAD + e]);
            worst = error > worst ? error : worst;
        }
    }
    kiln_free(weight);
    return worst;
}

static uint64_t upload(struct kiln_sim *sim, const char *name, const void *from, size_t bytes) {
    struct kiln_err err = {0};
    uint64_t address = 0;
    must(kiln_sim_alloc(sim, name, bytes, &address, &err), &err);
    must(kiln_sim_write(sim, address, from, bytes, &err), &err);
    return address;
}

// Of all threads: what others on the machine take is not in it.
static double cpu_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void measure(struct kiln_sim *sim, const struct kiln_sim_launch *launch, uint32_t checks,
        const char *what) {
    struct kiln_err err = {0};
    double best = 0, of_core = 0;
    for (int i = 0; i < REPEATS; i++) {
        struct kiln_sim_report *report = NULL;
        must(kiln_sim_report_create(&report, &err), &err);
        const struct kiln_sim_options options = {.checks = checks};
        double start = kiln_clock_seconds(), used = cpu_seconds();
        must(kiln_sim_launch(sim, launch, &options, report, &err), &err);
        double n = (double)kiln_sim_instructions(report);
        double rate = n / (kiln_clock_seconds() - start), core = n / (cpu_seconds() - used);
        best = rate > best ? rate : best;
        of_core = core > of_core ? core : of_core;
        if (kiln_sim_faults(report)) {
            const struct kiln_sim_finding *findings = NULL;
            (void)kiln_sim_findings(report, &findings);
            printf("%s\n", findings[0].text);
        }
        kiln_sim_report_destroy(report);
    }
    printf("%-12s %6.1f million warp instructions a second, %.1f a second of a core\n", what,
            best * 1e-6, of_core * 1e-6);
}

static void run(const struct kiln_ptx_module *module, struct data *d) {
    struct kiln_err err = {0};
    struct kiln_sim *sim = NULL;
    struct kiln_sim_code *code = NULL;
    size_t q_bytes = (size_t)d->rows * HEADS * HEAD * sizeof(float);
    size_t k_bytes = (size_t)d->rows * KV_HEADS * HEAD * sizeof(uint16_t);
    must(kiln_sim_create(&sim, kiln_cpu_count(), &err), &err);
    must(kiln_sim_load(sim, module, &code, &err), &err);
    memset(d->out, 0, q_bytes);
    struct params params = {.q = upload(sim, "q", d->q, q_bytes),
            .k = upload(sim, "k", d->k, k_bytes),
            .v = upload(sim, "v", d->v, k_bytes),
            .positions = upload(sim, "positions", d->at, d->rows * sizeof(int32_t)),
            .out = upload(sim, "out", d->out, q_bytes),
            .args = {.q_stride = HEADS * HEAD,
                    .out_stride = HEADS * HEAD,
                    .k_stride = KV_HEADS * HEAD,
                    .v_stride = KV_HEADS * HEAD,
                    .rows = (int)d->rows,
                    .keys = (int)d->rows,
                    .heads = HEADS,
                    .kv_heads = KV_HEADS,
                    .head_size = HEAD,
                    .to_log2 = 0.125f * 1.44269504f}};
    const struct kiln_sim_launch launch = {.kernel = kiln_sim_find(code, "fap2"),
            .grid = {(d->rows + TILE - 1) / TILE, HEADS, 1},
            .block = {TILE / 16 * 32, 1, 1},
            .shared_bytes = SHARED,
            .params = &params,
            .param_bytes = sizeof(params)};
    if (!launch.kernel) {
        fprintf(stderr, "sim_speed: %s has no kernel fap2\n", module->name);
        exit(3);
    }
    printf("fap2, %u rows and keys, %d heads of %d, %u threads\n", d->rows, HEADS, HEAD,
            kiln_cpu_count());
    measure(sim, &launch, 0, "checks off");
    measure(sim, &launch, KILN_SIM_CHECK_ALL, "checks on");
    must(kiln_sim_read(sim, d->out, params.out, q_bytes, &err), &err);
    printf("largest error %.1e\n", worst_error(d));
    kiln_sim_unload(sim, code);
    kiln_sim_destroy(sim);
}

static char *compile(const char *folder) {
    struct kiln_err err = {0};
    struct kiln_nvrtc *nvrtc = NULL;
    struct kiln_nvrtc_result result = {0};
    char *path = kiln_asprintf("%s/attention/fap2.cu", folder), *text = NULL;
    char *include = kiln_asprintf("--include-path=%s", folder);
    size_t size;
    if (!path || !include) {
        must(kiln_err_nomem(&err, "the compiler's options"), &err);
    }
    must(kiln_file_read(path, MAX_SOURCE, &text, &size, &err), &err);
    must(kiln_nvrtc_open(&nvrtc, &err), &err);
    const char *options[] = {include, "--gpu-architecture=compute_80", "-std=c++17", "-lineinfo",
            "-DFA_HD=64", "-DFA_TQ=64", "-DFA_TKV=64", "-DFA_KPAD=8", "-DFA_SYNC=2", "-DFA_AHEAD=1",
            "-DFA_QREG=1", "-DFA_Q_F16=0", "-DFA_OUT_F16=0", "-DFA_WINDOW=0", "-DFA_SOFTCAP=0",
            "-DMIN_BLOCKS=1", "-DKILN_SMEM=27648"};
    const struct kiln_nvrtc_program program = {.name = "/fap2.cu",
            .text = text,
            .options = options,
            .n_options = sizeof(options) / sizeof(options[0]),
            .ptx = 1};
    enum kiln_status status = kiln_nvrtc_compile(nvrtc, &program, &result, &err);
    if (status != KILN_STATUS_OK && result.log) {
        fprintf(stderr, "%s\n", result.log);
    }
    must(status, &err);
    char *ptx = result.image;
    result.image = NULL;
    kiln_nvrtc_result_finish(&result);
    kiln_nvrtc_close(nvrtc);
    kiln_free(text);
    kiln_free(include);
    kiln_free(path);
    return ptx;
}

int main(int argc, char **argv) {
    struct kiln_err err = {0};
    struct kiln_ptx_module *module = NULL;
    struct data data = {0};
    uint32_t rows = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1024;
    if (rows == 0 || rows > 65536 || argc > 3) {
        fprintf(stderr, "usage: sim_speed [ROWS] [KERNELS_SRC]\n");
        return 2;
    }
    char *ptx = compile(argc > 2 ? argv[2] : "kernels_src");
    must(kiln_ptx_open(&module, "fap2.cu", ptx, strlen(ptx), &err), &err);
    if (!make(&data, rows)) {
        must(kiln_err_nomem(&err, "the test's data"), &err);
    }
    run(module, &data);
    kiln_ptx_close(module);
    kiln_free(data.q);
    kiln_free(data.out);
    kiln_free(data.k);
    kiln_free(data.v);
    kiln_free(data.at);
    kiln_free(ptx);
    return 0;
}
