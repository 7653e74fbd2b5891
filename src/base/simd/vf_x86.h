/* base/simd/vf_x86.h: the rest of the vocabulary of vf_avx2.h and vf_avx512.h, which include it: what follows from
 * their vf_sum4.  Lane sums go to memory one beside the other. */

static inline void vf_put4(float *s, vf a, vf b, vf c, vf d)
{
    _mm_storeu_ps(s, vf_sum4(a, b, c, d));
}

static inline void vf_put3(float *s, vf a, vf b, vf c)
{
    __m128 t = vf_sum4(a, b, c, c);

    _mm_storel_pi((__m64 *)(void *)s, t);
    _mm_store_ss(s + 2, _mm_movehl_ps(t, t));
}

static inline void vf_put2(float *s, vf a, vf b)
{
    _mm_storel_pi((__m64 *)(void *)s, vf_sum4(a, b, a, b));
}

static inline void vf_put1(float *s, vf a)
{
    _mm_store_ss(s, vf_sum4(a, a, a, a));
}

/* s0[0..1] = sums of a, b;  s1[0..1] = sums of c, d */
static inline void vf_put22(float *s0, float *s1, vf a, vf b, vf c, vf d)
{
    __m128 t = vf_sum4(a, b, c, d);

    _mm_storel_pi((__m64 *)(void *)s0, t);
    _mm_storeh_pi((__m64 *)(void *)s1, t);
}

static inline void vf_prefetch(const uint8_t *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}
