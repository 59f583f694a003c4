// fake: a CUDA driver and an NVRTC in one library, for what a test cannot make a real one do: run
// out of memory, or fail at a call that the test names. Named by KILN_CUDA and KILN_NVRTC. It knows
// one device; its memory is the host's, so that copies are real; kernels do nothing, but are held
// to the driver's rule on shared memory: what a launch asks for beyond 48 KiB, static included, has
// to be allowed to the function before.
//
//   FAKE_CUDA_NAME    what the device is called ("Fake GPU")
//   FAKE_CUDA_SMS     its multiprocessors (84)
//   FAKE_CUDA_MARK    milliseconds from an event to the next (0.5)
//   FAKE_CUDA_MS      milliseconds that a launch or a replay between them adds (0)
//   FAKE_CUDA_STATIC  bytes of static shared memory of every kernel (0)
//   FAKE_CUDA_MEMORY  bytes of the device (1 GiB)
//   FAKE_CUDA_FAIL    "SYMBOL N CODE": the N-th call of that function fails with CODE (N 0: every
//                     one); from 700 on every later call of the work's functions fails with it too,
//                     as the driver's do, while the variable is there
//   FAKE_NVRTC_CRASH  text: the compile of a source that has it crashes
//   FAKE_NVRTC_HANG   text: the compile of a source that has it never ends
//   FAKE_CUDA_LOG     file for what is written at exit: "SYMBOL CALLS" a line, then "bytes LEFT"
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // usleep
#endif
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum {
    MAX_FUNCTIONS = 128,
    INVALID_VALUE = 1,
    UNSUPPORTED_PTX = 222,
    ERROR_LOG = 5, // CU_JIT_ERROR_LOG_BUFFER
    SMS = 16,      // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    STATIC_SHARED = 1,
    MAX_DYNAMIC_SHARED = 8,
    PLAIN_SHARED = 49152,
    OPTIN_SHARED = 101376,
    OUT_OF_MEMORY = 2,
    STICKY = 700
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const char *name;
    long calls;
} functions[MAX_FUNCTIONS];
static size_t n_functions;
static int sticky; // the result of every call of the work from now on
static uint64_t held;

static void write_log(void) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *out = path ? fopen(path, "w") : NULL;
    if (!out) {
        return;
    }
    for (size_t i = 0; i < n_functions; i++) {
        fprintf(out, "%s %ld\n", functions[i].name, functions[i].calls);
    }
    fprintf(out, "bytes %" PRIu64 "\n", held);
    if (fclose(out) != 0) {
        _Exit(99); // the test must not take half a log for a whole one
    }
}

static long count(const char *name) {
    size_t at = 0;
    while (at < n_functions && strcmp(functions[at].name, name) != 0) {
        at++;
    }
    if (at == n_functions) {
        if (n_functions == 0 && atexit(write_log) != 0) {
            abort();
        }
        if (n_functions++ == MAX_FUNCTIONS) {
            abort();
        }
        functions[at].name = name;
    }
    return ++functions[at].calls;
}

// Counts a call: its result. Read anew each time, for a test in the same process.
static int called(const char *name) {
    const char *fail = getenv("FAKE_CUDA_FAIL");
    char *end = NULL;
    size_t len = strlen(name);
    pthread_mutex_lock(&lock);
    long calls = count(name);
    sticky = fail ? sticky : 0;
    int result = sticky;
    if (result == 0 && fail && strncmp(fail, name, len) == 0 && fail[len] == ' ') {
        long number = strtol(fail + len, &end, 10), code = strtol(end, NULL, 10);
        result = number == 0 || calls == number ? (int)code : 0;
        sticky = result >= STICKY ? result : 0;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

// ---- The driver: what kiln calls, no more -------------------------------------------------------

#define PLAIN(name, ...) \
    API int name(__VA_ARGS__); \
    API int name(__VA_ARGS__)

// A handle that is none of NULL.
static char handle;

PLAIN(cuInit, unsigned flags) {
    (void)flags;
    return called("cuInit");
}

PLAIN(cuDriverGetVersion, int *version) {
    *version = 13000;
    return 0;
}

PLAIN(cuGetErrorName, int code, const char **text) {
    *text = code == OUT_OF_MEMORY ? "FAKE_OUT_OF_MEMORY"
            : code >= STICKY      ? "FAKE_FAULT"
                                  : "FAKE_ERROR";
    return 0;
}

PLAIN(cuGetErrorString, int code, const char **text) {
    (void)code;
    *text = "as the test wanted";
    return 0;
}

PLAIN(cuDeviceGetCount, int *n) {
    *n = 1;
    return called("cuDeviceGetCount");
}

PLAIN(cuDeviceGet, int *device, int number) {
    *device = number;
    return 0;
}

PLAIN(cuDeviceGetName, char *name, int size, int device) {
    const char *text = getenv("FAKE_CUDA_NAME");
    (void)device;
    snprintf(name, (size_t)size, "%s", text ? text : "Fake GPU");
    return 0;
}

static uint64_t total_memory(void) {
    const char *text = getenv("FAKE_CUDA_MEMORY");
    return text ? strtoull(text, NULL, 10) : 1ull << 30;
}

PLAIN(cuDeviceGetPCIBusId, char *id, int size, int device) {
    snprintf(id, (size_t)size, "0000:%02x:00.0", (unsigned)device & 255);
    return 0;
}

PLAIN(cuDeviceTotalMem_v2, size_t *bytes, int device) {
    (void)device;
    *bytes = total_memory();
    return 0;
}

PLAIN(cuDeviceGetAttribute, int *value, int attribute, int device) {
    static const int values[][2] = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647},
            {6, 65535}, {7, 65535}, {8, PLAIN_SHARED}, {10, 32}, {12, 65536}, {16, 84},
            {36, 9501000}, {37, 384}, {38, 6291456}, {39, 1536}, {75, 8}, {76, 6}, {81, 102400},
            {82, 65536}, {97, OPTIN_SHARED}, {106, 16}, {111, 1024}};
    (void)device;
    *value = 0;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        *value = values[i][0] == attribute ? values[i][1] : *value;
    }
    const char *sms = getenv("FAKE_CUDA_SMS");
    *value = attribute == SMS && sms ? (int)strtol(sms, NULL, 10) : *value;
    return 0;
}

PLAIN(cuDevicePrimaryCtxRetain, void **context, int device) {
    (void)device;
    *context = &handle;
    return called("cuDevicePrimaryCtxRetain");
}

PLAIN(cuDevicePrimaryCtxRelease_v2, int device) {
    (void)device;
    return 0;
}

PLAIN(cuCtxSetCurrent, void *context) {
    (void)context;
    return 0;
}

// A module is its one function.
struct function {
    unsigned fixed, allowed; // bytes of static shared memory, and of dynamic
};

PLAIN(cuModuleLoadDataEx, void **module, const void *image, unsigned n, const int *options,
        void **to) {
    const char *fixed = getenv("FAKE_CUDA_STATIC");
    int result = called("cuModuleLoadDataEx");
    struct function *made = result == 0 ? calloc(1, sizeof(*made)) : NULL;
    (void)image;
    for (unsigned i = 0; result == UNSUPPORTED_PTX && i < n; i++) {
        if (options[i] == ERROR_LOG) {
            (void)snprintf(to[i], 64, "ptxas fatal: Unsupported .version 99.0");
        }
    }
    if (made) {
        made->fixed = fixed ? (unsigned)strtoul(fixed, NULL, 10) : 0;
        made->allowed = PLAIN_SHARED - made->fixed;
        *module = made;
    }
    return result == 0 && !made ? OUT_OF_MEMORY : result;
}

PLAIN(cuModuleUnload, void *module) {
    free(module);
    return called("cuModuleUnload");
}

PLAIN(cuModuleGetFunction, void **function, void *module, const char *name) {
    (void)name;
    *function = module;
    return called("cuModuleGetFunction");
}

PLAIN(cuFuncGetAttribute, int *value, int attribute, const struct function *function) {
    *value = attribute == STATIC_SHARED ? (int)function->fixed : 0;
    return called("cuFuncGetAttribute");
}

PLAIN(cuFuncSetAttribute, struct function *function, int attribute, int value) {
    int result = called("cuFuncSetAttribute");
    if (result == 0 && attribute == MAX_DYNAMIC_SHARED) {
        if (value < 0 || function->fixed + (unsigned)value > OPTIN_SHARED) {
            return INVALID_VALUE;
        }
        function->allowed = (unsigned)value;
    }
    return result;
}

// In front of a piece of memory: its size, and room to keep the alignment.
enum {
    HEAD = 512
};

PLAIN(cuMemAlloc_v2, uint64_t *addr, size_t bytes) {
    int result = called("cuMemAlloc_v2");
    char *piece = NULL;
    if (result == 0 &&
            (bytes > total_memory() - held ||
                    !(piece = aligned_alloc(HEAD, HEAD + (bytes + HEAD - 1) / HEAD * HEAD)))) {
        return OUT_OF_MEMORY;
    }
    if (piece) {
        memcpy(piece, &bytes, sizeof(bytes));
        memset(piece + HEAD, 0, bytes); // so that a run repeats
        held += bytes;
        *addr = (uint64_t)(uintptr_t)(piece + HEAD);
    }
    return result;
}

PLAIN(cuMemFree_v2, uint64_t addr) {
    char *piece = (char *)(uintptr_t)addr - HEAD;
    size_t bytes;
    memcpy(&bytes, piece, sizeof(bytes));
    held -= bytes;
    free(piece);
    return called("cuMemFree_v2");
}

PLAIN(cuMemGetInfo_v2, size_t *free_bytes, size_t *total) {
    *total = total_memory();
    *free_bytes = *total - held;
    return called("cuMemGetInfo_v2");
}

PLAIN(cuMemHostAlloc, void **at, size_t bytes, unsigned flags) {
    (void)flags;
    void *data = calloc(1, bytes); // so that a run repeats
    int result = data ? called("cuMemHostAlloc") : OUT_OF_MEMORY;
    if (result != 0) { // as a driver: what fails gives nothing
        free(data);
        return result;
    }
    *at = data;
    return 0;
}

PLAIN(cuMemFreeHost, void *at) {
    free(at);
    return 0;
}

PLAIN(cuMemcpyHtoDAsync_v2, uint64_t to, const void *from, size_t bytes, void *stream) {
    (void)stream;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return called("cuMemcpyHtoDAsync_v2");
}

PLAIN(cuMemcpyDtoHAsync_v2, void *to, uint64_t from, size_t bytes, void *stream) {
    (void)stream;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return called("cuMemcpyDtoHAsync_v2");
}

PLAIN(cuMemcpyDtoDAsync_v2, uint64_t to, uint64_t from, size_t bytes, void *stream) {
    (void)stream;
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return called("cuMemcpyDtoDAsync_v2");
}

PLAIN(cuMemsetD8Async, uint64_t to, unsigned char value, size_t bytes, void *stream) {
    (void)stream;
    memset((void *)(uintptr_t)to, value, bytes);
    return called("cuMemsetD8Async");
}

PLAIN(cuStreamCreate, void **stream, unsigned flags) {
    (void)flags;
    *stream = &handle;
    return called("cuStreamCreate");
}

PLAIN(cuStreamDestroy_v2, void *stream) {
    (void)stream;
    return 0;
}

PLAIN(cuStreamSynchronize, void *stream) {
    (void)stream;
    return called("cuStreamSynchronize");
}

struct event {
    long launches; // when it was recorded
};
static long launches;

PLAIN(cuEventCreate, struct event **event, unsigned flags) {
    int result = called("cuEventCreate");
    (void)flags;
    *event = result == 0 ? calloc(1, sizeof(**event)) : NULL;
    return result == 0 && !*event ? OUT_OF_MEMORY : result;
}

PLAIN(cuEventDestroy_v2, struct event *event) {
    free(event);
    return 0;
}

PLAIN(cuEventRecord, struct event *event, void *stream) {
    (void)stream;
    event->launches = launches;
    return called("cuEventRecord");
}

PLAIN(cuEventSynchronize, void *event) {
    (void)event;
    return called("cuEventSynchronize");
}

PLAIN(cuEventElapsedTime, float *ms, const struct event *from, const struct event *to) {
    const char *mark = getenv("FAKE_CUDA_MARK"), *each = getenv("FAKE_CUDA_MS");
    *ms = (mark ? strtof(mark, NULL) : 0.5f) +
          (each ? strtof(each, NULL) : 0) * (float)(to->launches - from->launches);
    return called("cuEventElapsedTime");
}

// The config begins with grid, block and the bytes of dynamic shared memory.
PLAIN(cuLaunchKernelEx, const unsigned *config, const struct function *function, void **params,
        void **extra) {
    int result = called("cuLaunchKernelEx");
    launches++; // by the one thread that queues
    (void)params;
    (void)extra;
    return result == 0 && config[6] > function->allowed ? INVALID_VALUE : result;
}

PLAIN(cuStreamBeginCapture_v2, void *stream, int mode) {
    (void)stream;
    (void)mode;
    return called("cuStreamBeginCapture_v2");
}

PLAIN(cuStreamEndCapture, void *stream, void **graph) {
    (void)stream;
    *graph = &handle;
    return called("cuStreamEndCapture");
}

PLAIN(cuGraphInstantiateWithFlags, void **exec, void *graph, unsigned long long flags) {
    (void)graph;
    (void)flags;
    *exec = &handle;
    return called("cuGraphInstantiateWithFlags");
}

PLAIN(cuGraphLaunch, void *exec, void *stream) {
    (void)exec;
    (void)stream;
    launches++;
    return called("cuGraphLaunch");
}

PLAIN(cuGraphDestroy, void *graph) {
    (void)graph;
    return 0;
}

PLAIN(cuGraphExecDestroy, void *exec) {
    (void)exec;
    return 0;
}

PLAIN(cuTensorMapEncodeTiled, void *map) {
    memset(map, 0, 128);
    return called("cuTensorMapEncodeTiled");
}

// ---- NVRTC: a program of empty kernels for every source -----------------------------------------
// It knows no machine code for the device, so that PTX is what it is asked for.

struct program {
    size_t len;
    char ptx[2000];
    int crashes, hangs;
};

// The name in front of the first '(' that is not of __launch_bounds__.
static void add_kernel(struct program *program, const char *at) {
    static const char bounds[] = "__launch_bounds__";
    const char *skip = strstr(at, bounds), *paren = strchr(at, '(');
    if (skip && paren && skip < paren) {
        int depth = 0;
        at = skip + strlen(bounds);
        do {
            depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
            at += *at != '\0';
        } while (*at && depth > 0);
        paren = strchr(at, '(');
    }
    const char *start = paren;
    while (start && start > at && strchr(" \n\t)", start[-1]) == NULL) {
        start--;
    }
    if (start && program->len < sizeof(program->ptx) - 100) {
        program->len += (size_t)snprintf(program->ptx + program->len, 100,
                ".visible .entry %.*s()\n", (int)(paren - start) % 64, start);
    }
}

PLAIN(nvrtcVersion, int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return 0;
}

API const char *nvrtcGetErrorString(int code);
API const char *nvrtcGetErrorString(int code) {
    return code == 0 ? "done" : "as the test wanted";
}

PLAIN(nvrtcGetNumSupportedArchs, int *n) {
    *n = 1;
    return 0;
}

PLAIN(nvrtcGetSupportedArchs, int *archs) {
    archs[0] = 80;
    return 0;
}

PLAIN(nvrtcCreateProgram, void **program, const char *text, const char *name, int n,
        const char *const *texts, const char *const *names) {
    static const char word[] = "__global__";
    struct program *made = calloc(1, sizeof(*made));
    (void)name;
    (void)n;
    (void)texts;
    (void)names;
    for (const char *at = text; made && (at = strstr(at, word)) != NULL; at += strlen(word)) {
        add_kernel(made, at + strlen(word));
    }
    *program = made;
    if (made) {
        const char *crash = getenv("FAKE_NVRTC_CRASH"), *hang = getenv("FAKE_NVRTC_HANG");
        made->crashes = crash && strstr(text, crash);
        made->hangs = hang && strstr(text, hang);
    }
    return made ? 0 : OUT_OF_MEMORY;
}

PLAIN(nvrtcDestroyProgram, void **program) {
    free(*program);
    *program = NULL;
    return 0;
}

PLAIN(nvrtcCompileProgram, const struct program *program, int n, const char *const *options) {
    while (program->hangs) {
        (void)usleep(1000);
    }
    if (program->crashes) {
        (void)raise(SIGSEGV);
    }
    (void)n;
    (void)options;
    return called("nvrtcCompileProgram");
}

PLAIN(nvrtcGetProgramLogSize, void *program, size_t *size) {
    (void)program;
    *size = 1;
    return 0;
}

PLAIN(nvrtcGetProgramLog, void *program, char *text) {
    (void)program;
    *text = '\0';
    return 0;
}

PLAIN(nvrtcGetPTXSize, const struct program *program, size_t *size) {
    *size = program->len + 1;
    return 0;
}

PLAIN(nvrtcGetPTX, const struct program *program, char *text) {
    memcpy(text, program->ptx, program->len + 1);
    return 0;
}

PLAIN(nvrtcGetCUBINSize, const struct program *program, size_t *size) {
    return nvrtcGetPTXSize(program, size);
}

PLAIN(nvrtcGetCUBIN, const struct program *program, char *bytes) {
    return nvrtcGetPTX(program, bytes);
}

PLAIN(nvrtcAddNameExpression, void *program, const char *expression) {
    (void)program;
    (void)expression;
    return 0;
}

PLAIN(nvrtcGetLoweredName, void *program, const char *expression, const char **name) {
    (void)program;
    *name = expression;
    return 0;
}
