// ptx_scope: names of a PTX module: registers, variables, labels, by the scope that declares them.
#include "device/sim/ptx_impl.h"

#include "base/mem.h"

#include <string.h>
#include <xxhash.h>

enum {
    MAX_REGS = 1 << 20 // that one function uses
};

// ---- Map ----------------------------------------------------------------------------------------

static size_t slot_of(const struct ptx_map *map, uint64_t key) {
    size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (map->cap - 1);
    while (map->values[at] != 0 && map->keys[at] != key) {
        at = (at + 1) & (map->cap - 1);
    }
    return at;
}

static int map_grow(struct ptx_map *map) {
    struct ptx_map bigger = {.cap = map->cap ? map->cap * 2 : 64};
    bigger.keys = kiln_calloc(bigger.cap, sizeof(*bigger.keys));
    bigger.values = kiln_calloc(bigger.cap, sizeof(*bigger.values));
    if (!bigger.keys || !bigger.values) {
        ptx_map_finish(&bigger);
        return -1;
    }
    for (size_t i = 0; i < map->cap; i++) {
        if (map->values[i] != 0) {
            size_t at = slot_of(&bigger, map->keys[i]);
            bigger.keys[at] = map->keys[i];
            bigger.values[at] = map->values[i];
        }
    }
    bigger.count = map->count;
    ptx_map_finish(map);
    *map = bigger;
    return 0;
}

enum kiln_status ptx_map_put(
        struct ptx_parser *p, struct ptx_map *map, uint64_t key, uint32_t value) {
    if (map->count * 2 >= map->cap && map_grow(map) != 0) {
        return ptx_nomem(p);
    }
    size_t at = slot_of(map, key);
    map->count += map->values[at] == 0;
    map->keys[at] = key;
    map->values[at] = value + 1;
    return KILN_STATUS_OK;
}

uint32_t ptx_map_get(const struct ptx_map *map, uint64_t key) {
    return map->cap ? map->values[slot_of(map, key)] - 1 : KILN_PTX_NONE;
}

void ptx_map_finish(struct ptx_map *map) {
    kiln_free(map->keys);
    kiln_free(map->values);
    *map = (struct ptx_map){0};
}

// ---- Scopes -------------------------------------------------------------------------------------

enum kiln_status ptx_scope_open(struct ptx_parser *p, uint32_t *outer) {
    if (kiln_grow(&p->scopes, &p->cap_scopes, p->n_scopes + 1, sizeof(*p->scopes)) != 0) {
        return ptx_nomem(p);
    }
    *outer = p->scope;
    p->scopes[p->n_scopes] = p->scope;
    p->scope = (uint32_t)p->n_scopes++;
    return KILN_STATUS_OK;
}

static struct ptx_symbol *find_here(
        const struct ptx_parser *p, uint32_t scope, struct ptx_name name) {
    uint32_t at = ptx_map_get(&p->symbol_map, XXH3_64bits_withSeed(name.text, name.len, scope));
    if (at == KILN_PTX_NONE) {
        return NULL;
    }
    struct ptx_symbol *symbol = &p->symbols[at];
    int same = symbol->scope == scope && symbol->name.len == name.len &&
               memcmp(symbol->name.text, name.text, name.len) == 0;
    return same ? symbol : NULL;
}

enum kiln_status ptx_define(struct ptx_parser *p, const struct ptx_symbol *symbol) {
    struct ptx_name name = symbol->name;
    if (find_here(p, p->scope, name)) {
        return ptx_fail(p, "%.*s is declared twice", (int)name.len, name.text);
    }
    if (kiln_grow(&p->symbols, &p->cap_symbols, p->n_symbols + 1, sizeof(*p->symbols)) != 0) {
        return ptx_nomem(p);
    }
    p->symbols[p->n_symbols] = *symbol;
    p->symbols[p->n_symbols].scope = p->scope;
    return ptx_map_put(p, &p->symbol_map, XXH3_64bits_withSeed(name.text, name.len, p->scope),
            (uint32_t)p->n_symbols++);
}

struct ptx_symbol *ptx_find(const struct ptx_parser *p, uint32_t scope, struct ptx_name name) {
    for (;;) {
        struct ptx_symbol *symbol = find_here(p, scope, name);
        if (symbol || scope == 0) {
            return symbol;
        }
        scope = p->scopes[scope];
    }
}

// ---- Registers ----------------------------------------------------------------------------------

enum kiln_status ptx_add_reg(struct ptx_parser *p, uint32_t bytes, uint32_t *reg) {
    struct ptx_func *func = p->func;
    if (func->n_regs >= MAX_REGS) {
        return ptx_fail(p, "more than %d registers in one function", (int)MAX_REGS);
    }
    if (kiln_grow(&func->regs, &func->cap_regs, func->n_regs + 1, sizeof(*func->regs)) != 0) {
        return ptx_nomem(p);
    }
    func->regs[func->n_regs].bytes = (uint8_t)bytes;
    *reg = (uint32_t)func->n_regs++;
    return KILN_STATUS_OK;
}

// "%r12" -> "%r" and 12; 0: it does not end in a number, or in one that begins with 0.
static int split_number(struct ptx_name name, struct ptx_name *stem, uint64_t *number) {
    uint32_t len = name.len;
    while (len > 0 && name.text[len - 1] >= '0' && name.text[len - 1] <= '9') {
        len--;
    }
    uint32_t n = name.len - len;
    if (n == 0 || n > 9 || len == 0 || (n > 1 && name.text[len] == '0')) {
        return 0;
    }
    *stem = (struct ptx_name){name.text, len};
    *number = 0;
    for (uint32_t i = len; i < name.len; i++) {
        *number = *number * 10 + (uint64_t)(name.text[i] - '0');
    }
    return 1;
}

enum kiln_status ptx_find_reg(struct ptx_parser *p, struct ptx_name name, uint32_t *reg) {
    struct ptx_name stem;
    uint64_t number;
    *reg = KILN_PTX_NONE;
    for (uint32_t scope = p->scope;; scope = p->scopes[scope]) {
        struct ptx_symbol *symbol = find_here(p, scope, name);
        if (symbol) {
            *reg = symbol->kind == PTX_SYM_REG ? symbol->index : KILN_PTX_NONE;
            return KILN_STATUS_OK;
        }
        if (split_number(name, &stem, &number)) {
            symbol = find_here(p, scope, stem);
            if (symbol && symbol->kind == PTX_SYM_REGS && number < symbol->count) {
                struct ptx_symbol made = {
                        .kind = PTX_SYM_REG, .name = name, .bytes = symbol->bytes};
                uint32_t here = p->scope;
                KILN_TRY(ptx_add_reg(p, made.bytes, &made.index));
                *reg = made.index;
                p->scope = scope; // it belongs where its range does
                enum kiln_status status = ptx_define(p, &made);
                p->scope = here;
                return status;
            }
        }
        if (scope == 0) {
            return KILN_STATUS_OK;
        }
    }
}
