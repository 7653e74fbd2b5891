#version 450
/* ssm_step and ssm_chunk: Mamba2, token by token.  LANES threads own one row of a head's state and keep it in registers
 * over all tokens; rows are independent.  Sums over a row go through shared memory: no subgroup size is assumed.
 * Sequences that keep their slot, or write none, read it in place, others from scratch (state_gather). */
#define BIG_ARGS
#define SLOTS 15
#define ARGS ARGPTR x; ARGPTR dt; ARGPTR b; ARGPTR c; ARGPTR a; ARGPTR d; ARGPTR bias; ARGPTR state; ARGPTR copy; \
    ARGPTR y; ARGPTR q0; ARGPTR pos0; ARGPTR prompt; ARGPTR slot_in; ARGPTR slot_out; uint h; uint p; uint g; uint ldx; uint lddt; \
    uint ldb; uint slot_stride; uint phase;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint N = 128u;
layout(constant_id = 1) const uint LANES = 8u;             /* of one row; a power of two */
layout(constant_id = 2) const bool BF16 = false;           /* the state's type */
const uint ROWS = GROUP / LANES, PER = 2u * ((N / 2u + N % 2u + LANES - 1u) / LANES);
shared float s_b[N], s_c[N], s_sum[GROUP];

#include "devices/vulkan/gdn/slots.glsl"
#include "devices/vulkan/gdn/state.glsl"

float row_sum(float v)
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

/* log(1 + e^x), by a series where the sum would round e^x away. */
float softplus(float x)
{
    const float e = exp(min(x, 20.0));
    return x > 20.0 ? x : e < 0.01 ? e * (1.0 - e * (0.5 - e * (1.0 / 3.0 - e * 0.25))) : log(1.0 + e);
}

void main()
{
    const uint t = gl_LocalInvocationIndex, s = gl_WorkGroupID.z, head = gl_WorkGroupID.y,
               row = gl_WorkGroupID.x * ROWS + t / LANES, lane = t % LANES, group = head / (args.h / args.g);
    PTR q0 = P(10, q0);
    const uint begin = ld(q0, s), end = ld(q0, s + 1u);
    if ((ld(P(12, prompt), s) != 0u) != (args.phase != 0u) || begin == end)
        return;
    const int from = ldi(P(13, slot_in), s), to = ldi(P(14, slot_out), s);
    const bool here = reads_in_place(from, to);
    const uint own = head * args.p + min(row, args.p - 1u);
    PTR old = at_mul(P(7, state), uint(max(from, 0)), args.slot_stride), copy = at_mul(P(8, copy), s, args.h * args.p * N / (BF16 ? 2u : 1u));
    float v[PER];
    [[unroll]] for (uint i = 0u; i < PER; i++) {
        const uint e = element(i, lane);
        v[i] = e >= N ? 0.0 : here ? state_at(old, own * N + e) : state_at(copy, own * N + e);
    }
    const float a = ldf(P(4, a), head), d = ldf(P(5, d), head), bias = ldf(P(6, bias), head);
    for (uint i = begin; i < end; i++) {
        barrier();
        for (uint e = t; e < N; e += GROUP) {
            s_b[e] = ldf(P(2, b), i * args.ldb + group * N + e);
            s_c[e] = ldf(P(3, c), i * args.ldb + group * N + e);
        }
        const float dt = softplus(ldf(P(1, dt), i * args.lddt + head) + bias), decay = exp(dt * a);
        const float x = ldf(P(0, x), i * args.ldx + own);
        float y = 0.0;
        barrier();
        [[unroll]] for (uint j = 0u; j < PER; j++) {
            const uint e = element(j, lane);
            v[j] = e < N ? decay * v[j] + dt * x * s_b[e] : 0.0;
            y += e < N ? v[j] * s_c[e] : 0.0;
        }
        y = row_sum(y);
        if (BF16 && (args.phase == 0u || (ld(P(11, pos0), s) + i - begin + 1u) % PAGE == 0u))
            [[unroll]] for (uint j = 0u; j < PER; j++)
                v[j] = bf16_of(to_bf16(v[j]));
        if (lane == 0u && row < args.p)
            stf(P(9, y), i * args.h * args.p + own, y + d * x);
    }
    if (to < 0)
        return;
    PTR slot = at_mul(P(7, state), uint(to), args.slot_stride);
    [[unroll]] for (uint i = 0u; i < PER; i += BF16 ? 2u : 1u)
        if (element(i, lane) < N && row < args.p)
            state_put(slot, own * N + element(i, lane), v[i], v[min(i + 1u, PER - 1u)]);
}
