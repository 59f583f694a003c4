// weights: the model file's way to the device: read into pinned memory piece by piece while the
// piece before is on its way, so that reading the file and copying overlap. What is there is not
// sent again.
#include "device/cuda/cuda_impl.h"

#include "base/mem.h"

#include <string.h>

enum {
    STAGE_BYTES = 8 << 20
};

static enum kiln_status make_stages(struct kiln_cuda *cuda, struct kiln_err *err) {
    const struct kiln_cu *cu = &cuda->cu;
    struct kiln_cuda_shared *shared = cuda->shared;
    for (int i = 0; i < KILN_CUDA_STAGES; i++) {
        if (!shared->stage[i]) {
            KILN_TRY(kiln_cuda_check_for(cuda, cu->host_alloc(&shared->stage[i], STAGE_BYTES, 0),
                    "cuMemHostAlloc", "pinned memory for the upload", err));
        }
        if (!shared->staged[i]) {
            KILN_TRY(kiln_cuda_check_for(cuda,
                    cu->event_create(&shared->staged[i], KILN_CU_EVENT_NO_TIME), "cuEventCreate",
                    "an event for the upload", err));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status send(struct kiln_cuda *cuda, uint64_t to, const uint8_t *from,
        uint64_t bytes, struct kiln_err *err) {
    const struct kiln_cu *cu = &cuda->cu;
    const struct kiln_cuda_shared *shared = cuda->shared;
    KILN_TRY(make_stages(cuda, err));
    for (uint64_t at = 0, piece = 0; at < bytes; piece++) {
        int i = (int)(piece % KILN_CUDA_STAGES);
        uint64_t size = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
        // Before its first record an event counts as done.
        KILN_TRY(kiln_cuda_check(
                cuda, cu->event_sync(shared->staged[i]), "cuEventSynchronize", err));
        memcpy(shared->stage[i], from + at, size);
        KILN_TRY(kiln_cuda_check(cuda, cu->upload(to + at, shared->stage[i], size, cuda->stream),
                "cuMemcpyHtoDAsync", err));
        KILN_TRY(kiln_cuda_check(
                cuda, cu->event_record(shared->staged[i], cuda->stream), "cuEventRecord", err));
        at += size;
    }
    return KILN_STATUS_OK;
}

// The first weight whose data does not lie before `data`.
static size_t find(const struct kiln_cuda_shared *shared, const void *data) {
    size_t low = 0, high = shared->n_weights;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((const char *)shared->weights[middle].data < (const char *)data) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static enum kiln_status get(struct kiln_cuda *cuda, const void *data, uint64_t bytes, void **addr,
        struct kiln_err *err) {
    struct kiln_cuda_shared *shared = cuda->shared;
    struct kiln_dev *dev = &cuda->dev;
    size_t at = find(shared, data);
    if (at < shared->n_weights && shared->weights[at].data == data &&
            shared->weights[at].bytes == bytes) {
        *addr = (void *)(uintptr_t)shared->weights[at].addr;
        return KILN_STATUS_OK;
    }
    if (kiln_grow(&shared->weights, &shared->cap_weights, shared->n_weights + 1,
                sizeof(*shared->weights)) != 0) {
        return kiln_err_nomem(err, "the table of weights");
    }
    void *to;
    KILN_TRY(dev->ops->alloc(dev, bytes, &to, err));
    enum kiln_status status = send(cuda, (uint64_t)(uintptr_t)to, data, bytes, err);
    if (status == KILN_STATUS_OK && shared->sided) { // another queue does not wait for this one
        status = dev->ops->sync(dev, err);
    }
    if (status != KILN_STATUS_OK) {
        dev->ops->free(dev, to);
        return status;
    }
    memmove(&shared->weights[at + 1], &shared->weights[at],
            (shared->n_weights - at) * sizeof(*shared->weights));
    shared->weights[at] = (struct kiln_cuda_weight){
            .data = data, .bytes = bytes, .addr = (uint64_t)(uintptr_t)to};
    shared->n_weights++;
    atomic_fetch_add(&shared->weight_bytes, bytes);
    *addr = to;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_cuda_weights(
        struct kiln_dev *dev, const void *data, uint64_t bytes, void **addr, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    pthread_mutex_lock(&cuda->shared->lock);
    enum kiln_status status = get(cuda, data, bytes, addr, err);
    pthread_mutex_unlock(&cuda->shared->lock);
    return status;
}

void kiln_cuda_weights_finish(struct kiln_cuda *cuda) {
    struct kiln_cuda_shared *shared = cuda->shared;
    kiln_free(shared->weights); // what they point to goes with the pool
    for (int i = 0; i < KILN_CUDA_STAGES; i++) {
        if (shared->stage[i]) {
            cuda->cu.host_free(shared->stage[i]);
        }
        if (shared->staged[i]) {
            cuda->cu.event_destroy(shared->staged[i]);
        }
    }
}
