// dtype: numbers, names and block sizes are those of the GGUF format.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/dtype.h"

static void dtype_table_agrees_with_the_format(void **state) {
    (void)state;
    static const struct {
        uint32_t dtype;
        const char *name;
        uint32_t elems, bytes;
        int weight;
    } want[] = {
            // clang-format off
            {0, "f32", 1, 4, 1},      {1, "f16", 1, 2, 1},      {30, "bf16", 1, 2, 1},
            {2, "q4_0", 32, 18, 1},   {3, "q4_1", 32, 20, 1},   {6, "q5_0", 32, 22, 1},
            {7, "q5_1", 32, 24, 0},   {8, "q8_0", 32, 34, 1},   {10, "q2_K", 256, 84, 0},
            {11, "q3_K", 256, 110, 0}, {12, "q4_K", 256, 144, 1}, {13, "q5_K", 256, 176, 1},
            {14, "q6_K", 256, 210, 1}, {24, "i8", 1, 1, 0},      {25, "i16", 1, 2, 0},
            {26, "i32", 1, 4, 0},     {27, "i64", 1, 8, 0},     {28, "f64", 1, 8, 0},
            // clang-format on
    };
    uint32_t count = sizeof(want) / sizeof(want[0]);
    for (uint32_t i = 0; i < count; i++) {
        const struct kiln_dtype_info *info = kiln_dtype_info(want[i].dtype);
        assert_non_null(info);
        assert_string_equal(info->name, want[i].name);
        assert_int_equal(info->elems, want[i].elems);
        assert_int_equal(info->bytes, want[i].bytes);
        assert_int_equal(info->weight, want[i].weight);
        assert_ptr_equal(kiln_dtype_by_name(want[i].name), info);
        assert_non_null(kiln_dtype_at(i));
    }
    assert_null(kiln_dtype_at(count));
    assert_null(kiln_dtype_info(4));
    assert_null(kiln_dtype_by_name("q4_k"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(dtype_table_agrees_with_the_format),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
