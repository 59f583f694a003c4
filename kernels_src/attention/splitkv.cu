// splitkv: decode attention over a cache in which all keys are (fa_decode.cuh). Grid (splits, KV
// heads, rows * groups of 16 heads), FA_TKV / 16 warps.
#include "attention/fa_decode.cuh"

extern "C" __device__ const unsigned kiln_layout_splitkv[] = FA_LAYOUT;

// q (S, H*HD); k, v (T, HKV*HD); positions (S); n_tokens, kv_len (1) or NULL; parts (S, H, splits,
// HD); part_rows (S, H, splits, 2): maximum, in units of the score, and sum. FA_LAST: counters (S *
// groups, HKV), zeros; out (S, H*HD).
extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS) splitkv(const fa_q_type *q,
        const fa_half *k, const fa_half *v, const int *__restrict__ positions, float *parts,
        float *part_rows, unsigned *counters, fa_out_type *out, const int *__restrict__ n_tokens,
        const int *__restrict__ kv_len, const fa_args args) {
    ptx_dependents_may_start();
    ptx_wait_for_dependency();
    fa_task task;
    if (!fa_take_task(task, positions, n_tokens, kv_len, args)) {
        return;
    }
    fa_part part = fa_begin_part(task, k, v, -1, args);
    fa_stage_heads(part.q_at, q + task.row * args.q_stride + task.head * FA_HD, task.heads);
    fa_decode(task, part, k, v, parts, part_rows, counters, out, args);
}
