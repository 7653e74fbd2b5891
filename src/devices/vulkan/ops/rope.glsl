/* rope.glsl: sine and cosine written out: Vulkan promises an absolute error of 2^-11 and only inside [-pi, pi]. */

/* a * b without error: hi + lo (Dekker). */
vec2 two_product(float a, float b)
{
    precise float ca = 4097.0 * a, cb = 4097.0 * b, ah = ca - (ca - a), al = a - ah, bh = cb - (cb - b), bl = b - bh;
    precise float hi = a * b, lo = ((ah * bh - hi) + ah * bl + al * bh) + al * bl;
    return vec2(hi, lo);
}

/* sin, cos of an f32 angle: the angle minus k pi/2 in two pieces, then polynomials on [-pi/4, pi/4] (Cephes). */
vec2 sin_cos(float x)
{
    const float k = floor(x * 0.63661977 + 0.5);
    const vec2 p = two_product(k, uintBitsToFloat(0x3fc90fdbu));
    precise float r = (x - p.x) - p.y, q = k * uintBitsToFloat(0xb33bbd2eu);
    precise float y = r - q;
    const float z = y * y;
    const float s = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * y + y;
    const float c = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1.0;
    const int quarter = int(k) & 3;
    const vec2 sc = (quarter & 1) != 0 ? vec2(c, s) : vec2(s, c);
    return vec2((quarter & 2) != 0 ? -sc.x : sc.x, quarter == 1 || quarter == 2 ? -sc.y : sc.y);
}
