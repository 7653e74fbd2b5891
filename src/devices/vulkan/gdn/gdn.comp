#version 450
/* gdn_step and gdn_chunk: the gated delta rule, token by token, a gate per head or per channel.  LANES threads own one value column of the state and
 * keep it in registers over all tokens; columns are independent.  Sums over a column go through shared memory: no
 * subgroup size is assumed.  Sequences that keep their slot, or write none, read it in place, others from scratch (state_gather). */
#define BIG_ARGS
#define SLOTS 13
#define ARGS ARGPTR q; ARGPTR k; ARGPTR v; ARGPTR g; ARGPTR beta; ARGPTR state; ARGPTR copy; ARGPTR o; ARGPTR q0; \
    ARGPTR pos0; ARGPTR prompt; ARGPTR slot_in; ARGPTR slot_out; uint hk; uint hv; uint dv; uint interleaved; uint ldq; uint ldk; \
    uint ldv; uint slot_stride; uint phase; float scale;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint DK = 128u;
layout(constant_id = 1) const uint LANES = 8u;             /* of one column; a power of two */
layout(constant_id = 2) const bool BF16 = false;           /* the state's type */
layout(constant_id = 3) const bool CHANNELS = false;       /* a gate per channel */
const uint COLS = GROUP / LANES, PER = 2u * ((DK / 2u + DK % 2u + LANES - 1u) / LANES);
shared float s_k[DK], s_q[DK], s_fade[DK], s_sum[GROUP];

#include "devices/vulkan/gdn/slots.glsl"
#include "devices/vulkan/gdn/state.glsl"

float column_sum(float v)
{
    const uint t = gl_LocalInvocationIndex, first = t / LANES * LANES;
    float sum = 0.0;
    barrier();
    s_sum[t] = v;
    barrier();
    [[unroll]] for (uint i = 0u; i < LANES; i++)
        sum += s_sum[first + i];
    return sum;
}

void main()
{
    const uint t = gl_LocalInvocationIndex, s = gl_WorkGroupID.z, head = gl_WorkGroupID.y,
               col = gl_WorkGroupID.x * COLS + t / LANES, lane = t % LANES,
               kh = args.interleaved != 0u ? head / (args.hv / args.hk) : head % args.hk;
    PTR q0 = P(8, q0);
    const uint begin = ld(q0, s), end = ld(q0, s + 1u);
    if ((ld(P(10, prompt), s) != 0u) != (args.phase != 0u) || begin == end)
        return;
    const int from = ldi(P(11, slot_in), s), to = ldi(P(12, slot_out), s);
    const bool here = reads_in_place(from, to);
    const uint at_col = (head * args.dv + min(col, args.dv - 1u)) * DK;
    PTR old = at_mul(P(5, state), uint(max(from, 0)), args.slot_stride), copy = at_mul(P(6, copy), s, args.hv * args.dv * DK / (BF16 ? 2u : 1u));
    float c[PER];
    [[unroll]] for (uint i = 0u; i < PER; i++) {
        const uint e = element(i, lane);
        c[i] = e >= DK ? 0.0 : here ? state_at(old, at_col + e) : state_at(copy, at_col + e);
    }
    for (uint row = begin; row < end; row++) {
        barrier();
        for (uint e = t; e < DK; e += GROUP) {
            s_k[e] = ldf(P(1, k), row * args.ldk + kh * DK + e);
            s_q[e] = ldf(P(0, q), row * args.ldq + kh * DK + e);
            if (CHANNELS)
                s_fade[e] = exp(ldf(P(3, g), (row * args.hv + head) * DK + e));
        }
        const float decay = CHANNELS ? 1.0 : exp(ldf(P(3, g), row * args.hv + head)),
                    beta = ldf(P(4, beta), row * args.hv + head);
        float dot = 0.0, o = 0.0;
        barrier();
        [[unroll]] for (uint i = 0u; i < PER; i++) {
            const uint e = element(i, lane);
            c[i] *= CHANNELS ? s_fade[min(e, DK - 1u)] : decay;
            dot += e < DK ? c[i] * s_k[e] : 0.0;
        }
        const float u =
            beta * (ldf(P(2, v), row * args.ldv + head * args.dv + min(col, args.dv - 1u)) - column_sum(dot));
        [[unroll]] for (uint i = 0u; i < PER; i++) {
            const uint e = element(i, lane);
            c[i] += e < DK ? s_k[e] * u : 0.0;
            o += e < DK ? c[i] * s_q[e] : 0.0;
        }
        o = column_sum(o);
        if (BF16 && (args.phase == 0u || (ld(P(9, pos0), s) + row - begin + 1u) % PAGE == 0u))
            [[unroll]] for (uint i = 0u; i < PER; i++)
                c[i] = bf16_of(to_bf16(c[i]));
        if (lane == 0u && col < args.dv)
            stf(P(7, o), (row * args.hv + head) * args.dv + col, args.scale * o);
    }
    if (to < 0)
        return;
    PTR slot = at_mul(P(5, state), uint(to), args.slot_stride);
    [[unroll]] for (uint i = 0u; i < PER; i += BF16 ? 2u : 1u)
        if (element(i, lane) < DK && col < args.dv)
            state_put(slot, at_col + element(i, lane), c[i], c[min(i + 1u, PER - 1u)]);
}
