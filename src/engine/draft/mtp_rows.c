/* mtp_rows.c: hidden states between a step and the block that predicts further tokens, and that block's guesses.
 *
 * A step writes the block's K and V for all its rows, each from the hidden state of the token before: of the pass, or,
 * for a sequence's first row, what the pass before left (engine_mtp.rows).  A state that nobody has (before the first
 * token, or the first after a shared prefix) is zero: guesses may be worse, texts are not touched.  Rows of guesses lie
 * behind the length and are written again by the step that verifies them. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/draft/pass.h"
#include "engine/place/profile.h"

int engine_mtp_create(kvant_engine *e, kvant_diag *diag)
{
    const size_t seqs = (size_t)e->p.max_seqs, n = seqs * (size_t)e->m->hp.n_embd;
    engine_mtp *t = &e->mtp;

    if (!e->p.mtp)
        return KVANT_OK;
    if (e->split.n > 1)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "MTP: %d devices, wanted one", e->split.n);
    t->rows = kvant_calloc(n * ENGINE_MTP_ROWS, sizeof *t->rows);
    t->chain = kvant_calloc(seqs, sizeof *t->chain);
    t->sent = kvant_calloc(n, sizeof *t->sent);
    t->at = kvant_calloc(seqs, sizeof *t->at);
    t->len = kvant_calloc(seqs, sizeof *t->len);
    t->serial = kvant_calloc(seqs, sizeof *t->serial);
    return t->rows && t->chain && t->sent && t->at && t->len && t->serial
               ? KVANT_OK
               : kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory for hidden states of %zu sequences", seqs);
}

void engine_mtp_free(kvant_engine *e)
{
    engine_mtp *t = &e->mtp;
    void *mem[] = { t->rows, t->chain, t->sent, t->at, t->len, t->serial };

    for (size_t i = 0; i < sizeof mem / sizeof *mem; i++)
        kvant_free(mem[i]);
}

static size_t width(const kvant_engine *e)
{
    return (size_t)e->m->hp.n_embd;
}

static float *rows_of(const kvant_engine *e, int seq)
{
    return e->mtp.rows + (size_t)seq * ENGINE_MTP_ROWS * width(e);
}

/* The hidden state of the token before position pos; NULL: nobody has it. */
static const float *state_before(const kvant_engine *e, int seq, int pos)
{
    const engine_mtp *t = &e->mtp;

    if (pos == 0 || t->serial[seq] != e->kv.seqs[seq].serial || t->len[seq] != pos)
        return NULL;
    return rows_of(e, seq) + (size_t)t->at[seq] * width(e);
}

static void put_state(kvant_engine *e, int i, const float *from)
{
    float *to = e->mtp.sent + (size_t)i * width(e);

    if (from)
        memcpy(to, from, width(e) * sizeof *to);
    else
        memset(to, 0, width(e) * sizeof *to);
}

static int send(kvant_engine *e, int n, kvant_diag *diag)
{
    const engine_place *at = &e->place[0];

    return at->dev->vt->copy_in(at->dev, at->buf.mtp.h, e->mtp.sent, (size_t)n * width(e) * sizeof(float), diag);
}

/* The pass that begins writes other states where the block's own lie. */
static void forget_chains(kvant_engine *e)
{
    for (int s = 0; s < e->p.max_seqs; s++)
        e->mtp.chain[s] = -1;
}

int engine_mtp_send(kvant_engine *e, const pass *p, const int *seq, kvant_diag *diag)
{
    forget_chains(e);
    for (int q = 0; q < p->n_seqs; q++)
        put_state(e, q, state_before(e, seq[q], e->host_in.pos0[q]));
    return send(e, p->n_seqs, diag);
}

/* Rows [from, to) of the pass to host memory; hidden_rows has them until the next ones. */
static int fetch(kvant_engine *e, int from, int to, kvant_diag *diag)
{
    const engine_place *at = &e->place[0];
    const float *h = at->buf.mtp.h + ((size_t)e->p.max_seqs + (size_t)from) * width(e);

    KVANT_TRY(at->dev->vt->copy_out(at->dev, e->hidden_rows, h, (size_t)(to - from) * width(e) * sizeof *h, diag));
    return at->dev->vt->sync(at->dev, diag);
}

int engine_mtp_keep(kvant_engine *e, const pass *p, const int *seq, const int *drafts, kvant_diag *diag)
{
    const int *q0 = e->host_in.q0;
    engine_mtp *t = &e->mtp;

    for (int q = 0, next; q < p->n_seqs; q = next) { /* rows of several sequences side by side come at once */
        const int from = q0[q + 1] - 1 - drafts[q];
        for (next = q + 1; next < p->n_seqs && q0[next + 1] - 1 - drafts[next] == q0[next]; next++)
            if (q0[next + 1] - from > KVANT_PAGE)
                break;
        KVANT_TRY(fetch(e, from, q0[next], diag));
        for (; q < next; q++) {
            const int s = seq[q], first = q0[q + 1] - 1 - drafts[q];
            memcpy(rows_of(e, s), e->hidden_rows + (size_t)(first - from) * width(e),
                   (size_t)(1 + drafts[q]) * width(e) * sizeof *t->rows);
            t->at[s] = 0;
            t->len[s] = e->host_in.pos0[q] + first + 1 - q0[q];
            t->serial[s] = e->kv.seqs[s].serial;
        }
    }
    return KVANT_OK;
}

void engine_mtp_accept(kvant_engine *e, int seq, int n)
{
    if (!e->p.mtp || n == 0)
        return;
    e->mtp.at[seq] += n;
    e->mtp.len[seq] += n;
}

/* ---- guesses ---- */

static void guess_add(kvant_engine *e, pass *p, const mtp_item *it)
{
    step_inputs *h = &e->host_in;
    const int q = p->n_seqs++, pos = e->kv.seqs[it->seq].len + it->at;
    kv_seals seals = { h->seal_src, h->seal_dst, h->seal_window, 0 };

    h->ids[q] = it->token;
    h->pos[q] = h->pos0[q] = pos;
    h->q0[q] = h->out_rows[q] = q;
    h->mtp_src[q] = it->at > 0 ? e->p.max_seqs + e->mtp.chain[it->seq] : q;
    h->q0[q + 1] = q + 1;
    h->prompt[q] = 0;
    h->slot_in[q] = h->slot_out[q] = it->seq;
    p->n_few = p->few_rows = p->n_seqs;
    if (it->at == 0)
        put_state(e, q, state_before(e, it->seq, pos));
    p->n_tokens++;
    p->max_pos = pos > p->max_pos ? pos : p->max_pos;
    kv_reserve(&e->kv, it->seq, pos + 1);
    kv_pass_begin(&e->kv, it->seq, pos, 1, &seals); /* seals none: guesses do not fill their page */
}

static int can_guess(const kvant_engine *e, const mtp_item *it)
{
    const kv_seq *s = &e->kv.seqs[it->seq];
    const int pos = s->len + it->at;

    return !s->broken && (it->at == 0 || e->mtp.chain[it->seq] >= 0) && it->at <= kv_draft_room(&e->kv, it->seq) &&
           pos < e->p.n_ctx && it->token >= 0 && it->token < e->m->hp.n_vocab &&
           kv_pages_missing(&e->kv, it->seq, pos + 1) <= e->kv.pages.n_free &&
           kv_pass_fits(&e->kv, it->seq, pos, 1);
}

/* first: some state is the trunk's. */
static int run(kvant_engine *e, pass *p, const int *seq, int first, kvant_diag *diag)
{
    kvant_device *dev = e->place[0].dev;

    pass_tables(e, p, seq);
    const uint64_t key = pass_key(e, p);
    p->max_pos = key ? p->stride * KVANT_PAGE - 1 : p->max_pos;
    KVANT_TRY(pass_upload(e, p, diag));
    if (first)
        KVANT_TRY(send(e, p->n_seqs, diag));
    pass_build(e, p);
    if (e->b.error)
        return kvant_fail(diag, KVANT_EINTERNAL, "program: more than %d ops", e->max_ops);
    for (int i = 0; i < e->b.n_ops; i++)
        KVANT_TRY(kvant_op_check(e->ops[i].id, e->ops[i].args, diag));
    return engine_submit_to(e, dev, e->ops, e->b.n_ops, key, diag);
}

/* The share of the likeliest of n logits, the largest first, among the first ten. */
static float share_of(const float *logits, int n)
{
    double sum = 0;

    for (int i = 0; i < n && i < 10; i++)
        sum += exp((double)logits[i] - (double)logits[0]);
    return sum > 0 ? (float)(1 / sum) : 0.0f;
}

/* ids and values have room for the rows of a pass behind those of a step (create_outputs). */
static int take(kvant_engine *e, const pass *p, mtp_item *items, const int *of, kvant_diag *diag)
{
    const engine_place *at = &e->place[0];
    const size_t k = (size_t)p->top, room = (size_t)e->p.logits_rows * KVANT_STEP_TOP, n = (size_t)p->n_seqs;
    int32_t *ids = e->top_ids + room;
    float *values = e->top + room;

    KVANT_TRY(at->dev->vt->copy_out(at->dev, ids, at->buf.out_ids, n * k * sizeof *ids, diag));
    if (k > 1)
        KVANT_TRY(at->dev->vt->copy_out(at->dev, values, at->buf.out_top, n * k * sizeof *values, diag));
    KVANT_TRY(at->dev->vt->sync(at->dev, diag));
    forget_chains(e);
    for (size_t q = 0; q < n; q++) {
        e->mtp.chain[items[of[q]].seq] = (int)q;
        items[of[q]].guess = ids[q * k] >= 0 && ids[q * k] < e->m->hp.n_vocab ? ids[q * k] : -1;
        items[of[q]].p = k > 1 ? share_of(values + q * k, (int)k) : 1.0f;
    }
    return KVANT_OK;
}

int engine_mtp_guess(kvant_engine *e, mtp_item *items, int n, int likely, kvant_diag *diag)
{
    pass p = { .top = likely ? KVANT_STEP_TOP : 1, .any_decode = 1, .guess = 1 };
    int *of = e->item_rows, *seq = of + e->p.max_seqs, first = 0; /* of the last step, which is over */

    e->n_items = 0;
    p.top = p.top < e->m->hp.n_vocab ? p.top : e->m->hp.n_vocab;
    for (int i = 0; i < n; i++) {
        items[i].guess = -1;
        items[i].p = 0;
        if (p.n_seqs == e->pass_rows || !can_guess(e, &items[i]))
            continue;
        of[p.n_seqs] = i;
        seq[p.n_seqs] = items[i].seq;
        first |= items[i].at == 0;
        guess_add(e, &p, &items[i]);
    }
    p.n_out = p.n_seqs;
    if (p.n_seqs == 0)
        return KVANT_OK;
    KVANT_TRY(run(e, &p, seq, first, diag));
    return take(e, &p, items, of, diag);
}

void engine_mtp_end(kvant_engine *e, int seq)
{
    kv_trim(&e->kv, seq);
}
