/* hip_check.c: a HIP runtime without a GPU, for check_hip.py (KVANT_HIP_LIBRARY): memory is the host's, a launch
 * computes nothing, and every program that the device makes is compiled by the real hiprtc, for the two GPUs below
 * by turns.  At the end it says what it saw. HIP_CHECK=no-gpu, spoil (texts that do not compile) or small (1 MiB of
 * memory) plants a fault. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
enum { OK = 0, OUT_OF_MEMORY = 2, WRONG = 1, MAX_BLOCKS = 65536 };
static const char *const gpus[] = { "--offload-arch=gfx90a", "--offload-arch=gfx1030" };

typedef struct rtc {
    void *lib;
    int (*create)(void **p, const char *text, const char *name, int n, const char **h, const char **names);
    int (*compile)(void *p, int n, const char **options);
    int (*log_size)(void *p, size_t *bytes);
    int (*log)(void *p, char *log);
    int (*code_size)(void *p, size_t *bytes);
    int (*destroy)(void **p);
} rtc;

static rtc real;
static struct { char *addr; size_t bytes; } blocks[MAX_BLOCKS];
static int n_blocks, n_compiled, n_refused, n_launched;
static size_t held, limit = 1 << 30;
static const char *fault = "";

static void *symbol(const char *name)
{
    return real.lib ? dlsym(real.lib, name) : NULL;
}

__attribute__((constructor)) static void begin(void)
{
    real.lib = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL);
    if (getenv("HIP_CHECK"))
        fault = getenv("HIP_CHECK");
    if (!strcmp(fault, "small"))
        limit = 1 << 20;
    *(void **)&real.create = symbol("hiprtcCreateProgram");
    *(void **)&real.compile = symbol("hiprtcCompileProgram");
    *(void **)&real.log_size = symbol("hiprtcGetProgramLogSize");
    *(void **)&real.log = symbol("hiprtcGetProgramLog");
    *(void **)&real.code_size = symbol("hiprtcGetCodeSize");
    *(void **)&real.destroy = symbol("hiprtcDestroyProgram");
}

__attribute__((destructor)) static void end(void)
{
    fprintf(stderr, "hip-check: hiprtc %s, %d compiled, %d refused, %d launched, %zu bytes held\n",
            real.lib ? "found" : "absent", n_compiled, n_refused, n_launched, held);
}

/* ---- the device and its memory ---- */

API int hipInit(unsigned flags) { return (int)flags; }
API int hipDriverGetVersion(int *v) { *v = 50221153; return OK; }
API int hipGetDeviceCount(int *n) { *n = strcmp(fault, "no-gpu") != 0; return OK; }
API int hipSetDevice(int device) { return device ? WRONG : OK; }
API int hipDeviceGetName(char *name, int cap, int d)
{
    return snprintf(name, (size_t)cap, "no GPU %d, checks", d) > 0 ? OK : WRONG;
}
API int hipMemGetInfo(size_t *left, size_t *all) { *all = limit; *left = limit - held; return OK; }
API int hipStreamCreate(void **s) { static int one; *s = &one; return OK; }
API int hipStreamDestroy(void *s) { return s ? OK : WRONG; }
API int hipStreamSynchronize(void *s) { return s ? OK : WRONG; }
API const char *hipGetErrorString(int code) { return code == OUT_OF_MEMORY ? "out of memory" : "invalid value"; }

API int hipMalloc(void **addr, size_t bytes)
{
    char *p = n_blocks < MAX_BLOCKS && bytes <= limit - held ? calloc(bytes, 1) : NULL;
    if (!p)
        return OUT_OF_MEMORY;
    blocks[n_blocks].addr = p;
    blocks[n_blocks++].bytes = bytes;
    held += bytes;
    *addr = p;
    return OK;
}

static int find_block(const char *p)
{
    for (int i = 0; i < n_blocks; i++)
        if (p >= blocks[i].addr && p < blocks[i].addr + blocks[i].bytes)
            return i;
    return -1;
}

API int hipFree(void *addr)
{
    const int i = find_block(addr);
    if (i < 0 || blocks[i].addr != addr)
        return WRONG;
    held -= blocks[i].bytes;
    blocks[i] = blocks[--n_blocks];
    free(addr);
    return OK;
}

API int hipMemGetAddressRange(void **base, size_t *bytes, void *addr)
{
    const int i = find_block(addr);
    if (i < 0)
        return WRONG;
    *base = blocks[i].addr;
    *bytes = blocks[i].bytes;
    return OK;
}

API int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *s)
{
    const int i = find_block(kind == 1 ? to : from);
    const char *there = kind == 1 ? to : from;
    if (!s || i < 0 || bytes > blocks[i].bytes - (size_t)(there - blocks[i].addr))
        return WRONG;
    memcpy(to, from, bytes);
    return OK;
}

/* ---- programs ---- */

typedef struct program { char *text, *log; int bad; } program;

API int hiprtcCreateProgram(program **p, const char *text, const char *name, int n, const char **h, const char **names)
{
    (void)name, (void)n, (void)h, (void)names;
    *p = calloc(1, sizeof **p);
    (*p)->text = strdup(text);
    (*p)->log = calloc(1, 1 << 16);
    return OK;
}

static int compile_for(program *p, const char *gpu, int n, const char **options)
{
    const char *all[16] = { gpu };
    void *r = NULL;
    size_t bytes = 0;
    memcpy(all + 1, options, (size_t)n * sizeof *options);
    real.create(&r, p->text, "kernel.k", 0, NULL, NULL);
    const int code = real.compile(r, n + 1, all);
    real.log_size(r, &bytes);
    if (code && bytes < 1 << 16)
        real.log(r, p->log);
    real.code_size(r, &bytes);
    real.destroy(&r);
    return code ? code : bytes ? OK : WRONG;
}

API int hiprtcCompileProgram(program *p, int n, const char **options)
{
    const char *gpu = gpus[(n_compiled + n_refused) % 2];
    if (!strcmp(fault, "spoil"))
        strcpy(p->log, "kernel.k:1:1: error: a fault was planted\n1 error generated\n"), p->bad = WRONG;
    else if (real.lib)
        p->bad = compile_for(p, gpu, n, options);
    n_compiled += !p->bad && real.lib;
    n_refused += p->bad != 0;
    if (p->bad)
        fprintf(stderr, "hip-check: REFUSED %.*s\n", (int)strcspn(p->log, "\n"), p->log);
    return p->bad;
}

API int hiprtcGetProgramLogSize(program *p, size_t *bytes) { *bytes = strlen(p->log) + 1; return OK; }
API int hiprtcGetProgramLog(program *p, char *log) { strcpy(log, p->log); return OK; }
API int hiprtcGetCodeSize(program *p, size_t *bytes) { *bytes = strlen(p->text) + 1; return OK; }
API int hiprtcGetCode(program *p, char *code) { strcpy(code, p->text); return OK; }

API int hiprtcDestroyProgram(program **p)
{
    free((*p)->text);
    free((*p)->log);
    free(*p);
    *p = NULL;
    return OK;
}

API int hipModuleLoadData(void **m, const void *code) { *m = strdup(code); return OK; }
API int hipModuleUnload(void *m) { free(m); return OK; }

/* A kernel's name must stand in its text. */
API int hipModuleGetFunction(void **f, void *m, const char *name)
{
    char word[96];
    snprintf(word, sizeof word, "KERNEL(%s)", name + 2);
    *f = strstr(m, word) ? m : NULL;
    return *f ? OK : WRONG;
}

API int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, void *s, void **args, void **extra)
{
    n_launched++;
    return f && s && args && !extra && gx && gy && gz && bx == 64 && by == 1 && bz == 1 && !shared &&
                   gy < 65536 && gz < 65536 && (unsigned long long)gx * bx < 1ull << 32 ? OK : WRONG;
}
