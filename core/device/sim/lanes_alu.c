// lanes_alu: arithmetic, logic, comparison and selection, 32 lanes at a time. Compiled once for any
// host and once for AVX2 (SIM_ISA).
#include "device/sim/lanes.h"

#include "device/sim/lanes_impl.h"

// ---- Halves -------------------------------------------------------------------------------------
// An f32 holds more than twice the digits of a half and two more, so add, subtract and multiply in
// f32 and round again: the same as rounding once.
#define H_FLUSH_IN(v) (mode & SIM_MODE_FTZ ? f16_flush(v) : (v))

SIM_INLINE float h_in_f16(uint16_t a) {
    return f16_to_f32(a);
}

SIM_INLINE float h_in_bf16(uint16_t a) {
    return bf16_to_f32(a);
}

SIM_INLINE uint16_t h_finish_f16(uint16_t r, uint32_t mode) {
    int nan = (r & 0x7fff) > 0x7c00;
    r = mode & SIM_MODE_FTZ ? f16_flush(r) : r;
    if (mode & SIM_MODE_SAT) {
        r = nan || r >= 0x8000 ? 0 : r > 0x3c00 ? 0x3c00 : r;
    } else if (mode & SIM_MODE_RELU) {
        r = !nan && r >= 0x8000 ? 0 : r;
    }
    return nan && !(mode & SIM_MODE_SAT) ? 0x7fff : r;
}

SIM_INLINE uint16_t h_finish_bf16(uint16_t r, uint32_t mode) {
    int nan = (r & 0x7fff) > 0x7f80;
    if (mode & SIM_MODE_SAT) {
        r = nan || r >= 0x8000 ? 0 : r > 0x3f80 ? 0x3f80 : r;
    } else if (mode & SIM_MODE_RELU) {
        r = !nan && r >= 0x8000 ? 0 : r;
    }
    return nan && !(mode & SIM_MODE_SAT) ? 0x7fff : r;
}

// min, max and .xorsign.abs of either format by way of f32, exactly.
SIM_INLINE float h_pick(float a, float b, int most, uint32_t mode) {
    float x = mode & SIM_MODE_XORSIGN ? fabsf(a) : a, y = mode & SIM_MODE_XORSIGN ? fabsf(b) : b;
    int nan = (mode & SIM_MODE_NAN) != 0;
    float r = most ? f32_max(x, y, nan) : f32_min(x, y, nan);
    return mode & SIM_MODE_XORSIGN ? f32_with_xor_sign(r, a, b) : r;
}

#define H_BINARY(format, op, expression) \
    SIM_INLINE uint16_t h_##op##_##format(uint16_t a, uint16_t b, uint32_t mode) { \
        float x = h_in_##format(a), y = h_in_##format(b); \
        return h_finish_##format(format##_from_f32(expression), mode); \
    }

#define H_BINARY_F16(op, expression) \
    SIM_INLINE uint16_t h_##op##_f16(uint16_t a, uint16_t b, uint32_t mode) { \
        float x = h_in_f16(H_FLUSH_IN(a)), y = h_in_f16(H_FLUSH_IN(b)); \
        return h_finish_f16(f16_from_f32(expression), mode); \
    }

H_BINARY_F16(add, x + y)
H_BINARY_F16(sub, x - y)
H_BINARY_F16(mul, x *y)
H_BINARY_F16(min, h_pick(x, y, 0, mode))
H_BINARY_F16(max, h_pick(x, y, 1, mode))
H_BINARY(bf16, mul, x *y)
H_BINARY(bf16, min, h_pick(x, y, 0, mode))
H_BINARY(bf16, max, h_pick(x, y, 1, mode))

// Two bf16 may be further apart than an f32 has digits.
SIM_INLINE uint16_t h_add_bf16(uint16_t a, uint16_t b, uint32_t mode) {
    double sum = f64_add_to_odd((double)h_in_bf16(a), (double)h_in_bf16(b));
    return h_finish_bf16(bf16_from_f64(sum), mode);
}

SIM_INLINE uint16_t h_sub_bf16(uint16_t a, uint16_t b, uint32_t mode) {
    double sum = f64_add_to_odd((double)h_in_bf16(a), -(double)h_in_bf16(b));
    return h_finish_bf16(bf16_from_f64(sum), mode);
}

SIM_INLINE uint16_t h_fma_f16(uint16_t a, uint16_t b, uint16_t c, uint32_t mode) {
    return h_finish_f16(f16_fma(H_FLUSH_IN(a), H_FLUSH_IN(b), H_FLUSH_IN(c)), mode);
}

SIM_INLINE uint16_t h_fma_bf16(uint16_t a, uint16_t b, uint16_t c, uint32_t mode) {
    return h_finish_bf16(bf16_fma(a, b, c), mode);
}

SIM_INLINE uint16_t h_neg_f16(uint16_t a, uint32_t mode) {
    return h_finish_f16(H_FLUSH_IN(a) ^ 0x8000, mode);
}

SIM_INLINE uint16_t h_abs_f16(uint16_t a, uint32_t mode) {
    return h_finish_f16(H_FLUSH_IN(a) & 0x7fff, mode);
}

SIM_INLINE uint16_t h_neg_bf16(uint16_t a, uint32_t mode) {
    return h_finish_bf16(a ^ 0x8000, mode);
}

SIM_INLINE uint16_t h_abs_bf16(uint16_t a, uint32_t mode) {
    return h_finish_bf16(a & 0x7fff, mode);
}

SIM_INLINE uint16_t h_ex2_f16(uint16_t a, uint32_t mode) {
    return h_finish_f16(f16_from_f32(f32_exp2(f16_to_f32(H_FLUSH_IN(a)), 0)), mode);
}

SIM_INLINE uint16_t h_ex2_bf16(uint16_t a, uint32_t mode) {
    return h_finish_bf16(bf16_from_f32(f32_exp2(bf16_to_f32(a), 1)), mode);
}

SIM_INLINE uint16_t h_tanh_f16(uint16_t a, uint32_t mode) {
    return h_finish_f16(f16_from_f64(tanh((double)f16_to_f32(a))), mode);
}

SIM_INLINE uint16_t h_tanh_bf16(uint16_t a, uint32_t mode) {
    return h_finish_bf16(bf16_from_f64(tanh((double)bf16_to_f32(a))), mode);
}

#define SIM_LOW(v)   ((uint16_t)(v))
#define SIM_HIGH(v)  ((uint16_t)((v) >> 16))
#define SIM_BOTH1(f) ((uint32_t)f(SIM_HIGH(a), op->mode) << 16 | (uint32_t)f(SIM_LOW(a), op->mode))
#define SIM_BOTH2(f) \
    ((uint32_t)f(SIM_HIGH(a), SIM_HIGH(b), op->mode) << 16 | \
            (uint32_t)f(SIM_LOW(a), SIM_LOW(b), op->mode))
#define SIM_BOTH3(f) \
    ((uint32_t)f(SIM_HIGH(a), SIM_HIGH(b), SIM_HIGH(c), op->mode) << 16 | \
            (uint32_t)f(SIM_LOW(a), SIM_LOW(b), SIM_LOW(c), op->mode))

// The f64 approximations look at the upper half of a number's bits alone.
SIM_INLINE double f64_flush(double a) {
    uint64_t bits = f64_bits(a);
    return f64_of(bits >> 52 & 0x7ff ? bits : bits & UINT64_C(1) << 63);
}

SIM_INLINE double f64_approx(double a) {
    return f64_canonical(f64_flush(a));
}

// ---- Loops --------------------------------------------------------------------------------------
#define SIM_FTZ       ((int)(mode & SIM_MODE_FTZ))
#define SIM_SAT       ((mode & SIM_MODE_SAT) != 0)
#define SIM_NAN       ((mode & SIM_MODE_NAN) != 0)
#define SIM_IN(value) (mode & SIM_MODE_FTZ ? f32_flush(value) : (value))

#ifdef __FMA__
#    define SIM_FMAF(a, b, c) __builtin_fmaf(a, b, c)
#    define SIM_FMA(a, b, c)  __builtin_fma(a, b, c)
#else
#    define SIM_FMAF(a, b, c) fmaf(a, b, c)
#    define SIM_FMA(a, b, c)  fma(a, b, c)
#endif

#define SIM_HANDLER(name) \
    static const struct sim_op *run_##name(struct sim_warp *warp, const struct sim_op *op)

// Stores `expression`, of type D, to the active lanes; `loads` declares its operands.
#define SIM_STORE(D, loads, expression) \
    if (warp->mask == SIM_ALL) { \
        SIM_EACH_LANE { \
            loads; \
            d[i] = (lane_##D)(D)(expression); \
        } \
    } else { \
        const uint32_t active = warp->mask; \
        SIM_EACH_LANE { \
            loads; \
            lane_##D r = (lane_##D)(D)(expression); \
            d[i] = (active & sim_bit32[i]) ? r : d[i]; \
        } \
    }

#define SIM_STORE_SLOW(D, loads, expression) \
    const uint32_t active = warp->mask; \
    for (int i = 0; i < SIM_LANES; i++) { \
        if (active >> i & 1) { \
            loads; \
            d[i] = (lane_##D)(D)(expression); \
        } \
    }

// clang-format off
#define SIM_RUN1(STORE, name, D, A, expression) \
    SIM_HANDLER(name) { \
        lane_##D *d = sim_aligned(warp, op->d); \
        const lane_##A *pa = sim_aligned(warp, op->a); \
        const uint32_t mode = op->mode; \
        (void)mode; \
        STORE(D, const A a = (A)pa[i], expression) \
        return op + 1; \
    }
#define SIM_RUN2(STORE, name, D, A, B, expression) \
    SIM_HANDLER(name) { \
        lane_##D *d = sim_aligned(warp, op->d); \
        const lane_##A *pa = sim_aligned(warp, op->a); \
        const lane_##B *pb = sim_aligned(warp, op->b); \
        const uint32_t mode = op->mode; \
        (void)mode; \
        STORE(D, const A a = (A)pa[i]; const B b = (B)pb[i], expression) \
        return op + 1; \
    }
#define SIM_RUN3(STORE, name, D, A, B, C, expression) \
    SIM_HANDLER(name) { \
        lane_##D *d = sim_aligned(warp, op->d); \
        const lane_##A *pa = sim_aligned(warp, op->a); \
        const lane_##B *pb = sim_aligned(warp, op->b); \
        const lane_##C *pc = sim_aligned(warp, op->c); \
        const uint32_t mode = op->mode; \
        (void)mode; \
        STORE(D, const A a = (A)pa[i]; const B b = (B)pb[i]; const C c = (C)pc[i], expression) \
        return op + 1; \
    }
#define SIM_FAST1(...) SIM_RUN1(SIM_STORE, __VA_ARGS__)
#define SIM_FAST2(...) SIM_RUN2(SIM_STORE, __VA_ARGS__)
#define SIM_FAST3(...) SIM_RUN3(SIM_STORE, __VA_ARGS__)
#define SIM_EACH1(...) SIM_RUN1(SIM_STORE_SLOW, __VA_ARGS__)
#define SIM_EACH2(...) SIM_RUN2(SIM_STORE_SLOW, __VA_ARGS__)
#define SIM_EACH3(...) SIM_RUN3(SIM_STORE_SLOW, __VA_ARGS__)
#ifdef __FMA__
#    define SIM_FUSED SIM_FAST3
#else
#    define SIM_FUSED SIM_EACH3
#endif
SIM_MAP1(SIM_FAST1)
SIM_MAP2(SIM_FAST2)
SIM_MAP3(SIM_FAST3)
SIM_MAP_FMA(SIM_FUSED)
SIM_SLOW1(SIM_EACH1)
SIM_SLOW2(SIM_EACH2)
SIM_SLOW3(SIM_EACH3)
// clang-format on

// ---- Comparison ---------------------------------------------------------------------------------
// A comparison may be joined with predicate c and give a second result, its complement joined
// likewise. Bits of op->mode: 0-1 enum kiln_ptx_bool, 2 c is negated, 3 there is a second result.
SIM_INLINE uint32_t join(uint32_t a, uint32_t c, uint32_t how) {
    return how == KILN_PTX_BOOL_AND   ? a & c
           : how == KILN_PTX_BOOL_OR  ? a | c
           : how == KILN_PTX_BOOL_XOR ? a ^ c
                                      : a;
}

SIM_INLINE void put_bits(const struct sim_warp *warp, uint32_t ref, uint32_t bits) {
    u32 *to = sim_at(warp, ref);
    *to = (*to & ~warp->mask) | (bits & warp->mask);
}

static void put_joined(const struct sim_warp *warp, const struct sim_op *op, uint32_t bits) {
    uint32_t other = ~bits;
    if (op->mode & 3) {
        uint32_t c = *(const u32 *)sim_at(warp, op->c);
        c = op->mode & 4 ? ~c : c;
        bits = join(bits, c, op->mode & 3);
        other = join(other, c, op->mode & 3);
    }
    put_bits(warp, op->d, bits);
    if (op->mode & 8) {
        put_bits(warp, op->d2, other);
    }
}

#define SIM_SETP(name, T, expression) \
    SIM_HANDLER(SETP_##name) { \
        const lane_##T *pa = sim_aligned(warp, op->a), *pb = sim_aligned(warp, op->b); \
        uint32_t bits = 0; \
        SIM_EACH_LANE { \
            const T a = (T)pa[i], b = (T)pb[i]; \
            bits |= (expression) ? sim_bit32[i] : 0; \
        } \
        if (op->mode == 0) { \
            put_bits(warp, op->d, bits); \
        } else { \
            put_joined(warp, op, bits); \
        } \
        return op + 1; \
    }

// clang-format off
SIM_COMPARE(SIM_SETP)
// clang-format on

// ---- Predicates ---------------------------------------------------------------------------------
// op->mode: 1 a is negated, 2 b is.
SIM_INLINE uint32_t source(const struct sim_warp *warp, uint32_t ref, uint32_t negated) {
    uint32_t bits = *(const u32 *)sim_at(warp, ref);
    return negated ? ~bits : bits;
}

#define SIM_PREDICATES(name, expression) \
    SIM_HANDLER(name) { \
        uint32_t a = source(warp, op->a, op->mode & 1), b = source(warp, op->b, op->mode & 2); \
        (void)b; \
        put_bits(warp, op->d, expression); \
        return op + 1; \
    }

SIM_PREDICATES(MOV_PRED, a)
SIM_PREDICATES(NOT_PRED, ~a)
SIM_PREDICATES(AND_PRED, a &b)
SIM_PREDICATES(OR_PRED, a | b)
SIM_PREDICATES(XOR_PRED, a ^ b)

#define SIM_SELECT(name, T) \
    SIM_HANDLER(name) { \
        lane_##T *d = sim_aligned(warp, op->d); \
        const lane_##T *pa = sim_aligned(warp, op->a), *pb = sim_aligned(warp, op->b); \
        const uint32_t picks = *(const u32 *)sim_at(warp, op->c); \
        const uint32_t active = warp->mask; \
        if (active == SIM_ALL) { \
            SIM_EACH_LANE { \
                d[i] = (picks & sim_bit32[i]) ? pa[i] : pb[i]; \
            } \
        } else { \
            SIM_EACH_LANE { \
                lane_##T r = (picks & sim_bit32[i]) ? pa[i] : pb[i]; \
                d[i] = (active & sim_bit32[i]) ? r : d[i]; \
            } \
        } \
        return op + 1; \
    }

SIM_SELECT(SELP_B32, u32)
SIM_SELECT(SELP_B64, u64)

// ---- Three sources and a fourth -----------------------------------------------------------------
SIM_HANDLER(BFI_B32) {
    u32 *d = sim_at(warp, op->d);
    const u32 *a = sim_at(warp, op->a), *b = sim_at(warp, op->b), *at = sim_at(warp, op->c),
              *len = sim_at(warp, op->e);
    for (int i = 0; i < SIM_LANES; i++) {
        if (warp->mask >> i & 1) {
            d[i] = (uint32_t)int_insert(a[i], b[i], at[i], len[i], 32);
        }
    }
    return op + 1;
}

SIM_HANDLER(BFI_B64) {
    u64 *d = sim_at(warp, op->d);
    const u64 *a = sim_at(warp, op->a), *b = sim_at(warp, op->b);
    const u32 *at = sim_at(warp, op->c), *len = sim_at(warp, op->e);
    for (int i = 0; i < SIM_LANES; i++) {
        if (warp->mask >> i & 1) {
            d[i] = int_insert(a[i], b[i], at[i], len[i], 64);
        }
    }
    return op + 1;
}

// d = table of a, b, c; predicate d2 = (d != 0) joined with predicate e. mode: the table in its low
// byte, then enum kiln_ptx_bool, then whether e is negated.
SIM_HANDLER(LOP3_PRED) {
    u32 *d = sim_at(warp, op->d);
    const u32 *a = sim_at(warp, op->a), *b = sim_at(warp, op->b), *c = sim_at(warp, op->c);
    uint32_t bits = 0;
    for (int i = 0; i < SIM_LANES; i++) {
        if (warp->mask >> i & 1) {
            d[i] = int_lop3(a[i], b[i], c[i], op->mode);
            bits |= d[i] ? 1u << i : 0;
        }
    }
    uint32_t e = source(warp, op->e, op->mode >> 10 & 1);
    put_bits(warp, op->d2, join(bits, e, op->mode >> 8 & 3));
    return op + 1;
}

// ---- Carries ------------------------------------------------------------------------------------
// add, sub and mad of 32 or 64 bits with a carry in (predicate e) or out (predicate d2). mode: 0
// add, 1 sub, 2 mad.lo, 3 mad.hi unsigned, 4 mad.hi signed; 8: 64 bits, 16: carry in, 32: carry
// out. A borrow is a carry of 1.
SIM_INLINE uint64_t product(uint64_t a, uint64_t b, uint32_t what, int wide) {
    if (what == 2) {
        return a * b;
    }
    if (!wide) {
        return what == 3 ? (uint64_t)(uint32_t)a * (uint32_t)b >> 32
                         : (uint64_t)((int64_t)(int32_t)a * (int32_t)b >> 32);
    }
    return what == 3 ? int_mul_hi_u64(a, b) : (uint64_t)int_mul_hi_s64((int64_t)a, (int64_t)b);
}

SIM_INLINE uint64_t lane_of(const void *at, int i, int wide) {
    return wide ? ((const u64 *)at)[i] : ((const u32 *)at)[i];
}

SIM_HANDLER(CARRY) {
    void *d = sim_at(warp, op->d);
    const void *a = sim_at(warp, op->a), *b = sim_at(warp, op->b);
    const uint32_t what = op->mode & 7, active = warp->mask;
    const int wide = (op->mode & 8) != 0;
    const void *c = what >= 2 ? sim_at(warp, op->c) : NULL;
    const uint32_t in = op->mode & 16 ? *(const u32 *)sim_at(warp, op->e) : 0;
    uint32_t out = 0;
    for (int i = 0; i < SIM_LANES; i++) {
        if (!(active >> i & 1)) {
            continue;
        }
        uint64_t x = lane_of(a, i, wide), y = lane_of(b, i, wide);
        if (c) {
            x = product(x, y, what, wide);
            x = wide ? x : (uint32_t)x;
            y = lane_of(c, i, wide);
        }
        sim_u128 r = what == 1 ? (sim_u128)x - y - (in >> i & 1) : (sim_u128)x + y + (in >> i & 1);
        out |= (uint32_t)(r >> (wide ? 64 : 32)) & 1 ? 1u << i : 0;
        if (wide) {
            ((u64 *)d)[i] = (uint64_t)r;
        } else {
            ((u32 *)d)[i] = (uint32_t)r;
        }
    }
    if (op->mode & 32) {
        put_bits(warp, op->d2, out);
    }
    return op + 1;
}

// ---- The table ----------------------------------------------------------------------------------
#define SIM_ENTRY(name, ...)      handlers[SIM_OP_##name] = run_##name;
#define SIM_ENTRY_SETP(name, ...) handlers[SIM_OP_SETP_##name] = run_SETP_##name;

void SIM_NAMED(kiln_sim_lanes_)(sim_handler handlers[SIM_OP_COUNT]) {
    // clang-format off
    SIM_MAP1(SIM_ENTRY)
    SIM_MAP2(SIM_ENTRY)
    SIM_MAP3(SIM_ENTRY)
    SIM_MAP_FMA(SIM_ENTRY)
    SIM_SLOW1(SIM_ENTRY)
    SIM_SLOW2(SIM_ENTRY)
    SIM_SLOW3(SIM_ENTRY)
    SIM_COMPARE(SIM_ENTRY_SETP)
    // clang-format on
    handlers[SIM_OP_MOV_PRED] = run_MOV_PRED;
    handlers[SIM_OP_NOT_PRED] = run_NOT_PRED;
    handlers[SIM_OP_AND_PRED] = run_AND_PRED;
    handlers[SIM_OP_OR_PRED] = run_OR_PRED;
    handlers[SIM_OP_XOR_PRED] = run_XOR_PRED;
    handlers[SIM_OP_SELP_B32] = run_SELP_B32;
    handlers[SIM_OP_SELP_B64] = run_SELP_B64;
    handlers[SIM_OP_CARRY] = run_CARRY;
    handlers[SIM_OP_BFI_B32] = run_BFI_B32;
    handlers[SIM_OP_BFI_B64] = run_BFI_B64;
    handlers[SIM_OP_LOP3_PRED] = run_LOP3_PRED;
}
