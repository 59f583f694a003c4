// newer: a plugin of ABI 1.7, whose structs have grown at their ends, with one variant that this
// kiln can use and one in a slot that it has never heard of.
#include "plugin-1.0.h"

struct param_1_7 {
    struct kiln_param known;
    uint64_t more[2];
};
struct variant_1_7 {
    struct kiln_variant known;
    const char *more;
};
struct launch_1_7 {
    struct kiln_launch known;
    uint64_t more;
};
struct kernel_1_7 {
    struct kiln_kernel known;
    uint64_t more[3];
};
struct plugin_1_7 {
    struct kiln_plugin known;
    uint64_t more[5];
};

static void run(const struct kiln_block *block, void *const *args) {
    (void)block;
    (void)args;
}

static int32_t plan_newer(void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        struct kiln_plan *plan) {
    (void)instance;
    (void)problem;
    (void)device;
    const struct launch_1_7 launch = {.known = {.struct_size = sizeof(launch),
                                              .kernel = "run",
                                              .grid = {(uint32_t)geometry->values[0], 1, 1}},
            .more = UINT64_MAX};
    return plan->launch(plan, &launch.known) < 0 ? KILN_RESULT_FAILED : KILN_RESULT_OK;
}

static const struct param_1_7 tile = {.known = {.struct_size = sizeof(tile),
                                              .flags = 0x80000000u | KILN_PARAM_REGROUPS,
                                              .name = "N_TILE",
                                              .help = "rows a tile",
                                              .unit = "rows",
                                              .value = 4,
                                              .min = 1,
                                              .max = 8},
        .more = {UINT64_MAX, UINT64_MAX}};
static const struct kiln_param *const params[] = {&tile.known};
static const struct kernel_1_7 kernel = {
        .known = {.struct_size = sizeof(kernel), .name = "run", .host = run}};
static const struct kiln_kernel *const kernels[] = {&kernel.known};

static const char *const old_slots[] = {"norm"}, *const new_slots[] = {"transpose.prefill"};
#define VARIANT(name_, slots_) \
    { \
        .known = {.struct_size = sizeof(struct variant_1_7), \
                .devices = 4 | KILN_DEVICE_HOST, \
                .name = name_, \
                .help = "of a later minor", \
                .slots = slots_, \
                .params = params, \
                .kernels = kernels, \
                .n_slots = 1, \
                .n_params = 1, \
                .n_kernels = 1, \
                .plan = plan_newer}, \
        .more = "unknown" \
    }
static const struct variant_1_7 usable = VARIANT("usable", old_slots);
static const struct variant_1_7 unheard = VARIANT("unheard", new_slots);
static const struct kiln_variant *const variants[] = {&unheard.known, &usable.known};

// As the header of 1.7 would have it: the object is longer than 1.0's declaration, so the symbol is
// given to it by name.
extern const struct plugin_1_7 entry_1_7 __asm__("kiln_plugin_entry");
KILN_EXPORT const struct plugin_1_7 entry_1_7 = {.known = {.struct_size = sizeof(entry_1_7),
                                                         .abi_major = 1,
                                                         .abi_minor = 7,
                                                         .name = "newer",
                                                         .version = "7",
                                                         .help = "of a later minor",
                                                         .variants = variants,
                                                         .n_variants = 2}};
