// Compiles with the real NVRTC. Skipped (exit 77) where there is none: tools/fetch-nvrtc fetches
// it.
#include "base/file.h"
#include "base/mem.h"
#include "jit/compile.h"
#include "jit/jit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct kiln_nvrtc *nvrtc;
static char root[64];

static const char *const names[] = {"TILE"};

// What a case is made of; `smem` is the launcher's figure.
struct sample {
    const char *text, *target, *instance, *kernel, *replacement;
    const struct kiln_header *const *headers;
    uint32_t n_headers, flags, n_options;
    const char *const *options;
    int64_t tile;
    uint32_t smem;
    int ptx;
};

static enum kiln_status compile(
        const struct sample *sample, struct kiln_image *image, char **log, struct kiln_err *err) {
    const struct kiln_source source = {.struct_size = sizeof(source),
            .flags = sample->flags,
            .name = "tile.cu",
            .text = sample->text,
            .headers = sample->headers,
            .n_headers = sample->n_headers,
            .options = sample->options,
            .n_options = sample->n_options};
    const struct kiln_kernel kernel = {.struct_size = sizeof(kernel),
            .name = sample->kernel ? sample->kernel : "tile",
            .source = &source,
            .instance = sample->instance};
    const struct kiln_geometry geometry = {.struct_size = sizeof(geometry),
            .n_values = 1,
            .names = names,
            .values = &sample->tile};
    const struct kiln_launch launch = {
            .struct_size = sizeof(launch), .kernel = kernel.name, .shared_bytes = sample->smem};
    const struct kiln_jit_request request = {.plugin = "p",
            .variant = "v",
            .kernel = &kernel,
            .geometry = &geometry,
            .launch = &launch,
            .source = sample->replacement,
            .target = sample->target ? sample->target : "sm_80",
            .ptx = sample->ptx};
    struct kiln_unit *unit = NULL;
    *image = (struct kiln_image){0};
    *log = NULL;
    *err = (struct kiln_err){0};
    enum kiln_status status = kiln_unit_make(&unit, &request, nvrtc, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_compile(nvrtc, unit, image, log, err);
    }
    kiln_unit_destroy(unit);
    return status;
}

// Compiles, which must succeed.
static void good(const struct sample *sample, struct kiln_image *image) {
    char *log = NULL;
    struct kiln_err err;
    enum kiln_status status = compile(sample, image, &log, &err);
    if (status != KILN_STATUS_OK) {
        fprintf(stderr, "%s\n%s\n", err.text, log ? log : "");
    }
    assert_int_equal(status, KILN_STATUS_OK);
    kiln_free(log);
}

// Compiles, which must fail with DEVICE; the log is the caller's.
static char *bad(const struct sample *sample, struct kiln_err *err) {
    struct kiln_image image;
    char *log = NULL;
    assert_int_equal(compile(sample, &image, &log, err), KILN_STATUS_DEVICE);
    assert_null(image.data);
    return log;
}

static const char tile_text[] =
        "#ifndef TILE\n"
        "#    error TILE is not defined\n"
        "#endif\n"
        "extern \"C\" __device__ const unsigned kiln_layout_tile[] = {TILE * 4 + TILE * 2, 0, TILE "
        "* 4, "
        "TILE * 4, TILE * 2};\n"
        "static_assert(KILN_SMEM >= TILE * 6, \"KILN_SMEM is too small\");\n"
        "extern \"C\" __global__ void __launch_bounds__(TILE) tile(float *to, const float *from) "
        "{\n"
        "    extern __shared__ float row[];\n"
        "    __shared__ float last[8];\n"
        "    row[threadIdx.x] = from[threadIdx.x];\n"
        "    last[threadIdx.x & 7] = 1.0f;\n"
        "    __syncthreads();\n"
        "    to[threadIdx.x] = row[TILE - 1 - threadIdx.x] * last[1];\n"
        "}\n";

static void nvrtc_says_which_build_it_is(void **state) {
    (void)state;
    char version[32];
    snprintf(version, sizeof(version), "%d.%d ", nvrtc->major, nvrtc->minor);
    assert_memory_equal(nvrtc->identity, version, strlen(version));
    assert_true(strlen(nvrtc->identity) > strlen(version) + 20); // and more than that
    assert_true(nvrtc->path[0] == '/');
    assert_true(nvrtc->n_archs > 4);
}

static void compile_gives_figures_for_any_target(void **state) {
    (void)state;
    static const char *const targets[] = {"sm_75", "sm_80", "sm_90a", "sm_100", "sm_121"};
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        const struct sample sample = {
                .text = tile_text, .target = targets[i], .tile = 128, .smem = 768};
        struct kiln_image image;
        struct kiln_layout layout;
        struct kiln_layout_check check;
        struct kiln_err err = {0};
        good(&sample, &image);
        assert_int_equal(image.ptx, 0);
        assert_memory_equal(image.data, "\177ELF", 4);
        assert_string_equal(image.entry, "tile");
        assert_in_range(image.resources.registers, 4, 64);
        assert_int_equal(image.resources.spill_stores, 0);
        assert_int_equal(image.resources.spill_loads, 0);
        assert_int_equal(image.resources.stack, 0);
        assert_int_equal(image.resources.smem_static, 32);
        assert_int_equal(kiln_layout_read(&image, "tile", &layout, &err), KILN_STATUS_OK);
        assert_int_equal(layout.n_regions, 2);
        assert_int_equal(layout.regions[1].offset, 512);
        assert_int_equal(layout.regions[1].bytes, 256);
        assert_int_equal(kiln_layout_compare(&layout, "tile", 1024, &check, &err), KILN_STATUS_OK);
        assert_int_equal(check.used, 768);
        assert_int_equal(check.over, 256);
        kiln_image_finish(&image);
    }
}

static void compile_reports_spills(void **state) {
    (void)state;
    static const char text[] =
            "extern \"C\" __global__ void tile(float *to, const float *from) {\n"
            "    float r[TILE];\n"
            "#pragma unroll\n"
            "    for (int i = 0; i < TILE; i++) r[i] = from[i * 32 + threadIdx.x];\n"
            "    __syncthreads();\n"
            "#pragma unroll\n"
            "    for (int i = 0; i < TILE; i++) to[i * 32 + threadIdx.x] = r[TILE - 1 - i] * r[(i "
            "* 7) % "
            "TILE];\n"
            "}\n";
    static const char *const options[] = {"--maxrregcount=24"};
    const struct sample sample = {.text = text, .tile = 64, .options = options, .n_options = 1};
    struct kiln_image image;
    good(&sample, &image);
    assert_int_equal(image.resources.registers, 24);
    assert_true(image.resources.spill_stores > 0);
    assert_true(image.resources.spill_loads > 0);
    assert_true(image.resources.stack > 0);
    kiln_image_finish(&image);
}

static void compile_gives_ptx_when_asked(void **state) {
    (void)state;
    const struct sample sample = {.text = tile_text, .tile = 64, .smem = 384, .ptx = 1};
    struct kiln_image image;
    struct kiln_layout layout;
    struct kiln_err err = {0};
    good(&sample, &image);
    assert_int_equal(image.ptx, 1);
    assert_int_equal(image.data ? strlen(image.data) : 0, image.size);
    assert_non_null(strstr(image.data, ".target sm_80"));
    assert_int_equal(image.resources.registers, -1);
    assert_int_equal(kiln_layout_read(&image, "tile", &layout, &err), KILN_STATUS_OK);
    assert_int_equal(layout.total, 384);
    kiln_image_finish(&image);
}

static void compile_names_file_line_and_geometry(void **state) {
    (void)state;
    const struct sample sample = {
            .text = "#define A 1\n\nextern \"C\" __global__ void tile() {\n    int "
                    "x = missing;\n    int y = gone;\n}\n",
            .tile = 48,
            .smem = 7};
    struct kiln_err err;
    char *log = bad(&sample, &err);
    assert_non_null(strstr(err.text, "p/v kernel tile"));
    assert_non_null(strstr(err.text, "sm_80"));
    assert_non_null(strstr(err.text, " tile.cu(4): error"));
    assert_non_null(strstr(err.text, "missing"));
    assert_non_null(strstr(err.text, "KILN_SMEM=7 TILE=48"));
    assert_non_null(strstr(log, "tile.cu(5): error")); // the log has all of them
    assert_null(strstr(log, "/tile.cu"));
    assert_null(strstr(log, "/dev/null"));
    kiln_free(log);
}

static void compile_names_the_line_of_a_header(void **state) {
    (void)state;
    const struct kiln_header header = {.struct_size = sizeof(header),
            .name = "common/wrap.cuh",
            .text = "// wrappers\nint oops(;\n"};
    const struct kiln_header *const headers[] = {&header};
    const struct sample sample = {
            .text = "#include \"common/wrap.cuh\"\n", .headers = headers, .n_headers = 1};
    struct kiln_err err;
    char *log = bad(&sample, &err);
    assert_non_null(strstr(err.text, " common/wrap.cuh(2): error"));
    kiln_free(log);
}

static void compile_refuses_too_little_shared_memory(void **state) {
    (void)state;
    const struct sample sample = {.text = tile_text, .tile = 128, .smem = 767};
    struct kiln_err err;
    char *log = bad(&sample, &err);
    assert_non_null(strstr(err.text, "KILN_SMEM is too small"));
    kiln_free(log);
}

static void compile_finds_template_instances(void **state) {
    (void)state;
    struct sample sample = {.text = "template <int N, typename T> __global__ void fill(T *to) { "
                                    "to[threadIdx.x] = N; }\n",
            .instance = "fill<TILE, float>",
            .tile = 3};
    struct kiln_image image;
    struct kiln_err err;
    good(&sample, &image);
    assert_string_equal(image.entry, "_Z4fillILi3EfEvPT0_");
    assert_true(image.resources.registers > 0);
    kiln_image_finish(&image);
    sample.instance = "fill<1, absent>";
    kiln_free(bad(&sample, &err));
    sample.instance = NULL;
    sample.text = "__global__ void tile() {}\n"; // C++ linkage: its name is another
    kiln_free(bad(&sample, &err));
    assert_non_null(strstr(err.text, "extern \"C\""));
}

static void compile_takes_nothing_from_the_current_folder(void **state) {
    (void)state;
    char path[96], old[4096];
    struct kiln_err err = {0};
    snprintf(path, sizeof(path), "%s/stray.cuh", root);
    assert_int_equal(kiln_file_write(path, "#define STRAY 1\n", 16, &err), KILN_STATUS_OK);
    assert_non_null(getcwd(old, sizeof(old)));
    assert_int_equal(chdir(root), 0);
    const struct sample sample = {
            .text = "#include \"stray.cuh\"\nextern \"C\" __global__ void tile() {}\n"};
    char *log = bad(&sample, &err);
    assert_int_equal(chdir(old), 0);
    assert_non_null(strstr(err.text, "stray.cuh"));
    kiln_free(log);
}

// The same bytes, wherever kiln runs.
static void compile_repeats_byte_for_byte(void **state) {
    (void)state;
    char old[4096];
    const struct kiln_header header = {.struct_size = sizeof(header),
            .name = "wrap.cuh",
            .text = "__device__ int f() { return 3; }\n"};
    const struct kiln_header *const headers[] = {&header};
    const struct sample sample = {.text = "#include \"wrap.cuh\"\nextern \"C\" __global__ void "
                                          "tile(int *a) { a[0] = f(); }\n",
            .headers = headers,
            .n_headers = 1};
    struct kiln_image here, there;
    good(&sample, &here);
    assert_non_null(getcwd(old, sizeof(old)));
    assert_int_equal(chdir("/"), 0);
    good(&sample, &there);
    assert_int_equal(chdir(old), 0);
    assert_int_equal(here.size, there.size);
    assert_memory_equal(here.data, there.data, here.size);
    kiln_image_finish(&here);
    kiln_image_finish(&there);
}

static void compile_finds_cuda_headers_where_a_toolkit_is(void **state) {
    (void)state;
    struct sample sample = {
            .text = "#include <cuda_fp16.h>\n#include <mma.h>\nextern \"C\" __global__ void "
                    "tile(__half *a) { a[0] = a[1] + a[2]; }\n",
            .flags = KILN_SOURCE_CUDA_INCLUDE};
    char *dir = kiln_cuda_include_dir(nvrtc);
    struct kiln_err err;
    if (dir) {
        struct kiln_image image;
        good(&sample, &image);
        kiln_image_finish(&image);
    } else {
        kiln_free(bad(&sample, &err));
        assert_non_null(strstr(err.text, "CUDA_HOME"));
    }
    kiln_free(dir);
}

// A source from a file: its own folder's headers, its own path in messages.
static void compile_takes_a_replacement(void **state) {
    (void)state;
    char path[96], header[96];
    struct kiln_err err = {0};
    struct kiln_image image;
    static const char text[] =
            "#include \"value.cuh\"\nextern \"C\" __global__ void tile(int *a) { a[0] = VALUE; }\n";
    snprintf(path, sizeof(path), "%s/mine.cu", root);
    snprintf(header, sizeof(header), "%s/value.cuh", root);
    assert_int_equal(kiln_file_write(path, text, sizeof(text) - 1, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_file_write(header, "#define VALUE 5\n", 16, &err), KILN_STATUS_OK);
    const struct sample sample = {.text = "#error not this one\n", .replacement = path};
    good(&sample, &image);
    kiln_image_finish(&image);
    assert_int_equal(kiln_file_write(header, "\n#error wrong\n", 14, &err), KILN_STATUS_OK);
    char *log = bad(&sample, &err);
    assert_non_null(strstr(err.text, header));
    assert_non_null(strstr(err.text, "value.cuh(2)"));
    kiln_free(log);
    assert_int_equal(kiln_file_write(path, "\n\n\nint tile(;\n", 14, &err), KILN_STATUS_OK);
    log = bad(&sample, &err);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "mine.cu(4)"));
    kiln_free(log);
}

// A list on all cores, cold and then warm.
static void jit_compiles_lists(void **state) {
    (void)state;
    enum {
        N = 6
    };
    const struct kiln_source source = {
            .struct_size = sizeof(source), .name = "tile.cu", .text = tile_text};
    const struct kiln_kernel kernel = {
            .struct_size = sizeof(kernel), .name = "tile", .source = &source};
    const int64_t tiles[N] = {32, 64, 96, 128, 256, 64}; // the last is the second again
    for (int round = 0; round < 2; round++) {
        struct kiln_jit_params params = {.cache = {.dir = root, .max_size = 1 << 24}};
        struct kiln_geometry geometry[N];
        struct kiln_launch launch[N];
        struct kiln_jit_item items[N] = {0};
        struct kiln_jit *jit = NULL;
        struct kiln_err err = {0};
        for (size_t i = 0; i < N; i++) {
            geometry[i] = (struct kiln_geometry){.struct_size = sizeof(geometry[i]),
                    .n_values = 1,
                    .names = names,
                    .values = &tiles[i]};
            launch[i] = (struct kiln_launch){.struct_size = sizeof(launch[i]),
                    .kernel = "tile",
                    .shared_bytes = (uint32_t)tiles[i] * 6 + (i == 3 ? 100 : 0)};
            items[i].request = (struct kiln_jit_request){.plugin = "p",
                    .variant = "v",
                    .kernel = &kernel,
                    .geometry = &geometry[i],
                    .launch = &launch[i],
                    .target = "sm_80"};
        }
        assert_int_equal(kiln_jit_open(&jit, &params, &err), KILN_STATUS_OK);
        assert_int_equal(kiln_jit_run(jit, items, N, 1, &err), KILN_STATUS_OK);
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(items[i].cached, round > 0);
            assert_int_equal(items[i].layout.used, tiles[i] * 6);
            assert_int_equal(items[i].layout.over, i == 3 ? 100 : 0);
            assert_memory_equal(items[i].source, "#define KILN_SMEM ", 18);
        }
        kiln_jit_items_finish(items, N);
        kiln_jit_close(jit);
    }
}

static int set_up(void **state) {
    (void)state;
    snprintf(root, sizeof(root), "/tmp/kiln-nvrtc-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command) == 0 ? 0 : -1; // NOLINT: a path that mkdtemp made
}

int main(void) {
    struct kiln_err err = {0};
    if (kiln_nvrtc_open(&nvrtc, &err) != KILN_STATUS_OK) {
        fprintf(stderr, "skipped: %s\n", err.text);
        return 77;
    }
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            CASE(nvrtc_says_which_build_it_is),
            CASE(compile_gives_figures_for_any_target),
            CASE(compile_reports_spills),
            CASE(compile_gives_ptx_when_asked),
            CASE(compile_names_file_line_and_geometry),
            CASE(compile_names_the_line_of_a_header),
            CASE(compile_refuses_too_little_shared_memory),
            CASE(compile_finds_template_instances),
            CASE(compile_takes_nothing_from_the_current_folder),
            CASE(compile_repeats_byte_for_byte),
            CASE(compile_finds_cuda_headers_where_a_toolkit_is),
            CASE(compile_takes_a_replacement),
            CASE(jit_compiles_lists),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kiln_nvrtc_close(nvrtc);
    return failed;
}
