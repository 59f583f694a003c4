// widen: a model rewritten into one that computes the same with larger heads.
//
// Kernels are written for a head size; few small models have that of the large ones. A widened
// model lets real text run through them: every head of q, k and v gets zero rows behind its own,
// attn_output zero columns in the same places, and the factor that the softmax scale loses,
// sqrt(new / old), goes into q. RoPE rotates the old dimensions only (rope.dimension_count): the
// padding lies behind them for either pair style.
//
// Rows of k and v are copied as they are, whatever their type: a block of zero bytes is zeros. Rows
// of q become f32, because the factor is no power of two in general and would otherwise be rounded
// to the precision of a block's scale, a change of the function; f32 keeps it to the last bit of an
// f32 sum. (Where the factor is a power of two, it stays f32 too: one rule.) attn_output keeps its
// type when old and new heads are whole blocks, and becomes f32 where they are not (256-value
// blocks and heads of 64).
//
// Architectures: llama and qwen2. Those with norms on q and k are refused: the mean over a padded
// head is another one, and the epsilon inside the norm cannot follow.
#ifndef KILN_MODEL_WIDEN_H
#define KILN_MODEL_WIDEN_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_widen {
    int32_t head_size; // of the result: even, above the model's own, at most 1024
    int (*stop)(void); // NULL, or asked now and then: not 0 ends in KILN_STATUS_INTERRUPTED
    void (*progress)(void *arg, int64_t done, int64_t total); // NULL, or told the bytes written
    void *progress_arg;
};

struct kiln_widen_result {
    int32_t old_head_size;
    size_t n_tensors;
    size_t n_f32; // matrices that became f32
    uint64_t file_bytes;
};

// Reads `in`, writes `out`, which may be the same file. A head size out of range is
// KILN_STATUS_USAGE, a model that cannot be widened KILN_STATUS_FILE with the tensor or key that
// prevents it. Nothing is left behind after a failure. `result` may be NULL.
KILN_MUST_CHECK enum kiln_status kiln_widen_write(const struct kiln_widen *widen, const char *in,
        const char *out, struct kiln_widen_result *result, struct kiln_err *err);

#endif
