/* kv_image.c: see kv_image.h. */
#include "cache/kv_image.h"

#include <string.h>

/* A walk over the pages of one number, and the function that sees each K and V of it. */
typedef struct page_walk {
    const kv_cache *kv;
    int page, rows, open;
    kv_range_fn fn;
    void *ctx;
} page_walk;

static kvant_kv_side *side_at(const kv_cache *kv, int v, int part, int l)
{
    const int i = kv_at(&kv->cfg, part, l);
    return v ? &kv->v[i] : &kv->k[i];
}

/* The parts that a walk visits: one of those that are copies. */
static int visited(const kv_config *cfg, int l)
{
    return kv_is_copied(cfg, l) ? 1 : kv_parts(cfg);
}

static int walk_side(const page_walk *w, int v, int part, int l, kvant_diag *diag)
{
    const kv_config *cfg = &w->kv->cfg;
    const kvant_kv_side *s = side_at(w->kv, v, part, l);
    const kv_types *t = &cfg->types[l];
    const size_t page = (size_t)(w->page < 0 ? 0 : w->page);
    kv_range r = { .dev = kv_dev(w->kv, part, l), .addr = s->pages + page * s->page_bytes, .bytes = s->page_bytes,
                   .head_bytes = s->head_bytes, .row_bytes = s->row_bytes, .page = w->page,
                   .rows = w->page < 0 || (w->open && s->tail) ? 0 : w->rows, .side = s->layout ? s : NULL,
                   .h_kv = kv_heads(cfg, part, l), .d = v ? t->d_v : t->d_k };

    for (int i = 1; kv_is_copied(cfg, l) && i < cfg->n_parts; i++) {
        const kvant_kv_side *o = side_at(w->kv, v, i, l);
        r.copy[r.n_copies++] = (kv_range_copy){ kv_dev(w->kv, i, l), o->pages + page * o->page_bytes,
                                                o->layout ? o : NULL };
    }
    return w->fn(w->ctx, &r, diag);
}

/* A page of the layers whose windows are apart, or of the others: heads in order, whichever device has them. */
static int walk_layers(const page_walk *w, int windowed, kvant_diag *diag)
{
    const kv_config *cfg = &w->kv->cfg;

    for (int l = 0; l < cfg->n_layer; l++)
        for (int v = 0; v < 2 && kv_has_attn(cfg, l) && kv_in_window(w->kv, l) == windowed; v++)
            for (int part = 0; part < visited(cfg, l); part++)
                KVANT_TRY(walk_side(w, v, part, l, diag));
    return KVANT_OK;
}

int kv_walk_page(const kv_cache *kv, int page, int rows, int open, kv_range_fn fn, void *ctx, kvant_diag *diag)
{
    const page_walk w = { .kv = kv, .page = page, .rows = rows, .open = open, .fn = fn, .ctx = ctx };

    return walk_layers(&w, 0, diag);
}

int kv_walk_window(const kv_cache *kv, int page, int rows, int open, kv_range_fn fn, void *ctx, kvant_diag *diag)
{
    const page_walk w = { .kv = kv, .page = page, .rows = rows, .open = open, .fn = fn, .ctx = ctx };

    return walk_layers(&w, 1, diag);
}

static int walk_tail(const kv_cache *kv, int v, int part, int l, int tail, int rows, kv_range_fn fn, void *ctx,
                     kvant_diag *diag)
{
    const kv_config *cfg = &kv->cfg;
    const int d = v ? cfg->types[l].d_v : cfg->types[l].d_k;
    const size_t bytes = kv_tail_bytes(kv_heads(cfg, part, l), d), at = (size_t)tail * bytes;
    uint8_t *base = (uint8_t *)side_at(kv, v, part, l)->tail;
    kv_range r = { .dev = kv_dev(kv, part, l), .addr = base + at, .bytes = bytes, .rows = rows,
                   .head_bytes = (size_t)KVANT_PAGE * (size_t)d * 2, .row_bytes = (size_t)d * 2 };

    for (int i = 1; kv_is_copied(cfg, l) && i < cfg->n_parts; i++)
        r.copy[r.n_copies++] = (kv_range_copy){ kv_dev(kv, i, l), (uint8_t *)side_at(kv, v, i, l)->tail + at, NULL };
    return fn(ctx, &r, diag);
}

int kv_walk_tail(const kv_cache *kv, int tail, int rows, kv_range_fn fn, void *ctx, kvant_diag *diag)
{
    const kv_config *cfg = &kv->cfg;

    for (int l = 0; l < cfg->n_layer; l++)
        for (int v = 0; v < 2 && kv_has_attn(cfg, l); v++)
            for (int part = 0; side_at(kv, v, 0, l)->tail && part < visited(cfg, l); part++)
                KVANT_TRY(walk_tail(kv, v, part, l, tail, rows, fn, ctx, diag));
    return KVANT_OK;
}

/* The slot of a state or of a window of the convolution, list[parts][n_layer], of which every part has a copy. */
static int walk_slot(const kv_cache *kv, void *const *list, int l, int slot, size_t bytes, kv_range_fn fn, void *ctx,
                     kvant_diag *diag)
{
    const kv_config *cfg = &kv->cfg;
    const size_t at = (size_t)slot * bytes;
    kv_range r = { .dev = kv_dev(kv, 0, l), .addr = (uint8_t *)list[l] + at, .bytes = bytes, .rows = -1 };

    if (bytes == 0)
        return KVANT_OK;
    for (int i = 1; i < cfg->n_parts; i++)
        r.copy[r.n_copies++] = (kv_range_copy){ kv_dev(kv, i, l), (uint8_t *)list[kv_at(cfg, i, l)] + at, NULL };
    return fn(ctx, &r, diag);
}

int kv_walk_state(const kv_cache *kv, int slot, kv_range_fn fn, void *ctx, kvant_diag *diag)
{
    for (int l = 0; l < kv->cfg.n_layer; l++) {
        if (!kv_has_state(&kv->cfg, l))
            continue;
        KVANT_TRY(walk_slot(kv, kv->state, l, slot, kv_state_bytes(&kv->cfg), fn, ctx, diag));
        KVANT_TRY(walk_slot(kv, (void *const *)kv->conv, l, slot, kv_conv_bytes(&kv->cfg), fn, ctx, diag));
    }
    return KVANT_OK;
}

static int add_bytes(void *ctx, const kv_range *r, kvant_diag *diag)
{
    (void)diag;
    *(size_t *)ctx += r->bytes;
    return KVANT_OK;
}

size_t kv_page_image_bytes(const kv_cache *kv)
{
    size_t n = 0;
    kv_walk_page(kv, 0, KVANT_PAGE, 0, add_bytes, &n, NULL);
    return n;
}

size_t kv_window_image_bytes(const kv_cache *kv)
{
    size_t n = 0;
    kv_walk_window(kv, 0, KVANT_PAGE, 0, add_bytes, &n, NULL);
    return n;
}

size_t kv_tail_image_bytes(const kv_cache *kv)
{
    size_t n = 0;
    kv_walk_tail(kv, 0, KVANT_PAGE, add_bytes, &n, NULL);
    return n;
}

size_t kv_state_image_bytes(const kv_cache *kv)
{
    size_t n = 0;
    kv_walk_state(kv, 0, add_bytes, &n, NULL);
    return n;
}

int kv_range_read(const kv_range *r, uint8_t *buf, kvant_diag *diag)
{
    if (r->rows == 0) {
        memset(buf, 0, r->bytes);
        return KVANT_OK;
    }
    if (r->side)
        KVANT_TRY(r->dev->vt->page_read(r->dev, r->side, r->h_kv, r->d, r->page, buf, diag));
    else
        KVANT_TRY(r->dev->vt->copy_out(r->dev, buf, r->addr, r->bytes, diag));
    KVANT_TRY(r->dev->vt->sync(r->dev, diag));
    for (size_t h = 0; r->rows > 0 && h < r->bytes; h += r->head_bytes)
        memset(buf + h + (size_t)r->rows * r->row_bytes, 0, r->head_bytes - (size_t)r->rows * r->row_bytes);
    return KVANT_OK;
}

static int write_at(const kv_range *r, kvant_device *dev, const kvant_kv_side *side, uint8_t *addr, const uint8_t *buf,
                    kvant_diag *diag)
{
    if (side)
        return dev->vt->page_write(dev, side, r->h_kv, r->d, r->page, buf, diag);
    return dev->vt->copy_in(dev, addr, buf, r->bytes, diag);
}

int kv_range_write(const kv_range *r, const uint8_t *buf, kvant_diag *diag)
{
    if (r->rows == 0)
        return KVANT_OK;           /* nothing reads it before it is written whole */
    KVANT_TRY(write_at(r, r->dev, r->side, r->addr, buf, diag));
    for (int i = 0; i < r->n_copies; i++)
        KVANT_TRY(write_at(r, r->copy[i].dev, r->copy[i].side, r->copy[i].addr, buf, diag));
    return KVANT_OK;
}

/* ---- whole sequences ---- */

int kv_image_next_tail(const kv_cache *kv, int len, int p)
{
    const int pages = kv_pages_for(len), first = len / KVANT_PAGE - kv->tail_pages + 1;

    if (kv->tail_pages == 0)
        return pages;
    p = p < kv->sink_pages || p > first ? p : first;
    return p < pages ? p : pages;
}

int kv_image_tails(const kv_cache *kv, int len)
{
    int n = 0;

    for (int p = kv_image_next_tail(kv, len, 0); p < kv_pages_for(len); p = kv_image_next_tail(kv, len, p + 1))
        n++;
    return n;
}

int kv_image_first_window(const kv_cache *kv, int len)
{
    const int pages = kv_pages_for(len), first = kv_first_window(kv, len);

    return kv->window_pages == 0 || first > pages ? pages : first;
}

size_t kv_image_bytes(const kv_cache *kv, int len)
{
    const size_t pages = (size_t)kv_pages_for(len);

    return pages * kv_page_image_bytes(kv) +
           (pages - (size_t)kv_image_first_window(kv, len)) * kv_window_image_bytes(kv) +
           (size_t)kv_image_tails(kv, len) * kv_tail_image_bytes(kv) + kv_state_image_bytes(kv);
}

typedef struct cursor {
    uint8_t *out;
    const uint8_t *in;
} cursor;

static int save_range(void *ctx, const kv_range *r, kvant_diag *diag)
{
    cursor *c = ctx;
    KVANT_TRY(kv_range_read(r, c->out, diag));
    c->out += r->bytes;
    return KVANT_OK;
}

static int load_range(void *ctx, const kv_range *r, kvant_diag *diag)
{
    cursor *c = ctx;
    KVANT_TRY(kv_range_write(r, c->in, diag));
    c->in += r->bytes;
    return KVANT_OK;
}

static int rows_of(int len, int page)
{
    const int rows = len - page * KVANT_PAGE;
    return rows < KVANT_PAGE ? rows : KVANT_PAGE;
}

static int walk_sequence(const kv_cache *kv, int seq, int len, kv_range_fn fn, void *ctx, kvant_diag *diag)
{
    const kv_seq *s = &kv->seqs[seq];

    for (int p = 0; p < kv_pages_for(len); p++)
        KVANT_TRY(kv_walk_page(kv, s->table[p], rows_of(len, p), rows_of(len, p) < KVANT_PAGE, fn, ctx, diag));
    for (int p = kv_image_first_window(kv, len); p < kv_pages_for(len); p++)
        KVANT_TRY(kv_walk_window(kv, s->window[p], rows_of(len, p), rows_of(len, p) < KVANT_PAGE, fn, ctx, diag));
    for (int p = kv_image_next_tail(kv, len, 0); p < kv_pages_for(len); p = kv_image_next_tail(kv, len, p + 1))
        KVANT_TRY(kv_walk_tail(kv, s->tail[p], rows_of(len, p), fn, ctx, diag));
    return kv_walk_state(kv, seq, fn, ctx, diag);
}

int kv_image_save(const kv_cache *kv, int seq, uint8_t *buf, kvant_diag *diag)
{
    cursor c = { buf, NULL };
    KVANT_TRY(kv_settle(kv, seq, diag));
    return walk_sequence(kv, seq, kv->seqs[seq].len, save_range, &c, diag);
}

void kv_image_reserve(kv_cache *kv, int seq, int len)
{
    kv_seq *s = &kv->seqs[seq];

    kv_reserve(kv, seq, len);
    for (int p = kv_image_next_tail(kv, len, 0); p < kv_pages_for(len); p = kv_image_next_tail(kv, len, p + 1))
        s->tail[p] = page_pool_take(&kv->tails);
    for (int p = kv_image_first_window(kv, len); p < kv_pages_for(len); p++)
        s->window[p] = page_pool_take(&kv->windows);
}

int kv_image_load(kv_cache *kv, int seq, int len, const uint8_t *buf, kvant_diag *diag)
{
    cursor c = { NULL, buf };

    kv_image_reserve(kv, seq, len);
    const int code = walk_sequence(kv, seq, len, load_range, &c, diag);
    kv->seqs[seq].len = code == KVANT_OK ? len : 0;
    if (code < 0)
        kv_trim(kv, seq);
    return code;
}
