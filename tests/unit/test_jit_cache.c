// The kernel cache under everything that can befall it, with a compiler that counts its calls.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // unshare, mount, setgroups
#endif
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "jit/jit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    NOBODY = 65534,
    OTHER = 12345
};

static int archs[] = {75, 80, 90};
static char fake_path[] = "fake", fake_identity[] = "13.0 fake";
static struct kiln_nvrtc fake = {.path = fake_path,
        .major = 13,
        .minor = 0,
        .identity = fake_identity,
        .archs = archs,
        .n_archs = 3};

static const struct kiln_source source = {.struct_size = sizeof(source),
        .name = "k.cu",
        .text = "extern \"C\" __global__ void k() {}"};
static const struct kiln_kernel kernel = {
        .struct_size = sizeof(kernel), .name = "k", .source = &source};
static const struct kiln_launch launch = {.struct_size = sizeof(launch), .kernel = "k"};
static const char *const names[] = {"TILE"};

static char root[64];      // of the test
static char cache_dir[96]; // root/cache
static char counter[96];   // root/count: a byte a compile

// ---- Support ------------------------------------------------------------------------------------

static int set_up(void **state) {
    (void)state;
    snprintf(root, sizeof(root), "/tmp/kiln-cache-XXXXXX");
    if (!mkdtemp(root) || chmod(root, 0777) != 0) {
        return -1;
    }
    snprintf(cache_dir, sizeof(cache_dir), "%s/cache", root);
    snprintf(counter, sizeof(counter), "%s/count", root);
    int fd = open(counter, O_CREAT | O_WRONLY, 0666);
    if (fd < 0 || fchmod(fd, 0666) != 0) {
        return -1;
    }
    close(fd);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    char command[160];
    snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf %s", root, root);
    return system(command) == 0 ? 0 : -1; // NOLINT: a path that mkdtemp made
}

static long compiles(void) {
    struct stat st;
    assert_int_equal(stat(counter, &st), 0);
    return (long)st.st_size;
}

// The image holds the geometry, so that a wrong one shows.
static enum kiln_status fake_compile(void *arg, const struct kiln_unit *unit,
        struct kiln_image *image, char **log, struct kiln_err *err) {
    const long *pause_ms = arg;
    int fd = open(counter, O_WRONLY | O_APPEND);
    if (fd < 0 || write(fd, "x", 1) != 1) {
        return kiln_err_set(err, KILN_STATUS_DEVICE, "no counter");
    }
    close(fd);
    if (pause_ms) {
        const struct timespec time = {.tv_nsec = *pause_ms * 1000000};
        nanosleep(&time, NULL);
    }
    struct kiln_buf data = {0};
    while (data.len < 1000 && !data.failed) {
        kiln_buf_printf(&data, "%s\n", unit->geometry);
    }
    size_t size = data.len;
    *image = (struct kiln_image){.ptx = 1,
            .size = size,
            .entry = kiln_strdup(unit->entry),
            .target = kiln_strdup(unit->target),
            .label = kiln_strdup(unit->label),
            .geometry = kiln_strdup(unit->geometry),
            .compile_ms = 12.5,
            .resources = {40, 0, 8, 16, 1024}};
    image->data = kiln_buf_take(&data);
    *log = kiln_strdup("");
    if (!image->data || !image->entry || !image->target || !image->label || !image->geometry ||
            !*log) {
        kiln_image_finish(image);
        return kiln_err_nomem(err, "a fake");
    }
    return KILN_STATUS_OK;
}

struct setting {
    const char *dir;
    int64_t max_size;
    void (*step)(void *arg, const char *name);
    void *step_arg;
    long *pause_ms;
    uint32_t threads;
};

// Gets kernels TILE = first .. first + n - 1; returns how many came from the cache.
static size_t get(const struct setting *setting, int64_t first, size_t n) {
    struct kiln_err err = {0};
    struct kiln_jit_params params = {
            .cache = {.dir = setting->dir ? setting->dir : cache_dir,
                    .max_size = setting->max_size ? setting->max_size : 1 << 20,
                    .step = setting->step,
                    .step_arg = setting->step_arg},
            .threads = setting->threads ? setting->threads : 1,
            .nvrtc = &fake,
            .compile = fake_compile,
            .compile_arg = setting->pause_ms};
    struct kiln_jit *jit = NULL;
    struct kiln_jit_item items[8] = {0};
    int64_t values[8];
    struct kiln_geometry geometry[8];
    size_t cached = 0;
    assert_int_equal(kiln_jit_open(&jit, &params, &err), KILN_STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        values[i] = first + (int64_t)i;
        geometry[i] = (struct kiln_geometry){.struct_size = sizeof(geometry[i]),
                .n_values = 1,
                .names = names,
                .values = &values[i]};
        items[i].request = (struct kiln_jit_request){.plugin = "p",
                .variant = "v",
                .kernel = &kernel,
                .geometry = &geometry[i],
                .launch = &launch,
                .target = "sm_80"};
    }
    enum kiln_status status = kiln_jit_run(jit, items, n, 0, &err);
    if (status != KILN_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
    }
    assert_int_equal(status, KILN_STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        char want[64];
        snprintf(want, sizeof(want), "KILN_SMEM=0 TILE=%d\n", (int)values[i]);
        assert_memory_equal(items[i].image.data, want, strlen(want));
        assert_int_equal(items[i].image.resources.smem_static, 1024);
        assert_string_equal(items[i].image.entry, "k");
        cached += items[i].cached ? 1 : 0;
    }
    kiln_jit_items_finish(items, n);
    kiln_jit_close(jit);
    return cached;
}

static const struct setting plain = {0};

// Runs `body` in a child, as user `uid` (0: as this one). Returns its wait status.
static int in_child(void (*body)(void), uid_t uid) {
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (uid != 0 && (setgroups(0, NULL) != 0 || setgid(uid) != 0 || setuid(uid) != 0)) {
            _exit(99);
        }
        body();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

#define HERE ((uid_t)-1) // not in a child

static char said[8192]; // what was written to stderr

// Runs and keeps what stderr was told; the warnings in it.
static size_t warnings_of(void (*body)(void), uid_t uid) {
    char path[96];
    snprintf(path, sizeof(path), "%s/stderr", root);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666), old = dup(2);
    assert_true(fd >= 0 && old >= 0);
    dup2(fd, 2);
    int status = 0;
    if (uid == HERE) {
        body();
    } else {
        status = in_child(body, uid);
    }
    fflush(stderr);
    dup2(old, 2);
    close(old);
    ssize_t n = pread(fd, said, sizeof(said) - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    close(fd);
    if (status != 0) {
        fprintf(stderr, "status %#x: %s\n", (unsigned)status, said);
    }
    assert_int_equal(status, 0);
    size_t count = 0;
    for (const char *at = said; (at = strstr(at, "warning: ")) != NULL; at++) {
        count++;
    }
    return count;
}

// Names of the files in the entries' folder that start with `prefix` and end in `suffix`.
static size_t files(const char *prefix, const char *suffix, char *last, size_t size) {
    char path[128];
    snprintf(path, sizeof(path), "%s/kernels", cache_dir);
    DIR *dir = opendir(path);
    size_t count = 0;
    const struct dirent *at;
    while (dir && (at = readdir(dir)) != NULL) {
        size_t len = strlen(at->d_name), end = strlen(suffix);
        if (len >= end && strcmp(at->d_name + len - end, suffix) == 0 &&
                at->d_name[len - 1] != '.' && strncmp(at->d_name, prefix, strlen(prefix)) == 0) {
            count++;
            if (last) {
                snprintf(last, size, "%s/%s", path, at->d_name);
            }
        }
    }
    if (dir) {
        closedir(dir);
    }
    return count;
}

static void load(const char *path, char **data, size_t *size) {
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_read(path, 1 << 20, data, size, &err), KILN_STATUS_OK);
}

static void save(const char *path, const char *data, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    close(fd);
}

static void get_one(void) {
    get(&plain, 1, 1);
}

// ---- Cases --------------------------------------------------------------------------------------

static void cache_serves_what_it_stored(void **state) {
    (void)state;
    assert_int_equal(get(&plain, 1, 3), 0);
    assert_int_equal(compiles(), 3);
    assert_int_equal(get(&plain, 1, 3), 3);
    assert_int_equal(get(&plain, 2, 3), 2); // TILE = 4 is new
    assert_int_equal(compiles(), 4);
    assert_int_equal(files("", ".kernel", NULL, 0), 4);
    assert_int_equal(files(".", "", NULL, 0), 0); // no lock, no temporary file
}

static void cache_rebuilds_what_is_damaged(void **state) {
    (void)state;
    char path[256], *good;
    size_t size;
    get_one();
    assert_int_equal(files("", ".kernel", path, sizeof(path)), 1);
    load(path, &good, &size);
    assert_true(size > 1000);
    long before = compiles();
    for (size_t at = 0; at < size; at += 64) { // a byte changed, and cut there
        char *bad = kiln_alloc(size);
        assert_non_null(bad);
        memcpy(bad, good, size);
        bad[at] ^= 0x20;
        save(path, bad, size);
        assert_int_equal(warnings_of(get_one, HERE), 1);
        assert_non_null(strstr(said, "is dropped and compiled again"));
        save(path, good, at);
        assert_int_equal(warnings_of(get_one, HERE), 1);
        assert_int_equal(compiles(), before += 2);
        kiln_free(bad);
    }
    char *zeroes = kiln_calloc(size, 1);
    assert_non_null(zeroes);
    save(path, zeroes, size);
    assert_int_equal(warnings_of(get_one, HERE), 1);
    kiln_free(zeroes);
    char *longer = kiln_alloc(size + 1);
    assert_non_null(longer);
    memcpy(longer, good, size);
    longer[size] = 0;
    save(path, longer, size + 1);
    assert_int_equal(warnings_of(get_one, HERE), 1);
    assert_int_equal(compiles(), before + 2);
    assert_int_equal(warnings_of(get_one, HERE), 0);
    assert_int_equal(compiles(), before + 2);
    kiln_free(longer);
    kiln_free(good);
}

static void cache_rebuilds_swapped_entries(void **state) {
    (void)state;
    char first[256], second[256], spare[300];
    get(&plain, 1, 1);
    assert_int_equal(files("", ".kernel", first, sizeof(first)), 1);
    get(&plain, 2, 1);
    char *data;
    size_t size;
    load(first, &data, &size);
    snprintf(spare, sizeof(spare), "%s/kernels", cache_dir);
    DIR *dir = opendir(spare);
    const struct dirent *at;
    second[0] = '\0';
    while ((at = readdir(dir)) != NULL) {
        if (at->d_name[0] != '.' && !strstr(first, at->d_name)) {
            snprintf(second, sizeof(second), "%.100s/%.100s", spare, at->d_name);
        }
    }
    closedir(dir);
    assert_true(second[0] != '\0');
    snprintf(spare, sizeof(spare), "%.90s/spare", root);
    assert_int_equal(rename(first, spare), 0);
    assert_int_equal(rename(second, first), 0);
    assert_int_equal(rename(spare, second), 0);
    struct kiln_err err = {0};
    struct kiln_cache *cache = NULL;
    struct kiln_cache_params params = {.dir = cache_dir, .max_size = 1 << 20};
    struct kiln_cache_list list;
    assert_int_equal(kiln_cache_open(&cache, &params, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_cache_list(cache, &list, &err), KILN_STATUS_OK);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.entries[0].fault, "it belongs to another key");
    kiln_cache_list_finish(&list);
    kiln_cache_close(cache);
    assert_int_equal(get(&plain, 1, 2), 0);
    assert_int_equal(get(&plain, 1, 2), 2);
    assert_int_equal(compiles(), 4);
    kiln_free(data);
}

static void cache_rebuilds_an_older_format(void **state) {
    (void)state;
    char path[256], *data;
    size_t size;
    get_one();
    files("", ".kernel", path, sizeof(path));
    load(path, &data, &size);
    data[8] = 0;
    save(path, data, size);
    assert_int_equal(warnings_of(get_one, HERE), 1);
    assert_non_null(strstr(said, "another format"));
    assert_int_equal(compiles(), 2);
    kiln_free(data);
}

// A hash that two sources share must not be enough.
static void cache_compares_the_whole_key(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_cache *cache = NULL;
    struct kiln_cache_params params = {.dir = cache_dir, .max_size = 1 << 20};
    struct kiln_jit_key key = {"0123456789abcdef0123456789abcdef"};
    char text[] = "text", name[] = "n";
    struct kiln_image image = {.data = text,
            .size = 4,
            .entry = name,
            .target = name,
            .label = name,
            .geometry = name};
    struct kiln_image out = {0};
    assert_int_equal(kiln_cache_open(&cache, &params, &err), KILN_STATUS_OK);
    kiln_cache_put(cache, &key, "one source", &image);
    assert_int_equal(kiln_cache_get(cache, &key, "one source", &out), 1);
    assert_string_equal(out.data, "text");
    kiln_image_finish(&out);
    assert_int_equal(kiln_cache_get(cache, &key, "two source", &out), 0);
    kiln_cache_close(cache);
}

static void cache_rebuilds_what_another_user_wrote(void **state) {
    (void)state;
    char path[256];
    if (geteuid() != 0) {
        skip();
    }
    get_one();
    files("", ".kernel", path, sizeof(path));
    assert_int_equal(chown(path, OTHER, OTHER), 0);
    assert_int_equal(warnings_of(get_one, HERE), 1);
    assert_non_null(strstr(said, "belongs to another user"));
    assert_int_equal(compiles(), 2);
    assert_int_equal(get(&plain, 1, 1), 1);
}

static void get_two(void) {
    get(&plain, 1, 2);
}

// As an ordinary user, `prepare` having spoiled the folder: one warning that names it and the
// setting, all compiled, nothing left behind.
static void runs_uncached(uid_t uid) {
    long before = compiles();
    assert_int_equal(warnings_of(get_two, uid), 1);
    assert_non_null(strstr(said, cache_dir));
    assert_non_null(strstr(said, "[cache] dir"));
    assert_int_equal(compiles(), before + 2);
    assert_int_equal(files(".", "", NULL, 0), 0);
}

// What the listing says of the folder: entries that are whole, and none of them used.
static const char *list_fault(void) {
    struct kiln_err err = {0};
    struct kiln_cache *cache = NULL;
    struct kiln_cache_params params = {.dir = cache_dir, .max_size = 1 << 20};
    struct kiln_cache_list list;
    assert_int_equal(kiln_cache_open(&cache, &params, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_cache_list(cache, &list, &err), KILN_STATUS_OK);
    const char *fault = list.fault;
    kiln_cache_list_finish(&list);
    kiln_cache_close(cache);
    return fault;
}

static void cache_does_without_a_foreign_folder(void **state) {
    (void)state;
    char path[128];
    if (geteuid() != 0) {
        skip();
    }
    get_two();
    snprintf(path, sizeof(path), "%s/kernels", cache_dir);
    assert_int_equal(chown(path, OTHER, OTHER) || chmod(path, 0777), 0);
    runs_uncached(NOBODY);
    const char *fault = list_fault();
    assert_non_null(fault);
    assert_string_equal(fault, "it belongs to another user");
    assert_int_equal(chown(path, NOBODY, NOBODY) || chmod(path, 0755), 0);
    assert_int_equal(warnings_of(get_two, NOBODY), 0); // root's entries are taken
}

static void cache_does_without_a_folder_that_is_read_only(void **state) {
    (void)state;
    char path[128];
    uid_t uid = geteuid() == 0 ? NOBODY : 0;
    snprintf(path, sizeof(path), "%s/kernels", cache_dir);
    assert_int_equal(mkdir(cache_dir, 0755) || mkdir(path, 0755), 0);
    if (uid) {
        assert_int_equal(chown(path, uid, uid), 0);
    }
    assert_int_equal(chmod(path, 0555), 0);
    runs_uncached(uid);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(warnings_of(get_one, uid), 0);
    assert_int_equal(chmod(path, 0555), 0);
    long before = compiles();
    assert_int_equal(warnings_of(get_one, uid), 0); // what is in it still serves
    assert_int_equal(compiles(), before);
}

// Its entries can be neither opened nor replaced, nor told from none.
static void cache_does_without_a_folder_that_is_closed(void **state) {
    (void)state;
    char path[128];
    if (geteuid() != 0) {
        skip();
    }
    get_two();
    snprintf(path, sizeof(path), "%s/kernels", cache_dir);
    assert_int_equal(chmod(path, 0700), 0);
    runs_uncached(NOBODY);
    assert_non_null(strstr(said, "cannot be opened"));
    assert_int_equal(warnings_of(get_two, 0), 0); // all is there for its owner
}

static void get_in_missing(void) {
    const struct setting setting = {.dir = "/proc/kiln/nowhere"};
    get(&setting, 1, 2);
}

static void cache_does_without_a_folder_that_cannot_be_made(void **state) {
    (void)state;
    assert_int_equal(warnings_of(get_in_missing, 0), 1);
    assert_non_null(strstr(said, "/proc/kiln"));
    assert_int_equal(compiles(), 2);
}

static void cache_does_without_a_folder_that_is_a_file(void **state) {
    (void)state;
    char path[128];
    save(cache_dir, "x", 1);
    runs_uncached(0);
    assert_int_equal(unlink(cache_dir), 0);
    snprintf(path, sizeof(path), "%s/kernels", cache_dir);
    assert_int_equal(mkdir(cache_dir, 0755), 0);
    save(path, "x", 1);
    runs_uncached(0);
}

static void get_two_on_a_full_disk(void) {
    const struct rlimit limit = {.rlim_cur = 100, .rlim_max = 100};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        _exit(98);
    }
    get_two();
}

// RLIMIT_FSIZE counts for stderr's file too, so stderr is a pipe here.
static void cache_does_without_a_disk_that_is_full(void **state) {
    (void)state;
    int ends[2], old = dup(2);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], 2);
    int status = in_child(get_two_on_a_full_disk, 0);
    dup2(old, 2);
    close(old);
    close(ends[1]);
    ssize_t n = read(ends[0], said, sizeof(said) - 1);
    close(ends[0]);
    said[n > 0 ? n : 0] = '\0';
    if (status != 0) {
        fprintf(stderr, "status %#x: %s\n", (unsigned)status, said);
    }
    assert_int_equal(status, 0);
    const char *first = strstr(said, "warning: ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "warning: "));
    assert_int_equal(compiles(), 2);
    assert_int_equal(files("", "", NULL, 0), 0);
}

static void get_on_a_small_tmpfs(void) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("tmpfs", cache_dir, "tmpfs", 0, "size=64k") != 0) {
        _exit(77);
    }
    char path[128];
    snprintf(path, sizeof(path), "%s/filler", cache_dir);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    char block[4096] = {0};
    for (int i = 0; i < 15; i++) {
        if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block)) {
            break;
        }
    }
    for (int i = 0; i < 4; i++) { // at most one of them fits
        get(&plain, 1, 8);
    }
    _exit(files(".", "", NULL, 0) == 0 && files("", ".kernel", NULL, 0) <= 1 ? 0 : 1);
}

static void cache_survives_a_full_tmpfs(void **state) {
    (void)state;
    assert_int_equal(mkdir(cache_dir, 0755), 0);
    int status = in_child(get_on_a_small_tmpfs, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        skip(); // mounting is not for everyone
    }
    assert_int_equal(status, 0);
}

static int step_to_die_at, steps_seen;

static void die_at_step(void *arg, const char *name) {
    (void)arg;
    (void)name;
    if (steps_seen++ == step_to_die_at) {
        raise(SIGKILL);
    }
}

static void get_and_die(void) {
    const struct setting setting = {.step = die_at_step};
    steps_seen = 0;
    get(&setting, 1, 1);
}

static void cache_survives_a_kill_at_every_step(void **state) {
    (void)state;
    int killed = 0;
    for (step_to_die_at = 0; step_to_die_at < 20; step_to_die_at++) {
        char command[160];
        snprintf(command, sizeof(command), "rm -rf %s", cache_dir);
        assert_int_equal(system(command), 0); // NOLINT: as above
        int status = in_child(get_and_die, 0);
        if (!WIFSIGNALED(status)) {
            break;
        }
        killed++;
        long before = compiles();
        size_t cached = get(&plain, 1, 1);
        assert_int_equal(compiles(), before + (cached ? 0 : 1));
        assert_int_equal(get(&plain, 1, 1), 1);
        assert_int_equal(files("", ".kernel", NULL, 0), 1);
    }
    assert_int_equal(killed, 6); // create, write, write on, flush, rename, flush the folder
}

static void get_five(void) {
    static long pause_ms = 30;
    const struct setting setting = {.pause_ms = &pause_ms, .threads = 2};
    get(&setting, 1, 5);
}

static void cache_compiles_each_key_once(void **state) {
    (void)state;
    pid_t pids[32];
    fflush(NULL);
    for (int i = 0; i < 32; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            get_five();
            _exit(0);
        }
    }
    for (int i = 0; i < 32; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(compiles(), 5);
    assert_int_equal(files("", ".kernel", NULL, 0), 5);
    assert_int_equal(files(".", "", NULL, 0), 0);
}

static void cache_gives_up_what_was_not_used_for_longest(void **state) {
    (void)state;
    char path[256];
    struct stat st;
    get(&plain, 1, 1);
    files("", ".kernel", path, sizeof(path));
    assert_int_equal(stat(path, &st), 0);
    const struct setting two = {.max_size = 2 * st.st_size + st.st_size / 2};
    get(&two, 2, 1);
    assert_int_equal(get(&two, 1, 1), 1); // used after 2
    get(&two, 3, 1);
    assert_int_equal(files("", ".kernel", NULL, 0), 2);
    assert_int_equal(get(&two, 1, 1), 1);
    assert_int_equal(get(&two, 3, 1), 1);
    assert_int_equal(get(&two, 2, 1), 0);
    const struct setting none = {.max_size = 10};
    get(&none, 9, 1); // larger than the whole bound: not stored
    assert_int_equal(files("", ".kernel", NULL, 0), 2);
}

static void cache_keeps_nothing_when_it_may_hold_nothing(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_cache *cache = NULL;
    struct kiln_cache_params params = {.dir = cache_dir, .max_size = 0};
    struct kiln_jit_key key = {"0123456789abcdef0123456789abcdef"};
    assert_int_equal(kiln_cache_open(&cache, &params, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_cache_lock(cache, &key), -1);
    kiln_cache_close(cache);
    assert_int_equal(files("", "", NULL, 0), 0);
}

static void cache_removes_what_writers_left_long_ago(void **state) {
    (void)state;
    char path[256];
    get(&plain, 1, 1);
    snprintf(path, sizeof(path), "%s/kernels/.0123456789abcdef0123456789abcdef.AbCdEf", cache_dir);
    save(path, "half", 4);
    get(&plain, 2, 1);
    assert_int_equal(access(path, F_OK), 0);
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    get(&plain, 3, 1);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void cache_refuses_to_compile_when_told(void **state) {
    (void)state;
    get(&plain, 1, 1);
    setenv("KILN_NO_COMPILE", "1", 1);
    assert_int_equal(get(&plain, 1, 1), 1);
    struct kiln_err err = {0};
    struct kiln_jit_params params = {.cache = {.dir = cache_dir, .max_size = 1 << 20},
            .nvrtc = &fake,
            .compile = fake_compile};
    struct kiln_jit *jit = NULL;
    const int64_t value = 77;
    const struct kiln_geometry geometry = {
            .struct_size = sizeof(geometry), .n_values = 1, .names = names, .values = &value};
    struct kiln_jit_item item = {.request = {.plugin = "p",
                                         .variant = "v",
                                         .kernel = &kernel,
                                         .geometry = &geometry,
                                         .launch = &launch,
                                         .target = "sm_80"}};
    assert_int_equal(kiln_jit_open(&jit, &params, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_jit_run(jit, &item, 1, 0, &err), KILN_STATUS_DEVICE);
    unsetenv("KILN_NO_COMPILE");
    assert_non_null(strstr(err.text, "p/v kernel k"));
    assert_non_null(strstr(err.text, "TILE=77"));
    assert_non_null(strstr(err.text, "KILN_NO_COMPILE"));
    assert_int_equal(compiles(), 1);
    kiln_jit_items_finish(&item, 1);
    kiln_jit_close(jit);
}

static void cache_lists_and_clears(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_cache *cache = NULL;
    struct kiln_cache_params params = {.dir = cache_dir, .max_size = 1 << 20};
    struct kiln_cache_list list;
    size_t removed;
    uint64_t bytes;
    char path[256];
    assert_int_equal(kiln_cache_open(&cache, &params, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_cache_list(cache, &list, &err), KILN_STATUS_OK); // no folder: no entries
    assert_int_equal(list.count, 0);
    kiln_cache_list_finish(&list);
    get(&plain, 1, 3);
    files("", ".kernel", path, sizeof(path));
    assert_int_equal(truncate(path, 200), 0);
    assert_int_equal(kiln_cache_list(cache, &list, &err), KILN_STATUS_OK);
    assert_int_equal(list.count, 3);
    size_t bad = 0;
    for (size_t i = 0; i < 3; i++) {
        bad += list.entries[i].fault != NULL;
        if (!list.entries[i].fault) {
            assert_string_equal(list.entries[i].image.label, "p/v kernel k");
            assert_non_null(strstr(list.entries[i].key_text, "nvrtc 13.0 fake"));
            assert_int_equal(list.entries[i].image.resources.registers, 40);
        }
    }
    assert_int_equal(bad, 1);
    kiln_cache_list_finish(&list);
    assert_int_equal(kiln_cache_clear(cache, 1, &removed, &bytes, &err), KILN_STATUS_OK);
    assert_int_equal(removed, 1);
    assert_int_equal(bytes, 200);
    assert_int_equal(kiln_cache_clear(cache, 0, &removed, &bytes, &err), KILN_STATUS_OK);
    assert_int_equal(removed, 2);
    assert_int_equal(files("", "", NULL, 0), 0);
    kiln_cache_close(cache);
}

// One entry that cannot go (a folder is in its place) keeps no other.
static void cache_clears_what_it_can(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_cache *cache = NULL;
    struct kiln_cache_params params = {.dir = cache_dir, .max_size = 1 << 20};
    size_t removed;
    uint64_t bytes;
    char path[256];
    assert_int_equal(kiln_cache_open(&cache, &params, &err), KILN_STATUS_OK);
    get(&plain, 1, 3);
    (void)snprintf(path, sizeof(path), "%s/kernels/%032d.kernel", cache_dir, 0); // the first
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(kiln_cache_clear(cache, 0, &removed, &bytes, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "cannot remove 00000000000000000000000000000000.kernel: "));
    assert_int_equal(removed, 3);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(files("", "", NULL, 0), 0);
    kiln_cache_close(cache);
}

// With the n-th allocation failing: an error or the right kernel, no entry lost.
static void cache_lives_through_failed_allocations(void **state) {
    (void)state;
    get(&plain, 1, 1);
    const int64_t value = 1;
    const struct kiln_geometry geometry = {
            .struct_size = sizeof(geometry), .n_values = 1, .names = names, .values = &value};
    int done = 0;
    for (uint64_t n = 1; !done && n < 500; n++) {
        struct kiln_err err = {0};
        struct kiln_jit_params params = {.cache = {.dir = cache_dir, .max_size = 1 << 20},
                .threads = 1,
                .nvrtc = &fake,
                .compile = fake_compile};
        struct kiln_jit *jit = NULL;
        struct kiln_jit_item item = {.request = {.plugin = "p",
                                             .variant = "v",
                                             .kernel = &kernel,
                                             .geometry = &geometry,
                                             .launch = &launch,
                                             .target = "sm_80"}};
        kiln_mem_fail_at(n, 0);
        enum kiln_status status = kiln_jit_open(&jit, &params, &err);
        if (status == KILN_STATUS_OK) {
            status = kiln_jit_run(jit, &item, 1, 0, &err);
        }
        done = kiln_mem_count() < n;
        kiln_mem_fail_at(0, 0);
        assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM);
        if (status == KILN_STATUS_OK) {
            assert_memory_equal(item.image.data, "KILN_SMEM=0 TILE=1\n", 19);
        }
        kiln_jit_items_finish(&item, 1);
        kiln_jit_close(jit);
    }
    assert_true(done);
    assert_int_equal(get(&plain, 1, 1), 1);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            CASE(cache_serves_what_it_stored),
            CASE(cache_rebuilds_what_is_damaged),
            CASE(cache_rebuilds_swapped_entries),
            CASE(cache_rebuilds_an_older_format),
            CASE(cache_compares_the_whole_key),
            CASE(cache_rebuilds_what_another_user_wrote),
            CASE(cache_does_without_a_foreign_folder),
            CASE(cache_does_without_a_folder_that_is_read_only),
            CASE(cache_does_without_a_folder_that_is_closed),
            CASE(cache_does_without_a_folder_that_cannot_be_made),
            CASE(cache_does_without_a_folder_that_is_a_file),
            CASE(cache_does_without_a_disk_that_is_full),
            CASE(cache_survives_a_full_tmpfs),
            CASE(cache_survives_a_kill_at_every_step),
            CASE(cache_compiles_each_key_once),
            CASE(cache_gives_up_what_was_not_used_for_longest),
            CASE(cache_keeps_nothing_when_it_may_hold_nothing),
            CASE(cache_removes_what_writers_left_long_ago),
            CASE(cache_refuses_to_compile_when_told),
            CASE(cache_lists_and_clears),
            CASE(cache_clears_what_it_can),
            CASE(cache_lives_through_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
