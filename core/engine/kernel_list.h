// kernel_list: the kernels of surveys (survey.h), one row a kernel, compiled.
#ifndef KILN_ENGINE_KERNEL_LIST_H
#define KILN_ENGINE_KERNEL_LIST_H

#include "base/status.h"
#include "engine/survey.h"
#include "jit/jit.h"

#include <stddef.h>
#include <stdint.h>

// One kernel on one target, or one variant that cannot run there.
struct kiln_kernel_row {
    const struct kiln_survey_row *op;         // whose it is
    const struct kiln_device *device;         // the target's description
    const struct kiln_planned_launch *launch; // NULL: unsupported, see op->unsupported
    const char *preparation; // id of the weight preparation that it belongs to, or NULL
    size_t item;             // index in the items; KILN_KERNEL_NO_ITEM: a host function
};
#define KILN_KERNEL_NO_ITEM SIZE_MAX

struct kiln_kernel_list {
    struct kiln_kernel_row *rows;
    size_t count, cap;
    struct kiln_jit_item *items; // one a row that is supported
    size_t n_items, cap_items;
};

// Adds the kernels of a survey; both must outlive the list. A host device's are functions, with
// nothing to compile.
KILN_MUST_CHECK enum kiln_status kiln_kernel_list_add(struct kiln_kernel_list *list,
        const struct kiln_survey *survey, const struct kiln_device *device, struct kiln_err *err);
// Compiles all of them (kiln_jit_run). A kernel that fails is in its item; the first failure is
// returned.
KILN_MUST_CHECK enum kiln_status kiln_kernel_list_compile(struct kiln_kernel_list *list,
        struct kiln_jit *jit, int keep_sources, struct kiln_err *err);
// After a compile: drops rows that are the same kernel of the same variant and slot as one before
// them.
void kiln_kernel_list_drop_twins(struct kiln_kernel_list *list);
void kiln_kernel_list_finish(struct kiln_kernel_list *list);

#endif
