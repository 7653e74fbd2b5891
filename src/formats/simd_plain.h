/* simd_plain.h: encode and decode_acc of the 16-bit plain formats over a vector layer.
 *
 * Before including: simd_wide.h with its macros, and WIDE_STORE = vf_store_<format> (without it there is no
 * plain_encode).  Gives plain_encode and plain_decode_acc: element by element, so equal to the reference bit for
 * bit. */

#ifdef WIDE_STORE
static void plain_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    int c = 0;
    (void)param;
    (void)encoder;
    for (; c + VF_N <= d; c += VF_N)
        WIDE_STORE(row + (size_t)c * WIDE_BYTES, vf_load(x + c));
    if (c < d) {
        uint8_t chunk[VF_N * WIDE_BYTES];
        WIDE_STORE(chunk, float_load_part(x + c, d - c));
        memcpy(row + (size_t)c * WIDE_BYTES, chunk, (size_t)(d - c) * WIDE_BYTES);
    }
}
#endif

static void plain_decode_acc(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d)
{
    (void)param;
    for (int i = 0; i < n; i++, rows += stride, out += d) {
        int c = 0;
        for (; c + VF_N <= d; c += VF_N)
            vf_store(out + c, WIDE_LOAD(rows + (size_t)c * WIDE_BYTES));
        if (c < d) {
            float chunk[VF_N];
            vf_store(chunk, wide_load_part(rows + (size_t)c * WIDE_BYTES, d - c));
            memcpy(out + c, chunk, (size_t)(d - c) * sizeof *chunk);
        }
    }
}
