// file: whole files in and out, mappings and their SIGBUS guard, and the folders kiln keeps things
// in.
//
// Not here: locks, and what the files hold.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // realpath, beyond plain POSIX 2008
#endif
#include "base/file.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// What the guard knows of a mapping. A signal handler walks the list without a lock, so entries are
// never freed, only reused: base 0 marks a free one, and base is written last and cleared first.
struct map_entry {
    struct map_entry *next; // set once, before the entry becomes reachable
    atomic_uintptr_t base;
    size_t size;
    char path[512]; // the end of a longer path
};

static _Atomic(struct map_entry *) map_entries;
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction sigbus_before;

static struct map_entry *free_entry(void) {
    for (struct map_entry *at = atomic_load(&map_entries); at; at = at->next) {
        if (atomic_load(&at->base) == 0) {
            return at;
        }
    }
    struct map_entry *fresh = kiln_calloc(1, sizeof(*fresh));
    if (fresh) {
        fresh->next = atomic_load(&map_entries);
        atomic_store(&map_entries, fresh);
    }
    return fresh;
}

static int map_register(const struct kiln_map *map, const char *path) {
    pthread_mutex_lock(&map_lock);
    struct map_entry *entry = free_entry();
    if (entry) {
        size_t len = strlen(path);
        size_t skip = len < sizeof(entry->path) ? 0 : len - sizeof(entry->path) + 1;
        memcpy(entry->path, path + skip, len - skip + 1);
        entry->size = map->size;
        atomic_store(&entry->base, (uintptr_t)map->data);
    }
    pthread_mutex_unlock(&map_lock);
    return entry ? 0 : -1;
}

static void map_forget(const struct kiln_map *map) {
    pthread_mutex_lock(&map_lock);
    for (struct map_entry *at = atomic_load(&map_entries); at; at = at->next) {
        if (atomic_load(&at->base) == (uintptr_t)map->data) {
            atomic_store(&at->base, 0);
            break;
        }
    }
    pthread_mutex_unlock(&map_lock);
}

static enum kiln_status path_error(struct kiln_err *err, const char *path, const char *doing) {
    if (errno == EINTR) { // Ctrl-C while a pipe is waited for
        return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "%s: interrupted", path);
    }
    return kiln_err_set(err, KILN_STATUS_FILE, "%s: cannot %s: %s", *path ? path : "'' (no name)",
            doing, strerror(errno));
}

static const char *kind_of(mode_t mode) {
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static enum kiln_status map_fd(
        struct kiln_map *map, int fd, const char *path, struct kiln_err *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return path_error(err, path, "look at it");
    }
    if (!S_ISREG(st.st_mode)) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: is %s, a regular file is needed", path,
                kind_of(st.st_mode));
    }
    if ((uintmax_t)st.st_size > SIZE_MAX) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: too large to map", path);
    }
    if (st.st_size == 0) {
        return KILN_STATUS_OK; // mmap refuses a length of 0
    }
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) {
        return path_error(err, path, "map it");
    }
    *map = (struct kiln_map){.data = at, .size = (size_t)st.st_size};
    if (map_register(map, path) != 0) {
        munmap(at, map->size);
        *map = (struct kiln_map){0};
        return kiln_err_nomem(err, "a file mapping");
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_map_open(struct kiln_map *map, const char *path, struct kiln_err *err) {
    *map = (struct kiln_map){0};
    // Without O_NONBLOCK the open of a pipe would wait for a writer.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return path_error(err, path, "open it");
    }
    enum kiln_status status = map_fd(map, fd, path, err);
    close(fd);
    return status;
}

void kiln_map_close(struct kiln_map *map) {
    if (map->data) {
        map_forget(map);
        munmap((void *)(uintptr_t)map->data, map->size);
    }
    *map = (struct kiln_map){0};
}

// Async-signal-safe, like everything that on_sigbus does.
static void say(const char *text) {
    size_t len = strlen(text);
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, text, len);
        if (n <= 0) {
            return;
        }
        text += n;
        len -= (size_t)n;
    }
}

static void on_sigbus(int number, siginfo_t *info, void *context) {
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    // A code of 0 or less means that a process sent the signal: si_addr says nothing then.
    for (struct map_entry *e = info->si_code > 0 ? atomic_load(&map_entries) : NULL; e;
            e = e->next) {
        uintptr_t base = atomic_load(&e->base);
        if (base != 0 && at >= base && at - base < e->size) {
            say("kiln: ");
            say(e->path);
            say(": the file shrank or its disk failed while it was being read\n");
            _exit(kiln_status_exit_code(KILN_STATUS_FILE));
        }
    }
    // As if this handler had never been: the signal comes again when this one returns.
    sigaction(number, &sigbus_before, NULL);
    raise(number);
}

void kiln_map_guard(void) {
    static int installed;
    pthread_mutex_lock(&map_lock);
    if (!installed) {
        struct sigaction action = {.sa_flags = SA_SIGINFO};
        action.sa_sigaction = on_sigbus;
        sigemptyset(&action.sa_mask);
        // The old action is fetched first: the handler may run as soon as it is in place.
        installed = sigaction(SIGBUS, NULL, &sigbus_before) == 0 &&
                    sigaction(SIGBUS, &action, NULL) == 0;
    }
    pthread_mutex_unlock(&map_lock);
}

// Reads to the end of fd, for files whose size cannot be asked beforehand too (pipes, /proc).
static enum kiln_status read_all(int fd, const char *path, size_t max_size, size_t first,
        char **data, size_t *size, struct kiln_err *err) {
    char *bytes = NULL;
    size_t len = 0, cap = 0;
    enum kiln_status status = KILN_STATUS_OK;
    for (;;) {
        size_t want = len == 0 ? first + 2 : len + 2; // one to see the end, one for the NUL
        if (kiln_grow(&bytes, &cap, want, 1) != 0) {
            status = kiln_err_nomem(err, path);
            break;
        }
        ssize_t n = read(fd, bytes + len, cap - 1 - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            status = path_error(err, path, "read it");
            break;
        }
        len += (size_t)n;
        if (len > max_size) {
            status = kiln_err_set(err, KILN_STATUS_FILE,
                    "%s: is too large; at most %zu bytes are allowed", path, max_size);
            break;
        }
        if (n == 0) {
            bytes[len] = '\0';
            *data = bytes;
            *size = len;
            return KILN_STATUS_OK;
        }
    }
    kiln_free(bytes);
    return status;
}

enum kiln_status kiln_file_read(
        const char *path, size_t max_size, char **data, size_t *size, struct kiln_err *err) {
    *data = NULL;
    *size = 0;
    if (strcmp(path, "-") == 0) {
        return read_all(STDIN_FILENO, "standard input", max_size, 0, data, size, err);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return path_error(err, path, "open it");
    }
    struct stat st;
    size_t first = 0;
    enum kiln_status status = KILN_STATUS_OK;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        if ((uintmax_t)st.st_size > max_size) {
            status = kiln_err_set(err, KILN_STATUS_FILE,
                    "%s: has %jd bytes; at most %zu are allowed", path, (intmax_t)st.st_size,
                    max_size);
        }
        first = (size_t)st.st_size;
    }
    if (status == KILN_STATUS_OK) {
        status = read_all(fd, path, max_size, first, data, size, err);
    }
    close(fd);
    return status;
}

static int write_all(int fd, const void *data, size_t size) {
    const char *at = data;
    while (size > 0) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return -1;
        }
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

// Devices and pipes are written as they are: a rename would put a plain file in place of /dev/null.
static enum kiln_status write_in_place(
        const char *path, const void *data, size_t size, struct kiln_err *err) {
    // O_APPEND: /dev/stdout may be a file that holds something already.
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return path_error(err, path, "open it for writing");
    }
    int failed = write_all(fd, data, size);
    int saved = errno;
    if (close(fd) != 0 && !failed) {
        failed = -1;
        saved = errno;
    }
    errno = saved;
    return failed ? path_error(err, path, "write it") : KILN_STATUS_OK;
}

// The folder part of path with its slash ("" when there is none).
static int folder_len(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash - path) + 1 : 0;
}

// Opens a fresh file beside path; its name is *temp, the caller's. -1 with errno set on failure.
static int open_temp(const char *path, char **temp) {
    static atomic_uint counter;
    for (int tries = 0; tries < 100; tries++) {
        // The name does not hold path's own, which may already be as long as a name can be.
        *temp = kiln_asprintf("%.*s.kiln-%ld-%x.tmp", folder_len(path), path, (long)getpid(),
                atomic_fetch_add(&counter, 1));
        if (!*temp) {
            errno = ENOMEM;
            return -1;
        }
        int fd = open(*temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
        kiln_free(*temp); // left behind by a killed process of the same number
        *temp = NULL;
    }
    return -1;
}

// A rename is on disk only when its folder is. Some file systems cannot flush a folder, and the
// data is whole either way, so a failure is not one.
static void flush_folder(const char *path) {
    int len = folder_len(path);
    char *folder = len ? kiln_strndup(path, (size_t)len) : kiln_strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    kiln_free(folder);
}

static enum kiln_status replace_file(const char *path, const struct stat *old, const void *data,
        size_t size, struct kiln_err *err) {
    char *temp = NULL;
    int fd = open_temp(path, &temp);
    if (fd < 0) {
        int saved = errno;
        kiln_free(temp);
        errno = saved;
        return saved == ENOMEM ? kiln_err_nomem(err, path)
                               : path_error(err, path, "make a file in its folder");
    }
    int failed = write_all(fd, data, size) != 0 || fsync(fd) != 0 ||
                 (old && fchmod(fd, old->st_mode & 07777) != 0);
    int saved = errno;
    if (close(fd) != 0 && !failed) { // network file systems report a full disk here
        failed = 1;
        saved = errno;
    }
    if (!failed && rename(temp, path) != 0) {
        failed = 1;
        saved = errno;
    }
    if (failed) {
        unlink(temp);
    } else {
        flush_folder(path);
    }
    kiln_free(temp);
    errno = saved;
    return failed ? path_error(err, path, "write it") : KILN_STATUS_OK;
}

// Whether the path stands for a file that the process has open: one that is written through, not
// replaced, also where it is a regular file.
static int names_open_file(const char *path) {
    return strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/stderr") == 0 ||
           strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/self/fd/", 14) == 0;
}

enum kiln_status kiln_file_write(
        const char *path, const void *data, size_t size, struct kiln_err *err) {
    struct stat st;
    if (stat(path, &st) != 0) {
        if (errno != ENOENT) {
            return path_error(err, path, "write it");
        }
        return replace_file(path, NULL, data, size, err);
    }
    if (S_ISDIR(st.st_mode)) {
        return kiln_file_check_write(path, err);
    }
    if (!S_ISREG(st.st_mode) || names_open_file(path)) {
        return write_in_place(path, data, size, err);
    }
    if (access(path, W_OK) != 0) { // a rename would not ask
        return path_error(err, path, "write it");
    }
    char real[PATH_MAX]; // a link stays a link
    if (!realpath(path, real)) {
        return path_error(err, path, "follow its links");
    }
    return replace_file(real, &st, data, size, err);
}

enum kiln_status kiln_file_check_write(const char *path, struct kiln_err *err) {
    struct stat st;
    if (!*path) {
        errno = ENOENT;
        return path_error(err, path, "write it");
    }
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) {
            return kiln_err_set(err, KILN_STATUS_FILE, "%s: cannot write it: is a directory", path);
        }
        return access(path, W_OK) == 0 ? KILN_STATUS_OK : path_error(err, path, "write it");
    }
    if (errno != ENOENT) {
        return path_error(err, path, "write it");
    }
    int len = folder_len(path);
    char *folder = len ? kiln_strndup(path, (size_t)len) : kiln_strdup(".");
    if (!folder) {
        return kiln_err_nomem(err, path);
    }
    enum kiln_status status = access(folder, W_OK | X_OK) == 0
                                      ? KILN_STATUS_OK
                                      : path_error(err, path, "make a file in its folder");
    kiln_free(folder);
    return status;
}

static enum kiln_status make_dir(const char *path, struct kiln_err *err) {
    struct stat st;
    // Looked at first: on a read-only disk mkdir of an existing folder may say "read-only".
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) {
            return KILN_STATUS_OK;
        }
        errno = ENOTDIR;
        return path_error(err, path, "make the folder");
    }
    if (mkdir(path, 0777) != 0 && errno != EEXIST) { // another process may have been faster
        return path_error(err, path, "make the folder");
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_make_dirs(const char *path, struct kiln_err *err) {
    if (!*path) {
        return kiln_err_set(err, KILN_STATUS_FILE, "cannot make a folder with an empty name");
    }
    char *part = kiln_strdup(path);
    if (!part) {
        return kiln_err_nomem(err, "a path");
    }
    enum kiln_status status = KILN_STATUS_OK;
    for (char *at = part + 1; status == KILN_STATUS_OK && *at; at++) {
        if (*at == '/') {
            *at = '\0';
            status = make_dir(part, err);
            *at = '/';
        }
    }
    if (status == KILN_STATUS_OK) {
        status = make_dir(part, err);
    }
    kiln_free(part);
    return status;
}

int kiln_file_is_text_or_model(const char *head, size_t len) {
    if (len >= 4 && memcmp(head, "GGUF", 4) == 0) {
        return 1;
    }
    for (size_t i = 0; i < len;) {
        int n = kiln_utf8_len(head + i, len - i);
        if (n < 0 && i + 4 > len) {
            break; // a character that the head cuts
        }
        if (n <= 0 || head[i] == '\0') {
            return 0;
        }
        i += (size_t)n;
    }
    return len > 0;
}

int kiln_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

char *kiln_exe_dir(void) {
    char *path = NULL;
    size_t cap = 0, len;
    do {
        if (kiln_grow(&path, &cap, cap ? cap * 2 : 256, 1) != 0) {
            kiln_free(path);
            return NULL;
        }
        ssize_t n = readlink("/proc/self/exe", path, cap);
        if (n <= 0) {
            kiln_free(path);
            return NULL;
        }
        len = (size_t)n;
    } while (len == cap); // maybe cut
    path[len] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash) {
        kiln_free(path);
        return NULL;
    }
    slash[slash == path] = '\0'; // "/kiln" lies in "/"
    return path;
}

static const char *env_text(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

// The home folder of the user database; NULL when it has none.
static char *user_home(void) {
    char *text = NULL;
    size_t cap = 0;
    for (size_t want = 1024; want <= (size_t)1024 * 1024; want *= 2) {
        if (kiln_grow(&text, &cap, want, 1) != 0) {
            break;
        }
        struct passwd entry, *found = NULL;
        int code = getpwuid_r(getuid(), &entry, text, cap, &found);
        if (code != ERANGE) {
            char *home = code == 0 && found && found->pw_dir && found->pw_dir[0] == '/'
                                 ? kiln_strdup(found->pw_dir)
                                 : NULL;
            kiln_free(text);
            return home;
        }
    }
    kiln_free(text);
    return NULL;
}

char *kiln_cache_dir(void) {
    const char *dir = env_text("KILN_CACHE_DIR");
    if (dir) {
        return kiln_strdup(dir);
    }
    dir = env_text("XDG_CACHE_HOME");
    if (dir && dir[0] == '/') { // the specification says to ignore a relative one
        return kiln_asprintf("%s/kiln", dir);
    }
    dir = env_text("HOME");
    if (dir) {
        return kiln_asprintf("%s/.cache/kiln", dir);
    }
    char *home = user_home();
    char *path = home ? kiln_asprintf("%s/.cache/kiln", home)
                      : kiln_asprintf("/tmp/kiln-%ld", (long)getuid());
    kiln_free(home);
    return path;
}
