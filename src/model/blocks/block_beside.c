/* blocks/block_beside.c: a dense FFN and a mixture that read the same stream, each between norms of its own, whose
 * outputs are added (Gemma 4 26B-A4B).  The router reads the stream through a norm of its own, divided by sqrt(n_embd):
 * here its logits are. */
#include <math.h>

#include "model/build.h"

int request_ffn_beside(kvant_model *m, int l, kvant_diag *diag)
{
    layer_weights *w = &m->layers[l];
    const int64_t e = m->hp.n_embd;

    KVANT_TRY(weight_layer_vector(m, l, "ffn_gate_inp.scale", e, WEIGHT_REQUIRED, &w->router_norm, diag));
    KVANT_TRY(weight_layer_vector(m, l, "pre_ffw_norm_2.weight", e, WEIGHT_REQUIRED, &w->exps_norm, diag));
    KVANT_TRY(weight_layer_vector(m, l, "post_ffw_norm_1.weight", e, WEIGHT_REQUIRED, &w->dense_post_norm, diag));
    KVANT_TRY(weight_layer_vector(m, l, "post_ffw_norm_2.weight", e, WEIGHT_REQUIRED, &w->exps_post_norm, diag));
    return request_ffn_moe(m, l, diag);
}

static void norm(builder *b, const float *x, int weight, float *y)
{
    const int e = b->m->hp.n_embd;
    BUILD(b, NORM_RMS, { x, b->vec[weight], y, b->m->hp.norm.eps, b->rows, 1, e, e, e, e, e });
}

/* The dense output waits in buf.att: attention's rows are done. */
void build_ffn_beside(builder *b, int l)
{
    const hparams *hp = &b->m->hp;
    const layer_weights *w = &b->m->layers[l];
    const int e = hp->n_embd;

    build_ffn_dense(b, l);
    if (b->rows == 0)
        return;
    norm(b, b->buf.delta, w->dense_post_norm, b->buf.att);
    norm(b, b->x, w->router_norm, b->buf.a);
    build_matmul(b, w->exps.router, b->buf.a, e, b->buf.router, hp->moe.n, b->rows);
    build_scale(b, b->buf.router, 1.0f / sqrtf((float)e), hp->moe.n, b->rows);
    norm(b, b->x, w->exps_norm, b->buf.a);
    b->in = b->buf.a;
    build_experts(b, l);
    norm(b, b->buf.delta, w->exps_post_norm, b->buf.delta);
    BUILD(b, ADD, { b->buf.delta, b->buf.att, b->rows, e });
}
