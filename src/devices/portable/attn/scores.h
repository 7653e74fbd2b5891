/* scores.h: what both kernels of attention do with a score, and V's defaults where no host gives them. */
#ifndef KVANT_PORTABLE_SCORES_H
#define KVANT_PORTABLE_SCORES_H

#ifndef V_FMT
#define V_FMT f16
#define D_V 64
#define P_V 64
#define S_V 64
#define HEADS 1
#endif

#define MOST(a, b) ((a) > (b) ? (a) : (b))
#define NO_SCORE port_bits(0xff800000u)
#define ODD_SCORE port_bits(0x7fc00000u)

/* A score with the cap; NaN stays. */
FN float capped(float s, float cap)
{
    return cap > 0.0f ? cap * tanh(fmin(fmax(s / cap, -15.0f), 15.0f)) : s;        /* tanh(15) is 1 */
}

FN int is_odd(float s)
{
    return (port_word(s) & 0x7fffffffu) > 0x7f800000u;
}

#endif
