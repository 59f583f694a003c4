// work: what a planned call has to do, for percent of a ceiling. A plan is made for a full cache,
// since where its rows will be is not known then; a call that runs sees the keys that are there.
#ifndef KILN_LAB_WORK_H
#define KILN_LAB_WORK_H

#include "plugin/plan.h"

#include <stdint.h>

struct kiln_work {
    double flops, bytes; // bytes: read and written
};

// The work of a call with `keys` in the cache, its own rows among them; below 0: those planned for.
struct kiln_work kiln_work_of(
        const struct kiln_planned *planned, const struct kiln_problem *problem, int64_t keys);

#endif
