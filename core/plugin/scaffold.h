// scaffold: writes the folder of a new plugin that works as it stands, and says how to go on.
//
// The files are those of plugins/example/ with the name exchanged; they are built into kiln, so
// that an installed kiln has them too. Building and running is the reader's: nothing is started.
#ifndef KILN_PLUGIN_SCAFFOLD_H
#define KILN_PLUGIN_SCAFFOLD_H

#include "base/buf.h"
#include "base/status.h"

struct kiln_scaffold {
    const char *name; // of the plugin and its folder, [a-z0-9_]+
    const char *slot; // one of kiln_scaffold_slots()
    const char *dir;  // the folder that the new one goes into; it exists
    int cuda;         // with a CUDA kernel beside the one for the CPU, in NAME.cu; slot norm
    // For the guide alone: how kiln is called, and where pkg-config finds it (NULL: by itself).
    const char *kiln, *pkg_config_path;
};

// The slots that there is a template for: "norm, activation, ..."; with `cuda`, norm alone.
const char *kiln_scaffold_slots(void);

// Makes DIR/NAME/ with NAME.c (and NAME.cu), Makefile, NAME.ini and README.md, and appends to
// `guide` the shell lines that build, verify and run it, ready to be pasted, and the INI section. A
// bad name or slot is KILN_STATUS_USAGE. KILN_STATUS_FILE when DIR/NAME is there already, which is
// left as it is, or cannot be written: then nothing of it is left.
KILN_MUST_CHECK enum kiln_status kiln_scaffold_write(
        const struct kiln_scaffold *scaffold, struct kiln_buf *guide, struct kiln_err *err);

#endif
