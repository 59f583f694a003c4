// decode: schema and plan of splitkv: the keys of a row cut into parts, and a second launch that
// joins them.
#include "plan.h"
#include "variants.h"

#include <stdio.h>

enum {
    GROUP_HEADS = 16, // query heads of one KV head that a block takes together
    BLOCKS_SM = 2     // blocks a multiprocessor that FA_SPLITS 0 aims at
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
    .help = "parts that a row's keys are cut into at most; 0: 2 blocks a multiprocessor",
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
// clang-format on
static const struct kiln_param *const params[] = {&tkv, &splits, &kpad, &qreg, &join, &blocks};

struct split {
    int32_t tkv, splits, groups;
    uint64_t part_bytes, row_bytes; // workspace: sums, then maximum and sum of each row
};

static struct split choose(const struct attention_request *request) {
    const struct kiln_op *op = request->op;
    struct split split = {.tkv = attention_value(request, "FA_TKV"),
            .splits = attention_value(request, "FA_SPLITS"),
            .groups = (int32_t)attention_blocks(op->n_heads / op->n_kv_heads, GROUP_HEADS)};
    if (split.splits == 0) {
        int64_t multiprocessors = request->device->sm_count > 0 ? request->device->sm_count : 1;
        int64_t others = op->n_kv_heads * split.groups * request->rows;
        int64_t wanted = attention_blocks(BLOCKS_SM * multiprocessors, others);
        split.splits = wanted > 1024 ? 1024 : (int32_t)wanted;
    }
    int64_t tiles = attention_blocks(request->keys, split.tkv);
    split.splits = tiles < split.splits ? (int32_t)tiles : split.splits;
    uint64_t n = (uint64_t)request->rows * (uint64_t)op->n_heads * (uint64_t)split.splits;
    split.part_bytes = n * (uint64_t)op->head_size * sizeof(float);
    split.row_bytes = n * 2 * sizeof(float);
    return split;
}

static int32_t submit_split(struct attention_request *request, const struct split *split,
        uint32_t workspace, const struct fa_args *args) {
    const struct kiln_op *op = request->op;
    int32_t stride = (op->head_size + attention_value(request, "FA_KPAD")) * 2;
    int32_t staged = (16 + 2 * split->tkv) * stride;
    int32_t left = split->tkv * (op->head_size * 4 + 8);
    uint32_t grid[3] = {(uint32_t)split->splits, (uint32_t)op->n_kv_heads,
            (uint32_t)(request->rows * split->groups)};
    struct attention_launch launch;
    attention_launch_begin(&launch, request, "splitkv", grid, (uint32_t)(split->tkv / 16 * 32));
    launch.record.flags = KILN_LAUNCH_DEPENDENT;
    attention_launch_define_problem(&launch, request);
    attention_launch_operand(&launch, KILN_OPERAND_Q);
    attention_launch_operand(&launch, KILN_OPERAND_K_CACHE);
    attention_launch_operand(&launch, KILN_OPERAND_V_CACHE);
    attention_launch_operand(&launch, KILN_OPERAND_POSITIONS);
    attention_launch_workspace(&launch, workspace, 0);
    attention_launch_workspace(&launch, workspace, split->part_bytes);
    attention_launch_operand(&launch, KILN_OPERAND_N_TOKENS);
    attention_launch_operand(&launch, KILN_OPERAND_KV_LEN);
    launch.record.shared_bytes = (uint32_t)(staged > left ? staged : left);
    launch.record.bytes_written = (double)(split->part_bytes + split->row_bytes);
    const struct kiln_smem_site q = {
            sizeof(q), KILN_SITE_LDMATRIX, "Q ldmatrix", (uint32_t)stride, 16, 0, 0};
    const struct kiln_smem_site k = {
            sizeof(k), KILN_SITE_LDMATRIX, "K ldmatrix", (uint32_t)stride, 16, 0, 0};
    const struct kiln_smem_site v = {
            sizeof(v), KILN_SITE_LDMATRIX, "V ldmatrix.trans", (uint32_t)stride, 16, 0, 0};
    const struct kiln_smem_site o = {
            sizeof(o), KILN_SITE_STORE, "O store", (uint32_t)op->head_size * 4, 8, 0, 0};
    const struct kiln_smem_site *const sites[] = {&q, &k, &v, &o};
    launch.record.sites = sites;
    launch.record.n_sites = ATTENTION_COUNT(sites);
    snprintf(launch.order, sizeof(launch.order), "attention_splitkv:%s:tkv%d:splits%d",
            attention_mma_order(request), split->tkv, split->splits);
    return attention_launch_submit(&launch, request, args);
}

static int32_t submit_join(struct attention_request *request, const struct split *split,
        uint32_t workspace, const struct fa_args *args) {
    const struct kiln_op *op = request->op;
    int32_t warps = attention_value(request, "FA_JOIN_WARPS");
    uint32_t grid[3] = {(uint32_t)request->rows, (uint32_t)op->n_heads, 1};
    struct attention_launch launch;
    attention_launch_begin(&launch, request, "splitkv_combine", grid, (uint32_t)warps * 32);
    launch.record.flags = KILN_LAUNCH_DEPENDENT;
    attention_launch_define_problem(&launch, request);
    attention_launch_operand(&launch, KILN_OPERAND_POSITIONS);
    attention_launch_workspace(&launch, workspace, 0);
    attention_launch_workspace(&launch, workspace, split->part_bytes);
    attention_launch_operand(&launch, KILN_OPERAND_OUT);
    attention_launch_operand(&launch, KILN_OPERAND_N_TOKENS);
    attention_launch_operand(&launch, KILN_OPERAND_KV_LEN);
    launch.record.bytes_read = (double)(split->part_bytes + split->row_bytes);
    launch.record.flops = (double)split->part_bytes / 2; // a multiplication and an addition a float
    snprintf(launch.order, sizeof(launch.order), "attention_combine:splits%d:warps%d",
            split->splits, warps);
    return attention_launch_submit(&launch, request, args);
}

static int32_t plan(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan_to) {
    (void)instance;
    static const struct attention_needs needs = {
            .head_multiple = 16, .head_max = 256, .alignment = 16};
    struct attention_request request;
    int32_t result = attention_begin(&request, problem, geometry, device, plan_to, &needs);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    struct split split = choose(&request);
    if (request.rows * split.groups > 65535) {
        return attention_decline(&request, "%lld rows at once are not handled, at most %d",
                (long long)request.rows, 65535 / split.groups);
    }
    struct fa_args args = request.args;
    args.splits = split.splits;
    int32_t workspace = plan_to->workspace(plan_to, split.part_bytes + split.row_bytes, 0);
    if (workspace < 0) {
        return KILN_RESULT_FAILED;
    }
    result = submit_split(&request, &split, (uint32_t)workspace, &args);
    return result == KILN_RESULT_OK ? submit_join(&request, &split, (uint32_t)workspace, &args)
                                    : result;
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
        .plan = plan};
