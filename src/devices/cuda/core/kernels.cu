/* kernels.cu: all kernels loaded when a device opens.
 *
 * Left alone, the driver loads a kernel at its first launch.  If others have taken the GPU's memory by then, that
 * launch fails, and so does every later one of that kernel, with words that do not tell why. */
#include <cuda.h>
#include <stdlib.h>
#include "devices/cuda/core/device.cuh"

/* The driver's functions; the library is not linked to it. */
typedef struct module_loader {
    decltype(&cuFuncGetModule) module_of;
    decltype(&cuModuleGetFunctionCount) count;
    decltype(&cuModuleEnumerateFunctions) list;
    decltype(&cuFuncLoad) load;
} module_loader;

static const cuda_file *files;

cuda_file::cuda_file(const void *one) : kernel(one), next(files)
{
    files = this;
}

template <typename F> static bool entry(const char *name, F *f)
{
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *p = NULL;
    if (cudaGetDriverEntryPointByVersion(name, &p, 12040, cudaEnableDefault, &found) != cudaSuccess)
        cudaGetLastError();
    memcpy(f, &p, sizeof p);
    return p && found == cudaDriverEntryPointSuccess;
}

/* False: a driver before CUDA 12.4. */
static bool find(module_loader *l)
{
    return entry("cuFuncGetModule", &l->module_of) && entry("cuModuleGetFunctionCount", &l->count) &&
           entry("cuModuleEnumerateFunctions", &l->list) && entry("cuFuncLoad", &l->load);
}

static CUresult load_module(const module_loader *l, CUmodule module)
{
    unsigned n = 0;
    CUresult rc = l->count(&n, module);
    CUfunction *all = rc == CUDA_SUCCESS ? (CUfunction *)malloc(n * sizeof *all) : NULL;
    if (rc == CUDA_SUCCESS && !all)
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (rc == CUDA_SUCCESS)
        rc = l->list(all, n, module);
    for (unsigned i = 0; i < n && rc == CUDA_SUCCESS; i++)
        rc = l->load(all[i]);
    free(all);
    return rc;
}

static int load_file(const module_loader *l, const cuda_file *file, kvant_diag *diag)
{
    cudaFunction_t one;
    CUmodule module;
    CUDA_TRY(cuda_check(diag, cudaGetFuncBySymbol(&one, file->kernel), "finding kernels"));
    CUresult rc = l->module_of(&module, (CUfunction)one);
    if (rc == CUDA_SUCCESS)
        rc = load_module(l, module);
    if (rc == CUDA_SUCCESS)
        return KVANT_OK;
    return cuda_fail(diag, rc == CUDA_ERROR_OUT_OF_MEMORY ? KVANT_ENOMEM : KVANT_EDEVICE,
                     "device cuda: loading kernels: %s", rc == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "refused");
}

int cuda_load_kernels(kvant_diag *diag)
{
    module_loader l;
    if (!find(&l))
        return KVANT_OK; /* each at its first launch, then */
    for (const cuda_file *f = files; f; f = f->next)
        CUDA_TRY(load_file(&l, f, diag));
    return KVANT_OK;
}
