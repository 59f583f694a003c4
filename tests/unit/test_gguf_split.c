// gguf_split: any part opens the whole model; each way in which parts do not fit is told by file
// and key.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "gguf_write.h"
#include "kiln/plugin.h"
#include "model/gguf.h"
#include "scratch.h"

// A part as it should be; a test changes one thing.
struct part {
    int no, count, tensors; // below -1: the key is left out
    const char *name;       // of the file
    const char *tensor[2];  // NULL: none
    const char *count_text; // split.count as a string instead
};

static const struct part good[3] = {
        {0, 3, 4, "m-00001-of-00003.gguf", {"a", "b"}, NULL},
        {1, 3, 4, "m-00002-of-00003.gguf", {"c", NULL}, NULL},
        {2, 3, 4, "m-00003-of-00003.gguf", {"d", NULL}, NULL},
};

static void write_part(const struct part *part) {
    static const uint64_t dims[] = {8};
    struct gguf_write w;
    gguf_write_init(&w);
    if (part->no == 0) {
        gguf_write_str(&w, "general.architecture", "llama");
    }
    if (part->no > -2) {
        gguf_write_value(&w, "split.no", 8, KILN_GGUF_U16, &(uint16_t){(uint16_t)part->no}, 2);
    }
    if (part->count_text) {
        gguf_write_str(&w, "split.count", part->count_text);
    } else if (part->count > -2) {
        uint16_t count = (uint16_t)part->count;
        gguf_write_value(&w, "split.count", 11, KILN_GGUF_U16, &count, 2);
    }
    if (part->tensors > -2) {
        gguf_write_i32(&w, "split.tensors.count", part->tensors);
    }
    for (int i = 0; i < 2 && part->tensor[i]; i++) {
        float values[8];
        for (int k = 0; k < 8; k++) {
            values[k] = (float)(part->tensor[i][0] * 10 + k);
        }
        gguf_write_tensor(&w, part->tensor[i], KILN_DTYPE_F32, 1, dims, values, sizeof(values));
    }
    size_t size;
    uint8_t *bytes = gguf_write_finish(&w, &size);
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_write(scratch_path(part->name), bytes, size, &err), 0);
    kiln_free(bytes);
}

static void write_good(void) {
    for (int i = 0; i < 3; i++) {
        write_part(&good[i]);
    }
}

static void check_whole(const struct kiln_gguf *gguf) {
    assert_int_equal(kiln_gguf_n_files(gguf), 3);
    assert_int_equal(kiln_gguf_n_tensors(gguf), 4);
    assert_non_null(kiln_gguf_find_key(gguf, "general.architecture"));
    assert_non_null(strstr(kiln_gguf_path(gguf), "m-00001-of-00003.gguf"));
    static const char *const names[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 4; i++) {
        const struct kiln_gguf_tensor *tensor = kiln_gguf_find_tensor(gguf, names[i]);
        assert_ptr_equal(tensor, kiln_gguf_tensor_at(gguf, i));
        assert_string_equal(tensor->name, names[i]);
        float value;
        memcpy(&value, tensor->data + 28, sizeof(value));
        assert_true(value == (float)(names[i][0] * 10 + 7));
    }
    assert_null(kiln_gguf_find_tensor(gguf, "e"));
}

static void gguf_split_opens_by_any_part(void **state) {
    (void)state;
    write_good();
    uint64_t size = 0;
    for (int i = 0; i < 3; i++) {
        struct kiln_map map;
        struct kiln_err err = {0};
        assert_int_equal(kiln_map_open(&map, scratch_path(good[i].name), &err), KILN_STATUS_OK);
        size += map.size;
        kiln_map_close(&map);
    }
    for (int i = 0; i < 3; i++) {
        struct kiln_gguf *gguf;
        struct kiln_err err = {0};
        if (kiln_gguf_open(&gguf, scratch_path(good[i].name), &err) != KILN_STATUS_OK) {
            fail_msg("%s", err.text);
        }
        check_whole(gguf);
        assert_int_equal(kiln_gguf_file_size(gguf), size);
        kiln_gguf_close(gguf);
    }
    scratch_empty();
}

static void gguf_split_leaves_single_files_alone(void **state) {
    (void)state;
    static const struct part single[] = {
            {0, 1, 2, "single.gguf", {"a", "b"}, NULL},
            {0, 0, 2, "single.gguf", {"a", "b"}, NULL},
            {-2, -2, -2, "m-00001-of-00003.gguf", {"a", "b"}, NULL},
    };
    for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++) {
        write_part(&single[i]);
        struct kiln_gguf *gguf;
        struct kiln_err err = {0};
        assert_int_equal(kiln_gguf_open(&gguf, scratch_path(single[i].name), &err), 0);
        assert_int_equal(kiln_gguf_n_files(gguf), 1);
        assert_int_equal(kiln_gguf_n_tensors(gguf), 2);
        kiln_gguf_close(gguf);
    }
    scratch_empty();
}

// Opening fails with a text that names the file and holds the parts.
static void refuse(const char *open, const char *file, const char *key, const char *text) {
    struct kiln_gguf *gguf = (struct kiln_gguf *)1;
    struct kiln_err err = {0};
    assert_int_equal(kiln_gguf_open(&gguf, scratch_path(open), &err), KILN_STATUS_FILE);
    assert_null(gguf);
    const char *path = scratch_path(file);
    if (strncmp(err.text, path, strlen(path)) != 0 || !strstr(err.text, key) ||
            !strstr(err.text, text)) {
        fail_msg("%s, '%s' or '%s' is not in: %s", file, key, text, err.text);
    }
}

static void gguf_split_names_the_part_that_is_missing(void **state) {
    (void)state;
    for (int gone = 0; gone < 3; gone++) {
        for (int open = 0; open < 3; open++) {
            if (open != gone) {
                char text[64];
                snprintf(text, sizeof(text), "part %d of 3 is missing", gone + 1);
                write_good();
                unlink(scratch_path(good[gone].name));
                refuse(good[open].name, good[gone].name, "split.count", text);
            }
        }
    }
    scratch_empty();
}

static void gguf_split_checks_what_the_parts_say(void **state) {
    (void)state;
    static const struct {
        struct part part;
        const char *key, *text;
    } bad[] = {
            {{2, 3, 4, "m-00002-of-00003.gguf", {"c", NULL}, NULL}, "split.no",
                    "is 2; by its name the file is number 1"},
            {{3, 3, 4, "m-00002-of-00003.gguf", {"c", NULL}, NULL}, "split.no", "is 3"},
            {{-2, 3, 4, "m-00002-of-00003.gguf", {"c", NULL}, NULL}, "split.no", "is missing"},
            {{1, 4, 4, "m-00002-of-00003.gguf", {"c", NULL}, NULL}, "split.count", "is 4, in "},
            {{1, 1, 4, "m-00002-of-00003.gguf", {"c", NULL}, NULL}, "split.count", "is 1, in "},
            {{1, -2, 4, "m-00002-of-00003.gguf", {"c", NULL}, NULL}, "split.count", "is missing"},
            {{1, 0, 4, "m-00002-of-00003.gguf", {"c", NULL}, "3"}, "split.count",
                    "an integer is needed"},
            {{1, 3, 5, "m-00002-of-00003.gguf", {"c", NULL}, NULL}, "split.tensors.count",
                    "is 5, in "},
            {{1, 3, -1, "m-00002-of-00003.gguf", {"c", NULL}, NULL}, "split.tensors.count",
                    "is -1"},
            {{1, 3, -2, "m-00002-of-00003.gguf", {"c", NULL}, NULL}, "split.tensors.count",
                    "is missing"},
            {{1, 3, 4, "m-00002-of-00003.gguf", {"a", NULL}, NULL}, "tensor 'a'",
                    "m-00001-of-00003.gguf"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_good();
        write_part(&bad[i].part);
        refuse(good[0].name, bad[i].part.name, bad[i].key, bad[i].text);
    }
    // The tensors of all parts are counted.
    write_good();
    write_part(&(struct part){1, 3, 4, "m-00002-of-00003.gguf", {NULL, NULL}, NULL});
    refuse(good[2].name, good[2].name, "split.tensors.count", "is 4, the 3 parts have 3 tensors");
    // A part that is damaged is named like any file.
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_write(scratch_path(good[1].name), "GGUF", 4, &err), 0);
    refuse(good[0].name, good[1].name, "cut short", "4 bytes");
    scratch_empty();
}

static void gguf_split_needs_its_names(void **state) {
    (void)state;
    static const char *const names[] = {"m.gguf", "m-00001-of-00004.gguf", "m-00000-of-00003.gguf",
            "m-00004-of-00003.gguf", "m-0001-of-00003.gguf", "m_00001-of-00003.gguf",
            "m-00001-of-00003.bin", "m-00001-fo-00003.gguf", "m-0000x-of-00003.gguf", "x"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct part part = good[0];
        part.name = names[i];
        write_good();
        write_part(&part);
        refuse(names[i], names[i], "split.count", "does not end in -00001-of-00003.gguf");
        scratch_empty();
    }
    // A whole name may be nothing but the number.
    for (int i = 0; i < 3; i++) {
        struct part part = good[i];
        part.name += 1;
        write_part(&part);
    }
    struct kiln_gguf *gguf;
    struct kiln_err err = {0};
    assert_int_equal(kiln_gguf_open(&gguf, scratch_path(good[1].name + 1), &err), KILN_STATUS_OK);
    kiln_gguf_close(gguf);
    scratch_empty();
}

static void gguf_split_bounds_the_count(void **state) {
    (void)state;
    static const uint64_t dims[] = {8};
    struct gguf_write w;
    gguf_write_init(&w);
    gguf_write_u64(&w, "split.count", UINT64_MAX);
    gguf_write_tensor(&w, "a", KILN_DTYPE_F32, 1, dims, NULL, 32);
    size_t size;
    uint8_t *bytes = gguf_write_finish(&w, &size);
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_write(scratch_path("m.gguf"), bytes, size, &err), KILN_STATUS_OK);
    refuse("m.gguf", "m.gguf", "split.count", "65535");
    // In memory there are no other parts.
    struct kiln_gguf *gguf;
    assert_int_equal(kiln_gguf_parse(&gguf, bytes, size, "m.gguf", &err), KILN_STATUS_OK);
    kiln_gguf_close(gguf);
    kiln_free(bytes);
    scratch_empty();
}

// Leaks show under a sanitizer.
static void gguf_split_survives_each_failed_allocation(void **state) {
    (void)state;
    write_good();
    for (int sticky = 0; sticky < 2; sticky++) {
        enum kiln_status status = KILN_STATUS_NOMEM;
        uint64_t n = 0;
        while (status != KILN_STATUS_OK) {
            struct kiln_gguf *gguf = (struct kiln_gguf *)1;
            struct kiln_err err = {0};
            kiln_mem_fail_at(++n, sticky);
            status = kiln_gguf_open(&gguf, scratch_path(good[1].name), &err);
            kiln_mem_fail_at(0, 0);
            assert_true(status == KILN_STATUS_OK ? gguf != NULL : gguf == NULL);
            assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM);
            if (status == KILN_STATUS_OK) {
                check_whole(gguf);
                kiln_gguf_close(gguf);
            }
        }
        assert_true(n > 20);
    }
    scratch_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(gguf_split_opens_by_any_part),
            cmocka_unit_test(gguf_split_leaves_single_files_alone),
            cmocka_unit_test(gguf_split_names_the_part_that_is_missing),
            cmocka_unit_test(gguf_split_checks_what_the_parts_say),
            cmocka_unit_test(gguf_split_needs_its_names),
            cmocka_unit_test(gguf_split_bounds_the_count),
            cmocka_unit_test(gguf_split_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
