/* kv_image.c: see kv_image.h. */
#include "cache/kv_image.h"

#include <string.h>

/* A page of the layers whose windows are apart, or of the others. */
static int walk_layers(const kv_cache *kv, int windowed, int page, int rows, int open, kv_range_fn fn, void *ctx,
                       kvant_diag *diag)
{
    for (int l = 0; l < kv->cfg.n_layer; l++)
        for (int v = 0; v < 2 && kv_has_attn(&kv->cfg, l) && kv_in_window(kv, l) == windowed; v++) {
            const kvant_kv_side *s = v ? &kv->v[l] : &kv->k[l];
            const kv_types *t = &kv->cfg.types[l];
            const kv_range r = { kv_dev(kv, l), s->pages + (size_t)(page < 0 ? 0 : page) * s->page_bytes,
                                 s->page_bytes, s->head_bytes, s->row_bytes,
                                 page < 0 || (open && s->tail) ? 0 : rows,
                                 s->layout ? s : NULL, t->h_kv, v ? t->d_v : t->d_k, page };
            KVANT_TRY(fn(ctx, &r, diag));
        }
    return KVANT_OK;
}

int kv_walk_page(const kv_cache *kv, int page, int rows, int open, kv_range_fn fn, void *ctx, kvant_diag *diag)
{
    return walk_layers(kv, 0, page, rows, open, fn, ctx, diag);
}

int kv_walk_window(const kv_cache *kv, int page, int rows, int open, kv_range_fn fn, void *ctx, kvant_diag *diag)
{
    return walk_layers(kv, 1, page, rows, open, fn, ctx, diag);
}

int kv_walk_tail(const kv_cache *kv, int tail, int rows, kv_range_fn fn, void *ctx, kvant_diag *diag)
{
    for (int l = 0; l < kv->cfg.n_layer; l++)
        for (int v = 0; v < 2 && kv_has_attn(&kv->cfg, l); v++) {
            const kvant_kv_side *s = v ? &kv->v[l] : &kv->k[l];
            const kv_types *t = &kv->cfg.types[l];
            const int d = v ? t->d_v : t->d_k;
            const size_t bytes = kv_tail_bytes(t->h_kv, d);
            if (!s->tail)
                continue;
            const kv_range r = { kv_dev(kv, l), (uint8_t *)s->tail + (size_t)tail * bytes, bytes,
                                 (size_t)KVANT_PAGE * (size_t)d * 2, (size_t)d * 2, rows, NULL, 0, 0, 0 };
            KVANT_TRY(fn(ctx, &r, diag));
        }
    return KVANT_OK;
}

int kv_walk_state(const kv_cache *kv, int slot, kv_range_fn fn, void *ctx, kvant_diag *diag)
{
    const size_t state = kv_state_bytes(&kv->cfg), conv = kv_conv_bytes(&kv->cfg);

    for (int l = 0; l < kv->cfg.n_layer; l++) {
        if (!kv_has_state(&kv->cfg, l))
            continue;
        kvant_device *dev = kv_dev(kv, l);
        const kv_range all[2] = { { dev, (uint8_t *)kv->state[l], state, 0, 0, -1, NULL, 0, 0, 0 },
                                  { dev, (uint8_t *)kv->conv[l], conv, 0, 0, -1, NULL, 0, 0, 0 } };
        for (int i = 0; i < 2; i++) {
            kv_range r = all[i];
            if (r.bytes == 0)
                continue;
            r.addr += (size_t)slot * r.bytes;
            KVANT_TRY(fn(ctx, &r, diag));
        }
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

int kv_range_write(const kv_range *r, const uint8_t *buf, kvant_diag *diag)
{
    if (r->rows == 0)
        return KVANT_OK;           /* nothing reads it before it is written whole */
    if (r->side)
        return r->dev->vt->page_write(r->dev, r->side, r->h_kv, r->d, r->page, buf, diag);
    return r->dev->vt->copy_in(r->dev, r->addr, buf, r->bytes, diag);
}

/* ---- whole sequences ---- */

int kv_image_first_tail(const kv_cache *kv, int len)
{
    const int first = len / KVANT_PAGE - kv->tail_pages + 1;

    if (kv->tail_pages == 0)
        return kv_pages_for(len);
    return first > 0 ? first : 0;
}

int kv_image_first_window(const kv_cache *kv, int len)
{
    const int pages = kv_pages_for(len), first = kv_first_window(kv, len);

    return kv->window_pages == 0 || first > pages ? pages : first;
}

size_t kv_image_bytes(const kv_cache *kv, int len)
{
    const size_t pages = (size_t)kv_pages_for(len), first = (size_t)kv_image_first_tail(kv, len);

    return pages * kv_page_image_bytes(kv) +
           (pages - (size_t)kv_image_first_window(kv, len)) * kv_window_image_bytes(kv) +
           (pages - (first < pages ? first : pages)) * kv_tail_image_bytes(kv) + kv_state_image_bytes(kv);
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
    for (int p = kv_image_first_tail(kv, len); p < kv_pages_for(len); p++)
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
    for (int p = kv_image_first_tail(kv, len); p < kv_pages_for(len); p++)
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
