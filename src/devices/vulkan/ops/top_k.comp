#version 450
/* top_k: the k largest of each row in two passes, as the CUDA device does it.  A value and its position are one key
 * (two words), larger where the value is or, at a tie, the position is lower.  parts > 0: one of `parts` pieces of a row;
 * its k largest keys go to left.  parts 0: one row of `pieces` such lists; the k largest of them, in order, to values
 * and ids.  The k-th key is found by its digits: the group's keys are counted by eight bits at a time. */
#define SLOTS 4
#define ARGS ARGPTR x; ARGPTR left; ARGPTR values; ARGPTR ids; uint n; uint d; uint k; uint parts; uint pieces;
#define GROUP_SIZE WIDE_GROUP
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = GROUP_SIZE) in;
const uint MOST = 1024u;           /* KVANT_TOP_K_MOST */
const uvec2 ODD = uvec2(0xffffffffu); /* a value that is not finite was seen; no key is as large */
shared uint counts[256], sums[16];
shared uint found, odd;
shared uvec2 best[MOST];

bool reaches(uvec2 key, uvec2 limit)
{
    return key.x > limit.x || (key.x == limit.x && key.y >= limit.y);
}

uvec2 key_of(uint u, uint at_pos)
{
    u = (u & 0x7fffffffu) == 0u ? 0u : u;              /* -0 is 0 */
    return uvec2((u >> 31) != 0u ? ~u : u | 0x80000000u, ~at_pos);
}

/* The i-th key of this group: of the row's piece from `from` on, or of the lists. */
uvec2 key_at(PTR row, uint from, uint i)
{
    if (args.parts != 0u)
        return key_of(ld(row, from + i), from + i);
    return uvec2(ld(row, 2u * i), ld(row, 2u * i + 1u));
}

/* Keys by one digit of eight bits, for those that agree with `limit` in the digits above it. */
void count_digits(PTR row, uint from, uint n, uvec2 limit, uint word, uint shift)
{
    const uint t = gl_LocalInvocationIndex, above = shift == 24u ? 0u : 0xffffffffu << (shift + 8u);
    for (uint i = t; i < 256u; i += GROUP)
        counts[i] = 0u;
    barrier();
    for (uint i = t; i < n; i += GROUP) {
        const uvec2 key = key_at(row, from, i);
        const uint mine = word == 0u ? key.x : key.y, other = word == 0u ? limit.x : limit.y;
        if ((word == 0u || key.x == limit.x) && ((mine ^ other) & above) == 0u)
            atomicAdd(counts[mine >> shift & 255u], 1u);
    }
    barrier();
    for (uint i = t; i < 16u; i += GROUP) {
        uint sum = 0u;
        for (uint c = 0u; c < 16u; c++)
            sum += counts[16u * i + c];
        sums[i] = sum;
    }
    barrier();
}

/* The largest limit that exactly k of the n keys reach (n >= k > 0): digit after digit from the top; where all keys of
 * a digit belong to the k, the digits below do not matter. */
uvec2 kth_key(PTR row, uint from, uint n, uint k)
{
    uvec2 limit = uvec2(0u);
    for (uint d = 0u; d < 8u; d++) {
        const uint word = d >> 2, shift = 24u - 8u * (d & 3u);
        uint digit = 255u;
        count_digits(row, from, n, limit, word, shift);
        for (uint c = 15u; sums[c] < k; c--) {
            k -= sums[c];
            digit -= 16u;
        }
        for (; counts[digit] < k; digit--)
            k -= counts[digit];
        if (word == 0u)
            limit.x |= digit << shift;
        else
            limit.y |= digit << shift;
        const bool all = counts[digit] == k;
        barrier();                     /* all have read the counts */
        if (all)
            break;
    }
    return limit;
}

void put_piece(PTR to, uint i, uvec2 key)
{
    st(to, 2u * i, key.x);
    st(to, 2u * i + 1u, key.y);
}

/* best[0 .. k) to their places in the row's result; rest and all of an odd row: -1 and 0. */
void put_row(PTR x, PTR values, PTR ids, uint k)
{
    for (uint i = gl_LocalInvocationIndex; i < args.k; i += GROUP) {
        if (odd != 0u || i >= k) {
            st(ids, i, 0xffffffffu);
            st(values, i, 0u);
            continue;
        }
        uint place = 0u;
        for (uint j = 0u; j < k; j++)
            place += j != i && reaches(best[j], best[i]) ? 1u : 0u;
        st(ids, place, ~best[i].y);
        st(values, place, ld(x, ~best[i].y));
    }
}

void main()
{
    const uint g = group_at(), t = gl_LocalInvocationIndex, parts = max(args.parts, 1u);
    const uint row = g / parts, part = g % parts;
    if (row >= args.n)
        return;
    PTR x = at_mul(P(0, x), row, args.d), left = at_mul(P(1, left), row, 2u * args.k * args.pieces);
    PTR piece = at_mul(left, part, 2u * args.k);
    const uint each = (args.d + parts - 1u) / parts, from = min(args.d, part * each);
    const uint n = args.parts != 0u ? min(args.d - from, each) : args.k * args.pieces;
    const uint k = min(args.parts != 0u ? n : args.d, args.k);
    if (t == 0u)
        found = odd = 0u;
    barrier();
    for (uint i = t; i < n; i += GROUP)
        if (args.parts != 0u ? (ld(x, from + i) & 0x7f800000u) == 0x7f800000u : key_at(left, 0u, i) == ODD)
            atomicOr(odd, 1u);
    barrier();
    PTR keys = left;
    if (args.parts != 0u)
        keys = x;
    if (odd == 0u && k > 0u) {
        const uvec2 limit = kth_key(keys, from, n, k);
        for (uint i = t; i < n; i += GROUP) {
            const uvec2 key = key_at(keys, from, i);
            if (!reaches(key, limit))
                continue;
            const uint to = atomicAdd(found, 1u);
            if (args.parts != 0u)
                put_piece(piece, to, key);
            else
                best[to] = key;
        }
    }
    barrier();
    if (args.parts == 0u) {
        put_row(x, at_mul(P(2, values), row, args.k), at_mul(P(3, ids), row, args.k), k);
        return;
    }
    for (uint i = t; i < args.k; i += GROUP)
        if (odd != 0u || i >= k)
            put_piece(piece, i, odd != 0u ? ODD : uvec2(0u));
}
