// abi: the table of published struct sizes, and what keeps this kiln's header true to it.
#include "plugin/abi.h"

#include "kiln/plugin.h"

#include <assert.h>
#include <string.h>

// One column a published minor. A new minor adds a column; what is written here never changes.
enum {
    N_MINORS = KILN_ABI_MINOR + 1
};
// clang-format off
static const struct {
    const char *name;
    uint32_t bytes[N_MINORS];
} sizes[KILN_ABI_N_STRUCTS] = {
    //                             1.0
    [KILN_ABI_PLUGIN]        = {"kiln_plugin",        {80}},
    [KILN_ABI_FORMAT]        = {"kiln_format",        {32}},
    [KILN_ABI_VARIANT]       = {"kiln_variant",       {104}},
    [KILN_ABI_PARAM]         = {"kiln_param",         {88}},
    [KILN_ABI_PARAM_DEFAULT] = {"kiln_param_default", {24}},
    [KILN_ABI_KERNEL]        = {"kiln_kernel",        {40}},
    [KILN_ABI_SOURCE]        = {"kiln_source",        {48}},
    [KILN_ABI_HEADER]        = {"kiln_header",        {24}},
    [KILN_ABI_IO]            = {"kiln_io",            {24}},
    [KILN_ABI_TENSOR_MAP]    = {"kiln_tensor_map",    {152}},
    [KILN_ABI_ARG]           = {"kiln_arg",           {56}},
    [KILN_ABI_SMEM_SITE]     = {"kiln_smem_site",     {32}},
    [KILN_ABI_LAUNCH]        = {"kiln_launch",        {128}},
    [KILN_ABI_PREPARATION]   = {"kiln_preparation",   {64}},
};

// The header against the newest column. `last` is a struct's last field: there must be no padding
// behind it, or a later minor could put a field where an older plugin left undefined bytes.
#define PUBLISHED(name, size, last)                                                                \
    static_assert(sizeof(struct name) == (size), "published size of struct " #name);              \
    static_assert(offsetof(struct name, last) + sizeof(((struct name *)0)->last) == (size),       \
            "padding at the end of struct " #name)
PUBLISHED(kiln_plugin, 80, extension);
PUBLISHED(kiln_format, 32, layout);
PUBLISHED(kiln_variant, 104, plan);
PUBLISHED(kiln_param, 88, defaults);
PUBLISHED(kiln_param_default, 24, value);
PUBLISHED(kiln_kernel, 40, host);
PUBLISHED(kiln_source, 48, n_options);
PUBLISHED(kiln_header, 24, text);
PUBLISHED(kiln_io, 24, formats);
PUBLISHED(kiln_tensor_map, 152, oob_nan);
PUBLISHED(kiln_arg, 56, map);
PUBLISHED(kiln_smem_site, 32, reserved);
PUBLISHED(kiln_launch, 128, sum_order);
PUBLISHED(kiln_preparation, 64, keys);
// Those that kiln writes and a plugin reads: no check at run time, but no change either.
PUBLISHED(kiln_tensor, 120, format);
PUBLISHED(kiln_op, 72, eps);
PUBLISHED(kiln_problem, 40, world);
PUBLISHED(kiln_geometry, 24, values);
PUBLISHED(kiln_device, 136, max_block);
PUBLISHED(kiln_host, 32, extension);
PUBLISHED(kiln_plan, 56, fail);
PUBLISHED(kiln_block, 40, shared);
// clang-format on

static const unsigned our_minor = KILN_ABI_MINOR;

uint32_t kiln_abi_size(enum kiln_abi_struct which, unsigned minor) {
    return sizes[which].bytes[minor < our_minor ? minor : our_minor];
}

enum kiln_status kiln_abi_check_size(
        enum kiln_abi_struct which, uint32_t struct_size, unsigned minor, struct kiln_err *err) {
    uint32_t known = kiln_abi_size(which, minor);
    int newer = minor > our_minor;
    if (newer ? struct_size >= known : struct_size == known) {
        return KILN_STATUS_OK;
    }
    return kiln_err_set(err, KILN_STATUS_FILE,
            "struct_size %u, ABI %d.%u has %s%u; build the plugin anew, all of it with one "
            "kiln/plugin.h",
            struct_size, KILN_ABI_MAJOR, minor, newer ? "at least " : "", known);
}

void kiln_abi_import(enum kiln_abi_struct which, void *dest, const void *source) {
    uint32_t ours = kiln_abi_size(which, our_minor), theirs;
    memcpy(&theirs, source, sizeof(theirs));
    memset(dest, 0, ours);
    memcpy(dest, source, theirs < ours ? theirs : ours);
    memcpy(dest, &ours, sizeof(ours));
}
