// gguf_tensor: the table of tensors in a GGUF file: names, shapes, types, and where the data lies.
//
// Called by gguf.c once the keys are known (the alignment is one of them).
#include "model/gguf_impl.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "model/dtype.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    TENSOR_NAME_MAX = 255
};

static enum kiln_status read_tensor_name(struct gguf_parser *p, struct kiln_gguf_tensor *tensor) {
    struct kiln_str name;
    KILN_TRY(kiln_gguf_read_string(p, "its name", &name));
    if (name.len == 0 || name.len > TENSOR_NAME_MAX) {
        return kiln_gguf_fail(
                p, "its name has %zu bytes; 1 to %d are allowed", name.len, TENSOR_NAME_MAX);
    }
    p->name = name;
    for (size_t at = 0; at < name.len;) {
        int len = kiln_utf8_len(name.data + at, name.len - at);
        unsigned char c = (unsigned char)name.data[at];
        int control = c < 0x20 || c == 0x7f ||
                      (len == 2 && c == 0xc2 && (unsigned char)name.data[at + 1] < 0xa0);
        if (len <= 0 || control) {
            return kiln_gguf_fail(p,
                    "its name holds %s at position %zu; printable UTF-8 is allowed",
                    len <= 0 ? "bytes that are not UTF-8" : "a control character", at);
        }
        at += (size_t)len;
    }
    tensor->name = kiln_strndup(name.data, name.len);
    return tensor->name ? KILN_STATUS_OK : kiln_err_nomem(p->err, "a tensor's name");
}

static enum kiln_status read_dims(struct gguf_parser *p, struct kiln_gguf_tensor *tensor) {
    KILN_TRY(kiln_gguf_read_u32(p, "its count of dimensions", &tensor->n_dims));
    if (tensor->n_dims < 1 || tensor->n_dims > 4) {
        return kiln_gguf_fail(p, "has %" PRIu32 " dimensions; 1 to 4 are allowed", tensor->n_dims);
    }
    tensor->elems = 1;
    for (uint32_t i = 0; i < 4; i++) {
        tensor->dims[i] = 1;
        if (i >= tensor->n_dims) {
            continue;
        }
        KILN_TRY(kiln_gguf_read_u64(p, "a dimension", &tensor->dims[i]));
        if (tensor->dims[i] == 0 || tensor->dims[i] > INT64_MAX ||
                __builtin_mul_overflow(tensor->elems, tensor->dims[i], &tensor->elems)) {
            return kiln_gguf_fail(p,
                    "dimension %" PRIu32 " is %" PRIu64
                    "; it must be at least 1, and the product of all below 2^64",
                    i, tensor->dims[i]);
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status unknown_dtype(struct gguf_parser *p, uint32_t dtype) {
    struct kiln_buf known = {0}; // a list cut short by a failed allocation does no harm
    const struct kiln_dtype_info *info;
    for (uint32_t i = 0; (info = kiln_dtype_at(i)); i++) {
        kiln_buf_printf(&known, "%s %s (%" PRIu32 ")", i ? "," : "", info->name, info->dtype);
    }
    enum kiln_status status =
            kiln_gguf_fail(p, "type %" PRIu32 " is none that kiln can read; these are:%s", dtype,
                    known.data ? known.data : "");
    kiln_buf_finish(&known);
    return status;
}

// Reads type and offset. tensor->file_offset counts from the start of the data still.
static enum kiln_status read_layout(struct gguf_parser *p, struct kiln_gguf_tensor *tensor) {
    KILN_TRY(kiln_gguf_read_u32(p, "its type", &tensor->dtype));
    KILN_TRY(kiln_gguf_read_u64(p, "its offset", &tensor->file_offset));
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    if (!info) {
        return unknown_dtype(p, tensor->dtype);
    }
    if (tensor->dims[0] % info->elems != 0) {
        return kiln_gguf_fail(p,
                "its rows of %" PRIu64 " values are no multiple of the %" PRIu32
                " that a block of %s holds",
                tensor->dims[0], info->elems, info->name);
    }
    if (__builtin_mul_overflow(tensor->elems / info->elems, info->bytes, &tensor->bytes)) {
        return kiln_gguf_fail(p, "its %" PRIu64 " values of type %s take more than 2^64 bytes",
                tensor->elems, info->name);
    }
    if (tensor->file_offset % p->gguf->alignment != 0) {
        return kiln_gguf_fail(p,
                "its data offset %" PRIu64 " is no multiple of the file's alignment %" PRIu32,
                tensor->file_offset, p->gguf->alignment);
    }
    return KILN_STATUS_OK;
}

// Turns the offset into one from the start of the file and makes sure that all of the data is
// there.
static enum kiln_status place_data(
        struct gguf_parser *p, struct gguf_tensor *entry, uint64_t data_at) {
    struct kiln_gguf_tensor *tensor = &entry->tensor;
    p->name = (struct kiln_str){.data = tensor->name, .len = strlen(tensor->name)};
    p->start = entry->at;
    uint64_t begin, end;
    if (__builtin_add_overflow(data_at, tensor->file_offset, &begin) ||
            __builtin_add_overflow(begin, tensor->bytes, &end)) {
        return kiln_gguf_fail(p,
                "its data, %" PRIu64 " bytes at offset %" PRIu64 ", ends past 2^64", tensor->bytes,
                tensor->file_offset);
    }
    if (end > p->size) {
        return kiln_gguf_fail(p,
                "the file is cut short: its data needs %" PRIu64 " bytes (bytes %" PRIu64
                " to %" PRIu64 "), the file has %" PRIu64 " of them (%" PRIu64 " in all)",
                tensor->bytes, begin, end, begin < p->size ? p->size - begin : 0, p->size);
    }
    tensor->file_offset = begin;
    tensor->data = p->data + begin;
    return KILN_STATUS_OK;
}

static int compare_places(const void *a_ptr, const void *b_ptr) {
    const struct gguf_tensor *const *a = a_ptr, *const *b = b_ptr;
    uint64_t x = (*a)->tensor.file_offset, y = (*b)->tensor.file_offset;
    return x < y ? -1 : x > y;
}

static enum kiln_status refuse_overlap(struct gguf_parser *p) {
    struct kiln_gguf *gguf = p->gguf;
    const struct gguf_tensor **order = kiln_calloc(gguf->n_tensors, sizeof(struct gguf_tensor *));
    if (!order) {
        return kiln_err_nomem(p->err, "the order of the tensors");
    }
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        order[i] = &gguf->tensors[i];
    }
    if (gguf->n_tensors > 1) {
        qsort(order, gguf->n_tensors, sizeof(struct gguf_tensor *), compare_places);
    }
    enum kiln_status status = KILN_STATUS_OK;
    for (size_t i = 1; i < gguf->n_tensors && status == KILN_STATUS_OK; i++) {
        const struct kiln_gguf_tensor *a = &order[i - 1]->tensor, *b = &order[i]->tensor;
        if (a->file_offset + a->bytes > b->file_offset) {
            char name_a[KILN_GGUF_SHOWN], name_b[KILN_GGUF_SHOWN];
            status = kiln_err_set(p->err, KILN_STATUS_FILE,
                    "tensors '%s' (described at byte %" PRIu64 ", data at bytes %" PRIu64
                    " to %" PRIu64 ") and '%s' (%" PRIu64 ", %" PRIu64 " to %" PRIu64 ") overlap",
                    kiln_gguf_show(name_a, (struct kiln_str){a->name, strlen(a->name)}),
                    order[i - 1]->at, a->file_offset, a->file_offset + a->bytes,
                    kiln_gguf_show(name_b, (struct kiln_str){b->name, strlen(b->name)}),
                    order[i]->at, b->file_offset, b->file_offset + b->bytes);
        }
    }
    kiln_free(order);
    return status;
}

enum kiln_status kiln_gguf_parse_tensors(struct gguf_parser *p) {
    struct kiln_gguf *gguf = p->gguf;
    gguf->tensors = kiln_calloc(gguf->n_tensors, sizeof(*gguf->tensors));
    gguf->tensor_names = kiln_calloc(gguf->n_tensors, sizeof(*gguf->tensor_names));
    if (!gguf->tensors || !gguf->tensor_names) {
        return kiln_err_nomem(p->err, "the tensor table");
    }
    p->kind = "tensor";
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        struct gguf_tensor *entry = &gguf->tensors[i];
        p->index = i;
        p->start = entry->at = p->at;
        p->name = (struct kiln_str){0};
        KILN_TRY(read_tensor_name(p, &entry->tensor));
        gguf->tensor_names[i] = (struct gguf_name){.name = p->name, .index = i};
        KILN_TRY(read_dims(p, &entry->tensor));
        KILN_TRY(read_layout(p, &entry->tensor));
    }
    const struct gguf_name *repeated = kiln_gguf_sort_names(gguf->tensor_names, gguf->n_tensors);
    if (repeated) {
        return kiln_gguf_twice(p, repeated, gguf->tensors[repeated[0].index].at,
                gguf->tensors[repeated[1].index].at);
    }
    // p->at lies in the file and the alignment is small: no overflow.
    uint64_t data_at = (p->at + gguf->alignment - 1) / gguf->alignment * gguf->alignment;
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        KILN_TRY(place_data(p, &gguf->tensors[i], data_at));
    }
    return refuse_overlap(p);
}
