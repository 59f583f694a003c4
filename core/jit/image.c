// image: ending and copying.
#include "jit/image.h"

#include "base/mem.h"

#include <string.h>

void kiln_image_finish(struct kiln_image *image) {
    kiln_free(image->data);
    kiln_free(image->entry);
    kiln_free(image->target);
    kiln_free(image->label);
    kiln_free(image->geometry);
    *image = (struct kiln_image){0};
}

enum kiln_status kiln_image_copy(
        struct kiln_image *to, const struct kiln_image *from, struct kiln_err *err) {
    *to = *from;
    to->data = kiln_alloc(from->size + 1);
    to->entry = kiln_strdup(from->entry);
    to->target = kiln_strdup(from->target);
    to->label = kiln_strdup(from->label);
    to->geometry = kiln_strdup(from->geometry);
    if (!to->data || !to->entry || !to->target || !to->label || !to->geometry) {
        kiln_image_finish(to);
        return kiln_err_nomem(err, "a compiled kernel");
    }
    memcpy(to->data, from->data, from->size);
    to->data[from->size] = '\0';
    return KILN_STATUS_OK;
}
