// config: INI layers merged and checked into settings and bindings.
//
// Layers, later wins: the built-in defaults (defaults.c), configs/default.ini, each --config FILE,
// each --set SECTION.KEY=VALUE. Sections: slots ("attention.prefill", "matmul.q4_K.prefill",
// "matmul.*.prefill" for every type), each with an optional "/name" and a `when` condition;
// "engine", "cache", "tune". In a slot section lower-case keys are kiln's (plugin, variant, when,
// priority, source), UPPER_CASE keys are geometry of the variant.
//
// Merging: sections of the same name merge by key, the later layer's value wins. A layer that names
// another variant for a section drops the plugin, source and geometry that earlier layers gave it;
// one that names another plugin drops source and geometry; `when` and `priority` stay. "slot/name"
// takes nothing from "slot".
//
// Which section binds a call: of those whose slot and `when` fit, the one that a later layer
// touched last; within a layer the higher `priority` (0 when not given), then an exact slot before
// "*", then the one with more conditions; two that are alike in all of this are an error naming
// both. A "*" section binds the types that its variant fills and leaves the rest to other sections.
//
// All layers are read and merged, then checked as a whole against the schemas of the plugins at
// hand. Nothing unknown, out of range, duplicate or malformed is ever ignored: it is an error with
// file, line, what was read, what is allowed and the nearest right name. Only a section that the
// defaults alone give may name a variant of a plugin that is not loaded: that becomes an error when
// a call is bound to it. A config that failed its check is not used: the caller keeps the one it
// had, so a reload builds a new config. It is read-only after the check and may be shared by
// threads.
#ifndef KILN_CONFIG_CONFIG_H
#define KILN_CONFIG_CONFIG_H

#include "base/buf.h"
#include "base/status.h"
#include "kiln/plugin.h"

#include <stddef.h>
#include <stdint.h>

// The plugins whose variants and schemas a config is checked against (the registry's list).
struct kiln_catalog {
    const struct kiln_plugin *const *plugins;
    size_t n_plugins;
};

enum kiln_kv_type {
    KILN_KV_AUTO,
    KILN_KV_F32,
    KILN_KV_F16
};

enum kiln_graph_mode {
    KILN_GRAPH_AUTO,
    KILN_GRAPH_ON,
    KILN_GRAPH_OFF
};

struct kiln_settings {
    int64_t ctx;                // tokens; 0: what the model was trained for, at most 4096
    int64_t ubatch;             // tokens of a prefill chunk
    int64_t threads;            // 0: all cores
    enum kiln_kv_type kv_type;  // AUTO: f16 on GPUs, f32 on the CPU
    enum kiln_graph_mode graph; // AUTO: on unless a profiler listens, which would see no ranges
    const char *cache_dir;      // NULL: kiln_cache_dir()
    int64_t cache_max_size;     // bytes
    int tune_at_start;   // 1: tune before the first prompt when nothing is tuned for this device
    int64_t tune_budget; // seconds that one tuning may take
};

struct kiln_config;

KILN_MUST_CHECK enum kiln_status kiln_config_create(
        struct kiln_config **config, struct kiln_err *err);
void kiln_config_destroy(struct kiln_config *config); // NULL is fine

// Adds a layer. `name` stands for the file in messages, `dir` is what `source =` is relative to
// (may be NULL). Text errors (malformed lines, duplicate keys and sections) are found here,
// KILN_STATUS_CONFIG.
KILN_MUST_CHECK enum kiln_status kiln_config_add_text(struct kiln_config *config, const char *name,
        const char *dir, const char *text, size_t len, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_config_add_file(
        struct kiln_config *config, const char *path, struct kiln_err *err);
// "attention.prefill.FA_TQ=64", "matmul.q4_K.prefill/small.when=m<=64", "engine.ctx=512".
KILN_MUST_CHECK enum kiln_status kiln_config_add_set(
        struct kiln_config *config, const char *assignment, struct kiln_err *err);
// The built-in layer and, when it exists, configs/default.ini found beside the executable (build
// tree: EXE_DIR/configs, else EXE_DIR/../share/kiln/configs).
KILN_MUST_CHECK enum kiln_status kiln_config_add_defaults(
        struct kiln_config *config, struct kiln_err *err);

// Checks everything that was merged. Call once, after the last layer.
KILN_MUST_CHECK enum kiln_status kiln_config_check(
        struct kiln_config *config, const struct kiln_catalog *catalog, struct kiln_err *err);

// After a successful check.
const struct kiln_settings *kiln_config_settings(const struct kiln_config *config);

// The INI files that were read, in order: what to watch for changes. NULL past the end.
const char *kiln_config_file(const struct kiln_config *config, size_t index);

// What a call is, for `when`: m rows, n outputs, k inputs, head size, role, layer, phase, device.
// target=cuda matches every CUDA device and the simulator, target=sim the simulator alone.
struct kiln_bind_query {
    const char *slot; // "matmul.q4_K.prefill"
    int64_t m, n, k, hd;
    const char *role; // "" when it has none
    int32_t layer;    // -1: none
    uint32_t phase;   // enum kiln_phase
    const struct kiln_device
            *device; // `target=` matches its target ("sm_90a", "cpu") or "cuda", "sim", "cpu"
};

// Which variant fills a slot, with which geometry. Lives as long as the config; the same query
// gives the same pointer, so that pointers can be compared to see whether two calls are bound
// alike.
struct kiln_binding {
    const struct kiln_plugin *plugin;   // NULL: kiln's own policy (slot quantize: separate, shared)
    const struct kiln_variant *variant; // NULL likewise
    const char *variant_name;           // never NULL
    struct kiln_geometry geometry; // a value for each parameter of the variant, in schema order
    const char *source;  // path of the CUDA source that replaces the variant's own, or NULL
    const char *origin;  // "default.ini:12" or "--set": where the variant was chosen
    const char *section; // "attention.prefill", "matmul.q4_K.prefill/small"
    unsigned layer;      // the last one that touched the section: later ones outrank earlier ones
};

// Finds the binding of a call. KILN_STATUS_CONFIG when no section binds the slot, or when the
// variant bound does not run on this kind of device: the message says which variants could fill the
// slot. `skip`: how many of the best bindings to pass over (0 first; when a variant declined, 1
// gives the next best, and so on; what cannot run on the device is passed over then); *binding is
// NULL with OK when skip > 0 and none is left.
KILN_MUST_CHECK enum kiln_status kiln_config_bind(struct kiln_config *config,
        const struct kiln_bind_query *query, unsigned skip, const struct kiln_binding **binding,
        struct kiln_err *err);

// The variants that sections bind, in the order in which they are tried; one may come twice.
// Policies of kiln's own and what no loaded plugin has are not among them. 0 past the end.
int kiln_config_variant(const struct kiln_config *config, size_t index,
        const struct kiln_plugin **plugin, const struct kiln_variant **variant);

// The effective config as INI text, each value with where it came from as a comment; the result
// reads back as the same config. Appends.
void kiln_config_show(const struct kiln_config *config, struct kiln_buf *text);
// The same as JSON: {"settings": {key: {value, origin}}, "bindings": [{section, when, plugin,
// variant, geometry…}]}
KILN_MUST_CHECK enum kiln_status kiln_config_show_json(
        const struct kiln_config *config, struct kiln_buf *text, struct kiln_err *err);

#endif
