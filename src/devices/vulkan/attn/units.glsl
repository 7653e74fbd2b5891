/* units.glsl: matrix units as wide.glsl uses them: a team (subgroup) multiplies 16 x 16 halves from the left by
 * 16 x 16 from the right into f32.  Left ones and sums pass through the team's rows in s_sum, right ones come from
 * s_tile: turned for keys (a row of the tile is a column), straight for values.
 * Without FAST a thread has eight elements of a row and the products are made one by one, so that any driver can check
 * the indices. */
#include "devices/vulkan/core/team.glsl"
#ifdef FAST
#ifdef KHR
layout(constant_id = 4) const uint RIGHT_COLUMNS = 16u;
#else
#define RIGHT_COLUMNS 16
#endif
#define LEFT fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>
#define RIGHT fcoopmatNV<16, gl_ScopeSubgroup, 16, RIGHT_COLUMNS>
#define SUMS fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define SUMS_ZERO SUMS(0.0)
#define RIGHT_ONES RIGHT(1.0)
#define left_load(m, at) coopMatLoadNV(m, s_sum, at, SUM_PITCH, false)
#define right_load(m, at, turned) coopMatLoadNV(m, s_tile, at, PITCH, turned)
#define sums_load(m, at) coopMatLoadNV(m, s_sum, at, SUM_PITCH, false)
#define sums_store(m, at) coopMatStoreNV(m, s_sum, at, SUM_PITCH, false)
#define mat_product(a, b, c) coopMatMulAddNV(a, b, c)
#define any_of(x) (subgroupMax(x ? 1u : 0u) != 0u)
#define UNROLL [[unroll]]
#else
#define LEFT uvec4
#define RIGHT uvec2                /* place, how: 0 straight, 1 turned, 2 all ones */
#define SUMS float[8]
#define SUMS_ZERO float[8](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
#define RIGHT_ONES uvec2(0u, 2u)
#define left_load(m, at) m = s_sum[(at) + LANE / 2u * SUM_PITCH + (LANE & 1u)]
#define right_load(m, at, turned) m = uvec2(at, turned ? 1u : 0u)
#define any_of(x) true             /* the products have barriers: all threads make them */
#define UNROLL
shared uvec4 s_left[128];

float half_at(uvec4 quad, uint i)
{
    return unpackHalf2x16(quad[i / 2u])[i & 1u];
}

float right_at(uvec2 b, uint k, uint n)
{
    if (b.y == 0u)
        return half_at(s_tile[b.x + k * PITCH + n / 8u], n % 8u);
    return b.y == 1u ? half_at(s_tile[b.x + n * PITCH + k / 8u], k % 8u) : 1.0;
}

float[8] mat_product(uvec4 a, uvec2 b, float c[8])
{
    const uint t = gl_LocalInvocationIndex;
    barrier();
    s_left[t] = a;
    barrier();
    for (uint k = 0u; k < 16u; k++) {
        const float x = half_at(s_left[(t & ~1u) + k / 8u], k % 8u);
        for (uint e = 0u; e < 8u; e++)
            c[e] += x * right_at(b, k, (t & 1u) * 8u + e);
    }
    return c;
}

void sums_store(float c[8], uint at)
{
    const uint to = at + LANE / 2u * SUM_PITCH + (LANE & 1u) * 2u;
    s_sum[to] = floatBitsToUint(vec4(c[0], c[1], c[2], c[3]));
    s_sum[to + 1u] = floatBitsToUint(vec4(c[4], c[5], c[6], c[7]));
}

void sums_load(out float c[8], uint at)
{
    for (uint e = 0u; e < 8u; e++)
        c[e] = uintBitsToFloat(s_sum[at + LANE / 2u * SUM_PITCH + (LANE & 1u) * 2u + e / 4u][e & 3u]);
}
#endif
