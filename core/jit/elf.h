// elf: just enough of 64-bit little-endian ELF: sections, symbols with their bytes, the build id.
//
// Reads bytes that may be cut or hostile: every offset is checked. Not a loader; cubins and shared
// libraries alike.
#ifndef KILN_JIT_ELF_H
#define KILN_JIT_ELF_H

#include <stddef.h>
#include <stdint.h>

struct kiln_elf {
    const uint8_t *data; // the caller's
    size_t size;
    uint64_t sections;          // offset of the section headers
    uint32_t n_sections, names; // names: index of the section with their names
};

struct kiln_elf_bytes {
    const uint8_t *data; // NULL: zeroes that the file does not store
    uint64_t size;
};

// 0, or -1 when this is no ELF file that this module reads.
int kiln_elf_open(struct kiln_elf *elf, const void *data, size_t size);
// A symbol's bytes. 0, or -1 when no defined symbol has the name or it lies outside of its section.
int kiln_elf_symbol(const struct kiln_elf *elf, const char *name, struct kiln_elf_bytes *bytes);
// The GNU build id. 0, or -1 when there is none.
int kiln_elf_build_id(const struct kiln_elf *elf, struct kiln_elf_bytes *bytes);

#endif
