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

struct kiln_engine {
    struct kiln_engine_params params;
    struct kiln_runtime *rt; // schedules point to it
    unsigned lent;
    int64_t ubatch, n_past;
    int64_t head_rows;                                        // what KILN_VALUE_HEAD_ROWS holds
    struct kiln_schedule *body[KILN_ENGINE_BODIES], *head[2]; // head: 1 row, many rows
    size_t n_body;
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
// The schedule for n rows, or of the head (many: several rows), made when there is none yet.
KILN_MUST_CHECK enum kiln_status kiln_engine_body(struct kiln_engine *engine, int64_t n,
        struct kiln_schedule **schedule, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_engine_head(struct kiln_engine *engine, int many,
        struct kiln_schedule **schedule, struct kiln_err *err);

#endif
