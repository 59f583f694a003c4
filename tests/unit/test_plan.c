// test_plan: plans that ask everything of a launch record come through whole; what cannot be is
// refused.
#include "plugin/plan.h"

#include "base/mem.h"
#include "plugin/registry.h"
#include "plugin/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct kiln_registry *registry;
static const struct kiln_plugin *awkward, *newer;
static const struct kiln_device *host, *a100, *h200;

static const struct kiln_plugin *load(const char *name) {
    struct kiln_err err = {0};
    char *path = kiln_asprintf("%s/tests/plugins_bad/%s.so", getenv("KILN_TEST_BUILD"), name);
    enum kiln_status status = kiln_registry_add_file(registry, path, &err);
    kiln_free(path);
    if (status != KILN_STATUS_OK) {
        print_message("%s\n", err.text);
        return NULL;
    }
    return kiln_registry_find(registry, name);
}

static int set_up(void **state) {
    (void)state;
    struct kiln_err err = {0};
    if (!getenv("KILN_TEST_BUILD") || kiln_registry_create(&registry, &err) != KILN_STATUS_OK) {
        return -1;
    }
    awkward = load("awkward");
    newer = load("newer");
    host = kiln_sample_device(0);
    a100 = kiln_sample_device(2);
    h200 = kiln_sample_device(3);
    return awkward && newer ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    kiln_registry_destroy(registry);
    return 0;
}

static const struct kiln_variant *variant_of(const char *name) {
    for (uint32_t i = 0; i < awkward->n_variants; i++) {
        if (strcmp(awkward->variants[i]->name, name) == 0) {
            return awkward->variants[i];
        }
    }
    fail_msg("no variant %s", name);
    return NULL;
}

static const struct kiln_geometry none = {.struct_size = sizeof(none)};
static const char *const tile_names[] = {"BM", "BN"};

static struct kiln_geometry tiles(const int64_t values[2]) {
    return (struct kiln_geometry){.struct_size = sizeof(struct kiln_geometry),
            .n_values = 2,
            .names = tile_names,
            .values = values};
}

static const struct kiln_problem *sample(struct kiln_arena *arena,
        const struct kiln_variant *variant, const char *slot, uint32_t shape) {
    const struct kiln_problem *problem = NULL;
    struct kiln_err err = {0};
    assert_int_equal(kiln_sample_problem(arena, awkward, variant, slot, shape, &problem, &err),
            KILN_STATUS_OK);
    return problem;
}

static struct kiln_planned *plan_one(const char *name, const char *slot, uint32_t shape,
        const struct kiln_geometry *geometry, struct kiln_arena *arena) {
    struct kiln_err err = {0};
    struct kiln_planned *planned = NULL;
    enum kiln_plan_outcome outcome = KILN_PLAN_DECLINED;
    const struct kiln_variant *variant = variant_of(name);
    enum kiln_status status = kiln_plan_make(awkward, variant, NULL,
            sample(arena, variant, slot, shape), geometry, h200, &outcome, &planned, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(status, KILN_STATUS_OK);
    assert_int_equal(outcome, KILN_PLAN_DONE);
    return planned;
}

// ---- Whole plans -------------------------------------------------------------------------------
static void plan_keeps_norm_with_quantize(void **state) {
    (void)state;
    struct kiln_arena arena = {0};
    struct kiln_planned *planned = plan_one("norm_quantize", "norm", 1, &none, &arena);
    kiln_arena_finish(&arena); // the plan stands on its own: the problem may go
    assert_int_equal(planned->n_launches, 1);
    const struct kiln_launch *launch = &planned->launches[0].record;
    assert_string_equal(launch->kernel, "norm_quantize");
    assert_ptr_equal(planned->launches[0].kernel, planned->variant->kernels[0]);
    assert_int_equal(launch->grid[0], 37);
    assert_int_equal(launch->n_args, 5);
    assert_int_equal(launch->args[3]->op, 1);
    assert_int_equal(launch->args[3]->operand, KILN_OPERAND_OUT);
    float eps;
    assert_int_equal(launch->args[4]->size, sizeof(eps));
    memcpy(&eps, launch->args[4]->bytes, sizeof(eps));
    assert_true(eps == 1e-5f);
    assert_string_equal(launch->sum_order, "warp_tree_256");
    assert_true(launch->bytes_written == 36.0 / 32 * 37 * 768);
    kiln_planned_destroy(planned);
}

static void plan_keeps_qkv_of_mixed_types(void **state) {
    (void)state;
    struct kiln_arena arena = {0};
    const struct kiln_variant *variant = variant_of("qkv");
    const struct kiln_problem *problem = sample(&arena, variant, "matmul.q4_K.decode", 0);
    assert_int_equal(problem->n_ops, 3);
    assert_string_equal(problem->ops[0]->role, "attn_q");
    assert_string_equal(problem->ops[2]->role, "attn_v");
    struct kiln_planned *planned = plan_one("qkv", "matmul.q4_K.decode", 0, &none, &arena);
    const struct kiln_launch *launch = &planned->launches[0].record;
    assert_int_equal(launch->n_args, 9);
    assert_int_equal(launch->args[3]->op, 2);
    assert_int_equal(launch->args[3]->operand, KILN_OPERAND_WEIGHT);
    int32_t types[3];
    memcpy(types, launch->args[8]->bytes, sizeof(types));
    assert_int_equal(types[0], KILN_DTYPE_Q4_K);
    assert_int_equal(types[1], KILN_DTYPE_Q4_K);
    assert_int_equal(types[2], KILN_DTYPE_Q6_K);
    assert_int_equal(launch->flags, KILN_LAUNCH_DEPENDENT);
    assert_int_equal(planned->n_workspaces, 1);
    assert_int_equal(planned->workspaces[0].bytes, 4);
    assert_int_equal(planned->workspaces[0].flags, KILN_WORKSPACE_ZERO);
    assert_int_equal(launch->args[7]->kind, KILN_ARG_WORKSPACE);
    kiln_planned_destroy(planned);
    kiln_arena_finish(&arena);
}

static void plan_keeps_a_hopper_gemm(void **state) {
    (void)state;
    struct kiln_arena arena = {0};
    const int64_t values[] = {128, 64};
    const struct kiln_geometry geometry = tiles(values);
    struct kiln_planned *planned = plan_one("hopper", "matmul.q4_K.prefill", 2, &geometry, &arena);
    kiln_arena_finish(&arena);
    const struct kiln_launch *launch = &planned->launches[0].record;
    assert_int_equal(launch->cluster[0], 2);
    assert_int_equal(launch->grid[0], 44);
    assert_int_equal(launch->grid[1], 4);
    assert_int_equal(launch->shared_bytes, 4 * (128 + 64) * 128 + 1024);
    assert_string_equal(launch->defines[0], "STAGES=4");
    assert_string_equal(launch->sites[0]->name, "A tile");
    assert_int_equal(launch->sites[0]->swizzle, KILN_SWIZZLE_128);
    assert_string_equal(planned->launches[0].kernel->instance, "gemm<BM, BN>");
    const struct kiln_tensor_map *map = launch->args[1]->map;
    assert_int_equal(map->base, KILN_ARG_PREPARED);
    assert_int_equal(map->rank, 2);
    assert_int_equal(map->dims[0], 2048);
    assert_int_equal(map->dims[1], 2816);
    assert_int_equal(map->strides[1], 4096);
    assert_int_equal(map->box[0], 64);
    assert_int_equal(map->box[1], 64);
    assert_int_equal(map->swizzle, KILN_SWIZZLE_128);
    assert_int_equal(map->l2_promotion, 128);
    const struct kiln_planned_preparation *preparation = &planned->preparations[0];
    assert_int_equal(planned->n_preparations, 1);
    assert_string_equal(preparation->record.id, "f16_tiles");
    assert_string_equal(preparation->record.keys[0], "BN");
    assert_int_equal(preparation->record.buffer_bytes[0], 2048 * 2816 * 2);
    assert_int_equal(preparation->record.sources[0]->operand, KILN_OPERAND_WEIGHT);
    assert_string_equal(preparation->launches[0].record.kernel, "repack");
    assert_int_equal(preparation->launches[0].record.args[1]->index, KILN_PREP_SELF);
    kiln_planned_destroy(planned);
}

static void plan_prints_all_of_itself(void **state) {
    (void)state;
    struct kiln_arena arena = {0};
    const int64_t values[] = {128, 64};
    const struct kiln_geometry geometry = tiles(values);
    struct kiln_planned *planned = plan_one("hopper", "matmul.f16.prefill", 2, &geometry, &arena);
    struct kiln_buf text = {0};
    kiln_planned_print(planned, &text);
    assert_string_equal(text.data,
            "workspace 0: 2097152 bytes\n"
            "preparation 0: f16_tiles, keyed by BN\n"
            "  source 0: operand 3 of op 0\n"
            "  buffer 0: 11534336 bytes\n"
            "  launch 0: repack, grid 2816 x 1 x 1, block 128 x 1 x 1, shared 0 bytes, 0 flops, 0 "
            "bytes read, 0 written\n"
            "    arg 0: operand 3 of op 0\n"
            "    arg 1: preparation self buffer 0\n"
            "launch 0: gemm, grid 44 x 4 x 1, block 384 x 1 x 1, cluster 2 x 1 x 1, shared 99328 "
            "bytes, 5905580032 flops, 0 bytes read, 0 written\n"
            "  arg 0: workspace 0 as map: dtype 1, dim 2048 stride 0 box 64 step 1, dim 512 stride "
            "4096 box 128 step 1, swizzle 3, l2 128, interleave 0, oob_nan 0\n"
            "  arg 1: preparation 0 buffer 0 as map: dtype 1, dim 2048 stride 0 box 64 step 1, dim "
            "2816 stride 4096 box 64 step 1, swizzle 3, l2 128, interleave 0, oob_nan 0\n"
            "  arg 2: operand 2 of op 0\n"
            "  define STAGES=4\n"
            "  site A tile: kind 1, stride 128, access 16, swizzle 3\n");
    kiln_buf_finish(&text);
    kiln_planned_destroy(planned);
    kiln_arena_finish(&arena);
}

static void plan_reads_launches_of_a_newer_minor(void **state) {
    (void)state;
    struct kiln_arena arena = {0};
    struct kiln_err err = {0};
    struct kiln_planned *planned = NULL;
    enum kiln_plan_outcome outcome;
    static const char *const names[] = {"N_TILE"};
    const int64_t values[] = {5};
    const struct kiln_geometry geometry = {
            .struct_size = sizeof(geometry), .n_values = 1, .names = names, .values = values};
    assert_int_equal(kiln_plan_make(newer, newer->variants[0], NULL,
                             sample(&arena, variant_of("norm_quantize"), "norm", 0), &geometry,
                             host, &outcome, &planned, &err),
            KILN_STATUS_OK);
    assert_int_equal(planned->launches[0].record.struct_size, sizeof(struct kiln_launch));
    assert_int_equal(planned->launches[0].record.grid[0], 5);
    kiln_planned_destroy(planned);
    kiln_arena_finish(&arena);
}

static void plan_passes_a_decline_on(void **state) {
    (void)state;
    struct kiln_arena arena = {0};
    struct kiln_err err = {0};
    const struct kiln_variant *variant = variant_of("hopper");
    const int64_t values[] = {128, 64};
    const struct kiln_geometry geometry = tiles(values);
    struct kiln_planned *planned = NULL;
    enum kiln_plan_outcome outcome = KILN_PLAN_DONE;
    assert_int_equal(kiln_plan_make(awkward, variant, NULL,
                             sample(&arena, variant, "matmul.q8_0.prefill", 0), &geometry, a100,
                             &outcome, &planned, &err),
            KILN_STATUS_OK);
    assert_int_equal(outcome, KILN_PLAN_DECLINED);
    assert_string_equal(err.text, "needs wgmma (sm_90a)");
    assert_null(planned);
    kiln_arena_finish(&arena);
}

// ---- Refused plans -----------------------------------------------------------------------------
// A plan() that passes on what a case has set up, after one workspace of 100 bytes and, on request,
// a preparation of one buffer of 64 bytes.
struct attempt {
    struct kiln_launch launch;
    struct kiln_arg arg, source;
    struct kiln_tensor_map map;
    struct kiln_smem_site site;
    struct kiln_preparation preparation;
    const struct kiln_arg *args[1], *sources[1];
    const struct kiln_smem_site *sites[1];
    const struct kiln_launch *launches[1];
    const char *defines[2], *keys[1];
    uint64_t buffer_bytes[1];
    uint64_t workspace_bytes;
    int prepares, skips_launch;
    int32_t result;   // -1: as the callbacks say
    const char *says; // to fail()
    const struct kiln_device *device;
};
static struct attempt attempt;

static int32_t plan_attempt(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)problem;
    (void)geometry;
    (void)device;
    int32_t ok = plan->workspace(plan, attempt.workspace_bytes, 0);
    if (attempt.prepares && ok >= 0) {
        ok = plan->prepare(plan, &attempt.preparation);
    }
    if (!attempt.skips_launch && ok >= 0) {
        ok = plan->launch(plan, &attempt.launch);
    }
    if (attempt.says) {
        return (plan->fail)(plan, attempt.says); // in parentheses: cmocka has a macro fail()
    }
    return attempt.result >= 0 ? attempt.result : ok < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

static void attempt_kernel(const struct kiln_block *block, void *const *args) {
    (void)block;
    (void)args;
}

static void make_attempt(void) {
    attempt = (struct attempt){.workspace_bytes = 100,
            .result = -1,
            .buffer_bytes = {64},
            .defines = {"A=1", "B=2"},
            .keys = {"BM"},
            .device = h200};
    attempt.map = (struct kiln_tensor_map){.struct_size = sizeof(attempt.map),
            .base = KILN_ARG_OPERAND,
            .dtype = KILN_DTYPE_F16,
            .rank = 2,
            .dims = {256, 16},
            .strides = {0, 512},
            .box = {64, 16},
            .elem_strides = {1, 1},
            .swizzle = KILN_SWIZZLE_128};
    attempt.arg = (struct kiln_arg){.struct_size = sizeof(attempt.arg),
            .kind = KILN_ARG_OPERAND,
            .operand = KILN_OPERAND_IN};
    attempt.source = attempt.arg;
    attempt.source.operand = KILN_OPERAND_WEIGHT;
    attempt.args[0] = &attempt.arg;
    attempt.sources[0] = &attempt.source;
    attempt.site = (struct kiln_smem_site){.struct_size = sizeof(attempt.site),
            .kind = KILN_SITE_LDMATRIX,
            .name = "K",
            .stride_bytes = 272,
            .access_bytes = 16};
    attempt.sites[0] = &attempt.site;
    attempt.launch = (struct kiln_launch){.struct_size = sizeof(attempt.launch),
            .kernel = "cuda_kernel",
            .grid = {1, 1, 1},
            .block = {32, 1, 1},
            .args = attempt.args,
            .defines = attempt.defines,
            .sites = attempt.sites,
            .n_args = 1,
            .n_defines = 1,
            .n_sites = 1};
    attempt.launches[0] = &attempt.launch;
    attempt.preparation = (struct kiln_preparation){.struct_size = sizeof(attempt.preparation),
            .n_sources = 1,
            .n_buffers = 1,
            .n_launches = 1,
            .n_keys = 1,
            .id = "prep",
            .sources = attempt.sources,
            .buffer_bytes = attempt.buffer_bytes,
            .launches = attempt.launches,
            .keys = attempt.keys};
}

static enum kiln_status make_plan(struct kiln_planned **planned, struct kiln_err *err) {
    static const struct kiln_source source = {.struct_size = sizeof(source)};
    static const struct kiln_kernel cuda_kernel = {.struct_size = sizeof(cuda_kernel),
                                            .name = "cuda_kernel",
                                            .source = &source},
                                    host_kernel = {.struct_size = sizeof(host_kernel),
                                            .name = "host_kernel",
                                            .host = attempt_kernel};
    static const struct kiln_kernel *const kernels[] = {&cuda_kernel, &host_kernel};
    static const struct kiln_variant variant = {.struct_size = sizeof(variant),
            .name = "v",
            .kernels = kernels,
            .n_kernels = 2,
            .plan = plan_attempt};
    static const struct kiln_plugin plugin = {
            .struct_size = sizeof(plugin), .abi_major = 1, .name = "p"};
    const int64_t values[] = {128, 64};
    const struct kiln_geometry geometry = tiles(values);
    struct kiln_arena arena = {0};
    enum kiln_plan_outcome outcome;
    enum kiln_status status = kiln_plan_make(&plugin, &variant, NULL,
            sample(&arena, &variant, "matmul.q4_K.prefill", 1), &geometry, attempt.device, &outcome,
            planned, err);
    kiln_arena_finish(&arena);
    return status;
}

static void assert_attempt(enum kiln_status expected, const char *text) {
    struct kiln_err err = {0};
    struct kiln_planned *planned = NULL;
    char whole[2048] = "";
    if (text[0]) {
        (void)snprintf(whole, sizeof(whole),
                "plugin 'p', variant 'v', slot matmul.q4_K.prefill, geometry BM=128 BN=64: %s",
                text);
    }
    enum kiln_status status = make_plan(&planned, &err);
    assert_string_equal(err.text, whole);
    assert_int_equal(status, expected);
    assert_true((planned != NULL) == (expected == KILN_STATUS_OK));
    kiln_planned_destroy(planned);
}

// Changes a sound attempt and asserts the exact message: FILE, a fault of the plugin, or DEVICE,
// too much for this device. An empty message: accepted.
#define ATTEMPT(change, status, text) \
    do { \
        make_attempt(); \
        change; \
        assert_attempt(KILN_STATUS_##status, text); \
    } while (0)
#define L "launch 0: 'cuda_kernel': "
#define A L "args: entry 0: "

static void plan_checks_grids(void **state) {
    (void)state;
    ATTEMPT((void)0, OK, "");
    ATTEMPT(attempt.launch.grid[1] = 0, FILE, L "grid 1 x 0 x 1 is empty; each is at least 1");
    ATTEMPT(attempt.launch.block[0] = 0, FILE, L "block 0 x 1 x 1 is empty; each is at least 1");
    ATTEMPT(attempt.launch.grid[1] = 65536, DEVICE,
            L "grid 1 x 65536 x 1; the device allows 2147483647 x 65535 x 65535");
    ATTEMPT(attempt.launch.grid[1] = 65535, OK, "");
    ATTEMPT(attempt.launch.block[2] = 65, DEVICE,
            L "block 32 x 1 x 65; the device allows 1024 x 1024 x 64");
    ATTEMPT(attempt.launch.block[1] = 33, DEVICE, L "1056 threads a block; the device allows 1024");
    ATTEMPT(attempt.launch.block[1] = 32, OK, "");
    ATTEMPT(attempt.launch.shared_bytes = 232449, DEVICE,
            L "232449 bytes of shared memory a block; the device allows 232448");
    ATTEMPT(attempt.launch.shared_bytes = 232448, OK, "");
    ATTEMPT((attempt.launch.flags = KILN_LAUNCH_COOPERATIVE, attempt.launch.grid[0] = 4225), DEVICE,
            L "a cooperative launch of 4225 blocks; at most 4224 can be there at once");
    ATTEMPT(attempt.launch.flags = 4, FILE, L "flags 4; ABI 1.0 knows COOPERATIVE and DEPENDENT");
    ATTEMPT((attempt.device = host, attempt.launch.kernel = "host_kernel"), OK, "");
    ATTEMPT((attempt.device = host, attempt.launch.kernel = "host_kernel",
                    attempt.launch.grid[0] = attempt.launch.grid[1] = 65536),
            DEVICE,
            "launch 0: 'host_kernel': grid 65536 x 65536 x 1; a host launch has at most 4294967295 "
            "blocks");
}

static void plan_checks_clusters(void **state) {
    (void)state;
    ATTEMPT((attempt.launch.cluster[0] = 2, attempt.launch.grid[0] = 3), FILE,
            L "grid 3 x 1 x 1 is no multiple of the cluster 2 x 1 x 1");
    ATTEMPT((attempt.launch.cluster[0] = 2, attempt.launch.grid[0] = 4), OK, "");
    ATTEMPT((attempt.launch.cluster[0] = 16, attempt.launch.grid[0] = 16), DEVICE,
            L "a cluster of 16 x 1 x 1 blocks; the device allows 8");
    ATTEMPT((attempt.launch.cluster[0] = 2, attempt.launch.grid[0] = 4, attempt.device = a100),
            DEVICE, L "clusters need compute capability 9.0, sm_80 has 8.0");
}

static void plan_checks_kernels(void **state) {
    (void)state;
    ATTEMPT(attempt.launch.kernel = "typo", FILE,
            "launch 0: 'typo': no kernel 'typo'; the variant has: cuda_kernel, host_kernel");
    ATTEMPT(attempt.launch.kernel = "host_kernel", FILE,
            "launch 0: 'host_kernel': a kernel with a host function cannot run on a CUDA device");
    ATTEMPT(attempt.device = host, FILE, L "a kernel with CUDA source cannot run on a host device");
    ATTEMPT(attempt.launch.kernel = NULL, FILE, "launch 0: kernel is NULL; it is mandatory");
    ATTEMPT(attempt.launch.struct_size = 120, FILE,
            "launch 0: struct_size 120, ABI 1.0 has 128; build the plugin anew, all of it with one "
            "kiln/plugin.h");
    ATTEMPT(attempt.launch.n_args = 5000, FILE, "launch 0: n_args is 5000; at most 4096");
    ATTEMPT(attempt.launch.args = NULL, FILE, "launch 0: args is NULL, n_args is 1");
    ATTEMPT(attempt.launch.flops = -1, FILE,
            L "flops, bytes_read and bytes_written are counts: finite, at least 0");
}

static void plan_checks_arguments(void **state) {
    (void)state;
    static const unsigned char bytes[4097] = {1};
    ATTEMPT((attempt.arg.kind = KILN_ARG_BYTES, attempt.arg.bytes = bytes, attempt.arg.size = 4096),
            OK, "");
    ATTEMPT((attempt.arg.kind = KILN_ARG_BYTES, attempt.arg.bytes = bytes, attempt.arg.size = 4097),
            FILE,
            "launch 0: args: entry 0: BYTES of size 4097; 1 to 4096 bytes are passed by value");
    ATTEMPT((attempt.arg.kind = KILN_ARG_BYTES, attempt.arg.size = 4), FILE,
            "launch 0: args: entry 0: BYTES of size 4, bytes NULL; 1 to 4096 bytes are passed by "
            "value");
    ATTEMPT(attempt.arg.kind = 9, FILE, A "kind 9 is none of enum kiln_arg_kind");
    ATTEMPT(attempt.arg.operand = KILN_OPERAND_GATE, FILE, A "op 0 has no operand 6");
    ATTEMPT(attempt.arg.operand = 99, FILE, A "op 0 has no operand 99");
    ATTEMPT(attempt.arg.operand = KILN_OPERAND_PAGE_TABLE, OK, ""); // optional: may be absent
    ATTEMPT(attempt.arg.op = 1, FILE, A "op 1; the problem has 1 (counted from 0)");
    ATTEMPT(attempt.arg.kind = KILN_ARG_WORKSPACE, OK, "");
    ATTEMPT((attempt.arg.kind = KILN_ARG_WORKSPACE, attempt.arg.index = 1), FILE,
            A "workspace 1; the plan has 1 so far (counted from 0)");
    ATTEMPT((attempt.arg.kind = KILN_ARG_WORKSPACE, attempt.arg.offset = 100), FILE,
            A "offset 100 is behind the end of the workspace, which has 100 bytes");
    ATTEMPT(attempt.arg.kind = KILN_ARG_PREPARED, FILE,
            A "preparation 0; the plan has 0 so far (counted from 0)");
    ATTEMPT((attempt.arg.kind = KILN_ARG_PREPARED, attempt.arg.index = KILN_PREP_SELF), FILE,
            A "preparation 4294967295; the plan has 0 so far (counted from 0)");
    ATTEMPT(attempt.args[0] = NULL, FILE, "launch 0: args: entry 0 is NULL");
    ATTEMPT(attempt.arg.struct_size = 48, FILE,
            "launch 0: args: entry 0: struct_size 48, ABI 1.0 has 56; build the plugin anew, all "
            "of "
            "it with one kiln/plugin.h");
    ATTEMPT(attempt.workspace_bytes = 0, FILE,
            "workspace 0: 0 bytes, flags 0; allowed: at least 1 byte, flags 0, ZERO or "
            "ZERO | KEPT");
}

static void plan_checks_defines_and_sites(void **state) {
    (void)state;
    ATTEMPT(attempt.defines[0] = "A", FILE, L "define 'A'; write NAME=VALUE");
    ATTEMPT(attempt.defines[0] = "1A=2", FILE, L "define '1A=2'; write NAME=VALUE");
    ATTEMPT(attempt.defines[0] = "BM=64", FILE,
            L "define 'BM' is taken: by kiln (KILN_…), the geometry or another define");
    ATTEMPT(attempt.defines[0] = "KILN_SMEM=64", FILE,
            L "define 'KILN_SMEM' is taken: by kiln (KILN_…), the geometry or another define");
    ATTEMPT((attempt.launch.n_defines = 2, attempt.defines[1] = "A=3"), FILE,
            L "define 'A' is taken: by kiln (KILN_…), the geometry or another define");
    ATTEMPT(attempt.launch.n_defines = 2, OK, "");
    ATTEMPT(attempt.site.access_bytes = 8, FILE,
            L "site 'K': kind 1, stride 272, access 8, swizzle 0; allowed: a known kind, a stride, "
              "1, 2, 4, 8 or 16 bytes (LDMATRIX: 16), swizzle 0 to 3");
}

#define MAP(change, status, text) \
    ATTEMPT((attempt.arg.kind = KILN_ARG_TENSOR_MAP, attempt.arg.map = &attempt.map, change), \
            status, text)

static void plan_checks_tensor_maps(void **state) {
    (void)state;
    MAP((void)0, OK, "");
    ATTEMPT(attempt.arg.kind = KILN_ARG_TENSOR_MAP, FILE,
            "launch 0: args: entry 0: TENSOR_MAP without a map (NULL)");
    MAP(attempt.map.rank = 6, FILE, A "map: rank is 6, allowed: 1 to 5");
    MAP(attempt.map.rank = 0, FILE, A "map: rank is 0, allowed: 1 to 5");
    MAP(attempt.map.base = KILN_ARG_BYTES, FILE,
            A "the map's base is 4; OPERAND, WORKSPACE and PREPARED have addresses");
    MAP(attempt.map.dtype = KILN_DTYPE_Q4_K, FILE,
            A "map: dtype 12 cannot be copied; take f16, bf16, f32, f64 or an integer type");
    MAP(attempt.map.dims[1] = 0, FILE, A "map: dims[1] is 0, allowed: 1 to 2^32");
    MAP(attempt.map.strides[1] = 520, FILE,
            A "map: strides[1] is 520 bytes, allowed: multiples of 16 below 2^40");
    MAP(attempt.map.box[1] = 257, FILE, A "map: box[1] is 257, allowed: 1 to 256");
    MAP(attempt.map.elem_strides[0] = 0, FILE, A "map: elem_strides[0] is 0, allowed: 1 to 8");
    MAP(attempt.map.box[0] = 72, FILE,
            A "map: the box's inner row has 144 bytes, the swizzle pattern 128; make it no longer");
    MAP(attempt.map.box[0] = 60, FILE,
            A "map: the box's inner row has 120 bytes, allowed: multiples of 16");
    MAP(attempt.map.swizzle = 4, FILE, A "map: swizzle is 4, allowed: 0 to 3");
    MAP(attempt.map.l2_promotion = 32, FILE, A "map: l2_promotion is 32, allowed: 0, 64, 128, 256");
    MAP(attempt.map.oob_nan = 2, FILE,
            A "map: oob_nan is 2, allowed: 0, and 1 for floating-point types");
    MAP(attempt.arg.offset = 8, FILE, A "map: offset 8 is no multiple of 16 bytes");
    MAP(attempt.device = a100, DEVICE, A "tensor maps need compute capability 9.0, sm_80 has 8.0");
}

#define PREPARE(change, status, text) \
    ATTEMPT((attempt.prepares = 1, attempt.arg.operand = KILN_OPERAND_WEIGHT, change), status, text)
#define P "preparation 0: "

static void plan_checks_preparations(void **state) {
    (void)state;
    PREPARE((void)0, OK, "");
    PREPARE(attempt.preparation.id = "", FILE, P "the id is empty");
    PREPARE(attempt.preparation.n_buffers = 0, FILE,
            P "a preparation has at least one source, one buffer and one launch");
    PREPARE(attempt.buffer_bytes[0] = 0, FILE, P "buffer 0 has 0 bytes");
    PREPARE(attempt.keys[0] = "BK", FILE, P "key 'BK' is no parameter of the variant's geometry");
    PREPARE(attempt.source.operand = KILN_OPERAND_IN, FILE,
            P "source 0: operand 1 of op 0 is not constant; only weights (KILN_TENSOR_WEIGHT) can "
              "be prepared");
    PREPARE(attempt.source.kind = KILN_ARG_WORKSPACE, FILE,
            P "source 0: kind 2; a source is an OPERAND");
    PREPARE(attempt.arg.operand = KILN_OPERAND_BIAS, FILE,
            P "launch 0 'cuda_kernel': args: entry 0: operand 4 of op 0 is not among the "
              "preparation's sources, which are its key");
    PREPARE(attempt.arg.kind = KILN_ARG_PREPARED, FILE,
            P "launch 0 'cuda_kernel': args: entry 0: a preparation writes its own buffers only: "
              "set index to KILN_PREP_SELF");
    PREPARE((attempt.arg.kind = KILN_ARG_PREPARED, attempt.arg.index = KILN_PREP_SELF,
                    attempt.arg.buffer = 1),
            FILE,
            P "launch 0 'cuda_kernel': args: entry 0: buffer 1; preparation 'prep' has 1 (counted "
              "from 0)");
    PREPARE(attempt.launches[0] = NULL, FILE, P "launch 0: it is NULL");
}

static void plan_judges_results(void **state) {
    (void)state;
    ATTEMPT(attempt.skips_launch = 1, FILE, "plan() returned OK without a launch; decline instead");
    ATTEMPT(attempt.says = "the tables are inconsistent", FILE,
            "plan() failed: the tables are inconsistent");
    ATTEMPT(attempt.result = 7, FILE, "plan() returned 7; allowed: 0 OK, 1 DECLINED, 2 FAILED");
    ATTEMPT(attempt.result = KILN_RESULT_FAILED, FILE, "plan() failed: no text given");
    // What kiln refused counts, whatever the plugin makes of it.
    ATTEMPT((attempt.launch.kernel = "typo", attempt.result = KILN_RESULT_OK), FILE,
            "launch 0: 'typo': no kernel 'typo'; the variant has: cuda_kernel, host_kernel");
    ATTEMPT((attempt.launch.kernel = "typo", attempt.says = "kiln does not want it"), FILE,
            "launch 0: 'typo': no kernel 'typo'; the variant has: cuda_kernel, host_kernel");
}

// ---- Allocation failure ------------------------------------------------------------------------
static void plan_survives_allocation_failure(void **state) {
    (void)state;
    struct kiln_arena arena = {0};
    const struct kiln_variant *variant = variant_of("hopper");
    const struct kiln_problem *problem = sample(&arena, variant, "matmul.q4_K.prefill", 2);
    const int64_t values[] = {128, 64};
    const struct kiln_geometry geometry = tiles(values);
    enum kiln_status status = KILN_STATUS_NOMEM;
    uint64_t n = 1;
    for (; status != KILN_STATUS_OK && n < 10000; n++) {
        struct kiln_planned *planned = NULL;
        struct kiln_err err = {0};
        enum kiln_plan_outcome outcome;
        kiln_mem_fail_at(n, 0);
        status = kiln_plan_make(
                awkward, variant, NULL, problem, &geometry, h200, &outcome, &planned, &err);
        kiln_mem_fail_at(0, 0);
        assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM);
        assert_true((planned != NULL) == (status == KILN_STATUS_OK));
        kiln_planned_destroy(planned);
    }
    assert_int_equal(status, KILN_STATUS_OK);
    assert_true(n > 30);
    kiln_arena_finish(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(plan_keeps_norm_with_quantize),
            cmocka_unit_test(plan_keeps_qkv_of_mixed_types),
            cmocka_unit_test(plan_keeps_a_hopper_gemm),
            cmocka_unit_test(plan_prints_all_of_itself),
            cmocka_unit_test(plan_reads_launches_of_a_newer_minor),
            cmocka_unit_test(plan_passes_a_decline_on),
            cmocka_unit_test(plan_checks_grids),
            cmocka_unit_test(plan_checks_clusters),
            cmocka_unit_test(plan_checks_kernels),
            cmocka_unit_test(plan_checks_arguments),
            cmocka_unit_test(plan_checks_defines_and_sites),
            cmocka_unit_test(plan_checks_tensor_maps),
            cmocka_unit_test(plan_checks_preparations),
            cmocka_unit_test(plan_judges_results),
            cmocka_unit_test(plan_survives_allocation_failure),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
