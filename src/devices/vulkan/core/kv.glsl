/* kv.glsl: how every shader reaches memory and its arguments, in two forms.
 *
 * A shader defines ARGS (pointers as `ARGPTR name;` first, then 32-bit scalars), SLOTS (how many pointers) and, where
 * that is more than 128 bytes, BIG_ARGS; then it includes this file.  P(i, name) is pointer i; ld/st and their kin read
 * and write 32-bit words through it.
 *   FAST   pointers are device addresses; subgroup arithmetic may be used
 *   else   pointers are ranges of an array of storage buffers; no extension at all */
#extension GL_EXT_control_flow_attributes : enable
#ifdef FAST
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif

/* Threads of a workgroup, as vk_dev.h VK_GROUP; shaders of few, long rows define GROUP_SIZE WIDE_GROUP. */
#ifdef FAST
#define WIDE_GROUP 512
#else
#define WIDE_GROUP 128
#endif
#ifndef GROUP_SIZE
#define GROUP_SIZE 128
#endif
const uint GROUP = GROUP_SIZE;
const uint PAGE = 64u;

#ifdef FAST
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint w[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Pairs { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Quads { uvec4 v[]; };
#define PTR uint64_t               /* not a reference: glslang forgets to say how copies of those alias */
#define ARGPTR uint64_t
#ifdef BIG_ARGS
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Args { ARGS };
layout(push_constant) uniform Push { Args args; };
#else
layout(push_constant, std430) uniform Push { ARGS } args;
#endif
#define P(i, name) args.name
#define WORD(p, i) Words(p).w[i]

uvec2 ld2(PTR p, uint i)
{
    return Pairs(p).v[i];
}

uvec4 ld4(PTR p, uint i)
{
    return Quads(p).v[i];
}

void st4(PTR p, uint i, uvec4 v)
{
    Quads(p).v[i] = v;
}

PTR at(PTR p, uint words)
{
    return p + uint64_t(words) * 4ul;
}

PTR at_mul(PTR p, uint n, uint words)
{
    return p + uint64_t(n) * uint64_t(words) * 4ul;
}

/* n * each bytes on: the word there, and what is left over in bytes. */
PTR at_bytes(PTR p, uint n, uint each, out uint rest)
{
    const uint64_t o = uint64_t(n) * uint64_t(each);
    rest = uint(o) & 3u;
    return p + (o & ~3ul);
}
#else
#define PTR uvec2                  /* slot, first word */
#define ARGPTR uvec2
layout(set = 0, binding = 0, std430) buffer Mem { uint w[]; } mem[SLOTS];
layout(set = 0, binding = 0, std430) buffer Mem2 { uvec2 v[]; } mem2[SLOTS];
layout(set = 0, binding = 0, std430) buffer Mem4 { uvec4 v[]; } mem4[SLOTS];
#ifdef BIG_ARGS
layout(set = 0, binding = 1, std430) readonly buffer Args { ARGS } args;
#else
layout(push_constant, std430) uniform Push { ARGS } args;
#endif
#define P(i, name) uvec2(i, args.name.x >> 2)
#define WORD(p, i) mem[p.x].w[p.y + (i)]

uvec2 ld2(PTR p, uint i)
{
    return mem2[p.x].v[(p.y >> 1) + i];
}

uvec4 ld4(PTR p, uint i)
{
    return mem4[p.x].v[(p.y >> 2) + i];
}

void st4(PTR p, uint i, uvec4 v)
{
    mem4[p.x].v[(p.y >> 2) + i] = v;
}

PTR at(PTR p, uint words)
{
    return uvec2(p.x, p.y + words);
}

PTR at_mul(PTR p, uint n, uint words)
{
    return uvec2(p.x, p.y + n * words);
}

PTR at_bytes(PTR p, uint n, uint each, out uint rest)
{
    const uint o = n * each;
    rest = o & 3u;
    return uvec2(p.x, p.y + (o >> 2));
}
#endif

uint ld(PTR p, uint i)
{
    return WORD(p, i);
}

int ldi(PTR p, uint i)
{
    return int(WORD(p, i));
}

float ldf(PTR p, uint i)
{
    return uintBitsToFloat(WORD(p, i));
}

void st(PTR p, uint i, uint v)
{
    WORD(p, i) = v;
}

void stf(PTR p, uint i, float v)
{
    WORD(p, i) = floatBitsToUint(v);
}

/* Bytes at any alignment.  A word beyond the last byte may be read: allocations are padded. */
uint ld_u8(PTR p, uint b)
{
    return WORD(p, b >> 2) >> 8u * (b & 3u) & 255u;
}

uint ld_u32(PTR p, uint b)
{
    const uint s = 8u * (b & 3u), lo = WORD(p, b >> 2);
    return s == 0u ? lo : lo >> s | WORD(p, (b >> 2) + 1u) << (32u - s);
}

uint ld_u16(PTR p, uint b)
{
    return (b & 3u) != 3u ? WORD(p, b >> 2) >> 8u * (b & 3u) & 0xffffu : ld_u32(p, b) & 0xffffu;
}

/* Two bytes at an even one. */
uint ld_even(PTR p, uint b)
{
    return WORD(p, b >> 2) >> 8u * (b & 2u) & 0xffffu;
}

/* Writes the bytes of `mask` (whole bytes of a word) and leaves the others to whoever writes them. */
void st_part(PTR p, uint i, uint v, uint mask)
{
    if (mask == 0xffffffffu) {
        WORD(p, i) = v;
        return;
    }
    atomicAnd(WORD(p, i), ~mask);
    atomicOr(WORD(p, i), v & mask);
}

/* n <= 4 bytes of v at byte b. */
void st_bytes(PTR p, uint b, uint v, uint n)
{
    const uint s = 8u * (b & 3u), mask = n == 4u ? 0xffffffffu : (1u << 8u * n) - 1u;
    st_part(p, b >> 2, v << s, mask << s);
    if (8u * n > 32u - s)
        st_part(p, (b >> 2) + 1u, v >> (32u - s), mask >> (32u - s));
}

/* 1 if the device keeps subnormal halves, so that its own conversion is exact; set for every shader. */
layout(constant_id = 31) const uint HALVES = 0u;

/* Exact; by integers without branches or subnormal floats. */
float half_of(uint h)
{
    if (HALVES != 0u)
        return unpackHalf2x16(h & 0xffffu).x;
    const uint t = (h & 0x7fffu) << 13;
    const bool small = t < 0x00800000u;    /* subnormal: 1.m - 1 at the least exponent */
    const uint b = t + 0x38000000u + (small ? 0x00800000u : 0u) + (t >= 0x0f800000u ? 0x38000000u : 0u) |
                   (t > 0x0f800000u ? 0x400000u : 0u);
    const float f = uintBitsToFloat(b) - (small ? uintBitsToFloat(0x38800000u) : 0.0);
    return uintBitsToFloat(floatBitsToUint(f) | (h & 0x8000u) << 16);
}

float bf16_of(uint b)
{
    return uintBitsToFloat(b << 16);
}

/* Half of 2^(e - 127). */
float e8m0_half(uint e)
{
    return uintBitsToFloat(e < 2u ? 0x00200000u << e : e - 1u << 23);
}

/* To f16, nearest even, by integers: what a driver does with subnormals is its own affair. */
uint to_half(float f)
{
    const uint u = floatBitsToUint(f), s = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return s | 0x7e00u | (a >> 13 & 0x1ffu);
    if (a >= 0x477ff000u)
        return s | 0x7c00u;
    if (a < 0x38800000u) {
        precise float t = uintBitsToFloat(a) + 0.5;        /* adds at 2^-24: rounds to nearest even */
        return s | (floatBitsToUint(t) - 0x3f000000u);
    }
    return s | (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13;
}

uint to_bf16(float f)
{
    const uint u = floatBitsToUint(f);
    return (u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : u + 0x7fffu + (u >> 16 & 1u) >> 16;
}

bool is_nan(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

#define NEG_INF uintBitsToFloat(0xff800000u)
#define NOT_A_NUMBER uintBitsToFloat(0x7fc00000u)

float sigmoid(float x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* Workgroup number of a one-dimensional job, whose groups may be folded over y. */
uint group_at()
{
    return gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
}
