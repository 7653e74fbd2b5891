/* float8.h: bytes S.EEEE.MMM times one f32 scale, the format's parameter, over simd_<isa>.h.
 * score and axpy go through a panel of decoded rows and the f32 kernels. */
#include <math.h>
#include "formats/simd/simd_card.h"
#include "formats/simd/simd_f32.h"

static void f8_decode_acc(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d)
{
    float scale = 1.0f;
    if (param)
        memcpy(&scale, param, sizeof scale);
    for (int i = 0; i < n; i++, rows += stride, out += d) {
        int c = 0;
#ifdef VF_E4M3_BLOCK
        for (const float wide = scale * 256.0f; isfinite(wide) && c + 32 <= d; c += 32) {
            vf v[VF_B];
            block_e4m3(rows + c, v);
#define F8_STORE(k) vf_store(out + c + VF_LANES * (k), vf_mul(v[k], vf_set1(wide)));
            VF_BLOCK(F8_STORE)
        }
#endif
        for (; c + VF_LANES <= d; c += VF_LANES)
            vf_store(out + c, vf_mul(vf_load_e4m3(rows + c), vf_set1(scale)));
        if (c < d) {
            uint8_t last[VF_LANES] = { 0 };
            float part[VF_LANES];
            memcpy(last, rows + c, (size_t)(d - c));
            vf_store(part, vf_mul(vf_load_e4m3(last), vf_set1(scale)));
            memcpy(out + c, part, (size_t)(d - c) * sizeof *part);
        }
    }
}

enum { F8_PANEL = 4096 };

static void f8_score(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride, int n,
                     float *s, size_t lds, int d)
{
    _Alignas(64) float panel[F8_PANEL];
    int step = F8_PANEL / d;
    for (int i = 0; i < n; i += step) {
        int m = n - i < step ? n - i : step;
        f8_decode_acc(param, rows + (size_t)i * stride, stride, m, panel, d);
        VF_KERNEL(f32_score)(NULL, qp, ldq, r, (const uint8_t *)panel, (size_t)d * sizeof *panel, m, s + i, lds, d);
    }
}

static void f8_axpy(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride, int n,
                    float *acc, size_t lda, int d)
{
    _Alignas(64) float panel[F8_PANEL];
    int step = F8_PANEL / d;
    for (int i = 0; i < n; i += step) {
        int m = n - i < step ? n - i : step;
        f8_decode_acc(param, rows + (size_t)i * stride, stride, m, panel, d);
        VF_KERNEL(f32_axpy)(NULL, w + i, ldw, r, (const uint8_t *)panel, (size_t)d * sizeof *panel, m, acc, lda, d);
    }
}

const kvant_format_kernels CARD_KERNELS(CARD_NAME, VF_ISA) = {
    .decode_acc = f8_decode_acc, .score = f8_score, .axpy = f8_axpy,
};
