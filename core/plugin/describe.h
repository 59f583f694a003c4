// describe: what plugins offer, as text for people and as JSON: `kiln plugins list` and `inspect`.
#ifndef KILN_PLUGIN_DESCRIBE_H
#define KILN_PLUGIN_DESCRIBE_H

#include "base/buf.h"
#include "base/status.h"
#include "plugin/registry.h"

#include <stddef.h>
#include <stdint.h>

// "weight", "k_cache" …; "?" when it is none. Static.
const char *kiln_operand_name(uint32_t operand);
// The operand of that name (enum kiln_operand); 0 when it is none.
uint32_t kiln_operand_by_name(const char *name);
// Whether an op writes the operand.
int kiln_operand_is_written(uint32_t operand);

// The op's tensor for that operand (enum kiln_operand); NULL when it has none.
const struct kiln_tensor *kiln_op_tensor(const struct kiln_op *op, uint32_t operand);

// Each appends to `text`, which has its own failure flag.

// One block a plugin: name, version, ABI, path, variants with their slots; then the files that were
// refused, each with its reason.
void kiln_plugins_list(const struct kiln_registry *registry, struct kiln_buf *text);
// {"abi": "1.0", "plugins": [as of kiln_plugin_inspect_json …], "refused": [{"path", "reason"} …]}
KILN_MUST_CHECK enum kiln_status kiln_plugins_list_json(
        const struct kiln_registry *registry, struct kiln_buf *text, struct kiln_err *err);

// Plugin `index` of the registry in full: its block formats, and for each variant the slots,
// devices, ops fused, formats read and written, kernels and the geometry schema with default,
// range, unit and help.
void kiln_plugin_inspect(const struct kiln_registry *registry, size_t index, struct kiln_buf *text);
// {"name", "version", "abi", "path", "help", "formats": [{"name", "block_elems", "block_bytes",
// "row_multiple", "layout"}], "variants": [{"name", "help", "slots", "role", "follows", "devices",
// "reads": [{"op", "operand", "formats"}], "writes": [the same], "kernels": [{"name", "source" or
// null, "instance" or null}], "params": [{"name", "help", "unit", "default", "allowed" or "min",
// "max", "multiple_of", "regroups", "defaults": [{"head_size", "target_min", "target_max",
// "value"}]}]}]}
KILN_MUST_CHECK enum kiln_status kiln_plugin_inspect_json(const struct kiln_registry *registry,
        size_t index, struct kiln_buf *text, struct kiln_err *err);

#endif
