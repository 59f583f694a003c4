// synth: a model file with random weights at a real model's geometry and mix of tensor types.
//
// For what needs a model's size and shape but not its words: speed, memory, kernels at the shapes
// of large models. The weights of a matrix have mean zero and variance 1 / columns, so that
// activations stay near 1 all the way up and logits are finite; norms are near 1. Blocks are made
// as they will lie in the file, so a model is written as fast as the disk takes it and never held
// in memory. The same request and seed give the same bytes.
//
// The file has no tokenizer and says what it is: the key kiln.synthetic is true. Gates that compare
// tokens or quality must refuse such a model: kiln_synth_is.
//
// Not here: the format (gguf_writer.h), what a block's bytes mean (quant.h), how blocks are made
// (synth_blocks.h).
#ifndef KILN_MODEL_SYNTH_H
#define KILN_MODEL_SYNTH_H

#include "base/buf.h"
#include "base/status.h"
#include "model/gguf.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_synth {
    const char *arch;  // "llama", "qwen2", "qwen3", "gemma3"
    const char *like;  // "tiny", or a size that the architecture is published in: "7b"
    const char *quant; // "q4_K_M", "q8_0", "f16" ...: a mix of types, letter case ignored
    uint64_t seed;
    int (*stop)(void); // NULL, or asked now and then: not 0 ends in KILN_STATUS_INTERRUPTED
    void (*progress)(void *arg, int64_t done, int64_t total); // NULL, or told the bytes written
    void *progress_arg;
};

struct kiln_synth_result {
    size_t n_tensors;
    uint64_t file_bytes;
};

// Writes the model. An architecture, size or mix that is not known is KILN_STATUS_USAGE and lists
// those that are; a full disk is KILN_STATUS_FILE. Nothing is left behind after a failure. `result`
// may be NULL.
KILN_MUST_CHECK enum kiln_status kiln_synth_write(const struct kiln_synth *synth, const char *path,
        struct kiln_synth_result *result, struct kiln_err *err);

// Whether a file says that its weights are random.
int kiln_synth_is(const struct kiln_gguf *gguf);

// Appends "tiny, 0.5b, 7b"; an architecture that is not known appends nothing.
void kiln_synth_sizes(const char *arch, struct kiln_buf *text);

#endif
