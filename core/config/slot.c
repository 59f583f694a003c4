// slot: names of slots, made from and checked against the op table and the weight types of dtype.h.
//
// Not here: which variant fills a slot (check.c, bind.c).
#include "config/slot.h"

#include "config/words.h"
#include "model/dtype.h"

#include <stdio.h>
#include <string.h>

// How a slot's name goes on after the op.
enum slot_shape {
    SHAPE_PLAIN,
    SHAPE_PHASE,
    SHAPE_TYPE_PHASE
};

struct slot_op {
    enum kiln_op_kind kind;
    enum slot_shape shape;
    const char *name;
};

static const struct slot_op ops[] = {
        {KILN_OP_EMBED, SHAPE_PLAIN, "embed"},
        {KILN_OP_NORM, SHAPE_PLAIN, "norm"},
        {KILN_OP_ROPE_KV, SHAPE_PLAIN, "rope_kv"},
        {KILN_OP_ATTENTION, SHAPE_PHASE, "attention"},
        {KILN_OP_MATMUL, SHAPE_TYPE_PHASE, "matmul"},
        {KILN_OP_ACTIVATION, SHAPE_PLAIN, "activation"},
        {KILN_OP_QUANTIZE, SHAPE_PLAIN, "quantize"},
        {KILN_OP_ARGMAX, SHAPE_PLAIN, "argmax"},
};
enum {
    N_OPS = sizeof(ops) / sizeof(ops[0]),
    MAX_WEIGHT_TYPES = 32,
    MAX_LIST = 400
};

static const char *const phases[] = {"prefill", "decode"};

static const struct slot_op *find_op(enum kiln_op_kind kind) {
    for (size_t i = 0; i < N_OPS; i++) {
        if (ops[i].kind == kind) {
            return &ops[i];
        }
    }
    return NULL;
}

const char *kiln_op_name(enum kiln_op_kind op) {
    const struct slot_op *found = find_op(op);
    return found ? found->name : NULL;
}

uint32_t kiln_op_kind(const char *name, size_t len) {
    for (size_t i = 0; i < N_OPS; i++) {
        if (strlen(ops[i].name) == len && memcmp(ops[i].name, name, len) == 0) {
            return (uint32_t)ops[i].kind;
        }
    }
    return 0;
}

uint32_t kiln_op_kind_of(const char *name) {
    return kiln_op_kind(name, strcspn(name, ".:"));
}

void kiln_slot_name(char name[KILN_SLOT_NAME_MAX], enum kiln_op_kind op, uint32_t dtype,
        enum kiln_phase phase) {
    const struct slot_op *found = find_op(op);
    const struct kiln_dtype_info *type = kiln_dtype_info(dtype);
    const char *op_name = found ? found->name : "?";
    const char *type_name = type ? type->name : "?";
    const char *phase_name = phases[phase == KILN_PHASE_DECODE];
    switch (found ? found->shape : SHAPE_PLAIN) {
    case SHAPE_TYPE_PHASE:
        (void)snprintf(name, KILN_SLOT_NAME_MAX, "%s.%s.%s", op_name, type_name, phase_name);
        break;
    case SHAPE_PHASE:
        (void)snprintf(name, KILN_SLOT_NAME_MAX, "%s.%s", op_name, phase_name);
        break;
    case SHAPE_PLAIN:
    default:
        (void)snprintf(name, KILN_SLOT_NAME_MAX, "%s", op_name);
        break;
    }
}

static enum kiln_status wrong_part(struct kiln_err *err, const char *slot, const char *what,
        const char *part, const struct kiln_words *known) {
    char hint[KILN_WORDS_MAX];
    kiln_words_hint(hint, known, part);
    return kiln_err_set(
            err, KILN_STATUS_CONFIG, "slot '%s': unknown %s '%s'%s", slot, what, part, hint);
}

static enum kiln_status check_type(
        const char *slot, const char *part, int wildcard, struct kiln_err *err) {
    struct kiln_words types = {.count = 0};
    const struct kiln_dtype_info *info;
    for (uint32_t i = 0; (info = kiln_dtype_at(i)) != NULL; i++) {
        kiln_words_add(&types, info->weight ? info->name : NULL);
    }
    kiln_words_add(&types, wildcard ? "*" : NULL);
    if (!kiln_words_has(&types, part)) {
        return wrong_part(err, slot, "weight type", part, &types);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_phase(const char *slot, const char *part, struct kiln_err *err) {
    struct kiln_words known = {.names = {phases[0], phases[1]}, .count = 2};
    if (!kiln_words_has(&known, part)) {
        return wrong_part(err, slot, "phase", part, &known);
    }
    return KILN_STATUS_OK;
}

// Cuts text at its dots, in place. The number of parts, of which at most `max` are kept.
static size_t split(char *text, char **parts, size_t max) {
    size_t n = 0;
    for (char *at = text; at; n++) {
        char *dot = strchr(at, '.');
        if (dot) {
            *dot = '\0';
        }
        if (n < max) {
            parts[n] = at;
        }
        at = dot ? dot + 1 : NULL;
    }
    return n;
}

static enum kiln_status wrong_shape(
        struct kiln_err *err, const char *slot, const struct slot_op *op) {
    static const char *const forms[] = {"", ".prefill or .decode", ".TYPE.prefill or .TYPE.decode"};
    if (op->shape == SHAPE_PLAIN) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "slot '%s': nothing follows '%s': the slot is named '%s'", slot, op->name,
                op->name);
    }
    return kiln_err_set(err, KILN_STATUS_CONFIG, "slot '%s': '%s' is followed by %s", slot,
            op->name, forms[op->shape]);
}

static enum kiln_status unknown_op(const char *slot, const char *word, struct kiln_err *err) {
    struct kiln_words known = {.count = 0};
    for (size_t i = 0; i < N_OPS; i++) {
        kiln_words_add(&known, ops[i].name);
    }
    return wrong_part(err, slot, "op", word, &known);
}

static const struct slot_op *op_by_name(const char *word) {
    for (size_t i = 0; i < N_OPS; i++) {
        if (strcmp(word, ops[i].name) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}

enum kiln_status kiln_slot_check(const char *name, int wildcard, struct kiln_err *err) {
    char text[KILN_SLOT_NAME_MAX];
    char *parts[3] = {text, text, text};
    if (strlen(name) >= sizeof(text)) {
        return kiln_err_set(err, KILN_STATUS_CONFIG, "slot '%.20s...': longer than %d bytes", name,
                KILN_SLOT_NAME_MAX - 1);
    }
    memcpy(text, name, strlen(name) + 1);
    size_t n = split(text, parts, 3);
    int reserved_id = n > 1 && strcmp(parts[0], "matmul") == 0 && strcmp(parts[1], "id") == 0;
    if (reserved_id || strcmp(parts[0], "collective") == 0) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "slot '%s': the name is reserved (%s); this kiln has no such op", name,
                reserved_id ? "matmul.id, for experts" : "collective.*, for several devices");
    }
    const struct slot_op *op = op_by_name(parts[0]);
    if (!op) {
        return unknown_op(name, parts[0], err);
    }
    if (n != (size_t)op->shape + 1) {
        return wrong_shape(err, name, op);
    }
    if (op->shape == SHAPE_TYPE_PHASE) {
        KILN_TRY(check_type(name, parts[1], wildcard, err));
    }
    return op->shape == SHAPE_PLAIN ? KILN_STATUS_OK : check_phase(name, parts[n - 1], err);
}

// The end of the part that starts here.
static size_t part_len(const char *text) {
    return strcspn(text, ".");
}

int kiln_slot_overlap(const char *a, const char *b) {
    for (;;) {
        size_t len_a = part_len(a), len_b = part_len(b);
        int any = (len_a == 1 && *a == '*') || (len_b == 1 && *b == '*');
        if (!any && (len_a != len_b || memcmp(a, b, len_a) != 0)) {
            return 0;
        }
        if (a[len_a] == '\0' || b[len_b] == '\0') {
            return a[len_a] == b[len_b];
        }
        a += len_a + 1;
        b += len_b + 1;
    }
}
