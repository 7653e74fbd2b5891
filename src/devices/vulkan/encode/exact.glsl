/* exact.glsl: arithmetic that must round as on the CPU: quotients and square roots to nearest (Vulkan allows 2.5 and 3
 * units), and double precision as pairs of f32 (dd), because shaderFloat64 is an option that many GPUs lack. */

bool is_finite(float x)
{
    return (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u;
}

/* a * b without error: hi + lo (Dekker; fma would be shorter, but a driver may split it). */
vec2 dd_product(float a, float b)
{
    precise float hi = a * b, ca = 4097.0 * a, cb = 4097.0 * b, ah = ca - (ca - a), al = a - ah, bh = cb - (cb - b),
                  bl = b - bh;
    precise float lo = ((ah * bh - hi) + ah * bl + al * bh) + al * bl;
    return is_finite(lo) ? vec2(hi, lo) : vec2(hi, 0.0);
}

vec2 dd_sum(float a, float b)
{
    precise float s = a + b, v = s - a, e = (a - (s - v)) + (b - v);
    return is_finite(s) ? vec2(s, e) : vec2(s, 0.0);
}

vec2 dd_add(vec2 a, vec2 b)
{
    const vec2 s = dd_sum(a.x, b.x);
    precise float e = s.y + (a.y + b.y);
    return is_finite(s.x) ? dd_sum(s.x, e) : s;
}

vec2 dd_mul(vec2 a, vec2 b)
{
    const vec2 p = dd_product(a.x, b.x);
    precise float e = p.y + (a.x * b.y + a.y * b.x);
    return is_finite(p.x) ? dd_sum(p.x, e) : p;
}

float div_exact(float a, float b)
{
    const float q = a / b;
    if (!(abs(q) < 1e30 && abs(q) > 1e-30 && abs(b) < 1e30 && abs(b) > 1e-30))
        return q;
    const vec2 p = dd_product(q, b);
    precise float r = ((a - p.x) - p.y) / b, y = q + r;
    return y;
}

float sqrt_exact(float x)
{
    const float s = sqrt(x);
    if (!(s > 1e-15 && s < 1e15))
        return s;
    const vec2 p = dd_product(s, s);
    precise float r = ((x - p.x) - p.y) / (2.0 * s), y = s + r;
    return y;
}

vec2 dd_div(vec2 a, vec2 b)
{
    const float q = a.x / b.x;
    if (!(abs(q) < 1e30 && abs(b.x) < 1e30))
        return vec2(q, 0.0);
    const vec2 p = dd_mul(vec2(q, 0.0), b);
    precise float r = (((a.x - p.x) - p.y) + a.y) / b.x;
    return dd_sum(q, r);
}

/* sqrt of a sum in dd, rounded to f32. */
float dd_sqrt(vec2 x)
{
    const float s = sqrt(x.x);
    if (!(s > 1e-15 && s < 1e15))
        return s;
    const vec2 p = dd_product(s, s);
    precise float r = (((x.x - p.x) - p.y) + x.y) / (2.0 * s), y = s + r;
    return y;
}

bool dd_less(vec2 a, vec2 b)
{
    return a.x < b.x || (a.x == b.x && a.y < b.y);
}
