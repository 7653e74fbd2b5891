/* peak_body.h: the loops of peak.h over vf_<isa>.h, included before it. */
#include "cli/bench/peak.h"
#include "formats/simd/simd_rep.h"

#define PEAK_ZERO(k) vf a##k = vf_zero();
#define PEAK_LOAD(k) a##k = vf_fma(vf_load(x + i + (k) * VF_LANES), one, a##k);
#define PEAK_FMA(k) a##k = vf_fma(a##k, half, one);
#define PEAK_SUM vf_put4(s, a0, a1, a2, a3); vf_put4(s + 4, a4, a5, a6, a7);

static float peak_read(const float *x, size_t n)
{
    const vf one = vf_set1(1.0f);
    float s[8];
    REP8(PEAK_ZERO)
    for (size_t i = 0; i < n; i += 8 * VF_LANES) {
        REP8(PEAK_LOAD)
    }
    PEAK_SUM
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* 8 chains: two units with a latency of 4.  The chains tend to 2: no denormals, no overflow. */
static float peak_fma(long steps)
{
    const vf one = vf_set1(1.0f), half = vf_set1(0.5f);
    float s[8];
    REP8(PEAK_ZERO)
    for (long i = 0; i < steps; i++) {
        REP8(PEAK_FMA)
    }
    PEAK_SUM
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}
