// op: binds, runs, judges and times one call.
#include "lab/op.h"

#include "base/mem.h"
#include "config/slot.h"
#include "device/sim/sim.h"
#include "lab/op_case_impl.h"
#include "lab/shape.h"
#include "lab/stats.h"
#include "lab/work.h"
#include "model/dtype.h"
#include "model/quant.h"
#include "plugin/describe.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A call under way: where its operands come from, and what it is bound to.
struct running {
    const struct kiln_op_setup *setup;
    struct kiln_op_result *result;
    struct kiln_solo *solo;
    struct kiln_bind_query query;
    struct kiln_buf passed_over;
    const struct kiln_problem *problem; // what the solo was planned for
    int64_t keys;                       // in its cache; -1: it has none
};

// ---- What it is bound to ------------------------------------------------------------------------

static void pass_over(struct running *r, const struct kiln_binding *binding, const char *reason) {
    kiln_buf_printf(&r->passed_over, "%s[%s] %s/%s: %s", r->passed_over.len ? "\n" : "",
            binding->section, binding->plugin ? binding->plugin->name : "kiln",
            binding->variant_name, reason);
}

// The next best binding; an error when there is none left.
static enum kiln_status next_binding(struct running *r, unsigned skip,
        const struct kiln_binding **binding, struct kiln_err *err) {
    KILN_TRY(kiln_config_bind(r->setup->config, &r->query, skip, binding, err));
    if (*binding) {
        return KILN_STATUS_OK;
    }
    return kiln_err_set(err, KILN_STATUS_CONFIG, "%s: nothing takes this call: %s", r->query.slot,
            r->passed_over.data ? r->passed_over.data : "no variant is bound");
}

// A count of an op that lives on the device, by the operand; -1: the op has none.
static int64_t count_in(const void *const *data, uint32_t op, uint32_t operand) {
    int32_t value = -1;
    const void *at = data[(size_t)op * KILN_SOLO_OPERANDS + operand];
    if (at) {
        memcpy(&value, at, sizeof(value));
    }
    return value;
}

static int64_t keys_of(const struct kiln_problem *problem, const void *const *data) {
    int64_t keys = -1;
    for (uint32_t op = 0; op < problem->n_ops && keys < 0; op++) {
        keys = count_in(data, op, KILN_OPERAND_KV_LEN);
    }
    return keys;
}

// *solo NULL: the variant declined, and why is noted.
static enum kiln_status create(struct running *r, const struct kiln_binding *binding,
        const struct kiln_problem *problem, const void *const *data, const uint32_t *edges,
        struct kiln_err *err) {
    struct kiln_solo_params params = {.dev = r->setup->dev,
            .plugin = binding->plugin,
            .variant = binding->variant,
            .geometry = &binding->geometry,
            .source = binding->source,
            .problem = problem,
            .data = data,
            .edges = edges};
    enum kiln_plan_outcome outcome = KILN_PLAN_DONE;
    struct kiln_err reason = {0};
    KILN_TRY(kiln_registry_start(
            r->setup->registry, params.plugin, &params.dev->desc, &params.instance, err));
    enum kiln_status status = kiln_solo_create(&r->solo, &params, &outcome, &reason);
    if (status != KILN_STATUS_OK) {
        *err = reason;
        return status;
    }
    if (outcome == KILN_PLAN_DECLINED) {
        pass_over(r, binding, reason.text);
    } else {
        r->result->binding = binding;
        r->problem = problem;
        r->keys = keys_of(problem, data);
    }
    return KILN_STATUS_OK;
}

// ---- What is known of it ------------------------------------------------------------------------

static enum kiln_status describe(struct running *r, struct kiln_err *err) {
    struct kiln_op_result *result = r->result;
    const struct kiln_planned *planned = kiln_solo_planned(r->solo);
    struct kiln_buf text = {0};
    for (uint32_t i = 0; i < planned->n_launches; i++) {
        const struct kiln_launch *launch = &planned->launches[i].record;
        kiln_buf_printf(&text, "%s%s <%u,%u,%u>", i ? "\n" : "", launch->kernel, launch->grid[0],
                launch->grid[1], launch->grid[2]);
        if (r->setup->dev->desc.kind == KILN_DEVICE_CUDA) {
            kiln_buf_printf(&text, " x %u threads, %u bytes of shared memory",
                    launch->block[0] * launch->block[1] * launch->block[2], launch->shared_bytes);
        }
    }
    const struct kiln_work work = kiln_work_of(planned, r->problem, r->keys);
    result->flops = work.flops;
    result->bytes = work.bytes;
    const enum kiln_precision precision =
            kiln_precision_of_problem(result->binding->plugin, planned->variant, r->problem);
    const int given = r->setup->peak > 0;
    result->peak = given ? r->setup->peak : kiln_ceilings_peak(&r->setup->ceilings, precision);
    result->peak_name = given ? "given" : kiln_peak_name(precision);
    result->prepared_bytes = kiln_solo_prepared_bytes(r->solo);
    result->launches = kiln_buf_take(&text);
    if (r->passed_over.len) {
        result->passed_over = kiln_buf_take(&r->passed_over);
    }
    return result->launches ? KILN_STATUS_OK : kiln_err_nomem(err, "a result");
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum kiln_status time_kind(
        struct running *r, int cold, struct kiln_op_times *times, struct kiln_err *err) {
    size_t n = (size_t)r->setup->runs;
    double *seconds = kiln_calloc(n, sizeof(*seconds));
    if (!seconds) {
        return kiln_err_nomem(err, "the times");
    }
    const struct kiln_solo_timing timing = {
            .runs = r->setup->runs, .cold = cold, .stop = r->setup->stop};
    enum kiln_status status = kiln_solo_time(r->solo, &timing, seconds, err);
    if (status == KILN_STATUS_OK) {
        qsort(seconds, n, sizeof(*seconds), by_size);
        *times = (struct kiln_op_times){
                .low = seconds[0], .high = seconds[n - 1], .median = kiln_median(seconds, n)};
    }
    kiln_free(seconds);
    return status;
}

static int is_sim(const struct kiln_op_setup *setup) {
    return kiln_sim_dev_report(setup->dev) != NULL;
}

// Runs once, so that what it wrote can be judged.
static enum kiln_status first_run(struct running *r, struct kiln_err *err) {
    KILN_TRY(describe(r, err));
    struct kiln_sim_report *report = kiln_sim_dev_report(r->setup->dev);
    uint64_t before = report ? kiln_sim_instructions(report) : 0;
    KILN_TRY(kiln_solo_run(r->solo, err));
    KILN_TRY(kiln_solo_sync(r->solo, err));
    r->result->instructions = report ? kiln_sim_instructions(report) - before : 0;
    return KILN_STATUS_OK;
}

static enum kiln_status take_times(struct running *r, struct kiln_err *err) {
    if (r->setup->runs < 1 || is_sim(r->setup)) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(time_kind(r, 0, &r->result->warm, err));
    if (r->setup->dev->ops->mark) {
        KILN_TRY(time_kind(r, 1, &r->result->cold, err));
    }
    r->result->timed = 1;
    return KILN_STATUS_OK;
}

static void stop(struct running *r) {
    kiln_solo_destroy(r->solo);
    kiln_buf_finish(&r->passed_over);
}

// ---- From a shape -------------------------------------------------------------------------------

// What `when` conditions see of the call.
static void ask(struct running *r, const char *slot, const struct kiln_problem *problem) {
    const struct kiln_op *op = problem->ops[0];
    const struct kiln_tensor *out = kiln_op_tensor(op, KILN_OPERAND_OUT);
    const struct kiln_tensor *weight = kiln_op_tensor(op, KILN_OPERAND_WEIGHT);
    r->query = (struct kiln_bind_query){.slot = slot,
            .m = out ? out->dims[1] : 1,
            .n = out ? out->dims[0] : 0,
            .k = weight ? weight->dims[0] : 0,
            .hd = op->head_size,
            .role = r->setup->role,
            .layer = r->setup->layer,
            .phase = problem->phase,
            .device = &r->setup->dev->desc};
}

static enum kiln_status judge_and_time(
        struct running *r, struct kiln_op_case *c, struct kiln_err *err) {
    kiln_op_case_name(c, r->result->shape, sizeof(r->result->shape));
    KILN_TRY(first_run(r, err));
    if (r->setup->once) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(kiln_op_case_judge(c, r->solo, &r->result->verdict, err));
    r->result->judged = 1;
    return take_times(r, err);
}

// Tries bindings from the best on until one takes the call.
static enum kiln_status run_shape(
        struct running *r, const char *slot, const struct kiln_shape *shape, struct kiln_err *err) {
    struct kiln_op_case c = {.reference = NULL};
    // The single op says what the conditions see; a variant that fills several is asked later.
    enum kiln_status status =
            kiln_op_case_make(&c, slot, NULL, NULL, shape, KILN_FILL_NORMAL, r->setup->seed, err);
    if (status == KILN_STATUS_OK) {
        ask(r, slot, &c.problem);
    }
    for (unsigned skip = 0; status == KILN_STATUS_OK && !r->solo; skip++) {
        const struct kiln_binding *binding;
        status = next_binding(r, skip, &binding, err);
        if (status != KILN_STATUS_OK) {
            break;
        }
        if (!binding->variant) {
            pass_over(r, binding, "says who quantizes, and is no kernel");
            continue;
        }
        kiln_op_case_finish(&c);
        status = kiln_op_case_make(&c, slot, binding->plugin, binding->variant, shape,
                KILN_FILL_NORMAL, r->setup->seed, err);
        if (status == KILN_STATUS_OK) {
            status = create(r, binding, &c.problem, c.data, c.edges, err);
        }
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_shape_check_read(shape, slot, r->result->binding->variant, err);
    }
    if (status == KILN_STATUS_OK) {
        status = judge_and_time(r, &c, err);
    }
    kiln_op_case_finish(&c);
    r->problem = NULL; // was the case's
    return status;
}

enum kiln_status kiln_op_run(const struct kiln_op_setup *setup, const char *slot,
        const struct kiln_shape *shape, struct kiln_op_result *result, struct kiln_err *err) {
    *result = (struct kiln_op_result){.binding = NULL};
    struct running r = {.setup = setup, .result = result};
    KILN_TRY(kiln_slot_check(slot, 0, err));
    memcpy(result->slot, slot, strlen(slot) + 1); // a checked name fits
    enum kiln_status status = run_shape(&r, result->slot, shape, err);
    stop(&r);
    return status;
}

// ---- From a capture -----------------------------------------------------------------------------

static double element(const struct kiln_tensor *tensor, const uint8_t *at) {
    if (tensor->dtype == KILN_DTYPE_F32) {
        float value;
        memcpy(&value, at, sizeof(value));
        return (double)value;
    }
    if (tensor->dtype == KILN_DTYPE_I32) {
        int32_t value;
        memcpy(&value, at, sizeof(value));
        return value;
    }
    uint16_t half;
    memcpy(&half, at, sizeof(half));
    if (tensor->dtype == KILN_DTYPE_F16) {
        return (double)kiln_f16_to_f32(half);
    }
    uint32_t bits = (uint32_t)half << 16; // bf16
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

static void compare_values(struct kiln_op_replayed *to, double a, double b, double *magnitude) {
    if (isfinite(b)) {
        *magnitude = fmax(*magnitude, fabs(b));
        if (isfinite(a)) {
            to->largest = fmax(to->largest, fabs(a - b));
        } else {
            to->not_finite++;
        }
    }
}

// Rows of blocks: their values, since nobody writes what a block's bytes are padded with.
static enum kiln_status compare_blocks(struct kiln_op_replayed *to,
        const struct kiln_tensor *tensor, const uint8_t *got, const uint8_t *want,
        double *magnitude, struct kiln_err *err) {
    size_t cols = (size_t)tensor->dims[0];
    float *values = kiln_calloc(2 * cols + 1, sizeof(*values));
    if (!values) {
        return kiln_err_nomem(err, "the values of a row of blocks");
    }
    kiln_case_decode(tensor, got, values);
    kiln_case_decode(tensor, want, values + cols);
    for (size_t i = 0; i < cols; i++) {
        float a = values[i], b = values[cols + i];
        to->elements++;
        to->differ += a != b && !(isnan(a) && isnan(b));
        compare_values(to, (double)a, (double)b, magnitude);
    }
    kiln_free(values);
    return KILN_STATUS_OK;
}

static enum kiln_status compare_row(struct kiln_op_replayed *to, const struct kiln_tensor *tensor,
        const uint8_t *got, const uint8_t *want, double *magnitude, struct kiln_err *err) {
    if (tensor->dtype == KILN_DTYPE_BLOCK && kiln_case_format_find(tensor->format)) {
        return compare_blocks(to, tensor, got, want, magnitude, err);
    }
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    for (int64_t i = 0; info && info->elems == 1 && i < tensor->dims[0]; i++) {
        const uint8_t *a = got + i * tensor->strides[0], *b = want + i * tensor->strides[0];
        to->elements++;
        to->differ += memcmp(a, b, (size_t)tensor->strides[0]) != 0;
        compare_values(to, element(tensor, a), element(tensor, b), magnitude);
    }
    if (!info) { // a plugin's own format: by its bytes
        to->elements++;
        to->differ += memcmp(got, want, (size_t)tensor->strides[1]) != 0;
    }
    return KILN_STATUS_OK;
}

// Rows in use of one output.
static enum kiln_status compare_rows(struct kiln_op_replayed *to, const struct kiln_tensor *tensor,
        int64_t rows, const uint8_t *got, const uint8_t *want, double *magnitude,
        struct kiln_err *err) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row * tensor->strides[1];
        KILN_TRY(compare_row(to, tensor, got + at, want + at, magnitude, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status compare(
        struct running *r, const struct kiln_captured *c, struct kiln_err *err) {
    struct kiln_op_replayed *to = &r->result->against;
    double magnitude = 0;
    for (uint32_t op = 0; op < c->problem.n_ops; op++) {
        for (uint32_t i = 0; i < c->problem.ops[op]->n_operands; i++) {
            const struct kiln_tensor *tensor = c->problem.ops[op]->operands[i];
            const void *want = c->after[(size_t)op * KILN_SOLO_OPERANDS + tensor->operand];
            uint32_t by = tensor->bound_dims & 2 ? tensor->bound_by[1] : 0;
            int64_t used = by ? count_in(c->data, op, by) : -1;
            int64_t rows = used >= 0 && used < tensor->dims[1] ? used : tensor->dims[1];
            if (!want) {
                continue;
            }
            uint8_t *got = kiln_alloc(kiln_solo_span(tensor));
            if (!got) {
                return kiln_err_nomem(err, "an output");
            }
            enum kiln_status status = kiln_solo_read(r->solo, op, tensor->operand, got, err);
            if (status == KILN_STATUS_OK) {
                status = compare_rows(to, tensor, rows, got, want, &magnitude, err);
            }
            kiln_free(got);
            KILN_TRY(status);
        }
    }
    to->normalized = magnitude > 0 ? to->largest / magnitude : to->largest;
    r->result->replayed = 1;
    return KILN_STATUS_OK;
}

static enum kiln_status judge_captured(
        struct running *r, const struct kiln_captured *c, struct kiln_err *err) {
    struct kiln_op_case judged;
    const struct kiln_binding *binding = r->result->binding;
    enum kiln_status status = kiln_op_case_adopt(
            &judged, &c->problem, c->data, c->edges, binding->plugin, binding->variant, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_op_case_judge(&judged, r->solo, &r->result->verdict, err);
    }
    kiln_op_case_finish(&judged);
    r->result->judged = status == KILN_STATUS_OK;
    return status;
}

static enum kiln_status run_captured(
        struct running *r, const struct kiln_captured *c, const char *how, struct kiln_err *err) {
    int64_t used = count_in(c->data, 0, KILN_OPERAND_N_TOKENS);
    ask(r, c->problem.slot, &c->problem);
    r->query.m = used > 0 ? used : r->query.m;
    r->query.role = c->problem.ops[0]->role;
    r->query.layer = c->problem.layer;
    for (unsigned skip = 0; !r->solo; skip++) {
        const struct kiln_binding *binding;
        KILN_TRY(next_binding(r, skip, &binding, err));
        if (!binding->variant || binding->variant->n_follows + 1 != c->problem.n_ops) {
            pass_over(r, binding, "fills another number of ops than the captured call has");
            continue;
        }
        KILN_TRY(create(r, binding, &c->problem, c->data, c->edges, err));
    }
    (void)snprintf(r->result->shape, sizeof(r->result->shape),
            "layer %d, %s, %" PRId64 " rows, captured from %s (%s/%s)%s", c->problem.layer,
            r->query.role, r->query.m, c->device, c->plugin, c->variant, how);
    KILN_TRY(first_run(r, err));
    if (r->setup->once) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(compare(r, c, err));
    KILN_TRY(judge_captured(r, c, err));
    return take_times(r, err);
}

static enum kiln_status replay(const struct kiln_op_setup *setup,
        const struct kiln_captured *captured, const char *how, struct kiln_op_result *result,
        struct kiln_err *err) {
    *result = (struct kiln_op_result){.binding = NULL};
    struct running r = {.setup = setup, .result = result};
    (void)snprintf(result->slot, sizeof(result->slot), "%s", captured->problem.slot);
    enum kiln_status status = run_captured(&r, captured, how, err);
    stop(&r);
    return status;
}

enum kiln_status kiln_op_replay(const struct kiln_op_setup *setup, struct kiln_captured *captured,
        struct kiln_op_result *result, struct kiln_err *err) {
    enum kiln_status status = replay(setup, captured, "", result, err);
    if (status != KILN_STATUS_CONFIG) {
        return status;
    }
    int changed;
    struct kiln_err declined = *err;
    KILN_TRY(kiln_captured_widen(captured, &changed, err));
    if (!changed) {
        return status;
    }
    kiln_op_result_finish(result);
    status = replay(setup, captured, ", widened to f32", result, err);
    if (status == KILN_STATUS_CONFIG) { // what the formats as captured met with says more
        *err = declined;
    }
    return status;
}

void kiln_op_result_finish(struct kiln_op_result *result) {
    kiln_free(result->passed_over);
    kiln_free(result->launches);
    *result = (struct kiln_op_result){.binding = NULL};
}

int kiln_op_passed(const struct kiln_op_result *result) {
    if (result->judged && !result->verdict.passed) {
        return 0;
    }
    return !result->replayed ||
           (result->against.not_finite == 0 && result->against.normalized <= 0.01);
}
