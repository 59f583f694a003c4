// shape: the text of --shape: "m=3325,n=3584,k=18944", "m=1,h=28,hkv=4,hd=128,kv=2048". What is not
// named is the slot's default, that of a 7B model.
#ifndef KILN_LAB_SHAPE_H
#define KILN_LAB_SHAPE_H

#include "base/status.h"
#include "lab/op_case.h"

// Changes what the text names in *shape. KILN_STATUS_USAGE: an unknown key (with the nearest right
// one), a value that is none, a key that comes twice.
KILN_MUST_CHECK enum kiln_status kiln_shape_parse(
        struct kiln_shape *shape, const char *text, struct kiln_err *err);

// Whether all that *shape names is read by the slot's op or by those that the variant fills behind
// it; KILN_STATUS_USAGE names what is not, which would change nothing, and what is read. What is 0
// counts as not named.
KILN_MUST_CHECK enum kiln_status kiln_shape_check_read(const struct kiln_shape *shape,
        const char *slot, const struct kiln_variant *variant, struct kiln_err *err);

#endif
