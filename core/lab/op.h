// op: one slot's kernel alone, as the configuration binds it: whether its numbers are right, how
// long it takes with a warm and with a cold L2, and how far that is from what the device could do.
//
// Operands come from a shape (op_case.h) or from a call of a real run (capture.h). Times are the
// device's (solo.h). Grades: "measured"; on sim "simulated", where a time says nothing of a device
// and is not given.
#ifndef KILN_LAB_OP_H
#define KILN_LAB_OP_H

#include "base/buf.h"
#include "config/config.h"
#include "lab/capture.h"
#include "lab/op_case.h"
#include "lab/roofline.h"
#include "plugin/registry.h"

struct json_t;

struct kiln_op_setup {
    int (*stop)(void);    // asked while times are taken; nonzero is INTERRUPTED; NULL is fine
    struct kiln_dev *dev; // all of these outlive the results
    struct kiln_registry *registry;
    struct kiln_config *config;
    const char *role;              // what `when` conditions see; "": none
    int32_t layer;                 // likewise; -1: none
    int64_t runs;                  // samples of each kind of time; 0: no times
    int once;                      // one call and nothing else, for a profiler
    uint64_t seed;                 // of made operands
    double peak;                   // operations a second, in place of the ceilings' own; 0: theirs
    struct kiln_ceilings ceilings; // of the device
};

struct kiln_op_times { // seconds a call
    double median, low, high;
};

// What came out against what came out in the run that was captured: elements of all outputs, rows
// in use.
struct kiln_op_replayed {
    int64_t elements, differ; // differ: not the same bits
    double largest;           // difference
    double normalized;        // that over the largest captured magnitude
    int64_t not_finite;       // here, where the captured one is finite
};

struct kiln_op_result {
    char slot[64], shape[192]; // shape: for people
    const struct kiln_binding *binding;
    char *passed_over; // why better bindings were, one line each; NULL: there were none
    char *launches;    // "fap2 <52,28,1> x 128, 34816 bytes shared", one line each
    int judged, replayed;
    struct kiln_op_verdict verdict;
    struct kiln_op_replayed against;
    int timed;
    struct kiln_op_times warm, cold; // cold: all 0 on a device that has no clock of its own
    double flops, bytes;             // useful work, as the plan declares it; 0: it does not
    double peak;           // operations a second, the ceiling of its arithmetic; 0: not known
    const char *peak_name; // "f16", "int8" …; "given"
    uint64_t prepared_bytes;
    uint64_t instructions; // of warps, on sim
};

// KILN_STATUS_CONFIG when no binding takes the call, with the reasons. Numbers that are wrong are
// no error of the call: see kiln_op_passed. The caller ends *result with kiln_op_result_finish,
// also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_op_run(const struct kiln_op_setup *setup, const char *slot,
        const struct kiln_shape *shape, struct kiln_op_result *result, struct kiln_err *err);
// Where every variant declines the captured formats, they are widened to f32 in *captured.
KILN_MUST_CHECK enum kiln_status kiln_op_replay(const struct kiln_op_setup *setup,
        struct kiln_captured *captured, struct kiln_op_result *result, struct kiln_err *err);
void kiln_op_result_finish(struct kiln_op_result *result);

// Whether nothing that was looked at is wrong. A replay passes where every output is finite that
// was so in the run, and within a hundredth of the largest magnitude: variants may round
// differently, but not err.
int kiln_op_passed(const struct kiln_op_result *result);

// op_print.c: one result in full, a Markdown table of several, and all as one JSON object (NULL:
// out of memory).
void kiln_op_print(const struct kiln_op_setup *setup, const struct kiln_op_result *result,
        struct kiln_buf *text);
void kiln_op_print_table(const struct kiln_op_setup *setup, const struct kiln_op_result *results,
        size_t count, struct kiln_buf *text);
struct json_t *kiln_op_json(
        const struct kiln_op_setup *setup, const struct kiln_op_result *results, size_t count);

#endif
