// changes: compares the steps of schedules by the node of the graph that they begin with.
#include "engine/changes.h"

#include "base/mem.h"
#include "engine/schedule_impl.h"
#include "plugin/schema.h"

#include <string.h>

struct change {
    char *line; // "SLOT: OLD -> NEW"
    unsigned count;
};

struct list {
    struct change *items;
    size_t count, cap;
    int failed;
};

// Takes over the line.
static void add(struct list *list, char *line) {
    for (size_t i = 0; line && i < list->count; i++) {
        if (strcmp(list->items[i].line, line) == 0) {
            list->items[i].count++;
            kiln_free(line);
            return;
        }
    }
    if (!line || kiln_grow(&list->items, &list->cap, list->count + 1, sizeof(*list->items)) != 0) {
        kiln_free(line);
        list->failed = 1;
        return;
    }
    list->items[list->count++] = (struct change){.line = line, .count = 1};
}

// ---- One step -----------------------------------------------------------------------------------

static uint64_t digest_of(const struct kiln_schedule *s, const struct kiln_step *step) {
    return kiln_runtime_source_digest(s->runtime, step->binding->source);
}

static void name_step(const struct kiln_step *step, struct kiln_buf *text) {
    kiln_buf_printf(text, "%s/%s", step->plugin->name, step->variant->name);
    kiln_geometry_print(&step->geometry, text);
    if (step->binding->source) {
        kiln_buf_printf(text, " source=%s", step->binding->source);
    }
}

static int same_names(const struct kiln_step *a, const struct kiln_step *b) {
    struct kiln_buf one = {0}, other = {0};
    name_step(a, &one);
    name_step(b, &other);
    int same = one.data && other.data && strcmp(one.data, other.data) == 0;
    kiln_buf_finish(&one);
    kiln_buf_finish(&other);
    return same;
}

static void add_line(struct list *list, const struct kiln_step *old, const struct kiln_step *fresh,
        const char *behind) {
    struct kiln_buf line = {0};
    kiln_buf_printf(&line, "%s: ", fresh ? fresh->slot : old->slot);
    if (old) {
        name_step(old, &line);
        kiln_buf_puts(&line, " -> ");
    }
    if (fresh) {
        name_step(fresh, &line);
    } else {
        kiln_buf_puts(&line, "part of the step before it");
    }
    kiln_buf_puts(&line, behind);
    add(list, kiln_buf_take(&line));
    kiln_buf_finish(&line);
}

// ---- Schedules ----------------------------------------------------------------------------------

// The step that begins at the node; NULL: it is part of another, or no step of a node's own.
static const struct kiln_step *step_at(const struct kiln_schedule *s, size_t node) {
    for (size_t i = 0; s && i < s->n_steps; i++) {
        if (s->steps[i].node == node && s->steps[i].n_nodes > 0) {
            return &s->steps[i];
        }
    }
    return NULL;
}

static void compare_node(struct list *list, const struct kiln_schedule *from,
        const struct kiln_schedule *to, size_t node) {
    const struct kiln_step *old = step_at(from, node), *fresh = step_at(to, node);
    if (!old && !fresh) {
        return;
    }
    if (!from || !old || !fresh || !same_names(old, fresh)) {
        add_line(list, old, fresh, "");
    } else if (digest_of(from, old) != digest_of(to, fresh)) {
        add_line(list, old, fresh, ", edited");
    }
}

static unsigned count_quantize(const struct kiln_schedule *s) {
    unsigned count = 0;
    for (size_t i = 0; s && i < s->n_steps; i++) {
        count += s->steps[i].n_nodes == 0;
    }
    return count;
}

static void compare(
        struct list *list, const struct kiln_schedule *from, const struct kiln_schedule *to) {
    for (size_t node = to->first_node; node < to->end_node; node++) {
        compare_node(list, from, to, node);
    }
    unsigned before = count_quantize(from), now = count_quantize(to);
    if (from && before != now) {
        add(list, kiln_asprintf("quantize: %u steps -> %u steps", before, now));
    }
}

// The first schedule of a phase: the one for whole chunks, or for one token.
static const struct kiln_schedule *body_of(
        const struct kiln_engine *engine, enum kiln_phase phase) {
    for (size_t i = 0; engine && i < engine->n_body; i++) {
        if (engine->body[i]->phase == phase) {
            return engine->body[i];
        }
    }
    return NULL;
}

void kiln_changes_describe(
        const struct kiln_engine *from, const struct kiln_engine *to, struct kiln_buf *text) {
    struct list list = {.items = NULL};
    static const enum kiln_phase phases[] = {KILN_PHASE_PREFILL, KILN_PHASE_DECODE};
    for (size_t i = 0; i < 2; i++) {
        const struct kiln_schedule *body = body_of(to, phases[i]);
        if (body) { // one token in a chunk: there is no prefill
            compare(&list, body_of(from, phases[i]), body);
        }
    }
    int picks = to->head[KILN_HEAD_PICK] && (!from || from->head[KILN_HEAD_PICK]);
    int head = picks ? KILN_HEAD_PICK : KILN_HEAD_ONE;
    if (to->head[head]) {
        compare(&list, from ? from->head[head] : NULL, to->head[head]);
    }
    for (size_t i = 0; i < list.count; i++) {
        kiln_buf_printf(text, "%s", list.items[i].line);
        if (list.items[i].count > 1) {
            kiln_buf_printf(text, " (%u steps)", list.items[i].count);
        }
        kiln_buf_puts(text, "\n");
        kiln_free(list.items[i].line);
    }
    text->failed |= list.failed;
    kiln_free(list.items);
}
