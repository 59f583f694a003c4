// survey: every op of a forward pass with the variant that is bound to it on some device, and its
// plan. Nothing is compiled or run, and the device need not be there.
//
// What `kiln jit` compiles and `kiln audit` judges. Ops that are alike and bound alike are one row.
// A variant that declines is a row with its reason, and the next best binding follows it, as in a
// run (core/engine/lower.c). So are the quantize ops that a run would put where formats of an edge
// do not meet: one a reader or one an edge, as [quantize] says. Where a run begins again when a
// variant declines, the survey goes on taking its best binding for what it reads and writes.
#ifndef KILN_ENGINE_SURVEY_H
#define KILN_ENGINE_SURVEY_H

#include "base/status.h"
#include "config/config.h"
#include "model/graph.h"
#include "plugin/arena.h"
#include "plugin/plan.h"
#include "plugin/registry.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_survey_row {
    char slot[64];
    const char *role;                   // of its first op
    const struct kiln_plugin *plugin;   // NULL: nothing is bound
    const struct kiln_variant *variant; // likewise
    struct kiln_geometry geometry;      // its arrays live as long as the config, or the survey
    const char *source;                 // replacement of the variant's source, or NULL
    const struct kiln_problem *problem; // NULL: nothing is bound
    struct kiln_planned *planned;       // NULL: unsupported
    char *unsupported;                  // the reason
    int exceeds;                        // the reason is a limit of the device: a run ends there
    uint32_t ops;                       // how many ops of the pass are like this one
    uint64_t alike;                     // hash of what makes two rows the same
    int hidden;                         // while surveying: its slot was not asked for
};

struct kiln_survey {
    struct kiln_survey_row *rows; // in the order of the pass, prefill before decode
    size_t count, cap;
    struct kiln_arena arena;
};

struct kiln_survey_params {
    struct kiln_registry *registry;
    struct kiln_config *config;
    const struct kiln_device *device;
    const struct kiln_graph *graph;
    int64_t rows;             // tokens of a prefill
    int64_t ctx;              // rows of the KV cache
    uint32_t kv_dtype;        // enum kiln_dtype
    const char *const *slots; // patterns ("matmul.*.prefill"); n_slots 0: all
    size_t n_slots;
};

// Adds rows for what the config binds. Errors: a plan that is not well formed (FILE), NOMEM.
// *survey starts zeroed and the caller ends it with kiln_survey_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_survey_bound(
        struct kiln_survey *survey, const struct kiln_survey_params *params, struct kiln_err *err);
// Adds rows for every variant of every plugin that runs on the device and fills a slot of the
// graph, with default geometry, whatever the config says.
KILN_MUST_CHECK enum kiln_status kiln_survey_all(
        struct kiln_survey *survey, const struct kiln_survey_params *params, struct kiln_err *err);
void kiln_survey_finish(struct kiln_survey *survey);

#endif
