// mmq: schemas and plans of the variants on int8 tensor cores: mmq, mmq_async, mmq_expand.
//
// The shared memory is reckoned here from the geometry, apart from the source's own layout, which
// kiln compares with this figure.
#include "mmq.h"
#include "mmq_share.h"

#include <stdio.h>

enum {
    ROW_THREADS = 256, // of mm_mmq_expand, mm_mmq_join and mm_mmq_seams
    SCALE_PAD = 4,     // rows behind a row of scales or factors
    K_PAD = 128,       // columns of expanded rows: a multiple of this
    FEW_ROWS = 64,     // up to here a block takes no more rows than there are, rounded up
    GRID_YZ = 65535
};

// ---- Geometry -----------------------------------------------------------------------------------
static const int64_t bm_values[] = {16, 32, 64, 128, 256};
static const int64_t bn_values[] = {32, 64, 128, 256};
static const int64_t bk_values[] = {64, 128};
static const int64_t warps_values[] = {1, 2, 4, 8};

#define PARAM(variable, label, text) \
    static const struct kiln_param variable = { \
            .struct_size = sizeof(struct kiln_param), .name = (label), .help = (text)
#define LIST(array) .allowed = (array), .n_allowed = GPU_COUNT(array)
#define ROWS(array) .defaults = (array), .n_defaults = GPU_COUNT(array)

// clang-format off
// Shared memory a block: sm_75 64 KB, where the tile is a quarter; sm_86, 89 and 12x 99 KB. Four
// warps share BM, since 32 rows by 64 outputs need fewer registers beside the sums than 64 by 32:
// with 168 a thread q6_K and q4_K do not spill. On sm_12x only half the rows leave q6_K enough.
static const struct kiln_param_default *const bm_rows[] = {
    GPU_DEFAULT(0, 79, 64), GPU_DEFAULT(120, 129, 64)};
static const struct kiln_param_default *const bn_rows[] = {GPU_DEFAULT(0, 79, 64)};
static const struct kiln_param_default *const warps_m_rows[] = {
    GPU_DEFAULT(0, 79, 2), GPU_DEFAULT(120, 129, 2)};
static const struct kiln_param_default *const warps_n_rows[] = {
    GPU_DEFAULT(0, 79, 4), GPU_DEFAULT(120, 129, 4)};
static const struct kiln_param_default *const stages_rows[] = {
    GPU_DEFAULT(0, 79, 2), GPU_DEFAULT(86, 89, 2), GPU_DEFAULT(120, 129, 2)};

// What brings q6_K has the most instructions a byte: on Hopper tiles of half the outputs for twice
// the rows, recombined by twice the warps. On sm_10x and 11x twice the rows would spill.
static const struct kiln_param_default *const bm_rows_q6[] = {
    GPU_DEFAULT(0, 79, 64), GPU_DEFAULT(90, 99, 256), GPU_DEFAULT(120, 129, 64)};
static const struct kiln_param_default *const bn_rows_q6[] = {
    GPU_DEFAULT(0, 79, 64), GPU_DEFAULT(90, 119, 64)};
static const struct kiln_param_default *const stages_rows_q6[] = {
    GPU_DEFAULT(0, 79, 2), GPU_DEFAULT(86, 99, 2), GPU_DEFAULT(120, 129, 2)};
static const struct kiln_param_default *const producers_rows_q6[] = {GPU_DEFAULT(90, 109, 8)};

PARAM(bm, "BM", "rows of activations a block; few rows take less"), .unit = "rows", .value = 128,
    LIST(bm_values), ROWS(bm_rows)};
PARAM(bn, "BN", "outputs a block"), .unit = "outputs", .value = 128, LIST(bn_values),
    ROWS(bn_rows)};
PARAM(bk, "BK", "columns a tile, one barrier each"), .unit = "columns", .value = 128,
    LIST(bk_values)};
PARAM(stages, "STAGES", "tiles in shared memory"), .unit = "tiles", .value = 3, .min = 2, .max = 4,
    ROWS(stages_rows)};
PARAM(warps_m, "WARPS_M", "warps that multiply and share BM"), .unit = "warps", .value = 4,
    LIST(warps_values), ROWS(warps_m_rows)};
PARAM(warps_n, "WARPS_N", "warps that multiply and share BN"), .unit = "warps", .value = 2,
    LIST(warps_values), ROWS(warps_n_rows)};
PARAM(producers, "PRODUCERS", "warps that bring and recombine tiles"), .unit = "warps", .value = 4,
    LIST(warps_values)};
PARAM(bm_q6, "BM", "rows of activations a block; few rows take less"), .unit = "rows", .value = 128,
    LIST(bm_values), ROWS(bm_rows_q6)};
PARAM(bn_q6, "BN", "outputs a block"), .unit = "outputs", .value = 128, LIST(bn_values),
    ROWS(bn_rows_q6)};
PARAM(stages_q6, "STAGES", "tiles in shared memory"), .unit = "tiles", .value = 3, .min = 2,
    .max = 4, ROWS(stages_rows_q6)};
PARAM(producers_q6, "PRODUCERS", "warps that bring and recombine tiles"), .unit = "warps",
    .value = 4, LIST(warps_values), ROWS(producers_rows_q6)};
PARAM(min_blocks, "MIN_BLOCKS", "blocks a multiprocessor that registers must allow"),
    .unit = "blocks", .value = 1, .min = 1, .max = 8};
PARAM(splits, "SPLITS", "parts of K that blocks share, added in order; 0: as the device needs"),
    .flags = KILN_PARAM_REGROUPS, .unit = "parts", .value = 0, .min = 0, .max = 32};
PARAM(stream_k, "STREAM_K",
    "blocks share the last tiles' steps evenly: 0 never, 1 always, 2 where reckoned faster"),
    .flags = KILN_PARAM_REGROUPS, .value = MMQ_STREAM_WHERE_FASTER, .min = MMQ_STREAM_NEVER,
    .max = MMQ_STREAM_WHERE_FASTER};
// clang-format on

static const struct kiln_param *const params[] = {
        &bm, &bn, &bk, &stages, &warps_m, &warps_n, &producers, &min_blocks, &splits, &stream_k};
static const struct kiln_param *const params_q6[] = {&bm_q6, &bn_q6, &bk, &stages_q6, &warps_m,
        &warps_n, &producers_q6, &min_blocks, &splits, &stream_k};

struct tile {
    int32_t bm, bn, bk, stages, warps_m, warps_n, producers;
    uint32_t threads, shared_bytes;
    struct mmq_share share;
    int64_t tiles, most_shared; // of the bound's rows; streamed: mmq_most_shared
};

// What sets the variants apart.
struct lever {
    bool async, expanded;
};

static bool has_pair(uint32_t dtype) { // two factors for each 32 columns
    return dtype == KILN_DTYPE_Q4_1 || dtype == KILN_DTYPE_Q4_K || dtype == KILN_DTYPE_Q5_K ||
           dtype == KILN_DTYPE_Q6_K;
}

// Fewer rows than BM: no more than there are, all warps side by side along the outputs.
static void fit_rows(struct tile *tile, int32_t rows) {
    int32_t least = 16;
    while (least < rows) {
        least *= 2;
    }
    if (least >= tile->bm || least > FEW_ROWS) {
        return;
    }
    int32_t warps = tile->warps_m * tile->warps_n;
    tile->bm = least;
    tile->warps_m = 1;
    tile->warps_n = warps < tile->bn / 16 ? warps : tile->bn / 16;
}

// Blocks that a multiprocessor certainly holds at a time: as many as registers are asked to allow,
// with few rows two.
static int32_t blocks_a_sm(const struct mm_request *request, const struct tile *tile) {
    const struct kiln_device *device = request->base.device;
    int64_t room = device->smem_sm / ((int64_t)tile->shared_bytes + device->smem_reserved);
    int32_t asked = gpu_value(&request->base, "MIN_BLOCKS");
    if (asked < 2 && tile->bm <= FEW_ROWS && 2 * tile->threads <= 1024) {
        asked = 2;
    }
    asked = asked > room ? (int32_t)room : asked;
    return asked < 1 ? 1 : asked;
}

static int32_t pick_share(const struct mm_request *request, struct tile *tile) {
    const struct gpu_request *base = &request->base;
    int32_t wanted = gpu_value(base, "SPLITS");
    enum mmq_stream stream = (enum mmq_stream)gpu_value(base, "STREAM_K");
    if (wanted > 0 && stream == MMQ_STREAM_ALWAYS) {
        return gpu_decline(base,
                "SPLITS %d asks for equal parts of K, STREAM_K 1 for shared steps; set SPLITS to 0 "
                "or STREAM_K to 0",
                wanted);
    }
    const struct kiln_device *device = base->device;
    struct mmq_product product = {.row_tiles = gpu_blocks(request->args.rows, tile->bm),
            .out_tiles = gpu_blocks(request->args.n, tile->bn),
            .steps = gpu_blocks(request->args.k, tile->bk),
            .bm = tile->bm,
            .bn = tile->bn,
            .bk = tile->bk,
            .sm_count = device->sm_count > 0 ? device->sm_count : 1,
            .a_sm = blocks_a_sm(request, tile),
            .memory_bandwidth = device->memory_bandwidth};
    tile->share = mmq_pick_share(&product, wanted, stream);
    tile->tiles = product.row_tiles * product.out_tiles;
    tile->most_shared = mmq_most_shared(&product, &tile->share);
    if (tile->share.streamed && !mmq_tiles_are_counted(&product, &tile->share)) {
        return gpu_decline(base, "STREAM_K 1: %lld tiles are more than are counted; set it to 0",
                (long long)tile->tiles);
    }
    return KILN_RESULT_OK;
}

static int32_t read_tile(
        const struct mm_request *request, const struct lever *lever, struct tile *tile) {
    const struct gpu_request *base = &request->base;
    uint32_t dtype = request->weight->dtype;
    *tile = (struct tile){.bm = gpu_value(base, "BM"),
            .bn = gpu_value(base, "BN"),
            .bk = gpu_value(base, "BK"),
            .stages = gpu_value(base, "STAGES"),
            .producers = gpu_value(base, "PRODUCERS"),
            .warps_m = gpu_value(base, "WARPS_M"),
            .warps_n = gpu_value(base, "WARPS_N")};
    fit_rows(tile, request->args.rows);
    tile->threads = (uint32_t)(tile->warps_m * tile->warps_n + tile->producers) * 32;
    if (tile->bm % (16 * tile->warps_m) != 0 || tile->bn % (16 * tile->warps_n) != 0 ||
            tile->threads > 1024) {
        return gpu_decline(base,
                "BM %d by BN %d for %d by %d warps: a warp takes multiples of 16 by 16, a block at "
                "most 32 warps; change BM, BN, WARPS_M or WARPS_N",
                tile->bm, tile->bn, tile->warps_m, tile->warps_n);
    }
    int32_t step = tile->producers * 32 / (tile->bk / 16);
    if (tile->bn % step != 0) {
        return gpu_decline(base,
                "%d producers read weights %d rows at a time, and BN %d is no multiple of that; "
                "change BN, BK or PRODUCERS",
                tile->producers, step, tile->bn);
    }
    if (dtype == KILN_DTYPE_Q6_K && tile->bk < 128 && !lever->expanded) {
        return gpu_decline(
                base, "BK %d: bytes of q6_K hold values 64 apart; set BK to 128", tile->bk);
    }
    int32_t blocks = tile->bk / 32;
    int32_t scales = blocks * (tile->bm + SCALE_PAD) * 8;
    int32_t factors = blocks * (tile->bn + SCALE_PAD) * (has_pair(dtype) ? 8 : 4);
    tile->shared_bytes =
            (uint32_t)(tile->stages * ((tile->bm + tile->bn) * tile->bk + scales + factors));
    int64_t wide = request->args.in_stride > request->args.weight_stride
                           ? request->args.in_stride
                           : request->args.weight_stride;
    wide = wide > request->args.k_padded / 32 * 40 ? wide : request->args.k_padded / 32 * 40;
    if (wide * (tile->bm > tile->bn ? tile->bm : tile->bn) > INT32_MAX) {
        return gpu_decline(
                base, "IN or WEIGHT: %lld bytes a row; a tile's rows exceed 2 GB", (long long)wide);
    }
    if (gpu_blocks(request->args.n, tile->bn) > GRID_YZ) {
        return gpu_decline(base, "WEIGHT: %d rows of BN %d; at most %d times BN are handled",
                request->args.n, tile->bn, GRID_YZ);
    }
    return pick_share(request, tile);
}

// ---- Preparation --------------------------------------------------------------------------------
static const struct kiln_arg weight_source = {.struct_size = sizeof(struct kiln_arg),
        .kind = KILN_ARG_OPERAND,
        .operand = KILN_OPERAND_WEIGHT};

static int32_t prepare(const struct mm_request *request, uint32_t *index) {
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_mmq_expand", ROW_THREADS);
    gpu_launch_define_weight(&launch, request->weight);
    gpu_launch_define(&launch, "ROW_THREADS", ROW_THREADS);
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_WEIGHT);
    gpu_launch_prepared(&launch, KILN_PREP_SELF);
    gpu_launch_bytes(&launch, &request->args, sizeof(request->args));
    uint64_t bytes = (uint64_t)request->args.n * (uint64_t)request->args.k_padded / 32 * 40;
    launch.record.grid[0] = (uint32_t)gpu_blocks(
            (int64_t)request->args.n * (request->args.k_padded / 16), ROW_THREADS);
    launch.record.bytes_read = gpu_bytes(request->weight);
    launch.record.bytes_written = (double)bytes;
    const struct kiln_arg *const sources[] = {&weight_source};
    const struct kiln_launch *const launches[] = {&launch.record};
    struct kiln_preparation preparation = {.struct_size = sizeof(preparation),
            .n_sources = 1,
            .n_buffers = 1,
            .n_launches = 1,
            .id = "matmul.q8.k128", // rows of bytes, padded to multiples of 128, then factors
            .sources = sources,
            .buffer_bytes = &bytes,
            .launches = launches};
    int32_t result = request->base.plan->prepare(request->base.plan, &preparation);
    *index = (uint32_t)result;
    return result < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

// ---- Launches -----------------------------------------------------------------------------------
// What every kernel takes that adds parts: them, and what a product without parts would have had.
static void add_join(struct gpu_launch *launch, const struct mm_request *request, uint32_t parts) {
    gpu_launch_workspace(launch, parts, 0);
    gpu_launch_operand(launch, &request->base, KILN_OPERAND_BIAS);
    gpu_launch_operand(launch, &request->base, KILN_OPERAND_RESIDUAL);
    gpu_launch_operand(launch, &request->base, KILN_OPERAND_OUT);
    gpu_launch_operand(launch, &request->base, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(launch, &request->args, sizeof(request->args));
}

static int32_t submit_join(const struct mm_request *request, uint32_t parts) {
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_mmq_join", ROW_THREADS);
    gpu_launch_define(&launch, "ROW_THREADS", ROW_THREADS);
    add_join(&launch, request, parts);
    int64_t rows = request->args.rows;
    launch.record.grid[0] =
            (uint32_t)(rows * gpu_blocks(gpu_blocks(request->args.n, 4), ROW_THREADS));
    launch.record.bytes_read = (double)rows * request->args.n * 4 * request->args.splits +
                               gpu_bytes(request->bias) + gpu_bytes(request->residual);
    launch.record.bytes_written = gpu_bytes(request->out);
    return gpu_launch_submit(&launch, &request->base);
}

static int32_t submit_seams(
        const struct mm_request *request, const struct tile *tile, uint32_t parts) {
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_mmq_seams", ROW_THREADS);
    gpu_launch_define(&launch, "ROW_THREADS", ROW_THREADS);
    gpu_launch_define(&launch, "TILE_M", tile->bm);
    add_join(&launch, request, parts);
    launch.record.grid[0] =
            (uint32_t)(tile->most_shared * gpu_blocks(tile->bm * tile->bn / 4, ROW_THREADS));
    // Of the bound's rows: cut tiles are read once for each of their pieces, and written.
    double shared = (double)(tile->tiles % tile->share.splits);
    double cuts = shared > 0 ? tile->share.splits - 1 : 0;
    double cut_tiles = cuts < shared ? cuts : shared;
    double bytes = (double)tile->bm * tile->bn * 4;
    launch.record.bytes_read = (cuts + cut_tiles) * bytes;
    launch.record.bytes_written = cut_tiles * bytes;
    return gpu_launch_submit(&launch, &request->base);
}

// What results are added to, where they go, and the parts of tiles.
static void add_results(
        struct gpu_launch *launch, const struct mm_request *request, bool split, uint32_t parts) {
    if (split) {
        gpu_launch_null(launch);
        gpu_launch_null(launch);
        gpu_launch_workspace(launch, parts, 0);
    } else {
        gpu_launch_operand(launch, &request->base, KILN_OPERAND_BIAS);
        gpu_launch_operand(launch, &request->base, KILN_OPERAND_RESIDUAL);
        gpu_launch_operand(launch, &request->base, KILN_OPERAND_OUT);
    }
}

// How blocks share the work: the grid, and the name of the order of sums that comes of it. With
// shared steps it names what the order follows from, beside the product and the rows of the call.
static void share_out(
        struct gpu_launch *launch, const struct mm_request *request, const struct tile *tile) {
    int32_t parts = tile->share.splits;
    if (tile->share.streamed) {
        launch->record.grid[0] = (uint32_t)(parts + tile->tiles - tile->tiles % parts);
        snprintf(launch->order, sizeof(launch->order), "matmul_q8:k32:t%dx%dx%d:s%d", tile->bm,
                tile->bn, tile->bk, parts);
    } else {
        launch->record.grid[0] = (uint32_t)gpu_blocks(request->args.rows, tile->bm);
        launch->record.grid[1] = (uint32_t)gpu_blocks(request->args.n, tile->bn);
        launch->record.grid[2] = (uint32_t)parts;
        snprintf(launch->order, sizeof(launch->order), "matmul_q8:k32:p%d",
                (int)gpu_blocks(gpu_blocks(request->args.k, tile->bk), parts) * tile->bk);
    }
    launch->record.sum_order = launch->order;
}

static int32_t submit(const struct mm_request *request, const struct tile *tile,
        const struct lever *lever, uint32_t prepared, uint32_t parts) {
    bool split = !tile->share.streamed && tile->share.splits > 1;
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_mmq", tile->threads);
    gpu_launch_define_weight(&launch, request->weight);
    gpu_launch_define(&launch, "MMQ_EXPANDED", lever->expanded);
    gpu_launch_define(&launch, "A_ASYNC", lever->async);
    gpu_launch_define(&launch, "STREAMED", tile->share.streamed);
    gpu_launch_define(&launch, "TILE_M", tile->bm);
    gpu_launch_define(&launch, "SPREAD_M", tile->warps_m);
    gpu_launch_define(&launch, "SPREAD_N", tile->warps_n);
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_IN);
    if (lever->expanded) {
        gpu_launch_prepared(&launch, prepared);
    } else {
        gpu_launch_operand(&launch, &request->base, KILN_OPERAND_WEIGHT);
    }
    add_results(&launch, request, split, parts);
    if (tile->share.streamed) {
        gpu_launch_workspace(&launch, parts, 0);
    } else {
        gpu_launch_null(&launch);
    }
    struct mm_args args = request->args;
    if (split) {
        args.out_stride = gpu_blocks(args.n, 4) * 16;
        args.out_wide = 1;
    }
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(&launch, &args, sizeof(args));
    launch.record.shared_bytes = tile->shared_bytes;
    mm_count_work(&launch.record, request);
    uint32_t row = (uint32_t)tile->bk;
    uint32_t swizzle = tile->bk == 64 ? KILN_SWIZZLE_64 : KILN_SWIZZLE_128;
    gpu_launch_site(&launch, KILN_SITE_LDMATRIX, "IN ldmatrix", row, 16, swizzle);
    gpu_launch_site(&launch, KILN_SITE_LDMATRIX, "WEIGHT ldmatrix", row, 16, swizzle);
    share_out(&launch, request, tile);
    return gpu_launch_submit(&launch, &request->base);
}

// Bytes of the workspace that parts are left in; 0: none.
static uint64_t part_bytes(const struct mm_request *request, const struct tile *tile) {
    uint64_t parts = (uint64_t)tile->share.splits;
    if (tile->share.streamed) {
        return 2 * parts * (uint64_t)tile->bm * (uint64_t)tile->bn * 4;
    }
    uint64_t width = (uint64_t)gpu_blocks(request->args.n, 4) * 4;
    return parts > 1 ? parts * (uint64_t)request->args.rows * width * 4 : 0;
}

static int32_t plan_int8(const struct kiln_problem *problem, const struct kiln_geometry *geometry,
        const struct kiln_device *device, struct kiln_plan *plan, const struct lever *lever) {
    struct mm_request request;
    struct tile tile;
    int32_t result = mm_begin(&request, problem, geometry, device, plan, GPU_NEED_Q8);
    if (result == KILN_RESULT_OK && lever->async && device->cc < 80) {
        return gpu_decline(&request.base,
                "%s: cp.async is there from compute capability 8.0 on; use the variant mmq",
                device->target);
    }
    if (result == KILN_RESULT_OK) {
        request.args.k_padded = (request.args.k + K_PAD - 1) / K_PAD * K_PAD;
        result = read_tile(&request, lever, &tile);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    request.args.splits = tile.share.splits;
    uint32_t prepared = 0;
    if (lever->expanded) {
        result = prepare(&request, &prepared);
    }
    uint64_t bytes = part_bytes(&request, &tile);
    int32_t parts = 0;
    if (result == KILN_RESULT_OK && bytes > 0) {
        parts = plan->workspace(plan, bytes, 0);
        result = parts < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
    }
    if (result == KILN_RESULT_OK) {
        result = submit(&request, &tile, lever, prepared, (uint32_t)parts);
    }
    if (result != KILN_RESULT_OK || bytes == 0) {
        return result;
    }
    return tile.share.streamed ? submit_seams(&request, &tile, (uint32_t)parts)
                               : submit_join(&request, (uint32_t)parts);
}

static int32_t plan_mmq(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    return plan_int8(problem, geometry, device, plan, &(struct lever){0});
}

static int32_t plan_async(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    return plan_int8(problem, geometry, device, plan, &(struct lever){.async = true});
}

static int32_t plan_expand(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    return plan_int8(problem, geometry, device, plan, &(struct lever){.expanded = true});
}

static const char *const slots[] = {"matmul.q4_K.prefill", "matmul.q5_K.prefill",
        "matmul.q4_0.prefill", "matmul.q4_1.prefill", "matmul.q5_0.prefill", "matmul.q8_0.prefill"};
static const char *const slots_q6[] = {"matmul.q6_K.prefill"};
static const char *const slots_all[] = {"matmul.q4_K.prefill", "matmul.q6_K.prefill",
        "matmul.q5_K.prefill", "matmul.q4_0.prefill", "matmul.q4_1.prefill", "matmul.q5_0.prefill",
        "matmul.q8_0.prefill"};
static const char *const in_formats[] = {GPU_Q8_FORMAT};
static const struct kiln_io in_io = GPU_IO(IN, in_formats);
static const struct kiln_io *const ios[] = {&in_io};
static const struct kiln_kernel *const kernels[] = {
        &mm_kernel_mmq, &mm_kernel_mmq_join, &mm_kernel_mmq_seams};
static const struct kiln_kernel *const kernels_expand[] = {
        &mm_kernel_mmq, &mm_kernel_mmq_join, &mm_kernel_mmq_seams, &mm_kernel_mmq_expand};

#define VARIANT(object, label, text, slot_list, param_list, kernel_list, function) \
    const struct kiln_variant object = {.struct_size = sizeof(struct kiln_variant), \
            .devices = KILN_DEVICE_CUDA, \
            .name = (label), \
            .help = (text), \
            .slots = (slot_list), \
            .params = (param_list), \
            .kernels = (kernel_list), \
            .ios = ios, \
            .n_slots = GPU_COUNT(slot_list), \
            .n_params = GPU_COUNT(param_list), \
            .n_kernels = GPU_COUNT(kernel_list), \
            .n_ios = GPU_COUNT(ios), \
            .plan = (function)}

static const char mmq_help[] =
        "int8 tensor cores; weights recombined on their way into shared memory";
static const char async_help[] = "as mmq, activations copied by cp.async";

VARIANT(mm_variant_mmq, "mmq", mmq_help, slots, params, kernels, plan_mmq);
VARIANT(mm_variant_mmq_q6, "mmq", mmq_help, slots_q6, params_q6, kernels, plan_mmq);
VARIANT(mm_variant_mmq_async, "mmq_async", async_help, slots, params, kernels, plan_async);
VARIANT(mm_variant_mmq_async_q6, "mmq_async", async_help, slots_q6, params_q6, kernels, plan_async);
VARIANT(mm_variant_mmq_expand, "mmq_expand",
        "as mmq, weights expanded to int8 when the model is loaded: nothing to recombine",
        slots_all, params, kernels_expand, plan_expand);
