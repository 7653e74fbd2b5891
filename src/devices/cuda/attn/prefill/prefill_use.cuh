/* prefill_use.cuh: the users of attn_prefill.cu: warpgroups that own 64 query rows each and multiply tiles of keys. */
#ifndef KVANT_CUDA_PREFILL_USE_CUH
#define KVANT_CUDA_PREFILL_USE_CUH

#include "devices/cuda/attn/prefill/prefill_make.cuh"
#include "devices/cuda/attn/softmax_state.cuh"
#include "devices/cuda/core/step.cuh"

enum { PANEL = KEYS * 128 }; /* bytes of 64 columns of a tile */

template <int D> struct rows_state : softmax_state<D / 8> {};

/* Finds a row of the block's tile: query row r is token `i` and head `g` of the group; false: nothing is there. */
static __device__ __forceinline__ bool row_of(const prefill_job &p, const tile &t, int kv_tile, int r, int *token,
                                              int *head)
{
    const int group = p.h / p.h_kv, i = r / p.heads, g = kv_tile % p.head_tiles * p.heads + r % p.heads;
    *token = t.first + i;
    *head = kv_tile / p.head_tiles * group + g;
    return i < t.count && g < group && r < p.tokens * p.heads;
}

/* A lane's operands of the 16 rows from `first` on, from halves. */
template <int W>
static __device__ __forceinline__ void rows_load(const prefill_job &p, const tile &t, int kv_tile, const uint16_t *from,
                                                 uint32_t (*q)[4], int first, int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int token, head;
        const bool live = row_of(p, t, kv_tile, first + 8 * half + lane / 4, &token, &head);
        const uint32_t *row = (const uint32_t *)(from + ((int64_t)token * p.h + head) * W) + lane % 4;
#pragma unroll
        for (int kt = 0; kt < W / 16; kt++) {
            q[kt][half] = live ? row[8 * kt] : 0;
            q[kt][2 + half] = live ? row[8 * kt + 4] : 0;
        }
    }
}

/* Puts these rows into shared memory as a K-major operand, written by the warpgroup that reads it. */
template <int MAKE>
static __device__ void rows_place(const prefill_job &p, const tile &t, int kv_tile, const uint16_t *from, int width,
                                  uint8_t *to, int group, int thread)
{
    for (int i = thread; i < 64 * (width / 8); i += 128) {
        const int r = i / (width / 8), e = i % (width / 8) * 8;
        int token, head;
        const bool live = row_of(p, t, kv_tile, 64 * group + r, &token, &head);
        *(uint4 *)(to + cell(64, r, e)) = live ? *(const uint4 *)(from + ((int64_t)token * p.h + head) * width + e)
                                               : make_uint4(0, 0, 0, 0);
    }
    if constexpr (MAKE == ARCH_90)
        proxy_fence();
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
}

template <int D> static __device__ __forceinline__ void rows_raise(rows_state<D> &a, const float *top)
{
    float by[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float t = top[i];
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 1));
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 2));
        t = t > a.m[i] + 8.0f ? t : a.m[i];
        by[i] = exp2_fast(a.m[i] - t);
        a.m[i] = t;
        a.l[i] *= by[i];
    }
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        a.o[j][0] *= by[0];
        a.o[j][1] *= by[0];
        a.o[j][2] *= by[1];
        a.o[j][3] *= by[1];
    }
}

/* Scores to probabilities: halves, or (BF16) two bf16 for one (split_rest), the second ones in the second half of p. */
template <int D, bool BF16>
static __device__ __forceinline__ void rows_softmax(rows_state<D> &a, float (*s)[4], uint32_t (*p)[4])
{
    float top[2] = { s[0][0], s[0][2] };
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            top[i / 2] = fmaxf(top[i / 2], s[j][i]);
    if (__any_sync(0xffffffffu, top[0] > a.m[0] + 8.0f || top[1] > a.m[1] + 8.0f))
        rows_raise<D>(a, top);
#pragma unroll
    for (int j = 0; j < 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[j][i] = exp2_fast(s[j][i] - a.m[i / 2]);
            a.l[i / 2] += s[j][i];
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float x = s[j][2 * i], y = s[j][2 * i + 1];
            p[j / 2][j % 2 * 2 + i] = BF16 ? pack_tops(x, y) : pack_halves(x, y);
            if (BF16)
                p[KEYS / 16 + j / 2][j % 2 * 2 + i] = pack_tops(split_rest(x), split_rest(y));
        }
    }
}

/* The rows' whole weights in all lanes that have some of it. */
template <int D> static __device__ __forceinline__ void rows_total(rows_state<D> &a)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        a.l[i] += __shfl_xor_sync(0xffffffffu, a.l[i], 1);
        a.l[i] += __shfl_xor_sync(0xffffffffu, a.l[i], 2);
    }
}

/* After rows_total, at the end. */
template <int D>
static __device__ __forceinline__ void rows_sinks(const prefill_job &p, const tile &t, int kv_tile, rows_state<D> &a,
                                                  int first, int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int token, head;
        if (p.sinks && row_of(p, t, kv_tile, first + 8 * half + lane / 4, &token, &head))
            a.l[half] += sink_weight(p.sinks[head], a.m[half]);
    }
}

/* After rows_total: divides the sums by the weights and leaves 1 / weight there. */
template <int D> static __device__ __forceinline__ void rows_norm(rows_state<D> &a)
{
    a.l[0] = 1.0f / a.l[0];
    a.l[1] = 1.0f / a.l[1];
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        a.o[j][0] *= a.l[0];
        a.o[j][1] *= a.l[0];
        a.o[j][2] *= a.l[1];
        a.o[j][3] *= a.l[1];
    }
}

/* The sums so far, divided by their weights, from acc space to real space; their weight moves into the maximum.  A row
 * whose window has none of these keys stays without weight. */
template <int MAKE, int D>
static __device__ __forceinline__ void rows_turn(rows_state<D> &a, uint32_t matrix, float factor, int lane)
{
    constexpr int N = D < 128 ? D : 128;
    rows_total<D>(a);
    const bool none[2] = { a.l[0] == 0.0f, a.l[1] == 0.0f };
    a.l[0] = none[0] ? 1.0f : a.l[0];
    a.l[1] = none[1] ? 1.0f : a.l[1];
    rows_norm<D>(a);
    a.m[0] -= log2f(a.l[0]);
    a.m[1] -= log2f(a.l[1]);
#pragma unroll
    for (int g = 0; g < D / N; g++) {
        float(*o)[4] = a.o + g * (N / 8);
        uint32_t p[N / 16][4];
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            p[j / 2][j % 2 * 2] = pack_halves(o[j][0], o[j][1]);
            p[j / 2][j % 2 * 2 + 1] = pack_halves(o[j][2], o[j][3]);
            o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0.0f;
        }
        step_open<MAKE, N>(o);
#pragma unroll
        for (int kt = 0; kt < N / 16; kt++)
            step_regs<MAKE, N, 0>(o, p[kt], matrix + kt / 4 * N * 128 + kt % 4 * 32, 0);
        step_close<MAKE, N>(o);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[j][i] *= factor;
    }
    a.l[0] = lane % 4 == 0 && !none[0] ? 1.0f : 0.0f;
    a.l[1] = lane % 4 == 0 && !none[1] ? 1.0f : 0.0f;
}

/* s = q k^T of a tile: q in registers, or (at: its shared memory) not. */
template <int MAKE, int W, bool PLACED>
static __device__ __forceinline__ void rows_scores(float (*s)[4], const uint32_t (*q)[4], uint32_t at, uint32_t k,
                                                   int width)
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.0f;
    step_open<MAKE, 64>(s);
#pragma unroll
    for (int kt = 0; kt < W / 16; kt++)
        if (kt < width / 16) {
            const uint32_t in = kt / 4 * PANEL + kt % 4 * 32;
            if (PLACED)
                step_placed<MAKE, 64>(s, at + in, k + in);
            else
                step_regs<MAKE, 64, 0>(s, q[kt], k + in, 0);
        }
    step_close<MAKE, 64>(s);
}

/* Scores of keys that were multiplied by powers of two. */
static __device__ __forceinline__ void rows_scale(float (*s)[4], const float *scale, int lane)
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const float2 by = *(const float2 *)(scale + 8 * j + lane % 4 * 2);
        s[j][0] *= by.x;
        s[j][1] *= by.y;
        s[j][2] *= by.x;
        s[j][3] *= by.y;
    }
}

/* Caps the scores of a tile's keys, `key` and those behind it, where the call has a cap; hides those that lie behind
 * the rows' positions or before their windows, where there may be any. */
static __device__ __forceinline__ void rows_mask(const prefill_job &p, const tile &t, float (*s)[4], int key,
                                                 const int *pos, int lane)
{
    if (p.cap > 0.0f) {
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[j][i] = score_capped(p, s[j][i]);
    }
    if (key + KEYS - 1 <= t.pos && key >= attn_first(p, t.pos + t.count - 1))
        return;
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int back = pos[i / 2] - (key + 8 * j + lane % 4 * 2 + i % 2);
            if (back < 0 || back >= p.window)
                s[j][i] = -INFINITY;
        }
}

/* o += p v of a tile. */
template <int MAKE, int D, bool BF16>
static __device__ __forceinline__ void rows_sums(float (*o)[4], const uint32_t (*p)[4], uint32_t v)
{
    constexpr int N = D < 128 ? D : 128;
#pragma unroll
    for (int g = 0; g < D / N; g++)
        step_open<MAKE, N>(o + g * (N / 8));
#pragma unroll
    for (int kt = 0; kt < (BF16 ? 2 : 1) * (KEYS / 16); kt++)
#pragma unroll
        for (int g = 0; g < D / N; g++)
            step_regs<MAKE, N, 1, 1, BF16>(o + g * (N / 8), p[kt],
                                           v + g * (N / 64) * PANEL + kt % (KEYS / 16) * 16 * 128, PANEL);
#pragma unroll
    for (int g = 0; g < D / N; g++)
        step_close<MAKE, N>(o + g * (N / 8));
}

template <int D>
static __device__ __forceinline__ void rows_write(const prefill_job &p, const tile &t, int kv_tile,
                                                  const rows_state<D> &a, int first, int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int token, head;
        if (!row_of(p, t, kv_tile, first + 8 * half + lane / 4, &token, &head))
            continue;
        const int64_t at = (int64_t)token * p.ldo + (int64_t)head * D + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            if (p.halves)
                *(uint32_t *)(p.halves + at + 8 * j) = pair_bf16(a.o[j][2 * half], a.o[j][2 * half + 1]);
            else
                *(float2 *)(p.out + at + 8 * j) = make_float2(a.o[j][2 * half], a.o[j][2 * half + 1]);
    }
}

/* Stages of the ring: where they lie, how many; mbarriers of full and empty ones. */
typedef struct ring {
    uint8_t *at;
    uint32_t stage_bytes, full, empty;
    int n;
} ring;

/* W: values per row of K's encoded pages; PLACED: queries lie in shared memory (q), not in registers. */
template <int D, int W, bool PLACED, int PAGES>
static __device__ __forceinline__ void use_tiles(const prefill_job &p, const tile &t, const tile_plan &w, int kv_tile,
                                                 const ring &r, const books &b, uint8_t *q_room, int thread)
{
    const int lane = thread % 32, group = thread / 128, first = thread / 32 * 16;
    uint8_t *placed = q_room + group * W * 128;
    uint32_t q[PLACED ? 1 : W / 16][4];
    rows_state<D> a;
    int pos[2];

    state_clear(a);
    pos[0] = t.pos + (first + lane / 4) / p.heads;
    pos[1] = t.pos + (first + 8 + lane / 4) / p.heads;
    for (int n = 0; n < w.n; n++) {
        const uint32_t k = shared_at(r.at + n % r.n * r.stage_bytes), v = k + W * 128;
        const bool exact = n >= w.encoded && p.k.s.tail;
        if (n == (exact ? w.encoded + w.turn : 0)) { /* the queries for what comes */
            const uint16_t *from = exact ? p.qraw : p.qp;
            if (PLACED)
                rows_place<ARCH_90>(p, t, kv_tile, from, exact ? D : W, placed, group, thread % 128);
            else
                rows_load<W>(p, t, kv_tile, from, q, first, lane);
        }
        bar_wait(r.full + n % r.n * 8, n / r.n & 1);
        if (w.turn && n == w.encoded)
            rows_turn<ARCH_90, D>(a, k, turn_factor(p.v.s.space), lane);
        else {
            float s[8][4];
            uint32_t pr[(PAGES & BF16_V ? 2 : 1) * (KEYS / 16)][4];
            const int key = page_of(w, n) * KVANT_PAGE;
            rows_scores<ARCH_90, W, PLACED>(s, q, shared_at(placed), k, exact ? D : W);
            if (PAGES & BF16_K)
                rows_scale(s, b.scale[n % r.n], lane);
            rows_mask(p, t, s, key, pos, lane);
            rows_softmax<D, (PAGES & BF16_V) != 0>(a, s, pr);
            rows_sums<ARCH_90, D, (PAGES & BF16_V) != 0>(a.o, pr, v);
        }
        __syncwarp();
        if (lane == 0)
            bar_arrive(r.empty + n % r.n * 8);
    }
    rows_total<D>(a);
    rows_sinks<D>(p, t, kv_tile, a, first, lane);
    rows_norm<D>(a);
    rows_write<D>(p, t, kv_tile, a, first, lane);
}

#endif
