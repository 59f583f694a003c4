// tune: a sweep over the variants and geometries of a slot, for one or more problems.
//
// For each problem: candidates by a strategy (tune_strategy.h), each planned first, then compiled
// on all cores while others are measured, then judged and timed in a process of its own
// (tune_child.h). Results are kept in a store (tune_store.h) as they come. The fastest then play a
// final against what is bound, interleaved in one process: only what is faster than the base beyond
// noise and bar replaces it; in a tie the base stays.
#ifndef KILN_LAB_TUNE_H
#define KILN_LAB_TUNE_H

#include "config/config.h"
#include "device/catalog.h"
#include "device/device.h"
#include "lab/op_case.h"
#include "lab/stats.h"
#include "lab/tune_result.h"
#include "lab/tune_space.h"
#include "lab/tune_store.h"
#include "lab/tune_strategy.h"

#include <stddef.h>
#include <stdint.h>

enum {
    KILN_TUNE_PROBLEMS = 32,
    KILN_TUNE_FINALISTS = 8, // the base among them
};

struct kiln_tune_params {
    const char *slot;
    const char *const *shapes; // of --shape, one a problem; n_shapes 0: the slot's default
    size_t n_shapes;
    const char *device; // as kiln_dev_open takes it
    const struct kiln_dev_settings *settings;
    struct kiln_registry *registry; // outlive the sweep
    struct kiln_config *config;
    const char *version;      // of kiln
    const char *const *space; // texts of tune_space.h
    size_t n_space;
    const char *const *first; // candidates to begin with, "fap2 FA_TQ=64 …"; those that are none
    size_t n_first;           // of the space are passed over
    enum kiln_tune_strategy_kind strategy;
    uint64_t seed;
    uint64_t most;          // candidates a problem; 0: all
    double budget;          // seconds of the whole sweep; 0: any
    uint32_t shard, shards; // shards 0 or 1: all; else no final is played
    struct kiln_tune_store *store;
    int again;                 // forget what the store has of these problems
    const char *const *worker; // argv of the worker, see tune_child.h
    double timeout;            // seconds that a candidate may take in the worker
    uint64_t memory_limit;     // of the worker, bytes; 0: any
    int64_t samples, cold_samples;
    int by_cold;    // rank by times with a cold L2
    double bar;     // percent that a change must bring
    int64_t rounds; // of the final
    int (*stop)(void);
    void (*progress)(void *arg, int64_t done, int64_t total);
    void *progress_arg;
};

struct kiln_tune_entry { // a candidate that was looked at
    uint64_t candidate;
    const struct kiln_tune_part *part;
    int64_t values[KILN_TUNE_PARAMS];
    struct kiln_geometry geometry; // of these
    char sources[20];              // digest
    int known;                     // the store had it
    int elsewhere;                 // another process was at it
    struct kiln_tune_result result;
};

struct kiln_tune_finalist {
    const struct kiln_tune_entry *entry;
    double seconds;            // median of its rounds
    struct kiln_effect effect; // against the base; of the base itself: zeroes
    int tied;                  // as fast as the winner, as far as can be told
};

struct kiln_tune_problem {
    char name[192];          // "m=3325 kv=3325 heads=28/4 hd=128"
    struct kiln_shape shape; // the defaults filled in
    int64_t columns, depth;  // n and k of `when` conditions: of the output, of the weight or 0
    int32_t head_size;       // 0: its op has none
    struct kiln_tune_space space;
    struct kiln_tune_entry **entries; // in the order in which they were taken up
    size_t n_entries, cap_entries;
    const struct kiln_tune_entry *base; // NULL: nothing is bound, or it did not get that far
    struct kiln_tune_finalist finalists[KILN_TUNE_FINALISTS];
    size_t n_finalists;                   // 0: no final was played
    const struct kiln_tune_entry *winner; // NULL: nothing is ok, or no final
    int kept;                             // the winner is the base
    int base_tuned;                       // a section of a tuned file binds the base
    size_t counts[KILN_TUNE_STATES];
    size_t measured, known; // now; from the store
    double seconds;         // that it took
    int cut;                // the budget or the most ended it
};

struct kiln_tune {
    const struct kiln_tune_params *params;
    struct kiln_device_entry device;
    char id[32], driver[128];
    struct kiln_tune_problem *problems;
    size_t n_problems;
    int64_t workers; // processes that were started
    struct kiln_arena arena;
};

// A candidate's failure is a result; errors are those of usage, of the device as a whole, of memory
// and INTERRUPTED (what was measured is in the store). The caller ends *tune with kiln_tune_finish,
// also after a failure; params outlives it.
KILN_MUST_CHECK enum kiln_status kiln_tune_run(
        struct kiln_tune *tune, const struct kiln_tune_params *params, struct kiln_err *err);
void kiln_tune_finish(struct kiln_tune *tune); // a zeroed one is fine

// The times that the ranking goes by; n 0: none.
const struct kiln_tune_times *kiln_tune_ranked(
        const struct kiln_tune *tune, const struct kiln_tune_result *result);
// "simulated" on sim, else "measured".
const char *kiln_tune_grade(const struct kiln_tune *tune);
// entries that are ok, the fastest first (then by number), behind them the others by state; the
// caller frees the array. NULL: out of memory.
const struct kiln_tune_entry **kiln_tune_order(
        const struct kiln_tune *tune, const struct kiln_tune_problem *problem);

// ---- tune_final.c -------------------------------------------------------------------------------
// seconds: (rounds, n + 1) of n finalists and of the first again. Judges each against the first,
// marks ties and picks the winner. With `base` 0 the first is a candidate like the others.
KILN_MUST_CHECK enum kiln_status kiln_tune_judge(struct kiln_tune_problem *problem,
        const double *seconds, size_t rounds, int base, double bar, struct kiln_err *err);

// ---- tune_print.c -------------------------------------------------------------------------------
void kiln_tune_print(const struct kiln_tune *tune, struct kiln_buf *text);
struct json_t *kiln_tune_json(const struct kiln_tune *tune); // NULL: out of memory

// ---- tune_ini.c ---------------------------------------------------------------------------------
// "h200" of "NVIDIA H200": what a tuned file of the device is called. size: at least 64.
void kiln_tune_device_slug(const struct kiln_tune *tune, char *slug, size_t size);
// Puts the winners that are not what is bound, or bound by a tuned file, into the text of a tuned
// file (`before`: as it is now, "" for none): blocks of this slot are replaced, others stay;
// without such a winner only blocks of the problems swept go. *sections counts those written.
// CONFIG: the result would not load, which leaves everything as it is.
KILN_MUST_CHECK enum kiln_status kiln_tune_ini(const struct kiln_tune *tune, const char *before,
        struct kiln_buf *text, size_t *sections, struct kiln_err *err);

// ---- tune_t4.c ----------------------------------------------------------------------------------
// The results of all problems in the T4 JSON form that auto-tuners exchange; NULL: out of memory.
struct json_t *kiln_tune_t4(const struct kiln_tune *tune);
// The configurations of a T4 document as candidates to begin with; whoever measured them and where,
// no time is taken over. texts: an array for `first` of the params, in `arena`. FILE: not T4.
KILN_MUST_CHECK enum kiln_status kiln_tune_t4_read(const char *path, struct kiln_arena *arena,
        const char ***texts, size_t *n, struct kiln_err *err);
// The candidate that such a text stands for: of its variant, else of the bound one or the first
// that has its keys. Keys that a variant does not have are passed over; NONE: it has none of them,
// or not with that value.
uint64_t kiln_tune_t4_find(const struct kiln_tune_space *space, const char *text);

#endif
