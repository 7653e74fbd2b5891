/* attention.c: attention of one query head over a compressed cache, with the formats alone: encode keys and values,
 * score the query, softmax, weighted sum of the values; the same in f32 beside it.
 *
 *     cc attention.c $(pkg-config --cflags --libs kvant) -lm -o attention && ./attention tbq4_0 tbq3_0 */
#include <math.h>
#include <stdio.h>
#include <kvant/format.h>

enum { TOKENS = 256, D = 128, ROW_MAX = 4 * D };

static float random_value(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* scores -> weights */
static void softmax(float *s, int n)
{
    float top = s[0], sum = 0.0f;
    for (int i = 1; i < n; i++)
        top = fmaxf(top, s[i]);
    for (int i = 0; i < n; i++)
        sum += s[i] = expf((s[i] - top) / sqrtf(D));
    for (int i = 0; i < n; i++)
        s[i] /= sum;
}

static float k_f32[TOKENS][D], v_f32[TOKENS][D], q[D];
static unsigned char k_rows[TOKENS * ROW_MAX], v_rows[TOKENS * ROW_MAX];

int main(int argc, char **argv)
{
    const kvant_format *kf, *vf;
    kvant_diag diag;
    unsigned state = 1;
    if (kvant_format_parse(argc > 1 ? argv[1] : "tbq4_0", &kf, &diag) ||
        kvant_format_parse(argc > 2 ? argv[2] : "tbq4_0", &vf, &diag)) {
        fprintf(stderr, "attention: %s\n", diag.text);
        return 2;
    }
    if ((kf->flags | vf->flags) & KVANT_FORMAT_PARAM) {
        fprintf(stderr, "attention: a format with a projection (kvant/qjl.h) found, one without wanted\n");
        return 2;
    }
    const kvant_format_kernels *k = kvant_format_best(kf), *v = kvant_format_best(vf);
    size_t kb = kvant_format_row_bytes(kf, D), vb = kvant_format_row_bytes(vf, D);
    for (int i = 0; i < TOKENS * D; i++) {
        k_f32[i / D][i % D] = random_value(&state);
        v_f32[i / D][i % D] = random_value(&state);
    }
    for (int j = 0; j < D; j++)
        q[j] = 3.0f * random_value(&state);
    for (int i = 0; i < TOKENS; i++) {
        k->encode(NULL, k_f32[i], k_rows + (size_t)i * kb, D, KVANT_ENCODER_BEST);
        v->encode(NULL, v_f32[i], v_rows + (size_t)i * vb, D, KVANT_ENCODER_BEST);
    }

    float prepared[D], s[TOKENS], acc[D] = { 0 }, out[D], exact[D] = { 0 };
    k->prep_q(NULL, q, prepared, D);
    k->score(NULL, prepared, D, 1, k_rows, kb, TOKENS, s, TOKENS, D);
    softmax(s, TOKENS);
    v->axpy(NULL, s, TOKENS, 1, v_rows, vb, TOKENS, acc, D, D);
    v->finish_out(NULL, acc, out, D);

    double error = 0, size = 0;
    for (int i = 0; i < TOKENS; i++) {
        s[i] = 0.0f;
        for (int j = 0; j < D; j++)
            s[i] += q[j] * k_f32[i][j];
    }
    softmax(s, TOKENS);
    for (int j = 0; j < D; j++) {
        for (int i = 0; i < TOKENS; i++)
            exact[j] += s[i] * v_f32[i][j];
        error += (out[j] - exact[j]) * (out[j] - exact[j]);
        size += exact[j] * exact[j];
    }
    printf("K %s, V %s: %zu bytes per token (f16: %d), relative error of the output %.4f\n", kf->name, vf->name, kb + vb,
           4 * D, sqrt(error / size));
    return error < 0.25 * size ? 0 : 1;
}
