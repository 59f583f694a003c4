// changes: in which slots two engines run something else, for people.
#ifndef KILN_ENGINE_CHANGES_H
#define KILN_ENGINE_CHANGES_H

#include "base/buf.h"
#include "engine/engine_impl.h"

// Appends a line for each pair of variants that a slot goes from and to: "SLOT: OLD -> NEW (N
// steps)", OLD and NEW as "plugin/variant KEY=VALUE … source=FILE". Without `from`, a line for
// each variant that a slot has: "SLOT: VARIANT (N steps)".
void kiln_changes_describe(
        const struct kiln_engine *from, const struct kiln_engine *to, struct kiln_buf *text);

#endif
