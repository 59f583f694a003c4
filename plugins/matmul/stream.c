// stream: the schema and the launch of mm_stream.
#include "stream.h"

#include <stdio.h>
#include <string.h>

enum {
    UNIT = 256,     // columns
    TILE = 16,      // outputs that the tensor cores take
    TILE_LEAST = 9, // fewer are never worth a tile
    BULK_TARGET = 90,
    BARRIERS = 16,      // bytes of a stage's
    WINDOW = 8,         // tiles whose sums are joined at once
    X_UNIT_BYTES = 608, // activations of a unit
    STAGES_LEAST = 2,
    WARPS_LEAST = 4, // fewer are left to mm_gemv
    GRID_ROWS = 65535
};

static const int64_t warps_values[] = {1, 2, 4, 8, 16};

const struct kiln_param mv_warps_param = {.struct_size = sizeof(struct kiln_param),
        .flags = KILN_PARAM_REGROUPS,
        .name = "GEMV_WARPS",
        .help = "warps a block; block types: fewer where shared memory is short",
        .unit = "warps",
        .value = 16,
        .allowed = warps_values,
        .n_allowed = GPU_COUNT(warps_values)};
const struct kiln_param mv_stages_param = {.struct_size = sizeof(struct kiln_param),
        .name = "GEMV_STAGES",
        .help = "block types: pieces of 16 outputs by 256 columns in a warp's ring, fewer where "
                "shared memory is short",
        .unit = "pieces",
        .value = 2,
        .min = STAGES_LEAST,
        .max = 16};
const struct kiln_param mv_blocks_param = {.struct_size = sizeof(struct kiln_param),
        .name = "GEMV_BLOCKS",
        .help = "block types: blocks a multiprocessor, fewer where shared memory is short",
        .unit = "blocks",
        .value = 1,
        .min = 1,
        .max = 4};

static const int64_t bulk_values[] = {0, 2, 3, 4, 6, 8};
// On compute capability 12 it was not measured.
static const struct kiln_param_default bulk_default = {
        .struct_size = sizeof(bulk_default), .target_min = 120, .value = 0};
static const struct kiln_param_default *const bulk_defaults[] = {&bulk_default};
const struct kiln_param mv_bulk_param = {.struct_size = sizeof(struct kiln_param),
        .flags = KILN_PARAM_REGROUPS,
        .name = "GEMV_BULK",
        .help = "block types, compute capability 9.0 and later: stages of a tile's rows that the "
                "copy engine brings ahead for all warps, fewer where shared memory is short; 0: "
                "warps copy for themselves",
        .unit = "stages",
        .value = 4,
        .allowed = bulk_values,
        .n_allowed = GPU_COUNT(bulk_values),
        .defaults = bulk_defaults,
        .n_defaults = GPU_COUNT(bulk_defaults)};

static const int64_t zero_one[] = {0, 1};
const struct kiln_param mv_overlap_param = {.struct_size = sizeof(struct kiln_param),
        .name = "GEMV_OVERLAP",
        .help = "1: the first weights are fetched while the launch before still runs, where the "
                "device can",
        .value = 1,
        .allowed = zero_one,
        .n_allowed = GPU_COUNT(zero_one)};

struct shape {
    int64_t warps;                       // that multiply
    int64_t stages, units, blocks, rows; // rows: outputs a tile
    bool bulk;
    uint64_t shared_bytes;
};

// Bytes of a unit of a weight's row.
static int64_t unit_bytes(const struct gpu_type *type) {
    return (int64_t)UNIT / type->elems * type->bytes;
}

// Bytes of `across` units of a tile's rows in shared memory (mv_types.cuh).
static int64_t stage_bytes(const struct mv_request *request, int64_t across) {
    int64_t most = 0;
    for (uint32_t i = 0; i < request->n_matrices; i++) {
        const struct gpu_type *type = gpu_type_find(request->matrices[i].weight->dtype);
        int64_t bytes = unit_bytes(type);
        bool aligned = type->elems == UNIT && bytes % 16 == 0;
        int64_t pieces = aligned ? across * bytes / 16 : (across * bytes + 14 + 15) / 16;
        int64_t row = (pieces | 1) * 16;
        most = row > most ? row : most;
    }
    return TILE * most;
}

static int64_t shared_bytes(const struct mv_request *request, const struct shape *shape) {
    int64_t parts = INT64_C(2) * WINDOW * shape->warps * TILE * (int64_t)sizeof(float);
    int64_t squares = (shape->warps * 4 + 15) / 16 * 16;
    int64_t chunks = gpu_blocks(shape->units, shape->warps);
    int64_t ring = shape->bulk ? stage_bytes(request, gpu_blocks(shape->units, chunks)) + BARRIERS
                               : shape->warps * stage_bytes(request, 1);
    return shape->stages * ring + parts + squares + shape->units * X_UNIT_BYTES;
}

// As many stages as asked for, or as there is room for in what a block may use; then as many warps.
static bool fit(const struct mv_request *request, struct shape *shape) {
    int64_t room = request->base.device->smem_block_optin;
    while (shape->stages > STAGES_LEAST && shared_bytes(request, shape) > room) {
        shape->stages--;
    }
    while (shape->warps > WARPS_LEAST && shared_bytes(request, shape) > room) {
        shape->warps = (shape->warps + shape->bulk) / 2 - shape->bulk;
    }
    shape->shared_bytes = (uint64_t)shared_bytes(request, shape);
    return shape->shared_bytes <= (uint64_t)room;
}

static int64_t count_tiles(const struct mv_request *request, int64_t rows) {
    int64_t tiles = 0;
    for (uint32_t i = 0; i < request->n_matrices; i++) {
        tiles += gpu_blocks(request->matrices[i].weight->dims[1], rows);
    }
    return tiles;
}

static int64_t count_blocks(const struct mv_request *request, const struct shape *shape) {
    int64_t multiprocessors = request->base.device->sm_count;
    return shape->blocks * (multiprocessors > 0 ? multiprocessors : 1);
}

// What a tile of a matrix costs, for blocks to share: the bytes of a unit of its rows.
static int64_t cost_of(const struct mv_matrix *matrix) {
    return unit_bytes(gpu_type_find(matrix->weight->dtype));
}

// The outputs, by what they cost, that tiles of `rows` give to the blocks before `block` of
// `blocks`: as mm_stream cuts them.
static int64_t cost_before(
        const struct mv_request *request, int64_t rows, int64_t block, int64_t blocks) {
    int64_t all = 0;
    int64_t before = 0;
    for (uint32_t i = 0; i < request->n_matrices; i++) {
        const struct mv_matrix *matrix = &request->matrices[i];
        all += gpu_blocks(matrix->weight->dims[1], rows) * cost_of(matrix);
    }
    int64_t left = all * block / blocks;
    for (uint32_t i = 0; i < request->n_matrices; i++) {
        int64_t cost = cost_of(&request->matrices[i]);
        int64_t mine = gpu_blocks(request->matrices[i].weight->dims[1], rows) * cost;
        int64_t here = left < mine ? left : mine;
        before += gpu_blocks(here, cost) * cost * rows;
        left -= here;
    }
    return before;
}

// Tiles of so many outputs that the block with the most to do has the least.
static int64_t choose_rows(const struct mv_request *request, const struct shape *shape) {
    int64_t best = TILE;
    int64_t least = INT64_MAX;
    for (int64_t rows = TILE; rows >= (request->pair ? TILE : TILE_LEAST); rows--) {
        int64_t tiles = count_tiles(request, rows);
        int64_t blocks = count_blocks(request, shape);
        blocks = tiles < blocks ? tiles : blocks;
        int64_t most = 0;
        for (int64_t block = 0; block < blocks; block++) {
            int64_t cost = cost_before(request, rows, block + 1, blocks) -
                           cost_before(request, rows, block, blocks);
            most = cost > most ? cost : most;
        }
        best = most < least ? rows : best;
        least = most < least ? most : least;
    }
    return best;
}

// The copy engine, where it is there, there is room, and K is long enough for most of the warps.
static struct shape choose(const struct mv_request *request) {
    const struct kiln_device *device = request->base.device;
    const struct shape asked = {.warps = gpu_value(&request->base, "GEMV_WARPS"),
            .stages = gpu_value(&request->base, "GEMV_BULK"),
            .units = gpu_blocks(request->k, UNIT),
            .blocks = gpu_value(&request->base, "GEMV_BLOCKS")};
    struct shape shape = asked;
    bool there = device->cc >= BULK_TARGET;
    shape.bulk = there && asked.stages > 0 && asked.warps > 1 && asked.units * 2 > asked.warps;
    shape.warps -= shape.bulk; // one of them has copies made
    if (!shape.bulk || !fit(request, &shape)) {
        shape = asked;
        shape.stages = gpu_value(&request->base, "GEMV_STAGES");
        (void)fit(request, &shape);
    }
    while (shape.blocks > 1 &&
            shape.blocks * ((int64_t)shape.shared_bytes + device->smem_reserved) >
                    device->smem_sm) {
        shape.blocks--;
    }
    shape.rows = choose_rows(request, &shape);
    return shape;
}

bool mv_fits(const struct mv_request *request, char *why, size_t size) {
    for (uint32_t i = 0; i < request->n_matrices; i++) {
        const struct kiln_tensor *weight = request->matrices[i].weight;
        const struct gpu_type *type = gpu_type_find(weight->dtype);
        if (type->elems == 1) {
            snprintf(why, size, "WEIGHT: %s; only block types are handled", type->name);
            return false;
        }
        if (weight->alignment % 16 != 0 || weight->alignment == 0 ||
                (type->elems == UNIT && unit_bytes(type) % 16 == 0 &&
                        weight->strides[1] % 16 != 0)) {
            snprintf(why, size, "WEIGHT: aligned to %llu bytes; a multiple of 16 is needed",
                    (unsigned long long)weight->alignment);
            return false;
        }
        if (weight->strides[1] > INT32_MAX / 16) {
            snprintf(why, size, "WEIGHT: rows %lld bytes apart; at most %d are handled",
                    (long long)weight->strides[1], INT32_MAX / 16);
            return false;
        }
    }
    struct shape shape = choose(request);
    if (shape.shared_bytes > (uint64_t)request->base.device->smem_block_optin) {
        snprintf(why, size, "%lld columns: %llu bytes of shared memory a block; %d are there",
                (long long)request->k, (unsigned long long)shape.shared_bytes,
                request->base.device->smem_block_optin);
        return false;
    }
    if (request->rows > GRID_ROWS) {
        snprintf(why, size, "IN: %lld rows; at most %d are handled", (long long)request->rows,
                GRID_ROWS);
        return false;
    }
    return true;
}

static struct mv_args make_args(const struct mv_request *request, const struct shape *shape) {
    struct mv_args args = {.in_stride = request->in->strides[1],
            .k = (int)request->k,
            .in_wide =
                    gpu_alignment(request->in) >= 16 && gpu_alignment(request->norm_weight) >= 16,
            .activation = request->activation,
            .eps = request->eps};
    for (uint32_t i = 0; i < request->n_matrices; i++) {
        const struct mv_matrix *matrix = &request->matrices[i];
        const struct kiln_tensor *out = request->pair ? request->out : matrix->out;
        args.n[i] = (int)matrix->weight->dims[1];
        args.tiles[i] = (int)gpu_blocks(matrix->weight->dims[1], shape->rows);
        args.cost[i] = (int)cost_of(matrix);
        args.weight_stride[i] = (int)matrix->weight->strides[1];
        args.out_stride[i] = out->strides[1];
    }
    const struct kiln_tensor *residual = request->matrices[0].residual;
    args.residual_stride = residual != NULL ? residual->strides[1] : 0;
    return args;
}

static void add_operands(
        struct gpu_launch *launch, const struct mv_request *request, uint32_t operand) {
    for (uint32_t i = 0; i < MV_MATRICES; i++) {
        if (i < request->n_matrices) {
            gpu_launch_operand_of(launch, &request->base, request->matrices[i].op, operand);
        } else {
            gpu_launch_null(launch);
        }
    }
}

static void add_arguments(struct gpu_launch *launch, const struct mv_request *request) {
    gpu_launch_operand_of(launch, &request->base, 0, KILN_OPERAND_IN);
    if (request->norm) {
        gpu_launch_operand_of(launch, &request->base, 0, KILN_OPERAND_WEIGHT);
    } else {
        gpu_launch_null(launch);
    }
    add_operands(launch, request, KILN_OPERAND_WEIGHT);
    add_operands(launch, request, KILN_OPERAND_BIAS);
    gpu_launch_operand_of(launch, &request->base, request->matrices[0].op, KILN_OPERAND_RESIDUAL);
    if (request->pair) {
        gpu_launch_operand_of(launch, &request->base, request->out_op, KILN_OPERAND_OUT);
        gpu_launch_null(launch);
        gpu_launch_null(launch);
    } else {
        add_operands(launch, request, KILN_OPERAND_OUT);
    }
    gpu_launch_operand_of(launch, &request->base, 0, KILN_OPERAND_N_TOKENS);
}

static void count_work(struct kiln_launch *record, const struct mv_request *request) {
    record->bytes_read = gpu_bytes(request->in) + gpu_bytes(request->norm_weight);
    for (uint32_t i = 0; i < request->n_matrices; i++) {
        const struct mv_matrix *matrix = &request->matrices[i];
        record->flops +=
                2.0 * (double)request->rows * (double)matrix->weight->dims[1] * (double)request->k;
        record->bytes_read +=
                gpu_bytes(matrix->weight) + gpu_bytes(matrix->bias) + gpu_bytes(matrix->residual);
        record->bytes_written += request->pair ? 0 : gpu_bytes(matrix->out);
    }
    record->bytes_written += request->pair ? gpu_bytes(request->out) : 0;
}

static void add_defines(
        struct gpu_launch *launch, const struct mv_request *request, const struct shape *shape) {
    gpu_launch_define(launch, "MV_WARPS", shape->warps);
    gpu_launch_define(launch, "MV_STAGES", shape->stages);
    gpu_launch_define(launch, "MV_UNITS", shape->units);
    gpu_launch_define(launch, "MV_ROWS", shape->rows);
    gpu_launch_define(launch, "MV_BULK", shape->bulk);
    gpu_launch_define(launch, "X_BITS", request->x_bits);
    gpu_launch_define(launch, "MATRICES", request->n_matrices);
    gpu_launch_define(launch, "PAIR", request->pair);
    gpu_launch_define(launch, "NORM", request->norm);
    for (uint32_t i = 0; i < MV_MATRICES; i++) {
        static const char *const names[] = {"TYPE_0", "TYPE_1", "TYPE_2"};
        uint32_t from = i < request->n_matrices ? i : 0;
        gpu_launch_define_word(
                launch, names[i], gpu_type_find(request->matrices[from].weight->dtype)->name);
    }
}

int32_t mv_submit(const struct mv_request *request) {
    struct shape shape = choose(request);
    struct mv_args args = make_args(request, &shape);
    struct gpu_launch launch;
    int64_t threads = (shape.warps + shape.bulk) * 32;
    gpu_launch_begin(&launch, "mm_stream", (uint32_t)threads);
    add_defines(&launch, request, &shape);
    add_arguments(&launch, request);
    gpu_launch_bytes(&launch, &args, sizeof(args));
    int64_t tiles = count_tiles(request, shape.rows);
    int64_t pieces = request->pair ? tiles / 2 : tiles;
    int64_t blocks = count_blocks(request, &shape);
    launch.record.grid[0] = (uint32_t)(pieces < blocks ? pieces : blocks);
    launch.record.grid[1] = (uint32_t)request->rows;
    launch.record.shared_bytes = (uint32_t)shape.shared_bytes;
    launch.record.flags =
            gpu_value(&request->base, "GEMV_OVERLAP") ? (uint32_t)KILN_LAUNCH_DEPENDENT : 0;
    count_work(&launch.record, request);
    // The copy engine's warps have the same units of each tile.
    snprintf(launch.order, sizeof(launch.order), "mm_stream:x%d:w%d:k%d:r%d", request->x_bits,
            (int)shape.warps, (int)request->k, shape.bulk ? 0 : (int)shape.rows);
    launch.record.sum_order = launch.order;
    return gpu_launch_submit(&launch, &request->base);
}
