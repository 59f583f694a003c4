// parity_impl: what the files of parity share: parity.c (running), parity_list.c (which trials).
#ifndef KILN_LAB_PARITY_IMPL_H
#define KILN_LAB_PARITY_IMPL_H

#include "lab/parity.h"

// Appends the trials that params ask for, none of them run. KILN_STATUS_USAGE: there are none.
KILN_MUST_CHECK enum kiln_status kiln_parity_list(struct kiln_parity *parity,
        const struct kiln_parity_params *params, const struct kiln_device *device,
        struct kiln_err *err);

#endif
