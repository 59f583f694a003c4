// matmul_gpu: checks and times the plugin matmul on a GPU: parity of every variant and weight type
// over odd shapes against float64 on the host, then the shapes of a 7B model with TFLOP/s, GB/s and
// percent of ceiling. Run by hand.
//
//   bench_matmul_gpu MATMUL.so [check|small|smoke|time|all [VARIANT [TYPE]]] [NAME=VALUE ...]
//
// NAME=VALUE: geometry of VARIANT.
//
// Ends with 1 when a case is out of its bound, 4 when the device or a compilation fails.
//
// The bound of an element, with f16 operands: both rounded to 11 bits (2^-10 of sum |a||w|, and
// what f16's subnormals lose), f32 sums (2^-20 of it); gemv: f32 alone, whose sums of quants are
// shifted by up to 160 steps (2^-18 of sum |a| times the row's largest |w|), and with block types
// activations of 16 bits (2^-17 of sum |w| times the largest |a|), gemv_q8 of 8 bits (2^-8). The
// same bits twice, and not a byte written behind the rows in use.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include "gpu_harness.h"

#include "../plugins/cpu/dequant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GUARD = 4096, // bytes behind OUT
    SETTINGS = 16
};

static const struct kiln_device *device;
static const struct kiln_plugin *plugin;
static struct gpu_value settings[SETTINGS];
static uint32_t n_settings;
static int failures, cases;
static double activation_step; // of gemv's integers: half a step, relative to the largest

// ---- Weights ------------------------------------------------------------------------------------
static const uint32_t types[] = {KILN_DTYPE_Q4_K, KILN_DTYPE_Q6_K, KILN_DTYPE_Q5_K, KILN_DTYPE_Q4_0,
        KILN_DTYPE_Q4_1, KILN_DTYPE_Q5_0, KILN_DTYPE_Q8_0, KILN_DTYPE_F16, KILN_DTYPE_BF16,
        KILN_DTYPE_F32};

static void put_half(unsigned char *at, float value) {
    uint16_t half = cpu_f32_to_f16(value);
    memcpy(at, &half, sizeof(half));
}

// Random blocks whose values are about 0.02 wide.
static void fill_block(uint32_t dtype, unsigned char *at, int bytes) {
    float value = gpu_random_normal() * 0.03F;
    uint32_t bits;
    switch (dtype) {
    case KILN_DTYPE_F32:
        memcpy(at, &value, 4);
        return;
    case KILN_DTYPE_F16:
        put_half(at, value);
        return;
    case KILN_DTYPE_BF16:
        memcpy(&bits, &value, 4);
        at[0] = (unsigned char)(bits >> 16);
        at[1] = (unsigned char)(bits >> 24);
        return;
    default:
        break;
    }
    for (int i = 0; i < bytes; i++) {
        at[i] = (unsigned char)gpu_random_bits();
    }
    float d = 0.004F * (0.5F + (float)(gpu_random_bits() & 255) / 256.0F);
    switch (dtype) {
    case KILN_DTYPE_Q4_K:
    case KILN_DTYPE_Q5_K:
        put_half(at, d / 64);
        put_half(at + 2, d / 16);
        break;
    case KILN_DTYPE_Q6_K:
        put_half(at + 208, d / 256);
        break;
    case KILN_DTYPE_Q4_1:
        put_half(at, d);
        put_half(at + 2, -8 * d);
        break;
    default:
        put_half(at, dtype == KILN_DTYPE_Q8_0 ? d / 16 : d);
        break;
    }
}

static unsigned char *make_weights(const struct cpu_quant *quant, int64_t n, int64_t k) {
    int64_t blocks = n * (k / quant->elems);
    unsigned char *at = gpu_get((size_t)(blocks * quant->bytes));
    for (int64_t i = 0; i < blocks; i++) {
        fill_block(quant->dtype, at + i * quant->bytes, quant->bytes);
    }
    return at;
}

// ---- Parity -------------------------------------------------------------------------------------
struct shape {
    int64_t rows, n, k;
    int64_t bound; // 0: rows; else the bound of rows that N_TOKENS says are in use
    int bias;
    int residual;    // 2: OUT is RESIDUAL
    int weight_skew; // bytes from an aligned address
    int f16_in;
    float large; // 0, or what row 0's first 32 activations are
};

struct data {
    const struct cpu_quant *quant;
    unsigned char *weight;
    float *w; // dequantized
    float *in, *bias, *residual;
};

static float *random_floats(int64_t count, float scale) {
    float *at = gpu_get((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        at[i] = gpu_random_normal() * scale;
    }
    return at;
}

static void make_data(struct data *data, uint32_t dtype, const struct shape *shape) {
    data->quant = cpu_quant_find(dtype);
    data->weight = make_weights(data->quant, shape->n, shape->k);
    data->w = gpu_get((size_t)(shape->n * shape->k) * sizeof(float));
    int64_t row = shape->k / data->quant->elems * data->quant->bytes;
    for (int64_t i = 0; i < shape->n; i++) {
        data->quant->dequant(data->weight + i * row, data->w + i * shape->k, shape->k);
    }
    data->in = random_floats(shape->rows * shape->k, 1);
    for (int64_t i = 0; shape->large != 0 && i < shape->k; i++) {
        data->in[i] = i < 32 ? shape->large : 0;
    }
    for (int64_t i = 0; shape->f16_in && i < shape->rows * shape->k; i++) {
        data->in[i] = cpu_f16_to_f32(cpu_f32_to_f16(data->in[i]));
    }
    data->bias = random_floats(shape->n, 1);
    data->residual = random_floats(shape->rows * shape->n, 1);
}

static void free_data(struct data *data) {
    free(data->weight);
    free(data->w);
    free(data->in);
    free(data->bias);
    free(data->residual);
}

// |got - true| as a part of the bound; NaN counts as infinitely far.
static double off_by(const struct data *data, const struct shape *shape, int gemv, int64_t r,
        int64_t c, float got) {
    const float *a = data->in + r * shape->k;
    const float *w = data->w + c * shape->k;
    double sum = 0, size = 0, all_a = 0, all_w = 0, largest = 0, largest_a = 0;
    for (int64_t i = 0; i < shape->k; i++) {
        double product = (double)a[i] * (double)w[i];
        sum += product;
        size += fabs(product);
        all_a += fabs((double)a[i]);
        all_w += fabs((double)w[i]);
        largest = fmax(largest, fabs((double)w[i]));
        largest_a = fmax(largest_a, fabs((double)a[i]));
    }
    // gemv multiplies block types by activations of 16 bits, relative to the largest nearby.
    double bound =
            gemv ? size * 0x1p-18 + all_a * largest * 0x1p-18 +
                            (data->quant->elems > 1 ? all_w * largest_a * activation_step : 0)
                 : size * (0x1p-10 + 0x1p-20) + all_a * 0x1p-25 +
                            all_w * fmin(0x1p-25, largest_a) * fmax(1, largest_a / 16384);
    double extra = (shape->bias ? (double)data->bias[c] : 0) +
                   (shape->residual ? (double)data->residual[r * shape->n + c] : 0);
    bound += (fabs(sum) + fabs(extra) + 1e-30) * 0x1p-21;
    double off = fabs((double)got - (sum + extra)) / bound;
    return off <= 1e30 ? off : 1e30;
}

static double compare(const struct data *data, const struct shape *shape, int gemv,
        const float *out, int64_t *worst) {
    int64_t total = shape->rows * shape->n;
    int64_t step = 1 + total * shape->k / 20000000;
    double most = 0;
    *worst = 0;
    for (int64_t i = 0; i < total; i++) {
        int64_t r = i / shape->n;
        int64_t c = i % shape->n;
        int edge = r + 1 >= shape->rows && (c + 2 >= shape->n || c % 64 == 0);
        if (i % step != 0 && !edge && isfinite(out[i])) {
            continue;
        }
        double off = off_by(data, shape, gemv, r, c, out[i]);
        if (off > most) {
            most = off;
            *worst = i;
        }
    }
    return most;
}

struct buffers {
    uint64_t in, weight, weight_base, bias, residual, out, n_tokens;
    size_t out_bytes; // with the rows behind and the guard
};

static void upload_in(
        struct buffers *on, const struct data *data, const struct shape *shape, int64_t bound) {
    int64_t count = shape->rows * shape->k;
    size_t size = shape->f16_in ? 2 : 4;
    on->in = gpu_alloc((size_t)(bound * shape->k) * size);
    gpu_fill(on->in, 0xff, (size_t)(bound * shape->k) * size); // NaN behind the rows in use
    if (!shape->f16_in) {
        gpu_upload(on->in, data->in, (size_t)count * 4);
        return;
    }
    uint16_t *halves = gpu_get((size_t)count * 2);
    for (int64_t i = 0; i < count; i++) {
        halves[i] = cpu_f32_to_f16(data->in[i]);
    }
    gpu_upload(on->in, halves, (size_t)count * 2);
    free(halves);
}

static void upload(struct buffers *on, const struct data *data, const struct shape *shape) {
    int64_t bound = shape->bound != 0 ? shape->bound : shape->rows;
    size_t weight =
            (size_t)(shape->n * (shape->k / data->quant->elems)) * (size_t)data->quant->bytes;
    upload_in(on, data, shape, bound);
    on->weight_base = gpu_alloc(weight + 64);
    gpu_fill(on->weight_base, 0xff, weight + 64);
    on->weight = on->weight_base + (uint64_t)shape->weight_skew;
    gpu_upload(on->weight, data->weight, weight);
    on->bias = gpu_copy(data->bias, (size_t)shape->n * 4);
    on->residual = gpu_copy(data->residual, (size_t)(shape->rows * shape->n) * 4);
    on->out_bytes = (size_t)(bound * shape->n) * 4 + GUARD;
    on->out = gpu_alloc(on->out_bytes);
    int32_t in_use = (int32_t)shape->rows;
    on->n_tokens = gpu_copy(&in_use, sizeof(in_use));
}

static void free_buffers(struct buffers *on) {
    gpu_free(on->in);
    gpu_free(on->weight_base);
    gpu_free(on->bias);
    gpu_free(on->residual);
    gpu_free(on->out);
    gpu_free(on->n_tokens);
}

static void build_op(struct gpu_op *op, const struct buffers *on, const struct data *data,
        const struct shape *shape, int gemv) {
    int64_t bound = shape->bound != 0 ? shape->bound : shape->rows;
    gpu_op_begin(op, KILN_OP_MATMUL, gemv ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL);
    gpu_op_add(op, KILN_OPERAND_IN, shape->f16_in ? KILN_DTYPE_F16 : KILN_DTYPE_F32, shape->k,
            bound, 1, shape->f16_in ? 2 : 4, 0, on->in);
    gpu_op_add(op, KILN_OPERAND_WEIGHT, data->quant->dtype, shape->k, shape->n, data->quant->elems,
            data->quant->bytes, 0, on->weight);
    if (shape->bias) {
        gpu_op_f32(op, KILN_OPERAND_BIAS, shape->n, 1, on->bias);
    }
    if (shape->residual) {
        gpu_op_f32(op, KILN_OPERAND_RESIDUAL, shape->n, bound,
                shape->residual == 2 ? on->out : on->residual);
    }
    gpu_op_f32(op, KILN_OPERAND_OUT, shape->n, bound, on->out);
    if (shape->bound != 0) {
        gpu_op_bound(op, on->n_tokens);
    }
}

static void run_into(const struct gpu_planned *planned, const struct buffers *on,
        const struct data *data, const struct shape *shape, unsigned char *out) {
    size_t used = (size_t)(shape->rows * shape->n) * 4;
    gpu_fill(on->out, 0xa5, on->out_bytes);
    if (shape->residual == 2) {
        gpu_upload(on->out, data->residual, used);
    }
    gpu_launch(planned);
    gpu_sync();
    gpu_download(out, on->out, on->out_bytes);
}

static void check_case(const struct kiln_variant *variant, uint32_t dtype, struct shape shape) {
    int gemv = strncmp(variant->name, "gemv", 4) == 0;
    struct data data;
    struct buffers on;
    struct gpu_op op;
    const char *why = "";
    make_data(&data, dtype, &shape);
    upload(&on, &data, &shape);
    build_op(&op, &on, &data, &shape, gemv);
    struct gpu_planned *planned = gpu_plan_op(variant, &op, settings, n_settings, &why);
    if (planned == NULL) {
        printf("%-12s %-5s declined: %s\n", variant->name, data.quant->name, why);
    } else {
        unsigned char *out = gpu_get(on.out_bytes);
        unsigned char *again = gpu_get(on.out_bytes);
        int64_t worst;
        run_into(planned, &on, &data, &shape, out);
        run_into(planned, &on, &data, &shape, again);
        double off = compare(&data, &shape, gemv, (const float *)(const void *)out, &worst);
        int differs = memcmp(out, again, on.out_bytes) != 0;
        int behind = 0;
        for (size_t i = (size_t)(shape.rows * shape.n) * 4; i < on.out_bytes; i++) {
            behind |= out[i] != 0xa5;
        }
        cases++;
        if (off > 1 || differs || behind) {
            failures++;
            printf("FAILED %s %s rows %lld n %lld k %lld bound %lld bias %d residual %d skew %d "
                   "f16 %d "
                   "large %g: %.3g of the bound at %lld%s%s\n",
                    variant->name, data.quant->name, (long long)shape.rows, (long long)shape.n,
                    (long long)shape.k, (long long)shape.bound, shape.bias, shape.residual,
                    shape.weight_skew, shape.f16_in, (double)shape.large, off, (long long)worst,
                    differs ? ", not the same twice" : "", behind ? ", wrote behind" : "");
        } else if (getenv("VERBOSE") != NULL) {
            printf("ok %s %s rows %lld n %lld k %lld: %.3g\n", variant->name, data.quant->name,
                    (long long)shape.rows, (long long)shape.n, (long long)shape.k, off);
        }
        free(out);
        free(again);
        gpu_planned_free(planned);
    }
    free_buffers(&on);
    free_data(&data);
    fflush(stdout);
}

static int64_t fit_k(uint32_t dtype, int64_t k) {
    int64_t elems = cpu_quant_find(dtype)->elems;
    return k < elems ? elems : k - k % elems;
}

// most: products of the largest shape of the grid, 0: no limit and the long rows too.
static void check_type(const struct kiln_variant *variant, uint32_t dtype, int64_t most) {
    static const int64_t rows[] = {1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 129, 1000};
    static const int64_t outputs[] = {1, 3, 4, 33, 64, 1000};
    static const int64_t inputs[] = {32, 256, 512, 4096};
    static const float large[] = {2047.0F, 2048.0F, -2048.0F, 100000.0F, 1e30F, 1e-30F};
    int gemv = strncmp(variant->name, "gemv", 4) == 0;
    int64_t k1 = fit_k(dtype, 256);
    int plain = cpu_quant_find(dtype)->elems == 1;
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        for (size_t n = 0; n < sizeof(outputs) / sizeof(outputs[0]); n++) {
            for (size_t k = 0; k < sizeof(inputs) / sizeof(inputs[0]); k++) {
                int64_t work = rows[r] * outputs[n] * inputs[k];
                int heavy = work > 40000000 && (r + n + k) % 3 != 0;
                if ((gemv && rows[r] > 17) || (most != 0 && work > most) || heavy) {
                    continue;
                }
                check_case(variant, dtype,
                        (struct shape){.rows = rows[r],
                                .n = outputs[n],
                                .k = fit_k(dtype, inputs[k]),
                                .bias = (int)((r + k) % 2),
                                .residual = (int)((r + n + k) % 3)});
            }
        }
    }
    for (int64_t m = 1; m <= 9; m++) { // odd counts of outputs with several rows
        check_case(variant, dtype, (struct shape){.rows = m, .n = 33, .k = k1, .residual = 1});
    }
    if (most == 0) {
        check_case(variant, dtype, (struct shape){.rows = 1, .n = 51865, .k = k1, .bias = 1});
        check_case(variant, dtype, (struct shape){.rows = 2, .n = 51865, .k = k1});
    }
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        check_case(variant, dtype, (struct shape){.rows = 2, .n = 40, .k = k1, .large = large[i]});
    }
    for (int64_t in_use = 1; in_use <= 129; in_use += 64) {
        check_case(variant, dtype,
                (struct shape){.rows = in_use, .n = 68, .k = k1, .bound = 140, .residual = 2});
    }
    int step = cpu_quant_find(dtype)->elems > 1 ? 2 : cpu_quant_find(dtype)->bytes;
    for (int skew = step; skew <= 16; skew += step) {
        check_case(variant, dtype,
                (struct shape){.rows = 3, .n = 70, .k = 2 * k1, .weight_skew = skew});
    }
    for (int64_t k = 1; plain && k < 140; k += 1 + k / 4) {
        check_case(variant, dtype, (struct shape){.rows = 5, .n = 37, .k = k, .bias = 1});
    }
    if (!gemv) {
        check_case(variant, dtype, (struct shape){.rows = 70, .n = 96, .k = 2 * k1, .f16_in = 1});
        check_case(variant, dtype,
                (struct shape){
                        .rows = 70, .n = 96, .k = fit_k(dtype, 288), .f16_in = 1, .bias = 1});
    }
}

// ---- Times --------------------------------------------------------------------------------------
static void time_case(
        const struct kiln_variant *variant, uint32_t dtype, int64_t rows, int64_t n, int64_t k) {
    enum {
        COPIES_MAX = 256
    };
    const struct cpu_quant *quant = cpu_quant_find(dtype);
    int gemv = strncmp(variant->name, "gemv", 4) == 0;
    size_t bytes = (size_t)(n * (k / quant->elems)) * (size_t)quant->bytes;
    // Enough copies of the weights that none is left in the cache when its turn comes.
    size_t wanted = rows > 64 ? 1 : (size_t)(4 * device->l2_bytes) / bytes + 1;
    uint32_t copies = (uint32_t)(wanted > COPIES_MAX ? COPIES_MAX : wanted);
    static struct gpu_op ops[COPIES_MAX];
    struct gpu_planned *plans[COPIES_MAX];
    uint64_t weights[COPIES_MAX];
    unsigned char *weight = make_weights(quant, 64, k);
    float *x = random_floats(rows * k, 1);
    uint64_t in = gpu_copy(x, (size_t)(rows * k) * 4);
    uint64_t out = gpu_alloc((size_t)(rows * n) * 4);
    const char *why = "";
    for (uint32_t i = 0; i < copies; i++) {
        weights[i] = gpu_alloc(bytes);
        size_t piece = bytes / (size_t)n * 64;
        for (size_t at = 0; at < bytes; at += piece) {
            gpu_upload(weights[i] + at, weight, bytes - at < piece ? bytes - at : piece);
        }
        gpu_op_begin(&ops[i], KILN_OP_MATMUL, gemv ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL);
        gpu_op_f32(&ops[i], KILN_OPERAND_IN, k, rows, in);
        gpu_op_add(&ops[i], KILN_OPERAND_WEIGHT, dtype, k, n, quant->elems, quant->bytes, 0,
                weights[i]);
        gpu_op_f32(&ops[i], KILN_OPERAND_OUT, n, rows, out);
        plans[i] = gpu_plan_op(variant, &ops[i], settings, n_settings, &why);
        if (plans[i] == NULL) {
            gpu_die("%s declined: %s", variant->name, why);
        }
    }
    double best;
    uint32_t calls = rows > 64 ? 10 : copies * (1 + 100 / copies);
    double seconds = gpu_time(plans, copies, calls, &best);
    double tflops = gpu_planned_flops(plans[0]) / seconds / 1e12;
    double gbs = gpu_planned_bytes(plans[0]) / seconds / 1e9;
    printf("%-12s %-5s m %5lld  k %6lld  n %7lld  %9.2f us (best %9.2f)  %7.1f TFLOP/s %5.1f %% of "
           "790  %7.0f GB/s %5.1f %% of 4800\n",
            variant->name, quant->name, (long long)rows, (long long)k, (long long)n, seconds * 1e6,
            best * 1e6, tflops, tflops / 7.90, gbs, gbs / 48.0);
    fflush(stdout);
    for (uint32_t i = 0; i < copies; i++) {
        gpu_planned_free(plans[i]);
        gpu_free(weights[i]);
    }
    gpu_free(in);
    gpu_free(out);
    free(weight);
    free(x);
}

static void time_variant(const struct kiln_variant *variant, uint32_t dtype) {
    static const int64_t shapes[][2] = {// k, n
            {3584, 3584}, {3584, 512}, {3584, 18944}, {18944, 3584}, {3584, 152064}};
    static const int64_t rows[] = {512, 3325};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (strncmp(variant->name, "gemv", 4) == 0) {
            time_case(variant, dtype, 1, shapes[i][1], shapes[i][0]);
            continue;
        }
        for (size_t r = 0; r < 2 && shapes[i][1] < 100000; r++) {
            time_case(variant, dtype, rows[r], shapes[i][1], shapes[i][0]);
        }
    }
}

static int wanted(const char *given, const char *name) {
    return given == NULL || strcmp(given, "all") == 0 || strcmp(given, name) == 0;
}

static void run_variant(const struct kiln_variant *variant, const char *what, const char *type) {
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        const char *name = cpu_quant_find(types[t])->name;
        if (!wanted(type, name)) {
            continue;
        }
        if (strcmp(what, "time") != 0) {
            check_type(variant, types[t],
                    strcmp(what, "smoke") == 0   ? 60000
                    : strcmp(what, "small") == 0 ? 3000000
                                                 : 0);
        }
        int timed = types[t] == KILN_DTYPE_Q4_K || types[t] == KILN_DTYPE_Q6_K ||
                    (type != NULL && strcmp(type, name) == 0);
        if (timed && (strcmp(what, "time") == 0 || strcmp(what, "all") == 0)) {
            time_variant(variant, types[t]);
        }
    }
}

int main(int argc, char **argv) {
    const char *words[3] = {"all", NULL, NULL}; // what, variant, type
    int n_words = 0;
    if (argc < 2) {
        fprintf(stderr,
                "usage: %s MATMUL.so [check|small|smoke|time|all [VARIANT [TYPE]]] [NAME=VALUE "
                "...]\n",
                argv[0]);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals != NULL && n_settings < SETTINGS) {
            *equals = '\0';
            settings[n_settings++] =
                    (struct gpu_value){.name = argv[i], .value = strtoll(equals + 1, NULL, 10)};
        } else if (n_words < 3) {
            words[n_words++] = argv[i];
        }
    }
    device = gpu_open();
    gpu_print_resources(getenv("RESOURCES") != NULL);
    plugin = gpu_load_plugin(argv[1]);
    printf("%s, %s, %d SMs\n", device->name, device->target, device->sm_count);
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        int several = plugin->variants[i]->n_follows > 0; // ops: `kiln bench` times those
        activation_step = strcmp(plugin->variants[i]->name, "gemv_q8") == 0 ? 0x1p-8 : 0x1p-17;
        if (!several && wanted(words[1], plugin->variants[i]->name)) {
            run_variant(plugin->variants[i], words[0], words[2]);
        }
    }
    printf("%d cases checked, %d failed\n", cases, failures);
    return failures != 0;
}
