// structure: PTX text to statements, classes and lines.
#include "lab/structure.h"

#include "base/mem.h"
#include "lab/structure_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Classes ------------------------------------------------------------------------------------

// Whether the opcode begins with `prefix`, up to a dot or its end.
static int begins(const char *opcode, size_t len, const char *prefix) {
    size_t n = strlen(prefix);
    return len >= n && memcmp(opcode, prefix, n) == 0 && (len == n || opcode[n] == '.');
}

// Whether one of its modifiers is `word`; a modifier may go on with ':' as in .shared::cta.
static int has(const char *opcode, size_t len, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n < len; i++) {
        if (opcode[i] == '.' && memcmp(opcode + i + 1, word, n) == 0 &&
                (i + 1 + n == len || opcode[i + 1 + n] == '.' || opcode[i + 1 + n] == ':')) {
            return 1;
        }
    }
    return 0;
}

static int is_float(const char *opcode, size_t len) {
    static const char *const types[] = {"f32", "f64", "f16", "f16x2", "bf16", "bf16x2", "f32x2"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (has(opcode, len, types[i])) {
            return 1;
        }
    }
    return 0;
}

static int any_of(const char *opcode, size_t len, const char *const *prefixes) {
    for (size_t i = 0; prefixes[i]; i++) {
        if (begins(opcode, len, prefixes[i])) {
            return 1;
        }
    }
    return 0;
}

static enum kiln_structure_class memory_class(const char *opcode, size_t len) {
    int loads = begins(opcode, len, "ld") || begins(opcode, len, "ldu");
    if (has(opcode, len, "shared")) {
        return loads ? KILN_STRUCTURE_LD_SHARED : KILN_STRUCTURE_ST_SHARED;
    }
    if (has(opcode, len, "param") || has(opcode, len, "const") || has(opcode, len, "local")) {
        return KILN_STRUCTURE_OTHER;
    }
    return loads ? KILN_STRUCTURE_LD_GLOBAL : KILN_STRUCTURE_ST_GLOBAL;
}

static enum kiln_structure_class class_of(const char *opcode, size_t len) {
    static const char *const matrix[] = {"ldmatrix", "stmatrix", "movmatrix", NULL};
    static const char *const memory[] = {"ld", "ldu", "st", "atom", "red", NULL};
    static const char *const shuffle[] = {"shfl", "redux", "match", "vote", NULL};
    static const char *const special[] = {
            "ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "div", NULL};
    static const char *const floats[] = {"add", "sub", "mul", "fma", "mad", "min", "max", "neg",
            "abs", "cvt", "setp", "set", NULL};
    static const char *const dots[] = {"dp4a", "dp2a", NULL};
    if (begins(opcode, len, "mma") || begins(opcode, len, "wmma.mma") ||
            begins(opcode, len, "wgmma.mma_async") || begins(opcode, len, "tcgen05.mma")) {
        return KILN_STRUCTURE_MMA;
    }
    if (any_of(opcode, len, matrix)) {
        return KILN_STRUCTURE_LDMATRIX;
    }
    if (begins(opcode, len, "cp") && has(opcode, len, "async") &&
            (has(opcode, len, "shared") || has(opcode, len, "global"))) {
        return KILN_STRUCTURE_ASYNC;
    }
    if (begins(opcode, len, "bar") || begins(opcode, len, "barrier")) {
        return has(opcode, len, "warp") || has(opcode, len, "arrive") ? KILN_STRUCTURE_OTHER
                                                                      : KILN_STRUCTURE_BARRIER;
    }
    if (begins(opcode, len, "mbarrier.try_wait") || begins(opcode, len, "mbarrier.test_wait")) {
        return KILN_STRUCTURE_MBARRIER;
    }
    if (any_of(opcode, len, memory)) {
        return memory_class(opcode, len);
    }
    if (any_of(opcode, len, shuffle)) {
        return KILN_STRUCTURE_SHUFFLE;
    }
    if (any_of(opcode, len, special) && is_float(opcode, len)) {
        return KILN_STRUCTURE_SPECIAL;
    }
    if (any_of(opcode, len, floats) && is_float(opcode, len)) {
        return KILN_STRUCTURE_FLOAT;
    }
    return any_of(opcode, len, dots) ? KILN_STRUCTURE_INTEGER : KILN_STRUCTURE_OTHER;
}

// ---- Source lines -------------------------------------------------------------------------------

// A .loc that was seen: where it is inlined into, if anywhere.
struct place {
    uint32_t file, line, column;
    int32_t parent; // index, -1: none
};

struct file {
    uint32_t number;
    char name[48];
};

struct reader {
    struct kiln_structure *structure;
    struct kiln_structure_text text;
    struct place *places;
    size_t n_places, cap_places;
    struct file *files;
    size_t n_files, cap_files;
    size_t cap_lines;
    uint32_t at;        // index of the current line in the structure's
    const char *source; // the whole PTX
    struct kiln_err *err;
};

static enum kiln_status nomem(struct kiln_err *err) {
    return kiln_err_nomem(err, "the structure of a kernel");
}

// Name and number of `.file 2 "/attention/fa_tile.cuh"`, the folders left out. 0: it is not whole.
static int read_file(const char *at, struct file *file) {
    char *end;
    *file = (struct file){.number = (uint32_t)strtoul(at, &end, 10)};
    const char *line = end + strcspn(end, "\n"), *open = strchr(end, '"');
    const char *close = open ? strchr(open + 1, '"') : NULL;
    if (!close || close > line) {
        return 0;
    }
    const char *base = open + 1;
    for (const char *c = base; c < close; c++) {
        base = *c == '/' ? c + 1 : base;
    }
    size_t len = (size_t)(close - base);
    len = len < sizeof(file->name) ? len : sizeof(file->name) - 1;
    memcpy(file->name, base, len);
    return 1;
}

// The directives stand behind the functions.
static enum kiln_status read_files(struct reader *reader) {
    static const char directive[] = "\t.file\t";
    for (const char *at = strstr(reader->source, directive); at; at = strstr(at + 1, directive)) {
        struct file file;
        if (!read_file(at + sizeof(directive) - 1, &file)) {
            continue;
        }
        if (kiln_grow(&reader->files, &reader->cap_files, reader->n_files + 1,
                    sizeof(*reader->files)) != 0) {
            return nomem(reader->err);
        }
        reader->files[reader->n_files++] = file;
    }
    return KILN_STATUS_OK;
}

// The structure's line of a place, made when it is new.
static enum kiln_status use_line(struct reader *reader, uint32_t file, uint32_t line) {
    struct kiln_structure *structure = reader->structure;
    struct kiln_structure_line made = {.line = line};
    for (size_t i = 0; i < reader->n_files; i++) {
        if (reader->files[i].number == file) {
            memcpy(made.file, reader->files[i].name, sizeof(made.file));
        }
    }
    for (size_t i = 0; i < structure->n_lines; i++) {
        if (structure->lines[i].line == line && strcmp(structure->lines[i].file, made.file) == 0) {
            reader->at = (uint32_t)i;
            return KILN_STATUS_OK;
        }
    }
    if (kiln_grow(&structure->lines, &reader->cap_lines, structure->n_lines + 1,
                sizeof(*structure->lines)) != 0) {
        return nomem(reader->err);
    }
    reader->at = (uint32_t)structure->n_lines;
    structure->lines[structure->n_lines++] = made;
    return KILN_STATUS_OK;
}

// The last place of these numbers.
static int32_t find_place(const struct reader *reader, const uint32_t numbers[3]) {
    for (size_t i = reader->n_places; i-- > 0;) {
        const struct place *place = &reader->places[i];
        if (place->file == numbers[0] && place->line == numbers[1] && place->column == numbers[2]) {
            return (int32_t)i;
        }
    }
    return -1;
}

static struct place root_of(const struct reader *reader, struct place place) {
    while (place.parent >= 0) {
        place = reader->places[place.parent];
    }
    return place;
}

// The compiler writes some repeats of an inlined place without its call. They are of the one call
// that the place was seen with; of several, none can be told. -1: none.
static int32_t find_dropped(const struct reader *reader, const struct place *place) {
    int32_t parent = -1;
    struct place root = {.parent = -1};
    if (reader->n_places == 0 || place->file == reader->places[0].file) {
        return -1; // the kernel's own file
    }
    for (size_t i = 0; i < reader->n_places; i++) {
        const struct place *seen = &reader->places[i];
        if (seen->file != place->file || seen->line != place->line ||
                seen->column != place->column || seen->parent < 0) {
            continue;
        }
        struct place its = root_of(reader, *seen);
        if (parent >= 0 && (its.file != root.file || its.line != root.line)) {
            return -1;
        }
        parent = seen->parent;
        root = its;
    }
    return parent;
}

static void read_three(const char *at, uint32_t numbers[3]) {
    for (int i = 0; i < 3; i++) {
        char *end;
        numbers[i] = (uint32_t)strtoul(at, &end, 10);
        at = end;
    }
}

// `.loc 4 38 5, function_name $L__info_string2, inlined_at 2 41 5`: the call is the .loc of those
// numbers before it. The kernel's own line is at the end of that chain.
static enum kiln_status on_loc(struct reader *reader, const char *at, const char *end) {
    static const char inlined[] = "inlined_at ";
    uint32_t numbers[3], call[3];
    struct place place = {.parent = -1};
    read_three(at, numbers);
    place.file = numbers[0];
    place.line = numbers[1];
    place.column = numbers[2];
    for (const char *c = at; c + sizeof(inlined) < end; c++) {
        if (memcmp(c, inlined, sizeof(inlined) - 1) == 0) {
            read_three(c + sizeof(inlined) - 1, call);
            place.parent = find_place(reader, call);
        }
    }
    if (place.parent < 0) {
        place.parent = find_dropped(reader, &place);
    }
    if (kiln_grow(&reader->places, &reader->cap_places, reader->n_places + 1,
                sizeof(*reader->places)) != 0) {
        return nomem(reader->err);
    }
    reader->places[reader->n_places++] = place;
    place = root_of(reader, place);
    return use_line(reader, place.file, place.line);
}

// ---- Statements ---------------------------------------------------------------------------------

static int is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '.' || c == ':' || c == '%';
}

static const char *skip_blanks(const char *at) {
    for (;;) {
        at += strspn(at, " \t\r\n;");
        if (at[0] != '/' || at[1] != '/') {
            return at;
        }
        at += strcspn(at, "\n");
    }
}

static enum kiln_status add_label(
        struct reader *reader, const char *name, size_t len, uint32_t scope) {
    struct kiln_structure_text *text = &reader->text;
    if (kiln_grow(&text->labels, &text->cap_labels, text->n_labels + 1, sizeof(*text->labels)) !=
            0) {
        return nomem(reader->err);
    }
    text->labels[text->n_labels++] = (struct kiln_structure_label){
            .name = name, .len = len, .scope = scope, .at = (uint32_t)text->n_insns};
    return KILN_STATUS_OK;
}

static enum kiln_status add_scope(struct reader *reader, uint32_t parent, uint32_t *scope) {
    struct kiln_structure_text *text = &reader->text;
    if (kiln_grow(&text->parents, &text->cap_scopes, text->n_scopes + 1, sizeof(*text->parents)) !=
            0) {
        return nomem(reader->err);
    }
    *scope = (uint32_t)text->n_scopes;
    text->parents[text->n_scopes++] = parent;
    return KILN_STATUS_OK;
}

// at: the opcode, behind a predicate. Returns the end of the statement in *next.
static enum kiln_status add_insn(
        struct reader *reader, const char *at, int guarded, uint32_t scope, const char **next) {
    struct kiln_structure_text *text = &reader->text;
    size_t len = 0;
    while (is_word(at[len])) {
        len++;
    }
    const char *operands = at + len + strspn(at + len, " \t");
    *next = operands + strcspn(operands, ";");
    if (len == 0 || **next != ';') {
        return kiln_err_set(reader->err, KILN_STATUS_FILE,
                "PTX: '%.40s' is no instruction that ends in ';'", at);
    }
    if (kiln_grow(&text->insns, &text->cap_insns, text->n_insns + 1, sizeof(*text->insns)) != 0) {
        return nomem(reader->err);
    }
    struct kiln_structure_insn insn = {.kind = class_of(at, len),
            .line = reader->at,
            .scope = scope,
            .guarded = guarded,
            .ends = !guarded &&
                    (begins(at, len, "ret") || begins(at, len, "exit") || begins(at, len, "trap"))};
    if (begins(at, len, "bra")) {
        insn.target = operands;
        while (is_word(operands[insn.target_len])) {
            insn.target_len++;
        }
    }
    text->indirect |= begins(at, len, "brx");
    reader->structure->calls += (uint32_t)begins(at, len, "call");
    reader->structure->lines[reader->at].counts[insn.kind]++;
    text->insns[text->n_insns++] = insn;
    return KILN_STATUS_OK;
}

// A statement of the body that is neither a brace nor a directive.
static enum kiln_status on_statement(
        struct reader *reader, const char *at, uint32_t scope, const char **next) {
    size_t len = 0;
    while (is_word(at[len]) && at[len] != ':') {
        len++;
    }
    if (at[len] == ':' && at[len + 1] != ':') {
        *next = at + len + 1;
        return add_label(reader, at, len, scope);
    }
    if (*at != '@') {
        return add_insn(reader, at, 0, scope, next);
    }
    at += strcspn(at, " \t;");
    return add_insn(reader, at + strspn(at, " \t"), 1, scope, next);
}

// From behind the function's opening brace to its closing one.
static enum kiln_status read_body(struct reader *reader, const char *at) {
    uint32_t scope = 0;
    KILN_TRY(add_scope(reader, UINT32_MAX, &scope));
    KILN_TRY(use_line(reader, UINT32_MAX, 0)); // what stands before the first .loc
    for (;;) {
        at = skip_blanks(at);
        const char *line_end = at + strcspn(at, "\n");
        if (*at == '\0') {
            return kiln_err_set(
                    reader->err, KILN_STATUS_FILE, "PTX: the text ends within the kernel");
        }
        if (*at == '{') {
            KILN_TRY(add_scope(reader, scope, &scope));
            at++;
        } else if (*at == '}') {
            if (scope == 0) {
                return KILN_STATUS_OK;
            }
            scope = reader->text.parents[scope];
            at++;
        } else if (strncmp(at, ".loc", 4) == 0) {
            KILN_TRY(on_loc(reader, at + 4, line_end));
            at = line_end;
        } else if (*at == '.') { // .reg, .shared, .pragma, .branchtargets
            at += strcspn(at, ";");
        } else {
            KILN_TRY(on_statement(reader, at, scope, &at));
        }
    }
}

// Behind "{" of `.entry NAME(…) … {`; NULL: it is not there.
static const char *find_body(const char *ptx, const char *entry) {
    size_t len = strlen(entry);
    for (const char *at = strstr(ptx, ".entry "); at; at = strstr(at + 1, ".entry ")) {
        const char *name = at + strlen(".entry ");
        if (strncmp(name, entry, len) == 0 && !is_word(name[len])) {
            const char *close = name[len] == '(' ? strchr(name, ')') : name;
            const char *brace = close ? strchr(close, '{') : NULL;
            return brace ? brace + 1 : NULL;
        }
    }
    return NULL;
}

// ---- The whole ----------------------------------------------------------------------------------

static int by_line(const void *a, const void *b) {
    const struct kiln_structure_line *x = a, *y = b;
    int files = strcmp(x->file, y->file);
    return files ? files : x->line < y->line ? -1 : x->line > y->line;
}

void kiln_structure_finish(struct kiln_structure *structure) {
    kiln_free(structure->lines);
    kiln_free(structure->loops);
    *structure = (struct kiln_structure){.lines = NULL};
}

enum kiln_status kiln_structure_read(struct kiln_structure *structure, const char *ptx,
        const char *entry, struct kiln_err *err) {
    *structure = (struct kiln_structure){.lines = NULL};
    struct reader reader = {.structure = structure, .source = ptx, .err = err};
    const char *body = find_body(ptx, entry);
    enum kiln_status status =
            body ? read_files(&reader)
                 : kiln_err_set(err, KILN_STATUS_FILE, "PTX: there is no kernel '%s'", entry);
    if (status == KILN_STATUS_OK) {
        status = read_body(&reader, body);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_structure_find_loops(structure, &reader.text, err);
    }
    if (status == KILN_STATUS_OK) {
        qsort(structure->lines, structure->n_lines, sizeof(*structure->lines), by_line);
    }
    kiln_free(reader.text.insns);
    kiln_free(reader.text.labels);
    kiln_free(reader.text.parents);
    kiln_free(reader.places);
    kiln_free(reader.files);
    return status;
}
