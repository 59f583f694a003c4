// sim_signature: what each variant does that the others do not, counted while the engine runs tiny
// models on sim: barriers, shuffles, stores, copies and tensor-core operations by closed formulas
// of the shapes. What is counted is a run of the plugin's own plan. Skipped (77) without NVRTC.
#include "open_model.h"
#include "sim_kernel.h"

#include "device/sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum {
    MAX_IDS = 256,
    MAX_VOCAB = 1024
};

static int64_t blocks_of(int64_t n, int64_t each) {
    return (n + each - 1) / each;
}

static struct kiln_sim_report *report_of(struct opened_model *model) {
    struct kiln_sim_report *report = kiln_sim_dev_report(model->session.dev);
    assert_non_null(report);
    return report;
}

static void expect_no_faults(struct opened_model *model) {
    const struct kiln_sim_finding *found;
    uint32_t n = kiln_sim_findings(report_of(model), &found);
    for (uint32_t i = 0; i < n; i++) {
        if (!found[i].advice) {
            print_error("%s\n", found[i].text);
        }
    }
    assert_int_equal(kiln_sim_faults(report_of(model)), 0);
}

// One prefill of n tokens in one piece.
static void prefill(
        struct opened_model *model, const char *name, int64_t n, const char *const *sets) {
    static float logits[MAX_VOCAB];
    struct kiln_err err = {0};
    char file[256];
    int32_t ids[MAX_IDS];
    (void)snprintf(file, sizeof(file), "tiny/%s.gguf", name);
    open_model_on_sim(model, "sim", golden_path(file), sets);
    int32_t n_vocab = model->session.model->params.n_vocab;
    assert_true(n_vocab <= MAX_VOCAB && n <= MAX_IDS);
    for (int32_t i = 0; i < n; i++) {
        ids[i] = i * 37 % n_vocab;
    }
    if (kiln_engine_eval(model->session.engine, ids, n, logits, &err) != KILN_STATUS_OK) {
        fail_msg("%s: %s", name, err.text);
    }
    expect_no_faults(model);
}

// ---- fap2 ---------------------------------------------------------------------------------------
enum {
    ROWS = 150, // two full tiles of rows and a last one of 22
    TQ = 64,
    HD = 128,
    WARPS = TQ / 16,
    CALLS = 2 * 2 // layers and heads of the model
};

struct attention_counts { // of one prefill, all layers and heads
    int64_t tiles;        // of keys, a block
    int64_t seen;         // of keys, a warp
    int64_t blocks, last; // last: blocks whose tile of rows is not full
};

// Row r sees keys 0 … r.
static struct attention_counts count_tiles(int64_t tkv) {
    struct attention_counts c = {0};
    for (int64_t first = 0; first < ROWS; first += TQ) {
        int64_t end = first + TQ < ROWS ? first + TQ : ROWS;
        c.blocks++;
        c.last += first + TQ > ROWS;
        c.tiles += blocks_of(end, tkv);
        for (int64_t row = first; row < end; row += 16) {
            c.seen += blocks_of(row + 16 < end ? row + 16 : end, tkv);
        }
    }
    return c;
}

static void check_fap2(int64_t tkv, int64_t sync, int64_t ahead) {
    char tkv_set[64], sync_set[64], ahead_set[64];
    (void)snprintf(tkv_set, sizeof(tkv_set), "attention.prefill.FA_TKV=%d", (int)tkv);
    (void)snprintf(sync_set, sizeof(sync_set), "attention.prefill.FA_SYNC=%d", (int)sync);
    (void)snprintf(ahead_set, sizeof(ahead_set), "attention.prefill.FA_AHEAD=%d", (int)ahead);
    const char *const sets[] = {"attention.prefill.variant=fap2", "attention.prefill.FA_TQ=64",
            tkv_set, sync_set, ahead_set, NULL};
    struct opened_model model;
    struct kiln_sim_kernel_counts c;
    prefill(&model, "llama-f16-mha-hd128-vocab509", ROWS, sets);
    struct kiln_sim_report *report = report_of(&model);
    struct attention_counts n = count_tiles(tkv);
    assert_int_equal(sim_report_total(report, "fap2", &c), 1);
    assert_true(c.blocks >= (uint64_t)(CALLS * n.blocks)); // of the bound; those without rows end
    // One barrier behind Q, FA_SYNC a tile, two around O of the last rows.
    assert_int_equal(c.total.barriers, CALLS * WARPS * (n.blocks + sync * n.tiles + 2 * n.last));
    // Behind Q's and the last rows' stores there are none: neither S nor P goes to shared memory.
    int64_t stores = n.blocks * (TQ * HD / 8 / 32) + n.last * (WARPS * 2 * HD / 8);
    assert_int_equal(sim_report_sites(report, "fap2", "st.shared", NULL), CALLS * stores);
    assert_int_equal(c.total.shared_stores,
            CALLS * stores + sim_report_sites(report, "fap2", "cp.async.cg.16", NULL));
    // The maximum of two rows, over 4 lanes, a tile; their sums once, behind the last; what a block
    // sees, over 32 lanes.
    assert_int_equal(c.total.by_class[KILN_SIM_CLASS_SHUFFLE],
            CALLS * (n.seen * 4 + n.blocks * WARPS * (4 + 10)));
    assert_int_equal(sim_report_mma(report, "fap2", "m16n8k16.f32.f16.f16.f32"),
            CALLS * n.seen * (HD / 16) * (tkv / 16) * 4);
    assert_int_equal(sim_report_mma(report, "fap2", ""),
            sim_report_mma(report, "fap2", "m16n8k16.f32.f16.f16.f32"));
    // Q's fragments once a warp; K's and V's a tile that the warp sees.
    assert_int_equal(sim_report_sites(report, "fap2", "ldmatrix.x4.shared", NULL),
            CALLS * (n.blocks * WARPS * (HD / 16) + n.seen * (HD / 16) * (tkv / 16)));
    assert_int_equal(sim_report_sites(report, "fap2", "ldmatrix.x4.trans.shared", NULL),
            CALLS * n.seen * (HD / 16) * (tkv / 16));
    // K and V of a tile, 16 bytes a thread.
    assert_int_equal(sim_report_sites(report, "fap2", "cp.async.cg.16", NULL),
            CALLS * n.tiles * 2 * (tkv * HD / 8 / 32));
    close_model(&model);
}

static void sim_signature_fap2(void **state) {
    (void)state;
    check_fap2(32, 2, 1);
    check_fap2(32, 3, 0);
    check_fap2(16, 3, 1);
}

// ---- The int8 products --------------------------------------------------------------------------
// qwen2-q4_k_m-hd128-untied: 3 layers; of the last, V and down are q6_K. Its logits are made by the
// decode variant.
enum {
    LAYERS = 3,
    BM = 128,
    BN = 128,
    BK = 128,
    PRODUCERS = 4
};
static const struct {
    int64_t n, k;
    int q6_layers; // layers in which it is q6_K, not q4_K
} products[] = {{256, 256, 0}, {128, 256, 0}, {128, 256, 1}, {256, 256, 0}, {512, 256, 0},
        {512, 256, 0}, {256, 512, 1}};

struct product_counts {
    int64_t tiles;          // of BM x BN x BK, all layers
    int64_t q4_mma, q6_mma; // m16n8k32, m16n8k16
};

static struct product_counts count_products(void) {
    struct product_counts c = {0};
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
        int64_t tiles =
                blocks_of(ROWS, BM) * blocks_of(products[i].n, BN) * blocks_of(products[i].k, BK);
        int64_t mma = tiles * (BM / 16) * (BN / 8) * (BK / 32);
        c.tiles += LAYERS * tiles;
        c.q4_mma += (LAYERS - products[i].q6_layers) * mma;
        c.q6_mma += products[i].q6_layers * mma * 2;
    }
    return c;
}

static void run_int8(struct opened_model *model, const char *variant, const char *more) {
    char set[64];
    (void)snprintf(set, sizeof(set), "matmul.*.prefill.variant=%s", variant);
    const char *const sets[] = {set, "matmul.*.prefill.BM=128", "matmul.*.prefill.BN=128",
            "matmul.*.prefill.BK=128", more, NULL};
    prefill(model, "qwen2-q4_k_m-hd128-untied", ROWS, sets);
    struct product_counts n = count_products();
    struct kiln_sim_report *report = report_of(model);
    assert_int_equal(sim_report_mma(report, "mm_mmq", "m16n8k32.s32.s8.s8.s32"), n.q4_mma);
    assert_int_equal(sim_report_mma(report, "mm_mmq", "m16n8k16.s32.s8.s8.s32"), n.q6_mma);
    assert_int_equal(sim_report_mma(report, "mm_mmq", ""), n.q4_mma + n.q6_mma);
}

// Lines that take blocks of weights apart, wherever they are inlined.
static uint64_t recombined(struct kiln_sim_report *report, const char *kernel) {
    return sim_report_lines(report, kernel, "common/dequant.cuh") +
           sim_report_lines(report, kernel, "matmul/mmq_weights.cuh");
}

static void sim_signature_mmq(void **state) {
    (void)state;
    struct opened_model model;
    run_int8(&model, "mmq", NULL);
    assert_int_equal(sim_report_sites(report_of(&model), "mm_mmq", "cp.async", NULL), 0);
    assert_true(recombined(report_of(&model), "mm_mmq") > 0);
    close_model(&model);
}

static void sim_signature_mmq_async(void **state) {
    (void)state;
    struct opened_model model;
    run_int8(&model, "mmq_async", NULL);
    struct kiln_sim_report *report = report_of(&model);
    // Activations alone: 16 bytes of a row a thread, and 8 of scales each 32 columns.
    int64_t tiles = count_products().tiles;
    assert_int_equal(sim_report_sites(report, "mm_mmq", "cp.async.cg.16", NULL),
            tiles * (BM * BK / 16 / 32));
    assert_int_equal(
            sim_report_sites(report, "mm_mmq", "cp.async.ca.8", NULL), tiles * (BM * BK / 32 / 32));
    assert_int_equal(sim_report_sites(report, "mm_mmq", "cp.async", NULL),
            tiles * (BM * BK / 16 / 32 + BM * BK / 32 / 32));
    assert_true(recombined(report, "mm_mmq") > 0);
    close_model(&model);
}

static void sim_signature_mmq_expand(void **state) {
    (void)state;
    struct opened_model model;
    struct kiln_sim_kernel_counts c;
    run_int8(&model, "mmq_expand", NULL);
    struct kiln_sim_report *report = report_of(&model);
    assert_int_equal(recombined(report, "mm_mmq"), 0);
    // It was done once, a weight.
    assert_true(sim_report_total(report, "mm_mmq_expand", &c) > 0);
    assert_int_equal(c.launches, LAYERS * (int)(sizeof(products) / sizeof(products[0])));
    assert_true(recombined(report, "mm_mmq_expand") > 0);
    close_model(&model);
}

// ---- Who quantizes ------------------------------------------------------------------------------
static uint64_t quantize_launches(const char *const *sets) {
    struct opened_model model;
    struct kiln_sim_kernel_counts c;
    prefill(&model, "qwen2-q4_k_m-hd128-untied", ROWS, sets);
    (void)sim_report_total(report_of(&model), "mm_quantize", &c);
    close_model(&model);
    return c.launches;
}

static void sim_signature_quantize(void **state) {
    (void)state;
    static const char *const separate[] = {
            "matmul.*.prefill.variant=mmq", "quantize.variant=separate", NULL};
    static const char *const shared[] = {
            "matmul.*.prefill.variant=mmq", "quantize.variant=shared", NULL};
    static const char *const fused[] = {"matmul.*.prefill.variant=mmq", "quantize.variant=shared",
            "norm.variant=rms_q8", "activation.variant=glu_q8", NULL};
    // A layer's products read 4 edges: norm, attention, norm, activation.
    assert_int_equal(quantize_launches(separate), LAYERS * 7);
    assert_int_equal(quantize_launches(shared), LAYERS * 4);
    // Norms and activations write the format themselves; attention does not.
    assert_int_equal(quantize_launches(fused), LAYERS * 1);
}

int main(void) {
    if (!sim_can_compile(0)) {
        return SIM_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(sim_signature_fap2),
            cmocka_unit_test(sim_signature_mmq),
            cmocka_unit_test(sim_signature_mmq_async),
            cmocka_unit_test(sim_signature_mmq_expand),
            cmocka_unit_test(sim_signature_quantize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
