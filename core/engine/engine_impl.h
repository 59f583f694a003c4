// engine_impl: what an engine is inside, shared by engine.c (life, feeding tokens) and switch.c (an
// engine that follows another one).
#ifndef KILN_ENGINE_ENGINE_IMPL_H
#define KILN_ENGINE_ENGINE_IMPL_H

#include "base/ranges.h"
#include "engine/engine.h"
#include "engine/schedule.h"

enum {
    KILN_ENGINE_BODIES = 64
};

// What of its memory an engine has only borrowed from the one that it is to follow.
enum {
    KILN_LENT_CACHE = 1,    // rt->kv
    KILN_LENT_VALUES = 2,   // rt->values, rt->rope, positions
    KILN_LENT_PREPARED = 4, // rt->prepared
};

// Heads by what they are for.
enum {
    KILN_HEAD_ONE,  // the logits of one row
    KILN_HEAD_MANY, // of several
    KILN_HEAD_PICK, // of one, and its largest; not there where the device does not pick
    KILN_HEADS
};

// The step that the device has been given before it was asked for (pick.c).
struct kiln_ahead {
    // What a step embeds and what it picks, by turns, in memory that host and device reach; made
    // when first wanted.
    int32_t *ids[2];
    void *marks[2]; // behind the step that picked into ids[i]
    int turn;       // which one the step queued last picks into
    int busy;       // that step was not waited for
    int queued;     // it ran ahead, behind n_past, with `id`; whoever changes n_past says no
    int32_t id;
};

struct kiln_engine {
    struct kiln_engine_params params;
    struct kiln_runtime *rt; // schedules point to it
    unsigned lent;
    int64_t ubatch, n_past;
    int64_t head_rows; // what KILN_VALUE_HEAD_ROWS holds
    struct kiln_schedule *body[KILN_ENGINE_BODIES], *head[KILN_HEADS];
    size_t n_body;
    struct kiln_ahead ahead;
    float *logits;      // (rows of the head, V), made when first wanted
    int32_t *positions; // (ubatch)
    uint64_t cache_bytes, table_bytes;
    const struct kiln_range *prefill_range, *decode_range;
};

// Takes ctx, ubatch, the type of the caches and whether to record from the config.
void kiln_engine_apply(struct kiln_engine *engine);
// Allocates what is not lent.
KILN_MUST_CHECK enum kiln_status kiln_engine_alloc(
        struct kiln_engine *engine, struct kiln_err *err);
// The schedule for n rows, or of a head (KILN_HEAD_*), made when there is none yet.
KILN_MUST_CHECK enum kiln_status kiln_engine_body(struct kiln_engine *engine, int64_t n,
        struct kiln_schedule **schedule, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_engine_head(struct kiln_engine *engine, int which,
        struct kiln_schedule **schedule, struct kiln_err *err);
// KILN_STATUS_USAGE: n more tokens do not fit, or one of ids is none.
KILN_MUST_CHECK enum kiln_status kiln_engine_check(
        const struct kiln_engine *engine, const int32_t *ids, int64_t n, struct kiln_err *err);
// Tells the device of n rows behind n_past.
KILN_MUST_CHECK enum kiln_status kiln_engine_put(
        struct kiln_engine *engine, const int32_t *ids, int64_t n, struct kiln_err *err);

// pick.c: makes KILN_HEAD_PICK where the device can run ahead and a variant picks.
KILN_MUST_CHECK enum kiln_status kiln_engine_plan_pick(
        struct kiln_engine *engine, struct kiln_err *err);
// Forgets what ran ahead, once the device is done with it.
KILN_MUST_CHECK enum kiln_status kiln_engine_settle(
        struct kiln_engine *engine, struct kiln_err *err);
void kiln_engine_ahead_finish(struct kiln_engine *engine);

#endif
