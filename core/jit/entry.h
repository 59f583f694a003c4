// entry: the bytes of one cache file, and what is wrong with bytes that are none.
//
// Little-endian. A file is whole only if its length and its digest are what it says of itself, and
// it serves a compile only if its key text is that compile's own.
//
//     0  char[8]  "KILNJIT\n"          80  i32[5] registers, stack, spill stores, spill loads,
//     8  u32      KILN_JIT_FORMAT                 static shared memory
//    12  u32      flags: 1 PTX         100 u32    0
//    16  char[32] key, hexadecimal     104 u64    microseconds that the compile took
//    48  u64      bytes of the file    112 u64    bytes of the image
//    56  u32[5]   bytes of key text,   120        key text, entry, target, label, geometry, image
//                 entry, target,       end-16     XXH3-128 of all bytes before it
//                 label, geometry
//    76  u32      0
#ifndef KILN_JIT_ENTRY_H
#define KILN_JIT_ENTRY_H

#include "base/status.h"
#include "jit/image.h"
#include "jit/unit.h"

#include <stddef.h>
#include <stdint.h>

// The bytes of an entry; the caller frees *bytes.
KILN_MUST_CHECK enum kiln_status kiln_entry_encode(const struct kiln_jit_key *key,
        const char *key_text, const struct kiln_image *image, uint8_t **bytes, size_t *size,
        struct kiln_err *err);

// What stops the bytes from being the entry of `key`: "it is empty", "its digest is wrong"; NULL:
// nothing. key_text may be NULL: then any text will do.
const char *kiln_entry_fault(
        const uint8_t *bytes, size_t size, const struct kiln_jit_key *key, const char *key_text);

// Takes a faultless entry apart. The caller ends *image; *key_text may be NULL, else the caller
// frees it.
KILN_MUST_CHECK enum kiln_status kiln_entry_decode(
        const uint8_t *bytes, struct kiln_image *image, char **key_text, struct kiln_err *err);

#endif
