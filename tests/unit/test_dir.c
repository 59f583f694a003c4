// The names in a folder.
#include "base/dir.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

static void touch(const char *name) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void dir_sorts_and_filters(void **state) {
    (void)state;
    struct kiln_dir dir = {.names = NULL};
    touch("b.ini");
    touch("a.ini");
    touch("c.txt");
    touch(".ini");
    assert_int_equal(kiln_dir_read(&dir, root, "", ".ini"), 0);
    assert_int_equal(dir.count, 3);
    assert_string_equal(dir.names[0], ".ini");
    assert_string_equal(dir.names[1], "a.ini");
    assert_string_equal(dir.names[2], "b.ini");
    kiln_dir_finish(&dir);
    assert_int_equal(kiln_dir_read(&dir, root, "c", ""), 0);
    assert_int_equal(dir.count, 1);
    kiln_dir_finish(&dir);
    assert_int_equal(kiln_dir_read(&dir, root, "", ""), 0);
    assert_int_equal(dir.count, 4); // without "." and ".."
    kiln_dir_finish(&dir);
}

static void dir_tells_what_fails(void **state) {
    (void)state;
    struct kiln_dir dir = {.names = NULL};
    assert_int_equal(kiln_dir_read(&dir, "/nonexistent", "", ""), -1);
    assert_int_equal(errno, ENOENT);
    kiln_dir_finish(&dir);
    touch("a");
    touch("b");
    for (uint64_t n = 1; n <= 3; n++) { // two names and the array
        kiln_mem_fail_at(n, 0);
        assert_int_equal(kiln_dir_read(&dir, root, "", ""), -1);
        assert_int_equal(errno, ENOMEM);
        kiln_mem_fail_at(0, 0);
        kiln_dir_finish(&dir);
    }
}

static int set_up(void **state) {
    (void)state;
    snprintf(root, sizeof(root), "/tmp/kiln-dir-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command) == 0 ? 0 : -1; // NOLINT: a path that mkdtemp made
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(dir_sorts_and_filters, set_up, tear_down),
            cmocka_unit_test_setup_teardown(dir_tells_what_fails, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
