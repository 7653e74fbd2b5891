/* trellis_walk.cuh: two walks through the trellis of turbo3_tcq at once, for `best`: of the same values times two
 * factors, one in each half of a word (docs/formats/encoders.md).
 *
 * A cost is 13 bits above three that say which of eight predecessors it came by, so the least of sums is the choice
 * too.  With Y a value and C the level of a state, both in steps, it is half of the square: (Y - C)^2 / 2 = Y (-C) +
 * C^2 / 2 + Y^2 / 2.  One product of both values' word with -C, and a constant added, are the first two terms of both
 * walks; the last one is the same for all states and has been added to the costs before.  A half must not reach into
 * the other: trellis_all_hold proves it.
 *
 * The levels of a branch's eight predecessors ascend, so a value needs only those around it, at most five: which ones
 * depends on the value alone, so it is the same for the whole warp (trellis_spans). */
#ifndef KVANT_CUDA_TRELLIS_WALK_CUH
#define KVANT_CUDA_TRELLIS_WALK_CUH

#include "devices/cuda/encode/trellis/trellis_exact.cuh"

enum { TRELLIS_STATES = 8 * TCQ_BRANCHES };

/* Steps of a length of 1: 38 of a root mean square.  Values end at 3.3 of it, where the levels do. */
enum { TRELLIS_STEPS = 430, TRELLIS_END = 125 };

/* ADD is added to the first two terms, or they would be less than 0; SLACK to all three, for the loss by rounding;
 * costs end at TOP. */
enum { TRELLIS_ADD = 2530, TRELLIS_SLACK = 2, TRELLIS_TOP = 1900 };

/* Both values in a word, the second one above. */
static __host__ __device__ constexpr int32_t trellis_word(int first, int second)
{
    return second * 65536 + first;
}

/* ---- the states' numbers ---- */

/* c: -8 C; k, in both halves: 8 (C^2 / 2 + TRELLIS_ADD) + the predecessor's number.  All modulo 2^32. */
typedef struct trellis_table {
    uint32_t c[TRELLIS_STATES], k[TRELLIS_STATES];
} trellis_table;

static constexpr int trellis_round(double x)
{
    return (int)(x < 0 ? x - 0.5 : x + 0.5);
}

static constexpr float trellis_book[TRELLIS_STATES] = { TCQ_CODEBOOK };

/* -C of a state, rounded, and its constant, which makes the cost right at the level itself. */
static constexpr int trellis_level(int s)
{
    return trellis_round(-(double)trellis_book[s] * (int)TRELLIS_STEPS);
}

static constexpr int trellis_constant(int s)
{
    const double level = (double)trellis_book[s] * (int)TRELLIS_STEPS;
    return trellis_round(-level * trellis_level(s) - level * level / 2) + TRELLIS_ADD;
}

static constexpr trellis_table trellis_make(void)
{
    trellis_table t = {};
    for (int s = 0; s < TRELLIS_STATES; s++) {
        t.c[s] = (uint32_t)(8 * trellis_level(s));
        t.k[s] = (uint32_t)(8 * trellis_constant(s) + s % 8) * 65537u;
    }
    return t;
}

static __device__ const trellis_table trellis_dev = trellis_make();

/* ---- which predecessors ---- */

/* A span of second values from .. to, and of their negatives with predecessors counted from the other end.  more: added
 * too. */
typedef struct trellis_span {
    int from, to, first, last, more;
} trellis_span;

static constexpr trellis_span trellis_spans[] = {
    { 0, 18, 2, 6, 0 }, { 19, 48, 3, 7, 0 }, { 49, 71, 5, 7, 0 }, { 72, TRELLIS_END, 6, 7, 5500 },
};

/* Returns true if a state's cost for a value stays in its half, before and after Y^2 / 2 and the last cost come. */
static constexpr bool trellis_holds(int s, int y, int more)
{
    const int p = y * trellis_level(s) + trellis_constant(s) + more;
    const int d = p - TRELLIS_ADD - more + (y * y + 1) / 2 + TRELLIS_SLACK;
    return p >= 0 && p < 8192 && d >= 0 && d + TRELLIS_TOP < 8192;
}

/* For values from .. to, in size: a cost is largest at an end and least at the level. */
static constexpr bool trellis_span_holds(const trellis_span &o, int s, int sign, int from, int to)
{
    const int level = -sign * trellis_level(s), at = level < from ? from : level > to ? to : level;
    return trellis_holds(s, sign * from, o.more) && trellis_holds(s, sign * to, o.more) &&
           trellis_holds(s, sign * at, o.more);
}

static constexpr bool trellis_state_holds(const trellis_span &o, int b, int q, int sign)
{
    const int s = 8 * b + (sign > 0 ? q : 7 - q), low = trellis_round((o.from - .5) * .95 / 1.08);
    const int high = o.to == TRELLIS_END ? o.to : trellis_round((o.to + .5) * .95 / 1.08);
    return trellis_span_holds(o, s, sign, o.from, o.to) && trellis_span_holds(o, s, sign, low, high);
}

static constexpr bool trellis_all_hold(void)
{
    for (const trellis_span &o : trellis_spans)
        for (int b = 0; b < TCQ_BRANCHES; b++)
            for (int q = o.first; q <= o.last; q++)
                if (!trellis_state_holds(o, b, q, 1) || !trellis_state_holds(o, b, q, -1))
                    return false;
    return true;
}
static_assert(trellis_all_hold());

/* ---- a walk ---- */

/* Costs of the branches before a value, in both halves, Y^2 / 2 and what else is to come added; branch p lies where the
 * lanes that read 8 g .. 8 g + 3 or the four behind, and those that write, meet no bank twice. */
static __device__ __forceinline__ int trellis_at(int p)
{
    const int g = p / 8, h = p / 4 % 2;
    return 4 * (8 * h + (g ^ 4 * h)) + p % 4;
}

/* This lane's part of the tables: its branches are lane and lane + 32. */
typedef struct trellis_lane {
    uint32_t c[2][8], k[2][8];
} trellis_lane;

static __device__ __forceinline__ void trellis_load(trellis_lane &o, int lane)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = 2 * (lane + i / 2 * 32) + i % 2;
        const uint4 c = ((const uint4 *)trellis_dev.c)[at];
        const uint4 k = ((const uint4 *)trellis_dev.k)[at];
        uint32_t *oc = &o.c[i / 2][i % 2 * 4], *ok = &o.k[i / 2][i % 2 * 4];
        oc[0] = c.x, oc[1] = c.y, oc[2] = c.z, oc[3] = c.w;
        ok[0] = k.x, ok[1] = k.y, ok[2] = k.z, ok[3] = k.w;
    }
}

/* Words A to B of the four at `at`; more may be read. */
template <int A, int B> static __device__ __forceinline__ void trellis_read(const uint32_t *at, uint32_t *v)
{
    if constexpr (A == B) {
        v[A] = at[A];
    } else if constexpr (A / 2 == B / 2) {
        const uint2 u = ((const uint2 *)at)[A / 2];
        v[A / 2 * 2] = u.x, v[A / 2 * 2 + 1] = u.y;
    } else if constexpr (A < B) {
        const uint4 u = *(const uint4 *)at;
        v[0] = u.x, v[1] = u.y, v[2] = u.z, v[3] = u.w;
    }
}

/* The least costs of both branches behind a value, by the predecessors of a span. */
template <int SPAN, bool NEGATIVE>
static __device__ __forceinline__ void trellis_least(const trellis_lane &o, const uint32_t *cost, int32_t y,
                                                     uint32_t *best)
{
    constexpr trellis_span span = trellis_spans[SPAN];
    constexpr int first = NEGATIVE ? 7 - span.last : span.first, last = NEGATIVE ? 7 - span.first : span.last;
    constexpr uint32_t more = span.more * 8 * 65537u;
    const int g = threadIdx.x % 8;
    uint32_t before[8];
    trellis_read<first, last < 3 ? last : 3>(cost + 4 * g, before);
    trellis_read<first < 4 ? 0 : first - 4, last - 4>(cost + 32 + 4 * (g ^ 4), before + 4);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        best[i] = TRELLIS_TOP * 8 * 65537u;
#pragma unroll
        for (int q = first; q <= last; q++)
            best[i] = __viaddmin_u16x2((uint32_t)y * o.c[i][q] + (o.k[i][q] + more), before[q], best[i]);
    }
}

/* As trellis_least, by the predecessors near the value. */
template <bool NEGATIVE>
static __device__ __forceinline__ void trellis_near(const trellis_lane &o, const uint32_t *cost, int32_t y,
                                                    uint32_t *best)
{
    constexpr int second = trellis_spans[1].from << 16, third = trellis_spans[2].from << 16;
    constexpr int fourth = trellis_spans[3].from << 16;
    const int size = NEGATIVE ? ~y : y;
    if (size < second)
        trellis_least<0, NEGATIVE>(o, cost, y, best);
    else if (size < third)
        trellis_least<1, NEGATIVE>(o, cost, y, best);
    else if (size < fourth)
        trellis_least<2, NEGATIVE>(o, cost, y, best);
    else
        trellis_least<3, NEGATIVE>(o, cost, y, best);
}

#endif
