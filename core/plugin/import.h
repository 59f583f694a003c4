// import: a plugin's tables, checked to the last struct and copied into the layout of this kiln's
// header.
//
// Reads only what hangs off the entry object and calls nothing. Strings and functions stay the
// plugin's: its library must stay open as long as the copy is used.
#ifndef KILN_PLUGIN_IMPORT_H
#define KILN_PLUGIN_IMPORT_H

#include "base/status.h"
#include "kiln/plugin.h"
#include "plugin/arena.h"

// Checks `entry`, as it lies in a plugin's library, and makes the copy in `arena`. abi_minor of the
// copy is the plugin's, everything else reads as this kiln's header says; a variant that needs
// slots or operands of a newer minor is left out. KILN_STATUS_FILE with the place of the fault in
// words: "variant 2 'x': parameter 'FA_TQ': struct_size 80, ABI 1.0 has 88; build ..."; the file is
// for the caller to name.
KILN_MUST_CHECK enum kiln_status kiln_import_plugin(struct kiln_arena *arena,
        const struct kiln_plugin *entry, const struct kiln_plugin **plugin, struct kiln_err *err);

#endif
