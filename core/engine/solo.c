// solo: memory for the operands of one problem, its call, and the clock round it.
#include "engine/solo.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/call.h"
#include "model/dtype.h"
#include "plugin/describe.h"

#include <inttypes.h>
#include <string.h>

enum {
    GUARD = 256,          // bytes behind each piece of memory
    GUARD_BYTE = 0xff,    // as floats: NaN
    UNKNOWN_L2 = 1 << 25, // bytes, of a device that does not say
};

_Static_assert((int)KILN_SOLO_OPERANDS == (int)KILN_PREPARE_OPERANDS, "one table serves both");

// A piece of device memory: an operand, an edge of several, or a workspace.
struct place {
    uint8_t *at;
    uint64_t bytes;
    uint32_t op, operand; // the first one that lies here; of a workspace its index, and 0
};

struct kiln_solo {
    struct kiln_solo_params params;
    struct kiln_planned *planned;
    struct kiln_prepared_set *set;
    struct kiln_call call;
    struct place *places;
    size_t n_places;
    int32_t *place_of; // by op * KILN_SOLO_OPERANDS + operand: index of the place, -1: none
    void **operands;   // likewise: addresses, NULL: none
    uint64_t guard;    // bytes behind each place
    void *flush;       // what is written to empty L2
    void *marks[2];
    void *graph; // recording of graph_calls calls
    int64_t graph_calls;
};

// ---- Memory -------------------------------------------------------------------------------------

uint64_t kiln_solo_span(const struct kiln_tensor *tensor) {
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    int64_t span = tensor->strides[0] * tensor->dims[0] / (info ? (int64_t)info->elems : 1);
    span = info ? span : 0; // a block format's columns: the row's stride tells
    for (uint32_t i = 1; i < 4; i++) {
        int64_t dim = tensor->strides[i] * (tensor->dims[i] > 0 ? tensor->dims[i] : 1);
        span = dim > span ? dim : span;
    }
    return (uint64_t)span;
}

static const struct kiln_tensor *find_tensor(
        const struct kiln_solo *solo, uint32_t op, uint32_t operand) {
    const struct kiln_problem *problem = solo->params.problem;
    return op < problem->n_ops ? kiln_op_tensor(problem->ops[op], operand) : NULL;
}

static uint32_t edge_of(const struct kiln_solo *solo, size_t index) {
    return solo->params.edges ? solo->params.edges[index] : 0;
}

// The place of the edge, -1 when no operand before has it.
static int32_t place_of_edge(const struct kiln_solo *solo, uint32_t edge) {
    for (size_t i = 0; edge > 0 && i < (size_t)solo->params.problem->n_ops * KILN_SOLO_OPERANDS;
            i++) {
        if (edge_of(solo, i) == edge && solo->place_of[i] >= 0) {
            return solo->place_of[i];
        }
    }
    return -1;
}

// Which place each operand has, and how long the places are.
static enum kiln_status lay_out(struct kiln_solo *solo, struct kiln_err *err) {
    const struct kiln_problem *problem = solo->params.problem;
    for (uint32_t op = 0; op < problem->n_ops; op++) {
        for (uint32_t i = 0; i < problem->ops[op]->n_operands; i++) {
            const struct kiln_tensor *tensor = problem->ops[op]->operands[i];
            if (tensor->operand >= KILN_SOLO_OPERANDS) {
                return kiln_err_set(err, KILN_STATUS_USAGE, "op %u: no operand has number %u", op,
                        tensor->operand);
            }
            size_t index = (size_t)op * KILN_SOLO_OPERANDS + tensor->operand;
            uint64_t bytes = kiln_solo_span(tensor);
            int32_t found = place_of_edge(solo, edge_of(solo, index));
            if (found < 0) {
                found = (int32_t)solo->n_places++;
                solo->places[found] = (struct place){.op = op, .operand = tensor->operand};
            }
            struct place *place = &solo->places[found];
            place->bytes = bytes > place->bytes ? bytes : place->bytes;
            solo->place_of[index] = found;
        }
    }
    for (uint32_t i = 0; i < solo->planned->n_workspaces; i++) {
        solo->places[solo->n_places++] =
                (struct place){.bytes = solo->planned->workspaces[i].bytes, .op = i};
    }
    return KILN_STATUS_OK;
}

// Bytes of 0xff everywhere, the guard included.
static enum kiln_status fill_place(
        const struct kiln_solo *solo, const struct place *place, struct kiln_err *err) {
    uint64_t bytes = place->bytes + solo->guard;
    uint8_t *fill = kiln_alloc(bytes);
    if (!fill) {
        return kiln_err_nomem(err, "an operand");
    }
    memset(fill, GUARD_BYTE, bytes);
    struct kiln_dev *dev = solo->params.dev;
    enum kiln_status status = dev->ops->upload(dev, place->at, fill, bytes, err);
    if (status == KILN_STATUS_OK) {
        status = dev->ops->sync(dev, err); // `fill` goes
    }
    kiln_free(fill);
    return status;
}

static enum kiln_status alloc_places(struct kiln_solo *solo, struct kiln_err *err) {
    struct kiln_dev *dev = solo->params.dev;
    for (size_t i = 0; i < solo->n_places; i++) {
        struct place *place = &solo->places[i];
        void *at = NULL;
        KILN_TRY(dev->ops->alloc(dev, place->bytes + solo->guard, &at, err));
        place->at = at;
        KILN_TRY(fill_place(solo, place, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status upload(struct kiln_solo *solo, struct kiln_err *err) {
    size_t count = (size_t)solo->params.problem->n_ops * KILN_SOLO_OPERANDS;
    for (size_t i = 0; i < count; i++) {
        if (solo->place_of[i] < 0) {
            continue;
        }
        solo->operands[i] = solo->places[solo->place_of[i]].at;
        if (solo->params.data && solo->params.data[i]) {
            KILN_TRY(kiln_solo_write(solo, (uint32_t)(i / KILN_SOLO_OPERANDS),
                    (uint32_t)(i % KILN_SOLO_OPERANDS), solo->params.data[i], err));
        }
    }
    return KILN_STATUS_OK;
}

// ---- Making it runnable -------------------------------------------------------------------------

static enum kiln_status prepare(
        struct kiln_solo *solo, const struct kiln_prepared **prepared, struct kiln_err *err) {
    const struct kiln_solo_params *params = &solo->params;
    struct kiln_binding binding = {.plugin = params->plugin,
            .variant = params->variant,
            .variant_name = params->variant->name,
            .geometry = *params->geometry,
            .source = params->source};
    struct kiln_prepare_operands operands = {
            .addresses = solo->operands, .n_ops = params->problem->n_ops};
    for (uint32_t i = 0; i < solo->planned->n_preparations; i++) {
        KILN_TRY(kiln_prepare(solo->set, params->dev, &binding, &solo->planned->preparations[i],
                &operands, &prepared[i], err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status make_call(struct kiln_solo *solo, struct kiln_err *err) {
    const struct kiln_planned *planned = solo->planned;
    const struct kiln_prepared **prepared = kiln_calloc(planned->n_preparations, sizeof(*prepared));
    void **workspaces = kiln_calloc(planned->n_workspaces, sizeof(*workspaces));
    enum kiln_status status =
            prepared && workspaces ? prepare(solo, prepared, err) : kiln_err_nomem(err, "a call");
    for (uint32_t i = 0; status == KILN_STATUS_OK && i < planned->n_workspaces; i++) {
        workspaces[i] = solo->places[solo->n_places - planned->n_workspaces + i].at;
    }
    if (status == KILN_STATUS_OK) {
        const struct kiln_call_places places = {.operands = solo->operands,
                .n_ops = solo->params.problem->n_ops,
                .workspaces = workspaces,
                .prepared = prepared};
        status = kiln_call_init(&solo->call, planned, &places, err);
    }
    kiln_free(prepared);
    kiln_free(workspaces);
    return status;
}

static enum kiln_status load(struct kiln_solo *solo, struct kiln_err *err) {
    struct kiln_dev *dev = solo->params.dev;
    struct kiln_load *loads = kiln_calloc(solo->planned->n_launches, sizeof(*loads));
    if (!loads) {
        return kiln_err_nomem(err, "a call");
    }
    for (uint32_t i = 0; i < solo->planned->n_launches; i++) {
        loads[i] = (struct kiln_load){
                .plugin = solo->params.plugin->name,
                .variant = solo->params.variant->name,
                .kernel = solo->planned->launches[i].kernel,
                .launch = &solo->planned->launches[i].record,
                .geometry = solo->params.geometry,
                .source = solo->params.source,
        };
    }
    enum kiln_status status =
            dev->ops->load(dev, loads, solo->planned->n_launches, solo->call.ready, err);
    kiln_free(loads);
    return status;
}

static enum kiln_status build(struct kiln_solo *solo, struct kiln_err *err) {
    const struct kiln_problem *problem = solo->params.problem;
    size_t count = (size_t)problem->n_ops * KILN_SOLO_OPERANDS;
    solo->places = kiln_calloc(count + solo->planned->n_workspaces, sizeof(*solo->places));
    solo->place_of = kiln_alloc(count * sizeof(*solo->place_of));
    solo->operands = kiln_calloc(count, sizeof(*solo->operands));
    if (!solo->places || !solo->place_of || !solo->operands) {
        return kiln_err_nomem(err, "a call");
    }
    for (size_t i = 0; i < count; i++) {
        solo->place_of[i] = -1;
    }
    KILN_TRY(kiln_prepared_create(&solo->set, err));
    KILN_TRY(lay_out(solo, err));
    KILN_TRY(alloc_places(solo, err));
    KILN_TRY(upload(solo, err));
    KILN_TRY(make_call(solo, err));
    KILN_TRY(kiln_call_clear_kept(&solo->call, solo->params.dev, err));
    return load(solo, err);
}

enum kiln_status kiln_solo_create(struct kiln_solo **solo, const struct kiln_solo_params *params,
        enum kiln_plan_outcome *outcome, struct kiln_err *err) {
    struct kiln_planned *planned;
    *solo = NULL;
    KILN_TRY(kiln_plan_make(params->plugin, params->variant, params->instance, params->problem,
            params->geometry, &params->dev->desc, outcome, &planned, err));
    if (*outcome == KILN_PLAN_DECLINED) {
        return KILN_STATUS_OK;
    }
    struct kiln_solo *made = kiln_calloc(1, sizeof(*made));
    if (!made) {
        kiln_planned_destroy(planned);
        return kiln_err_nomem(err, "a call");
    }
    made->params = *params;
    made->planned = planned;
    // sim finds every access behind the end of a piece by itself, and says where it was made.
    made->guard = strncmp(params->dev->id, "sim", 3) == 0 ? 0 : GUARD;
    enum kiln_status status = build(made, err);
    if (status != KILN_STATUS_OK) {
        kiln_solo_destroy(made);
        return status;
    }
    *solo = made;
    return KILN_STATUS_OK;
}

static void drop_graph(struct kiln_solo *solo) {
    if (solo->graph) {
        solo->params.dev->ops->forget(solo->params.dev, solo->graph);
        solo->graph = NULL;
    }
}

void kiln_solo_destroy(struct kiln_solo *solo) {
    if (!solo) {
        return;
    }
    struct kiln_dev *dev = solo->params.dev;
    struct kiln_err ignored = {0};
    (void)!dev->ops->sync(dev, &ignored); // what still runs uses what goes now
    drop_graph(solo);
    for (size_t i = 0; i < 2; i++) {
        if (solo->marks[i]) {
            dev->ops->unmark(dev, solo->marks[i]);
        }
    }
    kiln_call_finish(&solo->call, dev);
    if (solo->flush) {
        dev->ops->free(dev, solo->flush);
    }
    for (size_t i = 0; i < solo->n_places; i++) {
        if (solo->places[i].at) {
            dev->ops->free(dev, solo->places[i].at);
        }
    }
    kiln_prepared_destroy(solo->set, dev);
    kiln_planned_destroy(solo->planned);
    kiln_free(solo->places);
    kiln_free(solo->place_of);
    kiln_free(solo->operands);
    kiln_free(solo);
}

const struct kiln_planned *kiln_solo_planned(const struct kiln_solo *solo) {
    return solo->planned;
}

uint64_t kiln_solo_prepared_bytes(const struct kiln_solo *solo) {
    return kiln_prepared_bytes(solo->set);
}

// ---- Using it -----------------------------------------------------------------------------------

static const struct place *place_of(
        const struct kiln_solo *solo, const struct kiln_tensor *tensor, uint32_t op) {
    return &solo->places[solo->place_of[(size_t)op * KILN_SOLO_OPERANDS + tensor->operand]];
}

static enum kiln_status no_operand(
        const struct kiln_solo *solo, uint32_t op, uint32_t operand, struct kiln_err *err) {
    return kiln_err_set(err, KILN_STATUS_USAGE, "op %u of %s has no operand %u", op,
            solo->params.problem->slot, operand);
}

enum kiln_status kiln_solo_write(struct kiln_solo *solo, uint32_t op, uint32_t operand,
        const void *data, struct kiln_err *err) {
    struct kiln_dev *dev = solo->params.dev;
    const struct kiln_tensor *tensor = find_tensor(solo, op, operand);
    if (!tensor) {
        return no_operand(solo, op, operand, err);
    }
    return dev->ops->upload(dev, place_of(solo, tensor, op)->at, data, kiln_solo_span(tensor), err);
}

enum kiln_status kiln_solo_run(struct kiln_solo *solo, struct kiln_err *err) {
    return kiln_call_queue(&solo->call, solo->params.dev, err);
}

enum kiln_status kiln_solo_sync(struct kiln_solo *solo, struct kiln_err *err) {
    return solo->params.dev->ops->sync(solo->params.dev, err);
}

static enum kiln_status check_guard(
        const struct kiln_solo *solo, const struct place *place, struct kiln_err *err) {
    struct kiln_dev *dev = solo->params.dev;
    uint8_t guard[GUARD];
    KILN_TRY(dev->ops->download(dev, guard, place->at + place->bytes, GUARD, err));
    for (uint32_t i = 0; i < GUARD; i++) {
        if (guard[i] != GUARD_BYTE) {
            return kiln_err_set(err, KILN_STATUS_CHECK,
                    "%s/%s wrote behind the end of %s %u%s%s of %s, which has %" PRIu64
                    " bytes: at byte %" PRIu64,
                    solo->params.plugin->name, solo->params.variant->name,
                    place->operand ? "op" : "workspace", place->op, place->operand ? "'s " : "",
                    place->operand ? kiln_operand_name(place->operand) : "",
                    solo->params.problem->slot, place->bytes, place->bytes + i);
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_solo_read(
        struct kiln_solo *solo, uint32_t op, uint32_t operand, void *data, struct kiln_err *err) {
    struct kiln_dev *dev = solo->params.dev;
    const struct kiln_tensor *tensor = find_tensor(solo, op, operand);
    if (!tensor) {
        return no_operand(solo, op, operand, err);
    }
    for (size_t i = 0; solo->guard > 0 && i < solo->n_places; i++) {
        KILN_TRY(check_guard(solo, &solo->places[i], err));
    }
    return dev->ops->download(
            dev, data, place_of(solo, tensor, op)->at, kiln_solo_span(tensor), err);
}

// ---- Timing -------------------------------------------------------------------------------------

// Calls that are counted in one sample when each is as short as this one was.
static int64_t calls_of(double seconds) {
    const double least = 50e-6;
    const int64_t most = 1000;
    if (seconds >= least) {
        return 1;
    }
    int64_t calls = seconds > 0 ? (int64_t)(least / seconds) + 1 : most;
    return calls < most ? calls : most;
}

static enum kiln_status queue_singly(struct kiln_solo *solo, int64_t calls, struct kiln_err *err) {
    for (int64_t i = 0; i < calls; i++) {
        KILN_TRY(kiln_solo_run(solo, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status record(struct kiln_solo *solo, int64_t calls, struct kiln_err *err) {
    struct kiln_dev *dev = solo->params.dev;
    drop_graph(solo);
    KILN_TRY(dev->ops->record_begin(dev, err));
    enum kiln_status status = queue_singly(solo, calls, err);
    struct kiln_err ended = {0};
    enum kiln_status end = dev->ops->record_end(dev, &solo->graph, &ended);
    if (status == KILN_STATUS_OK && end != KILN_STATUS_OK) {
        *err = ended;
        status = end;
    }
    solo->graph_calls = calls;
    return status;
}

// Short calls come from a recording where the device keeps one: the host could not queue them as
// fast as they run.
static enum kiln_status queue(struct kiln_solo *solo, int64_t calls, struct kiln_err *err) {
    struct kiln_dev *dev = solo->params.dev;
    if (calls == 1 || !dev->ops->replay) {
        return queue_singly(solo, calls, err);
    }
    if (!solo->graph || solo->graph_calls != calls) {
        KILN_TRY(record(solo, calls, err));
    }
    return dev->ops->replay(dev, solo->graph, err);
}

// What comes in front of the calls that count.
static enum kiln_status lead(
        struct kiln_solo *solo, int64_t calls, int cold, struct kiln_err *err) {
    struct kiln_dev *dev = solo->params.dev;
    if (!cold) {
        // Keeps a device with a queue busy until what counts is queued as well.
        return dev->ops->replay ? queue(solo, calls, err) : KILN_STATUS_OK;
    }
    uint64_t l2 = dev->desc.l2_bytes ? dev->desc.l2_bytes : UNKNOWN_L2;
    if (!solo->flush) {
        KILN_TRY(dev->ops->alloc(dev, 2 * l2, &solo->flush, err));
    }
    return dev->ops->zero(dev, solo->flush, 2 * l2, err);
}

static enum kiln_status sample_by_marks(
        struct kiln_solo *solo, int64_t calls, int cold, double *seconds, struct kiln_err *err) {
    struct kiln_dev *dev = solo->params.dev;
    double start = kiln_clock_seconds();
    KILN_TRY(lead(solo, calls, cold, err));
    KILN_TRY(dev->ops->mark(dev, &solo->marks[0], err));
    KILN_TRY(queue(solo, calls, err));
    KILN_TRY(dev->ops->mark(dev, &solo->marks[1], err));
    KILN_TRY(dev->ops->sync(dev, err));
    double wall = kiln_clock_seconds() - start;
    KILN_TRY(dev->ops->elapsed(dev, solo->marks[0], solo->marks[1], seconds, err));
    // Both clocks run alike to a thousandth; a mark is exact to about a microsecond.
    if (*seconds > wall * 1.001 + 1e-6) {
        return kiln_err_set(err, KILN_STATUS_CHECK,
                "%s: the device's clock says %.3f us for what the host waited %.3f us for: one of "
                "them stopped before the work was done",
                solo->params.problem->slot, *seconds * 1e6, wall * 1e6);
    }
    return KILN_STATUS_OK;
}

// The host's clock round the calls. There is no L2 to empty on a device without a clock.
static enum kiln_status sample_by_host(
        struct kiln_solo *solo, int64_t calls, double *seconds, struct kiln_err *err) {
    double start = kiln_clock_seconds();
    KILN_TRY(queue(solo, calls, err));
    KILN_TRY(kiln_solo_sync(solo, err));
    *seconds = kiln_clock_seconds() - start;
    return KILN_STATUS_OK;
}

static enum kiln_status sample(
        struct kiln_solo *solo, int64_t calls, int cold, double *seconds, struct kiln_err *err) {
    KILN_TRY(solo->params.dev->ops->mark ? sample_by_marks(solo, calls, cold, seconds, err)
                                         : sample_by_host(solo, calls, seconds, err));
    *seconds /= (double)calls;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_solo_time(struct kiln_solo *solo, const struct kiln_solo_timing *timing,
        double *seconds, struct kiln_err *err) {
    int64_t calls = timing->cold ? 1 : timing->repeats;
    double first;
    if (solo->params.dev->ops->mark) {
        KILN_TRY(sample(solo, 1, 0, &first, err)); // warms up
    }
    if (calls == 0) {
        KILN_TRY(sample(solo, 1, 0, &first, err));
        calls = calls_of(first);
    }
    for (int64_t i = 0; i < timing->runs; i++) {
        if (timing->stop && timing->stop()) {
            return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "interrupted");
        }
        KILN_TRY(sample(solo, calls, timing->cold, &seconds[i], err));
    }
    return KILN_STATUS_OK;
}
