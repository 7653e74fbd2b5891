/* attn_fused_ref.c: fused attention of QJL keys with tbq3_0 or q4_polar values.  REFERENCE.
 * Scores are computed three times rather than stored: nothing here allocates. */
#include "kvant/fused.h"

#include <math.h>
#include <string.h>
#include "base/error.h"
#include "formats/format.h"
#include "kvant/qjl.h"

enum { HEAD = 128, K_BYTES = 34 };

int kvant_attn_fused_check(const kvant_attn_fused *a, kvant_diag *diag)
{
    if (a->n_q_pos < 0 || a->n_tokens < 0 || a->n_heads < 1 || a->n_kv_heads < 1)
        return kvant_fail(diag, KVANT_EINVAL, "attn_fused: %d positions, %d tokens, %d/%d heads; want none negative, "
                          "at least 1 head", a->n_q_pos, a->n_tokens, a->n_heads, a->n_kv_heads);
    if (a->n_heads % a->n_kv_heads)
        return kvant_fail(diag, KVANT_EINVAL, "attn_fused: %d query heads, want a multiple of the %d KV heads",
                          a->n_heads, a->n_kv_heads);
    if (a->n_q_pos && (!a->q_sketch || !a->out || (a->n_tokens && (!a->k || !a->v))))
        return kvant_fail(diag, KVANT_EINVAL, "attn_fused: a buffer is NULL");
    return KVANT_OK;
}

/* One query head at one position over `n` visible tokens of its KV head. */
typedef struct head_task {
    const float *q;
    const uint8_t *k, *v;
    int n;
    float sm_scale;
    const kvant_format *v_format;
} head_task;

static float raw_score(const head_task *h, int t)
{
    float s;
    kvant_format_qjl1_256.ref.score(NULL, h->q, KVANT_QJL_SKETCH, 1, h->k + (size_t)t * K_BYTES, K_BYTES, 1, &s, 1,
                                    HEAD);
    return s * h->sm_scale;
}

static void head_run(const head_task *h, float *out)
{
    memset(out, 0, HEAD * sizeof *out);
    float m = -INFINITY;
    int nan = 0;
    for (int t = 0; t < h->n; t++) {
        float s = raw_score(h, t);
        nan |= s != s;
        m = s > m ? s : m;
    }
    if (nan || !isfinite(m))
        return;

    double sum = 0.0;
    for (int t = 0; t < h->n; t++)
        sum += expf(raw_score(h, t) - m);
    float inv = (float)(1.0 / sum), value[HEAD];
    size_t v_bytes = kvant_format_row_bytes(h->v_format, HEAD);
    for (int t = 0; t < h->n; t++) {
        float w = expf(raw_score(h, t) - m) * inv;
        if (w == 0.0f)
            continue;
        kvant_row_decode(h->v_format, NULL, h->v + (size_t)t * v_bytes, value, HEAD);
        for (int j = 0; j < HEAD; j++)
            out[j] += w * value[j];
    }
}

static void run(const kvant_attn_fused *a, const kvant_format *v_format)
{
    size_t v_bytes = kvant_format_row_bytes(v_format, HEAD);
    for (int p = 0; p < a->n_q_pos; p++) {
        int64_t last = a->causal ? (int64_t)a->q_pos_base + p + 1 : a->n_tokens;
        int n = (int)(last < 0 ? 0 : last > a->n_tokens ? a->n_tokens : last);
        for (int h = 0; h < a->n_heads; h++) {
            size_t head = (size_t)p * (size_t)a->n_heads + (size_t)h;
            size_t first = (size_t)(h / (a->n_heads / a->n_kv_heads)) * (size_t)a->n_tokens;
            head_task task = { a->q_sketch + head * KVANT_QJL_SKETCH, a->k ? a->k + first * K_BYTES : NULL,
                               a->v ? a->v + first * v_bytes : NULL, n, a->sm_scale, v_format };
            head_run(&task, a->out + head * HEAD);
        }
    }
}

void kvant_attn_fused_qjl_tbq_ref(const kvant_attn_fused *a)
{
    run(a, &kvant_format_tbq3_0);
}

void kvant_attn_fused_qjl_polar_ref(const kvant_attn_fused *a)
{
    run(a, a->v_use_qjl ? &kvant_format_q4_polar_r : &kvant_format_q4_polar);
}
