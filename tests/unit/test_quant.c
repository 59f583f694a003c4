// quant: blocks worked out by hand read as they should; what is quantized comes back within a step.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kiln/plugin.h"
#include "model/dtype.h"
#include "model/quant.h"

// The reference plugin reads blocks on its own, as it sees nothing of the core: the two meet only
// here.
#include "../../plugins/cpu/dequant.c"

static const uint32_t types[] = {KILN_DTYPE_F32, KILN_DTYPE_F16, KILN_DTYPE_BF16, KILN_DTYPE_Q4_0,
        KILN_DTYPE_Q4_1, KILN_DTYPE_Q5_0, KILN_DTYPE_Q8_0, KILN_DTYPE_Q4_K, KILN_DTYPE_Q5_K,
        KILN_DTYPE_Q6_K};
enum {
    N_TYPES = sizeof(types) / sizeof(types[0])
};

static uint64_t random_state;

static uint32_t random_u32(void) {
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(random_state >> 32);
}

// About normal, variance 1.
static float random_normal(void) {
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += random_u32() * 0x1p-32;
    }
    return (float)(sum - 6);
}

static size_t row_bytes(uint32_t dtype, size_t n) {
    const struct kiln_dtype_info *info = kiln_dtype_info(dtype);
    return n / info->elems * info->bytes;
}

static void quant_reads_scales_of_q4_k(void **state) {
    (void)state;
    // Scales and minimums of groups 4 to 7 lie split.
    static const uint8_t scale_bytes[12] = {
            0x41, 0x82, 0xC3, 0xC4, 0x45, 0x86, 0xC7, 0x88, 0x41, 0x82, 0xC3, 0x1F};
    static const uint8_t want_scales[8] = {1, 2, 3, 4, 17, 34, 51, 63};
    static const uint8_t want_mins[8] = {5, 6, 7, 8, 20, 40, 60, 33};
    static const float want[8] = {-4, -4, -4, -4, -3, -6, -9, 30};
    uint8_t block[144] = {0x00, 0x3C, 0x00, 0x3C};
    memcpy(block + 4, scale_bytes, 12);
    memset(block + 16, 0x11, 128);
    uint8_t scales[8], mins[8], packed[12];
    kiln_unpack_scales(scale_bytes, scales, mins);
    assert_memory_equal(scales, want_scales, 8);
    assert_memory_equal(mins, want_mins, 8);
    kiln_pack_scales(scales, mins, packed);
    assert_memory_equal(packed, scale_bytes, 12);
    float values[256];
    assert_int_equal(kiln_dequant_row(KILN_DTYPE_Q4_K, block, values, 256), 0);
    for (int i = 0; i < 256; i++) {
        assert_true(values[i] == want[i / 32]);
    }
}

static void quant_packs_every_scale(void **state) {
    (void)state;
    for (int i = 0; i < 1000; i++) {
        uint8_t scales[8], mins[8], packed[12], scales_back[8], mins_back[8];
        for (int g = 0; g < 8; g++) {
            scales[g] = random_u32() >> 7 & 63;
            mins[g] = random_u32() >> 7 & 63;
        }
        kiln_pack_scales(scales, mins, packed);
        kiln_unpack_scales(packed, scales_back, mins_back);
        assert_memory_equal(scales, scales_back, 8);
        assert_memory_equal(mins, mins_back, 8);
    }
}

static void check_values(uint32_t dtype, const uint8_t *block, size_t n, const int *at,
        const float *want, size_t count) {
    float values[256];
    assert_int_equal(kiln_dequant_row(dtype, block, values, n), 0);
    for (size_t i = 0; i < count; i++) {
        if (values[at[i]] != want[i]) {
            fail_msg("%s: value %d is %g, not %g", kiln_dtype_info(dtype)->name, at[i],
                    (double)values[at[i]], (double)want[i]);
        }
    }
}

// d = 0.5 (3800), m = -2 (C000); bytes of nibbles count up.
static void quant_reads_small_blocks(void **state) {
    (void)state;
    static const int at[] = {0, 1, 15, 16, 17, 31};
    uint8_t block[34] = {0x00, 0x38};
    for (int i = 0; i < 16; i++) {
        block[2 + i] = (uint8_t)(i | (15 - i) << 4);
    }
    check_values(KILN_DTYPE_Q4_0, block, 32, at, (const float[]){-4, -3.5F, 3.5F, 3.5F, 3, -4}, 6);
    memmove(block + 4, block + 2, 16);
    block[2] = 0x00;
    block[3] = 0xC0;
    check_values(KILN_DTYPE_Q4_1, block, 32, at, (const float[]){-2, -1.5F, 5.5F, 5.5F, 5, -2}, 6);
    memmove(block + 6, block + 4, 16);
    static const uint8_t high[4] = {0x02, 0x80, 0x01, 0x00}; // bits 1, 15, 16
    memcpy(block + 2, high, 4);
    check_values(KILN_DTYPE_Q5_0, block, 32, at, (const float[]){-8, .5F, 7.5F, 7.5F, -1, -8}, 6);
    for (int i = 0; i < 32; i++) {
        block[2 + i] = (uint8_t)(8 * i - 128);
    }
    check_values(KILN_DTYPE_Q8_0, block, 32, at, (const float[]){-64, -60, -4, 0, 4, 60}, 6);
    static const uint8_t half[] = {0x00, 0xC0, 0x01, 0x00, 0xFF, 0x7B};
    check_values(KILN_DTYPE_F16, half, 3, (const int[]){0, 1, 2},
            (const float[]){-2, 0x1p-24F, 65504}, 3);
    static const uint8_t brain[] = {0x80, 0x3F, 0x01, 0xC0};
    check_values(KILN_DTYPE_BF16, brain, 2, (const int[]){0, 1}, (const float[]){1, -2.015625F}, 2);
}

static void quant_reads_large_blocks(void **state) {
    (void)state;
    uint8_t block[210] = {0};
    // q5_K: d 1, dmin 0.5; group 0 has scale 2 and minimum 3, group 5 scale 0x21 and minimum 0.
    static const uint8_t head[16] = {0x00, 0x3C, 0x00, 0x38, 2, 0x80, 0, 0, 3, 0, 0, 0, 0, 0x01};
    memcpy(block, head, 16);
    block[16 + 7] = 0x21;      // fifth bits of value 7 of groups 0 and 5
    block[48 + 7] = 0x04;      // value 7 of group 0
    block[48 + 64 + 7] = 0x90; // value 7 of group 5
    check_values(KILN_DTYPE_Q5_K, block, 256, (const int[]){0, 7, 32, 160, 167, 166, 255},
            (const float[]){-1.5F, 2 * 20 - 1.5F, 0, 0, 33 * 25, 0, 0}, 7);
    // q6_K: d 0.5; scales 1 but for value 16.. (-3) and 208.. (127).
    memset(block, 0, sizeof(block));
    memset(block + 192, 1, 16);
    block[192 + 1] = (uint8_t)-3;
    block[192 + 13] = 127;
    block[208 + 1] = 0x38;
    block[17] = 0x5A;            // low nibble: value 17; high: value 81
    block[128 + 17] = 0x92;      // 2: value 17, 0: value 49, 1: value 81, 2: value 113
    block[64 + 32 + 16] = 0x70;  // half 1, high nibble of ql[32 + 16]: value 128 + 112
    block[64 + 16] = 0xF0;       // value 128 + 80 = 208
    block[128 + 32 + 16] = 0x30; // value 208: 3
    check_values(KILN_DTYPE_Q6_K, block, 256, (const int[]){0, 17, 49, 81, 113, 208, 240, 16},
            (const float[]){-16, -1.5F * (0x2A - 32), -16, 0.5F * (0x15 - 32), 0, 63.5F * 31,
                    0.5F * (7 - 32), 48},
            8);
}

static void quant_reads_what_the_reference_plugin_reads(void **state) {
    (void)state;
    random_state = 1;
    static uint8_t bytes[256 * 4];
    static float ours[256], theirs[256];
    for (int i = 0; i < N_TYPES; i++) {
        const struct cpu_quant *quant = cpu_quant_find(types[i]);
        assert_non_null(quant);
        for (int turn = 0; turn < 200; turn++) {
            for (size_t k = 0; k < sizeof(bytes); k++) {
                bytes[k] = (uint8_t)(random_u32() >> 9);
            }
            quant->dequant(bytes, theirs, 256);
            assert_int_equal(kiln_dequant_row(types[i], bytes, ours, 256), 0);
            for (int k = 0; k < 256;
                    k++) { // NaNs and zeros of either sign are as good as each other
                assert_true(ours[k] == theirs[k] || (isnan(ours[k]) && isnan(theirs[k])));
            }
        }
    }
}

static void quant_converts_halves(void **state) {
    (void)state;
    for (uint32_t half = 0; half <= 0xffff; half++) {
        float value = kiln_f16_to_f32((uint16_t)half);
        uint32_t back = kiln_f32_to_f16(value);
        assert_true(back == half || (isnan(value) && (half & 0x7c00) == 0x7c00 &&
                                            (back & 0x7e00) == 0x7e00 && (back ^ half) < 0x8000));
        assert_int_equal(
                kiln_f32_to_f16(value), cpu_f32_to_f16(value) & (isnan(value) ? back : 0xffff));
    }
    static const struct {
        float value;
        uint16_t half;
    } rounds[] = {{0x1.002p0F, 0x3c00}, {0x1.006p0F, 0x3c02}, {0x1.002002p0F, 0x3c01},
            {65519.996F, 0x7bff}, {65520, 0x7c00}, {-1e30F, 0xfc00}, {0x1p-25F, 0}, {0x1.8p-24F, 2},
            {0x1.000002p-25F, 1}, {-0.0F, 0x8000}, {0x1.ff8p-15F, 0x03ff}, {0x1.ffcp-15F, 0x0400}};
    for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
        assert_int_equal(kiln_f32_to_f16(rounds[i].value), rounds[i].half);
    }
    assert_int_equal(kiln_f32_to_bf16(1.0F), 0x3f80);
    assert_int_equal(kiln_f32_to_bf16(0x1.01p0F), 0x3f80); // a tie goes to even
    assert_int_equal(kiln_f32_to_bf16(0x1.03p0F), 0x3f82);
    assert_int_equal(kiln_f32_to_bf16(0x1.010002p0F), 0x3f81);
    assert_true((kiln_f32_to_bf16(NAN) & 0x7fff) > 0x7f80);
}

// Root of the mean square error of a row of normal values, as a share of theirs; a little above
// what is measured.
static double error_bound(uint32_t dtype) {
    switch (dtype) {
    case KILN_DTYPE_F32:
        return 0;
    case KILN_DTYPE_F16:
        return 3e-4;
    case KILN_DTYPE_BF16:
        return 2.5e-3;
    case KILN_DTYPE_Q4_0:
        return 0.1;
    case KILN_DTYPE_Q4_1:
        return 0.09;
    case KILN_DTYPE_Q5_0:
        return 0.05;
    case KILN_DTYPE_Q8_0:
        return 0.0065;
    case KILN_DTYPE_Q4_K:
        return 0.09;
    case KILN_DTYPE_Q5_K:
        return 0.045;
    default:
        return 0.025;
    }
}

// No value is off by more than the step of its block, the largest magnitude over the numbers on its
// side.
static double step_bound(uint32_t dtype, double largest) {
    switch (dtype) {
    case KILN_DTYPE_F32:
        return 0;
    case KILN_DTYPE_F16:
        return largest * 0x1p-11;
    case KILN_DTYPE_BF16:
        return largest * 0x1p-8;
    case KILN_DTYPE_Q4_0:
        return largest / 8 * 1.01;
    case KILN_DTYPE_Q5_0:
        return largest / 16 * 1.01;
    case KILN_DTYPE_Q4_1:
        return 2 * largest / 15 * 0.51;
    case KILN_DTYPE_Q8_0:
        return largest / 127 * 0.56;
    case KILN_DTYPE_Q4_K:
        return 2 * largest / 15;
    case KILN_DTYPE_Q5_K:
        return 2 * largest / 31 * 1.2;
    default:
        return largest / 32 * 1.3;
    }
}

static void quant_round_trip_stays_within_a_step(void **state) {
    (void)state;
    enum {
        N = 256 * 64
    };
    random_state = 2;
    float *in = kiln_calloc(N, sizeof(float)), *back = kiln_calloc(N, sizeof(float));
    for (size_t i = 0; i < N; i++) {
        in[i] = random_normal() * (i / 256 % 2 ? 0.02F : 3.0F);
    }
    for (int t = 0; t < N_TYPES; t++) {
        size_t bytes = row_bytes(types[t], N);
        uint8_t *blocks = kiln_alloc(bytes + 16);
        memset(blocks, 0xA5, bytes + 16);
        assert_int_equal(kiln_quantize_row(types[t], in, blocks, N), 0);
        for (int i = 0; i < 16; i++) {
            assert_int_equal(blocks[bytes + i], 0xA5);
        }
        assert_int_equal(kiln_dequant_row(types[t], blocks, back, N), 0);
        for (size_t from = 0; from < N; from += 256) {
            double error = 0, square = 0, largest = 0, worst = 0;
            for (size_t i = from; i < from + 256; i++) {
                double off = fabs((double)in[i] - (double)back[i]);
                error += off * off;
                square += (double)in[i] * (double)in[i];
                largest = fmax(largest, fabs((double)in[i]));
                worst = fmax(worst, off);
            }
            double share = sqrt(error / square);
            if (share > error_bound(types[t]) || worst > step_bound(types[t], largest)) {
                fail_msg("%s: error %g (worst %g of %g)", kiln_dtype_info(types[t])->name, share,
                        worst, largest);
            }
        }
        kiln_free(blocks);
    }
    kiln_free(in);
    kiln_free(back);
}

// Values that a block can hold come back as they were: the second trip changes nothing.
static void quant_keeps_what_it_can_hold(void **state) {
    (void)state;
    static float in[256], back[256];
    static uint8_t block[256 * 4];
    for (int i = 0; i < 256; i++) {
        in[i] = (float)(i * 37 % 16 - 8) * 0.25F;
    }
    for (int t = 0; t < N_TYPES; t++) {
        if (types[t] == KILN_DTYPE_Q8_0 || types[t] >= KILN_DTYPE_Q4_K) {
            continue; // their steps are the largest value over 127 or 63: not a quarter
        }
        assert_int_equal(kiln_quantize_row(types[t], in, block, 256), 0);
        assert_int_equal(kiln_dequant_row(types[t], block, back, 256), 0);
        assert_memory_equal(in, back, sizeof(in));
    }
    for (int i = 0; i < 256; i++) {
        in[i] = (float)(i * 37 % 255 - 127) * 0.5F; // q8_0: each block of 32 has its ...
        in[i] = i % 32 == 0 ? 63.5F : in[i];        // ... 127
    }
    assert_int_equal(kiln_quantize_row(KILN_DTYPE_Q8_0, in, block, 256), 0);
    assert_int_equal(kiln_dequant_row(KILN_DTYPE_Q8_0, block, back, 256), 0);
    assert_memory_equal(in, back, sizeof(in));
    // K types: groups whose smallest value is -63 * 2, 63 times the step wide
    for (int i = 0; i < 256; i++) {
        in[i] = (float)(63 * (i % 16) - 126);
    }
    assert_int_equal(kiln_quantize_row(KILN_DTYPE_Q4_K, in, block, 256), 0);
    assert_int_equal(kiln_dequant_row(KILN_DTYPE_Q4_K, block, back, 256), 0);
    assert_memory_equal(in, back, sizeof(in));
    for (int i = 0; i < 256; i++) {
        in[i] = (float)(63 * (i % 32) - 126);
    }
    assert_int_equal(kiln_quantize_row(KILN_DTYPE_Q5_K, in, block, 256), 0);
    assert_int_equal(kiln_dequant_row(KILN_DTYPE_Q5_K, block, back, 256), 0);
    assert_memory_equal(in, back, sizeof(in));
    for (int i = 0; i < 256; i++) {
        in[i] = (float)(127 * ((i % 16 == 0 ? 0 : i / 4 % 64) - 32)) * (i / 16 % 2 ? -1.0F : 1.0F);
    }
    assert_int_equal(kiln_quantize_row(KILN_DTYPE_Q6_K, in, block, 256), 0);
    assert_int_equal(kiln_dequant_row(KILN_DTYPE_Q6_K, block, back, 256), 0);
    assert_memory_equal(in, back, sizeof(in));
}

static void quant_takes_extreme_values(void **state) {
    (void)state;
    static const float values[][2] = {{0, 0}, {-0.0F, 0}, {1e-30F, -1e-30F}, {3e38F, -3e38F},
            {5, 5}, {-5, -5}, {INFINITY, 1}, {NAN, NAN}, {70000, 1}};
    static float in[256], back[256];
    static uint8_t block[256 * 4];
    for (int t = 0; t < N_TYPES; t++) {
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            for (int i = 0; i < 256; i++) {
                in[i] = values[v][i % 2];
            }
            assert_int_equal(kiln_quantize_row(types[t], in, block, 256), 0);
            assert_int_equal(kiln_dequant_row(types[t], block, back, 256), 0);
            for (int i = 0; i < 256 && v < 3; i++) { // blocks of nothing, or nearly
                assert_true(fabsf(back[i]) <= 1e-29F);
            }
            for (int i = 0; i < 256 && (v == 4 || v == 5); i++) {
                assert_true(fabsf(back[i] - in[i]) <= 0.05F);
            }
            for (int i = 0; i < 256 && v != 6 && v != 7 && kiln_dtype_info(types[t])->elems > 1;
                    i++) {
                assert_true(isfinite(back[i]));
            }
        }
    }
}

static void quant_refuses_what_is_no_weight(void **state) {
    (void)state;
    float values[32] = {42};
    uint8_t block[64] = {42};
    static const uint32_t bad[] = {
            KILN_DTYPE_I8, KILN_DTYPE_I32, KILN_DTYPE_Q5_1, KILN_DTYPE_Q2_K, KILN_DTYPE_BLOCK, 999};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(kiln_dequant_row(bad[i], block, values, 32), -1);
        assert_int_equal(kiln_quantize_row(bad[i], values, block, 32), -1);
    }
    assert_int_equal(kiln_dequant_row(KILN_DTYPE_Q8_0, block, values, 31), -1);
    assert_int_equal(kiln_quantize_row(KILN_DTYPE_Q4_K, values, block, 32), -1);
    assert_int_equal(kiln_dequant_row(KILN_DTYPE_Q8_0, block, values, 0), 0);
    assert_true(values[0] == 42.0F && block[0] == 42);
    // Every type that is called a weight has both ways.
    const struct kiln_dtype_info *info;
    for (uint32_t i = 0; (info = kiln_dtype_at(i)); i++) {
        assert_int_equal(kiln_dequant_row(info->dtype, block, values, 0), info->weight ? 0 : -1);
        assert_int_equal(kiln_quantize_row(info->dtype, values, block, 0), info->weight ? 0 : -1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(quant_reads_scales_of_q4_k),
            cmocka_unit_test(quant_packs_every_scale),
            cmocka_unit_test(quant_reads_small_blocks),
            cmocka_unit_test(quant_reads_large_blocks),
            cmocka_unit_test(quant_reads_what_the_reference_plugin_reads),
            cmocka_unit_test(quant_converts_halves),
            cmocka_unit_test(quant_round_trip_stays_within_a_step),
            cmocka_unit_test(quant_keeps_what_it_can_hold),
            cmocka_unit_test(quant_takes_extreme_values),
            cmocka_unit_test(quant_refuses_what_is_no_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
