// switch_cuda: switching on the CUDA device, whose driver is one that only keeps books
// (tests/fake_cuda): what is compiled, loaded, recorded and freed, and that nothing is used after
// it is gone. Kernels are compiled by NVRTC; skipped where there is none.
#include "base/file.h"
#include "base/mem.h"
#include "engine/reload.h"
#include "engine/switch.h"
#include "jit/nvrtc.h"
#include "fake_cuda.h"
#include "open_model.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum {
    N_PROMPT = 5,
    N_VOCAB = 512
};

static char folder[] = "/tmp/kiln-switch-XXXXXX";
static char ini[64], source[64], header[64];
static const char *const files[] = {ini};
static long (*count)(int what);

struct running {
    struct kiln_registry *registry;
    struct kiln_config *config;
    struct kiln_session session;
    struct kiln_reload *reload;
    char said[4096];
};

static void must(enum kiln_status status, const struct kiln_err *err) {
    if (status != KILN_STATUS_OK) {
        fail_msg("%s: %s", kiln_status_name(status), err->text);
    }
}

static void write_file(const char *path, const char *text) {
    struct kiln_err err = {0};
    must(kiln_file_write(path, text, strlen(text), &err), &err);
}

static void hear(void *arg, int note, const char *line) {
    struct running *r = arg;
    size_t len = strlen(r->said);
    (void)snprintf(r->said + len, sizeof(r->said) - len, "%d %s\n", note, line);
}

static void open_running(struct running *r) {
    struct kiln_err err = {0};
    char dir[4096];
    const struct kiln_layers layers = {.files = files, .n_files = 1};
    *r = (struct running){.registry = NULL};
    snprintf(dir, sizeof(dir), "%s/plugins", getenv("KILN_TEST_BUILD"));
    must(kiln_registry_create(&r->registry, &err), &err);
    must(kiln_registry_add_dir(r->registry, dir, &err), &err);
    struct kiln_catalog catalog = {.plugins = kiln_registry_plugins(r->registry),
            .n_plugins = kiln_registry_count(r->registry)};
    must(kiln_config_load(&r->config, &layers, &catalog, &err), &err);
    struct kiln_session_params params = {
            .model_path = golden_path("tiny/qwen2-q4_k_m-hd128-untied.gguf"),
            .device = "cuda",
            .registry = r->registry,
            .config = r->config};
    must(kiln_session_open(&r->session, &params, &err), &err);
    struct kiln_reload_params reload = {.session = &r->session,
            .registry = r->registry,
            .config = &r->config,
            .layers = layers,
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

// A prompt and two tokens: every schedule runs, the decode graph is recorded and replayed.
static void answer(struct running *r) {
    static float logits[N_VOCAB];
    static const int32_t ids[N_PROMPT] = {1, 5, 9, 2, 7};
    struct kiln_err err = {0};
    kiln_engine_truncate(r->session.engine, 0);
    must(kiln_engine_eval(r->session.engine, ids, N_PROMPT, logits, &err), &err);
    must(kiln_engine_eval(r->session.engine, ids, 1, logits, &err), &err);
    must(kiln_engine_eval(r->session.engine, ids, 1, logits, &err), &err);
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

// "kernels: N compiled, N from the cache, ..."
static void expect_kernels(const struct running *r, int compiled, int cached) {
    char text[64];
    snprintf(text, sizeof(text), "kernels: %d compiled, %d from the cache, ", compiled, cached);
    expect_said(r, text);
}

// ---- Cases --------------------------------------------------------------------------------------

static void switch_compiles_what_changed(void **state) {
    (void)state;
    struct running r;
    write_file(ini, "");
    open_running(&r);
    answer(&r);
    long loads = count(FAKE_CUDA_MODULE_LOADS), records = count(FAKE_CUDA_RECORDS);
    long graphs = count(FAKE_CUDA_GRAPHS);
    assert_true(loads > 5 && loads < 40); // one for kernels alike, not one a layer
    write_file(ini, "[norm]\nvariant = rms\nTHREADS = 512\n");
    settle(&r);
    expect_said(&r, "0 norm: elementwise/rms THREADS=1024 THREADS_MANY=128 -> elementwise/rms "
                    "THREADS=512 THREADS_MANY=128 (");
    expect_kernels(&r, 1, 0);
    assert_int_equal(count(FAKE_CUDA_MODULE_LOADS), loads + 1);
    answer(&r);
    assert_int_equal(count(FAKE_CUDA_RECORDS), records + 2); // of body and head, anew
    assert_int_equal(count(FAKE_CUDA_GRAPHS), graphs);       // the old ones are gone
    long bytes = count(FAKE_CUDA_BYTES); // the pool keeps room for both sides of a switch
    write_file(ini, "");                 // back: nothing to compile or load
    settle(&r);
    expect_kernels(&r, 0, 0);
    assert_int_equal(count(FAKE_CUDA_MODULE_LOADS), loads + 1);
    answer(&r);
    assert_int_equal(count(FAKE_CUDA_BYTES), bytes); // weights and caches are the same
    close_running(&r);
    assert_int_equal(count(FAKE_CUDA_BYTES), 0);
    assert_int_equal(count(FAKE_CUDA_MODULES), 0);
    assert_int_equal(count(FAKE_CUDA_STREAMS), 0);
    assert_int_equal(count(FAKE_CUDA_GRAPHS), 0);
}

// Another process's compile is taken from the disk.
static void switch_takes_from_the_cache(void **state) {
    (void)state;
    struct running r;
    write_file(ini, "");
    open_running(&r);
    write_file(ini, "[norm]\nvariant = rms\nTHREADS = 512\n");
    settle(&r);
    expect_kernels(&r, 0, 1);
    answer(&r);
    close_running(&r);
}

static void copy_norm(const char *more) {
    char path[4096];
    struct kiln_err err = {0};
    struct kiln_buf text = {0};
    char *data;
    size_t size;
    snprintf(path, sizeof(path), "%s/kernels_src/elementwise/ew_norm.cu", getenv("KILN_TEST_SRC"));
    must(kiln_file_read(path, 1 << 20, &data, &size, &err), &err);
    kiln_buf_puts(&text, "#include \"mine.cuh\"\n");
    kiln_buf_puts(&text, data);
    kiln_buf_puts(&text, more);
    write_file(source, text.data);
    kiln_buf_finish(&text);
    kiln_free(data);
}

static void switch_follows_a_source(void **state) {
    (void)state;
    struct running r;
    write_file(header, "#define MINE 1\n");
    copy_norm("");
    write_file(ini, "[norm]\nvariant = rms\nsource = ./my_norm.cu\n");
    open_running(&r);
    answer(&r);
    write_file(header, "#define MINE 2\n");
    settle(&r);
    expect_said(&r, "my_norm.cu, edited (");
    expect_kernels(&r, 1, 0);
    copy_norm("__device__ int more;\n");
    settle(&r);
    expect_kernels(&r, 1, 0);
    copy_norm("int more = ;\n");
    settle(&r);
    expect_said(&r, "0 not switched, the configuration in force stays: elementwise/rms kernel");
    expect_said(&r, source);
    expect_said(&r, "geometry KILN_SMEM=0 OUT_Q8=0 THREADS=1024 THREADS_MANY=128");
    assert_int_equal(kiln_reload_count(r.reload), 2);
    answer(&r); // what was compiled before runs on
    copy_norm("__device__ int more;\n// the same kernel\n");
    settle(&r);
    assert_int_equal(kiln_reload_count(r.reload), 3);
    write_file(source, "// no kernel\n");
    settle(&r);
    expect_said(&r, ":3: [norm] source: ");
    expect_said(&r, "has none of the kernels of variant rms");
    assert_int_equal(unlink(source), 0);
    settle(&r);
    expect_said(&r, ":3: [norm] source: ");
    expect_said(&r, "No such file");
    copy_norm("");
    settle(&r); // seen although it was another file that was not good
    assert_int_equal(kiln_reload_count(r.reload), 4);
    answer(&r);
    close_running(&r);
    assert_int_equal(count(FAKE_CUDA_BYTES), 0);
    assert_int_equal(count(FAKE_CUDA_MODULES), 0);
}

// More shared memory than the device has: refused as at the start.
static void switch_refuses_a_plan(void **state) {
    (void)state;
    struct running r;
    struct kiln_err err = {0};
    write_file(ini, "");
    open_running(&r);
    enum kiln_status status = kiln_reload_set(r.reload, "attention.prefill.FA_TQ=1000", &err);
    assert_int_equal(status, KILN_STATUS_CONFIG);
    assert_int_equal(
            kiln_reload_set(r.reload, "norm.source=/nonexistent", &err), KILN_STATUS_CONFIG);
    assert_non_null(strstr(err.text, "/nonexistent"));
    answer(&r);
    close_running(&r);
}

static int setup(void **state) {
    (void)state;
    if (!mkdtemp(folder)) {
        return -1;
    }
    snprintf(ini, sizeof(ini), "%s/a.ini", folder);
    snprintf(source, sizeof(source), "%s/my_norm.cu", folder);
    snprintf(header, sizeof(header), "%s/mine.cuh", folder);
    return setenv("KILN_CACHE_DIR", folder, 1);
}

static int teardown(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command); // NOLINT(cert-env33-c): a name that mkdtemp made
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(switch_compiles_what_changed),
            cmocka_unit_test(switch_takes_from_the_cache),
            cmocka_unit_test(switch_follows_a_source),
            cmocka_unit_test(switch_refuses_a_plan),
    };
    struct kiln_nvrtc *nvrtc;
    struct kiln_err err = {0};
    if (kiln_nvrtc_open(&nvrtc, &err) != KILN_STATUS_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    kiln_nvrtc_close(nvrtc);
    void *library = dlopen(getenv("KILN_CUDA"), RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "fake_cuda_count") : NULL;
    if (!symbol) {
        printf("%s\n", dlerror());
        return 1;
    }
    memcpy(&count, &symbol, sizeof(count));
    return cmocka_run_group_tests(tests, setup, teardown);
}
