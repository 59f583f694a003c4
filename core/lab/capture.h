// capture: one call of a real run, kept in a folder: what went in, the weights it used, what came
// out. `run --capture` writes it, `op --from` runs it again, on any device.
//
// The folder holds capture.json, which describes the problem as a plugin sees it, and the bytes of
// each operand as they lay in memory: op0_in.bin before the call, op0_out.after.bin behind it.
// Operands that nobody but the call reads are described and have no bytes.
#ifndef KILN_LAB_CAPTURE_H
#define KILN_LAB_CAPTURE_H

#include "base/status.h"
#include "engine/schedule.h"
#include "engine/solo.h"
#include "kiln/plugin.h"
#include "plugin/arena.h"

#include <stdint.h>

enum {
    KILN_CAPTURE_OPS = 8
};

// ---- Writing ------------------------------------------------------------------------------------

struct kiln_capture;

// "SLOT", "SLOT@LAYER" or "SLOT@LAYER:ROLE": the first call of a run that fits. "*" stands for any
// weight type. `dir` must not exist or be empty: anything else is KILN_STATUS_FILE, said before
// anything runs. The caller ends *capture with kiln_capture_destroy.
KILN_MUST_CHECK enum kiln_status kiln_capture_create(
        struct kiln_capture **capture, const char *what, const char *dir, struct kiln_err *err);
// What the engine's trace is to be while the run goes on. Needs the device that it runs on.
const struct kiln_trace *kiln_capture_trace(struct kiln_capture *capture, struct kiln_dev *dev);
// After the run: *bytes written, or KILN_STATUS_USAGE when no call fitted, with those that there
// were.
KILN_MUST_CHECK enum kiln_status kiln_capture_end(
        struct kiln_capture *capture, uint64_t *bytes, struct kiln_err *err);
void kiln_capture_destroy(struct kiln_capture *capture); // NULL is fine

// ---- Reading ------------------------------------------------------------------------------------

struct kiln_captured {
    struct kiln_problem problem;
    // As struct kiln_solo_params wants them.
    const void *data[KILN_CAPTURE_OPS * KILN_SOLO_OPERANDS];
    uint32_t edges[KILN_CAPTURE_OPS * KILN_SOLO_OPERANDS];
    const void *after[KILN_CAPTURE_OPS * KILN_SOLO_OPERANDS]; // outputs as captured, else NULL
    const char *device, *plugin, *variant;                    // that it was captured from
    struct kiln_arena arena;                                  // holds all of the above
};

// Files that are missing, of another length than the tensor spans, or a description that makes no
// sense are KILN_STATUS_FILE. The caller ends *captured with kiln_captured_finish, also after a
// failure.
KILN_MUST_CHECK enum kiln_status kiln_captured_read(
        struct kiln_captured *captured, const char *dir, struct kiln_err *err);
// Edges and caches of f16 or bf16 as f32, for variants that take nothing else; *changed: whether
// there were any. A failure leaves *captured good for nothing but its end.
KILN_MUST_CHECK enum kiln_status kiln_captured_widen(
        struct kiln_captured *captured, int *changed, struct kiln_err *err);
void kiln_captured_finish(struct kiln_captured *captured);

#endif
