// A maximum of floats by compare-and-swap; sums of tiles of a warp, each tile with a mask of its
// own; tables of which the source gives the beginning.
#define KERNEL(name) extern "C" __global__ void name

static __device__ void raise_to(float *to, float value) {
    int *word = (int *)to, old = *word, seen;
    do {
        seen = old;
        old = atomicCAS(word, seen, __float_as_int(fmaxf(value, __int_as_float(seen))));
    } while (old != seen);
}

// Of n numbers; out[0] is 0 before.
KERNEL(max_by_swap)(const float *a, const float *, float *out, int n) {
    __shared__ float most;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) {
        most = -1e30f;
    }
    __syncthreads();
    if (i < n) {
        raise_to(&most, a[i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        raise_to(out, most);
    }
}

// Of 256 numbers: out[8 t …] of tile t of 8 lanes: its sum, least, most, how many lanes hold its
// first lane's number, how many are positive, the last lane's number, whether any is, and 0.
KERNEL(tiles)(const int *a, const int *, int *out, int) {
    int lane = threadIdx.x % 32, first = lane / 8 * 8, value = a[threadIdx.x];
    unsigned tile = 0xffu << first;
    int sum = __reduce_add_sync(tile, value), least = __reduce_min_sync(tile, value);
    int most = __reduce_max_sync(tile, value);
    int same = __popc(__match_any_sync(tile, value)),
        positive = __popc(__ballot_sync(tile, value > 0));
    int last = __shfl_sync(tile, value, 7, 8), any = __any_sync(tile, value > 900);
    __syncwarp(tile);
    const int all[8] = {sum, least, most, __shfl_sync(tile, same, 0, 8), positive, last, any, 0};
    out[threadIdx.x] = all[threadIdx.x % 8];
}

__device__ int table[300] = {5, 7}; // PTX leaves out what is zero
__constant__ char word[7] = "kiln";

KERNEL(table_tail)(const int *a, const int *, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = a[i] + table[i % 300] + word[i % 7];
    }
}
