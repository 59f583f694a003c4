// ranges: what goes on, named for a profiler that listens through NVTX. Not a clock and not a log:
// without a listener nothing is kept and nothing is said.
//
// The ranges of a thread nest. A name is made once, when what it names is set up, and pushed often;
// without a listener it is NULL, and a push is a test of one pointer. A build without NVTX's
// headers (option nvtx) has the same functions, and never a listener.
#ifndef KILN_BASE_RANGES_H
#define KILN_BASE_RANGES_H

#include <stdint.h>

struct kiln_range; // a name known to the listener

// Looks for a listener: a tool that was injected with NVTX_INJECTION64_PATH, as profilers do. To be
// called before the first name is made; may be called again, from any thread.
void kiln_ranges_start(void);
int kiln_ranges_built(void);  // whether NVTX was compiled in
int kiln_ranges_active(void); // whether there is a listener

// A name for the life of the process. NULL when nobody listens (or has no memory for it). The same
// text may be given again.
const struct kiln_range *kiln_range_name(const char *text);
// Opens a range. `number` says which one of its kind: a layer, tokens. NULL opens none that a tool
// shows a name of, but is popped like any other.
void kiln_range_push(const struct kiln_range *name, int64_t number);
void kiln_range_pop(void);

#endif
