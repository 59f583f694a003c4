// library: opens one shared library and finds its plugin entry, or says why not.
//
// Knows dlopen, its error texts and the ELF symbol table; does not look into the entry (import.h
// does).
#ifndef KILN_PLUGIN_LIBRARY_H
#define KILN_PLUGIN_LIBRARY_H

#include "base/buf.h"
#include "base/status.h"
#include "kiln/plugin.h"

// Opens with immediate, local binding and finds kiln_plugin_entry. Constructors of the library run,
// as dlopen has it; nothing else of it is called. `path` is absolute. On failure the library is
// closed again and the error, KILN_STATUS_FILE, says what is wrong, what would fix it and what the
// loader said; the caller puts the path in front.
KILN_MUST_CHECK enum kiln_status kiln_library_open(
        const char *path, void **handle, const struct kiln_plugin **entry, struct kiln_err *err);
// NULL is fine. Under AddressSanitizer libraries stay open, so that its reports can name their
// functions.
void kiln_library_close(void *handle);

// The names that a library exports beyond those that compilers and linkers put there, one a line,
// sorted; read from the file, which is not opened as a library.
KILN_MUST_CHECK enum kiln_status kiln_library_exports(
        const char *path, struct kiln_buf *names, struct kiln_err *err);

#endif
