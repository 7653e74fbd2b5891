/* attention.c: attention of one query head over a compressed cache, with the formats alone: encode keys and values,
 * score the query, softmax, weighted sum of the values; once with the formats asked for, once in f32.
 *
 *     cc attention.c $(pkg-config --cflags --libs kvant-formats) -lm -o attention && ./attention tbq4_0 tbq3_0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <kvant/format.h>

enum { TOKENS = 256, D = 128, ROW_MAX = 4 * D };

static float keys[TOKENS][D], values[TOKENS][D], query[D];

static void attention(const kvant_format *kf, const kvant_format *vf, float *out)
{
    static uint8_t k_rows[TOKENS * ROW_MAX], v_rows[TOKENS * ROW_MAX];
    const kvant_format_kernels *k = kvant_format_best(kf), *v = kvant_format_best(vf);
    const size_t kb = kvant_format_row_bytes(kf, D), vb = kvant_format_row_bytes(vf, D);
    float prepared[D], s[TOKENS], acc[D] = { 0 }, sum = 0.0f;

    for (size_t i = 0; i < TOKENS; i++) {
        k->encode(NULL, keys[i], k_rows + i * kb, D, KVANT_ENCODER_BEST);
        v->encode(NULL, values[i], v_rows + i * vb, D, KVANT_ENCODER_BEST);
    }
    k->prep_q(NULL, query, prepared, D);
    k->score(NULL, prepared, D, 1, k_rows, kb, TOKENS, s, TOKENS, D);
    for (int i = 0; i < TOKENS; i++)       /* |scores| stay below 50 here; else subtract the largest first */
        sum += s[i] = expf(s[i] / sqrtf(D));
    for (int i = 0; i < TOKENS; i++)
        s[i] /= sum;
    v->axpy(NULL, s, TOKENS, 1, v_rows, vb, TOKENS, acc, D, D);
    v->finish_out(NULL, acc, out, D);
}

int main(int argc, char **argv)
{
    const kvant_format *kf, *vf, *f32 = kvant_format_find("f32");
    kvant_diag diag = { "a format with a projection (kvant/qjl.h) found, one without wanted" };
    if (kvant_format_parse(argc > 1 ? argv[1] : "tbq4_0", &kf, &diag) ||
        kvant_format_parse(argc > 2 ? argv[2] : "tbq4_0", &vf, &diag) || (kf->flags | vf->flags) & KVANT_FORMAT_PARAM) {
        fprintf(stderr, "attention: %s\n", diag.text);
        return 2;
    }
    for (int i = 0; i < TOKENS * D; i++) { /* any numbers will do */
        keys[i / D][i % D] = 2.0f * (float)rand() / (float)RAND_MAX - 1.0f;
        values[i / D][i % D] = 2.0f * (float)rand() / (float)RAND_MAX - 1.0f;
        query[i % D] = 6.0f * (float)rand() / (float)RAND_MAX - 3.0f;
    }
    float out[D], exact[D], error = 0.0f, size = 0.0f;
    attention(kf, vf, out);
    attention(f32, f32, exact);
    for (int j = 0; j < D; j++) {
        error += (out[j] - exact[j]) * (out[j] - exact[j]);
        size += exact[j] * exact[j];
    }
    printf("K %s, V %s: %zu bytes per token (f16: %d), relative error of the output %.4f\n", kf->name, vf->name,
           kvant_format_row_bytes(kf, D) + kvant_format_row_bytes(vf, D), 4 * D, (double)sqrtf(error / size));
    return error < 0.25f * size ? 0 : 1;
}
