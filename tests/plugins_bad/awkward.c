// awkward: three variants that ask everything of a launch record: norm with the quantize behind it;
// q, k and v of mixed types at once; a Hopper GEMM with tensor maps, a cluster of 2 and weights
// repacked beforehand.
//
// They are planned, never run: the sources are only there to be handed on.
#include "kiln/plugin.h"

static const struct kiln_header wrappers = {
        .struct_size = sizeof(wrappers), .name = "ptx.cuh", .text = "// wrappers\n"};
static const struct kiln_header *const headers[] = {&wrappers};
static const char *const options[] = {"--use_fast_math"};
static const struct kiln_source source = {.struct_size = sizeof(source),
        .flags = KILN_SOURCE_CUDA_INCLUDE,
        .name = "awkward.cu",
        .text = "extern \"C\" __global__ void none() {}\n",
        .headers = headers,
        .options = options,
        .n_headers = 1,
        .n_options = 1};
#define KERNEL(name_, instance_) \
    { \
        .struct_size = sizeof(struct kiln_kernel), .name = name_, .source = &source, \
        .instance = instance_ \
    }
static const struct kiln_kernel norm_quantize = KERNEL("norm_quantize", NULL),
                                qkv = KERNEL("qkv", NULL), gemm = KERNEL("gemm", "gemm<BM, BN>"),
                                repack = KERNEL("repack", NULL);
static const struct kiln_kernel *const norm_kernels[] = {&norm_quantize},
                                       *const qkv_kernels[] = {&qkv},
                                       *const gemm_kernels[] = {&gemm, &repack};

static const struct kiln_format q8_32 = {.struct_size = sizeof(q8_32),
        .block_elems = 32,
        .block_bytes = 36,
        .row_multiple = 8,
        .name = "aw_q8_32",
        .layout = "f16 scale, f16 sum, 32 int8"};
static const struct kiln_format *const formats[] = {&q8_32};

static struct kiln_arg operand(uint32_t op, uint32_t which) {
    struct kiln_arg arg = {
            .struct_size = sizeof(arg), .kind = KILN_ARG_OPERAND, .op = op, .operand = which};
    return arg;
}

// An absent operand reads as zeros: kiln refuses what comes of it, with a message.
static const struct kiln_tensor *find(const struct kiln_op *op, uint32_t which) {
    static const struct kiln_tensor absent;
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operands[i]->operand == which) {
            return op->operands[i];
        }
    }
    return &absent;
}

static int32_t launch_or_fail(struct kiln_plan *plan, const struct kiln_launch *launch) {
    return plan->launch(plan, launch) < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

// The norm's own output is between the two ops and is not written.
static int32_t plan_norm_quantize(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)geometry;
    (void)device;
    const struct kiln_tensor *out = find(problem->ops[1], KILN_OPERAND_OUT);
    if (out->dtype != KILN_DTYPE_BLOCK) {
        return plan->decline(plan, "writes aw_q8_32 only");
    }
    const struct kiln_arg in = operand(0, KILN_OPERAND_IN),
                          weight = operand(0, KILN_OPERAND_WEIGHT),
                          residual = operand(0, KILN_OPERAND_RESIDUAL),
                          packed = operand(1, KILN_OPERAND_OUT);
    const struct kiln_arg eps = {.struct_size = sizeof(eps),
            .kind = KILN_ARG_BYTES,
            .size = sizeof(float),
            .bytes = &problem->ops[0]->eps};
    const struct kiln_arg *const args[] = {&in, &weight, &residual, &packed, &eps};
    const double bytes = (double)out->dims[1] * (double)out->dims[0];
    const struct kiln_launch launch = {.struct_size = sizeof(launch),
            .kernel = "norm_quantize",
            .grid = {(uint32_t)out->dims[1], 1, 1},
            .block = {256, 1, 1},
            .args = args,
            .n_args = 5,
            .flops = 4 * bytes,
            .bytes_read = 4 * bytes,
            .bytes_written = 36.0 / 32 * bytes,
            .sum_order = "warp_tree_256"};
    return launch_or_fail(plan, &launch);
}

static int32_t plan_qkv(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)geometry;
    (void)device;
    uint32_t rows = 0;
    int32_t types[3];
    for (uint32_t i = 0; i < 3; i++) {
        const struct kiln_tensor *weight = find(problem->ops[i], KILN_OPERAND_WEIGHT);
        types[i] = (int32_t)weight->dtype;
        rows += (uint32_t)weight->dims[1];
    }
    const int32_t counter = plan->workspace(plan, 4, KILN_WORKSPACE_ZERO);
    if (counter < 0) {
        return KILN_RESULT_FAILED;
    }
    const struct kiln_arg in = operand(0, KILN_OPERAND_IN), wq = operand(0, KILN_OPERAND_WEIGHT),
                          wk = operand(1, KILN_OPERAND_WEIGHT),
                          wv = operand(2, KILN_OPERAND_WEIGHT), q = operand(0, KILN_OPERAND_OUT),
                          k = operand(1, KILN_OPERAND_OUT), v = operand(2, KILN_OPERAND_OUT);
    const struct kiln_arg ticket = {
            .struct_size = sizeof(ticket), .kind = KILN_ARG_WORKSPACE, .index = (uint32_t)counter};
    const struct kiln_arg kinds = {.struct_size = sizeof(kinds),
            .kind = KILN_ARG_BYTES,
            .size = sizeof(types),
            .bytes = types};
    const struct kiln_arg *const args[] = {&in, &wq, &wk, &wv, &q, &k, &v, &ticket, &kinds};
    const struct kiln_launch launch = {.struct_size = sizeof(launch),
            .flags = KILN_LAUNCH_DEPENDENT,
            .kernel = "qkv",
            .grid = {(rows + 3) / 4, 1, 1},
            .block = {32, 4, 1},
            .args = args,
            .n_args = 9};
    return launch_or_fail(plan, &launch);
}

static int32_t prepare_weights(
        struct kiln_plan *plan, const struct kiln_tensor *weight, uint64_t bytes) {
    const struct kiln_arg from = operand(0, KILN_OPERAND_WEIGHT);
    const struct kiln_arg to = {
            .struct_size = sizeof(to), .kind = KILN_ARG_PREPARED, .index = KILN_PREP_SELF};
    const struct kiln_arg *const args[] = {&from, &to}, *const sources[] = {&from};
    const struct kiln_launch launch = {.struct_size = sizeof(launch),
            .kernel = "repack",
            .grid = {(uint32_t)weight->dims[1], 1, 1},
            .block = {128, 1, 1},
            .args = args,
            .n_args = 2};
    const struct kiln_launch *const launches[] = {&launch};
    static const char *const keys[] = {"BN"};
    const struct kiln_preparation preparation = {.struct_size = sizeof(preparation),
            .n_sources = 1,
            .n_buffers = 1,
            .n_launches = 1,
            .n_keys = 1,
            .id = "f16_tiles",
            .sources = sources,
            .buffer_bytes = &bytes,
            .launches = launches,
            .keys = keys};
    return plan->prepare(plan, &preparation);
}

// A map over rows of `columns` halves, read in boxes of 64 columns, one 128-byte swizzle row.
static struct kiln_tensor_map half_map(
        uint32_t base, uint64_t columns, uint64_t rows, uint32_t box_rows) {
    struct kiln_tensor_map map = {.struct_size = sizeof(map),
            .base = base,
            .dtype = KILN_DTYPE_F16,
            .rank = 2,
            .dims = {columns, rows},
            .strides = {0, columns * 2},
            .box = {64, box_rows},
            .elem_strides = {1, 1},
            .swizzle = KILN_SWIZZLE_128,
            .l2_promotion = 128};
    return map;
}

static int32_t plan_gemm(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    if (device->cc < 90 || device->cc >= 100) {
        return plan->decline(plan, "needs wgmma (sm_90a)");
    }
    const struct kiln_tensor *in = find(problem->ops[0], KILN_OPERAND_IN);
    const struct kiln_tensor *weight = find(problem->ops[0], KILN_OPERAND_WEIGHT);
    const uint64_t k = (uint64_t)in->dims[0], m = (uint64_t)in->dims[1],
                   n = (uint64_t)weight->dims[1];
    const uint32_t bm = (uint32_t)geometry->values[0], bn = (uint32_t)geometry->values[1];
    const int32_t prepared = prepare_weights(plan, weight, n * k * 2);
    const int32_t halves = plan->workspace(plan, m * k * 2, 0);
    if (prepared < 0 || halves < 0) {
        return KILN_RESULT_FAILED;
    }
    const struct kiln_tensor_map a_map = half_map(KILN_ARG_WORKSPACE, k, m, bm),
                                 b_map = half_map(KILN_ARG_PREPARED, k, n, bn);
    const struct kiln_arg a = {.struct_size = sizeof(a),
            .kind = KILN_ARG_TENSOR_MAP,
            .index = (uint32_t)halves,
            .map = &a_map};
    const struct kiln_arg b = {.struct_size = sizeof(b),
            .kind = KILN_ARG_TENSOR_MAP,
            .index = (uint32_t)prepared,
            .map = &b_map};
    const struct kiln_arg out = operand(0, KILN_OPERAND_OUT);
    const struct kiln_arg *const args[] = {&a, &b, &out};
    const struct kiln_smem_site site = {.struct_size = sizeof(site),
            .kind = KILN_SITE_LDMATRIX,
            .name = "A tile",
            .stride_bytes = 128,
            .access_bytes = 16,
            .swizzle = KILN_SWIZZLE_128};
    const struct kiln_smem_site *const sites[] = {&site};
    static const char *const defines[] = {"STAGES=4"};
    const uint32_t columns = (uint32_t)((n + bn - 1) / bn);
    const struct kiln_launch launch = {.struct_size = sizeof(launch),
            .kernel = "gemm",
            .grid = {(columns + 1) / 2 * 2, (uint32_t)((m + bm - 1) / bm), 1},
            .block = {384, 1, 1},
            .cluster = {2, 1, 1},
            .shared_bytes = 4 * (bm + bn) * 128 + 1024,
            .args = args,
            .defines = defines,
            .sites = sites,
            .n_args = 3,
            .n_defines = 1,
            .n_sites = 1,
            .flops = 2.0 * (double)m * (double)n * (double)k};
    return launch_or_fail(plan, &launch);
}

static const int64_t tiles[] = {64, 128};
#define TILE(name_) \
    { \
        .struct_size = sizeof(struct kiln_param), .name = name_, .help = "tile size", \
        .unit = "rows", .value = 128, .allowed = tiles, .n_allowed = 2 \
    }
static const struct kiln_param bm_param = TILE("BM"), bn_param = TILE("BN");
static const struct kiln_param *const gemm_params[] = {&bm_param, &bn_param};

static const char *const norm_slots[] = {"norm"}, *const norm_follows[] = {"quantize"},
                         *const block_formats[] = {"aw_q8_32"};
static const struct kiln_io norm_io = {.struct_size = sizeof(norm_io),
        .op = 1,
        .operand = KILN_OPERAND_OUT,
        .n_formats = 1,
        .formats = block_formats};
static const struct kiln_io *const norm_ios[] = {&norm_io};
static const struct kiln_variant norm_variant = {.struct_size = sizeof(norm_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "norm_quantize",
        .help = "norm that writes the quantized form",
        .slots = norm_slots,
        .follows = norm_follows,
        .kernels = norm_kernels,
        .ios = norm_ios,
        .n_slots = 1,
        .n_follows = 1,
        .n_kernels = 1,
        .n_ios = 1,
        .plan = plan_norm_quantize};

static const char *const qkv_slots[] = {"matmul.q4_K.decode"},
                         *const qkv_follows[] = {"matmul:attn_k", "matmul:attn_v"},
                         *const v_types[] = {"q6_K", "q4_K"};
static const struct kiln_io v_io = {.struct_size = sizeof(v_io),
        .op = 2,
        .operand = KILN_OPERAND_WEIGHT,
        .n_formats = 2,
        .formats = v_types};
static const struct kiln_io *const qkv_ios[] = {&v_io};
static const struct kiln_variant qkv_variant = {.struct_size = sizeof(qkv_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "qkv",
        .help = "q, k and v in one launch",
        .slots = qkv_slots,
        .follows = qkv_follows,
        .role = "attn_q",
        .kernels = qkv_kernels,
        .ios = qkv_ios,
        .n_slots = 1,
        .n_follows = 2,
        .n_kernels = 1,
        .n_ios = 1,
        .plan = plan_qkv};

static const char *const gemm_slots[] = {"matmul.*.prefill"};
static const struct kiln_variant gemm_variant = {.struct_size = sizeof(gemm_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "hopper",
        .help = "tensor maps, cluster of 2, weights repacked",
        .slots = gemm_slots,
        .params = gemm_params,
        .kernels = gemm_kernels,
        .n_slots = 1,
        .n_params = 2,
        .n_kernels = 2,
        .plan = plan_gemm};
static const struct kiln_variant *const variants[] = {&norm_variant, &qkv_variant, &gemm_variant};

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "awkward",
        .version = "1",
        .help = "variants that ask everything of a launch record",
        .variants = variants,
        .formats = formats,
        .n_variants = 3,
        .n_formats = 1};
