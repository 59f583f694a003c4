// clock: seconds of a clock that only goes forward.
#ifndef KILN_BASE_CLOCK_H
#define KILN_BASE_CLOCK_H

double kiln_clock_seconds(void);

#endif
