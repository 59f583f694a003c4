// marks: events of the device, or the host's clock where it has none.
#include "lab/marks.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "plugin/schema.h"

#include <string.h>

enum {
    COSTS = 32, // marks with nothing between
    // Fills that keep a GPU busy longer than the host takes to queue them and what follows.
    BUSY = 64
};

char *kiln_step_name(const struct kiln_trace_step *step) {
    struct kiln_buf name = {0};
    kiln_buf_printf(&name, "%s/%s", step->plugin, step->variant);
    kiln_geometry_print(step->geometry, &name);
    if (step->source) {
        kiln_buf_printf(&name, " source=%s", step->source);
    }
    return kiln_buf_take(&name);
}

enum kiln_status kiln_marks_put(struct kiln_marks *marks, int32_t owner, struct kiln_err *err) {
    const size_t had = marks->cap;
    struct kiln_dev *dev = marks->dev;
    if (kiln_grow(&marks->list, &marks->cap, marks->n + 1, sizeof(*marks->list)) != 0) {
        return kiln_err_nomem(err, "the marks of a run");
    }
    if (marks->cap > had) {
        memset(marks->list + had, 0, (marks->cap - had) * sizeof(*marks->list));
    }
    struct kiln_mark *mark = &marks->list[marks->n++];
    mark->owner = owner;
    if (dev->ops->mark) {
        return dev->ops->mark(dev, &mark->at, err);
    }
    KILN_TRY(dev->ops->sync(dev, err));
    mark->host = kiln_clock_seconds();
    return KILN_STATUS_OK;
}

static enum kiln_status between(struct kiln_dev *dev, const struct kiln_mark *from,
        const struct kiln_mark *to, double *seconds, struct kiln_err *err) {
    if (dev->ops->mark) {
        return dev->ops->elapsed(dev, from->at, to->at, seconds, err);
    }
    *seconds = to->host - from->host;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_marks_take(
        struct kiln_marks *marks, kiln_marks_add add, void *arg, struct kiln_err *err) {
    const size_t n = marks->n;
    marks->n = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const struct kiln_mark *mark = &marks->list[i];
        double seconds;
        if (mark->owner != KILN_MARK_NOBODY) {
            KILN_TRY(between(marks->dev, mark, mark + 1, &seconds, err));
            add(arg, mark->owner, seconds);
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_marks_fill(
        struct kiln_marks *marks, int times, uint64_t bytes, struct kiln_err *err) {
    struct kiln_dev *dev = marks->dev;
    if (!marks->scratch) {
        KILN_TRY(dev->ops->alloc(dev, KILN_MARKS_FILL, &marks->scratch, err));
    }
    for (int i = 0; i < times; i++) {
        KILN_TRY(dev->ops->zero(dev, marks->scratch, bytes, err));
    }
    return KILN_STATUS_OK;
}

static void add_cost(void *arg, int32_t owner, double seconds) {
    (void)owner;
    *(double *)arg += seconds;
}

// A GPU is busy meanwhile: else the host's time to queue a mark would count into it. Other devices
// do what they are told when they are told.
enum kiln_status kiln_marks_cost(struct kiln_marks *marks, double *seconds, struct kiln_err *err) {
    const struct kiln_dev *dev = marks->dev;
    if (dev->ops->mark && dev->desc.kind == KILN_DEVICE_CUDA) {
        KILN_TRY(kiln_marks_fill(marks, BUSY, KILN_MARKS_FILL, err));
    }
    for (int i = 0; i < COSTS; i++) {
        KILN_TRY(kiln_marks_put(marks, 0, err));
    }
    KILN_TRY(kiln_marks_put(marks, KILN_MARK_NOBODY, err));
    *seconds = 0;
    KILN_TRY(kiln_marks_take(marks, add_cost, seconds, err));
    *seconds /= COSTS;
    return KILN_STATUS_OK;
}

void kiln_marks_close(struct kiln_marks *marks) {
    struct kiln_dev *dev = marks->dev;
    for (size_t i = 0; dev && dev->ops->mark && i < marks->cap; i++) {
        dev->ops->unmark(dev, marks->list[i].at);
    }
    if (dev) {
        dev->ops->free(dev, marks->scratch);
    }
    kiln_free(marks->list);
    *marks = (struct kiln_marks){.dev = NULL};
}
