// prepare: finds or makes prepared weights.
#include "engine/prepare.h"

#include "base/buf.h"
#include "base/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

struct kiln_prepared_set {
    pthread_mutex_t lock;
    struct kiln_prepared **items;
    size_t count, cap;
};

static void item_destroy(struct kiln_prepared *item, struct kiln_dev *dev) {
    for (uint32_t i = 0; item->buffers && i < item->n_buffers; i++) {
        dev->ops->free(dev, item->buffers[i]);
    }
    kiln_free(item->buffers);
    kiln_free(item->key);
    kiln_free(item);
}

enum kiln_status kiln_prepared_create(struct kiln_prepared_set **set, struct kiln_err *err) {
    *set = kiln_calloc(1, sizeof(**set));
    if (*set && pthread_mutex_init(&(*set)->lock, NULL) != 0) {
        kiln_free(*set);
        *set = NULL;
    }
    return *set ? KILN_STATUS_OK : kiln_err_nomem(err, "the prepared weights");
}

void kiln_prepared_destroy(struct kiln_prepared_set *set, struct kiln_dev *dev) {
    if (!set) {
        return;
    }
    for (size_t i = 0; i < set->count; i++) {
        item_destroy(set->items[i], dev);
    }
    kiln_free(set->items);
    pthread_mutex_destroy(&set->lock);
    kiln_free(set);
}

uint64_t kiln_prepared_bytes(struct kiln_prepared_set *set) {
    uint64_t bytes = 0;
    if (set) {
        pthread_mutex_lock(&set->lock);
        for (size_t i = 0; i < set->count; i++) {
            bytes += set->items[i]->bytes;
        }
        pthread_mutex_unlock(&set->lock);
    }
    return bytes;
}

void kiln_prepared_counts(
        struct kiln_prepared_set *set, uint64_t generation, uint64_t *made, uint64_t *kept) {
    *made = *kept = 0;
    pthread_mutex_lock(&set->lock);
    for (size_t i = 0; i < set->count; i++) {
        const struct kiln_prepared *item = set->items[i];
        *made += item->first == generation;
        *kept += item->first < generation && item->last >= generation;
    }
    pthread_mutex_unlock(&set->lock);
}

void kiln_prepared_sweep(
        struct kiln_prepared_set *set, struct kiln_dev *dev, uint64_t first, uint64_t last) {
    pthread_mutex_lock(&set->lock);
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++) {
        struct kiln_prepared *item = set->items[i];
        if (item->last < first || item->first > last) {
            item_destroy(item, dev);
        } else {
            set->items[kept++] = item;
        }
    }
    set->count = kept;
    pthread_mutex_unlock(&set->lock);
}

static void *operand_address(
        const struct kiln_prepare_operands *operands, uint32_t op, uint32_t operand) {
    return op < operands->n_ops && operand < KILN_PREPARE_OPERANDS
                   ? operands->addresses[op * KILN_PREPARE_OPERANDS + operand]
                   : NULL;
}

// Everything that the prepared bytes depend on, as text.
static char *make_key(const struct kiln_binding *binding, const struct kiln_preparation *record,
        const struct kiln_prepare_operands *operands) {
    struct kiln_buf key = {0};
    kiln_buf_printf(&key, "%s/%s", binding->plugin->name, record->id);
    for (uint32_t i = 0; i < record->n_sources; i++) {
        const struct kiln_arg *source = record->sources[i];
        kiln_buf_printf(&key, " %" PRIxPTR,
                (uintptr_t)operand_address(operands, source->op, source->operand));
    }
    for (uint32_t i = 0; i < record->n_keys; i++) {
        for (uint32_t j = 0; j < binding->geometry.n_values; j++) {
            if (strcmp(binding->geometry.names[j], record->keys[i]) == 0) {
                kiln_buf_printf(&key, " %s=%" PRId64, record->keys[i], binding->geometry.values[j]);
            }
        }
    }
    if (operands->source_digest) {
        kiln_buf_printf(&key, " source %s %016" PRIx64, binding->source, operands->source_digest);
    }
    return kiln_buf_take(&key);
}

static void *arg_address(const struct kiln_arg *arg, const struct kiln_prepared *item,
        const struct kiln_prepare_operands *operands) {
    uint8_t *base = NULL;
    if (arg->kind == KILN_ARG_BYTES) {
        memcpy(&base, &arg->bytes, sizeof(base));
        return base;
    }
    if (arg->kind == KILN_ARG_PREPARED) {
        base = item->buffers[arg->buffer];
    } else {
        base = operand_address(operands, arg->op, arg->operand);
    }
    return base ? base + arg->offset : NULL;
}

static enum kiln_status run_launch(struct kiln_dev *dev, const struct kiln_binding *binding,
        const struct kiln_planned_launch *launch, const struct kiln_prepared *item,
        const struct kiln_prepare_operands *operands, struct kiln_err *err) {
    void **args = kiln_calloc(launch->record.n_args, sizeof(*args));
    if (!args) {
        return kiln_err_nomem(err, "a preparation");
    }
    for (uint32_t i = 0; i < launch->record.n_args; i++) {
        args[i] = arg_address(launch->record.args[i], item, operands);
    }
    struct kiln_dev_kernel *ready = NULL;
    struct kiln_load load = {
            .plugin = binding->plugin->name,
            .variant = binding->variant_name,
            .kernel = launch->kernel,
            .launch = &launch->record,
            .geometry = &binding->geometry,
            .source = binding->source,
    };
    enum kiln_status status = dev->ops->load(dev, &load, 1, &ready, err);
    if (status == KILN_STATUS_OK) {
        status = dev->ops->launch(dev, ready, &launch->record, args, err);
    }
    if (status == KILN_STATUS_OK) {
        status = dev->ops->sync(dev, err);
    }
    dev->ops->unload(dev, ready);
    kiln_free(args);
    return status;
}

static enum kiln_status fill(struct kiln_prepared *item, struct kiln_dev *dev,
        const struct kiln_binding *binding, const struct kiln_planned_preparation *preparation,
        const struct kiln_prepare_operands *operands, struct kiln_err *err) {
    const struct kiln_preparation *record = &preparation->record;
    item->buffers = kiln_calloc(record->n_buffers, sizeof(*item->buffers));
    if (!item->buffers) {
        return kiln_err_nomem(err, "a preparation");
    }
    item->n_buffers = record->n_buffers;
    for (uint32_t i = 0; i < record->n_buffers; i++) {
        KILN_TRY(dev->ops->alloc(dev, record->buffer_bytes[i], &item->buffers[i], err));
        item->bytes += record->buffer_bytes[i];
    }
    for (uint32_t i = 0; i < record->n_launches; i++) {
        KILN_TRY(run_launch(dev, binding, &preparation->launches[i], item, operands, err));
    }
    return KILN_STATUS_OK;
}

// The item with this key, marked as used; NULL: there is none. Locked by the caller.
static const struct kiln_prepared *find(
        struct kiln_prepared_set *set, const char *key, uint64_t generation) {
    for (size_t i = 0; i < set->count; i++) {
        struct kiln_prepared *item = set->items[i];
        if (strcmp(item->key, key) == 0) {
            item->first = generation < item->first ? generation : item->first;
            item->last = generation > item->last ? generation : item->last;
            return item;
        }
    }
    return NULL;
}

// Adds the item, or ends it where another thread has made the same meanwhile.
static enum kiln_status insert(struct kiln_prepared_set *set, struct kiln_dev *dev,
        struct kiln_prepared *item, const struct kiln_prepared **prepared, struct kiln_err *err) {
    enum kiln_status status = KILN_STATUS_OK;
    pthread_mutex_lock(&set->lock);
    *prepared = find(set, item->key, item->first);
    if (!*prepared) {
        if (kiln_grow(&set->items, &set->cap, set->count + 1, sizeof(*set->items)) != 0) {
            status = kiln_err_nomem(err, "a preparation");
        } else {
            set->items[set->count++] = item;
            *prepared = item;
        }
    }
    pthread_mutex_unlock(&set->lock);
    if (*prepared != item) {
        item_destroy(item, dev);
    }
    return status;
}

enum kiln_status kiln_prepare(struct kiln_prepared_set *set, struct kiln_dev *dev,
        const struct kiln_binding *binding, const struct kiln_planned_preparation *preparation,
        const struct kiln_prepare_operands *operands, const struct kiln_prepared **prepared,
        struct kiln_err *err) {
    char *key = make_key(binding, &preparation->record, operands);
    if (!key) {
        return kiln_err_nomem(err, "a preparation");
    }
    pthread_mutex_lock(&set->lock);
    *prepared = find(set, key, operands->generation);
    pthread_mutex_unlock(&set->lock);
    if (*prepared) {
        kiln_free(key);
        return KILN_STATUS_OK;
    }
    struct kiln_prepared *item = kiln_calloc(1, sizeof(*item));
    if (!item) {
        kiln_free(key);
        return kiln_err_nomem(err, "a preparation");
    }
    item->key = key;
    item->first = item->last = operands->generation;
    enum kiln_status status = fill(item, dev, binding, preparation, operands, err);
    if (status != KILN_STATUS_OK) {
        item_destroy(item, dev);
        return status;
    }
    return insert(set, dev, item, prepared, err);
}
