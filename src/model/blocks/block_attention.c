/* blocks/block_attention.c: the attention block: q, k, v (one matrix where types allow), optional per-head norms, RoPE,
 * cache write, page seal, attention, optional output gate, output projection. */
#include <stdio.h>

#include "model/build.h"

/* The file, not the architecture's name, says whether there are biases. */
static int request_biases(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    const layer_shape *s = &hp->layer[l];
    layer_weights *w = &m->layers[l];
    const int q = hp->n_head * s->d_k * (hp->attn_gate ? 2 : 1);

    KVANT_TRY(weight_layer_vector(m, l, "attn_q.bias", q, WEIGHT_OPTIONAL, &w->attn.q_bias, diag));
    if (s->kv_from != l)
        return KVANT_OK;
    KVANT_TRY(weight_layer_vector(m, l, "attn_k.bias", s->h_kv * s->d_k, WEIGHT_OPTIONAL, &w->attn.k_bias, diag));
    return weight_layer_vector(m, l, "attn_v.bias", s->h_kv * s->d_v, WEIGHT_OPTIONAL, &w->attn.v_bias, diag);
}

static int request_qk_norms(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    const layer_shape *s = &hp->layer[l];
    layer_weights *w = &m->layers[l];
    const int rows = hp->norm.qk == QK_NORM_ROWS || hp->norm.qk == QK_NORM_LAYER;

    if (hp->norm.qk == QK_NORM_NONE)
        return KVANT_OK;
    KVANT_TRY(weight_layer_vector(m, l, "attn_q_norm.weight", rows ? hp->n_head * s->d_k : s->d_k, WEIGHT_REQUIRED,
                                  &w->attn.q_norm, diag));
    if (s->kv_from != l)
        return KVANT_OK;
    return weight_layer_vector(m, l, "attn_k_norm.weight", rows ? s->h_kv * s->d_k : s->d_k, WEIGHT_REQUIRED,
                               &w->attn.k_norm, diag);
}

/* K and V.  Files of models that may go without a V projection say so by not having it. */
static int request_kv(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    const layer_shape *s = &hp->layer[l];
    layer_weights *w = &m->layers[l];
    const int64_t e = hp->n_embd, k = (int64_t)s->h_kv * s->d_k, v = (int64_t)s->h_kv * s->d_v;

    KVANT_TRY(weight_layer_matrix(m, l, "attn_k.weight", e, k, 1, WEIGHT_REQUIRED, &w->attn.k, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_v.weight", e, v, 1, hp->norm.v ? WEIGHT_OPTIONAL : WEIGHT_REQUIRED,
                                  &w->attn.v, diag));
    if (w->attn.v < 0 && s->d_v != s->d_k)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "tensor blk.%d.attn_v.weight: missing, and heads of V have %d values, those "
                          "of K %d",
                          l, s->d_v, s->d_k);
    return KVANT_OK;
}

/* q, k and v as one tensor where the file has it, else three, joined where their types allow. */
static int request_qkv(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    const layer_shape *s = &hp->layer[l];
    layer_weights *w = &m->layers[l];
    const int64_t e = hp->n_embd, q = (int64_t)hp->n_head * s->d_k * (hp->attn_gate ? 2 : 1);
    const int64_t k = (int64_t)s->h_kv * s->d_k, v = (int64_t)s->h_kv * s->d_v;
    char name[80];

    if (s->kv_from == l)
        KVANT_TRY(weight_layer_matrix(m, l, "attn_qkv.weight", e, q + k + v, 1, WEIGHT_OPTIONAL, &w->attn.qkv, diag));
    if (w->attn.qkv >= 0)
        return weight_layer_vector(m, l, "attn_qkv.bias", q + k + v, WEIGHT_OPTIONAL, &w->attn.qkv_bias, diag);
    KVANT_TRY(weight_layer_matrix(m, l, "attn_q.weight", e, q, 1, WEIGHT_REQUIRED, &w->attn.q, diag));
    if (s->kv_from == l)
        KVANT_TRY(request_kv(m, l, diag));
    KVANT_TRY(request_biases(m, l, diag));
    if (s->kv_from != l)
        return KVANT_OK;
    snprintf(name, sizeof name, "blk.%d.attn_q+k%s.weight", l, w->attn.v >= 0 ? "+v" : "");
    return weight_join(m, name, (int[]){ w->attn.q, w->attn.k, w->attn.v }, w->attn.v >= 0 ? 3 : 2, &w->attn.qkv, diag);
}

int request_attention(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];

    w->is_attn = hp->layer[l].kv_from == l;
    KVANT_TRY(weight_layer_vector(m, l, "attn_sinks.weight", hp->n_head, WEIGHT_OPTIONAL, &w->attn.sinks, diag));
    KVANT_TRY(request_qkv(m, l, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_output.weight", (int64_t)hp->n_head * hp->layer[l].d_v, hp->n_embd, 1,
                                  WEIGHT_REQUIRED, &w->attn.out, diag));
    KVANT_TRY(
        weight_layer_vector(m, l, "attn_output.bias", hp->n_embd, WEIGHT_OPTIONAL, &w->attn.out_bias, diag));
    return request_qk_norms(m, l, diag);
}

/* The layout of q, k and v of a token row in buf.qkv. */
typedef struct qkv_view {
    float *q, *k, *v;
    int64_t ld, gq; /* row stride; floats between query heads (twice d_k with gates) */
    const layer_shape *s;
    int own;        /* the layer has K and V of its own */
} qkv_view;

/* The rows that give logits, gathered before the last layers. */
static const int32_t *row_positions(const builder *b)
{
    return b->early && b->x == b->buf.xs ? b->out.pos : b->pos;
}

/* V of layers without a projection is K's, before K's norm. */
static void norm_v(builder *b, const layer_weights *w, const qkv_view *p)
{
    const int h = p->s->h_kv, d = p->s->d_v;
    const float *from = w->attn.k >= 0 && w->attn.v < 0 ? p->k : p->v;

    BUILD(b, NORM_RMS, { from, b->tables.ones, p->v, b->m->hp.norm.eps, b->rows, h, d, p->ld, d, p->ld, d });
}

static qkv_view project(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const layer_shape *s = &hp->layer[l];
    const int e = hp->n_embd, q_width = hp->n_head * s->d_k * (hp->attn_gate ? 2 : 1), own = s->kv_from == l;
    qkv_view p = { .q = b->buf.qkv, .gq = hp->attn_gate ? 2 * s->d_k : s->d_k, .s = s, .own = own };

    p.ld = q_width + (own ? (int64_t)s->h_kv * (s->d_k + s->d_v) : 0);
    p.k = p.q + q_width;
    p.v = p.k + (int64_t)s->h_kv * s->d_k;
    if (w->attn.qkv >= 0) {
        build_matmul(b, w->attn.qkv, b->in, e, p.q, p.ld, b->rows);
    } else {
        build_matmul(b, w->attn.q, b->in, e, p.q, p.ld, b->rows);
        if (own)
            build_matmul(b, w->attn.k, b->in, e, p.k, p.ld, b->rows);
        if (w->attn.v >= 0)
            build_matmul(b, w->attn.v, b->in, e, p.v, p.ld, b->rows);
    }
    build_bias(b, w->attn.qkv_bias, p.q, (int)p.ld, p.ld, b->rows);
    build_bias(b, w->attn.q_bias, p.q, q_width, p.ld, b->rows);
    build_bias(b, w->attn.k_bias, p.k, s->h_kv * s->d_k, p.ld, b->rows);
    build_bias(b, w->attn.v_bias, p.v, s->h_kv * s->d_v, p.ld, b->rows);
    if (hp->norm.v && own)
        norm_v(b, w, &p);
    return p;
}

static void norm_qk(builder *b, const layer_weights *w, const qkv_view *p)
{
    const hparams *hp = &b->m->hp;
    const float *q = b->vec[w->attn.q_norm], *k = p->own ? b->vec[w->attn.k_norm] : NULL, eps = hp->norm.eps;
    int d = p->s->d_k, h_kv = p->s->h_kv, qd = hp->n_head * d, kd = h_kv * d;

    if (hp->norm.qk == QK_NORM_ROWS) {
        BUILD(b, NORM_RMS, { p->q, q, p->q, eps, b->rows, 1, qd, p->ld, qd, p->ld, qd });
        if (k)
            BUILD(b, NORM_RMS, { p->k, k, p->k, eps, b->rows, 1, kd, p->ld, kd, p->ld, kd });
    } else if (hp->norm.qk == QK_NORM_LAYER) {
        BUILD(b, NORM_LAYER, { p->q, q, NULL, p->q, eps, b->rows, hp->n_head, d, p->ld, p->gq, p->ld, p->gq, d });
        if (k)
            BUILD(b, NORM_LAYER, { p->k, k, NULL, p->k, eps, b->rows, h_kv, d, p->ld, d, p->ld, d, d });
    } else {
        BUILD(b, NORM_RMS, { p->q, q, p->q, eps, b->rows, hp->n_head, d, p->ld, p->gq, p->ld, p->gq });
        if (k)
            BUILD(b, NORM_RMS, { p->k, k, p->k, eps, b->rows, h_kv, d, p->ld, d, p->ld, d });
    }
}

static int has_rope(const hparams *hp, int l)
{
    if (hp->rope.windowed_only)
        return hp->windowed[l];
    return !hp->rope.none_step || (l + 1) % hp->rope.none_step != 0;
}

static void norm_and_rotate(builder *b, int l, const qkv_view *p)
{
    const hparams *hp = &b->m->hp;
    const layer_shape *s = p->s;
    const float *freq = hp->windowed[l] ? b->tables.inv_freq_window : b->tables.inv_freq;
    const float mscale = hp->windowed[l] && hp->rope.base_window > 0 ? 1.0f : hp->rope.mscale;
    const int32_t *pos = row_positions(b);
    const int n = b->rows, neox = hp->rope.neox;

    if (hp->norm.qk && !hp->norm.qk_late)
        norm_qk(b, &b->m->layers[l], p);
    if (has_rope(hp, l)) {
        BUILD(b, ROPE, { p->q, pos, freq, mscale, neox, s->n_rot, n, hp->n_head, p->ld, p->gq });
        if (p->own)
            BUILD(b, ROPE, { p->k, pos, freq, mscale, neox, s->n_rot, n, s->h_kv, p->ld, s->d_k });
    }
    if (hp->norm.qk && hp->norm.qk_late)
        norm_qk(b, &b->m->layers[l], p);
    if (hp->rope.temp > 0)
        BUILD(b, ATTN_TEMP, { p->q, pos, hp->rope.temp, hp->rope.n_ctx_orig, n, hp->n_head * s->d_k, p->ld });
}

int request_norms_after(kvant_model *m, int l, kvant_diag *diag)
{
    layer_weights *w = &m->layers[l];
    const int64_t e = m->hp.n_embd;

    KVANT_TRY(weight_layer_vector(m, l, "post_attention_norm.weight", e, WEIGHT_REQUIRED, &w->attn_post_norm, diag));
    return weight_layer_vector(m, l, "post_ffw_norm.weight", e, WEIGHT_REQUIRED, &w->ffn_post_norm, diag);
}

int read_layer_flags(const gguf *g, const char *key, const hparams *hp, unsigned char *flags, kvant_diag *diag)
{
    const gguf_kv *kv = gguf_find(g, key);
    int32_t list[MODEL_MAX_LAYERS];
    int n = 0;

    if (kv->elem == GGUF_BOOL) {
        n = kv->count > MODEL_MAX_LAYERS ? MODEL_MAX_LAYERS + 1 : (int)kv->count;
        for (int i = 0; i < n && i < MODEL_MAX_LAYERS; i++)
            list[i] = kv->value[i];
    } else {
        KVANT_TRY(gguf_i32s(g, key, 1, list, MODEL_MAX_LAYERS, &n, diag));
    }
    if (n < hp->n_layer || n > MODEL_MAX_LAYERS)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %d values, wanted one for each of %d layers", key, n, hp->n_layer);
    for (int l = 0; l < hp->n_layer; l++)
        flags[l] = list[l] != 0;
    return KVANT_OK;
}

int read_window(const gguf *g, hparams *hp, int every, kvant_diag *diag)
{
    gguf_str arch;
    char key[96];
    uint32_t window = 0, n = (uint32_t)every;

    KVANT_TRY(gguf_string(g, "general.architecture", 1, &arch, diag));
    snprintf(key, sizeof key, "%.*s.attention.sliding_window", (int)arch.n, arch.s);
    KVANT_TRY(gguf_u32(g, key, 0, &window, diag));
    if (window > 1u << 28)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted at most %d", key, window, 1 << 28);
    hp->window = (int)window;
    if (window == 0)
        return KVANT_OK;
    snprintf(key, sizeof key, "%.*s.attention.sliding_window_pattern", (int)arch.n, arch.s);
    const gguf_kv *kv = gguf_find(g, key);
    if (kv && kv->type == GGUF_ARRAY)
        return read_layer_flags(g, key, hp, hp->windowed, diag);
    KVANT_TRY(gguf_u32(g, key, 0, &n, diag));
    for (uint32_t l = 0; l < (uint32_t)hp->n_layer; l++)
        hp->windowed[l] = n == 0 || (l + 1) % n != 0;
    return KVANT_OK;
}

int read_caps(const gguf *g, hparams *hp, kvant_diag *diag)
{
    static const char *const suffixes[] = { "attn_logit_softcapping", "final_logit_softcapping" };
    float *const caps[] = { &hp->attn_cap, &hp->logit_cap };
    gguf_str arch;
    char key[96];

    KVANT_TRY(gguf_string(g, "general.architecture", 1, &arch, diag));
    for (int i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "%.*s.%s", (int)arch.n, arch.s, suffixes[i]);
        KVANT_TRY(gguf_f32(g, key, 0, caps[i], diag));
        if (!(*caps[i] >= 0.0f && *caps[i] < 1e6f))
            return kvant_fail(diag, KVANT_EFORMAT, "%s: %g, wanted 0 (none) to 1e6", key, (double)*caps[i]);
    }
    return KVANT_OK;
}

static int is_apart(const builder *b, int l)
{
    return b->windows_apart && b->m->hp.windowed[l];
}

/* The pass with the block tables of layer l. */
static const kvant_seqs *layer_seqs(const builder *b, int l)
{
    if (b->early && b->x == b->buf.xs)
        return is_apart(b, l) ? &b->out.window_seqs : &b->out.seqs;
    return is_apart(b, l) ? &b->window_seqs : &b->seqs;
}

static void seal_layer(builder *b, int l)
{
    const kvant_kv_side *k = &b->k[l], *v = &b->v[l];
    const layer_shape *s = &b->m->hp.layer[l];
    const int32_t *dst = is_apart(b, l) ? b->seals.window : b->seals.dst;
    if (k->tail && b->seals.n > 0)
        BUILD(b, PAGE_SEAL, { *k, b->seals.src, dst, b->seals.n, s->h_kv, s->d_k });
    if (v->tail && b->seals.n > 0)
        BUILD(b, PAGE_SEAL, { *v, b->seals.src, dst, b->seals.n, s->h_kv, s->d_v });
}

/* K's and V's steps are neighbours: a device may run two as one. */
void build_cache_rows(builder *b, int l, const float *k_rows, const float *v_rows, int64_t ld)
{
    const layer_shape *s = &b->m->hp.layer[l];
    BUILD(b, CACHE_WRITE, { *layer_seqs(b, l), b->k[l], k_rows, ld, s->h_kv, s->d_k });
    BUILD(b, CACHE_WRITE, { *layer_seqs(b, l), b->v[l], v_rows, ld, s->h_kv, s->d_v });
    if (!b->seals.late)
        seal_layer(b, l);
    b->buf.mtp.kv_end = b->n_ops;
}

void build_late_seals(builder *b)
{
    for (int l = 0; b->seals.late && l < b->m->hp.n_layer + (b->buf.mtp.seqs > 0); l++)
        seal_layer(b, l);
}

void build_attention_rows(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const layer_shape *s = &hp->layer[l];
    if (b->rows == 0)              /* no row of the pass gives logits, and the layer writes no K and V */
        return;
    const qkv_view p = project(b, l);
    int width = hp->n_head * s->d_v;

    norm_and_rotate(b, l, &p);
    if (p.own)
        build_cache_rows(b, l, p.k, p.v, p.ld);
    BUILD(b, ATTN,
          { *layer_seqs(b, l), b->k[s->kv_from], b->v[s->kv_from], p.q, b->buf.att, p.ld, p.gq, width, hp->n_head,
            s->h_kv, s->d_k, s->d_v, hp->attn_scale, b->exact.tail, b->compute, b->max_pos,
            hp->windowed[l] ? hp->window : 0, hp->attn_cap, w->attn.sinks >= 0 ? b->vec[w->attn.sinks] : NULL,
            b->exact.sink });
    if (hp->attn_gate)
        BUILD(b, GATE_MUL, { b->buf.att, p.q + s->d_k, b->rows, hp->n_head, s->d_v, width, s->d_v, p.ld, p.gq });
}

void build_attention(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const int width = hp->n_head * hp->layer[l].d_v;

    build_attention_rows(b, l);
    const float *att = build_keep_output_rows(b, l, b->buf.att, width, b->buf.keep);
    build_matmul(b, w->attn.out, att, width, b->buf.delta, hp->n_embd, b->rows);
    build_bias(b, w->attn.out_bias, b->buf.delta, hp->n_embd, hp->n_embd, b->rows);
    b->have_delta = 1;
}

int read_attn_temp(const gguf *g, hparams *hp, kvant_diag *diag)
{
    gguf_str arch;
    char key[96];
    uint32_t length = (uint32_t)hp->rope.n_ctx_orig;

    KVANT_TRY(gguf_string(g, "general.architecture", 1, &arch, diag));
    snprintf(key, sizeof key, "%.*s.attention.temperature_scale", (int)arch.n, arch.s);
    KVANT_TRY(gguf_f32(g, key, 0, &hp->rope.temp, diag));
    if (!(hp->rope.temp >= 0 && hp->rope.temp <= 1e3f))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %g, wanted 0 to 1000", key, (double)hp->rope.temp);
    snprintf(key, sizeof key, "%.*s.attention.temperature_length", (int)arch.n, arch.s);
    KVANT_TRY(gguf_u32(g, key, 0, &length, diag));
    if (hp->rope.temp > 0 && length != (uint32_t)hp->rope.n_ctx_orig)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: %u, wanted the %d tokens of the original context", key, length,
                          hp->rope.n_ctx_orig);
    return KVANT_OK;
}
