// catalog: device descriptions for planning, compiling and auditing where the device is not.
//
// Files of configs/devices: NAME.ini for a card ("gb10"), sm_XX.ini for an architecture in general.
// A card's file says `base = sm_XX` and what it has of its own. Every figure has its source behind
// it. What plugins have no use for (peaks, and the names that drivers give the card) stays out of
// struct kiln_device.
#ifndef KILN_DEVICE_CATALOG_H
#define KILN_DEVICE_CATALOG_H

#include "base/buf.h"
#include "base/status.h"
#include "kiln/plugin.h"

#include <stddef.h>

// Operations a second, a product and its addition being two, at the card's boost clock and of dense
// operands; 0: not known.
struct kiln_peaks {
    double f16; // tensor cores: halves, summed in f32
    double i8;  // tensor cores: bytes, summed in i32
    double f32; // multiply-adds of the multiprocessors' other cores
};

// A description and the memory behind its strings.
struct kiln_device_entry {
    struct kiln_device desc;
    struct kiln_peaks peaks;
    char *name, *target;
    char *reported; // other names that drivers give it, "A | B"; NULL: none
    char *file;     // "gb10"
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
// The file of the card that a device at hand is: its `name`, or one of its `reported`, is what the
// driver calls the device, letter by letter, and it has as many multiprocessors (a part of a card,
// and a card whose name begins alike, are none of it). entry->file NULL: there is none, as for all
// devices but CUDA's. A file that cannot be read is said in a warning and passed over. `dir` and
// the end as above; NOMEM.
KILN_MUST_CHECK enum kiln_status kiln_device_match(struct kiln_device_entry *entry, const char *dir,
        const struct kiln_device *device, struct kiln_err *err);
// A description of its own, strings included. The same holds of its end; NOMEM.
KILN_MUST_CHECK enum kiln_status kiln_device_entry_copy(
        struct kiln_device_entry *entry, const struct kiln_device *desc, struct kiln_err *err);

// Names of all files in the folder, sorted, separated by ", ". Appends.
void kiln_device_names(const char *dir, struct kiln_buf *text);

#endif
