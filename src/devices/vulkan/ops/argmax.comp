#version 450
/* argmax: position of the largest value of each row (ties: the lower), -1 where a value is NaN or infinite.  A row is cut
 * into pieces of PIECE values, a workgroup each; of more than one piece `values` and `places` get what each has found,
 * and a second dispatch, MERGE, takes the best of those: x is then the values of its pieces. */
#define SLOTS 4
#define ARGS ARGPTR x; ARGPTR ids; ARGPTR values; ARGPTR places; uint n; uint d; uint pieces;
#define GROUP_SIZE WIDE_GROUP
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = GROUP_SIZE) in;
layout(constant_id = 0) const uint MERGE = 0u;
layout(constant_id = 1) const uint PIECE = 8192u;
shared float best[GROUP];
shared uint best_at[GROUP];
shared uint odd;                   /* a value that is not finite was seen */

void main()
{
    const uint row = group_at() / args.pieces, piece = group_at() % args.pieces, t = gl_LocalInvocationIndex,
               begin = piece * PIECE,
               end = MERGE != 0u ? args.d : min(args.d, begin + PIECE);
    float top = NEG_INF;
    uint at_top = args.d;
    bool bad = false;
    if (row >= args.n)
        return;
    PTR from = at_mul(P(0, x), row, args.d);
    if (t == 0u)
        odd = 0u;
    for (uint j0 = begin + t; j0 < end; j0 += 8u * GROUP) {
        uint u[8];
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            u[k] = j0 + k * GROUP < end ? ld(from, j0 + k * GROUP) : 0xff7fffffu;
        [[unroll]] for (uint k = 0u; k < 8u; k++) {
            const float v = uintBitsToFloat(u[k]);
            bad = bad || (u[k] & 0x7f800000u) == 0x7f800000u;
            if (v > top && j0 + k * GROUP < end) {
                top = v;
                at_top = j0 + k * GROUP;
            }
        }
    }
    best[t] = top;
    best_at[t] = at_top;
    barrier();
    if (bad)
        atomicOr(odd, 1u);
    for (uint m = GROUP / 2u; m > 0u; m >>= 1) {
        if (t < m && (best[t + m] > best[t] || (best[t + m] == best[t] && best_at[t + m] < best_at[t]))) {
            best[t] = best[t + m];
            best_at[t] = best_at[t + m];
        }
        barrier();
    }
    if (t != 0u)
        return;
    const uint found = odd != 0u ? 0xffffffffu : best_at[0];
    if (MERGE != 0u) {
        st(P(1, ids), row, odd != 0u ? found : ld(P(3, places), row * args.d + found));
    } else if (args.pieces == 1u) {
        st(P(1, ids), row, found);
    } else {                       /* NaN stands for a piece with a value that is not finite */
        stf(P(2, values), row * args.pieces + piece, odd != 0u ? NOT_A_NUMBER : best[0]);
        st(P(3, places), row * args.pieces + piece, found);
    }
}
