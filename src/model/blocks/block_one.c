/* blocks/block_one.c: layers of one block each, behind one norm: attention without RoPE where head_count_kv is not 0, a
 * feed-forward block where feed_forward_length is not 0, else Mamba2. */
#include "model/build.h"

int read_one_block_shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->one_block = 1;
    hp->act = ACT_RELU2;
    hp->rope.none_step = 1;
    for (int l = 0; l < hp->n_layer; l++)
        if (!hp->no_attn[l] && !hp->no_ffn[l])
            return kvant_fail(diag, KVANT_EUNSUPPORTED,
                              "layer %d: head_count_kv %d and feed_forward_length %d, wanted 0 for one of them", l,
                              hp->n_head_kv, hp->n_ff);
    return read_ssm_shapes(g, hp, diag);
}

int request_one_block(kvant_model *m, int l, kvant_diag *diag)
{
    if (!m->hp.no_attn[l])
        return request_attention(m, l, diag);
    return m->hp.no_ffn[l] ? request_ssm(m, l, WEIGHT_REQUIRED, diag) : request_ffn(m, l, diag);
}

void build_one_block(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];

    build_norm(b, w->attn_norm);
    if (w->is_attn) {
        build_attention(b, l);
    } else if (w->is_state) {
        build_ssm(b, l);
    } else {
        b->in = build_keep_output_rows(b, l, b->in, b->m->hp.n_embd, b->buf.keep);
        build_ffn(b, l);
    }
}
