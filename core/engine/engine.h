// engine: a model on a device: its caches, its schedules, and the one call that feeds it tokens.
//
// Prefill runs in chunks of `ubatch` tokens, decode one token at a time. Results do not depend on
// how a prompt is cut into calls beyond the float sums that a variant regroups; with the `exact`
// variants they do not depend on it at all. One engine is used from one thread at a time.
#ifndef KILN_ENGINE_ENGINE_H
#define KILN_ENGINE_ENGINE_H

#include "base/status.h"
#include "config/config.h"
#include "device/device.h"
#include "model/model.h"
#include "plugin/registry.h"

#include <stdint.h>

struct kiln_engine;
struct kiln_trace; // engine/schedule.h

// Device memory, in bytes, by what it is for.
struct kiln_engine_memory {
    uint64_t weights;   // the device's copy of the model file; 0 where it reads the file's mapping
    uint64_t expansion; // prepared weights, beside those
    uint64_t kv;
    uint64_t work; // activations, workspaces, tables, values
};

struct kiln_engine_params {
    const struct kiln_model *model; // all of these outlive the engine
    struct kiln_registry *registry;
    struct kiln_config *config; // checked
    struct kiln_dev *dev;
    int (*stop)(void); // asked between steps: non-zero ends with INTERRUPTED; or NULL
    void (*progress)(void *arg, int64_t done, int64_t total); // tokens of a prefill; or NULL
    void *progress_arg;
};

// Plans the prefill and decode at once, so that what cannot run is said before anything runs.
KILN_MUST_CHECK enum kiln_status kiln_engine_create(
        struct kiln_engine **engine, const struct kiln_engine_params *params, struct kiln_err *err);
void kiln_engine_destroy(struct kiln_engine *engine); // NULL is fine

int64_t kiln_engine_ctx(const struct kiln_engine *engine); // tokens the caches hold
int64_t kiln_engine_ubatch(const struct kiln_engine *engine);
int64_t kiln_engine_n_past(const struct kiln_engine *engine); // tokens in them
// Whether decode steps are recorded once and replayed ([engine] graph, and the device can).
int kiln_engine_graph(const struct kiln_engine *engine);
// Bytes of device memory beside the weights: caches, activations, prepared weights.
uint64_t kiln_engine_bytes(const struct kiln_engine *engine);
void kiln_engine_memory(const struct kiln_engine *engine, struct kiln_engine_memory *memory);

// Who watches the steps of evaluations from now on; NULL: nobody. *trace outlives its use.
void kiln_engine_trace(struct kiln_engine *engine, const struct kiln_trace *trace);

// Forgets all tokens behind the first n_past.
void kiln_engine_truncate(struct kiln_engine *engine, int64_t n_past);

// Feeds ids behind what is there. logits: (V) of the last token, or NULL when they are not wanted.
// More tokens than the context holds, or an id that is no token, is KILN_STATUS_USAGE and changes
// nothing.
KILN_MUST_CHECK enum kiln_status kiln_engine_eval(struct kiln_engine *engine, const int32_t *ids,
        int64_t n, float *logits, struct kiln_err *err);

// Whether kiln_engine_pick can be called: the device picks tokens itself.
int kiln_engine_picks(const struct kiln_engine *engine);
// Feeds one id as kiln_engine_eval does and gives, in place of the logits, the lowest id of the
// largest of them; -1: that one is not finite. more: *pick will most likely be fed next, so the
// device goes on with it at once. When something else is asked of the engine instead, what ran
// ahead is as if it had never run.
KILN_MUST_CHECK enum kiln_status kiln_engine_pick(
        struct kiln_engine *engine, int32_t id, int more, int32_t *pick, struct kiln_err *err);

// As kiln_engine_eval, with the logits of every token from `first` on (index into ids), handed out
// in slices in order: rows [at, at + n) as (n, V), valid during the call. A status other than OK
// from `take` ends the evaluation.
typedef enum kiln_status (*kiln_logits_fn)(
        void *arg, int64_t at, int64_t n, const float *logits, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_engine_eval_all(struct kiln_engine *engine,
        const int32_t *ids, int64_t n, int64_t first, kiln_logits_fn take, void *arg,
        struct kiln_err *err);

// What runs, one line a step, for prefill chunks of `rows` tokens or (1) decode.
KILN_MUST_CHECK enum kiln_status kiln_engine_describe(
        struct kiln_engine *engine, int64_t rows, struct kiln_buf *text, struct kiln_err *err);

// What numbers depend on: the KV cache's type and in which order floats are summed, a line a step:
// see kiln_schedule_sums.
KILN_MUST_CHECK enum kiln_status kiln_engine_sums(
        struct kiln_engine *engine, int64_t rows, struct kiln_buf *text, struct kiln_err *err);

#endif
