// Planted faults as in faults.cu, of mbarriers and of copies by the copy engine, sm_90 and later.
// faults_bulk.ptx is made of this file:
//     nvcc -arch=sm_90 -ptx -lineinfo -o faults_bulk.ptx faults_bulk.cu
#define KERNEL(name) extern "C" __global__ void name(float *out, const float *in, int n)
#define AT           (blockIdx.x * 128 + threadIdx.x)
#define HERE         (in + blockIdx.x * 128) // what a block copies: 512 bytes
#define MIRRORED     (127 - threadIdx.x)
#define SHARED \
    __shared__ __align__(16) float row[128]; \
    __shared__ unsigned long long full, empty

static __device__ unsigned shared_at(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

// Macros, so that a finding's line is the kernel's own.
#define INIT(b, n) \
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" \
                 : \
                 : "r"(shared_at(&b)), "r"(n) \
                 : "memory")
#define INVAL(b) \
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" : : "r"(shared_at(&b)) : "memory")
#define ARRIVE(b) \
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_at(&b)) : "memory")
#define ARRIVE_SOME(b, n) \
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" \
                 : \
                 : "r"(shared_at(&b)), "r"(n) \
                 : "memory")
#define EXPECT(b, bytes) \
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" \
                 : \
                 : "r"(shared_at(&b)), "r"(bytes) \
                 : "memory")
#define WAIT(b, parity) \
    asm volatile("{\n.reg .pred p;\nagain:\n" \
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" \
                 : \
                 : "r"(shared_at(&b)), "r"((int)(parity)) \
                 : "memory")
#define COPY(to, from, bytes, b) \
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes " \
                 "[%0], [%1], %2, [%3];" \
                 : \
                 : "r"(shared_at(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), \
                 "r"(shared_at(&b)) \
                 : "memory")
#define FENCE \
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" \
                 : \
                 : \
                 : "memory")
#define FIRST (threadIdx.x == 0)
#define BEGIN(arrivals) \
    SHARED; \
    if (FIRST) { \
        INIT(full, 1); \
        INIT(empty, arrivals); \
        FENCE; \
    } \
    __syncthreads()
#define BRING(bytes) \
    if (FIRST) { \
        EXPECT(full, bytes); \
        COPY(row, HERE, 512, full); \
    }

// ---- Rules of mbarriers -------------------------------------------------------------------------
KERNEL(not_made_bad) {
    SHARED;
    if (FIRST) {
        INIT(empty, 128);
    }
    __syncthreads();
    ARRIVE(full); // fault: mbarrier
    ARRIVE(empty);
    WAIT(empty, 0);
    row[threadIdx.x] = in[AT];
    out[AT] = row[threadIdx.x];
}
KERNEL(not_made_good) {
    SHARED;
    if (FIRST) {
        INIT(full, 128);
        INIT(empty, 128);
    }
    __syncthreads();
    ARRIVE(full);
    ARRIVE(empty);
    WAIT(empty, 0);
    row[threadIdx.x] = in[AT];
    out[AT] = row[threadIdx.x];
}
KERNEL(ended_bad) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    __syncthreads();
    if (FIRST) {
        INVAL(empty);
    }
    __syncthreads();
    ARRIVE(empty); // fault: mbarrier
}
KERNEL(ended_good) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    ARRIVE(empty);
    __syncthreads();
    if (FIRST) {
        INVAL(empty);
    }
}
KERNEL(made_for_none_bad) {
    SHARED;
    row[threadIdx.x] = in[AT];
    if (FIRST) {
        INIT(full, n - 256); // fault: mbarrier
        INIT(empty, 1);
    }
    out[AT] = row[threadIdx.x];
}
KERNEL(made_for_none_good) {
    SHARED;
    row[threadIdx.x] = in[AT];
    if (FIRST) {
        INIT(full, n - 255);
        INIT(empty, 1);
    }
    out[AT] = row[threadIdx.x];
}
KERNEL(too_many_arrive_bad) {
    BEGIN(64);
    BRING(512);
    if (threadIdx.x % 2) {
        ARRIVE_SOME(empty, n - 191); // fault: mbarrier
    }
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(too_many_arrive_good) {
    BEGIN(64);
    BRING(512);
    if (threadIdx.x % 2) {
        ARRIVE_SOME(empty, n - 255);
    }
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(too_many_bytes_bad) {
    BEGIN(2);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    if (FIRST) {
        EXPECT(empty, n << 12); // fault: mbarrier
    }
}
KERNEL(too_many_bytes_good) {
    BEGIN(2);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    if (FIRST) {
        EXPECT(empty, (n << 12) - 16);
    }
}
KERNEL(never_expected_bad) {
    BEGIN(2);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    __syncthreads();
    if (FIRST) {
        COPY(row, HERE, 512, empty); // fault: mbarrier
    }
}
KERNEL(never_expected_good) {
    BEGIN(2);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    __syncthreads();
    if (FIRST) {
        COPY(row, HERE, 512, empty);
        EXPECT(empty, 512);
        ARRIVE(empty);
    }
    WAIT(empty, 0);
}

// ---- Phases that nobody ends --------------------------------------------------------------------
KERNEL(bytes_missing_bad) {
    BEGIN(128);
    BRING(528);
    WAIT(full, 0); // fault: deadlock
    out[AT] = row[MIRRORED];
}
KERNEL(bytes_missing_good) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(nothing_expected_bad) { // told once: bytes too many are why it stands
    BEGIN(128);
    if (FIRST) {
        COPY(row, HERE, 512, full);
        ARRIVE(full);
    }
    WAIT(full, 0); // fault: deadlock
    out[AT] = row[MIRRORED];
}
KERNEL(nothing_expected_good) {
    BEGIN(128);
    if (FIRST) {
        COPY(row, HERE, 512, full);
        EXPECT(full, 512);
    }
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(arrival_missing_bad) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    if (threadIdx.x != 70) {
        ARRIVE(empty);
    }
    WAIT(empty, 0); // fault: deadlock
}
KERNEL(arrival_missing_good) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    ARRIVE(empty);
    WAIT(empty, 0);
}
KERNEL(wrong_parity_bad) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    WAIT(full, n == 256); // fault: deadlock
}
KERNEL(wrong_parity_good) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    WAIT(full, n != 256);
}

// ---- Bounds, alignment, what nobody wrote -------------------------------------------------------
KERNEL(bulk_past_bad) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, 512);
        COPY(row, HERE + 4, 512, full); // fault: bounds
    }
    WAIT(full, 0);
    __syncthreads();
    out[AT] = in[AT];
}
KERNEL(bulk_past_good) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, 496);
        COPY(row, HERE + 4, 496, full);
    }
    WAIT(full, 0);
    __syncthreads();
    out[AT] = in[AT];
}
KERNEL(bulk_shared_past_bad) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, n * 2);
        COPY(row + n, HERE, n * 2, full); // fault: bounds
    }
    WAIT(full, 0);
    out[AT] = in[AT];
}
KERNEL(bulk_shared_past_good) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, n * 2);
        COPY(row + n - 256, HERE, n * 2, full);
    }
    WAIT(full, 0);
    out[AT] = in[AT];
}
KERNEL(bulk_odd_size_bad) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, n + 8);
        COPY(row, HERE, n + 8, full); // fault: align
    }
    WAIT(full, 0);
    out[AT] = in[AT];
}
KERNEL(bulk_odd_size_good) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, n + 16);
        COPY(row, HERE, n + 16, full);
    }
    WAIT(full, 0);
    out[AT] = in[AT];
}
KERNEL(bulk_odd_source_bad) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, 256);
        COPY(row, HERE + 2, 256, full); // fault: align
    }
    WAIT(full, 0);
    out[AT] = in[AT];
}
KERNEL(bulk_odd_source_good) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, 256);
        COPY(row, HERE + 4, 256, full);
    }
    WAIT(full, 0);
    out[AT] = in[AT];
}
KERNEL(bulk_unwritten_bad) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, 256);
        COPY(row, out + blockIdx.x * 128, 256, full); // fault: uninit-global
    }
    WAIT(full, 0);
    out[AT] = in[AT];
}
KERNEL(bulk_unwritten_good) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, 256);
        COPY(row, HERE, 256, full);
    }
    WAIT(full, 0);
    out[AT] = in[AT];
}

// ---- Copies under way ---------------------------------------------------------------------------
KERNEL(no_wait_bad) {
    BEGIN(128);
    BRING(512);
    out[AT] = row[MIRRORED]; // fault: async
    WAIT(full, 0);
}
KERNEL(no_wait_good) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(one_warp_waits_bad) {
    BEGIN(128);
    BRING(512);
    if (threadIdx.x < 32) {
        WAIT(full, 0);
    }
    out[AT] = row[MIRRORED]; // fault: async
}
KERNEL(one_warp_waits_good) { // and the others hear of it
    BEGIN(128);
    BRING(512);
    if (threadIdx.x < 32) {
        WAIT(full, 0);
    }
    __syncthreads();
    out[AT] = row[MIRRORED];
}
KERNEL(too_few_bytes_bad) { // the rest comes in the next phase
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, 256);
        COPY(row, HERE, 256, full);
        COPY(row + 64, HERE + 64, 256, full);
    }
    WAIT(full, 0);
    out[AT] = row[MIRRORED]; // fault: async
    __syncthreads();
    if (FIRST) {
        EXPECT(full, 256);
    }
    WAIT(full, 1);
}
KERNEL(too_few_bytes_good) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, 512);
        COPY(row, HERE, 256, full);
        COPY(row + 64, HERE + 64, 256, full);
    }
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    __syncthreads();
    if (FIRST) {
        EXPECT(full, 0);
    }
    WAIT(full, 1);
}
KERNEL(copy_on_copy_bad) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, 1024);
        COPY(row, HERE, 512, full);
        COPY(row, HERE, 512, full); // fault: async
    }
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(copy_on_copy_good) {
    BEGIN(128);
    if (FIRST) {
        EXPECT(full, 512);
        COPY(row, HERE, 512, full);
        WAIT(full, 0);
        EXPECT(full, 512);
        COPY(row, HERE, 512, full);
    }
    WAIT(full, 1);
    out[AT] = row[MIRRORED];
}
KERNEL(written_over_bad) {
    BEGIN(128);
    BRING(512);
    row[threadIdx.x] = 1; // fault: async
    WAIT(full, 0);
    out[AT] = row[threadIdx.x];
}
KERNEL(written_over_good) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    row[threadIdx.x] = 1;
    out[AT] = row[threadIdx.x];
}

// ---- Races, with mbarriers between --------------------------------------------------------------
// One thread has rows brought, 3 warps read them: two turns of a ring of one stage.
KERNEL(no_empty_bad) { // two phases are over before anybody asks for the first
    BEGIN(3);
    for (int turn = 0; turn < 2; turn++) {
        if (FIRST) {
            EXPECT(full, 512);
            COPY(row, HERE, 512, full);
        } else if (threadIdx.x >= 32) {
            WAIT(full, turn); // fault: deadlock
            out[AT] = row[MIRRORED];
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                ARRIVE(empty);
            }
        }
        if (FIRST) {
            WAIT(full, turn);
        }
    }
}
KERNEL(no_empty_good) {
    BEGIN(3);
    for (int turn = 0; turn < 2; turn++) {
        if (FIRST) {
            WAIT(empty, turn ^ 1);
            EXPECT(full, 512);
            COPY(row, HERE, 512, full);
        } else if (threadIdx.x >= 32) {
            WAIT(full, turn);
            out[AT] = row[MIRRORED];
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                ARRIVE(empty);
            }
        }
    }
}
KERNEL(early_arrival_bad) {
    BEGIN(3);
    for (int turn = 0; turn < 2; turn++) {
        if (FIRST) {
            WAIT(empty, turn ^ 1);
            EXPECT(full, 512);
            COPY(row, HERE, 512, full); // fault: race
        } else if (threadIdx.x >= 32) {
            WAIT(full, turn);
            if (threadIdx.x % 32 == 0) {
                ARRIVE(empty);
            }
            out[AT] = row[MIRRORED];
        }
    }
}
KERNEL(early_arrival_good) {
    BEGIN(3);
    for (int turn = 0; turn < 2; turn++) {
        if (FIRST) {
            WAIT(empty, turn ^ 1);
            EXPECT(full, 512);
            COPY(row, HERE, 512, full);
        } else if (threadIdx.x >= 32) {
            WAIT(full, turn);
            out[AT] = row[MIRRORED];
            if (threadIdx.x % 32 == 0) {
                ARRIVE(empty);
            }
        }
    }
}
KERNEL(handed_over_bad) { // the last warp reads what the others wrote, and hears of three of them
    BEGIN(96);
    row[threadIdx.x] = in[AT];
    if (threadIdx.x < 64 || threadIdx.x >= 96) {
        ARRIVE(empty);
    }
    WAIT(empty, 0);
    if (threadIdx.x >= 96) {
        out[AT] = row[threadIdx.x - 32]; // fault: race
    }
}
KERNEL(handed_over_good) {
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    ARRIVE(empty);
    WAIT(empty, 0);
    if (threadIdx.x >= 96) {
        out[AT] = row[threadIdx.x - 32];
    }
}
KERNEL(relaxed_bad) {
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];"
                 :
                 : "r"(shared_at(&empty))
                 : "memory");
    WAIT(empty, 0);
    out[AT] = row[MIRRORED]; // fault: race
}
KERNEL(relaxed_good) {
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];"
                 :
                 : "r"(shared_at(&empty))
                 : "memory");
    WAIT(empty, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(made_late_bad) {
    SHARED;
    if (FIRST) {
        INIT(full, 1);
        INIT(empty, 128);
        FENCE;
    }
    row[threadIdx.x] = in[AT];
    ARRIVE(empty); // fault: race
    WAIT(empty, 0);
    out[AT] = row[threadIdx.x];
}
KERNEL(made_late_good) {
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    ARRIVE(empty);
    WAIT(empty, 0);
    out[AT] = row[threadIdx.x];
}
KERNEL(some_meet_bad) { // barriers of some of the warps order them alone
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    if (threadIdx.x < 64) {
        asm volatile("bar.sync 1, 64;" : : : "memory");
        out[AT] = row[threadIdx.x + n / 4]; // fault: race
    } else {
        asm volatile("bar.sync 2, 64;" : : : "memory");
        out[AT] = -row[threadIdx.x ^ 32];
    }
}
KERNEL(some_meet_good) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    if (threadIdx.x < 64) {
        asm volatile("bar.sync 1, 64;" : : : "memory");
        out[AT] = row[threadIdx.x ^ 32];
    } else {
        asm volatile("bar.sync 2, 64;" : : : "memory");
        out[AT] = -row[threadIdx.x ^ 32];
    }
}
KERNEL(come_and_go_bad) { // who arrives without waiting does not hear of the others
    __shared__ float row[128];
    row[threadIdx.x] = in[AT]; // fault: race
    if (threadIdx.x < 64) {
        asm volatile("bar.arrive 1, 128;" : : : "memory");
        out[AT] = -row[MIRRORED];
    } else {
        asm volatile("bar.sync 1, 128;" : : : "memory");
        out[AT] = row[MIRRORED];
    }
}
KERNEL(come_and_go_good) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    if (threadIdx.x < 64) {
        asm volatile("bar.arrive 1, 128;" : : : "memory");
        out[AT] = 0;
    } else {
        asm volatile("bar.sync 1, 128;" : : : "memory");
        out[AT] = row[MIRRORED];
    }
}

// ---- Threads and the copy engine ----------------------------------------------------------------
KERNEL(no_fence_bad) {
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    __syncthreads();
    BRING(512); // fault: race
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(no_fence_good) {
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    asm volatile("fence.proxy.async;" : : : "memory");
    __syncthreads();
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(one_fences_bad) { // its own writes alone are known to the one that fences early
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    if (FIRST) {
        asm volatile("fence.proxy.async;" : : : "memory");
    }
    __syncthreads();
    BRING(512); // fault: race
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(one_fences_good) { // behind the barrier it fences for all
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    __syncthreads();
    if (FIRST) {
        asm volatile("fence.proxy.async;" : : : "memory");
    }
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(not_shown_bad) {
    SHARED;
    if (FIRST) {
        INIT(full, 1);
        INIT(empty, 1);
    }
    __syncthreads();
    BRING(512); // fault: mbarrier
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(not_shown_good) {
    SHARED;
    if (FIRST) {
        INIT(full, 1);
        INIT(empty, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    }
    __syncthreads();
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
}
KERNEL(barrier_bytes_bad) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    __syncthreads();
    if (FIRST) {
        empty = 0; // fault: mbarrier
    }
    ARRIVE(empty);
}
KERNEL(barrier_bytes_good) {
    BEGIN(128);
    BRING(512);
    WAIT(full, 0);
    out[AT] = row[MIRRORED];
    __syncthreads();
    if (FIRST) {
        INVAL(empty);
        empty = 0;
        INIT(empty, 128);
    }
    __syncthreads();
    ARRIVE(empty);
}

// ---- Vectors ------------------------------------------------------------------------------------
#define LOAD_FOUR(v) \
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" \
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) \
                 : "r"(shared_at(row)) \
                 : "memory")

KERNEL(fourth_bad) {
    BEGIN(128);
    if (threadIdx.x < 3) {
        row[threadIdx.x] = in[AT];
    }
    __syncthreads();
    float4 four;
    LOAD_FOUR(four); // fault: uninit-shared
    out[AT] = four.x + four.y + four.z + four.w;
}
KERNEL(fourth_good) { // compilers make a load of four of three
    BEGIN(128);
    if (threadIdx.x < 3) {
        row[threadIdx.x] = in[AT];
    }
    __syncthreads();
    float4 four;
    LOAD_FOUR(four);
    out[AT] = four.x + four.y + four.z;
}

// ---- Other forms --------------------------------------------------------------------------------
// A state in place of a parity, by generic addresses.
#define ARRIVE_STATE(state, b) \
    asm volatile("mbarrier.arrive.b64 %0, [%1];" : "=l"(state) : "l"(&b) : "memory")
#define TEST_STATE(done, state, b) \
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" \
                 : "=r"(done) \
                 : "l"(&b), "l"(state) \
                 : "memory")

KERNEL(state_bad) {
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    unsigned long long state;
    unsigned done;
    ARRIVE_STATE(state, empty);
    TEST_STATE(done, state, empty);
    out[AT] = row[MIRRORED] + done; // fault: race
}
KERNEL(state_good) {
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    unsigned long long state;
    unsigned done;
    ARRIVE_STATE(state, empty);
    do {
        TEST_STATE(done, state, empty);
    } while (!done);
    out[AT] = row[MIRRORED] + done;
}
KERNEL(dropped_bad) { // a quarter leaves: then three are enough, and three are needed
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    if (threadIdx.x < 32) {
        asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];"
                     :
                     : "r"(shared_at(&empty))
                     : "memory");
        out[AT] = 0;
        return;
    }
    ARRIVE(empty);
    WAIT(empty, 0);
    if (threadIdx.x < 96) {
        ARRIVE(empty);
    }
    WAIT(empty, 1); // fault: deadlock
    out[AT] = row[MIRRORED];
}
KERNEL(dropped_good) {
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    if (threadIdx.x < 32) {
        asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];"
                     :
                     : "r"(shared_at(&empty))
                     : "memory");
        out[AT] = 0;
        return;
    }
    ARRIVE(empty);
    WAIT(empty, 0);
    ARRIVE(empty);
    WAIT(empty, 1);
    out[AT] = row[MIRRORED];
}
#define ARRIVE_WITHIN(state, b) \
    asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], 1;" \
                 : "=l"(state) \
                 : "r"(shared_at(&b)) \
                 : "memory")
KERNEL(no_phase_bad) {
    BEGIN(128);
    row[threadIdx.x] = in[AT];
    unsigned long long state;
    ARRIVE_WITHIN(state, empty); // fault: mbarrier
    out[AT] = row[threadIdx.x] + (state ? 0 : 1);
}
KERNEL(no_phase_good) {
    BEGIN(129);
    row[threadIdx.x] = in[AT];
    unsigned long long state;
    ARRIVE_WITHIN(state, empty);
    out[AT] = row[threadIdx.x] + (state ? 0 : 1);
}
// A wait under a guard.
KERNEL(guarded_bad) {
    BEGIN(1);
    BRING(512);
    asm volatile("{\n.reg .pred p, q;\nsetp.lt.s32 p, %0, 32;\nsetp.eq.s32 q, 0, 0;\nagain:\n"
                 "@p mbarrier.try_wait.parity.shared::cta.b64 q, [%1], 0;\n@!q bra again;\n}"
                 :
                 : "r"((int)threadIdx.x), "r"(shared_at(&full))
                 : "memory");
    out[AT] = row[MIRRORED]; // fault: async
}
KERNEL(guarded_good) {
    BEGIN(1);
    BRING(512);
    asm volatile("{\n.reg .pred p, q;\nsetp.lt.s32 p, %0, 128;\nsetp.eq.s32 q, 0, 0;\nagain:\n"
                 "@p mbarrier.try_wait.parity.shared::cta.b64 q, [%1], 0;\n@!q bra again;\n}"
                 :
                 : "r"((int)threadIdx.x), "r"(shared_at(&full))
                 : "memory");
    out[AT] = row[MIRRORED];
}
// A launch without clusters is one of clusters of a block.
KERNEL(cluster_bad) {
    unsigned rank, size;
    asm("mov.u32 %0, %%cluster_ctarank;\nmov.u32 %1, %%cluster_nctarank;" : "=r"(rank), "=r"(size));
    out[AT + (rank == 0 && size == 1 ? 256 : 0)] = in[AT]; // fault: bounds
}
KERNEL(cluster_good) {
    unsigned rank, id;
    asm("mov.u32 %0, %%cluster_ctarank;\nmov.u32 %1, %%clusterid.x;" : "=r"(rank), "=r"(id));
    out[rank * 256 + id * 128 + threadIdx.x] = in[AT];
}
