// prepare: weights in the form that a variant asked for, made once by its kernels and kept while
// their key is the same: plugin, preparation id, source tensors, the values of the geometry keys it
// depends on, and the CUDA file in place of the variant's source, if any.
//
// An engine and the one that is built to follow it share a set, from one thread each. What each of
// them uses is marked with its generation, so that what neither needs can go.
#ifndef KILN_ENGINE_PREPARE_H
#define KILN_ENGINE_PREPARE_H

#include "base/status.h"
#include "config/config.h"
#include "device/device.h"
#include "plugin/plan.h"

struct kiln_prepared {
    char *key;
    void **buffers; // n_buffers device addresses
    uint32_t n_buffers;
    uint64_t bytes;
    uint64_t first, last; // generations that used it
};

struct kiln_prepared_set;

KILN_MUST_CHECK enum kiln_status kiln_prepared_create(
        struct kiln_prepared_set **set, struct kiln_err *err);
void kiln_prepared_destroy(struct kiln_prepared_set *set, struct kiln_dev *dev); // NULL is fine

uint64_t kiln_prepared_bytes(struct kiln_prepared_set *set); // of all; NULL: none
// Of what a generation uses: how many it made, and how many were there before it.
void kiln_prepared_counts(
        struct kiln_prepared_set *set, uint64_t generation, uint64_t *made, uint64_t *kept);
// Ends what no generation from `first` to `last` used.
void kiln_prepared_sweep(
        struct kiln_prepared_set *set, struct kiln_dev *dev, uint64_t first, uint64_t last);

// Finds or makes preparation `record`. sources[op * 32 + operand]: addresses of the problem's
// operands. On success *prepared belongs to the set. A failure leaves the set as it was.
struct kiln_prepare_operands {
    void *const *addresses; // by op and operand, see kiln_prepare_slot
    uint32_t n_ops;
    uint64_t source_digest; // of the file that replaces the variant's source; 0: none
    uint64_t generation;    // whose it is
};
enum {
    KILN_PREPARE_OPERANDS = 32
};

KILN_MUST_CHECK enum kiln_status kiln_prepare(struct kiln_prepared_set *set, struct kiln_dev *dev,
        const struct kiln_binding *binding, const struct kiln_planned_preparation *preparation,
        const struct kiln_prepare_operands *operands, const struct kiln_prepared **prepared,
        struct kiln_err *err);

#endif
