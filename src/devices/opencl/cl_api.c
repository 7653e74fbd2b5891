/* cl_api.c: opens libOpenCL.so.1 and fills the table of functions.  See cl_api.h. */
#include "devices/opencl/cl_api.h"

#include <dlfcn.h>
#include <string.h>
#include "base/error.h"

/* Opened once and kept: drivers behind the loader may own threads.  One owner thread opens devices. */
static void *loader;

static int find(const char *name, void *to, kvant_diag *diag)
{
    void *symbol = dlsym(loader, name);
    if (!symbol)
        return kvant_fail(diag, KVANT_EDEVICE, "device opencl: libOpenCL.so.1 has no %s", name);
    memcpy(to, &symbol, sizeof symbol);    /* a data pointer does not convert to a function's */
    return KVANT_OK;
}

int cl_api_open(cl_api *api, kvant_diag *diag)
{
    if (!loader)
        loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!loader)
        return kvant_fail(diag, KVANT_EDEVICE, "device opencl: no OpenCL loader on this machine (%.120s)", dlerror());
#define CL_FUNCTION_LOAD(returns, name, args) KVANT_TRY(find("cl" #name, &api->name, diag));
    CL_FUNCTIONS(CL_FUNCTION_LOAD)
#undef CL_FUNCTION_LOAD
    return KVANT_OK;
}
