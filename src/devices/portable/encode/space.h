/* space.h: prep_q and finish_out of all formats, by a whole group in LOCAL memory, in the references' order of
 * operations. space: SPACE_* of cards/portable.h, the same for the whole group.  Callers need no barrier before or
 * after. */
#ifndef KVANT_PORTABLE_SPACE_H
#define KVANT_PORTABLE_SPACE_H

#define SKETCH_IN 128                      /* values that a projection takes, and gives */
#define SKETCH_OUT 256

/* Unnormalised Hadamard transforms over blocks of `size` values of v[n]. */
FN void space_butterfly(LOCAL float *v, int n, int size, int t)
{
    for (int h = 1; h < size; h *= 2) {
        for (int p = t; p < n / 2; p += THREADS) {
            const int i = p / h * 2 * h + p % h;
            const float a = v[i], b = v[i + h];
            v[i] = a + b;
            v[i + h] = a - b;
        }
        BARRIER();
    }
}

/* v *= k, and the signs of the rotation's begin (first) or end. */
FN void space_times(LOCAL float *v, int space, int first, int n, float k, int t)
{
    for (int i = t; i < n; i += THREADS) {
        float sign = 1.0f;
        if (space == SPACE_P32)
            sign = fmt_c_tbq_signs32[i % 32];
        else if (space == SPACE_R128)
            sign = first ? fmt_c_wht_signs1[i % 128] : fmt_c_wht_signs2[i % 128];
        v[i] = v[i] * k * sign;
    }
    BARRIER();
}

/* The rotation of a space, in place on v[n]; back: its inverse. */
FN void space_rotate(LOCAL float *v, int space, int back, int n, int t)
{
    BARRIER();
    if (space == SPACE_P32) {
        if (!back)
            space_times(v, SPACE_P32, 0, n, 1.0f, t);
        space_butterfly(v, n, 32, t);
        space_times(v, back ? SPACE_P32 : SPACE_REAL, 0, n, port_bits(0x3e3504f3u), t);
    } else if (space == SPACE_R128) {
        space_times(v, SPACE_R128, !back, n, 1.0f, t);
        space_butterfly(v, n, 128, t);
        space_times(v, SPACE_R128, back, n, port_bits(0x3db504f3u), t);
    } else if (space == SPACE_H128) {
        space_butterfly(v, n, 128, t);
        space_times(v, SPACE_REAL, 0, n, 1.0f / 128.0f, t);
    }
}

/* real[dp] -> v[sdim]. */
FN void space_prep(GLOBAL const float *param, int space, LOCAL const float *real, LOCAL float *v, int dp, int sdim,
                   int t)
{
    BARRIER();
    for (int j = t; j < sdim; j += THREADS) {
        float sum = space == SPACE_SKETCH ? 0.0f : real[j];
        for (int i = 0; i < SKETCH_IN && space == SPACE_SKETCH; i++)
            sum += real[j / SKETCH_OUT * SKETCH_IN + i] * param[i * SKETCH_OUT + j % SKETCH_OUT];
        v[j] = sum;
    }
    space_rotate(v, space, 0, dp, t);
    BARRIER();
}

/* v[sdim] -> real[dp]. */
FN void space_finish(GLOBAL const float *param, int space, LOCAL float *v, LOCAL float *real, int dp, int t)
{
    space_rotate(v, space, 1, dp, t);
    for (int i = t; i < dp; i += THREADS) {
        float sum = space == SPACE_SKETCH ? 0.0f : v[i];
        for (int j = 0; j < SKETCH_OUT && space == SPACE_SKETCH; j++)
            sum += param[i % SKETCH_IN * SKETCH_OUT + j] * v[i / SKETCH_IN * SKETCH_OUT + j];
        real[i] = sum;
    }
    BARRIER();
}

#endif
