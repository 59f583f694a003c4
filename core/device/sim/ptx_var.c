// ptx_var: declarations of PTX variables, their initialisers, and formal parameters.
#include "device/sim/ptx_impl.h"

#include "base/mem.h"

#include <string.h>

enum {
    MAX_DIMS = 8,
    RESERVED_BYTES = 1024
};
#define MAX_BYTES (UINT64_C(1) << 40) // of a variable

struct declaration {
    enum kiln_ptx_space space;
    int is_extern;
    uint32_t align; // 0: as the type asks for
    uint32_t vector, type;
    struct ptx_name name;
    uint64_t dims[MAX_DIMS];
    uint32_t n_dims;
    int open; // [] without a number
    uint64_t bytes;
};

// ---- Types --------------------------------------------------------------------------------------

int ptx_type_of(struct ptx_name name, enum kiln_ptx_type *type) {
    for (int i = KILN_PTX_PRED; i < KILN_PTX_N_TYPES; i++) {
        if (ptx_same(name, kiln_ptx_type_name((enum kiln_ptx_type)i))) {
            *type = (enum kiln_ptx_type)i;
            return 1;
        }
    }
    return 0;
}

static uint32_t element_bytes(uint32_t type) {
    return (kiln_ptx_type_bits((enum kiln_ptx_type)type) + 7) / 8;
}

static enum kiln_status alignment(struct ptx_parser *p, uint32_t *align) {
    uint64_t value;
    KILN_TRY(ptx_next(p));
    KILN_TRY(ptx_uint(p, 1 << 16, &value));
    if (value == 0 || (value & (value - 1)) != 0) {
        return ptx_fail(p, ".align takes a power of two");
    }
    *align = (uint32_t)value;
    return KILN_STATUS_OK;
}

// .v2, .v4 and the type itself.
static enum kiln_status element_type(struct ptx_parser *p, uint32_t *vector, uint32_t *type) {
    enum kiln_ptx_type found;
    *vector = 1;
    if (ptx_is_dot(p, "v2") || ptx_is_dot(p, "v4") || ptx_is_dot(p, "v8")) {
        *vector = (uint32_t)(p->token.name.text[1] - '0');
        KILN_TRY(ptx_next(p));
    }
    if (p->token.kind != PTX_DOT || !ptx_type_of(p->token.name, &found)) {
        return ptx_fail(p, "a type is wanted: .b8 .b16 .b32 .b64 .u8 … .s64 .f32 .f64 .pred");
    }
    *type = found;
    return ptx_next(p);
}

static enum kiln_status dimensions(struct ptx_parser *p, struct declaration *decl) {
    int taken;
    decl->n_dims = 0;
    decl->open = 0;
    for (;;) {
        KILN_TRY(ptx_accept(p, '[', &taken));
        if (!taken) {
            return KILN_STATUS_OK;
        }
        if (decl->n_dims == MAX_DIMS) {
            return ptx_fail(p, "more than %d dimensions", (int)MAX_DIMS);
        }
        uint64_t value = 0;
        if (ptx_is(p, ']')) {
            if (decl->n_dims > 0) {
                return ptx_fail(p, "only the first dimension may be left open");
            }
            decl->open = 1;
        } else {
            KILN_TRY(ptx_uint(p, MAX_BYTES, &value));
        }
        decl->dims[decl->n_dims++] = value;
        KILN_TRY(ptx_expect(p, ']'));
    }
}

// Bytes of everything behind the first `level` dimensions.
static enum kiln_status span_of(
        struct ptx_parser *p, const struct declaration *decl, uint32_t level, uint64_t *bytes) {
    *bytes = (uint64_t)element_bytes(decl->type) * decl->vector;
    for (uint32_t i = level; i < decl->n_dims; i++) {
        if (decl->dims[i] != 0 && *bytes > MAX_BYTES / decl->dims[i]) {
            return ptx_fail(p, "the variable is larger than 2^40 bytes");
        }
        *bytes *= decl->dims[i];
    }
    return KILN_STATUS_OK;
}

// ---- Initialisers -------------------------------------------------------------------------------

static enum kiln_status put_bytes(struct ptx_parser *p, struct kiln_ptx_var *var, size_t *cap,
        uint64_t at, const void *bytes, size_t count) {
    if (kiln_grow(&var->init, cap, (size_t)(at + count), 1) != 0) {
        return ptx_nomem(p);
    }
    if (at > var->init_bytes) {
        memset(var->init + var->init_bytes, 0, (size_t)(at - var->init_bytes));
    }
    memcpy(var->init + at, bytes, count);
    if (at + count > var->init_bytes) {
        var->init_bytes = at + count;
    }
    return KILN_STATUS_OK;
}

// A symbol as the value of an address: `generic(name)`, `name`, either with + offset.
static enum kiln_status put_address(
        struct ptx_parser *p, struct kiln_ptx_var *var, size_t *cap, uint64_t at, uint32_t bytes) {
    int generic = ptx_same(p->token.name, "generic"), taken;
    struct kiln_ptx_reloc reloc = {.at = (uint32_t)at, .var = KILN_PTX_NONE, .bytes = bytes};
    uint64_t zero = 0;
    if (generic) {
        KILN_TRY(ptx_next(p));
        KILN_TRY(ptx_expect(p, '('));
    }
    const struct ptx_symbol *symbol =
            p->token.kind == PTX_WORD ? ptx_find(p, p->scope, p->token.name) : NULL;
    if (!symbol || (symbol->kind != PTX_SYM_VAR && symbol->kind != PTX_SYM_FUNC)) {
        return ptx_fail(p, "%.*s is no variable or function declared before",
                (int)p->token.name.len, p->token.name.text);
    }
    if (bytes != 8 || at > UINT32_MAX) {
        return ptx_fail(p, "an address takes an element of 64 bits");
    }
    if (symbol->kind == PTX_SYM_VAR) {
        reloc.var = symbol->index;
    } else {
        reloc.function = symbol->index + 1;
    }
    KILN_TRY(ptx_next(p));
    if (generic) {
        KILN_TRY(ptx_expect(p, ')'));
    }
    KILN_TRY(ptx_accept(p, '+', &taken));
    if (taken) {
        KILN_TRY(ptx_expression(p, &reloc.addend));
    }
    KILN_TRY(put_bytes(p, var, cap, at, &zero, bytes));
    struct kiln_ptx_reloc *more =
            kiln_realloc(var->relocs, (size_t)var->n_relocs + 1, sizeof(*more));
    if (!more) {
        return ptx_nomem(p);
    }
    var->relocs = more;
    var->relocs[var->n_relocs++] = reloc;
    return KILN_STATUS_OK;
}

static enum kiln_status put_real(struct ptx_parser *p, struct kiln_ptx_var *var, size_t *cap,
        uint64_t at, uint32_t type, int negative) {
    double value;
    float narrow;
    if (p->token.kind == PTX_REAL4) {
        uint32_t bits = (uint32_t)p->token.value;
        memcpy(&narrow, &bits, sizeof(narrow));
        value = (double)narrow;
    } else {
        memcpy(&value, &p->token.value, sizeof(value));
        narrow = (float)value;
    }
    value = negative ? -value : value;
    narrow = negative ? -narrow : narrow;
    KILN_TRY(ptx_next(p));
    if (type == KILN_PTX_F32 || type == KILN_PTX_B32) {
        return put_bytes(p, var, cap, at, &narrow, sizeof(narrow));
    }
    if (type == KILN_PTX_F64 || type == KILN_PTX_B64) {
        return put_bytes(p, var, cap, at, &value, sizeof(value));
    }
    return ptx_fail(p, "a real number takes an element of type .f32 or .f64");
}

static enum kiln_status put_scalar(
        struct ptx_parser *p, struct kiln_ptx_var *var, size_t *cap, uint64_t at, uint32_t type) {
    int64_t value;
    int negative = ptx_is(p, '-');
    if (p->token.kind == PTX_WORD) {
        return put_address(p, var, cap, at, element_bytes(type));
    }
    if (negative) {
        KILN_TRY(ptx_next(p));
    }
    if (p->token.kind == PTX_REAL || p->token.kind == PTX_REAL4) {
        return put_real(p, var, cap, at, type, negative);
    }
    KILN_TRY(ptx_expression(p, &value));
    value = negative ? (int64_t)(0 - (uint64_t)value) : value;
    if (ptx_is(p, '(')) {
        return ptx_fail(p, "masks of addresses are not modelled");
    }
    if (type == KILN_PTX_F32 || type == KILN_PTX_F64) {
        float narrow = (float)value;
        double wide = (double)value;
        return type == KILN_PTX_F32 ? put_bytes(p, var, cap, at, &narrow, sizeof(narrow))
                                    : put_bytes(p, var, cap, at, &wide, sizeof(wide));
    }
    if (type == KILN_PTX_B128) {
        return ptx_fail(p, "initialisers of 128-bit elements are not modelled");
    }
    return put_bytes(p, var, cap, at, &value, element_bytes(type));
}

// Values between braces, one after the other from `at` on; an inner '{' begins the next row.
static enum kiln_status put_row(struct ptx_parser *p, const struct declaration *decl,
        struct kiln_ptx_var *var, size_t *cap, uint32_t level, uint64_t at, uint64_t end) {
    uint64_t span;
    KILN_TRY(span_of(p, decl, level < decl->n_dims ? level + 1 : level, &span));
    KILN_TRY(ptx_expect(p, '{'));
    while (!ptx_is(p, '}')) {
        int inner = ptx_is(p, '{'), taken;
        uint64_t step = inner ? span : element_bytes(decl->type);
        if (inner && level + 1 >= decl->n_dims + (decl->vector > 1)) {
            return ptx_fail(p, "more levels of braces than the variable has dimensions");
        }
        if (at > end || step > end - at) {
            return ptx_fail(p, "more values than the variable has elements");
        }
        KILN_TRY(inner ? put_row(p, decl, var, cap, level + 1, at, at + step)
                       : put_scalar(p, var, cap, at, decl->type));
        at += step;
        KILN_TRY(ptx_accept(p, ',', &taken));
        if (!taken) {
            break;
        }
    }
    return ptx_expect(p, '}');
}

static enum kiln_status initialiser(
        struct ptx_parser *p, struct declaration *decl, struct kiln_ptx_var *var) {
    size_t cap = 0;
    if (decl->space != KILN_PTX_GLOBAL && decl->space != KILN_PTX_CONSTANT) {
        return ptx_fail(p, "only .global and .const variables have initialisers");
    }
    if (ptx_is(p, '{')) {
        KILN_TRY(put_row(p, decl, var, &cap, 0, 0, decl->open ? MAX_BYTES : decl->bytes));
    } else {
        KILN_TRY(put_scalar(p, var, &cap, 0, decl->type));
    }
    if (decl->open) {
        var->bytes = var->init_bytes;
    }
    return KILN_STATUS_OK;
}

// ---- Variables ----------------------------------------------------------------------------------

static enum kiln_status add_variable(
        struct ptx_parser *p, struct declaration *decl, uint32_t align) {
    struct kiln_ptx_module *module = p->module;
    size_t cap = p->cap_vars;
    int taken;
    if (kiln_grow(&module->vars, &cap, (size_t)module->n_vars + 1, sizeof(*module->vars)) != 0) {
        return ptx_nomem(p);
    }
    p->cap_vars = cap;
    struct kiln_ptx_var *var = &module->vars[module->n_vars++];
    *var = (struct kiln_ptx_var){.space = (uint8_t)decl->space,
            .is_extern = (uint8_t)decl->is_extern,
            .align = align,
            .bytes = decl->bytes,
            .name = kiln_strndup(decl->name.text, decl->name.len)};
    if (!var->name) {
        return ptx_nomem(p);
    }
    KILN_TRY(ptx_define(
            p, &(struct ptx_symbol){
                       .kind = PTX_SYM_VAR, .name = decl->name, .index = module->n_vars - 1}));
    KILN_TRY(ptx_accept(p, '=', &taken));
    if (taken) {
        KILN_TRY(initialiser(p, decl, var));
    } else if (decl->open && !decl->is_extern) {
        return ptx_fail(p, "an array without a size is .extern or has an initialiser");
    }
    return decl->open && decl->space != KILN_PTX_SHARED && decl->is_extern
                   ? ptx_fail(p, "only .shared arrays may be without a size")
                   : KILN_STATUS_OK;
}

// What a device keeps of a block's shared memory for libraries: a variable of the kernels that ask
// where it is.
enum kiln_status ptx_reserve_shared(struct ptx_parser *p, struct ptx_name name, uint32_t *symbol) {
    const struct ptx_symbol *known = ptx_find(p, 0, name);
    *symbol = KILN_PTX_NONE;
    if (!known) {
        struct declaration decl = {.space = KILN_PTX_SHARED, .bytes = RESERVED_BYTES, .name = name};
        uint32_t here = p->scope;
        p->scope = 0;
        enum kiln_status status = add_variable(p, &decl, 16);
        p->scope = here;
        KILN_TRY(status);
        known = ptx_find(p, 0, name);
    }
    *symbol = (uint32_t)(known - p->symbols);
    return KILN_STATUS_OK;
}

static uint32_t align_up(uint32_t value, uint32_t align) {
    return (value + align - 1) / align * align;
}

// A variable of the function at hand: local memory, or the call area.
static enum kiln_status add_to_frame(
        struct ptx_parser *p, const struct declaration *decl, uint32_t align) {
    struct ptx_func *func = p->func;
    int local = decl->space == KILN_PTX_LOCAL;
    uint32_t at = align_up(local ? func->local_bytes : func->call_at, align);
    if (decl->open || decl->bytes > (1 << 24) || at > (1 << 24)) {
        return ptx_fail(p, "local and parameter memory of a function is at most 16 MiB");
    }
    uint32_t end = at + (uint32_t)decl->bytes;
    if (local) {
        func->local_bytes = end;
    } else {
        func->call_at = end;
        func->call_bytes = end > func->call_bytes ? end : func->call_bytes;
    }
    return ptx_define(p, &(struct ptx_symbol){.kind = local ? PTX_SYM_LOCAL : PTX_SYM_CALL,
                                 .name = decl->name,
                                 .offset = at,
                                 .bytes = (uint32_t)decl->bytes});
}

static enum kiln_status declare(struct ptx_parser *p, struct declaration *decl) {
    uint32_t natural = element_bytes(decl->type) * decl->vector;
    if (p->token.kind != PTX_WORD) {
        return ptx_fail(p, "a variable's name is wanted");
    }
    decl->name = p->token.name;
    KILN_TRY(ptx_next(p));
    KILN_TRY(dimensions(p, decl));
    KILN_TRY(span_of(p, decl, 0, &decl->bytes));
    uint32_t align = decl->align > natural ? decl->align : natural;
    switch (decl->space) {
    case KILN_PTX_GLOBAL:
    case KILN_PTX_CONSTANT:
    case KILN_PTX_SHARED:
        return add_variable(p, decl, align);
    case KILN_PTX_LOCAL:
    case KILN_PTX_CALLS:
        if (p->func) {
            return add_to_frame(p, decl, align);
        }
        return ptx_fail(p, "local variables of a module are not modelled");
    case KILN_PTX_GENERIC:
    case KILN_PTX_PARAM:
    default:
        return ptx_fail(p, "a variable in no space");
    }
}

// ".attribute(.managed)": taken as it is said, everything is reachable here.
static enum kiln_status skip_attribute(struct ptx_parser *p) {
    KILN_TRY(ptx_next(p));
    KILN_TRY(ptx_expect(p, '('));
    while (!ptx_is(p, ')') && p->token.kind != PTX_END) {
        KILN_TRY(ptx_next(p));
    }
    return ptx_expect(p, ')');
}

enum kiln_status ptx_variables(struct ptx_parser *p, enum kiln_ptx_space space, int is_extern) {
    struct declaration decl = {.space = space, .is_extern = is_extern};
    int taken;
    while (ptx_is_dot(p, "align") || ptx_is_dot(p, "attribute")) {
        KILN_TRY(ptx_is_dot(p, "align") ? alignment(p, &decl.align) : skip_attribute(p));
    }
    KILN_TRY(element_type(p, &decl.vector, &decl.type));
    if (decl.type == KILN_PTX_PRED) {
        return ptx_fail(p, "predicates live in registers only");
    }
    do {
        KILN_TRY(declare(p, &decl));
        KILN_TRY(ptx_accept(p, ',', &taken));
    } while (taken);
    return ptx_expect(p, ';');
}

// ---- Parameters ---------------------------------------------------------------------------------

static enum kiln_status formal_type(
        struct ptx_parser *p, struct ptx_formal *formal, uint32_t *align) {
    static const char *const spaces[] = {"global", "shared", "const", "local", "param"};
    uint32_t pointee = 0;
    KILN_TRY(ptx_is_dot(p, "align") ? alignment(p, align) : KILN_STATUS_OK);
    uint32_t vector;
    KILN_TRY(element_type(p, &vector, &formal->type));
    formal->bytes = element_bytes(formal->type) * vector;
    if (!ptx_is_dot(p, "ptr")) {
        return KILN_STATUS_OK;
    }
    formal->pointer = 1;
    KILN_TRY(ptx_next(p));
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
        if (ptx_is_dot(p, spaces[i])) {
            KILN_TRY(ptx_next(p));
            break;
        }
    }
    return ptx_is_dot(p, "align") ? alignment(p, &pointee) : KILN_STATUS_OK;
}

static enum kiln_status formal_size(
        struct ptx_parser *p, struct ptx_formal *formal, uint32_t natural) {
    struct declaration decl = {.type = formal->type, .vector = 1};
    uint64_t bytes;
    KILN_TRY(dimensions(p, &decl));
    if (decl.n_dims == 0) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(span_of(p, &decl, 0, &bytes));
    if (decl.open || decl.n_dims > 1 || bytes > (1 << 16)) {
        return ptx_fail(p, "a parameter has one dimension, and at most 64 KiB");
    }
    formal->bytes = (uint32_t)bytes / element_bytes(formal->type) * natural;
    return KILN_STATUS_OK;
}

enum kiln_status ptx_formal(struct ptx_parser *p, struct ptx_formal *formal) {
    uint32_t align = 0;
    int in_reg = ptx_is_dot(p, "reg");
    *formal = (struct ptx_formal){.reg = KILN_PTX_NONE};
    if (!in_reg && !ptx_is_dot(p, "param")) {
        return ptx_fail(p, ".param or .reg is wanted");
    }
    KILN_TRY(ptx_next(p));
    KILN_TRY(formal_type(p, formal, &align));
    if (formal->type == KILN_PTX_PRED) {
        return ptx_fail(p, "predicates as parameters are not modelled");
    }
    uint32_t natural = formal->bytes;
    formal->align = align > natural ? align : natural;
    if (p->token.kind != PTX_WORD) {
        return ptx_fail(p, "a parameter's name is wanted");
    }
    formal->name = p->token.name;
    KILN_TRY(ptx_next(p));
    KILN_TRY(formal_size(p, formal, natural));
    if (in_reg && p->func) {
        // A register of fewer than 16 bits does not exist.
        uint32_t bytes = formal->bytes < 2 ? 2 : formal->bytes;
        KILN_TRY(ptx_add_reg(p, bytes, &formal->reg));
        return ptx_define(p, &(struct ptx_symbol){.kind = PTX_SYM_REG,
                                     .name = formal->name,
                                     .index = formal->reg,
                                     .bytes = bytes});
    }
    return KILN_STATUS_OK;
}
