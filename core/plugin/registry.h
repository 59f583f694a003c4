// registry: finds plugins, opens them, refuses what does not fit, and lists what the rest offer.
//
// Opening a library is all that happens to it before it is accepted: it is opened with immediate,
// local binding, its one data symbol is read, every struct behind it is checked; nothing of a
// refused library is called, and it is not listed among the plugins. One refusal never keeps
// another plugin from loading.
//
// What the registry hands out is a copy, laid out as this kiln's own header says, whatever minor
// version the plugin was built against: fields that the plugin did not know read as zero. So the
// rest of the core uses struct kiln_plugin and what hangs off it directly, without looking at
// struct_size again.
#ifndef KILN_PLUGIN_REGISTRY_H
#define KILN_PLUGIN_REGISTRY_H

#include "base/status.h"
#include "kiln/plugin.h"

#include <stddef.h>

struct kiln_registry;

KILN_MUST_CHECK enum kiln_status kiln_registry_create(
        struct kiln_registry **registry, struct kiln_err *err);
void kiln_registry_destroy(
        struct kiln_registry *registry); // finishes instances, closes; NULL is fine

// Opens every *.so in a folder and in its direct subfolders, in name order. A library that is
// refused is noted (kiln_registry_refusal) and does not fail the call; a folder that cannot be read
// does. The same file (device and inode) found again over another path is not opened twice.
KILN_MUST_CHECK enum kiln_status kiln_registry_add_dir(
        struct kiln_registry *registry, const char *dir, struct kiln_err *err);
// One library by its path; a refusal is this call's error, KILN_STATUS_FILE.
KILN_MUST_CHECK enum kiln_status kiln_registry_add_file(
        struct kiln_registry *registry, const char *path, struct kiln_err *err);
// The folders of a normal run, in order: beside the executable (build tree: EXE_DIR/plugins; else
// EXE_DIR/../LIBDIR/kiln/plugins), KILN_PLUGIN_PATH (":"-separated), then extra[0..n). Never the
// current folder.
KILN_MUST_CHECK enum kiln_status kiln_registry_add_default(struct kiln_registry *registry,
        const char *const *extra, size_t n_extra, struct kiln_err *err);

size_t kiln_registry_count(const struct kiln_registry *registry);
const struct kiln_plugin *const *kiln_registry_plugins(const struct kiln_registry *registry);
const char *kiln_registry_path(const struct kiln_registry *registry, size_t index);
// The major.minor that plugin `index` was built against.
void kiln_registry_abi(
        const struct kiln_registry *registry, size_t index, unsigned *major, unsigned *minor);

struct kiln_refusal {
    const char *path;
    const char *text; // cause and what would fix it, one message
};
size_t kiln_registry_n_refusals(const struct kiln_registry *registry);
struct kiln_refusal kiln_registry_refusal(const struct kiln_registry *registry, size_t index);

// By name; NULL when absent.
const struct kiln_plugin *kiln_registry_find(
        const struct kiln_registry *registry, const char *name);

// Whether a slot pattern of a variant ("matmul.*.prefill") covers a slot ("matmul.q4_K.prefill").
int kiln_slot_matches(const char *pattern, const char *slot);
// Whether the variant fills the slot.
int kiln_variant_fills(const struct kiln_variant *variant, const char *slot);

// Starts `plugin` for a device (once for each plugin and device target; later calls give the same
// instance). A plugin without start() has a NULL instance. A failing start() is KILN_STATUS_FILE.
KILN_MUST_CHECK enum kiln_status kiln_registry_start(struct kiln_registry *registry,
        const struct kiln_plugin *plugin, const struct kiln_device *device, void **instance,
        struct kiln_err *err);

// Held around kiln_registry_start and the plan that follows where more than one thread plans: an
// instance is called by one at a time.
void kiln_registry_lock(struct kiln_registry *registry);
void kiln_registry_unlock(struct kiln_registry *registry);

#endif
