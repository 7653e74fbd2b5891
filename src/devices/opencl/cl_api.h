/* cl_api.h: the functions of OpenCL 1.2 that this device calls, declared here so that a build needs no headers, and
 * taken from libOpenCL.so.1 (the ICD loader) when a device is opened. */
#ifndef KVANT_DEVICES_CL_API_H
#define KVANT_DEVICES_CL_API_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/error.h"

typedef struct cl_platform_s *cl_platform;
typedef struct cl_device_s *cl_device_id;
typedef struct cl_context_s *cl_context;
typedef struct cl_queue_s *cl_queue;
typedef struct cl_mem_s *cl_mem;
typedef struct cl_program_s *cl_program;
typedef struct cl_kernel_s *cl_kernel;
typedef struct cl_event_s *cl_event;

enum {
    CL_SUCCESS = 0, CL_MEM_OBJECT_ALLOCATION_FAILURE = -4, CL_OUT_OF_RESOURCES = -5, CL_OUT_OF_HOST_MEMORY = -6,
    CL_PLATFORM_NOT_FOUND_KHR = -1001,
    CL_TYPE_CPU = 1 << 1, CL_TYPE_GPU = 1 << 2, CL_TYPE_ALL = -1,
    CL_DEVICE_TYPE = 0x1000, CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002, CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010, CL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023, CL_DEVICE_ENDIAN_LITTLE = 0x1026,
    CL_DEVICE_NAME = 0x102b, CL_DRIVER_VERSION = 0x102d, CL_DEVICE_VERSION = 0x102f, CL_DEVICE_EXTENSIONS = 0x1030,
    CL_PROGRAM_BUILD_LOG = 0x1183, CL_MEM_READ_WRITE = 1, CL_QUEUE_PROFILING = 1 << 1,
    CL_PROFILING_START = 0x1282, CL_PROFILING_END = 0x1283,
};

typedef void (*cl_notify)(void);

/* F(returns, name, arguments): without the prefix "cl". */
#define CL_FUNCTIONS(F)                                                                                               \
    F(int32_t, GetPlatformIDs, (uint32_t n, cl_platform *out, uint32_t *count))                                       \
    F(int32_t, GetDeviceIDs, (cl_platform p, uint64_t type, uint32_t n, cl_device_id *out, uint32_t *count))          \
    F(int32_t, GetDeviceInfo, (cl_device_id d, uint32_t what, size_t bytes, void *out, size_t *size))                 \
    F(cl_context, CreateContext, (const intptr_t *properties, uint32_t n, const cl_device_id *d, cl_notify notify,    \
                                  void *user, int32_t *rc))                                                           \
    F(int32_t, ReleaseContext, (cl_context c))                                                                        \
    F(cl_queue, CreateCommandQueue, (cl_context c, cl_device_id d, uint64_t properties, int32_t *rc))                 \
    F(int32_t, ReleaseCommandQueue, (cl_queue q))                                                                     \
    F(cl_mem, CreateBuffer, (cl_context c, uint64_t flags, size_t bytes, void *host, int32_t *rc))                    \
    F(int32_t, ReleaseMemObject, (cl_mem m))                                                                          \
    F(int32_t, EnqueueWriteBuffer, (cl_queue q, cl_mem m, uint32_t blocking, size_t at, size_t bytes, const void *p,  \
                                    uint32_t n, const cl_event *wait, cl_event *event))                               \
    F(int32_t, EnqueueReadBuffer, (cl_queue q, cl_mem m, uint32_t blocking, size_t at, size_t bytes, void *p,         \
                                   uint32_t n, const cl_event *wait, cl_event *event))                                \
    F(int32_t, EnqueueCopyBuffer, (cl_queue q, cl_mem from, cl_mem to, size_t from_at, size_t to_at, size_t bytes,    \
                                   uint32_t n, const cl_event *wait, cl_event *event))                                \
    F(cl_program, CreateProgramWithSource, (cl_context c, uint32_t n, const char **texts, const size_t *lengths,      \
                                            int32_t *rc))                                                             \
    F(int32_t, BuildProgram, (cl_program p, uint32_t n, const cl_device_id *d, const char *options, cl_notify notify, \
                              void *user))                                                                            \
    F(int32_t, GetProgramBuildInfo, (cl_program p, cl_device_id d, uint32_t what, size_t bytes, void *out,            \
                                     size_t *size))                                                                   \
    F(int32_t, ReleaseProgram, (cl_program p))                                                                        \
    F(cl_kernel, CreateKernel, (cl_program p, const char *name, int32_t *rc))                                         \
    F(int32_t, SetKernelArg, (cl_kernel k, uint32_t i, size_t bytes, const void *value))                              \
    F(int32_t, ReleaseKernel, (cl_kernel k))                                                                          \
    F(int32_t, EnqueueNDRangeKernel, (cl_queue q, cl_kernel k, uint32_t dims, const size_t *from, const size_t *size, \
                                      const size_t *group, uint32_t n, const cl_event *wait, cl_event *event))        \
    F(int32_t, GetEventProfilingInfo, (cl_event e, uint32_t what, size_t bytes, void *out, size_t *size))             \
    F(int32_t, ReleaseEvent, (cl_event e))                                                                            \
    F(int32_t, Flush, (cl_queue q))                                                                                   \
    F(int32_t, Finish, (cl_queue q))

typedef struct cl_api {
#define CL_FUNCTION_FIELD(returns, name, args) returns (*name) args;
    CL_FUNCTIONS(CL_FUNCTION_FIELD)
#undef CL_FUNCTION_FIELD
} cl_api;

/* KVANT_EDEVICE where there is no loader, or one without these functions. */
int cl_api_open(cl_api *api, kvant_diag *diag);

#endif
