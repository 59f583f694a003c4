// decode: schemas and plans of splitkv, the keys of a row cut into parts, which a second launch or
// the last block joins; and of rope_splitkv, the same with rope_kv before it in one launch.
#include "plan.h"
#include "variants.h"

#include "fa_rope.cuh.h" // kernels_src/attention/fa_rope.cuh, copied by the build

#include <stdbool.h>
#include <stdio.h>

enum {
    GROUP_HEADS = 16, // query heads of one KV head that a block takes together
    WARPS_SM = 8      // warps a multiprocessor that FA_SPLITS 0 aims at
};

// clang-format off
static const int64_t tkv_values[] = {16, 32, 64, 128};
static const int64_t kpad_values[] = {0, 8};
static const int64_t zero_one[] = {0, 1};
static const int64_t join_values[] = {1, 2, 4, 8, 16};
static const struct kiln_param_default *const tkv_rows[] = {ATTENTION_DEFAULT(256, 0, 79, 32)};
static const struct kiln_param_default *const qreg_rows[] = {ATTENTION_DEFAULT(256, 0, 0, 0)};
static const struct kiln_param_default *const blocks_rows[] = {ATTENTION_DEFAULT(256, 0, 0, 1)};
static const struct kiln_param tkv = {.struct_size = sizeof(tkv), .flags = KILN_PARAM_REGROUPS,
    .name = "FA_TKV", .help = "keys a tile, 16 a warp", .unit = "keys", .value = 64,
    .allowed = tkv_values, .n_allowed = ATTENTION_COUNT(tkv_values),
    .defaults = tkv_rows, .n_defaults = ATTENTION_COUNT(tkv_rows)};
static const struct kiln_param splits = {.struct_size = sizeof(splits),
    .flags = KILN_PARAM_REGROUPS, .name = "FA_SPLITS",
    .help = "parts that a row's keys are cut into at most; 0: 8 warps a multiprocessor",
    .unit = "parts", .value = 0, .min = 0, .max = 1024};
static const struct kiln_param kpad = {.struct_size = sizeof(kpad), .name = "FA_KPAD",
    .help = "halves behind each staged row; 8: ldmatrix meets no bank twice", .unit = "halves",
    .value = 8, .allowed = kpad_values, .n_allowed = ATTENTION_COUNT(kpad_values)};
static const struct kiln_param qreg = {.struct_size = sizeof(qreg), .name = "FA_QREG",
    .help = "1: keep Q's fragments in registers; 0: read them for each tile", .value = 1,
    .allowed = zero_one, .n_allowed = ATTENTION_COUNT(zero_one),
    .defaults = qreg_rows, .n_defaults = ATTENTION_COUNT(qreg_rows)};
static const struct kiln_param join = {.struct_size = sizeof(join), .flags = KILN_PARAM_REGROUPS,
    .name = "FA_JOIN_WARPS", .help = "warps that join the parts of a row of one head",
    .unit = "warps", .value = 8, .allowed = join_values, .n_allowed = ATTENTION_COUNT(join_values)};
static const struct kiln_param blocks = {.struct_size = sizeof(blocks), .name = "MIN_BLOCKS",
    .help = "blocks a multiprocessor that registers must allow", .unit = "blocks", .value = 2,
    .min = 1, .max = 8, .defaults = blocks_rows, .n_defaults = ATTENTION_COUNT(blocks_rows)};
static const struct kiln_param last = {.struct_size = sizeof(last), .flags = KILN_PARAM_REGROUPS,
    .name = "FA_LAST", .help = "1: the last block to be done joins the parts; 0: a second launch",
    .value = 0, .allowed = zero_one, .n_allowed = ATTENTION_COUNT(zero_one)};
// rope_splitkv: the block that joins needs warps, and parts that are few.
static const struct kiln_param_default *const rope_tkv_rows[] = {ATTENTION_DEFAULT(256, 0, 79, 32),
    ATTENTION_DEFAULT(256, 0, 0, 64), ATTENTION_DEFAULT(0, 0, 79, 64)};
static const struct kiln_param rope_tkv = {.struct_size = sizeof(rope_tkv),
    .flags = KILN_PARAM_REGROUPS, .name = "FA_TKV", .help = "keys a tile, 16 a warp",
    .unit = "keys", .value = 128, .allowed = tkv_values, .n_allowed = ATTENTION_COUNT(tkv_values),
    .defaults = rope_tkv_rows, .n_defaults = ATTENTION_COUNT(rope_tkv_rows)};
static const struct kiln_param rope_blocks = {.struct_size = sizeof(rope_blocks),
    .name = "MIN_BLOCKS", .help = "blocks a multiprocessor that registers must allow", .value = 1,
    .unit = "blocks", .min = 1, .max = 8};
// clang-format on
static const struct kiln_param *const params[] = {
        &tkv, &splits, &kpad, &qreg, &join, &last, &blocks};
static const struct kiln_param *const rope_params[] = {
        &rope_tkv, &splits, &kpad, &qreg, &rope_blocks};

struct split {
    int32_t tkv, splits, groups;
    uint64_t part_bytes, row_bytes; // workspace: sums, then maximum and sum of each row
    uint32_t parts, counters;       // workspaces
    bool last;                      // counters are there
};

static struct split choose(const struct attention_request *request, bool last_joins) {
    const struct kiln_op *op = request->op;
    struct split split = {.tkv = attention_value(request, "FA_TKV"),
            .splits = attention_value(request, "FA_SPLITS"),
            .groups = (int32_t)attention_blocks(op->n_heads / op->n_kv_heads, GROUP_HEADS),
            .last = last_joins};
    if (split.splits == 0) {
        int64_t multiprocessors = request->device->sm_count > 0 ? request->device->sm_count : 1;
        int64_t others = op->n_kv_heads * split.groups * request->rows;
        int64_t blocks_sm = split.tkv / 16 < WARPS_SM ? WARPS_SM / (split.tkv / 16) : 1;
        int64_t wanted = attention_blocks(blocks_sm * multiprocessors, others);
        split.splits = wanted > 1024 ? 1024 : (int32_t)wanted;
    }
    int64_t tiles = attention_blocks(request->keys, split.tkv);
    split.splits = tiles < split.splits ? (int32_t)tiles : split.splits;
    uint64_t n = (uint64_t)request->rows * (uint64_t)op->n_heads * (uint64_t)split.splits;
    split.part_bytes = n * (uint64_t)op->head_size * sizeof(float);
    split.row_bytes = n * 2 * sizeof(float);
    return split;
}

// The workspaces: parts, and counters of rows, groups and KV heads. false: kiln refused.
static bool take_workspaces(const struct attention_request *request, struct split *split) {
    struct kiln_plan *plan = request->plan;
    int32_t parts = plan->workspace(plan, split->part_bytes + split->row_bytes, 0);
    int32_t counters = 0;
    if (split->last) {
        uint64_t n = (uint64_t)request->rows * (uint64_t)split->groups *
                     (uint64_t)request->op->n_kv_heads;
        counters = plan->workspace(
                plan, n * sizeof(uint32_t), KILN_WORKSPACE_ZERO | KILN_WORKSPACE_KEPT);
    }
    split->parts = (uint32_t)parts;
    split->counters = (uint32_t)counters;
    return parts >= 0 && counters >= 0;
}

static void begin_split(struct attention_launch *launch, const struct attention_request *request,
        const struct split *split, const char *kernel) {
    const struct kiln_op *op = request->op;
    int32_t stride = (op->head_size + attention_value(request, "FA_KPAD")) * 2;
    int32_t staged = (16 + 2 * split->tkv) * stride;
    int32_t left = split->tkv * (op->head_size * 4 + 8);
    uint32_t grid[3] = {(uint32_t)split->splits, (uint32_t)op->n_kv_heads,
            (uint32_t)(request->rows * split->groups)};
    attention_launch_begin(launch, request, kernel, grid, (uint32_t)(split->tkv / 16 * 32));
    launch->record.flags = KILN_LAUNCH_DEPENDENT;
    launch->record.shared_bytes = (uint32_t)(staged > left ? staged : left);
    attention_launch_define_problem(launch, request);
}

static void add_parts(struct attention_launch *launch, const struct split *split) {
    attention_launch_workspace(launch, split->parts, 0);
    attention_launch_workspace(launch, split->parts, split->part_bytes);
    attention_launch_workspace(launch, split->last ? split->counters : split->parts, 0);
}

static int32_t end_split(struct attention_launch *launch, const struct attention_request *request,
        const struct split *split) {
    uint32_t stride = (uint32_t)(request->op->head_size + attention_value(request, "FA_KPAD")) * 2;
    double parts = (double)(split->part_bytes + split->row_bytes);
    const struct kiln_smem_site q = {sizeof(q), KILN_SITE_LDMATRIX, "Q ldmatrix", stride, 16, 0, 0};
    const struct kiln_smem_site k = {sizeof(k), KILN_SITE_LDMATRIX, "K ldmatrix", stride, 16, 0, 0};
    const struct kiln_smem_site v = {
            sizeof(v), KILN_SITE_LDMATRIX, "V ldmatrix.trans", stride, 16, 0, 0};
    const struct kiln_smem_site o = {
            sizeof(o), KILN_SITE_STORE, "O store", (uint32_t)request->op->head_size * 4, 8, 0, 0};
    const struct kiln_smem_site *const sites[] = {&q, &k, &v, &o};
    launch->record.sites = sites;
    launch->record.n_sites = ATTENTION_COUNT(sites);
    launch->record.bytes_written = split->last ? launch->record.bytes_written + parts : parts;
    launch->record.bytes_read += split->last ? parts : 0;
    snprintf(launch->order, sizeof(launch->order), "attention_splitkv:%s:tkv%d:splits%d%s",
            attention_mma_order(request), split->tkv, split->splits, split->last ? ":last" : "");
    return attention_launch_submit(launch, request);
}

static int32_t submit_split(
        struct attention_request *request, const struct split *split, const struct fa_args *args) {
    struct attention_launch launch;
    begin_split(&launch, request, split, "splitkv");
    attention_launch_operand(&launch, KILN_OPERAND_Q);
    attention_launch_operand(&launch, KILN_OPERAND_K_CACHE);
    attention_launch_operand(&launch, KILN_OPERAND_V_CACHE);
    attention_launch_operand(&launch, KILN_OPERAND_POSITIONS);
    add_parts(&launch, split);
    attention_launch_operand(&launch, KILN_OPERAND_OUT);
    attention_launch_operand(&launch, KILN_OPERAND_N_TOKENS);
    attention_launch_operand(&launch, KILN_OPERAND_KV_LEN);
    attention_launch_bytes(&launch, args, sizeof(*args));
    return end_split(&launch, request, split);
}

static int32_t submit_join(
        struct attention_request *request, const struct split *split, const struct fa_args *args) {
    const struct kiln_op *op = request->op;
    int32_t warps = attention_value(request, "FA_JOIN_WARPS");
    uint32_t grid[3] = {(uint32_t)request->rows, (uint32_t)op->n_heads, 1};
    struct attention_launch launch;
    attention_launch_begin(&launch, request, "splitkv_combine", grid, (uint32_t)warps * 32);
    launch.record.flags = KILN_LAUNCH_DEPENDENT;
    attention_launch_define_problem(&launch, request);
    attention_launch_operand(&launch, KILN_OPERAND_POSITIONS);
    attention_launch_workspace(&launch, split->parts, 0);
    attention_launch_workspace(&launch, split->parts, split->part_bytes);
    attention_launch_operand(&launch, KILN_OPERAND_OUT);
    attention_launch_operand(&launch, KILN_OPERAND_N_TOKENS);
    attention_launch_operand(&launch, KILN_OPERAND_KV_LEN);
    attention_launch_bytes(&launch, args, sizeof(*args));
    launch.record.bytes_read = (double)(split->part_bytes + split->row_bytes);
    launch.record.flops = (double)split->part_bytes / 2; // a multiplication and an addition a float
    snprintf(launch.order, sizeof(launch.order), "attention_combine:splits%d:warps%d",
            split->splits, warps);
    return attention_launch_submit(&launch, request);
}

static const struct attention_needs needs = {.head_multiple = 16, .head_max = 256, .alignment = 16};

static int32_t plan_splitkv(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct attention_request request;
    int32_t result = attention_begin(&request, problem, geometry, device, plan, &needs);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    struct split split = choose(&request, attention_value(&request, "FA_LAST") != 0);
    if (request.rows * split.groups > 65535) {
        return attention_decline(&request, "%lld rows at once are not handled, at most %d",
                (long long)request.rows, 65535 / split.groups);
    }
    struct fa_args args = request.args;
    args.splits = split.splits;
    if (!take_workspaces(&request, &split)) {
        return KILN_RESULT_FAILED;
    }
    result = submit_split(&request, &split, &args);
    return result == KILN_RESULT_OK && !split.last ? submit_join(&request, &split, &args) : result;
}

// ---- With rope_kv before ------------------------------------------------------------------------
// An operand of the rope_kv before the attention, NULL where it is none of this type and width.
static const struct kiln_tensor *of_rope(const struct attention_request *request, uint32_t operand,
        uint32_t dtype, int64_t columns) {
    const struct kiln_op *op = request->problem->ops[0];
    for (uint32_t i = 0; i < op->n_operands; i++) {
        const struct kiln_tensor *tensor = op->operands[i];
        if (tensor->operand == operand) {
            bool fits = tensor->dtype == dtype && tensor->dims[0] == columns &&
                        tensor->strides[0] == (dtype == KILN_DTYPE_F16 ? 2 : 4);
            return fits ? tensor : NULL;
        }
    }
    return NULL;
}

static bool has_operand(const struct kiln_op *op, uint32_t operand) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operands[i]->operand == operand) {
            return true;
        }
    }
    return false;
}

static int32_t check_rope(const struct attention_request *request) {
    const struct kiln_op *op = request->problem->ops[0];
    int64_t size = op->head_size, columns = size * op->n_heads, kv = size * op->n_kv_heads;
    const struct kiln_tensor *k_cache = of_rope(request, KILN_OPERAND_K_CACHE, KILN_DTYPE_F16, kv);
    const struct kiln_tensor *v_cache = of_rope(request, KILN_OPERAND_V_CACHE, KILN_DTYPE_F16, kv);
    const struct kiln_tensor *out = of_rope(request, KILN_OPERAND_OUT, request->q->dtype, columns);
    if (op->kind != KILN_OP_ROPE_KV || op->n_heads != request->op->n_heads ||
            op->n_kv_heads != request->op->n_kv_heads || size != request->op->head_size) {
        return attention_fail(request, "op 0: no rope_kv of %d heads, %d KV heads of size %d",
                request->op->n_heads, request->op->n_kv_heads, request->op->head_size);
    }
    if (request->rows != 1) {
        return attention_decline(
                request, "%lld rows; one alone needs no key but its own", (long long)request->rows);
    }
    if (has_operand(op, KILN_OPERAND_Q_NORM) || has_operand(op, KILN_OPERAND_K_NORM)) {
        return attention_decline(request, "Q_NORM, K_NORM: heads with norms are not handled");
    }
    if (!of_rope(request, KILN_OPERAND_Q, KILN_DTYPE_F32, columns) ||
            !of_rope(request, KILN_OPERAND_K, KILN_DTYPE_F32, kv) ||
            !of_rope(request, KILN_OPERAND_V, KILN_DTYPE_F32, kv) || !k_cache || !v_cache || !out) {
        return attention_decline(request, "only f32 Q, K and V and f16 caches are handled");
    }
    if (!(out->flags & KILN_TENSOR_INTERNAL)) {
        return attention_decline(request, "OUT of rope_kv: others read it too; it is not stored");
    }
    if (k_cache->strides[1] != request->k->strides[1] ||
            v_cache->strides[1] != request->v->strides[1] || k_cache->dims[1] != request->keys) {
        return attention_fail(request, "K_CACHE, V_CACHE: not the same of rope_kv and attention");
    }
    if (op->rope_dims < 0 || op->rope_dims > size || op->rope_dims % 2 != 0 ||
            (op->rope_dims > 0 && !has_operand(op, KILN_OPERAND_ROPE_FREQS)) ||
            (op->rope_style != KILN_ROPE_PAIRS && op->rope_style != KILN_ROPE_HALVES)) {
        return attention_decline(request, "rope style %u of %d columns is not handled",
                op->rope_style, op->rope_dims);
    }
    return KILN_RESULT_OK;
}

static int32_t submit_rope(
        struct attention_request *request, const struct split *split, const struct fa_args *args) {
    static const uint32_t operands[] = {KILN_OPERAND_Q, KILN_OPERAND_K, KILN_OPERAND_V,
            KILN_OPERAND_ROPE_FREQS, KILN_OPERAND_K_CACHE, KILN_OPERAND_V_CACHE,
            KILN_OPERAND_POSITIONS};
    const struct kiln_op *op = request->problem->ops[0];
    struct fa_rope_args rope = {.dims = op->rope_dims,
            .pairs = op->rope_style == KILN_ROPE_PAIRS,
            .positions = (int)request->keys,
            .scale = op->rope_scale};
    struct attention_launch launch;
    begin_split(&launch, request, split, "rope_splitkv");
    attention_launch_define(&launch, "FA_LAST", 1);
    for (uint32_t i = 0; i < ATTENTION_COUNT(operands); i++) {
        attention_launch_operand_of(&launch, 0, operands[i]);
    }
    add_parts(&launch, split);
    attention_launch_operand_of(&launch, 1, KILN_OPERAND_OUT);
    attention_launch_operand_of(&launch, 1, KILN_OPERAND_N_TOKENS);
    attention_launch_operand_of(&launch, 1, KILN_OPERAND_KV_LEN);
    attention_launch_bytes(&launch, args, sizeof(*args));
    attention_launch_bytes(&launch, &rope, sizeof(rope));
    double kv = (double)op->n_kv_heads * op->head_size;
    launch.record.bytes_read += 2 * kv * sizeof(float);
    launch.record.bytes_written += 2 * kv * 2;
    return end_split(&launch, request, split);
}

static int32_t plan_rope(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct attention_request request;
    int32_t result = attention_begin_ops(&request, problem, 2, geometry, device, plan, &needs);
    if (result == KILN_RESULT_OK) {
        result = check_rope(&request);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    struct split split = choose(&request, true);
    struct fa_args args = request.args;
    args.splits = split.splits;
    return take_workspaces(&request, &split) ? submit_rope(&request, &split, &args)
                                             : KILN_RESULT_FAILED;
}

static const char *const slots[] = {"attention.decode"};
static const struct kiln_kernel *const kernels[] = {
        &attention_kernel_splitkv, &attention_kernel_splitkv_combine};

const struct kiln_variant attention_splitkv = {.struct_size = sizeof(attention_splitkv),
        .devices = KILN_DEVICE_CUDA,
        .name = "splitkv",
        .help = "keys cut into parts over the blocks, query heads of one KV head together",
        .slots = slots,
        .params = params,
        .kernels = kernels,
        .ios = attention_ios,
        .n_slots = ATTENTION_COUNT(slots),
        .n_params = ATTENTION_COUNT(params),
        .n_kernels = ATTENTION_COUNT(kernels),
        .n_ios = ATTENTION_COUNT(attention_ios),
        .plan = plan_splitkv};

#define IO(at, which, list) \
    { \
        .struct_size = sizeof(struct kiln_io), .op = (at), .operand = KILN_OPERAND_##which, \
        .n_formats = ATTENTION_COUNT(list), .formats = list \
    }
static const char *const f32_or_f16[] = {"f32", "f16"};
static const char *const f16[] = {"f16"};
static const struct kiln_io rope_k = IO(0, K_CACHE, f16), rope_v = IO(0, V_CACHE, f16);
static const struct kiln_io k = IO(1, K_CACHE, f16), v = IO(1, V_CACHE, f16);
static const struct kiln_io out = IO(1, OUT, f32_or_f16);
static const struct kiln_io *const rope_ios[] = {&rope_k, &rope_v, &k, &v, &out};
static const char *const rope_slots[] = {"rope_kv"};
static const char *const rope_follows[] = {"attention"};
static const struct kiln_kernel *const rope_kernels[] = {&attention_kernel_rope_splitkv};

const struct kiln_variant attention_rope_splitkv = {.struct_size = sizeof(attention_rope_splitkv),
        .devices = KILN_DEVICE_CUDA,
        .name = "rope_splitkv",
        .help = "rope_kv and decode attention of one row in one launch: splitkv's parts, joined by "
                "the last block",
        .slots = rope_slots,
        .follows = rope_follows,
        .params = rope_params,
        .kernels = rope_kernels,
        .ios = rope_ios,
        .n_slots = ATTENTION_COUNT(rope_slots),
        .n_follows = ATTENTION_COUNT(rope_follows),
        .n_params = ATTENTION_COUNT(rope_params),
        .n_kernels = ATTENTION_COUNT(rope_kernels),
        .n_ios = ATTENTION_COUNT(rope_ios),
        .plan = plan_rope};
