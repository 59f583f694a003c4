// ledger: the file: where it is, how it is opened, its schema, and transactions.
//
// Not here: what is in it (ledger_store.c, ledger_query.c).
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // flock
#endif
#include "lab/ledger.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "lab/ledger_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    BUSY_MS = 120000,         // how long other writers are waited for
    APPLICATION = 0x4b494c4e, // "KILN", in the file's header
    HEAD = 4096               // bytes of a file that tell what it is
};

// What full text is made of: rowid, title, body; o: "new." or nothing.
#define LINE(o, column) "||coalesce(char(10)||" o #column ",'')"
#define RESULT_WORDS(o) \
    "2*" o "id," o "summary,''" LINE(o, kind) LINE(o, date) LINE(o, device) LINE(o, driver) \
            LINE(o, verdict) LINE(o, config)
#define EXPERIMENT_WORDS(o) \
    "2*" o "id+1," o "name" LINE(o, title) ",''" LINE(o, date) LINE(o, verdict) LINE(o, why) \
            LINE(o, slot) LINE(o, mechanism) LINE(o, retry) LINE(o, note) LINE(o, provenance) \
                    LINE(o, change)

// Each brings the schema one version on. Never edited once shipped: a change is one more.
static const char *const migrations[] = {
        "CREATE TABLE result("
        " id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,"
        " date TEXT NOT NULL, device TEXT, device_id TEXT, target TEXT, driver TEXT, kiln TEXT,"
        " config TEXT, base_config TEXT, sources TEXT, grade TEXT, verdict TEXT,"
        " summary TEXT NOT NULL, document TEXT NOT NULL);"
        "CREATE INDEX result_newest ON result(kind, date DESC, id DESC);"
        "CREATE TABLE experiment("
        " id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, date TEXT,"
        " title TEXT, verdict TEXT, why TEXT, slot TEXT, mechanism TEXT, retry TEXT, note TEXT,"
        " base TEXT, change TEXT, provenance TEXT, figures TEXT);"
        "CREATE TABLE evidence("
        " experiment INTEGER NOT NULL REFERENCES experiment(id),"
        " result INTEGER NOT NULL REFERENCES result(id),"
        " PRIMARY KEY(experiment, result)) WITHOUT ROWID;",
        // Full text, kept in step by triggers. rowid: 2 id of a result, 2 id + 1 of an experiment.
        "CREATE VIRTUAL TABLE words USING fts5(title, body);"
        "CREATE TRIGGER result_words AFTER INSERT ON result BEGIN"
        " INSERT INTO words(rowid, title, body) VALUES(" RESULT_WORDS(
                "new.") "); END;"
                        "CREATE TRIGGER experiment_words AFTER INSERT ON experiment BEGIN"
                        " INSERT INTO words(rowid, title, body) VALUES(" EXPERIMENT_WORDS(
                                "new.") "); END;"
                                        "CREATE TRIGGER experiment_words_again AFTER UPDATE ON "
                                        "experiment BEGIN"
                                        " DELETE FROM words WHERE rowid = 2 * old.id + 1;"
                                        " INSERT INTO words(rowid, title, body) "
                                        "VALUES(" EXPERIMENT_WORDS(
                                                "new.") "); END;"
                                                        "INSERT INTO words(rowid, title, body) "
                                                        "SELECT " RESULT_WORDS(
                                                                "") " FROM result;"
                                                                    "INSERT INTO words(rowid, "
                                                                    "title, body) "
                                                                    "SELECT " EXPERIMENT_WORDS(
                                                                            "") " FROM experiment;",
};
enum {
    VERSION = sizeof(migrations) / sizeof(migrations[0])
};

// ---- Where --------------------------------------------------------------------------------------

char *kiln_ledger_path(void) {
    const char *path = getenv("KILN_LEDGER");
    if (path && *path) {
        return kiln_strdup(path);
    }
    path = getenv("XDG_DATA_HOME");
    if (path && path[0] == '/') { // the specification says to ignore a relative one
        return kiln_asprintf("%s/kiln/ledger.db", path);
    }
    path = getenv("HOME");
    return path && *path ? kiln_asprintf("%s/.local/share/kiln/ledger.db", path) : NULL;
}

const char *kiln_ledger_name(const struct kiln_ledger *ledger) {
    return ledger->path;
}

// ---- Failures -----------------------------------------------------------------------------------

enum kiln_status kiln_ledger_failed(
        const struct kiln_ledger *ledger, const char *doing, struct kiln_err *err) {
    int code = ledger->db ? sqlite3_extended_errcode(ledger->db) : SQLITE_NOMEM;
    int system = ledger->db ? sqlite3_system_errno(ledger->db) : 0;
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        return kiln_err_nomem(err, "the ledger");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: cannot %s: another process has held it for %d s", ledger->path, doing,
                BUSY_MS / 1000);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: cannot %s: the file is damaged (%s); move it away to begin a new ledger, "
                "`sqlite3 FILE .recover` gets out what is still in it",
                ledger->path, doing, sqlite3_errmsg(ledger->db));
    default:
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: cannot %s: %s%s%s", ledger->path, doing,
                sqlite3_errmsg(ledger->db), system ? ": " : "", system ? strerror(system) : "");
    }
}

enum kiln_status kiln_ledger_exec(
        struct kiln_ledger *ledger, const char *sql, const char *doing, struct kiln_err *err) {
    return sqlite3_exec(ledger->db, sql, NULL, NULL, NULL) == SQLITE_OK
                   ? KILN_STATUS_OK
                   : kiln_ledger_failed(ledger, doing, err);
}

// ---- Schema -------------------------------------------------------------------------------------

static enum kiln_status pragma(
        struct kiln_ledger *ledger, const char *sql, int64_t *value, struct kiln_err *err) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(ledger->db, sql, -1, &statement, NULL);
    if (code == SQLITE_OK) {
        code = sqlite3_step(statement);
    }
    if (code == SQLITE_ROW) {
        *value = sqlite3_column_int64(statement, 0);
    }
    enum kiln_status status =
            code == SQLITE_ROW ? KILN_STATUS_OK : kiln_ledger_failed(ledger, "read it", err);
    sqlite3_finalize(statement);
    return status;
}

// Whose database it is, and how old.
static enum kiln_status read_version(
        struct kiln_ledger *ledger, int64_t *version, struct kiln_err *err) {
    int64_t application = 0, tables = 0;
    *version = 0;
    // The tables first: another process may be making them, and whose they are comes with them.
    KILN_TRY(pragma(ledger, "SELECT count(*) FROM sqlite_schema", &tables, err));
    KILN_TRY(pragma(ledger, "PRAGMA application_id", &application, err));
    KILN_TRY(pragma(ledger, "PRAGMA user_version", version, err));
    if (application != APPLICATION && tables > 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: is a SQLite database, but no ledger of kiln; name another file", ledger->path);
    }
    if (*version > VERSION) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: its schema is version %lld, this kiln knows up to %d; a newer kiln wrote it",
                ledger->path, (long long)*version, VERSION);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status migrate_locked(struct kiln_ledger *ledger, struct kiln_err *err) {
    int64_t version;
    char sql[96];
    KILN_TRY(read_version(ledger, &version, err)); // again: somebody may have been faster
    for (; version < VERSION; version++) {
        KILN_TRY(kiln_ledger_exec(ledger, migrations[version], "bring its schema up to date", err));
    }
    snprintf(sql, sizeof(sql), "PRAGMA application_id=%d; PRAGMA user_version=%d", APPLICATION,
            VERSION);
    return kiln_ledger_exec(ledger, sql, "bring its schema up to date", err);
}

enum kiln_status kiln_ledger_migrate(struct kiln_ledger *ledger, struct kiln_err *err) {
    int64_t version;
    KILN_TRY(read_version(ledger, &version, err));
    if (version == VERSION) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(kiln_ledger_begin(ledger, err));
    enum kiln_status status = migrate_locked(ledger, err);
    if (status == KILN_STATUS_OK) {
        return kiln_ledger_commit(ledger, err);
    }
    (void)sqlite3_exec(ledger->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

enum kiln_status kiln_ledger_begin(struct kiln_ledger *ledger, struct kiln_err *err) {
    return kiln_ledger_exec(ledger, "BEGIN IMMEDIATE", "write to it", err);
}

enum kiln_status kiln_ledger_commit(struct kiln_ledger *ledger, struct kiln_err *err) {
    return kiln_ledger_exec(ledger, "COMMIT", "write to it", err);
}

// ---- Opening ------------------------------------------------------------------------------------

// The first bytes of a file; -1 with errno. *len: up to HEAD.
static int read_head(const char *path, char *head, size_t *len) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return -1;
    }
    struct stat st;
    ssize_t n = -1;
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    } else {
        n = read(fd, head, HEAD);
    }
    int saved = errno;
    close(fd);
    errno = saved;
    *len = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -1 : 0;
}

static int is_database(const char *head, size_t len) {
    static const char magic[] = "SQLite format 3"; // its NUL included
    return len >= sizeof(magic) && memcmp(head, magic, sizeof(magic)) == 0;
}

static enum kiln_status not_a_ledger(const char *path, const char *advice, struct kiln_err *err) {
    return kiln_err_set(
            err, KILN_STATUS_FILE, "%s: is no ledger of kiln (no SQLite database)%s", path, advice);
}

// Renames the file, under a lock on its folder: of two processes that find it broken, the second
// must not set aside what the first has begun since.
static enum kiln_status set_aside(const char *path, struct kiln_err *err) {
    char head[HEAD], stamp[32];
    size_t len;
    const char *slash = strrchr(path, '/');
    char *folder = slash ? kiln_strndup(path, (size_t)(slash - path) + 1) : kiln_strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    time_t now = time(NULL);
    struct tm utc;
    (void)strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%S", gmtime_r(&now, &utc));
    char *aside = kiln_asprintf("%s.broken-%s-%ld", path, stamp, (long)getpid());
    enum kiln_status status = KILN_STATUS_OK;
    if (!folder || !aside) {
        status = kiln_err_nomem(err, "a path");
    } else if (fd < 0 || flock(fd, LOCK_EX) != 0) {
        status = kiln_err_set(
                err, KILN_STATUS_FILE, "%s: cannot lock it: %s", folder, strerror(errno));
    } else if (read_head(path, head, &len) != 0 || len == 0 || is_database(head, len)) {
        status = KILN_STATUS_OK; // set aside by another process
    } else if (rename(path, aside) != 0) {
        status = kiln_err_set(err, KILN_STATUS_FILE,
                "%s: is no ledger of kiln and cannot be set aside: %s", path, strerror(errno));
    } else {
        kiln_log(KILN_LOG_WARN, "%s: is no ledger of kiln; set aside as %s, a new one is begun",
                path, aside);
    }
    if (fd >= 0) {
        close(fd);
    }
    kiln_free(folder);
    kiln_free(aside);
    return status;
}

// *empty: there is nothing in it yet.
static enum kiln_status look_at(
        const char *path, enum kiln_ledger_mode mode, int *empty, struct kiln_err *err) {
    char head[HEAD];
    size_t len = 0;
    if (read_head(path, head, &len) != 0 && errno != ENOENT) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "%s: cannot open the ledger: %s", path, strerror(errno));
    }
    *empty = len == 0;
    if (len == 0 || is_database(head, len)) {
        return KILN_STATUS_OK;
    }
    if (kiln_file_is_text_or_model(head, len)) {
        return not_a_ledger(path, "; it was left as it is: name another file", err);
    }
    if (mode == KILN_LEDGER_READ) {
        return not_a_ledger(path, "; the next `kiln record add` sets it aside", err);
    }
    return set_aside(path, err);
}

static enum kiln_status open_db(
        struct kiln_ledger *ledger, const char *name, int flags, struct kiln_err *err) {
    if (sqlite3_open_v2(name, &ledger->db, flags | SQLITE_OPEN_URI, NULL) != SQLITE_OK) {
        return kiln_ledger_failed(ledger, "open the ledger", err);
    }
    sqlite3_extended_result_codes(ledger->db, 1);
    sqlite3_busy_timeout(ledger->db, BUSY_MS);
    (void)sqlite3_db_config(ledger->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    return KILN_STATUS_OK;
}

static enum kiln_status open_memory(struct kiln_ledger *ledger, struct kiln_err *err) {
    sqlite3_close(ledger->db);
    ledger->db = NULL;
    KILN_TRY(open_db(ledger, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err));
    return kiln_ledger_migrate(ledger, err);
}

// Turning on the write-ahead log wants the file for itself, and SQLite does not wait for that.
static enum kiln_status use_wal(struct kiln_ledger *ledger, struct kiln_err *err) {
    const struct timespec pause = {.tv_nsec = 5000000};
    int code;
    for (int waited = 0; waited < BUSY_MS; waited += 5) {
        code = sqlite3_exec(ledger->db,
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                "PRAGMA foreign_keys=ON",
                NULL, NULL, NULL);
        if ((code & 0xff) != SQLITE_BUSY && (code & 0xff) != SQLITE_LOCKED) {
            return code == SQLITE_OK ? KILN_STATUS_OK
                                     : kiln_ledger_failed(ledger, "write to it", err);
        }
        nanosleep(&pause, NULL);
    }
    return kiln_ledger_failed(ledger, "write to it", err);
}

static enum kiln_status make_folder(const char *path, struct kiln_err *err) {
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) {
        return KILN_STATUS_OK;
    }
    char *folder = kiln_strndup(path, (size_t)(slash - path));
    enum kiln_status status = folder ? kiln_make_dirs(folder, err) : kiln_err_nomem(err, "a path");
    kiln_free(folder);
    return status;
}

static enum kiln_status open_write(struct kiln_ledger *ledger, struct kiln_err *err) {
    int empty;
    KILN_TRY(make_folder(ledger->path, err));
    KILN_TRY(look_at(ledger->path, KILN_LEDGER_WRITE, &empty, err));
    // "./": SQLite takes a name that begins with "file:" or ":" for something else.
    char *name = kiln_asprintf("%s%s", ledger->path[0] == '/' ? "" : "./", ledger->path);
    if (!name) {
        return kiln_err_nomem(err, "a path");
    }
    enum kiln_status status =
            open_db(ledger, name, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    kiln_free(name);
    KILN_TRY(status);
    int64_t version; // before anything is written to what may be another program's
    KILN_TRY(read_version(ledger, &version, err));
    if (sqlite3_db_readonly(ledger->db, "main") == 1) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: the ledger is read-only; --ledger or KILN_LEDGER names another", ledger->path);
    }
    KILN_TRY(use_wal(ledger, err));
    return kiln_ledger_migrate(ledger, err);
}

// "file:PATH?QUERY", with what means something in an address escaped.
static char *address_of(const char *path, const char *query) {
    struct kiln_buf text = {0};
    kiln_buf_puts(&text, path[0] == '/' ? "file:" : "file:./");
    for (const char *c = path; *c; c++) {
        kiln_buf_printf(&text, strchr("%?#", *c) ? "%%%02x" : "%c", (unsigned char)*c);
    }
    kiln_buf_puts(&text, query);
    char *address = kiln_buf_take(&text);
    kiln_buf_finish(&text);
    return address;
}

static enum kiln_status open_reading(
        struct kiln_ledger *ledger, const char *query, int64_t *version, struct kiln_err *err) {
    sqlite3_close(ledger->db);
    ledger->db = NULL;
    char *address = address_of(ledger->path, query);
    if (!address) {
        return kiln_err_nomem(err, "a path");
    }
    enum kiln_status status = open_db(ledger, address, SQLITE_OPEN_READONLY, err);
    kiln_free(address);
    return status == KILN_STATUS_OK ? read_version(ledger, version, err) : status;
}

// An older schema is brought up to date in a copy: reading changes no file.
static enum kiln_status copy_to_memory(struct kiln_ledger *ledger, struct kiln_err *err) {
    struct kiln_ledger copy = {.path = ledger->path};
    enum kiln_status status =
            open_db(&copy, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    sqlite3_backup *backup = status == KILN_STATUS_OK
                                     ? sqlite3_backup_init(copy.db, "main", ledger->db, "main")
                                     : NULL;
    if (status == KILN_STATUS_OK && (!backup || sqlite3_backup_step(backup, -1) != SQLITE_DONE)) {
        status = kiln_ledger_failed(backup ? ledger : &copy, "read it", err);
    }
    if (backup) {
        (void)sqlite3_backup_finish(backup);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_ledger_migrate(&copy, err);
    }
    sqlite3_close(status == KILN_STATUS_OK ? ledger->db : copy.db);
    ledger->db = status == KILN_STATUS_OK ? copy.db : ledger->db;
    return status;
}

static enum kiln_status open_read(struct kiln_ledger *ledger, struct kiln_err *err) {
    int empty;
    int64_t version = 0;
    KILN_TRY(look_at(ledger->path, KILN_LEDGER_READ, &empty, err));
    if (empty) {
        return open_memory(ledger, err);
    }
    enum kiln_status status = open_reading(ledger, "?mode=ro", &version, err);
    if (status != KILN_STATUS_OK) {
        int code = ledger->db ? sqlite3_errcode(ledger->db) & 0xff : SQLITE_NOMEM;
        if (code != SQLITE_CANTOPEN && code != SQLITE_READONLY) {
            return status;
        }
        // A folder that cannot be written has no place for the log's index; without writers there
        // is no need of one.
        KILN_TRY(open_reading(ledger, "?mode=ro&immutable=1", &version, err));
    }
    return version < VERSION ? copy_to_memory(ledger, err) : KILN_STATUS_OK;
}

static struct kiln_ledger *new_ledger(const char *path) {
    struct kiln_ledger *ledger = kiln_calloc(1, sizeof(*ledger));
    char *copy = kiln_strdup(path);
    if (ledger && copy) {
        ledger->path = copy;
        return ledger;
    }
    kiln_free(copy);
    kiln_free(ledger);
    return NULL;
}

enum kiln_status kiln_ledger_open(struct kiln_ledger **ledger, const char *path,
        enum kiln_ledger_mode mode, struct kiln_err *err) {
    *ledger = new_ledger(path);
    if (!*ledger) {
        return kiln_err_nomem(err, "the ledger");
    }
    enum kiln_status status =
            mode == KILN_LEDGER_WRITE ? open_write(*ledger, err) : open_read(*ledger, err);
    if (status != KILN_STATUS_OK) {
        kiln_ledger_close(*ledger);
        *ledger = NULL;
    }
    return status;
}

enum kiln_status kiln_ledger_open_memory(
        struct kiln_ledger **ledger, const char *name, struct kiln_err *err) {
    *ledger = new_ledger(name);
    if (!*ledger) {
        return kiln_err_nomem(err, "the ledger");
    }
    enum kiln_status status = open_memory(*ledger, err);
    if (status != KILN_STATUS_OK) {
        kiln_ledger_close(*ledger);
        *ledger = NULL;
    }
    return status;
}

void kiln_ledger_close(struct kiln_ledger *ledger) {
    if (ledger) {
        sqlite3_close(ledger->db); // an open transaction is undone
        kiln_free(ledger->path);
        kiln_free(ledger);
    }
}
