// includes: scans for #include lines and looks the names up, breadth first.
#include "jit/includes.h"

#include "base/file.h"
#include "base/mem.h"

#include <string.h>

enum {
    MAX_FILE = 16 << 20,
    MAX_FILES = 4096
};

void kiln_includes_finish(struct kiln_includes *includes) {
    for (size_t i = 0; i < includes->count; i++) {
        kiln_free(includes->items[i].name);
        kiln_free(includes->items[i].text);
        kiln_free(includes->items[i].path);
    }
    kiln_free(includes->items);
    *includes = (struct kiln_includes){0};
}

static const char *skip_blanks(const char *at) {
    return at + strspn(at, " \t");
}

// The name that the line at *at includes, its length, whether in quotes; moves *at to the next
// line. NULL: the line includes nothing by name.
static const char *next_include(const char **at, size_t *len, int *quoted) {
    const char *line = skip_blanks(*at), *name = NULL;
    *at = line + strcspn(line, "\n");
    *at += **at == '\n';
    if (*line != '#') {
        return NULL;
    }
    line = skip_blanks(line + 1);
    if (strncmp(line, "include", 7) != 0) {
        return NULL;
    }
    line = skip_blanks(line + 7);
    if (*line == '"' || *line == '<') {
        *quoted = *line == '"';
        *len = strcspn(line + 1, *quoted ? "\"\n" : ">\n");
        name = *len > 0 && line[1 + *len] != '\n' && line[1 + *len] ? line + 1 : NULL;
    }
    return name;
}

static struct kiln_include *find(const struct kiln_includes *includes, const char *name) {
    for (size_t i = 0; i < includes->count; i++) {
        if (strcmp(includes->items[i].name, name) == 0) {
            return &includes->items[i];
        }
    }
    return NULL;
}

// Takes over what `item` holds, also on failure.
static enum kiln_status add(
        struct kiln_includes *includes, struct kiln_include *item, struct kiln_err *err) {
    enum kiln_status status = KILN_STATUS_OK;
    if (!item->name || !item->text ||
            kiln_grow(&includes->items, &includes->cap, includes->count + 1,
                    sizeof(*includes->items)) != 0) {
        status = kiln_err_nomem(err, "the included files");
    } else if (includes->count == MAX_FILES) {
        status = kiln_err_set(
                err, KILN_STATUS_FILE, "more than %d files are included", (int)MAX_FILES);
    }
    if (status != KILN_STATUS_OK) {
        kiln_free(item->name);
        kiln_free(item->text);
        kiln_free(item->path);
        return status;
    }
    includes->items[includes->count++] = *item;
    return KILN_STATUS_OK;
}

// A file dir/name. *found tells whether it is there. What lies on disk goes by its path, since the
// compiler reads it itself.
static enum kiln_status try_file(struct kiln_includes *includes, const char *dir, const char *name,
        int on_disk, int *found, struct kiln_err *err) {
    char *path = *name == '/' ? kiln_strdup(name) : kiln_asprintf("%s/%s", dir, name);
    if (!path) {
        return kiln_err_nomem(err, "a path");
    }
    *found = kiln_file_exists(path);
    if (!*found || (on_disk && find(includes, path))) {
        kiln_free(path);
        return KILN_STATUS_OK;
    }
    struct kiln_include item = {
            .name = kiln_strdup(on_disk ? path : name), .path = path, .on_disk = on_disk};
    enum kiln_status status = kiln_file_read(path, MAX_FILE, &item.text, &item.len, err);
    if (status != KILN_STATUS_OK) {
        kiln_free(item.name);
        kiln_free(path);
        return status;
    }
    return add(includes, &item, err);
}

static enum kiln_status try_header(struct kiln_includes *includes,
        const struct kiln_include_search *search, const char *name, int *found,
        struct kiln_err *err) {
    for (uint32_t i = 0; i < search->n_headers; i++) {
        if (strcmp(search->headers[i]->name, name) == 0) {
            const char *text = search->headers[i]->text;
            struct kiln_include item = {
                    .name = kiln_strdup(name), .text = kiln_strdup(text), .len = strlen(text)};
            *found = 1;
            return add(includes, &item, err);
        }
    }
    return KILN_STATUS_OK;
}

// A name that two files of different folders go by could not be handed to the compiler.
static enum kiln_status check_same(
        const struct kiln_include *have, const char *dir, const char *name, struct kiln_err *err) {
    if (!dir || !have->path || have->on_disk || *name == '/') {
        return KILN_STATUS_OK;
    }
    char *path = kiln_asprintf("%s/%s", dir, name);
    if (!path) {
        return kiln_err_nomem(err, "a path");
    }
    enum kiln_status status = KILN_STATUS_OK;
    if (strcmp(path, have->path) != 0 && kiln_file_exists(path)) {
        status = kiln_err_set(err, KILN_STATUS_FILE,
                "'%s' names two files, %s and %s: give one of them another name, or include both "
                "by "
                "their paths from the source's folder",
                name, have->path, path);
    }
    kiln_free(path);
    return status;
}

// Where an #include line stands.
struct place {
    const char *dir; // of the file, or NULL
    int on_disk;     // the file is one that the compiler reads itself
};

static enum kiln_status look_up(struct kiln_includes *includes,
        const struct kiln_include_search *search, const struct place *place, const char *name,
        int quoted, struct kiln_err *err) {
    const struct kiln_include *have = find(includes, name);
    if (have) {
        return quoted ? check_same(have, place->dir, name, err) : KILN_STATUS_OK;
    }
    int found = 0;
    if (quoted && place->dir) {
        KILN_TRY(try_file(includes, place->dir, name, place->on_disk, &found, err));
    }
    if (!found && quoted && search->dir && place->dir && !place->on_disk &&
            strcmp(search->dir, place->dir) != 0) {
        KILN_TRY(try_file(includes, search->dir, name, 0, &found, err));
    }
    if (!found) {
        KILN_TRY(try_header(includes, search, name, &found, err));
    }
    for (size_t i = 0; !found && i < search->n_dirs; i++) {
        KILN_TRY(try_file(includes, search->dirs[i], name, 1, &found, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status scan(struct kiln_includes *includes,
        const struct kiln_include_search *search, const struct place *place, const char *text,
        struct kiln_err *err) {
    while (*text) {
        size_t len = 0;
        int quoted = 0;
        const char *name = next_include(&text, &len, &quoted);
        if (name) {
            char *copy = kiln_strndup(name, len);
            enum kiln_status status = copy ? look_up(includes, search, place, copy, quoted, err)
                                           : kiln_err_nomem(err, "a file name");
            kiln_free(copy);
            KILN_TRY(status);
        }
    }
    return KILN_STATUS_OK;
}

// What item `index` includes. Its own folder comes first, as for the compiler.
static enum kiln_status scan_item(struct kiln_includes *includes,
        const struct kiln_include_search *search, size_t index, struct kiln_err *err) {
    const struct kiln_include item = includes->items[index]; // the array may move
    const char *slash = item.path ? strrchr(item.path, '/') : NULL;
    char *dir = slash ? kiln_strndup(item.path, (size_t)(slash - item.path)) : NULL;
    if (slash && !dir) {
        return kiln_err_nomem(err, "a path");
    }
    const struct place place = {.dir = dir, .on_disk = item.on_disk};
    enum kiln_status status = scan(includes, search, &place, item.text, err);
    kiln_free(dir);
    return status;
}

enum kiln_status kiln_includes_read(struct kiln_includes *includes, const char *text,
        const struct kiln_include_search *search, struct kiln_err *err) {
    const struct place place = {.dir = search->dir};
    KILN_TRY(scan(includes, search, &place, text, err));
    size_t done = 0;
    for (; done < includes->count; done++) {
        KILN_TRY(scan_item(includes, search, done, err));
    }
    // A header that no line names may still be included through a macro.
    for (uint32_t i = 0; i < search->n_headers; i++) {
        int found = find(includes, search->headers[i]->name) != NULL;
        if (!found) {
            KILN_TRY(try_header(includes, search, search->headers[i]->name, &found, err));
        }
    }
    for (; done < includes->count; done++) {
        KILN_TRY(scan_item(includes, search, done, err));
    }
    return KILN_STATUS_OK;
}
