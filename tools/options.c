// options: command-line tables: parsing and help.
#include "cmd.h"

#include "base/nearest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_positional(const struct kiln_opt *opt) {
    return opt->kind == KILN_OPT_ENTRY || opt->kind == KILN_OPT_REST;
}

static void print_row(const char *left, const char *help) {
    if (strlen(left) < 30) {
        printf("  %-30s %s\n", left, help);
    } else {
        printf("  %s\n  %-30s %s\n", left, "", help);
    }
}

static void print_help(const struct kiln_cmd *cmd, const struct kiln_opt *table) {
    printf("kiln %s: %s\n\nusage: kiln %s %s\n\n", cmd->name, cmd->summary, cmd->name, cmd->usage);
    for (const struct kiln_opt *opt = table; opt->name; opt++) {
        char left[128];
        snprintf(left, sizeof(left), "%s%s%s%s%s", opt->name, opt->alt ? ", " : "",
                opt->alt ? opt->alt : "", opt->value ? " " : "", opt->value ? opt->value : "");
        print_row(left, opt->help);
    }
    print_row("--help", "this text");
    printf("\nexample:\n  %s\n", cmd->example);
}

static enum kiln_status unknown_option(const struct kiln_cmd *cmd, const struct kiln_opt *table,
        const char *arg, struct kiln_err *err) {
    const char *names[128];
    size_t count = 0;
    for (const struct kiln_opt *opt = table; opt->name; opt++) {
        if (!is_positional(opt) && count + 2 < sizeof(names) / sizeof(names[0])) {
            names[count++] = opt->name;
            if (opt->alt) {
                names[count++] = opt->alt;
            }
        }
    }
    const char *near = kiln_nearest(arg, names, count);
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "kiln %s: unknown option '%s'%s%s%s; `kiln %s --help` lists the options", cmd->name,
            arg, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", cmd->name);
}

static enum kiln_status bad_value(const struct kiln_cmd *cmd, const struct kiln_opt *opt,
        const char *text, struct kiln_err *err) {
    if (opt->min == 0 && opt->max == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "kiln %s: %s takes a %s that is not negative, not '%s'", cmd->name, opt->name,
                opt->kind == KILN_OPT_INT ? "whole number" : "number", text);
    }
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "kiln %s: %s takes a %s from %.12g to %.12g, not '%s'", cmd->name, opt->name,
            opt->kind == KILN_OPT_INT ? "whole number" : "number", opt->min, opt->max, text);
}

static enum kiln_status store_number(const struct kiln_cmd *cmd, const struct kiln_opt *opt,
        const char *text, struct kiln_err *err) {
    char *end = NULL;
    errno = 0;
    double number = 0;
    long long whole = 0;
    if (opt->kind == KILN_OPT_INT) {
        whole = strtoll(text, &end, 10);
        number = (double)whole;
    } else {
        number = strtod(text, &end);
    }
    double max = opt->min == 0 && opt->max == 0 ? 9e18 : opt->max;
    if (errno || end == text || *end || !(number >= opt->min && number <= max)) {
        return bad_value(cmd, opt, text, err);
    }
    if (opt->kind == KILN_OPT_INT) {
        *(int64_t *)opt->dest = whole;
    } else {
        *(double *)opt->dest = number;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status store(const struct kiln_cmd *cmd, const struct kiln_opt *opt,
        const char *text, struct kiln_err *err) {
    if (opt->kind == KILN_OPT_STRING || opt->kind == KILN_OPT_ENTRY || opt->kind == KILN_OPT_PAIR) {
        *(const char **)opt->dest = text;
    } else if (opt->kind == KILN_OPT_LIST || opt->kind == KILN_OPT_REST) {
        struct kiln_opt_list *list = opt->dest;
        if (list->count == sizeof(list->items) / sizeof(list->items[0])) {
            return kiln_err_set(err, KILN_STATUS_USAGE, "kiln %s: %s was given more than %zu times",
                    cmd->name, opt->name, list->count);
        }
        list->items[list->count++] = text;
    } else {
        return store_number(cmd, opt, text, err);
    }
    return KILN_STATUS_OK;
}

// The row that `arg` names, up to a "=" that starts its value (*value), or NULL.
static const struct kiln_opt *find(
        const struct kiln_opt *table, const char *arg, const char **value) {
    *value = NULL;
    size_t len = strlen(arg);
    const char *equals = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    if (equals) {
        len = (size_t)(equals - arg);
        *value = equals + 1;
    }
    for (const struct kiln_opt *opt = table; opt->name; opt++) {
        const char *names[2] = {opt->name, opt->alt};
        for (int i = 0; i < 2 && !is_positional(opt); i++) {
            if (names[i] && strlen(names[i]) == len && strncmp(names[i], arg, len) == 0) {
                return opt;
            }
        }
    }
    return NULL;
}

static enum kiln_status take_positional(const struct kiln_cmd *cmd, const struct kiln_opt *table,
        size_t *entries, const char *arg, struct kiln_err *err) {
    size_t seen = 0;
    for (const struct kiln_opt *opt = table; opt->name; opt++) {
        if (!is_positional(opt) || (opt->kind == KILN_OPT_ENTRY && seen++ < *entries)) {
            continue;
        }
        *entries += opt->kind == KILN_OPT_ENTRY;
        return store(cmd, opt, arg, err);
    }
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "kiln %s: unexpected argument '%s'; usage: kiln %s %s", cmd->name, arg, cmd->name,
            cmd->usage);
}

enum kiln_status kiln_opt_parse(const struct kiln_cmd *cmd, const struct kiln_opt *table, int argc,
        char **argv, int *done, struct kiln_err *err) {
    size_t entries = 0;
    int only_entries = 0; // behind "--"
    *done = 0;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (!only_entries && strcmp(arg, "--") == 0) {
            only_entries = 1;
            continue;
        }
        if (only_entries || arg[0] != '-' || !arg[1]) {
            KILN_TRY(take_positional(cmd, table, &entries, arg, err));
            continue;
        }
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            print_help(cmd, table);
            *done = 1;
            return KILN_STATUS_OK;
        }
        const char *value;
        const struct kiln_opt *opt = find(table, arg, &value);
        if (!opt) {
            return unknown_option(cmd, table, arg, err);
        }
        if (opt->kind == KILN_OPT_FLAG) {
            if (value) {
                return kiln_err_set(
                        err, KILN_STATUS_USAGE, "kiln %s: %s takes no value", cmd->name, opt->name);
            }
            *(int *)opt->dest += 1; // -v twice says even more
            continue;
        }
        if (!value && ++i >= argc) {
            return kiln_err_set(err, KILN_STATUS_USAGE, "kiln %s: %s needs a value (%s)", cmd->name,
                    arg, opt->value);
        }
        KILN_TRY(store(cmd, opt, value ? value : argv[i], err));
        if (opt->kind == KILN_OPT_PAIR) {
            if (++i >= argc) {
                return kiln_err_set(err, KILN_STATUS_USAGE, "kiln %s: %s needs two values (%s)",
                        cmd->name, opt->name, opt->value);
            }
            ((const char **)opt->dest)[1] = argv[i];
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_cmd_dispatch(const struct kiln_cmd *cmd, const struct kiln_cmd *table,
        int argc, char **argv, struct kiln_err *err) {
    const char *names[16];
    size_t count = 0;
    size_t skip = strlen(cmd->name) + 1; // "config show": the part behind the group's name
    for (const struct kiln_cmd *sub = table; sub->name; sub++) {
        names[count++] = sub->name + skip;
    }
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("kiln %s: %s\n\n", cmd->name, cmd->summary);
        for (const struct kiln_cmd *sub = table; sub->name; sub++) {
            printf("  kiln %s %s\n      %s\n", sub->name, sub->usage, sub->summary);
        }
        printf("\nexample:\n  %s\n", cmd->example);
        return KILN_STATUS_OK;
    }
    for (const struct kiln_cmd *sub = table; argc > 1 && sub->name; sub++) {
        if (strcmp(argv[1], sub->name + skip) == 0) {
            return sub->run(sub, argc - 1, argv + 1, err);
        }
    }
    const char *near = argc > 1 ? kiln_nearest(argv[1], names, count) : NULL;
    if (argc < 2) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "kiln %s: what? `kiln %s --help` lists it",
                cmd->name, cmd->name);
    }
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "kiln %s: unknown subcommand '%s'%s%s%s; `kiln %s --help` lists them", cmd->name,
            argv[1], near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", cmd->name);
}
