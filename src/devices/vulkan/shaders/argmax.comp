#version 450
/* argmax: position of the largest value of each row (ties: the lower), -1 where a value is NaN or infinite; one
 * workgroup per row. */
#define SLOTS 2
#define ARGS ARGPTR x; ARGPTR ids; uint n; uint d;
#define GROUP_SIZE WIDE_GROUP
#include "kv.glsl"
layout(local_size_x = GROUP_SIZE) in;
shared float best[GROUP];
shared uint best_at[GROUP];
shared uint odd;                   /* a value that is not finite was seen */

void main()
{
    const uint row = group_at(), t = gl_LocalInvocationIndex;
    PTR x = P(0, x);
    float top = NEG_INF;
    uint at_top = args.d;
    bool bad = false;
    if (row >= args.n)
        return;
    PTR from = at_mul(x, row, args.d);
    if (t == 0u)
        odd = 0u;
    for (uint j0 = t; j0 < args.d; j0 += 8u * GROUP) {
        uint u[8];
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            u[k] = j0 + k * GROUP < args.d ? ld(from, j0 + k * GROUP) : 0xff7fffffu;
        [[unroll]] for (uint k = 0u; k < 8u; k++) {
            const float v = uintBitsToFloat(u[k]);
            bad = bad || (u[k] & 0x7f800000u) == 0x7f800000u;
            if (v > top && j0 + k * GROUP < args.d) {
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
    if (t == 0u)
        st(P(1, ids), row, odd != 0u ? 0xffffffffu : best_at[0]);
}
