// catalog: device descriptions for planning, compiling and auditing where the device is not.
//
// Files of configs/devices: NAME.ini for a card ("gb10"), sm_XX.ini for an architecture in general.
// A card's file says `base = sm_XX` and what it has of its own. Every figure has its source behind
// it.
#ifndef KILN_DEVICE_CATALOG_H
#define KILN_DEVICE_CATALOG_H

#include "base/buf.h"
#include "base/status.h"
#include "kiln/plugin.h"

#include <stddef.h>

// A description and the memory behind its strings.
struct kiln_device_entry {
    struct kiln_device desc;
    char *name, *target;
};

// The folder of the files: beside the executable (EXE_DIR/configs/devices, else
// EXE_DIR/../share/kiln/configs/devices). NULL when out of memory; the caller frees it.
char *kiln_device_dir(void);

// By a file's name ("gb10", in any letter case) or by a target: "sm_90a" is sm_90.ini with that
// target. `dir`: NULL for kiln_device_dir(). An unknown one is KILN_STATUS_USAGE and lists what
// there is; a file that is not right is KILN_STATUS_CONFIG with its line. The caller ends *entry
// with kiln_device_entry_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_device_find(
        struct kiln_device_entry *entry, const char *dir, const char *name, struct kiln_err *err);
void kiln_device_entry_finish(struct kiln_device_entry *entry);
// A description of its own, strings included. The same holds of its end; NOMEM.
KILN_MUST_CHECK enum kiln_status kiln_device_entry_copy(
        struct kiln_device_entry *entry, const struct kiln_device *desc, struct kiln_err *err);

// Names of all files in the folder, sorted, separated by ", ". Appends.
void kiln_device_names(const char *dir, struct kiln_buf *text);

#endif
