// mmq_mma: 8-bit products on tensor cores whose integer sums come out as floats: each sum is begun
// from the bits of 1.5 * 2^23 as a float, so that I, of at most 2^22 in magnitude, arrives as the
// bits of MMQ_BIAS + I. Beside them, barriers and accesses to shared memory that only the int8
// kernels need.
#ifndef KILN_MATMUL_MMQ_MMA_CUH
#define KILN_MATMUL_MMQ_MMA_CUH

#include "common/ptx.cuh"

#define MMQ_BIAS      12582912.0f
#define MMQ_BIAS_BITS 0x4b400000

#if __CUDA_ARCH__ < 800
PTX_INLINE void mmq_mma_into(float (&d)[4], unsigned a0, unsigned a1, unsigned b, int (&c)[4]) {
    ptx_mma_s8_k16(c[0], c[1], a0, b);
    ptx_mma_s8_k16(c[2], c[3], a1, b);
#    pragma unroll
    for (int i = 0; i < 4; i++) {
        d[i] = __int_as_float(c[i]);
    }
}
#endif

// d (16 x 8) = MMQ_BIAS + a (16 x 32, s8) * b (32 x 8, s8). Fragments: ptx_mma_s8.
PTX_INLINE void mmq_mma_k32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    int c[4];
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(MMQ_BIAS_BITS));
#    pragma unroll
    for (int i = 0; i < 4; i++) {
        d[i] = __int_as_float(c[i]);
    }
#else
    int c[4] = {MMQ_BIAS_BITS, MMQ_BIAS_BITS, MMQ_BIAS_BITS, MMQ_BIAS_BITS};
    mmq_mma_into(d, a[0], a[1], b0, c);
    mmq_mma_into(d, a[2], a[3], b1, c);
#endif
}

// The same over 16 columns. a0, a1: rows g and g + 8, bytes 4t to 4t + 3; b: column g of b.
PTX_INLINE void mmq_mma_k16(float (&d)[4], unsigned a0, unsigned a1, unsigned b) {
#if __CUDA_ARCH__ >= 800
    int c[4];
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%7, %7, %7, %7};"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a0), "r"(a1), "r"(b), "r"(MMQ_BIAS_BITS));
#    pragma unroll
    for (int i = 0; i < 4; i++) {
        d[i] = __int_as_float(c[i]);
    }
#else
    int c[4] = {MMQ_BIAS_BITS, MMQ_BIAS_BITS, MMQ_BIAS_BITS, MMQ_BIAS_BITS};
    mmq_mma_into(d, a0, a1, b, c);
#endif
}

// Named barriers, 1 to 15, of whole warps. Shared memory that was written before an arrival is seen
// after the sync that it releases.
PTX_INLINE void mmq_barrier_sync(int number, int threads) {
    asm volatile("bar.sync %0, %1;" : : "r"(number), "r"(threads) : "memory");
}

PTX_INLINE void mmq_barrier_arrive(int number, int threads) {
    asm volatile("bar.arrive %0, %1;" : : "r"(number), "r"(threads) : "memory");
}

PTX_INLINE float mmq_load_shared(unsigned address) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
    return v;
}

PTX_INLINE float2 mmq_load_shared_v2(unsigned address) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(address)
                 : "memory");
    return v;
}

PTX_INLINE float4 mmq_load_shared_v4(unsigned address) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

// As ptx_cp_async_16, 8 bytes.
PTX_INLINE void mmq_cp_async_8(unsigned to, const void *from, bool valid) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(valid ? 8 : 0)
                 : "memory");
#else
    uint2 value = make_uint2(0, 0);
    if (valid) {
        value = *(const uint2 *)from;
    }
    ptx_store_shared_v2(to, value.x, value.y);
#endif
}

#endif
