/* exact.h: arithmetic that must round as on the CPU: quotients and square roots to the nearest (OpenCL and Metal
 * allow some units), and double precision as pairs of f32, because many GPUs have no doubles. */
#ifndef KVANT_PORTABLE_EXACT_H
#define KVANT_PORTABLE_EXACT_H

struct dd { float hi, lo; };

FN int is_finite(float v)
{
    return (port_word(v) & 0x7f800000u) != 0x7f800000u;
}

FN int is_nan(float v)
{
    return (port_word(v) & 0x7fffffffu) > 0x7f800000u;
}

FN struct dd dd_of(float hi, float lo)
{
    struct dd v;
    v.hi = hi;
    v.lo = is_finite(lo) ? lo : 0.0f;
    return v;
}

/* a * b without error. */
FN struct dd dd_product(float a, float b)
{
    const float hi = a * b;
    return dd_of(hi, fma(a, b, -hi));
}

FN struct dd dd_sum(float a, float b)
{
    const float s = a + b, v = s - a;
    return dd_of(s, (a - (s - v)) + (b - v));
}

FN struct dd dd_add(struct dd a, struct dd b)
{
    const struct dd s = dd_sum(a.hi, b.hi);
    const float e = s.lo + (a.lo + b.lo);
    return is_finite(s.hi) ? dd_sum(s.hi, e) : s;
}

FN struct dd dd_mul(struct dd a, struct dd b)
{
    const struct dd p = dd_product(a.hi, b.hi);
    const float e = p.lo + (a.hi * b.lo + a.lo * b.hi);
    return is_finite(p.hi) ? dd_sum(p.hi, e) : p;
}

FN struct dd dd_less_product(struct dd a, float x, float y)
{
    const struct dd p = dd_product(x, y);
    return dd_add(a, dd_of(-p.hi, -p.lo));
}

FN int dd_less(struct dd a, struct dd b)
{
    return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
}

/* Returns 1 if the correction of a quotient or a root neither overflows nor loses bits. */
FN int is_tame(float v)
{
    return fabs(v) < 1e30f && fabs(v) > 1e-30f;
}

FN float encode_div(float a, float b)
{
    const float q = a / b;
    if (!is_tame(q) || !is_tame(b))
        return q;
    return q + fma(-q, b, a) / b;
}

/* The square root of a pair, to f32. */
FN float dd_sqrt(struct dd x)
{
    const float s = sqrt(x.hi);
    if (!(s > 1e-15f && s < 1e15f))
        return s;
    return s + (fma(-s, s, x.hi) + x.lo) / (2.0f * s);
}

FN float encode_sqrt(float x)
{
    return dd_sqrt(dd_of(x, 0.0f));
}

FN struct dd dd_div(struct dd a, struct dd b)
{
    const float q = a.hi / b.hi;
    if (!(fabs(q) < 1e30f && fabs(b.hi) < 1e30f))
        return dd_of(q, 0.0f);
    const struct dd p = dd_mul(dd_of(q, 0.0f), b);
    return dd_sum(q, (((a.hi - p.hi) - p.lo) + a.lo) / b.hi);
}

#endif
