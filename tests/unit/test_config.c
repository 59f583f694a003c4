// config: layers, what is refused, settings and files, against plugins that exist only here.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "config_fakes.h"

#include "config/layers.h"

// The text is read or, failing that, checked; either way with this very message.
static void expect_error_in(
        const struct kiln_catalog *against, const char *text, const char *want) {
    struct kiln_config *config = fake_config();
    struct kiln_err err = {0};
    enum kiln_status status = kiln_config_add_text(config, "x.ini", NULL, text, strlen(text), &err);
    if (status == KILN_STATUS_OK) {
        status = kiln_config_check(config, against, &err);
    }
    assert_int_equal(status, KILN_STATUS_CONFIG);
    assert_int_equal(err.status, KILN_STATUS_CONFIG);
    assert_string_equal(err.text, want);
    kiln_config_destroy(config);
}

static void expect_error(const char *text, const char *want) {
    expect_error_in(&fake_catalog, text, want);
}

// ---- What is refused ----------------------------------------------------------------------------

static void config_names_the_misspelled_key(void **state) {
    (void)state;
    expect_error("[attention.prefill]\nvariant = fap2\nFA_TVK=16\n",
            "x.ini:3: [attention.prefill] FA_TVK: unknown geometry key of variant fap2; did you "
            "mean 'FA_TKV'? known: FA_TQ, FA_TKV");
    expect_error("[attention.prefill]\nvariant = fap2\nfa_tkv=16\n",
            "x.ini:3: [attention.prefill] fa_tkv: unknown key; did you mean 'FA_TKV'? known: "
            "plugin, variant, when, priority, source, FA_TQ, FA_TKV");
    expect_error("[attention.prefill]\nvarient = fap2\n",
            "x.ini:2: [attention.prefill] binds no variant: no layer gives this section a "
            "`variant`; add variant = NAME (`kiln plugins list` shows them)");
    expect_error("[attention.prefill]\nvariant = fap2\nvarient = fap2\n",
            "x.ini:3: [attention.prefill] varient: unknown key; did you mean 'variant'? known: "
            "plugin, variant, when, priority, source, FA_TQ, FA_TKV");
    expect_error("[engine]\nubacht = 4\n", "x.ini:2: [engine] ubacht: unknown key; did you mean "
                                           "'ubatch'? known: ctx, ubatch, threads, kv_type, graph");
}

static void config_names_the_misspelled_section(void **state) {
    (void)state;
    expect_error("[fa_prefil]\nFA_TQ=64\n",
            "x.ini:1: unknown section [fa_prefil]: it is none of engine, cache and tune, and slot "
            "'fa_prefil': unknown op 'fa_prefil'; known: embed, norm, rope_kv, attention, matmul, "
            "activation, quantize, argmax");
    expect_error("[engin]\nctx=64\n", "x.ini:1: unknown section [engin]; did you mean [engine]? "
                                      "sections are slots, engine, cache and tune");
    expect_error("[matmul.q4_k.prefill]\nvariant=f16\n",
            "x.ini:1: unknown section [matmul.q4_k.prefill]: it is none of engine, cache and tune, "
            "and slot 'matmul.q4_k.prefill': unknown weight type 'q4_k'; did you mean 'q4_K'? "
            "known: f32, f16, bf16, q4_0, q4_1, q5_0, q8_0, q4_K, q5_K, q6_K, *");
    expect_error("[norm/]\nvariant=exact\n", "x.ini:1: section [norm/]: what follows '/' is a name "
                                             "of letters, digits, '_' and '-'");
    expect_error("[norm/a/b]\nvariant=exact\n",
            "x.ini:1: section [norm/a/b]: what follows '/' is a name of letters, digits, '_' and "
            "'-'");
}

static void config_refuses_a_good_key_in_the_wrong_place(void **state) {
    (void)state;
    expect_error("FA_TQ=64\n[attention.prefill]\nvariant = fap2\n",
            "x.ini:1: FA_TQ stands before any section; put it under one, such as [engine] or "
            "[attention.prefill]");
    expect_error("[norm]\nvariant = exact\nFA_TQ=64\n",
            "x.ini:3: [norm] FA_TQ: unknown geometry key of variant exact (it is one of variant "
            "fap1); none is known");
    expect_error("[norm]\nvariant = exact\nctx=64\n",
            "x.ini:3: [norm] ctx: unknown key here, it belongs to [engine]; known: plugin, "
            "variant, when, priority, source");
    expect_error("[engine]\nFA_TQ=64\n",
            "x.ini:2: [engine] FA_TQ: unknown key; known: ctx, ubatch, threads, kv_type, graph");
    expect_error("[cache]\nctx=64\n", "x.ini:2: [cache] ctx: unknown key here, it belongs to "
                                      "[engine]; known: dir, max_size");
}

static void config_refuses_duplicates_in_one_file(void **state) {
    (void)state;
    expect_error("[engine]\nctx=64\n[norm]\nvariant=exact\n[engine]\nubatch=4\n",
            "x.ini:5: section [engine] stands in this file twice, first at x.ini:1; put its keys "
            "in "
            "one place, or name the second: [engine/NAME]");
    expect_error("[attention.prefill]\nvariant=fap2\nFA_TQ=64\n\nFA_TQ=64\n",
            "x.ini:5: [attention.prefill] FA_TQ is set twice in this file, first at x.ini:3; keep "
            "one of them");
}

// Looking for a name takes time for each that is there, so a file cannot have any number of them.
static void config_refuses_more_names_than_anyone_needs(void **state) {
    (void)state;
    struct kiln_buf text = {0};
    for (int i = 0; i < 1025; i++) {
        kiln_buf_printf(&text, "[norm/%d]\nvariant=exact\nwhen=layer=%d\n", i, i);
    }
    expect_error(text.data,
            "x.ini:3073: section [norm/1024] is one too many; a file may have 1024 sections");
    text.data[strlen(text.data) - strlen("[norm/1024]\nvariant=exact\nwhen=layer=1024\n")] = '\0';
    kiln_config_destroy(fake_checked(text.data)); // one fewer is fine
    kiln_buf_clear(&text);
    kiln_buf_puts(&text, "[engine]\n");
    for (int i = 0; i < 129; i++) {
        kiln_buf_printf(&text, "k%d=1\n", i);
    }
    expect_error(
            text.data, "x.ini:130: [engine] k128 is one too many; a section may have 128 keys");
    kiln_buf_finish(&text);
}

static void config_refuses_values_outside_the_schema(void **state) {
    (void)state;
#define AP "[attention.prefill]\nvariant=fap2\n"
    expect_error(AP "FA_TQ=63\n", "x.ini:3: [attention.prefill] FA_TQ: 63 is not allowed; allowed "
                                  "for variant fap2: 16, 32, 48, 64");
    expect_error(AP "FA_TKV=40\n",
            "x.ini:3: [attention.prefill] FA_TKV: 40 is not allowed; allowed "
            "for variant fap2: 16 to 128, multiples of 16");
    expect_error(AP "FA_TKV=144\n", "x.ini:3: [attention.prefill] FA_TKV: 144 is not allowed; "
                                    "allowed for variant fap2: 16 to 128, multiples of 16");
    static const char *const junk[] = {"64x", "0x", "", "6 4", "+64", "64.0", "1e2",
            "99999999999999999999", "0x1G", "--1", "-", "x40"};
    for (size_t i = 0; i < FAKE_COUNT(junk); i++) {
        char text[128], want[256];
        (void)snprintf(text, sizeof(text), AP "FA_TKV=%s\n", junk[i]);
        (void)snprintf(want, sizeof(want),
                *junk[i]
                        ? "x.ini:3: [attention.prefill] FA_TKV: '%s' is not a whole number; "
                          "allowed for variant fap2: 16 to 128, multiples of 16"
                        : "x.ini:3: [attention.prefill] FA_TKV: there is no value%s; leave the key "
                          "out to have its default",
                junk[i]);
        expect_error(text, want);
    }
    expect_error(AP "FA_TKV=16 # note\n",
            "x.ini:3: [attention.prefill] FA_TKV: '16 # note' is not a whole number (a comment "
            "behind a value starts with ';'); allowed for variant fap2: 16 to 128, multiples of "
            "16");
    expect_error("[engine]\nctx=15\n",
            "x.ini:2: [engine] ctx: '15' is not allowed; allowed: 0 or 16 to 1048576");
    expect_error("[engine]\nubatch=0\n",
            "x.ini:2: [engine] ubatch: '0' is not allowed; allowed: 1 to 65536");
    expect_error("[engine]\nthreads=1025\n",
            "x.ini:2: [engine] threads: '1025' is not allowed; allowed: 0 to 1024");
    expect_error("[engine]\nkv_type=F16\n",
            "x.ini:2: [engine] kv_type: 'F16' is not allowed; allowed: auto, f32 or f16");
    expect_error("[cache]\nmax_size=1T\n",
            "x.ini:2: [cache] max_size: '1T' is not allowed; "
            "allowed: bytes, with K, M or G behind them if you like");
    expect_error("[cache]\nmax_size=9999999999G\n",
            "x.ini:2: [cache] max_size: '9999999999G' is not allowed; allowed: bytes, with K, M or "
            "G behind them if you like");
    expect_error("[tune]\nat_start=yes\n",
            "x.ini:2: [tune] at_start: 'yes' is not allowed; allowed: true or false");
    expect_error(AP "priority=-1\n", "x.ini:3: [attention.prefill] priority: '-1' is not allowed; "
                                     "allowed: 0 to 1000000");
}

static void config_refuses_unknown_variants_and_plugins(void **state) {
    (void)state;
    expect_error("[attention.prefill]\nvariant=fap3\n",
            "x.ini:2: [attention.prefill] variant: no variant 'fap3' of the plugins loaded fills "
            "slot attention.prefill; did you mean 'fap1'? known: exact, fap1, fap2");
    expect_error("[attention.decode]\nvariant=fap2\n",
            "x.ini:2: [attention.decode] variant: no variant 'fap2' of the plugins loaded fills "
            "slot attention.decode (it fills attention.prefill); known: exact");
    expect_error("[attention.prefill]\nplugin=cpu\nvariant=fap2\n",
            "x.ini:3: [attention.prefill] variant: no variant 'fap2' of plugin cpu fills slot "
            "attention.prefill; known: exact");
    expect_error("[attention.prefill]\nplugin=atention\nvariant=fap2\n",
            "x.ini:2: [attention.prefill] plugin: no plugin 'atention' is loaded; did you mean "
            "'attention'? known: cpu, attention, matmul");
    expect_error_in(&fake_catalog_two_fap2, "[attention.prefill]\nvariant=fap2\n",
            "x.ini:2: [attention.prefill] variant: variant fap2 for slot attention.prefill is in "
            "the plugins attention and mine; say which: plugin = attention");
    expect_error("[quantize]\nvariant=seperate\n",
            "x.ini:2: [quantize] variant: no variant 'seperate' of the plugins loaded fills slot "
            "quantize; did you mean 'separate'? known: fused, separate, shared");
    expect_error("[quantize]\nvariant=shared\nBM=16\n",
            "x.ini:3: [quantize] BM: unknown geometry key of variant shared (it is one of variant "
            "mmq); none is known");
}

static void config_refuses_conditions_it_cannot_read(void **state) {
    (void)state;
    static const struct {
        const char *when, *says;
    } rows[] = {
            {"m", "'m' is no test: write NAME OP VALUE with one of = != < <= > >="},
            {"m<=64,", "an empty test; write tests such as m<=64, separated by commas"},
            {"rows<=64", "'rows<=64': unknown test 'rows'; known: m, n, k, hd, layer, role, phase, "
                         "target"},
            {"laier=3",
                    "'laier=3': unknown test 'laier'; did you mean 'layer'? known: m, n, k, hd, "
                    "layer, role, phase, target"},
            {"m<=x", "'m<=x': m is compared with a whole number that is not negative"},
            {"m=", "'m=': m is compared with a whole number that is not negative, or a range a..b"},
            {"m=-1", "'m=-1': m is compared with a whole number that is not negative, or a range "
                     "a..b"},
            {"m==4", "'m==4': m is compared with a whole number that is not negative, or a range "
                     "a..b"},
            {"m<1..3", "'m<1..3': a range goes with = only: m=a..b"},
            {"m=3..1", "'m=3..1': no number lies in this range; the smaller end comes first"},
            {"m=1..", "'m=1..': m is compared with a whole number that is not negative, or a range "
                      "a..b"},
            {"phase=training",
                    "'phase=training': unknown phase 'training'; known: prefill, decode"},
            {"role<output", "'role<output': role takes = and != only"},
            {"role=fnn_down", "'role=fnn_down': unknown role 'fnn_down'; did you mean 'ffn_down'? "
                              "known: attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, "
                              "ffn_down, output, token_embd, attn_norm, ffn_norm, output_norm, "
                              "post_attention_norm, post_ffw_norm"},
            {"target=gpu", "'target=gpu': unknown target 'gpu'; known: cpu, cuda, sim, or a target "
                           "such as sm_90a"},
            {"target=sm_9", "'target=sm_9': unknown target 'sm_9'; known: cpu, cuda, sim, or a "
                            "target such as sm_90a"},
            {"target=sm_90x", "'target=sm_90x': unknown target 'sm_90x'; known: cpu, cuda, sim, or "
                              "a target such as sm_90a"},
    };
    for (size_t i = 0; i < FAKE_COUNT(rows); i++) {
        char text[256], want[1024];
        (void)snprintf(text, sizeof(text), "[norm]\nvariant=exact\nwhen = %s\n", rows[i].when);
        (void)snprintf(want, sizeof(want), "x.ini:3: [norm] when: %s", rows[i].says);
        expect_error(text, want);
    }
}

static void config_set_says_how_to_write_it(void **state) {
    (void)state;
    static const struct {
        const char *set, *says;
    } rows[] = {
            {"", "--set : write SECTION.KEY=VALUE, such as"},
            {"engine.ctx", "--set engine.ctx: write SECTION.KEY=VALUE, such as"},
            {"ctx=4", "--set ctx=4: write SECTION.KEY=VALUE"},
            {"=4", "--set =4: write SECTION.KEY=VALUE"},
            {".ctx=4", "--set .ctx=4: the name of the section is empty"},
            {"engine.=4", "--set engine.=4: the name of the key is empty"},
            {"engine.ctx=", "--set engine.ctx=: there is no value"},
            {"engine.c x=4", "--set engine.c x=4: key 'c x': only letters"},
            {"[engine].ctx=4", "--set [engine].ctx=4: section '[engine]': only letters"},
            {"engine.ctx=4\n", "--set engine.ctx=4\n: a control character (0x0a)"},
            {"norm.source=a ;b",
                    "--set norm.source=a ;b: ';' in front of a value or after a blank"},
    };
    for (size_t i = 0; i < FAKE_COUNT(rows); i++) {
        struct kiln_config *config = fake_config();
        struct kiln_err err = {0};
        assert_int_equal(kiln_config_add_set(config, rows[i].set, &err), KILN_STATUS_CONFIG);
        if (strncmp(err.text, rows[i].says, strlen(rows[i].says)) != 0) {
            fail_msg("want: %s\ngot:  %s", rows[i].says, err.text);
        }
        kiln_config_destroy(config);
    }
    struct kiln_config *config = fake_config();
    struct kiln_err err = {0};
    fake_set(config, "attention.prefill.variant=fap2");
    fake_set(config, "attention.prefill.FA_TQ=1");
    assert_int_equal(kiln_config_check(config, &fake_catalog, &err), KILN_STATUS_CONFIG);
    assert_string_equal(err.text, "--set: [attention.prefill] FA_TQ: 1 is not allowed; allowed for "
                                  "variant fap2: 16, 32, 48, 64");
    kiln_config_destroy(config);
}

// ---- Settings -----------------------------------------------------------------------------------

static void config_settings_have_defaults_and_layers(void **state) {
    (void)state;
    struct kiln_config *config = fake_checked("");
    const struct kiln_settings *settings = kiln_config_settings(config);
    assert_int_equal(settings->ctx, 0);
    assert_int_equal(settings->ubatch, 512);
    assert_int_equal(settings->threads, 0);
    assert_int_equal(settings->kv_type, KILN_KV_AUTO);
    assert_int_equal(settings->graph, KILN_GRAPH_AUTO);
    assert_null(settings->cache_dir);
    assert_int_equal(settings->cache_max_size, 1 << 30);
    assert_int_equal(settings->tune_at_start, 0);
    assert_int_equal(settings->tune_budget, 60);
    kiln_config_destroy(config);
    config = fake_config();
    fake_add(config, "a.ini",
            "[engine]\nctx=0x1000\nubatch=64\nthreads=3\nkv_type=f16\ngraph=off\n[cache]\n"
            "dir=/var/k\nmax_size=3M\n[tune]\nat_start=true\nbudget=9\n");
    fake_add(config, "b.ini", "[engine]\nubatch=65\r\n");
    fake_set(config, " engine.threads = 4 ");
    fake_check(config, &fake_catalog);
    settings = kiln_config_settings(config);
    assert_int_equal(settings->ctx, 4096);
    assert_int_equal(settings->ubatch, 65);
    assert_int_equal(settings->threads, 4);
    assert_int_equal(settings->kv_type, KILN_KV_F16);
    assert_int_equal(settings->graph, KILN_GRAPH_OFF);
    assert_string_equal(settings->cache_dir, "/var/k");
    assert_int_equal(settings->cache_max_size, 3 << 20);
    assert_int_equal(settings->tune_at_start, 1);
    assert_int_equal(settings->tune_budget, 9);
    kiln_config_destroy(config);
}

// ---- Merging ------------------------------------------------------------------------------------

static void config_layers_merge_by_key(void **state) {
    (void)state;
    struct kiln_config *config = fake_config();
    fake_add(config, "a.ini",
            "[attention.prefill]\nplugin=attention\nvariant=fap2\nFA_TQ=32\n"
            "FA_TKV=16\nwhen=hd=128\n");
    fake_add(config, "b.ini", "[attention.prefill]\nvariant=fap2\nFA_TKV=0x40\n");
    fake_check(config, &fake_catalog_two_fap2);
    const struct kiln_binding *binding = fake_bind(config, "attention.prefill", &fake_dev_h200);
    assert_ptr_equal(binding->plugin, &fake_attention);
    assert_ptr_equal(binding->variant, &fake_fap2);
    assert_string_equal(binding->variant_name, "fap2");
    assert_string_equal(binding->origin, "b.ini:2");
    assert_string_equal(binding->section, "attention.prefill");
    assert_null(binding->source);
    assert_int_equal(binding->geometry.n_values, 2);
    assert_string_equal(binding->geometry.names[1], "FA_TKV");
    assert_int_equal(binding->geometry.values[0], 32);
    assert_int_equal(binding->geometry.values[1], 64);
    struct kiln_bind_query other = fake_query("attention.prefill", &fake_dev_h200);
    other.hd = 64; // the condition of a.ini is still there
    struct kiln_err err = {0};
    assert_int_equal(kiln_config_bind(config, &other, 0, &binding, &err), KILN_STATUS_CONFIG);
    kiln_config_destroy(config);
}

static void config_another_variant_drops_what_was_of_the_old_one(void **state) {
    (void)state;
    struct kiln_config *config = fake_config();
    fake_add(config, "a.ini",
            "[attention.prefill]\nplugin=attention\nvariant=fap2\nFA_TQ=32\n"
            "FA_TKV=16\n");
    fake_add(config, "b.ini", "[attention.prefill]\nFA_BIAS=-3\nvariant=fap1\n");
    fake_check(config, &fake_catalog);
    const struct kiln_binding *binding = fake_bind(config, "attention.prefill", &fake_dev_h200);
    assert_ptr_equal(binding->variant, &fake_fap1);
    assert_int_equal(binding->geometry.values[0], 64);
    assert_int_equal(binding->geometry.values[1], -3);
    kiln_config_destroy(config);

    config = fake_config();
    fake_add(config, "a.ini", "[attention.prefill]\nplugin=attention\nvariant=fap2\nFA_TQ=32\n");
    fake_set(config, "attention.prefill.plugin=mine");
    fake_check(config, &fake_catalog_two_fap2);
    binding = fake_bind(config, "attention.prefill", &fake_dev_h200);
    assert_ptr_equal(binding->plugin, &fake_mine);
    assert_int_equal(binding->geometry.values[0], 64);
    kiln_config_destroy(config);
}

static void config_a_named_section_takes_nothing_from_the_unnamed(void **state) {
    (void)state;
    struct kiln_config *config = fake_config();
    fake_add(config, "a.ini",
            "[attention.prefill]\nvariant=fap2\nFA_TQ=32\n"
            "[attention.prefill/small]\nwhen=m<=64\nvariant=fap2\n");
    fake_set(config, "attention.prefill/small.FA_TKV=48");
    fake_set(config, "attention.prefill/small.when=m<=65, hd=128");
    fake_check(config, &fake_catalog);
    const struct kiln_binding *binding = fake_bind(config, "attention.prefill", &fake_dev_h200);
    assert_string_equal(binding->section, "attention.prefill/small");
    assert_int_equal(binding->geometry.values[0], 64);
    assert_int_equal(binding->geometry.values[1], 48);
    kiln_config_destroy(config);
    expect_error("[attention.prefill]\nvariant=fap2\n[attention.prefill/small]\nFA_TQ=32\n",
            "x.ini:4: [attention.prefill/small] binds no variant: no layer gives this section a "
            "`variant`; add variant = NAME (`kiln plugins list` shows them)");
}

static void config_a_refused_layer_leaves_the_others_alone(void **state) {
    (void)state;
    struct kiln_config *config = fake_config();
    struct kiln_err err = {0};
    static const char bad[] = "[attention.prefill]\nvariant=fap1\nFA_TQ\n";
    fake_add(config, "a.ini", "[attention.prefill]\nvariant=fap2\n");
    assert_int_equal(kiln_config_add_text(config, "b.ini", NULL, bad, strlen(bad), &err),
            KILN_STATUS_CONFIG);
    fake_check(config, &fake_catalog);
    assert_ptr_equal(fake_bind(config, "attention.prefill", &fake_dev_h200)->variant, &fake_fap2);
    kiln_config_destroy(config);
}

// ---- Files --------------------------------------------------------------------------------------

static void write_file(const char *path, const char *text) {
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_write(path, text, strlen(text), &err), KILN_STATUS_OK);
}

// Two configs are the same when they set and bind alike.
static void config_same_looks_at_what_counts(void **state) {
    (void)state;
    static const char base[] = "[attention.prefill]\nvariant = fap2\nFA_TQ = 32\n[norm]\n"
                               "variant = exact\n";
    static const struct {
        const char *text;
        int same;
    } cases[] = {{base, 1},
            {"; a comment\n\n[norm]\nvariant=exact ; here\n[attention.prefill]\nFA_TQ=32\n"
             "variant=fap2\n",
                    1},
            {"[attention.prefill]\nvariant = fap2\nFA_TQ = 64\n[norm]\nvariant = exact\n", 0},
            {"[attention.prefill]\nvariant = fap2\n[norm]\nvariant = exact\n", 0},
            {"[attention.prefill]\nvariant = fap2\nFA_TQ = 32\n", 0},
            {"[attention.prefill]\nvariant = fap2\nFA_TQ = 32\n[norm/a]\nvariant = exact\n", 0},
            {"[attention.prefill]\nvariant = fap2\nFA_TQ = 32\npriority = 1\n[norm]\n"
             "variant = exact\n",
                    0}};
    char dir[] = "/tmp/kiln-config-XXXXXX", ini[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(ini, sizeof(ini), "%s/x.ini", dir);
    const char *const files[] = {ini};
    const char *const sets[] = {"engine.ctx=64"};
    const struct kiln_layers layers = {.files = files, .n_files = 1, .sets = sets, .n_sets = 1};
    struct kiln_layers other = layers;
    struct kiln_err err = {0};
    struct kiln_config *config, *again;
    write_file(ini, base);
    assert_int_equal(kiln_config_load(&config, &layers, &fake_catalog, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_config_settings(config)->ctx, 64);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_file(ini, cases[i].text);
        assert_int_equal(kiln_config_load(&again, &layers, &fake_catalog, &err), KILN_STATUS_OK);
        assert_int_equal(kiln_config_same(config, again), cases[i].same);
        kiln_config_destroy(again);
    }
    write_file(ini, base);
    other.n_sets = 0;
    assert_int_equal(kiln_config_load(&again, &other, &fake_catalog, &err), KILN_STATUS_OK);
    assert_false(kiln_config_same(config, again));
    kiln_config_destroy(again);
    write_file(ini, "[norm]\nvariant = exac\n");
    assert_int_equal(kiln_config_load(&again, &layers, &fake_catalog, &err), KILN_STATUS_CONFIG);
    assert_null(again);
    kiln_config_destroy(config);
    assert_int_equal(unlink(ini), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void config_source_is_relative_to_its_file(void **state) {
    (void)state;
    char dir[] = "/tmp/kiln-config-XXXXXX", ini[64], cu[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(ini, sizeof(ini), "%s/x.ini", dir);
    (void)snprintf(cu, sizeof(cu), "%s/my_fa.cu", dir);
    write_file(ini, "[attention.prefill]\nvariant=fap2\nsource = ./my_fa.cu\n[cache]\ndir = c\n");
    struct kiln_err err = {0};
    char want[256];
    for (int there = 0; there < 3; there++) {
        struct kiln_config *config = fake_config();
        assert_int_equal(kiln_config_add_file(config, ini, &err), KILN_STATUS_OK);
        assert_string_equal(kiln_config_file(config, 0), ini);
        assert_null(kiln_config_file(config, 1));
        enum kiln_status status = kiln_config_check(config, &fake_catalog, &err);
        if (there == 2) {
            assert_int_equal(status, KILN_STATUS_OK);
            assert_string_equal(kiln_config_source(config, 0), cu);
            assert_null(kiln_config_source(config, 1));
            assert_string_equal(fake_bind(config, "attention.prefill", &fake_dev_h200)->source, cu);
            (void)snprintf(want, sizeof(want), "%s/c", dir);
            assert_string_equal(kiln_config_settings(config)->cache_dir, want);
        } else {
            assert_int_equal(status, KILN_STATUS_CONFIG);
            (void)snprintf(want, sizeof(want), "%s:3: [attention.prefill] source: %s%s", ini, cu,
                    there ? " has none of the kernels of variant fap2" : ": cannot");
            assert_memory_equal(err.text, want, strlen(want));
            assert_true(!there || strstr(err.text, "fake_kernel, fake_combine"));
            write_file(cu, there ? "void fake_combine();\n" : "// fake_kernel\n");
        }
        kiln_config_destroy(config);
    }
    expect_error("[norm]\nvariant=exact\nsource=/dev/null\n",
            "x.ini:3: [norm] source: variant exact has no CUDA source that a file could replace");
    struct kiln_config *config = fake_config();
    (void)snprintf(want, sizeof(want), "%s/none.ini", dir);
    assert_int_equal(kiln_config_add_file(config, want, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "none.ini"));
    kiln_config_destroy(config);
    assert_int_equal(unlink(ini), 0);
    assert_int_equal(unlink(cu), 0);
    assert_int_equal(rmdir(dir), 0);
}

// ---- Memory -------------------------------------------------------------------------------------

// Everything once; what stands in the way of a result is a lack of memory and nothing else.
static enum kiln_status run_all(struct kiln_err *err) {
    static const char text[] = "[attention.prefill/a]\nvariant=fap2\nwhen=m<=64,hd=128\nFA_TQ=32\n";
    struct kiln_config *config = NULL;
    const struct kiln_binding *binding = NULL;
    struct kiln_bind_query call = fake_query("matmul.q4_K.prefill", &fake_dev_h200);
    struct kiln_buf shown = {0};
    size_t len = strlen(text);
    enum kiln_status status = kiln_config_create(&config, err);
    status = status ? status : kiln_config_add_text(config, "a.ini", "/tmp", text, len, err);
    status = status ? status : kiln_config_add_set(config, "attention.prefill/a.variant=fap1", err);
    status = status ? status : kiln_config_add_set(config, "matmul.*.prefill.variant=mmq", err);
    status = status ? status : kiln_config_add_set(config, "cache.dir=x", err);
    status = status ? status : kiln_config_check(config, &fake_catalog, err);
    status = status ? status : kiln_config_bind(config, &call, 0, &binding, err);
    if (!status) {
        assert_int_equal(binding->geometry.values[0], 128);
        kiln_config_show(config, &shown);
        status = shown.failed ? KILN_STATUS_NOMEM : KILN_STATUS_OK;
    }
    kiln_buf_clear(&shown);
    status = status ? status : kiln_config_show_json(config, &shown, err);
    kiln_buf_finish(&shown);
    kiln_config_destroy(config);
    return status;
}

static void config_survives_any_failed_allocation(void **state) {
    (void)state;
    for (int sticky = 0; sticky < 2; sticky++) {
        uint64_t n = 1;
        for (; n < 5000; n++) {
            struct kiln_err err = {0};
            kiln_mem_fail_at(n, sticky);
            enum kiln_status status = run_all(&err);
            uint64_t asked = kiln_mem_count();
            kiln_mem_fail_at(0, 0);
            if (asked < n) {
                assert_int_equal(status, KILN_STATUS_OK);
                break;
            }
            assert_int_equal(status, KILN_STATUS_NOMEM);
        }
        assert_in_range(n, 40, 4999);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(config_names_the_misspelled_key),
            cmocka_unit_test(config_names_the_misspelled_section),
            cmocka_unit_test(config_refuses_a_good_key_in_the_wrong_place),
            cmocka_unit_test(config_refuses_duplicates_in_one_file),
            cmocka_unit_test(config_refuses_more_names_than_anyone_needs),
            cmocka_unit_test(config_refuses_values_outside_the_schema),
            cmocka_unit_test(config_refuses_unknown_variants_and_plugins),
            cmocka_unit_test(config_refuses_conditions_it_cannot_read),
            cmocka_unit_test(config_set_says_how_to_write_it),
            cmocka_unit_test(config_settings_have_defaults_and_layers),
            cmocka_unit_test(config_layers_merge_by_key),
            cmocka_unit_test(config_another_variant_drops_what_was_of_the_old_one),
            cmocka_unit_test(config_a_named_section_takes_nothing_from_the_unnamed),
            cmocka_unit_test(config_a_refused_layer_leaves_the_others_alone),
            cmocka_unit_test(config_same_looks_at_what_counts),
            cmocka_unit_test(config_source_is_relative_to_its_file),
            cmocka_unit_test(config_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
