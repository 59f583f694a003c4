// gguf_writer: the reader finds what was written; a file is whole or not there.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "gguf_write.h"
#include "kiln/plugin.h"
#include "model/gguf_writer.h"
#include "scratch.h"

enum {
    BIG_ROWS = 40000 // more than the writer's buffer holds
};
static const uint64_t dims_small[] = {3}, dims_block[] = {32, 2}, dims_big[] = {32, BIG_ROWS};

static uint8_t big_byte(size_t i) {
    return (uint8_t)(i * 31 + i / 251);
}

// Two small tensors and a big one. `step`: bytes of data handed over at a time.
static enum kiln_status write_model(const char *path, size_t step, struct kiln_err *err) {
    static uint8_t data[12 + 68 + 34 * BIG_ROWS];
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = big_byte(i);
    }
    struct kiln_gguf_writer *w;
    KILN_TRY(kiln_gguf_writer_open(&w, path, err));
    kiln_gguf_writer_str(w, "general.architecture", "llama");
    kiln_gguf_writer_u32(w, "u32", 4000000000U);
    kiln_gguf_writer_u64(w, "u64", UINT64_MAX);
    kiln_gguf_writer_f32(w, "f32", 0.1F);
    kiln_gguf_writer_bool(w, "bool", 2);
    kiln_gguf_writer_tensor(w, "small", KILN_DTYPE_F32, 1, dims_small);
    kiln_gguf_writer_tensor(w, "block", KILN_DTYPE_Q8_0, 2, dims_block);
    kiln_gguf_writer_tensor(w, "big", KILN_DTYPE_Q8_0, 2, dims_big);
    enum kiln_status status = kiln_gguf_writer_begin(w, err);
    for (size_t at = 0; at < sizeof(data) && status == KILN_STATUS_OK; at += step) {
        size_t part = sizeof(data) - at < step ? sizeof(data) - at : step;
        status = kiln_gguf_writer_data(w, data + at, part, err);
    }
    if (status != KILN_STATUS_OK) {
        kiln_gguf_writer_abandon(w);
        return status;
    }
    assert_int_equal(kiln_gguf_writer_n_tensors(w), 3);
    assert_int_equal(kiln_gguf_writer_data_bytes(w), sizeof(data));
    return kiln_gguf_writer_finish(w, err);
}

static void check_model(const char *path) {
    struct kiln_gguf *gguf;
    struct kiln_err err = {0};
    if (kiln_gguf_open(&gguf, path, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(kiln_gguf_version(gguf), 3);
    assert_int_equal(kiln_gguf_n_keys(gguf), 5);
    struct kiln_str arch;
    uint64_t u32 = 0, u64 = 0;
    float f32 = 0;
    int flag = 0;
    assert_int_equal(kiln_gguf_get_str(gguf, "general.architecture", 1, &arch, &err), 0);
    assert_memory_equal(arch.data, "llama", arch.len);
    assert_int_equal(kiln_gguf_get_u64(gguf, "u32", 1, 0, UINT64_MAX, &u32, &err), 0);
    assert_int_equal(kiln_gguf_get_u64(gguf, "u64", 1, 0, UINT64_MAX, &u64, &err), 0);
    assert_int_equal(kiln_gguf_get_f32(gguf, "f32", 1, 0, 1, &f32, &err), 0);
    assert_int_equal(kiln_gguf_get_bool(gguf, "bool", 1, &flag, &err), 0);
    assert_true(u32 == 4000000000U && u64 == UINT64_MAX && f32 == 0.1F && flag == 1);
    static const char *const names[] = {"small", "block", "big"};
    size_t at = 0;
    for (size_t t = 0; t < 3; t++) {
        const struct kiln_gguf_tensor *tensor = kiln_gguf_tensor_at(gguf, t);
        assert_string_equal(tensor->name, names[t]);
        assert_int_equal(tensor->file_offset % 32, 0);
        for (size_t i = 0; i < tensor->bytes; i++) {
            if (tensor->data[i] != big_byte(at + i)) {
                fail_msg("byte %zu of %s", i, tensor->name);
            }
        }
        at += tensor->bytes;
    }
    assert_int_equal(at, 12 + 68 + 34 * BIG_ROWS);
    kiln_gguf_close(gguf);
}

static void gguf_writer_writes_what_the_reader_reads(void **state) {
    (void)state;
    static const size_t steps[] = {1, 7, 4096, 1 << 20, 1 << 30};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct kiln_err err = {0};
        if (write_model(scratch_path("m.gguf"), steps[i], &err) != KILN_STATUS_OK) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(scratch_count(), 1);
        check_model(scratch_path("m.gguf"));
        scratch_empty();
    }
}

static void gguf_writer_copies_keys_of_every_type(void **state) {
    (void)state;
    static const char *const tokens[] = {"a", "", "b\xc3\xa9"};
    static const int32_t numbers[] = {1, -2, 3};
    struct gguf_write from;
    gguf_write_init(&from);
    gguf_write_value(&from, "u8", 2, KILN_GGUF_U8, "\xff", 1);
    gguf_write_u32(&from, "general.alignment", 64);
    gguf_write_f64(&from, "f64", 0.25);
    gguf_write_str(&from, "str", "text");
    gguf_write_strs(&from, "tokens", tokens, 3);
    gguf_write_array(&from, "numbers", KILN_GGUF_I32, 3, numbers, sizeof(numbers));
    gguf_write_array(&from, "none", KILN_GGUF_STRING, 0, NULL, 0);
    size_t size;
    uint8_t *bytes = gguf_write_finish(&from, &size);
    struct kiln_gguf *a, *b;
    struct kiln_err err = {0};
    assert_int_equal(kiln_gguf_parse(&a, bytes, size, "a", &err), KILN_STATUS_OK);
    struct kiln_gguf_writer *w;
    assert_int_equal(kiln_gguf_writer_open(&w, scratch_path("m.gguf"), &err), KILN_STATUS_OK);
    for (size_t i = 0; i < kiln_gguf_n_keys(a); i++) {
        kiln_gguf_writer_copy_key(w, kiln_gguf_key_at(a, i));
    }
    assert_int_equal(kiln_gguf_writer_begin(w, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_gguf_writer_finish(w, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_gguf_open(&b, scratch_path("m.gguf"), &err), KILN_STATUS_OK);
    assert_int_equal(kiln_gguf_n_keys(b), kiln_gguf_n_keys(a) - 1);
    assert_int_equal(kiln_gguf_alignment(b), 32);
    for (size_t i = 0, k = 0; i < kiln_gguf_n_keys(a); i++) {
        const struct kiln_gguf_key *one = kiln_gguf_key_at(a, i);
        if (one->name.len == strlen("general.alignment")) {
            continue;
        }
        const struct kiln_gguf_key *other = kiln_gguf_key_at(b, k++);
        assert_int_equal(one->name.len, other->name.len);
        assert_memory_equal(one->name.data, other->name.data, one->name.len);
        assert_int_equal(one->type, other->type);
        assert_int_equal(one->elem_type, other->elem_type);
        assert_int_equal(one->count, other->count);
        assert_int_equal(one->value_bytes, other->value_bytes);
        assert_memory_equal(one->value, other->value, one->value_bytes);
    }
    kiln_gguf_close(a);
    kiln_gguf_close(b);
    kiln_free(bytes);
    scratch_empty();
}

static void expect_text(const struct kiln_err *err, const char *part) {
    if (!strstr(err->text, part)) {
        fail_msg("'%s' is not in: %s", part, err->text);
    }
}

static void gguf_writer_counts_the_data(void **state) {
    (void)state;
    static const uint8_t bytes[13];
    for (size_t size = 11; size <= 13; size++) {
        struct kiln_gguf_writer *w;
        struct kiln_err err = {0};
        assert_int_equal(kiln_gguf_writer_open(&w, scratch_path("m.gguf"), &err), KILN_STATUS_OK);
        kiln_gguf_writer_tensor(w, "a", KILN_DTYPE_F32, 1, dims_small);
        assert_int_equal(kiln_gguf_writer_begin(w, &err), KILN_STATUS_OK);
        enum kiln_status status = kiln_gguf_writer_data(w, bytes, size, &err);
        assert_int_equal(status, size == 13 ? KILN_STATUS_FILE : KILN_STATUS_OK);
        if (size == 13) {
            expect_text(&err, "more data");
            kiln_gguf_writer_abandon(w);
        } else {
            status = kiln_gguf_writer_finish(w, &err);
            assert_int_equal(status, size == 11 ? KILN_STATUS_FILE : KILN_STATUS_OK);
        }
        assert_int_equal(scratch_count(), size == 12);
        scratch_empty();
    }
}

static void gguf_writer_leaves_nothing_on_a_full_disk(void **state) {
    (void)state;
    static const size_t room[] = {0, 100, 4096, 600000, 1 << 20};
    struct kiln_err err = {0};
    for (size_t i = 0; i < sizeof(room) / sizeof(room[0]); i++) {
        scratch_fill_disk(room[i]);
        enum kiln_status status = write_model(scratch_path("m.gguf"), 4096, &err);
        scratch_free_disk();
        assert_int_equal(status, KILN_STATUS_FILE);
        expect_text(&err, scratch_path("m.gguf"));
        expect_text(&err, "File too large");
        assert_int_equal(scratch_count(), 0);
    }
    // A file that is there stays as it is.
    assert_int_equal(write_model(scratch_path("m.gguf"), 4096, &err), KILN_STATUS_OK);
    scratch_fill_disk(1 << 20);
    assert_int_equal(write_model(scratch_path("m.gguf"), 4096, &err), KILN_STATUS_FILE);
    scratch_free_disk();
    assert_int_equal(scratch_count(), 1);
    check_model(scratch_path("m.gguf"));
    scratch_empty();
}

static void gguf_writer_says_what_is_wrong(void **state) {
    (void)state;
    struct kiln_err err = {0};
    assert_int_equal(write_model(scratch_path("no/m.gguf"), 4096, &err), KILN_STATUS_FILE);
    expect_text(&err, scratch_path("no/m.gguf"));
    expect_text(&err, "No such file");
    assert_int_equal(write_model("/tmp", 4096, &err), KILN_STATUS_FILE);
    expect_text(&err, "/tmp: cannot write it: is a directory");
    assert_int_equal(write_model("", 4096, &err), KILN_STATUS_FILE);
    assert_int_equal(scratch_count(), 0);
}

static void gguf_writer_writes_devices_in_place(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct stat st;
    assert_int_equal(write_model("/dev/null", 4096, &err), KILN_STATUS_OK);
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(write_model("/dev/full", 4096, &err), KILN_STATUS_FILE);
        expect_text(&err, "/dev/full: cannot write it: No space left on device");
        assert_int_equal(stat("/dev/full", &st), 0);
    }
}

static void gguf_writer_keeps_mode_and_link(void **state) {
    (void)state;
    struct kiln_err err = {0};
    const char *real = scratch_path("real.gguf"), *link = scratch_path("link.gguf");
    assert_int_equal(kiln_file_write(real, "old", 3, &err), KILN_STATUS_OK);
    assert_int_equal(chmod(real, 0640), 0);
    assert_int_equal(symlink("real.gguf", link), 0);
    assert_int_equal(write_model(link, 4096, &err), KILN_STATUS_OK);
    struct stat st;
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(real, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    check_model(real);
    scratch_empty();
}

// Leaks show under a sanitizer.
static void gguf_writer_survives_each_failed_allocation(void **state) {
    (void)state;
    enum kiln_status status = KILN_STATUS_NOMEM;
    uint64_t n = 0;
    while (status != KILN_STATUS_OK) {
        struct kiln_err err = {0};
        kiln_mem_fail_at(++n, 0);
        status = write_model(scratch_path("m.gguf"), 1 << 20, &err);
        kiln_mem_fail_at(0, 0);
        assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM);
        assert_int_equal(scratch_count(), status == KILN_STATUS_OK);
    }
    assert_true(n > 6);
    check_model(scratch_path("m.gguf"));
    scratch_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(gguf_writer_writes_what_the_reader_reads),
            cmocka_unit_test(gguf_writer_copies_keys_of_every_type),
            cmocka_unit_test(gguf_writer_counts_the_data),
            cmocka_unit_test(gguf_writer_leaves_nothing_on_a_full_disk),
            cmocka_unit_test(gguf_writer_says_what_is_wrong),
            cmocka_unit_test(gguf_writer_writes_devices_in_place),
            cmocka_unit_test(gguf_writer_keeps_mode_and_link),
            cmocka_unit_test(gguf_writer_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
