// base: status, utf8, mem, buf and nearest. Files and the pool have tests of their own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/status.h"
#include "base/utf8.h"

static void status_exit_codes_follow_the_table(void **state) {
    (void)state;
    assert_int_equal(kiln_status_exit_code(KILN_STATUS_OK), 0);
    assert_int_equal(kiln_status_exit_code(KILN_STATUS_CHECK), 1);
    assert_int_equal(kiln_status_exit_code(KILN_STATUS_USAGE), 2);
    assert_int_equal(kiln_status_exit_code(KILN_STATUS_CONFIG), 2);
    assert_int_equal(kiln_status_exit_code(KILN_STATUS_FILE), 3);
    assert_int_equal(kiln_status_exit_code(KILN_STATUS_DEVICE), 4);
    assert_int_equal(kiln_status_exit_code(KILN_STATUS_NOMEM), 4);
    assert_int_equal(kiln_status_exit_code(KILN_STATUS_INTERRUPTED), 130);
    assert_string_equal(kiln_status_name(KILN_STATUS_NOMEM), "NOMEM");
    assert_string_equal(kiln_status_text(KILN_STATUS_NOMEM), "out of memory");
}

static void status_err_holds_status_and_text(void **state) {
    (void)state;
    struct kiln_err err = {0};
    assert_int_equal(
            kiln_err_set(&err, KILN_STATUS_FILE, "key '%s': %d", "a", 7), KILN_STATUS_FILE);
    assert_int_equal(err.status, KILN_STATUS_FILE);
    assert_string_equal(err.text, "key 'a': 7");
    kiln_err_prefix(&err, "%s: ", "model.gguf");
    assert_string_equal(err.text, "model.gguf: key 'a': 7");
    assert_int_equal(err.status, KILN_STATUS_FILE);
    assert_int_equal(kiln_err_nomem(&err, "the tensor table"), KILN_STATUS_NOMEM);
    assert_string_equal(err.text, "out of memory for the tensor table");
    assert_int_equal(kiln_err_set(NULL, KILN_STATUS_FILE, "x"), KILN_STATUS_FILE);
    kiln_err_prefix(NULL, "x");
}

// Characters of 2 bytes, so that the cut falls inside one for one of two shifts.
static void status_err_is_cut_between_characters(void **state) {
    (void)state;
    for (int shift = 0; shift < 2; shift++) {
        char text[2048] = "";
        memset(text, 'a', (size_t)shift);
        for (int at = shift; at < 2000; at += 2) {
            memcpy(text + at, "\xc3\xa9", 3);
        }
        struct kiln_err err = {0};
        assert_int_equal(kiln_err_set(&err, KILN_STATUS_FILE, "%s", text), KILN_STATUS_FILE);
        size_t len = strlen(err.text);
        assert_in_range(len, sizeof(err.text) - 4, sizeof(err.text) - 1);
        assert_int_equal((len - (size_t)shift) % 2, 0);
        kiln_err_prefix(&err, "b");
        assert_int_equal(err.text[0], 'b');
        len = strlen(err.text);
        assert_int_equal((len - (size_t)shift - 1) % 2, 0);
    }
}

static void utf8_len_accepts_exactly_what_is_well_formed(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int len;
    } cases[] = {
            {"a", 1},
            {"\x7f", 1},
            {"\xc2\x80", 2},
            {"\xdf\xbf", 2},
            {"\xe0\xa0\x80", 3},
            {"\xed\x9f\xbf", 3},
            {"\xee\x80\x80", 3},
            {"\xf0\x90\x80\x80", 4},
            {"\xf4\x8f\xbf\xbf", 4},
            // overlong, surrogates, past U+10FFFF, stray
            {"\xc0\x80", 0},
            {"\xc1\xbf", 0},
            {"\xe0\x9f\xbf", 0},
            {"\xed\xa0\x80", 0},
            {"\xf0\x8f\xbf\xbf", 0},
            {"\xf4\x90\x80\x80", 0},
            {"\xf5\x80\x80\x80", 0},
            {"\x80", 0},
            {"\xff", 0},
            {"\xc3(", 0},
            {"\xe2\x82(", 0},
            // unfinished
            {"", -1},
            {"\xc3", -1},
            {"\xe2\x82", -1},
            {"\xf0\x9f\x98", -1},
            // unfinished, yet already wrong
            {"\xe0\x80", 0},
            {"\xf4\x90", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(kiln_utf8_len(cases[i].text, strlen(cases[i].text)), cases[i].len);
    }
    assert_int_equal(kiln_utf8_len("\0", 1), 1);
}

static void utf8_trim_cuts_only_unfinished_characters(void **state) {
    (void)state;
    static const char *const cases[][2] = {
            {"", ""},
            {"abc", "abc"},
            {"a\xc3\xa9", "a\xc3\xa9"},
            {"a\xc3", "a"},
            {"a\xe2\x82", "a"},
            {"a\xf0\x9f\x98", "a"},
            {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
            {"a\x80", "a\x80"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[16];
        snprintf(text, sizeof(text), "%s", cases[i][0]);
        kiln_utf8_trim(text);
        assert_string_equal(text, cases[i][1]);
    }
}

static void mem_refuses_products_that_overflow(void **state) {
    (void)state;
    size_t huge = SIZE_MAX / 2 + 2;
    assert_null(kiln_realloc(NULL, huge, 2));
    assert_null(kiln_strndup("", SIZE_MAX));
    char *kept = kiln_strdup("kept");
    assert_null(kiln_realloc(kept, huge, 2));
    assert_string_equal(kept, "kept");
    kiln_free(kept);
}

static void mem_of_no_bytes_is_not_a_failure(void **state) {
    (void)state;
    void *blocks[] = {kiln_alloc(0), kiln_calloc(0, 8), kiln_calloc(8, 0), kiln_realloc(NULL, 0, 4),
            kiln_alloc_aligned(64, 0)};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        assert_non_null(blocks[i]);
        kiln_free(blocks[i]);
    }
    void *aligned = kiln_alloc_aligned(4096, 3);
    assert_int_equal((uintptr_t)aligned % 4096, 0);
    kiln_free(aligned);
}

static void mem_fails_at_the_asked_call(void **state) {
    (void)state;
    kiln_mem_fail_at(2, 0);
    void *first = kiln_alloc(1), *second = kiln_alloc(1), *third = kiln_alloc(1);
    assert_int_equal(kiln_mem_count(), 3);
    kiln_mem_fail_at(1, 1);
    void *fourth = kiln_strdup("x"), *fifth = kiln_asprintf("%d", 1);
    kiln_mem_fail_at(0, 0);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    assert_null(fourth);
    assert_null(fifth);
    kiln_free(first);
    kiln_free(third);
}

static void mem_watch_tells_the_peak(void **state) {
    (void)state;
    char *before = kiln_alloc(1 << 20);
    kiln_mem_watch(1);
    assert_int_equal(kiln_mem_peak(), 0);
    char *a = kiln_alloc(1000), *b = kiln_calloc(10, 1000), *c = kiln_alloc_aligned(64, 5000);
    assert_true(before && a && b && c);
    kiln_free(b);
    b = NULL;
    uint64_t peak = kiln_mem_peak();
    assert_in_range(peak, 16000, 16500);
    char *grown = kiln_realloc(a, 50000, 1);
    assert_non_null(grown);
    assert_in_range(kiln_mem_peak(), 55000, 57000); // the old block may have to stay for the copy
    kiln_free(before);                              // does not count: it was there before
    kiln_free(grown);
    kiln_free(c);
    kiln_mem_watch(0);
    assert_int_equal(kiln_mem_peak(), 0);
}

static void mem_grow_doubles_and_keeps_what_was_there(void **state) {
    (void)state;
    uint32_t *items = NULL;
    size_t cap = 0, calls = 0;
    kiln_mem_fail_at(0, 0);
    for (uint32_t i = 0; i < 10000; i++) {
        assert_int_equal(kiln_grow(&items, &cap, i + 1, sizeof(*items)), 0);
        items[i] = i;
    }
    calls = kiln_mem_count();
    assert_in_range(calls, 1, 16);
    size_t before = cap;
    assert_int_equal(kiln_grow(&items, &cap, SIZE_MAX, sizeof(*items)), -1);
    kiln_mem_fail_at(1, 0);
    assert_int_equal(kiln_grow(&items, &cap, cap + 1, sizeof(*items)), -1);
    kiln_mem_fail_at(0, 0);
    assert_int_equal(cap, before);
    for (uint32_t i = 0; i < 10000; i++) {
        assert_int_equal(items[i], i);
    }
    kiln_free(items);
}

static void buf_collects_text(void **state) {
    (void)state;
    struct kiln_buf buf = {0};
    kiln_buf_puts(&buf, "a");
    kiln_buf_printf(&buf, "%d-%s", 12, "xyz");
    kiln_buf_append(&buf, "\0q", 2);
    kiln_buf_append(&buf, NULL, 0);
    assert_int_equal(buf.len, 9);
    assert_memory_equal(buf.data, "a12-xyz\0q", 10);
    kiln_buf_clear(&buf);
    assert_string_equal(buf.data, "");
    for (int i = 0; i < 1000; i++) {
        kiln_buf_printf(&buf, "%03d", i);
    }
    char *text = kiln_buf_take(&buf);
    assert_int_equal(strlen(text), 3000);
    assert_memory_equal(text + 2997, "999", 4);
    kiln_free(text);
    assert_null(buf.data);
    text = kiln_buf_take(&buf);
    assert_string_equal(text, "");
    kiln_free(text);
    kiln_buf_finish(&buf);
}

static void buf_failure_sticks(void **state) {
    (void)state;
    struct kiln_buf buf = {0};
    kiln_buf_puts(&buf, "kept");
    kiln_mem_fail_at(1, 0);
    kiln_buf_printf(&buf, "%0100d", 1);
    kiln_mem_fail_at(0, 0);
    assert_true(buf.failed);
    kiln_buf_puts(&buf, "x");
    assert_string_equal(buf.data, "kept");
    assert_null(kiln_buf_take(&buf));
    assert_null(buf.data);
    assert_false(buf.failed);
}

static void nearest_counts_single_edits(void **state) {
    (void)state;
    assert_int_equal(kiln_edit_distance("", ""), 0);
    assert_int_equal(kiln_edit_distance("abc", ""), 3);
    assert_int_equal(kiln_edit_distance("FA_TVK", "fa_tkv"), 1); // neighbours swapped, case ignored
    assert_int_equal(kiln_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(kiln_edit_distance("abcd", "abd"), 1);
}

static void nearest_names_only_what_is_near(void **state) {
    (void)state;
    static const char *const names[] = {"fa_prefill", "fa_decode", "engine"};
    assert_string_equal(kiln_nearest("fa_prefil", names, 3), "fa_prefill");
    assert_string_equal(kiln_nearest("ENGIN", names, 3), "engine");
    assert_null(kiln_nearest("zzzzzz", names, 3));
    assert_null(kiln_nearest("x", names, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(status_exit_codes_follow_the_table),
            cmocka_unit_test(status_err_holds_status_and_text),
            cmocka_unit_test(status_err_is_cut_between_characters),
            cmocka_unit_test(utf8_len_accepts_exactly_what_is_well_formed),
            cmocka_unit_test(utf8_trim_cuts_only_unfinished_characters),
            cmocka_unit_test(mem_refuses_products_that_overflow),
            cmocka_unit_test(mem_of_no_bytes_is_not_a_failure),
            cmocka_unit_test(mem_fails_at_the_asked_call),
            cmocka_unit_test(mem_watch_tells_the_peak),
            cmocka_unit_test(mem_grow_doubles_and_keeps_what_was_there),
            cmocka_unit_test(buf_collects_text),
            cmocka_unit_test(buf_failure_sticks),
            cmocka_unit_test(nearest_counts_single_edits),
            cmocka_unit_test(nearest_names_only_what_is_near),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
