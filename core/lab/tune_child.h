// tune_child: the other side of tune_worker.h: starts the process that measures, asks it, keeps the
// time and watches its memory, and says how it ended when it did.
#ifndef KILN_LAB_TUNE_CHILD_H
#define KILN_LAB_TUNE_CHILD_H

#include "base/status.h"

#include <stdint.h>

struct json_t;
struct kiln_tune_child;

struct kiln_tune_child_params {
    const char *const *argv; // of the worker, NULL behind the last; argv[0] is the program's path.
                             // It reads requests from descriptor 0 and answers on descriptor 3
    uint64_t memory_limit;   // resident bytes that it may have; 0: any
    double start_seconds;    // that opening the device may take
    int (*stop)(void);       // asked while waiting, or NULL
};

enum kiln_tune_end {
    KILN_TUNE_END_REPLY,
    KILN_TUNE_END_DIED,    // a signal or an exit
    KILN_TUNE_END_TIMEOUT, // killed: it did not answer in time
    KILN_TUNE_END_MEMORY,  // killed: over the limit, or by the system for want of memory
};

KILN_MUST_CHECK enum kiln_status kiln_tune_child_create(struct kiln_tune_child **child,
        const struct kiln_tune_child_params *params, struct kiln_err *err);
void kiln_tune_child_destroy(struct kiln_tune_child *child); // ends the worker; NULL is fine

// Starts the worker where none runs, and does not wait: kiln_tune_child_ready does.
KILN_MUST_CHECK enum kiln_status kiln_tune_child_begin(
        struct kiln_tune_child *child, struct kiln_err *err);
// Starts the worker where none runs, and waits until it has opened the device. *fresh: it has
// opened it now and knows no problem. An answer of {"error"} to the start is that status and text.
KILN_MUST_CHECK enum kiln_status kiln_tune_child_ready(
        struct kiln_tune_child *child, int *fresh, struct kiln_err *err);
// Sends `request` (borrowed) to a running worker and waits at most `seconds`. *reply is the
// caller's with END_REPLY, else NULL, the worker is gone and `cause` says how. INTERRUPTED: stop
// said so. An answer of {"error"} is that status and text.
KILN_MUST_CHECK enum kiln_status kiln_tune_child_ask(struct kiln_tune_child *child,
        const struct json_t *request, double seconds, struct json_t **reply,
        enum kiln_tune_end *end, char cause[512], struct kiln_err *err);
// How many workers were started.
int64_t kiln_tune_child_starts(const struct kiln_tune_child *child);

#endif
