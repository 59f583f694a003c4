// watch: a list of files, and whether one of them was written since it was last looked at.
//
// By looking, not by being told: inotify sees neither every file system nor what another name of
// a file is made to point to, and a look costs a microsecond a file. A file is judged by what its
// name leads to (device, inode, size, times), so one that an editor renames into place is seen, one
// that is deleted is too. What was written is not compared: the caller knows what matters of it.
#ifndef KILN_ENGINE_WATCH_H
#define KILN_ENGINE_WATCH_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_watched;

struct kiln_watch { // zeroed: no files
    struct kiln_watched *files;
    size_t count, cap;
    double unrest; // when a change was seen that was not reported yet; 0: none
    double edited; // time of day of the newest write among what was reported last, 0: unknown
};

// Adds a file, as it is now. One that is there already stays as it was.
KILN_MUST_CHECK enum kiln_status kiln_watch_add(
        struct kiln_watch *watch, const char *path, struct kiln_err *err);
void kiln_watch_finish(struct kiln_watch *watch);

// Looks at all files; `now` is kiln_clock_seconds(). 1: some were written since, and have come to
// rest: nothing was seen to change for a moment, which is longer while one of them is missing or
// empty, as it is in the middle of a write.
int kiln_watch_look(struct kiln_watch *watch, double now);

#endif
