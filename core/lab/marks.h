// marks: points of a run in the order in which the device comes to them, and the time from each to
// the next, by whom it belongs to. What wall and ab take their kernels' times with.
//
// Times are of the device's clock. A device that has none (ops->mark is NULL) is waited for at each
// mark and the host's clock read: good for telling apart what takes long, no more.
#ifndef KILN_LAB_MARKS_H
#define KILN_LAB_MARKS_H

#include "base/status.h"
#include "device/device.h"
#include "engine/schedule.h"

#include <stddef.h>
#include <stdint.h>

enum {
    KILN_MARK_NOBODY = -1 // what runs from here to the next mark is not asked for
};

struct kiln_mark {
    void *at;    // of a device with a clock of its own; made once, moved from run to run
    double host; // else seconds of the host's clock
    int32_t owner;
};

struct kiln_marks {
    struct kiln_dev *dev; // outlives the marks
    struct kiln_mark *list;
    size_t n, cap;
    void *scratch; // on the device, to keep it busy with
};

// Begin with {.dev = dev}. All below may fail with NOMEM or as the device does.

// owner: whose the time from here to the next mark is, 0 or more, or KILN_MARK_NOBODY.
KILN_MUST_CHECK enum kiln_status kiln_marks_put(
        struct kiln_marks *marks, int32_t owner, struct kiln_err *err);
// Gives each owner's times to `add`, in the order of the run, and starts over.
typedef void (*kiln_marks_add)(void *arg, int32_t owner, double seconds);
KILN_MUST_CHECK enum kiln_status kiln_marks_take(
        struct kiln_marks *marks, kiln_marks_add add, void *arg, struct kiln_err *err);
// Seconds from a mark to the next with nothing between, the mean of some. No marks may be left that
// kiln_marks_take has not given away.
KILN_MUST_CHECK enum kiln_status kiln_marks_cost(
        struct kiln_marks *marks, double *seconds, struct kiln_err *err);
// Queues so many fills of memory that nobody reads, up to KILN_MARKS_FILL bytes each.
#define KILN_MARKS_FILL (8 << 20)
KILN_MUST_CHECK enum kiln_status kiln_marks_fill(
        struct kiln_marks *marks, int times, uint64_t bytes, struct kiln_err *err);
void kiln_marks_close(struct kiln_marks *marks); // a zeroed one is fine

// What runs in a step: "attention/fap2 FA_TQ=64 FA_TKV=32", and the source that a config names in
// place of the plugin's. NULL: out of memory; the caller frees it.
char *kiln_step_name(const struct kiln_trace_step *step);

#endif
