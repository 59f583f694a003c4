// sim_tensor: copies by tensor maps: boxes of tensors of one to five dimensions, every swizzle,
// what lies outside of the tensor; faults planted in one kernel; maps that no device takes. Skipped
// (77) without NVRTC.
#include "sim_kernel.h"

#include "base/mem.h"
#include "device/sim/tensor_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    MAX_TEXT = 1 << 13,
    MAX_BYTES = 1 << 16, // of a tensor, of a box
    MAX_RANK = 5,
    SHARED = 40 * 1024,
    BOX_AT = 1024, // in shared memory, behind the mbarrier
};

// ---- The kernel ---------------------------------------------------------------------------------
static const char kernel_text[] =
        "struct __align__(64) map { unsigned char bytes[128]; };\n"
        "struct corner { int at[5]; };\n"
        "extern \"C\" __global__ void box(const __grid_constant__ map m, corner c, unsigned *out,\n"
        "        int words, int bytes) {\n"
        "    extern __shared__ __align__(1024) unsigned char shared[];\n"
        "    unsigned barrier = (unsigned)__cvta_generic_to_shared(shared), to = barrier + 1024;\n"
        "    if (threadIdx.x == 0) {\n"
        "        asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" : : \"r\"(barrier));\n"
        "        asm volatile(\"fence.mbarrier_init.release.cluster;\" : : : \"memory\");\n"
        "        asm volatile(\"fence.proxy.async.shared::cta;\" : : : \"memory\");\n"
        "        asm volatile(\"prefetch.tensormap [%0];\" : : \"l\"(&m) : \"memory\");\n"
        "        asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\"\n"
        "                : : \"r\"(barrier), \"r\"(bytes) : \"memory\");\n"
        "        asm volatile(\"cp.async.bulk.tensor.RANKd.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {COORDINATES}], [%7];\" : : \"r\"(to), \"l\"(&m),"
        " \"r\"(c.at[0]), \"r\"(c.at[1]), \"r\"(c.at[2]), \"r\"(c.at[3]), \"r\"(c.at[4]),"
        " \"r\"(barrier) : \"memory\");\n"
        "    }\n"
        "    __syncthreads();\n"
        "    asm volatile(\"{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, "
        "[%0], 0; @!p bra again; }\" : : \"r\"(barrier) : \"memory\");\n"
        "    for (int i = threadIdx.x; i < words; i += 64) {\n"
        "        out[i] = ((const unsigned *)(shared + 1024))[i];\n"
        "    }\n"
        "}\n";

static char *text_of_rank(uint32_t rank) {
    static const char *const numbers[] = {"1", "2", "3", "4", "5"};
    static const char *const lists[] = {
            "%2", "%2, %3", "%2, %3, %4", "%2, %3, %4, %5", "%2, %3, %4, %5, %6"};
    char *with_rank = sim_replace(kernel_text, "RANK", numbers[rank - 1], 1);
    char *whole = sim_replace(with_rank, "COORDINATES", lists[rank - 1], 1);
    kiln_free(with_rank);
    return whole;
}

// ---- Boxes --------------------------------------------------------------------------------------
struct box {
    struct kiln_tensor_map map;
    int32_t at[MAX_RANK];
};

struct params {
    _Alignas(64) unsigned char map[SIM_MAP_BYTES];
    int32_t at[MAX_RANK], pad;
    uint64_t out;
    int32_t words, bytes;
};

static unsigned char tensor[MAX_BYTES], got[MAX_BYTES], want[MAX_BYTES];

static uint32_t element_bytes(const struct box *box) {
    return box->map.dtype == KILN_DTYPE_F32 || box->map.dtype == KILN_DTYPE_I32 ? 4
           : box->map.dtype == KILN_DTYPE_I8                                    ? 1
                                                                                : 2;
}

static uint64_t tensor_bytes(const struct box *box) {
    uint64_t bytes = box->map.dims[0] * element_bytes(box);
    for (uint32_t i = 1; i < box->map.rank; i++) {
        bytes += (box->map.dims[i] - 1) * box->map.strides[i];
    }
    return bytes;
}

// Where the byte of a box lies with its swizzle: in rows of 128 bytes the 16-byte pieces trade
// places, by the number of the row.
static uint32_t swizzled(const struct box *box, uint32_t at) {
    static const uint32_t masks[] = {0, 1, 3, 7};
    return at ^ ((at / 128) & masks[box->map.swizzle]) << 4;
}

// What is to lie in shared memory; the bytes of it.
static uint32_t expect(const struct box *box, uint64_t *inside) {
    uint32_t counts[MAX_RANK] = {1, 1, 1, 1, 1}, n = 1, size = element_bytes(box);
    static const unsigned char nan_f32[4] = {0xff, 0xff, 0xff, 0x7f};
    for (uint32_t i = 0; i < box->map.rank; i++) {
        uint32_t step = i == 0 ? 1 : box->map.elem_strides[i];
        counts[i] = (box->map.box[i] + step - 1) / step;
        n *= counts[i];
    }
    *inside = 0;
    for (uint32_t e = 0; e < n; e++) {
        uint32_t left = e;
        uint64_t from = 0;
        int there = 1;
        for (uint32_t i = 0; i < box->map.rank; i++) {
            int64_t step = i == 0 ? 1 : box->map.elem_strides[i];
            int64_t where = box->at[i] + left % counts[i] * step;
            left /= counts[i];
            there &= where >= 0 && where < (int64_t)box->map.dims[i];
            from += (uint64_t)where * (i == 0 ? size : box->map.strides[i]);
        }
        unsigned char *to = want + swizzled(box, e * size / 16 * 16) + e * size % 16;
        if (there) {
            memcpy(to, tensor + from, size);
            *inside += size;
        } else if (box->map.oob_nan) {
            memcpy(to, nan_f32, size);
        } else {
            memset(to, 0, size);
        }
    }
    return n * size;
}

static void open_text(struct sim_kernel *kernel, const char *text) {
    const struct sim_source source = {
            .name = "box.cu", .text = text, .entry = "box", .architecture = "compute_90a"};
    sim_kernel_open(kernel, &source);
}

static void run_box(struct sim_kernel *kernel, const struct box *box, uint64_t address,
        struct params *params, uint32_t bytes) {
    struct kiln_err err = {0};
    *params = (struct params){.out = sim_kernel_out(kernel, "out", bytes),
            .words = (int32_t)bytes / 4,
            .bytes = (int32_t)bytes};
    memcpy(params->at, box->at, sizeof(box->at));
    if (kiln_sim_map_encode(params->map, &box->map, address, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    sim_kernel_run(
            kernel, (uint32_t[]){1, 1, 1}, (uint32_t[]){64, 1, 1}, SHARED, params, sizeof(*params));
}

static void run_text(struct sim_kernel *kernel, const char *text, const struct box *box,
        uint64_t bytes_there, struct params *params, uint32_t bytes) {
    open_text(kernel, text);
    run_box(kernel, box, sim_kernel_in(kernel, "tensor", tensor, bytes_there), params, bytes);
}

static void check_box(const struct box *box) {
    struct sim_kernel kernel;
    struct params params;
    uint64_t inside;
    uint32_t bytes = expect(box, &inside);
    char *text = text_of_rank(box->map.rank);
    run_text(&kernel, text, box, tensor_bytes(box), &params, bytes);
    sim_kernel_expect_silence(&kernel);
    sim_kernel_read(&kernel, got, params.out, bytes);
    assert_memory_equal(got, want, bytes);
    const struct kiln_sim_kernel_counts *counts = sim_kernel_counts(&kernel);
    assert_int_equal(counts->total.bulk_copies, 1);
    assert_int_equal(counts->total.bulk_bytes, inside);
    sim_kernel_close(&kernel);
    kiln_free(text);
}

static int fill_tensor(void **state) {
    (void)state;
    for (uint32_t i = 0; i < MAX_BYTES; i++) {
        tensor[i] = (unsigned char)(i * 2654435761U >> 24 | 1);
    }
    return 0;
}

// Rows of 100 halves, 37 of them, 208 bytes apart.
static struct box plane(uint32_t swizzle, uint32_t columns, int32_t x, int32_t y) {
    return (struct box){.map = {.struct_size = sizeof(struct kiln_tensor_map),
                                .dtype = KILN_DTYPE_F16,
                                .rank = 2,
                                .dims = {100, 37},
                                .strides = {2, 208},
                                .box = {columns, 24},
                                .elem_strides = {1, 1},
                                .swizzle = swizzle},
            .at = {x, y}};
}

static void tensor_boxes_of_every_swizzle(void **state) {
    (void)state;
    struct box box = plane(KILN_SWIZZLE_128, 64, 0, 0);
    check_box(&box);
    box = plane(KILN_SWIZZLE_64, 32, 16, 3);
    check_box(&box);
    box = plane(KILN_SWIZZLE_32, 16, 48, 8);
    check_box(&box);
    box = plane(KILN_SWIZZLE_NONE, 72, 8, 5);
    check_box(&box);
}

static void tensor_boxes_reach_over_the_edges(void **state) {
    (void)state;
    static const int32_t corners[][2] = {{64, 0}, {0, 20}, {90, 30}, {-3, 0}, {-70, -2}, {-63, -23},
            {99, 36}, {100, 0}, {0, 37}, {2000000000, -2000000000}};
    for (size_t i = 0; i < sizeof(corners) / sizeof(corners[0]); i++) {
        struct box box = plane(KILN_SWIZZLE_128, 64, corners[i][0], corners[i][1]);
        check_box(&box);
    }
}

static void tensor_boxes_of_every_rank(void **state) {
    (void)state;
    struct box one = {.map = {.dtype = KILN_DTYPE_F32,
                              .rank = 1,
                              .dims = {77},
                              .box = {32},
                              .elem_strides = {1},
                              .oob_nan = 1},
            .at = {60}};
    check_box(&one);
    struct box three = {.map = {.dtype = KILN_DTYPE_BF16,
                                .rank = 3,
                                .dims = {48, 9, 5},
                                .strides = {2, 96, 96 * 9 + 16},
                                .box = {32, 7, 3},
                                .elem_strides = {1, 2, 1},
                                .swizzle = KILN_SWIZZLE_64},
            .at = {16, 1, 3}};
    check_box(&three);
    struct box five = {.map = {.dtype = KILN_DTYPE_I8,
                               .rank = 5,
                               .dims = {32, 3, 4, 2, 3},
                               .strides = {1, 32, 96, 400, 800},
                               .box = {16, 2, 3, 2, 2},
                               .elem_strides = {1, 1, 3, 1, 1}},
            .at = {16, -1, 1, 0, 2}};
    check_box(&five);
}

// ---- What nobody wrote --------------------------------------------------------------------------
static void tensor_rows_behind_those_in_use_may_be_unwritten(void **state) {
    (void)state;
    static const struct {
        uint64_t from, bytes; // that the host writes of the tensor
        int found;
    } cases[] = {{0, 208 * 10, 0}, {0, 208 * 10 - 150, 1}, {208 * 30, 208, 1}, {208 * 7, 208, 0}};
    char *text = text_of_rank(2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct box box = plane(KILN_SWIZZLE_128, 64, 0, 0);
        struct sim_kernel kernel;
        struct params params;
        struct kiln_err err = {0};
        open_text(&kernel, text);
        uint64_t address = sim_kernel_out(&kernel, "tensor", tensor_bytes(&box));
        assert_int_equal(
                kiln_sim_write(kernel.sim, address + cases[i].from, tensor, cases[i].bytes, &err),
                KILN_STATUS_OK);
        run_box(&kernel, &box, address, &params, 64 * 24 * 2);
        const struct kiln_sim_finding *found;
        assert_int_equal(kiln_sim_findings(kernel.report, &found), cases[i].found);
        if (cases[i].found) {
            assert_int_equal(found[0].check, KILN_SIM_CHECK_UNINIT_GLOBAL);
        }
        sim_kernel_close(&kernel);
    }
    kiln_free(text);
}

// ---- Faults -------------------------------------------------------------------------------------
static void tensor_tells_faults_on_their_line(void **state) {
    (void)state;
    static const struct {
        enum kiln_sim_check check;
        const char *from, *to, *line;
        uint64_t short_of; // bytes that the tensor lacks
    } faults[] = {
            {KILN_SIM_CHECK_ASYNC, "    asm volatile(\"{ .reg",
                    "    if (words < 0) asm volatile(\"{ .reg", "out[i] =", 0},
            {KILN_SIM_CHECK_ALIGN, "barrier + 1024;", "barrier + 1088;", "cp.async.bulk.tensor", 0},
            {KILN_SIM_CHECK_BOUNDS, "barrier + 1024;", "barrier + 39936;", "cp.async.bulk.tensor",
                    0},
            {KILN_SIM_CHECK_BOUNDS, "barrier + 1024;", "barrier + 1024; ", "cp.async.bulk.tensor",
                    5000},
            {KILN_SIM_CHECK_DEADLOCK, "(bytes)", "(bytes - 16)", "{ .reg .pred p", 0},
            {KILN_SIM_CHECK_DEADLOCK, "(bytes)", "(bytes + 16)", "{ .reg .pred p", 0},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct box box = plane(KILN_SWIZZLE_128, 64, 0, 0);
        struct sim_kernel kernel;
        struct params params;
        uint64_t inside;
        uint32_t bytes = expect(&box, &inside);
        char *good = text_of_rank(2), *bad = sim_replace(good, faults[i].from, faults[i].to, 1);
        run_text(&kernel, bad, &box, tensor_bytes(&box) - faults[i].short_of, &params, bytes);
        const struct kiln_sim_finding *found;
        uint32_t n = kiln_sim_findings(kernel.report, &found), right = 0;
        uint32_t line = sim_line_of(bad, faults[i].line, 1);
        for (uint32_t k = 0; k < n; k++) {
            right += found[k].check == faults[i].check && found[k].line == line;
        }
        for (uint32_t k = 0; k < n && right == 0; k++) {
            print_error("%s\n", found[k].text);
        }
        if (right == 0) {
            fail_msg("%s is not told on line %u", kiln_sim_check_name(faults[i].check), line);
        }
        sim_kernel_close(&kernel);
        kiln_free(good);
        kiln_free(bad);
    }
}

// A parameter that a kernel may take the address of, as maps are, is read by it, and never written.
static void tensor_parameters_have_addresses(void **state) {
    (void)state;
    static const char text[] =
            "struct four { unsigned at[4]; };\n"
            "extern \"C\" __global__ void box(const __grid_constant__ four m, unsigned *out) {\n"
            "    unsigned value;\n"
            "    asm volatile(\"ld.u32 %0, [%1];\" : \"=r\"(value) : \"l\"(m.at + threadIdx.x));\n"
            "    out[threadIdx.x] = value;\n"
            "}\n";
    struct {
        uint32_t at[4];
        uint64_t out;
    } params = {.at = {7, 8, 9, 10}};
    char *writes = sim_replace(text, "out[threadIdx.x] = value",
            "asm volatile(\"st.u32 [%0], %1;\" : : \"l\"(m.at + threadIdx.x), \"r\"(value))", 1);
    for (int bad = 0; bad < 2; bad++) {
        struct sim_kernel kernel;
        uint32_t values[4];
        open_text(&kernel, bad ? writes : text);
        params.out = sim_kernel_out(&kernel, "out", sizeof(values));
        sim_kernel_run(
                &kernel, (uint32_t[]){1, 1, 1}, (uint32_t[]){4, 1, 1}, 0, &params, sizeof(params));
        if (bad) {
            const struct kiln_sim_finding *found;
            assert_int_equal(kiln_sim_findings(kernel.report, &found), 1);
            assert_int_equal(found[0].check, KILN_SIM_CHECK_BOUNDS);
            assert_int_equal(found[0].line, 5);
            assert_string_equal(found[0].space, "param");
        } else {
            sim_kernel_expect_silence(&kernel);
            sim_kernel_read(&kernel, values, params.out, sizeof(values));
            assert_memory_equal(values, params.at, sizeof(values));
        }
        sim_kernel_close(&kernel);
    }
    kiln_free(writes);
}

static void tensor_maps_are_checked(void **state) {
    (void)state;
    struct box box = plane(KILN_SWIZZLE_128, 64, 0, 0);
    struct kiln_tensor_map bad[12];
    static const char *const parts[] = {"rank 6", "dims[1] is 0", "box[0] is 257", "box[1] is 0",
            "strides[1] is 200", "elem_strides[1] is 9", "takes at most 64", "does not fill",
            "multiple of 16", "interleaved", "no NaN", "rank 0"};
    unsigned char bytes[SIM_MAP_BYTES] = {0};
    struct kiln_err err = {0};
    struct sim_tensor_map map;
    for (size_t i = 0; i < 12; i++) {
        bad[i] = box.map;
    }
    bad[0].rank = 6;
    bad[1].dims[1] = 0;
    bad[2].box[0] = 257;
    bad[3].box[1] = 0;
    bad[4].strides[1] = 200;
    bad[5].elem_strides[1] = 9;
    bad[6].swizzle = KILN_SWIZZLE_64;
    bad[7].box[0] = 32;
    bad[8].box[0] = 60;
    bad[9].interleave = 16;
    bad[10].oob_nan = 1;
    bad[10].dtype = KILN_DTYPE_I16;
    bad[11].rank = 0;
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(
                kiln_sim_map_encode(bytes, &bad[i], 0x1000000000, &err), KILN_STATUS_USAGE);
        if (!strstr(err.text, parts[i])) {
            fail_msg("'%s' is not in: %s", parts[i], err.text);
        }
    }
    assert_int_equal(kiln_sim_map_encode(bytes, &box.map, 0x1000000008, &err), KILN_STATUS_USAGE);
    assert_non_null(strstr(err.text, "no multiple of 16"));
    assert_false(kiln_sim_map_decode(&map, bytes));
    assert_int_equal(kiln_sim_map_encode(bytes, &box.map, 0x1000000000, &err), KILN_STATUS_OK);
    assert_true(kiln_sim_map_decode(&map, bytes));
    assert_int_equal(map.dims[1], 37);
    assert_int_equal(kiln_sim_map_box_bytes(&map), 64 * 24 * 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(tensor_maps_are_checked),
            cmocka_unit_test(tensor_parameters_have_addresses),
            cmocka_unit_test(tensor_boxes_of_every_swizzle),
            cmocka_unit_test(tensor_boxes_reach_over_the_edges),
            cmocka_unit_test(tensor_boxes_of_every_rank),
            cmocka_unit_test(tensor_rows_behind_those_in_use_may_be_unwritten),
            cmocka_unit_test(tensor_tells_faults_on_their_line),
    };
    if (!sim_can_compile(0)) {
        return SIM_SKIPPED;
    }
    return cmocka_run_group_tests(tests, fill_tensor, NULL);
}
