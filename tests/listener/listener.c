// listener: a tool as a profiler is one to NVTX: it is injected with NVTX_INJECTION64_PATH and
// writes down every range of kiln's domain, in the order of the calls, into the file that
// LISTENER_OUT names: "> 3 layer 3" opens a range (its number, its name), "<" closes the innermost.
// For ranges of one thread.
#include <nvtx3/nvToolsExt.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NAMES = 4096
};

static FILE *out;
static char *names[MAX_NAMES]; // a name's handle is its place + 1
static uintptr_t n_names;
static const uintptr_t kiln_domain = 1; // the handle of the domain that is listened to

static nvtxDomainHandle_t NVTX_API create(const char *name) {
    return strcmp(name, "kiln") == 0 ? (nvtxDomainHandle_t)kiln_domain : NULL;
}

static nvtxStringHandle_t NVTX_API enter(nvtxDomainHandle_t domain, const char *text) {
    if ((uintptr_t)domain != kiln_domain || n_names == MAX_NAMES) {
        return NULL;
    }
    names[n_names] = strdup(text);
    return (nvtxStringHandle_t)++n_names;
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    uintptr_t name = (uintptr_t)event->message.registered;
    int named = event->messageType == NVTX_MESSAGE_TYPE_REGISTERED && name > 0 && name <= n_names;
    if ((uintptr_t)domain == kiln_domain && out) {
        fprintf(out, "> %" PRId64 " %s\n", event->payload.llValue,
                named ? names[name - 1] : "without a name");
    }
    return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t domain) {
    if ((uintptr_t)domain == kiln_domain && out) {
        fputs("<\n", out);
    }
    return 0;
}

static void finish(void) {
    if (out && fclose(out) != 0) {
        _Exit(99); // the test must not take half a file for a whole one
    }
    for (uintptr_t i = 0; i < n_names; i++) {
        free(names[i]);
    }
}

// What NVTX calls in an injected library; 1: it is ready.
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
        NvtxGetExportTableFunc_t get_table) {
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    const char *path = getenv("LISTENER_OUT");
    if (!path || !callbacks ||
            !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
            size <= NVTX_CBID_CORE2_DomainCreateA) {
        return 0;
    }
    out = fopen(path, "w");
    if (!out || atexit(finish) != 0) {
        return 0;
    }
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)enter;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
