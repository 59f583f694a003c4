// scaffold: writes the folder of a new plugin that works as it stands, and says how to go on.
#include "plugin/scaffold.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "plugin/scaffold_templates.h" // made from plugins/example/ by tools/embed.py
#include "plugin/text.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char template_name[] = "example";

struct skeleton {
    const char *slot, *source, *ini;
    const char *makefile, *readme;
    const char *cuda; // the .cu, or NULL
};

static const struct skeleton skeletons[] = {
        {"norm", embed_norm_c, embed_norm_ini, embed_makefile, embed_readme, NULL},
        {"activation", embed_activation_c, embed_activation_ini, embed_makefile, embed_readme,
                NULL},
        {"matmul", embed_matmul_c, embed_matmul_ini, embed_makefile, embed_readme, NULL},
};
static const struct skeleton with_cuda = {"norm", embed_cuda_c, embed_cuda_ini, embed_cuda_makefile,
        embed_cuda_readme, embed_cuda_cu};
enum {
    N_SKELETONS = sizeof(skeletons) / sizeof(skeletons[0]),
    N_FILES = 5
};

const char *kiln_scaffold_slots(void) {
    return "norm, activation, matmul (f32 weights)";
}

// ---- What was asked for -------------------------------------------------------------------------

static const struct skeleton *find_skeleton(const char *slot, int cuda, struct kiln_err *err) {
    const char *slots[N_SKELETONS];
    if (cuda && strcmp(slot, with_cuda.slot) == 0) {
        return &with_cuda;
    }
    if (cuda) {
        (void)kiln_err_set(err, KILN_STATUS_USAGE,
                "no template with a CUDA kernel for the slot '%s'. There is one for: norm. Take it "
                "and change its `slots` and its plan",
                slot);
        return NULL;
    }
    for (size_t i = 0; i < N_SKELETONS; i++) {
        slots[i] = skeletons[i].slot;
        if (strcmp(slot, slots[i]) == 0) {
            return &skeletons[i];
        }
    }
    const char *near = kiln_nearest(slot, slots, N_SKELETONS);
    (void)kiln_err_set(err, KILN_STATUS_USAGE,
            "no template for the slot '%s'%s%s%s There is one for: %s. For another slot take the "
            "nearest and change its `slots` and its plan",
            slot, near ? "; did you mean '" : ".", near ? near : "", near ? "'?" : "",
            kiln_scaffold_slots());
    return NULL;
}

// ---- Text ---------------------------------------------------------------------------------------

static int is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Appends `text` with the template's name exchanged for `name`, where it stands as a whole word.
static void rename_in(const char *text, const char *name, struct kiln_buf *out) {
    size_t len = sizeof(template_name) - 1;
    const char *at = text;
    for (const char *hit = text; (hit = strstr(hit, template_name)); hit += len) {
        if ((hit > text && is_word(hit[-1])) || is_word(hit[len])) {
            continue;
        }
        kiln_buf_append(out, at, (size_t)(hit - at));
        kiln_buf_puts(out, name);
        at = hit + len;
    }
    kiln_buf_puts(out, at);
}

// A word as a shell reads it back.
static void put_word(struct kiln_buf *out, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./=:,@%+-";
    if (*word && word[strspn(word, plain)] == '\0') {
        kiln_buf_puts(out, word);
        return;
    }
    kiln_buf_puts(out, "'");
    for (; *word; word++) {
        if (*word == '\'') {
            kiln_buf_puts(out, "'\\''");
        } else {
            kiln_buf_append(out, word, 1);
        }
    }
    kiln_buf_puts(out, "'");
}

// A path that no program takes for an option.
static void put_path(
        struct kiln_buf *out, const char *folder, const char *name, const char *suffix) {
    struct kiln_buf path = {0};
    kiln_buf_printf(&path, "%s%s%s%s%s", folder[0] == '-' ? "./" : "", folder, name ? "/" : "",
            name ? name : "", suffix);
    put_word(out, path.data ? path.data : "");
    out->failed |= path.failed;
    kiln_buf_finish(&path);
}

// The template's section, each line set in.
static void put_section(struct kiln_buf *out, const char *section) {
    for (const char *at = section; *at;) {
        size_t len = strcspn(at, "\n");
        kiln_buf_printf(out, "%s%.*s\n", len ? "  " : "", (int)len, at);
        at += len + (at[len] == '\n');
    }
}

// A kiln command that uses the plugin and its INI file.
static void put_use(struct kiln_buf *out, const struct kiln_scaffold *scaffold, const char *folder,
        const char *command) {
    put_word(out, scaffold->kiln);
    kiln_buf_puts(out, command);
    kiln_buf_puts(out, " --plugin-dir ");
    put_path(out, folder, NULL, "");
    kiln_buf_puts(out, " --config ");
    put_path(out, folder, scaffold->name, ".ini");
}

static void write_guide(const struct kiln_scaffold *scaffold, const char *folder,
        const char *section, struct kiln_buf *out) {
    const char *name = scaffold->name;
    put_path(out, folder, NULL, "/");
    kiln_buf_printf(out, " has %s.c, ", name);
    if (scaffold->cuda) {
        kiln_buf_printf(out, "%s.cu, ", name);
    }
    kiln_buf_printf(out, "Makefile, %s.ini and README.md, and works as it is.\n", name);
    kiln_buf_puts(out, "\nbuild:\n  ");
    if (scaffold->pkg_config_path) {
        kiln_buf_puts(out, "PKG_CONFIG_PATH=");
        put_word(out, scaffold->pkg_config_path);
        kiln_buf_puts(out, " ");
    }
    kiln_buf_puts(out, "make -C ");
    put_path(out, folder, NULL, "");
    kiln_buf_puts(out, "\nverify:\n  ");
    put_word(out, scaffold->kiln);
    kiln_buf_puts(out, " plugins verify ");
    put_path(out, folder, name, ".so");
    kiln_buf_puts(out, "\nbind it, in an INI file (");
    put_path(out, folder, name, ".ini");
    kiln_buf_puts(out, " has it):\n");
    put_section(out, section);
    if (scaffold->cuda) {
        kiln_buf_puts(out, "jit (compile its CUDA kernel; needs no GPU):\n  ");
        put_use(out, scaffold, folder, " jit norm");
        kiln_buf_puts(out, "\n");
    }
    kiln_buf_puts(out, "run a model ($MODEL) with it:\n  ");
    put_use(out, scaffold, folder, " run");
    kiln_buf_puts(out, scaffold->cuda ? "" : " --device cpu");
    kiln_buf_puts(out, " -m \"$MODEL\" -p \"Once upon a time\" -n 32 --greedy\n");
}

// ---- Files --------------------------------------------------------------------------------------

static enum kiln_status write_file(
        const char *path, const char *text, const char *name, struct kiln_err *err) {
    struct kiln_buf renamed = {0};
    rename_in(text, name, &renamed);
    enum kiln_status status = renamed.failed
                                      ? kiln_err_nomem(err, "the files of a new plugin")
                                      : kiln_file_write(path, renamed.data, renamed.len, err);
    kiln_buf_finish(&renamed);
    return status;
}

static enum kiln_status make_folder(const char *folder, struct kiln_err *err) {
    if (mkdir(folder, 0777) == 0) {
        return KILN_STATUS_OK;
    }
    if (errno == EEXIST) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s is there already and was left as it is; choose another name, or another folder "
                "with --dir",
                folder);
    }
    return kiln_err_set(err, KILN_STATUS_FILE,
            "%s: cannot make the plugin's folder: %s; check --dir", folder, strerror(errno));
}

// All or nothing. Paths are there first, so that taking files away needs no memory.
static enum kiln_status write_folder(const struct kiln_scaffold *scaffold,
        const struct skeleton *chosen, const char *folder, struct kiln_err *err) {
    const char *const texts[N_FILES] = {
            chosen->source, chosen->ini, chosen->makefile, chosen->readme, chosen->cuda};
    const char *name = scaffold->name;
    char *paths[N_FILES] = {kiln_asprintf("%s/%s.c", folder, name),
            kiln_asprintf("%s/%s.ini", folder, name), kiln_asprintf("%s/Makefile", folder),
            kiln_asprintf("%s/README.md", folder), kiln_asprintf("%s/%s.cu", folder, name)};
    size_t n_files = chosen->cuda ? N_FILES : N_FILES - 1;
    int whole = paths[0] && paths[1] && paths[2] && paths[3] && paths[4];
    enum kiln_status status =
            whole ? make_folder(folder, err) : kiln_err_nomem(err, "the paths of a new plugin");
    int made = whole && status == KILN_STATUS_OK;
    size_t n = 0;
    for (; status == KILN_STATUS_OK && n < n_files; n++) {
        status = write_file(paths[n], texts[n], name, err);
    }
    if (made && status != KILN_STATUS_OK) {
        while (n > 0) {
            (void)unlink(paths[--n]);
        }
        (void)rmdir(folder);
    }
    for (size_t i = 0; i < N_FILES; i++) {
        kiln_free(paths[i]);
    }
    return status;
}

static char *make_path(const struct kiln_scaffold *scaffold) {
    const char *dir = scaffold->dir;
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/') {
        len--;
    }
    if (len == 1 && dir[0] == '.') {
        return kiln_strdup(scaffold->name);
    }
    return kiln_asprintf(
            "%.*s%s%s", (int)len, dir, len == 1 && dir[0] == '/' ? "" : "/", scaffold->name);
}

// The guide is made first: what can go wrong there goes wrong before anything is written.
static enum kiln_status write_all(const struct kiln_scaffold *scaffold,
        const struct skeleton *chosen, const char *folder, struct kiln_buf *guide,
        struct kiln_err *err) {
    struct kiln_buf section = {0};
    rename_in(chosen->ini, scaffold->name, &section);
    if (!section.failed) {
        write_guide(scaffold, folder, section.data, guide);
    }
    enum kiln_status status = section.failed || guide->failed
                                      ? kiln_err_nomem(err, "the guide to a new plugin")
                                      : write_folder(scaffold, chosen, folder, err);
    kiln_buf_finish(&section);
    return status;
}

enum kiln_status kiln_scaffold_write(
        const struct kiln_scaffold *scaffold, struct kiln_buf *guide, struct kiln_err *err) {
    struct kiln_err why = {0};
    if (kiln_text_check_name(scaffold->name, KILN_NAME_LOWER, &why) != KILN_STATUS_OK) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "the plugin's name: %s", why.text);
    }
    const struct skeleton *chosen = find_skeleton(scaffold->slot, scaffold->cuda, err);
    if (!chosen) {
        return KILN_STATUS_USAGE;
    }
    char *folder = make_path(scaffold);
    if (!folder) {
        return kiln_err_nomem(err, "the path of a new plugin");
    }
    enum kiln_status status = write_all(scaffold, chosen, folder, guide, err);
    kiln_free(folder);
    return status;
}
