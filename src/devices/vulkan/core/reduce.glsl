/* reduce.glsl: sums and maxima over a workgroup of GROUP threads, the same result in every thread.  FAST: subgroups of
 * any size, then their results in order; else a tree in shared memory.  All threads must call. */
shared float red_part[GROUP];

float group_sum(float v)
{
    const uint t = gl_LocalInvocationIndex;
    float sum = 0.0;
    barrier();                     /* red_part may still be read from the call before */
#ifdef FAST
    v = subgroupAdd(v);
    if (subgroupElect())
        red_part[gl_SubgroupID] = v;
    barrier();
    for (uint i = 0u; i < gl_NumSubgroups; i++)
        sum += red_part[i];
#else
    red_part[t] = v;
    for (uint m = GROUP / 2u; m > 0u; m >>= 1) {
        barrier();
        if (t < m)
            red_part[t] += red_part[t + m];
    }
    barrier();
    sum = red_part[0];
#endif
    return sum;
}

float group_max(float v)
{
    const uint t = gl_LocalInvocationIndex;
    float top;
    barrier();
#ifdef FAST
    v = subgroupMax(v);
    if (subgroupElect())
        red_part[gl_SubgroupID] = v;
    barrier();
    top = red_part[0];
    for (uint i = 1u; i < gl_NumSubgroups; i++)
        top = max(top, red_part[i]);
#else
    red_part[t] = v;
    for (uint m = GROUP / 2u; m > 0u; m >>= 1) {
        barrier();
        if (t < m)
            red_part[t] = max(red_part[t], red_part[t + m]);
    }
    barrier();
    top = red_part[0];
#endif
    return top;
}
