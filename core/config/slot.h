// slot: the names of the places in a forward pass that kernels fill: op[.weight type][.phase].
#ifndef KILN_CONFIG_SLOT_H
#define KILN_CONFIG_SLOT_H

#include "base/status.h"
#include "kiln/plugin.h"

#include <stddef.h>

enum {
    KILN_SLOT_NAME_MAX = 64
};

// "matmul.q4_K.prefill", "attention.decode", "norm". Types and phases only where the op has them:
// matmul has both, attention has the phase, the others neither.
void kiln_slot_name(
        char name[KILN_SLOT_NAME_MAX], enum kiln_op_kind op, uint32_t dtype, enum kiln_phase phase);

// Whether this is the name of a slot ("*" allowed for the type when `wildcard`). When it is not,
// the error says which part is wrong, what is allowed and the nearest right name.
KILN_MUST_CHECK enum kiln_status kiln_slot_check(
        const char *name, int wildcard, struct kiln_err *err);

// "embed", "norm", "matmul" …; NULL when it is none.
const char *kiln_op_name(enum kiln_op_kind op);

// The op of this name, len bytes of it; 0 when it is none.
uint32_t kiln_op_kind(const char *name, size_t len);

// The op that the name of a slot, or an entry of `follows`, begins with: up to "." or ":".
uint32_t kiln_op_kind_of(const char *name);

// Whether some slot is named by both, part by part: a part "*" on either side stands for any.
int kiln_slot_overlap(const char *a, const char *b);

#endif
