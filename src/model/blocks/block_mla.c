/* blocks/block_mla.c: latent attention (MLA) in its absorbed form.
 *
 * A token leaves one row in the cache: rank values of a normed latent, then n_rot values of a key that all heads share,
 * rotated where the model has RoPE.  A head's keys and values are products of the latent; instead of making them, its
 * query goes through the same matrix (attn_k_b) and is then compared with the row itself, and the weighted sum of
 * latents goes through attn_v_b.  So this is attention with one KV head, d_k = rank + n_rot and d_v = rank.  The V side
 * holds the latent once more, since the two sides of the cache have their own formats. */
#include <math.h>
#include <stdio.h>

#include "model/build.h"

static int read_size(const gguf *g, const char *arch, const char *suffix, int min, int max, int *v, kvant_diag *diag)
{
    char key[96];
    uint32_t u = 0;

    snprintf(key, sizeof key, "%s.attention.%s", arch, suffix);
    KVANT_TRY(gguf_u32(g, key, min > 0, &u, diag));
    if (u < (uint32_t)min || u > (uint32_t)max)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted %d to %d", key, u, min, max);
    *v = (int)u;
    return KVANT_OK;
}

static int check_mla(const char *arch, const hparams *hp, kvant_diag *diag)
{
    if (hp->n_head_kv != 1 || hp->d_v != hp->mla.rank || hp->d_k != hp->mla.rank + hp->n_rot)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "%s: %d KV heads, key_length %d, value_length %d; wanted 1, %d and %d (kv_lora_rank %d, "
                          "rope.dimension_count %d)", arch, hp->n_head_kv, hp->d_k, hp->d_v, hp->mla.rank + hp->n_rot,
                          hp->mla.rank, hp->mla.rank, hp->n_rot);
    if (hp->mla.dk <= hp->n_rot)
        return kvant_fail(diag, KVANT_EFORMAT, "%s.attention.key_length_mla: %d, wanted more than the %d rotated", arch,
                          hp->mla.dk, hp->n_rot);
    return KVANT_OK;
}

int read_mla_shapes(const gguf *g, const char *arch, int any_d_v, hparams *hp, kvant_diag *diag)
{
    char key[96];

    snprintf(key, sizeof key, "%s.attention.key_length_mla", arch);
    KVANT_TRY(read_size(g, arch, "kv_lora_rank", 1, MODEL_MAX_HEAD_DIM, &hp->mla.rank, diag));
    KVANT_TRY(read_size(g, arch, "q_lora_rank", 0, 1 << 20, &hp->mla.q_rank, diag));
    if (!gguf_find(g, key))
        return kvant_fail(
            diag, KVANT_EUNSUPPORTED,
            "%s: missing; wanted a file with attn_k_b and attn_v_b apart, as converters have written them "
            "since 2025",
            key);
    KVANT_TRY(read_size(g, arch, "key_length_mla", 1, 1 << 16, &hp->mla.dk, diag));
    KVANT_TRY(read_size(g, arch, "value_length_mla", 1, 1 << 16, &hp->mla.dv, diag));
    if (any_d_v)
        hp->d_v = hp->mla.rank;
    KVANT_TRY(check_mla(arch, hp, diag));
    hp->attn_scale = 1.0f / sqrtf((float)hp->mla.dk);
    return KVANT_OK;
}

static int request_query(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    const int64_t e = hp->n_embd, r = hp->mla.q_rank, width = (int64_t)hp->n_head * hp->mla.dk;

    if (r == 0)
        return weight_layer_matrix(m, l, "attn_q.weight", e, width, 1, WEIGHT_REQUIRED, &w->attn.q, diag);
    KVANT_TRY(weight_layer_matrix(m, l, "attn_q_a.weight", e, r, 1, WEIGHT_REQUIRED, &w->attn.q_a, diag));
    KVANT_TRY(weight_layer_vector(m, l, "attn_q_a_norm.weight", r, WEIGHT_REQUIRED, &w->attn.q_norm, diag));
    return weight_layer_matrix(m, l, "attn_q_b.weight", r, width, 1, WEIGHT_REQUIRED, &w->attn.q, diag);
}

int request_mla(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    const int64_t e = hp->n_embd, r = hp->mla.rank;
    const int h = hp->n_head;

    w->is_attn = 1;
    KVANT_TRY(request_query(m, l, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_kv_a_mqa.weight", e, hp->d_k, 1, WEIGHT_REQUIRED, &w->attn.k, diag));
    KVANT_TRY(weight_layer_vector(m, l, "attn_kv_a_norm.weight", r, WEIGHT_REQUIRED, &w->attn.k_norm, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_k_b.weight", hp->mla.dk - hp->n_rot, r, h, WEIGHT_REQUIRED, &w->attn.k_b,
                                  diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_v_b.weight", r, hp->mla.dv, h, WEIGHT_REQUIRED, &w->attn.v_b, diag));
    return weight_layer_matrix(m, l, "attn_output.weight", (int64_t)h * hp->mla.dv, e, 1, WEIGHT_REQUIRED, &w->attn.out,
                               diag);
}

static int has_rope(const hparams *hp)
{
    return hp->rope.none_step == 0;
}

static float latent_eps(const hparams *hp)
{
    return hp->norm.latent_eps > 0.0f ? hp->norm.latent_eps : hp->norm.eps;
}

/* buf.o = q of all heads, mla.dk each: values without position, then the rotated ones. */
static void project_query(builder *b, const layer_weights *w)
{
    const hparams *hp = &b->m->hp;
    const int e = hp->n_embd, r = hp->mla.q_rank, h = hp->n_head, d = hp->mla.dk, ld = h * d;
    const float *in = b->in;
    int width = e;

    if (r > 0) {
        build_matmul(b, w->attn.q_a, b->in, e, b->buf.att, r, b->n);
        BUILD(b, NORM_RMS, { b->buf.att, b->vec[w->attn.q_norm], b->buf.att, latent_eps(hp), b->n, 1, r, r, r, r, r });
        in = b->buf.att;
        width = r;
    }
    build_matmul(b, w->attn.q, in, width, b->buf.o, ld, b->n);
    if (has_rope(hp))
        BUILD(b, ROPE, { b->buf.o + d - hp->n_rot, b->pos, b->tables.inv_freq, hp->rope.mscale, hp->rope.neox,
                         hp->n_rot, b->n, h, ld, d });
}

/* qkv = [query of d_k per head | row of the cache], from buf.o and buf.a. */
static void absorb(builder *b, const layer_weights *w, float *q, float *k, int64_t ld)
{
    const hparams *hp = &b->m->hp;
    const int h = hp->n_head, r = hp->mla.rank, d = hp->d_k, n_rot = hp->n_rot;

    BUILD(b, ROWS_COPY, { b->tables.heads, (float *)b->buf.heads, b->n, 1, h, 0, h, h, h });
    BUILD(b, MATMUL_ID, { &b->w[w->attn.k_b], b->buf.o, b->buf.heads, b->buf.att, b->n, h, 1, hp->mla.dk, b->compute });
    BUILD(b, ROWS_COPY, { b->buf.att, q, b->n, h, r, h * r, r, ld, d });
    BUILD(b, ROWS_COPY, { b->buf.o + hp->mla.dk - n_rot, q + r, b->n, h, n_rot, h * hp->mla.dk, hp->mla.dk, ld, d });
    build_matmul(b, w->attn.k, b->in, hp->n_embd, k, ld, b->n);
    BUILD(b, NORM_RMS, { k, b->vec[w->attn.k_norm], k, latent_eps(hp), b->n, 1, r, ld, r, ld, r });
    if (has_rope(hp))
        BUILD(b, ROPE, { k + r, b->pos, b->tables.inv_freq, hp->rope.mscale, hp->rope.neox, n_rot, b->n, 1, ld,
                         n_rot });
}

void build_mla(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const int h = hp->n_head, width = h * hp->mla.rank, out = h * hp->mla.dv;
    const int64_t ld = (int64_t)(h + 1) * hp->d_k;
    float *q = b->buf.qkv, *k = q + (int64_t)h * hp->d_k;

    project_query(b, w);
    absorb(b, w, q, k, ld);
    if (hp->rope.temp > 0)
        BUILD(b, ATTN_TEMP, { q, b->pos, hp->rope.temp, hp->rope.n_ctx_orig, b->n, h * hp->d_k, ld });
    build_cache_rows(b, l, k, k, ld);
    BUILD(b, ATTN,
          { b->seqs, b->k[l], b->v[l], q, b->buf.att, ld, hp->d_k, width, h, 1, hp->d_k, hp->mla.rank, hp->attn_scale,
            b->exact.tail, b->compute, b->max_pos, 0, 0.0f, NULL, b->exact.sink });
    const float *att = build_keep_output_rows(b, l, b->buf.att, width, b->buf.keep);
    if (b->rows > 0)
        BUILD(b, MATMUL_ID,
              { &b->w[w->attn.v_b], att, b->buf.heads, b->buf.o, b->rows, h, 1, hp->mla.rank, b->compute });
    build_matmul(b, w->attn.out, b->buf.o, out, b->buf.delta, hp->n_embd, b->rows);
    b->have_delta = 1;
}

/* ---- layers of latent attention and experts ---- */

/* Here YaRN sharpens the scores, not the sines.  The key is a tenth of the configuration's mscale_all_dim. */
static int read_yarn_scale(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag)
{
    char key[96];
    float tenth = 0.0f;

    snprintf(key, sizeof key, "%s.rope.scaling.yarn_log_multiplier", arch);
    KVANT_TRY(gguf_f32(g, key, 0, &tenth, diag));
    if (hp->rope.yarn_factor <= 0.0f || tenth == 0.0f)
        return KVANT_OK;
    const float m = 1.0f + tenth * logf(hp->rope.yarn_factor);
    hp->rope.mscale = 1.0f;
    hp->attn_scale *= m * m;
    return KVANT_OK;
}

int read_latent_mixture(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag)
{
    hp->rope.neox = 0;
    hp->norm.latent_eps = 1e-6f; /* whatever rms_norm_eps says (Moonlight: 1e-5), as in Transformers */
    KVANT_TRY(read_mla_shapes(g, arch, 0, hp, diag));
    KVANT_TRY(read_yarn_scale(g, arch, hp, diag));
    KVANT_TRY(read_attn_temp(g, hp, diag));
    return read_moe_lead(g, hp, diag);
}

int request_latent_layer(kvant_model *m, int l, kvant_diag *diag)
{
    KVANT_TRY(request_mla(m, l, diag));
    return request_ffn(m, l, diag);
}

void build_latent_layer(builder *b, int l)
{
    build_norm(b, b->m->layers[l].attn_norm);
    build_mla(b, l);
    build_norm(b, b->m->layers[l].ffn_norm);
    build_ffn(b, l);
}
