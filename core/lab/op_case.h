// op_case: a problem with numbers: one op of a shape, or the adjacent ones that a variant fills,
// its operands in host memory, and what the result must be, element by element, with the bound that
// an element may be off by.
//
// What `gate parity` runs over variants x shapes x types, what `op` and `tune` judge a kernel with.
// The reference is reckoned in float64 on the host, by nobody's kernel. Deterministic: the same
// shape and seed give the same bytes on every platform. Not here: running anything (solo.h).
#ifndef KILN_LAB_OP_CASE_H
#define KILN_LAB_OP_CASE_H

#include "base/status.h"
#include "engine/solo.h"
#include "kiln/plugin.h"

#include <stddef.h>
#include <stdint.h>

enum kiln_case_fill { // what the inputs are made of
    KILN_FILL_NORMAL, // about normal
    KILN_FILL_EDGES, // planted: zero rows, 32 equal values whose sum passes 65504, subnormals, huge
                     // ones; attention: scores of -inf, rows with one key or all alike; argmax: NaN
    KILN_FILL_MASKED, // attention and rope_kv: the first rows see no key (kv_len < m)
    KILN_FILL_EXACT,  // matmul: scales are powers of two, so that int8 sums lose nothing in f32
    KILN_FILL_NONE,   // no data at all: to be planned, not to be run or judged
};

enum kiln_shape_with { // optional operands, or-ed
    KILN_WITH_BIAS = 1,
    KILN_WITH_RESIDUAL = 2,
    KILN_WITH_NORMS = 4,    // rope_kv: Q_NORM and K_NORM
    KILN_WITH_IN_PLACE = 8, // OUT is RESIDUAL, GATE or Q
    KILN_WITH_PAIRS = 16,   // rope_kv: KILN_ROPE_PAIRS
    KILN_WITH_PART = 32,    // rope_kv: half of a head's columns turn
};

// A dtype field of 0, which is f32's number, asks for the default; this asks for f32.
#define KILN_SHAPE_F32 UINT32_MAX

// Zero: the slot's default, that of a 7B model.
struct kiln_shape {
    int64_t m, n,
            k; // rows; matmul: outputs, inputs; norm, rope …: k columns; embed, argmax: n words
    int32_t n_heads, n_kv_heads, head_size, window;
    int64_t kv_len; // keys in the cache after this call; fewer than m: the first rows see none
    int64_t bound;  // of the rows, m of them in use; 0: m
    uint32_t weight_dtype; // enum kiln_dtype, where the slot does not name it
    uint32_t last_dtype;   // of the last matrix of a group; 0: as the others
    uint32_t kv_dtype;     // 0: the first that the variant lists, else f16
    uint32_t activation;   // enum kiln_activation
    uint32_t format;       // which of the formats that the variant lists for an edge: 0 the first
    uint32_t with;         // enum kiln_shape_with
    float softcap;
};

enum {
    KILN_CASE_OPS = 8
};

struct kiln_case_reference;

struct kiln_op_case {
    struct kiln_problem problem;
    // As struct kiln_solo_params wants them.
    const void *data[KILN_CASE_OPS * KILN_SOLO_OPERANDS];
    uint32_t edges[KILN_CASE_OPS * KILN_SOLO_OPERANDS];
    struct kiln_shape shape; // as asked for, the defaults filled in
    enum kiln_case_fill fill;
    struct kiln_case_reference *reference; // owns all of the above, and what is known of the result
};

// slot: "attention.prefill", "matmul.q4_K.decode", "norm" …; the ops behind the first are those of
// variant->follows (variant NULL: the single op, edges f32). A shape that cannot be (columns that
// are no multiple of a block, heads no multiple of KV heads), a format or a group of ops that the
// oracle does not know is KILN_STATUS_USAGE and says which. The caller ends *c with
// kiln_op_case_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_op_case_make(struct kiln_op_case *c, const char *slot,
        const struct kiln_plugin *plugin, const struct kiln_variant *variant,
        const struct kiln_shape *shape, enum kiln_case_fill fill, uint64_t seed,
        struct kiln_err *err);
// A problem with numbers from elsewhere, such as a call of a real run: `data` and `edges` as struct
// kiln_solo_params wants them, every input there, positions and ids within what they point into.
// All of it outlives the case. The variant is the one that is judged. The same holds of its end.
KILN_MUST_CHECK enum kiln_status kiln_op_case_adopt(struct kiln_op_case *c,
        const struct kiln_problem *problem, const void *const *data, const uint32_t *edges,
        const struct kiln_plugin *plugin, const struct kiln_variant *variant, struct kiln_err *err);
void kiln_op_case_finish(struct kiln_op_case *c); // a zeroed one is fine

// "m=65 n=257 k=512 q4_K", "m=129 kv=193 heads=28/4 hd=128 window=64": for cases[] and messages.
void kiln_op_case_name(const struct kiln_op_case *c, char *name, size_t size);

struct kiln_op_verdict {
    int passed;
    double worst;      // largest error / bound over all elements (<= 1 passes; HUGE_VAL: NaN, inf)
    double normalized; // largest |error| / largest |reference| (printed beside the seed's 1e-4)
    uint32_t op, operand; // whose element is the worst
    int64_t row, col;     // of it
    double got, want, bound;
    char why[128]; // of a failure that is no error of an element: bytes that must stay and did not
};

// Reckons the reference, once; it is kept in the case. The judges below do so themselves.
KILN_MUST_CHECK enum kiln_status kiln_op_case_reckon(struct kiln_op_case *c, struct kiln_err *err);

// Reckons the reference (once, kept in the case) and judges what solo wrote. Where a problem is
// large only some of its rows are reckoned and the others are checked to be finite; *verdict covers
// all outputs that others can see. NaN or infinity where the reference is finite never passes; a
// reference that is not finite is an error of ours: KILN_STATUS_CHECK.
KILN_MUST_CHECK enum kiln_status kiln_op_case_judge(struct kiln_op_case *c, struct kiln_solo *solo,
        struct kiln_op_verdict *verdict, struct kiln_err *err);

// The same of outputs that are in host memory: outputs[i] as data[i], NULL: not written.
KILN_MUST_CHECK enum kiln_status kiln_op_case_judge_bytes(struct kiln_op_case *c,
        const void *const *outputs, struct kiln_op_verdict *verdict, struct kiln_err *err);

// Whether an operand of an op is written by the call and seen by others.
int kiln_op_case_is_output(const struct kiln_op_case *c, uint32_t op, uint32_t operand);

#endif
