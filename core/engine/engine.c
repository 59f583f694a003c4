// engine: caches, schedules by number of rows, and feeding tokens through them.
#include "engine/engine.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/ranges.h"
#include "engine/engine_impl.h"
#include "model/dtype.h"

#include <string.h>

enum {
    HEAD_ROWS = 64,
    SINGLE_VALUES = KILN_VALUE_COUNT - KILN_VALUE_SINGLE
};

// ---- Set-up -------------------------------------------------------------------------------------

static enum kiln_status alloc_values(struct kiln_engine *engine, struct kiln_err *err) {
    if (engine->lent & KILN_LENT_VALUES) {
        return KILN_STATUS_OK;
    }
    struct kiln_dev *dev = engine->rt->dev;
    void **values = engine->rt->values;
    for (int i = 0; i <= KILN_VALUE_SINGLE; i++) {
        uint64_t bytes = i == KILN_VALUE_SINGLE ? (uint64_t)SINGLE_VALUES * KILN_VALUE_STRIDE
                                                : (uint64_t)engine->ubatch * sizeof(int32_t);
        KILN_TRY(dev->ops->alloc(dev, bytes, &values[i], err));
        engine->table_bytes += bytes;
    }
    for (int i = 1; i < SINGLE_VALUES; i++) {
        values[KILN_VALUE_SINGLE + i] =
                (uint8_t *)values[KILN_VALUE_SINGLE] + (size_t)i * KILN_VALUE_STRIDE;
    }
    const struct kiln_graph *graph = engine->rt->graph;
    for (uint32_t i = 0; i < graph->n_rope; i++) {
        uint64_t bytes = graph->rope[i].len * sizeof(float);
        KILN_TRY(dev->ops->alloc(dev, bytes, &engine->rt->rope[i], err));
        KILN_TRY(dev->ops->upload(dev, engine->rt->rope[i], graph->rope[i].freqs, bytes, err));
        engine->table_bytes += bytes;
    }
    engine->positions = kiln_calloc((size_t)engine->ubatch, sizeof(*engine->positions));
    return engine->positions ? KILN_STATUS_OK : kiln_err_nomem(err, "the engine");
}

static enum kiln_status alloc_cache(struct kiln_engine *engine, struct kiln_err *err) {
    if (engine->lent & KILN_LENT_CACHE) {
        return KILN_STATUS_OK;
    }
    struct kiln_runtime *rt = engine->rt;
    size_t count = (size_t)rt->graph->n_layers * 2;
    uint64_t bytes =
            (uint64_t)rt->ctx * (uint64_t)rt->graph->kv_cols * kiln_dtype_info(rt->kv_dtype)->bytes;
    rt->kv = kiln_calloc(count, sizeof(*rt->kv));
    if (!rt->kv) {
        return kiln_err_nomem(err, "the KV cache");
    }
    for (size_t i = 0; i < count; i++) {
        enum kiln_status status = rt->dev->ops->alloc(rt->dev, bytes, &rt->kv[i], err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err,
                    "KV cache for %lld tokens (a smaller -c needs less): ", (long long)rt->ctx);
            return status;
        }
    }
    engine->cache_bytes = bytes * count;
    return KILN_STATUS_OK;
}

void kiln_engine_apply(struct kiln_engine *engine) {
    const struct kiln_settings *settings = kiln_config_settings(engine->params.config);
    enum {
        DEFAULT_CTX = 4096
    };
    int64_t trained = engine->params.model->params.ctx_train;
    engine->rt->ctx = settings->ctx > 0       ? settings->ctx
                      : trained < DEFAULT_CTX ? trained
                                              : DEFAULT_CTX;
    engine->ubatch = settings->ubatch < engine->rt->ctx ? settings->ubatch : engine->rt->ctx;
    int host = engine->rt->dev->desc.kind == KILN_DEVICE_HOST;
    switch (settings->kv_type) {
    case KILN_KV_AUTO:
        engine->rt->kv_dtype = host ? KILN_DTYPE_F32 : KILN_DTYPE_F16;
        break;
    case KILN_KV_F32:
        engine->rt->kv_dtype = KILN_DTYPE_F32;
        break;
    case KILN_KV_F16:
        engine->rt->kv_dtype = KILN_DTYPE_F16;
        break;
    }
    kiln_ranges_start();
    engine->prefill_range = kiln_range_name("prefill");
    engine->decode_range = kiln_range_name("decode step");
    engine->rt->no_graph = settings->graph == KILN_GRAPH_OFF ||
                           (settings->graph == KILN_GRAPH_AUTO && kiln_ranges_active());
}

enum kiln_status kiln_engine_alloc(struct kiln_engine *engine, struct kiln_err *err) {
    KILN_TRY(alloc_values(engine, err));
    return alloc_cache(engine, err);
}

// The bound that memory is made for: powers of two, so that a few schedules serve every chunk
// length.
static int64_t bound_for(const struct kiln_engine *engine, int64_t n) {
    int64_t bound = 1;
    while (bound < n) {
        bound *= 2;
    }
    return bound < engine->ubatch ? bound : engine->ubatch;
}

enum kiln_status kiln_engine_body(struct kiln_engine *engine, int64_t n,
        struct kiln_schedule **schedule, struct kiln_err *err) {
    enum kiln_phase phase = n == 1 ? KILN_PHASE_DECODE : KILN_PHASE_PREFILL;
    int64_t bound = bound_for(engine, n);
    for (size_t i = 0; i < engine->n_body; i++) {
        int fits = kiln_schedule_rows(engine->body[i]) == bound;
        if (fits) {
            KILN_TRY(kiln_schedule_fits(engine->body[i], phase, n, &fits, err));
        }
        if (fits) {
            *schedule = engine->body[i];
            return KILN_STATUS_OK;
        }
    }
    if (engine->n_body == KILN_ENGINE_BODIES) { // many `when` ranges over m: drop the oldest
        kiln_schedule_destroy(engine->body[0]);
        memmove(engine->body, engine->body + 1, (KILN_ENGINE_BODIES - 1) * sizeof(*engine->body));
        engine->n_body--;
    }
    KILN_TRY(kiln_schedule_create(schedule, engine->rt, KILN_PART_BODY, phase, bound, n, err));
    engine->body[engine->n_body++] = *schedule;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_engine_head(struct kiln_engine *engine, int which,
        struct kiln_schedule **schedule, struct kiln_err *err) {
    if (!engine->head[which]) {
        int many = which == KILN_HEAD_MANY;
        int64_t rows = many ? HEAD_ROWS : 1;
        KILN_TRY(kiln_schedule_create(&engine->head[which], engine->rt,
                which == KILN_HEAD_PICK ? KILN_PART_PICK : KILN_PART_HEAD,
                many ? KILN_PHASE_PREFILL : KILN_PHASE_DECODE, rows, rows, err));
    }
    *schedule = engine->head[which];
    return KILN_STATUS_OK;
}

static enum kiln_status start(struct kiln_engine *engine, struct kiln_err *err) {
    const struct kiln_engine_params *params = &engine->params;
    engine->rt = kiln_calloc(1, sizeof(*engine->rt));
    if (!engine->rt) {
        return kiln_err_nomem(err, "the engine");
    }
    engine->rt->dev = params->dev;
    engine->rt->registry = params->registry;
    engine->rt->config = params->config;
    engine->rt->graph = &params->model->graph;
    KILN_TRY(kiln_prepared_create(&engine->rt->prepared, err));
    KILN_TRY(kiln_runtime_read_sources(engine->rt, err));
    kiln_engine_apply(engine);
    KILN_TRY(kiln_engine_alloc(engine, err));
    struct kiln_schedule *schedule;
    KILN_TRY(kiln_engine_body(engine, engine->ubatch, &schedule, err));
    KILN_TRY(kiln_engine_body(engine, 1, &schedule, err));
    // Before the head for logits alone, a part of it: what is to be compiled is compiled at once.
    KILN_TRY(kiln_engine_plan_pick(engine, err));
    return kiln_engine_head(engine, KILN_HEAD_ONE, &schedule, err);
}

static void warn_of_long_context(const struct kiln_engine *engine) {
    int64_t trained = engine->params.model->params.ctx_train;
    if (engine->rt->ctx > trained) {
        kiln_log(KILN_LOG_WARN,
                "the context holds %lld tokens, the model was trained with %lld: what it says "
                "behind those is likely poor",
                (long long)engine->rt->ctx, (long long)trained);
    }
}

enum kiln_status kiln_engine_create(
        struct kiln_engine **out, const struct kiln_engine_params *params, struct kiln_err *err) {
    struct kiln_engine *engine = kiln_calloc(1, sizeof(*engine));
    if (!engine) {
        return kiln_err_nomem(err, "the engine");
    }
    engine->params = *params;
    enum kiln_status status = start(engine, err);
    if (status != KILN_STATUS_OK) {
        kiln_engine_destroy(engine);
        return status;
    }
    warn_of_long_context(engine);
    *out = engine;
    return KILN_STATUS_OK;
}

static void free_memory(struct kiln_engine *engine) {
    struct kiln_runtime *rt = engine->rt;
    struct kiln_dev *dev = rt->dev;
    if (!(engine->lent & KILN_LENT_CACHE)) {
        for (size_t i = 0; rt->kv && i < (size_t)rt->graph->n_layers * 2; i++) {
            dev->ops->free(dev, rt->kv[i]);
        }
        kiln_free(rt->kv);
    }
    if (!(engine->lent & KILN_LENT_VALUES)) {
        for (int i = 0; i <= KILN_VALUE_SINGLE; i++) { // the others lie in the last one's memory
            dev->ops->free(dev, rt->values[i]);
        }
        dev->ops->free(dev, rt->rope[0]);
        dev->ops->free(dev, rt->rope[1]);
        kiln_free(engine->positions);
    }
    if (!(engine->lent & KILN_LENT_PREPARED)) {
        kiln_prepared_destroy(rt->prepared, dev);
    }
}

void kiln_engine_destroy(struct kiln_engine *engine) {
    if (!engine) {
        return;
    }
    if (engine->rt) {
        kiln_engine_ahead_finish(engine);
    }
    for (size_t i = 0; i < engine->n_body; i++) {
        kiln_schedule_destroy(engine->body[i]);
    }
    for (int i = 0; i < KILN_HEADS; i++) {
        kiln_schedule_destroy(engine->head[i]);
    }
    if (engine->rt) {
        free_memory(engine);
        kiln_runtime_drop_sources(engine->rt);
    }
    kiln_free(engine->rt);
    kiln_free(engine->logits);
    kiln_free(engine);
}

int64_t kiln_engine_ctx(const struct kiln_engine *engine) {
    return engine->rt->ctx;
}

int64_t kiln_engine_ubatch(const struct kiln_engine *engine) {
    return engine->ubatch;
}

int64_t kiln_engine_n_past(const struct kiln_engine *engine) {
    return engine->n_past;
}

int kiln_engine_graph(const struct kiln_engine *engine) {
    return engine->rt->dev->ops->replay && !engine->rt->no_graph;
}

void kiln_engine_trace(struct kiln_engine *engine, const struct kiln_trace *trace) {
    engine->rt->trace = trace;
    engine->ahead.queued = 0; // nobody saw it
}

void kiln_engine_memory(const struct kiln_engine *engine, struct kiln_engine_memory *memory) {
    struct kiln_dev *dev = engine->rt->dev;
    struct kiln_dev_memory own = {0};
    if (dev->ops->memory) {
        dev->ops->memory(dev, &own);
    }
    *memory = (struct kiln_engine_memory){.weights = own.weights,
            .expansion = kiln_prepared_bytes(engine->rt->prepared),
            .kv = engine->cache_bytes,
            .work = engine->table_bytes};
    for (size_t i = 0; i < engine->n_body; i++) {
        memory->work += kiln_schedule_bytes(engine->body[i]);
    }
    for (int i = 0; i < KILN_HEADS; i++) {
        memory->work += engine->head[i] ? kiln_schedule_bytes(engine->head[i]) : 0;
    }
}

uint64_t kiln_engine_bytes(const struct kiln_engine *engine) {
    struct kiln_engine_memory memory;
    kiln_engine_memory(engine, &memory);
    return memory.expansion + memory.kv + memory.work;
}

void kiln_engine_truncate(struct kiln_engine *engine, int64_t n_past) {
    if (n_past < engine->n_past) {
        engine->n_past = n_past;
        engine->ahead.queued = 0;
    }
}

// ---- Feeding tokens -----------------------------------------------------------------------------

// What n rows behind n_past are told, and that the head, if it is asked, gets one.
enum kiln_status kiln_engine_put(
        struct kiln_engine *engine, const int32_t *ids, int64_t n, struct kiln_err *err) {
    enum {
        STRIDE = KILN_VALUE_STRIDE / sizeof(int32_t)
    };
    struct kiln_dev *dev = engine->rt->dev;
    void *const *values = engine->rt->values;
    int32_t past = (int32_t)engine->n_past, rows = (int32_t)n;
    const int32_t single[SINGLE_VALUES][STRIDE] = {
            {rows}, {past}, {past + rows}, {1}, {ids[0]}, {past}};
    KILN_TRY(dev->ops->upload(dev, values[KILN_VALUE_SINGLE], single, sizeof(single), err));
    engine->head_rows = 1;
    engine->rt->kv_len = past + rows;
    if (n == 1) { // its schedules read the single ones
        return KILN_STATUS_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        engine->positions[i] = (int32_t)(engine->n_past + i);
    }
    uint64_t bytes = (uint64_t)n * sizeof(int32_t);
    KILN_TRY(dev->ops->upload(dev, values[KILN_VALUE_IDS], ids, bytes, err));
    return dev->ops->upload(dev, values[KILN_VALUE_POSITIONS], engine->positions, bytes, err);
}

static enum kiln_status run_body(struct kiln_engine *engine, const int32_t *ids, int64_t n,
        struct kiln_schedule **body, struct kiln_err *err) {
    KILN_TRY(kiln_engine_body(engine, n, body, err));
    KILN_TRY(kiln_engine_put(engine, ids, n, err));
    KILN_TRY(kiln_schedule_run(*body, engine->params.stop, err));
    engine->n_past += n;
    return KILN_STATUS_OK;
}

static enum kiln_status download_logits(struct kiln_engine *engine,
        const struct kiln_schedule *head, int64_t n, float *logits, struct kiln_err *err) {
    struct kiln_dev *dev = engine->rt->dev;
    uint64_t bytes = (uint64_t)n * (uint64_t)engine->params.model->params.n_vocab * sizeof(float);
    return dev->ops->download(dev, logits, kiln_schedule_out(head), bytes, err);
}

// A step of decode with its logits.
static enum kiln_status run_step(
        struct kiln_engine *engine, const int32_t *id, float *logits, struct kiln_err *err) {
    struct kiln_schedule *body, *head;
    KILN_TRY(kiln_engine_body(engine, 1, &body, err));
    KILN_TRY(kiln_engine_head(engine, KILN_HEAD_ONE, &head, err));
    KILN_TRY(kiln_engine_put(engine, id, 1, err));
    KILN_TRY(kiln_schedule_run_step(body, head, engine->params.stop, err));
    engine->n_past++;
    return download_logits(engine, head, 1, logits, err);
}

// The logits of rows [row, row + n) of what the body wrote last, into `logits` (n, V).
static enum kiln_status run_head(struct kiln_engine *engine, const struct kiln_schedule *body,
        int64_t row, int64_t n, float *logits, struct kiln_err *err) {
    struct kiln_dev *dev = engine->rt->dev;
    struct kiln_schedule *head;
    KILN_TRY(kiln_engine_head(engine, n > 1 ? KILN_HEAD_MANY : KILN_HEAD_ONE, &head, err));
    uint64_t row_bytes = (uint64_t)engine->params.model->params.width * sizeof(float);
    const uint8_t *from = (const uint8_t *)kiln_schedule_out(body) + (uint64_t)row * row_bytes;
    KILN_TRY(dev->ops->copy(dev, kiln_schedule_in(head), from, (uint64_t)n * row_bytes, err));
    if (engine->head_rows != n) {
        int32_t rows = (int32_t)n;
        KILN_TRY(dev->ops->upload(
                dev, engine->rt->values[KILN_VALUE_HEAD_ROWS], &rows, sizeof(rows), err));
        engine->head_rows = n;
    }
    KILN_TRY(kiln_schedule_run(head, engine->params.stop, err));
    return download_logits(engine, head, n, logits, err);
}

enum kiln_status kiln_engine_check(
        const struct kiln_engine *engine, const int32_t *ids, int64_t n, struct kiln_err *err) {
    if (n > engine->rt->ctx - engine->n_past) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "%lld tokens do not fit: the context holds %lld and has %lld in it; a larger -c "
                "holds "
                "more",
                (long long)n, (long long)engine->rt->ctx, (long long)engine->n_past);
    }
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= engine->params.model->params.n_vocab) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "token id %d at place %lld is not in the vocabulary (0 to %d)", ids[i],
                    (long long)i, engine->params.model->params.n_vocab - 1);
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status take_rows(struct kiln_engine *engine, const struct kiln_schedule *body,
        int64_t chunk, int64_t row, int64_t n, kiln_logits_fn take, void *arg,
        struct kiln_err *err) {
    if (!engine->logits) {
        engine->logits = kiln_alloc(
                (size_t)HEAD_ROWS * (size_t)engine->params.model->params.n_vocab * sizeof(float));
    }
    if (!engine->logits) {
        return kiln_err_nomem(err, "logits");
    }
    while (row < n) {
        int64_t rows = n - row < HEAD_ROWS ? n - row : HEAD_ROWS;
        KILN_TRY(run_head(engine, body, row, rows, engine->logits, err));
        KILN_TRY(take(arg, chunk + row, rows, engine->logits, err));
        row += rows;
    }
    return KILN_STATUS_OK;
}

// What is wanted of an evaluation: the logits of every id from `first` on, or of the last one.
struct wanted {
    int64_t n, first;
    kiln_logits_fn take;
    void *arg;
    float *last;
};

static enum kiln_status eval_chunk(struct kiln_engine *engine, const int32_t *ids, int64_t at,
        int64_t rows, const struct wanted *want, struct kiln_err *err) {
    struct kiln_schedule *body;
    if (rows == 1 && at + rows == want->n && want->last && !want->take) {
        return run_step(engine, ids + at, want->last, err);
    }
    KILN_TRY(run_body(engine, ids + at, rows, &body, err));
    if (want->take && want->first < at + rows) {
        int64_t row = want->first > at ? want->first - at : 0;
        KILN_TRY(take_rows(engine, body, at, row, rows, want->take, want->arg, err));
    }
    if (want->last && at + rows == want->n) {
        KILN_TRY(run_head(engine, body, rows - 1, 1, want->last, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status eval_all(struct kiln_engine *engine, const int32_t *ids,
        const struct wanted *want, struct kiln_err *err) {
    int64_t n = want->n;
    KILN_TRY(kiln_engine_check(engine, ids, n, err));
    if (engine->params.progress && n > 1) {
        engine->params.progress(engine->params.progress_arg, 0, n);
    }
    for (int64_t at = 0; at < n;) {
        int64_t rows = n - at < engine->ubatch ? n - at : engine->ubatch;
        kiln_range_push(rows == 1 ? engine->decode_range : engine->prefill_range, rows);
        enum kiln_status status = eval_chunk(engine, ids, at, rows, want, err);
        kiln_range_pop();
        KILN_TRY(status);
        at += rows;
        if (engine->params.progress && n > 1) {
            engine->params.progress(engine->params.progress_arg, at, n);
        }
    }
    return engine->rt->dev->ops->sync(engine->rt->dev, err);
}

// A failure leaves the engine's context as it was.
static enum kiln_status eval(struct kiln_engine *engine, const int32_t *ids,
        const struct wanted *want, struct kiln_err *err) {
    int64_t n_past = engine->n_past;
    KILN_TRY(kiln_engine_settle(engine, err));
    enum kiln_status status = eval_all(engine, ids, want, err);
    if (status != KILN_STATUS_OK) {
        engine->n_past = n_past;
    }
    return status;
}

enum kiln_status kiln_engine_eval(struct kiln_engine *engine, const int32_t *ids, int64_t n,
        float *logits, struct kiln_err *err) {
    struct wanted want = {.n = n};
    want.last = logits;
    return eval(engine, ids, &want, err);
}

enum kiln_status kiln_engine_eval_all(struct kiln_engine *engine, const int32_t *ids, int64_t n,
        int64_t first, kiln_logits_fn take, void *arg, struct kiln_err *err) {
    const struct wanted want = {.n = n, .first = first, .take = take, .arg = arg};
    return eval(engine, ids, &want, err);
}

enum kiln_status kiln_engine_describe(
        struct kiln_engine *engine, int64_t rows, struct kiln_buf *text, struct kiln_err *err) {
    struct kiln_schedule *schedule;
    KILN_TRY(kiln_engine_body(
            engine, rows < engine->ubatch ? rows : engine->ubatch, &schedule, err));
    kiln_schedule_print(schedule, text);
    KILN_TRY(kiln_engine_head(engine, KILN_HEAD_ONE, &schedule, err));
    kiln_schedule_print(schedule, text);
    return text->failed ? kiln_err_nomem(err, "a description") : KILN_STATUS_OK;
}

enum kiln_status kiln_engine_sums(
        struct kiln_engine *engine, int64_t rows, struct kiln_buf *text, struct kiln_err *err) {
    struct kiln_schedule *schedule;
    kiln_buf_printf(text, "KV cache %s\n", engine->rt->kv_dtype == KILN_DTYPE_F32 ? "f32" : "f16");
    KILN_TRY(kiln_engine_body(
            engine, rows < engine->ubatch ? rows : engine->ubatch, &schedule, err));
    kiln_schedule_sums(schedule, text);
    KILN_TRY(kiln_engine_head(engine, KILN_HEAD_ONE, &schedule, err));
    kiln_schedule_sums(schedule, text);
    return text->failed ? kiln_err_nomem(err, "the orders of sums") : KILN_STATUS_OK;
}
