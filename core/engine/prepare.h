// prepare: weights in the form that a variant asked for, made once by its kernels and kept while
// their key is the same: plugin, preparation id, source tensors, and the values of the geometry
// keys it depends on.
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
};

struct kiln_prepared_set {
    struct kiln_prepared **items;
    size_t count, cap;
    uint64_t bytes; // of all
};

void kiln_prepared_finish(struct kiln_prepared_set *set, struct kiln_dev *dev);

// Finds or makes preparation `record`. sources[op * 32 + operand]: addresses of the problem's
// operands. On success *prepared belongs to the set. A failure leaves the set as it was.
struct kiln_prepare_operands {
    void *const *addresses; // by op and operand, see kiln_prepare_slot
    uint32_t n_ops;
};
enum {
    KILN_PREPARE_OPERANDS = 32
};

KILN_MUST_CHECK enum kiln_status kiln_prepare(struct kiln_prepared_set *set, struct kiln_dev *dev,
        const struct kiln_binding *binding, const struct kiln_planned_preparation *preparation,
        const struct kiln_prepare_operands *operands, const struct kiln_prepared **prepared,
        struct kiln_err *err);

#endif
