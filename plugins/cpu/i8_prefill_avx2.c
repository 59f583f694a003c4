// i8_prefill_avx2: the prefill matmul of the variant `q8` (i8.h).
//
// A block owns 64 weight rows × block_rows activation rows of OUT. For each 256 columns it unpacks
// its weight rows to unsigned bytes, packed in panels of 16 rows, 4 columns of each row side by
// side (16 KB: they stay in the first-level cache), and runs a register tile of 4 activation rows ×
// 16 weight rows over them: 4 columns of an activation row go to all lanes, so that a lane's
// products all belong to one output and nothing is ever added across lanes. Products of pairs
// gather in 16 bits for as many columns as cannot overflow: 32 for 4-bit weights, 16 for 5-bit
// ones, 8 for 6-bit ones, 4 for q8_0, whose signs go to the activations.
//
// Sum order: block by block, (a * scale) * Σ u q, then b * (scale * Σ q), both by fused
// multiply-adds onto the output's sum.
#include "i8.h"

#include "args.h"
#include "blocks_avx2.h"
#include "dequant.h"
#include "gemm_avx2.h"
#include "q8.h"

enum {
    CHUNK = 256,        // columns unpacked at a time
    STEPS = CHUNK / 16, // at most, in a chunk
    PANELS = CPU_BLOCK_N / CPU_PANEL,
};

struct panel { // 16 weight rows × 256 columns
    uint8_t u[CHUNK / 4][CPU_PANEL][4];
    float a[STEPS][CPU_PANEL];
    float b[STEPS][CPU_PANEL];
};

struct scratch {
    uint8_t rows[CPU_PANEL][CHUNK]; // unpacked, not yet packed
    struct panel panels[PANELS];
    float scales[CPU_I8_TILE_ROWS][STEPS]; // of the activations of a tile
    float sums[CPU_I8_TILE_ROWS][STEPS];   // scale * Σ q
};

uint32_t cpu_matmul_i8_prefill_scratch(int32_t block_rows) {
    return (uint32_t)(sizeof(struct scratch) + (size_t)block_rows * CPU_BLOCK_N * sizeof(float));
}

// ---- unpacking: one row's k columns of a chunk. u: (CHUNK); a, b: CPU_PANEL floats a step

CPU_INLINE void store_bytes(uint8_t *u, __m256i bytes) {
    _mm256_storeu_si256((__m256i *)(void *)u, bytes);
}

CPU_INLINE float f16_at(const uint8_t *at) {
    return _mm_cvtss_f32(cpu_load_f16(at));
}

static void unpack_32(uint32_t dtype, const uint8_t *at, int k, uint8_t *u, float *a, float *b) {
    const __m256i low = _mm256_set1_epi8(15);
    for (; k > 0; k -= 32, u += 32, a += CPU_PANEL, b += CPU_PANEL) {
        float d = f16_at(at);
        *a = d;
        if (dtype == KILN_DTYPE_Q4_0) {
            store_bytes(u, _mm256_and_si256(cpu_load_nibbles(at + CPU_Q4_0_QS), low));
            *b = -8 * d;
            at += CPU_Q4_0_BYTES;
        } else if (dtype == KILN_DTYPE_Q4_1) {
            store_bytes(u, _mm256_and_si256(cpu_load_nibbles(at + CPU_Q4_1_QS), low));
            *b = f16_at(at + CPU_Q4_1_M);
            at += CPU_Q4_1_BYTES;
        } else if (dtype == KILN_DTYPE_Q5_0) {
            store_bytes(u, cpu_bytes_q5_0(at));
            *b = -16 * d;
            at += CPU_Q5_0_BYTES;
        } else {
            store_bytes(u, cpu_load_32_bytes(at + CPU_Q8_0_QS));
            *b = 0;
            at += CPU_Q8_0_BYTES;
        }
    }
}

// k is 256 here.
static void unpack_256(uint32_t dtype, const uint8_t *at, uint8_t *u, float *a, float *b) {
    float factor[16], offset[16];
    int steps = 8;
    if (dtype == KILN_DTYPE_Q6_K) {
        steps = 16;
        for (int i = 0; i < 2; i++) {
            __m256 scales = cpu_factors_q6_K(at, i);
            _mm256_storeu_ps(factor + 8 * i, scales);
            _mm256_storeu_ps(offset + 8 * i, _mm256_mul_ps(scales, _mm256_set1_ps(-32)));
        }
        for (int part = 0; part < 8; part++) {
            store_bytes(u + 32 * part, cpu_bytes_q6_K(at, part));
        }
    } else {
        __m256 scaled;
        __m256 mins = cpu_factors_qk(at, &scaled);
        _mm256_storeu_ps(factor, scaled);
        _mm256_storeu_ps(offset, _mm256_sub_ps(_mm256_setzero_ps(), mins));
        for (int group = 0; group < 8; group++) {
            store_bytes(u + 32 * group,
                    dtype == KILN_DTYPE_Q5_K
                            ? cpu_bytes_q5_K(at, group)
                            : _mm256_and_si256(cpu_bytes_q4_K(at, group), _mm256_set1_epi8(15)));
        }
    }
    for (int i = 0; i < steps; i++) {
        a[i * CPU_PANEL] = factor[i];
        b[i * CPU_PANEL] = offset[i];
    }
}

// Columns k0 .. k0 + k of `n` weight rows from `weight` on.
static void make_panel(const struct cpu_matmul *params, const uint8_t *weight, int n, int64_t k0,
        int k, struct scratch *scratch, struct panel *panel) {
    const struct cpu_quant *quant = cpu_quant_find(params->dtype);
    if (n < CPU_PANEL) { // sums of absent rows are computed, and must not trap or be slow
        memset(panel->a, 0, sizeof(panel->a));
        memset(panel->b, 0, sizeof(panel->b));
    }
    for (int i = 0; i < n; i++) {
        const uint8_t *at = weight + i * params->weight_stride + k0 / quant->elems * quant->bytes;
        if (quant->elems == 32) {
            unpack_32(params->dtype, at, k, scratch->rows[i], &panel->a[0][i], &panel->b[0][i]);
        } else {
            unpack_256(params->dtype, at, scratch->rows[i], &panel->a[0][i], &panel->b[0][i]);
        }
    }
    // Four bytes travel as one number would.
    cpu_pack_avx2((const float *)(const void *)scratch->rows, CHUNK / 4, n, k / 4,
            (float *)(void *)panel->u);
}

// ---- the tile

struct kind { // what is a constant in each caller
    int step; // columns that share a and b
    int run;  // columns whose products gather in 16 bits
    int is_signed;
};

// gcc leaves the outer loops rolled, and then keeps the sums in memory; clang does what it should.
#ifdef __clang__
#    define UNROLL
#    define ROLL _Pragma("nounroll")
#else
#    define UNROLL _Pragma("GCC unroll 8")
#    define ROLL   _Pragma("GCC unroll 1")
#endif

// Σ u q of one step: m activation rows × 2 × 8 weight rows. in: the rows' q of this step.
CPU_INLINE void dot_step(struct kind kind, int m, const uint8_t *u, const int8_t *q,
        int64_t in_stride, __m256i total[CPU_I8_TILE_ROWS][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (int run = 0; run < kind.step; run += kind.run) {
        __m256i pairs[CPU_I8_TILE_ROWS][2];
        UNROLL for (int i = 0; i < m; i++) {
            pairs[i][0] = pairs[i][1] = _mm256_setzero_si256();
        }
        ROLL for (int j = run; j < run + kind.run; j += 4) { // unrolled, it would spill
            __m256i w[2] = {cpu_load_32_bytes(u + j / 4 * (4 * CPU_PANEL)),
                    cpu_load_32_bytes(u + j / 4 * (4 * CPU_PANEL) + 32)};
            UNROLL for (int i = 0; i < m; i++) {
                int32_t four;
                memcpy(&four, q + i * in_stride + j, sizeof(four));
                __m256i x = _mm256_set1_epi32(four);
                UNROLL for (int v = 0; v < 2; v++) {
                    __m256i p = kind.is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[v]),
                                                         _mm256_sign_epi8(x, w[v]))
                                               : _mm256_maddubs_epi16(w[v], x);
                    pairs[i][v] = _mm256_add_epi16(pairs[i][v], p);
                }
            }
        }
        UNROLL for (int i = 0; i < m; i++) {
            UNROLL for (int v = 0; v < 2; v++) {
                __m256i sums = _mm256_madd_epi16(pairs[i][v], ones);
                total[i][v] = run == 0 ? sums : _mm256_add_epi32(total[i][v], sums);
            }
        }
    }
}

// m activation rows × 16 weight rows over k columns. in: q8_32 blocks; sums: (m, CPU_BLOCK_N).
CPU_INLINE void tile(struct kind kind, int m, const char *in, int64_t in_stride,
        const struct panel *panel, const struct scratch *scratch, float *sums, int k, int add) {
    for (int step = 0; step < k / kind.step; step++) {
        int column = step * kind.step;
        const struct cpu_q8_block *x =
                (const struct cpu_q8_block *)(const void *)in + column / CPU_Q8_COLUMNS;
        __m256i total[CPU_I8_TILE_ROWS][2];
        dot_step(kind, m, &panel->u[column / 4][0][0], x->q + column % CPU_Q8_COLUMNS, in_stride,
                total);
        int first = !add && step == 0;
        UNROLL for (int v = 0; v < 2; v++) {
            __m256 a = _mm256_loadu_ps(&panel->a[step][8 * v]);
            __m256 b = _mm256_loadu_ps(&panel->b[step][8 * v]);
            UNROLL for (int i = 0; i < m; i++) {
                float *at = sums + i * CPU_BLOCK_N + 8 * v;
                __m256 sum = first ? _mm256_setzero_ps() : _mm256_loadu_ps(at);
                __m256 scale = _mm256_mul_ps(a, _mm256_broadcast_ss(&scratch->scales[i][step]));
                sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(total[i][v]), sum);
                if (!kind.is_signed) {
                    sum = _mm256_fmadd_ps(b, _mm256_broadcast_ss(&scratch->sums[i][step]), sum);
                }
                _mm256_storeu_ps(at, sum);
            }
        }
    }
}

CPU_INLINE void tile_rows(struct kind kind, int m, const char *in, int64_t in_stride,
        const struct panel *panel, const struct scratch *scratch, float *sums, int k, int add) {
    switch (m) {
    case 1:
        tile(kind, 1, in, in_stride, panel, scratch, sums, k, add);
        break;
    case 2:
        tile(kind, 2, in, in_stride, panel, scratch, sums, k, add);
        break;
    case 3:
        tile(kind, 3, in, in_stride, panel, scratch, sums, k, add);
        break;
    default:
        tile(kind, 4, in, in_stride, panel, scratch, sums, k, add);
        break;
    }
}

static void run_tile(uint32_t dtype, int m, const char *in, int64_t in_stride,
        const struct panel *panel, const struct scratch *scratch, float *sums, int k, int add) {
    switch (dtype) {
    case KILN_DTYPE_Q5_0:
    case KILN_DTYPE_Q5_K:
        tile_rows((struct kind){32, 16, 0}, m, in, in_stride, panel, scratch, sums, k, add);
        break;
    case KILN_DTYPE_Q6_K:
        tile_rows((struct kind){16, 8, 0}, m, in, in_stride, panel, scratch, sums, k, add);
        break;
    case KILN_DTYPE_Q8_0:
        tile_rows((struct kind){32, 4, 1}, m, in, in_stride, panel, scratch, sums, k, add);
        break;
    default:
        tile_rows((struct kind){32, 32, 0}, m, in, in_stride, panel, scratch, sums, k, add);
        break;
    }
}

// ---- the block

// The factors of m activation rows for the steps of k columns.
static void note_factors(
        uint32_t dtype, const char *in, int64_t in_stride, int m, int k, struct scratch *scratch) {
    int halves = dtype == KILN_DTYPE_Q6_K;
    for (int i = 0; i < m; i++) {
        const struct cpu_q8_block *x =
                (const struct cpu_q8_block *)(const void *)(in + i * in_stride);
        for (int block = 0; block < k / CPU_Q8_COLUMNS; block++, x++) {
            int first = x->sum;
            if (halves) {
                first = 0;
                for (int j = 0; j < 16; j++) {
                    first += x->q[j];
                }
                scratch->scales[i][2 * block + 1] = x->scale;
                scratch->sums[i][2 * block + 1] = x->scale * (float)(x->sum - first);
            }
            scratch->scales[i][block << halves] = x->scale;
            scratch->sums[i][block << halves] = x->scale * (float)first;
        }
    }
}

// Grid: x blocks of CPU_BLOCK_N weight rows, y blocks of block_rows activation rows.
void cpu_matmul_i8_prefill_avx2(const struct kiln_block *block, void *const *args) {
    const struct cpu_matmul *params = args[0];
    struct scratch *scratch = block->shared;
    float *sums = (float *)(void *)(scratch + 1); // (block_rows, CPU_BLOCK_N)
    int64_t s0 = (int64_t)block->index[1] * params->block_rows;
    int64_t left = cpu_rows(args, params->n_tokens, params->s) - s0;
    if (left <= 0) {
        return;
    }
    int rows = left > params->block_rows ? params->block_rows : (int)left;
    int64_t n0 = (int64_t)block->index[0] * CPU_BLOCK_N;
    int n = params->n - n0 > CPU_BLOCK_N ? CPU_BLOCK_N : (int)(params->n - n0);
    const uint8_t *weight = (const uint8_t *)args[params->weight] + n0 * params->weight_stride;
    for (int64_t k0 = 0; k0 < params->k; k0 += CHUNK) {
        int k = params->k - k0 > CHUNK ? CHUNK : (int)(params->k - k0);
        for (int panel = 0; panel < n; panel += CPU_PANEL) {
            make_panel(params, weight + panel * params->weight_stride,
                    n - panel < CPU_PANEL ? n - panel : CPU_PANEL, k0, k, scratch,
                    &scratch->panels[panel / CPU_PANEL]);
        }
        const char *in = (const char *)args[params->in] + s0 * params->in_stride +
                         k0 / CPU_Q8_COLUMNS * CPU_Q8_BYTES;
        for (int s = 0; s < rows;
                s += CPU_I8_TILE_ROWS, in += CPU_I8_TILE_ROWS * params->in_stride) {
            int m = rows - s < CPU_I8_TILE_ROWS ? rows - s : CPU_I8_TILE_ROWS;
            note_factors(params->dtype, in, params->in_stride, m, k, scratch);
            for (int panel = 0; panel < n; panel += CPU_PANEL) {
                run_tile(params->dtype, m, in, params->in_stride,
                        &scratch->panels[panel / CPU_PANEL], scratch,
                        sums + s * CPU_BLOCK_N + panel, k, k0 > 0);
            }
        }
    }
    for (int s = 0; s < rows; s++) {
        cpu_matmul_finish_avx2(params, args, sums + s * CPU_BLOCK_N, s0 + s, n0, n);
    }
}
