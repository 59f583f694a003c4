// describe_impl: words that describe.c and describe_json.c share.
#ifndef KILN_PLUGIN_DESCRIBE_IMPL_H
#define KILN_PLUGIN_DESCRIBE_IMPL_H

#include <stdint.h>

// "weight", "k_cache" …; "?" when it is none.
const char *kiln_operand_name(uint32_t operand);
// Whether an op writes the operand.
int kiln_operand_is_written(uint32_t operand);

#endif
