// args: what a launch of this plugin passes to its kernels, and the kernels themselves.
//
// args[0] is one of the structs below (a BYTES argument, fixed when the op was planned). Operands
// follow; the struct says where: a field of type uint8_t is an index into args, 0 when the operand
// is absent. Strides are bytes from row to row. `s` is the bound of the rows; how many are in use
// stands at n_tokens. Blocks behind the rows in use return at once, so a result never depends on
// the bound, on the grid or on the number of threads.
//
// Letters: S rows (tokens), K and N columns of matmul's input and output, D model width, F
// feed-forward width, V vocabulary, H and HKV query and key/value heads, HD head size, T rows of
// the cache.
#ifndef CPU_ARGS_H
#define CPU_ARGS_H

#include "kiln/plugin.h"

#include <stdint.h>

// Those marked "sum order" decide which floats are added first.
enum {
    CPU_BLOCK_K = 256,     // columns expanded at a time; sum order of the plain C matmul
    CPU_SUM_K = 128,       // columns summed before they join the result; sum order with AVX2
    CPU_PANEL = 16,        // weight rows packed side by side
    CPU_BLOCK_N = 64,      // weight rows a block of the prefill matmul: 4 panels
    CPU_DECODE_ROWS = 256, // weight rows a block of the decode matmul, at most
    CPU_TILE_ROWS = 6,     // activation rows of the register tile
    CPU_TILE_KEYS = 64,    // keys of a softmax step, from multiples of it; sum order
    CPU_TILE_QUERIES = 48, // rows a block of the prefill attention
    CPU_ACTIVATION_COLUMNS = 4096, // a block
};

struct cpu_matmul {
    int64_t s, n, k;
    int64_t in_stride, weight_stride, out_stride, residual_stride;
    uint32_t dtype;     // enum kiln_dtype of WEIGHT
    int32_t block_rows; // prefill: activation rows a block; decode: weight rows a block
    uint8_t in, weight, bias, residual, out, n_tokens;
};

struct cpu_attention {
    int64_t s, t;
    int64_t q_stride, k_stride, v_stride, out_stride;
    int32_t heads, kv_heads, head_size;
    int32_t window;            // 0: none
    int32_t block_heads;       // decode: heads a block
    uint32_t k_dtype, v_dtype; // F32 or F16
    float scale, softcap;
    uint8_t q, k, v, positions, out, n_tokens;
};

struct cpu_rope {
    int64_t s, t;
    int64_t q_stride, k_stride, v_stride, out_stride, k_cache_stride, v_cache_stride;
    int32_t heads, kv_heads, head_size, rope_dims;
    uint32_t style;            // enum kiln_rope_style
    uint32_t k_dtype, v_dtype; // of the caches: F32 or F16
    float scale, eps;
    uint8_t q, k, v, q_norm, k_norm, freqs, positions, out, k_cache, v_cache, n_tokens;
};

struct cpu_rowwise { // embed, norm, activation, argmax
    int64_t s, columns;
    int64_t in_stride;    // norm and argmax: IN; activation: GATE; embed: WEIGHT
    int64_t other_stride; // norm: RESIDUAL; activation: UP
    int64_t out_stride;
    int64_t vocab;       // embed: rows of WEIGHT
    uint32_t dtype;      // embed: of WEIGHT
    uint32_t activation; // enum kiln_activation
    float scale, eps;
    uint8_t in, weight, other, out, n_tokens; // embed: in is IDS
};

// The operand at an index; NULL when absent.
void *cpu_arg(void *const *args, uint8_t index);
// The rows in use: *n_tokens within 0 .. bound, or the bound when there is no such operand.
int64_t cpu_rows(void *const *args, uint8_t n_tokens, int64_t bound);

// Scratch of one block in bytes, as the kernels divide it.
uint32_t cpu_matmul_scratch(int32_t block_rows);
uint32_t cpu_attention_scratch(int32_t head_size, int32_t queries);
uint32_t cpu_rope_scratch(int32_t head_size, int32_t rope_dims);

// a (k) · b (k): 8 sums, sum j over the columns j, j + 8 …, added in pairs. k at most CPU_BLOCK_K
// or so: the longer, the larger its error.
float cpu_dot_generic(const float *a, const float *b, int64_t k);
// Writes OUT[row][n0 .. n0 + n) = sums (n) + BIAS + RESIDUAL: the end of every matmul.
void cpu_matmul_finish(const struct cpu_matmul *params, void *const *args, const float *sums,
        int64_t row, int64_t n0, int64_t n);

// Kernels: kiln_host_fn. The grid of each is written where it is planned.
void cpu_matmul_prefill_generic(const struct kiln_block *block, void *const *args);
void cpu_matmul_decode_generic(const struct kiln_block *block, void *const *args);
void cpu_attention_generic(const struct kiln_block *block, void *const *args);
void cpu_rope_kv_generic(const struct kiln_block *block, void *const *args);
void cpu_embed_generic(const struct kiln_block *block, void *const *args);
void cpu_norm_generic(const struct kiln_block *block, void *const *args);
void cpu_activation_generic(const struct kiln_block *block, void *const *args);
void cpu_argmax_generic(const struct kiln_block *block, void *const *args);

// With AVX2, FMA and F16C; there only where CPU_HAVE_AVX2 is 1.
// cpu_matmul_finish, the same bits.
void cpu_matmul_finish_avx2(const struct cpu_matmul *params, void *const *args, const float *sums,
        int64_t row, int64_t n0, int n);
void cpu_matmul_prefill_avx2(const struct kiln_block *block, void *const *args);
void cpu_matmul_decode_avx2(const struct kiln_block *block, void *const *args);
void cpu_attention_prefill_avx2(const struct kiln_block *block, void *const *args);
void cpu_attention_decode_avx2(const struct kiln_block *block, void *const *args);
void cpu_activation_avx2(const struct kiln_block *block, void *const *args);

#endif
