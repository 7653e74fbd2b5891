/* matrix.glsl: matmul of many rows on matrix units: rows of halves (rows_half) times rows of halves, sums in f32.  A workgroup makes TO
 * outputs of TR rows, a team (subgroup) TEAM_O x TEAM_R of them; both sides pass through shared memory, STEP values of
 * the inner dimension at a time, the next ones being on their way.  y = sum * scales of both rows * scale.
 * Workgroups next to each other share weights: those are read from memory once.
 * HAS_IDS: a tile of rows is one of experts_sort, w has the experts from first_expert on; rows of x are slots / x_div.
 * Without FAST the products are made one by one, so that any driver can check the indices. */
#define SLOTS 8
#define ARGS ARGPTR w; ARGPTR w_scale; ARGPTR x; ARGPTR x_scale; ARGPTR scale; ARGPTR y; ARGPTR order; ARGPTR tiles; \
    uint n; uint rows; uint steps; uint ldy; uint n_scale; uint out_from; uint x_div; uint first_expert; uint experts;
#ifdef FAST
layout(constant_id = 5) const uint THREADS = 128u;
layout(local_size_x_id = 5) in;
#define GROUP_SIZE THREADS
#endif
#include "devices/vulkan/core/kv.glsl"
#include "devices/vulkan/core/team.glsl"
#ifdef FAST
#define MAT_W fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>
#ifdef KHR
layout(constant_id = 6) const uint RIGHT_COLUMNS = 16u;
#else
#define RIGHT_COLUMNS 16
#endif
#define MAT_X fcoopmatNV<16, gl_ScopeSubgroup, 16, RIGHT_COLUMNS>
#define MAT_Y fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define MAT_Y_ZERO MAT_Y(0.0)
#define mat_load(m, at, turned) coopMatLoadNV(m, s_tile, at, PITCH, turned)
#define mat_product(a, b, c) coopMatMulAddNV(a, b, c)
#define mat_store(m, at) coopMatStoreNV(m, s_tile, at, PITCH, true)
#else
layout(local_size_x = 128) in;
#define MAT_W uint
#define MAT_X uint
#define MAT_Y float[8]
#define MAT_Y_ZERO float[8](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
#define mat_load(m, at, turned) m = at
#endif
layout(constant_id = 0) const uint TO = 64u;
layout(constant_id = 1) const uint TR = 64u;
layout(constant_id = 2) const uint TEAM_O = 32u;
layout(constant_id = 3) const uint TEAM_R = 32u;
layout(constant_id = 4) const uint AREAS = 2u;             /* one is read while the other is filled; or 1 */
layout(constant_id = 7) const uint HAS_IDS = 0u;
const uint QUADS = 8u, PITCH = 9u;         /* of a row in a tile: eight halves each, and one more against bank conflicts */
const uint AREA = (TO + TR) * PITCH, LOADS_W = TO * QUADS / GROUP, LOADS_X = TR * QUADS / GROUP;
const uint PARTS_O = TEAM_O / 16u, PARTS_R = TEAM_R / 16u;
shared uvec4 s_tile[AREAS * AREA];         /* weights, then activations; at the end, of each team, 16 x 16 sums */

#ifndef FAST
vec2 halves_at(uint row, uint k)
{
    return unpackHalf2x16(s_tile[row + k / 8u][k % 8u / 2u]);
}

/* A thread has eight sums of one output. */
float[8] mat_product(uint w, uint x, float y[8])
{
    const uint o = w + LANE / 2u * PITCH;
    for (uint e = 0u; e < 8u; e++)
        for (uint k = 0u; k < 16u; k += 2u)
            y[e] += dot(halves_at(o, k), halves_at(x + ((LANE & 1u) * 8u + e) * PITCH, k));
    return y;
}

void mat_store(float y[8], uint to)
{
    const uint o = LANE / 2u;
    for (uint e = 0u; e < 8u; e++)
        s_tile[to + ((LANE & 1u) * 8u + e) * PITCH + o / 4u][o & 3u] = floatBitsToUint(y[e]);
}
#endif

/* A workgroup makes this: rows lo .. hi-1 (in `order`, if that is given) of an expert, outputs from o0 on. */
struct job { uint expert, lo, hi, o0; };

uint row_at(uint place)
{
    return HAS_IDS != 0u ? ld(P(6, order), place) : place;
}

/* Finds the begins of this thread's parts of both tiles; a row behind the last is the last again. */
void find_rows(job j, out uint w_at[LOADS_W], out uint x_at[LOADS_X])
{
    [[unroll]] for (uint i = 0u; i < LOADS_W; i++) {
        const uint u = gl_LocalInvocationIndex + i * GROUP, row = min(j.o0 + u / QUADS, args.n - 1u);
        w_at[i] = (j.expert * args.n + row) * args.steps * QUADS + u % QUADS;
    }
    [[unroll]] for (uint i = 0u; i < LOADS_X; i++) {
        const uint u = gl_LocalInvocationIndex + i * GROUP, row = row_at(min(j.lo + u / QUADS, j.hi - 1u));
        x_at[i] = row / args.x_div * args.steps * QUADS + u % QUADS;
    }
}

void fetch(uint w_at[LOADS_W], uint x_at[LOADS_X], uint s, out uvec4 w[LOADS_W], out uvec4 x[LOADS_X])
{
    [[unroll]] for (uint i = 0u; i < LOADS_W; i++)
        w[i] = ld4(P(0, w), w_at[i] + s * QUADS);
    [[unroll]] for (uint i = 0u; i < LOADS_X; i++)
        x[i] = ld4(P(2, x), x_at[i] + s * QUADS);
}

void put(uint area, uvec4 w[LOADS_W], uvec4 x[LOADS_X])
{
    [[unroll]] for (uint i = 0u; i < LOADS_W; i++) {
        const uint u = gl_LocalInvocationIndex + i * GROUP;
        s_tile[area + u / QUADS * PITCH + u % QUADS] = w[i];
    }
    [[unroll]] for (uint i = 0u; i < LOADS_X; i++) {
        const uint u = gl_LocalInvocationIndex + i * GROUP;
        s_tile[area + (TO + u / QUADS) * PITCH + u % QUADS] = x[i];
    }
}

/* The 16 x 16 sums at `at`, of outputs o .. and the rows from place r on. */
void write_out(job j, uint at, uint o, uint r, float scale)
{
    for (uint u = LANE; u < 256u; u += LANES) {
        const uint to = o + u % 16u, place = r + u / 16u;
        if (to < args.n && place < j.hi) {
            const uint row = row_at(place);
            const float sum = uintBitsToFloat(s_tile[at + u / 16u * PITCH + u % 16u / 4u][u & 3u]);
            stf(P(5, y), row * args.ldy + args.out_from + to,
                sum * ldf(P(1, w_scale), j.expert * args.n + to) * ldf(P(3, x_scale), row / args.x_div) * scale);
        }
    }
}

/* False: this tile is another dispatch's, or none. */
bool find_job(out job j)
{
    const uint tile = gl_WorkGroupID.x;
    j = job(0u, tile * TR, min(tile * TR + TR, args.rows), gl_WorkGroupID.y * TO);
    if (HAS_IDS == 0u)
        return true;
    if (tile >= ld(P(7, tiles), 0u))
        return false;
    j.expert = ld(P(7, tiles), 1u + 3u * tile) - args.first_expert;    /* wraps below the first */
    j.lo = ld(P(7, tiles), 2u + 3u * tile);
    j.hi = ld(P(7, tiles), 3u + 3u * tile);
    return j.expert < args.experts;
}

void main()
{
    const uint team_o = TEAM % (TO / TEAM_O) * TEAM_O, team_r = TEAM / (TO / TEAM_O) * TEAM_R;
    job j;
    if (!find_job(j))
        return;
    uint w_at[LOADS_W], x_at[LOADS_X];
    uvec4 w[LOADS_W], x[LOADS_X];
    MAT_Y y[PARTS_O * PARTS_R];
    find_rows(j, w_at, x_at);
    [[unroll]] for (uint i = 0u; i < PARTS_O * PARTS_R; i++)
        y[i] = MAT_Y_ZERO;
    fetch(w_at, x_at, 0u, w, x);
    put(0u, w, x);
    for (uint s = 0u; s < args.steps; s++) {
        const uint area = s % AREAS * AREA;
        barrier();
        fetch(w_at, x_at, min(s + 1u, args.steps - 1u), w, x);
        [[unroll]] for (uint k = 0u; k < QUADS; k += 2u) {
            MAT_W a[PARTS_O];
            [[unroll]] for (uint i = 0u; i < PARTS_O; i++)
                mat_load(a[i], area + (team_o + 16u * i) * PITCH + k, false);
            [[unroll]] for (uint r = 0u; r < PARTS_R; r++) {
                MAT_X b;
                mat_load(b, area + (TO + team_r + 16u * r) * PITCH + k, true);
                [[unroll]] for (uint i = 0u; i < PARTS_O; i++)
                    y[r * PARTS_O + i] = mat_product(a[i], b, y[r * PARTS_O + i]);
            }
        }
        if (AREAS == 1u)
            barrier();
        put((s + 1u) % AREAS * AREA, w, x);
    }
    barrier();
    const float scale =
        args.n_scale == 0u ? 1.0 : ldf(P(4, scale), args.n_scale > 1u ? args.first_expert + j.expert : 0u);
    const uint mine = TEAM * 16u * PITCH;
    [[unroll]] for (uint r = 0u; r < PARTS_R; r++)
        [[unroll]] for (uint i = 0u; i < PARTS_O; i++) {
            mat_store(y[r * PARTS_O + i], mine);
            team_wait();
            write_out(j, mine, j.o0 + team_o + 16u * i, j.lo + team_r + 16u * r, scale);
            team_wait();
        }
}
