// cmd_plugins_new: starts a plugin: one folder that builds, verifies and runs, and how to do so.
#include "cmd.h"

#include "base/file.h"
#include "base/mem.h"
#include "common.h"
#include "plugin/scaffold.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int same_file(const char *a, const char *b) {
    struct stat left, right;
    return stat(a, &left) == 0 && stat(b, &right) == 0 && left.st_dev == right.st_dev &&
           left.st_ino == right.st_ino;
}

// Whether a shell that is told `kiln` runs the program at `exe`.
static int is_on_path(const char *exe) {
    const char *at = getenv("PATH");
    while (at) {
        size_t len = strcspn(at, ":");
        char *candidate = kiln_asprintf("%.*s/kiln", (int)len, at);
        struct stat info;
        int there = candidate && stat(candidate, &info) == 0; // the first one is the one that runs
        int same = there && same_file(candidate, exe);
        kiln_free(candidate);
        if (there) {
            return same;
        }
        at = at[len] == ':' ? at + len + 1 : NULL;
    }
    return 0;
}

// The folder with kiln.pc, where that is known: the build folder of an uninstalled kiln, or that of
// its prefix. NULL: pkg-config may find it by itself. The caller frees it.
static char *pkg_config_path(const char *exe_dir) {
    const char *slash = strrchr(exe_dir, '/');
    int prefix = slash ? (int)(slash - exe_dir) : 0;
    const struct {
        int len; // of exe_dir
        const char *folder, *file;
    } places[] = {
            {(int)strlen(exe_dir), "", "kiln-uninstalled.pc"},
            {prefix, "/" KILN_LIBDIR "/pkgconfig", "kiln.pc"},
            {prefix, "/lib/pkgconfig", "kiln.pc"},
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char *folder = kiln_asprintf("%.*s%s", places[i].len, exe_dir, places[i].folder);
        char *file = folder ? kiln_asprintf("%s/%s", folder, places[i].file) : NULL;
        int there = file && kiln_file_exists(file);
        kiln_free(file);
        if (there) {
            return folder;
        }
        kiln_free(folder);
    }
    return NULL;
}

// A plugin of that name would be refused as soon as both are found.
static enum kiln_status check_free(
        const struct kiln_common *common, const char *name, struct kiln_err *err) {
    struct kiln_registry *registry;
    KILN_TRY(kiln_common_registry(common, &registry, err));
    int taken = kiln_registry_find(registry, name) != NULL;
    kiln_registry_destroy(registry);
    return taken ? kiln_err_set(err, KILN_STATUS_USAGE,
                           "a plugin '%s' is there already (`kiln plugins list`); choose another "
                           "name",
                           name)
                 : KILN_STATUS_OK;
}

static enum kiln_status create(struct kiln_scaffold *scaffold, struct kiln_err *err) {
    char *exe_dir = kiln_exe_dir();
    char *exe = exe_dir ? kiln_asprintf("%s/kiln", exe_dir) : NULL;
    char *packages = exe_dir ? pkg_config_path(exe_dir) : NULL;
    scaffold->kiln = !exe || is_on_path(exe) ? "kiln" : exe;
    scaffold->pkg_config_path = packages;
    struct kiln_buf guide = {0};
    enum kiln_status status = kiln_scaffold_write(scaffold, &guide, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_out_buf(&guide, err);
    }
    kiln_buf_finish(&guide);
    kiln_free(packages);
    kiln_free(exe);
    kiln_free(exe_dir);
    return status;
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_common common;
    kiln_common_init(&common);
    struct kiln_scaffold scaffold = {.dir = "."};
    int done;
    const struct kiln_opt table[] = {{"NAME", NULL, KILN_OPT_ENTRY, &scaffold.name, NULL,
                                             "the plugin's name, [a-z0-9_]+", 0, 0},
            {"--slot", NULL, KILN_OPT_STRING, &scaffold.slot, "SLOT", "norm, activation or matmul",
                    0, 0},
            {"--cuda", NULL, KILN_OPT_FLAG, &scaffold.cuda, NULL,
                    "with a CUDA kernel in a file of its own (slot norm)", 0, 0},
            {"--dir", NULL, KILN_OPT_STRING, &scaffold.dir, "DIR", "make the folder NAME there (.)",
                    0, 0},
            KILN_OPT_END};
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    if (!scaffold.name || !scaffold.slot) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "kiln %s needs %s: %s; slots: %s", cmd->name,
                scaffold.name ? "a slot, --slot" : "a name", cmd->example, kiln_scaffold_slots());
    }
    KILN_TRY(check_free(&common, scaffold.name, err));
    return create(&scaffold, err);
}

const struct kiln_cmd kiln_cmd_plugins_new = {
        .name = "plugins new",
        .summary = "start a plugin: one folder that builds, verifies and runs as it is",
        .usage = "NAME --slot SLOT [--cuda] [--dir DIR]",
        .example = "kiln plugins new mynorm --slot norm",
        .run = run,
};
