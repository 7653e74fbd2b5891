/* qjl.c: qjl1_256 with its projection: keys as one sign per sketch value.  The projection is made once, written beside
 * the data and read again: rows encoded with one projection mean nothing under another.
 *
 *     cc qjl.c $(pkg-config --cflags --libs kvant-formats) -lm -o qjl && ./qjl projection.f32
 *
 * Shows: rows of many keys at once, scores from the float and from the int8 sketch of a query, and the fused attention
 * over qjl1_256 keys and tbq3_0 values. */
#include <math.h>
#include <stdio.h>
#include <kvant/format.h>
#include <kvant/fused.h>
#include <kvant/qjl.h>

enum { TOKENS = 512, D = KVANT_QJL_DIM, K_BYTES = 34, V_BYTES = 56 };

static float made[KVANT_QJL_VALUES], projection[KVANT_QJL_VALUES], keys[TOKENS][D], values[TOKENS][D];
static uint8_t k_rows[TOKENS][K_BYTES], v_rows[TOKENS][V_BYTES];

/* Any numbers will do; the same ones on every machine. */
static void fill(float *x, int n)
{
    static unsigned state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

static int save_and_load(const char *path)
{
    kvant_diag diag;
    kvant_qjl_projection_build(KVANT_QJL_SEED, made);
    FILE *f = fopen(path, "wb");
    int written = f && fwrite(made, sizeof made, 1, f) == 1;
    if (!f || fclose(f) || !written) {
        fprintf(stderr, "qjl: %s cannot be written\n", path);
        return 1;
    }
    if (kvant_qjl_projection_load(path, projection, &diag)) {
        fprintf(stderr, "qjl: %s\n", diag.text);
        return 1;
    }
    return 0;
}

static double correlation(const float *a, const float *b, int n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        ab += a[i] * b[i];
        aa += a[i] * a[i];
        bb += b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

int main(int argc, char **argv)
{
    const kvant_format *kf = kvant_format_find("qjl1_256"), *vf = kvant_format_find("tbq3_0");
    const kvant_format_kernels *k = kvant_format_best(kf), *v = kvant_format_best(vf);
    float query[D], sketch[KVANT_QJL_SKETCH], exact[TOKENS], scores[TOKENS], scores8[TOKENS], out[D], scale;
    int8_t sketch8[KVANT_QJL_SKETCH];
    kvant_attn_fused fused = { sketch, &k_rows[0][0], &v_rows[0][0], out, 1, 1, 1, TOKENS, 1.0f / sqrtf(D), 0, 0, 0 };
    kvant_diag diag;

    if (save_and_load(argc > 1 ? argv[1] : "projection.f32"))
        return 1;
    fill(&keys[0][0], TOKENS * D);
    fill(&values[0][0], TOKENS * D);
    fill(query, D);
    if (k->encode_rows)             /* one walk over the projection serves many rows */
        k->encode_rows(projection, &keys[0][0], D, TOKENS, &k_rows[0][0], K_BYTES, D, KVANT_ENCODER_UPSTREAM);
    for (int i = 0; i < TOKENS; i++) {
        if (!k->encode_rows)
            k->encode(projection, keys[i], k_rows[i], D, KVANT_ENCODER_UPSTREAM);
        v->encode(NULL, values[i], v_rows[i], D, KVANT_ENCODER_BEST);
        exact[i] = 0.0f;
        for (int j = 0; j < D; j++)
            exact[i] += query[j] * keys[i][j];
    }
    k->prep_q(projection, query, sketch, D);
    k->score(projection, sketch, KVANT_QJL_SKETCH, 1, &k_rows[0][0], K_BYTES, TOKENS, scores, TOKENS, D);
    kvant_qjl_query_i8(sketch, sketch8, &scale);
    kvant_qjl_score_i8(sketch8, scale, &k_rows[0][0], K_BYTES, TOKENS, scores8);
    if (kvant_attn_fused_check(&fused, &diag)) {
        fprintf(stderr, "qjl: %s\n", diag.text);
        return 1;
    }
    kvant_attn_fused_qjl_tbq_ref(&fused);
    printf("qjl1_256: %zu bytes per key (f16: %d); correlation of %d scores with the exact ones %.3f, int8 with float %.5f; "
           "fused output begins with %.4f\n",
           kvant_format_row_bytes(kf, D), 2 * D, TOKENS, correlation(exact, scores, TOKENS),
           correlation(scores, scores8, TOKENS), (double)out[0]);
    return correlation(exact, scores, TOKENS) > 0.7 && correlation(scores, scores8, TOKENS) > 0.999 ? 0 : 1;
}
