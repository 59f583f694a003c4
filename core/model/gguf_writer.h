// gguf_writer: writes a GGUF v3 file front to back: keys, table of tensors, then the data as it
// comes.
//
// The table stands in front of the data, so every tensor is announced, with type and shape, before
// the first byte of data; from then on nothing but a small buffer is held, whatever the size of the
// file. The file is written under a temporary name beside its own and renamed at the end: it is
// whole or it is not there.
//
// Order of use:
//     open; keys and tensors in any order; begin; the data of each tensor in the order announced;
//     finish.
// After any failure, and instead of finish: abandon, which leaves nothing behind.
//
// Not here: what a block's bytes mean (quant.h), which tensors a model has (synth.h, widen.h).
#ifndef KILN_MODEL_GGUF_WRITER_H
#define KILN_MODEL_GGUF_WRITER_H

#include "base/status.h"
#include "model/gguf.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_gguf_writer;

// Nothing is opened before begin. The caller owns *writer and ends it with finish or abandon.
KILN_MUST_CHECK enum kiln_status kiln_gguf_writer_open(
        struct kiln_gguf_writer **writer, const char *path, struct kiln_err *err);

// ---- Keys and tensors: running out of memory shows in begin -------------------------------------

void kiln_gguf_writer_u32(struct kiln_gguf_writer *w, const char *key, uint32_t value);
void kiln_gguf_writer_u64(struct kiln_gguf_writer *w, const char *key, uint64_t value);
void kiln_gguf_writer_f32(struct kiln_gguf_writer *w, const char *key, float value);
void kiln_gguf_writer_bool(struct kiln_gguf_writer *w, const char *key, int value);
void kiln_gguf_writer_str(struct kiln_gguf_writer *w, const char *key, const char *value);
// A key of another file, as it is there. general.alignment is left out: the writer's own is the
// default, 32.
void kiln_gguf_writer_copy_key(struct kiln_gguf_writer *w, const struct kiln_gguf_key *key);
// dims: (n_dims), fastest first; dims[0] a multiple of the type's block, dtype one that
// kiln_dtype_info knows, the name not used before: all as the reader asks for.
void kiln_gguf_writer_tensor(struct kiln_gguf_writer *w, const char *name, uint32_t dtype,
        uint32_t n_dims, const uint64_t *dims);

// ---- The file -----------------------------------------------------------------------------------
// Each gives KILN_STATUS_FILE with path and reason when the folder is missing or the disk is full;
// a device or a pipe as path is written in place.

// Writes everything in front of the data.
KILN_MUST_CHECK enum kiln_status kiln_gguf_writer_begin(
        struct kiln_gguf_writer *w, struct kiln_err *err);
// The next bytes of data, padding not counted. They may be any part of a tensor or span several.
KILN_MUST_CHECK enum kiln_status kiln_gguf_writer_data(
        struct kiln_gguf_writer *w, const void *bytes, size_t size, struct kiln_err *err);
// The same, `size` zero bytes.
KILN_MUST_CHECK enum kiln_status kiln_gguf_writer_zeros(
        struct kiln_gguf_writer *w, uint64_t size, struct kiln_err *err);
// Flushes to disk and renames. Data that does not add up to what was announced is KILN_STATUS_FILE.
// The writer is gone afterwards, in failure too.
KILN_MUST_CHECK enum kiln_status kiln_gguf_writer_finish(
        struct kiln_gguf_writer *w, struct kiln_err *err);
void kiln_gguf_writer_abandon(struct kiln_gguf_writer *w); // NULL is fine

size_t kiln_gguf_writer_n_tensors(const struct kiln_gguf_writer *w);
uint64_t kiln_gguf_writer_data_bytes(
        const struct kiln_gguf_writer *w); // announced, without padding
uint64_t kiln_gguf_writer_file_bytes(const struct kiln_gguf_writer *w); // written so far

#endif
