// out (32, 16) = a (32, 64) times b (16, 64) transposed, by mma.sync: f16, bf16, tf32, s8. A warp
// and block 16 x 8 outputs, fragments read straight from memory as the PTX manual lays them out: g
// is lane / 4, t lane % 4.
#define KERNEL(name) extern "C" __global__ void name
#define K            64
#define N            16

struct place {
    int g, t, row, column; // of the block's first output
};

static __device__ place here() {
    int lane = threadIdx.x;
    return {lane / 4, lane % 4, (int)blockIdx.y * 16, (int)blockIdx.x * 8};
}

template <typename T> static __device__ void put(const place &p, T *out, const T (&c)[4]) {
    for (int i = 0; i < 4; i++) {
        out[(p.row + p.g + i / 2 * 8) * N + p.column + 2 * p.t + i % 2] = c[i];
    }
}

// The word with elements k, k + 1 … of a row.
template <typename T> static __device__ unsigned word(const T *matrix, int row, int k) {
    return *(const unsigned *)(matrix + row * K + k);
}

#define HALVES(name, type) \
    KERNEL(name)(const unsigned short *a, const unsigned short *b, float *out, int) { \
        place p = here(); \
        float c[4] = {}; \
        for (int k = 2 * p.t; k < K; k += 16) { \
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 " \
                         "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                         : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
                         : "r"(word(a, p.row + p.g, k)), "r"(word(a, p.row + p.g + 8, k)), \
                         "r"(word(a, p.row + p.g, k + 8)), "r"(word(a, p.row + p.g + 8, k + 8)), \
                         "r"(word(b, p.column + p.g, k)), "r"(word(b, p.column + p.g, k + 8))); \
        } \
        put(p, out, c); \
    }
HALVES(gemm_f16, "f16")
HALVES(gemm_bf16, "bf16")

KERNEL(gemm_tf32)(const float *a, const float *b, float *out, int) {
    place p = here();
    float c[4] = {};
    for (int k = p.t; k < K; k += 8) {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(word(a, p.row + p.g, k)), "r"(word(a, p.row + p.g + 8, k)),
                     "r"(word(a, p.row + p.g, k + 4)), "r"(word(a, p.row + p.g + 8, k + 4)),
                     "r"(word(b, p.column + p.g, k)), "r"(word(b, p.column + p.g, k + 4)));
    }
    put(p, out, c);
}

KERNEL(gemm_s8)(const signed char *a, const signed char *b, int *out, int) {
    place p = here();
    int c[4] = {};
    for (int k = 4 * p.t; k < K; k += 32) {
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                     : "r"(word(a, p.row + p.g, k)), "r"(word(a, p.row + p.g + 8, k)),
                     "r"(word(a, p.row + p.g, k + 16)), "r"(word(a, p.row + p.g + 8, k + 16)),
                     "r"(word(b, p.column + p.g, k)), "r"(word(b, p.column + p.g, k + 16)));
    }
    put(p, out, c);
}
