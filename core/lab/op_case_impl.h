// op_case_impl: what the files of op_case share: op_case.c (problems), op_case_data.c (numbers and
// formats), op_case_matmul.c, op_case_attention.c, op_case_rows.c (references), op_case_judge.c.
#ifndef KILN_LAB_OP_CASE_IMPL_H
#define KILN_LAB_OP_CASE_IMPL_H

#include "lab/op_case.h"
#include "lab/precision.h"
#include "plugin/arena.h"

// The reckoned rows of an edge, in the order of reference->rows: what an element is, and what it
// may be off by. A bound of HUGE_VAL: anything finite.
struct kiln_case_value {
    int64_t cols;
    double *v, *e; // (n_rows, cols)
};

struct kiln_case_reference {
    struct kiln_arena arena; // the problem and its data
    enum kiln_precision precision;
    int64_t m;     // rows in use
    int64_t *rows; // (n_rows): which of them are reckoned, ascending
    int64_t n_rows;
    struct kiln_case_value values[KILN_CASE_OPS * KILN_SOLO_OPERANDS]; // of what was reckoned
    void *read[KILN_CASE_OPS * KILN_SOLO_OPERANDS]; // what was read back last, kept for the next
    int done;
};

// ---- op_case.c ----------------------------------------------------------------------------------
const struct kiln_tensor *kiln_case_find(
        const struct kiln_op_case *c, uint32_t op, uint32_t operand); // NULL: it has none
const void *kiln_case_data(const struct kiln_op_case *c, uint32_t op, uint32_t operand);
struct kiln_case_value *kiln_case_value(
        const struct kiln_op_case *c, uint32_t op, uint32_t operand);

// ---- op_case_data.c -----------------------------------------------------------------------------
struct kiln_random {
    uint64_t state;
};
uint32_t kiln_random_bits(struct kiln_random *random);
float kiln_random_normal(struct kiln_random *random);
float kiln_f16_round(float value); // to the nearest that f16 holds

// Integers as exact_q8 makes them, 32 columns: with a the largest |x|, scale = a / 127, q = x *
// (127 / a) to nearest, ties to even; NaN or infinity among x: scale NaN, q 0; a < 2^-100: zeros.
struct kiln_q8 {
    float scale;
    int32_t sum; // of q
    int8_t q[32];
};
void kiln_q8_quantize(const float *x, struct kiln_q8 *block);

// A format of activations that the oracle reads and writes. Of rows of f16 the functions are NULL.
struct kiln_case_format {
    const char *name;
    uint32_t elems, bytes; // of a block
    void (*put)(unsigned char *row, int64_t cols, int64_t block, const struct kiln_q8 *q8);
    // Gives the block as it is there; the sum that the row states is *sum (scaled, or not).
    void (*get)(const unsigned char *row, int64_t cols, int64_t block, struct kiln_q8 *q8);
    // Whether the sum stated there is that of the block's integers.
    int (*sum_fits)(const unsigned char *row, int64_t cols, int64_t block);
};
const struct kiln_case_format *kiln_case_format_find(const char *name); // NULL: unknown

// The factor of a row of f16.
float kiln_case_scale(const struct kiln_tensor *tensor, const void *row);
// A row of an operand as numbers, and numbers as a row. Types: f32, f16, bf16, the formats above.
void kiln_case_decode(const struct kiln_tensor *tensor, const void *row, float *to);
void kiln_case_encode(const struct kiln_tensor *tensor, const float *from, void *row);

// Random blocks of a weight type, values about 0.02 wide. exact: factors are powers of two; edges:
// some blocks are zero, some have no minimum.
void kiln_case_fill_weight(struct kiln_random *random, const struct kiln_tensor *tensor,
        enum kiln_case_fill fill, void *data);
// One row of activations of a matrix by the rules of `fill`.
void kiln_case_fill_row(
        struct kiln_random *random, enum kiln_case_fill fill, int64_t row, float *x, int64_t cols);

// ---- References: each reckons an op's outputs, inputs are host data or values of earlier ops ----
// The reckoned rows of an input; e: what they are off by already, NULL: nothing. `owned` is freed
// by kiln_case_input_finish.
struct kiln_case_input {
    int64_t cols;
    const double *v, *e;
    double *owned;
};
KILN_MUST_CHECK enum kiln_status kiln_case_input(const struct kiln_op_case *c, uint32_t op,
        uint32_t operand, struct kiln_case_input *input, struct kiln_err *err);
void kiln_case_input_finish(struct kiln_case_input *input);
// Makes room for an output's rows.
KILN_MUST_CHECK enum kiln_status kiln_case_output(const struct kiln_op_case *c, uint32_t op,
        uint32_t operand, struct kiln_case_value **value, struct kiln_err *err);
// Adds what writing it in the tensor's format takes.
void kiln_case_round(const struct kiln_op_case *c, uint32_t op, uint32_t operand);

KILN_MUST_CHECK enum kiln_status kiln_case_matmul(
        const struct kiln_op_case *c, uint32_t op, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_case_attention(
        const struct kiln_op_case *c, uint32_t op, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_case_norm(
        const struct kiln_op_case *c, uint32_t op, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_case_rope(
        const struct kiln_op_case *c, uint32_t op, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_case_activation(
        const struct kiln_op_case *c, uint32_t op, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_case_embed(
        const struct kiln_op_case *c, uint32_t op, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_case_argmax(
        const struct kiln_op_case *c, uint32_t op, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_case_copy( // QUANTIZE: the same numbers
        const struct kiln_op_case *c, uint32_t op, struct kiln_err *err);

#endif
