/* mtp_rows.c: hidden states between a step and the block that predicts further tokens, and that block's guesses.
 *
 * A step writes the block's K and V for all its rows, each from the hidden state of the token before: of the pass, or,
 * for a sequence's first row, what the pass before left (engine_mtp.rows).  A state that nobody has (before the first
 * token, or the first after a shared prefix) is zero: guesses may be worse, texts are not touched.  Rows of guesses lie
 * behind the length and are written again by the step that verifies them.  While nobody asks the block, decode steps
 * leave it out (engine_mtp.rests): its rows of their tokens are whatever lies there, and guesses behind them worse.
 *
 * Guesses behind guesses need nothing from the host: a round leaves its tokens and states on the device, where the next
 * one reads them.  So the host queues all rounds, and waits once for what they said. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/pass/pass.h"
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
    t->told = kvant_calloc(BUILD_MTP_ROUNDS * build_mtp_told(e->p.max_seqs), sizeof *t->told);
    t->at = kvant_calloc(seqs, sizeof *t->at);
    t->len = kvant_calloc(seqs, sizeof *t->len);
    t->serial = kvant_calloc(seqs, sizeof *t->serial);
    return t->rows && t->chain && t->sent && t->told && t->at && t->len && t->serial
               ? KVANT_OK
               : kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory for hidden states of %zu sequences", seqs);
}

void engine_mtp_free(kvant_engine *e)
{
    engine_mtp *t = &e->mtp;
    void *mem[] = { t->rows, t->chain, t->sent, t->told, t->at, t->len, t->serial };

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

/* Prompts are written all the same: others may share them. */
int engine_mtp_rests(kvant_engine *e, const pass *p, const int *seq)
{
    if (!e->mtp.rests || p->any_prompt || p->hidden)
        return 0;
    for (int q = 0; q < p->n_seqs; q++)
        e->mtp.len[seq[q]] = -1;
    return 1;
}

void engine_mtp_accept(kvant_engine *e, int seq, int n)
{
    if (!e->p.mtp || n == 0 || e->mtp.len[seq] < 0)
        return;
    e->mtp.at[seq] += n;
    e->mtp.len[seq] += n;
}

/* ---- guesses ---- */

/* Guess number j of an item. */
static int can_guess(const kvant_engine *e, const mtp_item *it, int j)
{
    const kv_seq *s = &e->kv.seqs[it->seq];
    const int at = it->at + j, pos = s->len + at;

    return !s->broken && (it->at == 0 || e->mtp.chain[it->seq] >= 0) && at <= kv_draft_room(&e->kv, it->seq) &&
           pos < e->p.n_ctx && it->token >= 0 && it->token < e->m->hp.n_vocab &&
           kv_pages_missing(&e->kv, it->seq, pos + 1) <= e->kv.pages.n_free &&
           kv_pass_fits(&e->kv, it->seq, pos, 1);
}

/* How many guesses of the item there are; their page is taken. */
static int make_room(kvant_engine *e, const mtp_item *it)
{
    const int pos = e->kv.seqs[it->seq].len + it->at;
    kv_seals seals = { e->host_in.seal_src, e->host_in.seal_dst, e->host_in.seal_window, 0 };
    int n = 0;

    while (n < it->n && n < ENGINE_MTP_ROWS && can_guess(e, it, n))
        n++;
    if (n > 0) {
        kv_reserve(&e->kv, it->seq, pos + n);
        kv_pass_begin(&e->kv, it->seq, pos, n, &seals); /* seals none: guesses do not fill their page */
    }
    return n;
}

/* Items by pass sequence, those of more guesses first: a round has the first ones. */
typedef struct guess_lists { int *item, *seq, *n; } guess_lists;

static void enter(const guess_lists *l, int n_seqs, int item, int seq, int n)
{
    int q = n_seqs;

    for (; q > 0 && l->n[q - 1] < n; q--) {
        l->item[q] = l->item[q - 1];
        l->seq[q] = l->seq[q - 1];
        l->n[q] = l->n[q - 1];
    }
    l->item[q] = item;
    l->seq[q] = seq;
    l->n[q] = n;
}

static void guess_add(kvant_engine *e, pass *p, const mtp_item *it, int j)
{
    step_inputs *h = &e->host_in;
    const int q = p->n_seqs++, pos = e->kv.seqs[it->seq].len + it->at + j, own = e->p.max_seqs;

    h->ids[q] = it->token;         /* the first round's: the device writes those of the others */
    h->pos[q] = h->pos0[q] = pos;
    h->q0[q] = h->out_rows[q] = q;
    h->mtp_src[q] = j > 0 ? own + q : it->at > 0 ? own + e->mtp.chain[it->seq] : q;
    h->q0[q + 1] = q + 1;
    h->prompt[q] = 0;
    h->slot_in[q] = h->slot_out[q] = it->seq;
    p->n_few = p->few_rows = p->n_seqs;
    p->n_tokens++;
    p->max_pos = pos > p->max_pos ? pos : p->max_pos;
}

/* Tokens, and the trunk's states where an item begins behind them. */
static int send_first(kvant_engine *e, const mtp_item *items, const guess_lists *l, int n, kvant_diag *diag)
{
    const engine_place *at = &e->place[0];
    int any = 0;

    for (int q = 0; q < n; q++) {
        const mtp_item *it = &items[l->item[q]];
        if (it->at == 0)
            put_state(e, q, state_before(e, it->seq, e->kv.seqs[it->seq].len));
        any |= it->at == 0;
    }
    KVANT_TRY(at->dev->vt->copy_in(at->dev, at->buf.mtp.ids, e->host_in.ids, (size_t)n * sizeof(int32_t), diag));
    return any ? send(e, n, diag) : KVANT_OK;
}

/* The tokens of round j move to its place: the next round's are written over them. */
static int keep_told(kvant_engine *e, const pass *p, int j, kvant_diag *diag)
{
    const build_buffers *b = &e->place[0].buf;
    const int32_t *ids = p->top > 1 ? b->out_ids : b->mtp.ids;
    const int k = p->top, n = p->n_seqs;
    float *to = b->mtp.told + (size_t)j * build_mtp_told(e->p.max_seqs);
    const kvant_rows_copy_args args[2] = {
        { (const float *)(const void *)ids, to, n, 1, k, k, k, k, k },
        { b->out_top, to + (size_t)n * (size_t)k, n, 1, k, k, k, k, k },
    };
    const kvant_op ops[2] = { { KVANT_OP_ROWS_COPY, &args[0] }, { KVANT_OP_ROWS_COPY, &args[1] } };

    return engine_submit_to(e, e->place[0].dev, ops, k > 1 ? 2 : 1, 0, diag);
}

static int run(kvant_engine *e, pass *p, const int *seq, kvant_diag *diag)
{
    pass_tables(e, p, seq);
    const uint64_t key = pass_key(e, p);
    p->max_pos = key ? p->stride * KVANT_PAGE - 1 : p->max_pos;
    KVANT_TRY(pass_upload(e, p, diag));
    pass_build(e, p);
    if (e->b.error)
        return kvant_fail(diag, KVANT_EINTERNAL, "program: more than %d ops", e->max_ops);
    for (int i = 0; i < e->b.n_ops; i++)
        KVANT_TRY(kvant_op_check(e->ops[i].id, e->ops[i].args, diag));
    return engine_submit_to(e, e->place[0].dev, e->ops, e->b.n_ops, key, diag);
}

/* The share of the likeliest of n logits, the largest first. */
static float share_of(const int32_t *bits, int n)
{
    float logits[BUILD_MTP_TOP];
    double sum = 0;

    memcpy(logits, bits, (size_t)n * sizeof *logits);
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)logits[0]);
    return sum > 0 ? (float)(1 / sum) : 0.0f;
}

/* The guesses of n sequences to their items: one copy, and the only wait. */
static int take(kvant_engine *e, mtp_item *items, const guess_lists *l, int n, int k, kvant_diag *diag)
{
    const engine_place *at = &e->place[0];
    const size_t stride = build_mtp_told(e->p.max_seqs), values = (size_t)(l->n[0] - 1) * stride +
                                                                  (size_t)(2 * n * k);
    KVANT_TRY(at->dev->vt->copy_out(at->dev, e->mtp.told, at->buf.mtp.told, values * sizeof(int32_t), diag));
    KVANT_TRY(at->dev->vt->sync(at->dev, diag));
    for (int j = 0, live = n; j < l->n[0]; j++) {
        const int32_t *ids = e->mtp.told + (size_t)j * stride;
        while (l->n[live - 1] <= j)
            live--;
        for (int q = 0; q < live; q++) {
            mtp_item *it = &items[l->item[q]];
            if (ids[q * k] < 0 || ids[q * k] >= e->m->hp.n_vocab || (j > 0 && it->guess[j - 1] < 0))
                continue;          /* not finite: nor is what is guessed behind it */
            it->guess[j] = ids[q * k];
            it->p[j] = k > 1 ? share_of(ids + (live + q) * k, k) : 1.0f;
        }
    }
    return KVANT_OK;
}

static int run_rounds(kvant_engine *e, const mtp_item *items, const guess_lists *l, int n, int top, kvant_diag *diag)
{
    for (int j = 0; j < l->n[0]; j++) {
        pass p = { .top = top, .any_decode = 1, .guess = 1 };
        while (p.n_seqs < n && l->n[p.n_seqs] > j)
            guess_add(e, &p, &items[l->item[p.n_seqs]], j);
        p.n_out = p.n_seqs;
        if (j == 0)
            KVANT_TRY(send_first(e, items, l, n, diag));
        KVANT_TRY(run(e, &p, l->seq, diag));
        KVANT_TRY(keep_told(e, &p, j, diag));
    }
    return KVANT_OK;
}

int engine_mtp_guess(kvant_engine *e, mtp_item *items, int n, int likely, kvant_diag *diag)
{
    int *lists = e->item_rows, n_seqs = 0; /* of the last step, which is over */
    const guess_lists l = { lists, lists + e->p.max_seqs, lists + 2 * e->p.max_seqs };
    const int most = BUILD_MTP_TOP < e->m->hp.n_vocab ? BUILD_MTP_TOP : e->m->hp.n_vocab, top = likely ? most : 1;

    e->n_items = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < ENGINE_MTP_ROWS; j++) {
            items[i].guess[j] = -1;
            items[i].p[j] = 0;
        }
        const int k = n_seqs < e->pass_rows ? make_room(e, &items[i]) : 0;
        if (k > 0)
            enter(&l, n_seqs++, i, items[i].seq, k);
    }
    if (n_seqs == 0)
        return KVANT_OK;
    const int code = run_rounds(e, items, &l, n_seqs, top, diag);
    forget_chains(e);
    for (int q = 0; code == KVANT_OK && q < n_seqs; q++)
        e->mtp.chain[l.seq[q]] = q; /* rounds that it has no part in write rows before it */
    return code == KVANT_OK ? take(e, items, &l, n_seqs, top, diag) : code;
}

void engine_mtp_end(kvant_engine *e, int seq)
{
    kv_trim(&e->kv, seq);
}
