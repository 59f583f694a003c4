// good: a plugin that nothing is wrong with, built against the frozen header of ABI 1.0.
#include "plugin-1.0.h"

static void scale(const struct kiln_block *block, void *const *args) {
    const float *in = args[0];
    float *out = args[1];
    out[block->index[0]] = in[block->index[0]];
}

static int32_t plan_scale(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)problem;
    (void)device;
    const struct kiln_arg in = {
            .struct_size = sizeof(in), .kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_IN};
    const struct kiln_arg out = {
            .struct_size = sizeof(out), .kind = KILN_ARG_OPERAND, .operand = KILN_OPERAND_OUT};
    const struct kiln_arg *const args[] = {&in, &out};
    const struct kiln_launch launch = {.struct_size = sizeof(launch),
            .kernel = "scale",
            .grid = {(uint32_t)geometry->values[0], 1, 1},
            .block = {1, 1, 1},
            .args = args,
            .n_args = 2};
    return plan->launch(plan, &launch) < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

static const int64_t tile_values[] = {16, 32, 64};
static const struct kiln_param_default wide = {.struct_size = sizeof(wide),
        .head_size = 256,
        .target_min = 90,
        .target_max = 121,
        .value = 64};
static const struct kiln_param_default *const tile_defaults[] = {&wide};
static const struct kiln_param tile = {.struct_size = sizeof(tile),
        .flags = KILN_PARAM_REGROUPS,
        .name = "N_TILE",
        .help = "rows a tile",
        .unit = "rows",
        .value = 32,
        .allowed = tile_values,
        .n_allowed = 3,
        .n_defaults = 1,
        .defaults = tile_defaults};
static const struct kiln_param pad = {.struct_size = sizeof(pad),
        .name = "N_PAD",
        .help = "padding of a row",
        .unit = "bytes",
        .value = 8,
        .min = 0,
        .max = 64,
        .multiple_of = 8};
static const struct kiln_param *const params[] = {&tile, &pad};

static const struct kiln_kernel kernel = {
        .struct_size = sizeof(kernel), .name = "scale", .host = scale};
static const struct kiln_kernel *const kernels[] = {&kernel};

static const char *const out_formats[] = {"f32", "good_32"};
static const struct kiln_io out_io = {.struct_size = sizeof(out_io),
        .operand = KILN_OPERAND_OUT,
        .n_formats = 2,
        .formats = out_formats};
static const struct kiln_io *const ios[] = {&out_io};

static const char *const norm_slots[] = {"norm"}, *const matmul_slots[] = {"matmul.*.prefill"};
static const struct kiln_variant norm = {.struct_size = sizeof(norm),
        .devices = KILN_DEVICE_HOST,
        .name = "plain",
        .help = "one row a block",
        .slots = norm_slots,
        .params = params,
        .kernels = kernels,
        .ios = ios,
        .n_slots = 1,
        .n_params = 2,
        .n_kernels = 1,
        .n_ios = 1,
        .plan = plan_scale};
// The same name in another slot is another variant.
static const struct kiln_variant matmul = {.struct_size = sizeof(matmul),
        .devices = KILN_DEVICE_HOST,
        .name = "plain",
        .help = "one row a block",
        .slots = matmul_slots,
        .params = params,
        .kernels = kernels,
        .n_slots = 1,
        .n_params = 1,
        .n_kernels = 1,
        .plan = plan_scale};
static const struct kiln_variant *const variants[] = {&norm, &matmul};

static const struct kiln_format format = {.struct_size = sizeof(format),
        .block_elems = 32,
        .block_bytes = 36,
        .row_multiple = 1,
        .name = "good_32",
        .layout = "f32 scale, 32 int8"};
static const struct kiln_format *const formats[] = {&format};

static int live;

static int32_t start(
        const struct kiln_host *host, const struct kiln_device *device, void **instance) {
    (void)device;
    if (host->extension(host, "kiln.absent/1")) {
        return KILN_RESULT_FAILED;
    }
    host->log(host, KILN_LOG_KIND_DEBUG, "good: started");
    *instance = &live;
    return KILN_RESULT_OK;
}

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = 1,
        .abi_minor = 0,
        .name = "good",
        .version = "1.2.3",
        .help = "a plugin that nothing is wrong with",
        .variants = variants,
        .formats = formats,
        .n_variants = 2,
        .n_formats = 1,
        .start = start};
