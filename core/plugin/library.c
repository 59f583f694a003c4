// library: opens one shared library and finds its plugin entry, or says why not.
#include "plugin/library.h"

#include "base/file.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char entry_name[] = "kiln_plugin_entry";

#if defined(__SANITIZE_ADDRESS__)
#    define KEEP_OPEN 1
#elif defined(__has_feature)
#    define KEEP_OPEN __has_feature(address_sanitizer)
#else
#    define KEEP_OPEN 0
#endif

void kiln_library_close(void *handle) {
    if (handle && !KEEP_OPEN) {
        dlclose(handle);
    }
}

static const char not_regular[] = "not a regular file; name the plugin's .so file itself";

static const char cut_short[] = "the file is cut short; build or copy the plugin again";

// The loader maps what the header promises and dies of SIGBUS where the file ends before it.
static const char *look_at_elf(FILE *file, uint64_t size) {
    Elf64_Ehdr head;
    size_t n = fread(&head, 1, sizeof(head), file);
    if (n < SELFMAG || memcmp(&head, ELFMAG, SELFMAG) != 0) {
        return "not a shared library (no ELF header); name a file made by `cc -shared -fPIC`";
    }
    if (n < sizeof(head)) {
        return cut_short;
    }
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof(Elf64_Phdr)) {
        return NULL; // another machine's: the loader says so
    }
    if (head.e_shoff > size || size - head.e_shoff < (uint64_t)head.e_shnum * head.e_shentsize) {
        return cut_short;
    }
    for (unsigned i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr part;
        if (fseek(file, (long)(head.e_phoff + i * sizeof(part)), SEEK_SET) != 0 ||
                fread(&part, 1, sizeof(part), file) != sizeof(part) || part.p_offset > size ||
                part.p_filesz > size - part.p_offset) {
            return cut_short;
        }
    }
    return NULL;
}

// What dlopen would refuse with fewer words: checked first, so that the message can say what to do.
static const char *look_at_file(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) {
        return errno == ENOENT ? "the file does not exist; check the path"
                               : "the file cannot be reached; check the path and its permissions";
    }
    if (!S_ISREG(info.st_mode)) {
        return not_regular;
    }
    if (info.st_size == 0) {
        return "the file is empty; build or copy the plugin again";
    }
    FILE *file = fopen(path, "rb");
    if (!file) {
        return "the file cannot be read; check its permissions";
    }
    const char *fault = look_at_elf(file, (uint64_t)info.st_size);
    (void)fclose(file);
    return fault;
}

// The loader's text in our words. Only the wording depends on its format: what is not recognised is
// reported as it is.
static enum kiln_status explain(const char *path, const char *loader, struct kiln_err *err) {
    static const char undefined[] = "undefined symbol: ", absent[] = ": cannot open shared object";
    const char *symbol = strstr(loader, undefined);
    const char *gone = strstr(loader, absent);
    if (symbol) {
        symbol += sizeof(undefined) - 1;
        return kiln_err_set(err, KILN_STATUS_FILE,
                "refers to '%.*s', which neither its libraries nor kiln have; link the plugin "
                "against what defines it or drop the reference (loader: %s)",
                (int)strcspn(symbol, " ,()\n"), symbol, loader);
    }
    if (gone && strncmp(loader, path, strlen(path)) != 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "needs the library '%.*s', which is not there; install it or add its folder to "
                "LD_LIBRARY_PATH (loader: %s)",
                (int)(gone - loader), loader, loader);
    }
    return kiln_err_set(err, KILN_STATUS_FILE,
            "the loader refuses it; build it for this machine and system (loader: %s)", loader);
}

enum kiln_status kiln_library_open(
        const char *path, void **handle, const struct kiln_plugin **entry, struct kiln_err *err) {
    const char *fault = look_at_file(path);
    // opening a pipe would wait for its other end, mapping a file that is cut short kills
    if (fault == not_regular || fault == cut_short) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s", fault);
    }
    // Also where the fault is known: the loader's own text belongs into the message.
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!opened) {
        const char *text = dlerror();
        text = text ? text : "no reason given";
        return fault ? kiln_err_set(err, KILN_STATUS_FILE, "%s (loader: %s)", fault, text)
                     : explain(path, text, err);
    }
    const struct kiln_plugin *found = dlsym(opened, entry_name);
    if (!found) {
        const char *text = dlerror();
        enum kiln_status status = kiln_err_set(err, KILN_STATUS_FILE,
                "no symbol '%s'; it is not a kiln plugin, or its entry is not marked KILN_EXPORT "
                "(loader: %s)",
                entry_name, text ? text : "the symbol's address is 0");
        kiln_library_close(opened);
        return status;
    }
    *handle = opened;
    *entry = found;
    return KILN_STATUS_OK;
}

// ---- Exported names --------------------------------------------------------------------------
// Whether `count` entries of `size` bytes at `offset` lie inside the file.
static int inside(const struct kiln_map *map, uint64_t offset, uint64_t count, uint64_t size) {
    uint64_t bytes;
    return !__builtin_mul_overflow(count, size, &bytes) && offset <= map->size &&
           bytes <= map->size - offset;
}

static int is_toolchain_name(const char *name) {
    static const char *const known[] = {"_init", "_fini", "__bss_start", "_edata", "_end"};
    static const char sanitizer[] = "__odr_asan."; // goes with each global of an instrumented build
    if (strncmp(name, sanitizer, sizeof(sanitizer) - 1) == 0) {
        return 1;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static int by_name(const void *a, const void *b) {
    const char *left, *right;
    memcpy(&left, a, sizeof(left));
    memcpy(&right, b, sizeof(right));
    return strcmp(left, right);
}

static enum kiln_status print_symbols(const struct kiln_map *map, const Elf64_Shdr *symbols,
        const Elf64_Shdr *strings, struct kiln_buf *names, struct kiln_err *err) {
    uint64_t n_symbols = symbols->sh_size / sizeof(Elf64_Sym);
    const char **found = kiln_calloc(n_symbols, sizeof(*found));
    if (!found) {
        return kiln_err_nomem(err, "a library's symbols");
    }
    size_t n_found = 0;
    for (uint64_t i = 1; i < n_symbols; i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, map->data + symbols->sh_offset + i * sizeof(symbol), sizeof(symbol));
        if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL ||
                ELF64_ST_TYPE(symbol.st_info) == STT_SECTION ||
                symbol.st_name >= strings->sh_size) {
            continue;
        }
        const char *name = (const char *)map->data + strings->sh_offset + symbol.st_name;
        if (!is_toolchain_name(name)) {
            found[n_found++] = name;
        }
    }
    qsort(found, n_found, sizeof(*found), by_name);
    for (size_t i = 0; i < n_found; i++) {
        kiln_buf_printf(names, "%s\n", found[i]);
    }
    kiln_free(found);
    return names->failed ? kiln_err_nomem(err, "a library's symbols") : KILN_STATUS_OK;
}

static enum kiln_status read_exports(
        const struct kiln_map *map, struct kiln_buf *names, struct kiln_err *err) {
    Elf64_Ehdr head;
    if (map->size < sizeof(head) || memcmp(map->data, ELFMAG, SELFMAG) != 0 ||
            map->data[EI_CLASS] != ELFCLASS64) {
        return kiln_err_set(err, KILN_STATUS_FILE, "not a 64-bit ELF file");
    }
    memcpy(&head, map->data, sizeof(head));
    if (head.e_shentsize != sizeof(Elf64_Shdr) ||
            !inside(map, head.e_shoff, head.e_shnum, sizeof(Elf64_Shdr))) {
        return kiln_err_set(err, KILN_STATUS_FILE, "its section table lies outside the file");
    }
    for (unsigned i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr symbols, strings;
        memcpy(&symbols, map->data + head.e_shoff + i * sizeof(symbols), sizeof(symbols));
        if (symbols.sh_type != SHT_DYNSYM) {
            continue;
        }
        if (symbols.sh_link >= head.e_shnum ||
                !inside(map, symbols.sh_offset, 1, symbols.sh_size)) {
            return kiln_err_set(err, KILN_STATUS_FILE, "its symbol table lies outside the file");
        }
        memcpy(&strings, map->data + head.e_shoff + symbols.sh_link * sizeof(strings),
                sizeof(strings));
        if (strings.sh_size == 0 || !inside(map, strings.sh_offset, 1, strings.sh_size) ||
                map->data[strings.sh_offset + strings.sh_size - 1] != '\0') {
            return kiln_err_set(err, KILN_STATUS_FILE, "its string table is damaged");
        }
        return print_symbols(map, &symbols, &strings, names, err);
    }
    return kiln_err_set(err, KILN_STATUS_FILE, "it has no dynamic symbol table");
}

enum kiln_status kiln_library_exports(
        const char *path, struct kiln_buf *names, struct kiln_err *err) {
    struct kiln_map map = {0};
    KILN_TRY(kiln_map_open(&map, path, err));
    enum kiln_status status = read_exports(&map, names, err);
    if (status == KILN_STATUS_FILE) {
        kiln_err_prefix(err, "%s: ", path);
    }
    kiln_map_close(&map);
    return status;
}
