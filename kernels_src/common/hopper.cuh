// hopper: what only sm_90a has: matrix products of a warpgroup (4 warps) on operands in shared
// memory, copies of whole boxes by the copy engine, barriers that count its bytes, and registers
// handed from one warpgroup to another. Beside ptx.cuh, which has what all targets share.
//
// Operands lie as the copy engine leaves them with a 128-byte swizzle: rows of 64 halves, 8 rows a
// group of 1024 bytes, each buffer at a multiple of 1024.
#ifndef KILN_COMMON_HOPPER_CUH
#define KILN_COMMON_HOPPER_CUH

#include "common/bulk.cuh"

#if __CUDA_ARCH__ != 900 || !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#    error "hopper.cuh is for sm_90a"
#endif

struct __align__(64) hopper_map { // a tensor map, a kernel's parameter
    unsigned char bytes[128];
};

// ---- Copies -------------------------------------------------------------------------------------
// A box of a tensor of two dimensions, its corner at column x of row y; what is outside reads as 0.
PTX_INLINE void hopper_copy_2d(unsigned to, const hopper_map &map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :
                 : "r"(to), "l"(&map), "r"(x), "r"(y), "r"(barrier)
                 : "memory");
}

PTX_INLINE void hopper_prefetch_map(const hopper_map &map) {
    asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory");
}

// ---- Registers ----------------------------------------------------------------------------------
template <int Count> PTX_INLINE void hopper_give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(Count));
}

template <int Count> PTX_INLINE void hopper_take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(Count));
}

// ---- Products -----------------------------------------------------------------------------------
// Names a matrix in shared memory for a product: rows of 64 halves as above. Column 16 of it is 32
// bytes on.
PTX_INLINE unsigned long long hopper_matrix(unsigned address) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Before the first product after registers of sums were written.
PTX_INLINE void hopper_wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

PTX_INLINE void hopper_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

template <int Pending> PTX_INLINE void hopper_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(Pending) : "memory");
}

// d (64 x n, f32) += a (64 x 16) times b (n x 16) transposed, f16, both in shared memory. Warp w of
// the group holds rows 16w to 16w + 15; with g = lane / 4 and t = lane % 4: d[4j], d[4j + 1]: row
// g, columns 8j + 2t and + 1; d[4j + 2], d[4j + 3]: row g + 8.
#define HOPPER_8(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
            "+f"(d[i + 6]), "+f"(d[i + 7])

// clang-format off
PTX_INLINE void hopper_wgmma_n128(float (&d)[64], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63 "
                 "}, %64, %65, 1, 1, 1, 0, 0;"
                 : HOPPER_8(d, 0), HOPPER_8(d, 8), HOPPER_8(d, 16), HOPPER_8(d, 24),
                   HOPPER_8(d, 32), HOPPER_8(d, 40), HOPPER_8(d, 48), HOPPER_8(d, 56)
                 : "l"(a), "l"(b));
}

PTX_INLINE void hopper_wgmma_n256(float (&d)[128], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "
                 "%109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "
                 "%125, %126, %127 "
                 "}, %128, %129, 1, 1, 1, 0, 0;"
                 : HOPPER_8(d, 0), HOPPER_8(d, 8), HOPPER_8(d, 16), HOPPER_8(d, 24),
                   HOPPER_8(d, 32), HOPPER_8(d, 40), HOPPER_8(d, 48), HOPPER_8(d, 56),
                   HOPPER_8(d, 64), HOPPER_8(d, 72), HOPPER_8(d, 80), HOPPER_8(d, 88),
                   HOPPER_8(d, 96), HOPPER_8(d, 104), HOPPER_8(d, 112), HOPPER_8(d, 120)
                 : "l"(a), "l"(b));
}
// clang-format on

#endif
