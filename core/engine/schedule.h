// schedule: a part of a graph made ready to run for so many rows: each op bound to a variant and
// planned, edges given formats and memory, kernels loaded, addresses filled in.
//
// Made once for a number of rows (a bound) and run many times: what changes from call to call lives
// in device memory (ids, positions, counts). How an op gets its kernel:
//   1. its slot is bound (core/config), a variant that fills several adjacent ops takes them
//      together;
//   2. every edge gets the format that its consumers read and its producer writes; where they do
//      not meet, a quantize op is put between, one for each consumer (`separate`) or one an edge
//      (`shared`);
//   3. the variant plans; if it declines, the next best binding is tried and the reason is logged.
#ifndef KILN_ENGINE_SCHEDULE_H
#define KILN_ENGINE_SCHEDULE_H

#include "base/status.h"
#include "config/config.h"
#include "device/device.h"
#include "engine/prepare.h"
#include "model/graph.h"
#include "plugin/plan.h"
#include "plugin/registry.h"

#include <stdint.h>

// The values that live on the device. Single ones lie KILN_VALUE_STRIDE bytes apart in this order,
// so that one copy brings all that changes from one step of decode to the next.
enum kiln_value_id {
    KILN_VALUE_IDS,       // (rows)
    KILN_VALUE_POSITIONS, // (rows)
    KILN_VALUE_SINGLE,
    KILN_VALUE_N_TOKENS = KILN_VALUE_SINGLE, // rows of the body in use
    KILN_VALUE_N_PAST,
    KILN_VALUE_KV_LEN,
    KILN_VALUE_HEAD_ROWS, // rows of the head in use
    KILN_VALUE_ONE_ID,    // ids and positions of schedules of one row
    KILN_VALUE_ONE_POSITION,
    KILN_VALUE_COUNT,
};
enum {
    KILN_VALUE_STRIDE = 64
};

// Someone who watches the steps of a run go by: `step` (optional) is called when a step is about to
// be queued, and with NULL when the last one of a schedule was. Nothing is recorded and replayed
// meanwhile. A status other than OK ends the run.
struct kiln_trace_step {
    const char *slot, *plugin, *variant;
    const char *source; // CUDA file that the config names in place of the plugin's, or NULL
    const struct kiln_geometry *geometry;
    const struct kiln_planned *planned;
    int32_t layer;  // -1: outside the layers
    int head;       // of the head, whose rows are those with logits wanted
    int64_t kv_len; // keys in the cache when this pass is over
    // What was planned, and where its operands lie on the device: by op * KILN_PREPARE_OPERANDS +
    // enum kiln_operand, NULL: absent. Valid during the call.
    const struct kiln_problem *problem;
    void *const *operands;
};
// An edge that a step wrote: (rows in use, cols) in `format`, on the device until the next step is
// queued.
struct kiln_trace_edge {
    kiln_edge edge;
    const char *role;   // of the op that wrote it: "attn_q"
    const char *format; // "f32" …, or a block format
    const uint8_t *address;
    int64_t cols, row_bytes;
};
struct kiln_trace {
    enum kiln_status (*step)(void *arg, const struct kiln_trace_step *step, struct kiln_err *err);
    // Optional: each edge that a step wrote, once the step is queued; edges inside of a fused step
    // that nobody else reads are not among them.
    enum kiln_status (*wrote)(void *arg, const struct kiln_trace_step *step,
            const struct kiln_trace_edge *edge, struct kiln_err *err);
    void *arg;
};

// What schedules of one engine share. Owned by the engine.
struct kiln_runtime {
    struct kiln_dev *dev;
    struct kiln_registry *registry;
    struct kiln_config *config;
    const struct kiln_graph *graph;
    struct kiln_prepared_set *prepared; // shared with the engine that this one follows, if any
    uint64_t generation;                // of the engine, for what it prepares
    struct kiln_source_note *sources;   // CUDA files that the config names, as they were read
    size_t n_sources, cap_sources;
    int64_t ctx;                    // rows of the caches
    uint32_t kv_dtype;              // enum kiln_dtype
    void **kv;                      // (2 * L): K and V of each layer
    void *rope[2];                  // f32 tables on the device
    void *values[KILN_VALUE_COUNT]; // i32
    int64_t kv_len;                 // what KILN_VALUE_KV_LEN holds
    int no_graph;                   // queue every launch, record none
    const struct kiln_trace *trace; // or NULL
    uint64_t said[64];              // hashes of the messages that were logged once
};

// A CUDA source that a binding names, and what was in it and in the files it includes.
struct kiln_source_note {
    char *path;
    uint64_t digest;
};
// Notes all sources that rt->config names. A source that cannot be read is KILN_STATUS_CONFIG.
KILN_MUST_CHECK enum kiln_status kiln_runtime_read_sources(
        struct kiln_runtime *rt, struct kiln_err *err);
void kiln_runtime_drop_sources(struct kiln_runtime *rt);
// 0: not one of them.
uint64_t kiln_runtime_source_digest(const struct kiln_runtime *rt, const char *path);

enum kiln_part {
    KILN_PART_BODY,
    KILN_PART_HEAD,
    KILN_PART_PICK // the head and the pick behind it
};

struct kiln_schedule;

// rows: the bound, what memory and grids are made for. m: the rows that `when` conditions see (<=
// rows). Errors: no variant fills a slot (CONFIG), every variant declined (CONFIG, with the
// reasons), a plan failed (FILE), memory (NOMEM), compile (DEVICE). The caller ends *schedule with
// kiln_schedule_destroy.
KILN_MUST_CHECK enum kiln_status kiln_schedule_create(struct kiln_schedule **schedule,
        struct kiln_runtime *runtime, enum kiln_part part, enum kiln_phase phase, int64_t rows,
        int64_t m, struct kiln_err *err);
void kiln_schedule_destroy(struct kiln_schedule *schedule); // NULL is fine

// Whether the schedule would be the same for m rows: the bound holds and every op binds alike.
KILN_MUST_CHECK enum kiln_status kiln_schedule_fits(struct kiln_schedule *schedule,
        enum kiln_phase phase, int64_t m, int *fits, struct kiln_err *err);

int64_t kiln_schedule_rows(const struct kiln_schedule *schedule);
int64_t kiln_schedule_seen(const struct kiln_schedule *schedule);   // the m that it was made for
uint64_t kiln_schedule_bytes(const struct kiln_schedule *schedule); // of device memory
void *kiln_schedule_in(
        const struct kiln_schedule *schedule); // HEAD, PICK: (rows, D) f32, to be filled in
void *kiln_schedule_out(
        const struct kiln_schedule *schedule); // BODY: (rows, D) f32; HEAD, PICK: (rows, V) f32

// Queues every step. `stop` (may be NULL) is asked between steps and ends the run with INTERRUPTED.
KILN_MUST_CHECK enum kiln_status kiln_schedule_run(
        struct kiln_schedule *schedule, int (*stop)(void), struct kiln_err *err);

// The same for a step of decode: `body`, then `head` on the row that it wrote. Both are of one row.
// Where steps are recorded, the two are one recording.
KILN_MUST_CHECK enum kiln_status kiln_schedule_run_step(struct kiln_schedule *body,
        struct kiln_schedule *head, int (*stop)(void), struct kiln_err *err);
// The same with a head that picks: the id embedded is that in ids[turn], not KILN_VALUE_ONE_ID, and
// the one picked comes to ids[!turn]. Recorded for each turn; ids are the same at each call.
KILN_MUST_CHECK enum kiln_status kiln_schedule_run_pick(struct kiln_schedule *body,
        struct kiln_schedule *head, int32_t *const ids[2], int turn, int (*stop)(void),
        struct kiln_err *err);

// One line a step: slot, plugin, variant, geometry, launches. For -v and tests.
void kiln_schedule_print(const struct kiln_schedule *schedule, struct kiln_buf *text);

// In which order each step sums floats, a line a step: slot and the plan's names of its orders;
// where a launch names none, variant and geometry stand for it. Two schedules with the same lines
// give the same bits.
void kiln_schedule_sums(const struct kiln_schedule *schedule, struct kiln_buf *text);

#endif
