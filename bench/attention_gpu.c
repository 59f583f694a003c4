// attention_gpu: the attention plugin's kernels on a real device: parity with a float64 reference
// element by element, then times by variant and geometry. Run by hand, on a machine with a CUDA
// driver and NVRTC:
//
//   bench_attention_gpu PLUGIN.so compile FOLDER sm_90a     compile all of it; needs no device
//       (16 processes at once, each with BENCH_SHARD=N/16, N from 0: each does its part)
//   bench_attention_gpu PLUGIN.so parity [FOLDER]           exit 1 when an element is out of bounds
//   bench_attention_gpu PLUGIN.so time [FOLDER [CASE ...]]  CASE: "fap2 FA_TQ=128 FA_TKV=32"
//   bench_attention_gpu PLUGIN.so smoke [FOLDER]            few and small cases, for a sanitizer
//
// The reference takes the same f16 inputs. The bound of an element is 2^-11 * sum(p |v|) / sum(p)
// for weights rounded to f16, 2^-11 |o| where the output is f16, and FLOAT_TERM of each for what
// f32 sums and the fast exponential add.
#include "gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double float_term = 1.0 / 32768;
static const unsigned short half_nan = 0x7e00;
static const float untouched = -12345.0F; // what OUT is filled with

enum {
    CACHE_SLACK = 40, // rows behind the last key, filled with NaN
    ROWS_SLACK = 21,  // rows of the bound behind those in use
    FLUSH_BYTES = 256 << 20
};

struct shape {
    int rows, past, heads, kv_heads, head_size, window;
    float softcap;
};

struct data { // one shape's operands, on the host and the device
    struct shape shape;
    int keys, bound; // keys in use; rows of Q and OUT
    float *q;
    unsigned short *k, *v;
    double *want, *magnitude; // OUT and sum(p |v|) / sum(p)
    struct gpu_addresses at;
};

static const struct kiln_plugin *plugin;
static struct kiln_device device;
static gpu_address scratch;
static int compile_only;

static void *take(size_t count, size_t size) {
    void *at = calloc(count ? count : 1, size);
    if (!at) {
        gpu_die("no memory for %zu bytes", count * size);
    }
    return at;
}

// ---- Numbers ----------------------------------------------------------------------------------
static float from_half(unsigned short half) {
    int exponent = half >> 10 & 31;
    float value = exponent ? ldexpf((float)((half & 1023) | 1024), exponent - 25)
                           : ldexpf((float)(half & 1023), -24);
    return half & 0x8000 ? -value : value;
}

// To nearest, ties to even; for values between 2^-14 and 65504, and 0.
static unsigned short to_half(float value) {
    int exponent;
    float fraction = frexpf(fabsf(value), &exponent);
    if (value == 0 || exponent < -13) {
        return 0;
    }
    int bits = (int)rintf(ldexpf(fraction, 11)) + ((exponent + 13) << 10);
    return (unsigned short)(bits | (value < 0 ? 0x8000 : 0));
}

static uint32_t seed = 1;
static float uniform(void) { // -1 .. 1
    seed = seed * 1664525 + 1013904223;
    return (float)(int32_t)seed / 2147483648.0F;
}

static float normal(void) {
    return 1.2F * (uniform() + uniform() + uniform());
}

// ---- A shape's data ---------------------------------------------------------------------------
static size_t q_count(const struct data *data) {
    return (size_t)data->bound * (size_t)data->shape.heads * (size_t)data->shape.head_size;
}

static size_t cache_count(const struct data *data) {
    size_t rows = (size_t)data->keys + CACHE_SLACK;
    return rows * (size_t)data->shape.kv_heads * (size_t)data->shape.head_size;
}

static void reference_row(struct data *data, const float *k, const float *v, int row, int head) {
    const struct shape *s = &data->shape;
    int hd = s->head_size, kv_columns = s->kv_heads * hd;
    int kv = head / (s->heads / s->kv_heads) * hd, last = s->past + row;
    int first = s->window > 0 && last - s->window + 1 > 0 ? last - s->window + 1 : 0;
    size_t at = ((size_t)row * (size_t)s->heads + (size_t)head) * (size_t)hd;
    double *p = take((size_t)last + 1, sizeof(double));
    double top = -HUGE_VAL, sum = 0;
    for (int key = first; key <= last; key++) {
        const float *k_row = k + (size_t)key * (size_t)kv_columns + kv;
        double dot = 0;
        for (int c = 0; c < hd; c++) {
            dot += (double)data->q[at + (size_t)c] * (double)k_row[c];
        }
        dot /= sqrt(hd);
        p[key] = s->softcap > 0 ? (double)s->softcap * tanh(dot / (double)s->softcap) : dot;
        top = p[key] > top ? p[key] : top;
    }
    for (int key = first; key <= last; key++) {
        const float *v_row = v + (size_t)key * (size_t)kv_columns + kv;
        double weight = exp(p[key] - top);
        sum += weight;
        for (int c = 0; c < hd; c++) {
            data->want[at + (size_t)c] += weight * (double)v_row[c];
            data->magnitude[at + (size_t)c] += weight * fabs((double)v_row[c]);
        }
    }
    for (int c = 0; c < hd; c++) {
        data->want[at + (size_t)c] /= sum;
        data->magnitude[at + (size_t)c] /= sum;
    }
    free(p);
}

static void reference(struct data *data) {
    size_t n = cache_count(data);
    float *k = take(n, sizeof(float)), *v = take(n, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        k[i] = from_half(data->k[i]);
        v[i] = from_half(data->v[i]);
    }
    data->want = take(q_count(data), sizeof(double));
    data->magnitude = take(q_count(data), sizeof(double));
    for (int row = 0; row < data->shape.rows; row++) {
        for (int head = 0; head < data->shape.heads; head++) {
            reference_row(data, k, v, row, head);
        }
    }
    free(k);
    free(v);
}

static gpu_address uploaded(const void *from, size_t bytes) {
    gpu_address at = gpu_alloc(bytes);
    gpu_upload(at, from, bytes);
    return at;
}

static struct data make_data(const struct shape *shape) {
    struct data data = {
            .shape = *shape, .keys = shape->rows + shape->past, .bound = shape->rows + ROWS_SLACK};
    size_t n_q = q_count(&data), n_cache = cache_count(&data);
    size_t used = (size_t)data.keys * (size_t)shape->kv_heads * (size_t)shape->head_size;
    int32_t *positions = take((size_t)data.bound, sizeof(int32_t));
    data.q = take(n_q, sizeof(float));
    data.k = take(n_cache, sizeof(unsigned short));
    data.v = take(n_cache, sizeof(unsigned short));
    for (size_t i = 0; i < n_q; i++) {
        data.q[i] = from_half(to_half(normal()));
    }
    for (size_t i = 0; i < n_cache; i++) {
        data.k[i] = i < used ? to_half(normal()) : half_nan;
        data.v[i] = i < used ? to_half(normal()) : half_nan;
    }
    for (int i = 0; i < data.bound; i++) {
        positions[i] = shape->past + i;
    }
    if (!compile_only) {
        data.at.operands[KILN_OPERAND_Q] = uploaded(data.q, n_q * sizeof(float));
        data.at.operands[KILN_OPERAND_K_CACHE] = uploaded(data.k, n_cache * 2);
        data.at.operands[KILN_OPERAND_V_CACHE] = uploaded(data.v, n_cache * 2);
        data.at.operands[KILN_OPERAND_POSITIONS] =
                uploaded(positions, (size_t)data.bound * sizeof(int32_t));
        data.at.operands[KILN_OPERAND_N_TOKENS] = uploaded(&shape->rows, sizeof(int32_t));
        data.at.operands[KILN_OPERAND_KV_LEN] = uploaded(&data.keys, sizeof(int32_t));
        data.at.operands[KILN_OPERAND_OUT] = gpu_alloc(n_q * sizeof(float));
    }
    free(positions);
    return data;
}

static void end_data(struct data *data) {
    for (int i = 0; i < 32; i++) {
        gpu_free(data->at.operands[i]);
    }
    free(data->q);
    free(data->k);
    free(data->v);
    free(data->want);
    free(data->magnitude);
}

// ---- The problem ------------------------------------------------------------------------------
static void describe(struct kiln_tensor *tensor, uint32_t operand, uint32_t dtype, int64_t columns,
        int64_t rows) {
    int64_t elem = dtype == KILN_DTYPE_F16 ? 2 : 4;
    *tensor = (struct kiln_tensor){.struct_size = sizeof(*tensor),
            .operand = operand,
            .dtype = dtype,
            .n_dims = 2,
            .dims = {columns, rows, 1, 1},
            .strides = {elem, elem * columns, elem * columns * rows, elem * columns * rows},
            .alignment = 256};
}

static int32_t plan_for(struct gpu_plan *plan, const struct kiln_variant *variant,
        const struct data *data, const char *settings) {
    const struct shape *s = &data->shape;
    struct kiln_tensor tensors[7];
    const struct kiln_tensor *list[7];
    int64_t columns = (int64_t)s->heads * s->head_size;
    int64_t kv_columns = (int64_t)s->kv_heads * s->head_size, keys = data->keys + CACHE_SLACK;
    describe(&tensors[0], KILN_OPERAND_Q, KILN_DTYPE_F32, columns, data->bound);
    describe(&tensors[1], KILN_OPERAND_K_CACHE, KILN_DTYPE_F16, kv_columns, keys);
    describe(&tensors[2], KILN_OPERAND_V_CACHE, KILN_DTYPE_F16, kv_columns, keys);
    describe(&tensors[3], KILN_OPERAND_POSITIONS, KILN_DTYPE_I32, 1, data->bound);
    describe(&tensors[4], KILN_OPERAND_OUT, KILN_DTYPE_F32, columns, data->bound);
    describe(&tensors[5], KILN_OPERAND_N_TOKENS, KILN_DTYPE_I32, 1, 1);
    describe(&tensors[6], KILN_OPERAND_KV_LEN, KILN_DTYPE_I32, 1, 1);
    for (int i = 0; i < 7; i++) {
        list[i] = &tensors[i];
    }
    const struct kiln_op op = {.struct_size = sizeof(op),
            .kind = KILN_OP_ATTENTION,
            .role = "attention",
            .operands = list,
            .n_operands = 7,
            .n_heads = s->heads,
            .n_kv_heads = s->kv_heads,
            .head_size = s->head_size,
            .window = s->window,
            .scale = 1.0F / sqrtf((float)s->head_size),
            .softcap = s->softcap};
    const struct kiln_op *ops[] = {&op};
    int decode = strcmp(variant->slots[0], "attention.decode") == 0;
    const struct kiln_problem problem = {.struct_size = sizeof(problem),
            .phase = decode ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL,
            .slot = variant->slots[0],
            .ops = ops,
            .n_ops = 1,
            .world = 1};
    return gpu_plan(plan, variant, &problem, &device, s->head_size, settings);
}

struct ready { // a planned and loaded case
    struct gpu_plan plan;
    const struct gpu_function *functions[GPU_MAX_LAUNCHES];
    struct gpu_addresses at;
};

// The variant of "fap2 FA_TQ=64".
static const struct kiln_variant *variant_of(const char *text, const char **settings) {
    char name[64];
    size_t len = strcspn(text, " ");
    if (len >= sizeof(name)) {
        gpu_die("'%s' names no variant", text);
    }
    memcpy(name, text, len);
    name[len] = '\0';
    *settings = text + len;
    return gpu_find_variant(plugin, name);
}

// 0 when the variant declines, or when nothing is to run.
static int prepare(struct ready *ready, const struct data *data, const char *text) {
    const char *settings;
    const struct kiln_variant *variant = variant_of(text, &settings);
    if (plan_for(&ready->plan, variant, data, settings) != KILN_RESULT_OK) {
        printf("  %-52s declines: %s\n", text, ready->plan.text);
        return 0;
    }
    ready->at = data->at;
    for (uint32_t i = 0; i < ready->plan.n_launches; i++) {
        if (compile_only) {
            gpu_compile(variant, &ready->plan.launches[i], &device);
        } else {
            ready->functions[i] = gpu_function(variant, &ready->plan.launches[i], &device);
        }
    }
    for (uint32_t i = 0; !compile_only && i < ready->plan.n_workspaces; i++) {
        ready->at.workspaces[i] = gpu_alloc(ready->plan.workspaces[i]);
        gpu_fill(ready->at.workspaces[i],
                ready->plan.workspace_flags[i] & KILN_WORKSPACE_ZERO ? 0 : 0xff,
                ready->plan.workspaces[i]);
    }
    return !compile_only;
}

static void end_ready(struct ready *ready) {
    for (uint32_t i = 0; i < ready->plan.n_workspaces; i++) {
        gpu_free(ready->at.workspaces[i]);
    }
}

// ---- Parity -----------------------------------------------------------------------------------
static int n_run, n_failed;

// The largest error as a share of its bound; infinity when an element is not finite or one behind
// the rows is written.
static double judge(const struct data *data, const float *out, double *largest) {
    size_t used = q_count(data) / (size_t)data->bound * (size_t)data->shape.rows;
    double worst = 0, scale = 0;
    *largest = 0;
    for (size_t i = 0; i < used; i++) {
        double error = fabs((double)out[i] - data->want[i]);
        double bound = (1.0 / 2048 + float_term) * data->magnitude[i] + 1e-30;
        worst = error / bound > worst || !isfinite(error) ? error / bound : worst;
        if (!isfinite(error)) {
            return HUGE_VAL;
        }
        *largest = error > *largest ? error : *largest;
        scale = fabs(data->want[i]) > scale ? fabs(data->want[i]) : scale;
    }
    for (size_t i = used; i < q_count(data); i++) {
        if (out[i] != untouched) {
            return HUGE_VAL;
        }
    }
    *largest /= scale > 0 ? scale : 1;
    return worst;
}

static void check_case(const struct data *data, const char *text) {
    struct ready ready;
    if (!prepare(&ready, data, text)) {
        return;
    }
    size_t n = q_count(data), bytes = n * sizeof(float);
    float *out = take(n, sizeof(float)), *again = take(n, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        again[i] = untouched;
    }
    gpu_upload(ready.at.operands[KILN_OPERAND_OUT], again, bytes);
    gpu_run(&ready.plan, ready.functions, &ready.at);
    gpu_wait();
    gpu_download(out, ready.at.operands[KILN_OPERAND_OUT], bytes);
    gpu_run(&ready.plan, ready.functions, &ready.at);
    gpu_wait();
    gpu_download(again, ready.at.operands[KILN_OPERAND_OUT], bytes);
    double largest, worst = judge(data, out, &largest);
    int same = memcmp(out, again, bytes) == 0;
    n_run++;
    n_failed += !(worst <= 1) || !same;
    const struct shape *s = &data->shape;
    if (!(worst <= 1) || !same || getenv("BENCH_VERBOSE")) {
        printf("%s %s: rows %d past %d heads %d/%d hd %d window %d cap %g: error / bound %.3f, "
               "normalized %.2e%s\n",
                worst <= 1 && same ? "ok  " : "FAIL", text, s->rows, s->past, s->heads, s->kv_heads,
                s->head_size, s->window, (double)s->softcap, worst, largest,
                same ? "" : ", differs from run to run");
    }
    end_ready(&ready);
    free(out);
    free(again);
}

static const char *const prefill_cases[] = {"naive", "fap1", "fap1 FA_TKV=64 FA_SPAD=0",
        "fap1 FA_TQ=32 FA_SPAD=4", "fap1 FA_TQ=128 FA_LEGACY_SMEM=1", "fap2", "fap2 FA_TKV=16",
        "fap2 FA_SYNC=3 FA_AHEAD=0", "fap2 FA_SYNC=2 FA_AHEAD=0 FA_QREG=1 MIN_BLOCKS=1",
        "fap2 FA_TQ=128 FA_TKV=64 MIN_BLOCKS=1 FA_SYNC=3", "fap2 FA_TQ=16 FA_TKV=48 MIN_BLOCKS=1",
        "fap2 FA_TQ=192 FA_KPAD=0 MIN_BLOCKS=1", "fap2db", "fap2db FA_TQ=48",
        "fap2db FA_TQ=128 FA_WROWS=32 MIN_BLOCKS=1", "fap2db FA_TQ=96 FA_TKV=16 FA_QREG=1"};
static const char *const decode_cases[] = {"naive", "splitkv", "splitkv FA_SPLITS=3",
        "splitkv FA_TKV=16 FA_SPLITS=40 FA_JOIN_WARPS=1", "splitkv FA_TKV=128 FA_KPAD=0 FA_QREG=0",
        "splitkv FA_LAST=1", "splitkv FA_TKV=16 FA_SPLITS=40 FA_LAST=1"};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

// rows, past, heads, KV heads, (head size), window, cap
static const struct shape prefill_shapes[] = {{1, 0, 1, 1, 0, 0, 0}, {15, 0, 3, 1, 0, 0, 0},
        {16, 0, 4, 1, 0, 0, 0}, {17, 31, 7, 1, 0, 0, 0}, {63, 0, 14, 2, 0, 0, 0},
        {64, 64, 3, 3, 0, 0, 0}, {65, 63, 8, 2, 0, 0, 0}, {127, 1, 6, 2, 0, 0, 0},
        {129, 200, 5, 5, 0, 0, 0}, {1000, 0, 7, 1, 0, 0, 0}, {6, 4090, 12, 1, 0, 0, 0},
        {100, 33, 4, 2, 0, 33, 0}, {129, 500, 3, 1, 0, 128, 0}, {70, 0, 2, 1, 0, 1, 0},
        {300, 77, 2, 2, 0, 64, 0}, {65, 30, 4, 1, 0, 0, 20}, {90, 200, 4, 4, 0, 50, 5}};
static const struct shape decode_shapes[] = {{1, 0, 7, 1, 0, 0, 0}, {1, 14, 3, 1, 0, 0, 0},
        {1, 63, 4, 4, 0, 0, 0}, {1, 64, 28, 4, 0, 0, 0}, {1, 65, 15, 5, 0, 0, 0},
        {1, 3324, 28, 4, 0, 0, 0}, {4, 1000, 20, 1, 0, 0, 0}, {3, 129, 32, 1, 0, 0, 0},
        {1, 2000, 8, 1, 0, 512, 0}, {2, 300, 4, 2, 0, 33, 0}, {1, 700, 4, 2, 0, 0, 20}};

static void check_shapes(const struct shape *shapes, size_t n_shapes, const char *const *cases,
        size_t n_cases, int head_size) {
    for (size_t i = 0; i < n_shapes; i++) {
        struct shape shape = shapes[i];
        shape.head_size = head_size;
        struct data data = make_data(&shape);
        if (!compile_only) {
            reference(&data);
        }
        for (size_t k = 0; k < n_cases; k++) {
            check_case(&data, cases[k]);
        }
        end_data(&data);
    }
}

static void parity(int small) {
    static const int head_sizes[] = {64, 128, 256, 96};
    for (size_t i = 0; i < COUNT(head_sizes); i++) {
        int failed = n_failed, run = n_run;
        check_shapes(small ? prefill_shapes + 3 : prefill_shapes, small ? 2 : COUNT(prefill_shapes),
                prefill_cases, COUNT(prefill_cases), head_sizes[i]);
        check_shapes(small ? decode_shapes + 4 : decode_shapes, small ? 1 : COUNT(decode_shapes),
                decode_cases, COUNT(decode_cases), head_sizes[i]);
        printf("parity hd %d: %d cases, %d failed\n", head_sizes[i], n_run - run,
                n_failed - failed);
        fflush(stdout);
    }
}

// ---- Times ------------------------------------------------------------------------------------
static const char *const time_prefill[] = {"fap2", "fap2 FA_AHEAD=0", "fap2 FA_AHEAD=0 FA_SYNC=3",
        "fap2 FA_TKV=16", "fap2 FA_TKV=64", "fap2 FA_TKV=64 MIN_BLOCKS=2", "fap2 MIN_BLOCKS=3",
        "fap2 MIN_BLOCKS=2", "fap2 FA_QREG=1 MIN_BLOCKS=2", "fap2 FA_KPAD=0",
        "fap2 FA_TQ=128 MIN_BLOCKS=2", "fap2 FA_TQ=128 FA_TKV=64 MIN_BLOCKS=1",
        "fap2 FA_TQ=192 MIN_BLOCKS=1", "fap2db", "fap2db MIN_BLOCKS=3", "fap2db MIN_BLOCKS=4",
        "fap2db FA_TKV=64", "fap2db FA_TQ=128 MIN_BLOCKS=1", "fap2db FA_TQ=128 MIN_BLOCKS=2",
        "fap2db FA_TQ=128 FA_TKV=64 MIN_BLOCKS=1", "fap2db FA_TQ=48",
        "fap2db FA_TQ=128 FA_WROWS=32 MIN_BLOCKS=2", "fap2db FA_TQ=128 FA_WROWS=32 MIN_BLOCKS=1",
        "fap2db FA_TQ=192 FA_WROWS=32 MIN_BLOCKS=1", "fap2db FA_TQ=64 FA_WROWS=32 MIN_BLOCKS=4",
        "fap2db FA_TQ=128 FA_TKV=64 FA_WROWS=32 MIN_BLOCKS=1", "fap1", "fap1 FA_TKV=64",
        "fap1 FA_LEGACY_SMEM=1", "fap1 FA_SPAD=0", "fap1 FA_SPAD=4", "naive"};
static const char *const time_decode[] = {"splitkv", "splitkv FA_SPLITS=16", "splitkv FA_SPLITS=32",
        "splitkv FA_SPLITS=52", "splitkv FA_TKV=32", "splitkv FA_TKV=128", "naive"};

static void time_case(const struct data *data, const char *text) {
    struct ready ready;
    if (!prepare(&ready, data, text)) {
        return;
    }
    const struct gpu_launch *first = &ready.plan.launches[0];
    struct gpu_figures figures = gpu_figures(ready.functions[0], first);
    double warm = gpu_time(&ready.plan, ready.functions, &ready.at, 30, scratch, 0);
    double cold = gpu_time(&ready.plan, ready.functions, &ready.at, 15, scratch, FLUSH_BYTES);
    printf("  %-52s %9.1f %9.1f %7.1f %5d %5d %7u%s %4d %5u\n", text, warm, cold,
            first->record.flops / warm * 1e-6, figures.registers, figures.local_bytes,
            first->record.shared_bytes,
            figures.layout_bytes && figures.layout_bytes != first->record.shared_bytes ? "*" : " ",
            figures.blocks_sm, first->record.block[0] / 32);
    fflush(stdout);
    end_ready(&ready);
}

static void time_shape(const struct shape *shape, const char *const *cases, size_t n_cases) {
    struct data data = make_data(shape);
    // As in a run: the bounds are the values in use, but for the cache.
    data.bound = shape->rows;
    printf("rows %d past %d, %d heads, %d KV heads, hd %d, window %d\n"
           "  %-52s %9s %9s %7s %5s %5s %8s %4s %5s\n",
            shape->rows, shape->past, shape->heads, shape->kv_heads, shape->head_size,
            shape->window, "variant and geometry (* over-request)", "warm us", "cold us", "TFLOP/s",
            "regs", "local", "smem", "b/SM", "warps");
    for (size_t i = 0; i < n_cases; i++) {
        time_case(&data, cases[i]);
    }
    end_data(&data);
}

static void times(const char *const *cases, size_t n_cases) {
    static const struct shape prefill = {3325, 0, 28, 4, 128, 0, 0};
    static const struct shape shorter = {512, 0, 28, 4, 128, 0, 0};
    static const struct shape narrow = {3325, 0, 32, 8, 64, 0, 0};
    static const struct shape wide = {3325, 0, 4, 1, 256, 512, 0};
    static const struct shape decode = {1, 3324, 28, 4, 128, 0, 0};
    static const struct shape decode_long = {1, 32000, 28, 4, 128, 0, 0};
    if (n_cases) {
        const char *settings;
        int decodes = strcmp(variant_of(cases[0], &settings)->slots[0], "attention.decode") == 0;
        time_shape(decodes ? &decode : &prefill, cases, n_cases);
        return;
    }
    time_shape(&prefill, time_prefill, COUNT(time_prefill));
    time_shape(&shorter, time_prefill, 14);
    static const char *const defaults[] = {"fap2", "fap2 MIN_BLOCKS=2", "fap2 MIN_BLOCKS=1",
            "fap2db", "fap2db FA_TQ=128 MIN_BLOCKS=1", "fap1", "fap1 MIN_BLOCKS=1"};
    time_shape(&narrow, defaults, COUNT(defaults));
    time_shape(&wide, defaults, COUNT(defaults));
    time_shape(&decode, time_decode, COUNT(time_decode));
    time_shape(&decode_long, time_decode, COUNT(time_decode));
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[2] : "", *folder = argc > 3 ? argv[3] : NULL;
    compile_only = strcmp(what, "compile") == 0;
    if (argc < 3 || (compile_only && argc < 5) ||
            (!compile_only && strcmp(what, "parity") != 0 && strcmp(what, "time") != 0 &&
                    strcmp(what, "smoke") != 0)) {
        fprintf(stderr,
                "usage: %s PLUGIN.so compile FOLDER TARGET | parity|smoke [FOLDER] | "
                "time [FOLDER [CASE ...]]\n",
                argv[0]);
        return 2;
    }
    plugin = gpu_load_plugin(argv[1]);
    if (compile_only) {
        gpu_describe_target(&device, argv[4], folder);
        parity(0);
        times(NULL, 0);
        return 0;
    }
    gpu_open(&device, folder);
    printf("%s, %s, %d multiprocessors\n", device.name, device.target, device.sm_count);
    if (strcmp(what, "time") == 0) {
        scratch = gpu_alloc(FLUSH_BYTES);
        times((const char *const *)argv + (argc > 4 ? 4 : argc), argc > 4 ? (size_t)argc - 4 : 0);
        return 0;
    }
    parity(strcmp(what, "smoke") == 0);
    printf("%d cases, %d failed\n", n_run, n_failed);
    return n_failed != 0;
}
