// switch: an engine takes over another configuration while it goes on serving.
//
// kiln_follower_begin, on the engine's thread, notes what is to be built; kiln_follower_build makes
// it beside the running engine, on any thread and with a device of that thread's own (device.h,
// `side`); kiln_follower_take, on the engine's thread between two evaluations, puts it in place.
// What both configurations have alike is shared and not made again: the weights on the device,
// compiled kernels, prepared weights, and the caches with what is in them, unless their length or
// type changes.
#ifndef KILN_ENGINE_SWITCH_H
#define KILN_ENGINE_SWITCH_H

#include "base/buf.h"
#include "base/status.h"
#include "config/config.h"
#include "device/device.h"
#include "engine/engine.h"

struct kiln_follower;

// What became of a configuration that was built.
struct kiln_follower_counts {
    uint64_t compiled, cached, shared; // kernels: compiled, from the disk, loaded already
    uint64_t prepared, kept;           // weight preparations: made, taken as they were
};

// `config`: checked; outlives the follower, and the engine once it has taken over. The engine must
// not be destroyed before the follower.
KILN_MUST_CHECK enum kiln_status kiln_follower_begin(struct kiln_follower **follower,
        struct kiln_engine *engine, struct kiln_config *config, struct kiln_err *err);
// Fails as kiln_engine_create does; the follower is then good for nothing but to be destroyed.
KILN_MUST_CHECK enum kiln_status kiln_follower_build(
        struct kiln_follower *follower, struct kiln_dev *dev, struct kiln_err *err);
// Whether the caches are others, so that what they hold is lost at the take-over.
int kiln_follower_forgets(const struct kiln_follower *follower);
struct kiln_follower_counts kiln_follower_counts(const struct kiln_follower *follower);
// Appends a line for each way in which what runs will differ: "SLOT: OLD -> NEW (N steps)".
void kiln_follower_describe(const struct kiln_follower *follower, struct kiln_buf *text);
// The engine runs what was built from here on; what it ran is freed with the follower, which is
// ended. The engine's n_past is kept, or 0 when the caches are others.
KILN_MUST_CHECK enum kiln_status kiln_follower_take(
        struct kiln_follower *follower, struct kiln_err *err);
void kiln_follower_destroy(struct kiln_follower *follower); // NULL is fine

// Appends a line for each slot and variant that the engine runs: "SLOT: PLUGIN/VARIANT GEOMETRY (N
// steps)".
void kiln_engine_summary(const struct kiln_engine *engine, struct kiln_buf *text);

// Whether the CUDA files that the engine's config names hold something else by now. A file that
// cannot be read counts as changed.
int kiln_engine_sources_changed(const struct kiln_engine *engine);

#endif
