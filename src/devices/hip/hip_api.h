/* hip_api.h: the functions of HIP's driver part and of hiprtc that this device calls, declared here so that a build
 * needs no headers, and taken from libamdhip64 (ROCm 5 to 7; hiprtc is a library of its own from ROCm 5.3 on) when
 * a device is opened. No struct of HIP is used: their layouts changed between versions. */
#ifndef KVANT_DEVICES_HIP_API_H
#define KVANT_DEVICES_HIP_API_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/error.h"

typedef struct hip_stream_s *hip_stream;
typedef struct hip_module_s *hip_module;
typedef struct hip_function_s *hip_function;
typedef struct hiprtc_program_s *hiprtc_program;

enum { HIP_SUCCESS = 0, HIP_OUT_OF_MEMORY = 2, HIP_COPY_TO_DEVICE = 1, HIP_COPY_TO_HOST = 2 };

/* F(returns, name, arguments) */
#define HIP_FUNCTIONS(F)                                                                                              \
    F(int, hipInit, (unsigned flags))                                                                                 \
    F(int, hipDriverGetVersion, (int *version))                                                                       \
    F(int, hipGetDeviceCount, (int *n))                                                                               \
    F(int, hipSetDevice, (int device))                                                                                \
    F(int, hipDeviceGetName, (char *name, int cap, int device))                                                       \
    F(int, hipMemGetInfo, (size_t *free, size_t *total))                                                              \
    F(int, hipMalloc, (void **addr, size_t bytes))                                                                    \
    F(int, hipFree, (void *addr))                                                                                     \
    F(int, hipMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, hip_stream s))                        \
    F(int, hipMemGetAddressRange, (void **base, size_t *bytes, void *addr))                                           \
    F(int, hipStreamCreate, (hip_stream *s))                                                                          \
    F(int, hipStreamDestroy, (hip_stream s))                                                                          \
    F(int, hipStreamSynchronize, (hip_stream s))                                                                      \
    F(int, hipModuleLoadData, (hip_module *m, const void *code))                                                      \
    F(int, hipModuleUnload, (hip_module m))                                                                           \
    F(int, hipModuleGetFunction, (hip_function *f, hip_module m, const char *name))                                   \
    F(int, hipModuleLaunchKernel, (hip_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,   \
                                   unsigned bz, unsigned shared, hip_stream s, void **args, void **extra))            \
    F(const char *, hipGetErrorString, (int code))                                                                    \
    F(int, hiprtcCreateProgram, (hiprtc_program *p, const char *text, const char *name, int n, const char **headers,  \
                                 const char **names))                                                                 \
    F(int, hiprtcCompileProgram, (hiprtc_program p, int n, const char **options))                                     \
    F(int, hiprtcGetProgramLogSize, (hiprtc_program p, size_t *bytes))                                                \
    F(int, hiprtcGetProgramLog, (hiprtc_program p, char *log))                                                        \
    F(int, hiprtcGetCodeSize, (hiprtc_program p, size_t *bytes))                                                      \
    F(int, hiprtcGetCode, (hiprtc_program p, char *code))                                                             \
    F(int, hiprtcDestroyProgram, (hiprtc_program *p))

typedef struct hip_api {
#define HIP_FUNCTION_FIELD(returns, name, args) returns (*name) args;
    HIP_FUNCTIONS(HIP_FUNCTION_FIELD)
#undef HIP_FUNCTION_FIELD
} hip_api;

/* KVANT_HIP_LIBRARY=FILE is opened instead of libamdhip64, for tests.  KVANT_EDEVICE where there is no library, or one
 * without these functions. */
int hip_api_open(hip_api *api, kvant_diag *diag);

#endif
