// ptx_body: the inside of PTX functions: scopes, labels, statements with their operands.
#include "device/sim/ptx_impl.h"

#include "base/mem.h"

#include <string.h>

enum {
    MAX_NESTING = 64,
    MAX_OPERANDS = 256, // of one statement, elements of lists counted
    MAX_FORMALS = 1024
};

// ---- Special registers --------------------------------------------------------------------------

int ptx_sreg_of(struct ptx_name name, enum kiln_ptx_sreg *sreg) {
    static const struct {
        const char *name;
        enum kiln_ptx_sreg sreg;
    } known[] = {
            {"%tid.x", KILN_PTX_TID_X},
            {"%tid.y", KILN_PTX_TID_Y},
            {"%tid.z", KILN_PTX_TID_Z},
            {"%ntid.x", KILN_PTX_NTID_X},
            {"%ntid.y", KILN_PTX_NTID_Y},
            {"%ntid.z", KILN_PTX_NTID_Z},
            {"%ctaid.x", KILN_PTX_CTAID_X},
            {"%ctaid.y", KILN_PTX_CTAID_Y},
            {"%ctaid.z", KILN_PTX_CTAID_Z},
            {"%nctaid.x", KILN_PTX_NCTAID_X},
            {"%nctaid.y", KILN_PTX_NCTAID_Y},
            {"%nctaid.z", KILN_PTX_NCTAID_Z},
            {"%laneid", KILN_PTX_LANEID},
            {"%warpid", KILN_PTX_WARPID},
            {"%nwarpid", KILN_PTX_NWARPID},
            {"%smid", KILN_PTX_SMID},
            {"%nsmid", KILN_PTX_NSMID},
            {"%gridid", KILN_PTX_GRIDID},
            {"%lanemask_eq", KILN_PTX_LANEMASK_EQ},
            {"%lanemask_le", KILN_PTX_LANEMASK_LE},
            {"%lanemask_lt", KILN_PTX_LANEMASK_LT},
            {"%lanemask_ge", KILN_PTX_LANEMASK_GE},
            {"%lanemask_gt", KILN_PTX_LANEMASK_GT},
            {"%clock", KILN_PTX_CLOCK},
            {"%clock_hi", KILN_PTX_CLOCK_HI},
            {"%clock64", KILN_PTX_CLOCK64},
            {"%globaltimer", KILN_PTX_GLOBALTIMER},
            {"%globaltimer_lo", KILN_PTX_GLOBALTIMER_LO},
            {"%globaltimer_hi", KILN_PTX_GLOBALTIMER_HI},
            {"%total_smem_size", KILN_PTX_TOTAL_SMEM},
            {"%dynamic_smem_size", KILN_PTX_DYNAMIC_SMEM},
            // A launch without clusters: each block is one.
            {"%clusterid.x", KILN_PTX_CTAID_X},
            {"%clusterid.y", KILN_PTX_CTAID_Y},
            {"%clusterid.z", KILN_PTX_CTAID_Z},
            {"%nclusterid.x", KILN_PTX_NCTAID_X},
            {"%nclusterid.y", KILN_PTX_NCTAID_Y},
            {"%nclusterid.z", KILN_PTX_NCTAID_Z},
            {"%cluster_ctaid.x", KILN_PTX_CLUSTER_CTAID},
            {"%cluster_nctaid.x", KILN_PTX_CLUSTER_NCTAID},
            {"%cluster_ctaid.y", KILN_PTX_CLUSTER_CTAID},
            {"%cluster_nctaid.y", KILN_PTX_CLUSTER_NCTAID},
            {"%cluster_ctaid.z", KILN_PTX_CLUSTER_CTAID},
            {"%cluster_nctaid.z", KILN_PTX_CLUSTER_NCTAID},
            {"%cluster_ctarank", KILN_PTX_CLUSTER_CTAID},
            {"%cluster_nctarank", KILN_PTX_CLUSTER_NCTAID},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (ptx_same(name, known[i].name)) {
            *sreg = known[i].sreg;
            return 1;
        }
    }
    return 0;
}

// ---- Operands -----------------------------------------------------------------------------------

static enum kiln_status operand(struct ptx_parser *p, struct ptx_operand *to, int in_call);

static enum kiln_status add_operand(
        struct ptx_parser *p, const struct ptx_operand *operand_read, uint32_t *index) {
    struct ptx_func *func = p->func;
    if (kiln_grow(&func->operands, &func->cap_operands, func->n_operands + 1,
                sizeof(*func->operands)) != 0) {
        return ptx_nomem(p);
    }
    *index = (uint32_t)func->n_operands;
    func->operands[func->n_operands++] = *operand_read;
    return KILN_STATUS_OK;
}

// Operands up to `close`, one behind the other in the function's array.
static enum kiln_status operands_until(struct ptx_parser *p, char close, int in_call,
        struct ptx_operand read[MAX_OPERANDS], uint32_t *count) {
    int taken = 1;
    *count = 0;
    while (!ptx_is(p, close)) {
        if (*count == MAX_OPERANDS) {
            return ptx_fail(p, "more than %d operands", (int)MAX_OPERANDS);
        }
        KILN_TRY(operand(p, &read[(*count)++], in_call));
        KILN_TRY(ptx_accept(p, ',', &taken));
        if (!taken) {
            break;
        }
    }
    if (taken && *count > 0) {
        return ptx_fail(p, "an operand is wanted behind ','");
    }
    return ptx_expect(p, close);
}

static enum kiln_status add_operands(
        struct ptx_parser *p, const struct ptx_operand *read, uint32_t count, uint32_t *first) {
    uint32_t index;
    *first = (uint32_t)p->func->n_operands;
    for (uint32_t i = 0; i < count; i++) {
        KILN_TRY(add_operand(p, &read[i], &index));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status list(struct ptx_parser *p, struct ptx_operand *to, char close) {
    struct ptx_operand read[MAX_OPERANDS];
    if (p->depth >= 4) {
        return ptx_fail(p, "lists within lists");
    }
    p->depth++;
    KILN_TRY(ptx_next(p));
    KILN_TRY(operands_until(p, close, close == ')', read, &to->count));
    p->depth--;
    to->kind = PTX_OPERAND_LIST;
    return add_operands(p, read, to->count, &to->first);
}

static enum kiln_status number_operand(struct ptx_parser *p, struct ptx_operand *to) {
    int negative = ptx_is(p, '-');
    if (negative) {
        KILN_TRY(ptx_next(p));
    }
    if (p->token.kind == PTX_REAL || p->token.kind == PTX_REAL4) {
        int wide = p->token.kind == PTX_REAL;
        to->kind = wide ? PTX_OPERAND_REAL : PTX_OPERAND_REAL4;
        uint64_t sign = wide ? UINT64_C(1) << 63 : UINT64_C(1) << 31;
        to->value = (int64_t)(p->token.value ^ (negative ? sign : 0));
        return ptx_next(p);
    }
    to->kind = PTX_OPERAND_INT;
    KILN_TRY(ptx_expression(p, &to->value));
    if (negative) {
        to->value = (int64_t)(0 - (uint64_t)to->value);
    }
    return KILN_STATUS_OK;
}

// "+ 8" or "- 8" behind a symbol or a register of an address.
static enum kiln_status offset_of(struct ptx_parser *p, int64_t *value) {
    *value = 0;
    if (!ptx_is(p, '+') && !ptx_is(p, '-')) {
        return KILN_STATUS_OK;
    }
    int plus = ptx_is(p, '+');
    if (plus) {
        KILN_TRY(ptx_next(p));
    }
    return ptx_expression(p, value);
}

static enum kiln_status special(
        struct ptx_parser *p, struct ptx_name name, struct ptx_operand *to) {
    enum kiln_ptx_sreg sreg;
    if (ptx_same(name, "%reserved_smem_offset_1")) {
        to->kind = PTX_OPERAND_SYMBOL;
        return ptx_reserve_shared(p, name, &to->index);
    }
    if (!ptx_sreg_of(name, &sreg)) {
        return ptx_fail(p,
                "%.*s is no register declared here and no special register that kiln "
                "knows",
                (int)name.len, name.text);
    }
    to->kind = PTX_OPERAND_SREG;
    to->index = sreg;
    return KILN_STATUS_OK;
}

// A register, a special one, a symbol, or a name that comes later.
static enum kiln_status name_operand(struct ptx_parser *p, struct ptx_operand *to) {
    struct ptx_name name = p->token.name;
    uint32_t reg;
    KILN_TRY(ptx_next(p));
    to->name = name;
    if (ptx_same(name, "_")) {
        to->kind = PTX_OPERAND_SINK;
        return KILN_STATUS_OK;
    }
    if (ptx_same(name, "WARP_SZ")) {
        to->kind = PTX_OPERAND_INT;
        to->value = 32;
        return KILN_STATUS_OK;
    }
    KILN_TRY(ptx_find_reg(p, name, &reg));
    if (reg != KILN_PTX_NONE) {
        if (p->token.kind == PTX_DOT && p->token_start == p->last_end) {
            return ptx_fail(p, "components of vector registers are not modelled");
        }
        to->kind = PTX_OPERAND_REG;
        to->index = reg;
        return KILN_STATUS_OK;
    }
    if (name.text[0] == '%') {
        if (p->token.kind == PTX_DOT && p->token_start == p->last_end) {
            name.len = (uint32_t)(p->at - name.text);
            KILN_TRY(ptx_next(p));
        }
        return special(p, name, to);
    }
    const struct ptx_symbol *symbol = ptx_find(p, p->scope, name);
    if (symbol && symbol->kind != PTX_SYM_LABEL) {
        to->kind = PTX_OPERAND_SYMBOL;
        to->index = (uint32_t)(symbol - p->symbols);
        return offset_of(p, &to->value);
    }
    to->kind = PTX_OPERAND_NAME;
    to->index = p->scope;
    return KILN_STATUS_OK;
}

// Coordinates behind the address in brackets.
static enum kiln_status coordinates(struct ptx_parser *p, struct ptx_operand *to) {
    struct ptx_operand both[2] = {*to, {0}};
    KILN_TRY(ptx_next(p));
    if (!ptx_is(p, '{')) {
        return ptx_fail(p, "coordinates in braces are wanted behind the address");
    }
    KILN_TRY(list(p, &both[1], '}'));
    *to = (struct ptx_operand){.kind = PTX_OPERAND_TENSOR, .count = 2};
    return add_operands(p, both, 2, &to->first);
}

static enum kiln_status address(struct ptx_parser *p, struct ptx_operand *to) {
    struct ptx_operand base = {0};
    to->kind = PTX_OPERAND_ADDR;
    KILN_TRY(ptx_next(p));
    if (p->token.kind == PTX_WORD) {
        KILN_TRY(name_operand(p, &base));
        if (base.kind == PTX_OPERAND_NAME) {
            return ptx_fail(p, "%.*s is not declared", (int)base.name.len, base.name.text);
        }
        if (base.kind != PTX_OPERAND_REG && base.kind != PTX_OPERAND_SYMBOL) {
            return ptx_fail(p, "an address is a register, a variable or a number");
        }
        if (base.kind == PTX_OPERAND_REG) {
            KILN_TRY(offset_of(p, &to->value));
        } else {
            to->value = base.value;
        }
        to->count = 1;
        KILN_TRY(add_operand(p, &base, &to->first));
    } else {
        KILN_TRY(ptx_expression(p, &to->value));
    }
    KILN_TRY(ptx_is(p, ',') ? coordinates(p, to) : KILN_STATUS_OK);
    return ptx_expect(p, ']');
}

static enum kiln_status pair(struct ptx_parser *p, struct ptx_operand *to) {
    struct ptx_operand both[2] = {*to, {0}};
    KILN_TRY(ptx_next(p));
    if (p->token.kind != PTX_WORD) {
        return ptx_fail(p, "a register is wanted behind '|'");
    }
    KILN_TRY(name_operand(p, &both[1]));
    *to = (struct ptx_operand){.kind = PTX_OPERAND_PAIR, .count = 2};
    return add_operands(p, both, 2, &to->first);
}

static enum kiln_status operand(struct ptx_parser *p, struct ptx_operand *to, int in_call) {
    *to = (struct ptx_operand){0};
    if (ptx_is(p, '{')) {
        return list(p, to, '}');
    }
    if (in_call && ptx_is(p, '(')) {
        return list(p, to, ')');
    }
    if (ptx_is(p, '[')) {
        return address(p, to);
    }
    if (ptx_is(p, '!')) {
        KILN_TRY(ptx_next(p));
        if (p->token.kind != PTX_WORD) {
            return ptx_fail(p, "a predicate is wanted behind '!'");
        }
        KILN_TRY(name_operand(p, to));
        to->negated = 1;
        return to->kind == PTX_OPERAND_REG ? KILN_STATUS_OK
                                           : ptx_fail(p, "a predicate is wanted behind '!'");
    }
    if (p->token.kind != PTX_WORD) {
        return number_operand(p, to);
    }
    KILN_TRY(name_operand(p, to));
    int may_pair = to->kind == PTX_OPERAND_REG || to->kind == PTX_OPERAND_SINK;
    return may_pair && ptx_is(p, '|') ? pair(p, to) : KILN_STATUS_OK;
}

// ---- Statements ---------------------------------------------------------------------------------

static enum kiln_status guard(struct ptx_parser *p, struct ptx_stmt *stmt) {
    int taken;
    KILN_TRY(ptx_next(p));
    KILN_TRY(ptx_accept(p, '!', &taken));
    stmt->guard_not = (uint32_t)taken;
    if (p->token.kind != PTX_WORD) {
        return ptx_fail(p, "a predicate is wanted behind '@'");
    }
    struct ptx_name name = p->token.name;
    KILN_TRY(ptx_next(p));
    KILN_TRY(ptx_find_reg(p, name, &stmt->guard));
    if (stmt->guard == KILN_PTX_NONE || p->func->regs[stmt->guard].bytes != 0) {
        return ptx_fail(p, "%.*s is no predicate register", (int)name.len, name.text);
    }
    return KILN_STATUS_OK;
}

// `word` has been taken; its modifiers follow without a blank.
static enum kiln_status instruction(
        struct ptx_parser *p, struct ptx_name word, struct ptx_stmt *stmt) {
    struct ptx_operand read[MAX_OPERANDS];
    struct ptx_func *func = p->func;
    const char *end = p->last_end;
    while (p->token.kind == PTX_DOT && p->token_start == p->last_end) {
        KILN_TRY(ptx_next(p));
        end = p->last_end;
    }
    stmt->word = (struct ptx_name){word.text, (uint32_t)(end - word.text)};
    stmt->where = p->loc;
    int in_call = word.len == 4 && memcmp(word.text, "call", 4) == 0;
    if (kiln_grow(&func->stmts, &func->cap_stmts, func->n_stmts + 1, sizeof(*func->stmts)) != 0) {
        return ptx_nomem(p);
    }
    KILN_TRY(operands_until(p, ';', in_call, read, &stmt->count));
    KILN_TRY(add_operands(p, read, stmt->count, &stmt->first));
    stmt->text = (struct ptx_name){p->stmt_start, (uint32_t)(p->last_end - p->stmt_start)};
    func->stmts[func->n_stmts++] = *stmt;
    return KILN_STATUS_OK;
}

// Names that functions are called through: NAME: .callprototype (…) _ (…);
static enum kiln_status call_prototype(struct ptx_parser *p, struct ptx_name label) {
    struct ptx_func *func = p->func;
    struct ptx_name name;
    if (kiln_grow(&p->protos, &p->cap_protos, p->n_protos + 1, sizeof(*p->protos)) != 0) {
        return ptx_nomem(p);
    }
    struct ptx_proto *proto = &p->protos[p->n_protos++];
    *proto = (struct ptx_proto){0};
    KILN_TRY(ptx_next(p));
    p->func = NULL; // its registers are none of this function's
    enum kiln_status status = ptx_signature(p, proto, &name, 0);
    p->func = func;
    KILN_TRY(status);
    while (p->token.kind == PTX_DOT && ptx_is_dot(p, "noreturn")) {
        KILN_TRY(ptx_next(p));
    }
    KILN_TRY(ptx_define(p,
            &(struct ptx_symbol){
                    .kind = PTX_SYM_PROTO, .name = label, .index = (uint32_t)(p->n_protos - 1)}));
    return ptx_expect(p, ';');
}

// NAME: .branchtargets L1, L2;
static enum kiln_status branch_targets(struct ptx_parser *p, struct ptx_name label) {
    struct ptx_operand to = {.kind = PTX_OPERAND_LIST};
    struct ptx_operand read[MAX_OPERANDS];
    uint32_t index = 0;
    int taken = 1;
    KILN_TRY(ptx_next(p));
    to.first = (uint32_t)p->func->n_operands;
    while (taken) {
        if (p->token.kind != PTX_WORD) {
            return ptx_fail(p, "a label is wanted");
        }
        KILN_TRY(name_operand(p, &read[0]));
        KILN_TRY(add_operand(p, &read[0], &index));
        to.count++;
        KILN_TRY(ptx_accept(p, ',', &taken));
    }
    KILN_TRY(add_operand(p, &to, &index));
    KILN_TRY(ptx_define(
            p, &(struct ptx_symbol){.kind = PTX_SYM_TARGETS, .name = label, .index = index}));
    return ptx_expect(p, ';');
}

static enum kiln_status label(struct ptx_parser *p, struct ptx_name name) {
    KILN_TRY(ptx_next(p));
    if (ptx_is_dot(p, "callprototype")) {
        return call_prototype(p, name);
    }
    if (ptx_is_dot(p, "branchtargets")) {
        return branch_targets(p, name);
    }
    if (ptx_is_dot(p, "calltargets")) {
        return ptx_fail(p, ".calltargets is not modelled");
    }
    return ptx_define(
            p, &(struct ptx_symbol){
                       .kind = PTX_SYM_LABEL, .name = name, .index = (uint32_t)p->func->n_stmts});
}

static enum kiln_status registers(struct ptx_parser *p) {
    enum kiln_ptx_type type;
    int taken = 1;
    KILN_TRY(ptx_next(p));
    if (ptx_is_dot(p, "v2") || ptx_is_dot(p, "v4")) {
        return ptx_fail(p, "vector registers are not modelled");
    }
    if (p->token.kind != PTX_DOT || !ptx_type_of(p->token.name, &type)) {
        return ptx_fail(p, "a register's type is wanted");
    }
    uint32_t bytes = type == KILN_PTX_PRED ? 0 : (kiln_ptx_type_bits(type) + 7) / 8;
    bytes = bytes == 1 ? 2 : bytes;
    KILN_TRY(ptx_next(p));
    while (taken) {
        struct ptx_symbol symbol = {
                .kind = PTX_SYM_REG, .name = p->token.name, .bytes = bytes, .type = type};
        uint64_t count;
        int range;
        if (p->token.kind != PTX_WORD) {
            return ptx_fail(p, "a register's name is wanted");
        }
        KILN_TRY(ptx_next(p));
        KILN_TRY(ptx_accept(p, '<', &range));
        if (range) {
            if (p->token.kind != PTX_INT || p->token.value > INT32_MAX) {
                return ptx_fail(p, "a number of registers is wanted");
            }
            count = p->token.value;
            KILN_TRY(ptx_next(p));
            KILN_TRY(ptx_expect(p, '>'));
            symbol.kind = PTX_SYM_REGS;
            symbol.count = (uint32_t)count;
        } else {
            KILN_TRY(ptx_add_reg(p, bytes, &symbol.index));
        }
        KILN_TRY(ptx_define(p, &symbol));
        KILN_TRY(ptx_accept(p, ',', &taken));
    }
    return ptx_expect(p, ';');
}

// .loc FILE LINE COLUMN [, function_name NAME [+ N], inlined_at FILE LINE COLUMN]
static enum kiln_status place(struct ptx_parser *p, struct ptx_loc *loc) {
    uint32_t *const parts[] = {&loc->file, &loc->line, &loc->column};
    for (int i = 0; i < 3; i++) {
        if (p->token.kind != PTX_INT || p->token.value > (i == 0 ? UINT16_MAX : INT32_MAX)) {
            return ptx_fail(p, "file, line and column are wanted");
        }
        *parts[i] = (uint32_t)p->token.value;
        KILN_TRY(ptx_next(p));
    }
    loc->inlined = KILN_PTX_NONE;
    return KILN_STATUS_OK;
}

static uint64_t place_key(const struct ptx_loc *loc) {
    return (uint64_t)loc->file << 48 | (uint64_t)(loc->line & 0x7fffffff) << 16 |
           (loc->column & 0xffff);
}

static enum kiln_status add_loc(struct ptx_parser *p, const struct ptx_loc *loc, uint32_t *index) {
    uint32_t same = ptx_map_get(&p->loc_map, place_key(loc));
    if (same != KILN_PTX_NONE && memcmp(&p->locs[same], loc, sizeof(*loc)) == 0) {
        *index = same;
        return KILN_STATUS_OK;
    }
    if (kiln_grow(&p->locs, &p->cap_locs, p->n_locs + 1, sizeof(*p->locs)) != 0) {
        return ptx_nomem(p);
    }
    p->locs[p->n_locs] = *loc;
    *index = (uint32_t)p->n_locs++;
    return ptx_map_put(p, &p->loc_map, place_key(loc), *index);
}

enum kiln_status ptx_loc_directive(struct ptx_parser *p) {
    struct ptx_loc loc, outer;
    int64_t offset;
    KILN_TRY(ptx_next(p));
    KILN_TRY(place(p, &loc));
    int more = ptx_is(p, ',');
    while (more) {
        KILN_TRY(ptx_next(p));
        struct ptx_name name = p->token.name;
        if (p->token.kind != PTX_WORD) {
            return ptx_fail(p, "function_name or inlined_at is wanted");
        }
        KILN_TRY(ptx_next(p));
        if (ptx_same(name, "function_name") && p->token.kind == PTX_WORD) {
            KILN_TRY(ptx_next(p));
            KILN_TRY(offset_of(p, &offset));
        } else if (ptx_same(name, "inlined_at")) {
            KILN_TRY(place(p, &outer));
            uint32_t known = ptx_map_get(&p->loc_map, place_key(&outer));
            if (known == KILN_PTX_NONE) {
                KILN_TRY(add_loc(p, &outer, &known));
            }
            loc.inlined = known;
        } else {
            return ptx_fail(p, "function_name or inlined_at is wanted");
        }
        more = ptx_is(p, ',');
    }
    // Line 0 is the compiler's own code: it belongs to what came before.
    return loc.line == 0 && p->loc != KILN_PTX_NONE ? KILN_STATUS_OK : add_loc(p, &loc, &p->loc);
}

static enum kiln_status local_directive(struct ptx_parser *p) {
    static const struct {
        const char *name;
        enum kiln_ptx_space space;
    } spaces[] = {{"local", KILN_PTX_LOCAL}, {"param", KILN_PTX_CALLS}, {"shared", KILN_PTX_SHARED},
            {"global", KILN_PTX_GLOBAL}, {"const", KILN_PTX_CONSTANT}};
    if (ptx_is_dot(p, "loc")) {
        return ptx_loc_directive(p);
    }
    if (ptx_is_dot(p, "reg")) {
        return registers(p);
    }
    if (ptx_is_dot(p, "pragma")) {
        return ptx_pragma(p);
    }
    int is_extern = ptx_is_dot(p, "extern");
    if (is_extern) {
        KILN_TRY(ptx_next(p));
    }
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
        if (ptx_is_dot(p, spaces[i].name)) {
            KILN_TRY(ptx_next(p));
            return ptx_variables(p, spaces[i].space, is_extern);
        }
    }
    return ptx_fail(p, "an unknown directive");
}

static enum kiln_status block(struct ptx_parser *p, int nesting);

static enum kiln_status item(struct ptx_parser *p, int nesting) {
    struct ptx_stmt stmt = {.line = p->token.line, .guard = KILN_PTX_NONE};
    p->stmt_start = p->token_start;
    p->stmt_line = p->token.line;
    if (ptx_is(p, '{')) {
        return block(p, nesting + 1);
    }
    if (ptx_is(p, ';')) {
        return ptx_next(p);
    }
    if (p->token.kind == PTX_DOT) {
        return local_directive(p);
    }
    if (ptx_is(p, '@')) {
        KILN_TRY(guard(p, &stmt));
    }
    if (p->token.kind != PTX_WORD) {
        return ptx_fail(p, "an instruction is wanted");
    }
    struct ptx_name word = p->token.name;
    KILN_TRY(ptx_next(p));
    if (ptx_is(p, ':') && stmt.guard == KILN_PTX_NONE) {
        return label(p, word);
    }
    return instruction(p, word, &stmt);
}

static enum kiln_status block(struct ptx_parser *p, int nesting) {
    uint32_t outer, call_at = p->func->call_at;
    if (nesting > MAX_NESTING) {
        return ptx_fail(p, "blocks nested deeper than %d", (int)MAX_NESTING);
    }
    KILN_TRY(ptx_scope_open(p, &outer));
    KILN_TRY(ptx_expect(p, '{'));
    while (!ptx_is(p, '}')) {
        if (p->token.kind == PTX_END) {
            return ptx_fail(p, "'}' is wanted, and the text ends here");
        }
        KILN_TRY(item(p, nesting));
    }
    p->stmt_start = NULL;
    p->func->call_at = call_at; // what was declared for calls in here is free again
    p->scope = outer;
    return ptx_next(p);
}

enum kiln_status ptx_body(struct ptx_parser *p) {
    p->loc = KILN_PTX_NONE;
    enum kiln_status status = block(p, 0);
    p->stmt_start = NULL;
    return status;
}

// ---- Signatures ---------------------------------------------------------------------------------

static enum kiln_status formals(struct ptx_parser *p, struct ptx_proto *proto, int is_entry) {
    int taken;
    KILN_TRY(ptx_expect(p, '('));
    if (ptx_is(p, ')')) {
        return ptx_next(p);
    }
    do {
        struct ptx_formal formal;
        if (proto->count == MAX_FORMALS) {
            return ptx_fail(p, "more than %d parameters", (int)MAX_FORMALS);
        }
        KILN_TRY(ptx_formal(p, &formal));
        formal.offset = (proto->bytes + formal.align - 1) / formal.align * formal.align;
        proto->bytes = formal.offset + formal.bytes;
        if (kiln_grow(&proto->formals, &proto->cap, proto->count + 1, sizeof(formal)) != 0) {
            return ptx_nomem(p);
        }
        proto->formals[proto->count++] = formal;
        if (p->func && formal.reg == KILN_PTX_NONE) {
            KILN_TRY(ptx_define(
                    p, &(struct ptx_symbol){.kind = is_entry ? PTX_SYM_PARAM : PTX_SYM_CALL,
                               .name = formal.name,
                               .offset = formal.offset,
                               .bytes = formal.bytes}));
        }
        KILN_TRY(ptx_accept(p, ',', &taken));
    } while (taken);
    return ptx_expect(p, ')');
}

enum kiln_status ptx_signature(
        struct ptx_parser *p, struct ptx_proto *proto, struct ptx_name *name, int is_entry) {
    if (ptx_is(p, '(') && !is_entry) {
        KILN_TRY(formals(p, proto, is_entry));
        proto->n_results = (uint32_t)proto->count;
    }
    if (p->token.kind != PTX_WORD) {
        return ptx_fail(p, "a function's name is wanted");
    }
    *name = p->token.name;
    KILN_TRY(ptx_next(p));
    return ptx_is(p, '(') ? formals(p, proto, is_entry) : KILN_STATUS_OK;
}
