// file: whole files in and out, what a failure leaves behind, mappings and their guard.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // nftw
#endif
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"

static char folder[64];
static int entries_seen;

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int count_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)path;
    (void)st;
    (void)kind;
    entries_seen += ftw->level == 1;
    return 0;
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/kiln-test-file-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state) {
    (void)state;
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int entries(void) {
    entries_seen = 0;
    assert_int_equal(nftw(folder, count_entry, 16, FTW_PHYS), 0);
    return entries_seen;
}

// A path in the test's folder; valid until the fourth call from now.
static const char *in_folder(const char *name) {
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void put(const char *path, const char *text) {
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_write(path, text, strlen(text), &err), KILN_STATUS_OK);
}

static void expect(const char *path, const char *text) {
    struct kiln_err err = {0};
    char *data;
    size_t size;
    assert_int_equal(kiln_file_read(path, 1 << 20, &data, &size, &err), KILN_STATUS_OK);
    assert_int_equal(size, strlen(text));
    assert_string_equal(data, text);
    kiln_free(data);
}

static void file_comes_back_as_it_was_written(void **state) {
    (void)state;
    put(in_folder("a"), "one");
    expect(in_folder("a"), "one");
    put(in_folder("a"), "");
    expect(in_folder("a"), "");
    char bytes[100000];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (char)(i * 7);
    }
    struct kiln_err err = {0};
    char *data;
    size_t size;
    assert_int_equal(kiln_file_write(in_folder("a"), bytes, sizeof(bytes), &err), KILN_STATUS_OK);
    assert_int_equal(
            kiln_file_read(in_folder("a"), sizeof(bytes), &data, &size, &err), KILN_STATUS_OK);
    assert_int_equal(size, sizeof(bytes));
    assert_memory_equal(data, bytes, size);
    assert_int_equal(data[size], '\0');
    kiln_free(data);
    assert_int_equal(entries(), 1);
    assert_true(kiln_file_exists(in_folder("a")));
    assert_false(kiln_file_exists(in_folder("b")));
}

static void file_read_says_what_is_wrong(void **state) {
    (void)state;
    struct kiln_err err = {0};
    char *data;
    size_t size;
    put(in_folder("a"), "12345");
    assert_int_equal(kiln_file_read(in_folder("a"), 4, &data, &size, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "has 5 bytes; at most 4"));
    assert_null(data);
    assert_int_equal(kiln_file_read(in_folder("no"), 4, &data, &size, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, in_folder("no")));
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(kiln_file_read(folder, 4, &data, &size, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "directory"));
    // No size is known beforehand here.
    assert_int_equal(kiln_file_read("/dev/zero", 4096, &data, &size, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "at most 4096 bytes"));
    assert_int_equal(
            kiln_file_read("/proc/self/status", 1 << 20, &data, &size, &err), KILN_STATUS_OK);
    assert_true(size > 100);
    kiln_free(data);
}

static void file_reads_standard_input(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "piped", 5), 5);
    close(ends[1]);
    int kept = dup(STDIN_FILENO);
    dup2(ends[0], STDIN_FILENO);
    expect("-", "piped");
    dup2(kept, STDIN_FILENO);
    close(kept);
    close(ends[0]);
}

static void file_write_keeps_mode_and_link(void **state) {
    (void)state;
    struct stat st;
    put(in_folder("real"), "old");
    assert_int_equal(chmod(in_folder("real"), 0640), 0);
    assert_int_equal(symlink("real", in_folder("link")), 0);
    put(in_folder("link"), "new");
    expect(in_folder("real"), "new");
    assert_int_equal(lstat(in_folder("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(in_folder("real"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    mode_t mask = umask(022);
    put(in_folder("fresh"), "x");
    umask(mask);
    assert_int_equal(stat(in_folder("fresh"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
}

static void file_write_accepts_the_longest_name(void **state) {
    (void)state;
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    put(in_folder(name), "long");
    expect(in_folder(name), "long");
}

// RLIMIT_FSIZE stands for a full disk: the write stops half way.
static void file_write_on_a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    put(in_folder("a"), "old");
    static char big[65536];
    struct kiln_err err = {0};
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum kiln_status old = kiln_file_write(in_folder("a"), big, sizeof(big), &err);
    enum kiln_status fresh = kiln_file_write(in_folder("b"), big, sizeof(big), NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(old, KILN_STATUS_FILE);
    assert_int_equal(fresh, KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, in_folder("a")));
    assert_non_null(strstr(err.text, strerror(EFBIG)));
    expect(in_folder("a"), "old");
    assert_int_equal(entries(), 1); // neither "b" nor a temporary file
}

// Runs `act` in a child with its standard error caught in text; gives the child's wait status.
static int in_child(void (*act)(void), char *text, size_t cap) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        struct rlimit none = {0};
        setrlimit(RLIMIT_CORE, &none);
        act();
        _exit(77);
    }
    close(ends[1]);
    size_t len = 0;
    for (ssize_t n; len + 1 < cap && (n = read(ends[0], text + len, cap - 1 - len)) > 0;) {
        len += (size_t)n;
    }
    text[len] = '\0';
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void file_write_leaves_a_pipe_a_pipe(void **state) {
    (void)state;
    struct stat st;
    struct kiln_err err = {0};
    char got[8] = "";
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    int end = open(in_folder("pipe"), O_RDONLY | O_NONBLOCK);
    assert_int_equal(kiln_file_write(in_folder("pipe"), "sent", 4, &err), KILN_STATUS_OK);
    assert_int_equal(read(end, got, sizeof(got)), 4);
    assert_string_equal(got, "sent");
    close(end);
    assert_int_equal(stat(in_folder("pipe"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(entries(), 1);
}

// As a user who may not touch /dev: were the device treated as a file, root would lose it.
static void write_to_full_device(void) {
    if (geteuid() == 0 && setuid(65534) != 0) {
        return;
    }
    struct kiln_err err = {0};
    if (kiln_file_write("/dev/null", "x", 1, &err) == KILN_STATUS_OK &&
            kiln_file_write("/dev/full", "x", 1, &err) == KILN_STATUS_FILE) {
        fprintf(stderr, "%s", err.text);
        fflush(stderr);
        _exit(0);
    }
}

static void file_write_reports_a_full_device(void **state) {
    (void)state;
    char text[1024], want[200];
    assert_int_equal(in_child(write_to_full_device, text, sizeof(text)), 0);
    snprintf(want, sizeof(want), "/dev/full: cannot write it: %s", strerror(ENOSPC));
    assert_string_equal(text, want);
}

static void file_write_says_what_is_wrong(void **state) {
    (void)state;
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_write(in_folder("no/a"), "x", 1, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, in_folder("no/a")));
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(kiln_file_write(folder, "x", 1, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "directory"));
    for (uint64_t n = 1; n <= 2; n++) {
        kiln_mem_fail_at(n, 0);
        enum kiln_status status = kiln_file_write(in_folder("a"), "x", 1, &err);
        kiln_mem_fail_at(0, 0);
        assert_true(n == 1 ? status == KILN_STATUS_NOMEM : status == KILN_STATUS_OK);
    }
    assert_int_equal(entries(), 1);
}

static void file_make_dirs_makes_each_part(void **state) {
    (void)state;
    struct kiln_err err = {0};
    assert_int_equal(kiln_make_dirs(in_folder("a/b//c/"), &err), KILN_STATUS_OK);
    assert_int_equal(kiln_make_dirs(in_folder("a/b/c"), &err), KILN_STATUS_OK);
    assert_true(kiln_file_exists(in_folder("a/b/c")));
    put(in_folder("plain"), "");
    assert_int_equal(kiln_make_dirs(in_folder("plain/x"), &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, in_folder("plain")));
    assert_non_null(strstr(err.text, strerror(ENOTDIR)));
    assert_int_equal(kiln_make_dirs("", &err), KILN_STATUS_FILE);
    assert_int_equal(kiln_make_dirs("/proc/kiln/x", &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "/proc/kiln"));
    kiln_mem_fail_at(1, 0);
    enum kiln_status status = kiln_make_dirs(in_folder("m"), &err);
    kiln_mem_fail_at(0, 0);
    assert_int_equal(status, KILN_STATUS_NOMEM);
}

static void map_shows_the_file(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_map maps[5], empty;
    put(in_folder("a"), "mapped");
    put(in_folder("e"), "");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kiln_map_open(&maps[i], in_folder("a"), &err), KILN_STATUS_OK);
        assert_int_equal(maps[i].size, 6);
        assert_memory_equal(maps[i].data, "mapped", 6);
    }
    for (int i = 0; i < 5; i++) {
        kiln_map_close(&maps[i]);
        assert_null(maps[i].data);
        kiln_map_close(&maps[i]);
    }
    assert_int_equal(kiln_map_open(&empty, in_folder("e"), &err), KILN_STATUS_OK);
    assert_null(empty.data);
    assert_int_equal(empty.size, 0);
    kiln_map_close(&empty);
}

static void map_refuses_what_is_not_a_file(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_map map;
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(kiln_map_open(&map, in_folder("pipe"), &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "is a pipe"));
    assert_int_equal(kiln_map_open(&map, folder, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "is a directory"));
    assert_int_equal(kiln_map_open(&map, "/dev/null", &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "is a device"));
    assert_int_equal(kiln_map_open(&map, in_folder("no"), &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "No such file"));
}

static void touch_lost_page(void) {
    struct kiln_map map, other;
    kiln_map_guard();
    kiln_map_guard();
    if (kiln_map_open(&other, in_folder("b"), NULL) == KILN_STATUS_OK &&
            kiln_map_open(&map, in_folder("a"), NULL) == KILN_STATUS_OK &&
            truncate(in_folder("a"), 0) == 0) {
        _exit(map.data[5000] ? 50 : 51);
    }
}

static void raise_sigbus(void) {
    signal(SIGBUS, SIG_DFL); // a sanitizer's handler would answer in its own way
    kiln_map_guard();
    raise(SIGBUS);
}

static void map_guard_names_the_file_that_shrank(void **state) {
    (void)state;
    static char big[8192];
    char text[1024], want[1024];
    assert_int_equal(kiln_file_write(in_folder("a"), big, sizeof(big), NULL), KILN_STATUS_OK);
    put(in_folder("b"), "other");
    int status = in_child(touch_lost_page, text, sizeof(text));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    snprintf(want, sizeof(want),
            "kiln: %s: the file shrank or its disk failed while it was being read\n",
            in_folder("a"));
    assert_string_equal(text, want);
}

static void map_guard_leaves_other_faults_alone(void **state) {
    (void)state;
    char text[1024];
    int status = in_child(raise_sigbus, text, sizeof(text));
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
}

static void expect_cache_dir(const char *want) {
    char *dir = kiln_cache_dir();
    assert_non_null(dir);
    if (want) {
        assert_string_equal(dir, want);
    } else {
        assert_int_equal(dir[0], '/');
    }
    kiln_free(dir);
}

static void cache_dir_follows_the_environment(void **state) {
    (void)state;
    setenv("KILN_CACHE_DIR", "/k", 1);
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("HOME", "/h", 1);
    expect_cache_dir("/k");
    setenv("KILN_CACHE_DIR", "", 1);
    expect_cache_dir("/x/kiln");
    setenv("XDG_CACHE_HOME", "relative", 1);
    expect_cache_dir("/h/.cache/kiln");
    unsetenv("XDG_CACHE_HOME");
    expect_cache_dir("/h/.cache/kiln");
    unsetenv("HOME");
    expect_cache_dir(NULL);
}

static void exe_dir_is_where_the_program_lies(void **state) {
    (void)state;
    char *dir = kiln_exe_dir(), path[4096];
    assert_non_null(dir);
    assert_int_equal(dir[0], '/');
    snprintf(path, sizeof(path), "%s/test_file", dir);
    assert_true(kiln_file_exists(path));
    kiln_free(dir);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
            IN_FOLDER(file_comes_back_as_it_was_written),
            IN_FOLDER(file_read_says_what_is_wrong),
            cmocka_unit_test(file_reads_standard_input),
            IN_FOLDER(file_write_keeps_mode_and_link),
            IN_FOLDER(file_write_accepts_the_longest_name),
            IN_FOLDER(file_write_on_a_full_disk_leaves_the_old_file),
            IN_FOLDER(file_write_leaves_a_pipe_a_pipe),
            cmocka_unit_test(file_write_reports_a_full_device),
            IN_FOLDER(file_write_says_what_is_wrong),
            IN_FOLDER(file_make_dirs_makes_each_part),
            IN_FOLDER(map_shows_the_file),
            IN_FOLDER(map_refuses_what_is_not_a_file),
            IN_FOLDER(map_guard_names_the_file_that_shrank),
            cmocka_unit_test(map_guard_leaves_other_faults_alone),
            cmocka_unit_test(cache_dir_follows_the_environment),
            cmocka_unit_test(exe_dir_is_where_the_program_lies),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
