// prefill: schemas and plans of the tiled variants of attention.prefill: fap1, fap2, fap2db.
//
// The shared memory of each is reckoned here from the geometry, apart from the sources' own
// layouts, which kiln compares with these figures.
#include "plan.h"
#include "variants.h"

#include <stdio.h>

// ---- Geometry -----------------------------------------------------------------------------------
static const int64_t tq_values[] = {16, 32, 48, 64, 96, 128, 192};
static const int64_t tq_values_fap1[] = {32, 64, 128};
static const int64_t tkv_values_fap1[] = {32, 64};
static const int64_t kpad_values[] = {0, 8};
static const int64_t spad_values[] = {0, 4, 8};
static const int64_t zero_one[] = {0, 1};
static const int64_t sync_values[] = {2, 3};
static const int64_t wrow_values[] = {16, 32};

#define PARAM(variable, label, text) \
    static const struct kiln_param variable = { \
            .struct_size = sizeof(struct kiln_param), .name = (label), .help = (text)

#define LIST(array) .allowed = (array), .n_allowed = ATTENTION_COUNT(array)
#define ROWS(array) .defaults = (array), .n_defaults = ATTENTION_COUNT(array)

// clang-format off
// sm_75 has 64 KB of shared memory a block.
static const struct kiln_param_default *const fap1_tq_rows[] = {ATTENTION_DEFAULT(256, 0, 79, 32)};
static const struct kiln_param_default *const wide_tkv_rows[] = {ATTENTION_DEFAULT(256, 0, 79, 16)};
static const struct kiln_param_default *const db_tq_rows[] = {ATTENTION_DEFAULT(256, 0, 79, 32)};
static const struct kiln_param_default *const qreg_rows[] = {ATTENTION_DEFAULT(256, 0, 0, 0)};

PARAM(tq, "FA_TQ", "query rows a block"), .unit = "rows", .value = 64, LIST(tq_values)};
PARAM(fap1_tq, "FA_TQ", "query rows a block"), .unit = "rows", .value = 64,
    LIST(tq_values_fap1), ROWS(fap1_tq_rows)};
PARAM(db_tq, "FA_TQ", "query rows a block"), .unit = "rows", .value = 64,
    LIST(tq_values), ROWS(db_tq_rows)};
PARAM(tkv, "FA_TKV", "keys a tile"), .flags = KILN_PARAM_REGROUPS, .unit = "keys", .value = 32,
    .min = 16, .max = 256, .multiple_of = 16, ROWS(wide_tkv_rows)};
PARAM(fap1_tkv, "FA_TKV", "keys a tile"), .flags = KILN_PARAM_REGROUPS, .unit = "keys",
    .value = 32, LIST(tkv_values_fap1)};
PARAM(kpad, "FA_KPAD", "halves behind each staged row; 8: ldmatrix meets no bank twice"),
    .unit = "halves", .value = 8, LIST(kpad_values)};
PARAM(spad, "FA_SPAD", "floats behind each row of scores; 8 spares the stores, 4 the loads"),
    .unit = "floats", .value = 8, LIST(spad_values)};
PARAM(legacy_smem, "FA_LEGACY_SMEM", "1: ask for K and V as if they had FA_TQ rows each, unused"),
    .value = 0, LIST(zero_one)};
PARAM(sync, "FA_SYNC", "barriers a tile; the third orders nothing"), .unit = "barriers",
    .value = 2, LIST(sync_values)};
PARAM(ahead, "FA_AHEAD", "1: fetch V behind the scores and the next K behind V; 0: wait for both"),
    .value = 1, LIST(zero_one)};
PARAM(qreg, "FA_QREG", "1: keep Q's fragments in registers; 0: read them for each tile"),
    .value = 1, LIST(zero_one), ROWS(qreg_rows)};
PARAM(wrows, "FA_WROWS", "query rows a warp; 32 reads K and V half as often"), .unit = "rows",
    .value = 16, LIST(wrow_values)};

static const struct kiln_param_default *const fap1_blocks_rows[] = {
    ATTENTION_DEFAULT(256, 0, 0, 1),
};
static const struct kiln_param_default *const fap2_blocks_rows[] = {
    ATTENTION_DEFAULT(128, 80, 80, 3), ATTENTION_DEFAULT(128, 90, 109, 3),
    ATTENTION_DEFAULT(128, 120, 129, 3), // or registers take back what FA_TKV 16 gives
    ATTENTION_DEFAULT(64, 0, 0, 4), ATTENTION_DEFAULT(256, 0, 0, 1),
};
static const struct kiln_param_default *const db_blocks_rows[] = {
    ATTENTION_DEFAULT(256, 0, 0, 1), ATTENTION_DEFAULT(0, 75, 79, 1),
};
#define BLOCKS "blocks a multiprocessor that registers must allow"
PARAM(fap1_blocks, "MIN_BLOCKS", BLOCKS), .unit = "blocks", .value = 2, .min = 1, .max = 8,
    ROWS(fap1_blocks_rows)};
PARAM(fap2_blocks, "MIN_BLOCKS", BLOCKS), .unit = "blocks", .value = 2, .min = 1, .max = 8,
    ROWS(fap2_blocks_rows)};
PARAM(db_blocks, "MIN_BLOCKS", BLOCKS), .unit = "blocks", .value = 2, .min = 1, .max = 8,
    ROWS(db_blocks_rows)};
// clang-format on

// ---- Sites ------------------------------------------------------------------------------------
enum {
    MAX_SITES = 6
};

struct sites {
    struct kiln_smem_site site[MAX_SITES];
    const struct kiln_smem_site *list[MAX_SITES];
    uint32_t n;
};

static void add_site(
        struct sites *sites, uint32_t kind, const char *name, int32_t stride, uint32_t access) {
    struct kiln_smem_site *site = &sites->site[sites->n];
    *site = (struct kiln_smem_site){.struct_size = sizeof(*site),
            .kind = kind,
            .name = name,
            .stride_bytes = (uint32_t)stride,
            .access_bytes = access};
    sites->list[sites->n++] = site;
}

static void add_staging_sites(struct sites *sites, int32_t stride) {
    add_site(sites, KILN_SITE_LDMATRIX, "Q ldmatrix", stride, 16);
    add_site(sites, KILN_SITE_LDMATRIX, "K ldmatrix", stride, 16);
    add_site(sites, KILN_SITE_LDMATRIX, "V ldmatrix.trans", stride, 16);
}

// ---- Plans ------------------------------------------------------------------------------------
struct tile {
    int32_t tq, tkv, stride; // stride: bytes from one staged row to the next
    uint32_t threads, shared_bytes;
};

static int32_t begin(struct attention_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, struct tile *tile) {
    static const struct attention_needs needs = {
            .head_multiple = 16, .head_max = 256, .alignment = 16};
    int32_t result = attention_begin(request, problem, geometry, device, plan, &needs);
    if (result == KILN_RESULT_OK) {
        tile->tq = attention_value(request, "FA_TQ");
        tile->tkv = attention_value(request, "FA_TKV");
        tile->stride = (request->op->head_size + attention_value(request, "FA_KPAD")) * 2;
    }
    return result;
}

static int32_t submit(struct attention_request *request, const char *kernel,
        const struct tile *tile, const struct sites *sites, const char *family) {
    uint32_t grid[3] = {
            (uint32_t)attention_blocks(request->rows, tile->tq), (uint32_t)request->op->n_heads, 1};
    struct attention_launch launch;
    attention_launch_begin(&launch, request, kernel, grid, tile->threads);
    attention_launch_define_problem(&launch, request);
    attention_launch_operand(&launch, KILN_OPERAND_Q);
    attention_launch_operand(&launch, KILN_OPERAND_K_CACHE);
    attention_launch_operand(&launch, KILN_OPERAND_V_CACHE);
    attention_launch_operand(&launch, KILN_OPERAND_POSITIONS);
    attention_launch_operand(&launch, KILN_OPERAND_OUT);
    attention_launch_operand(&launch, KILN_OPERAND_N_TOKENS);
    attention_launch_operand(&launch, KILN_OPERAND_KV_LEN);
    launch.record.shared_bytes = tile->shared_bytes;
    launch.record.sites = sites->list;
    launch.record.n_sites = sites->n;
    // The order of sums depends on nothing else of the geometry: a row's bits are the same in every
    // tile of rows.
    snprintf(launch.order, sizeof(launch.order), "attention_%s:%s:tkv%d", family,
            attention_mma_order(request), tile->tkv);
    attention_launch_bytes(&launch, &request->args, sizeof(request->args));
    return attention_launch_submit(&launch, request);
}

static uint32_t larger(int64_t a, int64_t b) {
    return (uint32_t)(a > b ? a : b);
}

static int32_t plan_fap1(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct attention_request request;
    struct tile tile;
    int32_t result = begin(&request, problem, geometry, device, plan, &tile);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int32_t head_size = request.op->head_size;
    int32_t column_groups = 8 * 16 / tile.tq;
    if (head_size % (16 * column_groups) != 0) {
        return attention_decline(&request,
                "head size %d is not handled with FA_TQ %d, only multiples of %d", head_size,
                tile.tq, 16 * column_groups);
    }
    int32_t score_stride = (tile.tkv + attention_value(&request, "FA_SPAD")) * 4;
    int32_t kv_rows = 2 * tile.tkv;
    if (attention_value(&request, "FA_LEGACY_SMEM") && tile.tq > tile.tkv) {
        kv_rows = 2 * tile.tq; // as the launcher once reckoned: 3 * FA_TQ rows in all
    }
    tile.threads = 256;
    tile.shared_bytes = (uint32_t)((tile.tq + kv_rows) * tile.stride + tile.tq * score_stride +
                                   3 * tile.tq * 4);
    struct sites sites = {.n = 0};
    add_staging_sites(&sites, tile.stride);
    add_site(&sites, KILN_SITE_STORE, "S store", score_stride, 8);
    add_site(&sites, KILN_SITE_LDMATRIX, "P ldmatrix", score_stride, 16);
    return submit(&request, "fap1", &tile, &sites, "fap1");
}

static int32_t plan_fap2(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct attention_request request;
    struct tile tile;
    int32_t result = begin(&request, problem, geometry, device, plan, &tile);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int32_t out_stride = request.op->head_size * 4;
    tile.threads = (uint32_t)(tile.tq / 16 * 32);
    tile.shared_bytes = larger((tile.tq + 2 * tile.tkv) * tile.stride, tile.tq * out_stride);
    struct sites sites = {.n = 0};
    add_staging_sites(&sites, tile.stride);
    add_site(&sites, KILN_SITE_STORE, "O store, last tile", out_stride, 8);
    return submit(&request, "fap2", &tile, &sites, "fa");
}

static int32_t plan_fap2db(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    struct attention_request request;
    struct tile tile;
    int32_t result = begin(&request, problem, geometry, device, plan, &tile);
    if (result != KILN_RESULT_OK) {
        return result;
    }
    int32_t warp_rows = attention_value(&request, "FA_WROWS");
    if (tile.tq % warp_rows != 0) {
        return attention_decline(&request,
                "FA_TQ %d is no multiple of FA_WROWS %d: set FA_WROWS "
                "to 16, or FA_TQ to 32, 64, 96, 128 or 192",
                tile.tq, warp_rows);
    }
    int32_t out_stride = request.op->head_size * 4;
    tile.threads = (uint32_t)(tile.tq / warp_rows * 32);
    tile.shared_bytes = larger((tile.tq + 4 * tile.tkv) * tile.stride, tile.tq * out_stride);
    struct sites sites = {.n = 0};
    add_staging_sites(&sites, tile.stride);
    add_site(&sites, KILN_SITE_STORE, "O store, last tile", out_stride, 8);
    return submit(&request, "fap2db", &tile, &sites, "fa");
}

// ---- Variants ---------------------------------------------------------------------------------
static const char *const slots[] = {"attention.prefill"};
static const struct kiln_kernel *const kernels_fap1[] = {&attention_kernel_fap1};
static const struct kiln_kernel *const kernels_fap2[] = {&attention_kernel_fap2};
static const struct kiln_kernel *const kernels_fap2db[] = {&attention_kernel_fap2db};
static const struct kiln_param *const params_fap1[] = {
        &fap1_tq, &fap1_tkv, &kpad, &spad, &legacy_smem, &fap1_blocks};
static const struct kiln_param *const params_fap2[] = {
        &tq, &tkv, &kpad, &sync, &ahead, &qreg, &fap2_blocks};
static const struct kiln_param *const params_fap2db[] = {
        &db_tq, &tkv, &kpad, &wrows, &qreg, &db_blocks};

const struct kiln_variant attention_fap1 = {.struct_size = sizeof(attention_fap1),
        .devices = KILN_DEVICE_CUDA,
        .name = "fap1",
        .help = "8 warps a tile, scores and weights through shared memory",
        .slots = slots,
        .params = params_fap1,
        .kernels = kernels_fap1,
        .ios = attention_ios,
        .n_slots = ATTENTION_COUNT(slots),
        .n_params = ATTENTION_COUNT(params_fap1),
        .n_kernels = ATTENTION_COUNT(kernels_fap1),
        .n_ios = ATTENTION_COUNT(attention_ios),
        .plan = plan_fap1};

const struct kiln_variant attention_fap2 = {.struct_size = sizeof(attention_fap2),
        .devices = KILN_DEVICE_CUDA,
        .name = "fap2",
        .help = "a warp for 16 query rows and all keys of a tile, softmax in registers",
        .slots = slots,
        .params = params_fap2,
        .kernels = kernels_fap2,
        .ios = attention_ios,
        .n_slots = ATTENTION_COUNT(slots),
        .n_params = ATTENTION_COUNT(params_fap2),
        .n_kernels = ATTENTION_COUNT(kernels_fap2),
        .n_ios = ATTENTION_COUNT(attention_ios),
        .plan = plan_fap2};

const struct kiln_variant attention_fap2db = {.struct_size = sizeof(attention_fap2db),
        .devices = KILN_DEVICE_CUDA,
        .name = "fap2db",
        .help = "fap2 with two stages of K and V: fetches the next tile while it uses this one",
        .slots = slots,
        .params = params_fap2db,
        .kernels = kernels_fap2db,
        .ios = attention_ios,
        .n_slots = ATTENTION_COUNT(slots),
        .n_params = ATTENTION_COUNT(params_fap2db),
        .n_kernels = ATTENTION_COUNT(kernels_fap2db),
        .n_ios = ATTENTION_COUNT(attention_ios),
        .plan = plan_fap2db};
