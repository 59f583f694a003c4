// What a pass binds, planned for devices that are not there, and `kiln jit` and `kiln cache` over
// it.
#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "device/catalog.h"
#include "engine/kernel_list.h"
#include "engine/sample_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *source, *build;
static char root[64];

struct lab {
    struct kiln_registry *registry;
    struct kiln_config *config;
    struct kiln_sample_graph sample;
    struct kiln_device_entry device;
};

// plugins: files in the build folder, up to a NULL.
static void open_plugins(
        struct lab *lab, const char *const *plugins, const char *ini, const char *device) {
    struct kiln_err err = {0};
    char path[512];
    *lab = (struct lab){.registry = NULL};
    assert_int_equal(kiln_registry_create(&lab->registry, &err), KILN_STATUS_OK);
    for (size_t i = 0; plugins[i]; i++) {
        snprintf(path, sizeof(path), "%s/%s", build, plugins[i]);
        assert_int_equal(kiln_registry_add_file(lab->registry, path, &err), KILN_STATUS_OK);
    }
    assert_int_equal(kiln_config_create(&lab->config, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_config_add_text(lab->config, "t.ini", NULL, ini, strlen(ini), &err),
            KILN_STATUS_OK);
    const struct kiln_catalog catalog = {.plugins = kiln_registry_plugins(lab->registry),
            .n_plugins = kiln_registry_count(lab->registry)};
    enum kiln_status status = kiln_config_check(lab->config, &catalog, &err);
    if (status != KILN_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
    }
    assert_int_equal(status, KILN_STATUS_OK);
    assert_int_equal(kiln_sample_graph_make(&lab->sample, &kiln_sample_7b, &err), KILN_STATUS_OK);
    snprintf(path, sizeof(path), "%s/configs/devices", source);
    assert_int_equal(kiln_device_find(&lab->device, path, device, &err), KILN_STATUS_OK);
}

static void open_lab(struct lab *lab, const char *ini, const char *device) {
    static const char *const plugins[] = {"tests/plugins_jit/jitlab.so", NULL};
    open_plugins(lab, plugins, ini, device);
}

static void close_lab(struct lab *lab) {
    kiln_sample_graph_finish(&lab->sample);
    kiln_device_entry_finish(&lab->device);
    kiln_config_destroy(lab->config);
    kiln_registry_destroy(lab->registry);
}

static struct kiln_survey_params params_of(const struct lab *lab, const char *const *slots) {
    return (struct kiln_survey_params){.registry = lab->registry,
            .config = lab->config,
            .device = &lab->device.desc,
            .graph = &lab->sample.graph,
            .rows = 3325,
            .ctx = 4096,
            .kv_dtype = KILN_DTYPE_F16,
            .slots = slots,
            .n_slots = 1};
}

static void survey_bound(const struct lab *lab, const char *slot, struct kiln_survey *survey) {
    const char *const slots[] = {slot};
    const struct kiln_survey_params params = params_of(lab, slots);
    struct kiln_err err = {0};
    enum kiln_status status = kiln_survey_bound(survey, &params, &err);
    if (status != KILN_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
    }
    assert_int_equal(status, KILN_STATUS_OK);
}

static void sample_is_the_7b_mix(void **state) {
    (void)state;
    struct kiln_sample_graph sample;
    struct kiln_err err = {0};
    size_t more = 0, downs = 0;
    assert_int_equal(kiln_sample_graph_make(&sample, &kiln_sample_7b, &err), KILN_STATUS_OK);
    for (size_t i = 0; i < sample.graph.n_nodes; i++) {
        const struct kiln_node *node = &sample.graph.nodes[i];
        if (strcmp(node->op.role, "ffn_down") == 0) {
            downs++;
            more += node->operands[1].tensor->dtype == KILN_DTYPE_Q6_K;
            assert_int_equal(node->operands[1].tensor->dims[0], 18944);
            assert_int_equal(node->operands[1].tensor->dims[1], 3584);
        }
    }
    assert_int_equal(downs, 28);
    assert_int_equal(more, 14); // half of the layers
    assert_int_equal(sample.graph.edges[sample.graph.logits].cols, 152064);
    kiln_sample_graph_finish(&sample);
}

static void survey_counts_ops_that_are_alike(void **state) {
    (void)state;
    struct lab lab;
    struct kiln_survey survey = {0};
    open_lab(&lab, "[norm]\nvariant = lab_plain\nLAB_TILE = 96\n", "gb10");
    survey_bound(&lab, "norm", &survey);
    // attn_norm, ffn_norm of 28 layers and output_norm, the last of one row in both phases
    assert_int_equal(survey.count, 5);
    assert_string_equal(survey.rows[0].role, "attn_norm");
    assert_int_equal(survey.rows[0].ops, 28);
    assert_int_equal(survey.rows[2].ops, 2);
    assert_string_equal(survey.rows[0].slot, "norm");
    assert_int_equal(survey.rows[0].geometry.values[0], 96);
    assert_int_equal(survey.rows[0].planned->launches[0].record.shared_bytes, 384);
    assert_int_equal(survey.rows[0].problem->ops[0]->operands[0]->dims[1], 3325);
    kiln_survey_finish(&survey);
    close_lab(&lab);
}

static void survey_shows_why_a_variant_is_passed_over(void **state) {
    (void)state;
    static const char ini[] =
            "[norm]\nvariant = lab_plain\n[norm/new]\nvariant = lab_modern\npriority = 1\n";
    struct lab lab;
    struct kiln_survey survey = {0};
    open_lab(&lab, ini, "sm_75");
    survey_bound(&lab, "norm", &survey);
    assert_string_equal(survey.rows[0].variant->name, "lab_modern");
    assert_null(survey.rows[0].planned);
    assert_non_null(strstr(survey.rows[0].unsupported, "cp.async"));
    assert_string_equal(survey.rows[1].variant->name, "lab_plain"); // what runs in its place
    assert_non_null(survey.rows[1].planned);
    kiln_survey_finish(&survey);
    close_lab(&lab);
    open_lab(&lab, ini, "sm_80");
    survey_bound(&lab, "norm", &survey);
    for (size_t i = 0; i < survey.count; i++) {
        assert_string_equal(survey.rows[i].variant->name, "lab_modern");
    }
    kiln_survey_finish(&survey);
    close_lab(&lab);
}

static void survey_shows_what_exceeds_the_device(void **state) {
    (void)state;
    struct lab lab;
    struct kiln_survey survey = {0};
    open_lab(&lab, "[norm]\nvariant = lab_huge\n", "sm_80");
    survey_bound(&lab, "norm", &survey);
    assert_null(survey.rows[0].planned);
    assert_non_null(strstr(survey.rows[0].unsupported, "1048576"));
    kiln_survey_finish(&survey);
    survey_bound(&lab, "activation", &survey); // nothing is bound there
    assert_null(survey.rows[0].plugin);
    assert_non_null(strstr(survey.rows[0].unsupported, "no section binds"));
    kiln_survey_finish(&survey);
    close_lab(&lab);
}

// Numbers, the device's, and the keys to change with the nearest value that fits.
static void survey_says_what_to_change(void **state) {
    (void)state;
    static const struct {
        const char *geometry, *numbers, *advice;
    } rows[] = {
            {"LAB_THREADS = 2048", "block 2048 x 1 x 1; the device allows 1024 x 1024 x 64",
                    "it fits with LAB_THREADS=1024"},
            {"LAB_GRID_Y = 69632", "grid 1 x 69632 x 1; the device allows 2147483647 x 65535",
                    "it fits with LAB_GRID_Y=61440"},
            {"LAB_SMEM = 114688", "114688 bytes of shared memory a block; the device allows 101376",
                    "it fits with LAB_SMEM=98304"},
            {"LAB_SMEM = 114688\nLAB_THREADS = 2048", "block 2048 x 1 x 1",
                    "no value of one key alone makes it fit: LAB_THREADS, LAB_GRID_Y"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char ini[128];
        struct lab lab;
        struct kiln_survey survey = {0};
        snprintf(ini, sizeof(ini), "[norm]\nvariant = lab_limits\n%s\n", rows[i].geometry);
        open_lab(&lab, ini, "gb10");
        survey_bound(&lab, "norm", &survey);
        assert_null(survey.rows[0].planned);
        assert_true(survey.rows[0].exceeds);
        if (!strstr(survey.rows[0].unsupported, rows[i].numbers) ||
                !strstr(survey.rows[0].unsupported, rows[i].advice)) {
            fail_msg("'%s', not '%s' and '%s'", survey.rows[0].unsupported, rows[i].numbers,
                    rows[i].advice);
        }
        kiln_survey_finish(&survey);
        close_lab(&lab);
    }
}

// ---- Formats of edges ---------------------------------------------------------------------------

// The ops of rows with this slot and variant in a prefill, planned ones or those that are refused.
static uint32_t count_ops(
        const struct kiln_survey *survey, const char *slot, const char *variant, int planned) {
    uint32_t ops = 0;
    for (size_t i = 0; i < survey->count; i++) {
        const struct kiln_survey_row *row = &survey->rows[i];
        if (strcmp(row->slot, slot) == 0 && row->variant && row->problem &&
                row->problem->phase == KILN_PHASE_PREFILL &&
                strcmp(row->variant->name, variant) == 0) {
            ops += (row->planned != NULL) == planned ? row->ops : 0;
        }
    }
    return ops;
}

// The same, planned, of a survey of that slot alone.
static uint32_t count_alone(const struct lab *lab, const char *slot, const char *variant) {
    struct kiln_survey survey = {0};
    survey_bound(lab, slot, &survey);
    uint32_t ops = count_ops(&survey, slot, variant, 1);
    kiln_survey_finish(&survey);
    return ops;
}

static const char *const int8_plugins[] = {
        "plugins/matmul/matmul.so", "plugins/elementwise/elementwise.so", NULL};
#define INT8 "[matmul.*.prefill]\nvariant = mmq\n"
#define FUSED \
    "[norm/q8]\nwhen = phase=prefill\nvariant = rms_q8\n" \
    "[activation/q8]\nwhen = phase=prefill\nvariant = glu_q8\n"

static void survey_has_the_quantize_ops(void **state) {
    (void)state;
    // Seven products in each of 28 layers and that of the head; behind norms, attention and
    // activation four edges in each; by what writes them, all but attention's and the head's norm.
    static const struct {
        const char *ini;
        uint32_t quantized, norms;
    } rows[] = {
            {INT8 "[quantize]\nvariant = separate\n", 28 * 7 + 1, 0},
            {INT8 "[quantize]\nvariant = shared\n", 28 * 4 + 1, 0},
            {INT8 FUSED "[quantize]\nvariant = shared\n", 28, 28 * 2 + 1},
            {"[matmul.*.prefill]\nvariant = f16\n", 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lab lab;
        struct kiln_survey survey = {0};
        open_plugins(&lab, int8_plugins, rows[i].ini, "h200");
        survey_bound(&lab, "*", &survey);
        assert_int_equal(count_ops(&survey, "quantize", "q8_32w", 1), rows[i].quantized);
        assert_int_equal(count_ops(&survey, "norm", "rms_q8", 1), rows[i].norms);
        size_t all = survey.count;
        kiln_survey_finish(&survey);
        survey_bound(&lab, "quantize", &survey); // no row of another slot is left of the search
        assert_int_equal(count_ops(&survey, "quantize", "q8_32w", 1), rows[i].quantized);
        assert_true(survey.count < all);
        for (size_t k = 0; k < survey.count; k++) {
            assert_string_equal(survey.rows[k].slot, "quantize");
            const struct kiln_op *op = survey.rows[k].problem->ops[0];
            assert_int_equal(op->n_operands, 3);
            assert_string_equal(op->operands[1]->format, "q8_32w");
        }
        kiln_survey_finish(&survey);
        close_lab(&lab);
    }
}

// Half of the layers have a V of q6_K: where that product takes no integers, the norm before it
// writes none, though Q and K, which read it first, would take them; they are quantized for.
static void survey_asks_every_reader_of_an_edge(void **state) {
    (void)state;
    struct lab lab;
    struct kiln_survey survey = {0};
    open_plugins(&lab, int8_plugins,
            INT8 FUSED "[matmul.q6_K.prefill]\nvariant = f16\n[quantize]\nvariant = shared\n",
            "h200");
    survey_bound(&lab, "*", &survey);
    uint32_t blocks = 0;
    for (size_t i = 0; i < survey.count; i++) {
        const struct kiln_survey_row *row = &survey.rows[i];
        if (row->planned && strcmp(row->variant->name, "rms_q8") == 0) {
            const struct kiln_op *op = row->problem->ops[0];
            for (uint32_t k = 0; k < op->n_operands; k++) {
                blocks += op->operands[k]->operand == KILN_OPERAND_OUT &&
                                          op->operands[k]->dtype == KILN_DTYPE_BLOCK
                                  ? row->ops
                                  : 0;
            }
        }
    }
    assert_int_equal(blocks, 14 + 28); // before attention in the other half, and before the FFN
    assert_int_equal(count_ops(&survey, "quantize", "q8_32w", 1), 14 + 28); // and behind attention
    kiln_survey_finish(&survey);
    close_lab(&lab);
}

// configs/gpu-int8.ini: which products, and what is quantized apart, with cp.async and without.
static void survey_of_gpu_int8_is_what_the_file_says(void **state) {
    (void)state;
    static const struct {
        const char *device, *products;
    } rows[] = {{"h200", "mmq_async"}, {"sm_75", "mmq"}};
    char path[512], ini[4096];
    snprintf(path, sizeof(path), "%s/configs/gpu-int8.ini", source);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(ini, 1, sizeof(ini) - 1, file);
    ini[size] = '\0';
    fclose(file);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lab lab;
        open_plugins(&lab, int8_plugins, ini, rows[i].device);
        const char *variant = rows[i].products;
        assert_int_equal(count_alone(&lab, "matmul.q4_K.prefill", variant), 28 * 6);
        assert_int_equal(count_alone(&lab, "matmul.q6_K.prefill", variant), 14 * 2 + 1);
        assert_int_equal(count_alone(&lab, "norm", "rms_q8"), 28 * 2 + 1);
        assert_int_equal(count_alone(&lab, "activation", "glu_q8"), 28);
        assert_int_equal(count_alone(&lab, "quantize", "q8_32w"), 28); // behind attention
        close_lab(&lab);
    }
}

static void survey_of_every_variant_has_the_quantizers(void **state) {
    (void)state;
    struct lab lab;
    struct kiln_survey survey = {0};
    struct kiln_err err = {0};
    const char *const slots[] = {"quantize"};
    open_plugins(&lab, int8_plugins, "", "h200");
    const struct kiln_survey_params params = params_of(&lab, slots);
    assert_int_equal(kiln_survey_all(&survey, &params, &err), KILN_STATUS_OK);
    assert_true(count_ops(&survey, "quantize", "q8_32w", 1) > 0);
    kiln_survey_finish(&survey);
    close_lab(&lab);
}

static void survey_finds_every_variant(void **state) {
    (void)state;
    struct lab lab;
    struct kiln_survey survey = {0};
    struct kiln_err err = {0};
    const char *const slots[] = {"activation"};
    open_lab(&lab, "", "sm_80");
    const struct kiln_survey_params params = params_of(&lab, slots);
    assert_int_equal(kiln_survey_all(&survey, &params, &err), KILN_STATUS_OK);
    assert_int_equal(survey.count, 16);                      // eight, of many rows and of one
    assert_int_equal(survey.rows[0].geometry.values[0], 64); // the default
    kiln_survey_finish(&survey);
    close_lab(&lab);
}

static void survey_lives_through_failed_allocations(void **state) {
    (void)state;
    struct lab lab;
    const char *const slots[] = {"norm"};
    open_lab(&lab, "[norm]\nvariant = lab_plain\n", "sm_80");
    const struct kiln_survey_params params = params_of(&lab, slots);
    int done = 0;
    for (uint64_t n = 1; !done && n < 5000; n += n < 200 ? 1 : 37) {
        struct kiln_survey survey = {0};
        struct kiln_kernel_list list = {0};
        struct kiln_err err = {0};
        kiln_mem_fail_at(n, 0);
        enum kiln_status status = kiln_survey_bound(&survey, &params, &err);
        if (status == KILN_STATUS_OK) {
            status = kiln_kernel_list_add(&list, &survey, &lab.device.desc, &err);
        }
        done = kiln_mem_count() < n;
        kiln_mem_fail_at(0, 0);
        assert_true(status == (done ? KILN_STATUS_OK : KILN_STATUS_NOMEM));
        kiln_kernel_list_finish(&list);
        kiln_survey_finish(&survey);
    }
    assert_true(done);
    close_lab(&lab);
}

// ---- The commands -------------------------------------------------------------------------------

static char output[32768];

// Runs `kiln ARGUMENTS` with the lab's plugin alone and a cache of its own; returns its exit code.
static int kiln(const char *arguments) {
    char command[1024];
    snprintf(command, sizeof(command),
            "KILN_CACHE_DIR=%s/cache '%s/kiln' %s --plugin-dir '%s/tests/plugins_jit' 2>&1", root,
            build, arguments, build);
    FILE *pipe = popen(command, "r"); // NOLINT: a command that this test made
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof(output) - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define BIND(variant) "--set norm.plugin=jitlab --set norm.variant=" variant

static int have_nvrtc(void) {
    struct kiln_nvrtc *nvrtc = NULL;
    struct kiln_err err = {0};
    int have = kiln_nvrtc_open(&nvrtc, &err) == KILN_STATUS_OK;
    kiln_nvrtc_close(nvrtc);
    return have;
}

static void expect(int code, int want, const char *text) {
    if (code != want || !strstr(output, text)) {
        fail_msg("exit code %d, wanted %d and '%s' in:\n%s", code, want, text, output);
    }
}

static void jit_command_compiles_for_any_target(void **state) {
    (void)state;
    if (!have_nvrtc()) {
        skip();
    }
    expect(kiln("jit norm --target sm_75,sm_90a --json " BIND("lab_plain")), 0, "\"sm_90a\"");
    expect(0, 0, "\"spill_bytes\": 0");
    expect(0, 0, "\"smem_requested\": 256");
    expect(0, 0, "\"cached\": false");
    assert_null(strstr(output, "\"cached\": true"));
    expect(kiln("jit norm --target sm_75,sm_90a --json " BIND("lab_plain")), 0, "\"cached\": true");
    assert_null(strstr(output, "\"cached\": false"));
    expect(kiln("jit norm --target sm_75 " BIND("lab_modern")), 0, "unsupported: ");
    expect(kiln("jit norm --target sm_80 " BIND("lab_greedy")), 0, "512 bytes");
    expect(kiln("jit norm --target sm_80 --json " BIND("lab_greedy")), 0, "\"smem_over\": 512");
    expect(kiln("jit norm --target sm_80 " BIND("lab_broken")), 4, "lab_broken.cu(2): error");
    // Too large for one of the targets, which is a row; and for all of them.
    expect(kiln("jit norm --target sm_80,sm_120 " BIND("lab_limits") " --set norm.LAB_SMEM=114688"),
            0, "the device allows 101376");
    expect(kiln("jit norm --target sm_120 " BIND("lab_limits") " --set norm.LAB_SMEM=114688"), 4,
            "kiln: norm: what is bound fits no target; on sm_120: ");
    expect(kiln("jit norm --target sm_80,sm_90a " BIND("lab_huge")), 4,
            "kiln: norm: what is bound fits none of the targets; on sm_80: ");
    expect(0, 0, "1048576 bytes of shared memory a block");
    expect(kiln("jit nrom --target sm_80"), 2, "norm");
    expect(kiln("jit norm --target sm_81"), 2, "sm_80");
}

static void jit_command_dumps(void **state) {
    (void)state;
    char command[256];
    if (!have_nvrtc()) {
        skip();
    }
    snprintf(command, sizeof(command), "jit norm --target sm_80 --dump %s/dump " BIND("lab_plain"),
            root);
    expect(kiln(command), 0, "1 kernels");
    snprintf(command, sizeof(command),
            "cd %s/dump && ls norm.lab_plain.lab_scale.sm_80.*.ptx norm.*.cubin && head -1 "
            "norm.*.cu | grep -q "
            "'#define KILN_SMEM 256'",
            root);
    assert_int_equal(system(command), 0); // NOLINT: a command that this test made
}

static void cache_command_lists_verifies_clears(void **state) {
    (void)state;
    char command[256];
    expect(kiln("cache list"), 0, "0 entries");
    if (!have_nvrtc()) {
        skip();
    }
    expect(kiln("jit norm --target sm_80,sm_86 " BIND("lab_plain")), 0, "2 kernels");
    expect(kiln("cache list"), 0, "2 entries");
    expect(0, 0, "jitlab/lab_plain kernel lab_scale (KILN_SMEM=256 LAB_TILE=64)");
    expect(kiln("cache verify"), 0, "0 bad");
    snprintf(command, sizeof(command),
            "for f in %s/cache/kernels/*.kernel; do truncate -s 300 $f; break; done", root);
    assert_int_equal(system(command), 0); // NOLINT: a command that this test made
    expect(kiln("cache verify"), 1, "its length is wrong");
    expect(kiln("cache clear --bad"), 0, "removed 1 entries");
    expect(kiln("cache clear --json"), 0, "\"removed\": 1");
    expect(kiln("cache list --json"), 0, "\"entries\": []");
}

static int set_up(void **state) {
    (void)state;
    source = getenv("KILN_TEST_SRC");
    build = getenv("KILN_TEST_BUILD");
    snprintf(root, sizeof(root), "/tmp/kiln-survey-XXXXXX");
    return source && build && mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command) == 0 ? 0 : -1; // NOLINT: a path that mkdtemp made
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            CASE(sample_is_the_7b_mix),
            CASE(survey_counts_ops_that_are_alike),
            CASE(survey_shows_why_a_variant_is_passed_over),
            CASE(survey_shows_what_exceeds_the_device),
            CASE(survey_says_what_to_change),
            CASE(survey_has_the_quantize_ops),
            CASE(survey_asks_every_reader_of_an_edge),
            CASE(survey_of_gpu_int8_is_what_the_file_says),
            CASE(survey_of_every_variant_has_the_quantizers),
            CASE(survey_finds_every_variant),
            CASE(survey_lives_through_failed_allocations),
            CASE(jit_command_compiles_for_any_target),
            CASE(jit_command_dumps),
            CASE(cache_command_lists_verifies_clears),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
