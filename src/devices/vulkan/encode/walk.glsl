/* walk.glsl: the path of least error of 128 values through a trellis of 512 states, WALK_K new bits a step, free start, by a
 * workgroup.  Values are in sp[128], levels in fmt_lut[512].  Thread g < WALK_LOW owns the branch of the predecessors
 * g << WALK_K .. and the states whose low bits are g. */
const uint WALK_LOW = 512u >> WALK_K, WALK_PER = 32u / WALK_K;         /* steps in a word of tcq_back */
shared float tcq_cost[1024];
shared uint tcq_back[(127u / WALK_PER + 1u) * WALK_LOW];
shared uint tcq_state[256];        /* two paths */
shared uint tcq_start[2];          /* the states before them */
shared float tcq_wide;             /* factor of the values of the path that is searched */

void tcq_step(uint step, inout uint back)
{
    const uint g = gl_LocalInvocationIndex, from = (step & 1u) * 512u, to = 512u - from;
    if (g < WALK_LOW) {
        float best = tcq_cost[from + (g << WALK_K)];
        uint which = 0u;
        for (uint q = 1u; q < 1u << WALK_K; q++) {
            const float c = tcq_cost[from + (g << WALK_K) + q];
            if (c < best) {
                best = c;
                which = q;
            }
        }
        back |= which << WALK_K * (step % WALK_PER);
        if (step % WALK_PER == WALK_PER - 1u || step == 127u) {
            tcq_back[step / WALK_PER * WALK_LOW + g] = back;
            back = 0u;
        }
        precise float v = sp[step] * tcq_wide;
        for (uint s = g; s < 512u; s += WALK_LOW) {
            precise float e = v - fmt_lut[s], c = best + e * e;
            tcq_cost[to + s] = c;
        }
    }
    barrier();
}

void tcq_trace(uint which)
{
    uint s = 0u;
    for (uint i = 1u; i < 512u; i++)
        if (tcq_cost[i] < tcq_cost[s])
            s = i;
    for (int step = 127; step >= 0; step--) {
        const uint g = s & WALK_LOW - 1u, word = tcq_back[uint(step) / WALK_PER * WALK_LOW + g];
        tcq_state[128u * which + uint(step)] = s;
        s = g << WALK_K | word >> WALK_K * (uint(step) % WALK_PER) & (1u << WALK_K) - 1u;
    }
    tcq_start[which] = s;
}

void tcq_viterbi(uint which, float wide)
{
    uint back = 0u;
    barrier();
    for (uint s = gl_LocalInvocationIndex; s < 512u; s += GROUP)
        tcq_cost[s] = 0.0;
    if (gl_LocalInvocationIndex == 0u)
        tcq_wide = wide;
    barrier();
    for (uint step = 0u; step < 128u; step++)
        tcq_step(step, back);
    if (gl_LocalInvocationIndex == 0u)
        tcq_trace(which);
    barrier();
}
