// buf: a byte string that grows.
#include "base/buf.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char *room(struct kiln_buf *buf, size_t more) {
    if (buf->failed || more > SIZE_MAX - buf->len - 1 ||
            kiln_grow(&buf->data, &buf->cap, buf->len + more + 1, 1) != 0) {
        buf->failed = 1;
        return NULL;
    }
    return buf->data + buf->len;
}

void kiln_buf_append(struct kiln_buf *buf, const void *bytes, size_t len) {
    char *at = room(buf, len);
    if (at) {
        if (len) {
            memcpy(at, bytes, len);
        }
        at[len] = '\0';
        buf->len += len;
    }
}

void kiln_buf_puts(struct kiln_buf *buf, const char *text) {
    kiln_buf_append(buf, text, strlen(text));
}

void kiln_buf_printf(struct kiln_buf *buf, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *at = len < 0 ? NULL : room(buf, (size_t)len);
    if (at) {
        va_start(args, fmt);
        vsnprintf(at, (size_t)len + 1, fmt, args);
        va_end(args);
        buf->len += (size_t)len;
    }
}

void kiln_buf_clear(struct kiln_buf *buf) {
    buf->len = 0;
    if (buf->data) {
        buf->data[0] = '\0';
    }
}

char *kiln_buf_take(struct kiln_buf *buf) {
    if (!buf->failed && !buf->data) {
        kiln_buf_append(buf, "", 0);
    }
    char *text = buf->failed ? NULL : buf->data;
    if (buf->failed) {
        kiln_free(buf->data);
    }
    *buf = (struct kiln_buf){0};
    return text;
}

void kiln_buf_finish(struct kiln_buf *buf) {
    kiln_free(buf->data);
    *buf = (struct kiln_buf){0};
}

void kiln_buf_put_clean(struct kiln_buf *buf, const char *bytes, size_t len) {
    for (size_t i = 0; i < len;) {
        int n = kiln_utf8_len(bytes + i, len - i);
        if (n > 0) {
            kiln_buf_append(buf, bytes + i, (size_t)n);
            i += (size_t)n;
        } else {
            kiln_buf_puts(buf, "\xef\xbf\xbd");
            i++;
        }
    }
}
