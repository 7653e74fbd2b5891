/* dialect_metal.h: the portable kernels' words in MSL 3.  The shim (devices/metal/shim) reads this very file, and
 * brings a metal_stdlib of its own. */
#ifndef KVANT_PORTABLE_DIALECT_METAL_H
#define KVANT_PORTABLE_DIALECT_METAL_H

#include <metal_stdlib>
#ifndef KVANT_SHIM
#pragma METAL fp contract(off)
#endif
using namespace metal;

#define GLOBAL device
#define LOCAL threadgroup
#define OWN thread
#define CONST_TABLE constant
#define FN static inline

#define KERNEL(name) kernel void k_##name
#define BUFFER(type, name, index) device type *name [[buffer(index)]],
#define PARAMS(name, index)                                                                                            \
    constant p_##name &p [[buffer(index)]], uint3 group_at [[threadgroup_position_in_grid]],                           \
    uint3 thread_at [[thread_position_in_threadgroup]], uint team_at [[simdgroup_index_in_threadgroup]]
#define OPEN(type, name)
#ifndef KVANT_SHIM
#define LOCAL_ARRAY(type, name, n) threadgroup type name[n];
#define BARRIER() threadgroup_barrier(mem_flags::mem_threadgroup)
#define BARRIER_ALL() threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device)
#endif

#define GROUP_X ((int)group_at.x)
#define GROUP_Y ((int)group_at.y)
#define GROUP_Z ((int)group_at.z)
#define THREAD ((int)thread_at.x)
#define TEAM ((int)team_at)                /* of 32 threads, where the host says that there are matrices */

FN float port_bits(uint32_t u)
{
    return as_type<float>(u);
}

FN uint32_t port_word(float v)
{
    return as_type<uint32_t>(v);
}

#endif
