/* space_p32.h: P32 of every 32 values (signs, Hadamard, 1/sqrt(32)) over simd_encode_<isa>.h: equal to rotate.c bit
 * for bit. */
static const float p32_signs[32] = { ROTATE_SIGNS32 };

#define P32_K 0x1.6a09e6p-3f               /* 1/sqrt(32), 0x3e3504f3 */

static inline void p32_rotate(vf *v)
{
    mul32(v, p32_signs);
    butterfly32(v);
    scale32(v, P32_K);
}

static void space_prep_q(const void *param, const float *q, float *qp, int d)
{
    (void)param;
    for (int b = 0; b < d; b += 32) {
        vf v[4];
        load32(q + b, v);
        p32_rotate(v);
        store32(qp + b, v);
    }
}

static void space_finish_out(const void *param, const float *acc, float *out, int d)
{
    (void)param;
    for (int b = 0; b < d; b += 32) {
        vf v[4];
        load32(acc + b, v);
        butterfly32(v);
        scale32(v, P32_K);
        mul32(v, p32_signs);
        store32(out + b, v);
    }
}

#define SPACE_KERNELS .prep_q = space_prep_q, .finish_out = space_finish_out,
