// major: claims plugin ABI 2.0. Its constructor, which dlopen runs, leaves a mark; so would any
// call.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // setenv
#endif
#include <stdlib.h>

#define SIMPLE_NAME  "major"
#define SIMPLE_MAJOR 2
#define SIMPLE_MINOR 0
#define SIMPLE_START major_start
#include "kiln/plugin.h"

static int32_t major_start(
        const struct kiln_host *host, const struct kiln_device *device, void **instance) {
    (void)host;
    (void)device;
    (void)instance;
    (void)setenv("KILN_TEST_MAJOR_CALLED", "start", 1);
    return KILN_RESULT_OK;
}

#include "simple.inc"

__attribute__((constructor)) static void construct(void) {
    (void)setenv("KILN_TEST_MAJOR_CONSTRUCTED", "1", 1);
}

static int32_t simple_plan(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)problem;
    (void)geometry;
    (void)device;
    (void)setenv("KILN_TEST_MAJOR_CALLED", "plan", 1);
    return simple_launch(plan, 1);
}
