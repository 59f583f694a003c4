// bulk: copies of many bytes to shared memory by the copy engine, and barriers that count them.
// sm_90 and later.
#ifndef KILN_COMMON_BULK_CUH
#define KILN_COMMON_BULK_CUH

#include "common/ptx.cuh"

#if __CUDA_ARCH__ < 900
#    error "bulk.cuh is for sm_90 and later"
#endif

// ---- Barriers -----------------------------------------------------------------------------------
// A barrier is 8 bytes of shared memory. Its phases alternate 0, 1, 0, ...
PTX_INLINE void bulk_barrier_begin(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(barrier), "r"(arrivals)
                 : "memory");
}

// Makes the barriers begun known to the copy engine; a block-wide barrier must follow.
PTX_INLINE void bulk_barriers_begun() {
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

// What this thread wrote, copies may overwrite later.
PTX_INLINE void bulk_written() {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

PTX_INLINE void bulk_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

// Arrives, and says how many bytes of copies the phase waits for as well.
PTX_INLINE void bulk_arrive_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(barrier), "r"(bytes)
                 : "memory");
}

// Until the phase of this parity is over. A fresh barrier counts as done with phase 1.
PTX_INLINE void bulk_wait(unsigned barrier, unsigned parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}"
                 :
                 : "r"(barrier), "r"(parity)
                 : "memory");
}

// The threads of several warps, whole warps, by a number from 1 to 15.
PTX_INLINE void bulk_sync_some(int number, int threads) {
    asm volatile("bar.sync %0, %1;" : : "r"(number), "r"(threads) : "memory");
}

// ---- Copies -------------------------------------------------------------------------------------
// bytes: a multiple of 16, as both addresses are. They are counted at the barrier.
PTX_INLINE void bulk_copy(unsigned to, const void *from, unsigned bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
                 : "memory");
}

#endif
