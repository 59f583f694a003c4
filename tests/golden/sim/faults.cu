// Planted faults, a pair of kernels each: NAME_bad has one, on the line that says so, NAME_good has
// it mended. Blocks of 128 threads, 2 of them; `in` holds 256 numbers, `out` has room for 256 that
// nobody wrote, `n` is 256. faults.ptx is made of this file:
//     nvcc -arch=sm_80 -ptx -lineinfo -o faults.ptx faults.cu
#define KERNEL(name) extern "C" __global__ void name(float *out, const float *in, int n)
#define AT           (blockIdx.x * 128 + threadIdx.x)
#define ALL          0xffffffffu

static __device__ unsigned shared_at(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

// ---- Bounds and alignment -----------------------------------------------------------------------
KERNEL(read_past_bad) {
    out[AT] = in[AT + 1]; // fault: bounds
}
KERNEL(read_past_good) {
    out[AT] = in[AT + 1 < n ? AT + 1 : 0];
}
KERNEL(write_past_bad) {
    out[AT * 2] = in[AT]; // fault: bounds
}
KERNEL(write_past_good) {
    out[AT] = in[AT];
}
KERNEL(null_bad) {
    const float *none = (const float *)(size_t)(n - 256);
    out[AT] = none[AT]; // fault: bounds
}
KERNEL(null_good) {
    const float *none = n > 255 ? in : (const float *)(size_t)(n - 256);
    out[AT] = none[AT];
}
KERNEL(shared_past_bad) {
    __shared__ float row[128];
    volatile float *at = row;
    at[threadIdx.x + (n == 256)] = in[AT]; // fault: bounds
    __syncthreads();
    out[AT] = at[127 - threadIdx.x / 2];
}
KERNEL(shared_past_good) {
    __shared__ float row[128];
    volatile float *at = row;
    at[threadIdx.x] = in[AT];
    __syncthreads();
    out[AT] = at[127 - threadIdx.x / 2];
}
KERNEL(local_past_bad) {
    float mine[8];
    for (int i = 0; i < 8; i++) {
        mine[i] = in[AT] + i;
    }
    out[AT] = mine[n / 32 + threadIdx.x % 2]; // fault: bounds
}
KERNEL(local_past_good) {
    float mine[8];
    for (int i = 0; i < 8; i++) {
        mine[i] = in[AT] + i;
    }
    out[AT] = mine[n / 64 + threadIdx.x % 2];
}
KERNEL(misaligned_bad) {
    float2 two = *(const float2 *)(in + AT / 2 + 1); // fault: align
    out[AT] = two.x + two.y;
}
KERNEL(misaligned_good) {
    float2 two = *(const float2 *)(in + AT / 4 * 2);
    out[AT] = two.x + two.y;
}
KERNEL(shared_misaligned_bad) {
    __shared__ __align__(16) float row[132];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    float x, y;
    unsigned at = shared_at(row) + threadIdx.x % 8 * 12;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(at)); // fault: align
    out[AT] = x + y;
}
KERNEL(shared_misaligned_good) {
    __shared__ __align__(16) float row[132];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    float x, y;
    unsigned at = shared_at(row) + threadIdx.x % 8 * 16;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(at));
    out[AT] = x + y;
}
KERNEL(atomic_past_bad) {
    atomicAdd(out + AT + 64, 1.0f); // fault: bounds
}
KERNEL(atomic_past_good) {
    out[AT] = 0;
    atomicAdd(out + AT, 1.0f);
}

#define LOAD_ROWS(tile, apart) \
    asm volatile("{.reg .b32 r<8>;\n wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 " \
                 "{r0, r1, r2, r3, r4, r5, r6, r7}, [%0], %1;}" ::"r"(shared_at(tile)), \
                 "n"(apart) \
                 : "memory")
KERNEL(matrix_rows_bad) {
    __shared__ __align__(32) float tile[256];
    tile[threadIdx.x] = tile[threadIdx.x + 128] = in[AT];
    __syncthreads();
    LOAD_ROWS(tile, 20); // fault: align
    out[AT] = tile[127 - threadIdx.x];
}
KERNEL(matrix_rows_good) {
    __shared__ __align__(32) float tile[256];
    tile[threadIdx.x] = tile[threadIdx.x + 128] = in[AT];
    __syncthreads();
    LOAD_ROWS(tile, 24);
    out[AT] = tile[127 - threadIdx.x];
}

// ---- Races --------------------------------------------------------------------------------------
KERNEL(read_after_write_bad) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    __syncwarp();
    out[AT] = row[127 - threadIdx.x]; // fault: race
}
KERNEL(read_after_write_good) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    out[AT] = row[127 - threadIdx.x];
}
KERNEL(write_after_read_bad) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    float other = row[127 - threadIdx.x];
    row[threadIdx.x] = other; // fault: race
    __syncthreads();
    out[AT] = row[threadIdx.x ^ 64];
}
KERNEL(write_after_read_good) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    float other = row[127 - threadIdx.x];
    __syncthreads();
    row[threadIdx.x] = other;
    __syncthreads();
    out[AT] = row[threadIdx.x ^ 64];
}
KERNEL(write_after_write_bad) {
    __shared__ float last;
    last = in[AT]; // fault: race
    __syncthreads();
    out[AT] = last;
}
KERNEL(write_after_write_good) {
    __shared__ float last;
    if (threadIdx.x == 0) {
        last = in[AT];
    }
    __syncthreads();
    out[AT] = last;
}
KERNEL(byte_race_bad) {
    __shared__ unsigned char bytes[128];
    bytes[threadIdx.x % 64 + 1] = (unsigned char)n; // fault: race
    __syncthreads();
    out[AT] = bytes[threadIdx.x % 64 + 1];
}
KERNEL(byte_race_good) { // neighbours in a word are no race
    __shared__ unsigned char bytes[128];
    bytes[threadIdx.x % 32 * 4 + threadIdx.x / 32] = (unsigned char)n;
    __syncthreads();
    out[AT] = bytes[threadIdx.x];
}
KERNEL(reduction_bad) {
    __shared__ float sum[128];
    sum[threadIdx.x] = in[AT];
    __syncthreads();
    for (int by = 64; by > 0; by /= 2) {
        if (threadIdx.x < by) {
            sum[threadIdx.x] += sum[threadIdx.x + by]; // fault: race
        }
    }
    out[AT] = threadIdx.x < 32 ? sum[threadIdx.x] : 0;
}
KERNEL(reduction_good) {
    __shared__ float sum[128];
    sum[threadIdx.x] = in[AT];
    __syncthreads();
    for (int by = 64; by > 0; by /= 2) {
        if (threadIdx.x < by) {
            sum[threadIdx.x] += sum[threadIdx.x + by];
        }
        __syncthreads();
    }
    out[AT] = sum[0];
}
KERNEL(atomic_and_read_bad) {
    __shared__ int count;
    if (threadIdx.x == 0) {
        count = 0;
    }
    __syncthreads();
    atomicAdd(&count, 1); // fault: race
    out[AT] = (float)count;
}
KERNEL(atomic_and_read_good) {
    __shared__ int count;
    if (threadIdx.x == 0) {
        count = 0;
    }
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    out[AT] = (float)count;
}

KERNEL(counts_over_zeros_bad) { // the warp that writes counts, too: an atomic hides its write
    __shared__ int counts[4];
    if (threadIdx.x < 4) {
        counts[threadIdx.x] = 0;
    }
    atomicAdd(&counts[threadIdx.x % 4], 1); // fault: race
    __syncthreads();
    out[AT] = counts[threadIdx.x % 4];
}
KERNEL(counts_over_zeros_good) {
    __shared__ int counts[4];
    if (threadIdx.x < 4) {
        counts[threadIdx.x] = 0;
    }
    __syncthreads();
    atomicAdd(&counts[threadIdx.x % 4], 1);
    __syncthreads();
    out[AT] = counts[threadIdx.x % 4];
}

KERNEL(one_writes_bad) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    if (threadIdx.x == 3) {
        row[40] = 0;
    }
    out[AT] = row[threadIdx.x]; // fault: race
}
KERNEL(one_writes_good) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    if (threadIdx.x == 3) {
        row[40] = 0;
    }
    __syncthreads();
    out[AT] = row[threadIdx.x];
}
KERNEL(last_counter_reads_bad) { // the reader's own atomic is the last, others' went before
    __shared__ int count;
    if (threadIdx.x == 0) {
        count = 0;
    }
    __syncthreads();
    atomicAdd(&count, 1);
    if (threadIdx.x == 127) {
        out[AT] = count; // fault: race
    }
}
KERNEL(last_counter_reads_good) {
    __shared__ int count;
    if (threadIdx.x == 0) {
        count = 0;
    }
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == 127) {
        out[AT] = count;
    }
}

// ---- Unwritten memory ---------------------------------------------------------------------------
KERNEL(unwritten_shared_bad) {
    __shared__ float row[128];
    if (threadIdx.x < 96) {
        row[threadIdx.x] = in[AT];
    }
    __syncthreads();
    out[AT] = row[127 - threadIdx.x]; // fault: uninit-shared
}
KERNEL(unwritten_shared_good) {
    __shared__ float row[128];
    row[threadIdx.x] = threadIdx.x < 96 ? in[AT] : 0;
    __syncthreads();
    out[AT] = row[127 - threadIdx.x];
}
KERNEL(unwritten_global_bad) {
    out[AT] = out[AT] + in[AT]; // fault: uninit-global
}
KERNEL(unwritten_global_good) {
    out[AT] = 1;
    out[AT] = out[AT] + in[AT];
}
KERNEL(unwritten_edge_bad) {
    if (threadIdx.x != 77) {
        out[AT] = in[AT];
    }
    __syncthreads();
    float other = ((volatile float *)out)[AT ^ 127]; // fault: uninit-global
    __syncthreads();
    out[AT] = other;
}
KERNEL(unwritten_edge_good) {
    out[AT] = in[AT];
    __syncthreads();
    float other = ((volatile float *)out)[AT ^ 127];
    __syncthreads();
    out[AT] = other;
}

// ---- cp.async -----------------------------------------------------------------------------------
#define COPY(to, from) \
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" : : "r"(shared_at(to)), "l"(from))
#define COMMIT  asm volatile("cp.async.commit_group;")
#define WAIT(n) asm volatile("cp.async.wait_group %0;" : : "n"(n))

KERNEL(copy_unawaited_bad) {
    __shared__ float row[128];
    COPY(row + threadIdx.x, in + AT);
    COMMIT;
    __syncthreads();
    out[AT] = row[127 - threadIdx.x]; // fault: async
}
KERNEL(copy_unawaited_good) {
    __shared__ float row[128];
    COPY(row + threadIdx.x, in + AT);
    COMMIT;
    WAIT(0);
    __syncthreads();
    out[AT] = row[127 - threadIdx.x];
}
KERNEL(copy_wrong_group_bad) {
    __shared__ float rows[2][128];
    COPY(rows[0] + threadIdx.x, in + AT);
    COMMIT;
    COPY(rows[1] + threadIdx.x, in + AT);
    COMMIT;
    WAIT(1);
    __syncthreads();
    float first = rows[0][127 - threadIdx.x];
    float second = rows[1][127 - threadIdx.x]; // fault: async
    out[AT] = first + second;
}
KERNEL(copy_wrong_group_good) {
    __shared__ float rows[2][128];
    COPY(rows[0] + threadIdx.x, in + AT);
    COMMIT;
    COPY(rows[1] + threadIdx.x, in + AT);
    COMMIT;
    WAIT(1);
    __syncthreads();
    float first = rows[0][127 - threadIdx.x];
    WAIT(0);
    __syncthreads();
    float second = rows[1][127 - threadIdx.x];
    out[AT] = first + second;
}
KERNEL(copy_no_barrier_bad) {
    __shared__ float row[128];
    COPY(row + threadIdx.x, in + AT);
    COMMIT;
    WAIT(0);
    __syncwarp();
    out[AT] = row[threadIdx.x ^ 32]; // fault: race async
}
KERNEL(copy_no_barrier_good) {
    __shared__ float row[128];
    COPY(row + threadIdx.x, in + AT);
    COMMIT;
    WAIT(0);
    __syncwarp();
    out[AT] = row[threadIdx.x ^ 16];
}
KERNEL(copy_over_bad) {
    __shared__ float row[128];
    COPY(row + threadIdx.x, in + AT);
    COMMIT;
    row[threadIdx.x] = 1; // fault: async
    WAIT(0);
    __syncthreads();
    out[AT] = row[127 - threadIdx.x];
}
KERNEL(copy_over_good) {
    __shared__ float row[128];
    COPY(row + threadIdx.x, in + AT);
    COMMIT;
    WAIT(0);
    row[threadIdx.x] = 1;
    __syncthreads();
    out[AT] = row[127 - threadIdx.x];
}
KERNEL(copy_never_awaited_bad) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    out[AT] = row[127 - threadIdx.x];
    __syncthreads();
    COPY(row + threadIdx.x, in + AT);
    COMMIT;
    out[AT] += row[threadIdx.x]; // fault: async
}
KERNEL(copy_never_awaited_good) { // the next block is not to hear of it
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    out[AT] = row[127 - threadIdx.x];
    __syncthreads();
    COPY(row + threadIdx.x, in + AT);
    COMMIT;
}
KERNEL(copy_past_bad) {
    __shared__ float row[128];
    COPY(row + threadIdx.x, in + AT + 1); // fault: bounds
    COMMIT;
    WAIT(0);
    __syncthreads();
    out[AT] = row[127 - threadIdx.x];
}
KERNEL(copy_past_good) {
    __shared__ float row[128];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(shared_at(row + threadIdx.x)), "l"(in + AT + 1), "r"(AT + 1 < n ? 4 : 0));
    COMMIT;
    WAIT(0);
    __syncthreads();
    out[AT] = row[127 - threadIdx.x];
}

// ---- Barriers -----------------------------------------------------------------------------------
KERNEL(early_exit_bad) {
    if (threadIdx.x >= 96) {
        return;
    }
    __syncthreads(); // fault: barrier
    out[AT] = in[AT];
}
KERNEL(early_exit_good) {
    __syncthreads();
    if (threadIdx.x >= 96) {
        return;
    }
    out[AT] = in[AT];
}
KERNEL(half_warp_bad) {
    if (threadIdx.x % 32 < 16) {
        asm volatile("bar.sync 0;"); // fault: barrier
        out[AT] = in[AT];
    }
}
KERNEL(half_warp_good) {
    asm volatile("bar.sync 0;");
    if (threadIdx.x % 32 < 16) {
        out[AT] = in[AT];
    }
}
KERNEL(two_barriers_bad) {
    if (threadIdx.x < 64) {
        asm volatile("bar.sync 1;"); // fault: deadlock
    } else {
        asm volatile("bar.sync 2;");
    }
    out[AT] = in[AT];
}
KERNEL(two_barriers_good) {
    if (threadIdx.x < 64) {
        asm volatile("bar.sync 1, 64;");
    } else {
        asm volatile("bar.sync 2, 64;");
    }
    out[AT] = in[AT];
}

// ---- Lanes --------------------------------------------------------------------------------------
KERNEL(shuffle_bad) {
    float value = in[AT];
    if (threadIdx.x % 32 < 20) {
        value += __shfl_xor_sync(ALL, value, 1); // fault: lanes
    }
    out[AT] = value;
}
KERNEL(shuffle_good) {
    float value = in[AT], other = __shfl_xor_sync(ALL, value, 1);
    out[AT] = threadIdx.x % 32 < 20 ? value + other : value;
}
KERNEL(vote_bad) {
    unsigned votes = 0;
    if (threadIdx.x & 1) {
        votes = __ballot_sync(ALL, in[AT] > 0); // fault: lanes
    }
    out[AT] = (float)votes;
}
KERNEL(vote_good) {
    unsigned votes = 0;
    if (threadIdx.x & 1) {
        votes = __ballot_sync(0xaaaaaaaau, in[AT] > 0);
    }
    out[AT] = (float)votes;
}
#define MULTIPLY(d, a) \
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4}, " \
                 "{%4}, {%0, %1, %2, %3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
                 : "r"(a))

KERNEL(mma_bad) {
    float d[4] = {0, 0, 0, 0};
    unsigned a = __float_as_uint(in[AT]);
    if (threadIdx.x % 32 != 5) {
        MULTIPLY(d, a); // fault: lanes
    }
    out[AT] = d[0];
}
KERNEL(mma_good) {
    float d[4] = {0, 0, 0, 0};
    unsigned a = __float_as_uint(in[AT]);
    MULTIPLY(d, a);
    out[AT] = d[0];
}

KERNEL(not_named_bad) {
    out[AT] = __shfl_sync(0xffff, in[AT], threadIdx.x & 15); // fault: lanes
}
KERNEL(not_named_good) {
    out[AT] = __shfl_sync(threadIdx.x & 16 ? 0xffff0000 : 0xffff, in[AT], threadIdx.x & 15, 16);
}

// ---- Advice -------------------------------------------------------------------------------------
KERNEL(idle_barrier_bad) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    float other = row[127 - threadIdx.x];
    __syncthreads(); // fault: orders-nothing
    out[AT] = other;
}
KERNEL(idle_barrier_good) {
    __shared__ float row[128];
    row[threadIdx.x] = in[AT];
    __syncthreads();
    out[AT] = row[127 - threadIdx.x];
}
