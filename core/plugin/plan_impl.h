// plan_impl: what plan.c, plan_advise.c, plan_copy.c and plan_check.c share: a plan under
// construction.
#ifndef KILN_PLUGIN_PLAN_IMPL_H
#define KILN_PLUGIN_PLAN_IMPL_H

#include "base/status.h"
#include "plugin/plan.h"

#include <stddef.h>

// While plan() runs. `refused` is the first thing that kiln refused; what follows cannot mend it.
struct kiln_plan_builder {
    struct kiln_plan callbacks;
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    const struct kiln_problem *problem;
    const struct kiln_geometry *geometry;
    const struct kiln_device *device;
    struct kiln_planned *planned;
    size_t cap_launches, cap_workspaces, cap_preparations; // of planned's arrays
    struct kiln_err refused;                               // status OK: nothing yet
    struct kiln_err said; // what decline() or fail() was given; OK: neither was called
    int declined, failed;
};

// Where a launch stands: in the plan, or in a preparation that is being put together.
struct kiln_plan_place {
    const struct kiln_plan_builder *builder;
    const struct kiln_preparation *preparation; // NULL: in the plan
};

// Calls the variant's plan() once with what *builder says. As kiln_plan_make, but that messages do
// not say whose call it was. (plan.c)
KILN_MUST_CHECK enum kiln_status kiln_plan_attempt(struct kiln_plan_builder *builder,
        void *instance, enum kiln_plan_outcome *outcome, struct kiln_planned **planned,
        struct kiln_err *err);
// Appends to what was said about a plan that exceeds the device which geometry keys to change:
// those with a value that makes it fit while the others stay, with that value. (plan_advise.c)
void kiln_plan_advise(
        const struct kiln_plan_builder *refused, void *instance, struct kiln_err *err);

// Deep copies in the layout of this kiln's header, sizes checked, contents not. (plan_copy.c)
KILN_MUST_CHECK enum kiln_status kiln_plan_copy_launch(struct kiln_plan_builder *builder,
        const struct kiln_launch *source, struct kiln_planned_launch *launch, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_plan_copy_preparation(struct kiln_plan_builder *builder,
        const struct kiln_preparation *source, struct kiln_planned_preparation *preparation,
        struct kiln_err *err);

// Contents of what was copied. (plan_check.c)
KILN_MUST_CHECK enum kiln_status kiln_plan_check_launch(const struct kiln_plan_place *place,
        const struct kiln_planned_launch *launch, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_plan_check_preparation(
        const struct kiln_plan_builder *builder, const struct kiln_planned_preparation *preparation,
        struct kiln_err *err);
// (plan_check_map.c) Where the map points is checked by the caller.
KILN_MUST_CHECK enum kiln_status kiln_plan_check_map(const struct kiln_device *device,
        const struct kiln_tensor_map *map, uint64_t offset, struct kiln_err *err);

#endif
