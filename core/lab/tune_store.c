// tune_store: the file, its tables, and what is done with them.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // flock
#endif
#include "lab/tune_store.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    APPLICATION = 0x6b746e31, // "ktn1"
    VERSION = 1,              // of the tables
    BUSY_MS = 60000,          // that a write waits for another's
    CLAIM_HOURS = 1,          // that a claim of another machine holds
    EXITING = 4,              // PF_EXITING of a process's flags
};

struct kiln_tune_store {
    sqlite3 *db;
    char *path; // NULL: in memory
    char owner[192];
    int warned; // that a result could not be written
};

// ---- SQL ----------------------------------------------------------------------------------------

static const char tables[] =
        "CREATE TABLE IF NOT EXISTS context(id INTEGER PRIMARY KEY, device TEXT NOT NULL, driver "
        "TEXT NOT NULL, problem TEXT NOT NULL, kiln TEXT NOT NULL, UNIQUE(device, driver, problem, "
        "kiln));"
        "CREATE TABLE IF NOT EXISTS result(id INTEGER PRIMARY KEY, context INTEGER NOT NULL "
        "REFERENCES context(id), plugin TEXT NOT NULL, variant TEXT NOT NULL, geometry TEXT NOT "
        "NULL, sources TEXT NOT NULL, state TEXT NOT NULL, owner TEXT, at INTEGER NOT NULL, cause "
        "TEXT, parity REAL, compile_ms REAL, cost REAL, note TEXT, warm TEXT, cold TEXT, "
        "UNIQUE(context, plugin, variant, geometry, sources));";

static enum kiln_status failed(
        const struct kiln_tune_store *store, const char *what, struct kiln_err *err) {
    int code = sqlite3_errcode(store->db);
    return kiln_err_set(err, code == SQLITE_NOMEM ? KILN_STATUS_NOMEM : KILN_STATUS_FILE,
            "%s: %s: %s", store->path ? store->path : "tuning results in memory", what,
            sqlite3_errmsg(store->db));
}

static enum kiln_status prepare(const struct kiln_tune_store *store, const char *sql,
        sqlite3_stmt **stmt, struct kiln_err *err) {
    return sqlite3_prepare_v2(store->db, sql, -1, stmt, NULL) == SQLITE_OK
                   ? KILN_STATUS_OK
                   : failed(store, "a statement", err);
}

// Runs a statement without results to its end.
static enum kiln_status finish(const struct kiln_tune_store *store, sqlite3_stmt *stmt,
        const char *what, struct kiln_err *err) {
    int code = sqlite3_step(stmt);
    enum kiln_status status =
            code == SQLITE_DONE || code == SQLITE_ROW ? KILN_STATUS_OK : failed(store, what, err);
    (void)sqlite3_finalize(stmt);
    return status;
}

static enum kiln_status run(const struct kiln_tune_store *store, const char *sql, const char *what,
        struct kiln_err *err) {
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK ? KILN_STATUS_OK
                                                                       : failed(store, what, err);
}

static void bind_text(sqlite3_stmt *stmt, int at, const char *text) {
    (void)sqlite3_bind_text(stmt, at, text, -1, SQLITE_TRANSIENT);
}

static int64_t pragma(const struct kiln_tune_store *store, const char *sql) {
    sqlite3_stmt *stmt = NULL;
    int64_t value = -1;
    if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) == SQLITE_OK &&
            sqlite3_step(stmt) == SQLITE_ROW) {
        value = sqlite3_column_int64(stmt, 0);
    }
    (void)sqlite3_finalize(stmt);
    return value;
}

// ---- Opening ------------------------------------------------------------------------------------

// When it began, counted from 1, as no other process of its number ever has. 0: it has ended,
// though its parent may not have asked how yet, or its memory is still being given back.
static unsigned long long start_of(long pid) {
    char path[64], text[1024], state = 'X';
    unsigned long long start = 0;
    unsigned flags = 0;
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file) {
        (void)fclose(file);
    }
    text[n] = '\0';
    const char *at = strrchr(text, ')'); // the name before may hold anything
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
        state = at && field == 2 ? at[1] : state;
        flags = at && field == 8 ? (unsigned)strtoul(at + 1, NULL, 10) : flags;
        start = at && field == 21 ? strtoull(at + 1, NULL, 10) : start;
    }
    int ended = state == 'Z' || state == 'X' || (flags & EXITING) != 0;
    return ended ? 0 : start + 1;
}

// "host:pid:start".
static void name_owner(char *owner, size_t size) {
    char host[96] = "";
    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(owner, size, "%s:%ld:%llu", host, (long)getpid(), start_of((long)getpid()));
}

// Whether the process that a claim names may still be at it.
static int is_alive(const char *owner, int64_t at) {
    char own[96] = "";
    const char *colon = strchr(owner, ':');
    if (!colon) {
        return 0;
    }
    (void)gethostname(own, sizeof(own) - 1);
    if (strlen(own) != (size_t)(colon - owner) || strncmp(owner, own, strlen(own)) != 0) {
        return (int64_t)time(NULL) - at < (int64_t)CLAIM_HOURS * 3600;
    }
    char *end;
    long pid = strtol(colon + 1, &end, 10);
    unsigned long long start = *end == ':' ? strtoull(end + 1, NULL, 10) : 0;
    return pid > 0 && start > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM) &&
           start_of(pid) == start;
}

static int is_broken(int code) {
    return (code & 0xff) == SQLITE_NOTADB || (code & 0xff) == SQLITE_CORRUPT;
}

static enum kiln_status set_aside(const char *path, struct kiln_err *err) {
    static const char *const parts[] = {"", "-wal", "-shm"};
    char *to = NULL;
    for (int i = 1; i < 1000; i++) {
        char number[16] = "";
        if (i > 1) {
            (void)snprintf(number, sizeof(number), "-%d", i);
        }
        kiln_free(to);
        to = kiln_asprintf("%s.broken%s", path, number);
        if (!to) {
            return kiln_err_nomem(err, "a path");
        }
        if (!kiln_file_exists(to)) {
            break;
        }
    }
    enum kiln_status status = KILN_STATUS_OK;
    for (int i = 0; i < 3 && status == KILN_STATUS_OK; i++) {
        char *from = kiln_asprintf("%s%s", path, parts[i]);
        char *target = kiln_asprintf("%s%s", to, parts[i]);
        if (!from || !target) {
            status = kiln_err_nomem(err, "a path");
        } else if (rename(from, target) != 0 && errno != ENOENT) {
            status = kiln_err_set(err, KILN_STATUS_FILE,
                    "%s is no usable store of tuning results and cannot be set aside as %s: %s",
                    from, target, strerror(errno));
        }
        kiln_free(from);
        kiln_free(target);
    }
    if (status == KILN_STATUS_OK) {
        kiln_log(KILN_LOG_WARN,
                "%s is damaged or no store of tuning results: set aside as %s, a "
                "new one is begun",
                path, to);
    }
    kiln_free(to);
    return status;
}

// *code: what SQLite said when it failed.
static enum kiln_status open_file(
        struct kiln_tune_store *store, const char *path, int *code, struct kiln_err *err) {
    *code = sqlite3_open_v2(path, &store->db,
            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, NULL);
    if (*code != SQLITE_OK) {
        return store->db ? failed(store, "opening", err) : kiln_err_nomem(err, "a database");
    }
    (void)sqlite3_busy_timeout(store->db, BUSY_MS);
    int64_t application = pragma(store, "PRAGMA application_id");
    *code = sqlite3_errcode(store->db);
    int64_t version = application < 0 ? -1 : pragma(store, "PRAGMA user_version");
    if (version < 0) {
        return failed(store, "reading", err);
    }
    int empty = application == 0 && pragma(store, "SELECT count(*) FROM sqlite_master") == 0;
    *code = SQLITE_OK;
    if (!empty && (application != APPLICATION || version != VERSION)) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s is %s; name another file with --store", path,
                application != APPLICATION ? "another program's database"
                                           : "a store of another version of kiln");
    }
    char sql[1024];
    (void)snprintf(sql, sizeof(sql),
            "BEGIN IMMEDIATE; PRAGMA application_id = %d; PRAGMA user_version = %d; %s COMMIT",
            (int)APPLICATION, (int)VERSION, tables);
    enum kiln_status status =
            run(store, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", "opening", err);
    if (status == KILN_STATUS_OK) {
        status = run(store, sql, "making its tables", err);
    }
    if (status == KILN_STATUS_OK && pragma(store, "PRAGMA quick_check(1)") < 0) {
        status = failed(store, "checking", err);
    }
    *code = status == KILN_STATUS_OK ? SQLITE_OK : sqlite3_errcode(store->db);
    return status;
}

static void close_file(struct kiln_tune_store *store) {
    (void)sqlite3_close(store->db);
    store->db = NULL;
}

// Held while a file is opened and made, so that two that find a broken one set it aside once. -1:
// no lock can be had (a read-only folder).
static int lock_path(const char *path) {
    char *name = kiln_asprintf("%s.lock", path);
    int lock = name ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    kiln_free(name);
    while (lock >= 0 && flock(lock, LOCK_EX) != 0 && errno == EINTR) {
    }
    return lock;
}

static int is_text_or_model(const char *path) {
    char head[256];
    FILE *file = fopen(path, "re");
    size_t len = file ? fread(head, 1, sizeof(head), file) : 0;
    if (file) {
        (void)fclose(file);
    }
    return kiln_file_is_text_or_model(head, len);
}

static enum kiln_status open_locked(
        struct kiln_tune_store *store, const char *path, struct kiln_err *err) {
    int code;
    enum kiln_status status = open_file(store, path, &code, err);
    if (status != KILN_STATUS_OK && is_broken(code)) {
        close_file(store);
        if (is_text_or_model(path)) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "%s is no store of tuning results; it was left as it is: name another file "
                    "with --store",
                    path);
        }
        KILN_TRY(set_aside(path, err));
        status = open_file(store, path, &code, err);
    }
    // Another's file is the user's mistake; what cannot be written is told and done without.
    if (status == KILN_STATUS_FILE && code == SQLITE_OK) {
        return status;
    }
    if (status == KILN_STATUS_FILE) {
        kiln_log(KILN_LOG_WARN, "%s; results are kept in memory and cannot be resumed", err->text);
        close_file(store);
        kiln_free(store->path);
        store->path = NULL;
        return open_file(store, ":memory:", &code, err);
    }
    return status;
}

static enum kiln_status open_path(
        struct kiln_tune_store *store, const char *path, struct kiln_err *err) {
    const char *slash = strrchr(path, '/');
    char *dir = slash && slash > path ? kiln_strndup(path, (size_t)(slash - path)) : NULL;
    struct kiln_err ignored = {0}; // opening the file says what is wrong with the folder
    if (dir) {
        (void)!kiln_make_dirs(dir, &ignored);
        kiln_free(dir);
    }
    int lock = lock_path(path);
    enum kiln_status status = open_locked(store, path, err);
    if (lock >= 0) {
        (void)close(lock);
    }
    return status;
}

enum kiln_status kiln_tune_store_open(
        struct kiln_tune_store **store, const char *path, struct kiln_err *err) {
    *store = NULL;
    struct kiln_tune_store *made = kiln_calloc(1, sizeof(*made));
    if (!made) {
        return kiln_err_nomem(err, "a store of tuning results");
    }
    name_owner(made->owner, sizeof(made->owner));
    made->path = path ? kiln_strdup(path) : NULL;
    int code;
    enum kiln_status status = path && !made->path ? kiln_err_nomem(err, "a path")
                              : path              ? open_path(made, path, err)
                                                  : open_file(made, ":memory:", &code, err);
    if (status != KILN_STATUS_OK) {
        kiln_tune_store_close(made);
        return status;
    }
    *store = made;
    return KILN_STATUS_OK;
}

void kiln_tune_store_close(struct kiln_tune_store *store) {
    if (store) {
        close_file(store);
        kiln_free(store->path);
        kiln_free(store);
    }
}

int kiln_tune_store_durable(const struct kiln_tune_store *store) {
    return store->path != NULL;
}

char *kiln_tune_store_default(void) {
    char *dir = kiln_cache_dir();
    char *path = dir ? kiln_asprintf("%s/tune/tune.db", dir) : NULL;
    kiln_free(dir);
    return path;
}

// ---- Contexts -----------------------------------------------------------------------------------

enum kiln_status kiln_tune_store_context(struct kiln_tune_store *store,
        const struct kiln_tune_context *context, int64_t *id, struct kiln_err *err) {
    const char *const texts[] = {context->device, context->driver, context->problem, context->kiln};
    static const char *const sql[] = {"INSERT OR IGNORE INTO context(device, driver, problem, "
                                      "kiln) VALUES(?1, ?2, ?3, ?4)",
            "SELECT id FROM context WHERE device = ?1 AND driver = ?2 AND problem = ?3 AND kiln = "
            "?4"};
    sqlite3_stmt *stmt = NULL;
    for (int i = 0; i < 2; i++) {
        KILN_TRY(prepare(store, sql[i], &stmt, err));
        for (int j = 0; j < 4; j++) {
            bind_text(stmt, j + 1, texts[j]);
        }
        if (i == 0) {
            KILN_TRY(finish(store, stmt, "noting a context", err));
        }
    }
    enum kiln_status status = sqlite3_step(stmt) == SQLITE_ROW
                                      ? KILN_STATUS_OK
                                      : failed(store, "looking up a context", err);
    *id = status == KILN_STATUS_OK ? sqlite3_column_int64(stmt, 0) : 0;
    (void)sqlite3_finalize(stmt);
    return status;
}

// ---- Results ------------------------------------------------------------------------------------

static void print_times(const struct kiln_tune_times *times, char *text, size_t size) {
    size_t at = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < times->n && at + 32 < size; i++) {
        at += (size_t)snprintf(text + at, size - at, "%s%.9e", i ? " " : "", times->seconds[i]);
    }
}

static void read_times(const char *text, struct kiln_tune_times *times) {
    *times = (struct kiln_tune_times){.n = 0};
    while (text && *text && times->n < KILN_TUNE_SAMPLES) {
        char *end;
        double value = strtod(text, &end);
        if (end == text) {
            break;
        }
        times->seconds[times->n++] = value;
        text = end;
    }
    kiln_tune_times_finish(times);
}

static const char *column_text(sqlite3_stmt *stmt, int column) {
    const unsigned char *text = sqlite3_column_text(stmt, column);
    return text ? (const char *)text : "";
}

// The columns of a result, in the order in which every SELECT here names them.
#define COLUMNS "state, owner, at, cause, parity, compile_ms, cost, note, warm, cold"
enum {
    N_COLUMNS = 10
};
static void read_result(sqlite3_stmt *stmt, int first, struct kiln_tune_result *result) {
    *result = (struct kiln_tune_result){.state = kiln_tune_state_of(column_text(stmt, first)),
            .at = sqlite3_column_int64(stmt, first + 2),
            .parity = sqlite3_column_double(stmt, first + 4),
            .compile_ms = sqlite3_column_double(stmt, first + 5),
            .cost = sqlite3_column_double(stmt, first + 6)};
    (void)snprintf(result->cause, sizeof(result->cause), "%s", column_text(stmt, first + 3));
    (void)snprintf(
            result->device_note, sizeof(result->device_note), "%s", column_text(stmt, first + 7));
    read_times(column_text(stmt, first + 8), &result->warm);
    read_times(column_text(stmt, first + 9), &result->cold);
}

static void bind_key(sqlite3_stmt *stmt, int64_t context, const struct kiln_tune_key *key) {
    (void)sqlite3_bind_int64(stmt, 1, context);
    bind_text(stmt, 2, key->plugin);
    bind_text(stmt, 3, key->variant);
    bind_text(stmt, 4, key->geometry);
    bind_text(stmt, 5, key->sources);
}
#define KEY_IS "context = ?1 AND plugin = ?2 AND variant = ?3 AND geometry = ?4 AND sources = ?5"

static enum kiln_status look(const struct kiln_tune_store *store, int64_t context,
        const struct kiln_tune_key *key, int *there, char owner[192],
        struct kiln_tune_result *result, struct kiln_err *err) {
    sqlite3_stmt *stmt;
    KILN_TRY(prepare(store, "SELECT " COLUMNS " FROM result WHERE " KEY_IS, &stmt, err));
    bind_key(stmt, context, key);
    int code = sqlite3_step(stmt);
    *there = code == SQLITE_ROW;
    if (*there) {
        read_result(stmt, 0, result);
        (void)snprintf(owner, 192, "%s", column_text(stmt, 1));
    }
    (void)sqlite3_finalize(stmt);
    return code == SQLITE_ROW || code == SQLITE_DONE ? KILN_STATUS_OK
                                                     : failed(store, "looking up a result", err);
}

static enum kiln_status note_claim(const struct kiln_tune_store *store, int64_t context,
        const struct kiln_tune_key *key, struct kiln_err *err) {
    sqlite3_stmt *stmt;
    KILN_TRY(prepare(store,
            "INSERT INTO result(context, plugin, variant, geometry, sources, state, owner, at) "
            "VALUES(?1, ?2, ?3, ?4, ?5, 'running', ?6, ?7) ON CONFLICT(context, plugin, variant, "
            "geometry, sources) DO UPDATE SET owner = ?6, at = ?7",
            &stmt, err));
    bind_key(stmt, context, key);
    bind_text(stmt, 6, store->owner);
    (void)sqlite3_bind_int64(stmt, 7, (int64_t)time(NULL));
    return finish(store, stmt, "claiming a candidate", err);
}

static enum kiln_status claim_locked(struct kiln_tune_store *store, int64_t context,
        const struct kiln_tune_key *key, enum kiln_tune_claim *claim,
        struct kiln_tune_result *result, struct kiln_err *err) {
    char owner[192] = "";
    int there;
    KILN_TRY(look(store, context, key, &there, owner, result, err));
    if (there && result->state != KILN_TUNE_RUNNING) {
        *claim = KILN_TUNE_KNOWN;
        return KILN_STATUS_OK;
    }
    if (there && strcmp(owner, store->owner) != 0 && is_alive(owner, result->at)) {
        *claim = KILN_TUNE_TAKEN;
        return KILN_STATUS_OK;
    }
    *claim = KILN_TUNE_CLAIMED;
    return note_claim(store, context, key, err);
}

enum kiln_status kiln_tune_store_claim(struct kiln_tune_store *store, int64_t context,
        const struct kiln_tune_key *key, enum kiln_tune_claim *claim,
        struct kiln_tune_result *result, struct kiln_err *err) {
    KILN_TRY(run(store, "BEGIN IMMEDIATE", "claiming a candidate", err));
    enum kiln_status status = claim_locked(store, context, key, claim, result, err);
    struct kiln_err ignored = {0};
    if (status == KILN_STATUS_OK) {
        status = run(store, "COMMIT", "claiming a candidate", err);
    }
    if (status != KILN_STATUS_OK) {
        (void)!run(store, "ROLLBACK", "claiming a candidate", &ignored);
    }
    return status;
}

enum kiln_status kiln_tune_store_put(struct kiln_tune_store *store, int64_t context,
        const struct kiln_tune_key *key, const struct kiln_tune_result *result,
        struct kiln_err *err) {
    char warm[KILN_TUNE_SAMPLES * 20], cold[KILN_TUNE_SAMPLES * 20];
    sqlite3_stmt *stmt;
    KILN_TRY(prepare(store,
            "INSERT INTO result(context, plugin, variant, geometry, sources, " COLUMNS
            ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) ON "
            "CONFLICT(context, plugin, variant, geometry, sources) DO UPDATE SET state = ?6, owner "
            "= NULL, at = ?7, cause = ?8, parity = ?9, compile_ms = ?10, cost = ?11, note = ?12, "
            "warm = ?13, cold = ?14",
            &stmt, err));
    print_times(&result->warm, warm, sizeof(warm));
    print_times(&result->cold, cold, sizeof(cold));
    bind_key(stmt, context, key);
    bind_text(stmt, 6, kiln_tune_state_name(result->state));
    (void)sqlite3_bind_int64(stmt, 7, result->at);
    bind_text(stmt, 8, result->cause);
    (void)sqlite3_bind_double(stmt, 9, result->parity);
    (void)sqlite3_bind_double(stmt, 10, result->compile_ms);
    (void)sqlite3_bind_double(stmt, 11, result->cost);
    bind_text(stmt, 12, result->device_note);
    bind_text(stmt, 13, warm);
    bind_text(stmt, 14, cold);
    return finish(store, stmt, "writing a result", err);
}

enum kiln_status kiln_tune_store_release(struct kiln_tune_store *store, struct kiln_err *err) {
    sqlite3_stmt *stmt;
    KILN_TRY(prepare(
            store, "DELETE FROM result WHERE state = 'running' AND owner = ?1", &stmt, err));
    bind_text(stmt, 1, store->owner);
    return finish(store, stmt, "giving claims back", err);
}

enum kiln_status kiln_tune_store_forget(
        struct kiln_tune_store *store, int64_t context, struct kiln_err *err) {
    sqlite3_stmt *stmt;
    KILN_TRY(prepare(
            store, "DELETE FROM result WHERE context = ?1 AND state != 'running'", &stmt, err));
    (void)sqlite3_bind_int64(stmt, 1, context);
    return finish(store, stmt, "forgetting results", err);
}

// ---- All of them --------------------------------------------------------------------------------

static enum kiln_status hand_out(const struct kiln_tune_store *store, sqlite3_stmt *stmt,
        kiln_tune_row_fn fn, void *arg, struct kiln_err *err) {
    int code = sqlite3_step(stmt);
    for (; code == SQLITE_ROW; code = sqlite3_step(stmt)) {
        struct kiln_tune_row row = {.context = {.device = column_text(stmt, N_COLUMNS),
                                            .driver = column_text(stmt, N_COLUMNS + 1),
                                            .problem = column_text(stmt, N_COLUMNS + 2),
                                            .kiln = column_text(stmt, N_COLUMNS + 3)},
                .key = {.plugin = column_text(stmt, N_COLUMNS + 4),
                        .variant = column_text(stmt, N_COLUMNS + 5),
                        .geometry = column_text(stmt, N_COLUMNS + 6),
                        .sources = column_text(stmt, N_COLUMNS + 7)}};
        read_result(stmt, 0, &row.result);
        KILN_TRY(fn(arg, &row, err));
    }
    return code == SQLITE_DONE ? KILN_STATUS_OK : failed(store, "reading results", err);
}

enum kiln_status kiln_tune_store_each(struct kiln_tune_store *store, int64_t context,
        kiln_tune_row_fn fn, void *arg, struct kiln_err *err) {
    sqlite3_stmt *stmt;
    KILN_TRY(prepare(store,
            "SELECT " COLUMNS ", device, driver, problem, kiln, plugin, variant, geometry, sources "
            "FROM result JOIN context ON context.id = result.context WHERE state != 'running' AND "
            "(?1 = 0 OR context.id = ?1) ORDER BY at, result.id",
            &stmt, err));
    (void)sqlite3_bind_int64(stmt, 1, context);
    enum kiln_status status = hand_out(store, stmt, fn, arg, err);
    (void)sqlite3_finalize(stmt);
    return status;
}

struct merging {
    struct kiln_tune_store *into;
    int64_t added;
};

static enum kiln_status merge_row(
        void *arg, const struct kiln_tune_row *row, struct kiln_err *err) {
    struct merging *merging = arg;
    struct kiln_tune_result here;
    enum kiln_tune_claim claim;
    int64_t context;
    KILN_TRY(kiln_tune_store_context(merging->into, &row->context, &context, err));
    KILN_TRY(kiln_tune_store_claim(merging->into, context, &row->key, &claim, &here, err));
    if (claim != KILN_TUNE_CLAIMED) {
        return KILN_STATUS_OK;
    }
    merging->added++;
    return kiln_tune_store_put(merging->into, context, &row->key, &row->result, err);
}

enum kiln_status kiln_tune_store_merge(
        struct kiln_tune_store *store, const char *path, int64_t *added, struct kiln_err *err) {
    struct merging merging = {.into = store};
    struct kiln_tune_store from = {.path = NULL};
    *added = 0;
    from.path = kiln_strdup(path);
    if (!from.path) {
        return kiln_err_nomem(err, "a path");
    }
    enum kiln_status status = KILN_STATUS_OK;
    int64_t application;
    if (sqlite3_open_v2(path, &from.db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        status = from.db ? failed(&from, "opening", err) : kiln_err_nomem(err, "a database");
    } else if ((application = pragma(&from, "PRAGMA application_id")) < 0) {
        status = failed(&from, "reading", err);
    } else if (application != APPLICATION || pragma(&from, "PRAGMA user_version") != VERSION) {
        status = kiln_err_set(err, KILN_STATUS_FILE,
                "%s: is no store of tuning results of this version of kiln", path);
    } else {
        (void)sqlite3_busy_timeout(from.db, BUSY_MS);
        status = kiln_tune_store_each(&from, 0, merge_row, &merging, err);
    }
    *added = merging.added;
    close_file(&from);
    kiln_free(from.path);
    return status;
}
