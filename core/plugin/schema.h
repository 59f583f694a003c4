// schema: geometry parameters: whether a declaration makes sense, which values it allows.
//
// Works on imported parameters (import.h): fields have the layout of this kiln's header.
#ifndef KILN_PLUGIN_SCHEMA_H
#define KILN_PLUGIN_SCHEMA_H

#include "base/buf.h"
#include "base/status.h"
#include "kiln/plugin.h"

#include <stdint.h>

struct json_t;

// Whether a plugin may declare this: an UPPER_CASE name, one line of help, a range or list that is
// not empty, defaults that it allows. KILN_STATUS_FILE when not, the parameter itself not named.
KILN_MUST_CHECK enum kiln_status kiln_param_check(
        const struct kiln_param *param, struct kiln_err *err);

int kiln_param_allows(const struct kiln_param *param, int64_t value);
// Of a sound declaration: the smallest and the largest value that it allows.
int64_t kiln_param_smallest(const struct kiln_param *param);
int64_t kiln_param_largest(const struct kiln_param *param);
// The default for a head size (0: unknown) on a device of compute capability cc (0: the host).
int64_t kiln_param_default_value(const struct kiln_param *param, int32_t head_size, int32_t cc);

// What it allows, for people: "16, 32, 64" or "1 to 64, a multiple of 4". Appends.
void kiln_param_print_range(const struct kiln_param *param, struct kiln_buf *text);

// A geometry as bound, for people: " FA_TQ=64 FA_TKV=32", a blank before each. Appends.
void kiln_geometry_print(const struct kiln_geometry *geometry, struct kiln_buf *text);
// As JSON: {"FA_TQ": 64, …}; NULL when out of memory. The caller owns it.
struct json_t *kiln_geometry_json(const struct kiln_geometry *geometry);

#endif
