/* blocks/block_ffn.c: feed-forward blocks: dense SwiGLU, and mixture of experts with an optional shared expert.
 * Spec engine 2.2: softmax over all experts, top-n, renormalised; the shared expert is added times a sigmoid gate. */
#include <stdio.h>

#include "model/build.h"

static int has_gate(const hparams *hp)
{
    return hp->act != ACT_RELU2 && hp->act != ACT_GELU_ALONE;
}

static int request_ffn_fused(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];

    KVANT_TRY(
        weight_layer_matrix(m, l, "ffn_up.weight", hp->n_embd, 2 * hp->n_ff, 1, WEIGHT_REQUIRED, &w->gate_up, diag));
    return weight_layer_matrix(m, l, "ffn_down.weight", hp->n_ff, hp->n_embd, 1, WEIGHT_REQUIRED, &w->down, diag);
}

int request_ffn_dense(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    const int f = hp->layer[l].n_ff;
    char name[80];

    if (hp->ffn_fused)
        return request_ffn_fused(m, l, diag);
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_up.weight", hp->n_embd, f, 1, WEIGHT_REQUIRED, &w->up, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_down.weight", f, hp->n_embd, 1, WEIGHT_REQUIRED, &w->down, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ffn_up.bias", f, WEIGHT_OPTIONAL, &w->up_bias, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ffn_down.bias", hp->n_embd, WEIGHT_OPTIONAL, &w->down_bias, diag));
    if (!has_gate(hp))
        return KVANT_OK;
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_gate.weight", hp->n_embd, f, 1, WEIGHT_REQUIRED, &w->gate, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ffn_gate.bias", f, WEIGHT_OPTIONAL, &w->gate_bias, diag));
    snprintf(name, sizeof name, "blk.%d.ffn_gate+up.weight", l);
    return weight_join(m, name, (int[]){ w->gate, w->up }, 2, &w->gate_up, diag);
}

static int request_expert_biases(kvant_model *m, int l, kvant_diag *diag)
{
    layer_weights *w = &m->layers[l];
    const int64_t n = m->hp.moe.n, f = n * m->hp.moe.n_ff, e = n * m->hp.n_embd;

    KVANT_TRY(weight_layer_vector(m, l, "ffn_gate_inp.bias", n, WEIGHT_OPTIONAL, &w->exps.router_add, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ffn_gate_exps.bias", f, WEIGHT_OPTIONAL, &w->exps.gate_bias, diag));
    KVANT_TRY(weight_layer_vector(m, l, "ffn_up_exps.bias", f, WEIGHT_OPTIONAL, &w->exps.up_bias, diag));
    return weight_layer_vector(m, l, "ffn_down_exps.bias", e, WEIGHT_OPTIONAL, &w->exps.down_bias, diag);
}

/* The projections to and from what the routed experts work on. */
static int request_latent(kvant_model *m, int l, kvant_diag *diag)
{
    const int64_t e = m->hp.n_embd, z = m->hp.moe.n_latent;
    layer_weights *w = &m->layers[l];

    KVANT_TRY(
        weight_layer_matrix(m, l, "ffn_latent_down.weight", e, z, 1, WEIGHT_REQUIRED, &w->exps.latent_down, diag));
    return weight_layer_matrix(m, l, "ffn_latent_up.weight", z, e, 1, WEIGHT_REQUIRED, &w->exps.latent_up, diag);
}

static int request_experts(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    int64_t e = hp->moe.n_latent ? hp->moe.n_latent : hp->n_embd, f = hp->moe.n_ff;
    int n = hp->moe.n;
    char name[80];

    KVANT_TRY(request_expert_biases(m, l, diag));
    if (hp->moe.n_latent)
        KVANT_TRY(request_latent(m, l, diag));
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", l);
    KVANT_TRY((hp->moe.beside ? weight_bare_matrix : weight_matrix)(m, name, hp->n_embd, n, 1, WEIGHT_REQUIRED,
                                                                    &w->exps.router, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_down_exps.weight", f, e, n, WEIGHT_REQUIRED, &w->exps.down, diag));
    if (!has_gate(hp))
        return weight_layer_matrix(m, l, "ffn_up_exps.weight", e, f, n, WEIGHT_REQUIRED, &w->exps.up, diag);
    KVANT_TRY(
        weight_layer_matrix(m, l, "ffn_gate_up_exps.weight", e, 2 * f, n, WEIGHT_OPTIONAL, &w->exps.gate_up, diag));
    if (w->exps.gate_up >= 0)
        return KVANT_OK;
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_gate_exps.weight", e, f, n, WEIGHT_REQUIRED, &w->exps.gate, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_up_exps.weight", e, f, n, WEIGHT_REQUIRED, &w->exps.up, diag));
    snprintf(name, sizeof name, "blk.%d.ffn_gate+up_exps.weight", l);
    return weight_join_experts(m, name, w->exps.gate, w->exps.up, &w->exps.gate_up, diag);
}

int request_ffn_moe(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    int64_t e = hp->n_embd, f = hp->moe.n_ff_shared;
    char name[80];

    KVANT_TRY(request_experts(m, l, diag));
    KVANT_TRY(weight_layer_vector(m, l, "exp_probs_b.bias", hp->moe.n, WEIGHT_OPTIONAL, &w->exps.router_bias, diag));
    if (f == 0)
        return KVANT_OK;
    if (!hp->moe.shared_plain)
        KVANT_TRY(weight_layer_matrix(m, l, "ffn_gate_inp_shexp.weight", e, 1, 1, WEIGHT_REQUIRED,
                                      &w->exps.shared_router, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_up_shexp.weight", e, f, 1, WEIGHT_REQUIRED, &w->exps.shared_up, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_down_shexp.weight", f, e, 1, WEIGHT_REQUIRED, &w->exps.shared_down, diag));
    if (!has_gate(hp))
        return KVANT_OK;
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_gate_shexp.weight", e, f, 1, WEIGHT_REQUIRED, &w->exps.shared_gate, diag));
    snprintf(name, sizeof name, "blk.%d.ffn_gate+up_shexp.weight", l);
    return weight_join(m, name, (int[]){ w->exps.shared_gate, w->exps.shared_up }, 2, &w->exps.shared_gate_up, diag);
}

int read_moe_shapes(const gguf *g, hparams *hp, int shared, kvant_diag *diag)
{
    gguf_str arch;
    char key[96];
    uint32_t n = 0, used = 0, f = 0, fs = 0;
    float scale = 0;

    KVANT_TRY(gguf_string(g, "general.architecture", 1, &arch, diag));
#define MOE_KEY(suffix) (snprintf(key, sizeof key, "%.*s.%s", (int)arch.n, arch.s, suffix), key)
    KVANT_TRY(gguf_u32(g, MOE_KEY("expert_count"), 1, &n, diag));
    KVANT_TRY(gguf_u32(g, MOE_KEY("expert_used_count"), 1, &used, diag));
    if (n < 1 || n > 4096 || used < 1 || used > n || used > 64)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u of %u experts, wanted 1 to 64 of 1 to 4096", key, used, n);
    f = hp->n_ff > 0 ? (uint32_t)hp->n_ff / used : 0;
    KVANT_TRY(gguf_u32(g, MOE_KEY("expert_feed_forward_length"), 0, &f, diag));
    if (f < 1 || f > 1u << 20)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted 1 to %d", key, f, 1 << 20);
    if (shared) {
        fs = hp->n_ff > 0 ? (uint32_t)hp->n_ff : f;
        KVANT_TRY(gguf_u32(g, MOE_KEY("expert_shared_feed_forward_length"), 0, &fs, diag));
        if (fs > 1u << 20)
            return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted at most %d", key, fs, 1 << 20);
    }
    KVANT_TRY(gguf_f32(g, MOE_KEY("expert_weights_scale"), 0, &scale, diag));
#undef MOE_KEY
    hp->moe.n = (int)n;
    hp->moe.n_used = (int)used;
    hp->moe.n_ff = (int)f;
    hp->moe.n_ff_shared = (int)fs;
    hp->n_ff = 0;
    hp->moe.scale = scale > 0 ? scale : 1.0f;
    return KVANT_OK;
}

int request_ffn(kvant_model *m, int l, kvant_diag *diag)
{
    return !m->hp.moe.n || l < m->hp.moe.n_dense_lead ? request_ffn_dense(m, l, diag) : request_ffn_moe(m, l, diag);
}

/* gate_up (joined), or gate and up apart, or up alone -> ff[rows][2f]. */
static void gate_and_up(builder *b, int joined, int gate, int up, int f, float *ff)
{
    int e = b->m->hp.n_embd, r = b->rows;

    if (joined >= 0 || gate < 0) {
        build_matmul(b, joined >= 0 ? joined : up, b->in, e, ff, 2 * f, r);
    } else {
        build_matmul(b, gate, b->in, e, ff, 2 * f, r);
        build_matmul(b, up, b->in, e, ff + f, 2 * f, r);
    }
}

/* The gated unit of the model, in place over the gate half; a unit without gate, over the one half there is. */
static void gated_unit(builder *b, float *gate, const float *up, int rows, int f, int64_t ld)
{
    static const int kinds[] = { [ACT_GELU] = KVANT_GLU_GELU, [ACT_CLAMPED] = KVANT_GLU_CLAMPED,
                                 [ACT_RELU2] = KVANT_GLU_RELU, [ACT_GELU_ALONE] = KVANT_GLU_GELU_ALONE };
    const hparams *hp = &b->m->hp;

    if (hp->act == ACT_SWIGLU)
        BUILD(b, SWIGLU, { gate, up, gate, rows, f, ld, ld, ld });
    else
        BUILD(b, GLU, { gate, has_gate(hp) ? up : gate, gate, rows, f, ld, ld, ld, kinds[hp->act], 1.702f, 7.0f });
}

/* The unit of ff[rows][2f] in place, down -> y. */
static void gated_down(builder *b, int down, int f, float *ff, float *y)
{
    gated_unit(b, ff, ff + f, b->rows, f, 2 * f);
    build_matmul(b, down, ff, 2 * f, y, b->m->hp.n_embd, b->rows);
}

void build_ffn_dense(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];
    const int e = b->m->hp.n_embd, f = b->m->hp.layer[l].n_ff;
    if (b->rows == 0)
        return;
    gate_and_up(b, w->gate_up, w->gate, w->up, f, b->buf.ff);
    build_bias(b, w->gate_bias, b->buf.ff, f, 2 * f, b->rows);
    build_bias(b, w->up_bias, b->buf.ff + (w->gate < 0 && w->gate_up < 0 ? 0 : f), f, 2 * f, b->rows);
    gated_down(b, w->down, f, b->buf.ff, b->buf.delta);
    build_bias(b, w->down_bias, b->buf.delta, e, e, b->rows);
    b->have_delta = 1;
}

/* The bias of each slot's own expert. */
static void expert_bias(builder *b, int bias, float *y, int width, int64_t ldy)
{
    if (bias >= 0)
        BUILD(b, BIAS, { y, b->vec[bias], b->rows * b->m->hp.moe.n_used, width, ldy, b->buf.route_ids,
                         b->m->hp.moe.n });
}

/* Computes gate and up of the chosen experts in buf.ff: gate and up of a slot side by side, or one matrix after the
 * other, or up alone.  Returns where up begins and sets the distance of rows. */
static float *expert_inputs(builder *b, const layer_weights *w, const float *x, int e, int64_t *ld)
{
    const int f = b->m->hp.moe.n_ff, k = b->m->hp.moe.n_used, r = b->rows;
    float *ff = b->buf.ff, *up = w->exps.gate >= 0 ? ff + (int64_t)r * k * f : ff;

    *ld = w->exps.gate_up >= 0 ? 2 * f : f;
    if (w->exps.gate_up >= 0) {
        BUILD(b, MATMUL_ID, { &b->w[w->exps.gate_up], x, b->buf.route_ids, ff, r, k, k, e, b->compute });
        return ff + f;
    }
    if (w->exps.gate >= 0)
        BUILD(b, MATMUL_ID, { &b->w[w->exps.gate], x, b->buf.route_ids, ff, r, k, k, e, b->compute });
    BUILD(b, MATMUL_ID, { &b->w[w->exps.up], x, b->buf.route_ids, up, r, k, k, e, b->compute });
    return up;
}

/* x[rows][e] through the chosen experts, of each what it gives. */
static void experts(builder *b, const layer_weights *w, const float *x, int e)
{
    const hparams *hp = &b->m->hp;
    int f = hp->moe.n_ff, k = hp->moe.n_used, r = b->rows, slots = r * k;
    int64_t ld;
    float *ff = b->buf.ff, *up = expert_inputs(b, w, x, e, &ld);

    expert_bias(b, w->exps.gate_bias, ff, f, ld);
    expert_bias(b, w->exps.up_bias, up, f, ld);
    gated_unit(b, ff, up, slots, f, ld);
    BUILD(b, MATMUL_ID, { &b->w[w->exps.down], ff, b->buf.route_ids, b->buf.ff2, r, k, 1, ld, b->compute });
    expert_bias(b, w->exps.down_bias, b->buf.ff2, e, e);
}

/* Those of a row, weighed. */
static void combine(builder *b, int e, float *y)
{
    BUILD(b, MOE_COMBINE, { b->buf.ff2, b->buf.route_wts, y, b->rows, b->m->hp.moe.n_used, e });
}

/* Computes the expert of all rows, in the room of queries, keys and values; its gate and up behind the others'. */
static void shared_expert(builder *b, const layer_weights *w)
{
    const hparams *hp = &b->m->hp;
    float *ff = b->buf.ff + (int64_t)b->rows * hp->moe.n_used * 2 * hp->moe.n_ff;

    gate_and_up(b, w->exps.shared_gate_up, w->exps.shared_gate, w->exps.shared_up, hp->moe.n_ff_shared, ff);
    gated_down(b, w->exps.shared_down, hp->moe.n_ff_shared, ff, b->buf.qkv);
}

static void add_shared(builder *b)
{
    const hparams *hp = &b->m->hp;

    if (hp->moe.shared_plain)
        BUILD(b, ADD, { b->buf.delta, b->buf.qkv, b->rows, hp->n_embd });
    else
        BUILD(b, GATE_ADD, { b->buf.delta, b->buf.qkv, b->buf.sh_gate, b->rows, hp->n_embd });
}

/* x[rows][width] -> y.  On a device of their own they run beside the shared expert.  Here the sum comes last: a device
 * may do it together with the norm behind it. */
static void routed_and_shared(builder *b, int l, const float *x, int width, float *y)
{
    const layer_weights *w = &b->m->layers[l];
    const build_hooks *at = &b->hooks;
    const int shared = b->m->hp.moe.n_ff_shared > 0, apart = at->apart && at->apart(b, l, APART_SEND, x, NULL, width);

    if (!apart)
        experts(b, w, x, width);
    if (shared)
        shared_expert(b, w);
    if (apart) {
        experts(b, w, at->apart(b, l, APART_THERE, NULL, NULL, width), width);
        combine(b, width, b->buf.delta);
        at->apart(b, l, APART_BACK, NULL, y, width);
    } else {
        combine(b, width, y);
    }
}

/* in -> delta, where there is a latent through its two projections. */
static void all_experts(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const int e = hp->n_embd, z = hp->moe.n_latent;

    if (z) {
        build_matmul(b, w->exps.latent_down, b->in, e, b->buf.delta, z, b->rows);
        routed_and_shared(b, l, b->buf.delta, z, b->buf.ff);
        build_matmul(b, w->exps.latent_up, b->buf.ff, z, b->buf.delta, e, b->rows);
    } else {
        routed_and_shared(b, l, b->in, e, b->buf.delta);
    }
    if (hp->moe.n_ff_shared)
        add_shared(b);
}

void build_experts(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];

    build_bias(b, w->exps.router_add, b->buf.router, hp->moe.n, hp->moe.n, b->rows);
    if (hp->moe.n_ff_shared && !hp->moe.shared_plain)
        build_matmul(b, w->exps.shared_router, b->in, hp->n_embd, b->buf.sh_gate, 1, b->rows);
    BUILD(b, MOE_ROUTE,
          { b->buf.router, b->buf.route_ids, b->buf.route_wts, b->rows, hp->moe.n, hp->moe.n_used, hp->moe.scale,
            hp->moe.gating, hp->moe.raw, w->exps.router_bias >= 0 ? b->vec[w->exps.router_bias] : NULL, hp->moe.n_group,
            hp->moe.n_top_group, hp->moe.gating == KVANT_GATING_SIGMOID ? 2 : 1 });
    all_experts(b, l);
    b->have_delta = 1;
}

void build_ffn_moe(builder *b, int l)
{
    const hparams *hp = &b->m->hp;

    if (b->rows == 0)
        return;
    build_matmul(b, b->m->layers[l].exps.router, b->in, hp->n_embd, b->buf.router, hp->moe.n, b->rows);
    build_experts(b, l);
}

void build_ffn(builder *b, int l)
{
    if (!b->m->hp.moe.n || l < b->m->hp.moe.n_dense_lead)
        build_ffn_dense(b, l);
    else
        build_ffn_moe(b, l);
}
