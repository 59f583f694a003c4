// npy: the header is a line of Python: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
#include "device/sim/npy.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

#define MAX_FILE ((size_t)1 << 36)

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

struct header {
    const char *name, *at, *end;
    struct kiln_npy *array;
    struct kiln_err *err;
    int has_descr, has_order, has_shape;
};

static enum kiln_status bad(struct header *h, const char *what) {
    return kiln_err_set(
            h->err, KILN_STATUS_FILE, "%s: is no .npy file that kiln reads: %s", h->name, what);
}

// ---- Header -------------------------------------------------------------------------------------

static void blanks(struct header *h) {
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t')) {
        h->at++;
    }
}

static int take(struct header *h, char c) {
    blanks(h);
    if (h->at < h->end && *h->at == c) {
        h->at++;
        return 1;
    }
    return 0;
}

static int take_word(struct header *h, const char *word) {
    size_t len = strlen(word);
    blanks(h);
    if ((size_t)(h->end - h->at) >= len && memcmp(h->at, word, len) == 0) {
        h->at += len;
        return 1;
    }
    return 0;
}

// 'text' or "text" into `to`, at most 15 characters.
static int text_of(struct header *h, char to[16]) {
    blanks(h);
    if (h->at == h->end || (*h->at != '\'' && *h->at != '"')) {
        return 0;
    }
    char quote = *h->at++;
    size_t n = 0;
    while (h->at < h->end && *h->at != quote && n < 15) {
        to[n++] = *h->at++;
    }
    to[n] = '\0';
    return take(h, quote);
}

static enum kiln_status descr(struct header *h) {
    char text[16];
    uint32_t bytes = 0;
    if (!text_of(h, text)) {
        return bad(h, "its descr is no plain type (structured arrays are not read)");
    }
    if (text[0] != '<' && text[0] != '|' && text[0] != '=') {
        return bad(h, text[0] == '>' ? "it is big-endian" : "its descr is no plain type");
    }
    if (!text[1] || !strchr("fiubcV", text[1])) {
        return bad(h, "its elements are no numbers");
    }
    for (const char *at = text + 2; *at; at++) {
        if (*at < '0' || *at > '9' || bytes > 1000) {
            return bad(h, "its descr is no plain type");
        }
        bytes = bytes * 10 + (uint32_t)(*at - '0');
    }
    if (bytes == 0 || (text[1] != 'V' && bytes > 16)) {
        return bad(h, "its elements have an unknown size");
    }
    h->array->kind = text[1];
    h->array->bytes = bytes;
    h->has_descr = 1;
    return KILN_STATUS_OK;
}

static enum kiln_status shape(struct header *h) {
    struct kiln_npy *array = h->array;
    if (!take(h, '(')) {
        return bad(h, "its shape is no tuple");
    }
    while (!take(h, ')')) {
        uint64_t value = 0;
        const char *start;
        blanks(h);
        for (start = h->at; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++) {
            if (value > UINT64_C(1) << 50) {
                return bad(h, "its shape is too large");
            }
            value = value * 10 + (uint64_t)(*h->at - '0');
        }
        if (h->at == start || array->n_dims == KILN_NPY_DIMS) {
            return bad(h, "its shape is not 1 to 16 numbers");
        }
        h->at += h->at < h->end && *h->at == 'L';
        array->dims[array->n_dims++] = value;
        int more = take(h, ','); // skips blanks, also when there is none
        if (!more && (h->at == h->end || *h->at != ')')) {
            return bad(h, "its shape is not closed");
        }
    }
    h->has_shape = 1;
    return KILN_STATUS_OK;
}

static enum kiln_status fields(struct header *h) {
    if (!take(h, '{')) {
        return bad(h, "its header is no dictionary");
    }
    int fortran = 0;
    while (!take(h, '}')) {
        char key[16];
        if (!text_of(h, key) || !take(h, ':')) {
            return bad(h, "its header is no dictionary of names");
        }
        if (strcmp(key, "descr") == 0 && !h->has_descr) {
            KILN_TRY(descr(h));
        } else if (strcmp(key, "fortran_order") == 0 && !h->has_order) {
            h->has_order = 1;
            fortran = take_word(h, "True");
            if (!fortran && !take_word(h, "False")) {
                return bad(h, "fortran_order is neither True nor False");
            }
        } else if (strcmp(key, "shape") == 0 && !h->has_shape) {
            KILN_TRY(shape(h));
        } else {
            return bad(h, "its header has an unknown or double key");
        }
        (void)take(h, ',');
    }
    if (!h->has_descr || !h->has_order || !h->has_shape) {
        return bad(h, "descr, fortran_order or shape is missing");
    }
    if (fortran && h->array->n_dims > 1) {
        return bad(h, "it is in Fortran order; np.ascontiguousarray() helps");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status count_elements(struct header *h, size_t left) {
    struct kiln_npy *array = h->array;
    array->count = 1;
    for (uint32_t i = 0; i < array->n_dims; i++) {
        if (array->dims[i] != 0 && array->count > MAX_FILE / array->dims[i]) {
            return bad(h, "its shape is too large");
        }
        array->count *= array->dims[i];
    }
    if (array->count > MAX_FILE / array->bytes || array->count * array->bytes != left) {
        return kiln_err_set(h->err, KILN_STATUS_FILE,
                "%s: its shape and type need %" PRIu64 " bytes, and %zu follow its header", h->name,
                array->count * array->bytes, left);
    }
    return KILN_STATUS_OK;
}

// ---- Reading ------------------------------------------------------------------------------------

static enum kiln_status parse(struct kiln_npy *array, const char *name, const char *bytes,
        size_t size, struct kiln_err *err) {
    struct header h = {.name = name, .array = array, .err = err};
    if (size < 10 || memcmp(bytes, magic, sizeof(magic)) != 0) {
        return bad(&h, "it does not begin with NumPy's mark");
    }
    unsigned major = (unsigned char)bytes[6], minor = (unsigned char)bytes[7];
    if (major < 1 || major > 3 || minor != 0) {
        return bad(&h, "its version is none of 1.0, 2.0, 3.0");
    }
    size_t start = major == 1 ? 10 : 12, len = 0;
    if (size < start) {
        return bad(&h, "it is cut short");
    }
    for (size_t i = start; i-- > 8;) {
        len = len << 8 | (unsigned char)bytes[i];
    }
    if (len > size - start) {
        return bad(&h, "it is cut short");
    }
    h.at = bytes + start;
    h.end = h.at + len;
    KILN_TRY(fields(&h));
    blanks(&h);
    if (h.at != h.end) {
        return bad(&h, "something follows its header's dictionary");
    }
    size_t left = size - start - len;
    KILN_TRY(count_elements(&h, left));
    array->data = kiln_alloc(left);
    if (!array->data) {
        return kiln_err_nomem(err, name);
    }
    memcpy(array->data, h.end, left);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_npy_parse(struct kiln_npy *array, const char *name, const char *bytes,
        size_t size, struct kiln_err *err) {
    *array = (struct kiln_npy){0};
    enum kiln_status status = parse(array, name, bytes, size, err);
    if (status != KILN_STATUS_OK) {
        kiln_npy_finish(array);
    }
    return status;
}

enum kiln_status kiln_npy_read(struct kiln_npy *array, const char *path, struct kiln_err *err) {
    char *bytes;
    size_t size;
    *array = (struct kiln_npy){0};
    KILN_TRY(kiln_file_read(path, MAX_FILE, &bytes, &size, err));
    enum kiln_status status = kiln_npy_parse(array, path, bytes, size, err);
    kiln_free(bytes);
    return status;
}

// ---- Writing ------------------------------------------------------------------------------------

enum kiln_status kiln_npy_write(
        const struct kiln_npy *array, const char *path, struct kiln_err *err) {
    struct kiln_buf dict = {0}, file = {0};
    kiln_buf_printf(&dict, "{'descr': '%c%c%u', 'fortran_order': False, 'shape': (",
            array->bytes == 1 || array->kind == 'V' ? '|' : '<', array->kind, array->bytes);
    for (uint32_t i = 0; i < array->n_dims; i++) {
        kiln_buf_printf(&dict, "%s%" PRIu64 "%s", i ? " " : "", array->dims[i],
                i + 1 < array->n_dims || array->n_dims == 1 ? "," : "");
    }
    kiln_buf_puts(&dict, "), }");
    while ((10 + dict.len + 1) % 64 != 0 && !dict.failed) {
        kiln_buf_puts(&dict, " ");
    }
    kiln_buf_puts(&dict, "\n");
    const unsigned char version[4] = {1, 0, dict.len & 0xff, dict.len >> 8 & 0xff};
    kiln_buf_append(&file, magic, sizeof(magic));
    kiln_buf_append(&file, version, sizeof(version));
    kiln_buf_append(&file, dict.data ? dict.data : "", dict.len);
    kiln_buf_append(&file, array->data, (size_t)(array->count * array->bytes));
    enum kiln_status status = file.failed || dict.failed
                                      ? kiln_err_nomem(err, path)
                                      : kiln_file_write(path, file.data, file.len, err);
    kiln_buf_finish(&dict);
    kiln_buf_finish(&file);
    return status;
}

void kiln_npy_finish(struct kiln_npy *array) {
    kiln_free(array->data);
    *array = (struct kiln_npy){0};
}
