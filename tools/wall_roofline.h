// wall_roofline: the part of `kiln wall` that is derived: what each slice could take at least.
#ifndef KILN_TOOLS_WALL_ROOFLINE_H
#define KILN_TOOLS_WALL_ROOFLINE_H

#include "base/buf.h"
#include "lab/wall.h"

struct json_t;

// Adds to a slice's object what its ceilings are and how near it came: memory_pct, peak, peak_pct,
// bound_ms, bound_by; null where they are not known. 0, or -1: out of memory.
int kiln_wall_roofline_slice(
        const struct kiln_wall *wall, const struct kiln_wall_slice *slice, struct json_t *json);
// The ceilings themselves, where they are from, and the bound of all slices. NULL: out of memory.
struct json_t *kiln_wall_roofline_json(const struct kiln_wall *wall);
// The same as text; nothing on a device of which no ceiling is known. device: its name.
void kiln_wall_roofline_print(
        const struct kiln_wall *wall, const char *device, struct kiln_buf *out);

#endif
