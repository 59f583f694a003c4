// clock: seconds of a clock that only goes forward, and waiting.
#ifndef KILN_BASE_CLOCK_H
#define KILN_BASE_CLOCK_H

#include <stdint.h>

double kiln_clock_seconds(void);
void kiln_clock_rest(int64_t ms); // sleeps, signals or not

#endif
