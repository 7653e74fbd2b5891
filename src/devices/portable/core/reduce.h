/* reduce.h: sums and maxima of a group's values, the same for every thread.  part: LOCAL_ARRAY of THREADS floats; it
 * may be used again right after. */
#ifndef KVANT_PORTABLE_REDUCE_H
#define KVANT_PORTABLE_REDUCE_H

FN float group_sum(LOCAL float *part, int t, float v)
{
    part[t] = v;
    BARRIER();
    for (int n = THREADS / 2; n > 0; n >>= 1) {
        if (t < n)
            part[t] += part[t + n];
        BARRIER();
    }
    const float sum = part[0];
    BARRIER();
    return sum;
}

FN float group_max(LOCAL float *part, int t, float v)
{
    part[t] = v;
    BARRIER();
    for (int n = THREADS / 2; n > 0; n >>= 1) {
        if (t < n)
            part[t] = fmax(part[t], part[t + n]);
        BARRIER();
    }
    const float most = part[0];
    BARRIER();
    return most;
}

#endif
