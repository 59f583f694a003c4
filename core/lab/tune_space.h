// tune_space: the candidates of a sweep: variants that fill a slot, and values of their geometry.
//
// Comes from the schemas, narrowed by text. Nothing is planned or compiled here. A candidate is a
// number: parts (variants) stand one behind the other, within a part the values count like digits,
// the last parameter fastest; so the same plugins and text give the same numbers.
//
// The text: "variant=fap2,fap2db FA_TKV=16,32,64 FA_KPAD=8 *=default": entries separated by blanks
// or semicolons. KEY=VALUES narrows a parameter of every variant that has it (a value that one of
// them does not allow is left out there); "default" stands for the value that is bound, else for
// the schema's default; "*" stands for every key that is not named. Without an entry a parameter
// takes all values of its list, or of a range up to eight values or the doublings of the smallest.
#ifndef KILN_LAB_TUNE_SPACE_H
#define KILN_LAB_TUNE_SPACE_H

#include "base/buf.h"
#include "base/status.h"
#include "config/config.h"
#include "plugin/arena.h"
#include "plugin/registry.h"

#include <stdint.h>

enum {
    KILN_TUNE_PARAMS = 24,      // of a variant at most
    KILN_TUNE_AXIS_VALUES = 64, // of a parameter at most
};
#define KILN_TUNE_NONE UINT64_MAX

struct kiln_tune_axis {
    const struct kiln_param *param;
    int64_t values[KILN_TUNE_AXIS_VALUES]; // ascending
    uint32_t n;
    int64_t standard; // the value bound, else the schema's default
};

struct kiln_tune_part { // a variant
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    const char *source;          // CUDA file in place of the variant's source, or NULL
    const char **names;          // (n_axes)
    struct kiln_tune_axis *axes; // (n_axes) one a parameter, in the order of the schema
    uint32_t n_axes;
    uint64_t first, count; // its candidates' numbers
};

struct kiln_tune_space {
    struct kiln_tune_part *parts;
    size_t n_parts;
    uint64_t count;
    uint64_t base; // the candidate that is bound; KILN_TUNE_NONE: nothing is
    struct kiln_arena arena;
};

struct kiln_tune_space_params {
    const struct kiln_registry *registry; // outlive the space, as do all below
    const struct kiln_device *device;
    const char *slot;                // "attention.prefill"
    const struct kiln_binding *base; // what is bound now, or NULL
    int32_t head_size;               // that defaults may depend on; 0: none
    const char *const *texts;        // as above; merged, a key named twice is an error
    size_t n_texts;
};

// Variants that run on the device, fill the slot and take as many ops together as the base does: a
// time is that of the same work. USAGE: a text that is not understood, or names a variant, key or
// value that none has (with what is known); nothing is left. The caller ends *space with
// kiln_tune_space_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_tune_space_make(struct kiln_tune_space *space,
        const struct kiln_tune_space_params *params, struct kiln_err *err);
void kiln_tune_space_finish(struct kiln_tune_space *space);

// The part of a candidate, and its values (part->n_axes of them).
const struct kiln_tune_part *kiln_tune_space_at(
        const struct kiln_tune_space *space, uint64_t index, int64_t values[KILN_TUNE_PARAMS]);
// The candidate with these values; KILN_TUNE_NONE: not in the space.
uint64_t kiln_tune_space_find(const struct kiln_tune_space *space,
        const struct kiln_variant *variant, const int64_t *values);
// Candidates one step from `index`: the next value up or down of one parameter; with `all`, any
// other value of one parameter, and of other variants the one that agrees with it most. Fills
// near[0..max), returns how many there are (at most max).
size_t kiln_tune_space_near(
        const struct kiln_tune_space *space, uint64_t index, int all, uint64_t *near, size_t max);

// "fap2 FA_TQ=64 FA_TKV=32". Appends.
void kiln_tune_space_print(
        const struct kiln_tune_space *space, uint64_t index, struct kiln_buf *text);

#endif
