/* dialect_opencl.h: the portable kernels' words in OpenCL C 1.2.  A buffer is a cl_mem and a byte offset: sub-buffers
 * would have to be aligned. */
#ifndef KVANT_PORTABLE_DIALECT_OPENCL_H
#define KVANT_PORTABLE_DIALECT_OPENCL_H

#pragma OPENCL FP_CONTRACT OFF

typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;

#define GLOBAL __global
#define LOCAL __local
#define OWN __private
#define CONST_TABLE __constant
#define FN static inline

#define KERNEL(name) __kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void k_##name
#define BUFFER(type, name, index) __global type *name##_base, const int64_t name##_at,
#define PARAMS(name, index) const struct p_##name p
#define OPEN(type, name) __global type *name = (__global type *)((__global const uint8_t *)name##_base + name##_at);
#define LOCAL_ARRAY(type, name, n) __local type name[n];

#define GROUP_X ((int)get_group_id(0))
#define GROUP_Y ((int)get_group_id(1))
#define GROUP_Z ((int)get_group_id(2))
#define THREAD ((int)get_local_id(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define BARRIER_ALL() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

FN float port_bits(uint32_t u)
{
    return as_float(u);
}

FN uint32_t port_word(float v)
{
    return as_uint(v);
}

#endif
