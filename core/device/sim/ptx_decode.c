// ptx_decode: one function's statements as instructions: operands, constants, words of an opcode.
// What an opcode's words and operands mean is in ptx_alu.c, ptx_mem.c, ptx_warp.c, ptx_mma.c.
#include "device/sim/ptx_impl.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
    LANES = 32,
    MAX_LIST = 128, // registers of one
    MAX_INSNS = 1 << 22
};

enum kiln_status(ptx_bad)(struct ptx_decode *d, const char *fmt, ...) {
    char what[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    return ptx_fail_stmt(d->p, d->stmt, "%s", what);
}

// ---- Words --------------------------------------------------------------------------------------

static enum kiln_status split_words(struct ptx_decode *d) {
    struct ptx_name all = d->stmt->word;
    d->n_words = d->word = 0;
    for (uint32_t at = 0; at < all.len;) {
        uint32_t end = at;
        while (end < all.len && all.text[end] != '.') {
            end++;
        }
        if (d->n_words == PTX_MAX_WORDS) {
            return ptx_bad(d, "more than %d modifiers", (int)PTX_MAX_WORDS);
        }
        d->words[d->n_words++] = (struct ptx_name){all.text + at, end - at};
        at = end + 1;
    }
    d->word = 1;
    return KILN_STATUS_OK;
}

enum kiln_status ptx_needs(struct ptx_decode *d, uint32_t target) {
    uint32_t has = d->p->module->target;
    return has >= target
                   ? KILN_STATUS_OK
                   : ptx_bad(d, "it is there from sm_%u on; the module is for sm_%u", target, has);
}

int ptx_words_left(const struct ptx_decode *d) {
    return d->word < d->n_words;
}

int ptx_word(struct ptx_decode *d, const char *word) {
    if (d->word < d->n_words && ptx_same(d->words[d->word], word)) {
        d->word++;
        return 1;
    }
    return 0;
}

int ptx_word_of(struct ptx_decode *d, const char *const *names, int count) {
    for (int i = 0; i < count; i++) {
        if (ptx_word(d, names[i])) {
            return i;
        }
    }
    return -1;
}

enum kiln_status ptx_words_end(struct ptx_decode *d) {
    if (d->word < d->n_words) {
        return ptx_bad(d, "the modifier .%.*s is unknown, or not modelled here",
                (int)d->words[d->word].len, d->words[d->word].text);
    }
    return KILN_STATUS_OK;
}

enum kiln_status ptx_word_type(struct ptx_decode *d, uint64_t allowed, uint8_t *type) {
    enum kiln_ptx_type found;
    if (d->word >= d->n_words) {
        return ptx_bad(d, "a type is missing");
    }
    if (!ptx_type_of(d->words[d->word], &found) || !(allowed >> found & 1)) {
        return ptx_bad(d, "the modifier .%.*s is unknown, or not modelled here",
                (int)d->words[d->word].len, d->words[d->word].text);
    }
    d->word++;
    *type = (uint8_t)found;
    return KILN_STATUS_OK;
}

enum kiln_status ptx_count(struct ptx_decode *d, uint32_t min, uint32_t max) {
    if (d->stmt->count < min || d->stmt->count > max) {
        return ptx_bad(d, "%u operands; %u%s are wanted", d->stmt->count, min,
                max > min ? " or more" : "");
    }
    return KILN_STATUS_OK;
}

const struct ptx_operand *ptx_operand(const struct ptx_decode *d, uint32_t number) {
    return &d->func->operands[d->stmt->first + number];
}

uint32_t ptx_type_bytes(uint32_t type) {
    uint32_t bits = kiln_ptx_type_bits((enum kiln_ptx_type)type);
    return type == KILN_PTX_PRED ? 0 : bits <= 16 ? 2 : bits / 8;
}

// ---- Emitting -----------------------------------------------------------------------------------

static enum kiln_status where_of(
        struct ptx_decode *d, const struct ptx_stmt *stmt, uint32_t *index) {
    struct kiln_ptx_module *module = d->p->module;
    struct kiln_ptx_where where = {stmt->line, KILN_PTX_NONE, 0, KILN_PTX_NONE};
    if (stmt->where != KILN_PTX_NONE) {
        const struct ptx_loc *loc = &d->p->locs[stmt->where];
        where.file = loc->file;
        where.line = loc->line;
        where.inlined = loc->inlined; // the module's first places are the parser's
    }
    if (kiln_grow(&module->wheres, &d->p->cap_wheres, (size_t)module->n_wheres + 1,
                sizeof(*module->wheres)) != 0) {
        return ptx_nomem(d->p);
    }
    *index = module->n_wheres;
    module->wheres[module->n_wheres++] = where;
    return KILN_STATUS_OK;
}

static enum kiln_status append(struct ptx_decode *d, const struct kiln_ptx_insn *insn) {
    struct kiln_ptx_function *out = d->out;
    uint32_t where = 0;
    if (out->n_insns >= MAX_INSNS) {
        return ptx_bad(d, "more than %d instructions in one function", (int)MAX_INSNS);
    }
    KILN_TRY(where_of(d, d->stmt, &where));
    if (kiln_grow(&out->insns, &d->cap_insns, (size_t)out->n_insns + 1, sizeof(*insn)) != 0 ||
            kiln_grow(&out->where, &d->cap_where, (size_t)out->n_insns + 1, sizeof(where)) != 0) {
        return ptx_nomem(d->p);
    }
    out->where[out->n_insns] = where;
    out->insns[out->n_insns++] = *insn;
    return KILN_STATUS_OK;
}

enum kiln_status ptx_emit(struct ptx_decode *d) {
    return append(d, &d->insn);
}

void ptx_blank(struct ptx_decode *d, enum kiln_ptx_op op) {
    d->insn = (struct kiln_ptx_insn){.guard = d->stmt->guard,
            .d = KILN_PTX_NONE,
            .d2 = KILN_PTX_NONE,
            .a = KILN_PTX_NONE,
            .b = KILN_PTX_NONE,
            .c = KILN_PTX_NONE,
            .e = KILN_PTX_NONE,
            .flags = d->stmt->guard_not ? KILN_PTX_GUARD_NOT : 0,
            .target = KILN_PTX_NONE,
            .join = KILN_PTX_NONE,
            .op = (uint16_t)op};
}

enum kiln_status ptx_push_list(
        struct ptx_decode *d, const uint32_t *values, uint32_t count, uint32_t *first) {
    struct kiln_ptx_function *out = d->out;
    if (kiln_grow(&out->lists, &d->cap_lists, (size_t)out->n_lists + count, sizeof(*out->lists)) !=
            0) {
        return ptx_nomem(d->p);
    }
    *first = out->n_lists;
    memcpy(out->lists + out->n_lists, values, count * sizeof(*values));
    out->n_lists += count;
    return KILN_STATUS_OK;
}

enum kiln_status ptx_temp(struct ptx_decode *d, uint32_t bytes, uint32_t *reg) {
    struct ptx_func *func = d->func;
    if (kiln_grow(&func->regs, &func->cap_regs, func->n_regs + 1, sizeof(*func->regs)) != 0) {
        return ptx_nomem(d->p);
    }
    func->regs[func->n_regs].bytes = (uint8_t)bytes;
    *reg = (uint32_t)func->n_regs++;
    return KILN_STATUS_OK;
}

// An instruction in front of the one being made, under the same guard.
static enum kiln_status emit_before(
        struct ptx_decode *d, const struct kiln_ptx_insn *before, uint32_t bytes, uint32_t *to) {
    struct kiln_ptx_insn insn = *before;
    KILN_TRY(ptx_temp(d, bytes, to));
    insn.guard = d->stmt->guard;
    insn.flags = d->stmt->guard_not ? KILN_PTX_GUARD_NOT : 0;
    insn.d = *to;
    insn.d_bytes = (uint8_t)bytes;
    insn.d2 = insn.a = insn.b = insn.c = insn.e = insn.target = insn.join = KILN_PTX_NONE;
    return append(d, &insn);
}

// ---- Constants ----------------------------------------------------------------------------------

static enum kiln_status add_constant(
        struct ptx_decode *d, uint32_t bytes, uint64_t value, uint32_t *at) {
    struct kiln_ptx_kernel *kernel = d->kernel;
    uint32_t lane = bytes == 0 ? 4 : bytes < 4 ? 4 : bytes;
    uint32_t size = bytes == 0 ? 64 : lane * LANES;
    if (kernel->constant_bytes > (1u << 30)) {
        return ptx_bad(d, "too many constants");
    }
    if (kiln_grow(&kernel->constants, &d->constants->cap, (size_t)kernel->constant_bytes + size,
                1) != 0) {
        return ptx_nomem(d->p);
    }
    uint8_t *to = kernel->constants + kernel->constant_bytes;
    memset(to, 0, size);
    for (uint32_t i = 0; i < size / lane && (bytes != 0 || i == 0); i++) {
        memcpy(to + (size_t)i * lane, &value, lane < 8 ? lane : 8);
    }
    *at = kernel->constant_bytes;
    kernel->constant_bytes += size;
    return KILN_STATUS_OK;
}

static uint64_t constant_key(uint64_t kind, uint64_t first, uint64_t second) {
    uint64_t words[3] = {kind, first, second};
    return XXH3_64bits(words, sizeof(words));
}

enum kiln_status ptx_constant(struct ptx_decode *d, uint32_t bytes, uint64_t value, uint32_t *to) {
    value = bytes == 0   ? (value ? UINT32_MAX : 0)
            : bytes == 2 ? value & 0xffff
            : bytes == 4 ? value & UINT32_MAX
                         : value;
    uint64_t key = constant_key(bytes == 2 ? 4 : bytes, value, 0);
    uint32_t at = ptx_map_get(&d->constants->map, key);
    if (at == KILN_PTX_NONE) {
        KILN_TRY(add_constant(d, bytes, value, &at));
        KILN_TRY(ptx_map_put(d->p, &d->constants->map, key, at));
    }
    *to = at | KILN_PTX_CONST;
    return KILN_STATUS_OK;
}

// The address of a variable (NONE: of function number `function`) plus `addend`.
static enum kiln_status address_constant(
        struct ptx_decode *d, uint32_t var, uint32_t function, int64_t addend, uint32_t *to) {
    struct kiln_ptx_kernel *kernel = d->kernel;
    uint64_t key = constant_key(UINT64_C(1) << 32 | var, function, (uint64_t)addend);
    uint32_t at = ptx_map_get(&d->constants->map, key);
    if (at == KILN_PTX_NONE) {
        KILN_TRY(add_constant(d, 8, 0, &at));
        KILN_TRY(ptx_map_put(d->p, &d->constants->map, key, at));
        if (kiln_grow(&kernel->relocs, &d->constants->cap_relocs, (size_t)kernel->n_relocs + 1,
                    sizeof(*kernel->relocs)) != 0) {
            return ptx_nomem(d->p);
        }
        kernel->relocs[kernel->n_relocs++] = (struct kiln_ptx_reloc){
                .at = at, .var = var, .function = function, .bytes = 8, .addend = addend};
    }
    *to = at | KILN_PTX_CONST;
    return KILN_STATUS_OK;
}

// ---- Sources ------------------------------------------------------------------------------------

// An address that a symbol stands for, as a value.
static enum kiln_status symbol_value(struct ptx_decode *d, const struct ptx_operand *operand,
        uint32_t bytes, uint32_t *to, uint8_t *reg_bytes) {
    const struct ptx_symbol *symbol = &d->p->symbols[operand->index];
    uint64_t at = symbol->offset + (uint64_t)operand->value;
    bytes = bytes == PTX_ANY ? 8 : bytes;
    *reg_bytes = (uint8_t)bytes;
    if (bytes != 4 && bytes != 8) {
        return ptx_bad(d, "an address has 32 or 64 bits");
    }
    switch (symbol->kind) {
    case PTX_SYM_VAR:
        if (d->p->module->vars[symbol->index].space == KILN_PTX_SHARED) {
            return ptx_constant(
                    d, bytes, d->shared_at[symbol->index] + (uint64_t)operand->value, to);
        }
        return bytes == 8 ? address_constant(d, symbol->index, 0, operand->value, to)
                          : ptx_bad(d, "an address in global memory has 64 bits");
    case PTX_SYM_FUNC:
        return bytes == 8
                       ? address_constant(d, KILN_PTX_NONE, symbol->index + 1, operand->value, to)
                       : ptx_bad(d, "the address of a function has 64 bits");
    case PTX_SYM_LOCAL:
        if (!d->is_entry) {
            struct kiln_ptx_insn lea = {.op = KILN_PTX_OP_LEA_LOCAL, .imm = (int64_t)at};
            return emit_before(d, &lea, bytes, to);
        }
        return ptx_constant(d, bytes, at, to);
    case PTX_SYM_PARAM:
    case PTX_SYM_CALL:
        return ptx_constant(d, bytes, at, to);
    case PTX_SYM_REG:
    case PTX_SYM_REGS:
    case PTX_SYM_LABEL:
    case PTX_SYM_PROTO:
    case PTX_SYM_TARGETS:
    default:
        return ptx_bad(d, "%.*s has no value", (int)operand->name.len, operand->name.text);
    }
}

static enum kiln_status literal(struct ptx_decode *d, const struct ptx_operand *operand,
        uint32_t bytes, uint32_t type, uint32_t *to) {
    uint64_t value = (uint64_t)operand->value;
    if (operand->kind == PTX_OPERAND_INT) {
        if (type == KILN_PTX_F32 || type == KILN_PTX_F64) {
            return ptx_bad(d, "a real number is wanted: 0f3F800000, 1.0");
        }
        return ptx_constant(d, bytes, value, to);
    }
    double wide;
    float narrow;
    uint32_t bits = (uint32_t)value;
    memcpy(&narrow, &bits, sizeof(narrow));
    wide = (double)narrow;
    if (operand->kind == PTX_OPERAND_REAL) {
        memcpy(&wide, &value, sizeof(wide));
        narrow = (float)wide;
        memcpy(&bits, &narrow, sizeof(bits));
    }
    int floating = type == KILN_PTX_F32 || type == KILN_PTX_F64 || type == KILN_PTX_TF32;
    int plain = type == KILN_PTX_B32 || type == KILN_PTX_B64;
    if ((!floating && !plain) || (bytes != 4 && bytes != 8)) {
        return ptx_bad(d, "a real number cannot stand here");
    }
    if (bytes == 4) {
        return ptx_constant(d, 4, bits, to);
    }
    memcpy(&value, &wide, sizeof(value));
    return ptx_constant(d, 8, value, to);
}

enum kiln_status ptx_source(struct ptx_decode *d, const struct ptx_operand *operand, uint32_t bytes,
        uint32_t type, uint32_t *to, uint8_t *reg_bytes) {
    uint8_t ignored;
    uint32_t wanted = bytes == PTX_ANY ? ptx_type_bytes(type) : bytes;
    reg_bytes = reg_bytes ? reg_bytes : &ignored;
    *reg_bytes = (uint8_t)wanted;
    if (operand->negated && bytes != 0) {
        return ptx_bad(d, "'!' belongs to a predicate");
    }
    switch (operand->kind) {
    case PTX_OPERAND_REG: {
        uint32_t has = d->func->regs[operand->index].bytes;
        if (bytes == PTX_ANY ? has == 0 || has < wanted : has != bytes) {
            return ptx_bad(d, "%.*s has %u bits; %u are wanted", (int)operand->name.len,
                    operand->name.text, has ? has * 8 : 1, wanted ? wanted * 8 : 1);
        }
        *to = operand->index;
        *reg_bytes = (uint8_t)has;
        return KILN_STATUS_OK;
    }
    case PTX_OPERAND_INT:
    case PTX_OPERAND_REAL:
    case PTX_OPERAND_REAL4:
        return literal(d, operand, wanted, type, to);
    case PTX_OPERAND_SREG: {
        struct kiln_ptx_insn sreg = {
                .op = KILN_PTX_OP_SREG, .sub = (uint8_t)operand->index, .type = KILN_PTX_U32};
        return wanted == 0 ? ptx_bad(d, "a predicate is wanted")
                           : emit_before(d, &sreg, wanted, to);
    }
    case PTX_OPERAND_SYMBOL:
        return symbol_value(d, operand, bytes, to, reg_bytes);
    case PTX_OPERAND_NAME:
        return ptx_bad(d, "%.*s is not declared", (int)operand->name.len, operand->name.text);
    default:
        return ptx_bad(d, "a register or a number is wanted");
    }
}

enum kiln_status ptx_dest(struct ptx_decode *d, const struct ptx_operand *operand, uint32_t bytes,
        uint32_t *to, uint8_t *reg_bytes) {
    *to = KILN_PTX_NONE;
    if (operand->kind == PTX_OPERAND_SINK) {
        return KILN_STATUS_OK;
    }
    if (operand->kind != PTX_OPERAND_REG || operand->negated) {
        return operand->kind == PTX_OPERAND_NAME
                       ? ptx_bad(d, "%.*s is not declared", (int)operand->name.len,
                                 operand->name.text)
                       : ptx_bad(d, "a register is wanted");
    }
    uint32_t has = d->func->regs[operand->index].bytes;
    if (bytes == PTX_ANY ? has == 0 : has != bytes) {
        return ptx_bad(d, "%.*s has %u bits; %u are wanted", (int)operand->name.len,
                operand->name.text, has ? has * 8 : 1, bytes && bytes != PTX_ANY ? bytes * 8 : 1);
    }
    *to = operand->index;
    if (reg_bytes) {
        *reg_bytes = (uint8_t)has;
    }
    return KILN_STATUS_OK;
}

enum kiln_status ptx_dest_pair(
        struct ptx_decode *d, const struct ptx_operand *operand, uint32_t bytes) {
    if (operand->kind != PTX_OPERAND_PAIR) {
        return ptx_dest(d, operand, bytes, &d->insn.d, &d->insn.d_bytes);
    }
    const struct ptx_operand *both = &d->func->operands[operand->first];
    KILN_TRY(ptx_dest(d, &both[0], bytes, &d->insn.d, &d->insn.d_bytes));
    return ptx_dest(d, &both[1], 0, &d->insn.d2, NULL);
}

enum kiln_status ptx_number(
        struct ptx_decode *d, const struct ptx_operand *operand, int64_t *value) {
    if (operand->kind != PTX_OPERAND_INT) {
        return ptx_bad(d, "an integer constant is wanted");
    }
    *value = operand->value;
    return KILN_STATUS_OK;
}

enum kiln_status ptx_list(struct ptx_decode *d, const struct ptx_operand *operand, uint32_t count,
        uint32_t bytes, int is_dest, uint32_t *to, uint8_t *n, uint8_t *reg_bytes) {
    uint32_t values[MAX_LIST];
    uint8_t width = 0;
    const struct ptx_operand *elements = operand;
    uint32_t has = 1;
    if (operand->kind == PTX_OPERAND_LIST) {
        elements = &d->func->operands[operand->first];
        has = operand->count;
    }
    if (has == 0 || has > MAX_LIST || (count != 0 && has != count)) {
        return ptx_bad(d, "%u registers in a list; %u are wanted", has, count);
    }
    for (uint32_t i = 0; i < has; i++) {
        uint8_t one = 0;
        // The array of operands does not move here: only registers are made.
        KILN_TRY(is_dest ? ptx_dest(d, &elements[i], bytes, &values[i], &one)
                         : ptx_source(d, &elements[i], bytes, d->insn.type, &values[i], &one));
        if (width != 0 && one != 0 && one != width) {
            return ptx_bad(d, "registers of different sizes in one list");
        }
        width = one != 0 ? one : width;
    }
    *n = (uint8_t)has;
    if (reg_bytes) {
        *reg_bytes = width;
    }
    if (has == 1) {
        *to = values[0];
        return KILN_STATUS_OK;
    }
    return ptx_push_list(d, values, has, to);
}

// ---- Addresses ----------------------------------------------------------------------------------

// The space that a symbol's address is in, as memory instructions name it.
static enum kiln_ptx_space space_of(const struct ptx_decode *d, const struct ptx_symbol *symbol) {
    switch (symbol->kind) {
    case PTX_SYM_VAR:
        return (enum kiln_ptx_space)d->p->module->vars[symbol->index].space;
    case PTX_SYM_LOCAL:
        return KILN_PTX_LOCAL;
    case PTX_SYM_PARAM:
        return KILN_PTX_PARAM;
    case PTX_SYM_CALL:
        return KILN_PTX_CALLS;
    case PTX_SYM_REG:
    case PTX_SYM_REGS:
    case PTX_SYM_FUNC:
    case PTX_SYM_LABEL:
    case PTX_SYM_PROTO:
    case PTX_SYM_TARGETS:
    default:
        return KILN_PTX_GENERIC;
    }
}

// A symbol as an address of the instruction's space; .param becomes the one of the two it is.
static enum kiln_status symbol_address(struct ptx_decode *d, const struct ptx_operand *base,
        uint32_t *to, uint8_t *base_bytes, int64_t *offset) {
    const struct ptx_symbol *symbol = &d->p->symbols[base->index];
    enum kiln_ptx_space space = space_of(d, symbol);
    enum kiln_ptx_space wanted = (enum kiln_ptx_space)d->insn.space;
    int is_param = wanted == KILN_PTX_PARAM && (space == KILN_PTX_PARAM || space == KILN_PTX_CALLS);
    int generic =
            wanted == KILN_PTX_GENERIC && (space == KILN_PTX_GLOBAL || space == KILN_PTX_CONSTANT);
    if (space == KILN_PTX_GENERIC || (space != wanted && !is_param && !generic)) {
        return ptx_bad(d, "%.*s is not in the instruction's state space", (int)base->name.len,
                base->name.text);
    }
    if (is_param) {
        d->insn.space = (uint8_t)space;
    }
    if (space == KILN_PTX_GLOBAL || space == KILN_PTX_CONSTANT ||
            (space == KILN_PTX_LOCAL && !d->is_entry)) {
        struct ptx_operand start = *base;
        start.value = 0;
        *offset = base->value;
        return symbol_value(d, &start, 8, to, base_bytes);
    }
    *to = KILN_PTX_NONE;
    *base_bytes = 8;
    *offset = (int64_t)symbol->offset + base->value;
    if (space == KILN_PTX_SHARED) {
        *offset = (int64_t)d->shared_at[symbol->index] + base->value;
    }
    return KILN_STATUS_OK;
}

enum kiln_status ptx_address(struct ptx_decode *d, const struct ptx_operand *operand,
        uint32_t *base, uint8_t *base_bytes, int64_t *offset) {
    if (operand->kind != PTX_OPERAND_ADDR) {
        return ptx_bad(d, "an address in brackets is wanted");
    }
    *offset = operand->value;
    *base = KILN_PTX_NONE;
    *base_bytes = 8;
    int in_function = d->insn.space == KILN_PTX_PARAM && !d->is_entry;
    if (operand->count == 0) {
        d->insn.space = (uint8_t)(in_function ? KILN_PTX_CALLS : d->insn.space);
        return KILN_STATUS_OK;
    }
    const struct ptx_operand *first = &d->func->operands[operand->first];
    if (first->kind == PTX_OPERAND_SYMBOL) {
        return symbol_address(d, first, base, base_bytes, offset);
    }
    d->insn.space = (uint8_t)(in_function ? KILN_PTX_CALLS : d->insn.space);
    uint32_t has = d->func->regs[first->index].bytes;
    if (has != 4 && has != 8) {
        return ptx_bad(d, "%.*s has %u bits; an address has 32 or 64", (int)first->name.len,
                first->name.text, has ? has * 8 : 1);
    }
    *base = first->index;
    *base_bytes = (uint8_t)has;
    return KILN_STATUS_OK;
}

// ---- Functions ----------------------------------------------------------------------------------

static const struct ptx_opcode *opcode_of(struct ptx_name name) {
    const struct ptx_opcode *found = ptx_alu_opcode(name);
    found = found ? found : ptx_mem_opcode(name);
    found = found ? found : ptx_bulk_opcode(name);
    found = found ? found : ptx_warp_opcode(name);
    found = found ? found : ptx_flow_opcode(name);
    found = found ? found : ptx_mma_opcode(name);
    return found ? found : ptx_wgmma_opcode(name);
}

static enum kiln_status statement(struct ptx_decode *d) {
    KILN_TRY(split_words(d));
    const struct ptx_opcode *opcode = opcode_of(d->words[0]);
    if (!opcode) {
        return ptx_bad(d, "the instruction %.*s is unknown, or not modelled", (int)d->words[0].len,
                d->words[0].text);
    }
    ptx_blank(d, (enum kiln_ptx_op)opcode->op);
    return opcode->decode(d);
}

// Numbers of statements become numbers of instructions.
static void place_targets(struct ptx_decode *d) {
    for (uint32_t i = 0; i < d->out->n_insns; i++) {
        struct kiln_ptx_insn *insn = &d->out->insns[i];
        if (insn->op == KILN_PTX_OP_BRA) {
            insn->target = d->first_insn[insn->target];
        } else if (insn->op == KILN_PTX_OP_BRX) {
            for (uint32_t k = 0; k < (uint32_t)insn->imm; k++) {
                uint32_t *to = &d->out->lists[insn->b + k];
                *to = d->first_insn[*to];
            }
        }
    }
}

// Arguments in registers come out of the call area, where calls put all of them.
static enum kiln_status take_formals(struct ptx_decode *d) {
    const struct ptx_proto *proto = &d->func->proto;
    for (size_t i = proto->n_results; i < proto->count; i++) {
        const struct ptx_formal *formal = &proto->formals[i];
        if (formal->reg == KILN_PTX_NONE) {
            continue;
        }
        ptx_blank(d, KILN_PTX_OP_LD);
        d->insn.space = KILN_PTX_CALLS;
        d->insn.type = (uint8_t)formal->type;
        d->insn.d = formal->reg;
        d->insn.n_d = 1;
        d->insn.d_bytes = d->func->regs[formal->reg].bytes;
        d->insn.a_bytes = 8;
        d->insn.imm = formal->offset;
        KILN_TRY(ptx_emit(d));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status statements(struct ptx_decode *d) {
    struct ptx_func *func = d->func;
    for (size_t i = 0; i < func->n_stmts; i++) {
        d->stmt = &func->stmts[i];
        d->first_insn[i] = d->out->n_insns;
        KILN_TRY(statement(d));
    }
    d->first_insn[func->n_stmts] = d->out->n_insns;
    return KILN_STATUS_OK;
}

enum kiln_status ptx_decode_function(struct ptx_decode *d) {
    struct ptx_func *func = d->func;
    // Stands for what no statement says: formals taken at the begin, the return at the end.
    struct ptx_stmt implied = {.word = {"ret", 3},
            .text = {"ret", 3},
            .line = func->line,
            .where = KILN_PTX_NONE,
            .guard = KILN_PTX_NONE};
    d->first_insn = kiln_calloc(func->n_stmts + 1, sizeof(*d->first_insn));
    if (!d->first_insn) {
        return ptx_nomem(d->p);
    }
    d->carry = KILN_PTX_NONE;
    d->stmt = &implied;
    enum kiln_status status = d->is_entry ? KILN_STATUS_OK : take_formals(d);
    status = status == KILN_STATUS_OK ? statements(d) : status;
    if (status == KILN_STATUS_OK) {
        if (func->n_stmts > 0) {
            implied.line = d->stmt->line;
            implied.where = d->stmt->where;
        }
        d->stmt = &implied;
        status = statement(d);
    }
    if (status == KILN_STATUS_OK) {
        place_targets(d);
    }
    d->stmt = NULL;
    return status;
}
