// replay: runs a fuzz target on files, so that any compiler can run a corpus.
//
// usage: fuzz_replay_<target> FILE_OR_FOLDER ...; exit status 2 when nothing could be read. An
// input that breaks something ends the process as it does under libFuzzer; its name is the last
// line printed.
#include "fuzz.h"

#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static int replay_file(const char *path) {
    char *data = NULL;
    size_t size;
    struct kiln_err err = {0};
    if (kiln_file_read(path, (size_t)1 << 30, &data, &size, &err) != KILN_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    printf("%s\n", path);
    fflush(stdout);
    // A copy of exactly the size, so that a sanitizer sees one byte too many.
    uint8_t *copy = kiln_alloc(size);
    if (copy) {
        memcpy(copy, data, size);
        LLVMFuzzerTestOneInput(copy, size);
    }
    kiln_free(data);
    kiln_free(copy);
    return copy ? 1 : -1;
}

// The number of files run, or -1.
static int replay(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) {
        return replay_file(path);
    }
    int count = 0;
    for (struct dirent *entry; count >= 0 && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        char *name = kiln_asprintf("%s/%s", path, entry->d_name);
        int ran = name ? replay_file(name) : -1;
        count = ran < 0 ? -1 : count + ran;
        kiln_free(name);
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv) {
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int ran = replay(argv[i]);
        if (ran < 0) {
            return 2;
        }
        total += ran;
    }
    printf("%d inputs\n", total);
    return total > 0 ? 0 : 2;
}
