// cornerlab: activations through a tile of FA_TQ rows by FA_TKV columns in shared memory. PLANTED:
// its rows are FA_TQ apart and not FA_TKV, which is right as long as the two are alike, as they are
// by default. Tiles of 256 by 256 are more than an A100 has; 8 by 256 is declined. HOPPER: so is
// all that is not for sm_90a.
#include <kiln/plugin.h>

#include <stddef.h>
#include <string.h>

enum {
    THREADS = 64
};

struct params { // by value to the kernel
    int64_t rows, columns, gate_stride, up_stride, out_stride, activation;
};

// A thread uses what others stored, one column behind the other.
static const char text[] =
        "#if !defined(FA_TQ) || !defined(FA_TKV)\n"
        "#    error \"define FA_TQ and FA_TKV\"\n"
        "#endif\n"
        "struct params { long long rows, columns, gate_stride, up_stride, out_stride, "
        "activation; };\n"
        "extern \"C\" __global__ void tiles(const float *gate, const float *up, float *out,\n"
        "        const int *n_tokens, const params p) {\n"
        "    extern __shared__ float tile[];\n"
        "    long long row = (long long)blockIdx.y * FA_TQ, column = (long long)blockIdx.x * "
        "FA_TKV;\n"
        "    long long rows = n_tokens ? *n_tokens : p.rows;\n"
        "    for (int i = threadIdx.x; i < FA_TQ * FA_TKV; i += blockDim.x) {\n"
        "        int r = i / FA_TKV, c = i % FA_TKV;\n"
        "        bool there = row + r < rows && column + c < p.columns;\n"
        "        tile[r * ROW + c] = there ? gate[(row + r) * p.gate_stride + column + c] : 0;\n"
        "    }\n"
        "    __syncthreads();\n"
        "    for (int i = threadIdx.x; i < FA_TQ * FA_TKV; i += blockDim.x) {\n"
        "        int r = i % FA_TQ, c = i / FA_TQ;\n"
        "        if (row + r < rows && column + c < p.columns) {\n"
        "            float x = tile[r * ROW + c];\n"
        "            float u = 0.797884561f * (x + 0.044715f * x * x * x);\n"
        "            x = x / (1.0f + expf(p.activation == 1 ? -x : -2.0f * u));\n"
        "            out[(row + r) * p.out_stride + column + c] =\n"
        "                    x * up[(row + r) * p.up_stride + column + c];\n"
        "        }\n"
        "    }\n"
        "}\n";

static const struct kiln_tensor *find(const struct kiln_op *op, uint32_t operand) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operands[i]->operand == operand) {
            return op->operands[i];
        }
    }
    return NULL;
}

static int64_t row_stride(const struct kiln_tensor *tensor) {
    return tensor->strides[1] / (int64_t)sizeof(float);
}

static int32_t submit(
        const struct params *params, int64_t tq, int64_t tkv, struct kiln_plan *plan) {
    static const char *const defines[] = {PLANTED ? "ROW=FA_TQ" : "ROW=FA_TKV"};
    static const uint32_t operands[] = {
            KILN_OPERAND_GATE, KILN_OPERAND_UP, KILN_OPERAND_OUT, KILN_OPERAND_N_TOKENS};
    struct kiln_arg args[5] = {
            [4] = {.kind = KILN_ARG_BYTES, .size = sizeof(*params), .bytes = params}};
    const struct kiln_arg *list[5];
    for (int i = 0; i < 5; i++) {
        args[i].struct_size = sizeof(args[i]);
        args[i].kind = i < 4 ? (uint32_t)KILN_ARG_OPERAND : args[i].kind;
        args[i].operand = i < 4 ? operands[i] : 0;
        list[i] = &args[i];
    }
    double elems = (double)params->columns * (double)params->rows;
    const struct kiln_launch launch = {.struct_size = sizeof(launch),
            .kernel = "tiles",
            .grid = {(uint32_t)((params->columns + tkv - 1) / tkv),
                    (uint32_t)((params->rows + tq - 1) / tq), 1},
            .block = {THREADS, 1, 1},
            .shared_bytes = (uint32_t)(tq * tkv * (int64_t)sizeof(float)),
            .args = list,
            .n_args = 5,
            .defines = defines,
            .n_defines = 1,
            .flops = 6 * elems,
            .bytes_read = 2 * elems * sizeof(float),
            .bytes_written = elems * sizeof(float)};
    return plan->launch(plan, &launch) < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

static int32_t plan_tiles(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    if (HOPPER && strcmp(device->target, "sm_90a") != 0) {
        return plan->decline(plan, "made for sm_90a");
    }
    const struct kiln_op *op = problem->ops[0];
    const struct kiln_tensor *gate = find(op, KILN_OPERAND_GATE);
    const struct kiln_tensor *up = find(op, KILN_OPERAND_UP), *out = find(op, KILN_OPERAND_OUT);
    if (!gate || !up || !out) {
        return plan->fail(plan, "GATE, UP or OUT is missing");
    }
    int64_t tq = geometry->values[0], tkv = geometry->values[1];
    if (tq == 8 && tkv == 256) {
        return plan->decline(plan, "8 by 256 is not made");
    }
    const struct params params = {.rows = gate->dims[1],
            .columns = gate->dims[0],
            .gate_stride = row_stride(gate),
            .up_stride = row_stride(up),
            .out_stride = row_stride(out),
            .activation = op->activation};
    return submit(&params, tq, tkv, plan);
}

// ---- Tables -------------------------------------------------------------------------------------
static const struct kiln_source source = {
        .struct_size = sizeof(source), .name = "tiles.cu", .text = text};
static const struct kiln_kernel kernel = {
        .struct_size = sizeof(kernel), .name = "tiles", .source = &source};
static const struct kiln_kernel *const kernels[] = {&kernel};
static const char *const slots[] = {"activation"};
static const int64_t tq_values[] = {8, 16, 256}, tkv_values[] = {4, 16, 256};
static const struct kiln_param tq = {.struct_size = sizeof(tq),
        .name = "FA_TQ",
        .help = "rows of a tile",
        .unit = "rows",
        .value = 16,
        .allowed = tq_values,
        .n_allowed = 3};
static const struct kiln_param tkv = {.struct_size = sizeof(tkv),
        .name = "FA_TKV",
        .help = "columns of a tile",
        .unit = "columns",
        .value = 16,
        .allowed = tkv_values,
        .n_allowed = 3};
static const struct kiln_param *const params[] = {&tq, &tkv};
static const struct kiln_variant tiles = {.struct_size = sizeof(tiles),
        .devices = KILN_DEVICE_CUDA,
        .name = "tiles",
        .help = "an activation through shared memory",
        .slots = slots,
        .n_slots = 1,
        .params = params,
        .n_params = 2,
        .kernels = kernels,
        .n_kernels = 1,
        .plan = plan_tiles};
static const struct kiln_variant *const variants[] = {&tiles};

KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {.struct_size = sizeof(kiln_plugin_entry),
        .abi_major = KILN_ABI_MAJOR,
        .abi_minor = KILN_ABI_MINOR,
        .name = "cornerlab",
        .version = "0.1.0",
        .help = "a geometry with an asymmetric corner",
        .variants = variants,
        .n_variants = 1};
