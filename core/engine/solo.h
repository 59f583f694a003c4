// solo: one call of one variant by itself: a problem, operands from host memory, weights prepared,
// kernels loaded, run as often as wanted, outputs read back. On every kind of device.
//
// What `op`, `gate parity`, `tune` and `plugins verify` run kernels with. The engine's schedule
// (schedule.h) is the same for a whole graph.
#ifndef KILN_ENGINE_SOLO_H
#define KILN_ENGINE_SOLO_H

#include "base/status.h"
#include "device/device.h"
#include "kiln/plugin.h"
#include "plugin/plan.h"

#include <stdint.h>

enum {
    KILN_SOLO_OPERANDS = 32 // operands an op: index op * KILN_SOLO_OPERANDS + enum kiln_operand
};

struct kiln_solo;

// Bytes that a tensor spans from its first: all rows with their strides, padded ones included.
uint64_t kiln_solo_span(const struct kiln_tensor *tensor);

struct kiln_solo_params {
    struct kiln_dev *dev; // outlives the solo, as do all below
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    void *instance; // of the plugin on this device: kiln_registry_start
    const struct kiln_geometry *geometry;
    const char *source; // a CUDA file in place of the variant's, or NULL
    const struct kiln_problem *problem;
    // n_ops * KILN_SOLO_OPERANDS addresses in host memory, each as long as the tensor spans, read
    // during create only; NULL: the operand is absent or written only, and starts as bytes of 0xff
    // (NaN). A guard of such bytes lies behind every operand and workspace but on sim, which finds
    // what is accessed there itself.
    const void *const *data;
    // n_ops * KILN_SOLO_OPERANDS or NULL: operands with the same number > 0 are one edge (the
    // output of one op, an input of a later one; OUT in place of RESIDUAL).
    const uint32_t *edges;
};

// *outcome DECLINED: err->text holds the reason, status OK, *solo NULL (as kiln_plan_make). Fails
// as kiln_plan_make does, and with what the device says of memory, compiles and preparations.
KILN_MUST_CHECK enum kiln_status kiln_solo_create(struct kiln_solo **solo,
        const struct kiln_solo_params *params, enum kiln_plan_outcome *outcome,
        struct kiln_err *err);
void kiln_solo_destroy(struct kiln_solo *solo); // NULL is fine

const struct kiln_planned *kiln_solo_planned(const struct kiln_solo *solo);
uint64_t kiln_solo_prepared_bytes(const struct kiln_solo *solo);

// Replaces an operand's bytes (values that live on the device, caches …).
KILN_MUST_CHECK enum kiln_status kiln_solo_write(struct kiln_solo *solo, uint32_t op,
        uint32_t operand, const void *data, struct kiln_err *err);
// Queues one call; sync waits and reports what failed.
KILN_MUST_CHECK enum kiln_status kiln_solo_run(struct kiln_solo *solo, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_solo_sync(struct kiln_solo *solo, struct kiln_err *err);
// Reads an operand back: as many bytes as its tensor spans. A guard that was written to, behind
// this or any other operand or workspace, is KILN_STATUS_CHECK and names it and the byte.
KILN_MUST_CHECK enum kiln_status kiln_solo_read(
        struct kiln_solo *solo, uint32_t op, uint32_t operand, void *data, struct kiln_err *err);

// How a call is timed. cold: L2 is filled with other bytes before each (2 x its size; 64 MiB where
// the device does not say). What filled it is written back while the call runs, as behind another
// step of a run: a profiler that empties L2 instead shows a short call faster.
struct kiln_solo_timing {
    int64_t runs;    // samples
    int64_t repeats; // calls a sample, 0: as many as fill 50 us; cold: always 1
    int cold;
    int (*stop)(void); // asked before each sample; nonzero is INTERRUPTED; NULL is fine
};
// seconds[runs]: a call each, by the device's own clock (marks) where it has one, else the host's
// round a sync, without a cold cache. Calls that count are queued while others run, and several
// come from a recording where the device keeps one: so neither the host's pace nor the way to the
// device is in the figure. A wall time below the device's time is KILN_STATUS_CHECK.
// An OUT in place of RESIDUAL grows from call to call: write it again before reading what one call
// gives.
KILN_MUST_CHECK enum kiln_status kiln_solo_time(struct kiln_solo *solo,
        const struct kiln_solo_timing *timing, double *seconds, struct kiln_err *err);

#endif
