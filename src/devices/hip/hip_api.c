/* hip_api.c: opens libamdhip64 and libhiprtc and fills the table of functions.  See hip_api.h. */
#include "devices/hip/hip_api.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"

/* Opened once and kept: the runtime owns threads.  One owner thread opens devices. */
static void *runtime, *compiler;

static void *open_first(const char *const *names)
{
    void *lib = NULL;
    for (; !lib && *names; names++)
        lib = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return lib;
}

static int find(const char *name, void *to, kvant_diag *diag)
{
    void *symbol = dlsym(runtime, name);
    if (!symbol && compiler)
        symbol = dlsym(compiler, name);
    if (!symbol)
        return kvant_fail(diag, KVANT_EDEVICE, "device hip: libamdhip64 and libhiprtc have no %s", name);
    memcpy(to, &symbol, sizeof symbol);    /* a data pointer does not convert to a function's */
    return KVANT_OK;
}

int hip_api_open(hip_api *api, kvant_diag *diag)
{
    static const char *const hip[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
                                       NULL };
    static const char *const rtc[] = { "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so", NULL };
    const char *given = getenv("KVANT_HIP_LIBRARY");
    if (!runtime) {
        runtime = open_first(given ? (const char *const[]){ given, NULL } : hip);
        compiler = runtime && !given ? open_first(rtc) : NULL;
    }
    if (!runtime)
        return kvant_fail(diag, KVANT_EDEVICE, "device hip: no HIP runtime on this machine (%.120s)", dlerror());
#define HIP_FUNCTION_LOAD(returns, name, args) KVANT_TRY(find(#name, &api->name, diag));
    HIP_FUNCTIONS(HIP_FUNCTION_LOAD)
#undef HIP_FUNCTION_LOAD
    return KVANT_OK;
}
