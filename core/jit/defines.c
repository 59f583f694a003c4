// defines: gathers name and value of every define, sorts, prints.
#include "jit/defines.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct define {
    const char *name; // name_len bytes
    size_t name_len;
    const char *value; // NULL: `number`
    int64_t number;
};

static int compare(const void *a, const void *b) {
    const struct define *x = a, *y = b;
    size_t len = x->name_len < y->name_len ? x->name_len : y->name_len;
    int order = memcmp(x->name, y->name, len);
    return order ? order : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

static int is_name(const char *text, size_t len) {
    static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    if (len == 0 || !memchr(first, text[0], sizeof(first) - 1)) {
        return 0;
    }
    for (size_t i = 1; i < len; i++) {
        if (!memchr(first, text[i], sizeof(first) - 1) && (text[i] < '0' || text[i] > '9')) {
            return 0;
        }
    }
    return 1;
}

static enum kiln_status from_launch(const char *text, struct define *define, struct kiln_err *err) {
    size_t len = strcspn(text, "=");
    *define = (struct define){
            .name = text, .name_len = len, .value = text[len] ? text + len + 1 : "1"};
    if (!is_name(text, len) || strpbrk(define->value, "\n\r")) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "define '%s': NAME=VALUE on one line is allowed, NAME an identifier", text);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status print(
        const struct define *all, size_t n, struct kiln_buf *text, struct kiln_err *err) {
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && compare(&all[i - 1], &all[i]) == 0) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "define '%.*s' is given twice: geometry, KILN_SMEM and the launch's defines "
                    "need "
                    "names of their own",
                    (int)all[i].name_len, all[i].name);
        }
        kiln_buf_puts(text, "#define ");
        kiln_buf_append(text, all[i].name, all[i].name_len);
        if (all[i].value) {
            kiln_buf_printf(text, "%s%s\n", *all[i].value ? " " : "", all[i].value);
        } else {
            kiln_buf_printf(text, " %" PRId64 "\n", all[i].number);
        }
    }
    return text->failed ? kiln_err_nomem(err, "a kernel's defines") : KILN_STATUS_OK;
}

enum kiln_status kiln_defines_render(const struct kiln_geometry *geometry,
        const struct kiln_launch *launch, struct kiln_buf *text, struct kiln_err *err) {
    size_t n = 0;
    struct define *all =
            kiln_calloc((size_t)geometry->n_values + launch->n_defines + 1, sizeof(*all));
    if (!all) {
        return kiln_err_nomem(err, "a kernel's defines");
    }
    for (uint32_t i = 0; i < geometry->n_values; i++) {
        all[n++] = (struct define){.name = geometry->names[i],
                .name_len = strlen(geometry->names[i]),
                .number = geometry->values[i]};
    }
    all[n++] = (struct define){
            .name = "KILN_SMEM", .name_len = 9, .number = (int64_t)launch->shared_bytes};
    enum kiln_status status = KILN_STATUS_OK;
    for (uint32_t i = 0; status == KILN_STATUS_OK && i < launch->n_defines; i++) {
        status = from_launch(launch->defines[i], &all[n++], err);
    }
    if (status == KILN_STATUS_OK) {
        qsort(all, n, sizeof(*all), compare);
        status = print(all, n, text, err);
    }
    kiln_free(all);
    return status;
}

void kiln_defines_label(const char *rendered, struct kiln_buf *label) {
    static const char word[] = "#define ";
    const char *separator = "";
    while (strncmp(rendered, word, sizeof(word) - 1) == 0) {
        const char *name = rendered + sizeof(word) - 1;
        size_t name_len = strcspn(name, " \n"), len = strcspn(name, "\n");
        kiln_buf_puts(label, separator);
        kiln_buf_append(label, name, name_len);
        kiln_buf_puts(label, "=");
        if (name_len < len) {
            kiln_buf_append(label, name + name_len + 1, len - name_len - 1);
        }
        separator = " ";
        rendered = name + len + (name[len] == '\n');
    }
}
