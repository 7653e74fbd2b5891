/* kv_copy.c: sharing of pages between sequences and copies on the device: snapshots, forks.  See kv.h.
 *
 * All copies of one call are one list of slot_copy ops for each device, which orders them with the steps before and
 * after.  The ids of an op lie in device memory: a pair each for state slots, pages, tail pages and pages of
 * windows. */
#include "cache/kv.h"

#include <string.h>

#include "base/mem.h"
#include "kvant/ops.h"

enum { PAIR_SLOT = 0, PAIR_PAGE = 1, PAIR_TAIL = 2, PAIR_WINDOW = 3, PAIRS = 4, OPS_PER_LAYER = 4 };

struct kv_copier {
    int32_t host[2 * PAIRS];      /* [src of each pair][dst of each pair] */
    int32_t *dev[KV_MOST_PLACES]; /* them on each device */
    kvant_op *ops;
    kvant_slot_copy_args *args;
    unsigned char *place; /* of each op */
    int n;
};

int kv_copier_create(kv_cache *kv, kvant_diag *diag)
{
    const size_t most = (size_t)kv_parts(&kv->cfg) * (size_t)kv->cfg.n_layer * OPS_PER_LAYER;
    struct kv_copier *c = kvant_calloc(1, sizeof *c);
    void *mem;

    kv->copier = c;
    if (!c)
        return kvant_fail(diag, KVANT_ENOMEM, "cache: out of memory");
    c->ops = kvant_calloc(most, sizeof *c->ops);
    c->args = kvant_calloc(most, sizeof *c->args);
    c->place = kvant_calloc(most, 1);
    if (!c->ops || !c->args || !c->place)
        return kvant_fail(diag, KVANT_ENOMEM, "cache: out of memory for %zu copies", most);
    for (int i = 0; i < kv->cfg.n_places; i++) {
        kvant_device *dev = kv->cfg.places[i].dev;
        KVANT_TRY(dev->vt->alloc(dev, sizeof c->host, &mem, diag));
        c->dev[i] = mem;
    }
    return KVANT_OK;
}

void kv_copier_free(kv_cache *kv)
{
    struct kv_copier *c = kv->copier;

    if (!c)
        return;
    for (int i = 0; i < kv->cfg.n_places; i++)
        if (c->dev[i])
            kv->cfg.places[i].dev->vt->free(kv->cfg.places[i].dev, c->dev[i]);
    kvant_free(c->place);
    kvant_free(c->ops);
    kvant_free(c->args);
    kvant_free(c);
    kv->copier = NULL;
}

static void copy_begin(kv_cache *kv)
{
    memset(kv->copier->host, 0, sizeof kv->copier->host);
    kv->copier->n = 0;
}

static void copy_pair(kv_cache *kv, int pair, int src, int dst)
{
    kv->copier->host[pair] = src;
    kv->copier->host[PAIRS + pair] = dst;
}

static void copy_add(kv_cache *kv, int at, int pair, void *base, size_t bytes)
{
    struct kv_copier *c = kv->copier;

    c->args[c->n] = (kvant_slot_copy_args){ .base = base,
                                            .src = c->dev[at] + pair,
                                            .dst = c->dev[at] + PAIRS + pair,
                                            .n = 1,
                                            .stride = bytes,
                                            .bytes = bytes };
    c->ops[c->n] = (kvant_op){ KVANT_OP_SLOT_COPY, &c->args[c->n] };
    c->place[c->n++] = (unsigned char)at;
}

static int copy_run(kv_cache *kv, kvant_diag *diag)
{
    struct kv_copier *c = kv->copier;

    for (int i = 0, next; i < c->n; i = next) {
        kvant_device *dev = kv->cfg.places[c->place[i]].dev;
        for (next = i + 1; next < c->n && c->place[next] == c->place[i];)
            next++;
        KVANT_TRY(dev->vt->copy_in(dev, c->dev[c->place[i]], c->host, sizeof c->host, diag));
        KVANT_TRY(dev->vt->submit(dev, c->ops + i, next - i, 0, diag));
    }
    return KVANT_OK;
}

/* Recurrent and conv state of slot src -> slot dst. */
static int state_copy(kv_cache *kv, int src, int dst, kvant_diag *diag)
{
    const kv_config *cfg = &kv->cfg;

    copy_begin(kv);
    copy_pair(kv, PAIR_SLOT, src, dst);
    for (int i = 0; i < kv_parts(cfg) * cfg->n_layer; i++) {
        const int at = kv_place_of(cfg, i / cfg->n_layer, i % cfg->n_layer);
        if (kv->state[i])
            copy_add(kv, at, PAIR_SLOT, kv->state[i], kv_state_bytes(cfg));
        if (kv->conv[i])
            copy_add(kv, at, PAIR_SLOT, kv->conv[i], kv_conv_bytes(cfg));
    }
    return copy_run(kv, diag);
}

/* A page of a part of layer l, with its tail page. */
static void page_add(kv_cache *kv, int part, int l, const int *src)
{
    const kv_config *cfg = &kv->cfg;
    const kv_types *t = &cfg->types[l];
    const int i = kv_at(cfg, part, l), at = kv_place_of(cfg, part, l), heads = kv_heads(cfg, part, l);
    const int pair = kv_in_window(kv, l) ? PAIR_WINDOW : PAIR_PAGE;

    if (src[pair] >= 0) {
        copy_add(kv, at, pair, kv->k[i].pages, kv->k[i].page_bytes);
        copy_add(kv, at, pair, kv->v[i].pages, kv->v[i].page_bytes);
    }
    if (kv->k[i].tail && src[PAIR_TAIL] >= 0)
        copy_add(kv, at, PAIR_TAIL, kv->k[i].tail, kv_tail_bytes(heads, t->d_k));
    if (kv->v[i].tail && src[PAIR_TAIL] >= 0)
        copy_add(kv, at, PAIR_TAIL, kv->v[i].tail, kv_tail_bytes(heads, t->d_v));
}

/* Page p of sequence a -> of b: those of its page, page of windows and tail page that it has (both have the same). */
static int page_copy(kv_cache *kv, const kv_seq *a, const kv_seq *b, int p, kvant_diag *diag)
{
    const int src[PAIRS] = { -1, a->table[p], a->tail[p], a->window[p] };
    const int dst[PAIRS] = { -1, b->table[p], b->tail[p], b->window[p] };

    copy_begin(kv);
    for (int i = PAIR_PAGE; i < PAIRS; i++)
        if (src[i] >= 0)
            copy_pair(kv, i, src[i], dst[i]);
    for (int part = 0; part < kv_parts(&kv->cfg); part++)
        for (int l = 0; l < kv->cfg.n_layer; l++)
            if (kv_has_attn(&kv->cfg, l))
                page_add(kv, part, l, src);
    return copy_run(kv, diag);
}

int kv_pages_suffice(const kv_cache *kv)
{
    for (int l = 0; l < kv->cfg.n_layer; l++)
        if (kv_has_state(&kv->cfg, l))
            return 0;
    return kv->tail_pages <= 1 && kv->sink_pages == 0 && kv->window_pages == 0;
}

void kv_seq_share(kv_cache *kv, int seq, const int32_t *pages, int n)
{
    kv_seq *s = &kv->seqs[seq];

    for (int p = 0; p < n; p++) {
        page_pool_ref(&kv->pages, pages[p]);
        s->table[p] = pages[p];
    }
    s->n_pages = n;
    s->len = n * KVANT_PAGE;
}

void kv_seq_adopt(kv_cache *kv, int seq, int p, int page)
{
    int32_t *own = &kv->seqs[seq].table[p];

    if (*own == page)
        return;
    page_pool_ref(&kv->pages, page);
    page_pool_unref(&kv->pages, *own);
    *own = page;
}

/* Tail pages that a sequence of length 64 m keeps: logical pages m-T+1 .. m-1 and 0 .. S-1, all full and so never
 * written again. */
static int32_t *snapshot_tails(kv_cache *kv, int snap)
{
    return kv->snap_tail + (size_t)snap * (size_t)kv_snap_tails(kv);
}

static void list_tails(kv_cache *kv, const kv_seq *s, int m, int32_t *list)
{
    for (int j = 0; j < kv_snap_tails(kv); j++) {
        const int p = kv_snap_tail_page(kv, m, j);
        list[j] = p >= 0 ? s->tail[p] : -1;
        if (list[j] >= 0)
            page_pool_ref(&kv->tails, list[j]);
    }
}

static void share_tails(kv_cache *kv, const int32_t *list, int m, kv_seq *s)
{
    for (int j = 0; j < kv_snap_tails(kv); j++)
        if (list[j] >= 0) {
            s->tail[kv_snap_tail_page(kv, m, j)] = list[j];
            page_pool_ref(&kv->tails, list[j]);
        }
}

/* As snapshot_tails, for windows: m-1 down to the first that the token at 64 m sees; full as well. */
static int32_t *snapshot_windows(kv_cache *kv, int snap)
{
    return kv->snap_window + (size_t)snap * (size_t)kv_snap_windows(kv);
}

/* list[j] = entry m - 1 - j of a table, -1 before its begin; each with a reference. */
static void list_pages(page_pool *pool, const int32_t *table, int m, int32_t *list, int n)
{
    for (int j = 0; j < n; j++) {
        list[j] = m - 1 - j >= 0 ? table[m - 1 - j] : -1;
        if (list[j] >= 0)
            page_pool_ref(pool, list[j]);
    }
}

/* And back. */
static void share_pages(page_pool *pool, const int32_t *list, int n, int m, int32_t *table)
{
    for (int j = 0; j < n && j < m; j++) {
        table[m - 1 - j] = list[j];
        if (list[j] >= 0)
            page_pool_ref(pool, list[j]);
    }
}

static void forget_pages(page_pool *pool, int32_t *list, int n)
{
    for (int j = 0; j < n; j++) {
        if (list[j] >= 0)
            page_pool_unref(pool, list[j]);
        list[j] = -1;
    }
}

int kv_snapshot_save(kv_cache *kv, int seq, int snap, kvant_diag *diag)
{
    const kv_seq *s = &kv->seqs[seq];
    const int m = s->len / KVANT_PAGE;

    KVANT_TRY(kv_settle(kv, seq, diag));
    KVANT_TRY(state_copy(kv, seq, kv->cfg.max_seqs + snap, diag));
    list_tails(kv, s, m, snapshot_tails(kv, snap));
    list_pages(&kv->windows, s->window, m, snapshot_windows(kv, snap), kv_snap_windows(kv));
    return KVANT_OK;
}

int kv_snapshot_load(kv_cache *kv, int snap, int seq, kvant_diag *diag)
{
    kv_seq *s = &kv->seqs[seq];
    const int m = s->len / KVANT_PAGE;

    KVANT_TRY(state_copy(kv, kv->cfg.max_seqs + snap, seq, diag));
    share_tails(kv, snapshot_tails(kv, snap), m, s);
    share_pages(&kv->windows, snapshot_windows(kv, snap), kv_snap_windows(kv), m, s->window);
    return KVANT_OK;
}

void kv_snapshot_free(kv_cache *kv, int snap)
{
    forget_pages(&kv->tails, snapshot_tails(kv, snap), kv_snap_tails(kv));
    forget_pages(&kv->windows, snapshot_windows(kv, snap), kv_snap_windows(kv));
    page_pool_unref(&kv->snaps, snap);
}

int kv_seq_fork(kv_cache *kv, int src, int dst, kvant_diag *diag)
{
    const kv_seq *a = &kv->seqs[src];
    kv_seq *b = &kv->seqs[dst];
    const int full = a->len / KVANT_PAGE;

    KVANT_TRY(kv_settle(kv, src, diag));
    kv_seq_share(kv, dst, a->table, full);
    for (int p = 0; p < full; p++) {
        b->tail[p] = a->tail[p];
        b->window[p] = a->window[p];
        if (a->tail[p] >= 0)
            page_pool_ref(&kv->tails, a->tail[p]);
        if (a->window[p] >= 0)
            page_pool_ref(&kv->windows, a->window[p]);
    }
    if (a->len % KVANT_PAGE) {
        b->table[b->n_pages++] = a->table[full] < 0 ? -1 : page_pool_take(&kv->pages);
        b->tail[full] = a->tail[full] < 0 ? -1 : page_pool_take(&kv->tails);
        b->window[full] = a->window[full] < 0 ? -1 : page_pool_take(&kv->windows);
        KVANT_TRY(page_copy(kv, a, b, full, diag));
    }
    b->len = a->len;
    return state_copy(kv, src, dst, diag);
}
