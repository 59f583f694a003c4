// pick: decode whose tokens the device picks itself: the id picked is what the next step embeds, so
// that step is queued before the host has seen the id, and the device does not wait for the host.
// One step ahead, no more: that behind an end token runs in vain.
//
// What ran in vain is as if it had never run: it wrote one row of the caches behind those in use,
// and the step that does come there writes it again.
#include "engine/engine_impl.h"

#include "base/log.h"

enum kiln_status kiln_engine_plan_pick(struct kiln_engine *engine, struct kiln_err *err) {
    const struct kiln_dev_ops *ops = engine->rt->dev->ops;
    struct kiln_schedule *schedule;
    struct kiln_err cause = {0};
    if (!ops->fence || !ops->wait) {
        return KILN_STATUS_OK;
    }
    enum kiln_status status = kiln_engine_head(engine, KILN_HEAD_PICK, &schedule, &cause);
    if (status == KILN_STATUS_CONFIG) { // not needed to run, nor is it to say what else is amiss
        kiln_log(KILN_LOG_DEBUG, "the device picks no tokens: %s", cause.text);
        return KILN_STATUS_OK;
    }
    return status == KILN_STATUS_OK ? status : kiln_err_set(err, status, "%s", cause.text);
}

int kiln_engine_picks(const struct kiln_engine *engine) {
    return engine->head[KILN_HEAD_PICK] != NULL;
}

enum kiln_status kiln_engine_settle(struct kiln_engine *engine, struct kiln_err *err) {
    struct kiln_ahead *ahead = &engine->ahead;
    int busy = ahead->busy;
    ahead->queued = 0;
    ahead->busy = 0;
    return busy ? engine->rt->dev->ops->sync(engine->rt->dev, err) : KILN_STATUS_OK;
}

void kiln_engine_ahead_finish(struct kiln_engine *engine) {
    struct kiln_dev *dev = engine->rt->dev;
    struct kiln_ahead *ahead = &engine->ahead;
    struct kiln_err ignored = {0};
    (void)!kiln_engine_settle(engine, &ignored); // it writes to what goes now
    for (int i = 0; i < 2; i++) {
        if (ahead->marks[i]) {
            dev->ops->unmark(dev, ahead->marks[i]);
        }
    }
    if (ahead->ids[0]) {
        kiln_dev_host_free(dev, ahead->ids[0]);
    }
    *ahead = (struct kiln_ahead){.queued = 0};
}

static enum kiln_status make_ids(struct kiln_engine *engine, struct kiln_err *err) {
    enum {
        APART = 32 // ids: what one side writes is not in the line that the other reads
    };
    struct kiln_dev *dev = engine->rt->dev;
    void *data = NULL;
    if (!engine->ahead.ids[0]) {
        KILN_TRY(kiln_dev_host_alloc(dev, sizeof(int32_t[2][APART]), &data, err));
        engine->ahead.ids[0] = data;
        engine->ahead.ids[1] = engine->ahead.ids[0] + APART;
    }
    return KILN_STATUS_OK;
}

// Queues a step behind n_past. It embeds what the one before picked.
static enum kiln_status queue(struct kiln_engine *engine, struct kiln_err *err) {
    struct kiln_dev *dev = engine->rt->dev;
    struct kiln_ahead *ahead = &engine->ahead;
    struct kiln_schedule *body, *head;
    const int32_t none = 0; // KILN_VALUE_ONE_ID, which nobody reads
    KILN_TRY(kiln_engine_body(engine, 1, &body, err));
    KILN_TRY(kiln_engine_head(engine, KILN_HEAD_PICK, &head, err));
    KILN_TRY(kiln_engine_put(engine, &none, 1, err));
    int from = ahead->turn;
    ahead->turn = !from;
    ahead->busy = 1;
    kiln_range_push(engine->decode_range, 1);
    enum kiln_status status =
            kiln_schedule_run_pick(body, head, ahead->ids, from, engine->params.stop, err);
    kiln_range_pop();
    KILN_TRY(status);
    return dev->ops->fence(dev, &ahead->marks[ahead->turn], err);
}

// The host writes an id only while no step is under way that could read it.
static enum kiln_status queue_first(struct kiln_engine *engine, int32_t id, struct kiln_err *err) {
    KILN_TRY(kiln_engine_settle(engine, err));
    KILN_TRY(make_ids(engine, err));
    *engine->ahead.ids[engine->ahead.turn] = id;
    return queue(engine, err);
}

// Where someone watches, all operands are those that the schedules were made with.
static enum kiln_status step_watched(
        struct kiln_engine *engine, int32_t id, int32_t *pick, struct kiln_err *err) {
    struct kiln_runtime *rt = engine->rt;
    struct kiln_schedule *body, *head;
    KILN_TRY(kiln_engine_settle(engine, err));
    KILN_TRY(kiln_engine_body(engine, 1, &body, err));
    KILN_TRY(kiln_engine_head(engine, KILN_HEAD_PICK, &head, err));
    KILN_TRY(kiln_engine_put(engine, &id, 1, err));
    kiln_range_push(engine->decode_range, 1);
    enum kiln_status status = kiln_schedule_run_step(body, head, engine->params.stop, err);
    kiln_range_pop();
    KILN_TRY(status);
    engine->n_past++;
    return rt->dev->ops->download(rt->dev, pick, rt->values[KILN_VALUE_ONE_ID], sizeof(*pick), err);
}

static enum kiln_status step(
        struct kiln_engine *engine, int32_t id, int more, int32_t *pick, struct kiln_err *err) {
    struct kiln_dev *dev = engine->rt->dev;
    struct kiln_ahead *ahead = &engine->ahead;
    if (!ahead->queued || ahead->id != id) {
        KILN_TRY(queue_first(engine, id, err));
    }
    ahead->queued = 0;
    engine->n_past++;
    int turn = ahead->turn;
    // The step ahead picks into the id that this one embedded, which the host has had.
    int goes_on = more && engine->n_past < engine->rt->ctx;
    if (goes_on) {
        KILN_TRY(queue(engine, err));
    }
    KILN_TRY(dev->ops->wait(dev, ahead->marks[turn], err));
    *pick = *ahead->ids[turn];
    ahead->queued = ahead->busy = goes_on;
    ahead->id = *pick;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_engine_pick(
        struct kiln_engine *engine, int32_t id, int more, int32_t *pick, struct kiln_err *err) {
    int64_t n_past = engine->n_past;
    KILN_TRY(kiln_engine_check(engine, &id, 1, err));
    enum kiln_status status = engine->rt->trace ? step_watched(engine, id, pick, err)
                                                : step(engine, id, more, pick, err);
    if (status != KILN_STATUS_OK) {
        engine->n_past = n_past;
        engine->ahead.queued = 0;
    }
    return status;
}
