// ncu: what Nsight Compute measured of kernels, read from its CSV export: `ncu --csv --page
// details` (with --print-details all for the stalls) or `ncu --csv --page raw`.
//
// Both pages are read by the names of their columns and metrics, so that sections that were not
// collected are simply not known.
#ifndef KILN_LAB_NCU_H
#define KILN_LAB_NCU_H

#include "base/status.h"
#include "lab/csv.h"

#include <stdint.h>

enum kiln_ncu_figure {
    KILN_NCU_SM_BUSY,   // percent, while it runs
    KILN_NCU_COMPUTE,   // percent of the compute throughput
    KILN_NCU_MEMORY,    // percent of the memory throughput
    KILN_NCU_DRAM,      // percent of DRAM throughput
    KILN_NCU_ISSUE,     // percent of issue slots busy
    KILN_NCU_OCCUPANCY, // percent, achieved
    KILN_NCU_L1_HIT,    // percent
    KILN_NCU_L2_HIT,    // percent
    KILN_NCU_FIGURES
};
const char *kiln_ncu_figure_name(enum kiln_ncu_figure figure); // "sm_busy_pct"

struct kiln_ncu_stall {
    char name[40];  // "long scoreboard"
    double cycles;  // a warp waits for each instruction issued; mean of the launches
    int64_t counts; // launches that tell
};

enum {
    KILN_NCU_STALLS = 32
};

// All launches of one kernel.
struct kiln_ncu_kernel {
    char *name;  // as the export has it: "void fap2(...)"
    char *entry; // without type, template and parameters: "fap2"
    int64_t launches;
    double seconds;                                // of all launches
    double figures[KILN_NCU_FIGURES];              // mean of the launches; -1: not known
    struct kiln_ncu_stall stalls[KILN_NCU_STALLS]; // longest first
    uint32_t n_stalls;
    double speedup_pct;               // the largest that a rule estimates; 0: none
    char *rule;                       // that rule's name, or NULL
    int local;                        // it is of what that rule looks at, not of the kernel's time
    int64_t counts[KILN_NCU_FIGURES]; // launches that tell
    int64_t last_id;                  // of a launch
    int timed;                        // its time is in seconds
};

struct kiln_ncu {
    struct kiln_ncu_kernel *kernels; // longest first
    size_t n, cap;
};

// Whether a CSV is an export of ncu: some row names the kernel's column.
int kiln_ncu_is(const struct kiln_csv *csv);
// path: for messages. KILN_STATUS_FILE: neither page, or no launch in it, or a duration that is no
// number. The caller ends *ncu with kiln_ncu_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_ncu_from(
        const struct kiln_csv *csv, const char *path, struct kiln_ncu *ncu, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_ncu_read(
        const char *path, struct kiln_ncu *ncu, struct kiln_err *err);
void kiln_ncu_finish(struct kiln_ncu *ncu); // a zeroed one is fine

// By entry; NULL: it was not measured.
const struct kiln_ncu_kernel *kiln_ncu_find(const struct kiln_ncu *ncu, const char *entry);

// Seconds of a unit ("us", "usecond", "nsecond", "ms", "s" …); 0: it is none.
double kiln_unit_seconds(const char *unit);

#endif
