// gemm: schemas and plans of the variants on f16 tensor cores: f16, f16_expand, f16_expand_glu.
//
// The shared memory is reckoned here from the geometry, apart from the source's own layout, which
// kiln compares with this figure.
#include "mm_plan.h"

#include "gemm.h"

#include <stdio.h>

enum {
    ROW_THREADS = 256, // of mm_rows and mm_expand
    SUMS_PAD = 8,      // f32 behind a row of sums on its way out
    EACH_TILE = 64,    // outputs that take as long as a tile's beginning and end
    GRID_Y = 65535
};

// ---- Geometry -----------------------------------------------------------------------------------
static const int64_t bm_values[] = {16, 32, 64, 128, 256};
static const int64_t bn_values[] = {32, 64, 128, 256};
static const int64_t bk_values[] = {32, 64, 128};
static const int64_t warps_values[] = {1, 2, 4};

#define PARAM(variable, label, text) \
    static const struct kiln_param variable = { \
            .struct_size = sizeof(struct kiln_param), .name = (label), .help = (text)
#define LIST(array) .allowed = (array), .n_allowed = GPU_COUNT(array)
#define ROWS(array) .defaults = (array), .n_defaults = GPU_COUNT(array)

// clang-format off
// Shared memory a block: sm_75 64 KB; sm_86, 89 and 12x 99 KB; sm_80 163 KB; sm_90 and 10x 227 KB.
static const struct kiln_param_default *const big_bn_rows[] = {GPU_DEFAULT(0, 79, 128)};
static const struct kiln_param_default *const big_bk_rows[] = {
    GPU_DEFAULT(80, 80, 64), GPU_DEFAULT(90, 99, 128), GPU_DEFAULT(100, 109, 64)};
static const struct kiln_param_default *const big_stage_rows[] = {
    GPU_DEFAULT(0, 79, 2), GPU_DEFAULT(80, 80, 3), GPU_DEFAULT(90, 99, 2)};
static const struct kiln_param_default *const small_stage_rows[] = {GPU_DEFAULT(0, 79, 2)};

PARAM(bm, "BM", "rows of activations a block"), .unit = "rows", .value = 128, LIST(bm_values)};
PARAM(big_bn, "BN", "outputs a block; fewer where multiprocessors would be idle"),
    .unit = "outputs", .value = 256, LIST(bn_values), ROWS(big_bn_rows)};
PARAM(small_bn, "BN", "outputs a block"), .unit = "outputs", .value = 128, LIST(bn_values)};
PARAM(big_bk, "BK", "columns a tile, one barrier each"), .unit = "columns", .value = 32,
    LIST(bk_values), ROWS(big_bk_rows)};
PARAM(small_bk, "BK", "columns a tile, one barrier each; under 128, bytes of q6_K are read twice"),
    .unit = "columns", .value = 64, LIST(bk_values)};
PARAM(big_stages, "STAGES", "tiles in shared memory; copies run one fewer ahead"),
    .unit = "tiles", .value = 4, .min = 2, .max = 8, ROWS(big_stage_rows)};
PARAM(small_stages, "STAGES", "tiles in shared memory; copies run one fewer ahead"),
    .unit = "tiles", .value = 3, .min = 2, .max = 8, ROWS(small_stage_rows)};
PARAM(warps_m, "WARPS_M", "warps that share BM"), .unit = "warps", .value = 2, LIST(warps_values)};
PARAM(warps_n, "WARPS_N", "warps that share BN"), .unit = "warps", .value = 4, LIST(warps_values)};
PARAM(min_blocks, "MIN_BLOCKS", "blocks a multiprocessor that registers must allow"),
    .unit = "blocks", .value = 1, .min = 1, .max = 8};
// clang-format on

static const struct kiln_param *const params_f16[] = {
        &bm, &small_bn, &small_bk, &small_stages, &warps_m, &warps_n, &min_blocks};
static const struct kiln_param *const params_expand[] = {
        &bm, &big_bn, &big_bk, &big_stages, &warps_m, &warps_n, &min_blocks};

struct tile {
    int32_t bm, bn, bk, stages, warps_m, warps_n;
    uint32_t threads, shared_bytes;
};

static bool is_copied_whole(const struct tile *tile, int32_t bn) {
    return bn % (16 * tile->warps_n) == 0 && bn * tile->bk % (16 * (int32_t)tile->threads) == 0;
}

int32_t mm_outputs_of(const struct mm_request *request, int32_t bn) {
    return request->activation != 0 ? bn / 2 : bn;
}

// What a matmul takes with tiles of bn rows of weights: their width, and what each costs however
// narrow, for every time that the multiprocessors get one.
static int64_t cost_of(const struct mm_request *request, const struct tile *tile, int32_t bn) {
    int64_t blocks = gpu_blocks(request->args.rows, tile->bm) *
                     gpu_blocks(request->args.n, mm_outputs_of(request, bn));
    int64_t device = request->base.device->sm_count;
    return gpu_blocks(blocks, device > 0 ? device : 1) * (bn + EACH_TILE);
}

// BN, or a half or a quarter of it.
static void fit_outputs(const struct mm_request *request, struct tile *tile) {
    int32_t asked = tile->bn;
    for (int32_t bn = asked / 2; bn >= asked / 4 && is_copied_whole(tile, bn); bn /= 2) {
        if (cost_of(request, tile, bn) < cost_of(request, tile, tile->bn)) {
            tile->bn = bn;
        }
    }
}

static int32_t read_tile(const struct mm_request *mm, bool expanded, struct tile *tile) {
    const struct gpu_request *request = &mm->base;
    *tile = (struct tile){.bm = gpu_value(request, "BM"),
            .bn = gpu_value(request, "BN"),
            .bk = gpu_value(request, "BK"),
            .stages = gpu_value(request, "STAGES"),
            .warps_m = gpu_value(request, "WARPS_M"),
            .warps_n = gpu_value(request, "WARPS_N")};
    tile->threads = (uint32_t)(tile->warps_m * tile->warps_n * 32);
    if (tile->bm % (16 * tile->warps_m) != 0 || tile->bn % (16 * tile->warps_n) != 0) {
        return gpu_decline(request,
                "BM %d by BN %d for %d by %d warps: a warp takes multiples of 16 by 16; change "
                "BM, BN, WARPS_M or WARPS_N",
                tile->bm, tile->bn, tile->warps_m, tile->warps_n);
    }
    if (tile->threads % (uint32_t)tile->bk != 0 ||
            tile->bm * tile->bk % (8 * (int32_t)tile->threads) != 0 ||
            !is_copied_whole(tile, tile->bn)) {
        return gpu_decline(request,
                "%u threads copy BM %d and BN %d rows of BK %d columns: the threads must be a "
                "multiple of BK, BM * BK one of 8 times the threads and BN * BK one of 16 times; "
                "change them, WARPS_M or WARPS_N",
                tile->threads, tile->bm, tile->bn, tile->bk);
    }
    if (expanded) {
        fit_outputs(mm, tile);
    }
    int64_t ring = (int64_t)tile->stages * (tile->bm + tile->bn) * tile->bk * 2;
    int64_t sums = (int64_t)(tile->threads / 32) * 16 * (tile->bn / tile->warps_n + SUMS_PAD) * 4;
    tile->shared_bytes = (uint32_t)(ring > sums ? ring : sums);
    return KILN_RESULT_OK;
}

// ---- Preparation --------------------------------------------------------------------------------
static const struct kiln_tensor *weight_of(const struct mm_request *request, uint32_t op) {
    return op == 0 ? request->weight : request->up_weight;
}

bool mm_halves_as_they_are(const struct mm_request *request, uint32_t op) {
    const struct kiln_tensor *weight = weight_of(request, op);
    return weight->dtype == KILN_DTYPE_F16 && gpu_alignment(weight) >= 16 &&
           request->args.k == request->args.k_padded && weight->strides[1] == 2ll * request->args.k;
}

static int32_t prepare_halves(const struct mm_request *request, uint32_t op, uint32_t *index) {
    const struct kiln_tensor *weight = weight_of(request, op);
    const struct kiln_arg source = {.struct_size = sizeof(source),
            .kind = KILN_ARG_OPERAND,
            .op = op,
            .operand = KILN_OPERAND_WEIGHT};
    struct mm_args args = request->args;
    args.weight_stride = weight->strides[1];
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_expand", ROW_THREADS);
    gpu_launch_define_weight(&launch, weight);
    gpu_launch_define(&launch, "ROW_THREADS", ROW_THREADS);
    gpu_launch_operand_of(&launch, &request->base, op, KILN_OPERAND_WEIGHT);
    gpu_launch_prepared(&launch, KILN_PREP_SELF);
    gpu_launch_bytes(&launch, &args, sizeof(args));
    uint64_t bytes = (uint64_t)args.n * (uint64_t)args.k_padded * 2;
    launch.record.grid[0] =
            (uint32_t)gpu_blocks((int64_t)args.n * (args.k_padded / 16), ROW_THREADS);
    launch.record.bytes_read = gpu_bytes(weight);
    launch.record.bytes_written = (double)bytes;
    const struct kiln_arg *const sources[] = {&source};
    const struct kiln_launch *const launches[] = {&launch.record};
    struct kiln_preparation preparation = {.struct_size = sizeof(preparation),
            .n_sources = 1,
            .n_buffers = 1,
            .n_launches = 1,
            .id = "matmul.f16.k128", // rows of f16, padded to multiples of 128 columns
            .sources = sources,
            .buffer_bytes = &bytes,
            .launches = launches};
    int32_t result = request->base.plan->prepare(request->base.plan, &preparation);
    *index = (uint32_t)result;
    return result < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

uint32_t mm_weights(const struct mm_request *request) {
    return request->up_weight != NULL ? 2 : 1;
}

int32_t mm_prepare_weights(const struct mm_request *request, uint32_t prepared[2]) {
    int32_t result = KILN_RESULT_OK;
    for (uint32_t op = 0; op < mm_weights(request) && result == KILN_RESULT_OK; op++) {
        prepared[op] = 0;
        if (!mm_halves_as_they_are(request, op)) {
            result = prepare_halves(request, op, &prepared[op]);
        }
    }
    return result;
}

// ---- Activations --------------------------------------------------------------------------------
const struct kiln_format mm_format_rows = {.struct_size = sizeof(mm_format_rows),
        .block_elems = GPU_ROWS_COLUMNS,
        .block_bytes = GPU_ROWS_BYTES,
        .row_multiple = 1,
        .name = GPU_ROWS_FORMAT,
        .layout = "a row of K: q f16[K], then scale f32, a power of two, then room; value = scale "
                  "* q"};

static int32_t rows_to_halves(const struct mm_request *request, struct mm_halves *halves) {
    struct kiln_plan *plan = request->base.plan;
    uint64_t rows = (uint64_t)request->args.rows;
    uint64_t bytes = rows * (uint64_t)request->args.k_padded * 2;
    int32_t values = plan->workspace(plan, bytes, 0);
    int32_t scales = values < 0 ? -1 : plan->workspace(plan, rows * sizeof(float), 0);
    if (scales < 0) {
        return KILN_RESULT_FAILED;
    }
    *halves = (struct mm_halves){
            .has_scales = true, .values = (uint32_t)values, .scales = (uint32_t)scales};
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_rows", ROW_THREADS);
    gpu_launch_define(&launch, "ROW_THREADS", ROW_THREADS);
    gpu_launch_define(&launch, "IN_F16", request->in->dtype == KILN_DTYPE_F16);
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_IN);
    gpu_launch_workspace(&launch, halves->values, 0);
    gpu_launch_workspace(&launch, halves->scales, 0);
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_N_TOKENS);
    gpu_launch_bytes(&launch, &request->args, sizeof(request->args));
    launch.record.grid[0] = (uint32_t)rows;
    launch.record.bytes_read = gpu_bytes(request->in);
    launch.record.bytes_written = (double)bytes + (double)rows * sizeof(float);
    return gpu_launch_submit(&launch, &request->base);
}

int32_t mm_begin_gemm(struct mm_request *request, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan, bool glu) {
    int32_t result = (glu ? mm_begin_glu : mm_begin)(
            request, problem, geometry, device, plan, GPU_NEED_F32 | GPU_NEED_F16 | GPU_NEED_ROWS);
    request->args.k_padded = (request->args.k + MM_K_PAD - 1) / MM_K_PAD * MM_K_PAD;
    return result;
}

static bool is_rows(const struct kiln_tensor *tensor) {
    return tensor->dtype == KILN_DTYPE_BLOCK;
}

int32_t mm_take_halves(struct mm_request *request, struct mm_halves *halves) {
    struct mm_args *args = &request->args;
    bool rows = is_rows(request->in);
    *halves = (struct mm_halves){.has_scales = rows};
    halves->as_in = rows || (request->in->dtype == KILN_DTYPE_F16 && args->in_wide &&
                                    args->k == args->k_padded && args->in_stride == 2ll * args->k);
    args->halves_stride = rows ? args->in_stride : 2ll * args->k_padded;
    args->scale_step = rows ? (int)(args->in_stride / (int64_t)sizeof(float)) : 1;
    if (halves->as_in) {
        return KILN_RESULT_OK;
    }
    return rows_to_halves(request, halves);
}

void mm_add_scales(struct gpu_launch *launch, const struct mm_request *request,
        const struct mm_halves *halves) {
    if (!halves->has_scales) {
        gpu_launch_null(launch);
    } else if (halves->as_in) {
        gpu_launch_operand_at(launch, 0, KILN_OPERAND_IN, 2 * (uint64_t)request->args.k);
    } else {
        gpu_launch_workspace(launch, halves->scales, 0);
    }
}

// ---- Results ------------------------------------------------------------------------------------
int32_t mm_take_largest(const struct mm_request *request, uint32_t *index) {
    if (!request->args.out_rows) {
        return KILN_RESULT_OK;
    }
    struct kiln_plan *plan = request->base.plan;
    int32_t largest = plan->workspace(
            plan, (uint64_t)request->args.rows * sizeof(uint32_t), KILN_WORKSPACE_ZERO);
    *index = (uint32_t)largest;
    return largest < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

// The same launch again, its args' `again` set, with blocks for one turn of the device at most, two
// tiles each or more: most rows need no scaling, and the block that finds none has nothing else to
// do.
static int32_t submit_again(struct gpu_launch *launch, const struct mm_request *request) {
    struct kiln_launch *record = &launch->record;
    uint32_t turn = (uint32_t)request->base.device->sm_count / record->grid[0];
    uint32_t most = (record->grid[1] + 1) / 2;
    record->grid[1] = turn < 1 ? 1 : turn < most ? turn : most;
    record->flops = 0;
    record->bytes_read = record->bytes_written = (double)request->args.rows * sizeof(float);
    return gpu_launch_submit(launch, &request->base);
}

int32_t mm_submit(struct gpu_launch *launch, const struct mm_request *request, int32_t rows,
        int32_t outputs, uint32_t largest) {
    struct mm_args args = request->args;
    bool glu = request->activation != 0;
    gpu_launch_operand_of(launch, &request->base, glu ? 2 : 0, KILN_OPERAND_OUT);
    gpu_launch_operand(launch, &request->base, KILN_OPERAND_N_TOKENS);
    if (args.out_rows) {
        gpu_launch_workspace(launch, largest, 0);
    } else if (glu) {
        gpu_launch_null(launch);
    }
    gpu_launch_bytes(launch, &args, sizeof(args));
    launch->record.grid[0] = (uint32_t)gpu_blocks(args.rows, rows);
    launch->record.grid[1] = (uint32_t)gpu_blocks(args.n, outputs);
    int32_t result = gpu_launch_submit(launch, &request->base);
    if (result == KILN_RESULT_OK && args.out_rows) {
        args.again = 1;
        result = submit_again(launch, request);
    }
    return result;
}

// ---- f16, f16_expand and f16_expand_glu ---------------------------------------------------------
// Weight and bias of an op; prepared: where the weight was expanded to, if it was.
static void add_weight(struct gpu_launch *launch, const struct mm_request *request, uint32_t op,
        bool expanded, uint32_t prepared) {
    if (expanded && !mm_halves_as_they_are(request, op)) {
        gpu_launch_prepared(launch, prepared);
    } else {
        gpu_launch_operand_of(launch, &request->base, op, KILN_OPERAND_WEIGHT);
    }
    gpu_launch_operand_of(launch, &request->base, op, KILN_OPERAND_BIAS);
}

static int32_t submit(const struct mm_request *request, const struct tile *tile,
        const struct mm_halves *halves, bool expanded, const uint32_t *prepared, uint32_t largest) {
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_f16", tile->threads);
    gpu_launch_define(&launch, "MM_EXPANDED", expanded);
    gpu_launch_define(&launch, "MM_GLU", request->activation);
    gpu_launch_define(&launch, "TILE_N", tile->bn);
    if (!expanded) {
        gpu_launch_define_weight(&launch, request->weight);
    }
    if (halves->as_in) {
        gpu_launch_operand(&launch, &request->base, KILN_OPERAND_IN);
    } else {
        gpu_launch_workspace(&launch, halves->values, 0);
    }
    mm_add_scales(&launch, request, halves);
    for (uint32_t op = 0; op < mm_weights(request); op++) {
        add_weight(&launch, request, op, expanded, prepared[op]);
    }
    for (uint32_t i = 2 * mm_weights(request); i < 4; i++) {
        gpu_launch_null(&launch);
    }
    gpu_launch_operand(&launch, &request->base, KILN_OPERAND_RESIDUAL);
    launch.record.shared_bytes = tile->shared_bytes;
    mm_count_work(&launch.record, request);
    uint32_t row = (uint32_t)tile->bk * 2;
    uint32_t swizzle = tile->bk == 32 ? KILN_SWIZZLE_64 : KILN_SWIZZLE_128;
    gpu_launch_site(&launch, KILN_SITE_LDMATRIX, "IN ldmatrix", row, 16, swizzle);
    gpu_launch_site(&launch, KILN_SITE_LDMATRIX, "WEIGHT ldmatrix", row, 16, swizzle);
    gpu_launch_site(&launch, KILN_SITE_STORE, "sums",
            (uint32_t)(tile->bn / tile->warps_n + SUMS_PAD) * 4, 8, KILN_SWIZZLE_NONE);
    snprintf(launch.order, sizeof(launch.order), "matmul_f16:%s",
            request->base.device->cc < 80 ? "mma_k8" : "mma_k16");
    launch.record.sum_order = launch.order;
    return mm_submit(&launch, request, tile->bm, mm_outputs_of(request, tile->bn), largest);
}

static int32_t plan_gemm(const struct kiln_problem *problem, const struct kiln_geometry *geometry,
        const struct kiln_device *device, struct kiln_plan *plan, bool expanded, bool glu) {
    struct mm_request request;
    struct tile tile;
    int32_t result = mm_begin_gemm(&request, problem, geometry, device, plan, glu);
    if (result == KILN_RESULT_OK) {
        result = read_tile(&request, expanded, &tile);
    }
    if (result != KILN_RESULT_OK) {
        return result;
    }
    if (gpu_blocks(request.args.n, mm_outputs_of(&request, tile.bn)) > GRID_Y) {
        return gpu_decline(&request.base,
                "WEIGHT: %d rows of BN %d; at most %d times BN are handled", request.args.n,
                tile.bn, GRID_Y);
    }
    uint32_t prepared[2] = {0, 0}, largest = 0;
    struct mm_halves halves = {0};
    if (expanded) {
        result = mm_prepare_weights(&request, prepared);
    }
    if (result == KILN_RESULT_OK) {
        result = mm_take_halves(&request, &halves);
    }
    if (result == KILN_RESULT_OK) {
        result = mm_take_largest(&request, &largest);
    }
    return result == KILN_RESULT_OK ? submit(&request, &tile, &halves, expanded, prepared, largest)
                                    : result;
}

static int32_t plan_f16(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    return plan_gemm(problem, geometry, device, plan, false, false);
}

static int32_t plan_f16_expand(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    return plan_gemm(problem, geometry, device, plan, true, false);
}

static int32_t plan_f16_expand_glu(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    return plan_gemm(problem, geometry, device, plan, true, true);
}

const char *const mm_gemm_slots[1] = {"matmul.*.prefill"};
const char *const mm_glu_follows[2] = {"matmul:ffn_up", "activation"};
static const char *const in_formats[] = {GPU_ROWS_FORMAT, "f16", "f32"};
static const struct kiln_io in_io = GPU_IO(IN, in_formats);
const struct kiln_io *const mm_gemm_ios[1] = {&in_io};
// Of the activation. Plain f16 is not among them: it would not hold what some models have there.
static const char *const out_formats[] = {GPU_ROWS_FORMAT, "f32"};
static const struct kiln_io up_in_io = {.struct_size = sizeof(struct kiln_io),
        .op = 1,
        .operand = KILN_OPERAND_IN,
        .n_formats = GPU_COUNT(in_formats),
        .formats = in_formats};
static const struct kiln_io glu_out_io = {.struct_size = sizeof(struct kiln_io),
        .op = 2,
        .operand = KILN_OPERAND_OUT,
        .n_formats = GPU_COUNT(out_formats),
        .formats = out_formats};
const struct kiln_io *const mm_glu_ios[3] = {&in_io, &up_in_io, &glu_out_io};

static const struct kiln_kernel *const kernels_f16[] = {&mm_kernel_rows, &mm_kernel_f16};
static const struct kiln_kernel *const kernels_expand[] = {
        &mm_kernel_rows, &mm_kernel_expand, &mm_kernel_f16};

const struct kiln_variant mm_variant_f16 = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "f16",
        .help = "f16 tensor cores; weights dequantized on their way into shared memory",
        .slots = mm_gemm_slots,
        .params = params_f16,
        .kernels = kernels_f16,
        .ios = mm_gemm_ios,
        .n_slots = GPU_COUNT(mm_gemm_slots),
        .n_params = GPU_COUNT(params_f16),
        .n_kernels = GPU_COUNT(kernels_f16),
        .n_ios = GPU_COUNT(mm_gemm_ios),
        .plan = plan_f16};

const struct kiln_variant mm_variant_f16_expand = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "f16_expand",
        .help = "f16 tensor cores; weights expanded to f16 when the model is loaded",
        .slots = mm_gemm_slots,
        .params = params_expand,
        .kernels = kernels_expand,
        .ios = mm_gemm_ios,
        .n_slots = GPU_COUNT(mm_gemm_slots),
        .n_params = GPU_COUNT(params_expand),
        .n_kernels = GPU_COUNT(kernels_expand),
        .n_ios = GPU_COUNT(mm_gemm_ios),
        .plan = plan_f16_expand};

const struct kiln_variant mm_variant_f16_expand_glu = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "f16_expand_glu",
        .help = "as f16_expand, the products for gate and up and their activation in one launch",
        .slots = mm_gemm_slots,
        .follows = mm_glu_follows,
        .role = "ffn_gate",
        .params = params_expand,
        .kernels = kernels_expand,
        .ios = mm_glu_ios,
        .n_slots = GPU_COUNT(mm_gemm_slots),
        .n_follows = GPU_COUNT(mm_glu_follows),
        .n_params = GPU_COUNT(params_expand),
        .n_kernels = GPU_COUNT(kernels_expand),
        .n_ios = GPU_COUNT(mm_glu_ios),
        .plan = plan_f16_expand_glu};
