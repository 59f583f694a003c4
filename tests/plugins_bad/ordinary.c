// ordinary: a small plugin that differs from a good one by what the build defines: its name, its
// size, whether it has the entry symbol, what else it exports or refers to.
#ifndef SIMPLE_NAME
#    define SIMPLE_NAME "ordinary"
#endif
#ifdef ORDINARY_NO_ENTRY
#    define kiln_plugin_entry some_other_symbol
#endif
#include "simple.inc"

#ifdef ORDINARY_UNDEFINED
// No library defines it; only the decode path calls it, which lazy binding would find out much
// later.
void kiln_no_such_fn(void);
#endif
#ifdef ORDINARY_NEEDS
int kiln_nodep_answer(
        void); // of a library that is there when this is linked, and not when it is loaded
#endif
#ifdef ORDINARY_EXTRA
KILN_EXPORT extern const int ordinary_extra_symbol;
KILN_EXPORT const int ordinary_extra_symbol = 1;
#endif

static int32_t simple_plan(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)geometry;
    (void)device;
    if (problem->phase == KILN_PHASE_DECODE) {
#ifdef ORDINARY_UNDEFINED
        kiln_no_such_fn();
#endif
#ifdef ORDINARY_NEEDS
        return simple_launch(plan, (uint32_t)kiln_nodep_answer());
#endif
    }
    return simple_launch(plan, 1);
}
