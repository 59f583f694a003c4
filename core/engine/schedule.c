// schedule: makes the steps runnable (arena, prepared weights, kernels, argument addresses) and
// runs them.
#include "engine/schedule.h"

#include "base/log.h"
#include "base/mem.h"
#include "engine/schedule_impl.h"
#include "plugin/schema.h"

#include <string.h>

// ---- Addresses ----------------------------------------------------------------------------------

static void *value_address(const struct kiln_schedule *s, int32_t value) {
    return value < 0 ? NULL : (uint8_t *)s->arena + s->values[value].offset;
}

// Where each operand of a step lies, by op * KILN_PREPARE_OPERANDS + operand; NULL: absent.
static void list_operands(const struct kiln_schedule *s, const struct kiln_step *step,
        void *operands[KILN_STEP_OPS * KILN_PREPARE_OPERANDS]) {
    memset(operands, 0, sizeof(*operands) * KILN_STEP_OPS * KILN_PREPARE_OPERANDS);
    for (uint32_t op = 0; op < step->n_ops; op++) {
        const struct kiln_step_op *ops = &step->ops[op];
        for (uint32_t i = 0; i < ops->op.n_operands; i++) {
            uint32_t operand = ops->tensors[i].operand;
            if (operand < KILN_PREPARE_OPERANDS) {
                operands[op * KILN_PREPARE_OPERANDS + operand] =
                        ops->values[i] >= 0 ? value_address(s, ops->values[i]) : ops->address[i];
            }
        }
    }
}

static enum kiln_link link_of(
        const struct kiln_schedule *s, const struct kiln_step *step, const struct kiln_arg *arg) {
    uint32_t kind = arg->kind == KILN_ARG_TENSOR_MAP ? arg->map->base : arg->kind;
    const struct kiln_step_op *ops = &step->ops[arg->op < step->n_ops ? arg->op : 0];
    for (uint32_t i = 0; kind == KILN_ARG_OPERAND && i < ops->op.n_operands; i++) {
        if (ops->tensors[i].operand != arg->operand) {
            continue;
        }
        if (ops->values[i] >= 0) {
            return ops->values[i] == s->in_value ? KILN_LINK_IN : KILN_LINK_NONE;
        }
        if (ops->address[i] && ops->address[i] == s->runtime->values[KILN_VALUE_ONE_ID]) {
            return arg->operand == KILN_OPERAND_OUT ? KILN_LINK_ID_OUT : KILN_LINK_ID_IN;
        }
    }
    return KILN_LINK_NONE;
}

// ---- Making steps runnable ----------------------------------------------------------------------

static enum kiln_status prepare_step(struct kiln_schedule *s, const struct kiln_step *step,
        const struct kiln_prepared **prepared, struct kiln_err *err) {
    struct kiln_runtime *rt = s->runtime;
    void *addresses[KILN_STEP_OPS * KILN_PREPARE_OPERANDS] = {0};
    for (uint32_t op = 0; op < step->n_ops; op++) {
        for (uint32_t i = 0; i < step->ops[op].op.n_operands; i++) {
            uint32_t operand = step->ops[op].tensors[i].operand;
            if (operand < KILN_PREPARE_OPERANDS && step->ops[op].values[i] < 0) {
                addresses[op * KILN_PREPARE_OPERANDS + operand] = step->ops[op].address[i];
            }
        }
    }
    struct kiln_prepare_operands operands = {.addresses = addresses,
            .n_ops = step->n_ops,
            .source_digest = kiln_runtime_source_digest(rt, step->binding->source),
            .generation = rt->generation};
    struct kiln_binding binding = *step->binding; // a quantize step's names no plugin of its own
    binding.plugin = step->plugin;
    for (uint32_t i = 0; i < step->planned->n_preparations; i++) {
        KILN_TRY(kiln_prepare(rt->prepared, rt->dev, &binding, &step->planned->preparations[i],
                &operands, &prepared[i], err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status init_call(struct kiln_schedule *s, struct kiln_step *step,
        const struct kiln_prepared **prepared, void **workspaces, struct kiln_err *err) {
    void *operands[KILN_STEP_OPS * KILN_PREPARE_OPERANDS];
    list_operands(s, step, operands);
    KILN_TRY(prepare_step(s, step, prepared, err));
    for (uint32_t i = 0; i < step->planned->n_workspaces; i++) {
        workspaces[i] = value_address(s, step->first_workspace + (int32_t)i);
    }
    const struct kiln_call_places places = {.operands = operands,
            .n_ops = step->n_ops,
            .workspaces = workspaces,
            .prepared = prepared};
    return kiln_call_init(&step->call, step->planned, &places, err);
}

static enum kiln_status find_links(
        const struct kiln_schedule *s, struct kiln_step *step, struct kiln_err *err) {
    step->links = kiln_calloc(step->call.n_args, sizeof(*step->links));
    if (!step->links) {
        return kiln_err_nomem(err, "a schedule");
    }
    size_t at = 0;
    for (uint32_t i = 0; i < step->planned->n_launches; i++) {
        const struct kiln_launch *launch = &step->planned->launches[i].record;
        for (uint32_t j = 0; j < launch->n_args; j++) {
            step->links[at++] = (uint8_t)link_of(s, step, launch->args[j]);
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status make_call(
        struct kiln_schedule *s, struct kiln_step *step, struct kiln_err *err) {
    const struct kiln_planned *planned = step->planned;
    const struct kiln_prepared **prepared = kiln_calloc(planned->n_preparations, sizeof(*prepared));
    void **workspaces = kiln_calloc(planned->n_workspaces, sizeof(*workspaces));
    enum kiln_status status = prepared && workspaces ? init_call(s, step, prepared, workspaces, err)
                                                     : kiln_err_nomem(err, "a schedule");
    kiln_free(prepared);
    kiln_free(workspaces);
    KILN_TRY(status);
    KILN_TRY(kiln_call_clear_kept(&step->call, s->runtime->dev, err));
    return find_links(s, step, err);
}

// The launches of all steps, as the device wants to hear of them.
static struct kiln_load *list_loads(const struct kiln_schedule *s, size_t *count) {
    *count = 0;
    for (size_t i = 0; i < s->n_steps; i++) {
        *count += s->steps[i].planned->n_launches;
    }
    struct kiln_load *loads = kiln_calloc(*count, sizeof(*loads));
    size_t at = 0;
    for (size_t i = 0; loads && i < s->n_steps; i++) {
        const struct kiln_step *step = &s->steps[i];
        for (uint32_t j = 0; j < step->planned->n_launches; j++) {
            loads[at++] = (struct kiln_load){
                    .plugin = step->plugin->name,
                    .variant = step->variant->name,
                    .kernel = step->planned->launches[j].kernel,
                    .launch = &step->planned->launches[j].record,
                    .geometry = &step->geometry,
                    .source = step->binding->source,
            };
        }
    }
    return loads;
}

static enum kiln_status load_kernels(struct kiln_schedule *s, struct kiln_err *err) {
    struct kiln_dev *dev = s->runtime->dev;
    size_t count;
    struct kiln_load *loads = list_loads(s, &count);
    struct kiln_dev_kernel **ready = kiln_calloc(count, sizeof(*ready));
    enum kiln_status status = loads && ready ? dev->ops->load(dev, loads, count, ready, err)
                                             : kiln_err_nomem(err, "a schedule");
    size_t at = 0;
    for (size_t i = 0; status == KILN_STATUS_OK && i < s->n_steps; i++) {
        for (uint32_t j = 0; j < s->steps[i].planned->n_launches; j++) {
            s->steps[i].call.ready[j] = ready[at++];
        }
    }
    kiln_free(ready);
    kiln_free(loads);
    return status;
}

// What a profiler shows: "attention.prefill fap2 FA_TQ=64 FA_TKV=32" inside "layer 3".
static void name_ranges(struct kiln_schedule *s) {
    for (size_t i = 0; kiln_ranges_active() && i < s->n_steps; i++) {
        struct kiln_step *step = &s->steps[i];
        struct kiln_buf text = {0};
        kiln_buf_printf(&text, "%s %s", step->slot, step->variant->name);
        kiln_geometry_print(&step->geometry, &text);
        step->range = text.failed ? NULL : kiln_range_name(text.data);
        kiln_buf_clear(&text);
        kiln_buf_printf(&text, "layer %d", step->layer);
        step->layer_range = text.failed ? NULL : kiln_range_name(text.data);
        kiln_buf_finish(&text);
    }
}

static enum kiln_status build(struct kiln_schedule *s, struct kiln_err *err) {
    KILN_TRY(kiln_schedule_lower(s, err));
    KILN_TRY(kiln_schedule_place(s, err));
    struct kiln_dev *dev = s->runtime->dev;
    KILN_TRY(dev->ops->alloc(dev, s->arena_bytes, &s->arena, err));
    for (size_t i = 0; i < s->n_steps; i++) {
        KILN_TRY(make_call(s, &s->steps[i], err));
    }
    name_ranges(s);
    return load_kernels(s, err);
}

enum kiln_status kiln_schedule_create(struct kiln_schedule **schedule, struct kiln_runtime *runtime,
        enum kiln_part part, enum kiln_phase phase, int64_t rows, int64_t m, struct kiln_err *err) {
    struct kiln_schedule *s = kiln_calloc(1, sizeof(*s));
    if (!s) {
        return kiln_err_nomem(err, "a schedule");
    }
    const struct kiln_graph *graph = runtime->graph;
    s->runtime = runtime;
    s->part = part;
    s->phase = phase;
    s->rows = rows;
    s->m = m;
    s->first_node = part == KILN_PART_BODY ? 0 : graph->n_body;
    s->end_node = part == KILN_PART_BODY   ? graph->n_body
                  : part == KILN_PART_HEAD ? graph->n_head
                                           : graph->n_nodes;
    s->in_value = -1;
    s->bindings = kiln_calloc(s->end_node - s->first_node, sizeof(*s->bindings));
    enum kiln_status status = s->bindings ? build(s, err) : kiln_err_nomem(err, "a schedule");
    if (status != KILN_STATUS_OK) {
        kiln_schedule_destroy(s);
        return status;
    }
    *schedule = s;
    return KILN_STATUS_OK;
}

void kiln_schedule_destroy(struct kiln_schedule *schedule) {
    struct kiln_schedule *s = schedule;
    if (!s) {
        return;
    }
    struct kiln_dev *dev = s->runtime->dev;
    for (size_t i = 0; i < s->n_steps; i++) {
        struct kiln_step *step = &s->steps[i];
        kiln_call_finish(&step->call, dev);
        kiln_free(step->links);
        kiln_planned_destroy(step->planned);
        kiln_free(step->ops);
    }
    if (s->graph) {
        dev->ops->forget(dev, s->graph);
    }
    for (size_t i = 0; i < sizeof(s->whole) / sizeof(s->whole[0]); i++) {
        if (s->whole[i].graph) {
            dev->ops->forget(dev, s->whole[i].graph);
        }
    }
    if (s->arena) {
        dev->ops->free(dev, s->arena);
    }
    kiln_free(s->steps);
    kiln_free(s->values);
    kiln_free(s->bindings);
    kiln_free(s);
}

enum kiln_status kiln_schedule_fits(struct kiln_schedule *schedule, enum kiln_phase phase,
        int64_t m, int *fits, struct kiln_err *err) {
    const struct kiln_schedule *s = schedule;
    *fits = phase == s->phase && m <= s->rows;
    for (size_t i = s->first_node; *fits && m != s->m && i < s->end_node; i++) {
        const struct kiln_binding *was = s->bindings[i - s->first_node];
        const struct kiln_binding *now;
        char slot[64];
        if (was) {
            KILN_TRY(kiln_schedule_bind(s, i, phase, m, 0, slot, &now, err));
            *fits = was == now;
        }
    }
    return KILN_STATUS_OK;
}

int64_t kiln_schedule_rows(const struct kiln_schedule *schedule) {
    return schedule->rows;
}

int64_t kiln_schedule_seen(const struct kiln_schedule *schedule) {
    return schedule->m;
}

uint64_t kiln_schedule_bytes(const struct kiln_schedule *schedule) {
    return schedule->arena_bytes;
}

void *kiln_schedule_in(const struct kiln_schedule *schedule) {
    return value_address(schedule, schedule->in_value);
}

void *kiln_schedule_out(const struct kiln_schedule *schedule) {
    return value_address(schedule, schedule->out_value);
}

// ---- Running ------------------------------------------------------------------------------------

// A step as those who watch see it, and what that points to.
struct view {
    struct kiln_trace_step step;
    struct kiln_problem problem;
    const struct kiln_op *ops[KILN_STEP_OPS];
    void *operands[KILN_STEP_OPS * KILN_PREPARE_OPERANDS];
};

static void show(const struct kiln_schedule *s, const struct kiln_step *step, struct view *view) {
    *view = (struct view){.problem = {.struct_size = sizeof(view->problem),
                                  .phase = s->phase,
                                  .slot = step->slot,
                                  .ops = view->ops,
                                  .n_ops = step->n_ops,
                                  .layer = step->layer,
                                  .world = 1}};
    for (uint32_t op = 0; op < step->n_ops; op++) {
        view->ops[op] = &step->ops[op].op;
    }
    list_operands(s, step, view->operands);
    view->step = (struct kiln_trace_step){.slot = step->slot,
            .plugin = step->plugin->name,
            .variant = step->variant->name,
            .source = step->binding->source,
            .geometry = &step->geometry,
            .planned = step->planned,
            .layer = step->layer,
            .head = s->part != KILN_PART_BODY,
            .kv_len = s->runtime->kv_len,
            .problem = &view->problem,
            .operands = view->operands};
}

// `step` NULL: the last one was queued.
static enum kiln_status trace_step(
        const struct kiln_schedule *s, const struct kiln_step *step, struct kiln_err *err) {
    const struct kiln_trace *trace = s->runtime->trace;
    if (!trace || !trace->step) {
        return KILN_STATUS_OK;
    }
    if (!step) {
        return trace->step(trace->arg, NULL, err);
    }
    struct view view;
    show(s, step, &view);
    return trace->step(trace->arg, &view.step, err);
}

static enum kiln_status trace_edges(
        const struct kiln_schedule *s, const struct kiln_step *step, struct kiln_err *err) {
    const struct kiln_trace *trace = s->runtime->trace;
    struct view view;
    show(s, step, &view);
    for (uint32_t op = 0; op < step->n_ops; op++) {
        const struct kiln_step_op *ops = &step->ops[op];
        for (uint32_t i = 0; i < ops->op.n_operands; i++) {
            const struct kiln_tensor *tensor = &ops->tensors[i];
            int32_t value = ops->values[i];
            if (tensor->operand != KILN_OPERAND_OUT || value < 0 ||
                    tensor->flags & KILN_TENSOR_INTERNAL) {
                continue;
            }
            const struct kiln_trace_edge edge = {.edge = s->values[value].edge,
                    .role = ops->op.role,
                    .format = s->values[value].format,
                    .address = value_address(s, value),
                    .cols = tensor->dims[0],
                    .row_bytes = tensor->strides[1]};
            KILN_TRY(trace->wrote(trace->arg, &view.step, &edge, err));
        }
    }
    return KILN_STATUS_OK;
}

// Where the arguments with a link lead, by enum kiln_link; NULL: where they lead anyway.
struct links {
    uint8_t *to[KILN_LINK_ID_OUT + 1];
};

enum {
    MAX_ARGS = 64
};

static enum kiln_status launch_linked(const struct kiln_schedule *s, struct kiln_dev_kernel *ready,
        const struct kiln_launch *launch, void *const *args, const uint8_t *kinds,
        const struct links *links, struct kiln_err *err) {
    struct kiln_dev *dev = s->runtime->dev;
    void *linked[MAX_ARGS];
    int any = 0;
    for (uint32_t i = 0; i < launch->n_args; i++) {
        any |= links->to[kinds[i]] != NULL;
    }
    if (any && launch->n_args > MAX_ARGS) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: %u arguments, at most %d are allowed",
                launch->kernel, launch->n_args, MAX_ARGS);
    }
    for (uint32_t i = 0; any && i < launch->n_args; i++) {
        uint8_t *to = links->to[kinds[i]];
        const uint8_t *from = kinds[i] == KILN_LINK_IN ? value_address(s, s->in_value)
                                                       : s->runtime->values[KILN_VALUE_ONE_ID];
        linked[i] = to ? to + ((const uint8_t *)args[i] - from) : args[i];
    }
    return dev->ops->launch(dev, ready, launch, any ? linked : args, err);
}

static enum kiln_status queue_step(const struct kiln_schedule *s, const struct kiln_step *step,
        const struct links *links, struct kiln_err *err) {
    KILN_TRY(trace_step(s, step, err));
    KILN_TRY(kiln_call_clear(&step->call, s->runtime->dev, err));
    void *const *args = step->call.args;
    const uint8_t *kinds = step->links;
    for (uint32_t i = 0; i < step->planned->n_launches; i++) {
        const struct kiln_launch *launch = &step->planned->launches[i].record;
        KILN_TRY(launch_linked(s, step->call.ready[i], launch, args, kinds, links, err));
        args += launch->n_args;
        kinds += launch->n_args;
    }
    if (s->runtime->trace && s->runtime->trace->wrote) {
        return trace_edges(s, step, err);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status queue_steps(const struct kiln_schedule *s, const struct links *links,
        int (*stop)(void), struct kiln_err *err) {
    enum kiln_status status = KILN_STATUS_OK;
    int32_t layer = -1; // the one whose range is open
    for (size_t i = 0; status == KILN_STATUS_OK && i < s->n_steps; i++) {
        const struct kiln_step *step = &s->steps[i];
        if (layer >= 0 && step->layer != layer) {
            kiln_range_pop();
        }
        if (step->layer >= 0 && step->layer != layer) {
            kiln_range_push(step->layer_range, step->layer);
        }
        layer = step->layer;
        kiln_range_push(step->range, step->layer);
        status = stop && stop() ? kiln_err_set(err, KILN_STATUS_INTERRUPTED, "interrupted")
                                : queue_step(s, step, links, err);
        kiln_range_pop();
    }
    if (layer >= 0) {
        kiln_range_pop();
    }
    return status == KILN_STATUS_OK ? trace_step(s, NULL, err) : status;
}

// A step of decode: a body, and the head on the row that it wrote, or NULL. ids: where the id to be
// embedded lies and where the picked one goes, or NULL.
struct decode {
    const struct kiln_schedule *body, *head;
    int32_t *const *ids;
};

static enum kiln_status queue_decode(
        const struct decode *d, int (*stop)(void), struct kiln_err *err) {
    struct kiln_dev *dev = d->body->runtime->dev;
    struct links links = {.to = {NULL}};
    if (d->ids) {
        links.to[KILN_LINK_ID_IN] = (uint8_t *)d->ids[0];
        links.to[KILN_LINK_ID_OUT] = (uint8_t *)d->ids[1];
    }
    KILN_TRY(queue_steps(d->body, &links, stop, err));
    if (!d->head) {
        return KILN_STATUS_OK;
    }
    if (d->body->runtime->trace) { // who watches is shown the head's own input
        uint64_t bytes = d->head->values[d->head->in_value].bytes;
        KILN_TRY(dev->ops->copy(
                dev, kiln_schedule_in(d->head), kiln_schedule_out(d->body), bytes, err));
    } else {
        links.to[KILN_LINK_IN] = kiln_schedule_out(d->body);
    }
    return queue_steps(d->head, &links, stop, err);
}

static enum kiln_status record(const struct decode *d, void **graph, struct kiln_err *err) {
    struct kiln_dev *dev = d->body->runtime->dev;
    KILN_TRY(dev->ops->record_begin(dev, err));
    struct kiln_err ended = {0};
    enum kiln_status status = queue_decode(d, NULL, err);
    enum kiln_status end = dev->ops->record_end(dev, graph, &ended);
    if (status == KILN_STATUS_OK && end != KILN_STATUS_OK) {
        *err = ended;
        status = end;
    }
    return status;
}

// Decode runs the same schedule again and again: what changes lives in device memory.
static enum kiln_status run_decode(
        const struct decode *d, void **graph, int (*stop)(void), struct kiln_err *err) {
    const struct kiln_runtime *rt = d->body->runtime;
    if (d->body->phase != KILN_PHASE_DECODE || !rt->dev->ops->replay || rt->no_graph || rt->trace) {
        return queue_decode(d, stop, err);
    }
    if (stop && stop()) {
        return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "interrupted");
    }
    if (!*graph) {
        KILN_TRY(record(d, graph, err));
    }
    return rt->dev->ops->replay(rt->dev, *graph, err);
}

enum kiln_status kiln_schedule_run(
        struct kiln_schedule *schedule, int (*stop)(void), struct kiln_err *err) {
    const struct decode alone = {.body = schedule};
    return run_decode(&alone, &schedule->graph, stop, err);
}

static enum kiln_status run_whole(
        struct kiln_whole *whole, const struct decode *d, int (*stop)(void), struct kiln_err *err) {
    struct kiln_dev *dev = d->body->runtime->dev;
    if (whole->graph && whole->head != d->head) {
        dev->ops->forget(dev, whole->graph);
        whole->graph = NULL;
    }
    whole->head = d->head;
    return run_decode(d, &whole->graph, stop, err);
}

enum kiln_status kiln_schedule_run_step(struct kiln_schedule *body, struct kiln_schedule *head,
        int (*stop)(void), struct kiln_err *err) {
    const struct decode d = {.body = body, .head = head};
    return run_whole(&body->whole[0], &d, stop, err);
}

enum kiln_status kiln_schedule_run_pick(struct kiln_schedule *body, struct kiln_schedule *head,
        int32_t *const ids[2], int turn, int (*stop)(void), struct kiln_err *err) {
    int32_t *const by_turn[2] = {ids[turn], ids[!turn]};
    const struct decode d = {.body = body, .head = head, .ids = by_turn};
    return run_whole(&body->whole[1 + turn], &d, stop, err);
}

void kiln_schedule_print(const struct kiln_schedule *schedule, struct kiln_buf *text) {
    const struct kiln_schedule *s = schedule;
    for (size_t i = 0; i < s->n_steps; i++) {
        const struct kiln_step *step = &s->steps[i];
        kiln_buf_printf(text, "%zu layer %d [%s] %s/%s", i, step->layer, step->slot,
                step->plugin->name, step->variant->name);
        kiln_geometry_print(&step->geometry, text);
        for (uint32_t j = 0; j < step->planned->n_launches; j++) {
            const struct kiln_launch *launch = &step->planned->launches[j].record;
            kiln_buf_printf(text, "; %s<%u,%u,%u>", launch->kernel, launch->grid[0],
                    launch->grid[1], launch->grid[2]);
        }
        kiln_buf_puts(text, "\n");
    }
}

void kiln_schedule_sums(const struct kiln_schedule *schedule, struct kiln_buf *text) {
    for (size_t i = 0; i < schedule->n_steps; i++) {
        const struct kiln_step *step = &schedule->steps[i];
        int named = 1;
        kiln_buf_puts(text, step->slot);
        for (uint32_t j = 0; j < step->planned->n_launches; j++) {
            const char *order = step->planned->launches[j].record.sum_order;
            kiln_buf_printf(text, " %s", order ? order : step->planned->launches[j].record.kernel);
            named &= order != NULL;
        }
        if (!named) { // then any other variant or geometry may sum otherwise
            kiln_buf_printf(text, " %s/%s", step->plugin->name, step->variant->name);
            kiln_geometry_print(&step->geometry, text);
        }
        kiln_buf_puts(text, "\n");
    }
}
