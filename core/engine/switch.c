// switch: builds the engine that is to follow, and exchanges the two.
#include "engine/switch.h"

#include "base/mem.h"
#include "engine/changes.h"
#include "engine/engine_impl.h"
#include "jit/source_files.h"

#include <string.h>

struct kiln_follower {
    struct kiln_engine *engine; // that it follows
    struct kiln_engine *next;   // with rt->dev as the engine's, save while it is built
    // What the engine had made when this began: the same is made ready before the take-over.
    int64_t rows[KILN_ENGINE_BODIES];
    size_t n_rows;
    int many, picks; // a head for many rows, one that picks
    struct kiln_follower_counts counts;
};

enum kiln_status kiln_follower_begin(struct kiln_follower **out, struct kiln_engine *engine,
        struct kiln_config *config, struct kiln_err *err) {
    struct kiln_follower *follower = kiln_calloc(1, sizeof(*follower));
    struct kiln_engine *next = kiln_calloc(1, sizeof(*next));
    struct kiln_runtime *rt = kiln_calloc(1, sizeof(*rt));
    if (!follower || !next || !rt) {
        kiln_free(follower);
        kiln_free(next);
        kiln_free(rt);
        return kiln_err_nomem(err, "another configuration");
    }
    next->params = engine->params;
    next->params.config = config;
    next->rt = rt;
    next->lent = KILN_LENT_PREPARED;
    *rt = (struct kiln_runtime){.dev = engine->rt->dev,
            .registry = engine->rt->registry,
            .config = config,
            .graph = engine->rt->graph,
            .prepared = engine->rt->prepared,
            .generation = engine->rt->generation + 1};
    memcpy(rt->said, engine->rt->said, sizeof(rt->said));
    kiln_engine_apply(next);
    if (rt->ctx == engine->rt->ctx && rt->kv_dtype == engine->rt->kv_dtype) {
        next->lent |= KILN_LENT_CACHE;
        rt->kv = engine->rt->kv;
        next->cache_bytes = engine->cache_bytes;
    }
    if (next->ubatch == engine->ubatch) {
        next->lent |= KILN_LENT_VALUES;
        for (int i = 0; i < KILN_VALUE_COUNT; i++) {
            rt->values[i] = engine->rt->values[i];
        }
        rt->rope[0] = engine->rt->rope[0];
        rt->rope[1] = engine->rt->rope[1];
        next->positions = engine->positions;
        next->table_bytes = engine->table_bytes;
    }
    follower->rows[follower->n_rows++] = next->ubatch;
    follower->rows[follower->n_rows++] = 1;
    for (size_t i = 0; i < engine->n_body && follower->n_rows < KILN_ENGINE_BODIES; i++) {
        int64_t rows = kiln_schedule_seen(engine->body[i]);
        if (rows != 1 && rows < next->ubatch) {
            follower->rows[follower->n_rows++] = rows;
        }
    }
    follower->many = engine->head[KILN_HEAD_MANY] != NULL;
    follower->picks = engine->head[KILN_HEAD_PICK] != NULL;
    follower->engine = engine;
    follower->next = next;
    *out = follower;
    return KILN_STATUS_OK;
}

static enum kiln_status build(struct kiln_follower *follower, struct kiln_err *err) {
    struct kiln_engine *next = follower->next;
    struct kiln_schedule *schedule;
    KILN_TRY(kiln_runtime_read_sources(next->rt, err));
    KILN_TRY(kiln_engine_alloc(next, err));
    for (size_t i = 0; i < follower->n_rows; i++) {
        KILN_TRY(kiln_engine_body(next, follower->rows[i], &schedule, err));
    }
    if (follower->picks) {
        KILN_TRY(kiln_engine_plan_pick(next, err));
    }
    KILN_TRY(kiln_engine_head(next, KILN_HEAD_ONE, &schedule, err));
    if (follower->many) {
        KILN_TRY(kiln_engine_head(next, KILN_HEAD_MANY, &schedule, err));
    }
    return next->rt->dev->ops->sync(next->rt->dev, err);
}

enum kiln_status kiln_follower_build(
        struct kiln_follower *follower, struct kiln_dev *dev, struct kiln_err *err) {
    struct kiln_runtime *rt = follower->next->rt;
    struct kiln_follower_counts *counts = &follower->counts;
    struct kiln_dev_counts before = dev->counts;
    struct kiln_dev *own = rt->dev;
    rt->dev = dev;
    enum kiln_status status = build(follower, err);
    rt->dev = own;
    counts->compiled = dev->counts.compiled - before.compiled;
    counts->cached = dev->counts.cached - before.cached;
    counts->shared = dev->counts.shared - before.shared;
    kiln_prepared_counts(rt->prepared, rt->generation, &counts->prepared, &counts->kept);
    return status;
}

int kiln_follower_forgets(const struct kiln_follower *follower) {
    return !(follower->next->lent & KILN_LENT_CACHE);
}

struct kiln_follower_counts kiln_follower_counts(const struct kiln_follower *follower) {
    return follower->counts;
}

void kiln_follower_describe(const struct kiln_follower *follower, struct kiln_buf *text) {
    kiln_changes_describe(follower->engine, follower->next, text);
}

enum kiln_status kiln_follower_take(struct kiln_follower *follower, struct kiln_err *err) {
    struct kiln_engine *engine = follower->engine, *next = follower->next;
    KILN_TRY(engine->rt->dev->ops->sync(engine->rt->dev, err)); // what runs must be done with
    unsigned shared = next->lent;
    int64_t n_past = shared & KILN_LENT_CACHE ? engine->n_past : 0;
    struct kiln_engine old = *engine;
    *engine = *next;
    engine->n_past = n_past;
    engine->lent = 0; // what was lent is the engine's own now, and no longer that of the old one
    *next = old;
    next->lent = shared;
    uint64_t generation = engine->rt->generation;
    struct kiln_prepared_set *prepared = engine->rt->prepared;
    struct kiln_dev *dev = engine->rt->dev;
    kiln_engine_destroy(next);
    kiln_prepared_sweep(prepared, dev, generation, UINT64_MAX);
    kiln_free(follower);
    return KILN_STATUS_OK;
}

void kiln_follower_destroy(struct kiln_follower *follower) {
    if (follower) {
        struct kiln_runtime *rt = follower->engine->rt;
        kiln_engine_destroy(follower->next);
        kiln_prepared_sweep(rt->prepared, rt->dev, 0, rt->generation);
        kiln_free(follower);
    }
}

void kiln_engine_summary(const struct kiln_engine *engine, struct kiln_buf *text) {
    kiln_changes_describe(NULL, engine, text);
}

int kiln_engine_sources_changed(const struct kiln_engine *engine) {
    const struct kiln_runtime *rt = engine->rt;
    int changed = 0;
    for (size_t i = 0; i < rt->n_sources && !changed; i++) {
        struct kiln_source_files files;
        struct kiln_err err = {0};
        changed = kiln_source_files_read(&files, rt->sources[i].path, &err) != KILN_STATUS_OK ||
                  files.digest != rt->sources[i].digest;
        kiln_source_files_finish(&files);
    }
    return changed;
}
