// ranges: the one file that calls NVTX. Its functions are header-only and open the listener's
// library themselves; nothing of CUDA is linked.
#include "base/ranges.h"

#include <stddef.h>

#ifdef KILN_NVTX

#    include <nvtx3/nvToolsExt.h>
#    include <pthread.h>

static nvtxDomainHandle_t domain; // NULL: nobody listens

static void find_listener(void) {
    domain = nvtxDomainCreateA("kiln");
}

void kiln_ranges_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, find_listener);
}

int kiln_ranges_built(void) {
    return 1;
}

int kiln_ranges_active(void) {
    return domain != NULL;
}

const struct kiln_range *kiln_range_name(const char *text) {
    return domain ? (const struct kiln_range *)(const void *)nvtxDomainRegisterStringA(domain, text)
                  : NULL;
}

void kiln_range_push(const struct kiln_range *name, int64_t number) {
    if (!domain) {
        return;
    }
    nvtxEventAttributes_t event = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};
    if (name) {
        // The handle is the tool's own; the const is for kiln's callers.
        event.message.registered = (nvtxStringHandle_t)(uintptr_t)name;
        event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    }
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = number;
    (void)nvtxDomainRangePushEx(domain, &event);
}

void kiln_range_pop(void) {
    if (domain) {
        (void)nvtxDomainRangePop(domain);
    }
}

#else

void kiln_ranges_start(void) {
}

int kiln_ranges_built(void) {
    return 0;
}

int kiln_ranges_active(void) {
    return 0;
}

const struct kiln_range *kiln_range_name(const char *text) {
    (void)text;
    return NULL;
}

void kiln_range_push(const struct kiln_range *name, int64_t number) {
    (void)name;
    (void)number;
}

void kiln_range_pop(void) {
}

#endif
