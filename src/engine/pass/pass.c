/* pass.c: one device pass: rows of items, block tables, the upload of its inputs, its ops, and their run. */
#include <string.h>

#include "engine/pass/pass.h"
#include "engine/place/profile.h"
#include "engine/tensor/tensor.h"
#include "ops/operands.h"

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
    b->out.rows = d->out_rows;
    b->buf.mtp.src = d->mtp_src;
    b->out.pos = d->out_pos;
    b->seals.src = d->seal_src;
    b->seals.dst = d->seal_dst;
    b->seals.window = d->seal_window;
    b->seqs = b->window_seqs = pass_seqs(d, p);
    b->window_seqs.table = d->window;
    b->out.seqs = out_seqs(d, p, d->out_table);
    b->out.window_seqs = out_seqs(d, p, d->out_window);
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
    b->buf.mtp.on = e->p.mtp && !p->rests;
    b->out.n = p->n_out;
    b->early = ends_early(e, p);
    b->hidden = p->hidden;
    b->seals.n = p->n_seal;
    b->seals.late = !p->any_prompt && !p->seals_read && e->split.n == 1;
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
int item_top(const kvant_item *it)
{
    return it->logits == KVANT_LOGITS_GREEDY ? 1 : it->logits == KVANT_LOGITS_TOP ? KVANT_STEP_TOP : 0;
}

/* Rows of logits that an item asks for; host: that come back. */
int item_logits(const kvant_item *it, int drafts, int host)
{
    if (it->logits == KVANT_LOGITS_ALL)
        return it->n;
    return it->logits == KVANT_LOGITS_LAST || (item_top(it) > 0 && !host) ? 1 + drafts : 0;
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
void pass_add(kvant_engine *e, pass *p, const kvant_item *it, int drafts, int off, int n)
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
    p->top = item_top(it) > p->top ? item_top(it) : p->top;
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
 * recorded ops, on several devices among them; steps without the MTP block are programs of their own.  The ops see the
 * batch only through these numbers: pass_run rounds max_pos up to the tables' width. */
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
    if (n >= 1u << 14 || t >= 1u << 14 || o >= 1u << 14 || w >= 1u << 16 ||
        (lora && (p->n_lora != p->n_tokens || p->n_lora_out != p->n_out)))
        return 0;
    return kind << 62 | n << 48 | t << 34 | o << 20 | top << 18 | (uint64_t)lora << 17 | (uint64_t)p->rests << 16 | w;
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

int pass_run(kvant_engine *e, pass *p, const int *seq, kvant_diag *diag)
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
