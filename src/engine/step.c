/* step.c: one step: items -> device passes -> logits.
 *
 * Prompt pieces are cut so that every pass ends on the absolute 64-token grid or at the piece's end; decode rows come
 * first. All pages are reserved before the first pass, so a full pool is found before anything runs. */
#include <math.h>
#include <string.h>

#include "engine/pass/pass.h"

/* ---- checks before anything runs ---- */

static int check_drafts(const kvant_engine *e, const kvant_item *it, int i, kvant_diag *diag)
{
    const int n = e->item_draft[i], room = n ? kvant_seq_draft_room(e, it->seq) : 0;

    if (n < 0 || n > room || (n > 0 && (it->n != 1 + n || it->prompt || it->logits == KVANT_LOGITS_HIDDEN)))
        return kvant_fail(diag, KVANT_EINVAL, "item %d: %d drafts among %d tokens, wanted 0 to %d behind one token", i,
                          n, it->n, room);
    return KVANT_OK;
}

static int check_item(const kvant_engine *e, const kvant_item *it, int i, kvant_diag *diag)
{
    const kv_cache *kv = &e->kv;
    if (!kv_seq_valid(kv, it->seq))
        return kvant_fail(diag, KVANT_EINVAL, "item %d: sequence %d does not exist", i, it->seq);
    const kv_seq *s = &kv->seqs[it->seq];
    if (s->broken)
        return kvant_fail(diag, KVANT_EINVAL, "item %d: sequence %d failed in an earlier step; free it", i, it->seq);
    if (it->n < 1)
        return kvant_fail(diag, KVANT_EINVAL, "item %d: %d tokens, wanted at least 1", i, it->n);
    if (it->n > e->p.n_ctx - s->len)
        return kvant_fail(diag, KVANT_ENOSPC, "item %d: sequence %d would have %lld tokens, the context holds %d", i,
                          it->seq, (long long)s->len + it->n, e->p.n_ctx);
    if (!it->prompt && it->n > e->p.n_ubatch)
        return kvant_fail(diag, KVANT_EINVAL, "item %d: %d decode tokens, wanted at most %d", i, it->n, e->p.n_ubatch);
    KVANT_TRY(check_drafts(e, it, i, diag));
    for (int j = 0; j < it->n; j++)
        if (it->tokens[j] < 0 || it->tokens[j] >= e->m->hp.n_vocab)
            return kvant_fail(diag, KVANT_EINVAL, "item %d: token %d is %d, wanted 0 to %d", i, j, it->tokens[j],
                              e->m->hp.n_vocab - 1);
    if (it->logits < KVANT_LOGITS_NONE || it->logits > KVANT_LOGITS_TOP)
        return kvant_fail(diag, KVANT_EINVAL, "item %d: logits %d, wanted 0 to %d", i, it->logits, KVANT_LOGITS_HIDDEN);
    return KVANT_OK;
}

static int check_items(kvant_engine *e, const kvant_item *items, int n, kvant_diag *diag)
{
    int64_t rows = 0, pages = 0, ring = 0;

    if (n < 1 || n > e->p.max_seqs)
        return kvant_fail(diag, KVANT_EINVAL, "step: %d items, wanted 1 to %d", n, e->p.max_seqs);
    for (int i = 0; i < n; i++) {
        KVANT_TRY(check_item(e, &items[i], i, diag));
        for (int j = 0; j < i; j++)
            if (items[j].seq == items[i].seq)
                return kvant_fail(diag, KVANT_EINVAL, "items %d and %d: both are sequence %d", j, i, items[i].seq);
        rows += item_logits(&items[i], e->item_draft[i], 0);
        ring += e->item_draft[i] > 0 ? items[i].n : 0;
        pages += kv_pages_missing(&e->kv, items[i].seq, e->kv.seqs[items[i].seq].len + items[i].n);
    }
    if (rows > e->p.logits_rows)
        return kvant_fail(diag, KVANT_EINVAL, "step: %lld rows of logits, wanted at most %d (logits_rows)",
                          (long long)rows, e->p.logits_rows);
    if (e->kv.cfg.ring_rows > 0 && ring > e->kv.cfg.ring_rows)
        return kvant_fail(diag, KVANT_EINVAL, "step: %lld rows of items with drafts, wanted at most %d (draft_rows)",
                          (long long)ring, e->kv.cfg.ring_rows);
    if (pages > e->kv.pages.n_free)
        return kvant_fail(diag, KVANT_ENOSPC, "cache pool: %lld pages of %d tokens wanted, %d of %d are free",
                          (long long)pages, KVANT_PAGE, e->kv.pages.n_free, e->kv.pages.n);
    return KVANT_OK;
}

/* ---- the step ---- */

typedef struct item_progress {
    int off;                       /* tokens of the item done */
    int row;                       /* next host row of its logits */
    int code;                      /* why its last pass failed */
} item_progress;

/* Sequences of a pass: their items, logits rows, tokens taken. */
typedef struct pass_lists { int *seq, *item, *rows, *took, *drafts; } pass_lists;

/* Rows of an item that fit into what is left of a pass; 0: none. */
static int piece(const kvant_engine *e, const pass *p, const kvant_item *it, int drafts, int off)
{
    int left = e->p.n_ubatch - p->n_tokens, n = it->n - off, out_left = e->pass_rows - p->n_out;
    int pos = e->kv.seqs[it->seq].len + off;

    if (it->logits == KVANT_LOGITS_ALL && out_left < left)
        left = out_left;
    if (it->logits != KVANT_LOGITS_ALL && out_left < item_logits(it, drafts, 0))
        return 0;
    if (n <= left)
        return n;
    if (!it->prompt)
        return 0;
    int cut = (pos + left) / KVANT_PAGE * KVANT_PAGE - pos;    /* end on the absolute grid */
    return cut > 0 ? cut : 0;
}

static int finite_rows(const float *x, size_t n)
{
    float worst = 0;
    for (size_t i = 0; i < n; i++)
        worst += x[i] * 0.0f;      /* NaN and Inf give NaN */
    return worst == 0.0f;
}

static int numeric(item_progress *g, int seq, const char *what, kvant_diag *diag)
{
    g->code = kvant_fail(diag, KVANT_ENUMERIC, "sequence %d: %s are not finite", seq, what);
    return KVANT_OK;               /* its own misfortune: the rest of the pass is good */
}

/* A draft is a guess: its row, which a sequence without it may never have, ends nobody before it is accepted. */
static void row_not_finite(kvant_engine *e, int item, int seq, item_progress *g, size_t row, kvant_diag *diag)
{
    if (e->item_draft[item] == 0 || row == 0)
        numeric(g, seq, "logits", diag);
    else
        e->tokens[(size_t)g->row + row] = ROW_BAD;
}

/* The likeliest tokens of the pass, in order of out_rows, to their items. */
static int pass_top(kvant_engine *e, const kvant_item *items, const pass_lists *l, const pass *p, item_progress *at,
                    kvant_diag *diag)
{
    const size_t k = (size_t)p->top, room = (size_t)e->p.logits_rows * KVANT_STEP_TOP, n = (size_t)p->n_out * k;
    int32_t *ids = e->top_ids + room;
    float *values = e->top + room;
    const engine_place *at_head = engine_head(e);
    kvant_device *dev = at_head->dev;
    size_t r = 0;

    KVANT_TRY(dev->vt->copy_out(dev, ids, at_head->buf.out_ids, n * sizeof *ids, diag));
    if (k > 1)
        KVANT_TRY(dev->vt->copy_out(dev, values, at_head->buf.out_top, n * sizeof *values, diag));
    KVANT_TRY(dev->vt->sync(dev, diag));
    for (int i = 0; i < p->n_seqs; r += (size_t)l->rows[i++]) {
        const int item = l->item[i], top = item_top(&items[item]);
        for (size_t j = 0; top > 0 && j < (size_t)l->rows[i]; j++) {
            const size_t to = (size_t)e->item_row[item] + j;
            if (ids[(r + j) * k] < 0)
                row_not_finite(e, item, items[item].seq, &at[item], j, diag);
            else
                e->tokens[to] = ids[(r + j) * k];
            if (top == 1)
                continue;
            memcpy(e->top_ids + to * k, ids + (r + j) * k, k * sizeof *ids);
            memcpy(e->top + to * k, values + (r + j) * k, k * sizeof *values);
        }
    }
    return KVANT_OK;
}

/* Logits of the pass, in order of out_rows, to the items' host rows. */
static int pass_logits(kvant_engine *e, const kvant_item *items, const pass_lists *l, int n, item_progress *at,
                       kvant_diag *diag)
{
    size_t v = (size_t)e->m->hp.n_vocab;
    const engine_place *head = engine_head(e);
    int r = 0, top = 0;
    for (int i = 0; i < n; r += l->rows[i++]) {
        top |= item_top(&items[l->item[i]]);
        if (l->rows[i] == 0 || item_top(&items[l->item[i]]))
            continue;
        item_progress *g = &at[l->item[i]];
        float *dst = e->logits + (size_t)g->row * v;
        KVANT_TRY(head->dev->vt->copy_out(head->dev, dst, head->buf.logits + (size_t)r * v,
                                          (size_t)l->rows[i] * v * sizeof(float), diag));
        for (size_t j = 0; j < (size_t)l->rows[i]; j++)
            if (!finite_rows(dst + j * v, v))
                row_not_finite(e, l->item[i], items[l->item[i]].seq, g, j, diag);
        g->row += l->rows[i];
    }
    return top ? KVANT_OK : head->dev->vt->sync(head->dev, diag);  /* pass_top waits once, for its copies too */
}

/* Adds n hidden rows, of the tokens from pos on, to the sums of seq, in order and in double: the same whatever the cuts
 * of the prompt. */
static void hidden_add(kvant_engine *e, int seq, int pos, const float *rows, int n)
{
    const size_t d = (size_t)e->m->hp.n_embd;
    const hidden_sink *to = &e->hidden_sinks[seq];
    const int kept = to->n - pos < n ? to->n - pos : n;
    double *sum = e->hidden_sum + (size_t)seq * d;

    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < d; i++)
            sum[i] += (double)rows[(size_t)r * d + i];
    memcpy(e->hidden_last + (size_t)seq * d, rows + (size_t)(n - 1) * d, d * sizeof(float));
    if (kept > 0)
        memcpy(to->rows + (size_t)pos * d, rows, (size_t)kept * d * sizeof(float));
}

static int pass_hidden(kvant_engine *e, const kvant_item *items, const pass_lists *l, int n, item_progress *at,
                       kvant_diag *diag)
{
    const size_t d = (size_t)e->m->hp.n_embd;
    const engine_place *head = engine_head(e);
    const float *hidden = e->p.mtp ? head->buf.mtp.h + (size_t)e->p.max_seqs * d : head->buf.a;
    int row = 0;

    for (int i = 0; i < n; i++) {
        const int seq = items[l->item[i]].seq, pos = e->kv.seqs[seq].len + at[l->item[i]].off;
        if (pos == 0)
            memset(e->hidden_sum + (size_t)seq * d, 0, d * sizeof(double));
        for (int k, done = 0; done < l->took[i]; done += k, row += k) {
            k = l->took[i] - done < KVANT_PAGE ? l->took[i] - done : KVANT_PAGE;
            KVANT_TRY(head->dev->vt->copy_out(head->dev, e->hidden_rows, hidden + (size_t)row * d,
                                              (size_t)k * d * sizeof(float), diag));
            KVANT_TRY(head->dev->vt->sync(head->dev, diag));
            if (!finite_rows(e->hidden_rows, (size_t)k * d))
                KVANT_TRY(numeric(&at[l->item[i]], seq, "hidden states", diag));
            hidden_add(e, seq, pos + done, e->hidden_rows, k);
        }
    }
    return KVANT_OK;
}

static int is_pending(const kvant_item *it, const item_progress *g)
{
    return g->code == KVANT_OK && g->off < it->n;
}

/* Round 0: decode rows without adapters, 1: the same with drafts, 2: drafts with adapters, 3: decode rows with, 4:
 * prompts with, 5: without; so rows with drafts are neighbours, and rows with adapters. */
enum { ROUNDS = 6 };
static int round_of(const kvant_engine *e, const kvant_item *it, int drafts)
{
    const int lora = engine_lora_any(e, it->seq), decode = drafts > 0 ? 1 : 0;
    return it->prompt ? 5 - lora : lora ? 3 - decode : decode;
}

/* Chooses what the pass runs: decode rows first, then prompts; items that want hidden states have passes of their own
 * (theirs end before the logits). */
static void pass_fill(kvant_engine *e, pass *p, const kvant_item *items, int n, const item_progress *at, pass_lists *l)
{
    int first = 0;

    while (!is_pending(&items[first], &at[first]))
        first++;
    p->hidden = items[first].logits == KVANT_LOGITS_HIDDEN;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n; i++) {
            const int fits = is_pending(&items[i], &at[i]) && round_of(e, &items[i], e->item_draft[i]) == round &&
                             (items[i].logits == KVANT_LOGITS_HIDDEN) == p->hidden;
            const int k = fits ? piece(e, p, &items[i], e->item_draft[i], at[i].off) : 0, out = p->n_out;
            const int pos = e->kv.seqs[items[i].seq].len + at[i].off;
            if (k == 0 || !kv_pass_fits(&e->kv, items[i].seq, pos, k))
                continue;          /* the next pass has room: this one gives its full pages back */
            l->seq[p->n_seqs] = items[i].seq;
            l->item[p->n_seqs] = i;
            l->took[p->n_seqs] = k;
            l->drafts[p->n_seqs] = e->item_draft[i];
            pass_add(e, p, &items[i], e->item_draft[i], at[i].off, k);
            l->rows[p->n_seqs - 1] = p->n_out - out;
        }
}

/* The first row of pass sequence q counts, the others may, and no state has them. */
static void keep_rows(kvant_engine *e, const pass *p, int seq, int q)
{
    if (p->n_ring == 0)
        return;
    e->kv.seqs[seq].ring_at = e->ring_used + e->host_in.q0[q] - p->ring0;
    e->kv.seqs[seq].ring_n = 1;
}

/* Runs one pass over the pending items and moves their progress. */
static int step_pass(kvant_engine *e, const kvant_item *items, int n, item_progress *at, pass_lists *l,
                     kvant_diag *diag)
{
    pass p = { 0 };
    int code;

    pass_fill(e, &p, items, n, at, l);
    if (p.n_tokens == 0)
        return kvant_fail(diag, KVANT_EINTERNAL, "step: no item fits a pass of %d tokens", e->p.n_ubatch);
    p.rests = engine_mtp_rests(e, &p, l->seq);
    code = e->p.mtp && !p.rests ? engine_mtp_send(e, &p, l->seq, diag) : KVANT_OK;
    if (code == KVANT_OK)
        code = pass_run(e, &p, l->seq, diag);
    if (code == KVANT_OK && e->p.mtp && !p.rests)
        code = engine_mtp_keep(e, &p, l->seq, l->drafts, diag);
    if (code == KVANT_OK)
        code = (p.hidden ? pass_hidden : pass_logits)(e, items, l, p.n_seqs, at, diag);
    if (code == KVANT_OK && p.top)
        code = pass_top(e, items, l, &p, at, diag);
    if (code == KVANT_OK && gguf_poisoned(e->m->file))
        code = kvant_fail(diag, KVANT_EIO, "model file: a mapped page is gone (truncated while in use)");
    for (int q = 0; q < p.n_seqs; q++) {
        item_progress *g = &at[l->item[q]];
        if (g->code == KVANT_OK)
            g->code = code;        /* recurrent state is updated in place: what ran cannot be taken back */
        if (g->code != KVANT_OK)
            continue;
        g->off += l->took[q];
        if (e->item_draft[l->item[q]] > 0)
            keep_rows(e, &p, l->seq[q], q);
        kv_pass_end(&e->kv, l->seq[q], e->kv.seqs[l->seq[q]].len + g->off - e->item_draft[l->item[q]]);
    }
    e->ring_used += p.n_ring;
    return code;
}

static int any_pending(const kvant_item *items, int n, const item_progress *at)
{
    for (int i = 0; i < n; i++)
        if (is_pending(&items[i], &at[i]))
            return 1;
    return 0;
}

static int step_run(kvant_engine *e, const kvant_item *items, int n, item_progress *at, pass_lists *l, kvant_diag *diag)
{
    while (any_pending(items, n, at)) {
        if (atomic_exchange(&e->cancel, 0))
            return kvant_fail(diag, KVANT_ECANCELED, "step: cancelled");
        KVANT_TRY(step_pass(e, items, n, at, l, diag));
    }
    for (int i = 0; i < n; i++)
        KVANT_TRY(at[i].code);
    return KVANT_OK;
}

int kvant_step(kvant_engine *e, const kvant_item *items, int n, kvant_diag *diag)
{
    return kvant_step_drafts(e, items, NULL, n, diag);
}

/* The ring is empty, and drafts that nobody has accepted are gone. */
static int ring_begin(kvant_engine *e, kvant_diag *diag)
{
    KVANT_TRY(engine_fold(e, -1, diag));
    for (int i = 0; i < e->p.max_seqs && e->kv.cfg.ring_rows > 0; i++)
        e->kv.seqs[i].draft = 0;
    e->ring_used = 0;
    return KVANT_OK;
}

int kvant_step_drafts(kvant_engine *e, const kvant_item *items, const int *n_draft, int n, kvant_diag *diag)
{
    e->n_items = 0;
    for (int i = 0; i < n && i < e->p.max_seqs; i++)
        e->item_draft[i] = n_draft ? n_draft[i] : 0;
    KVANT_TRY(check_items(e, items, n, diag));
    KVANT_TRY(ring_begin(e, diag));
    item_progress *at = (item_progress *)(void *)(e->item_rows + e->p.max_seqs); /* room taken at create */
    int *lists = (int *)(void *)(at + e->p.max_seqs), row = 0, code;
    pass_lists l = { lists, lists + n, lists + 2 * n, lists + 3 * n, lists + 4 * n };

    for (int i = 0; i < n; i++) {
        kv_reserve(&e->kv, items[i].seq, e->kv.seqs[items[i].seq].len + items[i].n);
        e->item_row[i] = row;
        e->item_rows[i] = item_logits(&items[i], e->item_draft[i], 1);
        at[i] = (item_progress){ 0, row, KVANT_OK };
        for (const int end = row + item_logits(&items[i], e->item_draft[i], 0); row < end; row++)
            e->tokens[row] = e->top_ids[(size_t)row * KVANT_STEP_TOP] = -1;
    }
    e->item_row[n] = row;
    code = step_run(e, items, n, at, &l, diag);
    for (int i = 0; i < n; i++) {
        kv_seq *s = &e->kv.seqs[items[i].seq];
        s->draft = at[i].off == items[i].n ? e->item_draft[i] : 0;
        s->len += at[i].off - s->draft;
        s->broken = at[i].code != KVANT_OK;
        s->ring_n = s->broken ? 0 : s->ring_n;
        e->item_code[i] = s->broken ? at[i].code : at[i].off < items[i].n ? code : KVANT_OK;
        kv_trim(&e->kv, items[i].seq);
    }
    e->n_items = n;
    return code;
}

int kvant_step_code(const kvant_engine *e, int item)
{
    return item >= 0 && item < e->n_items ? e->item_code[item] : KVANT_EINVAL;
}

const float *kvant_step_logits(const kvant_engine *e, int item, int row)
{
    if (kvant_step_code(e, item) != KVANT_OK || row < 0 || row >= e->item_rows[item])
        return NULL;
    return e->logits + (size_t)(e->item_row[item] + row) * (size_t)e->m->hp.n_vocab;
}

int32_t engine_row_token(const kvant_engine *e, int item, int row)
{
    if (kvant_step_code(e, item) != KVANT_OK || row < 0 || row >= e->item_row[item + 1] - e->item_row[item])
        return -1;
    return e->tokens[e->item_row[item] + row];
}

int engine_row_code(const kvant_engine *e, int item, int row)
{
    return engine_row_token(e, item, row) == ROW_BAD ? KVANT_ENUMERIC : KVANT_OK;
}

int32_t kvant_step_token(const kvant_engine *e, int item)
{
    return engine_row_token(e, item, 0);
}

int engine_row_top(const kvant_engine *e, int item, int row, const float **logits, const int32_t **ids)
{
    if (engine_row_token(e, item, row) < 0)
        return 0;
    const size_t at = (size_t)(e->item_row[item] + row) * KVANT_STEP_TOP;
    if (e->top_ids[at] < 0)
        return 0;
    *logits = e->top + at;
    *ids = e->top_ids + at;
    return e->m->hp.n_vocab < KVANT_STEP_TOP ? e->m->hp.n_vocab : KVANT_STEP_TOP;
}

int kvant_step_top(const kvant_engine *e, int item, const float **logits, const int32_t **ids)
{
    return engine_row_top(e, item, 0, logits, ids);
}

int kvant_seq_hidden(const kvant_engine *e, int seq, float *mean, float *last)
{
    const size_t d = (size_t)e->m->hp.n_embd, at = (size_t)seq * d;

    if (!kv_seq_valid(&e->kv, seq) || e->kv.seqs[seq].len == 0)
        return KVANT_EINVAL;
    for (size_t i = 0; mean && i < d; i++)
        mean[i] = (float)(e->hidden_sum[at + i] / e->kv.seqs[seq].len);
    if (last)
        memcpy(last, e->hidden_last + at, d * sizeof *last);
    return KVANT_OK;
}

void kvant_engine_cancel(kvant_engine *e)
{
    atomic_store(&e->cancel, 1);
}
