// layout: finds the constant in a cubin's symbol table or in PTX text.
#include "jit/layout.h"

#include "base/mem.h"
#include "jit/elf.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_WORDS = 1 + 2 * KILN_LAYOUT_REGIONS
};

static enum kiln_status bad(struct kiln_err *err, const char *kernel, const char *what) {
    return kiln_err_set(err, KILN_STATUS_FILE,
            "kiln_layout_%s: %s; it is the total, then offset and bytes of each of at most %d "
            "regions",
            kernel, what, (int)KILN_LAYOUT_REGIONS);
}

static uint32_t word_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static enum kiln_status take_words(struct kiln_layout *layout, const char *kernel,
        const uint32_t *words, size_t n, struct kiln_err *err) {
    if (n < 1 || n % 2 == 0 || n > MAX_WORDS) {
        return bad(err, kernel, "the number of words is not right");
    }
    layout->present = 1;
    layout->total = words[0];
    layout->n_regions = (uint32_t)(n / 2);
    for (uint32_t i = 0; i < layout->n_regions; i++) {
        uint32_t offset = words[1 + 2 * i], bytes = words[2 + 2 * i];
        if (offset > layout->total || bytes > layout->total - offset) {
            return bad(err, kernel, "a region lies outside of the total");
        }
        layout->regions[i].offset = offset;
        layout->regions[i].bytes = bytes;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status from_cubin(const struct kiln_image *image, const char *kernel,
        const char *symbol, struct kiln_layout *layout, struct kiln_err *err) {
    struct kiln_elf elf;
    struct kiln_elf_bytes bytes;
    uint32_t words[MAX_WORDS] = {0};
    if (kiln_elf_open(&elf, image->data, image->size) != 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: the cubin is no ELF file", kernel);
    }
    if (kiln_elf_symbol(&elf, symbol, &bytes) != 0) {
        return KILN_STATUS_OK;
    }
    if (bytes.size % 4 != 0 || bytes.size > sizeof(words)) {
        return bad(err, kernel, "the number of bytes is not right");
    }
    for (uint64_t i = 0; bytes.data && i < bytes.size / 4; i++) {
        words[i] = word_at(bytes.data + 4 * i);
    }
    return take_words(layout, kernel, words, (size_t)(bytes.size / 4), err);
}

// The numbers between braces behind a declaration, at most `max`.
static size_t read_numbers(const char *at, uint64_t *numbers, size_t max) {
    size_t n = 0;
    at += strspn(at, " \t\n=");
    if (*at != '{') {
        return 0;
    }
    at++;
    while (n < max) {
        char *end;
        numbers[n] = strtoull(at, &end, 0);
        if (end == at) {
            break;
        }
        n++;
        at = end + strspn(end, " \t\n,");
    }
    return n;
}

// `.global .align 4 .b8 kiln_layout_k[12] = {0, 4, …};`: trailing zeroes may be left out, elements
// may be bytes or words.
static enum kiln_status from_ptx(const struct kiln_image *image, const char *kernel,
        const char *symbol, struct kiln_layout *layout, struct kiln_err *err) {
    size_t len = strlen(symbol);
    const char *at = strstr(image->data, symbol);
    while (at && (at[len] != '[' || at == image->data || at[-1] != ' ')) {
        at = strstr(at + len, symbol);
    }
    if (!at) {
        return KILN_STATUS_OK;
    }
    char *end;
    unsigned long long count = strtoull(at + len + 1, &end, 10);
    int as_bytes = at - image->data >= 4 && memcmp(at - 4, ".b8 ", 4) == 0;
    uint64_t numbers[4 * MAX_WORDS] = {0};
    uint32_t words[MAX_WORDS] = {0};
    size_t n = (size_t)count / (as_bytes ? 4 : 1);
    if (*end != ']' || count > (as_bytes ? 4ull : 1ull) * MAX_WORDS ||
            (as_bytes && count % 4 != 0)) {
        return bad(err, kernel, "the number of words is not right");
    }
    (void)read_numbers(end + 1, numbers, (size_t)count);
    for (size_t i = 0; i < n; i++) {
        const uint64_t *b = numbers + 4 * i;
        words[i] = as_bytes ? (uint32_t)(b[0] | b[1] << 8 | b[2] << 16 | b[3] << 24)
                            : (uint32_t)numbers[i];
    }
    return take_words(layout, kernel, words, n, err);
}

enum kiln_status kiln_layout_read(const struct kiln_image *image, const char *kernel,
        struct kiln_layout *layout, struct kiln_err *err) {
    *layout = (struct kiln_layout){0};
    char *symbol = kiln_asprintf("kiln_layout_%s", kernel);
    if (!symbol) {
        return kiln_err_nomem(err, "a kernel's layout");
    }
    enum kiln_status status = image->ptx ? from_ptx(image, kernel, symbol, layout, err)
                                         : from_cubin(image, kernel, symbol, layout, err);
    kiln_free(symbol);
    return status;
}

enum kiln_status kiln_layout_compare(const struct kiln_layout *layout, const char *kernel,
        uint32_t shared_bytes, struct kiln_layout_check *check, struct kiln_err *err) {
    *check = (struct kiln_layout_check){
            .requested = shared_bytes, .used = shared_bytes, .present = layout->present};
    if (layout->present && layout->total > shared_bytes) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: the kernel's layout needs %u bytes of shared memory and its launcher asks for "
                "%u: "
                "the launcher's formula is wrong (it arrives as KILN_SMEM)",
                kernel, layout->total, shared_bytes);
    }
    if (layout->present) {
        check->used = layout->total;
        check->over = shared_bytes - layout->total;
    }
    return KILN_STATUS_OK;
}
