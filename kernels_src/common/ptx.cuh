// ptx: thin wrappers of the PTX instructions that kiln's kernels are made of. Self-contained: no
// CUDA header is needed, so NVRTC compiles them anywhere. Not here: tiles, layouts, algorithms.
//
// Fragments are those of the PTX manual. With g = lane / 4 and t = lane % 4, for m16n8k16 with
// 16-bit inputs:
//   A (16 x 16) a[0]: row g,     columns 2t, 2t+1     a[1]: row g + 8, the same columns
//               a[2]: row g,     columns 2t+8, 2t+9   a[3]: row g + 8, the same columns
//   B (16 x 8)  b[0]: rows 2t, 2t+1 of column g       b[1]: rows 2t+8, 2t+9 of column g
//   C (16 x 8)  c[0], c[1]: row g, columns 2t, 2t+1   c[2], c[3]: row g + 8, the same columns
// So C of one product, packed in pairs, is A of the next: two C tiles side by side make one A.
//
// Shared memory is named by its 32-bit address (ptx_shared). What sm_75 lacks is split or done
// synchronously here.
#ifndef KILN_COMMON_PTX_CUH
#define KILN_COMMON_PTX_CUH

#define PTX_INLINE       static __device__ __forceinline__
#define PTX_NEG_INFINITY __int_as_float((int)0xff800000)

PTX_INLINE unsigned ptx_shared(const void *pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

PTX_INLINE int ptx_lane() {
    return (int)(threadIdx.x & 31);
}

// blockIdx, read anew each time: what is reckoned from it need not wait in registers for its next
// use.
PTX_INLINE int ptx_block_x() {
    int index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return index;
}

PTX_INLINE int ptx_block_y() {
    int index;
    asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(index));
    return index;
}

// ---- Numbers ------------------------------------------------------------------------------------
// A half is the low or high 16 bits of an unsigned; the low one comes first in memory.
PTX_INLINE float ptx_half_to_float(unsigned short half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

PTX_INLINE unsigned short ptx_float_to_half(float value) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

PTX_INLINE float ptx_low_half(unsigned pair) {
    return ptx_half_to_float((unsigned short)(pair & 0xffff));
}

PTX_INLINE float ptx_high_half(unsigned pair) {
    return ptx_half_to_float((unsigned short)(pair >> 16));
}

// Rounds to nearest, ties to even.
PTX_INLINE unsigned ptx_pack_half2(float low, float high) {
#if __CUDA_ARCH__ >= 800
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (unsigned)ptx_float_to_half(low) | (unsigned)ptx_float_to_half(high) << 16;
#endif
}

PTX_INLINE float ptx_bf16_to_float(unsigned short value) {
    return __int_as_float((int)((unsigned)value << 16));
}

// Rounds to nearest, ties to even; a NaN stays one.
PTX_INLINE unsigned short ptx_float_to_bf16(float value) {
    unsigned bits = (unsigned)__float_as_int(value);
    unsigned rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (unsigned short)((value == value ? rounded : bits | 0x400000) >> 16);
}

// 2^x within 2 ulp; subnormal results are 0.
PTX_INLINE float ptx_exp2(float x) {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

// 1 / x within 1 ulp.
PTX_INLINE float ptx_rcp(float x) {
    float value;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

// ---- Between the lanes of a warp ----------------------------------------------------------------
PTX_INLINE float ptx_xor_max(float value, int mask) {
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, mask));
}

PTX_INLINE float ptx_xor_sum(float value, int mask) {
    return value + __shfl_xor_sync(0xffffffffu, value, mask);
}

// Over all 32 lanes; every lane gets the result, with the same bits.
PTX_INLINE float ptx_warp_max(float value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        value = ptx_xor_max(value, mask);
    }
    return value;
}

PTX_INLINE float ptx_warp_sum(float value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        value = ptx_xor_sum(value, mask);
    }
    return value;
}

PTX_INLINE int ptx_warp_max_int(int value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        value = max(value, __shfl_xor_sync(0xffffffffu, value, mask));
    }
    return value;
}

PTX_INLINE int ptx_warp_min_int(int value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        value = min(value, __shfl_xor_sync(0xffffffffu, value, mask));
    }
    return value;
}

// ---- Shared memory ------------------------------------------------------------------------------
// Four 8 x 8 matrices of 16-bit elements. Lane l names row l % 8 of matrix l / 8: 16 bytes, 16-byte
// aligned. r[i] is matrix i: row g, elements 2t and 2t+1; with trans, rows 2t and 2t+1 of column g.
PTX_INLINE void ptx_ldmatrix_x4(unsigned (&r)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

PTX_INLINE void ptx_ldmatrix_x4_trans(unsigned (&r)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// Two matrices; lanes 0 to 15 name the rows.
PTX_INLINE void ptx_ldmatrix_x2(unsigned (&r)[2], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}

PTX_INLINE void ptx_ldmatrix_x2_trans(unsigned (&r)[2], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}

PTX_INLINE void ptx_store_shared(unsigned address, unsigned value) {
    asm volatile("st.shared.b32 [%0], %1;" : : "r"(address), "r"(value) : "memory");
}

PTX_INLINE void ptx_store_shared_v2(unsigned address, unsigned x, unsigned y) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" : : "r"(address), "r"(x), "r"(y) : "memory");
}

PTX_INLINE void ptx_store_shared_v4(unsigned address, uint4 value) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

// ---- Global to shared, in the background --------------------------------------------------------
// 16 bytes, both sides 16-byte aligned; where !valid, zeros are written and `from` is not read.
// Arrives with ptx_cp_async_wait; sm_75 copies at once.
PTX_INLINE void ptx_cp_async_16(unsigned to, const void *from, bool valid) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
                 : "memory");
#else
    uint4 value = make_uint4(0, 0, 0, 0);
    if (valid) {
        value = *(const uint4 *)from;
    }
    ptx_store_shared_v4(to, value);
#endif
}

// The same, and the rest of the 128-byte line may as well come into the second-level cache: for
// neighbours that others are about to ask for.
PTX_INLINE void ptx_cp_async_16_line(unsigned to, const void *from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from))
                 : "memory");
#else
    ptx_cp_async_16(to, from, true);
#endif
}

// The first `bytes` of 16, 0 to 16 and even; zeros behind them. `from` is 16-byte aligned.
PTX_INLINE void ptx_cp_async_part(unsigned to, const void *from, int bytes) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
#else
    unsigned words[4] = {0, 0, 0, 0};
#    pragma unroll
    for (int i = 0; i < 8; i++) {
        if (2 * i < bytes) {
            words[i / 2] |= (unsigned)((const unsigned short *)from)[i] << i % 2 * 16;
        }
    }
    ptx_store_shared_v4(to, make_uint4(words[0], words[1], words[2], words[3]));
#endif
}

// Closes a group of copies of this thread.
PTX_INLINE void ptx_cp_async_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

// Waits until at most `Pending` of this thread's groups are under way. Other threads see the data
// after a barrier.
template <int Pending> PTX_INLINE void ptx_cp_async_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(Pending) : "memory");
#endif
}

// To the level of cache that all multiprocessors share.
PTX_INLINE void ptx_prefetch(const void *from) {
    asm volatile("prefetch.global.L2 [%0];" : : "l"(__cvta_generic_to_global(from)) : "memory");
}

// ---- Launches that overlap ----------------------------------------------------------------------
// A launch with the flag DEPENDENT may begin while the one before it runs: as soon as all blocks of
// that one have said so, or have ended. What the one before wrote may be read only behind the wait;
// it ends when all of that work is done, also for a launch without the flag. Pointers to such
// values are not __restrict__: loads that take memory for constant could find what was there
// before. sm_90 and later; others run one launch after the other, and these do nothing.
PTX_INLINE void ptx_dependents_may_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

PTX_INLINE void ptx_wait_for_dependency() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// ---- Tensor cores -------------------------------------------------------------------------------
// c += a * b, f16 inputs, f32 sums. On sm_75 two steps of k 8, in order.
PTX_INLINE void ptx_mma_f16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

#if __CUDA_ARCH__ >= 800
// c += a * b, bf16 inputs, f32 sums; sm_80 and later.
PTX_INLINE void ptx_mma_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

PTX_INLINE void ptx_mma_u8_k16(int &c0, int &c1, unsigned a, unsigned b) {
    asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c0), "+r"(c1)
            : "r"(a), "r"(b));
}

PTX_INLINE void ptx_mma_s8_k16(int &c0, int &c1, unsigned a, unsigned b) {
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c0), "+r"(c1)
            : "r"(a), "r"(b));
}

// c (16 x 8, i32) += a (16 x 32, s8) * b (32 x 8, s8). Fragments as above with four bytes 4t ..
// 4t+3 (and + 16) where the 16-bit ones have two elements; so ldmatrix loads them, taking a pair of
// bytes for an element.
PTX_INLINE void ptx_mma_s8(int (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    ptx_mma_s8_k16(c[0], c[1], a[0], b0);
    ptx_mma_s8_k16(c[2], c[3], a[1], b0);
    ptx_mma_s8_k16(c[0], c[1], a[2], b1);
    ptx_mma_s8_k16(c[2], c[3], a[3], b1);
#endif
}

// The same with a as unsigned bytes.
PTX_INLINE void ptx_mma_u8(int (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    ptx_mma_u8_k16(c[0], c[1], a[0], b0);
    ptx_mma_u8_k16(c[2], c[3], a[1], b0);
    ptx_mma_u8_k16(c[0], c[1], a[2], b1);
    ptx_mma_u8_k16(c[2], c[3], a[3], b1);
#endif
}

#endif
