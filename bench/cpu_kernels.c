// cpu_kernels: how fast the kernels of the cpu plugin are: GFLOP/s and GB/s by slot, weight type
// and row count, beside the multiply-add peak of the same threads measured in the same run. Run by
// hand; not a test, checks no result.
//
//   bench_cpu_kernels [THREADS [SECONDS_A_CASE [generic]]]
// with KILN_TEST_BUILD naming the build folder.
#ifndef _POSIX_C_SOURCE
#    define _POSIX_C_SOURCE 200809L
#endif
#include "../tests/unit/host_exec.h"

#include <time.h>

static const struct kiln_plugin *plugin;
static struct exec_setup setup;
static double seconds_a_case = 0.3;
static double peak; // flops a second of all threads

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *filled(size_t bytes, uint32_t seed) {
    float *at = kiln_alloc_aligned(64, bytes);
    if (at == NULL) {
        fprintf(stderr, "out of memory for %zu bytes\n", bytes);
        exit(1);
    }
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        at[i] = exec_uniform(&seed);
    }
    return at;
}

#if defined(__x86_64__)
// 10 independent chains of 8-wide fused multiply-adds: what the units give when nothing else is
// asked of them.
__attribute__((target("avx2,fma"))) static void spin(void *arg, uint32_t index, uint32_t worker) {
    typedef float lanes __attribute__((vector_size(32)));
    (void)index;
    (void)worker;
    lanes sum[10] = {{0}};
    lanes factor = {0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F};
    for (int i = 0; i < 2000000; i++) {
        for (int j = 0; j < 10; j++) {
            __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(sum[j]) : "x"(factor));
        }
    }
    *(volatile float *)arg = sum[0][0];
}

static double measure_peak(struct kiln_pool *pool) {
    float out = 0;
    double best = 0;
    for (int i = 0; i < 5 && setup.features != 0; i++) {
        double start = now();
        kiln_pool_run(pool, spin, &out, setup.threads);
        double rate = 2000000.0 * 10 * 16 * setup.threads / (now() - start);
        best = rate > best ? rate : best;
    }
    return best;
}
#else
static double measure_peak(struct kiln_pool *pool) {
    (void)pool;
    return 0;
}
#endif

// Median and best of the runs that fit into the time; the rates are those of the median.
static void measure(struct exec_op *op, const char *label, struct kiln_pool *pool) {
    enum {
        RUNS_MAX = 1000
    };
    static double times[RUNS_MAX];
    struct exec_plan plan = exec_make(plugin, op, label, setup);
    if (plan.result != KILN_RESULT_OK) {
        printf("%-34s %s\n", label, plan.text);
        return;
    }
    exec_launch(&plan, op, pool);
    int n = 0;
    for (double start = now(); n < RUNS_MAX && now() - start < seconds_a_case; n++) {
        double begin = now();
        exec_launch(&plan, op, pool);
        double took = now() - begin;
        int i = n;
        for (; i > 0 && times[i - 1] > took; i--) {
            times[i] = times[i - 1];
        }
        times[i] = took;
    }
    double took = times[n / 2];
    double bytes = plan.launch.bytes_read + plan.launch.bytes_written;
    printf("%-34s %10.1f us (best %10.1f) %8.2f GFLOP/s", label, 1e6 * took, 1e6 * times[0],
            1e-9 * plan.launch.flops / took);
    if (peak > 0) {
        printf(" %5.1f %%", 100 * plan.launch.flops / took / peak);
    }
    printf(" %8.2f GB/s   %s, %d runs\n", 1e-9 * bytes / took, plan.kernel, n);
}

static void bench_matmul(
        const struct exec_type *type, int64_t s, int64_t n, int64_t k, struct kiln_pool *pool) {
    char label[64];
    snprintf(label, sizeof(label), "matmul.%s S%d N%d K%d", type->name, (int)s, (int)n, (int)k);
    size_t blocks = (size_t)(n * k / type->elems);
    unsigned char *weight = filled(blocks * (size_t)type->bytes + 64, 1);
    uint32_t seed = 3;
    exec_fill(type, weight, blocks, &seed);
    float *in = filled((size_t)(s * k) * sizeof(float), 5);
    float *out = filled((size_t)(s * n) * sizeof(float), 7);
    struct exec_op op = exec_op(KILN_OP_MATMUL, s == 1 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL);
    exec_f32(&op, KILN_OPERAND_IN, k, s, in);
    exec_add(&op, KILN_OPERAND_WEIGHT, type->dtype, k, n, type->elems, type->bytes, 0, weight);
    exec_f32(&op, KILN_OPERAND_OUT, n, s, out);
    measure(&op, label, pool);
    kiln_free(weight);
    kiln_free(in);
    kiln_free(out);
}

static void bench_attention(int64_t s, int64_t t, int heads, int kv_heads, int head_size, int half,
        struct kiln_pool *pool) {
    char label[64];
    snprintf(label, sizeof(label), "attention S%d T%d %d:%d hd%d %s", (int)s, (int)t, heads,
            kv_heads, head_size, half ? "f16" : "f32");
    size_t q_bytes = (size_t)(s * heads * head_size) * sizeof(float);
    size_t kv_bytes = (size_t)(t * kv_heads * head_size) * sizeof(float);
    float *q = filled(q_bytes, 1);
    float *out = filled(q_bytes, 1);
    float *k = filled(kv_bytes, 3);
    float *v = filled(kv_bytes, 5);
    int32_t *positions = filled((size_t)s * sizeof(int32_t), 1);
    for (int64_t i = 0; i < s; i++) {
        positions[i] = (int32_t)(t - s + i);
    }
    if (half) {
        memset(k, 0x2c, kv_bytes);
        memset(v, 0x2c, kv_bytes);
    }
    struct exec_op op = exec_op(KILN_OP_ATTENTION, s == 1 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL);
    op.op.n_heads = heads;
    op.op.n_kv_heads = kv_heads;
    op.op.head_size = head_size;
    op.op.scale = 0.125F;
    uint32_t dtype = half ? KILN_DTYPE_F16 : KILN_DTYPE_F32;
    int64_t columns = (int64_t)kv_heads * head_size;
    exec_f32(&op, KILN_OPERAND_Q, (int64_t)heads * head_size, s, q);
    exec_add(&op, KILN_OPERAND_K_CACHE, dtype, columns, t, 1, half ? 2 : 4, 0, k);
    exec_add(&op, KILN_OPERAND_V_CACHE, dtype, columns, t, 1, half ? 2 : 4, 0, v);
    exec_i32(&op, KILN_OPERAND_POSITIONS, s, positions);
    exec_f32(&op, KILN_OPERAND_OUT, (int64_t)heads * head_size, s, out);
    measure(&op, label, pool);
    kiln_free(q);
    kiln_free(out);
    kiln_free(k);
    kiln_free(v);
    kiln_free(positions);
}

static void bench_rowwise(int64_t s, int64_t columns, struct kiln_pool *pool) {
    char label[64];
    size_t bytes = (size_t)(s * columns) * sizeof(float);
    float *a = filled(bytes, 1);
    float *b = filled(bytes, 3);
    float *c = filled(bytes, 5);
    snprintf(label, sizeof(label), "norm S%d D%d", (int)s, (int)columns);
    struct exec_op norm = exec_op(KILN_OP_NORM, KILN_PHASE_PREFILL);
    exec_f32(&norm, KILN_OPERAND_IN, columns, s, a);
    exec_f32(&norm, KILN_OPERAND_WEIGHT, columns, 1, b);
    exec_f32(&norm, KILN_OPERAND_OUT, columns, s, c);
    measure(&norm, label, pool);
    for (uint32_t kind = KILN_ACTIVATION_SILU; kind <= KILN_ACTIVATION_GELU_TANH; kind++) {
        snprintf(label, sizeof(label), "activation %s S%d F%d",
                kind == KILN_ACTIVATION_SILU ? "silu" : "gelu_tanh", (int)s, (int)columns);
        struct exec_op op = exec_op(KILN_OP_ACTIVATION, KILN_PHASE_PREFILL);
        op.op.activation = kind;
        exec_f32(&op, KILN_OPERAND_GATE, columns, s, a);
        exec_f32(&op, KILN_OPERAND_UP, columns, s, b);
        exec_f32(&op, KILN_OPERAND_OUT, columns, s, c);
        measure(&op, label, pool);
    }
    int32_t *index = filled((size_t)s * sizeof(int32_t), 1);
    snprintf(label, sizeof(label), "argmax S%d V%d", (int)s, (int)columns);
    struct exec_op op = exec_op(KILN_OP_ARGMAX, KILN_PHASE_PREFILL);
    exec_f32(&op, KILN_OPERAND_IN, columns, s, a);
    exec_i32(&op, KILN_OPERAND_OUT, s, index);
    measure(&op, label, pool);
    kiln_free(index);
    kiln_free(a);
    kiln_free(b);
    kiln_free(c);
}

static void bench_rope(int64_t s, int heads, int kv_heads, int head_size, struct kiln_pool *pool) {
    char label[64];
    snprintf(label, sizeof(label), "rope_kv S%d %d:%d hd%d", (int)s, heads, kv_heads, head_size);
    int64_t q_columns = (int64_t)heads * head_size;
    int64_t kv_columns = (int64_t)kv_heads * head_size;
    float *q = filled((size_t)(s * q_columns) * sizeof(float), 1);
    float *k = filled((size_t)(s * kv_columns) * sizeof(float), 3);
    float *cache = filled((size_t)(2 * s * kv_columns) * sizeof(float), 5);
    float *freqs = filled((size_t)head_size * sizeof(float), 7);
    int32_t *positions = filled((size_t)s * sizeof(int32_t), 1);
    for (int64_t i = 0; i < s; i++) {
        positions[i] = (int32_t)i;
    }
    struct exec_op op = exec_op(KILN_OP_ROPE_KV, KILN_PHASE_PREFILL);
    op.op.n_heads = heads;
    op.op.n_kv_heads = kv_heads;
    op.op.head_size = op.op.rope_dims = head_size;
    op.op.rope_style = KILN_ROPE_HALVES;
    op.op.rope_scale = 1;
    exec_f32(&op, KILN_OPERAND_Q, q_columns, s, q);
    exec_f32(&op, KILN_OPERAND_K, kv_columns, s, k);
    exec_f32(&op, KILN_OPERAND_V, kv_columns, s, k);
    exec_f32(&op, KILN_OPERAND_ROPE_FREQS, head_size / 2, 1, freqs);
    exec_i32(&op, KILN_OPERAND_POSITIONS, s, positions);
    exec_f32(&op, KILN_OPERAND_OUT, q_columns, s, q);
    exec_f32(&op, KILN_OPERAND_K_CACHE, kv_columns, s, cache);
    exec_f32(&op, KILN_OPERAND_V_CACHE, kv_columns, s, cache + s * kv_columns);
    measure(&op, label, pool);
    kiln_free(q);
    kiln_free(k);
    kiln_free(cache);
    kiln_free(freqs);
    kiln_free(positions);
}

int main(int argc, char **argv) {
    setup.threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : kiln_cpu_count();
    setup.threads = setup.threads == 0 ? 1 : setup.threads;
    seconds_a_case = argc > 2 ? strtod(argv[2], NULL) : seconds_a_case;
    setup.features = argc > 3 && strcmp(argv[3], "generic") == 0 ? 0 : exec_features();
    plugin = exec_open("plugins/cpu/cpu.so");
    struct kiln_pool *pool = exec_pool(setup.threads);
    peak = measure_peak(pool);
    printf("%u threads, fused multiply-add peak %.1f GFLOP/s (f32, 8 lanes)\n", setup.threads,
            1e-9 * peak);
    for (int i = 0; i < EXEC_TYPES; i++) {
        bench_matmul(&exec_types[i], 512, 1536, 1536, pool);
    }
    bench_matmul(&exec_types[7], 512, 4096, 4096, pool);
    bench_matmul(&exec_types[6], 512, 576, 576, pool);
    for (int i = 0; i < EXEC_TYPES; i++) {
        bench_matmul(&exec_types[i], 1, 8192, 4096, pool); // beyond any cache
    }
    bench_matmul(&exec_types[6], 1, 576, 576, pool);
    bench_attention(512, 512, 9, 3, 64, 0, pool);
    bench_attention(512, 512, 28, 4, 128, 0, pool);
    bench_attention(512, 3325, 28, 4, 128, 0, pool);
    bench_attention(512, 3325, 28, 4, 128, 1, pool);
    bench_attention(512, 3325, 4, 1, 256, 0, pool);
    bench_attention(1, 3325, 28, 4, 128, 0, pool);
    bench_attention(1, 3325, 28, 4, 128, 1, pool);
    bench_attention(1, 3325, 9, 3, 64, 0, pool);
    bench_rowwise(512, 1536, pool);
    bench_rowwise(1, 49152, pool);
    bench_rope(512, 9, 3, 64, pool);
    kiln_pool_destroy(pool);
    return 0;
}
