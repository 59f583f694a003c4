// Blocks a multiprocessor, against the toolkit's own header: the sweep that tests/golden keeps for
// builds without a toolkit, and a wider one where there is one.
//
// usage: test_occupancy [--golden]: prints what tests/golden/occupancy.json has to hold.
#include "base/buf.h"
#include "base/dir.h"
#include "base/mem.h"
#include "device/catalog.h"
#include "occupancy_header.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t threads[] = {32, 96, 256, 544, 1024, 1056};
static const int32_t registers[] = {-1, 24, 104, 128, 255};
static const uint32_t smem[] = {0, 1, 32768, 43776, 69376, 101376, 166912, 232448};
enum {
    N_THREADS = sizeof(threads) / sizeof(threads[0]),
    N_REGISTERS = sizeof(registers) / sizeof(registers[0]),
    N_SMEM = sizeof(smem) / sizeof(smem[0]),
    N_USES = N_THREADS * N_REGISTERS * N_SMEM
};

static char folder[512];

static struct kiln_block_use use_at(size_t index) {
    return (struct kiln_block_use){.threads = threads[index / N_SMEM / N_REGISTERS],
            .registers = registers[index / N_SMEM % N_REGISTERS],
            .smem_dynamic = smem[index % N_SMEM]};
}

static void get(struct kiln_device_entry *entry, const char *name) {
    struct kiln_err err = {0};
    if (kiln_device_find(entry, folder, name, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
}

// Each device of the folder in turn.
static void each_device(void (*fn)(const char *name, const struct kiln_device *device)) {
    struct kiln_dir files = {.names = NULL};
    assert_int_equal(kiln_dir_read(&files, folder, "", ".ini"), 0);
    assert_true(files.count >= 19);
    for (size_t i = 0; i < files.count; i++) {
        char *name = kiln_strndup(files.names[i], strlen(files.names[i]) - strlen(".ini"));
        struct kiln_device_entry entry;
        assert_non_null(name);
        get(&entry, name);
        fn(name, &entry.desc);
        kiln_device_entry_finish(&entry);
        kiln_free(name);
    }
    kiln_dir_finish(&files);
}

// ---- Golden -------------------------------------------------------------------------------------

static json_t *golden;

static void check_golden(const char *name, const struct kiln_device *device) {
    const json_t *blocks = json_object_get(json_object_get(golden, name), "blocks");
    const json_t *limits = json_object_get(json_object_get(golden, name), "limits");
    if (json_array_size(blocks) != N_USES || json_array_size(limits) != N_USES) {
        fail_msg("tests/golden/occupancy.json has no rows of %s", name);
    }
    for (size_t i = 0; i < N_USES; i++) {
        const struct kiln_block_use use = use_at(i);
        struct kiln_occupancy got;
        kiln_occupancy_of(device, &use, &got);
        json_int_t want = json_integer_value(json_array_get(blocks, i));
        json_int_t why = json_integer_value(json_array_get(limits, i));
        if (got.blocks != want || got.limits != (uint32_t)why) {
            fail_msg("%s, %u threads, %d registers, %u bytes: %d blocks (limits %u), not %d (%u)",
                    name, use.threads, use.registers, use.smem_dynamic, got.blocks, got.limits,
                    (int)want, (unsigned)why);
        }
        assert_int_equal(got.warps, got.blocks * (int32_t)((use.threads + 31) / 32));
        assert_true(got.occupancy >= 0 && got.occupancy <= 1);
    }
}

static void occupancy_is_that_of_the_golden_rows(void **state) {
    (void)state;
    char path[600];
    json_error_t error;
    snprintf(path, sizeof(path), "%s/tests/golden/occupancy.json", getenv("KILN_TEST_SRC"));
    golden = json_load_file(path, 0, &error);
    assert_non_null(golden);
    each_device(check_golden);
    json_decref(golden);
}

static void print_golden(const char *name, const struct kiln_device *device) {
    struct kiln_buf blocks = {0}, limits = {0};
    for (size_t i = 0; i < N_USES; i++) {
        const struct kiln_block_use use = use_at(i);
        struct kiln_occupancy o;
        header_occupancy(device, &use, &o);
        kiln_buf_printf(&blocks, "%s%d", i ? "," : "", o.blocks);
        kiln_buf_printf(&limits, "%s%u", i ? "," : "", o.limits);
    }
    printf("\"%s\":{\"blocks\":[%s],\n\"limits\":[%s]},\n", name, blocks.data, limits.data);
    kiln_buf_finish(&blocks);
    kiln_buf_finish(&limits);
}

// ---- Toolkit ------------------------------------------------------------------------------------

static void check_header(const char *name, const struct kiln_device *device) {
    for (uint32_t t = 1; t <= 1024; t = t < 64 ? t + 1 : t + 37) {
        for (int32_t r = 0; r <= 255; r = r < 32 ? r + 8 : r + 9) {
            for (uint32_t s = 0; s <= 236000; s = s < 4096 ? s + 509 : s + 4057) {
                const struct kiln_block_use use = {
                        .threads = t, .registers = r, .smem_static = s % 7 * 16, .smem_dynamic = s};
                struct kiln_occupancy got, want;
                kiln_occupancy_of(device, &use, &got);
                header_occupancy(device, &use, &want);
                if (got.blocks != want.blocks || got.limits != want.limits ||
                        got.by_smem != want.by_smem || got.by_registers != want.by_registers ||
                        got.by_warps != want.by_warps || got.by_blocks != want.by_blocks ||
                        got.smem_block != want.smem_block ||
                        got.registers_block != want.registers_block) {
                    fail_msg("%s, %u threads, %d registers, %u + %u bytes: %d blocks, not %d", name,
                            t, r, use.smem_static, s, got.blocks, want.blocks);
                }
            }
        }
    }
}

static void occupancy_is_that_of_the_toolkit(void **state) {
    (void)state;
    if (!header_is_here()) {
        skip();
    }
    each_device(check_header);
}

// ---- By hand ------------------------------------------------------------------------------------

// GB10: 100 KB a multiprocessor, 1 KB a block reserved, 48 warps.
static void occupancy_says_what_limits(void **state) {
    (void)state;
    static const struct {
        struct kiln_block_use use;
        int32_t blocks, warps;
        const char *limiter;
    } rows[] = {
            {{256, -1, 0, 69376}, 1, 8, "shared memory"},
            {{256, -1, 0, 43776}, 2, 16, "shared memory"},
            {{256, 128, 0, 43776}, 2, 16, "shared memory"}, // registers as well
            {{256, 136, 0, 43776}, 1, 8, "registers"},
            {{128, 168, 0, 32768}, 3, 12, "shared memory"},
            {{128, 176, 0, 32768}, 2, 8, "registers"}, {{1024, -1, 0, 0}, 1, 32, "warps"},
            {{32, 16, 0, 0}, 24, 24, "blocks"}, {{1025, -1, 0, 0}, 0, 0, "threads"},
            {{128, -1, 0, 101377}, 0, 0, "shared memory"},
            {{128, -1, 0, 101376}, 1, 4, "shared memory"},
            {{544, 128, 0, 0}, 0, 0, "registers"}, // 17 warps count as 20
    };
    struct kiln_device_entry gb10;
    get(&gb10, "gb10");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct kiln_occupancy o;
        kiln_occupancy_of(&gb10.desc, &rows[i].use, &o);
        assert_int_equal(o.blocks, rows[i].blocks);
        assert_int_equal(o.warps, rows[i].warps);
        assert_string_equal(kiln_occupancy_limiter(&o), rows[i].limiter);
    }
    kiln_device_entry_finish(&gb10);
}

int main(int argc, char **argv) {
    const char *source = getenv("KILN_TEST_SRC");
    snprintf(folder, sizeof(folder), "%s/configs/devices", source ? source : ".");
    if (argc > 1 && strcmp(argv[1], "--golden") == 0) {
        printf("{\n");
        each_device(print_golden);
        printf("\"of\":\"cuda_occupancy.h of CUDA 13.0, printed by test_occupancy --golden\"}\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(occupancy_is_that_of_the_golden_rows),
            cmocka_unit_test(occupancy_is_that_of_the_toolkit),
            cmocka_unit_test(occupancy_says_what_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
