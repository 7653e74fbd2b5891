/* blocks/block_ffn.c: feed-forward blocks: dense SwiGLU, and mixture of experts with an optional shared expert.
 * Spec engine 2.2: softmax over all experts, top-n, renormalised; the shared expert is added times a sigmoid gate. */
#include <stdio.h>

#include "model/build.h"

int request_ffn_dense(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    char name[80];

    KVANT_TRY(weight_layer_matrix(m, l, "ffn_gate.weight", hp->n_embd, hp->n_ff, 1, WEIGHT_REQUIRED, &w->gate, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_up.weight", hp->n_embd, hp->n_ff, 1, WEIGHT_REQUIRED, &w->up, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_down.weight", hp->n_ff, hp->n_embd, 1, WEIGHT_REQUIRED, &w->down, diag));
    snprintf(name, sizeof name, "blk.%d.ffn_gate+up.weight", l);
    return weight_join(m, name, (int[]){ w->gate, w->up }, 2, &w->gate_up, diag);
}

static int request_experts(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    int64_t e = hp->n_embd, f = hp->n_ff_exp;
    int n = hp->n_expert;
    char name[80];

    KVANT_TRY(weight_layer_matrix(m, l, "ffn_gate_inp.weight", e, n, 1, WEIGHT_REQUIRED, &w->router, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_down_exps.weight", f, e, n, WEIGHT_REQUIRED, &w->down_exps, diag));
    KVANT_TRY(
        weight_layer_matrix(m, l, "ffn_gate_up_exps.weight", e, 2 * f, n, WEIGHT_OPTIONAL, &w->gate_up_exps, diag));
    if (w->gate_up_exps >= 0)
        return KVANT_OK;
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_gate_exps.weight", e, f, n, WEIGHT_REQUIRED, &w->gate_exps, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_up_exps.weight", e, f, n, WEIGHT_REQUIRED, &w->up_exps, diag));
    snprintf(name, sizeof name, "blk.%d.ffn_gate+up_exps.weight", l);
    return weight_join_experts(m, name, w->gate_exps, w->up_exps, &w->gate_up_exps, diag);
}

int request_ffn_moe(kvant_model *m, int l, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    layer_weights *w = &m->layers[l];
    int64_t e = hp->n_embd, f = hp->n_ff_shexp;
    char name[80];

    KVANT_TRY(request_experts(m, l, diag));
    if (f == 0)
        return KVANT_OK;
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_gate_inp_shexp.weight", e, 1, 1, WEIGHT_REQUIRED, &w->shexp_router, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_gate_shexp.weight", e, f, 1, WEIGHT_REQUIRED, &w->shexp_gate, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_up_shexp.weight", e, f, 1, WEIGHT_REQUIRED, &w->shexp_up, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "ffn_down_shexp.weight", f, e, 1, WEIGHT_REQUIRED, &w->shexp_down, diag));
    snprintf(name, sizeof name, "blk.%d.ffn_gate+up_shexp.weight", l);
    return weight_join(m, name, (int[]){ w->shexp_gate, w->shexp_up }, 2, &w->shexp_gate_up, diag);
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
    hp->n_expert = (int)n;
    hp->n_expert_used = (int)used;
    hp->n_ff_exp = (int)f;
    hp->n_ff_shexp = (int)fs;
    hp->n_ff = 0;
    hp->expert_scale = scale > 0 ? scale : 1.0f;
    return KVANT_OK;
}

/* gate_up (joined) or gate and up apart -> ff[rows][2f], SwiGLU in place, down -> y. */
static void swiglu_mlp(builder *b, int joined, int gate, int up, int down, int f, float *y)
{
    int e = b->m->hp.n_embd, r = b->rows;
    float *ff = b->buf.ff;

    if (joined >= 0) {
        build_matmul(b, joined, b->buf.a, e, ff, 2 * f, r);
    } else {
        build_matmul(b, gate, b->buf.a, e, ff, 2 * f, r);
        build_matmul(b, up, b->buf.a, e, ff + f, 2 * f, r);
    }
    BUILD(b, SWIGLU, { ff, ff + f, ff, r, f, 2 * f, 2 * f, 2 * f });
    build_matmul(b, down, ff, 2 * f, y, e, r);
}

void build_ffn_dense(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];
    if (b->rows == 0)
        return;
    swiglu_mlp(b, w->gate_up, w->gate, w->up, w->down, b->m->hp.n_ff, b->buf.delta);
    b->have_delta = 1;
}

static void experts(builder *b, const layer_weights *w)
{
    const hparams *hp = &b->m->hp;
    int e = hp->n_embd, f = hp->n_ff_exp, k = hp->n_expert_used, r = b->rows, slots = r * k;
    float *ff = b->buf.ff, *up = ff + f;
    int64_t ld = 2 * f;

    if (w->gate_up_exps >= 0) {
        BUILD(b, MATMUL_ID, { &b->w[w->gate_up_exps], b->buf.a, b->buf.route_ids, ff, r, k, k, e, b->compute });
    } else {
        up = ff + (int64_t)slots * f;
        ld = f;
        BUILD(b, MATMUL_ID, { &b->w[w->gate_exps], b->buf.a, b->buf.route_ids, ff, r, k, k, e, b->compute });
        BUILD(b, MATMUL_ID, { &b->w[w->up_exps], b->buf.a, b->buf.route_ids, up, r, k, k, e, b->compute });
    }
    BUILD(b, SWIGLU, { ff, up, ff, slots, f, ld, ld, ld });
    BUILD(b, MATMUL_ID, { &b->w[w->down_exps], ff, b->buf.route_ids, b->buf.ff2, r, k, 1, ld, b->compute });
    BUILD(b, MOE_COMBINE, { b->buf.ff2, b->buf.route_wts, b->buf.delta, r, k, e });
}

void build_ffn_moe(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];

    if (b->rows == 0)
        return;
    build_matmul(b, w->router, b->buf.a, hp->n_embd, b->buf.router, hp->n_expert, b->rows);
    BUILD(b, MOE_ROUTE, { b->buf.router, b->buf.route_ids, b->buf.route_wts, b->rows, hp->n_expert, hp->n_expert_used,
                          hp->expert_scale });
    experts(b, w);
    if (hp->n_ff_shexp) {
        build_matmul(b, w->shexp_router, b->buf.a, hp->n_embd, b->buf.sh_gate, 1, b->rows);
        swiglu_mlp(b, w->shexp_gate_up, w->shexp_gate, w->shexp_up, w->shexp_down, hp->n_ff_shexp, b->buf.ff2);
        BUILD(b, GATE_ADD, { b->buf.delta, b->buf.ff2, b->buf.sh_gate, b->rows, hp->n_embd });
    }
    b->have_delta = 1;
}
