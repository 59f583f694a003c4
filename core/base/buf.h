// buf: a byte string that grows. A failed growth sticks, so that a run of appends is checked once.
#ifndef KILN_BASE_BUF_H
#define KILN_BASE_BUF_H

#include <stddef.h>

// Zero-initialize; end with kiln_buf_finish. `data` is NUL-terminated whenever it is not NULL.
struct kiln_buf {
    char *data;
    size_t len; // bytes, the NUL not counted
    size_t cap;
    int failed; // an append ran out of memory: the content is incomplete
};

void kiln_buf_append(struct kiln_buf *buf, const void *bytes, size_t len);
void kiln_buf_puts(struct kiln_buf *buf, const char *text);
void kiln_buf_printf(struct kiln_buf *buf, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
void kiln_buf_clear(struct kiln_buf *buf); // empty, memory and failure flag kept
// Hands the string to the caller, who frees it; NULL when an append failed. The buf is empty after.
char *kiln_buf_take(struct kiln_buf *buf);
void kiln_buf_finish(struct kiln_buf *buf);

// Appends text of which nobody knows that it is UTF-8, such as a path: what is none becomes U+FFFD.
void kiln_buf_put_clean(struct kiln_buf *buf, const char *bytes, size_t len);

#endif
