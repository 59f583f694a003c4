// nvrtc_find: where the NVRTC library and CUDA's headers are looked for.
#include "jit/nvrtc.h"

#include "base/buf.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
enum {
    N_SONAMES = sizeof(sonames) / sizeof(sonames[0])
};

static const char *env_text(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static void *try_open(const char *path, struct kiln_buf *searched, const char *why) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *cause = dlerror();
        // A library that it needs in turn may be what is absent: the loader's words name it then.
        int absent = !cause || (strncmp(cause, path, strlen(path)) == 0 &&
                                       strstr(cause, "No such file") != NULL);
        kiln_buf_printf(searched, "  %s (%s): %s\n", path, why, absent ? "not there" : cause);
    }
    return handle;
}

// The library in a folder. A place without it is listed in one line.
static void *try_dir(const char *dir, struct kiln_buf *searched, const char *why) {
    void *handle = NULL;
    int there = 0;
    for (size_t i = 0; !handle && i < N_SONAMES; i++) {
        char *path = kiln_asprintf("%s/%s", dir, sonames[i]);
        if (path && kiln_file_exists(path)) {
            there = 1;
            handle = try_open(path, searched, why);
        }
        kiln_free(path);
    }
    if (!there) {
        kiln_buf_printf(searched, "  %s (%s): no libnvrtc.so there\n", dir, why);
    }
    return handle;
}

// A folder, or the folders of libraries under it.
static void *try_root(const char *root, struct kiln_buf *searched, const char *why) {
    static const char *const under[] = {"", "/lib64", "/lib", "/nvidia/cu13/lib"};
    for (size_t i = 0; i < sizeof(under) / sizeof(under[0]); i++) {
        char *dir = kiln_asprintf("%s%s/libnvrtc.so.13", root, under[i]);
        char *cut = dir ? strrchr(dir, '/') : NULL;
        int there = dir && kiln_file_exists(dir);
        for (size_t j = 1; cut && !there && j < N_SONAMES; j++) {
            kiln_free(dir);
            dir = kiln_asprintf("%s%s/%s", root, under[i], sonames[j]);
            cut = dir ? strrchr(dir, '/') : NULL;
            there = dir && kiln_file_exists(dir);
        }
        void *handle = NULL;
        if (there && cut) {
            *cut = '\0';
            handle = try_dir(dir, searched, why);
        }
        kiln_free(dir);
        if (there) {
            return handle;
        }
    }
    kiln_buf_printf(
            searched, "  %s (%s): no libnvrtc.so there, nor in its lib64, lib\n", root, why);
    return NULL;
}

static void *try_toolkits(struct kiln_buf *searched) {
    static const char *const names[] = {"CUDA_HOME", "CUDA_PATH"};
    void *handle = NULL;
    for (size_t i = 0; !handle && i < 2; i++) {
        const char *root = env_text(names[i]);
        handle = root ? try_root(root, searched, names[i]) : NULL;
    }
    if (!handle) {
        handle = try_root("/usr/local/cuda", searched, "CUDA toolkit");
    }
    struct kiln_dir toolkits = {.names = NULL};
    (void)kiln_dir_read(&toolkits, "/usr/local", "cuda-", "");
    for (size_t i = toolkits.count; !handle && i-- > 0;) { // newest last
        char *root = kiln_asprintf("/usr/local/%s", toolkits.names[i]);
        handle = root ? try_root(root, searched, "CUDA toolkit") : NULL;
        kiln_free(root);
    }
    kiln_dir_finish(&toolkits);
    return handle ? handle : try_dir("/usr/lib/x86_64-linux-gnu", searched, "Debian's toolkit");
}

static void *find_anywhere(struct kiln_buf *searched) {
    void *handle = NULL;
    for (size_t i = 0; !handle && i < N_SONAMES; i++) {
        handle = try_open(sonames[i], searched, "loader's path");
    }
    if (!handle) {
        handle = try_toolkits(searched);
    }
    if (!handle) {
        char *cache = kiln_cache_dir();
        char *dir = cache ? kiln_asprintf("%s/nvrtc-13.0.88", cache) : NULL;
        handle = dir ? try_dir(dir, searched, "tools/fetch-nvrtc") : NULL;
        kiln_free(dir);
        kiln_free(cache);
    }
    return handle;
}

// What KILN_NVRTC names: a file, a folder, or a name on the loader's path.
static void *find_named(const char *wanted, struct kiln_buf *searched) {
    struct stat st;
    int there = stat(wanted, &st) == 0;
    if (there && S_ISDIR(st.st_mode)) {
        return try_root(wanted, searched, "a folder");
    }
    if (there && !S_ISREG(st.st_mode)) { // opening a pipe would wait for whoever writes it
        kiln_buf_printf(searched, "  %s: neither a file nor a folder\n", wanted);
        return NULL;
    }
    return try_open(wanted, searched, strchr(wanted, '/') ? "a file" : "loader's path");
}

const char *kiln_nvrtc_named(void) {
    return env_text("KILN_NVRTC");
}

void *kiln_nvrtc_find(struct kiln_buf *searched) {
    const char *wanted = kiln_nvrtc_named();
    return wanted ? find_named(wanted, searched) : find_anywhere(searched);
}

// The folder as a string of its own when it holds CUDA's headers, else NULL.
static char *include_dir(const char *root, const char *below) {
    char *dir = root ? kiln_asprintf("%s%s", root, below) : NULL;
    char *probe = dir ? kiln_asprintf("%s/cuda_fp16.h", dir) : NULL;
    int there = probe && kiln_file_exists(probe);
    kiln_free(probe);
    if (!there) {
        kiln_free(dir);
        dir = NULL;
    }
    return dir;
}

char *kiln_cuda_include_dir(const struct kiln_nvrtc *nvrtc) {
    char *dir = include_dir(env_text("CUDA_HOME"), "/include");
    if (!dir) {
        dir = include_dir(env_text("CUDA_PATH"), "/include");
    }
    if (!dir && nvrtc &&
            nvrtc->path) { // ROOT/lib64/libnvrtc.so.13, ROOT/targets/x86_64-linux/lib/…
        char *root = kiln_strdup(nvrtc->path);
        for (int i = 0; root && i < 2; i++) {
            char *slash = strrchr(root, '/');
            if (slash) {
                *slash = '\0';
            }
        }
        dir = include_dir(root, "/include");
        kiln_free(root);
    }
    if (!dir) {
        dir = include_dir("/usr/local/cuda", "/include");
    }
    return dir ? dir : include_dir("/usr/include", "");
}
