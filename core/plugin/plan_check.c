// plan_check: whether a launch or a preparation makes sense: against the variant, the problem, what
// the plan holds so far, and the limits of the device.
//
// A plan that contradicts itself is KILN_STATUS_FILE: a fault of the plugin. One that asks for more
// than the device has is KILN_STATUS_DEVICE: the same geometry may be right elsewhere.
#include "plugin/plan_impl.h"

#include "plugin/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define OPERAND_BIT(name) (UINT64_C(1) << KILN_OPERAND_##name)

static enum kiln_status wrong(struct kiln_err *err, const char *text) {
    return kiln_err_set(err, KILN_STATUS_FILE, "%s", text);
}

// ---- Addresses -------------------------------------------------------------------------------
static const struct kiln_tensor *find_operand(
        const struct kiln_problem *problem, uint32_t op, uint32_t operand) {
    const struct kiln_op *at = problem->ops[op];
    for (uint32_t i = 0; i < at->n_operands; i++) {
        if (at->operands[i]->operand == operand) {
            return at->operands[i];
        }
    }
    return NULL;
}

// Operands that an op may come without: a host kernel gets NULL for them, so naming one is fine.
static int is_optional(uint32_t op_kind, uint32_t operand) {
    uint64_t optional = OPERAND_BIT(N_TOKENS) | OPERAND_BIT(KV_LEN) | OPERAND_BIT(N_PAST) |
                        OPERAND_BIT(N_SEQ) | OPERAND_BIT(SEQ_START) | OPERAND_BIT(PAGE_TABLE);
    if (op_kind == KILN_OP_NORM || op_kind == KILN_OP_MATMUL) {
        optional |= OPERAND_BIT(RESIDUAL);
    }
    if (op_kind == KILN_OP_MATMUL) {
        optional |= OPERAND_BIT(BIAS);
    }
    if (op_kind == KILN_OP_ROPE_KV) {
        optional |= OPERAND_BIT(Q_NORM) | OPERAND_BIT(K_NORM);
    }
    return operand <= KILN_OPERAND_PAGE_TABLE && (optional >> operand & 1) != 0;
}

static enum kiln_status check_operand(
        const struct kiln_plan_place *place, const struct kiln_arg *arg, struct kiln_err *err) {
    const struct kiln_problem *problem = place->builder->problem;
    if (arg->op >= problem->n_ops) {
        return kiln_err_set(err, KILN_STATUS_FILE, "op %u; the problem has %u (counted from 0)",
                arg->op, problem->n_ops);
    }
    const struct kiln_preparation *preparation = place->preparation;
    for (uint32_t i = 0; preparation && i < preparation->n_sources; i++) {
        const struct kiln_arg *source = preparation->sources[i];
        if (source->op == arg->op && source->operand == arg->operand) {
            preparation = NULL;
        }
    }
    if (preparation) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "operand %u of op %u is not among the preparation's sources, which are its key",
                arg->operand, arg->op);
    }
    if (!find_operand(problem, arg->op, arg->operand) &&
            !is_optional(problem->ops[arg->op]->kind, arg->operand)) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "op %u has no operand %u", arg->op, arg->operand);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_offset(
        const char *what, uint64_t offset, uint64_t bytes, struct kiln_err *err) {
    if (offset >= bytes) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "offset %" PRIu64 " is behind the end of the %s, which has %" PRIu64 " bytes",
                offset, what, bytes);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_prepared(
        const struct kiln_plan_place *place, const struct kiln_arg *arg, struct kiln_err *err) {
    const struct kiln_planned *planned = place->builder->planned;
    const struct kiln_preparation *preparation = place->preparation;
    if (preparation ? arg->index != KILN_PREP_SELF : arg->index >= planned->n_preparations) {
        return preparation ? wrong(err, "a preparation writes its own buffers only: set index to "
                                        "KILN_PREP_SELF")
                           : kiln_err_set(err, KILN_STATUS_FILE,
                                     "preparation %u; the plan has %u so far (counted from 0)",
                                     arg->index, planned->n_preparations);
    }
    if (!preparation) {
        preparation = &planned->preparations[arg->index].record;
    }
    if (arg->buffer >= preparation->n_buffers) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "buffer %u; preparation '%s' has %u (counted from 0)", arg->buffer, preparation->id,
                preparation->n_buffers);
    }
    return check_offset("buffer", arg->offset, preparation->buffer_bytes[arg->buffer], err);
}

// `kind` is the argument's own or, for a tensor map, what the map stands on.
static enum kiln_status check_address(const struct kiln_plan_place *place, uint32_t kind,
        const struct kiln_arg *arg, struct kiln_err *err) {
    const struct kiln_planned *planned = place->builder->planned;
    switch (kind) {
    case KILN_ARG_OPERAND:
        return check_operand(place, arg, err);
    case KILN_ARG_WORKSPACE:
        if (arg->index >= planned->n_workspaces) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "workspace %u; the plan has %u so far (counted from 0)", arg->index,
                    planned->n_workspaces);
        }
        return check_offset("workspace", arg->offset, planned->workspaces[arg->index].bytes, err);
    case KILN_ARG_PREPARED:
        return check_prepared(place, arg, err);
    default:
        return kiln_err_set(err, KILN_STATUS_FILE,
                "the map's base is %u; OPERAND, WORKSPACE and PREPARED have addresses", kind);
    }
}

static enum kiln_status check_arg(
        const struct kiln_plan_place *place, const struct kiln_arg *arg, struct kiln_err *err) {
    switch (arg->kind) {
    case KILN_ARG_BYTES: // copying has checked it
        return KILN_STATUS_OK;
    case KILN_ARG_OPERAND:
    case KILN_ARG_WORKSPACE:
    case KILN_ARG_PREPARED:
        return check_address(place, arg->kind, arg, err);
    case KILN_ARG_TENSOR_MAP:
        KILN_TRY(check_address(place, arg->map->base, arg, err));
        return kiln_plan_check_map(place->builder->device, arg->map, arg->offset, err);
    default:
        return kiln_err_set(
                err, KILN_STATUS_FILE, "kind %u is none of enum kiln_arg_kind", arg->kind);
    }
}

// ---- The shape of a launch ---------------------------------------------------------------------
static uint64_t product(const uint32_t size[3]) {
    return (uint64_t)size[0] * size[1] * size[2]; // bounded by the per-axis checks before
}

// A limit of 0 is unknown.
static enum kiln_status check_axes(
        const char *what, const uint32_t size[3], const int32_t limit[3], struct kiln_err *err) {
    if (size[0] == 0 || size[1] == 0 || size[2] == 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s %u x %u x %u is empty; each is at least 1",
                what, size[0], size[1], size[2]);
    }
    for (int i = 0; i < 3; i++) {
        if (limit[i] > 0 && size[i] > (uint32_t)limit[i]) {
            return kiln_err_set(err, KILN_STATUS_DEVICE,
                    "%s %u x %u x %u; the device allows %d x %d x %d", what, size[0], size[1],
                    size[2], limit[0], limit[1], limit[2]);
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_cluster(
        const struct kiln_device *device, const struct kiln_launch *record, struct kiln_err *err) {
    uint32_t cluster[3];
    for (int i = 0; i < 3; i++) {
        cluster[i] = record->cluster[i] ? record->cluster[i] : 1;
    }
    if (cluster[0] == 1 && cluster[1] == 1 && cluster[2] == 1) {
        return KILN_STATUS_OK;
    }
    for (int i = 0; i < 3; i++) {
        if (record->grid[i] % cluster[i] != 0) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "grid %u x %u x %u is no multiple of the cluster %u x %u x %u", record->grid[0],
                    record->grid[1], record->grid[2], cluster[0], cluster[1], cluster[2]);
        }
    }
    if (device->cc < 90) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "clusters need compute capability 9.0, %s has %d.%d", device->target,
                device->cc / 10, device->cc % 10);
    }
    if (device->max_cluster > 0 && product(cluster) > (uint64_t)device->max_cluster) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "a cluster of %u x %u x %u blocks; the device allows %d", cluster[0], cluster[1],
                cluster[2], device->max_cluster);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_cuda_shape(
        const struct kiln_device *device, const struct kiln_launch *record, struct kiln_err *err) {
    KILN_TRY(check_axes("grid", record->grid, device->max_grid, err));
    KILN_TRY(check_axes("block", record->block, device->max_block, err));
    if (device->max_threads_block > 0 &&
            product(record->block) > (uint64_t)device->max_threads_block) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "%" PRIu64 " threads a block; the device allows %d", product(record->block),
                device->max_threads_block);
    }
    if (device->smem_block_optin > 0 && record->shared_bytes > (uint32_t)device->smem_block_optin) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "%u bytes of shared memory a block; the device allows %d", record->shared_bytes,
                device->smem_block_optin);
    }
    KILN_TRY(check_cluster(device, record, err));
    uint64_t resident = (uint64_t)device->sm_count * (uint64_t)device->max_blocks_sm;
    if ((record->flags & KILN_LAUNCH_COOPERATIVE) && device->sm_count > 0 &&
            device->max_blocks_sm > 0 && product(record->grid) > resident) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "a cooperative launch of %" PRIu64 " blocks; at most %" PRIu64
                " can be there at once",
                product(record->grid), resident);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_host_shape(const struct kiln_launch *record, struct kiln_err *err) {
    static const int32_t unlimited[3] = {0, 0, 0};
    KILN_TRY(check_axes("grid", record->grid, unlimited, err));
    uint64_t plane;
    if (__builtin_mul_overflow((uint64_t)record->grid[0], (uint64_t)record->grid[1], &plane) ||
            plane > UINT32_MAX || plane * record->grid[2] > UINT32_MAX) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "grid %u x %u x %u; a host launch has at most %u blocks", record->grid[0],
                record->grid[1], record->grid[2], UINT32_MAX);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status no_kernel(
        const struct kiln_variant *variant, const char *name, struct kiln_err *err) {
    struct kiln_buf known = {0};
    for (uint32_t i = 0; i < variant->n_kernels; i++) {
        kiln_buf_printf(&known, "%s%s", i ? ", " : "", variant->kernels[i]->name);
    }
    enum kiln_status status = kiln_err_set(err, KILN_STATUS_FILE,
            "no kernel '%s'; the variant has: %s", name, known.data ? known.data : "none");
    kiln_buf_finish(&known);
    return status;
}

static enum kiln_status check_kernel(const struct kiln_plan_builder *builder,
        const struct kiln_planned_launch *launch, struct kiln_err *err) {
    if (!launch->kernel) {
        return no_kernel(builder->variant, launch->record.kernel, err);
    }
    int host = builder->device->kind == KILN_DEVICE_HOST;
    if (host != (launch->kernel->host != NULL)) {
        return kiln_err_set(err, KILN_STATUS_FILE, "a kernel with %s cannot run on a %s device",
                host ? "CUDA source" : "a host function", host ? "host" : "CUDA");
    }
    return KILN_STATUS_OK;
}

// ---- The rest of a launch ----------------------------------------------------------------------
static enum kiln_status check_define(const struct kiln_plan_builder *builder,
        const struct kiln_launch *record, uint32_t index, struct kiln_err *err) {
    const char *text = record->defines[index], *equals = strchr(text, '=');
    char name[KILN_NAME_MAX + 2] = "";
    size_t len = equals ? (size_t)(equals - text) : 0;
    if (len > 0 && len < sizeof(name)) {
        memcpy(name, text, len);
    }
    if (!equals || kiln_text_check_name(name, KILN_NAME_IDENTIFIER, NULL) != KILN_STATUS_OK) {
        return kiln_err_set(err, KILN_STATUS_FILE, "define '%.64s'; write NAME=VALUE", text);
    }
    int taken = strncmp(name, "KILN_", 5) == 0;
    for (uint32_t i = 0; i < builder->geometry->n_values; i++) {
        taken |= strcmp(name, builder->geometry->names[i]) == 0;
    }
    for (uint32_t i = 0; i < index; i++) {
        taken |= strncmp(record->defines[i], text, len + 1) == 0;
    }
    return taken ? kiln_err_set(err, KILN_STATUS_FILE,
                           "define '%s' is taken: by kiln (KILN_…), the geometry or another define",
                           name)
                 : KILN_STATUS_OK;
}

static enum kiln_status check_site(const struct kiln_smem_site *site, struct kiln_err *err) {
    uint32_t access = site->access_bytes;
    int kind_known = site->kind >= KILN_SITE_LDMATRIX && site->kind <= KILN_SITE_STORE;
    int access_known =
            access == 16 || (site->kind != KILN_SITE_LDMATRIX &&
                                    (access == 1 || access == 2 || access == 4 || access == 8));
    if (!kind_known || !access_known || site->stride_bytes == 0 ||
            site->swizzle > KILN_SWIZZLE_128 || site->reserved != 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "site '%s': kind %u, stride %u, access %u, swizzle %u; allowed: a known kind, a "
                "stride, 1, 2, 4, 8 or 16 bytes (LDMATRIX: 16), swizzle 0 to 3",
                site->name, site->kind, site->stride_bytes, access, site->swizzle);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_numbers(const struct kiln_launch *record, struct kiln_err *err) {
    const double numbers[] = {record->flops, record->bytes_read, record->bytes_written};
    for (int i = 0; i < 3; i++) {
        if (!isfinite(numbers[i]) || numbers[i] < 0) {
            return wrong(err, "flops, bytes_read and bytes_written are counts: finite, at least 0");
        }
    }
    if ((record->flags & ~(uint32_t)(KILN_LAUNCH_COOPERATIVE | KILN_LAUNCH_DEPENDENT)) != 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "flags %u; ABI %d.%d knows COOPERATIVE and DEPENDENT", record->flags,
                KILN_ABI_MAJOR, KILN_ABI_MINOR);
    }
    return record->reserved ? wrong(err, "reserved is not 0") : KILN_STATUS_OK;
}

enum kiln_status kiln_plan_check_launch(const struct kiln_plan_place *place,
        const struct kiln_planned_launch *launch, struct kiln_err *err) {
    const struct kiln_plan_builder *builder = place->builder;
    const struct kiln_launch *record = &launch->record;
    KILN_TRY(check_numbers(record, err));
    KILN_TRY(check_kernel(builder, launch, err));
    for (uint32_t i = 0; i < record->n_args; i++) {
        enum kiln_status status = check_arg(place, record->args[i], err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "args: entry %u: ", i);
            return status;
        }
    }
    for (uint32_t i = 0; i < record->n_defines; i++) {
        KILN_TRY(check_define(builder, record, i, err));
    }
    for (uint32_t i = 0; i < record->n_sites; i++) {
        KILN_TRY(check_site(record->sites[i], err));
    }
    return launch->kernel->host ? check_host_shape(record, err)
                                : check_cuda_shape(builder->device, record, err);
}

// ---- Preparations ----------------------------------------------------------------------------
static enum kiln_status check_source(const struct kiln_plan_builder *builder,
        const struct kiln_arg *source, struct kiln_err *err) {
    const struct kiln_plan_place place = {.builder = builder};
    if (source->kind != KILN_ARG_OPERAND) {
        return kiln_err_set(err, KILN_STATUS_FILE, "kind %u; a source is an OPERAND", source->kind);
    }
    KILN_TRY(check_operand(&place, source, err));
    const struct kiln_tensor *tensor = find_operand(builder->problem, source->op, source->operand);
    if (!tensor || !(tensor->flags & KILN_TENSOR_WEIGHT)) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "operand %u of op %u is %s; only weights (KILN_TENSOR_WEIGHT) can be prepared",
                source->operand, source->op, tensor ? "not constant" : "absent");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_key(
        const struct kiln_geometry *geometry, const char *key, struct kiln_err *err) {
    for (uint32_t i = 0; i < geometry->n_values; i++) {
        if (strcmp(geometry->names[i], key) == 0) {
            return KILN_STATUS_OK;
        }
    }
    return kiln_err_set(
            err, KILN_STATUS_FILE, "key '%s' is no parameter of the variant's geometry", key);
}

enum kiln_status kiln_plan_check_preparation(const struct kiln_plan_builder *builder,
        const struct kiln_planned_preparation *preparation, struct kiln_err *err) {
    const struct kiln_preparation *record = &preparation->record;
    const struct kiln_plan_place place = {.builder = builder, .preparation = record};
    if (record->id[0] == '\0' || record->reserved != 0) {
        return wrong(err, record->reserved ? "reserved is not 0" : "the id is empty");
    }
    if (record->n_sources == 0 || record->n_buffers == 0 || record->n_launches == 0) {
        return wrong(err, "a preparation has at least one source, one buffer and one launch");
    }
    for (uint32_t i = 0; i < record->n_sources; i++) {
        enum kiln_status status = check_source(builder, record->sources[i], err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "source %u: ", i);
            return status;
        }
    }
    for (uint32_t i = 0; i < record->n_buffers; i++) {
        if (record->buffer_bytes[i] == 0) {
            return kiln_err_set(err, KILN_STATUS_FILE, "buffer %u has 0 bytes", i);
        }
    }
    for (uint32_t i = 0; i < record->n_keys; i++) {
        KILN_TRY(check_key(builder->geometry, record->keys[i], err));
    }
    for (uint32_t i = 0; i < record->n_launches; i++) {
        const struct kiln_planned_launch *launch = &preparation->launches[i];
        enum kiln_status status = kiln_plan_check_launch(&place, launch, err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "launch %u '%s': ", i, launch->record.kernel);
            return status;
        }
    }
    return KILN_STATUS_OK;
}
