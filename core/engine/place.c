// place: gives every value of a schedule its place in one arena. Values whose steps do not overlap
// share memory; an output may take over the place of an operand that is read for the last time,
// where the op allows it. Workspaces that are zeroed once share with nobody.
#include "engine/schedule_impl.h"

#include "base/mem.h"

#include <stdlib.h>

enum {
    ALIGNMENT = 256
};

// The operand whose place OUT may take over, by kind of op; 0: none.
static enum kiln_operand in_place(uint32_t kind) {
    switch (kind) {
    case KILN_OP_NORM:
    case KILN_OP_MATMUL:
        return KILN_OPERAND_RESIDUAL;
    case KILN_OP_ROPE_KV:
        return KILN_OPERAND_Q;
    case KILN_OP_ACTIVATION:
        return KILN_OPERAND_GATE;
    default:
        return (enum kiln_operand)0;
    }
}

static int32_t value_at(const struct kiln_step_op *op, enum kiln_operand operand) {
    for (uint32_t i = 0; i < op->op.n_operands; i++) {
        if (op->tensors[i].operand == (uint32_t)operand) {
            return op->values[i];
        }
    }
    return -1;
}

static int reads_twice(const struct kiln_step_op *op, int32_t value) {
    int count = 0;
    for (uint32_t i = 0; i < op->op.n_operands; i++) {
        count += op->values[i] == value;
    }
    return count > 1;
}

static void share_places(struct kiln_schedule *s) {
    for (size_t i = 0; i < s->n_steps; i++) {
        const struct kiln_step *step = &s->steps[i];
        if (step->n_ops != 1) {
            continue;
        }
        enum kiln_operand operand = in_place(step->ops[0].op.kind);
        int32_t from = operand ? value_at(&step->ops[0], operand) : -1;
        int32_t to = value_at(&step->ops[0], KILN_OPERAND_OUT);
        if (from >= 0 && to >= 0 && s->values[from].last == (int32_t)i &&
                s->values[from].bytes == s->values[to].bytes && !reads_twice(&step->ops[0], from)) {
            s->values[to].same_as = from;
            s->values[from].last = (int32_t)i - 1; // its place goes on under the new name
        }
    }
}

static int by_offset(const void *a, const void *b) {
    const struct kiln_value *x = *(const struct kiln_value *const *)a;
    const struct kiln_value *y = *(const struct kiln_value *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

// The last step that needs the place which value i starts: its own, or that of the last value to
// take it over.
static int32_t end_of_place(const struct kiln_schedule *s, size_t i) {
    int32_t last = s->values[i].last;
    for (size_t j = i + 1; j < s->n_values; j++) {
        if (s->values[j].same_as == (int32_t)i) {
            int32_t later = end_of_place(s, j);
            last = later > last ? later : last;
        }
    }
    return last;
}

// The lowest gap between the places in use that holds the value.
static void put(struct kiln_schedule *s, struct kiln_value *value, struct kiln_value **live,
        size_t n_live) {
    uint64_t size = (value->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    uint64_t at = 0;
    qsort(live, n_live, sizeof(*live), by_offset);
    for (size_t i = 0; i < n_live; i++) {
        if (live[i]->offset >= at + size) {
            break;
        }
        uint64_t end = live[i]->offset + (live[i]->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        at = end > at ? end : at;
    }
    value->offset = at;
    if (at + size > s->arena_bytes) {
        s->arena_bytes = at + size;
    }
}

// Gives their places to the values that are kept, which are live from the first step to the last.
static size_t place_kept(struct kiln_schedule *s, struct kiln_value **live, int32_t *ends) {
    size_t n_live = 0;
    s->arena_bytes = 0;
    for (size_t i = 0; i < s->n_values; i++) {
        if (s->values[i].kept) {
            ends[i] = (int32_t)s->n_steps;
            put(s, &s->values[i], live, n_live);
            live[n_live++] = &s->values[i];
        }
    }
    return n_live;
}

enum kiln_status kiln_schedule_place(struct kiln_schedule *schedule, struct kiln_err *err) {
    struct kiln_schedule *s = schedule;
    struct kiln_value **live = kiln_calloc(s->n_values, sizeof(*live));
    int32_t *ends = kiln_calloc(s->n_values, sizeof(*ends));
    if (!live || !ends) {
        kiln_free(live);
        kiln_free(ends);
        return kiln_err_nomem(err, "a schedule");
    }
    share_places(s);
    size_t n_live = place_kept(s, live, ends);
    for (size_t i = 0; i < s->n_values; i++) {
        struct kiln_value *value = &s->values[i];
        if (value->kept) {
            continue;
        }
        if (value->same_as >= 0) {
            value->offset = s->values[value->same_as].offset;
            continue;
        }
        ends[i] = end_of_place(s, i);
        size_t kept = 0;
        for (size_t j = 0; j < n_live; j++) {
            if (ends[live[j] - s->values] >= value->first) {
                live[kept++] = live[j];
            }
        }
        n_live = kept;
        put(s, value, live, n_live);
        live[n_live++] = value;
    }
    kiln_free(live);
    kiln_free(ends);
    return KILN_STATUS_OK;
}
