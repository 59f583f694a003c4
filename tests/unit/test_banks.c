// Turns that a site's rows take in the banks: by strides worked out by hand.
#include "lab/banks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static unsigned ways(uint32_t kind, uint32_t stride, uint32_t access, uint32_t swizzle) {
    const struct kiln_smem_site site = {.struct_size = sizeof(site),
            .kind = kind,
            .name = "site",
            .stride_bytes = stride,
            .access_bytes = access,
            .swizzle = swizzle};
    return kiln_bank_ways(&site);
}

// Rows of K and V at head size 128: 256 bytes begin in one bank, 272 each four banks further.
static void banks_of_staged_rows(void **state) {
    (void)state;
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 256, 16, KILN_SWIZZLE_NONE), 8);
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 272, 16, KILN_SWIZZLE_NONE), 1);
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 144, 16, KILN_SWIZZLE_NONE), 1); // head size 64
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 128, 16, KILN_SWIZZLE_NONE), 8);
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 64, 16, KILN_SWIZZLE_NONE), 4);
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 16, 16, KILN_SWIZZLE_NONE), 1);
}

// Rows of scores at 64 keys: what 0, 4 and 8 floats behind each row do to the stores of S and to
// the loads of P.
static void banks_of_score_rows(void **state) {
    (void)state;
    static const struct {
        uint32_t stride;
        unsigned store, load;
    } rows[] = {{256, 4, 8}, {272, 2, 1}, {288, 1, 2}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
                ways(KILN_SITE_STORE, rows[i].stride, 8, KILN_SWIZZLE_NONE), rows[i].store);
        assert_int_equal(
                ways(KILN_SITE_LDMATRIX, rows[i].stride, 16, KILN_SWIZZLE_NONE), rows[i].load);
    }
}

static void banks_of_other_widths(void **state) {
    (void)state;
    assert_int_equal(ways(KILN_SITE_LOAD, 16, 4, KILN_SWIZZLE_NONE), 1); // 32 words in a row
    assert_int_equal(ways(KILN_SITE_LOAD, 128, 4, KILN_SWIZZLE_NONE), 8);
    assert_int_equal(ways(KILN_SITE_LOAD, 128, 2, KILN_SWIZZLE_NONE), 8); // two lanes share a word
    assert_int_equal(ways(KILN_SITE_LOAD, 4, 1, KILN_SWIZZLE_NONE), 1);
    assert_int_equal(ways(KILN_SITE_LOAD, 64, 16, KILN_SWIZZLE_NONE), 1);
    assert_int_equal(ways(KILN_SITE_LOAD, 128, 16, KILN_SWIZZLE_NONE), 2);
}

static void banks_of_swizzled_rows(void **state) {
    (void)state;
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 128, 16, KILN_SWIZZLE_128), 1);
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 64, 16, KILN_SWIZZLE_64), 1);
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 32, 16, KILN_SWIZZLE_32), 1);
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 128, 16, KILN_SWIZZLE_64), 2);
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 128, 16, KILN_SWIZZLE_32), 4);
    assert_int_equal(ways(KILN_SITE_LDMATRIX, 256, 16, KILN_SWIZZLE_128), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(banks_of_staged_rows),
            cmocka_unit_test(banks_of_score_rows),
            cmocka_unit_test(banks_of_other_widths),
            cmocka_unit_test(banks_of_swizzled_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
