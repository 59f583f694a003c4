// behaves: plugins that are accepted and whose plan() then misbehaves, or answers in an unusual
// way. The build defines one BEHAVES_… .
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "simple.inc"

static int32_t simple_plan(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)problem;
    (void)geometry;
    (void)device;
#if defined(BEHAVES_FAILS)
    return plan->fail(plan, "the tables are inconsistent");
#elif defined(BEHAVES_DECLINES)
    return plan->decline(plan, "rows are too short");
#elif defined(BEHAVES_IMPURE)
    static uint32_t calls;
    return simple_launch(plan, ++calls);
#elif defined(BEHAVES_CRASHES)
    (void)raise(SIGSEGV);
    return simple_launch(plan, 1);
#elif defined(BEHAVES_NEVER)
    static volatile int forever = 1; // volatile: the compiler must not know
    while (forever) {
        (void)pause();
    }
    return simple_launch(plan, 1);
#elif defined(BEHAVES_EXITS)
    _exit(simple_launch(plan, 1) == KILN_RESULT_OK ? 7 : 8);
#else
#    error "define one BEHAVES_"
#endif
}
