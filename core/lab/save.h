// save: a result kept in a file with what it was taken of: what `--save` of a command writes, what
// a later run compares with, and what a ledger takes in.
//
// One JSON object:
//   kiln     version of the program
//   kind     "ab", "gate", "wall", "audit", "op" or "tune"
//   date     "2026-11-30T00:10:00Z"
//   device   name: "NVIDIA H200"; beside it device_id ("cuda:0") and target ("sm_90a")
//   driver   "CUDA 13.0, 580.65.06"; null where the device has none
//   config   the effective config as INI text; of a comparison that of the change, with base_config
//            beside it
//   sources  16 hex digits over the sources of the kernels that are bound (digest.h); of a
//            comparison that of the change, with base_sources beside it
//   grade    "measured", "simulated" or "derived"
//   result   the command's --json document
#ifndef KILN_LAB_SAVE_H
#define KILN_LAB_SAVE_H

#include "base/buf.h"
#include "base/status.h"
#include "config/config.h"
#include "device/device.h"
#include "plugin/registry.h"

struct json_t;

// What a result was taken of. Strings and all else outlive the call that is given it.
struct kiln_save_origin {
    const char *version; // of kiln
    const char *kind, *grade;
    const char *device, *device_id, *target;
    const char *driver;   // NULL or "": none
    uint32_t device_kind; // enum kiln_device_kind, for the digest
    const struct kiln_registry *registry;
    const struct kiln_config *config;
    const struct kiln_config *base; // of a comparison, or NULL
};

// A JSON string; NULL when out of memory. Bytes that are no UTF-8 become U+FFFD.
struct json_t *kiln_json_text(const char *bytes, size_t len);

// Now as the documents write it; text: at least 32 bytes.
void kiln_save_date(char *text, size_t size);

// The whole object; takes `result` (NULL: out of memory), also on failure. The caller owns *saved.
KILN_MUST_CHECK enum kiln_status kiln_save_make(const struct kiln_save_origin *origin,
        struct json_t *result, struct json_t **saved, struct kiln_err *err);

// Whole or not at all: a full disk or a missing folder is KILN_STATUS_FILE and leaves what was.
KILN_MUST_CHECK enum kiln_status kiln_save_write(
        const char *path, const struct json_t *saved, struct kiln_err *err);

// Reads what kiln_save_write wrote, or a command's bare --json document. No JSON object is
// KILN_STATUS_FILE with the line. The caller owns *saved (json_decref).
KILN_MUST_CHECK enum kiln_status kiln_save_read(
        const char *path, struct json_t **saved, struct kiln_err *err);

// The result in it, or the document itself where it is a bare one; borrowed.
const struct json_t *kiln_save_result(const struct json_t *saved);

// Appends a line for each of config, device, driver and sources in which `saved` differs from
// `now`: "its driver is another: 570.1 then, 580.2 now". What a bare document does not say is not
// compared. NULL for a member that both lack is no difference.
void kiln_save_differences(
        const struct json_t *saved, const struct json_t *now, struct kiln_buf *text);

#endif
