// wgmma: schema and plans of f16_wgmma and f16_wgmma_glu, on Hopper's own instructions, with
// weights expanded as for f16_expand.
#include "gemm.h"

#include <string.h>

enum {
    BK = 64,       // columns a tile: rows of 128 bytes, the swizzle's width
    SUMS_PAD = 8,  // f32 behind a row of sums on its way out
    BARRIERS = 16, // bytes a stage
    GRID_Y = 65535
};

static const int64_t bm_values[] = {64, 128, 192};
static const int64_t bn_values[] = {128, 256};

static const struct kiln_param bm = {.struct_size = sizeof(struct kiln_param),
        .name = "BM",
        .help = "rows of activations a block: 64 for each warpgroup that multiplies",
        .unit = "rows",
        .value = 128,
        .allowed = bm_values,
        .n_allowed = GPU_COUNT(bm_values)};
static const struct kiln_param bn = {.struct_size = sizeof(struct kiln_param),
        .name = "BN",
        .help = "outputs a block",
        .unit = "outputs",
        .value = 256,
        .allowed = bn_values,
        .n_allowed = GPU_COUNT(bn_values)};
static const struct kiln_param stages = {.struct_size = sizeof(struct kiln_param),
        .name = "STAGES",
        .help = "tiles of 64 columns in shared memory",
        .unit = "tiles",
        .value = 4,
        .min = 2,
        .max = 8};
static const struct kiln_param *const params[] = {&bm, &bn, &stages};

static struct kiln_tensor_map make_map(
        uint32_t base, int k_padded, int64_t stride, int rows, int box_rows) {
    return (struct kiln_tensor_map){.struct_size = sizeof(struct kiln_tensor_map),
            .base = base,
            .dtype = KILN_DTYPE_F16,
            .rank = 2,
            .dims = {(uint64_t)k_padded, (uint64_t)rows},
            .strides = {2, (uint64_t)stride},
            .box = {BK, (uint32_t)box_rows},
            .elem_strides = {1, 1},
            .swizzle = KILN_SWIZZLE_128,
            .l2_promotion = 256};
}

struct tile {
    int32_t bm, bn, stages;
    uint32_t threads, shared_bytes;
};

static void read_tile(const struct gpu_request *request, struct tile *tile) {
    *tile = (struct tile){.bm = gpu_value(request, "BM"),
            .bn = gpu_value(request, "BN"),
            .stages = gpu_value(request, "STAGES")};
    int32_t consumers = tile->bm / 64;
    tile->threads = (uint32_t)(consumers + 1) * 128;
    int32_t ring = tile->stages * (tile->bm + tile->bn) * BK * 2;
    int32_t sums = consumers * 4 * 16 * (tile->bn + SUMS_PAD) * 4;
    tile->shared_bytes = (uint32_t)((ring > sums ? ring : sums) + tile->stages * BARRIERS);
}

static int32_t check_target(const struct gpu_request *request, const struct tile *tile) {
    const struct kiln_device *device = request->device;
    if (device->cc != 90 || strcmp(device->target, "sm_90a") != 0) {
        return gpu_decline(request, "%s: wgmma is there on sm_90a alone", device->target);
    }
    if (tile->bm > 128 && tile->bn > 128) {
        return gpu_decline(request,
                "BM %d by BN %d: the sums do not fit the registers; lower BM to 128 or BN to 128",
                tile->bm, tile->bn);
    }
    return KILN_RESULT_OK;
}

// Maps of the weights, which must live until the launch is submitted, and biases.
static void add_weights(struct gpu_launch *launch, const struct mm_request *request,
        const struct tile *tile, const uint32_t *prepared, struct kiln_tensor_map maps[2]) {
    for (uint32_t op = 0; op < mm_weights(request); op++) {
        uint32_t base = mm_halves_as_they_are(request, op) ? KILN_ARG_OPERAND : KILN_ARG_PREPARED;
        maps[op] = make_map(base, request->args.k_padded, 2ll * request->args.k_padded,
                request->args.n, mm_outputs_of(request, tile->bn));
        gpu_launch_map(launch, op, KILN_OPERAND_WEIGHT, prepared[op], 0, &maps[op]);
        gpu_launch_operand_of(launch, &request->base, op, KILN_OPERAND_BIAS);
    }
}

static int32_t submit(const struct mm_request *request, const struct tile *tile,
        const struct mm_halves *halves, const uint32_t *prepared, uint32_t largest) {
    struct kiln_tensor_map weights[2];
    struct kiln_tensor_map in = make_map(halves->as_in ? KILN_ARG_OPERAND : KILN_ARG_WORKSPACE,
            request->args.k_padded, request->args.halves_stride, request->args.rows, tile->bm);
    struct gpu_launch launch;
    gpu_launch_begin(&launch, "mm_wgmma", tile->threads);
    gpu_launch_define(&launch, "MM_GLU", request->activation);
    gpu_launch_map(&launch, 0, KILN_OPERAND_IN, halves->values, 0, &in);
    mm_add_scales(&launch, request, halves);
    add_weights(&launch, request, tile, prepared, weights);
    if (request->activation == 0) {
        gpu_launch_operand(&launch, &request->base, KILN_OPERAND_RESIDUAL);
    }
    launch.record.shared_bytes = tile->shared_bytes;
    launch.record.sum_order = "matmul_f16:wgmma_k16";
    mm_count_work(&launch.record, request);
    gpu_launch_site(&launch, KILN_SITE_STORE, "sums", (uint32_t)(tile->bn + SUMS_PAD) * 4, 8,
            KILN_SWIZZLE_NONE);
    return mm_submit(&launch, request, tile->bm, mm_outputs_of(request, tile->bn), largest);
}

static int32_t plan_gemm(const struct kiln_problem *problem, const struct kiln_geometry *geometry,
        const struct kiln_device *device, struct kiln_plan *plan, bool glu) {
    struct mm_request request;
    struct tile tile;
    int32_t result = mm_begin_gemm(&request, problem, geometry, device, plan, glu);
    if (result == KILN_RESULT_OK) {
        read_tile(&request.base, &tile);
        result = check_target(&request.base, &tile);
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
    result = mm_prepare_weights(&request, prepared);
    if (result == KILN_RESULT_OK) {
        result = mm_take_halves(&request, &halves);
    }
    if (result == KILN_RESULT_OK) {
        result = mm_take_largest(&request, &largest);
    }
    return result == KILN_RESULT_OK ? submit(&request, &tile, &halves, prepared, largest) : result;
}

static int32_t plan_wgmma(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    return plan_gemm(problem, geometry, device, plan, false);
}

static int32_t plan_wgmma_glu(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    return plan_gemm(problem, geometry, device, plan, true);
}

static const struct kiln_kernel *const kernels[] = {
        &mm_kernel_rows, &mm_kernel_expand, &mm_kernel_wgmma};

const struct kiln_variant mm_variant_f16_wgmma = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "f16_wgmma",
        .help = "as f16_expand, by warpgroups and the copy engine; sm_90a alone",
        .slots = mm_gemm_slots,
        .params = params,
        .kernels = kernels,
        .ios = mm_gemm_ios,
        .n_slots = GPU_COUNT(mm_gemm_slots),
        .n_params = GPU_COUNT(params),
        .n_kernels = GPU_COUNT(kernels),
        .n_ios = GPU_COUNT(mm_gemm_ios),
        .plan = plan_wgmma};

const struct kiln_variant mm_variant_f16_wgmma_glu = {.struct_size = sizeof(struct kiln_variant),
        .devices = KILN_DEVICE_CUDA,
        .name = "f16_wgmma_glu",
        .help = "as f16_wgmma, the products for gate and up and their activation in one launch; "
                "sm_90a alone",
        .slots = mm_gemm_slots,
        .follows = mm_glu_follows,
        .role = "ffn_gate",
        .params = params,
        .kernels = kernels,
        .ios = mm_glu_ios,
        .n_slots = GPU_COUNT(mm_gemm_slots),
        .n_follows = GPU_COUNT(mm_glu_follows),
        .n_params = GPU_COUNT(params),
        .n_kernels = GPU_COUNT(kernels),
        .n_ios = GPU_COUNT(mm_glu_ios),
        .plan = plan_wgmma_glu};
