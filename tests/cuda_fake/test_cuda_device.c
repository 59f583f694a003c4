// The CUDA device's own books and failures, over a driver that fails on demand (fake.c): memory in
// one pool, and what is said once a kernel has faulted.
#include "device/device.h"

#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MIB = 1 << 20
};

static char folder[] = "/tmp/kiln-cuda-XXXXXX";

static int set_up(void **state) {
    struct kiln_dev_settings settings = {.threads = 1, .cache_dir = folder};
    struct kiln_err err = {0};
    struct kiln_dev *dev = NULL;
    unsetenv("FAKE_CUDA_FAIL");
    setenv("FAKE_CUDA_MEMORY", "268435456", 1);
    if (kiln_dev_open(&dev, "cuda", &settings, &err) != KILN_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    *state = dev;
    return 0;
}

static int tear_down(void **state) {
    kiln_dev_close(*state);
    return 0;
}

static struct kiln_dev_memory memory_of(struct kiln_dev *dev) {
    struct kiln_dev_memory memory;
    dev->ops->memory(dev, &memory);
    return memory;
}

static char *take(struct kiln_dev *dev, uint64_t bytes) {
    struct kiln_err err = {0};
    void *at = NULL;
    if (dev->ops->alloc(dev, bytes, &at, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    return at;
}

static void cuda_memory_is_cut_from_chunks(void **state) {
    struct kiln_dev *dev = *state;
    enum {
        N = 100,
        BYTES = 10000
    };
    char *pieces[N];
    for (int i = 0; i < N; i++) {
        pieces[i] = take(dev, BYTES);
        assert_int_equal((uintptr_t)pieces[i] % 512, 0);
        memset(pieces[i], i, BYTES); // the fake's memory is the host's
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(pieces[i][0], i);
        assert_int_equal(pieces[i][BYTES - 1], i);
    }
    struct kiln_dev_memory memory = memory_of(dev);
    assert_int_equal(memory.used, N * 10240);
    assert_int_equal(memory.held, 2 * MIB); // one of the driver's allocations, not a hundred
    assert_int_equal(memory.peak, memory.held);
    assert_int_equal(memory.budget, 256 * MIB);
    for (int i = 0; i < N; i++) {
        dev->ops->free(dev, pieces[i * 37 % N]); // in any order
    }
    assert_int_equal(memory_of(dev).used, 0);
    // The pieces have become one again: the whole chunk fits where they were.
    char *whole = take(dev, 2 * MIB);
    assert_int_equal(memory_of(dev).held, 2 * MIB);
    dev->ops->free(dev, whole);
    dev->ops->free(dev, NULL);
}

static void cuda_memory_holds_little_more_than_it_hands_out(void **state) {
    struct kiln_dev *dev = *state;
    for (uint64_t bytes = 100; memory_of(dev).used < 200 * MIB; bytes = bytes * 7 % 3000017) {
        (void)take(dev, bytes);
        struct kiln_dev_memory memory = memory_of(dev);
        assert_true(memory.used <= memory.held);
    }
    struct kiln_dev_memory memory = memory_of(dev);
    assert_true(memory.held < memory.used + memory.used / 8);
}

static void cuda_memory_gives_back_what_is_free_before_it_fails(void **state) {
    struct kiln_dev *dev = *state;
    char *first = take(dev, 100 * MIB), *second = take(dev, 100 * MIB);
    dev->ops->free(dev, first);
    dev->ops->free(dev, second);
    assert_int_equal(memory_of(dev).held, 200 * MIB); // kept for the next
    char *large = take(dev, 250 * MIB);
    assert_int_equal(memory_of(dev).held, 250 * MIB);
    assert_int_equal(memory_of(dev).peak, 250 * MIB);
    struct kiln_err err = {0};
    void *more = NULL;
    assert_int_equal(dev->ops->alloc(dev, 10 * MIB, &more, &err), KILN_STATUS_DEVICE);
    assert_non_null(strstr(err.text, "cuMemAlloc failed with FAKE_OUT_OF_MEMORY"));
    assert_non_null(strstr(err.text, "10485760 bytes wanted; kiln holds 262144000"));
    assert_non_null(strstr(err.text, "a budget of 268435456 on Fake GPU"));
    assert_int_equal(dev->ops->alloc(dev, UINT64_MAX, &more, &err), KILN_STATUS_DEVICE);
    // Being full is no fault: the device goes on.
    dev->ops->free(dev, large);
    dev->ops->free(dev, take(dev, 10 * MIB));
}

static void cuda_memory_counts_weights(void **state) {
    struct kiln_dev *dev = *state;
    static const char data[3000] = "weights";
    struct kiln_err err = {0};
    void *once = NULL, *again = NULL;
    assert_int_equal(dev->ops->weights(dev, data, sizeof(data), &once, &err), KILN_STATUS_OK);
    assert_int_equal(dev->ops->weights(dev, data, sizeof(data), &again, &err), KILN_STATUS_OK);
    assert_ptr_equal(once, again);
    assert_memory_equal(once, data, sizeof(data));
    assert_int_equal(memory_of(dev).weights, sizeof(data));
}

// ---- Failures -----------------------------------------------------------------------------------

static const struct kiln_source source = {.struct_size = sizeof(source),
        .name = "k.cu",
        .text = "extern \"C\" __global__ void __launch_bounds__(TILE) k() {}"};
static const struct kiln_kernel kernel = {
        .struct_size = sizeof(kernel), .name = "k", .source = &source};
static const struct kiln_launch launch = {.struct_size = sizeof(launch),
        .kernel = "k",
        .grid = {7, 2, 1},
        .block = {64, 1, 1},
        .shared_bytes = 1024};
static const char *const names[] = {"TILE"};
static const int64_t values[] = {64};
static const struct kiln_geometry geometry = {
        .struct_size = sizeof(geometry), .n_values = 1, .names = names, .values = values};
static const struct kiln_load load = {.plugin = "plug",
        .variant = "vary",
        .kernel = &kernel,
        .launch = &launch,
        .geometry = &geometry};

static struct kiln_dev_kernel *make_ready(struct kiln_dev *dev) {
    struct kiln_dev_kernel *ready = NULL;
    struct kiln_err err = {0};
    if (dev->ops->load(dev, &load, 1, &ready, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    return ready;
}

static void assert_says(enum kiln_status status, const struct kiln_err *err, const char *text) {
    assert_int_equal(status, KILN_STATUS_DEVICE);
    assert_int_equal(err->status, KILN_STATUS_DEVICE);
    assert_string_equal(err->text, text);
}

// Whatever is asked of the device now, it answers with the first failure.
static void assert_dead(
        struct kiln_dev *dev, struct kiln_dev_kernel *ready, char *piece, const char *text) {
    const struct kiln_dev_ops *ops = dev->ops;
    char bytes[16] = {0};
    void *to = NULL;
    struct kiln_dev_kernel *other = NULL;
    struct kiln_err err = {0};
    assert_says(ops->sync(dev, &err), &err, text);
    assert_says(ops->alloc(dev, 100, &to, &err), &err, text);
    assert_says(ops->weights(dev, bytes, sizeof(bytes), &to, &err), &err, text);
    assert_says(ops->upload(dev, piece, bytes, sizeof(bytes), &err), &err, text);
    assert_says(ops->download(dev, bytes, piece, sizeof(bytes), &err), &err, text);
    assert_says(ops->copy(dev, piece, piece + 100, 100, &err), &err, text);
    assert_says(ops->zero(dev, piece, 100, &err), &err, text);
    assert_says(ops->load(dev, &load, 1, &other, &err), &err, text);
    assert_says(ops->launch(dev, ready, &launch, NULL, &err), &err, text);
    assert_says(ops->record_begin(dev, &err), &err, text);
    assert_says(ops->record_end(dev, &to, &err), &err, text);
    assert_says(ops->replay(dev, piece, &err), &err, text);
}

static void cuda_a_fault_ends_the_device_with_its_kernel_named(void **state) {
    struct kiln_dev *dev = *state;
    struct kiln_err err = {0};
    struct kiln_dev_kernel *ready = make_ready(dev);
    char *piece = take(dev, 200);
    assert_int_equal(dev->ops->launch(dev, ready, &launch, NULL, &err), KILN_STATUS_OK);
    setenv("FAKE_CUDA_FAIL", "cuStreamSynchronize 0 719", 1);
    assert_int_equal(dev->ops->sync(dev, &err), KILN_STATUS_DEVICE);
    assert_string_equal(err.text,
            "cuStreamSynchronize failed with FAKE_FAULT (719: as the test wanted): the kernel "
            "launched last was plug/vary kernel k (KILN_SMEM=1024 TILE=64), grid 7,2,1, block "
            "64,1,1, 1024 bytes of shared memory");
    char first[sizeof(err.text)];
    memcpy(first, err.text, sizeof(first));
    assert_dead(dev, ready, piece, first);
    setenv("FAKE_CUDA_FAIL", "cuStreamSynchronize 0 2", 1); // another word does not count any more
    assert_dead(dev, ready, piece, first);
    dev->ops->free(dev, piece);
    dev->ops->unload(dev, ready);
}

static void cuda_a_fault_among_many_says_how_to_find_it(void **state) {
    struct kiln_dev *dev = *state;
    struct kiln_err err = {0};
    struct kiln_dev_kernel *ready = make_ready(dev);
    char bytes[4];
    char *piece = take(dev, 200);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dev->ops->launch(dev, ready, &launch, NULL, &err), KILN_STATUS_OK);
    }
    setenv("FAKE_CUDA_FAIL", "cuMemcpyDtoHAsync_v2 0 700", 1);
    assert_int_equal(dev->ops->download(dev, bytes, piece, 4, &err), KILN_STATUS_DEVICE);
    assert_non_null(strstr(err.text, "cuMemcpyDtoHAsync failed with"));
    assert_non_null(strstr(err.text, "plug/vary kernel k (KILN_SMEM=1024 TILE=64)"));
    assert_non_null(strstr(err.text, "CUDA_LAUNCH_BLOCKING=1 with --graph off"));
    dev->ops->free(dev, piece);
    dev->ops->unload(dev, ready);
}

static void cuda_a_fault_in_a_graph_says_so(void **state) {
    struct kiln_dev *dev = *state;
    struct kiln_err err = {0};
    struct kiln_dev_kernel *ready = make_ready(dev);
    void *graph = NULL;
    assert_int_equal(dev->ops->record_begin(dev, &err), KILN_STATUS_OK);
    assert_int_equal(dev->ops->launch(dev, ready, &launch, NULL, &err), KILN_STATUS_OK);
    assert_int_equal(dev->ops->record_end(dev, &graph, &err), KILN_STATUS_OK);
    setenv("FAKE_CUDA_FAIL", "cuGraphLaunch 0 716", 1);
    assert_int_equal(dev->ops->replay(dev, graph, &err), KILN_STATUS_DEVICE);
    assert_non_null(strstr(err.text, "cuGraphLaunch failed with FAKE_FAULT (716"));
    assert_non_null(strstr(err.text, "a recorded decode step was launched last"));
    dev->ops->forget(dev, graph);
    dev->ops->unload(dev, ready);
}

// A launch that the driver refuses leaves the device as it was.
static void cuda_a_refusal_is_no_fault(void **state) {
    struct kiln_dev *dev = *state;
    struct kiln_err err = {0};
    struct kiln_dev_kernel *ready = make_ready(dev);
    setenv("FAKE_CUDA_FAIL", "cuLaunchKernelEx 0 1", 1);
    assert_int_equal(dev->ops->launch(dev, ready, &launch, NULL, &err), KILN_STATUS_DEVICE);
    assert_non_null(strstr(err.text, "cuLaunchKernelEx failed with FAKE_ERROR (1"));
    assert_non_null(strstr(err.text, "plug/vary kernel k (KILN_SMEM=1024 TILE=64), grid 7,2,1"));
    assert_null(strstr(err.text, "CUDA_LAUNCH_BLOCKING"));
    unsetenv("FAKE_CUDA_FAIL");
    assert_int_equal(dev->ops->launch(dev, ready, &launch, NULL, &err), KILN_STATUS_OK);
    assert_int_equal(dev->ops->sync(dev, &err), KILN_STATUS_OK);
    dev->ops->unload(dev, ready);
}

// KILN_CUDA names no driver: the fake is that of the other cases.
static void cuda_driver_that_is_none_is_told_as_it_was_named(void **state) {
    (void)state;
    static const struct {
        const char *named, *found;
    } cases[] = {
            {"/nowhere/libcuda.so.1", "cannot open shared object file"},
            {"/dev/null", "/dev/null"},
            {"libm.so.6", "it has no function cuInit"},
    };
    char fake[512];
    const struct kiln_dev_settings settings = {.threads = 1, .cache_dir = folder};
    snprintf(fake, sizeof(fake), "%s", getenv("KILN_CUDA"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kiln_err err = {0};
        struct kiln_dev *dev = NULL;
        char set[96];
        snprintf(set, sizeof(set), "KILN_CUDA is '%s'", cases[i].named);
        setenv("KILN_CUDA", cases[i].named, 1);
        assert_int_equal(kiln_dev_open(&dev, "cuda", &settings, &err), KILN_STATUS_DEVICE);
        if (!strstr(err.text, set) || !strstr(err.text, cases[i].found) ||
                !strstr(err.text, "unset it")) {
            fail_msg("'%s' and '%s' are not in:\n%s", set, cases[i].found, err.text);
        }
    }
    setenv("KILN_CUDA", fake, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
            CASE(cuda_memory_is_cut_from_chunks),
            CASE(cuda_memory_holds_little_more_than_it_hands_out),
            CASE(cuda_memory_gives_back_what_is_free_before_it_fails),
            CASE(cuda_memory_counts_weights),
            CASE(cuda_a_fault_ends_the_device_with_its_kernel_named),
            CASE(cuda_a_fault_among_many_says_how_to_find_it),
            CASE(cuda_a_fault_in_a_graph_says_so),
            CASE(cuda_a_refusal_is_no_fault),
            cmocka_unit_test(cuda_driver_that_is_none_is_told_as_it_was_named),
    };
    if (!mkdtemp(folder)) {
        return 1;
    }
    int failed = cmocka_run_group_tests_name("cuda_device", tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command) != 0 || failed; // NOLINT: a path that mkdtemp made
}
