// ptx_impl: what the files of the PTX front end share: ptx_lex.c (tokens and errors), ptx_scope.c
// (names), ptx_parse.c (modules), ptx_var.c (variables), ptx_body.c (functions' statements and
// operands), ptx_decode.c and ptx_alu.c, ptx_mem.c, ptx_bulk.c, ptx_warp.c, ptx_control.c,
// ptx_mma.c (instructions), ptx_flow.c (control flow), ptx_slots.c (places in the frame),
// ptx_build.c (kernels).
//
// Two steps: the text becomes statements with names looked up (struct ptx_func); then each entry,
// with the functions that it reaches, is decoded (struct ptx_decode). All of this lives within
// kiln_ptx_open.
#ifndef KILN_DEVICE_SIM_PTX_IMPL_H
#define KILN_DEVICE_SIM_PTX_IMPL_H

#include "device/sim/ptx.h"

struct ptx_name { // a piece of the text
    const char *text;
    uint32_t len;
};

// ---- Tokens -------------------------------------------------------------------------------------

enum ptx_token_kind {
    PTX_END,
    PTX_WORD,  // add, %r1, $L__BB0_1, _
    PTX_DOT,   // .reg, .f32, .L2::128B; the name is without the dot
    PTX_INT,   // value
    PTX_REAL,  // bits of an f64 (decimal literals and 0d…)
    PTX_REAL4, // bits of an f32 (0f…)
    PTX_STRING,
    PTX_PUNCT, // one character: punct
};

struct ptx_token {
    enum ptx_token_kind kind;
    struct ptx_name name;
    uint64_t value;
    uint32_t line;
    char punct;
};

// ---- Names --------------------------------------------------------------------------------------

enum ptx_symbol_kind {
    PTX_SYM_REG,     // index: register of the function
    PTX_SYM_REGS,    // %r<count>: used under %r0 … ; bytes, type
    PTX_SYM_VAR,     // index: variable of the module
    PTX_SYM_LOCAL,   // offset in the function's local memory
    PTX_SYM_PARAM,   // offset among the entry's parameters
    PTX_SYM_CALL,    // offset in the call area; bytes
    PTX_SYM_FUNC,    // index: function of the module
    PTX_SYM_LABEL,   // index: statement of the function
    PTX_SYM_PROTO,   // index: prototype of the parser
    PTX_SYM_TARGETS, // index: operand list of the function
};

struct ptx_symbol {
    enum ptx_symbol_kind kind;
    struct ptx_name name;
    uint32_t scope;
    uint32_t index;
    uint32_t bytes, type, count;
    uint64_t offset;
};

// A map from 64-bit keys to numbers; zeroed: empty.
struct ptx_map {
    uint64_t *keys;
    uint32_t *values; // + 1; 0: free
    size_t count, cap;
};

// ---- Statements ---------------------------------------------------------------------------------

enum ptx_operand_kind {
    PTX_OPERAND_REG,    // index
    PTX_OPERAND_INT,    // value
    PTX_OPERAND_REAL,   // value: bits of an f64
    PTX_OPERAND_REAL4,  // value: bits of an f32
    PTX_OPERAND_SREG,   // index: enum kiln_ptx_sreg
    PTX_OPERAND_SYMBOL, // index: symbol; value: offset (addresses of variables)
    PTX_OPERAND_SINK,   // _
    PTX_OPERAND_LIST,   // {…} or (…): elements first … first + count
    PTX_OPERAND_ADDR,   // […]: base: operand first (a register), or count 0 and only value; or a
                        // symbol: kind of element first is SYMBOL
    PTX_OPERAND_NAME,   // a name that nothing has yet: a label further down; index: scope
    PTX_OPERAND_PAIR,   // p|q: elements first, first + 1
    PTX_OPERAND_TENSOR, // [a, {…}]: elements first (ADDR), first + 1 (LIST)
};

struct ptx_operand {
    uint8_t kind;    // enum ptx_operand_kind
    uint8_t negated; // !p
    uint32_t index, first, count;
    int64_t value;
    struct ptx_name name;
};

struct ptx_stmt {
    struct ptx_name word; // "add.s32"
    struct ptx_name text; // whole, for messages
    uint32_t line, where; // PTX line; loc of the parser or NONE
    uint32_t guard;       // register or NONE
    uint32_t guard_not;
    uint32_t first, count; // operands
};

struct ptx_reg {
    uint8_t bytes;   // 0: a predicate
    uint8_t watched; // a WGMMA may be at work on it (ptx_slots.c)
};

struct ptx_formal {
    struct ptx_name name;
    uint32_t offset, bytes, align, type, pointer;
    uint32_t reg; // register that it is (.reg formals), NONE: .param
};

struct ptx_proto { // results, then parameters, laid out in a call area
    struct ptx_formal *formals;
    size_t count, cap;
    uint32_t n_results;
    uint32_t bytes;
};

struct ptx_func {
    struct ptx_name name;
    int is_entry, has_body, is_noreturn;
    uint32_t line;
    struct ptx_proto proto;
    struct ptx_reg *regs;
    size_t n_regs, cap_regs;
    struct ptx_operand *operands;
    size_t n_operands, cap_operands;
    struct ptx_stmt *stmts;
    size_t n_stmts, cap_stmts;
    uint32_t call_at, call_bytes; // of the call area: in use here, at most
    uint32_t local_bytes;
    uint32_t max_block[3], req_block[3], min_blocks;
};

struct ptx_loc {                          // of .loc
    uint32_t file, line, column, inlined; // inlined: loc or NONE
};

struct ptx_parser {
    const char *name, *text, *at, *end;
    struct kiln_err *err;
    uint32_t line;
    struct ptx_token token;  // looked at, not yet taken
    const char *token_start; // where it begins
    const char *last_end;    // end of the token taken last
    uint32_t depth;
    // Of the statement at hand, for messages.
    const char *stmt_start;
    uint32_t stmt_line, loc; // loc in force, NONE
    struct kiln_ptx_module *module;
    size_t cap_vars, cap_files, cap_wheres;
    struct ptx_loc *locs;
    size_t n_locs, cap_locs;
    struct ptx_map loc_map;
    struct ptx_symbol *symbols;
    size_t n_symbols, cap_symbols;
    struct ptx_map symbol_map;
    uint32_t *scopes; // parent of each
    size_t n_scopes, cap_scopes;
    uint32_t scope; // the one at hand; 0: the module
    struct ptx_func *funcs;
    size_t n_funcs, cap_funcs;
    struct ptx_proto *protos;
    size_t n_protos, cap_protos;
    struct ptx_func *func; // being read, NULL: none
};

// ptx_lex.c
KILN_MUST_CHECK enum kiln_status ptx_fail(struct ptx_parser *p, const char *fmt, ...)
        KILN_PRINTF(2, 3);
// As ptx_fail, for a statement that has been read.
KILN_MUST_CHECK enum kiln_status ptx_fail_stmt(
        struct ptx_parser *p, const struct ptx_stmt *stmt, const char *fmt, ...) KILN_PRINTF(3, 4);
KILN_MUST_CHECK enum kiln_status ptx_nomem(struct ptx_parser *p);
KILN_MUST_CHECK enum kiln_status ptx_next(struct ptx_parser *p); // takes the token, reads another
int ptx_is(const struct ptx_parser *p, char punct);
int ptx_is_dot(const struct ptx_parser *p, const char *name);
int ptx_same(struct ptx_name name, const char *text);
KILN_MUST_CHECK enum kiln_status ptx_expect(struct ptx_parser *p, char punct);
KILN_MUST_CHECK enum kiln_status ptx_accept(struct ptx_parser *p, char punct, int *taken);
KILN_MUST_CHECK enum kiln_status ptx_uint(struct ptx_parser *p, uint64_t max, uint64_t *value);
// An integer expression, and a number of any kind as an operand.
KILN_MUST_CHECK enum kiln_status ptx_expression(struct ptx_parser *p, int64_t *value);

// ptx_scope.c
KILN_MUST_CHECK enum kiln_status ptx_map_put(
        struct ptx_parser *p, struct ptx_map *map, uint64_t key, uint32_t value);
uint32_t ptx_map_get(const struct ptx_map *map, uint64_t key); // NONE: not there
void ptx_map_finish(struct ptx_map *map);
KILN_MUST_CHECK enum kiln_status ptx_scope_open(struct ptx_parser *p, uint32_t *outer);
KILN_MUST_CHECK enum kiln_status ptx_define(struct ptx_parser *p, const struct ptx_symbol *symbol);
// Looked for from `scope` outwards; NULL: there is none.
struct ptx_symbol *ptx_find(const struct ptx_parser *p, uint32_t scope, struct ptx_name name);
// The register of that name, made when it belongs to a range and is used first; NONE: none.
KILN_MUST_CHECK enum kiln_status ptx_find_reg(
        struct ptx_parser *p, struct ptx_name name, uint32_t *reg);
KILN_MUST_CHECK enum kiln_status ptx_add_reg(struct ptx_parser *p, uint32_t bytes, uint32_t *reg);

// ptx_var.c
int ptx_type_of(struct ptx_name name, enum kiln_ptx_type *type); // "f32"; 0: it is none
// A declaration behind its space directive, up to and with the ';'.
KILN_MUST_CHECK enum kiln_status ptx_reserve_shared(
        struct ptx_parser *p, struct ptx_name name, uint32_t *symbol);
KILN_MUST_CHECK enum kiln_status ptx_variables(
        struct ptx_parser *p, enum kiln_ptx_space space, int is_extern);
// A parameter or result, `.param …` or `.reg …`.
KILN_MUST_CHECK enum kiln_status ptx_formal(struct ptx_parser *p, struct ptx_formal *formal);

// ptx_body.c
KILN_MUST_CHECK enum kiln_status ptx_body(struct ptx_parser *p); // '{' … '}'
KILN_MUST_CHECK enum kiln_status ptx_signature(
        struct ptx_parser *p, struct ptx_proto *proto, struct ptx_name *name, int is_entry);
KILN_MUST_CHECK enum kiln_status ptx_loc_directive(struct ptx_parser *p);
int ptx_sreg_of(struct ptx_name name, enum kiln_ptx_sreg *sreg); // "%tid.x"

// ptx_parse.c
KILN_MUST_CHECK enum kiln_status ptx_pragma(struct ptx_parser *p);
void ptx_kernel_finish(struct kiln_ptx_kernel *kernel);

// ---- Decoding -----------------------------------------------------------------------------------

struct ptx_constants { // of a kernel
    struct ptx_map map;
    struct kiln_ptx_kernel *kernel;
    size_t cap, cap_relocs;
};

enum {
    PTX_MAX_WORDS = 24
};

struct ptx_decode { // one function of one kernel
    struct ptx_parser *p;
    struct ptx_func *func;
    struct kiln_ptx_kernel *kernel;
    struct kiln_ptx_function *out;
    struct ptx_constants *constants;
    const uint32_t *shared_at; // offset of each variable of the module in shared memory
    int is_entry;
    size_t cap_insns, cap_where, cap_lists;
    uint32_t *first_insn; // of each statement
    const struct ptx_stmt *stmt;
    struct ptx_name words[PTX_MAX_WORDS]; // of the opcode at hand
    uint32_t n_words, word;
    uint32_t carry;            // predicate register of add.cc and its like, NONE: not used yet
    struct kiln_ptx_insn insn; // being filled in
};

// ptx_build.c
KILN_MUST_CHECK enum kiln_status ptx_build(struct ptx_parser *p);

// ptx_decode.c
KILN_MUST_CHECK enum kiln_status ptx_decode_function(struct ptx_decode *d);
KILN_MUST_CHECK enum kiln_status ptx_bad(struct ptx_decode *d, const char *fmt, ...)
        KILN_PRINTF(2, 3);
KILN_MUST_CHECK enum kiln_status ptx_emit(struct ptx_decode *d); // appends d->insn
// The instruction is there from that target on (90: sm_90): an assembler refuses it for others.
KILN_MUST_CHECK enum kiln_status ptx_needs(struct ptx_decode *d, uint32_t target);
// Begins an instruction under the statement's guard, all operands absent.
void ptx_blank(struct ptx_decode *d, enum kiln_ptx_op op);
KILN_MUST_CHECK enum kiln_status ptx_temp(struct ptx_decode *d, uint32_t bytes, uint32_t *reg);
// Words of the opcode, in order.
int ptx_word(struct ptx_decode *d, const char *word); // takes the next word when it is this one
int ptx_words_left(const struct ptx_decode *d);
KILN_MUST_CHECK enum kiln_status ptx_words_end(struct ptx_decode *d); // nothing may be left
KILN_MUST_CHECK enum kiln_status ptx_word_type(
        struct ptx_decode *d, uint64_t allowed, uint8_t *type);
// Takes the next word when it is one of the names; the index, or -1.
int ptx_word_of(struct ptx_decode *d, const char *const *names, int count);
KILN_MUST_CHECK enum kiln_status ptx_count(struct ptx_decode *d, uint32_t min, uint32_t max);
const struct ptx_operand *ptx_operand(const struct ptx_decode *d, uint32_t number);
uint32_t ptx_type_bytes(uint32_t type); // of a register for it: 0, 2, 4, 8, 16

// Operands. bytes: that the register must have, 0: a predicate; PTX_ANY: any but a predicate.
enum {
    PTX_ANY = 99
};
KILN_MUST_CHECK enum kiln_status ptx_source(struct ptx_decode *d, const struct ptx_operand *operand,
        uint32_t bytes, uint32_t type, uint32_t *to, uint8_t *reg_bytes);
KILN_MUST_CHECK enum kiln_status ptx_dest(struct ptx_decode *d, const struct ptx_operand *operand,
        uint32_t bytes, uint32_t *to, uint8_t *reg_bytes);
KILN_MUST_CHECK enum kiln_status ptx_dest_pair(
        struct ptx_decode *d, const struct ptx_operand *operand, uint32_t bytes); // d|p to d and d2
KILN_MUST_CHECK enum kiln_status ptx_address(struct ptx_decode *d,
        const struct ptx_operand *operand, uint32_t *base, uint8_t *base_bytes, int64_t *offset);
// {…} of `count` operands (0: as many as there are) into `to`, or one in place.
KILN_MUST_CHECK enum kiln_status ptx_list(struct ptx_decode *d, const struct ptx_operand *operand,
        uint32_t count, uint32_t bytes, int is_dest, uint32_t *to, uint8_t *n, uint8_t *reg_bytes);
KILN_MUST_CHECK enum kiln_status ptx_number(
        struct ptx_decode *d, const struct ptx_operand *operand, int64_t *value);
KILN_MUST_CHECK enum kiln_status ptx_constant(
        struct ptx_decode *d, uint32_t bytes, uint64_t value, uint32_t *to);
KILN_MUST_CHECK enum kiln_status ptx_push_list(
        struct ptx_decode *d, const uint32_t *values, uint32_t count, uint32_t *first);

// A decoder of an opcode: fills d->insn and emits it. `sub` comes from the table.
typedef enum kiln_status (*ptx_decode_fn)(struct ptx_decode *d);
struct ptx_opcode {
    const char *name;
    ptx_decode_fn decode;
    uint16_t op;
};
// ptx_bulk.c: behind `cp.async.bulk`.
KILN_MUST_CHECK enum kiln_status ptx_decode_bulk(struct ptx_decode *d);
// ptx_tensor.c: behind `cp.async.bulk.tensor`.
KILN_MUST_CHECK enum kiln_status ptx_decode_tensor(struct ptx_decode *d);
// ptx_alu.c, ptx_mem.c, ptx_bulk.c, ptx_warp.c, ptx_control.c, ptx_mma.c: NULL: none of theirs.
const struct ptx_opcode *ptx_alu_opcode(struct ptx_name name);
const struct ptx_opcode *ptx_mem_opcode(struct ptx_name name);
const struct ptx_opcode *ptx_bulk_opcode(struct ptx_name name);
const struct ptx_opcode *ptx_warp_opcode(struct ptx_name name);
const struct ptx_opcode *ptx_flow_opcode(struct ptx_name name);
const struct ptx_opcode *ptx_mma_opcode(struct ptx_name name);
const struct ptx_opcode *ptx_wgmma_opcode(struct ptx_name name);

// ---- Flow and places ----------------------------------------------------------------------------

struct ptx_block {
    uint32_t first, end; // instructions
    uint32_t join;       // block that post-dominates it, NONE: the function's end
};

struct ptx_flow {
    struct ptx_block *blocks;
    uint32_t *edges; // successors of all blocks
    uint32_t *edge_at;
    uint32_t n_blocks;
    uint32_t *block_of; // of each instruction
};

// ptx_flow.c: finds blocks and fills in `join` of branches.
KILN_MUST_CHECK enum kiln_status ptx_flow_make(
        struct ptx_flow *flow, struct kiln_ptx_function *function, struct kiln_err *err);
void ptx_flow_finish(struct ptx_flow *flow);

// ptx_slots.c: replaces register numbers in operands by places in the frame.
KILN_MUST_CHECK enum kiln_status ptx_slots(struct kiln_ptx_function *function,
        const struct ptx_flow *flow, struct ptx_reg *regs, uint32_t n_regs, struct kiln_err *err);

// For the analyzer, which does not look into other files: these never return OK.
#ifdef __clang_analyzer__
#    define ptx_fail(p, ...) ((void)(ptx_fail)(p, __VA_ARGS__), KILN_STATUS_FILE)
#    define ptx_fail_stmt(p, stmt, ...) \
        ((void)(ptx_fail_stmt)(p, stmt, __VA_ARGS__), KILN_STATUS_FILE)
#    define ptx_nomem(p)    ((void)(ptx_nomem)(p), KILN_STATUS_NOMEM)
#    define ptx_bad(d, ...) ((void)(ptx_bad)(d, __VA_ARGS__), KILN_STATUS_FILE)
#endif

#endif
