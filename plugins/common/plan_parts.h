// plan_parts: what the plans of every plugin here do alike, on a device of any kind: they answer
// with a text, look operands and values of the geometry up, and take rows that are bounded. Linked
// into each plugin; needs nothing but kiln/plugin.h.
#ifndef COMMON_PLAN_PARTS_H
#define COMMON_PLAN_PARTS_H

#include "kiln/plugin.h"

#include <stdarg.h>
#include <stdint.h>

// Answer with a text, cut to 319 bytes. Give what plan() must return.
int32_t plan_decline(struct kiln_plan *plan, const char *fmt, va_list list)
        __attribute__((format(printf, 2, 0)));
int32_t plan_fail(struct kiln_plan *plan, const char *fmt, va_list list)
        __attribute__((format(printf, 2, 0)));

// An operand of the op; NULL when it is absent.
const struct kiln_tensor *plan_operand(const struct kiln_op *op, uint32_t operand);
// As the public header names it: "K_CACHE".
const char *plan_operand_name(uint32_t operand);

// A value of the geometry; 0 when it has no such name.
int32_t plan_value(const struct kiln_geometry *geometry, const char *name);

// Whether nothing but rows of the operand is bounded, and that by N_TOKENS (caches: or KV_LEN).
// KILN_RESULT_OK, or what plan() must return: it has answered then.
int32_t plan_check_bounds(
        struct kiln_plan *plan, const struct kiln_op *op, const struct kiln_tensor *tensor);

#endif
