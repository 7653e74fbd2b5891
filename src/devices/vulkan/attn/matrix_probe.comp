#version 450
/* Finds the order of matrix elements on this device, by thread: row * columns + column of each.  The specification
 * leaves it open; attn_matrix needs the order that vk_matrix.c expects.  Without FAST: that order. */
#define SLOTS 1
#define ARGS ARGPTR y;
#include "devices/vulkan/core/kv.glsl"
#ifdef FAST
#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
layout(local_size_x = 32) in;
#ifdef FAST
shared float16_t s_half[256];
shared float s_float[128];

void main()
{
    const uint t = gl_LocalInvocationIndex, lane = gl_SubgroupInvocationID;
    fcoopmatNV<16, gl_ScopeSubgroup, 16, 16> a;
    fcoopmatNV<16, gl_ScopeSubgroup, 16, 8> b;
    fcoopmatNV<32, gl_ScopeSubgroup, 16, 8> c;
    for (uint i = t; i < 256u; i += 32u)
        s_half[i] = float16_t(i);
    for (uint i = t; i < 128u; i += 32u)
        s_float[i] = float(i);
    barrier();
    coopMatLoadNV(a, s_half, 0u, 16u, false);
    coopMatLoadNV(b, s_half, 0u, 8u, false);
    coopMatLoadNV(c, s_float, 0u, 8u, false);
    for (uint i = 0u; i < 8u; i++)
        st(P(0, y), lane * 16u + i, a.length() == 8 ? uint(a[i]) : 0u);
    for (uint i = 0u; i < 4u; i++) {
        st(P(0, y), lane * 16u + 8u + i, b.length() == 4 ? uint(b[i]) : 0u);
        st(P(0, y), lane * 16u + 12u + i, c.length() == 4 ? uint(c[i]) : 0u);
    }
}
#else
void main()
{
    const uint lane = gl_LocalInvocationIndex, g = lane / 4u, t = lane % 4u;
    for (uint i = 0u; i < 16u; i++)
        st(P(0, y), lane * 16u + i,
           i < 8u ? (g + 8u * (i / 4u)) * 16u + 2u * t + (i & 1u) + 8u * (i / 2u & 1u)
                  : (g + 8u * (i / 2u & 1u)) * 8u + 2u * t + (i & 1u));
}
#endif
