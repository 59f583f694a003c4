// tune_store: what sweeps have measured, in one SQLite file that several processes may write at
// once and that a kill at any moment leaves whole.
//
// A result belongs to a context (device, driver, problem, kiln's version and way of measuring) and
// within it to a candidate (plugin, variant, geometry, digest of the variant's sources): what was
// found elsewhere, for another problem or with another kernel text is never taken for it. A
// candidate is claimed before it is measured, so that no two processes measure it; the claim of a
// process that died is void. A result that was put is on disk.
#ifndef KILN_LAB_TUNE_STORE_H
#define KILN_LAB_TUNE_STORE_H

#include "base/status.h"
#include "lab/tune_result.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_tune_store;

// Opens or makes the file and its folder. One that is no database, or a damaged one, is set aside
// (PATH.broken, PATH.broken-2, …) with a warning, and a new one is begun. Where nothing can be
// written (a folder that is read-only or full) there is a warning, and the store lives in memory:
// the sweep runs, and is not resumable. FILE: it is another program's database, or a newer kiln's.
// path NULL: in memory. The caller ends *store with kiln_tune_store_close.
KILN_MUST_CHECK enum kiln_status kiln_tune_store_open(
        struct kiln_tune_store **store, const char *path, struct kiln_err *err);
void kiln_tune_store_close(struct kiln_tune_store *store);        // NULL is fine
int kiln_tune_store_durable(const struct kiln_tune_store *store); // it is a file

// tune.db in a folder tune of kiln's cache folder; the caller frees it. NULL: out of memory.
char *kiln_tune_store_default(void);

struct kiln_tune_context {
    const char *device;  // name, target and size: "NVIDIA H200 sm_90a 132 SMs"
    const char *driver;  // "CUDA 13.0", "Linux 6.1 …"
    const char *problem; // slot, shape and fill
    const char *kiln;    // version and way of measuring
};
// The context's number, made if it is new.
KILN_MUST_CHECK enum kiln_status kiln_tune_store_context(struct kiln_tune_store *store,
        const struct kiln_tune_context *context, int64_t *id, struct kiln_err *err);

struct kiln_tune_key {
    const char *plugin, *variant;
    const char *geometry; // "FA_TQ=64 FA_TKV=32", "" for none
    const char *sources;  // digest, hexadecimal
};

enum kiln_tune_claim {
    KILN_TUNE_CLAIMED, // the caller's to measure
    KILN_TUNE_KNOWN,   // *result is what was found before
    KILN_TUNE_TAKEN,   // another living process is at it
};
// A result in a state that only luck or load brings (timeout, fault, memory) is known like any
// other: --again of a sweep forgets first.
KILN_MUST_CHECK enum kiln_status kiln_tune_store_claim(struct kiln_tune_store *store,
        int64_t context, const struct kiln_tune_key *key, enum kiln_tune_claim *claim,
        struct kiln_tune_result *result, struct kiln_err *err);
// Ends a claim with a result.
KILN_MUST_CHECK enum kiln_status kiln_tune_store_put(struct kiln_tune_store *store, int64_t context,
        const struct kiln_tune_key *key, const struct kiln_tune_result *result,
        struct kiln_err *err);
// Gives all of this process's open claims back.
KILN_MUST_CHECK enum kiln_status kiln_tune_store_release(
        struct kiln_tune_store *store, struct kiln_err *err);
// Forgets all results of a context, other processes' open claims left alone.
KILN_MUST_CHECK enum kiln_status kiln_tune_store_forget(
        struct kiln_tune_store *store, int64_t context, struct kiln_err *err);

// Every finished result of a context (0: of all), in the order in which they were measured. A
// status other than OK ends the walk.
struct kiln_tune_row {
    struct kiln_tune_context context;
    struct kiln_tune_key key;
    struct kiln_tune_result result;
};
typedef enum kiln_status (*kiln_tune_row_fn)(
        void *arg, const struct kiln_tune_row *row, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_tune_store_each(struct kiln_tune_store *store,
        int64_t context, kiln_tune_row_fn fn, void *arg, struct kiln_err *err);

// Takes over what `path`, another store, has and this one has not; what both have stays as it is
// here. *added counts results. FILE: it is no store.
KILN_MUST_CHECK enum kiln_status kiln_tune_store_merge(
        struct kiln_tune_store *store, const char *path, int64_t *added, struct kiln_err *err);

#endif
