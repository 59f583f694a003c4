// config_fakes: the tables and the short cuts.
#include "config_fakes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// ---- The plugins --------------------------------------------------------------------------------

#define FAKE_COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

static const int64_t tq_allowed[] = {16, 32, 48, 64};
static const struct kiln_param_default tkv_hd64 = {.head_size = 64, .value = 64};
static const struct kiln_param_default tkv_new = {
        .target_min = 100, .target_max = 129, .value = 16};
static const struct kiln_param_default *const tkv_defaults[] = {&tkv_hd64, &tkv_new};
static const struct kiln_param fa_tq = {
        .name = "FA_TQ", .value = 64, .allowed = tq_allowed, .n_allowed = FAKE_COUNT(tq_allowed)};
static const struct kiln_param fa_tkv = {.name = "FA_TKV",
        .value = 32,
        .min = 16,
        .max = 128,
        .multiple_of = 16,
        .defaults = tkv_defaults,
        .n_defaults = FAKE_COUNT(tkv_defaults)};
static const struct kiln_param fa_bias = {.name = "FA_BIAS", .value = 0, .min = -8, .max = 8};
static const struct kiln_param bm = {.name = "BM", .value = 128, .min = 16, .max = 256};
static const struct kiln_param *const fap2_params[] = {&fa_tq, &fa_tkv};
static const struct kiln_param *const fap1_params[] = {&fa_tq, &fa_bias};
static const struct kiln_param *const mmq_params[] = {&bm};

static const char *const all_slots[] = {"embed", "norm", "rope_kv", "activation", "argmax",
        "attention.prefill", "attention.decode"};
static const char *const matmul_slots[] = {"matmul.*.prefill", "matmul.*.decode"};
static const char *const attention_slots[] = {"attention.prefill"};
static const char *const mmq_slots[] = {"matmul.q4_K.prefill", "matmul.q6_K.prefill"};
static const char *const quantize_slots[] = {"quantize"};

static const struct kiln_source fake_source = {.name = "fake.cu", .text = ""};
static const struct kiln_kernel fake_kernel = {.name = "fake_kernel", .source = &fake_source};
static const struct kiln_kernel fake_combine = {.name = "fake_combine", .source = &fake_source};
static const struct kiln_kernel *const fake_kernels[] = {&fake_kernel, &fake_combine};

#define VARIANT(id, name_, devices_, slots_, params_, n_params_) \
    const struct kiln_variant id = {.name = (name_), \
            .devices = (devices_), \
            .slots = (slots_), \
            .n_slots = FAKE_COUNT(slots_), \
            .params = (params_), \
            .kernels = fake_kernels, \
            .n_kernels = 2, \
            .n_params = (n_params_)}
VARIANT(fake_exact, "exact", KILN_DEVICE_HOST, all_slots, NULL, 0);
VARIANT(fake_exact_matmul, "exact", KILN_DEVICE_HOST, matmul_slots, NULL, 0);
VARIANT(fake_exact_q8, "exact_q8", KILN_DEVICE_HOST, matmul_slots, NULL, 0);
VARIANT(fake_fap1, "fap1", KILN_DEVICE_CUDA, attention_slots, fap1_params, 2);
VARIANT(fake_fap2, "fap2", KILN_DEVICE_CUDA, attention_slots, fap2_params, 2);
VARIANT(fake_mmq, "mmq", KILN_DEVICE_CUDA, mmq_slots, mmq_params, 1);
VARIANT(fake_f16, "f16", KILN_DEVICE_CUDA, matmul_slots, NULL, 0);
VARIANT(fake_fused, "fused", KILN_DEVICE_CUDA, quantize_slots, NULL, 0);

static const struct kiln_variant *const cpu_variants[] = {
        &fake_exact, &fake_exact_matmul, &fake_exact_q8};
static const struct kiln_variant *const attention_variants[] = {&fake_fap1, &fake_fap2};
static const struct kiln_variant *const matmul_variants[] = {&fake_mmq, &fake_f16, &fake_fused};
static const struct kiln_variant *const mine_variants[] = {&fake_fap2};
#define PLUGIN(id, variants_) \
    const struct kiln_plugin fake_##id = { \
            .name = #id, .variants = (variants_), .n_variants = FAKE_COUNT(variants_)}
PLUGIN(cpu, cpu_variants);
PLUGIN(attention, attention_variants);
PLUGIN(matmul, matmul_variants);
PLUGIN(mine, mine_variants);
static const struct kiln_plugin *const plugins[] = {
        &fake_cpu, &fake_attention, &fake_matmul, &fake_mine};
// `mine` brings a second fap2, so most tests leave it out.
const struct kiln_catalog fake_catalog = {plugins, 3};
const struct kiln_catalog fake_catalog_two_fap2 = {plugins, 4};
const struct kiln_catalog fake_catalog_cpu = {plugins, 1};

const struct kiln_device fake_dev_cpu = {.kind = KILN_DEVICE_HOST, .name = "cpu", .target = "cpu"};
const struct kiln_device fake_dev_h200 = {
        .kind = KILN_DEVICE_CUDA, .name = "NVIDIA H200", .target = "sm_90a", .cc = 90};
const struct kiln_device fake_dev_sim = {
        .kind = KILN_DEVICE_CUDA, .name = "sim", .target = "sm_121", .cc = 121};

// ---- Helpers ------------------------------------------------------------------------------------

struct kiln_config *fake_config(void) {
    struct kiln_config *config = NULL;
    struct kiln_err err = {0};
    assert_int_equal(kiln_config_create(&config, &err), KILN_STATUS_OK);
    return config;
}

void fake_add(struct kiln_config *config, const char *name, const char *text) {
    struct kiln_err err = {0};
    if (kiln_config_add_text(config, name, NULL, text, strlen(text), &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
}

void fake_set(struct kiln_config *config, const char *assignment) {
    struct kiln_err err = {0};
    if (kiln_config_add_set(config, assignment, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
}

void fake_check(struct kiln_config *config, const struct kiln_catalog *against) {
    struct kiln_err err = {0};
    if (kiln_config_check(config, against, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
}

struct kiln_config *fake_checked(const char *text) {
    struct kiln_config *config = fake_config();
    fake_add(config, "x.ini", text);
    fake_check(config, &fake_catalog);
    return config;
}

struct kiln_bind_query fake_query(const char *slot, const struct kiln_device *device) {
    return (struct kiln_bind_query){.slot = slot,
            .m = 64,
            .n = 4096,
            .k = 2048,
            .hd = 128,
            .role = "ffn_down",
            .layer = 2,
            .phase = strstr(slot, "prefill") ? KILN_PHASE_PREFILL : KILN_PHASE_DECODE,
            .device = device};
}

// The binding in place `skip`; NULL when there is none. Fails the test on an error.
const struct kiln_binding *fake_bind_query(
        struct kiln_config *config, const struct kiln_bind_query *call, unsigned skip) {
    const struct kiln_binding *binding = NULL;
    struct kiln_err err = {0};
    if (kiln_config_bind(config, call, skip, &binding, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    return binding;
}

const struct kiln_binding *fake_bind(
        struct kiln_config *config, const char *slot, const struct kiln_device *device) {
    struct kiln_bind_query call = fake_query(slot, device);
    return fake_bind_query(config, &call, 0);
}
