// compile: runs NVRTC, cleans its log, reads ptxas's figures out of it.
#include "jit/compile.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "jit/elf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The program gets a name in a folder that cannot exist: NVRTC looks for included files in the
// folder of the program's name, and "fap2.cu" alone would make that the current folder.
#define NOWHERE "/dev/null/"

// ---- Figures ------------------------------------------------------------------------------------

// The number that stands before `unit` on the line, -1 when there is none.
static int32_t number_before(const char *line, size_t len, const char *unit) {
    size_t unit_len = strlen(unit);
    for (size_t i = 1; i + unit_len <= len; i++) {
        if (memcmp(line + i, unit, unit_len) == 0) {
            size_t start = i;
            while (start > 0 && line[start - 1] >= '0' && line[start - 1] <= '9') {
                start--;
            }
            return start < i ? (int32_t)strtol(line + start, NULL, 10) : -1;
        }
    }
    return -1;
}

static void take(int32_t *to, int32_t value) {
    if (value >= 0) {
        *to = value;
    }
}

// Whether the line is about the entry: …'entry'…
static int names_entry(const char *line, size_t len, const char *entry) {
    size_t entry_len = strlen(entry);
    const char *quote = memchr(line, '\'', len);
    return quote && (size_t)(line + len - quote) > entry_len + 1 &&
           memcmp(quote + 1, entry, entry_len) == 0 && quote[1 + entry_len] == '\'';
}

struct kiln_resources kiln_resources_parse(const char *log, const char *entry) {
    static const char heading[] = "Compiling entry function";
    struct kiln_resources r = {-1, -1, -1, -1, -1};
    int ours = 0;
    while (*log) {
        size_t len = strcspn(log, "\n");
        const char *at = strstr(log, heading);
        if (at && (size_t)(at - log) < len) {
            ours = names_entry(log, len, entry);
        } else if (ours) {
            take(&r.stack, number_before(log, len, " bytes stack frame"));
            take(&r.spill_stores, number_before(log, len, " bytes spill stores"));
            take(&r.spill_loads, number_before(log, len, " bytes spill loads"));
            int32_t registers = number_before(log, len, " registers");
            take(&r.registers, registers);
            if (registers >= 0) { // the line of totals leaves out what is not used
                r.smem_static = 0;
                take(&r.smem_static, number_before(log, len, " bytes smem"));
            }
        }
        log += len + (log[len] == '\n');
    }
    return r;
}

// ---- Messages -----------------------------------------------------------------------------------

// The log as people read it: file names as the source gave them, without what kiln put in front.
static char *clean_log(const char *log, const struct kiln_unit *unit) {
    struct kiln_buf text = {0};
    while (*log) {
        size_t len = strcspn(log, "\n");
        const char *nowhere = strstr(log, NOWHERE);
        if (nowhere && (size_t)(nowhere - log) < len) {
            kiln_buf_append(&text, log, (size_t)(nowhere - log));
            size_t skipped = strlen(NOWHERE) - (*unit->file == '/'); // its own slash stays
            len -= (size_t)(nowhere - log) + skipped;
            log = nowhere + skipped;
        } else if (*log == '/') {
            const char *paren = memchr(log, '(', len);
            size_t name_len = paren ? (size_t)(paren - log - 1) : 0;
            int ours = paren && strlen(unit->file) == name_len &&
                       memcmp(log + 1, unit->file, name_len) == 0;
            for (size_t i = 0; paren && !ours && i < unit->includes.count; i++) {
                const char *name = unit->includes.items[i].name;
                ours = *name != '/' && strlen(name) == name_len &&
                       memcmp(log + 1, name, name_len) == 0;
            }
            log += ours;
            len -= (size_t)ours;
        }
        kiln_buf_append(&text, log, len);
        kiln_buf_puts(&text, "\n");
        log += len + (log[len] == '\n');
    }
    if (!text.data && !text.failed) {
        kiln_buf_puts(&text, "");
    }
    return kiln_buf_take(&text);
}

// The first line of the log that tells of an error, else its first line.
static const char *first_error(const char *log, size_t *len) {
    const char *first = log;
    for (const char *line = log; *line;) {
        *len = strcspn(line, "\n");
        const char *error = strstr(line, "error");
        if (error && (size_t)(error - line) < *len) {
            return line;
        }
        line += *len + (line[*len] == '\n');
    }
    *len = strcspn(first, "\n");
    return first;
}

static enum kiln_status compile_failed(const struct kiln_nvrtc *nvrtc, const struct kiln_unit *unit,
        const char *log, struct kiln_err *err) {
    char cause[300];
    (void)snprintf(cause, sizeof(cause), "%.290s", err->text);
    size_t len = 0;
    const char *line = first_error(log, &len);
    if (strstr(log, "nvrtc-builtins")) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "%s: NVRTC %d.%d (%s) lacks its builtins library: %.*s It lies beside NVRTC "
                "in a whole installation; tools/fetch-nvrtc fetches one",
                unit->label, nvrtc->major, nvrtc->minor, nvrtc->path, (int)len, line);
    }
    return kiln_err_set(err, KILN_STATUS_DEVICE,
            "%s does not compile for %s (NVRTC %d.%d): %.*s; geometry %s", unit->label,
            unit->target, nvrtc->major, nvrtc->minor,
            (int)(len ? (len < 400 ? len : 400) : strlen(cause)), len ? line : cause,
            unit->geometry);
}

// ---- Compile ------------------------------------------------------------------------------------

static int has_entry(
        const struct kiln_unit *unit, const struct kiln_nvrtc_result *result, const char *entry) {
    if (unit->ptx) {
        char *pattern = kiln_asprintf(".entry %s(", entry);
        int found = !pattern || strstr(result->image, pattern) != NULL;
        kiln_free(pattern);
        return found;
    }
    struct kiln_elf elf;
    struct kiln_elf_bytes bytes;
    return kiln_elf_open(&elf, result->image, result->image_size) == 0 &&
           kiln_elf_symbol(&elf, entry, &bytes) == 0;
}

static enum kiln_status take_image(const struct kiln_unit *unit, struct kiln_nvrtc_result *result,
        struct kiln_image *image, struct kiln_err *err) {
    const char *entry = result->lowered ? result->lowered : unit->entry;
    if (!has_entry(unit, result, entry)) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "%s: %s has no kernel '%s'; declare it extern \"C\" __global__, or name a template "
                "instance",
                unit->label, unit->file, entry);
    }
    image->resources = unit->ptx ? (struct kiln_resources){-1, -1, -1, -1, -1}
                                 : kiln_resources_parse(result->log, entry);
    image->entry = kiln_strdup(entry);
    image->target = kiln_strdup(unit->target);
    image->label = kiln_strdup(unit->label);
    image->geometry = kiln_strdup(unit->geometry);
    if (!image->entry || !image->target || !image->label || !image->geometry) {
        kiln_image_finish(image);
        return kiln_err_nomem(err, "a compiled kernel");
    }
    image->data = result->image;
    image->size = result->image_size;
    image->ptx = unit->ptx;
    result->image = NULL;
    return KILN_STATUS_OK;
}

static enum kiln_status run(const struct kiln_nvrtc *nvrtc, const struct kiln_unit *unit,
        const struct kiln_nvrtc_program *program, struct kiln_image *image, char **log,
        struct kiln_err *err) {
    struct kiln_nvrtc_result result;
    struct kiln_err cause = {0};
    double start = kiln_clock_seconds();
    enum kiln_status status = kiln_nvrtc_compile(nvrtc, program, &result, &cause);
    double ms = (kiln_clock_seconds() - start) * 1e3;
    *log = status != KILN_STATUS_NOMEM ? clean_log(result.log, unit) : NULL;
    if (!*log) {
        status = kiln_err_nomem(err, "a compile");
    } else if (status != KILN_STATUS_OK) {
        *err = cause;
        status = compile_failed(nvrtc, unit, *log, err);
    } else {
        status = take_image(unit, &result, image, err);
        image->compile_ms = ms;
    }
    kiln_nvrtc_result_finish(&result);
    return status;
}

enum kiln_status kiln_compile(const struct kiln_nvrtc *nvrtc, const struct kiln_unit *unit,
        struct kiln_image *image, char **log, struct kiln_err *err) {
    *image = (struct kiln_image){0};
    *log = NULL;
    size_t n = 0;
    const char **names = kiln_calloc(unit->includes.count, sizeof(*names));
    const char **texts = kiln_calloc(unit->includes.count, sizeof(*texts));
    const char **options = kiln_calloc(unit->n_options, sizeof(*options));
    char *name = kiln_asprintf("%s%s", *unit->file == '/' ? "/dev/null" : NOWHERE, unit->file);
    enum kiln_status status;
    if (!names || !texts || !options || !name) {
        status = kiln_err_nomem(err, "a compile");
    } else {
        for (size_t i = 0; i < unit->includes.count; i++) {
            if (!unit->includes.items[i].on_disk) {
                names[n] = unit->includes.items[i].name;
                texts[n++] = unit->includes.items[i].text;
            }
        }
        for (size_t i = 0; i < unit->n_options; i++) {
            options[i] = unit->options[i];
        }
        const struct kiln_nvrtc_program program = {.name = name,
                .text = unit->program,
                .header_names = names,
                .header_texts = texts,
                .n_headers = (int)n,
                .options = options,
                .n_options = (int)unit->n_options,
                .instance = unit->instance,
                .ptx = unit->ptx};
        status = run(nvrtc, unit, &program, image, log, err);
    }
    kiln_free(names);
    kiln_free(texts);
    kiln_free(options);
    kiln_free(name);
    return status;
}
