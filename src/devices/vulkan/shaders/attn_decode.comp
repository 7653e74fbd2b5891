#version 450
/* attn, second pass, one query per sequence over formats of 4-bit records (a half, 16 bytes of nibbles: q4_0, tbq4_0,
 * turbo4): the partial sums of attn_tile over one split, faster.  Every page is read once for the ROWS heads of a KV
 * head; codes become values by one look-up in shared memory each and stay in registers.
 *
 * 256 keys a turn.  Keys: rows are copied to shared memory as they lie (coalesced), 19 words apart per 64 values so that
 * a warp's look at one word of 32 rows meets 32 banks; a thread then scores two keys for all heads.  Values: a thread
 * owns 16 columns (8 bytes of a record) and takes every 128/(DV/16)-th row. */
#define BIG_ARGS
#define SLOTS 14
#define ARGS ARGPTR q; ARGPTR qp; ARGPTR part; ARGPTR kpages; ARGPTR ktail; ARGPTR vpages; ARGPTR vtail; \
    ARGPTR kparam; ARGPTR vparam; ARGPTR books; ARGPTR q0; ARGPTR pos0; ARGPTR table; ARGPTR tails; \
    uint n_seqs; uint stride; uint ldq; uint gq; uint h; uint h_kv; uint heads; uint head_tiles; uint tokens; \
    uint n_split; uint n_part; uint tail_pages; uint tile0; uint width; uint k_page_words; uint k_head_bytes; \
    uint k_row_bytes; uint v_page_words; uint v_head_bytes; uint v_row_bytes; uint has_ktail; uint has_vtail; \
    uint has_kparam; uint has_vparam; float scale; uint part_from; uint ldp; uint gp;
#include "kv.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint KF = 5u;
layout(constant_id = 1) const uint VF = 5u;
layout(constant_id = 2) const uint ROWS = 1u;
layout(constant_id = 3) const uint DK = 64u;
layout(constant_id = 4) const uint DV = 64u;
layout(constant_id = 5) const uint KBOOK = 0u;
layout(constant_id = 6) const uint VBOOK = 0u;
layout(constant_id = 7) const uint VEC = 0u;               /* pages begin at multiples of 16 bytes */
#include "devices/vulkan/vk_numbers.h"
#include "tiles.glsl"

const uint KEYS = 256u, PER = 2u, SPLIT = 1024u;
const uint ROW = DK * 18u / 128u, STRIDE = ROW | 1u;       /* words of a key row; and between rows in shared memory */
const uint COLS = 16u, CG = DV / COLS, KG = GROUP / CG;
const uint SCORES = PER * ROWS, SUMS = ROWS * COLS;
shared uint s_rows[KEYS * STRIDE];    /* at the end: the thread groups' sums of one row */
shared float s_q[DK * ROWS];
shared float s_p[KEYS * ROWS];
#ifdef FAST
shared float s_top[ROWS * 32u];    /* a workgroup has at most 32 subgroups */
#else
shared float s_top[ROWS * GROUP];
#endif
shared float s_klut[16], s_vlut[16];
shared int s_page[4];

float table_at(uint F, uint book, uint i)
{
    return F == VK_FMT_q4_0 ? float(int(i) - 8) : ldf(P(9, books), book + i);
}

int page_of(tile o, uint j)
{
    int exact = -1;
    if (o.pos / PAGE - j < args.tail_pages && args.n_part > args.n_split)
        exact = ldi(P(13, tails), o.seq * args.stride + j);
    return exact >= 0 ? -1 : ldi(P(12, table), o.seq * args.stride + j);
}

/* The key rows of this turn's pages, as they lie. */
void stage(uint head, uint n)
{
    const uint quads = PAGE * ROW / 4u, first = head * args.k_head_bytes / 4u;
    for (uint u = gl_LocalInvocationIndex; u < (n + PAGE - 1u) / PAGE * quads; u += GROUP) {
        const uint j = u / quads, w = u % quads * 4u;
        uvec4 v;
        if (s_page[j] < 0)
            continue;
        PTR page = at_mul(P(3, kpages), uint(s_page[j]), args.k_page_words);
        if (VEC != 0u)
            v = ld4(page, (first + w) / 4u);
        else
            v = uvec4(ld(page, first + w), ld(page, first + w + 1u), ld(page, first + w + 2u), ld(page, first + w + 3u));
        [[unroll]] for (uint i = 0u; i < 4u; i++)
            s_rows[(j * PAGE + (w + i) / ROW) * STRIDE + (w + i) % ROW] = v[i];
    }
}

/* Scores of keys t and t + 128 of the turn for all heads, not yet scaled. */
void score(out float s[SCORES])
{
    const uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint i = 0u; i < PER * ROWS; i++)
        s[i] = 0.0;
    [[dont_unroll]] for (uint pair = 0u; pair < DK / 64u; pair++) {
        uint w[PER * 9u];
        [[unroll]] for (uint k = 0u; k < PER; k++)
            [[unroll]] for (uint i = 0u; i < 9u; i++)
                w[9u * k + i] = s_rows[(t + GROUP * k) * STRIDE + 9u * pair + i];
        [[unroll]] for (uint r = 0u; r < 2u; r++) {
            float dot[SCORES];
            [[unroll]] for (uint i = 0u; i < PER * ROWS; i++)
                dot[i] = 0.0;
            [[unroll]] for (uint c = 0u; c < 4u; c++) {
                uint codes[PER];
                [[unroll]] for (uint k = 0u; k < PER; k++)
                    codes[k] = r == 0u ? w[9u * k + c] >> 16 | w[9u * k + c + 1u] << 16 : w[9u * k + 5u + c];
                [[unroll]] for (uint e = 0u; e < 8u; e++) {
                    const uint column = 64u * pair + 32u * r + (e & 4u) * 4u + 4u * c + (e & 3u);
                    float v[PER];
                    [[unroll]] for (uint k = 0u; k < PER; k++)
                        v[k] = s_klut[codes[k] >> (8u * (e & 3u) + (e & 4u)) & 15u];
                    [[unroll]] for (uint i = 0u; i < ROWS; i++) {
                        const float q = s_q[column * ROWS + i];
                        [[unroll]] for (uint k = 0u; k < PER; k++)
                            dot[k * ROWS + i] += q * v[k];
                    }
                }
            }
            [[unroll]] for (uint k = 0u; k < PER; k++) {
                const float d = half_of(r == 0u ? w[9u * k] & 0xffffu : w[9u * k + 4u] >> 16);
                [[unroll]] for (uint i = 0u; i < ROWS; i++)
                    s[k * ROWS + i] += dot[k * ROWS + i] * d;
            }
        }
    }
}

/* The largest score of each row over the workgroup. */
void tops(float s[SCORES])
{
#ifdef FAST
    [[unroll]] for (uint i = 0u; i < ROWS; i++) {
        const float top = subgroupMax(max(s[i], s[ROWS + i]));
        if (subgroupElect())
            s_top[i * 32u + gl_SubgroupID] = top;
    }
#else
    const uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint i = 0u; i < ROWS; i++)
        s_top[i * GROUP + t] = max(s[i], s[ROWS + i]);
    for (uint half_n = GROUP / 2u; half_n > 0u; half_n >>= 1) {
        barrier();
        if (t < half_n)
            [[unroll]] for (uint i = 0u; i < ROWS; i++)
                s_top[i * GROUP + t] = max(s_top[i * GROUP + t], s_top[i * GROUP + t + half_n]);
    }
#endif
    barrier();
}

float top_of(uint i)
{
#ifdef FAST
    float top = s_top[i * 32u];
    for (uint g = 1u; g < gl_NumSubgroups; g++)
        top = max(top, s_top[i * 32u + g]);
    return top;
#else
    return s_top[i * GROUP];
#endif
}

/* acc += p * value over this thread's rows of the turn. */
void weigh(uint head, uint n, inout float acc[SUMS])
{
    const uint t = gl_LocalInvocationIndex, cg = t % CG, kg = t / CG, record = 18u * (cg >> 1),
               byte = record + 2u + 8u * (cg & 1u);
    for (uint k = kg; k < n; k += KG) {
        if (s_page[k / PAGE] < 0)
            continue;
        PTR page = at_mul(P(5, vpages), uint(s_page[k / PAGE]), args.v_page_words);
        const uint b = head * args.v_head_bytes + k % PAGE * args.v_row_bytes;
        const float d = half_of(ld_u16(page, b + record));
        const uint lo = ld_u32(page, b + byte), hi = ld_u32(page, b + byte + 4u);
        float w[ROWS];
        [[unroll]] for (uint i = 0u; i < ROWS; i++)
            w[i] = s_p[k * ROWS + i] * d;
        [[unroll]] for (uint e = 0u; e < COLS; e++) {
            const float v = s_vlut[((e & 4u) != 0u ? hi : lo) >> (8u * (e & 3u) + (e & 8u) / 2u) & 15u];
            [[unroll]] for (uint i = 0u; i < ROWS; i++)
                acc[i * COLS + e] += w[i] * v;
        }
    }
}

void main()
{
    const uint t = gl_LocalInvocationIndex, per = args.h_kv * args.head_tiles, kv_tile = gl_WorkGroupID.x % per,
               ti = gl_WorkGroupID.x / per, head = kv_tile / args.head_tiles,
               part = args.part_from + gl_WorkGroupID.y;
    tile o;
    float acc[SUMS], m[ROWS], l[ROWS], s[SCORES];
    if (!tile_at(P(10, q0), P(11, pos0), args.tile0 + ti, o))
        return;
    const uint begin = part * SPLIT, end = min(o.pos + 1u, begin + SPLIT);
    if (begin >= end)
        return;
    if (t < 16u) {
        s_klut[t] = table_at(KF, KBOOK, t);
        s_vlut[t] = table_at(VF, VBOOK, t);
    }
    for (uint u = t; u < DK * ROWS; u += GROUP) {
        const row_id id = row_of(o, kv_tile, u % ROWS);
        s_q[u] = id.token >= 0 ? ldf(P(1, qp), uint(id.token) * args.ldp + id.head * args.gp + u / ROWS) * args.scale : 0.0;
    }
    [[unroll]] for (uint i = 0u; i < ROWS; i++) {
        m[i] = NEG_INF;
        l[i] = 0.0;
        [[unroll]] for (uint e = 0u; e < COLS; e++)
            acc[i * COLS + e] = 0.0;
    }
    for (uint base = begin; base < end; base += KEYS) {
        const uint n = min(KEYS, end - base);
        barrier();                 /* the turn before is used up; the first: queries and tables are there */
        if (t < 4u)
            s_page[t] = PAGE * t < n ? page_of(o, base / PAGE + t) : -1;
        barrier();
        stage(head, n);
        barrier();
        score(s);
        bool bad = false;
        [[unroll]] for (uint k = 0u; k < PER; k++) {
            const bool mine = t + GROUP * k < n && s_page[(t + GROUP * k) / PAGE] >= 0;
            [[unroll]] for (uint i = 0u; i < ROWS; i++) {
                bad = bad || (mine && is_nan(s[k * ROWS + i]));
                s[k * ROWS + i] = mine ? s[k * ROWS + i] : NEG_INF;
            }
        }
        tops(s);
        [[unroll]] for (uint i = 0u; i < ROWS; i++) {
            const float top = max(m[i], top_of(i));
            const float by = top == NEG_INF ? 1.0 : exp(m[i] - top);
            [[unroll]] for (uint k = 0u; k < PER; k++) {
                float p = s[k * ROWS + i] == NEG_INF ? 0.0 : exp(s[k * ROWS + i] - top);
                p = bad ? NOT_A_NUMBER : p;
                s_p[(t + GROUP * k) * ROWS + i] = p;
                l[i] = (k == 0u ? l[i] * by : l[i]) + p;
            }
            m[i] = top;
            [[unroll]] for (uint e = 0u; e < COLS; e++)
                acc[i * COLS + e] *= by;
        }
        barrier();
        weigh(head, n, acc);
    }
    [[unroll]] for (uint i = 0u; i < ROWS; i++) {
        const row_id id = row_of(o, kv_tile, i);
        const uint to = part_at(ti, kv_tile, part, i);
        barrier();
        [[unroll]] for (uint e = 0u; e < COLS; e++)
            s_rows[t * COLS + e] = floatBitsToUint(acc[i * COLS + e]);
        s_p[t] = l[i];
        barrier();
        for (uint c = t; c < DV; c += GROUP) {
            /* column c: record c/32, low or high nibbles, byte c%16 of the record */
            const uint cg = c / 32u * 2u + (c % 16u) / 8u, e = (c & 16u) / 2u + (c & 7u);
            float sum = 0.0;
            for (uint g = 0u; g < KG; g++)
                sum += uintBitsToFloat(s_rows[(g * CG + cg) * COLS + e]);
            stf(P(2, part), to + 2u + c, sum);
        }
        if (t == 0u && id.token >= 0) {
            float sum = 0.0;
            for (uint g = 0u; g < GROUP; g++)
                sum += s_p[g];
            stf(P(2, part), to, m[i]);
            stf(P(2, part), to + 1u, sum);
        }
    }
}
