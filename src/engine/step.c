/* step.c: one step: items -> device passes -> logits.
 *
 * Prompt pieces are cut so that every pass ends on the absolute 64-token grid or at the piece's end; decode rows come
 * first. All pages are reserved before the first pass, so a full pool is found before anything runs. */
#include <math.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/tensor/tensor.h"
#include "ops/operands.h"
#include "engine/draft/pass.h"
#include "engine/place/profile.h"

/* ---- inputs of a pass ---- */


static kvant_seqs pass_seqs(const step_inputs *d, const pass *p)
{
    return (kvant_seqs){ p->n_seqs, p->n_tokens, p->n_few,  p->few_rows, d->q0,      d->pos0, d->prompt,
                         d->table,  d->tail,     p->stride, d->slot_in,  d->slot_out };
}

/* Behind the last layer that writes K and V only the rows that give logits matter: as many as sequences, at most, for
 * which there is room.  Not while products are watched: they would see too few rows. */
static int ends_early(const kvant_engine *e, const pass *p)
{
    return e->m->hp.n_kv_from > 0 && !p->hidden && !e->watch.tap && p->n_out < p->n_tokens && p->n_out <= p->n_seqs;
}

static kvant_seqs out_seqs(const step_inputs *d, const pass *p, const int32_t *table)
{
    return (kvant_seqs){ p->n_out, p->n_out,    p->n_out,  p->n_out,   d->out_q0, d->out_pos, d->out_prompt,
                         table,    d->out_tail, p->stride, d->slot_in, d->slot_out };
}

/* The inputs of the pass as a place has them. */
static void bind_inputs(builder *b, const step_inputs *d, const pass *p)
{
    b->ids = d->ids;
    b->pos = d->pos;
    b->out_rows = d->out_rows;
    b->buf.mtp.src = d->mtp_src;
    b->out_pos = d->out_pos;
    b->seal_src = d->seal_src;
    b->seal_dst = d->seal_dst;
    b->seal_window = d->seal_window;
    b->seqs = b->window_seqs = pass_seqs(d, p);
    b->window_seqs.table = d->window;
    b->out_seqs = out_seqs(d, p, d->out_table);
    b->out_window_seqs = out_seqs(d, p, d->out_window);
    b->lora[0] = (build_lora_rows){ p->lora0, p->n_lora, (const float *)(const void *)d->lora };
    b->ring.row0 = p->ring0;
    b->ring.n = p->n_ring;
    b->lora[1] = (build_lora_rows){ p->lora_out0, p->n_lora_out, (const float *)(const void *)d->lora_out };
}

/* The place that the builder writes ops for. */
typedef struct visit {
    kvant_engine *e;
    const pass *p;
    int at;
} visit;

static void enter(builder *b, int l)
{
    visit *v = b->hooks.ctx;
    const int to = v->e->split.of[l];

    if (to == v->at)
        return;
    engine_cross(v->e, v->at, to);
    bind_inputs(b, &v->e->place[to].in, v->p);
    v->at = to;
}

static const float *apart(builder *b, int l, int stage, const float *x, float *y, int width)
{
    visit *v = b->hooks.ctx;

    return engine_apart(v->e, v->at, l, stage, x, y, width);
}

void pass_build(kvant_engine *e, const pass *p)
{
    builder *b = &e->b;
    const int several = e->split.n > 1 && !e->split.tensors;
    visit v = { e, p, e->split.of[0] };

    arena_reset(&e->args);
    e->n_cross = 0;
    engine_bind(e, v.at);
    bind_inputs(b, &e->place[v.at].in, p);
    b->n = p->n_tokens;
    b->any_prompt = p->any_prompt;
    b->any_decode = p->any_decode;
    b->n_out = p->n_out;
    b->early = ends_early(e, p);
    b->hidden = p->hidden;
    b->n_seal = p->n_seal;
    b->seal_late = !p->any_prompt && !p->seals_read && e->split.n == 1;
    b->max_pos = p->max_pos;
    b->top = p->top;
    b->ring.at = e->ring_used;
    b->ring.fold = 0;
    b->hooks.enter = several ? enter : NULL;
    b->hooks.apart = several ? apart : NULL;
    b->hooks.ctx = &v;
    b->n_ops = b->error = 0;
    if (p->guess)
        build_mtp_guess(b);
    else
        build_model(b);
    b->hooks.ctx = NULL;
}

int engine_sample_program(kvant_engine *e, int n, int prompt, kvant_diag *diag)
{
    const int lora = e->m->lora.n > 0;
    const pass p = { .n_seqs = 1, .n_tokens = n, .n_few = n == 1, .few_rows = n == 1, .n_out = 1,
                     .n_seal = prompt && e->kv.tail_pages, .stride = 1, .max_pos = n - 1, .any_prompt = prompt,
                     .any_decode = !prompt, .top = KVANT_STEP_TOP, .seals_read = prompt, .n_lora = lora ? n : 0,
                     .n_lora_out = lora };
    pass_build(e, &p);
    if (e->p.mtp)
        build_mtp_guess(&e->b);    /* behind it: its weights are wanted too */
    if (e->b.error)
        return kvant_fail(diag, KVANT_EINTERNAL, "program: more than %d ops", e->max_ops);
    return e->way.tensor ? tensor_cut(e, diag) : KVANT_OK;
}

/* How many of the likeliest tokens of its last row an item asks for. */
static int top_of(const kvant_item *it)
{
    return it->logits == KVANT_LOGITS_GREEDY ? 1 : it->logits == KVANT_LOGITS_TOP ? KVANT_STEP_TOP : 0;
}

/* Rows of logits that an item asks for; host: that come back. */
static int rows_of(const kvant_item *it, int drafts, int host)
{
    if (it->logits == KVANT_LOGITS_ALL)
        return it->n;
    return it->logits == KVANT_LOGITS_LAST || (top_of(it) > 0 && !host) ? 1 + drafts : 0;
}

/* The last n token rows and n_out rows of logits of the pass are those of a sequence with adapters. */
static void pass_lora(kvant_engine *e, pass *p, int seq, int n, int n_out)
{
    const lora_set *set = &e->m->lora;
    const float *scales = e->lora_scales + (size_t)seq * (size_t)set->n;
    float *rows = (float *)(void *)e->host_in.lora, *out = (float *)(void *)e->host_in.lora_out;

    p->lora0 = p->n_lora ? p->lora0 : p->n_tokens - n;
    p->lora_out0 = p->n_lora_out ? p->lora_out0 : p->n_out - n_out;
    for (int i = 0; i < n; i++)
        lora_row(set, scales, rows + (size_t)p->n_lora++ * (size_t)set->rank);
    for (int i = 0; i < n_out; i++)
        lora_row(set, scales, out + (size_t)p->n_lora_out++ * (size_t)set->rank);
}

/* Appends rows [off, off + n) of an item to the pass; its sequence becomes pass sequence p->n_seqs. */
static void pass_add(kvant_engine *e, pass *p, const kvant_item *it, int drafts, int off, int n)
{
    const int out = it->logits;
    step_inputs *h = &e->host_in;
    const kv_seq *s = &e->kv.seqs[it->seq];
    int pos0 = s->len + off, q = p->n_seqs, n_out = p->n_out;

    for (int i = 0; i < n; i++) {
        h->ids[p->n_tokens + i] = it->tokens[off + i];
        h->pos[p->n_tokens + i] = pos0 + i;
        if (e->p.mtp)
            h->mtp_src[p->n_tokens + i] = i ? e->p.max_seqs + p->n_tokens + i - 1 : q;
    }
    if (out == KVANT_LOGITS_HIDDEN)
        p->n_out += n;             /* every row: there is nothing to gather */
    else if (out == KVANT_LOGITS_ALL)
        for (int i = 0; i < n; i++)
            h->out_rows[p->n_out++] = p->n_tokens + i;
    else if (out != KVANT_LOGITS_NONE && off + n == it->n)
        for (int i = n - 1 - drafts; i < n; i++)
            h->out_rows[p->n_out++] = p->n_tokens + i;
    h->q0[q] = p->n_tokens;
    h->pos0[q] = pos0;
    h->prompt[q] = it->prompt;
    h->slot_in[q] = pos0 == 0 ? -1 : it->seq;
    h->slot_out[q] = it->seq;
    if (drafts > 0 && e->kv.cfg.ring_rows > 0) {
        p->ring0 = p->n_ring ? p->ring0 : p->n_tokens;
        p->n_ring += n;
        h->slot_out[q] = -1;
    }
    p->n_tokens += n;
    h->q0[q + 1] = p->n_tokens;
    p->n_seqs++;
    if (q == p->n_few && n <= (it->prompt ? 1 : PASS_FEW)) {
        p->n_few++;
        p->few_rows += n;
    }
    p->any_prompt |= it->prompt;
    p->any_decode |= !it->prompt;
    p->max_pos = pos0 + n - 1 > p->max_pos ? pos0 + n - 1 : p->max_pos;
    p->top = top_of(it) > p->top ? top_of(it) : p->top;
    if (engine_lora_any(e, it->seq))
        pass_lora(e, p, it->seq, n, out == KVANT_LOGITS_HIDDEN ? 0 : p->n_out - n_out); /* no logits: no rows of them */
    kv_seals seals = { h->seal_src, h->seal_dst, h->seal_window, p->n_seal };
    kv_pass_begin(&e->kv, it->seq, pos0, n, &seals);
    /* A single page, which ends with the item: its rows are in that page, and read it from the exact tail. */
    p->seals_read |= seals.n > p->n_seal + ((pos0 + n) % KVANT_PAGE == 0);
    p->n_seal = seals.n;
}

/* A row of a table; entries that no kernel reads (late, or behind a window) become ids in range. */
static void table_row(int32_t *to, const int32_t *from, int n)
{
    for (int j = 0; j < n; j++)
        to[j] = from[j] < 0 ? 0 : from[j];
}

/* Entries of a block table for `pages` pages.  Prompts: so many.  Decode: a multiple of 4, or of 1/8 to 1/4 of them, so
 * that a sequence that grows, or one that is a little longer, finds the recorded program of the step before (pass_key).
 * To record one takes as long as some 20 steps. */
static int table_width(int pages, int any_prompt, int most)
{
    int unit = any_prompt ? 1 : 4;
    while (!any_prompt && unit * 8 <= pages)
        unit *= 2;
    const int wide = (pages + unit - 1) / unit * unit;
    return wide < most ? wide : most;
}

/* Block tables of the pass, hardly wider than its longest sequence. */
void pass_tables(kvant_engine *e, pass *p, const int *seq)
{
    step_inputs *h = &e->host_in;
    p->stride = table_width(p->max_pos / KVANT_PAGE + 1, p->any_prompt, e->kv.stride);
    for (int q = 0; q < p->n_seqs; q++) {
        const kv_seq *s = &e->kv.seqs[seq[q]];
        const size_t row = (size_t)q * (size_t)p->stride;
        table_row(h->table + row, s->table, p->stride);
        memcpy(h->tail + row, s->tail, (size_t)p->stride * sizeof(int32_t));
        if (e->kv.window_pages > 0)
            table_row(h->window + row, s->window, p->stride);
    }
}

/* Fills the tables of the rows that give logits, in order: a row sees its sequence's pages up to its own position. */
static void out_tables(kvant_engine *e, const pass *p)
{
    step_inputs *h = &e->host_in;
    const size_t row = (size_t)p->stride * sizeof(int32_t);

    for (int i = 0, q = 0; i < p->n_out; i++) {
        while (h->q0[q + 1] <= h->out_rows[i])
            q++;
        const size_t from = (size_t)q * (size_t)p->stride, to = (size_t)i * (size_t)p->stride;
        h->out_q0[i] = i;
        h->out_pos[i] = h->pos[h->out_rows[i]];
        h->out_prompt[i] = h->prompt[q];
        memcpy(h->out_table + to, h->table + from, row);
        memcpy(h->out_tail + to, h->tail + from, row);
        if (e->kv.window_pages > 0)
            memcpy(h->out_window + to, h->window + from, row);
    }
    h->out_q0[p->n_out] = p->n_out;
}

/* Puts an input behind those before it; `at` counts values. */
static void put_input(kvant_engine *e, const int32_t *from, size_t n, size_t *at)
{
    memcpy(e->in_sent + *at, from, n * sizeof *from);
    memset(e->in_sent + *at + n, 0, (STEP_INPUT_ROOM(n) - n) * sizeof *from); /* nothing of the pass before */
    *at += STEP_INPUT_ROOM(n);
}

/* One upload to each device.  The place of an input follows from the numbers that pass_key has and from what all passes
 * of the engine have in common: a recorded program reads it there again. */
int pass_upload(kvant_engine *e, const pass *p, kvant_diag *diag)
{
    const int tables = p->n_seqs * p->stride, rank = e->m->lora.rank, mtp = e->p.mtp, windows = e->kv.window_pages > 0,
              early = ends_early(e, p) && p->n_out > 0;
    size_t at = 0;

    if (early)
        out_tables(e, p);
#define STEP_INPUT(name, most, now)                                                                                    \
    for (int i = 0; i < e->split.n; i++)                                                                               \
        e->place[i].in.name = e->place[i].in_dev + at;                                                                 \
    put_input(e, e->host_in.name, (size_t)(now), &at);
#include "engine/step_inputs.def"
#undef STEP_INPUT
    for (int i = 0; i < e->split.n; i++) {
        const engine_place *to = &e->place[i];
        KVANT_TRY(to->dev->vt->copy_in(to->dev, to->in_dev, e->in_sent, at * sizeof *to->in_dev, diag));
    }
    return KVANT_OK;
}

/* The shape of a pass that a device may have recorded (device.h), or 0.  Passes with prompts differ too much to come
 * again, and so do those where some rows have adapters and some have none; with experts apart a device that runs no
 * relay has more lists in a step than it keeps; a sequence has more rows than few.  Pages are sealed behind the
 * recorded ops, on several devices among them.  The ops see the batch only through these numbers: pass_run rounds
 * max_pos up to the tables' width. */
uint64_t pass_key(const kvant_engine *e, const pass *p)
{
    const uint64_t n = (uint64_t)p->n_seqs, t = (uint64_t)p->n_tokens, w = (uint64_t)p->stride;
    const uint64_t o = (uint64_t)(p->n_ring ? p->n_ring : p->n_out), top = p->top > 1 ? 2 : p->top > 0;
    const uint64_t kind = p->guess ? PASS_KEY_GUESS : p->n_ring ? PASS_KEY_RING : PASS_KEY_STEP;
    const int lora = p->n_lora > 0;
    const int seals = e->split.n > 1 && p->n_seal > 0, apart = e->parted && engine_relay_place(e) < 0;
    if (p->any_prompt || p->hidden || p->seals_read || seals || apart || p->n_few != p->n_seqs)
        return 0;
    /* so the place of the ring's rows in the pass and in the ring follows from their number */
    const int ring0 = lora ? 0 : p->n_tokens - p->n_ring;
    if (p->n_ring > 0 && (e->ring_used > 0 || p->n_out != p->n_tokens || p->ring0 != ring0))
        return 0;
    if (n >= 1u << 14 || t >= 1u << 14 || o >= 1u << 14 || w >= 1u << 17 ||
        (lora && (p->n_lora != p->n_tokens || p->n_lora_out != p->n_out)))
        return 0;
    return kind << 62 | n << 48 | t << 34 | o << 20 | top << 18 | (uint64_t)lora << 17 | w;
}

/* The program in pieces: what stands before a product has run when the tap sees it. */
static int submit_tapped(kvant_engine *e, kvant_diag *diag)
{
    kvant_device *dev = e->place[0].dev;
    int from = 0;

    for (int i = 0; i < e->b.n_ops; i++) {
        if (op_weight_use(e->ops[i].id) != KVANT_WEIGHT_MATMUL)
            continue;
        KVANT_TRY(dev->vt->submit(dev, e->ops + from, i - from, 0, diag));
        KVANT_TRY(dev->vt->sync(dev, diag));
        e->watch.tap(e->watch.tap_user, &e->ops[i]);
        from = i;
    }
    return dev->vt->submit(dev, e->ops + from, e->b.n_ops - from, 0, diag);
}

static int pass_run(kvant_engine *e, pass *p, const int *seq, kvant_diag *diag)
{
    pass_tables(e, p, seq);
    const uint64_t key = pass_key(e, p);

    if (key)
        p->max_pos = p->stride * KVANT_PAGE - 1;           /* an upper bound serves, and lasts for a page of steps */
    KVANT_TRY(pass_upload(e, p, diag));
    if (e->watch.profile)
        e->watch.profile->passes++;
    pass_build(e, p);
    const int n = e->b.n_ops;
    build_late_seals(&e->b);
    if (e->b.error)
        return kvant_fail(diag, KVANT_EINTERNAL, "program: more than %d ops", e->max_ops);
    if (e->way.tensor) {
        KVANT_TRY(tensor_cut(e, diag));
        KVANT_TRY(tensor_check(e, diag));
        return tensor_submit(e, key, diag);
    }
    for (int i = 0; i < e->b.n_ops; i++) /* in every build: an error ends a step, a wrong kernel call the process */
        KVANT_TRY(kvant_op_check(e->ops[i].id, e->ops[i].args, diag));
    if (e->watch.tap)
        return submit_tapped(e, diag);
    KVANT_TRY(engine_submit(e, n, key, diag));
    if (e->b.n_ops == n)
        return KVANT_OK;
    return engine_submit_to(e, e->place[0].dev, e->ops + n, e->b.n_ops - n, 0, diag); /* late seals: one place */
}

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
        rows += rows_of(&items[i], e->item_draft[i], 0);
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
    if (it->logits != KVANT_LOGITS_ALL && out_left < rows_of(it, drafts, 0))
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
        const int item = l->item[i], top = top_of(&items[item]);
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
        top |= top_of(&items[l->item[i]]);
        if (l->rows[i] == 0 || top_of(&items[l->item[i]]))
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
    code = e->p.mtp ? engine_mtp_send(e, &p, l->seq, diag) : KVANT_OK;
    if (code == KVANT_OK)
        code = pass_run(e, &p, l->seq, diag);
    if (code == KVANT_OK && e->p.mtp)
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
        e->item_rows[i] = rows_of(&items[i], e->item_draft[i], 1);
        at[i] = (item_progress){ 0, row, KVANT_OK };
        for (const int end = row + rows_of(&items[i], e->item_draft[i], 0); row < end; row++)
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
