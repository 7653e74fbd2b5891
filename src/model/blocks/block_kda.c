/* blocks/block_kda.c: Kimi Delta Attention (arXiv 2510.26692): q, k and v, each through a short convolution of its own;
 * the gated delta rule with a gate per channel; RMSNorm of each head times the sigmoid of an output gate.  Both gates
 * come out of two narrow matrices, f (forget) and g.  The three convolutions are one, over three times the channels.
 * State lives in one permanent slot per sequence. */
#include <stdio.h>

#include "model/build.h"

static int read_u32(const gguf *g, const char *arch, const char *suffix, uint32_t least, uint32_t most, int *v,
                    kvant_diag *diag)
{
    char key[96];
    uint32_t u = 0;

    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    KVANT_TRY(gguf_u32(g, key, 1, &u, diag));
    if (u < least || u > most)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted %u to %u", key, u, least, most);
    *v = (int)u;
    return KVANT_OK;
}

int read_kda_shapes(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag)
{
    int wide;

    KVANT_TRY(read_u32(g, arch, "ssm.conv_kernel", 2, 8, &hp->rec.conv_k, diag));
    KVANT_TRY(read_u32(g, arch, "kda.head_dim", 1, 256, &hp->gdn.dk, diag));
    if (hp->n_head > 4096)
        return kvant_fail(diag, KVANT_EFORMAT, "%s.attention.head_count: %d, wanted at most 4096", arch, hp->n_head);
    hp->gdn.channels = 1;
    hp->gdn.dv = hp->gdn.dk;
    hp->gdn.hk = hp->gdn.hv = hp->n_head;
    wide = hp->n_head * hp->gdn.dk;
    hp->rec.out = wide;
    hp->rec.conv_channels = 3 * wide;
    hp->rec.in = 4 * wide;
    hp->rec.state_values = wide * hp->gdn.dk;
    return KVANT_OK;
}

static int request_projections(kvant_model *m, int l, kvant_diag *diag)
{
    const int64_t e = m->hp.n_embd, wide = m->hp.rec.out;
    layer_weights *w = &m->layers[l];
    char name[80];

    KVANT_TRY(weight_layer_matrix(m, l, "attn_q.weight", e, wide, 1, WEIGHT_REQUIRED, &w->attn.q, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_k.weight", e, wide, 1, WEIGHT_REQUIRED, &w->attn.k, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_v.weight", e, wide, 1, WEIGHT_REQUIRED, &w->attn.v, diag));
    snprintf(name, sizeof name, "blk.%d.attn_q+k+v.weight", l);
    KVANT_TRY(weight_join(m, name, (int[]){ w->attn.q, w->attn.k, w->attn.v }, 3, &w->attn.qkv, diag));
    return weight_layer_matrix(m, l, "attn_output.weight", wide, e, 1, WEIGHT_REQUIRED, &w->attn.out, diag);
}

static int request_gates(kvant_model *m, int l, kvant_diag *diag)
{
    const int64_t e = m->hp.n_embd, wide = m->hp.rec.out;
    const int d = m->hp.gdn.dk, h = m->hp.gdn.hv;
    layer_weights *w = &m->layers[l];

    KVANT_TRY(weight_layer_matrix(m, l, "ssm_beta.weight", e, h, 1, WEIGHT_REQUIRED, &w->rec.beta, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ssm_f_a.weight", e, d, 1, WEIGHT_REQUIRED, &w->rec.f_a, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ssm_f_b.weight", d, wide, 1, WEIGHT_REQUIRED, &w->rec.f_b, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ssm_g_a.weight", e, d, 1, WEIGHT_REQUIRED, &w->rec.g_a, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ssm_g_b.weight", d, wide, 1, WEIGHT_REQUIRED, &w->rec.g_b, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_a", h, WEIGHT_REQUIRED, &w->rec.a, diag));
    return weight_layer_vector(m, l, "ssm_dt.bias", wide, WEIGHT_REQUIRED, &w->rec.dt, diag);
}

static int request_taps(kvant_model *m, int l, kvant_diag *diag)
{
    const int64_t taps = (int64_t)m->hp.rec.out * m->hp.rec.conv_k;
    int q, k, v;
    char name[80];

    KVANT_TRY(weight_layer_vector(m, l, "ssm_conv1d_q.weight", taps, WEIGHT_REQUIRED, &q, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_conv1d_k.weight", taps, WEIGHT_REQUIRED, &k, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_conv1d_v.weight", taps, WEIGHT_REQUIRED, &v, diag));
    snprintf(name, sizeof name, "blk.%d.ssm_conv1d_q+k+v.weight", l);
    return weight_join_vectors(m, name, (int[]){ q, k, v }, 3, &m->layers[l].rec.conv, diag);
}

int request_kda(kvant_model *m, int l, kvant_diag *diag)
{
    layer_weights *w = &m->layers[l];

    w->is_state = 1;
    KVANT_TRY(request_projections(m, l, diag));
    KVANT_TRY(request_taps(m, l, diag));
    KVANT_TRY(request_gates(m, l, diag));
    return weight_layer_vector(m, l, "ssm_norm.weight", m->hp.gdn.dv, WEIGHT_REQUIRED, &w->rec.norm, diag);
}

/* buf.qkv = [q | k | v | output gate], alpha = forget gates, beta; buf.o holds what is between two narrow matrices.
 * All that reads the block's input comes first and writes to places of its own: devices may run it side by side. */
static void project(builder *b, const layer_weights *w)
{
    const hparams *hp = &b->m->hp;
    const int e = hp->n_embd, d = hp->gdn.dk, wide = hp->rec.out, ld = hp->rec.in;
    float *forget = b->buf.o, *gate = forget + (size_t)d * (size_t)b->n;

    if (w->attn.qkv >= 0) {
        build_matmul(b, w->attn.qkv, b->in, e, b->buf.qkv, ld, b->n);
    } else {
        build_matmul(b, w->attn.q, b->in, e, b->buf.qkv, ld, b->n);
        build_matmul(b, w->attn.k, b->in, e, b->buf.qkv + wide, ld, b->n);
        build_matmul(b, w->attn.v, b->in, e, b->buf.qkv + 2 * (size_t)wide, ld, b->n);
    }
    build_matmul(b, w->rec.beta, b->in, e, b->buf.beta, hp->gdn.hv, b->n);
    build_matmul(b, w->rec.f_a, b->in, e, forget, d, b->n);
    build_matmul(b, w->rec.g_a, b->in, e, gate, d, b->n);
    build_matmul(b, w->rec.f_b, forget, d, b->buf.alpha, wide, b->n);
    build_matmul(b, w->rec.g_b, gate, d, b->buf.qkv + 3 * (size_t)wide, ld, b->n);
    BUILD(b, GDN_GATES, { b->buf.alpha, b->buf.beta, b->vec[w->rec.a], b->vec[w->rec.dt], b->n, hp->gdn.hv, d });
}

static void recur(builder *b, int l, const layer_weights *w, const float *x, int ld)
{
    const hparams *hp = &b->m->hp;
    const int d = hp->gdn.dk, h = hp->gdn.hv, wide = hp->rec.out, c = hp->rec.conv_channels;
    float *q = b->buf.att, *k = q + wide, *v = k + wide;
    const kvant_conv_args conv = { b->seqs,    x,              b->vec[w->rec.conv], b->states.conv[l], q, c,
                                   hp->rec.conv_k, b->states.conv_stride, ld,              NULL,             0 };
    const kvant_gdn_args gdn = {
        b->seqs,       q,           k, v, b->buf.alpha, b->buf.beta, b->states.rec[l], b->buf.o, h, h, d, d, 0, c, c, c,
        b->states.rec_stride, b->states.rec_type, 1, b->compute
    };

    build_conv(b, &conv);
    BUILD(b, NORM_L2, { q, hp->norm.eps, b->n, 2 * h, d, c, d });
    if (b->any_prompt)
        build_emit(b, KVANT_OP_GDN_CHUNK, &gdn, sizeof gdn);
    if (b->any_decode)
        build_emit(b, KVANT_OP_GDN_STEP, &gdn, sizeof gdn);
}

void fold_kda(builder *b, int l, const float *x, int ldx)
{
    recur(b, l, &b->m->layers[l], x, ldx);
}

void build_kda(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const int d = hp->gdn.dv, h = hp->gdn.hv, wide = hp->rec.out;
    float *o = b->buf.o;

    project(b, w);
    recur(b, l, w, b->buf.qkv, hp->rec.in);
    build_ring_keep(b, l, b->buf.qkv, hp->rec.in);
    BUILD(b, NORM_RMS, { o, b->vec[w->rec.norm], o, hp->norm.eps, b->n, h, d, wide, d, wide, d });
    BUILD(b, GATE_MUL, { o, b->buf.qkv + 3 * (size_t)wide, b->n, 1, wide, wide, wide, hp->rec.in, wide });
    const float *rows = build_keep_output_rows(b, l, o, wide, b->buf.keep);
    build_matmul(b, w->attn.out, rows, wide, b->buf.delta, hp->n_embd, b->rows);
    b->have_delta = 1;
}
