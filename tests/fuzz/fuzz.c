// fuzz: the checks of the targets.
#include "fuzz.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void fuzz_fail(const char *file, int line, const char *text) {
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, text);
    abort();
}

void fuzz_watch_memory(void) {
    kiln_mem_watch(1);
}

void fuzz_check_memory(size_t size) {
    uint64_t peak = kiln_mem_peak(), bound = 16 * (uint64_t)size + ((uint64_t)64 << 20);
    kiln_mem_watch(0);
    if (peak > bound) {
        fprintf(stderr, "%" PRIu64 " bytes allocated for %zu bytes of input\n", peak, size);
    }
    FUZZ_CHECK(peak <= bound);
}
