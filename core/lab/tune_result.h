// tune_result: what came of one candidate of a sweep: a status, its cause, times with their spread.
#ifndef KILN_LAB_TUNE_RESULT_H
#define KILN_LAB_TUNE_RESULT_H

#include <stddef.h>
#include <stdint.h>

enum kiln_tune_state {
    KILN_TUNE_RUNNING,  // claimed by a process that has not finished with it
    KILN_TUNE_OK,       // right and measured
    KILN_TUNE_DECLINED, // the variant does not take the problem with this geometry
    KILN_TUNE_LIMITS,   // exceeds the device: shared memory, registers, threads, grid
    KILN_TUNE_COMPILE,  // does not compile, or its plan is not well formed
    KILN_TUNE_PARITY,   // runs and is wrong; its time does not count
    KILN_TUNE_FAULT,    // ends the process or the device's context
    KILN_TUNE_TIMEOUT,  // does not come back
    KILN_TUNE_MEMORY,   // wants more memory than there is, or than it may have
    KILN_TUNE_STATES
};

// "running", "ok", "declined" …
const char *kiln_tune_state_name(enum kiln_tune_state state);
// KILN_TUNE_STATES when it is none.
enum kiln_tune_state kiln_tune_state_of(const char *name);

enum {
    KILN_TUNE_SAMPLES = 32,
    KILN_TUNE_CAUSE = 512
};

// Samples of one call's time, seconds. n 0: not measured.
struct kiln_tune_times {
    int32_t n;
    double seconds[KILN_TUNE_SAMPLES]; // as they came
    double median, low, high;          // low, high: the quartiles
};
// Fills in median, low and high.
void kiln_tune_times_finish(struct kiln_tune_times *times);

struct kiln_tune_result {
    enum kiln_tune_state state;
    char cause[KILN_TUNE_CAUSE];       // of a state other than OK; else ""
    struct kiln_tune_times warm, cold; // L2 as the call before left it; filled with other bytes
    double parity;                     // largest error over its bound; at most 1 when OK
    double compile_ms;                 // that its kernels took to compile, by whoever did; 0: none
    double cost;                       // seconds that the whole candidate took in the worker
    int64_t at;                        // seconds since the epoch
    char device_note[96];              // clocks and power beside the measurement, "" unknown
};

#endif
