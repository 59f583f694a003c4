// plan_parts: answers, look-ups, bounds.
#include "plan_parts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    TEXT_MAX = 320
};

// ---- Answers ------------------------------------------------------------------------------------
int32_t plan_decline(struct kiln_plan *plan, const char *fmt, va_list list) {
    char text[TEXT_MAX];
    vsnprintf(text, sizeof(text), fmt, list);
    return plan->decline(plan, text);
}

int32_t plan_fail(struct kiln_plan *plan, const char *fmt, va_list list) {
    char text[TEXT_MAX];
    vsnprintf(text, sizeof(text), fmt, list);
    return plan->fail(plan, text);
}

// One of the two, as words.
__attribute__((format(printf, 3, 4))) static int32_t answer(struct kiln_plan *plan,
        int32_t (*how)(struct kiln_plan *plan, const char *fmt, va_list list), const char *fmt,
        ...) {
    va_list list;
    va_start(list, fmt);
    int32_t result = how(plan, fmt, list);
    va_end(list);
    return result;
}

// ---- Look-ups -----------------------------------------------------------------------------------
const struct kiln_tensor *plan_operand(const struct kiln_op *op, uint32_t operand) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operands[i]->operand == operand) {
            return op->operands[i];
        }
    }
    return NULL;
}

const char *plan_operand_name(uint32_t operand) {
    static const char *const names[] = {"", "IN", "OUT", "WEIGHT", "BIAS", "RESIDUAL", "GATE", "UP",
            "Q", "K", "V", "K_CACHE", "V_CACHE", "Q_NORM", "K_NORM", "ROPE_FREQS", "IDS",
            "POSITIONS", "N_TOKENS", "KV_LEN", "N_PAST", "N_SEQ", "SEQ_START", "PAGE_TABLE"};
    return operand < sizeof(names) / sizeof(names[0]) ? names[operand] : "operand";
}

int32_t plan_value(const struct kiln_geometry *geometry, const char *name) {
    for (uint32_t i = 0; i < geometry->n_values; i++) {
        if (strcmp(geometry->names[i], name) == 0) {
            return (int32_t)geometry->values[i];
        }
    }
    return 0;
}

// ---- Bounds -------------------------------------------------------------------------------------
int32_t plan_check_bounds(
        struct kiln_plan *plan, const struct kiln_op *op, const struct kiln_tensor *tensor) {
    bool cache = tensor->operand == KILN_OPERAND_K_CACHE || tensor->operand == KILN_OPERAND_V_CACHE;
    for (uint32_t dim = 0; dim < 4; dim++) {
        if (!(tensor->bound_dims >> dim & 1)) {
            continue;
        }
        // With one value a row (POSITIONS, IDS, argmax's OUT) the rows may be dimension 0.
        bool rows = dim == 1 || (dim == 0 && tensor->dtype == KILN_DTYPE_I32);
        uint32_t by = tensor->bound_by[dim];
        if (!rows || (by != KILN_OPERAND_N_TOKENS && !(cache && by == KILN_OPERAND_KV_LEN))) {
            return answer(plan, plan_decline,
                    "%s: dimension %u is bounded by %s; only rows bounded by %s are handled",
                    plan_operand_name(tensor->operand), dim, plan_operand_name(by),
                    cache ? "KV_LEN" : "N_TOKENS");
        }
        if (by == KILN_OPERAND_N_TOKENS && plan_operand(op, by) == NULL) {
            return answer(plan, plan_fail, "%s: its rows are bounded by N_TOKENS, which is missing",
                    plan_operand_name(tensor->operand));
        }
    }
    return KILN_RESULT_OK;
}
