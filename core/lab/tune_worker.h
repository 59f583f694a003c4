// tune_worker: the process that a sweep measures in. A candidate that kills it, hangs it or eats
// its memory costs that candidate; the sweep (tune_child.h) starts another.
//
// Requests come as JSON objects, a line each; so do answers. Before a step that may not come back,
// {"now": "parity"} goes out, so that the other side can say where it was. Requests:
//   {"do": "problem", "slot": S, "shape": TEXT}    -> {"ok": true}
//   {"do": "prepare", CANDIDATE}                   -> {"ok": true}: the problem's numbers are made
//   {"do": "measure", CANDIDATE, "samples": N, "cold_samples": N, "seconds": T}
//       -> {"state": NAME, "cause": TEXT, "parity": X, "warm": [..], "cold": [..], "note": TEXT}
//   {"do": "final", "candidates": [{CANDIDATE} ..], "rounds": N} -> {"rounds": [[..] ..]}: seconds
//       of every candidate and, last, of the first one again, in orders that rotate
// CANDIDATE: "plugin", "variant", "values": [..], "source": TEXT or null. A request that fails as a
// whole is answered {"error": TEXT, "status": NUMBER}. "last": true in an answer: the device is of
// no more use, and the process ends.
#ifndef KILN_LAB_TUNE_WORKER_H
#define KILN_LAB_TUNE_WORKER_H

#include "base/status.h"
#include "device/device.h"
#include "plugin/registry.h"

struct kiln_tune_worker_params {
    const char *device; // as kiln_dev_open takes it
    const struct kiln_dev_settings *settings;
    struct kiln_registry *registry;
    int in, out; // file descriptors
};

// Opens the device, answers {"ok": true}, then one request after the other until the other side
// closes. Called in a process of its own.
KILN_MUST_CHECK enum kiln_status kiln_tune_worker_run(
        const struct kiln_tune_worker_params *params, struct kiln_err *err);

#endif
