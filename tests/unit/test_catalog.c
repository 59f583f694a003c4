// Device descriptions of configs/devices: all of them, and what is refused.
#include "base/buf.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/mem.h"
#include "device/catalog.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char *folder; // configs/devices of the source tree
static char root[64];

static void get(struct kiln_device_entry *entry, const char *dir, const char *name) {
    struct kiln_err err = {0};
    enum kiln_status status = kiln_device_find(entry, dir, name, &err);
    if (status != KILN_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
    }
    assert_int_equal(status, KILN_STATUS_OK);
}

static void catalog_has_the_limits_of_gb10(void **state) {
    (void)state;
    struct kiln_device_entry entry;
    get(&entry, folder, "gb10");
    assert_string_equal(entry.desc.name, "NVIDIA GB10");
    assert_string_equal(entry.desc.target, "sm_121");
    assert_int_equal(entry.desc.kind, KILN_DEVICE_CUDA);
    assert_int_equal(entry.desc.cc, 121);
    assert_int_equal(entry.desc.sm_count, 48);
    assert_int_equal(entry.desc.smem_sm, 100 * 1024);
    assert_int_equal(entry.desc.smem_reserved, 1024);
    assert_int_equal(entry.desc.max_warps_sm, 48);
    assert_int_equal(entry.desc.max_grid[0], 2147483647);
    assert_int_equal(entry.desc.max_block[2], 64);
    assert_true(entry.desc.memory_bandwidth > 272e9 && entry.desc.memory_bandwidth < 274e9);
    kiln_device_entry_finish(&entry);
}

// Whatever is in the folder is whole and agrees with itself.
static void catalog_is_sound(void **state) {
    (void)state;
    struct kiln_buf names = {0};
    size_t count = 0;
    kiln_device_names(folder, &names);
    assert_non_null(names.data);
    for (char *name = names.data; *name;) {
        size_t len = strcspn(name, ",");
        char *next = name + len + (name[len] ? 2 : 0);
        name[len] = '\0';
        struct kiln_device_entry entry;
        get(&entry, folder, name);
        const struct kiln_device *d = &entry.desc;
        char target[16];
        snprintf(target, sizeof(target), "sm_%d", d->cc);
        assert_memory_equal(d->target, target, strlen(target));
        assert_int_equal(d->max_warps_sm * d->warp_size, d->max_threads_sm);
        assert_int_equal(d->regs_sm, 65536);
        assert_int_equal(d->reg_unit, 256);
        assert_int_equal(d->smem_block_optin + d->smem_reserved, d->smem_sm);
        assert_true(d->sm_count > 0 && d->max_blocks_sm >= 16 && d->smem_block == 49152);
        assert_int_equal(d->max_cluster, d->cc >= 90 ? 8 : 1);
        if (strncmp(name, "sm_", 3) != 0) {
            const struct kiln_peaks *p = &entry.peaks;
            assert_true(d->memory_bytes > 0 && d->memory_bandwidth > 0 && d->l2_bytes > 0);
            assert_true(p->f32 > 0 && (p->f16 > 0) == (p->i8 > 0));
            // GeForce cards sum products of halves in f32 at half the rate.
            const double times = strncmp(d->name, "NVIDIA GeForce", 14) == 0 ? 4 : 2;
            assert_true(fabs(p->i8 - times * p->f16) <= 0.001 * p->i8);
            assert_true(p->f16 == 0 || p->f16 > p->f32);
            assert_string_equal(entry.file, name);
        }
        kiln_device_entry_finish(&entry);
        count++;
        name = next;
    }
    assert_true(count >= 19);
    kiln_buf_finish(&names);
}

// Every figure says behind it where it is from.
static void catalog_has_a_source_for_each_figure(void **state) {
    (void)state;
    static const char *const no_figures[] = {
            "name ", "reported ", "target ", "base ", "cc ", "[", ";"};
    struct kiln_dir files = {.names = NULL};
    size_t figures = 0;
    assert_int_equal(kiln_dir_read(&files, folder, "", ".ini"), 0);
    for (size_t i = 0; i < files.count; i++) {
        char path[600], line[512];
        snprintf(path, sizeof(path), "%s/%s", folder, files.names[i]);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        while (fgets(line, sizeof(line), file)) {
            int figure = line[0] != '\n';
            for (size_t j = 0; j < sizeof(no_figures) / sizeof(no_figures[0]); j++) {
                figure &= strncmp(line, no_figures[j], strlen(no_figures[j])) != 0;
            }
            const char *comment = strchr(line, ';');
            if (figure && (!comment || strlen(comment) < sizeof("; [occ]") - 1)) {
                fail_msg("%s: no source: %s", path, line);
            }
            figures += (size_t)figure;
        }
        fclose(file);
    }
    assert_true(figures > 150);
    kiln_dir_finish(&files);
}

static void catalog_takes_targets_with_a_suffix(void **state) {
    (void)state;
    struct kiln_device_entry entry;
    get(&entry, folder, "sm_90a");
    assert_string_equal(entry.desc.target, "sm_90a");
    assert_int_equal(entry.desc.cc, 90);
    kiln_device_entry_finish(&entry);
    get(&entry, folder, "H200");
    assert_string_equal(entry.desc.target, "sm_90a");
    kiln_device_entry_finish(&entry);
    get(&entry, folder, "SM_90A"); // NVRTC knows lower case only
    assert_string_equal(entry.desc.target, "sm_90a");
    kiln_device_entry_finish(&entry);
}

static void catalog_lists_what_there_is(void **state) {
    (void)state;
    static const char *const bad[] = {"sm_999", "gb11", "../default", "", "sm_", "a"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct kiln_device_entry entry;
        struct kiln_err err = {0};
        assert_int_equal(kiln_device_find(&entry, folder, bad[i], &err), KILN_STATUS_USAGE);
        assert_non_null(strstr(err.text, "gb10"));
        kiln_device_entry_finish(&entry);
    }
}

static void refuse(const char *text, const char *what) {
    char path[96];
    struct kiln_err err = {0};
    struct kiln_device_entry entry;
    snprintf(path, sizeof(path), "%s/x.ini", root);
    assert_int_equal(kiln_file_write(path, text, strlen(text), &err), KILN_STATUS_OK);
    enum kiln_status status = kiln_device_find(&entry, root, "x", &err);
    kiln_device_entry_finish(&entry);
    assert_true(status == KILN_STATUS_CONFIG || status == KILN_STATUS_FILE);
    if (!strstr(err.text, what)) {
        fail_msg("'%s' does not mention '%s'", err.text, what);
    }
}

static void catalog_refuses_files_that_are_not_right(void **state) {
    (void)state;
    refuse("[device]\nname = X\ntarget = sm_80\nsm_count = 1\n", "cc are needed");
    refuse("[device]\ncc = 80x\n", "x.ini:2: cc = 80x");
    refuse("[device]\ncc = -1\n", "whole number");
    refuse("[device]\ncc = 99999999999\n", "whole number");
    refuse("[device]\nmax_grid = 1,2\n", "X,Y,Z");
    refuse("[device]\npeak_f16 = 989\n", "x.ini:2: peak_f16 = 989: operations a second");
    refuse("[device]\npeak_f32 = 1000000000000000001\n", "from 10^9 to 10^18");
    refuse("[device]\npeak_int8 = 1e15\n", "operations a second");
    refuse("[device]\nsm_coutn = 1\n", "did you mean 'sm_count'");
    refuse("[other]\ncc = 80\n", "[device]");
    refuse("[device]\nbase = x\n", "cannot have a base");
    refuse("[device]\nbase = absent\n", "absent.ini");
}

// What the driver of a card says, of a device that the file `base` describes.
static struct kiln_device driver_says(
        struct kiln_device_entry *base, const char *file, const char *name) {
    get(base, folder, file);
    struct kiln_device device = base->desc;
    device.name = name;
    return device;
}

static void expect_match(const char *dir, const struct kiln_device *device, const char *file) {
    struct kiln_device_entry entry;
    struct kiln_err err = {0};
    assert_int_equal(kiln_device_match(&entry, dir, device, &err), KILN_STATUS_OK);
    if (file) {
        assert_non_null(entry.file);
        assert_string_equal(entry.file, file);
    } else {
        assert_null(entry.file);
        assert_true(entry.peaks.f16 == 0 && entry.peaks.i8 == 0 && entry.peaks.f32 == 0);
    }
    kiln_device_entry_finish(&entry);
}

static void catalog_matches_what_the_driver_says(void **state) {
    (void)state;
    static const struct {
        const char *like, *name, *file;
    } cases[] = {
            {"h200", "NVIDIA H200", "h200"}, {"h200", "NVIDIA H200 NVL", NULL},
            {"h100", "NVIDIA H100 80GB HBM3", "h100"}, {"h100", "NVIDIA H100", "h100"},
            {"h100", "NVIDIA H100 PCIe", NULL}, {"a100", "NVIDIA A100-SXM4-40GB", "a100"},
            {"a100", "NVIDIA A100-SXM4", NULL}, {"a100", "|", NULL}, {"a100", "", NULL},
            {"rtx4090", "NVIDIA GeForce RTX 4090", "rtx4090"},
            {"rtx4090", "NVIDIA GeForce RTX 4090 D", NULL},
            {"sm_90", "compute capability 9.0", NULL}, // an architecture is no card
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kiln_device_entry like;
        const struct kiln_device device = driver_says(&like, cases[i].like, cases[i].name);
        expect_match(folder, &device, cases[i].file);
        kiln_device_entry_finish(&like);
    }
    struct kiln_device_entry like;
    struct kiln_device device = driver_says(&like, "h200", "NVIDIA H200");
    expect_match("/nowhere", &device, NULL);
    device.sm_count = 16; // a part of one
    expect_match(folder, &device, NULL);
    device.sm_count = like.desc.sm_count;
    device.kind = KILN_DEVICE_HOST;
    expect_match(folder, &device, NULL);
    kiln_device_entry_finish(&like);
}

static void catalog_matches_beside_a_bad_file(void **state) {
    (void)state;
    static const char bad[] = "[device]\ncc = x\n";
    static const char good[] = "[device]\nname = A\nreported = B | C D\ntarget = sm_80\ncc = 80\n"
                               "sm_count = 1\npeak_f32 = 2000000000\n";
    char path[96];
    struct kiln_err err = {0};
    snprintf(path, sizeof(path), "%s/a.ini", root);
    assert_int_equal(kiln_file_write(path, bad, sizeof(bad) - 1, &err), KILN_STATUS_OK);
    snprintf(path, sizeof(path), "%s/b.ini", root);
    assert_int_equal(kiln_file_write(path, good, sizeof(good) - 1, &err), KILN_STATUS_OK);
    struct kiln_device device = {.kind = KILN_DEVICE_CUDA, .cc = 80, .sm_count = 1, .name = "C D"};
    expect_match(root, &device, "b");
    device.name = "C";
    expect_match(root, &device, NULL);
    device.name = "B | C D";
    expect_match(root, &device, NULL);
}

static void catalog_lives_through_failed_allocations(void **state) {
    (void)state;
    int done = 0;
    for (uint64_t n = 1; !done && n < 1000; n++) {
        struct kiln_device_entry entry;
        struct kiln_err err = {0};
        kiln_mem_fail_at(n, 0);
        enum kiln_status status = kiln_device_find(&entry, folder, "gb10", &err);
        done = kiln_mem_count() < n;
        kiln_mem_fail_at(0, 0);
        assert_true(done ? status == KILN_STATUS_OK : status != KILN_STATUS_OK);
        kiln_device_entry_finish(&entry);
    }
    assert_true(done);
}

static void catalog_matches_through_failed_allocations(void **state) {
    (void)state;
    struct kiln_device_entry like;
    const struct kiln_device device = driver_says(&like, "gb10", "NVIDIA GB10");
    int done = 0;
    for (uint64_t n = 1; !done && n < 5000; n++) {
        struct kiln_device_entry entry;
        struct kiln_err err = {0};
        kiln_mem_fail_at(n, 0);
        enum kiln_status status = kiln_device_match(&entry, folder, &device, &err);
        done = kiln_mem_count() < n;
        kiln_mem_fail_at(0, 0);
        assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM);
        assert_true(!done || entry.file);
        kiln_device_entry_finish(&entry);
    }
    assert_true(done);
    kiln_device_entry_finish(&like);
}

static int set_up(void **state) {
    (void)state;
    const char *source = getenv("KILN_TEST_SRC");
    folder = source ? kiln_asprintf("%s/configs/devices", source) : NULL;
    snprintf(root, sizeof(root), "/tmp/kiln-catalog-XXXXXX");
    return folder && mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    char command[96];
    kiln_free(folder);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command) == 0 ? 0 : -1; // NOLINT: a path that mkdtemp made
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            CASE(catalog_has_the_limits_of_gb10),
            CASE(catalog_is_sound),
            CASE(catalog_has_a_source_for_each_figure),
            CASE(catalog_takes_targets_with_a_suffix),
            CASE(catalog_lists_what_there_is),
            CASE(catalog_refuses_files_that_are_not_right),
            CASE(catalog_matches_what_the_driver_says),
            CASE(catalog_matches_beside_a_bad_file),
            CASE(catalog_lives_through_failed_allocations),
            CASE(catalog_matches_through_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
