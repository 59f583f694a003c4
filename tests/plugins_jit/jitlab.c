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

static const struct kiln_kernel *const scale_kernels[] = {&scale};
static const struct kiln_kernel *const broken_kernels[] = {&broken};

// ---- Planning -----------------------------------------------------------------------------------

static int32_t launch(struct kiln_plan *plan, const struct kiln_problem *problem,
        const char *kernel, uint32_t shared_bytes) {
    const struct kiln_op *op = problem->ops[0];
    struct kiln_arg args[2] = {{.struct_size = sizeof(args[0])}, {.struct_size = sizeof(args[0])}};
    const struct kiln_arg *const list[] = {&args[0], &args[1]};
    args[0].kind = args[1].kind = KILN_ARG_OPERAND;
    args[0].operand = KILN_OPERAND_OUT;
    args[1].operand = op->kind == KILN_OP_ACTIVATION ? KILN_OPERAND_GATE : KILN_OPERAND_IN;
    const struct kiln_launch one = {.struct_size = sizeof(one),
            .kernel = kernel,
            .grid = {1, 1, 1},
            .block = {32, 1, 1},
            .shared_bytes = shared_bytes,
            .args = list,
            .n_args = kernel == broken.name ? 1 : 2};
    return plan->launch(plan, &one) >= 0 ? KILN_RESULT_OK : KILN_RESULT_FAILED;
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
static const char *const slots[] = {"norm", "activation"};

#define VARIANT(id, text, list, function) \
    static const struct kiln_variant id = {.struct_size = sizeof(id), \
            .devices = KILN_DEVICE_CUDA, \
            .name = #id, \
            .help = text, \
            .slots = slots, \
            .n_slots = 2, \
            .params = params, \
            .n_params = 1, \
            .kernels = list, \
            .n_kernels = 1, \
            .plan = function}
VARIANT(lab_modern, "sm_80 and newer", scale_kernels, plan_modern);
VARIANT(lab_plain, "right everywhere", scale_kernels, plan_plain);
VARIANT(lab_greedy, "asks for too much shared memory", scale_kernels, plan_greedy);
VARIANT(lab_huge, "fits no device", scale_kernels, plan_huge);
VARIANT(lab_broken, "does not compile", broken_kernels, plan_broken);

static const struct kiln_variant *const variants[] = {
        &lab_modern, &lab_plain, &lab_greedy, &lab_huge, &lab_broken};

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {
        .struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "jitlab",
        .version = "1.0",
        .help = "kernels for the tests of the compiler",
        .variants = variants,
        .n_variants = 5,
};
