/* blocks/block_gdn.c: the Gated DeltaNet block: projections, causal conv, normalised q and k, gates, the recurrence,
 * gated norm, output projection.  Spec engine 1.3 and 2.2; state lives in one permanent slot per sequence. */
#include <stdio.h>

#include "base/error.h"
#include "model/build.h"

static int read_u32(const gguf *g, const char *arch, const char *suffix, int required, int *v, kvant_diag *diag)
{
    char key[96];
    uint32_t u = (uint32_t)*v;
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    KVANT_TRY(gguf_u32(g, key, required, &u, diag));
    if (u > 1u << 24)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted at most %d", key, u, 1 << 24);
    *v = (int)u;
    return KVANT_OK;
}

static int64_t channels(const hparams *hp)
{
    return 2 * (int64_t)hp->gdn.hk * hp->gdn.dk + (int64_t)hp->gdn.hv * hp->gdn.dv;
}

/* Which layers have no attention: as the file lists them, else all but every full_interval-th. */
static int read_recurrent(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag)
{
    char key[96];

    snprintf(key, sizeof key, "%s.attention.recurrent_layers", arch);
    if (gguf_find(g, key))
        return read_layer_flags(g, key, hp, hp->no_attn, diag);
    for (int l = 0; l < hp->n_layer; l++)
        hp->no_attn[l] = (l + 1) % hp->full_interval != 0;
    return KVANT_OK;
}

int read_gdn_shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    gguf_str name;
    char arch[32];
    int inner = 0;

    KVANT_TRY(gguf_string(g, "general.architecture", 1, &name, diag));
    snprintf(arch, sizeof arch, "%.*s", (int)name.n, name.s);
    hp->full_interval = 4;
    KVANT_TRY(read_u32(g, arch, "ssm.conv_kernel", 1, &hp->rec.conv_k, diag));
    KVANT_TRY(read_u32(g, arch, "ssm.state_size", 1, &hp->gdn.dk, diag));
    KVANT_TRY(read_u32(g, arch, "ssm.group_count", 1, &hp->gdn.hk, diag));
    KVANT_TRY(read_u32(g, arch, "ssm.time_step_rank", 1, &hp->gdn.hv, diag));
    KVANT_TRY(read_u32(g, arch, "ssm.inner_size", 1, &inner, diag));
    KVANT_TRY(read_u32(g, arch, "full_attention_interval", 0, &hp->full_interval, diag));
    if (hp->rec.conv_k < 2 || hp->rec.conv_k > 8)
        return kvant_fail(diag, KVANT_EFORMAT, "%s.ssm.conv_kernel: %d, wanted 2 to 8", arch, hp->rec.conv_k);
    if (hp->gdn.dk < 1 || hp->gdn.dk > 256 || hp->gdn.hk < 1 || hp->gdn.hk > 1024 || hp->gdn.hv < 1 ||
        hp->gdn.hv > 1024)
        return kvant_fail(diag, KVANT_EFORMAT, "%s.ssm: state_size %d, group_count %d, time_step_rank %d out of range",
                          arch, hp->gdn.dk, hp->gdn.hk, hp->gdn.hv);
    if (hp->gdn.hv % hp->gdn.hk != 0 || inner % hp->gdn.hv != 0 || inner / hp->gdn.hv != hp->gdn.dk)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "%s.ssm: inner_size %d, time_step_rank %d, group_count %d, state_size %d disagree", arch,
                          inner, hp->gdn.hv, hp->gdn.hk, hp->gdn.dk);
    if (hp->full_interval < 1)
        return kvant_fail(diag, KVANT_EFORMAT, "%s.full_attention_interval: 0, wanted at least 1", arch);
    KVANT_TRY(read_recurrent(g, arch, hp, diag));
    hp->gdn.dv = hp->gdn.dk;
    hp->rec.out = inner;
    hp->rec.conv_channels = (int)channels(hp);
    hp->rec.in = hp->rec.conv_channels + inner;
    hp->rec.state_values = inner * hp->gdn.dk;
    return KVANT_OK;
}

/* qwen3next stores beta and alpha in one matrix, grouped per key head: r betas, then r alphas. */
static int request_grouped_ba(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    weight_seg beta[1024], alpha[1024];
    int r = hp->gdn.hv / hp->gdn.hk, ba;
    char name[80];

    KVANT_TRY(weight_layer_matrix(m, l, "ssm_ba.weight", hp->n_embd, 2 * hp->gdn.hv, 1, WEIGHT_REQUIRED, &ba, diag));
    for (int h = 0; h < hp->gdn.hk; h++) {
        beta[h] = (weight_seg){ 0, 2 * (int64_t)r * h, r };
        alpha[h] = (weight_seg){ 0, 2 * (int64_t)r * h + r, r };
    }
    snprintf(name, sizeof name, "blk.%d.ssm_ba.weight (beta)", l);
    KVANT_TRY(weight_rows(m, name, ba, beta, hp->gdn.hk, hp->gdn.hv, &w->rec.beta, diag));
    snprintf(name, sizeof name, "blk.%d.ssm_ba.weight (alpha)", l);
    return weight_rows(m, name, ba, alpha, hp->gdn.hk, hp->gdn.hv, &w->rec.alpha, diag);
}

/* Old qwen3next files: one matrix grouped per key head as [q dk, k dk, v r*dv, z r*dv]. */
static int request_grouped_qkvz(kvant_model *m, int l, int in, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    weight_seg segs[4 * 1024];
    int64_t dk = hp->gdn.dk, rv = (int64_t)(hp->gdn.hv / hp->gdn.hk) * hp->gdn.dv, group = 2 * dk + 2 * rv;
    int hk = hp->gdn.hk;
    char name[80];

    for (int h = 0; h < hk; h++) {
        segs[h] = (weight_seg){ 0, h * group, dk };
        segs[hk + h] = (weight_seg){ 0, h * group + dk, dk };
        segs[2 * hk + h] = (weight_seg){ 0, h * group + 2 * dk, rv };
        segs[3 * hk + h] = (weight_seg){ 0, h * group + 2 * dk + rv, rv };
    }
    snprintf(name, sizeof name, "blk.%d.ssm_in.weight (ungrouped)", l);
    return weight_rows(m, name, in, segs, 4 * hk, channels(hp) + (int64_t)hp->gdn.hv * hp->gdn.dv, &w->rec.in, diag);
}

static int request_projections(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    int64_t e = hp->n_embd, dv_all = (int64_t)hp->gdn.hv * hp->gdn.dv;
    char name[80];
    int old;

    KVANT_TRY(weight_layer_matrix(m, l, "ssm_in.weight", e, channels(hp) + dv_all, 1, WEIGHT_OPTIONAL, &old, diag));
    if (old >= 0)
        return request_grouped_qkvz(m, l, old, diag);
    KVANT_TRY(weight_layer_matrix(m, l, "attn_qkv.weight", e, channels(hp), 1, WEIGHT_REQUIRED, &w->rec.qkv, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "attn_gate.weight", e, dv_all, 1, WEIGHT_REQUIRED, &w->rec.z, diag));
    snprintf(name, sizeof name, "blk.%d.attn_qkv+gate.weight", l);
    return weight_join(m, name, (int[]){ w->rec.qkv, w->rec.z }, 2, &w->rec.in, diag);
}

static int request_gdn(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    int64_t e = hp->n_embd, dv_all = (int64_t)hp->gdn.hv * hp->gdn.dv;
    int grouped = hp->gdn.interleaved;

    w->is_state = 1;
    KVANT_TRY(request_projections(m, l, diag));
    if (grouped) {
        KVANT_TRY(request_grouped_ba(m, l, diag));
    } else {
        KVANT_TRY(weight_layer_matrix(m, l, "ssm_beta.weight", e, hp->gdn.hv, 1, WEIGHT_REQUIRED, &w->rec.beta, diag));
        KVANT_TRY(
            weight_layer_matrix(m, l, "ssm_alpha.weight", e, hp->gdn.hv, 1, WEIGHT_REQUIRED, &w->rec.alpha, diag));
    }
    KVANT_TRY(weight_layer_vector(m, l, "ssm_conv1d.weight", channels(hp) * hp->rec.conv_k, WEIGHT_REQUIRED,
                                  &w->rec.conv, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_dt.bias", hp->gdn.hv, WEIGHT_REQUIRED, &w->rec.dt, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_a", hp->gdn.hv, WEIGHT_REQUIRED, &w->rec.a, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_norm.weight", hp->gdn.dv, WEIGHT_REQUIRED, &w->rec.norm, diag));
    return weight_layer_matrix(m, l, "ssm_out.weight", dv_all, e, 1, WEIGHT_REQUIRED, &w->rec.out, diag);
}

static void project(builder *b, const layer_weights *w, int ld)
{
    int e = b->m->hp.n_embd, c = (int)channels(&b->m->hp), hv = b->m->hp.gdn.hv;

    if (w->rec.in >= 0) {
        build_matmul(b, w->rec.in, b->buf.a, e, b->buf.qkv, ld, b->n);
    } else {
        build_matmul(b, w->rec.qkv, b->buf.a, e, b->buf.qkv, ld, b->n);
        build_matmul(b, w->rec.z, b->buf.a, e, b->buf.qkv + c, ld, b->n);
    }
    build_matmul(b, w->rec.beta, b->buf.a, e, b->buf.beta, hv, b->n);
    build_matmul(b, w->rec.alpha, b->buf.a, e, b->buf.alpha, hv, b->n);
}

static void recur(builder *b, int l, const layer_weights *w, const float *x, int ld)
{
    const hparams *hp = &b->m->hp;
    int c = (int)channels(hp), qk = hp->gdn.hk * hp->gdn.dk;
    float *y = b->buf.att;
    const kvant_conv_args conv = { b->seqs, x, b->vec[w->rec.conv], b->states.conv[l], y, c, hp->rec.conv_k,
                                   b->states.conv_stride, ld, NULL, 0 };
    const kvant_gdn_args gdn = { b->seqs, y, y + qk, y + 2 * qk, b->buf.alpha, b->buf.beta, b->states.rec[l], b->buf.o,
                                 hp->gdn.hk, hp->gdn.hv, hp->gdn.dk, hp->gdn.dv, hp->gdn.interleaved, c, c, c,
                                 b->states.rec_stride, b->states.rec_type, 0, b->compute };

    build_conv(b, &conv);
    BUILD(b, NORM_L2, { y, hp->norm.eps, b->n, 2 * hp->gdn.hk, hp->gdn.dk, c, hp->gdn.dk });
    if (!b->ring.fold) /* the ring has them */
        BUILD(b, GDN_GATES, { b->buf.alpha, b->buf.beta, b->vec[w->rec.a], b->vec[w->rec.dt], b->n, hp->gdn.hv, 0 });
    if (b->any_decode)
        build_emit(b, KVANT_OP_GDN_STEP, &gdn, sizeof gdn);
    if (b->any_prompt) /* last, so that gdn_step stands before the norm only where it made all of its rows */
        build_emit(b, KVANT_OP_GDN_CHUNK, &gdn, sizeof gdn);
}

void fold_gdn(builder *b, int l, const float *x, int ldx)
{
    recur(b, l, &b->m->layers[l], x, ldx);
}

static void build_gdn(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    int c = (int)channels(hp), width = hp->gdn.hv * hp->gdn.dv, ld = c + width;

    project(b, w, ld);
    recur(b, l, w, b->buf.qkv, ld);
    BUILD(b, NORM_GATED,
          { b->buf.o, b->buf.qkv + c, b->vec[w->rec.norm], b->buf.o, hp->norm.eps, b->n, hp->gdn.hv, hp->gdn.dv, ld });
    build_ring_keep(b, l, b->buf.qkv, ld); /* behind the ops that a device may join */
    const float *o = build_keep_output_rows(b, l, b->buf.o, width, b->buf.keep);
    build_matmul(b, w->rec.out, o, width, b->buf.delta, hp->n_embd, b->rows);
    b->have_delta = 1;
}

int request_attention_or_gdn(kvant_model *m, int l, kvant_diag *diag)
{
    return m->hp.no_attn[l] ? request_gdn(m, l, diag) : request_attention(m, l, diag);
}

void build_attention_or_gdn(builder *b, int l)
{
    if (b->m->layers[l].is_attn)
        build_attention(b, l);
    else
        build_gdn(b, l);
}
