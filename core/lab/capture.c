// capture: watches a run for one call and writes down what it reads and writes. capture_read.c
// reads it again.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include "lab/capture.h"

#include "base/buf.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/mem.h"
#include "config/slot.h"
#include "lab/capture_impl.h"
#include "model/dtype.h"
#include "plugin/describe.h"
#include "plugin/schema.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum state {
    WAITING, // for the call
    RUNNING, // it is queued: its outputs are read before the next step
    DONE,
};

struct kiln_capture {
    char *what; // as asked for
    char slot[KILN_SLOT_NAME_MAX];
    char role[64];    // "": any
    int32_t layer;    // ANY_LAYER: any
    char *dir, *temp; // temp: beside dir, until all is there
    struct kiln_trace trace;
    struct kiln_dev *dev;
    enum state state;
    uint64_t bytes;
    struct kiln_buf seen; // slots and roles that went by, for the message
    int32_t last_layer;   // of those
    // Of the call, while it runs.
    json_t *description;
    struct output {
        char name[64];
        void *address;
        uint64_t bytes;
    } outputs[KILN_CAPTURE_OPS];
    size_t n_outputs;
};

enum {
    ANY_LAYER = -2
};

// ---- What to look for ---------------------------------------------------------------------------

static enum kiln_status bad_what(const char *what, struct kiln_err *err) {
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "--capture takes SLOT, SLOT@LAYER or SLOT@LAYER:ROLE, such as attention.prefill@3 or "
            "matmul.q4_K.prefill@0:ffn_down, not '%s'",
            what);
}

static enum kiln_status read_what(
        struct kiln_capture *capture, const char *what, struct kiln_err *err) {
    size_t len = strcspn(what, "@");
    capture->layer = ANY_LAYER;
    if (len == 0 || len >= sizeof(capture->slot)) {
        return bad_what(what, err);
    }
    memcpy(capture->slot, what, len);
    if (what[len] == '@') {
        const char *digits = what + len + 1;
        char *end;
        errno = 0;
        long layer = strtol(digits, &end, 10);
        if (errno || end == digits || *digits == '-' || layer > INT32_MAX ||
                (*end && (*end != ':' || !end[1])) ||
                (*end && strlen(end + 1) >= sizeof(capture->role))) {
            return bad_what(what, err);
        }
        capture->layer = (int32_t)layer;
        if (*end) {
            memcpy(capture->role, end + 1, strlen(end + 1) + 1);
        }
    }
    return kiln_slot_check(capture->slot, 1, err);
}

static int fits(const struct kiln_capture *capture, const struct kiln_trace_step *step) {
    return kiln_slot_overlap(capture->slot, step->slot) &&
           (capture->layer == ANY_LAYER || capture->layer == step->layer) &&
           (!capture->role[0] || strcmp(capture->role, step->problem->ops[0]->role) == 0);
}

// ---- The folder ---------------------------------------------------------------------------------

static enum kiln_status check_folder(const char *dir, struct kiln_err *err) {
    struct kiln_dir content = {0};
    struct stat st;
    enum kiln_status status = KILN_STATUS_OK;
    if (!*dir) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "--capture: the folder has no name");
    }
    if (lstat(dir, &st) != 0) {
        return errno == ENOENT
                       ? KILN_STATUS_OK
                       : kiln_err_set(err, KILN_STATUS_FILE, "%s: %s", dir, strerror(errno));
    }
    if (kiln_dir_read(&content, dir, "", "") != 0) {
        status = kiln_err_set(err, KILN_STATUS_FILE, "%s: %s", dir, strerror(errno));
    } else if (content.count > 0) {
        status = kiln_err_set(err, KILN_STATUS_FILE,
                "%s: holds something already (%s); a capture wants a folder of its own", dir,
                content.names[0]);
    }
    kiln_dir_finish(&content);
    return status;
}

// Removes the temporary folder, which holds files only.
static void drop_temp(struct kiln_capture *capture) {
    struct kiln_dir content = {0};
    if (capture->temp && kiln_dir_read(&content, capture->temp, "", "") == 0) {
        for (size_t i = 0; i < content.count; i++) {
            char *path = kiln_asprintf("%s/%s", capture->temp, content.names[i]);
            if (path) {
                (void)unlink(path);
            }
            kiln_free(path);
        }
        (void)rmdir(capture->temp);
    }
    kiln_dir_finish(&content);
    kiln_free(capture->temp);
    capture->temp = NULL;
}

static enum kiln_status make_temp(struct kiln_capture *capture, struct kiln_err *err) {
    size_t len = strlen(capture->dir);
    while (len > 1 && capture->dir[len - 1] == '/') {
        capture->dir[--len] = '\0';
    }
    const char *slash = strrchr(capture->dir, '/');
    if (slash && slash != capture->dir) {
        char *parent = kiln_strndup(capture->dir, (size_t)(slash - capture->dir));
        enum kiln_status status =
                parent ? kiln_make_dirs(parent, err) : kiln_err_nomem(err, "a capture");
        kiln_free(parent);
        KILN_TRY(status);
    }
    capture->temp = kiln_asprintf("%s.kiln-%ld.tmp", capture->dir, (long)getpid());
    return capture->temp ? kiln_make_dirs(capture->temp, err) : kiln_err_nomem(err, "a capture");
}

static enum kiln_status publish(struct kiln_capture *capture, struct kiln_err *err) {
    if (rename(capture->temp, capture->dir) != 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: cannot put the capture there: %s",
                capture->dir, strerror(errno));
    }
    kiln_free(capture->temp);
    capture->temp = NULL;
    return KILN_STATUS_OK;
}

// ---- Operands -----------------------------------------------------------------------------------

static enum kiln_status write_bytes(struct kiln_capture *capture, const char *name, void *address,
        uint64_t bytes, struct kiln_err *err) {
    uint8_t *copy = kiln_alloc(bytes);
    char *path = kiln_asprintf("%s/%s", capture->temp, name);
    enum kiln_status status = copy && path ? KILN_STATUS_OK : kiln_err_nomem(err, "a capture");
    if (status == KILN_STATUS_OK) {
        status = capture->dev->ops->download(capture->dev, copy, address, bytes, err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_file_write(path, copy, bytes, err);
        capture->bytes += bytes;
    }
    kiln_free(path);
    kiln_free(copy);
    return status;
}

int kiln_capture_writes(const struct kiln_op *op, uint32_t operand) {
    return operand == KILN_OPERAND_OUT ||
           (op->kind == KILN_OP_ROPE_KV &&
                   (operand == KILN_OPERAND_K_CACHE || operand == KILN_OPERAND_V_CACHE));
}

// The number of the edge: operands at one address are one.
static uint32_t edge_number(const struct kiln_trace_step *step, size_t index) {
    size_t count = 0, first = index;
    for (size_t i = 0; i < (size_t)step->problem->n_ops * KILN_PREPARE_OPERANDS; i++) {
        if (step->operands[i] == step->operands[index]) {
            first = i < first ? i : first;
            count++;
        }
    }
    return count > 1 ? (uint32_t)first + 1 : 0;
}

static json_t *list(const int64_t *values, uint32_t count) {
    json_t *array = json_array();
    for (uint32_t i = 0; array && i < count; i++) {
        json_array_append_new(array, json_integer((json_int_t)values[i]));
    }
    return array;
}

static json_t *bounds(const struct kiln_tensor *tensor) {
    json_t *array = json_array();
    for (uint32_t i = 0; array && i < 4; i++) {
        int bound = (tensor->bound_dims >> i & 1) != 0;
        json_array_append_new(
                array, bound ? json_string(kiln_operand_name(tensor->bound_by[i])) : json_null());
    }
    return array;
}

static json_t *describe_tensor(const struct kiln_tensor *tensor, uint32_t edge) {
    const struct kiln_dtype_info *info = kiln_dtype_info(tensor->dtype);
    return json_pack("{s:s, s:s?, s:s?, s:i, s:o, s:o, s:o, s:I, s:b, s:b, s:i}", "operand",
            kiln_operand_name(tensor->operand), "dtype", info ? info->name : NULL, "format",
            tensor->format, "n_dims", (int)tensor->n_dims, "dims", list(tensor->dims, 4), "strides",
            list(tensor->strides, 4), "bound_by", bounds(tensor), "alignment",
            (json_int_t)tensor->alignment, "weight", (tensor->flags & KILN_TENSOR_WEIGHT) != 0,
            "internal", (tensor->flags & KILN_TENSOR_INTERNAL) != 0, "edge", (int)edge);
}

// Describes an operand and writes down what is in it before the call.
static enum kiln_status take_operand(struct kiln_capture *capture,
        const struct kiln_trace_step *step, uint32_t op, const struct kiln_tensor *tensor,
        json_t *operands, struct kiln_err *err) {
    size_t index = (size_t)op * KILN_PREPARE_OPERANDS + tensor->operand;
    void *address = step->operands[index];
    json_t *one = describe_tensor(tensor, address ? edge_number(step, index) : 0);
    if (!one || json_array_append_new(operands, one) != 0) {
        return kiln_err_nomem(err, "a capture");
    }
    if (!address || (tensor->flags & KILN_TENSOR_INTERNAL)) {
        return KILN_STATUS_OK;
    }
    char name[64];
    const struct kiln_op *of = step->problem->ops[op];
    uint64_t bytes = kiln_solo_span(tensor);
    if (kiln_capture_writes(of, tensor->operand)) {
        struct output *output = &capture->outputs[capture->n_outputs++];
        (void)snprintf(output->name, sizeof(output->name), "op%u_%s.after.bin", op,
                kiln_operand_name(tensor->operand));
        output->address = address;
        output->bytes = bytes;
        json_object_set_new(one, "after", json_string(output->name));
    }
    if (tensor->operand != KILN_OPERAND_OUT) {
        (void)snprintf(name, sizeof(name), "op%u_%s.bin", op, kiln_operand_name(tensor->operand));
        json_object_set_new(one, "before", json_string(name));
        return write_bytes(capture, name, address, bytes, err);
    }
    return KILN_STATUS_OK;
}

static json_t *describe_op(const struct kiln_op *op) {
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:[]}",
            "kind", kiln_op_name((enum kiln_op_kind)op->kind), "role", op->role, "activation",
            (int)op->activation, "n_heads", (int)op->n_heads, "n_kv_heads", (int)op->n_kv_heads,
            "head_size", (int)op->head_size, "window", (int)op->window, "rope_style",
            (int)op->rope_style, "rope_dims", (int)op->rope_dims, "rope_scale",
            (double)op->rope_scale, "scale", (double)op->scale, "softcap", (double)op->softcap,
            "eps", (double)op->eps, "operands");
}

static json_t *describe_call(const struct kiln_trace_step *step, const struct kiln_dev *dev) {
    return json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:o, s:[]}", "capture", 1, "slot",
            step->slot, "phase", step->problem->phase == KILN_PHASE_PREFILL ? "prefill" : "decode",
            "layer", (int)step->layer, "device", dev->id, "device_name", dev->desc.name, "plugin",
            step->plugin, "variant", step->variant, "geometry", kiln_geometry_json(step->geometry),
            "ops");
}

// ---- Watching -----------------------------------------------------------------------------------

static enum kiln_status begin(
        struct kiln_capture *capture, const struct kiln_trace_step *step, struct kiln_err *err) {
    const struct kiln_problem *problem = step->problem;
    KILN_TRY(make_temp(capture, err));
    capture->description = describe_call(step, capture->dev);
    json_t *ops = json_object_get(capture->description, "ops");
    for (uint32_t op = 0; op < problem->n_ops; op++) {
        json_t *one = describe_op(problem->ops[op]);
        if (!ops || !one || json_array_append_new(ops, one) != 0) {
            return kiln_err_nomem(err, "a capture");
        }
        for (uint32_t i = 0; i < problem->ops[op]->n_operands; i++) {
            KILN_TRY(take_operand(capture, step, op, problem->ops[op]->operands[i],
                    json_object_get(one, "operands"), err));
        }
    }
    capture->state = RUNNING;
    return KILN_STATUS_OK;
}

static int append(const char *bytes, size_t size, void *data) {
    kiln_buf_append(data, bytes, size);
    return 0;
}

static enum kiln_status end(struct kiln_capture *capture, struct kiln_err *err) {
    for (size_t i = 0; i < capture->n_outputs; i++) {
        const struct output *output = &capture->outputs[i];
        KILN_TRY(write_bytes(capture, output->name, output->address, output->bytes, err));
    }
    struct kiln_buf text = {0};
    int failed = json_dump_callback(capture->description, append, &text, JSON_INDENT(1)) != 0;
    char *path = kiln_asprintf("%s/%s", capture->temp, KILN_CAPTURE_FILE);
    enum kiln_status status = !failed && !text.failed && path
                                      ? kiln_file_write(path, text.data, text.len, err)
                                      : kiln_err_nomem(err, "a capture");
    kiln_free(path);
    kiln_buf_finish(&text);
    KILN_TRY(status);
    KILN_TRY(publish(capture, err));
    capture->state = DONE;
    return KILN_STATUS_OK;
}

static void note_seen(struct kiln_capture *capture, const struct kiln_trace_step *step) {
    char one[160];
    (void)snprintf(one, sizeof(one), "%s:%s", step->slot, step->problem->ops[0]->role);
    capture->last_layer = step->layer > capture->last_layer ? step->layer : capture->last_layer;
    if (!capture->seen.data || !strstr(capture->seen.data, one)) {
        kiln_buf_printf(&capture->seen, "%s%s", capture->seen.len ? ", " : "", one);
    }
}

static enum kiln_status on_step(
        void *arg, const struct kiln_trace_step *step, struct kiln_err *err) {
    struct kiln_capture *capture = arg;
    if (capture->state == RUNNING) {
        return end(capture, err);
    }
    if (capture->state == WAITING && step) {
        note_seen(capture, step);
        return fits(capture, step) ? begin(capture, step, err) : KILN_STATUS_OK;
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_capture_create(
        struct kiln_capture **capture, const char *what, const char *dir, struct kiln_err *err) {
    *capture = kiln_calloc(1, sizeof(**capture));
    if (!*capture) {
        return kiln_err_nomem(err, "a capture");
    }
    (*capture)->what = kiln_strdup(what);
    (*capture)->dir = kiln_strdup(dir);
    (*capture)->trace = (struct kiln_trace){.step = on_step, .arg = *capture};
    enum kiln_status status = (*capture)->what && (*capture)->dir
                                      ? read_what(*capture, what, err)
                                      : kiln_err_nomem(err, "a capture");
    if (status == KILN_STATUS_OK) {
        status = check_folder(dir, err);
    }
    if (status != KILN_STATUS_OK) {
        kiln_capture_destroy(*capture);
        *capture = NULL;
    }
    return status;
}

const struct kiln_trace *kiln_capture_trace(struct kiln_capture *capture, struct kiln_dev *dev) {
    capture->dev = dev;
    return &capture->trace;
}

enum kiln_status kiln_capture_end(
        struct kiln_capture *capture, uint64_t *bytes, struct kiln_err *err) {
    *bytes = capture->bytes;
    if (capture->state == DONE) {
        return KILN_STATUS_OK;
    }
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "--capture: no call of this run fits %s; there were, in layers 0 to %d and outside: %s",
            capture->what, capture->last_layer, capture->seen.data ? capture->seen.data : "none");
}

void kiln_capture_destroy(struct kiln_capture *capture) {
    if (capture) {
        drop_temp(capture);
        json_decref(capture->description);
        kiln_buf_finish(&capture->seen);
        kiln_free(capture->dir);
        kiln_free(capture->what);
        kiln_free(capture);
    }
}
