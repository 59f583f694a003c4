// switch: a running engine takes another configuration: by a follower, and by what is edited under
// it. Afterwards it computes what an engine computes that was opened so; what is refused leaves it
// as it was.
#include "open_model.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/reload.h"
#include "engine/switch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char model_name[] = "tiny/llama-f32-gqa4x2.gguf";
enum {
    N_VOCAB = 384,
    N_PROMPT = 9
};

static char folder[] = "/tmp/kiln-switch-XXXXXX";
static char ini[64], moved[64];

// ---- A session with files -----------------------------------------------------------------------

struct running {
    struct kiln_registry *registry;
    struct kiln_config *config;
    struct kiln_session session;
    struct kiln_reload *reload;
    char said[4096]; // every line since it was emptied last
};

static const char *const files[] = {ini};

static void must(enum kiln_status status, const struct kiln_err *err) {
    if (status != KILN_STATUS_OK) {
        fail_msg("%s: %s", kiln_status_name(status), err->text);
    }
}

static void write_ini(const char *text) {
    FILE *file = fopen(ini, "w"); // in place, as some editors do
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void hear(void *arg, int note, const char *line) {
    struct running *r = arg;
    size_t len = strlen(r->said);
    (void)snprintf(r->said + len, sizeof(r->said) - len, "%d %s\n", note, line);
}

static struct kiln_layers layers_of(const char *const *sets) {
    size_t n = 0;
    while (sets && sets[n]) {
        n++;
    }
    return (struct kiln_layers){.files = files, .n_files = 1, .sets = sets, .n_sets = n};
}

static struct kiln_config *load(const struct running *r, const char *const *sets) {
    struct kiln_err err = {0};
    struct kiln_config *config;
    struct kiln_layers layers = layers_of(sets);
    struct kiln_catalog catalog = {.plugins = kiln_registry_plugins(r->registry),
            .n_plugins = kiln_registry_count(r->registry)};
    must(kiln_config_load(&config, &layers, &catalog, &err), &err);
    return config;
}

static void open_running(struct running *r, const char *const *sets) {
    struct kiln_err err = {0};
    char dir[4096], fuse[4096];
    *r = (struct running){.registry = NULL};
    snprintf(dir, sizeof(dir), "%s/plugins", getenv("KILN_TEST_BUILD"));
    snprintf(fuse, sizeof(fuse), "%s/tests/plugins_fuse/fuse.so", getenv("KILN_TEST_BUILD"));
    must(kiln_registry_create(&r->registry, &err), &err);
    must(kiln_registry_add_dir(r->registry, dir, &err), &err);
    must(kiln_registry_add_file(r->registry, fuse, &err), &err);
    r->config = load(r, sets);
    struct kiln_session_params params = {.model_path = golden_path(model_name),
            .device = "cpu",
            .registry = r->registry,
            .config = r->config};
    must(kiln_session_open(&r->session, &params, &err), &err);
    struct kiln_reload_params reload = {.session = &r->session,
            .registry = r->registry,
            .config = &r->config,
            .layers = layers_of(sets),
            .say = hear,
            .arg = r};
    must(kiln_reload_create(&r->reload, &reload, &err), &err);
}

static void close_running(struct running *r) {
    kiln_reload_destroy(r->reload);
    kiln_session_close(&r->session);
    kiln_config_destroy(r->config);
    kiln_registry_destroy(r->registry);
}

static void feed(struct running *r, int32_t n, float *logits) {
    int32_t ids[N_PROMPT];
    struct kiln_err err = {0};
    for (int32_t i = 0; i < n; i++) {
        ids[i] = i * 37 % N_VOCAB;
    }
    must(kiln_engine_eval(r->session.engine, ids, n, logits, &err), &err);
}

static void settle(struct running *r) {
    struct kiln_err err = {0};
    r->said[0] = '\0';
    must(kiln_reload_settle(r->reload, &err), &err);
}

static void expect_said(const struct running *r, const char *text) {
    if (!strstr(r->said, text)) {
        fail_msg("'%s' was not said, but:\n%s", text, r->said);
    }
}

// What an engine gives that is opened with the file as it is now.
static void expect_as_opened(struct running *r, const char *const *sets) {
    static float now[N_VOCAB], fresh[N_VOCAB];
    struct running other;
    open_running(&other, sets);
    for (int32_t n = N_PROMPT; n > 0; n -= N_PROMPT - 1) {
        kiln_engine_truncate(r->session.engine, 0);
        kiln_engine_truncate(other.session.engine, 0);
        feed(r, n, now);
        feed(&other, n, fresh);
        assert_memory_equal(now, fresh, sizeof(now));
    }
    close_running(&other);
}

static uint64_t bytes_of(const struct running *r) {
    return kiln_engine_bytes(r->session.engine);
}

// ---- Followers ----------------------------------------------------------------------------------

static void switch_keeps_what_the_caches_hold(void **state) {
    (void)state;
    static float stayed[N_VOCAB], switched[N_VOCAB], fresh[N_VOCAB];
    static const char *const sets[] = {"matmul.f32.decode.variant=prepared", NULL};
    struct running r, other;
    struct kiln_err err = {0};
    struct kiln_follower *follower;
    write_ini("");
    open_running(&r, NULL);
    feed(&r, N_PROMPT, stayed);
    struct kiln_config *config = load(&r, sets);
    must(kiln_follower_begin(&follower, r.session.engine, config, &err), &err);
    must(kiln_follower_build(follower, r.session.dev, &err), &err);
    feed(&r, 1, stayed); // it serves meanwhile
    assert_false(kiln_follower_forgets(follower));
    must(kiln_follower_take(follower, &err), &err);
    kiln_config_destroy(r.config);
    r.config = config;
    assert_int_equal(kiln_engine_n_past(r.session.engine), N_PROMPT + 1);
    feed(&r, 1, switched);
    open_running(&other, sets); // the same tokens by one that always was so
    feed(&other, N_PROMPT, fresh);
    feed(&other, 1, fresh);
    feed(&other, 1, fresh);
    for (size_t i = 0; i < N_VOCAB; i++) {
        assert_true(switched[i] - fresh[i] < 1e-3F && fresh[i] - switched[i] < 1e-3F);
    }
    close_running(&other);
    close_running(&r);
}

static void switch_drops_a_follower(void **state) {
    (void)state;
    static float before[N_VOCAB], after[N_VOCAB];
    static const char *const sets[] = {"matmul.f32.prefill.variant=prepared", NULL};
    static const char *const fails[] = {"matmul.f32.decode.variant=fails", NULL};
    struct running r;
    struct kiln_err err = {0};
    struct kiln_follower *follower;
    write_ini("");
    open_running(&r, NULL);
    feed(&r, N_PROMPT, before);
    uint64_t bytes = bytes_of(&r);
    struct kiln_config *config = load(&r, sets), *broken = load(&r, fails);
    must(kiln_follower_begin(&follower, r.session.engine, config, &err), &err);
    must(kiln_follower_build(follower, r.session.dev, &err), &err);
    assert_true(bytes_of(&r) > bytes); // what it prepared is in the set that both share
    kiln_follower_destroy(follower);
    must(kiln_follower_begin(&follower, r.session.engine, broken, &err), &err);
    assert_int_equal(kiln_follower_build(follower, r.session.dev, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "broken on purpose"));
    kiln_follower_destroy(follower);
    assert_int_equal(bytes_of(&r), bytes);
    kiln_engine_truncate(r.session.engine, 0);
    feed(&r, N_PROMPT, after);
    assert_memory_equal(before, after, sizeof(before));
    kiln_config_destroy(config);
    kiln_config_destroy(broken);
    close_running(&r);
}

// Every allocation of begin and build fails once: nothing is lost and what runs goes on.
static void switch_survives_lack_of_memory(void **state) {
    (void)state;
    static const char *const sets[] = {"matmul.f32.prefill.variant=prepared", NULL};
    struct running r;
    write_ini("");
    open_running(&r, NULL);
    struct kiln_config *config = load(&r, sets);
    uint64_t bytes = bytes_of(&r);
    enum kiln_status status = KILN_STATUS_NOMEM;
    for (uint64_t n = 1; status != KILN_STATUS_OK; n += n < 40 ? 1 : n / 8) {
        struct kiln_err err = {0};
        struct kiln_follower *follower = NULL;
        kiln_mem_fail_at(n, 1);
        status = kiln_follower_begin(&follower, r.session.engine, config, &err);
        if (status == KILN_STATUS_OK) {
            status = kiln_follower_build(follower, r.session.dev, &err);
        }
        kiln_mem_fail_at(0, 0);
        assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM);
        kiln_follower_destroy(follower);
        assert_int_equal(bytes_of(&r), bytes);
    }
    kiln_config_destroy(config);
    close_running(&r);
}

// ---- Edits --------------------------------------------------------------------------------------

static void switch_follows_an_edit(void **state) {
    (void)state;
    struct running r;
    static float logits[N_VOCAB];
    write_ini("[matmul.f32.prefill]\nvariant = plain\n");
    open_running(&r, NULL);
    feed(&r, N_PROMPT, logits);
    write_ini("[matmul.f32.prefill]\nvariant = prepared\nPAD = 2\n");
    settle(&r);
    expect_said(&r, "0 matmul.f32.prefill: fuse/plain -> fuse/prepared PAD=2 (14 steps)\n");
    expect_said(&r, "0 switched in ");
    expect_said(&r, "weights: 14 prepared, 0 as before");
    assert_int_equal(kiln_reload_count(r.reload), 1);
    expect_as_opened(&r, NULL);
    write_ini("[matmul.f32.prefill]\nvariant = prepared\nPAD = 2\n[norm/x]\nwhen = layer=0\n"
              "variant = exact\n");
    settle(&r); // another binding, the same preparations
    assert_int_equal(kiln_reload_count(r.reload), 2);
    expect_said(&r, "weights: 0 prepared, ");
    write_ini("[matmul.f32.prefill]\nvariant = prepared\nPAD = 3\n");
    uint64_t bytes = bytes_of(&r);
    settle(&r);
    expect_said(&r, "fuse/prepared PAD=2 -> fuse/prepared PAD=3");
    assert_int_equal(bytes_of(&r), bytes); // what nobody uses any more is gone
    close_running(&r);
}

static void switch_needs_a_difference(void **state) {
    (void)state;
    struct running r;
    write_ini("[matmul.f32.prefill]\nvariant = plain\n");
    open_running(&r, NULL);
    settle(&r);
    assert_string_equal(r.said, ""); // the first look says nothing where nothing is new
    write_ini("; a comment\n\n[matmul.f32.prefill]\nvariant    = plain ; and another\n");
    settle(&r);
    assert_string_equal(
            r.said, "1 the configuration was written again; nothing in force has changed\n");
    assert_int_equal(kiln_reload_count(r.reload), 0);
    close_running(&r);
}

// An edit between reading the files at the start and the first look is not lost.
static void switch_sees_an_early_edit(void **state) {
    (void)state;
    struct running r;
    write_ini("");
    open_running(&r, NULL);
    struct kiln_config *config = r.config;
    static const char *const sets[] = {"norm/x.variant=exact", "norm/x.when=layer=0", NULL};
    r.config = load(&r, sets); // as if the file had said so at the start
    settle(&r);
    assert_int_equal(kiln_reload_count(r.reload), 1);
    kiln_config_destroy(config); // the engine had it in force until then
    close_running(&r);
}

static void switch_refuses_and_stays(void **state) {
    (void)state;
    struct running r;
    static float before[N_VOCAB], after[N_VOCAB];
    write_ini("[matmul.f32.prefill]\nvariant = plain\n");
    open_running(&r, NULL);
    feed(&r, N_PROMPT, before);
    static const struct {
        const char *text, *why;
    } cases[] = {
            {"[matmul.f32.prefill]\nvariant = plane\n", ":2: [matmul.f32.prefill] variant: no "},
            {"[matmul.f32.prefill]\nvariant = prepared\nPAD = x\n", ":3: [matmul.f32.prefill] PAD"},
            {"[matmul.f32.prefill\n", ":1:"},
            {"[matmul.f32.decode]\nvariant = fails\n", "broken on purpose"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_ini(cases[i].text);
        settle(&r);
        expect_said(&r, "0 not switched, the configuration in force stays: ");
        expect_said(&r, cases[i].why);
        char *first = strstr(r.said, "not switched");
        assert_null(strstr(first + 1, "not switched")); // said once
    }
    assert_int_equal(unlink(ini), 0);
    settle(&r);
    expect_said(&r, "cannot open it: No such file");
    assert_int_equal(kiln_reload_count(r.reload), 0);
    kiln_engine_truncate(r.session.engine, 0);
    feed(&r, N_PROMPT, after);
    assert_memory_equal(before, after, sizeof(before));
    write_ini("[matmul.f32.prefill]\nvariant = prepared\n"); // and it is followed again
    settle(&r);
    assert_int_equal(kiln_reload_count(r.reload), 1);
    close_running(&r);
}

// Editors write another file and rename it; some write in pieces.
static void switch_sees_renames_and_pieces(void **state) {
    (void)state;
    static const char whole[] = "[matmul.f32.prefill]\nvariant = plain\n";
    struct running r;
    struct kiln_err err = {0};
    write_ini(whole);
    open_running(&r, NULL);
    settle(&r);
    assert_int_equal(rename(ini, moved), 0);
    must(kiln_reload_poll(r.reload, 1, &err), &err);
    must(kiln_file_write(ini, "[matmul.f32.prefill]\nvariant = prepared\n", 40, &err), &err);
    settle(&r);
    assert_int_equal(kiln_reload_count(r.reload), 1);
    assert_null(strstr(r.said, "not switched"));
    write_ini("[matmul.f32.prefill]\nvar"); // half of it, then the rest
    double start = kiln_clock_seconds();
    while (kiln_clock_seconds() - start < 0.05) {
        must(kiln_reload_poll(r.reload, 1, &err), &err);
    }
    write_ini(whole);
    settle(&r);
    assert_int_equal(kiln_reload_count(r.reload), 2);
    assert_null(strstr(r.said, "not switched"));
    close_running(&r);
}

// Between the tokens of an answer, while it is built beside.
static void switch_happens_between_steps(void **state) {
    (void)state;
    static float logits[N_VOCAB];
    struct running r;
    struct kiln_err err = {0};
    write_ini("[engine]\nctx = 256\n");
    open_running(&r, NULL);
    feed(&r, N_PROMPT, logits);
    write_ini("[engine]\nctx = 256\n[matmul.f32.decode]\nvariant = prepared\n");
    int64_t n = N_PROMPT;
    double start = kiln_clock_seconds();
    while (kiln_reload_count(r.reload) == 0 && kiln_clock_seconds() - start < 20) {
        must(kiln_reload_poll(r.reload, 0, &err), &err);
        if (n < 200) {
            feed(&r, 1, logits);
            n++;
        }
    }
    assert_int_equal(kiln_reload_count(r.reload), 1);
    assert_int_equal(kiln_engine_n_past(r.session.engine), n);
    // Caches of another length: not in the middle of an answer.
    write_ini("[engine]\nctx = 128\n[matmul.f32.decode]\nvariant = prepared\n");
    start = kiln_clock_seconds();
    while (kiln_clock_seconds() - start < 0.3) {
        must(kiln_reload_poll(r.reload, 0, &err), &err);
    }
    assert_int_equal(kiln_reload_count(r.reload), 1);
    settle(&r);
    assert_int_equal(kiln_reload_count(r.reload), 2);
    expect_said(&r, "the caches are new");
    assert_int_equal(kiln_engine_ctx(r.session.engine), 128);
    assert_int_equal(kiln_engine_n_past(r.session.engine), 0);
    expect_as_opened(&r, NULL);
    close_running(&r);
}

static void switch_takes_what_is_set_by_hand(void **state) {
    (void)state;
    struct running r;
    struct kiln_err err = {0};
    static const char *const sets[] = {"engine.ctx=256", NULL};
    write_ini("[matmul.f32.prefill]\nvariant = plain\n");
    open_running(&r, sets);
    must(kiln_reload_set(r.reload, "matmul.f32.prefill.variant=prepared", &err), &err);
    assert_int_equal(kiln_reload_count(r.reload), 1);
    assert_int_equal(
            kiln_reload_set(r.reload, "matmul.f32.prefill.PAD=99", &err), KILN_STATUS_CONFIG);
    assert_non_null(strstr(err.text, "PAD"));
    assert_int_equal(kiln_reload_set(r.reload, "nonsense", &err), KILN_STATUS_CONFIG);
    assert_int_equal(kiln_reload_count(r.reload), 1);
    // What is set stays on top of what the file says later, and so does --set.
    write_ini("[matmul.f32.prefill]\nvariant = plain\n[engine]\nctx = 64\nubatch = 4\n");
    settle(&r);
    struct kiln_buf text = {0};
    kiln_engine_summary(r.session.engine, &text);
    kiln_reload_describe(r.reload, &text);
    assert_non_null(strstr(text.data, "matmul.f32.prefill: fuse/prepared PAD="));
    assert_non_null(strstr(text.data, "set matmul.f32.prefill.variant=prepared\n"));
    assert_null(strstr(text.data, "nonsense"));
    kiln_buf_finish(&text);
    assert_int_equal(kiln_engine_ctx(r.session.engine), 256);
    assert_int_equal(kiln_engine_ubatch(r.session.engine), 4);
    static const char *const all[] = {
            "engine.ctx=256", "matmul.f32.prefill.variant=prepared", NULL};
    expect_as_opened(&r, all);
    close_running(&r);
}

// A file that can be read only once is not read again.
static void switch_leaves_pipes_alone(void **state) {
    (void)state;
    struct running r;
    struct kiln_err err = {0};
    write_ini("");
    open_running(&r, NULL);
    kiln_reload_destroy(r.reload);
    static const char *const pipe[] = {"/dev/null"};
    struct kiln_reload_params params = {.session = &r.session,
            .registry = r.registry,
            .config = &r.config,
            .layers = {.files = pipe, .n_files = 1},
            .say = hear,
            .arg = &r};
    must(kiln_reload_create(&r.reload, &params, &err), &err);
    settle(&r);
    assert_string_equal(r.said, "");
    assert_int_equal(kiln_reload_set(r.reload, "engine.ctx=64", &err), KILN_STATUS_USAGE);
    close_running(&r);
}

static int setup(void **state) {
    (void)state;
    if (!mkdtemp(folder)) {
        return -1;
    }
    snprintf(ini, sizeof(ini), "%s/a.ini", folder);
    snprintf(moved, sizeof(moved), "%s/b.ini", folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    (void)unlink(ini);
    (void)unlink(moved);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(switch_keeps_what_the_caches_hold),
            cmocka_unit_test(switch_drops_a_follower),
            cmocka_unit_test(switch_survives_lack_of_memory),
            cmocka_unit_test(switch_follows_an_edit),
            cmocka_unit_test(switch_needs_a_difference),
            cmocka_unit_test(switch_sees_an_early_edit),
            cmocka_unit_test(switch_refuses_and_stays),
            cmocka_unit_test(switch_sees_renames_and_pieces),
            cmocka_unit_test(switch_happens_between_steps),
            cmocka_unit_test(switch_takes_what_is_set_by_hand),
            cmocka_unit_test(switch_leaves_pipes_alone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
