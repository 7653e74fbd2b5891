/* hip_on_cuda.c: HIP's functions over CUDA's driver and NVRTC, so that the device "hip", its host code and its
 * dialect run on an NVIDIA GPU: the two interfaces differ in names.  It proves everything but AMD's compiler and
 * hardware (docs/hip.md):
 *
 *   cc -shared -fPIC -I$CUDA/include tests/hip/hip_on_cuda.c -o hip_on_cuda.so -lcuda -lnvrtc
 *   KVANT_HIP_LIBRARY=./hip_on_cuda.so kvant verify --device hip  */
#include <cuda.h>
#include <nvrtc.h>
#include <stdio.h>
#include <string.h>

static CUcontext context;
static CUdevice device;

/* CUDA's codes for success and for a lack of memory are HIP's. */
int hipInit(unsigned flags)
{
    const CUresult rc = cuInit(flags);
    if (rc)
        return (int)rc;
    cuDeviceGet(&device, 0);
    return (int)cuDevicePrimaryCtxRetain(&context, device);
}

int hipDriverGetVersion(int *v) { return (int)cuDriverGetVersion(v); }
int hipGetDeviceCount(int *n) { return (int)cuDeviceGetCount(n); }
int hipSetDevice(int index) { return index ? 1 : (int)cuCtxSetCurrent(context); }
int hipDeviceGetName(char *name, int cap, int index) { return index ? 1 : (int)cuDeviceGetName(name, cap, device); }
int hipMemGetInfo(size_t *left, size_t *all) { return (int)cuMemGetInfo(left, all); }
int hipMalloc(void **addr, size_t bytes) { return (int)cuMemAlloc((CUdeviceptr *)addr, bytes); }
int hipFree(void *addr) { return (int)cuMemFree((CUdeviceptr)addr); }
int hipStreamCreate(CUstream *s) { return (int)cuStreamCreate(s, CU_STREAM_NON_BLOCKING); }
int hipStreamDestroy(CUstream s) { return (int)cuStreamDestroy(s); }
int hipStreamSynchronize(CUstream s) { return (int)cuStreamSynchronize(s); }
int hipModuleLoadData(CUmodule *m, const void *code) { return (int)cuModuleLoadData(m, code); }
int hipModuleUnload(CUmodule m) { return (int)cuModuleUnload(m); }
int hipModuleGetFunction(CUfunction *f, CUmodule m, const char *name) { return (int)cuModuleGetFunction(f, m, name); }

int hipMemGetAddressRange(void **base, size_t *bytes, void *addr)
{
    return (int)cuMemGetAddressRange((CUdeviceptr *)base, bytes, (CUdeviceptr)addr);
}

int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, CUstream s)
{
    return (int)(kind == 1 ? cuMemcpyHtoDAsync((CUdeviceptr)to, from, bytes, s)
                           : cuMemcpyDtoHAsync(to, (CUdeviceptr)from, bytes, s));
}

int hipModuleLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, CUstream s, void **args, void **extra)
{
    return (int)cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, args, extra);
}

const char *hipGetErrorString(int code)
{
    const char *text = NULL;
    return cuGetErrorString((CUresult)code, &text) == CUDA_SUCCESS && text ? text : "unknown error";
}

int hiprtcCreateProgram(nvrtcProgram *p, const char *text, const char *name, int n, const char **h, const char **names)
{
    return (int)nvrtcCreateProgram(p, text, name, n, h, names);
}

/* The options' meaning in NVRTC's words; its code is made for this GPU. */
int hiprtcCompileProgram(nvrtcProgram p, int n, const char **options)
{
    static char arch[32];
    static const char *const all[] = { arch, "--fmad=false", "--std=c++14" };
    int major, minor;
    (void)n, (void)options;
    cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d%d", major, minor);
    return (int)nvrtcCompileProgram(p, sizeof all / sizeof all[0], all);
}

int hiprtcGetProgramLogSize(nvrtcProgram p, size_t *bytes) { return (int)nvrtcGetProgramLogSize(p, bytes); }
int hiprtcGetProgramLog(nvrtcProgram p, char *log) { return (int)nvrtcGetProgramLog(p, log); }
int hiprtcGetCodeSize(nvrtcProgram p, size_t *bytes) { return (int)nvrtcGetCUBINSize(p, bytes); }
int hiprtcGetCode(nvrtcProgram p, char *code) { return (int)nvrtcGetCUBIN(p, code); }
int hiprtcDestroyProgram(nvrtcProgram *p) { return (int)nvrtcDestroyProgram(p); }
