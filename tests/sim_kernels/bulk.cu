// Sums of columns, the rows brought by the copy engine: a warp has them copied into a ring of two
// stages, four warps add them up. Two barriers a stage: it is full, it is empty again. sm_90.
#define KERNEL(name) extern "C" __global__ void name
#define COLUMNS      128 // and threads that add
#define STAGES       2

__device__ unsigned shared_at(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

__device__ void make_barrier(unsigned long long *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(shared_at(barrier)), "r"(arrivals)
                 : "memory");
}

__device__ void arrive(unsigned long long *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_at(barrier)) : "memory");
}

// Until the phase of this parity is over; of a fresh barrier, the one before counts as phase 1.
__device__ void wait_for(unsigned long long *barrier, int parity) {
    int over;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.s32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(over)
                     : "r"(shared_at(barrier)), "r"(parity)
                     : "memory");
    } while (!over);
}

// Has `bytes` bytes copied; the barrier's phase is over when they are there.
__device__ void bring(float *to, const float *from, int bytes, unsigned long long *barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_at(barrier)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :
                 : "r"(shared_at(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                 "r"(shared_at(barrier))
                 : "memory");
}

KERNEL(column_sums)(const float *a, const float *, float *out, int rows) {
    __shared__ __align__(16) float ring[STAGES][COLUMNS];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    int thread = threadIdx.x;
    if (thread == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            make_barrier(&full[stage], 1);
            make_barrier(&empty[stage], COLUMNS);
        }
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); // for the copy engine
    }
    __syncthreads();
    if (thread >= COLUMNS) {
        for (int row = 0; thread == COLUMNS && row < rows; row++) {
            int stage = row % STAGES;
            wait_for(&empty[stage], row / STAGES % 2 ^ 1);
            bring(ring[stage], a + row * COLUMNS, sizeof(ring[stage]), &full[stage]);
        }
        return;
    }
    float sum = 0;
    for (int row = 0; row < rows; row++) {
        int stage = row % STAGES;
        wait_for(&full[stage], row / STAGES % 2);
        sum += ring[stage][thread];
        arrive(&empty[stage]);
    }
    out[thread] = sum;
}
