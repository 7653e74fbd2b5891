/* search.glsl: scale search and least-squares refit of the encoders: formats/encoders/search.c, term by term.  One thread works
 * on y[count]; codes are in code[], a table of n levels in fmt_lut[], or integers lo .. hi (n == 0). */

const uint MOST_EDGES = 15u;
float y[128], edge[MOST_EDGES];    /* edge: half way between levels that follow each other */
int code[128], found[128];

struct book { uint n; float lo, hi, offset; };     /* offset: times the signs behind the levels; 0: none */

float book_shift(book b, uint i)
{
    return b.offset == 0.0 ? 0.0 : b.offset * fmt_lut[b.n + i];
}

uint search_storable(float s)
{
    const uint h = to_half(s);
    if ((h & 0x7fffu) == 0u)
        return h | 1u;
    return (h & 0x7c00u) == 0x7c00u ? (h & 0x8000u) | 0x7bffu : h;
}

/* Once for a search: nearest() is its innermost step. */
void edges_find(book b)
{
    [[unroll]] for (uint m = 0u; m < MOST_EDGES; m++)
        if (m + 1u < b.n) {
            precise float half_way = 0.5 * (fmt_lut[m] + fmt_lut[m + 1u]);
            edge[m] = half_way;
        }
}

int nearest(book b, float t)
{
    int k = 0;
    if (b.n == 0u) {
        precise float r = t + 12582912.0;                  /* 1.5 * 2^23: rounds to an integer */
        r -= 12582912.0;
        r = r > b.lo ? r : b.lo;                           /* NaN too */
        return int(r > b.hi ? b.hi : r);
    }
    [[unroll]] for (uint m = 0u; m < MOST_EDGES; m++)
        k += m + 1u < b.n && t >= edge[m] ? 1 : 0;
    return k;
}

float book_value(book b, int k)
{
    return b.n == 0u ? float(k) : fmt_lut[k];
}

/* Codes nearest to y/s into found[], and the sums for a refit: y*v, v*v. */
void search_assign(book b, uint count, float s, out vec2 yv_all, out vec2 vv_all)
{
    const float inv = div_exact(1.0, s);
    yv_all = vec2(0.0);
    vv_all = vec2(0.0);
    for (uint i = 0u; i < count; i += 32u) {
        precise float yv = 0.0, vv = 0.0;
        for (uint j = i; j < i + 32u; j++) {
            precise float t = y[j] * inv;
            if (b.offset != 0.0)
                t -= book_shift(b, j);
            found[j] = nearest(b, t);
            precise float v = book_value(b, found[j]);
            if (b.offset != 0.0)
                v += book_shift(b, j);
            yv += y[j] * v;
            vv += v * v;
        }
        yv_all = dd_add(yv_all, vec2(yv, 0.0));
        vv_all = dd_add(vv_all, vec2(vv, 0.0));
    }
}

/* Squared error of code[] (of_found: found[]) under a stored scale. */
vec2 search_error(book b, uint count, bool of_found, uint scale)
{
    const float s = half_of(scale);
    vec2 err = vec2(0.0);
    for (uint j = 0u; j < count; j++) {
        precise float v = book_value(b, of_found ? found[j] : code[j]) + book_shift(b, j);
        const vec2 p = dd_product(s, v), e = dd_add(vec2(y[j], 0.0), -p);
        err = dd_add(err, dd_mul(e, e));
    }
    return err;
}

/* The least error over seven factors of guess, refitted once: into code[] and the result, where it beats `scale`.
 * Rounds 0 to 6 try the factors, 7 refits the best, 8 assigns under what will be stored; one body for all, because a
 * driver inlines every call. */
uint search_scale(book b, uint count, float guess, uint scale)
{
    const float factors[7] = float[7](0.78, 0.84, 0.9, 0.96, 1.02, 1.09, 1.17);
    vec2 gain = vec2(0.0), yv, vv, err[2];
    float s = 0.0;
    uint h = 0u;
    if (!(abs(guess) > 0.0 && abs(guess) <= 1e30))
        return scale;              /* zero, NaN, Inf: nothing to search */
    [[dont_unroll]] for (int i = 0; i < 9; i++) {
        precise float at_scale = i < 7 ? guess * factors[i] : half_of(h);
        search_assign(b, count, at_scale, yv, vv);
        const vec2 q = vv.x > 0.0 ? dd_div(dd_mul(yv, yv), vv) : vec2(0.0);
        if (i < 7 ? dd_less(gain, q) : i == 7 && vv.x > 0.0) {
            gain = q;
            s = dd_div(yv, vv).x;
        }
        h = i < 8 ? search_storable(s) : h;
    }
    [[dont_unroll]] for (int i = 0; i < 2; i++)
        err[i] = search_error(b, count, i == 1, i == 1 ? h : scale);
    if (!(dd_less(err[1], err[0]) || (!is_finite(err[0].x) && is_finite(err[1].x))))
        return scale;
    for (uint j = 0u; j < count; j++)
        code[j] = found[j];
    return h;
}

uint search_unbiased_scale(vec2 s, uint scale)
{
    const uint h = is_finite(s.x) ? to_half(s.x) : 0u;
    return (h & 0x7fffu) == 0u || (h & 0x7c00u) == 0x7c00u ? scale : h;
}

/* The scale of code[] that makes <y, decoded> = <y, y>. */
uint search_unbiased(book b, uint count, uint scale)
{
    vec2 yy = vec2(0.0), yv = vec2(0.0);
    for (uint j = 0u; j < count; j++) {
        precise float v = book_value(b, code[j]) + book_shift(b, j);
        yy = dd_add(yy, dd_product(y[j], y[j]));
        yv = dd_add(yv, dd_product(y[j], v));
    }
    return search_unbiased_scale(dd_div(yy, yv), scale);
}
