// gguf_writer: keys and table collect in memory, data passes through a buffer into a temporary
// file.
//
// Not here: the format's drawing (gguf.h).
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // realpath and sync_file_range, beyond plain POSIX 2008
#endif
#include "model/gguf_writer.h"

#include "base/buf.h"
#include "base/mem.h"
#include "model/dtype.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ALIGNMENT = 32,
    BUFFER_BYTES = 1 << 20,
    WRITE_BEHIND = 16 << 20,
};

struct kiln_gguf_writer {
    char *path;   // as given, for messages
    char *target; // what the temporary file is renamed to: path with its links followed
    char *temp;   // NULL: path is a device or a pipe, written in place
    mode_t mode;  // of the file that is replaced
    int has_mode;
    int fd; // -1: not open
    uint64_t n_keys;
    struct kiln_buf keys, tensors;
    uint64_t *sizes; // (n_tensors) bytes of data
    size_t n_tensors, cap_tensors;
    uint64_t offset;  // of the next announced tensor
    uint64_t total;   // bytes announced, padding not counted
    int failed;       // out of memory
    size_t current;   // tensor that the next byte belongs to
    uint64_t done;    // bytes of it that are there
    uint64_t written; // bytes of the file handed to the system or in the buffer
    off_t sent;       // handed to the system
    off_t started;    // of them, those that the disk was told to start on
    char *buffer;     // (BUFFER_BYTES)
    size_t used;
};

enum kiln_status kiln_gguf_writer_open(
        struct kiln_gguf_writer **writer, const char *path, struct kiln_err *err) {
    struct kiln_gguf_writer *w = *writer = kiln_calloc(1, sizeof(*w));
    if (w) {
        w->fd = -1;
        w->path = kiln_strdup(path);
        w->buffer = kiln_alloc(BUFFER_BYTES);
    }
    if (w && w->path && w->buffer) {
        return KILN_STATUS_OK;
    }
    kiln_gguf_writer_abandon(w);
    *writer = NULL;
    return kiln_err_nomem(err, "a GGUF writer");
}

void kiln_gguf_writer_abandon(struct kiln_gguf_writer *w) {
    if (!w) {
        return;
    }
    if (w->fd >= 0) {
        close(w->fd);
        if (w->temp) {
            unlink(w->temp);
        }
    }
    kiln_buf_finish(&w->keys);
    kiln_buf_finish(&w->tensors);
    kiln_free(w->sizes);
    kiln_free(w->buffer);
    kiln_free(w->temp);
    kiln_free(w->target);
    kiln_free(w->path);
    kiln_free(w);
}

// ---- Keys and tensors ---------------------------------------------------------------------------

static void put(struct kiln_buf *buf, uint64_t value, uint32_t bytes) {
    uint8_t out[8];
    for (uint32_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
    kiln_buf_append(buf, out, bytes);
}

static void put_str(struct kiln_buf *buf, const char *text, size_t len) {
    put(buf, len, 8);
    kiln_buf_append(buf, text, len);
}

static void begin_key(struct kiln_gguf_writer *w, const char *key, enum kiln_gguf_type type) {
    put_str(&w->keys, key, strlen(key));
    put(&w->keys, type, 4);
    w->n_keys++;
}

void kiln_gguf_writer_u32(struct kiln_gguf_writer *w, const char *key, uint32_t value) {
    begin_key(w, key, KILN_GGUF_U32);
    put(&w->keys, value, 4);
}

void kiln_gguf_writer_u64(struct kiln_gguf_writer *w, const char *key, uint64_t value) {
    begin_key(w, key, KILN_GGUF_U64);
    put(&w->keys, value, 8);
}

void kiln_gguf_writer_f32(struct kiln_gguf_writer *w, const char *key, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    begin_key(w, key, KILN_GGUF_F32);
    put(&w->keys, bits, 4);
}

void kiln_gguf_writer_bool(struct kiln_gguf_writer *w, const char *key, int value) {
    begin_key(w, key, KILN_GGUF_BOOL);
    put(&w->keys, value != 0, 1);
}

void kiln_gguf_writer_str(struct kiln_gguf_writer *w, const char *key, const char *value) {
    begin_key(w, key, KILN_GGUF_STRING);
    put_str(&w->keys, value, strlen(value));
}

void kiln_gguf_writer_copy_key(struct kiln_gguf_writer *w, const struct kiln_gguf_key *key) {
    static const char alignment[] = "general.alignment";
    if (key->name.len == strlen(alignment) &&
            memcmp(key->name.data, alignment, key->name.len) == 0) {
        return;
    }
    put_str(&w->keys, key->name.data, key->name.len);
    put(&w->keys, key->type, 4);
    if (key->type == KILN_GGUF_ARRAY) {
        put(&w->keys, key->elem_type, 4);
        put(&w->keys, key->count, 8);
    }
    kiln_buf_append(&w->keys, key->value, (size_t)key->value_bytes);
    w->n_keys++;
}

void kiln_gguf_writer_tensor(struct kiln_gguf_writer *w, const char *name, uint32_t dtype,
        uint32_t n_dims, const uint64_t *dims) {
    const struct kiln_dtype_info *info = kiln_dtype_info(dtype);
    assert(info && n_dims >= 1 && n_dims <= 4 && dims[0] % info->elems == 0);
    if (kiln_grow(&w->sizes, &w->cap_tensors, w->n_tensors + 1, sizeof(*w->sizes)) != 0) {
        w->failed = 1;
        return;
    }
    uint64_t bytes = dims[0] / info->elems * info->bytes;
    put_str(&w->tensors, name, strlen(name));
    put(&w->tensors, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) {
        put(&w->tensors, dims[i], 8);
        bytes *= i > 0 ? dims[i] : 1;
    }
    put(&w->tensors, dtype, 4);
    put(&w->tensors, w->offset, 8);
    w->sizes[w->n_tensors++] = bytes;
    w->total += bytes;
    w->offset += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t kiln_gguf_writer_n_tensors(const struct kiln_gguf_writer *w) {
    return w->n_tensors;
}

uint64_t kiln_gguf_writer_data_bytes(const struct kiln_gguf_writer *w) {
    return w->total;
}

uint64_t kiln_gguf_writer_file_bytes(const struct kiln_gguf_writer *w) {
    return w->written;
}

// ---- The file -----------------------------------------------------------------------------------

static enum kiln_status path_error(
        struct kiln_gguf_writer *w, const char *doing, struct kiln_err *err) {
    return kiln_err_set(
            err, KILN_STATUS_FILE, "%s: cannot %s: %s", w->path, doing, strerror(errno));
}

// Looks at what stands at path: a link stays a link, a device is not replaced by a file.
static enum kiln_status find_target(
        struct kiln_gguf_writer *w, int *in_place, struct kiln_err *err) {
    struct stat st;
    *in_place = 0;
    if (stat(w->path, &st) != 0) {
        if (errno != ENOENT) {
            return path_error(w, "write it", err);
        }
        w->target = kiln_strdup(w->path);
        return w->target ? KILN_STATUS_OK : kiln_err_nomem(err, w->path);
    }
    if (S_ISDIR(st.st_mode)) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: cannot write it: is a directory", w->path);
    }
    if (!S_ISREG(st.st_mode)) {
        *in_place = 1;
        return KILN_STATUS_OK;
    }
    if (access(w->path, W_OK) != 0) { // a rename would not ask
        return path_error(w, "write it", err);
    }
    char real[PATH_MAX];
    if (!realpath(w->path, real)) {
        return path_error(w, "follow its links", err);
    }
    w->target = kiln_strdup(real);
    w->mode = st.st_mode & 07777;
    w->has_mode = 1;
    return w->target ? KILN_STATUS_OK : kiln_err_nomem(err, w->path);
}

static enum kiln_status open_file(struct kiln_gguf_writer *w, struct kiln_err *err) {
    static atomic_uint counter;
    int in_place;
    KILN_TRY(find_target(w, &in_place, err));
    if (in_place) {
        w->fd = open(w->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return w->fd >= 0 ? KILN_STATUS_OK : path_error(w, "open it for writing", err);
    }
    const char *slash = strrchr(w->target, '/');
    int folder = slash ? (int)(slash - w->target) + 1 : 0;
    for (int tries = 0; tries < 100; tries++) {
        kiln_free(w->temp);
        w->temp = kiln_asprintf("%.*s.kiln-%ld-gguf%x.tmp", folder, w->target, (long)getpid(),
                atomic_fetch_add(&counter, 1));
        if (!w->temp) {
            return kiln_err_nomem(err, w->path);
        }
        w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0) {
            return KILN_STATUS_OK;
        }
        if (errno != EEXIST) { // else left behind by a killed process of the same number
            break;
        }
    }
    return path_error(w, "make a file in its folder", err);
}

static enum kiln_status write_out(
        struct kiln_gguf_writer *w, const char *at, size_t size, struct kiln_err *err) {
    while (size > 0) {
        ssize_t n = write(w->fd, at, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return path_error(w, "write it", err);
        }
        at += n;
        size -= (size_t)n;
        w->sent += n;
    }
    if (w->sent - w->started >= WRITE_BEHIND) {
        // The disk starts on what it has while more is made; else it idles until the system's own
        // limit, and the wait at the end, which nothing can interrupt, is long. A file system
        // without it only loses that.
        (void)sync_file_range(w->fd, w->started, w->sent - w->started, SYNC_FILE_RANGE_WRITE);
        w->started = w->sent;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status flush(struct kiln_gguf_writer *w, struct kiln_err *err) {
    size_t used = w->used;
    w->used = 0;
    return write_out(w, w->buffer, used, err);
}

static enum kiln_status emit(
        struct kiln_gguf_writer *w, const char *bytes, size_t size, struct kiln_err *err) {
    w->written += size;
    if (size > BUFFER_BYTES - w->used) {
        KILN_TRY(flush(w, err));
    }
    if (size >= BUFFER_BYTES) {
        return write_out(w, bytes, size, err);
    }
    if (size > 0) {
        memcpy(w->buffer + w->used, bytes, size);
        w->used += size;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status pad(struct kiln_gguf_writer *w, struct kiln_err *err) {
    static const char zeros[ALIGNMENT];
    return emit(w, zeros, (size_t)(-w->written & (ALIGNMENT - 1)), err);
}

enum kiln_status kiln_gguf_writer_begin(struct kiln_gguf_writer *w, struct kiln_err *err) {
    struct kiln_buf head = {0};
    kiln_buf_puts(&head, "GGUF");
    put(&head, 3, 4);
    put(&head, w->n_tensors, 8);
    put(&head, w->n_keys, 8);
    enum kiln_status status = KILN_STATUS_OK;
    if (w->failed || head.failed || w->keys.failed || w->tensors.failed) {
        status = kiln_err_nomem(err, "the keys and tensors of a GGUF file");
    }
    if (status == KILN_STATUS_OK) {
        status = open_file(w, err);
    }
    const struct kiln_buf *parts[] = {&head, &w->keys, &w->tensors};
    for (int i = 0; i < 3 && status == KILN_STATUS_OK; i++) {
        status = emit(w, parts[i]->data, parts[i]->len, err);
    }
    kiln_buf_finish(&head);
    return status == KILN_STATUS_OK ? pad(w, err) : status;
}

static enum kiln_status wrong_size(
        struct kiln_gguf_writer *w, const char *what, struct kiln_err *err) {
    return kiln_err_set(err, KILN_STATUS_FILE,
            "%s: cannot write it: there is %s data than its %zu tensors were said to have "
            "(%" PRIu64 " bytes)",
            w->path, what, w->n_tensors, w->total);
}

enum kiln_status kiln_gguf_writer_data(
        struct kiln_gguf_writer *w, const void *bytes, size_t size, struct kiln_err *err) {
    const char *at = bytes;
    while (size > 0) {
        if (w->current == w->n_tensors) {
            return wrong_size(w, "more", err);
        }
        uint64_t left = w->sizes[w->current] - w->done;
        size_t part = size < left ? size : (size_t)left;
        KILN_TRY(emit(w, at, part, err));
        at += part;
        size -= part;
        w->done += part;
        if (w->done == w->sizes[w->current]) {
            w->current++;
            w->done = 0;
            KILN_TRY(pad(w, err));
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_gguf_writer_zeros(
        struct kiln_gguf_writer *w, uint64_t size, struct kiln_err *err) {
    static const char zeros[4096];
    while (size > 0) {
        size_t part = size < sizeof(zeros) ? (size_t)size : sizeof(zeros);
        KILN_TRY(kiln_gguf_writer_data(w, zeros, part, err));
        size -= part;
    }
    return KILN_STATUS_OK;
}

// A rename is on disk only when its folder is. Some file systems cannot flush a folder, and the
// data is whole either way, so a failure is not one.
static void flush_folder(char *target) {
    char *slash = strrchr(target, '/');
    if (slash) {
        slash[slash == target] = '\0'; // "/a" lies in "/"
    }
    int fd = open(slash ? target : ".", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

static enum kiln_status close_file(struct kiln_gguf_writer *w, struct kiln_err *err) {
    if (w->temp && (fsync(w->fd) != 0 || (w->has_mode && fchmod(w->fd, w->mode) != 0))) {
        return path_error(w, "write it", err);
    }
    int fd = w->fd;
    w->fd = -1;
    int failed = close(fd) != 0; // network file systems report a full disk here
    if (w->temp && !failed) {
        failed = rename(w->temp, w->target) != 0;
    }
    if (!failed) {
        if (w->temp) {
            flush_folder(w->target);
        }
        return KILN_STATUS_OK;
    }
    enum kiln_status status = path_error(w, "write it", err);
    if (w->temp) {
        unlink(w->temp);
    }
    return status;
}

enum kiln_status kiln_gguf_writer_finish(struct kiln_gguf_writer *w, struct kiln_err *err) {
    enum kiln_status status =
            w->current == w->n_tensors ? flush(w, err) : wrong_size(w, "less", err);
    if (status == KILN_STATUS_OK) {
        status = close_file(w, err);
    }
    kiln_gguf_writer_abandon(w);
    return status;
}
