// file: whole files in, whole files out, and files seen through a mapping.
#ifndef KILN_BASE_FILE_H
#define KILN_BASE_FILE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

// A read-only private mapping of a regular file. Zeroed = closed. An empty file has data == NULL.
struct kiln_map {
    const uint8_t *data;
    size_t size;
};

// Maps a regular file; a directory, device, pipe or missing file is KILN_STATUS_FILE with the path
// and the reason. If the file shrinks while mapped, touching the lost pages raises SIGBUS in this
// process (see kiln_map_guard).
KILN_MUST_CHECK enum kiln_status kiln_map_open(
        struct kiln_map *map, const char *path, struct kiln_err *err);
void kiln_map_close(struct kiln_map *map);

// A mapped file that shrinks turns into SIGBUS on access. After this call the process instead
// prints "kiln: <path>: the file shrank or its disk failed while it was being read" and exits with
// 3, when the fault lies in a mapping opened by kiln_map_open. Any other SIGBUS keeps its default
// effect.
void kiln_map_guard(void);

// The whole file in fresh memory, NUL-terminated (the NUL is not counted). The caller frees *data.
// Files over max_size are refused. "-" is standard input.
KILN_MUST_CHECK enum kiln_status kiln_file_read(
        const char *path, size_t max_size, char **data, size_t *size, struct kiln_err *err);

// Writes to a temporary name beside path, flushes to disk, renames: afterwards the file is whole or
// is what it was. A full disk or a missing folder is KILN_STATUS_FILE with path and reason.
KILN_MUST_CHECK enum kiln_status kiln_file_write(
        const char *path, const void *data, size_t size, struct kiln_err *err);

// Whether kiln_file_write could put a file there now, for those who would lose work if it could
// not: nothing is written, and a full disk is not seen. The same errors.
KILN_MUST_CHECK enum kiln_status kiln_file_check_write(const char *path, struct kiln_err *err);

// mkdir -p. KILN_STATUS_FILE with the path and the reason when a part cannot be made.
KILN_MUST_CHECK enum kiln_status kiln_make_dirs(const char *path, struct kiln_err *err);

int kiln_file_exists(const char *path);

// Whether a file that begins with these bytes is somebody's text or model: one that was named by
// mistake where kiln keeps something of its own, and must be left alone.
int kiln_file_is_text_or_model(const char *head, size_t len);

// The folder that holds the running executable, without a slash at the end; the caller frees it.
// NULL when it cannot be found out.
char *kiln_exe_dir(void);

// kiln's cache folder: KILN_CACHE_DIR, else XDG_CACHE_HOME/kiln, else HOME/.cache/kiln, else (HOME
// unset) the home folder of the user database, else /tmp/kiln-<uid>. It need not exist. The caller
// frees it.
char *kiln_cache_dir(void);

#endif
