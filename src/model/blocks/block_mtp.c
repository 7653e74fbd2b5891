/* block_mtp.c: the block behind the trunk that predicts further tokens (MTP; nextn in GGUF files): its weights and
 * its ops.
 *
 * Row q has the embedding of token q and the trunk's hidden state, after the output norm, of token q - 1, each with a
 * norm of its own; a matrix makes a row of the stream of both, one block of the architecture goes over it, and the
 * shared head says what comes behind token q.  To guess on, the block takes its own normed output for the trunk's.  The
 * block is layer n_layer: its K and V are rows of the same pages. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/build.h"

static int request_block(kvant_model *m, kvant_diag *diag)
{
    mtp_weights *w = &m->mtp;
    const int64_t e = m->hp.n_embd, v = m->hp.n_vocab;
    const int l = m->hp.n_layer;

    KVANT_TRY(weight_layer_matrix(m, l, "nextn.eh_proj.weight", 2 * e, e, 1, WEIGHT_REQUIRED, &w->eh_proj, diag));
    KVANT_TRY(weight_layer_vector(m, l, "nextn.enorm.weight", e, WEIGHT_REQUIRED, &w->enorm, diag));
    KVANT_TRY(weight_layer_vector(m, l, "nextn.hnorm.weight", e, WEIGHT_REQUIRED, &w->hnorm, diag));
    KVANT_TRY(weight_layer_vector(m, l, "nextn.shared_head_norm.weight", e, WEIGHT_OPTIONAL, &w->norm, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "nextn.embed_tokens.weight", e, v, 1, WEIGHT_OPTIONAL, &w->embd, diag));
    KVANT_TRY(weight_layer_matrix(m, l, "nextn.shared_head_head.weight", e, v, 1, WEIGHT_OPTIONAL, &w->head, diag));
    KVANT_TRY(model_request_layer(m, l, diag));
    return m->layers[l].is_attn && !m->layers[l].is_state
               ? KVANT_OK
               : kvant_fail(diag, KVANT_EUNSUPPORTED, "blk.%d: no attention of its own", l);
}

int request_mtp(kvant_model *m, kvant_diag *diag)
{
    char name[64];
    kvant_diag why = { "" };

    (void)diag;
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", m->hp.n_layer);
    if (m->n_nextn == 0 || m->hp.norm.layer || m->hp.n_kv_from > 0 || !gguf_tensor_find(m->file, name))
        return KVANT_OK;
    if (request_block(m, &why) == KVANT_OK) {
        m->mtp.norm = m->mtp.norm >= 0 ? m->mtp.norm : m->output_norm;
        m->mtp.embd = m->mtp.embd >= 0 ? m->mtp.embd : m->token_embd;
        m->mtp.head = m->mtp.head >= 0 ? m->mtp.head : m->output;
        m->n_mtp = 1;
    } else { /* the model is whole without it */
        log_msg(LOG_WARN, "block %d, which predicts further tokens, is not used: %s", m->hp.n_layer, why.text);
    }
    return KVANT_OK;
}

/* Hidden states in buf.a (shift 0: of the rows themselves) and tokens -> the stream of the block. */
static void build_input(builder *b, const int32_t *ids)
{
    const mtp_weights *w = &b->m->mtp;
    const int e = b->m->hp.n_embd, n = b->n;
    const float eps = b->m->hp.norm.eps;
    float *both = b->buf.mtp.in;

    BUILD(b, EMBED, { &b->w[w->embd], ids, b->buf.x, n });
    BUILD(b, NORM_RMS, { b->buf.x, b->vec[w->enorm], both, eps, n, 1, e, e, e, 2 * e, 2 * e });
    BUILD(b, NORM_RMS, { b->buf.a, b->vec[w->hnorm], both + e, eps, n, 1, e, e, e, 2 * e, 2 * e });
    b->x = b->buf.x;
    b->rows = n;
    b->have_delta = 0;
    build_matmul(b, w->eh_proj, both, 2 * e, b->x, e, n);
}

void build_mtp_rows(builder *b)
{
    const int e = b->m->hp.n_embd;

    BUILD(b, ROWS_GATHER, { b->buf.mtp.h, b->buf.mtp.src, b->buf.a, b->n, e });
    build_input(b, b->ids);
    b->buf.mtp.kv_end = 0;
    b->m->arch->build(b, b->m->hp.n_layer);
    b->n_ops = b->buf.mtp.kv_end > 0 ? b->buf.mtp.kv_end : b->n_ops; /* nobody reads what attention would say */
}

size_t build_mtp_told(int seqs)
{
    return ((size_t)seqs * 2 * BUILD_MTP_TOP + 15) & ~(size_t)15;
}

void build_mtp_guess(builder *b)
{
    const kvant_model *m = b->m;
    const int v = m->hp.n_vocab, e = m->hp.n_embd;

    BUILD(b, ROWS_GATHER, { b->buf.mtp.h, b->buf.mtp.src, b->buf.a, b->n, e });
    build_input(b, b->buf.mtp.ids);
    m->arch->build(b, m->hp.n_layer);
    build_norm(b, m->mtp.norm);
    BUILD(b, ROWS_COPY, { b->buf.a, b->buf.mtp.h + (size_t)b->buf.mtp.seqs * (size_t)e, b->n, 1, e, e, e, e, e });
    build_matmul(b, m->mtp.head, b->buf.a, e, b->buf.logits, v, b->n);
    if (b->top == 1) {
        BUILD(b, ARGMAX, { b->buf.logits, b->buf.mtp.ids, b->n, v });
        return;
    }
    BUILD(b, TOP_K, { b->buf.logits, b->buf.out_top, b->buf.out_ids, b->n, v, b->top });
    BUILD(b, ROWS_COPY, { (const float *)(const void *)b->buf.out_ids, (float *)(void *)b->buf.mtp.ids, b->n, 1, 1,
                          b->top, 1, 1, 1 });
}
