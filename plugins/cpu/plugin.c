// plugin: the plugin `cpu`. Its variant `exact` fills every slot on the host: f32 activations,
// weights dequantized, f32 sums in a fixed order. It is what other variants are compared with.
// `exact_q8` fills matmul with the integer arithmetic of q8.h, what int8 kernels are compared with;
// `q8` with the same integers, faster; `q8_32` makes the activations of both.
//
// Each slot has a kernel in plain C, and the slow ones another with AVX2, FMA and F16C, picked by
// what the device says it has. Results do not depend on the number of threads nor on how a grid is
// cut; the two forms differ by rounding.
#include "args.h"
#include "i8.h"
#include "plan.h"
#include "q8.h"

#ifndef CPU_HAVE_AVX2
#    error "CPU_HAVE_AVX2 must be 1 or 0"
#endif

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define KERNEL(label, function) \
    &(const struct kiln_kernel) { \
        .struct_size = sizeof(struct kiln_kernel), .name = label, .host = function \
    }

#if CPU_HAVE_AVX2
#    define MATMUL_AVX2(type) \
        KERNEL("matmul_" type "_prefill_avx2", cpu_matmul_prefill_avx2), \
                KERNEL("matmul_" type "_decode_avx2", cpu_matmul_decode_avx2),
#else
#    define MATMUL_AVX2(type)
#endif

// One name a type; the function reads the type from its parameters.
#define MATMUL(type) \
    MATMUL_AVX2(type) \
    KERNEL("matmul_" type "_prefill_generic", cpu_matmul_prefill_generic), \
            KERNEL("matmul_" type "_decode_generic", cpu_matmul_decode_generic)

static const struct kiln_kernel *const kernels[] = {
        MATMUL("f32"),
        MATMUL("f16"),
        MATMUL("bf16"),
        MATMUL("q4_0"),
        MATMUL("q4_1"),
        MATMUL("q5_0"),
        MATMUL("q8_0"),
        MATMUL("q4_K"),
        MATMUL("q5_K"),
        MATMUL("q6_K"),
        KERNEL("attention_prefill_generic", cpu_attention_generic),
        KERNEL("attention_decode_generic", cpu_attention_generic),
        KERNEL("rope_kv_generic", cpu_rope_kv_generic),
        KERNEL("embed_generic", cpu_embed_generic),
        KERNEL("norm_generic", cpu_norm_generic),
        KERNEL("activation_generic", cpu_activation_generic),
        KERNEL("argmax_generic", cpu_argmax_generic),
#if CPU_HAVE_AVX2
        KERNEL("attention_prefill_avx2", cpu_attention_prefill_avx2),
        KERNEL("attention_decode_avx2", cpu_attention_decode_avx2),
        KERNEL("activation_avx2", cpu_activation_avx2),
#endif
};

#if CPU_HAVE_AVX2
#    define Q8_AVX2(type) \
        KERNEL("matmul_q8_" type "_prefill_avx2", cpu_matmul_q8_prefill_avx2), \
                KERNEL("matmul_q8_" type "_decode_avx2", cpu_matmul_q8_decode_avx2),
#else
#    define Q8_AVX2(type)
#endif
#define Q8(type) \
    Q8_AVX2(type) \
    KERNEL("matmul_q8_" type "_prefill_generic", cpu_matmul_q8_prefill_generic), \
            KERNEL("matmul_q8_" type "_decode_generic", cpu_matmul_q8_decode_generic)

static const struct kiln_kernel *const q8_kernels[] = {
        Q8("q4_0"),
        Q8("q4_1"),
        Q8("q5_0"),
        Q8("q8_0"),
        Q8("q4_K"),
        Q8("q5_K"),
        Q8("q6_K"),
};

#if CPU_HAVE_AVX2
#    define I8(type) \
        KERNEL("matmul_i8_" type "_prefill_avx2", cpu_matmul_i8_prefill_avx2), \
                KERNEL("matmul_i8_" type "_decode_avx2", cpu_matmul_i8_decode_avx2)

static const struct kiln_kernel *const i8_kernels[] = {
        I8("q4_0"),
        I8("q4_1"),
        I8("q5_0"),
        I8("q8_0"),
        I8("q4_K"),
        I8("q5_K"),
        I8("q6_K"),
};
#endif

static const struct kiln_kernel *const quantize_kernels[] = {
        KERNEL("quantize_generic", cpu_quantize_generic),
#if CPU_HAVE_AVX2
        KERNEL("quantize_avx2", cpu_quantize_avx2),
#endif
};

static const char *const slots[] = {"embed", "norm", "matmul.*.prefill", "matmul.*.decode",
        "rope_kv", "attention.prefill", "attention.decode", "activation", "argmax"};

static const char *const q8_slots[] = {"matmul.*.prefill", "matmul.*.decode"};
static const char *const quantize_slots[] = {"quantize"};

static const char *const cache_formats[] = {"f32", "f16"};
static const struct kiln_io k_cache = {.struct_size = sizeof(k_cache),
        .operand = KILN_OPERAND_K_CACHE,
        .n_formats = COUNT(cache_formats),
        .formats = cache_formats};
static const struct kiln_io v_cache = {.struct_size = sizeof(v_cache),
        .operand = KILN_OPERAND_V_CACHE,
        .n_formats = COUNT(cache_formats),
        .formats = cache_formats};
static const struct kiln_io *const ios[] = {&k_cache, &v_cache};

static const struct kiln_format q8_format = {.struct_size = sizeof(q8_format),
        .block_elems = CPU_Q8_COLUMNS,
        .block_bytes = CPU_Q8_BYTES,
        .row_multiple = 1,
        .name = CPU_Q8_FORMAT,
        .layout = "0 scale f32, 4 sum of q i32, 8 q i8[32]; value = scale * q"};
static const struct kiln_format *const formats[] = {&q8_format};

static const char *const q8_formats[] = {CPU_Q8_FORMAT};
static const struct kiln_io q8_in = {.struct_size = sizeof(q8_in),
        .operand = KILN_OPERAND_IN,
        .n_formats = COUNT(q8_formats),
        .formats = q8_formats};
static const struct kiln_io q8_out = {.struct_size = sizeof(q8_out),
        .operand = KILN_OPERAND_OUT,
        .n_formats = COUNT(q8_formats),
        .formats = q8_formats};
static const struct kiln_io *const q8_ios[] = {&q8_in};
static const struct kiln_io *const quantize_ios[] = {&q8_out};

// What every plan checks first: the host, one op. KILN_RESULT_OK, or what plan() must return.
static int32_t begin(const struct kiln_problem *problem, const struct kiln_device *device,
        struct kiln_plan *plan, struct cpu_request *request) {
    *request = (struct cpu_request){.problem = problem,
            .device = device,
            .plan = plan,
            .avx2 = CPU_HAVE_AVX2 && (device->host_features & KILN_HOST_AVX2)};
    if (device->kind != KILN_DEVICE_HOST) {
        return cpu_decline(request, "device kind %u is not handled, only the host", device->kind);
    }
    if (problem->n_ops != 1) {
        return cpu_decline(
                request, "%u ops at once are not handled, only single ones", problem->n_ops);
    }
    request->op = problem->ops[0];
    return KILN_RESULT_OK;
}

static int32_t plan_exact(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)geometry;
    struct cpu_request request;
    int32_t result = begin(problem, device, plan, &request);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    switch (request.op->kind) { // NOLINT(clang-analyzer-core.NullDereference): begin has set it
    case KILN_OP_EMBED:
        return cpu_plan_embed(&request);
    case KILN_OP_NORM:
        return cpu_plan_norm(&request);
    case KILN_OP_MATMUL:
        return cpu_plan_matmul(&request);
    case KILN_OP_ROPE_KV:
        return cpu_plan_rope_kv(&request);
    case KILN_OP_ATTENTION:
        return cpu_plan_attention(&request);
    case KILN_OP_ACTIVATION:
        return cpu_plan_activation(&request);
    case KILN_OP_ARGMAX:
        return cpu_plan_argmax(&request);
    default:
        return cpu_decline(&request, "op kind %u is not handled", request.op->kind);
    }
}

static int32_t plan_q8(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)geometry;
    struct cpu_request request;
    int32_t result = begin(problem, device, plan, &request);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    switch (request.op->kind) { // NOLINT(clang-analyzer-core.NullDereference): begin has set it
    case KILN_OP_MATMUL:
        return cpu_plan_matmul_q8(&request);
    case KILN_OP_QUANTIZE:
        return cpu_plan_quantize(&request);
    default:
        return cpu_decline(&request, "op kind %u is not handled", request.op->kind);
    }
}

#if CPU_HAVE_AVX2
static int32_t plan_i8(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)geometry;
    struct cpu_request request;
    int32_t result = begin(problem, device, plan, &request);
    return result == KILN_RESULT_OK ? cpu_plan_matmul_i8(&request) : result;
}
#endif

static const struct kiln_variant exact = {.struct_size = sizeof(exact),
        .devices = KILN_DEVICE_HOST,
        .name = "exact",
        .help = "dequantized weights, f32 activations and sums in a fixed order: the reference",
        .slots = slots,
        .kernels = kernels,
        .ios = ios,
        .n_slots = COUNT(slots),
        .n_kernels = COUNT(kernels),
        .n_ios = COUNT(ios),
        .plan = plan_exact};

static const struct kiln_variant exact_q8 = {.struct_size = sizeof(exact_q8),
        .devices = KILN_DEVICE_HOST,
        .name = "exact_q8",
        .help = "activations as int8 with a scale each 32, integer dot products, f32 scales: the "
                "reference of int8 kernels",
        .slots = q8_slots,
        .kernels = q8_kernels,
        .ios = q8_ios,
        .n_slots = COUNT(q8_slots),
        .n_kernels = COUNT(q8_kernels),
        .n_ios = COUNT(q8_ios),
        .plan = plan_q8};

#if CPU_HAVE_AVX2
static const struct kiln_variant fast_q8 = {.struct_size = sizeof(fast_q8),
        .devices = KILN_DEVICE_HOST,
        .name = "q8",
        .help = "activations and integer dot products as in exact_q8, f32 sums in an order made "
                "for "
                "speed; needs AVX2",
        .slots = q8_slots,
        .kernels = i8_kernels,
        .ios = q8_ios,
        .n_slots = COUNT(q8_slots),
        .n_kernels = COUNT(i8_kernels),
        .n_ios = COUNT(q8_ios),
        .plan = plan_i8};
#endif

static const struct kiln_variant quantize_q8 = {.struct_size = sizeof(quantize_q8),
        .devices = KILN_DEVICE_HOST,
        .name = CPU_Q8_FORMAT,
        .help = "f32 to int8 with a scale and a sum each 32 columns",
        .slots = quantize_slots,
        .kernels = quantize_kernels,
        .ios = quantize_ios,
        .n_slots = COUNT(quantize_slots),
        .n_kernels = COUNT(quantize_kernels),
        .n_ios = COUNT(quantize_ios),
        .plan = plan_q8};

static const struct kiln_variant *const variants[] = {
        &exact,
        &exact_q8,
#if CPU_HAVE_AVX2
        &fast_q8,
#endif
        &quantize_q8,
};

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "cpu",
        .version = "0.1.0",
        .help = "every slot on the host processor, the reference for all others",
        .variants = variants,
        .formats = formats,
        .n_variants = COUNT(variants),
        .n_formats = COUNT(formats)};
