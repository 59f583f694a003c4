// reload: a running session follows its configuration: edited INI files and CUDA sources, and
// settings made by hand.
//
// The owner calls kiln_reload_poll wherever a switch may happen: between prompts, between the
// tokens of an answer. It looks at the files, has what they say now built in the background while
// the session serves, and exchanges the two when that is done. What cannot be read, planned or
// compiled changes nothing: the configuration in force stays, and the reason is said once.
//
// Settings that belong to the device ([engine] threads, [cache]) are those of the start for good; a
// change of them is said.
#ifndef KILN_ENGINE_RELOAD_H
#define KILN_ENGINE_RELOAD_H

#include "base/buf.h"
#include "base/status.h"
#include "config/layers.h"
#include "engine/session.h"

#include <stdint.h>

struct kiln_reload;

struct kiln_reload_params {
    struct kiln_session *session; // all of these outlive the reload
    struct kiln_registry *registry;
    struct kiln_config **config; // in force; at a switch the old one is destroyed and this is set
    struct kiln_layers layers;   // what *config was loaded from
    int (*stop)(void);           // asked while waiting; or NULL
    // What happened, a line at a time without its end. `note` 0: a switch, or why there was none;
    // 1: an edit that changes nothing.
    void (*say)(void *arg, int note, const char *line);
    void *arg;
};

KILN_MUST_CHECK enum kiln_status kiln_reload_create(
        struct kiln_reload **reload, const struct kiln_reload_params *params, struct kiln_err *err);
// Waits for what is being built, and drops it. NULL is fine.
void kiln_reload_destroy(struct kiln_reload *reload);

// Looks, at most every few milliseconds, and never waits. between_prompts: also what makes the
// caches forget (another ctx or kv_type) may be put in place. Fails only as a device does that
// cannot go on.
KILN_MUST_CHECK enum kiln_status kiln_reload_poll(
        struct kiln_reload *reload, int between_prompts, struct kiln_err *err);
// Before a prompt: as poll, and waits until what was edited before is in place or refused.
// INTERRUPTED: stop() said so.
KILN_MUST_CHECK enum kiln_status kiln_reload_settle(
        struct kiln_reload *reload, struct kiln_err *err);
// Waits until a switch has happened since the count was `seen`.
KILN_MUST_CHECK enum kiln_status kiln_reload_wait(
        struct kiln_reload *reload, uint64_t seen, struct kiln_err *err);
// Adds SECTION.KEY=VALUE on top of what is in force and waits until it is in place. When it is
// refused nothing has changed.
KILN_MUST_CHECK enum kiln_status kiln_reload_set(
        struct kiln_reload *reload, const char *assignment, struct kiln_err *err);

uint64_t kiln_reload_count(const struct kiln_reload *reload); // switches so far
// Appends what is watched and what is set on top, a line each.
void kiln_reload_describe(const struct kiln_reload *reload, struct kiln_buf *text);

#endif
