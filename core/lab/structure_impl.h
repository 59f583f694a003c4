// structure_impl: a kernel's PTX as structure.c reads it and structure_loops.c walks it.
#ifndef KILN_LAB_STRUCTURE_IMPL_H
#define KILN_LAB_STRUCTURE_IMPL_H

#include "lab/structure.h"

#include <stdint.h>

struct kiln_structure_label {
    const char *name; // in the text, not terminated
    size_t len;
    uint32_t scope; // number of the braces that it stands in
    uint32_t at;    // index of the instruction behind it
};

struct kiln_structure_insn {
    enum kiln_structure_class kind;
    uint32_t line; // index in the structure's lines
    uint32_t scope;
    int guarded;        // it has a predicate
    int ends;           // ret, exit, trap: nothing behind it is reached from it
    const char *target; // of a branch, in the text; NULL: none
    size_t target_len;
};

struct kiln_structure_text {
    struct kiln_structure_insn *insns;
    size_t n_insns, cap_insns;
    struct kiln_structure_label *labels;
    size_t n_labels, cap_labels;
    uint32_t *parents; // of scopes, by number; the function's own is 0
    size_t n_scopes, cap_scopes;
    int indirect; // there is a branch by index
};

// Fills in loops and barriers_outside of a structure whose lines are there. NOMEM.
KILN_MUST_CHECK enum kiln_status kiln_structure_find_loops(struct kiln_structure *structure,
        const struct kiln_structure_text *text, struct kiln_err *err);

#endif
