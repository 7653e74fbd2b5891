/* base/simd/vf_math.h: exp, sigmoid and sine/cosine on vectors, from the names of vf_<isa>.h, which include it.  Every
 * step is one correctly rounded operation in a fixed order, so all instruction sets give the same bits.
 * Coefficients: weighted least squares at 200 Chebyshev nodes, each rounded to f32 before the next was fitted. */
#include <math.h>

#define VF_KERNEL_OF(op, isa) kvant_##op##_##isa
#define VF_KERNEL_(op, isa)  VF_KERNEL_OF(op, isa)
/* kvant_norm_rms_avx2 in a file that includes vf_avx2.h. */
#define VF_KERNEL(op) VF_KERNEL_(op, VF_ISA)

/* exp(x): x < -87.33 gives 0, x > 88.37 gives inf, NaN stays NaN.  Error below 2 units in the last place. */
static inline vf vf_exp(vf x)
{
    const vf log2e = vf_set1(0x1.715476p+0f), ln2_hi = vf_set1(0x1.62e430p-1f), ln2_lo = vf_set1(-0x1.05c610p-29f);
    const vf n = vf_min(vf_set1(127.0f), vf_max(vf_set1(-126.0f), vf_round(vf_mul(x, log2e))));
    const vf r = vf_fnma(n, ln2_lo, vf_fnma(n, ln2_hi, x));
    vf p = vf_set1(0x1.6d514cp-10f);

    p = vf_fma(p, r, vf_set1(0x1.123d04p-7f));
    p = vf_fma(p, r, vf_set1(0x1.5554e4p-5f));
    p = vf_fma(p, r, vf_set1(0x1.55548cp-3f));
    p = vf_fma(p, r, vf_set1(0x1p-1f));
    p = vf_add(vf_fma(p, vf_mul(r, r), r), vf_set1(1.0f));
    p = vf_mul(p, vf_pow2(n));
    p = vf_select_lt(x, vf_set1(-87.33f), vf_zero(), p);
    return vf_select_lt(vf_set1(88.37f), x, vf_set1(INFINITY), p);
}

/* 2^x for x <= 127; x < -126 gives 0, NaN stays NaN.  For softmax: fewer steps than vf_exp. */
static inline vf vf_exp2(vf x)
{
    const vf low = vf_set1(-126.0f), n = vf_max(low, vf_round(x)), r = vf_sub(x, n);
    vf p = vf_set1(0x1.4424b0p-13f);

    p = vf_fma(p, r, vf_set1(0x1.5f0cb0p-10f));
    p = vf_fma(p, r, vf_set1(0x1.3b2a48p-7f));
    p = vf_fma(p, r, vf_set1(0x1.c6af74p-5f));
    p = vf_fma(p, r, vf_set1(0x1.ebfbe0p-3f));
    p = vf_fma(p, r, vf_set1(0x1.62e430p-1f));
    p = vf_mul(vf_fma(p, r, vf_set1(1.0f)), vf_pow2(n));
    return vf_select_lt(x, low, vf_zero(), p);
}

/* 1 / (1 + exp(-x)) */
static inline vf vf_sigmoid(vf x)
{
    const vf one = vf_set1(1.0f);

    return vf_div(one, vf_add(one, vf_exp(vf_sub(vf_zero(), x))));
}

/* x * sigmoid(x), as x / (1 + exp(-x)) */
static inline vf vf_silu(vf x)
{
    return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), x))));
}

/* sin and cos of 0 <= |x| < 2^20: reduction by pi/2 in three parts, each product exact inside its FMA. */
static inline void vf_sincos(vf x, vf *sine, vf *cosine)
{
    const vf q = vf_round(vf_mul(x, vf_set1(0x1.45f306p-1f)));
    vf r = vf_fnma(q, vf_set1(0x1.921fb6p+0f), x);

    r = vf_fnma(q, vf_set1(-0x1.777a5cp-25f), r);
    r = vf_fnma(q, vf_set1(-0x1.ee59dap-50f), r);
    const vf z = vf_mul(r, r);
    vf s = vf_fma(vf_set1(-0x1.98dd16p-13f), z, vf_set1(0x1.1105bep-7f));
    vf c = vf_fma(vf_set1(0x1.99ead0p-16f), z, vf_set1(-0x1.6c0c2ep-10f));
    s = vf_fma(s, z, vf_set1(-0x1.555540p-3f));
    s = vf_fma(vf_mul(s, z), r, r);
    c = vf_fma(c, z, vf_set1(0x1.55554ap-5f));
    c = vf_fma(c, vf_mul(z, z), vf_fnma(vf_set1(0.5f), z, vf_set1(1.0f)));
    *sine = vf_quadrant_sign(q, vf_quadrant_swap(q, c, s));
    *cosine = vf_quadrant_sign(vf_add(q, vf_set1(1.0f)), vf_quadrant_swap(q, s, c));
}
