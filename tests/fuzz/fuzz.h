// fuzz: what the fuzz targets share: the entry point, and how a broken promise is reported.
//
// Each target is one file fuzz_<name>.c with the entry point of libFuzzer. It is built twice: with
// libFuzzer (clang, -Dfuzz=true) to search, and with replay.c under any compiler to run the corpus
// again as a test.
#ifndef KILN_TESTS_FUZZ_FUZZ_H
#define KILN_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

// Runs one input. Returns 0; ends the process when the input breaks something.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Ends the process with the place and the text of what does not hold.
void fuzz_fail(const char *file, int line, const char *text) __attribute__((noreturn));
#define FUZZ_CHECK(condition) \
    do { \
        if (!(condition)) { \
            fuzz_fail(__FILE__, __LINE__, #condition); \
        } \
    } while (0)

// A file of `size` bytes may cost 16 bytes for each of its own and 64 MB.
void fuzz_watch_memory(void);
void fuzz_check_memory(size_t size);

#endif
