// survey_impl: what the files of the survey share. survey.c binds and plans, survey_formats.c says
// in which format each edge is.
#ifndef KILN_ENGINE_SURVEY_IMPL_H
#define KILN_ENGINE_SURVEY_IMPL_H

#include "engine/schedule_impl.h"
#include "engine/survey.h"

// What one look at the pass needs: schedule and runtime as a run would have them, with no memory
// behind.
struct kiln_survey_view {
    const struct kiln_survey_params *params;
    struct kiln_survey *survey;
    struct kiln_dev dev;
    struct kiln_runtime runtime;
    struct kiln_schedule schedule;
    const struct kiln_binding **bindings; // by node, the best one; NULL: none
    size_t *owners;                       // by node: the one whose binding fills it
    const char **quantized; // by edge: the format that a quantize op for all readers has made
    int all;                // every variant is asked for: none is bound
    size_t filled;          // nodes that the last choice fills
};

// The bound variant at a place of the pass.
struct kiln_survey_choice {
    size_t node;
    const char *slot;
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    struct kiln_geometry geometry;
    const char *source;
    uint32_t n_nodes; // that the variant fills from there on
    int quantizes;    // and quantizes what the last one writes
};

// How many nodes the variant fills from choice->node on; 0: it does not fit. *quantizes: and
// quantizes the last.
uint32_t kiln_survey_fills(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, int *quantizes);

// Whether one of the choice's ops writes the edge.
int kiln_survey_writes(const struct kiln_survey_view *view, const struct kiln_survey_choice *choice,
        kiln_edge edge);
// And its ops alone read it, so that it need not be stored.
int kiln_survey_keeps_inside(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, kiln_edge edge);

// The format that all readers behind the choice would take of those given, or NULL.
const char *kiln_survey_agreed(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, kiln_edge edge, struct kiln_formats given);
// The format in which the choice writes an edge.
const char *kiln_survey_written(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, kiln_edge edge);
// The format in which the choice's op `op` reads an edge that others write. *from: the one that it
// is written in; where the two differ, a quantize op stands between.
const char *kiln_survey_read(const struct kiln_survey_view *view,
        const struct kiln_survey_choice *choice, uint32_t op,
        const struct kiln_node_operand *operand, const char **from);

#endif
