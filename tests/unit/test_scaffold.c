// test_scaffold: the folder that `kiln plugins new` writes, and what it leaves when it cannot. That
// the plugin builds and runs is tests/cli/test_plugins_new.py's.
#include "plugin/scaffold.h"

#include "base/file.h"
#include "base/mem.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const suffixes[] = {"mine.c", "mine.ini", "Makefile", "README.md"};

static struct kiln_scaffold ask(void) {
    return (struct kiln_scaffold){
            .name = "mine", .slot = "norm", .dir = scratch_path(""), .kiln = "kiln"};
}

static void remove_folder(const char *name) {
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        char *path = kiln_asprintf("%s/%s", scratch_path(name), suffixes[i]);
        assert_non_null(path);
        assert_int_equal(unlink(path), 0);
        kiln_free(path);
    }
    assert_int_equal(rmdir(scratch_path(name)), 0);
}

static void assert_refused(
        const struct kiln_scaffold *scaffold, enum kiln_status expected, const char *text) {
    struct kiln_buf guide = {0};
    struct kiln_err err = {0};
    assert_int_equal(kiln_scaffold_write(scaffold, &guide, &err), expected);
    if (!strstr(err.text, text)) {
        fail_msg("no '%s' in: %s", text, err.text);
    }
    kiln_buf_finish(&guide);
}

static void scaffold_renames_the_template(void **state) {
    (void)state;
    struct kiln_scaffold scaffold = ask();
    struct kiln_buf guide = {0};
    struct kiln_err err = {0};
    assert_int_equal(kiln_scaffold_write(&scaffold, &guide, &err), KILN_STATUS_OK);
    static const char *const expected[] = {
            ".name = \"mine\"", "[norm]\nplugin  = mine\n", "mine.so: mine.c", "./mine.so"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        char *path = kiln_asprintf("%s/%s", scratch_path("mine"), suffixes[i]), *text;
        size_t size;
        assert_int_equal(kiln_file_read(path, 1 << 20, &text, &size, &err), KILN_STATUS_OK);
        assert_non_null(strstr(text, expected[i]));
        assert_null(strstr(text, "example"));
        kiln_free(text);
        kiln_free(path);
    }
    kiln_buf_finish(&guide);
    remove_folder("mine");
}

// What is pasted into a shell is one word where it must be, also where a path has blanks.
static void scaffold_guide_can_be_pasted(void **state) {
    (void)state;
    struct kiln_scaffold scaffold = ask();
    scaffold.kiln = "/opt/it's here/kiln";
    scaffold.pkg_config_path = "/opt/a b";
    struct kiln_buf guide = {0};
    struct kiln_err err = {0};
    assert_int_equal(kiln_scaffold_write(&scaffold, &guide, &err), KILN_STATUS_OK);
    assert_non_null(strstr(guide.data, "\n  PKG_CONFIG_PATH='/opt/a b' make -C /tmp/"));
    assert_non_null(strstr(guide.data, "\n  '/opt/it'\\''s here/kiln' plugins verify /tmp/"));
    assert_non_null(strstr(guide.data, "\n  [norm]\n  plugin  = mine\n  variant = plain\n"));
    assert_non_null(strstr(guide.data, " run --plugin-dir /tmp/"));
    assert_null(strstr(guide.data, "//"));
    kiln_buf_finish(&guide);
    remove_folder("mine");
}

static void scaffold_has_a_template_a_slot(void **state) {
    (void)state;
    static const char *const slots[] = {"norm", "activation", "matmul"};
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        struct kiln_scaffold scaffold = ask();
        scaffold.slot = slots[i];
        struct kiln_buf guide = {0};
        struct kiln_err err = {0};
        assert_non_null(strstr(kiln_scaffold_slots(), slots[i]));
        assert_int_equal(kiln_scaffold_write(&scaffold, &guide, &err), KILN_STATUS_OK);
        char *section = kiln_asprintf("\n  [%s", slots[i]);
        assert_non_null(strstr(guide.data, section));
        kiln_free(section);
        kiln_buf_finish(&guide);
        remove_folder("mine");
    }
}

static void scaffold_refuses_bad_names_and_slots(void **state) {
    (void)state;
    static const char *const names[] = {"", "a-b", "../a", "A", "a/b", "."};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct kiln_scaffold scaffold = ask();
        scaffold.name = names[i];
        assert_refused(&scaffold, KILN_STATUS_USAGE, "[a-z0-9_]+");
    }
    struct kiln_scaffold scaffold = ask();
    scaffold.slot = "argmax";
    assert_refused(&scaffold, KILN_STATUS_USAGE, "There is one for: norm, activation, matmul");
    scaffold.slot = "nrom";
    assert_refused(&scaffold, KILN_STATUS_USAGE, "did you mean 'norm'? There is one for: norm");
    assert_int_equal(scratch_count(), 0);
}

static void scaffold_overwrites_nothing(void **state) {
    (void)state;
    struct kiln_scaffold scaffold = ask();
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_write(scratch_path("mine"), "kept", 4, &err), KILN_STATUS_OK);
    assert_refused(&scaffold, KILN_STATUS_FILE, "is there already");
    char *text;
    size_t size;
    assert_int_equal(kiln_file_read(scratch_path("mine"), 100, &text, &size, &err), KILN_STATUS_OK);
    assert_string_equal(text, "kept");
    kiln_free(text);
    scratch_empty();
    scaffold.dir = "/nonexistent";
    assert_refused(&scaffold, KILN_STATUS_FILE, "/nonexistent/mine");
}

static void scaffold_leaves_nothing_on_a_full_disk(void **state) {
    (void)state;
    struct kiln_scaffold scaffold = ask();
    for (size_t bytes = 10; bytes < 1000; bytes += 600) {
        scratch_fill_disk(bytes);
        assert_refused(&scaffold, KILN_STATUS_FILE, "mine/mine.c");
        scratch_free_disk();
        assert_int_equal(scratch_count(), 0);
    }
}

static void scaffold_survives_failed_allocations(void **state) {
    (void)state;
    for (int sticky = 0; sticky < 2; sticky++) {
        int reached = 1;
        for (uint64_t n = 1; reached; n++) {
            assert_true(n < 1000);
            struct kiln_scaffold scaffold = ask();
            scaffold.pkg_config_path = "/opt/a b";
            struct kiln_buf guide = {0};
            struct kiln_err err = {0};
            kiln_mem_fail_at(n, sticky);
            enum kiln_status status = kiln_scaffold_write(&scaffold, &guide, &err);
            reached = kiln_mem_count() >= n;
            kiln_mem_fail_at(0, 0);
            kiln_buf_finish(&guide);
            if (status == KILN_STATUS_OK) { // or one that the writing of a file does without
                remove_folder("mine");
                continue;
            }
            if (status != KILN_STATUS_NOMEM) {
                fail_msg("n %d sticky %d: %s", (int)n, sticky, err.text);
            }
            assert_int_equal(scratch_count(), 0);
        }
    }
}

static void scaffold_adds_a_cuda_kernel(void **state) {
    (void)state;
    struct kiln_scaffold scaffold = ask();
    struct kiln_buf guide = {0};
    struct kiln_err err = {0};
    char *text;
    size_t size;
    scaffold.cuda = 1;
    assert_int_equal(kiln_scaffold_write(&scaffold, &guide, &err), KILN_STATUS_OK);
    assert_non_null(strstr(guide.data, "mine.cu, Makefile"));
    assert_non_null(strstr(guide.data, "\n  kiln jit norm --plugin-dir "));
    assert_non_null(strstr(guide.data, "[norm/cuda]"));
    char *path = kiln_asprintf("%s/mine.cu", scratch_path("mine"));
    assert_non_null(path);
    assert_int_equal(kiln_file_read(path, 1 << 20, &text, &size, &err), KILN_STATUS_OK);
    assert_non_null(strstr(text, "extern \"C\" __global__"));
    assert_int_equal(unlink(path), 0);
    remove_folder("mine");
    scaffold.slot = "matmul";
    assert_int_equal(kiln_scaffold_write(&scaffold, &guide, &err), KILN_STATUS_USAGE);
    assert_non_null(strstr(err.text, "There is one for: norm"));
    kiln_free(text);
    kiln_free(path);
    kiln_buf_finish(&guide);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(scaffold_adds_a_cuda_kernel),
            cmocka_unit_test(scaffold_renames_the_template),
            cmocka_unit_test(scaffold_guide_can_be_pasted),
            cmocka_unit_test(scaffold_has_a_template_a_slot),
            cmocka_unit_test(scaffold_refuses_bad_names_and_slots),
            cmocka_unit_test(scaffold_overwrites_nothing),
            cmocka_unit_test(scaffold_leaves_nothing_on_a_full_disk),
            cmocka_unit_test(scaffold_survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
