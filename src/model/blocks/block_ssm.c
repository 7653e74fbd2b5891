/* blocks/block_ssm.c: the Mamba2 block: in_proj gives z, x, B, C and dt; x, B and C go through a causal conv; the state
 * space model; y * silu(z), normed per group; output projection.  Groups, heads, state and head size stand in gdn.hk,
 * gdn.hv, gdn.dk and gdn.dv: B, C and x are what k, q and v are to the gated delta rule. */
#include <stdio.h>

#include "model/build.h"

enum { MOST_GROUPS = 32 };

static int read_u32(const gguf *g, const char *arch, const char *suffix, uint32_t most, int *v, kvant_diag *diag)
{
    char key[96];
    uint32_t u = 0;
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    KVANT_TRY(gguf_u32(g, key, 1, &u, diag));
    if (u < 1 || u > most)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted 1 to %u", key, u, most);
    *v = (int)u;
    return KVANT_OK;
}

int read_ssm_shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    gguf_str name;
    char arch[32];
    int inner = 0;

    KVANT_TRY(gguf_string(g, "general.architecture", 1, &name, diag));
    snprintf(arch, sizeof arch, "%.*s", (int)name.n, name.s);
    KVANT_TRY(read_u32(g, arch, "ssm.conv_kernel", 8, &hp->rec.conv_k, diag));
    KVANT_TRY(read_u32(g, arch, "ssm.state_size", 512, &hp->gdn.dk, diag));
    KVANT_TRY(read_u32(g, arch, "ssm.group_count", MOST_GROUPS, &hp->gdn.hk, diag));
    KVANT_TRY(read_u32(g, arch, "ssm.time_step_rank", 4096, &hp->gdn.hv, diag));
    KVANT_TRY(read_u32(g, arch, "ssm.inner_size", 1 << 20, &inner, diag));
    hp->gdn.dv = inner / hp->gdn.hv;
    if (hp->rec.conv_k < 2 || inner % hp->gdn.hv != 0 || hp->gdn.hv % hp->gdn.hk != 0 || hp->gdn.dv > 512)
        return kvant_fail(
            diag, KVANT_EFORMAT,
            "%s.ssm: inner_size %d, time_step_rank %d, group_count %d, conv_kernel %d: wanted heads of up "
            "to 512 values in equal groups, and 2 to 8 taps",
            arch, inner, hp->gdn.hv, hp->gdn.hk, hp->rec.conv_k);
    hp->rec.out = inner;
    hp->rec.conv_channels = inner + 2 * hp->gdn.hk * hp->gdn.dk;
    hp->rec.in = inner + hp->rec.conv_channels + hp->gdn.hv;
    hp->rec.state_values = inner * hp->gdn.dk;
    return KVANT_OK;
}

int request_ssm(kvant_model *m, int l, int norm_optional, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    const int64_t e = hp->n_embd, c = hp->rec.conv_channels;
    layer_weights *w = &m->layers[l];

    w->is_state = 1;
    KVANT_TRY(weight_layer_matrix(m, l, "ssm_in.weight", e, hp->rec.in, 1, WEIGHT_REQUIRED, &w->rec.ssm_in, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_conv1d.weight", c * hp->rec.conv_k, WEIGHT_REQUIRED, &w->rec.conv, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_conv1d.bias", c, WEIGHT_OPTIONAL, &w->rec.conv_bias, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_dt.bias", hp->gdn.hv, WEIGHT_REQUIRED, &w->rec.dt, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_a", hp->gdn.hv, WEIGHT_REQUIRED, &w->rec.a, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_d", hp->gdn.hv, WEIGHT_REQUIRED, &w->rec.ssm_d, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ssm_norm.weight", hp->rec.out, norm_optional, &w->rec.norm, diag));
    return weight_layer_matrix(m, l, "ssm_out.weight", hp->rec.out, e, 1, WEIGHT_REQUIRED, &w->rec.out, diag);
}

/* y * silu(z) in buf.o, then a norm of each group with weights of its own. */
static void gate_and_norm(builder *b, const layer_weights *w)
{
    const hparams *hp = &b->m->hp;
    const int inner = hp->rec.out, d = inner / hp->gdn.hk;

    BUILD(b, SWIGLU, { b->buf.qkv, b->buf.o, b->buf.o, b->n, inner, hp->rec.in, inner, inner });
    for (int g = 0; w->rec.norm >= 0 && g < hp->gdn.hk; g++) {
        float *o = b->buf.o + (int64_t)g * d;
        BUILD(b, NORM_RMS,
              { o, b->vec[w->rec.norm] + (int64_t)g * d, o, hp->norm.eps, b->n, 1, d, inner, d, inner, d });
    }
}

/* mixed: rows, ld apart, of what the convolution reads, then the heads' steps of time. */
static void recur(builder *b, int l, const float *mixed, int ld)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const int c = hp->rec.conv_channels, inner = hp->rec.out, bc = hp->gdn.hk * hp->gdn.dk;
    float *x = b->buf.att;
    const kvant_conv_args conv = { b->seqs,
                                   mixed,
                                   b->vec[w->rec.conv],
                                   b->states.conv[l],
                                   x,
                                   c,
                                   hp->rec.conv_k,
                                   b->states.conv_stride,
                                   ld,
                                   w->rec.conv_bias >= 0 ? b->vec[w->rec.conv_bias] : NULL,
                                   0 };
    const kvant_ssm_args ssm = { b->seqs,
                                 x,
                                 mixed + c,
                                 x + inner,
                                 x + inner + bc,
                                 b->vec[w->rec.a],
                                 b->vec[w->rec.ssm_d],
                                 b->vec[w->rec.dt],
                                 b->states.rec[l],
                                 b->buf.o,
                                 hp->gdn.hv,
                                 hp->gdn.dv,
                                 hp->gdn.hk,
                                 hp->gdn.dk,
                                 c,
                                 ld,
                                 c,
                                 b->states.rec_stride,
                                 b->states.rec_type };

    build_conv(b, &conv);
    if (b->any_prompt)
        build_emit(b, KVANT_OP_SSM_CHUNK, &ssm, sizeof ssm);
    if (b->any_decode)
        build_emit(b, KVANT_OP_SSM_STEP, &ssm, sizeof ssm);
}

void fold_ssm(builder *b, int l, const float *x, int ldx)
{
    recur(b, l, x, ldx);
}

void build_ssm_rows(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const float *mixed = b->buf.qkv + hp->rec.out;

    build_matmul(b, w->rec.ssm_in, b->in, hp->n_embd, b->buf.qkv, hp->rec.in, b->n);
    recur(b, l, mixed, hp->rec.in);
    build_ring_keep(b, l, mixed, hp->rec.in);
    gate_and_norm(b, w);
}

void build_ssm(builder *b, int l)
{
    const hparams *hp = &b->m->hp;

    build_ssm_rows(b, l);
    const float *o = build_keep_output_rows(b, l, b->buf.o, hp->rec.out, b->buf.keep);
    build_matmul(b, b->m->layers[l].rec.out, o, hp->rec.out, b->buf.delta, hp->n_embd, b->rows);
    b->have_delta = 1;
}
