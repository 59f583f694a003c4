// jitlab: a CUDA plugin for the tests of survey, jit and cache: one variant for each thing that can
// be the matter with a kernel.
#include <kiln/plugin.h>

#include <stddef.h>

// ---- Sources ------------------------------------------------------------------------------------

static const char scale_text[] =
        "#include \"lab.cuh\"\n"
        "#ifndef LAB_TILE\n"
        "#    error LAB_TILE is not defined\n"
        "#endif\n"
        "static_assert(KILN_SMEM >= LAB_TILE * 4, \"KILN_SMEM is too small\");\n"
        "extern \"C\" __device__ const unsigned kiln_layout_lab_scale[] = {LAB_TILE * 4, 0, "
        "LAB_TILE * 4};\n"
        "extern \"C\" __global__ void lab_scale(float *to, const float *from) {\n"
        "    extern __shared__ float row[];\n"
        "    row[threadIdx.x % LAB_TILE] = from[threadIdx.x];\n"
        "    __syncthreads();\n"
        "    to[threadIdx.x] = row[threadIdx.x % LAB_TILE] * LAB_FACTOR;\n"
        "}\n";

static const struct kiln_header lab_header = {
        .struct_size = sizeof(lab_header), .name = "lab.cuh", .text = "#define LAB_FACTOR 2.0f\n"};
static const struct kiln_header *const lab_headers[] = {&lab_header};
static const struct kiln_source scale_source = {.struct_size = sizeof(scale_source),
        .name = "lab_scale.cu",
        .text = scale_text,
        .headers = lab_headers,
        .n_headers = 1};
static const struct kiln_kernel scale = {
        .struct_size = sizeof(scale), .name = "lab_scale", .source = &scale_source};

static const struct kiln_source broken_source = {.struct_size = sizeof(broken_source),
        .name = "lab_broken.cu",
        .text = "extern \"C\" __global__ void lab_broken(float *to) {\n    to[0] = absent;\n}\n"};
static const struct kiln_kernel broken = {
        .struct_size = sizeof(broken), .name = "lab_broken", .source = &broken_source};

// The staging of an attention: a tile of queries, one of keys, one of values.
static const char tiles_text[] =
        "#define LAB_BYTES ((LAB_TQ + 2 * LAB_TKV) * 272)\n"
        "static_assert(KILN_SMEM >= LAB_BYTES, \"KILN_SMEM: the launcher asks for too little\");\n"
        "extern \"C\" __device__ const unsigned kiln_layout_lab_tiles[] = {LAB_BYTES, 0, LAB_TQ * "
        "272, LAB_TQ * 272, LAB_TKV * 272, (LAB_TQ + LAB_TKV) * 272, LAB_TKV * 272};\n"
        "extern \"C\" __global__ void lab_tiles(float *to, const float *from) {\n"
        "    extern __shared__ float tile[];\n"
        "    for (unsigned i = threadIdx.x; i < LAB_BYTES / 4; i += blockDim.x) {\n"
        "        tile[i] = from[i];\n"
        "    }\n"
        "    __syncthreads();\n"
        "    to[threadIdx.x] = tile[threadIdx.x * 68 % (LAB_BYTES / 4)];\n"
        "}\n";
static const struct kiln_source tiles_source = {
        .struct_size = sizeof(tiles_source), .name = "lab_tiles.cu", .text = tiles_text};
static const struct kiln_kernel tiles = {
        .struct_size = sizeof(tiles), .name = "lab_tiles", .source = &tiles_source};

// As many sums in registers as it is told, and no __launch_bounds__ that would hold it to fewer.
static const char limits_text[] =
        "extern \"C\" __global__ void lab_limits(float *to, const float *from) {\n"
        "    float sums[LAB_SUMS];\n"
        "#pragma unroll\n"
        "    for (int i = 0; i < LAB_SUMS; i++) {\n"
        "        sums[i] = from[threadIdx.x + i * blockDim.x];\n"
        "    }\n"
        "    for (int turn = 0; turn < 64; turn++) {\n"
        "#pragma unroll\n"
        "        for (int i = 0; i < LAB_SUMS; i++) {\n"
        "            sums[i] = fmaf(sums[i], from[turn], sums[(i + 7) % LAB_SUMS]);\n"
        "        }\n"
        "    }\n"
        "#pragma unroll\n"
        "    for (int i = 0; i < LAB_SUMS; i++) {\n"
        "        to[threadIdx.x + i * blockDim.x] = sums[i];\n"
        "    }\n"
        "}\n";
static const struct kiln_source limits_source = {
        .struct_size = sizeof(limits_source), .name = "lab_limits.cu", .text = limits_text};
static const struct kiln_kernel limits = {
        .struct_size = sizeof(limits), .name = "lab_limits", .source = &limits_source};

static const struct kiln_kernel *const scale_kernels[] = {&scale};
static const struct kiln_kernel *const tiles_kernels[] = {&tiles};
static const struct kiln_kernel *const limits_kernels[] = {&limits};
static const struct kiln_kernel *const broken_kernels[] = {&broken};

// ---- Planning -----------------------------------------------------------------------------------

static int32_t launch_as(struct kiln_plan *plan, const struct kiln_problem *problem,
        const char *kernel, uint32_t threads, uint32_t blocks_y, uint32_t shared_bytes) {
    const struct kiln_op *op = problem->ops[0];
    struct kiln_arg args[2] = {{.struct_size = sizeof(args[0])}, {.struct_size = sizeof(args[0])}};
    const struct kiln_arg *const list[] = {&args[0], &args[1]};
    args[0].kind = args[1].kind = KILN_ARG_OPERAND;
    args[0].operand = KILN_OPERAND_OUT;
    args[1].operand = op->kind == KILN_OP_ACTIVATION ? KILN_OPERAND_GATE : KILN_OPERAND_IN;
    const struct kiln_launch one = {.struct_size = sizeof(one),
            .kernel = kernel,
            .grid = {1, blocks_y, 1},
            .block = {threads, 1, 1},
            .shared_bytes = shared_bytes,
            .args = list,
            .n_args = kernel == broken.name ? 1 : 2};
    return plan->launch(plan, &one) >= 0 ? KILN_RESULT_OK : KILN_RESULT_FAILED;
}

static int32_t launch(struct kiln_plan *plan, const struct kiln_problem *problem,
        const char *kernel, uint32_t shared_bytes) {
    return launch_as(plan, problem, kernel, 32, 1, shared_bytes);
}

// Right, but not on targets before sm_80.
static int32_t plan_modern(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    if (device->cc < 80) {
        return plan->decline(plan, "it needs cp.async, which sm_80 is the first to have");
    }
    return launch(plan, problem, scale.name, (uint32_t)geometry->values[0] * 4);
}

static int32_t plan_plain(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)device;
    return launch(plan, problem, scale.name, (uint32_t)geometry->values[0] * 4);
}

// A launcher with a wrong formula: three tiles where there is one.
static int32_t plan_greedy(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)device;
    return launch(plan, problem, scale.name, (uint32_t)geometry->values[0] * 12);
}

// More shared memory than any device has.
static int32_t plan_huge(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)geometry;
    (void)device;
    return launch(plan, problem, scale.name, 1 << 20);
}

static int32_t plan_broken(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)geometry;
    (void)device;
    return launch(plan, problem, broken.name, 0);
}

// A launcher with the formula that was right while LAB_TQ and LAB_TKV were the same.
static int32_t plan_legacy(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)device;
    return launch_as(plan, problem, tiles.name, 128, 1, 3 * (uint32_t)geometry->values[0] * 272);
}

// A launcher that forgets the tile of values.
static int32_t plan_stingy(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)device;
    const uint32_t rows = (uint32_t)(geometry->values[0] + geometry->values[1]);
    return launch_as(plan, problem, tiles.name, 128, 1, rows * 272);
}

// Whatever the geometry says.
static int32_t plan_limits(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)device;
    return launch_as(plan, problem, limits.name, (uint32_t)geometry->values[0],
            (uint32_t)geometry->values[1], (uint32_t)geometry->values[2]);
}

// ---- Tables -------------------------------------------------------------------------------------

static const struct kiln_param tile = {.struct_size = sizeof(tile),
        .name = "LAB_TILE",
        .help = "floats a tile",
        .unit = "floats",
        .value = 64,
        .min = 32,
        .max = 1024,
        .multiple_of = 32};
static const struct kiln_param *const params[] = {&tile};
#define NUMBER(variable, label, text, first, least, most, step) \
    static const struct kiln_param variable = {.struct_size = sizeof(variable), \
            .name = (label), \
            .help = (text), \
            .unit = "", \
            .value = (first), \
            .min = (least), \
            .max = (most), \
            .multiple_of = (step)}
NUMBER(tq, "LAB_TQ", "rows of queries", 64, 16, 256, 16);
NUMBER(tkv, "LAB_TKV", "rows of keys, and of values", 32, 16, 256, 16);
NUMBER(threads, "LAB_THREADS", "threads a block", 1024, 32, 2048, 32);
NUMBER(grid_y, "LAB_GRID_Y", "blocks", 4096, 4096, 131072, 4096);
NUMBER(smem, "LAB_SMEM", "bytes of shared memory", 0, 0, 1048576, 16384);
NUMBER(sums, "LAB_SUMS", "sums a thread", 8, 8, 128, 8);
static const struct kiln_param *const tiles_params[] = {&tq, &tkv};
static const struct kiln_param *const limits_params[] = {&threads, &grid_y, &smem, &sums};
static const char *const slots[] = {"norm", "activation"};

#define VARIANT(id, text, list, function) VARIANT_OF(id, text, params, 1, list, function)
#define VARIANT_OF(id, text, param_list, param_count, list, function) \
    static const struct kiln_variant id = {.struct_size = sizeof(id), \
            .devices = KILN_DEVICE_CUDA, \
            .name = #id, \
            .help = (text), \
            .slots = slots, \
            .n_slots = 2, \
            .params = (param_list), \
            .n_params = (param_count), \
            .kernels = (list), \
            .n_kernels = 1, \
            .plan = (function)}
VARIANT(lab_modern, "sm_80 and newer", scale_kernels, plan_modern);
VARIANT(lab_plain, "right everywhere", scale_kernels, plan_plain);
VARIANT(lab_greedy, "asks for too much shared memory", scale_kernels, plan_greedy);
VARIANT(lab_huge, "fits no device", scale_kernels, plan_huge);
VARIANT(lab_broken, "does not compile", broken_kernels, plan_broken);

VARIANT_OF(
        lab_legacy, "asks for three tiles of queries", tiles_params, 2, tiles_kernels, plan_legacy);
VARIANT_OF(lab_stingy, "asks for too little shared memory", tiles_params, 2, tiles_kernels,
        plan_stingy);
VARIANT_OF(lab_limits, "whatever its geometry says", limits_params, 4, limits_kernels, plan_limits);

static const struct kiln_variant *const variants[] = {&lab_modern, &lab_plain, &lab_greedy,
        &lab_huge, &lab_broken, &lab_legacy, &lab_stingy, &lab_limits};

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {
        .struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "jitlab",
        .version = "1.0",
        .help = "kernels for the tests of the compiler",
        .variants = variants,
        .n_variants = 8,
};
