// behaviour: an op on sim, and its counters as an audit wants them.
#include "lab/behaviour.h"

#include "base/mem.h"
#include "device/sim/sim.h"
#include "engine/solo.h"
#include "lab/audit.h"
#include "lab/op_case.h"
#include "model/dtype.h"
#include "plugin/describe.h"

#include <stdio.h>
#include <string.h>

struct bench {
    struct kiln_registry *registry;
    const struct kiln_dev_settings *settings;
};

// ---- The problem --------------------------------------------------------------------------------

static uint32_t dtype_of(const struct kiln_op *op, enum kiln_operand operand) {
    const struct kiln_tensor *tensor = kiln_op_tensor(op, operand);
    if (!tensor) {
        return 0;
    }
    return tensor->dtype == KILN_DTYPE_F32 ? KILN_SHAPE_F32 : tensor->dtype;
}

// Which of the formats that the variant reads the first op's input has: the shape's, or a kernel
// that only another format needs would not be launched.
static uint32_t format_of(const struct kiln_variant *variant, const struct kiln_op *op) {
    for (uint32_t i = 0; i < variant->n_ios; i++) {
        const struct kiln_io *io = variant->ios[i];
        const struct kiln_tensor *tensor = kiln_op_tensor(op, io->operand);
        const struct kiln_dtype_info *info = tensor ? kiln_dtype_info(tensor->dtype) : NULL;
        const char *name = tensor && tensor->format ? tensor->format : info ? info->name : "";
        int input = io->operand == KILN_OPERAND_IN || io->operand == KILN_OPERAND_Q;
        for (uint32_t k = 0; io->op == 0 && input && k < io->n_formats; k++) {
            if (strcmp(io->formats[k], name) == 0) {
                return k;
            }
        }
    }
    return 0;
}

// Large enough for whole tiles and a part of one, small enough to be interpreted in a moment.
static struct kiln_shape small_shape(
        const struct kiln_variant *variant, const struct kiln_problem *problem) {
    const struct kiln_op *op = problem->ops[0], *last = problem->ops[problem->n_ops - 1];
    const int decode = problem->phase == KILN_PHASE_DECODE;
    const int32_t ratio = op->n_kv_heads > 0 ? op->n_heads / op->n_kv_heads : 1;
    struct kiln_shape shape = {.m = decode ? 1 : 130,
            .n_heads = op->n_heads > 0 ? ratio : 0,
            .n_kv_heads = op->n_heads > 0 ? 1 : 0,
            .head_size = op->head_size,
            .window = op->window,
            .softcap = op->softcap,
            .activation = op->activation,
            .format = format_of(variant, op),
            .weight_dtype = dtype_of(op, KILN_OPERAND_WEIGHT),
            .kv_dtype = dtype_of(op, KILN_OPERAND_K_CACHE)};
    if (last->kind == KILN_OP_ATTENTION) {
        shape.kv_len = decode ? 300 : 130;
    } else if (op->kind == KILN_OP_MATMUL || problem->n_ops > 1) {
        shape.n = 256;
        shape.k = 512;
    } else {
        shape.m = decode ? 1 : 17;
        shape.n = op->kind == KILN_OP_EMBED || op->kind == KILN_OP_ARGMAX ? 1024 : 0;
        shape.k = op->kind == KILN_OP_ROPE_KV ? 0 : 1024;
    }
    const struct kiln_tensor *out = kiln_op_tensor(last, KILN_OPERAND_OUT);
    if (out && out->n_dims > 1 && out->dims[1] < shape.m) {
        shape.m = out->dims[1]; // the head's few rows
    }
    for (uint32_t i = 0; i < problem->n_ops;
            i++) { // a norm's own weight is f32 and asked of nobody
        if (problem->ops[i]->kind == KILN_OP_MATMUL) {
            const struct kiln_tensor *weight = kiln_op_tensor(problem->ops[i], KILN_OPERAND_WEIGHT);
            shape.weight_dtype = dtype_of(problem->ops[i], KILN_OPERAND_WEIGHT);
            // Kernels of one row are made for their columns, and take another way for short ones.
            shape.k = decode ? weight->dims[0] : shape.k;
            break;
        }
    }
    if (problem->n_ops > 1 && last->kind == KILN_OP_MATMUL) {
        shape.last_dtype = dtype_of(last, KILN_OPERAND_WEIGHT);
    }
    return shape;
}

// ---- Counters -----------------------------------------------------------------------------------

static void copy_name(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from ? from : "");
}

// What a site does in global or in shared memory: cp.async does both.
static struct kiln_behaviour_site site_of(const struct kiln_sim_site *site, int global) {
    const struct kiln_sim_counts *c = &site->counts;
    const uint64_t ideal = c->shared_load_ideal + c->shared_store_ideal;
    struct kiln_behaviour_site s = {
            .line = site->line, .global = global, .ways = 0, .wavefronts = 1};
    if (global) {
        s.requests = c->global_loads + c->global_stores;
        const double n = s.requests > 0 ? (double)s.requests : 1;
        s.sectors = (double)(c->global_load_sectors + c->global_store_sectors) / n;
        s.bytes = (double)(c->global_load_bytes + c->global_store_bytes) / n;
    } else {
        s.requests = c->shared_loads + c->shared_stores;
        s.ways = c->shared_ways;
    }
    if (!global && ideal > 0) {
        s.wavefronts =
                (double)(c->shared_load_wavefronts + c->shared_store_wavefronts) / (double)ideal;
    }
    copy_name(s.file, sizeof(s.file), site->file);
    copy_name(s.opcode, sizeof(s.opcode), site->opcode);
    return s;
}

// The same line of the source, unrolled: means by requests, the worst conflict.
static void merge(struct kiln_behaviour_site *to, const struct kiln_behaviour_site *from) {
    const double a = (double)to->requests, b = (double)from->requests;
    to->ways = from->ways > to->ways ? from->ways : to->ways;
    to->wavefronts = (to->wavefronts * a + from->wavefronts * b) / (a + b);
    to->sectors = (to->sectors * a + from->sectors * b) / (a + b);
    to->bytes = (to->bytes * a + from->bytes * b) / (a + b);
    to->requests += from->requests;
}

static enum kiln_status add_site(struct kiln_behaviour *b, const struct kiln_sim_site *site,
        int global, struct kiln_err *err) {
    const struct kiln_behaviour_site one = site_of(site, global);
    if (one.requests == 0) {
        return KILN_STATUS_OK; // a barrier or a product, or never reached
    }
    for (size_t i = 0; i < b->n_sites; i++) {
        struct kiln_behaviour_site *other = &b->sites[i];
        if (other->line == one.line && other->global == one.global &&
                strcmp(other->file, one.file) == 0 && strcmp(other->opcode, one.opcode) == 0) {
            merge(other, &one);
            return KILN_STATUS_OK;
        }
    }
    if (kiln_grow(&b->sites, &b->cap_sites, b->n_sites + 1, sizeof(*b->sites)) != 0) {
        return kiln_err_nomem(err, "the behaviour of a kernel");
    }
    b->sites[b->n_sites++] = one;
    return KILN_STATUS_OK;
}

static enum kiln_status add_counts(
        struct kiln_behaviour *b, const struct kiln_sim_kernel_counts *k, struct kiln_err *err) {
    double blocks = k->blocks > 0 ? (double)k->blocks : 1;
    double warps = k->blocks > 0 ? (double)k->warps / blocks : 1; // of a block
    uint64_t products = 0;
    for (uint32_t i = 0; i < k->n_mma; i++) {
        products += k->mma[i].count;
    }
    b->blocks = k->blocks;
    b->instructions = k->total.instructions;
    b->barriers = (double)k->total.barriers / blocks / (warps > 0 ? warps : 1);
    b->tensor_ops = (double)products / blocks;
    b->smem_requested = k->shared_requested;
    b->smem_used = k->shared_used;
    for (uint32_t i = 0; i < k->n_sites; i++) {
        KILN_TRY(add_site(b, &k->sites[i], 0, err));
        KILN_TRY(add_site(b, &k->sites[i], 1, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status add_findings(struct kiln_behaviour *b, const char *kernel,
        struct kiln_sim_report *report, struct kiln_err *err) {
    const struct kiln_sim_finding *findings;
    uint32_t n = kiln_sim_findings(report, &findings);
    for (uint32_t i = 0; i < n; i++) {
        const struct kiln_sim_finding *f = &findings[i];
        if (strcmp(f->kernel, kernel) != 0) {
            continue;
        }
        b->faults += !f->advice;
        if (f->check != KILN_SIM_CHECK_ORDERS_NOTHING) {
            continue;
        }
        if (kiln_grow(&b->idle, &b->cap_idle, b->n_idle + 1, sizeof(*b->idle)) != 0) {
            return kiln_err_nomem(err, "the behaviour of a kernel");
        }
        struct kiln_behaviour_line *line = &b->idle[b->n_idle++];
        line->line = f->from_line ? f->from_line : f->line;
        copy_name(line->file, sizeof(line->file), f->from_line ? f->from_file : f->file);
    }
    return KILN_STATUS_OK;
}

// Puts what the report has of a kernel beside it.
static enum kiln_status take(struct kiln_audit_kernel *kernel, const char *problem,
        struct kiln_sim_report *report, struct kiln_err *err) {
    const struct kiln_sim_kernel_counts *counts;
    const char *name = kernel->row->launch->record.kernel;
    struct kiln_behaviour *b = kiln_calloc(1, sizeof(*b));
    if (!b) {
        return kiln_err_nomem(err, "the behaviour of a kernel");
    }
    kernel->behaviour = b;
    copy_name(b->problem, sizeof(b->problem), problem);
    uint32_t n = kiln_sim_kernels(report, &counts);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(counts[i].kernel, name) == 0) {
            KILN_TRY(add_counts(b, &counts[i], err));
            return add_findings(b, name, report, err);
        }
    }
    b->why_not = kiln_asprintf("%s was not launched at %s", name, problem);
    return b->why_not ? KILN_STATUS_OK : kiln_err_nomem(err, "the behaviour of a kernel");
}

// ---- Runs ---------------------------------------------------------------------------------------

static enum kiln_status run_solo(struct bench *bench, struct kiln_dev *dev,
        const struct kiln_survey_row *op, struct kiln_op_case *problem, struct kiln_err *err) {
    struct kiln_solo *solo = NULL;
    enum kiln_plan_outcome outcome = KILN_PLAN_DONE;
    void *instance = NULL;
    KILN_TRY(kiln_registry_start(bench->registry, op->plugin, &dev->desc, &instance, err));
    const struct kiln_solo_params params = {.dev = dev,
            .plugin = op->plugin,
            .variant = op->variant,
            .instance = instance,
            .geometry = &op->geometry,
            .source = op->source,
            .problem = &problem->problem,
            .data = problem->data,
            .edges = problem->edges};
    KILN_TRY(kiln_solo_create(&solo, &params, &outcome, err));
    if (outcome == KILN_PLAN_DECLINED) {
        kiln_err_prefix(err, "declined a small problem: ");
        return err->status = KILN_STATUS_DEVICE;
    }
    enum kiln_status status = kiln_solo_run(solo, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_solo_sync(solo, err);
    }
    kiln_solo_destroy(solo);
    return status;
}

// The audited kernels of one op, from `first` on.
static enum kiln_status take_all(struct kiln_audit *audit, size_t first, const char *problem,
        struct kiln_sim_report *report, struct kiln_err *err) {
    const struct kiln_survey_row *op = audit->kernels[first].row->op;
    for (size_t i = first; i < audit->count; i++) {
        struct kiln_audit_kernel *kernel = &audit->kernels[i];
        if (kernel->row->op == op && kernel->row->launch && !kernel->behaviour) {
            KILN_TRY(take(kernel, problem, report, err));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status simulate_op(struct bench *bench, struct kiln_audit *audit, size_t first,
        struct kiln_op_case *problem, struct kiln_dev *dev, struct kiln_err *err) {
    const struct kiln_survey_row *op = audit->kernels[first].row->op;
    const struct kiln_shape shape = small_shape(op->variant, op->problem);
    char name[96];
    KILN_TRY(kiln_op_case_make(
            problem, op->slot, op->plugin, op->variant, &shape, KILN_FILL_NORMAL, 1, err));
    kiln_op_case_name(problem, name, sizeof(name));
    KILN_TRY(run_solo(bench, dev, op, problem, err));
    return take_all(audit, first, name, kiln_sim_dev_report(dev), err);
}

// What cannot be simulated says why, and the rest goes on.
static enum kiln_status simulate_one(
        struct bench *bench, struct kiln_audit *audit, size_t first, struct kiln_err *err) {
    struct kiln_audit_kernel *kernel = &audit->kernels[first];
    struct kiln_dev *dev = NULL;
    struct kiln_op_case problem = {.reference = NULL};
    struct kiln_err why = {0};
    char name[48];
    snprintf(name, sizeof(name), "sim:%s", kernel->row->device->target);
    enum kiln_status status = kiln_dev_open(&dev, name, bench->settings, &why);
    if (status == KILN_STATUS_OK) {
        status = simulate_op(bench, audit, first, &problem, dev, &why);
    }
    kiln_op_case_finish(&problem);
    kiln_dev_close(dev);
    if (status == KILN_STATUS_OK) {
        return KILN_STATUS_OK;
    }
    if (status == KILN_STATUS_NOMEM || status == KILN_STATUS_INTERRUPTED) {
        *err = why;
        return status;
    }
    kiln_behaviour_destroy(kernel->behaviour);
    kernel->behaviour = kiln_calloc(1, sizeof(*kernel->behaviour));
    if (kernel->behaviour) {
        kernel->behaviour->why_not = kiln_strdup(why.text);
    }
    return kernel->behaviour && kernel->behaviour->why_not
                   ? KILN_STATUS_OK
                   : kiln_err_nomem(err, "the behaviour of a kernel");
}

enum kiln_status kiln_audit_simulate(struct kiln_audit *audit, struct kiln_registry *registry,
        const char *cache_dir, uint32_t threads, int (*stop)(void), struct kiln_err *err) {
    const struct kiln_dev_settings settings = {.threads = threads,
            .cache_dir = cache_dir,
            .sim_checks = KILN_SIM_CHECK_ALL,
            .sim_counters = 1,
            .stop = stop};
    struct bench bench = {.registry = registry, .settings = &settings};
    for (size_t i = 0; i < audit->count; i++) {
        const struct kiln_audit_kernel *kernel = &audit->kernels[i];
        if (kernel->row->launch && kernel->row->device->kind == KILN_DEVICE_CUDA &&
                !kernel->behaviour) {
            KILN_TRY(simulate_one(&bench, audit, i, err));
        }
    }
    return KILN_STATUS_OK;
}

void kiln_behaviour_destroy(struct kiln_behaviour *behaviour) {
    if (!behaviour) {
        return;
    }
    kiln_free(behaviour->why_not);
    kiln_free(behaviour->sites);
    kiln_free(behaviour->idle);
    kiln_free(behaviour);
}
