// bind: conditions, which binding a call gets, and the config as shown.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "config_fakes.h"

static void expect_unbound(struct kiln_config *config, const char *slot,
        const struct kiln_device *device, const char *want) {
    struct kiln_bind_query call = fake_query(slot, device);
    const struct kiln_binding *binding = NULL;
    struct kiln_err err = {0};
    assert_int_equal(kiln_config_bind(config, &call, 0, &binding, &err), KILN_STATUS_CONFIG);
    assert_null(binding);
    assert_string_equal(err.text, want);
}

// ---- Which binding ------------------------------------------------------------------------------

static int holds(const char *when, const struct kiln_bind_query *call) {
    char text[256];
    (void)snprintf(text, sizeof(text), "[%s]\nvariant=exact\nwhen = %s\n", call->slot, when);
    struct kiln_config *config = fake_checked(text);
    const struct kiln_binding *binding = NULL;
    struct kiln_bind_query with_any = *call;
    struct kiln_err err = {0};
    enum kiln_status status = kiln_config_bind(config, &with_any, 0, &binding, &err);
    int unbound = strncmp(err.text, "no section binds", 16) == 0;
    kiln_config_destroy(config);
    // On a GPU `exact` cannot run, but then it was found, which is what counts here.
    assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_CONFIG);
    return status == KILN_STATUS_OK || !unbound;
}

static void bind_when_knows_every_operator(void **state) {
    (void)state;
    struct kiln_bind_query call = fake_query("matmul.q4_K.decode", &fake_dev_cpu);
    static const char *const yes[] = {"m=64", "m<=64", "m>=64", "m<65", "m>63", "m!=63", "m=1..64",
            "m=64..64", "m = 0x40", "n=4096,k=2048,hd=128", "layer=0..3", "layer!=3",
            "phase=decode", "phase!=prefill", "role=ffn_down", "role!=output", "target=cpu",
            "target!=cuda", "target!=sm_90a", " m <= 64 ,\trole = ffn_down"};
    static const char *const no[] = {"m=63", "m<=63", "m>=65", "m<64", "m>64", "m!=64", "m=1..63",
            "m=65..99", "n=4096,k=2047", "layer=3..9", "layer>2", "role!=ffn_down", "role=output",
            "phase=prefill", "phase!=decode", "target=cuda", "target!=cpu", "target=sim",
            "target=sm_90a"};
    for (size_t i = 0; i < FAKE_COUNT(yes); i++) {
        assert_true(holds(yes[i], &call));
    }
    for (size_t i = 0; i < FAKE_COUNT(no); i++) {
        assert_false(holds(no[i], &call));
    }
    call.layer = -1;
    call.role = "";
    assert_false(holds("layer!=3", &call));
    assert_false(holds("role=output", &call));
    call.device = &fake_dev_h200;
    assert_true(holds("target=cuda", &call) && holds("target=sm_90a", &call));
    assert_false(holds("target=sim", &call) || holds("target=cpu", &call));
    call.device = &fake_dev_sim;
    assert_true(holds("target=cuda", &call) && holds("target=sim", &call));
    assert_true(holds("target=sm_121", &call));
    assert_false(holds("target=sm_90a", &call));
}

static void bind_more_special_bindings_win_within_a_layer(void **state) {
    (void)state;
    struct kiln_config *config =
            fake_checked("[matmul.*.prefill]\nvariant=f16\n"
                         "[matmul.*.prefill/x]\nwhen=m=64,hd=128,k=2048\nvariant=f16\n"
                         "[matmul.q4_K.prefill]\nvariant=mmq\n"
                         "[matmul.q4_K.prefill/a]\nwhen=m=64\nvariant=mmq\nBM=32\n"
                         "[matmul.q4_K.prefill/b]\nwhen=m=64,n=4096\nvariant=mmq\n"
                         "[matmul.q4_K.prefill/c]\nwhen=m=1,n=1,k=1\nvariant=f16\n");
    static const char *const order[] = {"matmul.q4_K.prefill/b", "matmul.q4_K.prefill/a",
            "matmul.q4_K.prefill", "matmul.*.prefill/x", "matmul.*.prefill"};
    struct kiln_bind_query call = fake_query("matmul.q4_K.prefill", &fake_dev_h200);
    for (unsigned skip = 0; skip < FAKE_COUNT(order); skip++) {
        assert_string_equal(fake_bind_query(config, &call, skip)->section, order[skip]);
    }
    assert_null(fake_bind_query(config, &call, FAKE_COUNT(order)));
    assert_string_equal(fake_bind(config, "matmul.q5_K.prefill", &fake_dev_h200)->section,
            "matmul.*.prefill/x");
    kiln_config_destroy(config);
}

static void bind_ties_are_errors_unless_a_priority_decides(void **state) {
    (void)state;
#define TIE \
    "[attention.prefill/a]\nvariant=fap1\nwhen=m=64\n" \
    "[attention.prefill/b]\nvariant=fap2\nwhen=hd=128\n"
    struct kiln_config *config = fake_config();
    struct kiln_err err = {0};
    fake_add(config, "x.ini", TIE);
    assert_int_equal(kiln_config_check(config, &fake_catalog, &err), KILN_STATUS_CONFIG);
    assert_string_equal(err.text,
            "x.ini:1: [attention.prefill/a] and [attention.prefill/b] (x.ini:4) have as many "
            "tests, and a call can meet both; add a test to one of them, or a priority");
    kiln_config_destroy(config);
    config = fake_checked(TIE "priority=1\n");
    assert_ptr_equal(fake_bind(config, "attention.prefill", &fake_dev_h200)->variant, &fake_fap2);
    kiln_config_destroy(config);
}

// Whether two sections with these conditions tie.
static int ties(const char *a, const char *b) {
    char text[512];
    struct kiln_err err = {0};
    struct kiln_config *config = fake_config();
    snprintf(text, sizeof(text),
            "[attention.prefill/a]\nvariant=fap1\nwhen=%s\n"
            "[attention.prefill/b]\nvariant=fap2\nwhen=%s\n",
            a, b);
    fake_add(config, "x.ini", text);
    enum kiln_status status = kiln_config_check(config, &fake_catalog, &err);
    assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_CONFIG);
    assert_true(status == KILN_STATUS_OK || strstr(err.text, "a call can meet both"));
    kiln_config_destroy(config);
    return status == KILN_STATUS_CONFIG;
}

static void bind_ties_only_where_a_call_can_meet_both(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        int tie;
    } rows[] = {
            {"m<=64", "m>64", 0},
            {"m<=64", "m>=64", 1},
            {"m<=64", "m=65..128", 0},
            {"m<=64", "m=64..128", 1},
            {"m!=64", "m=64", 0},
            {"m!=64", "m=63..65", 1},
            {"m!=64,m!=65", "m>=64,m<=65", 0},
            {"m!=64,m!=66", "m>=64,m<=66", 1},
            {"m<1", "hd=128", 0}, // no call has no rows
            {"layer<1", "layer=0", 1},
            {"m<=64", "m<=64,hd=128", 0}, // more tests win
            {"m<=64", "layer=0..3", 1},
            {"role=ffn_up", "role=ffn_down", 0},
            {"role!=ffn_up", "role=ffn_up", 0},
            {"role!=ffn_up", "role!=ffn_down", 1},
            {"target=cpu", "target=cuda", 0},
            {"target=cuda", "target=sm_90a", 1},
            {"target=cuda", "target=sim", 1},
            {"target=sm_80", "target=sm_90a", 0},
            {"target!=cuda", "target!=cpu", 0},
            {"target!=sm_90a", "target!=sm_80", 1},
            {"target=cuda,target!=sim", "target=sim,m>1", 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (ties(rows[i].a, rows[i].b) != rows[i].tie ||
                ties(rows[i].b, rows[i].a) != rows[i].tie) {
            fail_msg("'%s' and '%s' %s", rows[i].a, rows[i].b, rows[i].tie ? "do not tie" : "tie");
        }
    }
}

static void bind_the_layer_that_touched_last_wins(void **state) {
    (void)state;
    struct kiln_config *config = fake_config();
    fake_add(config, "a.ini",
            "[matmul.q4_K.prefill/x]\nwhen=m=64,n=4096\nvariant=mmq\npriority=7\n");
    fake_add(config, "b.ini", "[matmul.*.prefill]\nvariant=f16\n");
    fake_check(config, &fake_catalog);
    assert_ptr_equal(fake_bind(config, "matmul.q4_K.prefill", &fake_dev_h200)->variant, &fake_f16);
    kiln_config_destroy(config);
    config = fake_config();
    fake_add(config, "a.ini", "[matmul.q4_K.prefill/x]\nwhen=m=64,n=4096\nvariant=mmq\n");
    fake_add(config, "b.ini", "[matmul.*.prefill]\nvariant=f16\n");
    fake_set(config, "matmul.q4_K.prefill/x.BM=32");
    fake_check(config, &fake_catalog);
    const struct kiln_binding *binding = fake_bind(config, "matmul.q4_K.prefill", &fake_dev_h200);
    assert_ptr_equal(binding->variant, &fake_mmq);
    assert_int_equal(binding->geometry.values[0], 32);
    kiln_config_destroy(config);
}

static void bind_a_wildcard_binds_what_its_variant_fills(void **state) {
    (void)state;
    struct kiln_config *config = fake_config();
    fake_add(config, "a.ini", "[matmul.*.prefill]\nvariant=f16\n");
    fake_add(config, "b.ini", "[matmul.*.prefill/m]\nvariant=mmq\n");
    fake_check(config, &fake_catalog);
    assert_ptr_equal(fake_bind(config, "matmul.q6_K.prefill", &fake_dev_h200)->variant, &fake_mmq);
    assert_ptr_equal(fake_bind(config, "matmul.q8_0.prefill", &fake_dev_h200)->variant, &fake_f16);
    expect_unbound(config, "matmul.q8_0.decode", &fake_dev_h200,
            "no section binds slot matmul.q8_0.decode on sm_90a; add [matmul.q8_0.decode] variant "
            "= NAME; variants that could: f16");
    kiln_config_destroy(config);
}

static void bind_the_same_call_gives_the_same_pointer(void **state) {
    (void)state;
    struct kiln_config *config = fake_checked("[attention.prefill]\nvariant=fap2\n");
    struct kiln_bind_query call = fake_query("attention.prefill", &fake_dev_h200);
    const struct kiln_binding *first = fake_bind_query(config, &call, 0);
    assert_int_equal(first->geometry.values[1], 32);
    call.layer = 7;
    assert_ptr_equal(fake_bind_query(config, &call, 0), first);
    call.hd = 64; // has a default of its own
    const struct kiln_binding *second = fake_bind_query(config, &call, 0);
    assert_ptr_not_equal(second, first);
    assert_int_equal(second->geometry.values[1], 64);
    call = fake_query("attention.prefill", &fake_dev_sim);
    assert_int_equal(fake_bind_query(config, &call, 0)->geometry.values[1], 16);
    call.device = &fake_dev_h200;
    assert_ptr_equal(fake_bind_query(config, &call, 0), first);
    kiln_config_destroy(config);
}

static void bind_a_variant_must_run_on_the_device(void **state) {
    (void)state;
    struct kiln_config *config = fake_config();
    struct kiln_err err = {0};
    assert_int_equal(kiln_config_add_defaults(config, &err), KILN_STATUS_OK);
    fake_add(config, "x.ini", "[attention.prefill]\nvariant=fap2\n");
    fake_check(config, &fake_catalog);
    expect_unbound(config, "attention.prefill", &fake_dev_cpu,
            "x.ini:2: [attention.prefill] binds variant fap2, which does not run on cpu; bind "
            "another there, or add a condition (when = target=cuda); variants that could: exact");
    // As a fallback, what cannot run is passed over.
    struct kiln_bind_query call = fake_query("attention.prefill", &fake_dev_cpu);
    assert_ptr_equal(fake_bind_query(config, &call, 1)->variant, &fake_exact);
    assert_null(fake_bind_query(config, &call, 2));
    kiln_config_destroy(config);
}

static void bind_defaults_bind_every_slot_of_the_cpu(void **state) {
    (void)state;
    static const char *const slots[] = {"embed", "norm", "rope_kv", "activation", "argmax",
            "attention.prefill", "attention.decode", "matmul.q4_K.prefill", "matmul.f32.decode"};
    struct kiln_config *config = fake_config();
    struct kiln_err err = {0};
    assert_int_equal(kiln_config_add_defaults(config, &err), KILN_STATUS_OK);
    fake_check(config, &fake_catalog_cpu);
    for (size_t i = 0; i < FAKE_COUNT(slots); i++) {
        const struct kiln_binding *binding = fake_bind(config, slots[i], &fake_dev_cpu);
        assert_string_equal(binding->variant_name, "exact");
        assert_memory_equal(binding->origin, "built-in:", 9);
    }
    const struct kiln_binding *quantize = fake_bind(config, "quantize", &fake_dev_cpu);
    assert_string_equal(quantize->variant_name, "shared");
    assert_null(quantize->variant);
    assert_null(quantize->plugin);
    assert_int_equal(quantize->geometry.n_values, 0);
    kiln_config_destroy(config);
}

static void bind_absent_defaults_fail_only_when_bound(void **state) {
    (void)state;
    static const struct kiln_catalog none = {NULL, 0};
    struct kiln_config *config = fake_config();
    struct kiln_err err = {0};
    assert_int_equal(kiln_config_add_defaults(config, &err), KILN_STATUS_OK);
    fake_check(config, &none);
    struct kiln_bind_query call = fake_query("norm", &fake_dev_cpu);
    const struct kiln_binding *binding = NULL;
    assert_int_equal(kiln_config_bind(config, &call, 0, &binding, &err), KILN_STATUS_CONFIG);
    assert_non_null(strstr(err.text, "[norm/cpu] binds variant exact, which no loaded plugin has; "
                                     "slot norm on cpu is not filled; no loaded plugin has a "
                                     "variant for it there"));
    kiln_config_destroy(config);
    // Once a user touches the section it is the user's.
    config = fake_config();
    assert_int_equal(kiln_config_add_defaults(config, &err), KILN_STATUS_OK);
    fake_set(config, "norm/cpu.when=m=1");
    assert_int_equal(kiln_config_check(config, &none, &err), KILN_STATUS_CONFIG);
    kiln_config_destroy(config);
}

// ---- Show ---------------------------------------------------------------------------------------

// Takes comments and blank lines out.
static void strip(struct kiln_buf *out, const char *text) {
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");
        const char *comment = line[0] == ';' ? line : strstr(line, " ;");
        size_t keep = comment && comment < line + len ? (size_t)(comment - line) : len;
        if (keep > 0) {
            kiln_buf_append(out, line, keep);
            kiln_buf_puts(out, "\n");
        }
        line += len + (line[len] == '\n');
    }
}

static struct kiln_config *many_layers(void) {
    struct kiln_config *config = fake_config();
    struct kiln_err err = {0};
    assert_int_equal(kiln_config_add_defaults(config, &err), KILN_STATUS_OK);
    fake_add(config, "a.ini",
            "[attention.prefill]\nvariant=fap2\nFA_TQ=32\n"
            "[attention.prefill/x]\nvariant=fap1\nwhen=m<=64, hd=128, layer=0..3\n"
            "[matmul.*.prefill]\nvariant=f16\npriority=4\n"
            "[matmul.q4_K.prefill]\nvariant=mmq\nBM=0x20\n[cache]\nmax_size=2G\n");
    fake_add(config, "b.ini", "[matmul.*.prefill]\nwhen=m>=64\n[quantize]\nvariant=separate\n");
    fake_set(config, "attention.prefill.FA_TKV=16");
    fake_set(config, "engine.ctx=512");
    fake_check(config, &fake_catalog);
    return config;
}

static void bind_show_reads_back_as_the_same(void **state) {
    (void)state;
    static const char *const slots[] = {"attention.prefill", "attention.decode", "norm", "quantize",
            "matmul.q4_K.prefill", "matmul.q8_0.prefill", "matmul.f16.decode"};
    static const struct kiln_device *const devices[] = {
            &fake_dev_cpu, &fake_dev_h200, &fake_dev_sim};
    struct kiln_config *config = many_layers();
    struct kiln_buf shown = {0}, first = {0}, second = {0};
    kiln_config_show(config, &shown);
    assert_false(shown.failed);
    assert_non_null(strstr(shown.data, "ctx = 512 ; from --set\n"));
    assert_non_null(strstr(shown.data, "ubatch = 512 ; default\n"));
    assert_non_null(strstr(shown.data, "FA_TQ = 32 ; from a.ini:3\n"));
    assert_non_null(strstr(shown.data, "FA_TKV = 16 ; from --set\n"));
    assert_non_null(strstr(shown.data, "when = target=cpu ; from built-in:"));
    strip(&first, shown.data);
    // With the defaults under it, as a user would pass it, and alone.
    for (int with_defaults = 0; with_defaults < 2; with_defaults++) {
        struct kiln_config *again = fake_config();
        struct kiln_err err = {0};
        if (with_defaults) {
            assert_int_equal(kiln_config_add_defaults(again, &err), KILN_STATUS_OK);
        }
        fake_add(again, "shown.ini", shown.data);
        fake_check(again, &fake_catalog);
        struct kiln_buf text = {0};
        kiln_config_show(again, &text);
        kiln_buf_clear(&second);
        strip(&second, text.data);
        assert_string_equal(second.data, first.data);
        kiln_buf_finish(&text);
        for (size_t i = 0; i < FAKE_COUNT(slots) * FAKE_COUNT(devices) * 4; i++) {
            struct kiln_bind_query call = fake_query(slots[i / 12], devices[i / 4 % 3]);
            call.m = i % 2 ? 63 : 64;
            const struct kiln_binding *a = NULL, *b = NULL;
            unsigned skip = i % 4 > 1;
            assert_int_equal(kiln_config_bind(config, &call, skip, &a, &err),
                    kiln_config_bind(again, &call, skip, &b, &err));
            assert_int_equal(a != NULL, b != NULL);
            if (a && b) {
                assert_string_equal(a->section, b->section);
                assert_ptr_equal(a->variant, b->variant);
                for (uint32_t j = 0; j < a->geometry.n_values; j++) {
                    assert_int_equal(a->geometry.values[j], b->geometry.values[j]);
                }
            }
        }
        kiln_config_destroy(again);
    }
    kiln_buf_finish(&shown);
    kiln_buf_finish(&first);
    kiln_buf_finish(&second);
    kiln_config_destroy(config);
}

static void bind_show_survives_odd_file_names(void **state) {
    (void)state;
    char name[1100], value[1001];
    memset(name, 'n', sizeof(name));
    name[1] = '\n';
    name[sizeof(name) - 1] = '\0';
    memset(value, '0', sizeof(value));
    memcpy(value + sizeof(value) - 4, "512", 4);
    for (int i = 0; i < 3; i++) {
        struct kiln_config *config = fake_config(), *again = fake_config();
        struct kiln_buf text = {0};
        fake_add(config, i == 0 ? name : "a\r\n[norm]\n", "[attention.prefill]\nvariant=fap2\n");
        if (i == 2) {
            char set[1100];
            (void)snprintf(set, sizeof(set), "attention.prefill.FA_TQ=%.900s32", value);
            fake_set(config, set);
        }
        fake_check(config, &fake_catalog);
        kiln_config_show(config, &text);
        fake_add(again, "shown", text.data);
        fake_check(again, &fake_catalog);
        assert_int_equal(fake_bind(again, "attention.prefill", &fake_dev_h200)->geometry.values[0],
                i == 2 ? 32 : 64);
        kiln_buf_finish(&text);
        kiln_config_destroy(config);
        kiln_config_destroy(again);
    }
}

static void bind_show_json_has_values_and_origins(void **state) {
    (void)state;
    struct kiln_config *config = many_layers();
    struct kiln_buf text = {0};
    struct kiln_err err = {0};
    assert_int_equal(kiln_config_show_json(config, &text, &err), KILN_STATUS_OK);
    assert_non_null(strstr(text.data, "\"engine.ctx\": {\n      \"value\": 512,\n"
                                      "      \"origin\": \"--set\"\n"));
    assert_non_null(strstr(text.data, "\"tune.at_start\": {\n      \"value\": false,"));
    assert_non_null(strstr(text.data, "\"cache.dir\": {\n      \"value\": null,"));
    assert_non_null(strstr(text.data, "\"when\": \"m<=64, hd=128, layer=0..3\""));
    assert_non_null(strstr(text.data, "\"BM\": {\n          \"value\": 32,"));
    kiln_buf_finish(&text);
    kiln_config_destroy(config);
}

static void bind_the_shipped_default_overrides_nothing(void **state) {
    (void)state;
    const char *src = getenv("KILN_TEST_SRC");
    assert_non_null(src);
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/configs/default.ini", src);
    struct kiln_config *config = fake_config();
    struct kiln_err err = {0};
    assert_int_equal(kiln_config_add_file(config, path, &err), KILN_STATUS_OK);
    fake_check(config, &fake_catalog);
    struct kiln_buf with = {0}, without = {0};
    kiln_config_show(config, &with);
    kiln_config_destroy(config);
    config = fake_checked("");
    kiln_config_show(config, &without);
    assert_string_equal(with.data, without.data);
    // Every key that show knows is documented.
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(kiln_file_read(path, 1 << 20, &text, &len, &err), KILN_STATUS_OK);
    static const char *const keys[] = {"ctx", "ubatch", "threads", "kv_type", "graph", "dir",
            "max_size", "at_start", "budget", "plugin", "variant", "when", "priority", "source"};
    for (size_t i = 0; i < FAKE_COUNT(keys); i++) {
        char line[32];
        (void)snprintf(line, sizeof(line), "\n; %s = ", keys[i]);
        if (!strstr(text, line)) {
            fail_msg("configs/default.ini says nothing about %s", keys[i]);
        }
    }
    kiln_free(text);
    kiln_buf_finish(&with);
    kiln_buf_finish(&without);
    kiln_config_destroy(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(bind_when_knows_every_operator),
            cmocka_unit_test(bind_more_special_bindings_win_within_a_layer),
            cmocka_unit_test(bind_ties_are_errors_unless_a_priority_decides),
            cmocka_unit_test(bind_ties_only_where_a_call_can_meet_both),
            cmocka_unit_test(bind_the_layer_that_touched_last_wins),
            cmocka_unit_test(bind_a_wildcard_binds_what_its_variant_fills),
            cmocka_unit_test(bind_the_same_call_gives_the_same_pointer),
            cmocka_unit_test(bind_a_variant_must_run_on_the_device),
            cmocka_unit_test(bind_defaults_bind_every_slot_of_the_cpu),
            cmocka_unit_test(bind_absent_defaults_fail_only_when_bound),
            cmocka_unit_test(bind_show_reads_back_as_the_same),
            cmocka_unit_test(bind_show_survives_odd_file_names),
            cmocka_unit_test(bind_show_json_has_values_and_origins),
            cmocka_unit_test(bind_the_shipped_default_overrides_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
