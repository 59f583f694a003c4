// capture_impl: what capture.c and capture_read.c share.
#ifndef KILN_LAB_CAPTURE_IMPL_H
#define KILN_LAB_CAPTURE_IMPL_H

#include "kiln/plugin.h"

#define KILN_CAPTURE_FILE "capture.json"

// Whether the op writes the operand.
int kiln_capture_writes(const struct kiln_op *op, uint32_t operand);

#endif
