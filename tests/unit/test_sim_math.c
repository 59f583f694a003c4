// One lane's arithmetic on the sim device, against other ways to reckon it: halves in f64 with
// ldexp, exhaustively where 16 bits allow; integers bit by bit.
#include "device/sim/lanes_math.h"
#include "device/sim/wgmma.h"

#include "device/sim/exec_impl.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

// An encoding's worth, from its fields.
static double worth(uint32_t bits, int exponent_bits, int fraction_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    double fraction = (double)(bits & ((1u << fraction_bits) - 1));
    double sign = bits >> (exponent_bits + fraction_bits) & 1 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) {
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return exponent ? sign * ldexp(ldexp(1, fraction_bits) + fraction,
                                     exponent - bias - fraction_bits)
                    : sign * ldexp(fraction, 1 - bias - fraction_bits);
}

// Encodings of non-negative numbers are in the order of their worth, so the nearest one is found by
// halving; of two as near, the even one.
static uint32_t nearest(double value, int exponent_bits, int fraction_bits) {
    uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
    uint32_t sign = signbit(value) ? 1u << (exponent_bits + fraction_bits) : 0;
    double size = fabs(value);
    if (isnan(value)) {
        return 0x7fff;
    }
    uint32_t low = 0, high = infinity; // worth(low) <= size < worth(high), or size is infinite
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (worth(middle, exponent_bits, fraction_bits) <= size) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (isinf(value)) {
        return sign | infinity;
    }
    double below = worth(low, exponent_bits, fraction_bits);
    double step = low ? below - worth(low - 1, exponent_bits, fraction_bits)
                      : worth(1, exponent_bits, fraction_bits);
    // Where the exponent changes, the next step is twice the last; infinity counts as the next.
    double above = high == infinity ? below + step : worth(high, exponent_bits, fraction_bits);
    double down = size - below, up = above - size;
    return sign | (down < up || (down == up && !(low & 1)) ? low : high);
}

static uint32_t next_random(uint32_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static void math_widens_every_half(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        double f16 = worth(bits, 5, 10), bf16 = worth(bits, 8, 7);
        float mine = f16_to_f32((uint16_t)bits), other = bf16_to_f32((uint16_t)bits);
        if (isnan(f16)) {
            assert_int_equal(f32_bits(mine), 0x7fffffff);
        } else {
            assert_true((double)mine == f16 && !signbit(mine) == !(bits >> 15));
        }
        assert_true(isnan(bf16) ? f32_bits(other) == 0x7fffffff : (double)other == bf16);
    }
}

static void math_narrows_to_the_nearest_half(void **state) {
    (void)state;
    uint32_t seed = 1;
    for (uint32_t i = 0; i < 400000; i++) {
        uint32_t bits = next_random(&seed);
        if (i % 2) { // within the range of a half, around a tie
            bits = (bits & 0x8000e000u) | (0x33000000u + (bits >> 3) % 0x15000000u);
            bits = i % 4 == 1 ? (bits & 0xffffe000u) | 0x1000u : bits;
        }
        double value = (double)f32_of(bits);
        assert_int_equal(f16_from_f32(f32_of(bits)), nearest(value, 5, 10));
        assert_int_equal(bf16_from_f32(f32_of(bits)), nearest(value, 8, 7));
    }
}

// A sum of halves is exact in f64 when it is of f16; products are exact in any case.
static void math_rounds_f16_once(void **state) {
    (void)state;
    uint32_t seed = 7;
    for (uint32_t i = 0; i < 300000; i++) {
        uint32_t r = next_random(&seed);
        uint16_t a = (uint16_t)r, b = (uint16_t)(r >> 16), c = (uint16_t)next_random(&seed);
        double x = worth(a, 5, 10), y = worth(b, 5, 10), z = worth(c, 5, 10);
        assert_int_equal(f16_from_f32(f16_to_f32(a) + f16_to_f32(b)), nearest(x + y, 5, 10));
        assert_int_equal(f16_from_f32(f16_to_f32(a) * f16_to_f32(b)), nearest(x * y, 5, 10));
        // The long double of x86 holds the exact sum wherever it could matter.
        if (sizeof(long double) > sizeof(double)) {
            long double exact = (long double)x * (long double)y + (long double)z;
            double near = (double)exact;
            if ((long double)near == exact || isnan(near)) {
                assert_int_equal(f16_fma(a, b, c), nearest(near, 5, 10));
            }
        }
    }
    // 1 + 2^-8 is halfway between two bf16; what is added decides.
    assert_int_equal(bf16_fma(0x3f81, 0x3f80, 0x3b80), 0x3f82); // a tie, to even
    assert_int_equal(bf16_fma(0x3f80, 0x3f80, 0x3b80), 0x3f80);
    assert_int_equal(bf16_from_f64(f64_add_to_odd(1 + 0x1p-8, 0x1p-100)), 0x3f81);
    assert_int_equal(bf16_from_f64(f64_add_to_odd(1 + 0x1p-8, -0x1p-100)), 0x3f80);
}

static void math_takes_powers_of_two_closely(void **state) {
    (void)state;
    double worst = 0;
    for (int i = -126 * 4096; i < 128 * 4096; i++) {
        float x = (float)i / 4096.0f + 1e-5f;
        double exact = exp2((double)x), ulp = ldexp(1, ilogb(exact) - 23);
        double error = fabs((double)f32_exp2(x, 1) - exact) / ulp;
        worst = error > worst ? error : worst;
    }
    assert_true(worst < 1.1);
    assert_true(f32_exp2(0, 0) == 1.0f && f32_exp2(-0.0f, 0) == 1.0f);
    assert_true(f32_exp2(-INFINITY, 1) == 0 && isinf(f32_exp2(INFINITY, 1)));
    assert_int_equal(f32_bits(f32_exp2(NAN, 0)), 0x7fffffff);
    assert_true(f32_exp2(-149, 0) == 0x1p-149f && f32_exp2(-149, 1) == 0);
}

static void math_extracts_and_inserts_fields(void **state) {
    (void)state;
    assert_int_equal(int_extract_u64(0xffffffff, 32, 8, 32), 0);
    assert_int_equal((int32_t)int_extract_s64((int32_t)0x80000000, 40, 8, 32), -1);
    assert_int_equal((int32_t)int_extract_s64(0x00000180, 7, 2, 32), -1);
    assert_int_equal((int32_t)int_extract_s64(0x00000180, 7, 3, 32), 3);
    assert_int_equal(int_insert(0xff, 0, 28, 8, 32) & UINT32_MAX, 0xf0000000);
    for (uint32_t at = 0; at < 40; at++) {
        for (uint32_t len = 0; len < 40; len++) {
            uint32_t a = 0xdeadbeef, wanted = 0;
            for (uint32_t bit = 0; bit < len && bit < 32; bit++) {
                wanted |= at + bit < 32 && a >> (at + bit) & 1 ? 1u << bit : 0;
            }
            assert_int_equal(int_extract_u64(a, at, len, 32), wanted);
        }
    }
}

static void math_looks_bits_up(void **state) {
    (void)state;
    uint32_t a = 0xf0f0cc55, b = 0x33aa5a0f, c = 0x96c3fe81;
    for (uint32_t table = 0; table < 256; table++) {
        uint32_t wanted = 0;
        for (int bit = 0; bit < 32; bit++) {
            uint32_t row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
            wanted |= (table >> row & 1) << bit;
        }
        assert_int_equal(int_lop3(a, b, c, table), wanted);
    }
    assert_int_equal(int_permute(0x33221100, 0x77665544, 0x7531), 0x77553311);
    assert_int_equal(int_permute(0x80, 0, 0x888a), 0xffffff00);
    assert_int_equal(int_reverse(1), 0x80000000);
    assert_int_equal(int_nth_set(0xaaaaaaaa, 0, 3), 5);
    assert_int_equal(int_nth_set(0xaaaaaaaa, 0, 0), UINT32_MAX);
    assert_int_equal(int_nth_set(0xaaaaaaaa, 8, -2), 5);
    assert_int_equal(int_dot4(0x01ff02fe, 0x02030405, 10, 1, 1), 10 + 2 - 3 + 8 - 10);
    assert_int_equal(int_dot4(0xff000000, 0xff000000, 0, 0, 0), 255 * 255);
}

static void math_divides_by_zero(void **state) {
    (void)state;
    assert_int_equal(int_div_u32(7, 0), UINT32_MAX);
    assert_int_equal(int_rem_u32(7, 0), 7);
    assert_int_equal(int_div_s32(INT32_MIN, -1), INT32_MIN);
    assert_int_equal(int_rem_s32(INT32_MIN, -1), 0);
    assert_int_equal(int_shl32(1, 32), 0);
    assert_int_equal(int_sar32(-8, 99), -1);
    assert_int_equal(f32_bits(f32_min(-0.0f, 0.0f, 0)), 0x80000000);
    assert_int_equal(f32_bits(f32_max(-0.0f, 0.0f, 0)), 0);
    assert_true(f32_min(NAN, 2, 0) == 2 && isnan(f32_min(NAN, 2, 1)));
    assert_int_equal(f32_bits(f32_flush(f32_of(0x80200000))), 0x80000000);
    assert_int_equal(f32_bits(f32_saturate(NAN)), 0);
}

#if defined(__x86_64__)
// ---- Both instruction sets ----------------------------------------------------------------------
enum {
    REGISTER = 16 * SIM_LANES, // bytes, the widest
    REGISTERS = 16,
};

// Bits of all kinds: random ones, small integers, halves and singles of special worth.
static uint32_t any_bits(uint32_t *seed) {
    static const uint32_t special[] = {0, 1, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
            0x00800000, 0x007fffff, 0x3f800000, 0x7c007c00, 0xfc000001, 0x7e000400, 0x03ff8000,
            0xffffffff, 31, 32, 33, 64};
    uint32_t r = next_random(seed);
    return r % 4 == 0   ? special[r / 4 % (sizeof(special) / sizeof(special[0]))]
           : r % 4 == 1 ? next_random(seed) % 64
           : r % 4 == 2 ? (next_random(seed) & 0x87ffffff) | 0x38000000
                        : next_random(seed);
}

static void math_gives_the_same_bits_with_avx2_and_without(void **state) {
    (void)state;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        skip();
    }
    static unsigned char one[REGISTERS * REGISTER] __attribute__((aligned(64)));
    static unsigned char two[REGISTERS * REGISTER] __attribute__((aligned(64)));
    static const uint32_t masks[] = {SIM_ALL, 0x0000ffff, 0x80000001, 0x12345678};
    sim_handler plain[SIM_OP_COUNT] = {0}, quick[SIM_OP_COUNT] = {0};
    uint32_t list[4 + 4 + 2 + 4], seed = 99;
    kiln_sim_lanes_generic(plain);
    kiln_sim_mma_generic(plain);
    kiln_sim_lanes_avx2(quick);
    kiln_sim_mma_avx2(quick);
    // d, a, b, c of a matrix: registers 0-3, 4-7, 8-9, 10-13.
    for (uint32_t i = 0; i < 14; i++) {
        list[i] = i * REGISTER;
    }
    for (int number = 0; number < SIM_OP_COUNT; number++) {
        assert_non_null(plain[number]);
        assert_non_null(quick[number]);
        int matrix = number >= SIM_OP_MMA_F16_F32;
        for (uint32_t round = 0; round < 24; round++) {
            for (size_t i = 0; i < sizeof(one); i += 4) {
                uint32_t bits = any_bits(&seed);
                memcpy(one + i, &bits, 4);
            }
            memcpy(two, one, sizeof(one));
            struct sim_op op = {.d = 0,
                    .d2 = 15 * REGISTER,
                    .a = 4 * REGISTER,
                    .b = 5 * REGISTER,
                    .c = 6 * REGISTER,
                    .e = 7 * REGISTER,
                    .mode = round % 6};
            op.list_a = 4;
            op.list_b = 8;
            op.list_c = 10;
            op.n = round % 2 ? 1 : 2;
            // Of a warpgroup: sums in registers 0-3, or halves of them in 0 and 1.
            struct sim_product product = {
                    .n = 1, .bf16 = round % 3 == 0, .halves = round % 3 == 1, .zero = round & 1};
            memcpy(product.a, one + 4 * REGISTER, sizeof(product.a));
            memcpy(product.b[0], one + 8 * REGISTER, sizeof(product.b[0]));
            struct sim_warp warp = {.lists = list, .product = &product};
            warp.mask = matrix ? SIM_ALL : masks[round % 4];
            warp.bank[0] = one;
            (void)plain[number](&warp, &op);
            warp.bank[0] = two;
            (void)quick[number](&warp, &op);
            if (memcmp(one, two, sizeof(one)) != 0) {
                print_error("operation %d differs\n", number);
            }
            assert_memory_equal(one, two, sizeof(one));
        }
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(math_widens_every_half),
        cmocka_unit_test(math_narrows_to_the_nearest_half),
        cmocka_unit_test(math_rounds_f16_once),
        cmocka_unit_test(math_takes_powers_of_two_closely),
        cmocka_unit_test(math_extracts_and_inserts_fields),
        cmocka_unit_test(math_looks_bits_up),
        cmocka_unit_test(math_divides_by_zero),
#if defined(__x86_64__)
        cmocka_unit_test(math_gives_the_same_bits_with_avx2_and_without),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
