// banks: how often the rows of a shared memory site collide in its banks, from the stride alone.
//
// Shared memory has 32 banks of 4 bytes. An access of a warp is served in parts: 8 lanes at a time
// when each takes 16 bytes (ldmatrix: the 8 rows of one matrix), 16 lanes at 8 bytes, all 32 at 4
// bytes or less. A part takes as many turns as the busiest bank has different words to give.
#ifndef KILN_LAB_BANKS_H
#define KILN_LAB_BANKS_H

#include "kiln/plugin.h"

// Turns of the slowest part: 1 is free of conflicts, 8 the worst that ldmatrix can meet. The site
// is one that a checked plan holds.
unsigned kiln_bank_ways(const struct kiln_smem_site *site);

#endif
