// tune_result: names of states, and the middle of samples.
#include "lab/tune_result.h"

#include "lab/stats.h"

#include <string.h>

static const char *const names[KILN_TUNE_STATES] = {
        [KILN_TUNE_RUNNING] = "running",
        [KILN_TUNE_OK] = "ok",
        [KILN_TUNE_DECLINED] = "declined",
        [KILN_TUNE_LIMITS] = "limits",
        [KILN_TUNE_COMPILE] = "compile",
        [KILN_TUNE_PARITY] = "parity",
        [KILN_TUNE_FAULT] = "fault",
        [KILN_TUNE_TIMEOUT] = "timeout",
        [KILN_TUNE_MEMORY] = "memory",
};

const char *kiln_tune_state_name(enum kiln_tune_state state) {
    return state < KILN_TUNE_STATES ? names[state] : "?";
}

enum kiln_tune_state kiln_tune_state_of(const char *name) {
    int state = 0;
    while (state < KILN_TUNE_STATES && strcmp(names[state], name) != 0) {
        state++;
    }
    return (enum kiln_tune_state)state;
}

void kiln_tune_times_finish(struct kiln_tune_times *times) {
    double sorted[KILN_TUNE_SAMPLES];
    size_t n = (size_t)times->n;
    memcpy(sorted, times->seconds, sizeof(sorted));
    times->median = kiln_median(sorted, n); // sorts
    times->low = n > 0 ? sorted[n / 4] : 0;
    times->high = n > 0 ? sorted[n - 1 - n / 4] : 0;
}
