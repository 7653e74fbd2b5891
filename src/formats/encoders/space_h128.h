/* space_h128.h: the unnormalised Hadamard of every 128 values over simd_encode_<isa>.h; prep_q and finish_out are
 * the same map, over 128. */
static void space_transform(const void *param, const float *x, float *y, int d)
{
    (void)param;
    for (int g = 0; g < d; g += 128) {
        for (int c = 0; c < 128; c += 8)
            vf_store(y + g + c, vf_load(x + g + c));
        butterfly128(y + g);
        for (int c = 0; c < 128; c += 8)
            vf_store(y + g + c, vf_mul(vf_load(y + g + c), vf_set1(1.0f / 128.0f)));
    }
}

#define SPACE_KERNELS .prep_q = space_transform, .finish_out = space_transform,
