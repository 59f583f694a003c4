// schedule_impl: what the files that make a schedule share: lower.c (ops to steps), place.c
// (memory), schedule.c (addresses, kernels, running).
#ifndef KILN_ENGINE_SCHEDULE_IMPL_H
#define KILN_ENGINE_SCHEDULE_IMPL_H

#include "base/ranges.h"
#include "engine/call.h"
#include "engine/schedule.h"

enum {
    KILN_STEP_OPS = 8
};

// A piece of the arena: an edge in one format, or a workspace.
struct kiln_value {
    kiln_edge edge;     // -1: a workspace
    const char *format; // "f32" …
    int32_t reader;     // step that this copy was quantized for, -1: any
    uint64_t bytes;
    int32_t first, last; // steps during which it must be kept
    uint64_t offset;     // in the arena
    int32_t same_as;     // value whose place it takes over, or -1
    int kept;            // a workspace that is zeroed once and then left alone
};

struct kiln_step_op {
    struct kiln_op op;
    struct kiln_tensor tensors[KILN_NODE_OPERANDS];
    const struct kiln_tensor *operands[KILN_NODE_OPERANDS];
    int32_t values[KILN_NODE_OPERANDS]; // index of the value, or -1: `address` holds
    void *address[KILN_NODE_OPERANDS];
};

// What an argument's address is replaced by where a step of decode is queued as one.
enum kiln_link {
    KILN_LINK_NONE,
    KILN_LINK_IN,    // of a head: what the body wrote, so that nothing is copied
    KILN_LINK_ID_IN, // the id that is embedded
    KILN_LINK_ID_OUT // the one that is picked
};

struct kiln_step {
    size_t node; // first node; for an inserted quantize op the reader's
    uint32_t n_nodes;
    int32_t layer;
    char slot[64];
    const struct kiln_binding *binding;
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    struct kiln_geometry geometry;
    struct kiln_step_op *ops;
    uint32_t n_ops;
    struct kiln_planned *planned;
    int32_t first_workspace; // its workspaces are values from here on
    struct kiln_call call;
    uint8_t *links;                 // enum kiln_link of each of the call's arguments
    const struct kiln_range *range; // slot, variant and geometry
    const struct kiln_range *layer_range;
};

struct kiln_schedule {
    struct kiln_runtime *runtime;
    enum kiln_part part;
    enum kiln_phase phase;
    int64_t rows, m;
    size_t first_node, end_node;
    struct kiln_step *steps;
    size_t n_steps, cap_steps;
    struct kiln_value *values;
    size_t n_values, cap_values;
    const struct kiln_binding **bindings; // by node, as bound with no variant passed over
    void *arena;
    uint64_t arena_bytes;
    int32_t in_value, out_value;
    void *graph; // the device's recording of all steps, or NULL
    struct kiln_whole {
        void *graph; // of all steps and those of `head` behind them, or NULL
        const struct kiln_schedule *head;
    } whole[3]; // of HEAD, of PICK by turns
};

// lower.c: fills in steps and values. place.c: fills in offsets and arena_bytes.
KILN_MUST_CHECK enum kiln_status kiln_schedule_lower(
        struct kiln_schedule *schedule, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_schedule_place(
        struct kiln_schedule *schedule, struct kiln_err *err);

// bind.c: the binding of a node's slot for m rows; *binding is NULL when `skip` passes over all.
KILN_MUST_CHECK enum kiln_status kiln_schedule_bind(const struct kiln_schedule *schedule,
        size_t node, enum kiln_phase phase, int64_t m, unsigned skip, char slot[64],
        const struct kiln_binding **binding, struct kiln_err *err);

// The formats that a variant takes (or gives) at an operand of its op, best first; f32 where it
// says none, and for NULL. The names live as long as the variant.
struct kiln_formats {
    const char *const *names;
    uint32_t count;
};
struct kiln_formats kiln_variant_formats(
        const struct kiln_variant *variant, uint32_t op, uint32_t operand);
int kiln_formats_have(struct kiln_formats formats, const char *name);

// What [quantize] says for a reader: variant_name "separate" or "shared", and a plugin or NULL.
KILN_MUST_CHECK enum kiln_status kiln_schedule_bind_quantize(const struct kiln_schedule *schedule,
        const struct kiln_node *reader, const struct kiln_binding **binding, struct kiln_err *err);
// Whether a variant turns f32 into the format on this kind of device.
int kiln_quantizes_to(
        const struct kiln_variant *variant, const struct kiln_device *device, const char *format);
// The first that is loaded, of the plugin `wanted` or of any (NULL), with its plugin; NULL: none.
const struct kiln_variant *kiln_find_quantizer(const struct kiln_runtime *rt, const char *format,
        const struct kiln_plugin *wanted, const struct kiln_plugin **plugin);

// operands.c: describes a node's operand as the problem shows it.
void kiln_step_describe(const struct kiln_schedule *schedule, const struct kiln_node *node,
        const struct kiln_node_operand *operand, struct kiln_tensor *tensor, void **address);
// Whether an edge can have a format: its columns are whole blocks. 1 too where the format is
// unknown, of which kiln_edge_describe complains.
int kiln_edge_fits(const struct kiln_schedule *schedule, kiln_edge edge, const char *format);
// An edge in a format: its tensor (operand not filled in) and its size in bytes. An unknown format
// is KILN_STATUS_FILE.
KILN_MUST_CHECK enum kiln_status kiln_edge_describe(const struct kiln_schedule *schedule,
        kiln_edge edge, const char *format, struct kiln_tensor *tensor, uint64_t *bytes,
        struct kiln_err *err);

#endif
