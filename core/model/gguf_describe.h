// gguf_describe: a GGUF file's keys and tensors for people and for programs.
#ifndef KILN_MODEL_GGUF_DESCRIBE_H
#define KILN_MODEL_GGUF_DESCRIBE_H

#include "base/buf.h"
#include "model/gguf.h"

struct json_t;

// One line a key (long strings and arrays cut, bytes that are no text escaped), totals by tensor
// type, and with `tensors` one line a tensor. Appends.
void kiln_gguf_describe(const struct kiln_gguf *gguf, int tensors, struct kiln_buf *text);

// {"path", "version", "alignment", "keys": {name: value or {"type", "count", "first"}}, "tensors":
// [{"name", "type", "shape", "offset", "bytes"}]}; NULL when out of memory. The caller owns the
// reference.
struct json_t *kiln_gguf_describe_json(const struct kiln_gguf *gguf);

#endif
