// registry: the list of plugins: found in folders, opened once a file, refused with a reason or
// kept.
//
// A plugin's library stays open, and the copy of its tables alive, until the registry is destroyed.
// What a library may do wrong is found in library.c (as a file) and import.c (as a table).
#include "plugin/registry.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/arena.h"
#include "plugin/import.h"
#include "plugin/library.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct loaded {
    char *path;
    void *handle;
    struct kiln_arena arena; // of the tables
};

// A plugin that runs for one kind of device.
struct started {
    const struct kiln_plugin *plugin;
    char *target;
    void *instance;
};

// A file that was opened, and why it was refused, if it was: found again, it is not opened again.
struct file_id {
    dev_t device;
    ino_t inode;
    char *refusal;
};

struct refused {
    char *path, *text;
};

struct kiln_registry {
    struct kiln_host host; // what plugins see of kiln
    struct loaded *loaded;
    const struct kiln_plugin **plugins; // by the same index as `loaded`
    size_t n_loaded, cap_loaded, cap_plugins;
    struct refused *refused;
    size_t n_refused, cap_refused;
    struct started *started;
    size_t n_started, cap_started;
    struct file_id *seen;
    size_t n_seen, cap_seen;
    pthread_mutex_t lock; // of instances: started, and what they plan
};

// A sorted list of paths that it owns.
struct paths {
    char **items;
    size_t count, cap;
};

static void log_for_plugin(const struct kiln_host *host, uint32_t kind, const char *text) {
    (void)host;
    enum kiln_log_level level = kind == KILN_LOG_KIND_WARN   ? KILN_LOG_WARN
                                : kind == KILN_LOG_KIND_INFO ? KILN_LOG_INFO
                                                             : KILN_LOG_DEBUG;
    kiln_log(level, "plugin: %s", text ? text : "(no text)");
}

// This kiln has no extensions yet: plugins must live without any.
static const void *no_extension(const struct kiln_host *host, const char *id) {
    (void)host;
    (void)id;
    return NULL;
}

enum kiln_status kiln_registry_create(struct kiln_registry **registry, struct kiln_err *err) {
    struct kiln_registry *made = kiln_calloc(1, sizeof(*made));
    if (made && pthread_mutex_init(&made->lock, NULL) != 0) {
        kiln_free(made);
        made = NULL;
    }
    if (!made) {
        return kiln_err_nomem(err, "the list of plugins");
    }
    made->host = (struct kiln_host){.struct_size = sizeof(made->host),
            .abi_major = KILN_ABI_MAJOR,
            .abi_minor = KILN_ABI_MINOR,
            .data = made,
            .log = log_for_plugin,
            .extension = no_extension};
    *registry = made;
    return KILN_STATUS_OK;
}

static void finish_loaded(struct loaded *loaded) {
    kiln_arena_finish(&loaded->arena);
    kiln_library_close(loaded->handle);
    kiln_free(loaded->path);
}

void kiln_registry_destroy(struct kiln_registry *registry) {
    if (!registry) {
        return;
    }
    for (size_t i = registry->n_started; i > 0; i--) {
        struct started *started = &registry->started[i - 1];
        if (started->plugin->finish) {
            started->plugin->finish(started->instance);
        }
        kiln_free(started->target);
    }
    for (size_t i = registry->n_loaded; i > 0; i--) {
        finish_loaded(&registry->loaded[i - 1]);
    }
    for (size_t i = 0; i < registry->n_refused; i++) {
        kiln_free(registry->refused[i].path);
        kiln_free(registry->refused[i].text);
    }
    for (size_t i = 0; i < registry->n_seen; i++) {
        kiln_free(registry->seen[i].refusal);
    }
    kiln_free(registry->started);
    kiln_free(registry->loaded);
    kiln_free(registry->plugins);
    kiln_free(registry->refused);
    kiln_free(registry->seen);
    pthread_mutex_destroy(&registry->lock);
    kiln_free(registry);
}

// ---- One file --------------------------------------------------------------------------------
// The path from the root, links in it left as they are: people find the file by the name they gave.
static char *absolute_path(const char *path) {
    if (path[0] == '/') {
        return kiln_strdup(path);
    }
    char folder[4096];
    return kiln_asprintf("%s/%s", getcwd(folder, sizeof(folder)) ? folder : ".", path);
}

static struct file_id *find_file(struct kiln_registry *registry, const struct stat *info) {
    for (size_t i = 0; i < registry->n_seen; i++) {
        struct file_id *seen = &registry->seen[i];
        if (seen->device == info->st_dev && seen->inode == info->st_ino) {
            return seen;
        }
    }
    return NULL;
}

static enum kiln_status check_name_free(const struct kiln_registry *registry,
        const struct kiln_plugin *plugin, struct kiln_err *err) {
    for (size_t i = 0; i < registry->n_loaded; i++) {
        if (strcmp(registry->plugins[i]->name, plugin->name) == 0) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "the plugin name '%s' is taken by %s, which stays; remove one of the two "
                    "files or rename a plugin",
                    plugin->name, registry->loaded[i].path);
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status reserve(struct kiln_registry *registry, struct kiln_err *err) {
    size_t need = registry->n_loaded + 1;
    if (kiln_grow(&registry->loaded, &registry->cap_loaded, need, sizeof(struct loaded)) != 0 ||
            kiln_grow(&registry->plugins, &registry->cap_plugins, need, sizeof(void *)) != 0) {
        return kiln_err_nomem(err, "the list of plugins");
    }
    return KILN_STATUS_OK;
}

// Takes over `path` in any case. A refusal is KILN_STATUS_FILE and begins with the path.
static enum kiln_status load(struct kiln_registry *registry, char *path, struct kiln_err *err) {
    struct loaded loaded = {.path = path};
    const struct kiln_plugin *entry = NULL, *plugin = NULL;
    enum kiln_status status = reserve(registry, err);
    if (status != KILN_STATUS_OK) {
        goto fail;
    }
    status = kiln_library_open(path, &loaded.handle, &entry, err);
    if (status != KILN_STATUS_OK) {
        goto fail;
    }
    status = kiln_import_plugin(&loaded.arena, entry, &plugin, err);
    if (status != KILN_STATUS_OK) {
        goto fail;
    }
    status = check_name_free(registry, plugin, err);
    if (status != KILN_STATUS_OK) {
        goto fail;
    }
    registry->plugins[registry->n_loaded] = plugin;
    registry->loaded[registry->n_loaded++] = loaded;
    return KILN_STATUS_OK;
fail:
    if (status == KILN_STATUS_FILE) {
        kiln_err_prefix(err, "%s: ", path);
    }
    finish_loaded(&loaded);
    return status;
}

// Keeps what became of a file. The room for it was made before the file was opened.
static enum kiln_status note_file(struct kiln_registry *registry, const struct stat *info,
        enum kiln_status status, struct kiln_err *err) {
    struct file_id id = {.device = info->st_dev, .inode = info->st_ino};
    if (status == KILN_STATUS_FILE) {
        id.refusal = kiln_strdup(err->text);
        if (!id.refusal) {
            return kiln_err_nomem(err, "the list of plugins");
        }
    }
    if (status == KILN_STATUS_OK || status == KILN_STATUS_FILE) {
        registry->seen[registry->n_seen++] = id;
    }
    return status;
}

// One file, once. `*again`: it had been opened before; the answer is the one of that time.
static enum kiln_status add_file(
        struct kiln_registry *registry, const char *path, int *again, struct kiln_err *err) {
    struct stat info;
    int there = stat(path, &info) == 0;
    const struct file_id *known = there ? find_file(registry, &info) : NULL;
    *again = known != NULL;
    if (known) {
        return known->refusal ? kiln_err_set(err, KILN_STATUS_FILE, "%s", known->refusal)
                              : KILN_STATUS_OK;
    }
    char *full = absolute_path(path);
    if (!full || kiln_grow(&registry->seen, &registry->cap_seen, registry->n_seen + 1,
                         sizeof(*registry->seen)) != 0) {
        kiln_free(full);
        return kiln_err_nomem(err, "the list of plugins");
    }
    enum kiln_status status = load(registry, full, err);
    return there ? note_file(registry, &info, status, err) : status;
}

enum kiln_status kiln_registry_add_file(
        struct kiln_registry *registry, const char *path, struct kiln_err *err) {
    struct kiln_err why = {0}; // the caller's may be NULL, and a refusal's text is kept
    int again;
    enum kiln_status status = add_file(registry, path, &again, &why);
    return status == KILN_STATUS_OK ? status : kiln_err_set(err, status, "%s", why.text);
}

// ---- Folders ---------------------------------------------------------------------------------
static void finish_paths(struct paths *paths) {
    for (size_t i = 0; i < paths->count; i++) {
        kiln_free(paths->items[i]);
    }
    kiln_free(paths->items);
}

static int is_library_name(const char *name) {
    size_t len = strlen(name);
    return len > 3 && strcmp(name + len - 3, ".so") == 0;
}

static int is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

// Adds the *.so files of one folder to `files` and its subfolders, when wanted, to `folders`.
static enum kiln_status read_folder(
        const char *dir, struct paths *files, struct paths *folders, struct kiln_err *err) {
    DIR *stream = opendir(dir);
    if (!stream) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: the plugin folder cannot be read: %s; check KILN_PLUGIN_PATH and --plugin-dir",
                dir, strerror(errno));
    }
    enum kiln_status status = KILN_STATUS_OK;
    for (struct dirent *entry; status == KILN_STATUS_OK && (entry = readdir(stream)) != NULL;) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        char *path = kiln_asprintf("%s/%s", dir, entry->d_name);
        struct paths *list = path && is_folder(path)          ? folders
                             : is_library_name(entry->d_name) ? files
                                                              : NULL;
        if (!path || (list && kiln_grow(&list->items, &list->cap, list->count + 1,
                                      sizeof(*list->items)) != 0)) {
            status = kiln_err_nomem(err, "the list of plugin files");
        } else if (list) {
            list->items[list->count++] = path;
            path = NULL;
        }
        kiln_free(path);
    }
    closedir(stream);
    return status;
}

static int by_text(const void *a, const void *b) {
    const char *left, *right;
    memcpy(&left, a, sizeof(left));
    memcpy(&right, b, sizeof(right));
    return strcmp(left, right);
}

// Notes a refusal. It takes its own copies, so that the next file can be tried.
static enum kiln_status note_refusal(struct kiln_registry *registry, const char *path,
        const struct kiln_err *why, struct kiln_err *err) {
    char *full = absolute_path(path), *text = kiln_strdup(why->text);
    if (!full || !text ||
            kiln_grow(&registry->refused, &registry->cap_refused, registry->n_refused + 1,
                    sizeof(*registry->refused)) != 0) {
        kiln_free(full);
        kiln_free(text);
        return kiln_err_nomem(err, "the list of plugins");
    }
    registry->refused[registry->n_refused++] = (struct refused){.path = full, .text = text};
    return KILN_STATUS_OK;
}

static enum kiln_status add_all(
        struct kiln_registry *registry, const struct paths *files, struct kiln_err *err) {
    for (size_t i = 0; i < files->count; i++) {
        struct kiln_err why = {0};
        int again;
        enum kiln_status status = add_file(registry, files->items[i], &again, &why);
        if (status == KILN_STATUS_FILE && !again) {
            KILN_TRY(note_refusal(registry, files->items[i], &why, err));
        } else if (status != KILN_STATUS_OK && status != KILN_STATUS_FILE) {
            return kiln_err_set(err, status, "%s", why.text);
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_registry_add_dir(
        struct kiln_registry *registry, const char *dir, struct kiln_err *err) {
    struct paths files = {0}, folders = {0}, below = {0};
    char *full = absolute_path(dir);
    enum kiln_status status = full ? read_folder(full, &files, &folders, err)
                                   : kiln_err_nomem(err, "the path of a plugin folder");
    for (size_t i = 0; status == KILN_STATUS_OK && i < folders.count; i++) {
        status = read_folder(folders.items[i], &files, &below, err);
    }
    if (status == KILN_STATUS_OK) {
        if (files.count) {
            qsort(files.items, files.count, sizeof(*files.items), by_text);
        }
        status = add_all(registry, &files, err);
    }
    finish_paths(&files);
    finish_paths(&folders);
    finish_paths(&below);
    kiln_free(full);
    return status;
}

// The plugins that came with this kiln: in the build tree beside the program, else where they are
// installed.
static enum kiln_status add_own(struct kiln_registry *registry, struct kiln_err *err) {
    static const char *const places[] = {
            "plugins", "../" KILN_LIBDIR "/kiln/plugins", "../lib/kiln/plugins"};
    char *exe = kiln_exe_dir();
    enum kiln_status status = KILN_STATUS_OK;
    int done = !exe;
    for (size_t i = 0; !done && i < sizeof(places) / sizeof(places[0]); i++) {
        char *dir = kiln_asprintf("%s/%s", exe, places[i]);
        if (!dir) {
            status = kiln_err_nomem(err, "the path of the plugins");
            done = 1;
        } else if (is_folder(dir)) {
            status = kiln_registry_add_dir(registry, dir, err);
            done = 1;
        }
        kiln_free(dir);
    }
    kiln_free(exe);
    return status;
}

static enum kiln_status add_path_variable(struct kiln_registry *registry, struct kiln_err *err) {
    const char *at = getenv("KILN_PLUGIN_PATH");
    enum kiln_status status = KILN_STATUS_OK;
    while (at && status == KILN_STATUS_OK) {
        size_t len = strcspn(at, ":");
        // An empty part would be the current folder, which is never searched unasked.
        if (len > 0) {
            char *dir = kiln_strndup(at, len);
            status = dir ? kiln_registry_add_dir(registry, dir, err)
                         : kiln_err_nomem(err, "a folder of KILN_PLUGIN_PATH");
            kiln_free(dir);
        }
        at = at[len] == ':' ? at + len + 1 : NULL;
    }
    return status;
}

enum kiln_status kiln_registry_add_default(struct kiln_registry *registry, const char *const *extra,
        size_t n_extra, struct kiln_err *err) {
    KILN_TRY(add_own(registry, err));
    KILN_TRY(add_path_variable(registry, err));
    for (size_t i = 0; i < n_extra; i++) {
        KILN_TRY(kiln_registry_add_dir(registry, extra[i], err));
    }
    return KILN_STATUS_OK;
}

// ---- What is there ---------------------------------------------------------------------------
size_t kiln_registry_count(const struct kiln_registry *registry) {
    return registry->n_loaded;
}

const struct kiln_plugin *const *kiln_registry_plugins(const struct kiln_registry *registry) {
    return registry->plugins;
}

const char *kiln_registry_path(const struct kiln_registry *registry, size_t index) {
    return registry->loaded[index].path;
}

void kiln_registry_abi(
        const struct kiln_registry *registry, size_t index, unsigned *major, unsigned *minor) {
    *major = registry->plugins[index]->abi_major;
    *minor = registry->plugins[index]->abi_minor;
}

size_t kiln_registry_n_refusals(const struct kiln_registry *registry) {
    return registry->n_refused;
}

struct kiln_refusal kiln_registry_refusal(const struct kiln_registry *registry, size_t index) {
    const struct refused *refused = &registry->refused[index];
    return (struct kiln_refusal){.path = refused->path, .text = refused->text};
}

const struct kiln_plugin *kiln_registry_find(
        const struct kiln_registry *registry, const char *name) {
    for (size_t i = 0; i < registry->n_loaded; i++) {
        if (strcmp(registry->plugins[i]->name, name) == 0) {
            return registry->plugins[i];
        }
    }
    return NULL;
}

int kiln_slot_matches(const char *pattern, const char *slot) {
    while (*pattern && *slot) {
        if (*pattern == '*') {
            size_t part = strcspn(slot, ".");
            if (part == 0) {
                return 0;
            }
            slot += part;
            pattern++;
        } else if (*pattern++ != *slot++) {
            return 0;
        }
    }
    return *pattern == *slot;
}

int kiln_variant_fills(const struct kiln_variant *variant, const char *slot) {
    for (uint32_t i = 0; i < variant->n_slots; i++) {
        if (kiln_slot_matches(variant->slots[i], slot)) {
            return 1;
        }
    }
    return 0;
}

static const char *path_of(const struct kiln_registry *registry, const struct kiln_plugin *plugin) {
    for (size_t i = 0; i < registry->n_loaded; i++) {
        if (registry->plugins[i] == plugin) {
            return registry->loaded[i].path;
        }
    }
    return "(not loaded)";
}

enum kiln_status kiln_registry_start(struct kiln_registry *registry,
        const struct kiln_plugin *plugin, const struct kiln_device *device, void **instance,
        struct kiln_err *err) {
    for (size_t i = 0; i < registry->n_started; i++) {
        const struct started *started = &registry->started[i];
        if (started->plugin == plugin && strcmp(started->target, device->target) == 0) {
            *instance = started->instance;
            return KILN_STATUS_OK;
        }
    }
    *instance = NULL;
    if (!plugin->start) {
        return KILN_STATUS_OK;
    }
    // Everything that can fail on our side comes first: an instance is never started and then lost.
    struct started started = {.plugin = plugin, .target = kiln_strdup(device->target)};
    if (!started.target || kiln_grow(&registry->started, &registry->cap_started,
                                   registry->n_started + 1, sizeof(started)) != 0) {
        kiln_free(started.target);
        return kiln_err_nomem(err, "a plugin's instance");
    }
    int32_t result = plugin->start(&registry->host, device, &started.instance);
    if (result != KILN_RESULT_OK) {
        kiln_free(started.target);
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: plugin '%s' does not start on %s (%s): its start() returned %d; `-v -v` shows "
                "what it logged",
                path_of(registry, plugin), plugin->name, device->name, device->target, result);
    }
    registry->started[registry->n_started++] = started;
    *instance = started.instance;
    return KILN_STATUS_OK;
}

void kiln_registry_lock(struct kiln_registry *registry) {
    pthread_mutex_lock(&registry->lock);
}

void kiln_registry_unlock(struct kiln_registry *registry) {
    pthread_mutex_unlock(&registry->lock);
}
