// test_registry: what is loaded, what is refused and in which words.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // setenv, mkdtemp
#endif
#include "plugin/registry.h"

#include "base/file.h"
#include "base/mem.h"
#include "plugin/arena.h"
#include "plugin/describe.h"
#include "plugin/import.h"
#include "plugin/library.h"
#include "plugin/schema.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#if defined(__SANITIZE_ADDRESS__)
#    define KEPT_OPEN 1
#elif defined(__has_feature)
#    define KEPT_OPEN __has_feature(address_sanitizer)
#else
#    define KEPT_OPEN 0
#endif

static char bad_dir[2048]; // where the build put tests/plugins_bad
static char temp_dir[64];

static int set_up(void **state) {
    (void)state;
    const char *build = getenv("KILN_TEST_BUILD");
    if (!build) {
        return -1;
    }
    (void)snprintf(bad_dir, sizeof(bad_dir), "%s/tests/plugins_bad", build);
    (void)snprintf(temp_dir, sizeof(temp_dir), "/tmp/kiln-registry-XXXXXX");
    (void)unsetenv("KILN_PLUGIN_PATH");
    return mkdtemp(temp_dir) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf %s", temp_dir);
    return system(command);
}

static char *bad(const char *name) {
    static char path[2200];
    (void)snprintf(path, sizeof(path), "%s/%s.so", bad_dir, name);
    return path;
}

// A path below temp_dir; the caller frees it.
static char *temp(const char *name) {
    char *path = kiln_asprintf("%s/%s", temp_dir, name);
    assert_non_null(path);
    return path;
}

static struct kiln_registry *create(void) {
    struct kiln_registry *registry = NULL;
    struct kiln_err err = {0};
    assert_int_equal(kiln_registry_create(&registry, &err), KILN_STATUS_OK);
    return registry;
}

static void assert_added(struct kiln_registry *registry, const char *path) {
    struct kiln_err err = {0};
    enum kiln_status status = kiln_registry_add_file(registry, path, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(status, KILN_STATUS_OK);
}

// The whole message: "PATH: TEXT", with PATH put for every %s of `fmt`, at most three.
static void assert_refused_as(const char *path, const char *fmt) {
    struct kiln_registry *registry = create();
    struct kiln_err err = {0};
    char expected[4096] = "";
    size_t len = 0;
    for (const char *at = fmt; *at; at++) {
        int is_path = at[0] == '%' && at[1] == 's';
        len += (size_t)snprintf(expected + len, sizeof(expected) - len, "%.*s",
                is_path ? (int)strlen(path) : 1, is_path ? path : at);
        at += is_path;
    }
    assert_int_equal(kiln_registry_add_file(registry, path, &err), KILN_STATUS_FILE);
    assert_string_equal(err.text, expected);
    assert_int_equal(err.status, KILN_STATUS_FILE);
    assert_int_equal(kiln_registry_count(registry), 0);
    kiln_registry_destroy(registry);
}

static void write_file(const char *path, const char *text) {
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_write(path, text, strlen(text), &err), KILN_STATUS_OK);
}

// ---- Refused files -----------------------------------------------------------------------------
static void registry_names_both_majors(void **state) {
    (void)state;
    (void)unsetenv("KILN_TEST_MAJOR_CALLED");
    assert_refused_as(bad("major"),
            "%s: built for plugin ABI 2.0, this kiln has 1.0; rebuild the plugin against this "
            "kiln's header or get a kiln with ABI 2");
    // dlopen has run the constructor, which nobody can keep it from; nothing else has run.
    assert_non_null(getenv("KILN_TEST_MAJOR_CONSTRUCTED"));
    assert_null(getenv("KILN_TEST_MAJOR_CALLED"));
    if (!KEPT_OPEN) {
        assert_null(dlopen(bad("major"), RTLD_NOW | RTLD_NOLOAD)); // it has been closed
    }
}

static void registry_refuses_wrong_sizes(void **state) {
    (void)state;
    assert_refused_as(bad("short_struct"),
            "%s: kiln_plugin_entry: struct_size 72, ABI 1.0 has 80; build the plugin anew, all of "
            "it with one kiln/plugin.h");
    assert_refused_as(bad("long_struct"),
            "%s: kiln_plugin_entry: struct_size 88, ABI 1.0 has 80; build the plugin anew, all of "
            "it with one kiln/plugin.h");
}

static void registry_tells_five_load_failures_apart(void **state) {
    (void)state;
    assert_refused_as(bad("needs"),
            "%s: needs the library 'libkiln_nodep.so.1', which is not there; install it or add its "
            "folder to LD_LIBRARY_PATH (loader: libkiln_nodep.so.1: cannot open shared object "
            "file: No such file or directory)");
    assert_refused_as(bad("no_entry"),
            "%s: no symbol 'kiln_plugin_entry'; it is not a kiln plugin, or its entry is not "
            "marked "
            "KILN_EXPORT (loader: %s: undefined symbol: kiln_plugin_entry)");
    assert_refused_as("/nonexistent/folder/fa.so",
            "%s: the file does not exist; check the path (loader: %s: cannot open shared object "
            "file: No such file or directory)");
    char *text = temp("fa.so"), *empty = temp("empty.so");
    write_file(text, "this is text, long enough to hold the head of an ELF file, but it is not\n");
    assert_refused_as(text, "%s: not a shared library (no ELF header); name a file made by `cc "
                            "-shared -fPIC` (loader: %s: invalid ELF header)");
    write_file(empty, "");
    assert_refused_as(empty,
            "%s: the file is empty; build or copy the plugin again (loader: %s: file too short)");
    kiln_free(text);
    kiln_free(empty);
}

static void registry_refuses_a_folder_and_a_pipe(void **state) {
    (void)state;
    char *pipe = temp("pipe.so"), *folder = temp("folder.so");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_refused_as(pipe, "%s: not a regular file; name the plugin's .so file itself");
    assert_refused_as(folder, "%s: not a regular file; name the plugin's .so file itself");
    kiln_free(pipe);
    kiln_free(folder);
}

static void registry_binds_at_load(void **state) {
    (void)state;
    assert_refused_as(bad("undefined"),
            "%s: refers to 'kiln_no_such_fn', which neither its libraries nor kiln have; link the "
            "plugin against what defines it or drop the reference (loader: %s: undefined symbol: "
            "kiln_no_such_fn)");
}

static void registry_keeps_the_first_of_one_name(void **state) {
    (void)state;
    struct kiln_registry *registry = create();
    struct kiln_err err = {0};
    char first[2200], expected[6000];
    (void)snprintf(first, sizeof(first), "%s", bad("twin_a"));
    assert_added(registry, first);
    assert_int_equal(kiln_registry_add_file(registry, bad("twin_b"), &err), KILN_STATUS_FILE);
    (void)snprintf(expected, sizeof(expected),
            "%s: the plugin name 'twin' is taken by %s, which stays; remove one of the two files "
            "or rename a plugin",
            bad("twin_b"), first);
    assert_string_equal(err.text, expected);
    assert_int_equal(kiln_registry_count(registry), 1);
    assert_string_equal(kiln_registry_path(registry, 0), first);
    kiln_registry_destroy(registry);
}

// ---- Good ones -----------------------------------------------------------------------------
static void registry_opens_a_file_once(void **state) {
    (void)state;
    struct kiln_registry *registry = create();
    char *link = temp("link.so"), *hard = temp("hard.so");
    assert_int_equal(symlink(bad("good"), link), 0);
    assert_added(registry, bad("good"));
    assert_added(registry, bad("good"));
    assert_added(registry, link);
    if (symlink(link, hard) == 0) { // a link to a link
        assert_added(registry, hard);
    }
    assert_int_equal(kiln_registry_count(registry), 1);
    assert_int_equal(kiln_registry_n_refusals(registry), 0);
    kiln_registry_destroy(registry);
    (void)unlink(link);
    (void)unlink(hard);
    kiln_free(link);
    kiln_free(hard);
}

static void copy_file(const char *from, const char *to) {
    char *data = NULL;
    size_t size = 0;
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_read(from, 1 << 26, &data, &size, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_file_write(to, data, size, &err), KILN_STATUS_OK);
    kiln_free(data);
}

static void registry_reads_folders_and_goes_on_after_a_refusal(void **state) {
    (void)state;
    struct kiln_registry *registry = create();
    struct kiln_err err = {0};
    char *dir = temp("plugins"), *sub = temp("plugins/sub"), *deep = temp("plugins/sub/deep");
    char *good = temp("plugins/a_good.so"), *copy = temp("plugins/sub/copy.so"),
         *major = temp("plugins/b_major.so"), *twin = temp("plugins/sub/twin.so"),
         *other = temp("plugins/readme.txt"), *below = temp("plugins/sub/deep/never.so"),
         *again = temp("plugins/sub/again.so");
    assert_int_equal(mkdir(dir, 0700) | mkdir(sub, 0700) | mkdir(deep, 0700), 0);
    copy_file(bad("good"), good);
    copy_file(bad("good"), copy);
    copy_file(bad("major"), major);
    copy_file(bad("twin_a"), twin);
    write_file(other, "not looked at\n");
    write_file(below, "not looked at\n");
    assert_int_equal(symlink(major, again), 0);
    for (int round = 0; round < 2; round++) { // the second time nothing is new
        assert_int_equal(kiln_registry_add_dir(registry, dir, &err), KILN_STATUS_OK);
        assert_int_equal(kiln_registry_count(registry), 2);
        assert_string_equal(kiln_registry_path(registry, 0), good);
        assert_string_equal(kiln_registry_path(registry, 1), twin);
        assert_int_equal(kiln_registry_n_refusals(registry), 2);
    }
    assert_string_equal(kiln_registry_refusal(registry, 0).path, major);
    assert_non_null(strstr(kiln_registry_refusal(registry, 0).text, "plugin ABI 2.0"));
    assert_string_equal(kiln_registry_refusal(registry, 1).path, copy);
    assert_non_null(strstr(kiln_registry_refusal(registry, 1).text, good));
    // Asked for by its path, a refused file is an error each time.
    assert_int_equal(kiln_registry_add_file(registry, again, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "b_major.so: built for plugin ABI 2.0"));
    assert_non_null(kiln_registry_find(registry, "twin"));
    assert_null(kiln_registry_find(registry, "major"));
    kiln_registry_destroy(registry);
    char *all[] = {dir, sub, deep, good, copy, major, twin, other, below, again};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        kiln_free(all[i]);
    }
}

static void registry_searches_the_default_folders(void **state) {
    (void)state;
    struct kiln_registry *registry = create();
    struct kiln_err err = {0};
    char path[4096], *first = temp("one"), *second = temp("two"), *third = temp("three");
    char *files[] = {temp("one/good.so"), temp("two/twin.so"), temp("three/newer.so")};
    assert_int_equal(mkdir(first, 0700) | mkdir(second, 0700) | mkdir(third, 0700), 0);
    copy_file(bad("good"), files[0]);
    copy_file(bad("twin_a"), files[1]);
    copy_file(bad("newer"), files[2]);
    (void)snprintf(path, sizeof(path), "::%s:%s:%s:", first, second, first);
    assert_int_equal(setenv("KILN_PLUGIN_PATH", path, 1), 0);
    const char *extra[] = {third};
    assert_int_equal(kiln_registry_add_default(registry, extra, 1, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_registry_count(registry), 3);
    assert_int_equal(kiln_registry_n_refusals(registry), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(kiln_registry_path(registry, i), files[i]);
        kiln_free(files[i]);
    }
    kiln_registry_destroy(registry);
    registry = create();
    assert_int_equal(setenv("KILN_PLUGIN_PATH", "/nonexistent/plugins", 1), 0);
    assert_int_equal(kiln_registry_add_default(registry, NULL, 0, &err), KILN_STATUS_FILE);
    assert_string_equal(err.text, "/nonexistent/plugins: the plugin folder cannot be read: No such "
                                  "file or directory; check KILN_PLUGIN_PATH and --plugin-dir");
    (void)unsetenv("KILN_PLUGIN_PATH");
    kiln_registry_destroy(registry);
    kiln_free(first);
    kiln_free(second);
    kiln_free(third);
}

static void registry_takes_a_newer_minor(void **state) {
    (void)state;
    struct kiln_registry *registry = create();
    unsigned major, minor;
    assert_added(registry, bad("newer"));
    const struct kiln_plugin *plugin = kiln_registry_plugins(registry)[0];
    kiln_registry_abi(registry, 0, &major, &minor);
    assert_int_equal(major, 1);
    assert_int_equal(minor, 7);
    assert_int_equal(plugin->struct_size, sizeof(struct kiln_plugin));
    // The variant in a slot that only 1.7 has is left out, the other is there in this kiln's
    // layout.
    assert_int_equal(plugin->n_variants, 1);
    const struct kiln_variant *variant = plugin->variants[0];
    assert_string_equal(variant->name, "usable");
    assert_int_equal(variant->struct_size, sizeof(struct kiln_variant));
    assert_int_equal(variant->devices, KILN_DEVICE_HOST);
    assert_int_equal(variant->params[0]->struct_size, sizeof(struct kiln_param));
    assert_int_equal(variant->params[0]->flags, KILN_PARAM_REGROUPS);
    assert_string_equal(variant->kernels[0]->name, "run");
    kiln_registry_destroy(registry);
}

static void registry_starts_once_a_device(void **state) {
    (void)state;
    struct kiln_registry *registry = create();
    struct kiln_err err = {0};
    const struct kiln_device cpu = {.struct_size = sizeof(cpu), .name = "cpu", .target = "cpu"};
    void *first = NULL, *second = NULL;
    assert_added(registry, bad("good"));
    assert_added(registry, bad("twin_a"));
    const struct kiln_plugin *const *plugins = kiln_registry_plugins(registry);
    assert_int_equal(kiln_registry_start(registry, plugins[0], &cpu, &first, &err), KILN_STATUS_OK);
    assert_int_equal(
            kiln_registry_start(registry, plugins[0], &cpu, &second, &err), KILN_STATUS_OK);
    assert_non_null(first);
    assert_ptr_equal(first, second);
    assert_int_equal(kiln_registry_start(registry, plugins[1], &cpu, &first, &err), KILN_STATUS_OK);
    assert_null(first);
    kiln_registry_destroy(registry);
}

static void registry_matches_slots(void **state) {
    (void)state;
    assert_true(kiln_slot_matches("norm", "norm"));
    assert_false(kiln_slot_matches("norm", "normal"));
    assert_false(kiln_slot_matches("normal", "norm"));
    assert_true(kiln_slot_matches("matmul.*.prefill", "matmul.q4_K.prefill"));
    assert_false(kiln_slot_matches("matmul.*.prefill", "matmul.q4_K.decode"));
    assert_false(kiln_slot_matches("matmul.*.prefill", "matmul.prefill"));
    assert_false(kiln_slot_matches("matmul.*.prefill", "matmul..prefill"));
    assert_false(kiln_slot_matches("matmul.*", "matmul.q4_K.prefill"));
}

// ---- Tables ----------------------------------------------------------------------------------
// A sound plugin in memory, of which each case spoils one thing.
struct tables {
    struct kiln_plugin plugin;
    struct kiln_variant a, b;
    struct kiln_param param;
    struct kiln_param_default row;
    struct kiln_kernel kernel;
    struct kiln_source source;
    struct kiln_header header;
    struct kiln_io io;
    struct kiln_format format;
    const struct kiln_variant *variants[2];
    const struct kiln_param *params[2];
    const struct kiln_param_default *rows[1];
    const struct kiln_kernel *kernels[2];
    const struct kiln_header *headers[2];
    const struct kiln_io *ios[1];
    const struct kiln_format *formats[2];
    const char *a_slots[1], *b_slots[1], *follows[1], *io_formats[1];
    int64_t allowed[3];
};

static int32_t never_called(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)problem;
    (void)geometry;
    (void)device;
    (void)plan;
    fail_msg("plan() was called while tables were read");
    return KILN_RESULT_FAILED;
}

static void never_run(const struct kiln_block *block, void *const *args) {
    (void)block;
    (void)args;
}

static void make_tables(struct tables *t) {
    *t = (struct tables){.a_slots = {"norm"},
            .b_slots = {"matmul.*.prefill"},
            .follows = {"matmul:attn_k"},
            .io_formats = {"f16"},
            .allowed = {16, 32, 64}};
    t->row = (struct kiln_param_default){.struct_size = sizeof(t->row), .value = 64};
    t->rows[0] = &t->row;
    t->param = (struct kiln_param){.struct_size = sizeof(t->param),
            .name = "FA_TQ",
            .help = "rows",
            .unit = "rows",
            .value = 32,
            .allowed = t->allowed,
            .n_allowed = 3,
            .n_defaults = 1,
            .defaults = t->rows};
    t->header = (struct kiln_header){.struct_size = sizeof(t->header), .name = "h", .text = "t"};
    t->headers[0] = t->headers[1] = &t->header;
    t->source = (struct kiln_source){.struct_size = sizeof(t->source),
            .name = "x.cu",
            .text = "code",
            .headers = t->headers,
            .n_headers = 1};
    t->kernel = (struct kiln_kernel){
            .struct_size = sizeof(t->kernel), .name = "run", .source = &t->source};
    t->io = (struct kiln_io){.struct_size = sizeof(t->io),
            .operand = KILN_OPERAND_IN,
            .n_formats = 1,
            .formats = t->io_formats};
    t->format = (struct kiln_format){.struct_size = sizeof(t->format),
            .block_elems = 32,
            .block_bytes = 34,
            .row_multiple = 1,
            .name = "b_32",
            .layout = "l"};
    t->params[0] = t->params[1] = &t->param;
    t->kernels[0] = t->kernels[1] = &t->kernel;
    t->ios[0] = &t->io;
    t->formats[0] = t->formats[1] = &t->format;
    t->b = (struct kiln_variant){.struct_size = sizeof(t->b),
            .devices = KILN_DEVICE_CUDA,
            .name = "x",
            .help = "h",
            .slots = t->b_slots,
            .follows = t->follows,
            .params = t->params,
            .kernels = t->kernels,
            .ios = t->ios,
            .n_slots = 1,
            .n_follows = 1,
            .n_params = 1,
            .n_kernels = 1,
            .n_ios = 1,
            .plan = never_called};
    t->a = t->b;
    t->a.name = "w";
    t->a.slots = t->a_slots;
    t->a.n_follows = t->a.n_params = 0;
    t->variants[0] = &t->a;
    t->variants[1] = &t->b;
    t->plugin = (struct kiln_plugin){.struct_size = sizeof(t->plugin),
            .abi_major = 1,
            .name = "p",
            .version = "1",
            .help = "h",
            .variants = t->variants,
            .formats = t->formats,
            .n_variants = 2,
            .n_formats = 1};
}

static void assert_import(const struct tables *t, const char *expected) {
    struct kiln_arena arena = {0};
    struct kiln_err err = {0};
    const struct kiln_plugin *plugin = NULL;
    enum kiln_status status = kiln_import_plugin(&arena, &t->plugin, &plugin, &err);
    assert_string_equal(err.text, expected);
    assert_int_equal(status, expected[0] ? KILN_STATUS_FILE : KILN_STATUS_OK);
    if (status == KILN_STATUS_OK) {
        assert_ptr_not_equal(plugin, &t->plugin);
        assert_ptr_not_equal(plugin->variants[1]->params[0], &t->param);
        assert_string_equal(plugin->variants[1]->params[0]->name, "FA_TQ");
    }
    kiln_arena_finish(&arena);
}

#define ENTRY   "kiln_plugin_entry: "
#define X       ENTRY "variant 2 'x': "
#define REBUILD "; build the plugin anew, all of it with one kiln/plugin.h"
// Spoils a fresh set of tables with `change` and asserts the exact message.
#define SPOILED(change, expected) \
    do { \
        struct tables t; \
        make_tables(&t); \
        change; \
        assert_import(&t, expected); \
    } while (0)

static void registry_accepts_sound_tables(void **state) {
    (void)state;
    SPOILED((void)t.a, "");
    SPOILED(t.param.unit = NULL, "");
    SPOILED((t.param.allowed = NULL, t.param.n_allowed = 0, t.param.min = 1, t.param.max = 64), "");
    SPOILED(t.a.name = "x", ""); // one name in two slots
}

static void registry_names_the_struct_of_a_wrong_size(void **state) {
    (void)state;
    SPOILED(t.param.struct_size = 80,
            X "parameter 'FA_TQ': struct_size 80, ABI 1.0 has 88" REBUILD);
    SPOILED(t.param.struct_size = 96,
            X "parameter 'FA_TQ': struct_size 96, ABI 1.0 has 88" REBUILD);
    SPOILED(t.param.struct_size = 0, X "parameter 1: struct_size 0, ABI 1.0 has 88" REBUILD);
    SPOILED(t.row.struct_size = 16,
            X "parameter 'FA_TQ': default 1: struct_size 16, ABI 1.0 has 24" REBUILD);
    SPOILED(t.b.struct_size = 96, X "struct_size 96, ABI 1.0 has 104" REBUILD);
    SPOILED(t.source.struct_size = 4,
            ENTRY "variant 1 'w': kernel 'run': source 1: struct_size 4, ABI 1.0 has 48" REBUILD);
    SPOILED(t.header.struct_size = 32, ENTRY "variant 1 'w': kernel 'run': source 'x.cu': header "
                                             "'h': struct_size 32, ABI 1.0 has 24" REBUILD);
    SPOILED(t.kernel.struct_size = 32,
            ENTRY "variant 1 'w': kernel 'run': struct_size 32, ABI 1.0 has 40" REBUILD);
    SPOILED(t.io.struct_size = 16,
            ENTRY "variant 1 'w': io 1: struct_size 16, ABI 1.0 has 24" REBUILD);
    SPOILED(t.format.struct_size = 24,
            ENTRY "format 'b_32': struct_size 24, ABI 1.0 has 32" REBUILD);
    SPOILED((t.plugin.abi_minor = 3, t.plugin.struct_size = 72),
            ENTRY "struct_size 72, ABI 1.3 has at least 80" REBUILD);
    SPOILED((t.plugin.abi_major = 0, t.plugin.abi_minor = 9),
            "built for plugin ABI 0.9, this kiln has 1.0; rebuild the plugin against this kiln's "
            "header or get a kiln with ABI 0");
}

static void registry_names_the_pointer_that_is_null(void **state) {
    (void)state;
    SPOILED(t.plugin.name = NULL, ENTRY "the name is NULL; it is mandatory");
    SPOILED(t.plugin.version = NULL, ENTRY "version is NULL; it is mandatory");
    SPOILED(t.plugin.help = NULL, ENTRY "help is NULL; it is mandatory");
    SPOILED(t.plugin.variants = NULL, ENTRY "variants is NULL, n_variants is 2");
    SPOILED(t.variants[1] = NULL, ENTRY "variant 2 is NULL; variants has n_variants of them");
    SPOILED(t.b.plan = NULL, X "plan is NULL; it is mandatory");
    SPOILED(t.b.help = NULL, X "help is NULL; it is mandatory");
    SPOILED(t.b.slots = NULL, X "slots is NULL, n_slots is 1");
    SPOILED(t.b_slots[0] = NULL, X "slots: entry 1 is NULL");
    SPOILED(t.b.params = NULL, X "params is NULL, n_params is 1");
    SPOILED(t.param.help = NULL, X "parameter 'FA_TQ': help is NULL; it is mandatory");
    SPOILED(t.param.allowed = NULL, X "parameter 'FA_TQ': allowed is NULL, n_allowed is 3");
    SPOILED(t.kernel.source = NULL,
            ENTRY "variant 1 'w': kernel 'run': source and host are both NULL; set exactly one");
    SPOILED(t.header.text = NULL, ENTRY "variant 1 'w': kernel 'run': source 'x.cu': header 'h': "
                                        "text is NULL; it is mandatory");
    SPOILED(t.b.n_params = 5000, X "n_params is 5000; at most 4096");
    SPOILED(t.plugin.n_variants = 0, ENTRY "variants is empty; the plugin offers nothing");
}

static void registry_checks_names_and_slots(void **state) {
    (void)state;
    SPOILED(t.plugin.name = "My-plugin",
            ENTRY "'My-plugin' is not a name; allowed: [a-z0-9_]+, at most 63 characters");
    SPOILED(t.b.name = "", ENTRY "variant 2 '': '' is not a name; allowed: [a-z0-9_]+, at most 63 "
                                 "characters");
    SPOILED(t.param.name = "fa_tq", X "parameter 'fa_tq': 'fa_tq' is not a name; allowed: "
                                      "[A-Z][A-Z0-9_]*, at most 63 characters");
    SPOILED(t.param.name = "KILN_SMEM", X "parameter 'KILN_SMEM': names that begin with KILN_ are "
                                          "kiln's own defines; choose another");
    SPOILED(t.b.n_params = 2, X "two parameters are named 'FA_TQ'; rename one");
    SPOILED(t.b.n_kernels = 2, X "two kernels are named 'run'; rename one");
    SPOILED(t.plugin.n_formats = 2, ENTRY "two formats are named 'b_32'; rename one");
    SPOILED(t.format.name = "q8_0",
            ENTRY "format 'q8_0': the name is that of a type; choose another");
    SPOILED(t.format.name = "f16",
            ENTRY "format 'f16': the name is that of a type; choose another");
    SPOILED((t.a.name = "x", t.a_slots[0] = "matmul.q4_K.prefill"),
            ENTRY "two variants named 'x' fill the slot 'matmul.*.prefill'; rename one");
    SPOILED(t.plugin.help = "two\nlines",
            ENTRY "help has a control character (byte 4); it must be one line");
    SPOILED(t.plugin.help = "caf\xe9", ENTRY "help is not UTF-8 (byte 4)");
    SPOILED(t.follows[0] = "matmull:attn_k",
            X "follows: 'matmull:attn_k' names no op; write \"op\" "
              "or \"op:role\", as in \"matmul:attn_k\"");
    SPOILED(t.b_slots[0] = "norm.prefill",
            X "slot 'norm.prefill': nothing follows 'norm': the slot is named 'norm'");
    SPOILED(t.io.operand = 99,
            ENTRY "variant 1 'w': io 1: operand 99 is none of enum kiln_operand");
    SPOILED(t.io.op = 1,
            ENTRY "variant 1 'w': io 1: op is 1, the variant fills 1 op (counted from 0)");
    SPOILED(t.b.devices = 0, X "devices is 0; name at least one of enum kiln_device_kind");
    SPOILED(t.b.devices = 8, X "devices is 8; ABI 1.0 knows the bits 3");
    SPOILED(t.b.devices = 3, X "devices names HOST, but no kernel has a host function");
    SPOILED(t.kernel.host = never_run,
            ENTRY "variant 1 'w': kernel 'run': source and host are both set; set exactly one");
    SPOILED(t.b.reserved = 1, X "reserved is 1; ABI 1.0 knows the bits 0");
}

static void registry_checks_schemas(void **state) {
    (void)state;
    SPOILED(t.param.value = 48, X "parameter 'FA_TQ': the default is 48, allowed: 16, 32, 64");
    SPOILED(t.row.value = 1,
            X "parameter 'FA_TQ': the value of default 1 is 1, allowed: 16, 32, 64");
    SPOILED(t.allowed[2] = 16, X "parameter 'FA_TQ': allowed lists 16 twice");
    SPOILED((t.param.allowed = NULL, t.param.n_allowed = 0, t.param.min = 2, t.param.max = 1),
            X "parameter 'FA_TQ': no range: min 2, max 1; give both, or a list in allowed");
    SPOILED((t.param.allowed = NULL, t.param.n_allowed = 0, t.param.min = 17, t.param.max = 31,
                    t.param.multiple_of = 16),
            X "parameter 'FA_TQ': no value is a multiple of 16 from 17 to 31");
    SPOILED((t.param.allowed = NULL, t.param.n_allowed = 0, t.param.max = 62,
                    t.param.multiple_of = 8),
            X "parameter 'FA_TQ': the value of default 1 is 64, allowed: 0 to 62, a multiple of 8");
    SPOILED(t.param.multiple_of = -1,
            X "parameter 'FA_TQ': multiple_of is -1; 0 and 1 stand for any value");
    SPOILED((t.row.target_min = 90, t.row.target_max = 80),
            X "parameter 'FA_TQ': default 1: target_min 90 is above target_max 80");
    SPOILED(t.row.head_size = -1, X "parameter 'FA_TQ': default 1: head_size, target_min or "
                                    "target_max is negative");
}

static void registry_finds_ends_of_ranges(void **state) {
    (void)state;
    struct kiln_param param = {.min = -17, .max = 31, .multiple_of = 8};
    assert_int_equal(kiln_param_smallest(&param), -16);
    assert_int_equal(kiln_param_largest(&param), 24);
    param = (struct kiln_param){.min = 3, .max = 31, .multiple_of = 8};
    assert_int_equal(kiln_param_smallest(&param), 8);
    param = (struct kiln_param){.min = -31, .max = -3, .multiple_of = 8};
    assert_int_equal(kiln_param_largest(&param), -8);
    const int64_t allowed[] = {64, 16, 32};
    param = (struct kiln_param){.allowed = allowed, .n_allowed = 3};
    assert_int_equal(kiln_param_smallest(&param), 16);
    assert_int_equal(kiln_param_largest(&param), 64);
}

static void registry_finds_defaults(void **state) {
    (void)state;
    struct kiln_registry *registry = create();
    assert_added(registry, bad("good"));
    const struct kiln_param *param = kiln_registry_plugins(registry)[0]->variants[0]->params[0];
    assert_int_equal(kiln_param_default_value(param, 256, 90), 64);
    assert_int_equal(kiln_param_default_value(param, 256, 121), 64);
    assert_int_equal(kiln_param_default_value(param, 256, 80), 32);
    assert_int_equal(kiln_param_default_value(param, 256, 122), 32);
    assert_int_equal(kiln_param_default_value(param, 128, 90), 32);
    kiln_registry_destroy(registry);
}

// ---- Descriptions ------------------------------------------------------------------------------
static struct kiln_registry *create_good_and_refused(void) {
    struct kiln_registry *registry = create();
    struct kiln_err err = {0};
    char *dir = temp("mixed"), *good = temp("mixed/good.so"), *text = temp("mixed/text.so");
    (void)mkdir(dir, 0700);
    copy_file(bad("good"), good);
    write_file(text, "text\n");
    assert_int_equal(kiln_registry_add_dir(registry, dir, &err), KILN_STATUS_OK);
    kiln_free(dir);
    kiln_free(good);
    kiln_free(text);
    return registry;
}

static void assert_has(const struct kiln_buf *text, const char *part) {
    assert_non_null(text->data);
    if (!strstr(text->data, part)) {
        fail_msg("no '%s' in:\n%s", part, text->data);
    }
}

static void registry_describes_plugins(void **state) {
    (void)state;
    struct kiln_registry *registry = create_good_and_refused();
    struct kiln_buf text = {0};
    kiln_plugins_list(registry, &text);
    assert_has(&text, "good 1.2.3 (ABI 1.0): a plugin that nothing is wrong with\n  /tmp/");
    assert_has(&text, "  plain            matmul.*.prefill [cpu]\n");
    assert_has(&text, "refused: /tmp/");
    assert_has(&text, "mixed/text.so: not a shared library");
    kiln_buf_clear(&text);
    kiln_plugin_inspect(registry, 0, &text);
    assert_has(
            &text, "format good_32: 32 values in 36 bytes, rows padded to 1: f32 scale, 32 int8");
    assert_has(&text, "  writes  out: f32, good_32\n");
    assert_has(&text, "  kernels scale (host function)\n");
    assert_has(&text, "    N_TILE           default 32 rows; allowed: 16, 32, 64; first of: 64 for "
                      "head size 256 from compute capability 9.0 up to compute capability 12.1; "
                      "regroups float sums\n        rows a tile\n");
    assert_has(&text, "    N_PAD            default 8 bytes; allowed: 0 to 64, a multiple of 8\n");
    kiln_buf_finish(&text);
    kiln_registry_destroy(registry);
}

static void registry_describes_plugins_as_json(void **state) {
    (void)state;
    struct kiln_registry *registry = create_good_and_refused();
    struct kiln_err err = {0};
    struct kiln_buf text = {0};
    json_error_t where;
    assert_int_equal(kiln_plugins_list_json(registry, &text, &err), KILN_STATUS_OK);
    json_t *json = json_loads(text.data, 0, &where);
    assert_non_null(json);
    json_t *plugin = json_array_get(json_object_get(json, "plugins"), 0);
    json_t *variant = json_array_get(json_object_get(plugin, "variants"), 0);
    json_t *param = json_array_get(json_object_get(variant, "params"), 0);
    assert_string_equal(json_string_value(json_object_get(plugin, "abi")), "1.0");
    assert_string_equal(json_string_value(json_object_get(param, "name")), "N_TILE");
    assert_int_equal(json_integer_value(json_object_get(param, "default")), 32);
    assert_int_equal(json_array_size(json_object_get(param, "allowed")), 3);
    assert_true(json_is_true(json_object_get(param, "regroups")));
    assert_int_equal(json_array_size(json_object_get(variant, "writes")), 1);
    assert_int_equal(json_array_size(json_object_get(variant, "reads")), 0);
    assert_int_equal(json_array_size(json_object_get(json, "refused")), 1);
    json_decref(json);
    kiln_buf_finish(&text);
    kiln_registry_destroy(registry);
}

static void registry_reads_exports(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_buf names = {0};
    assert_int_equal(kiln_library_exports(bad("good"), &names, &err), KILN_STATUS_OK);
    assert_string_equal(names.data, "kiln_plugin_entry\n");
    kiln_buf_clear(&names);
    assert_int_equal(kiln_library_exports(bad("extra_symbol"), &names, &err), KILN_STATUS_OK);
    assert_string_equal(names.data, "kiln_plugin_entry\nordinary_extra_symbol\n");
    kiln_buf_finish(&names);
}

// ---- Allocation failure ------------------------------------------------------------------------
// One round: everything that a run does with plugins. Fails whole or works whole.
static enum kiln_status load_and_describe(const char *dir) {
    struct kiln_registry *registry = NULL;
    struct kiln_err err = {0};
    void *instance;
    const struct kiln_device cpu = {.struct_size = sizeof(cpu), .name = "cpu", .target = "cpu"};
    struct kiln_buf text = {0};
    enum kiln_status status = kiln_registry_create(&registry, &err);
    if (status == KILN_STATUS_OK) {
        status = kiln_registry_add_dir(registry, dir, &err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_registry_start(
                registry, kiln_registry_plugins(registry)[0], &cpu, &instance, &err);
    }
    if (status == KILN_STATUS_OK) {
        kiln_plugins_list(registry, &text);
        status = text.failed ? KILN_STATUS_NOMEM : status;
    }
    if (status == KILN_STATUS_OK) {
        assert_int_equal(kiln_registry_count(registry), 1);
        assert_int_equal(kiln_registry_n_refusals(registry), 1);
    }
    kiln_buf_finish(&text);
    kiln_registry_destroy(registry);
    return status;
}

static void registry_survives_allocation_failure(void **state) {
    (void)state;
    kiln_registry_destroy(create_good_and_refused()); // makes the folder
    char *dir = temp("mixed");
    enum kiln_status status = KILN_STATUS_NOMEM;
    uint64_t n = 1;
    for (; status != KILN_STATUS_OK && n < 10000; n++) {
        kiln_mem_fail_at(n, 0);
        status = load_and_describe(dir);
        kiln_mem_fail_at(0, 0);
        assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM);
    }
    assert_int_equal(status, KILN_STATUS_OK);
    assert_true(n > 30); // the failures did hit something
    kiln_free(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(registry_names_both_majors),
            cmocka_unit_test(registry_refuses_wrong_sizes),
            cmocka_unit_test(registry_tells_five_load_failures_apart),
            cmocka_unit_test(registry_refuses_a_folder_and_a_pipe),
            cmocka_unit_test(registry_binds_at_load),
            cmocka_unit_test(registry_keeps_the_first_of_one_name),
            cmocka_unit_test(registry_opens_a_file_once),
            cmocka_unit_test(registry_reads_folders_and_goes_on_after_a_refusal),
            cmocka_unit_test(registry_searches_the_default_folders),
            cmocka_unit_test(registry_takes_a_newer_minor),
            cmocka_unit_test(registry_starts_once_a_device),
            cmocka_unit_test(registry_matches_slots),
            cmocka_unit_test(registry_accepts_sound_tables),
            cmocka_unit_test(registry_names_the_struct_of_a_wrong_size),
            cmocka_unit_test(registry_names_the_pointer_that_is_null),
            cmocka_unit_test(registry_checks_names_and_slots),
            cmocka_unit_test(registry_checks_schemas),
            cmocka_unit_test(registry_finds_ends_of_ranges),
            cmocka_unit_test(registry_finds_defaults),
            cmocka_unit_test(registry_describes_plugins),
            cmocka_unit_test(registry_describes_plugins_as_json),
            cmocka_unit_test(registry_reads_exports),
            cmocka_unit_test(registry_survives_allocation_failure),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
