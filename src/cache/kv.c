/* kv.c: device memory of the cache and the sequences' tables.  See kv.h. */
#include "cache/kv.h"

#include <string.h>

#include "base/mem.h"
#include "kvant/ops.h"

static int wants_tail(const kv_config *cfg, const kvant_format *f)
{
    return cfg->tail > 0 && !(f->flags & KVANT_FORMAT_WIDE);
}

/* T of the configuration; 0 when no layer's format needs the tail. */
static int tail_window(const kv_config *cfg)
{
    for (int l = 0; l < cfg->n_layer; l++)
        if (kv_has_attn(cfg, l) && (wants_tail(cfg, cfg->types[l].k) || wants_tail(cfg, cfg->types[l].v)))
            return cfg->tail / KVANT_PAGE;
    return 0;
}

/* No side keeps encoded rows of the open page. */
static int all_have_tails(const kv_config *cfg)
{
    int all = tail_window(cfg) > 0;
    for (int l = 0; l < cfg->n_layer; l++)
        if (kv_has_attn(cfg, l))
            all &= wants_tail(cfg, cfg->types[l].k) && wants_tail(cfg, cfg->types[l].v);
    return all;
}

static int64_t side_page_bytes(const kvant_format *f, int h_kv, int d)
{
    return (int64_t)h_kv * KVANT_PAGE * (int64_t)kvant_format_row_bytes(f, d);
}

/* S of the configuration; 0 when no layer's format needs the tail. */
static int sink_window(const kv_config *cfg)
{
    return tail_window(cfg) > 0 ? cfg->sink / KVANT_PAGE : 0;
}

/* Every sequence keeps at most T + S pages between passes, a snapshot T - 1 + S; one prompt of a whole pass adds the
 * pages it fills.  A pass of many that would want more is cut short (kv_pass_tails). */
static int tail_page_count(const kv_config *cfg)
{
    const int t = tail_window(cfg), s = sink_window(cfg);
    return t == 0 ? 0 : cfg->max_seqs * (t + s) + cfg->n_ubatch / KVANT_PAGE + 2 + cfg->n_snapshots * (t - 1 + s);
}

/* Most pages that hold what the next token sees in a window: window - 1 tokens, anywhere on the grid, and the open
 * page. */
static int window_keep(const kv_config *cfg)
{
    return (cfg->window + KVANT_PAGE - 3) / KVANT_PAGE + 1;
}

/* As many as every sequence and every snapshot may hold at once, so that none ever waits for one; as of the tail, one
 * prompt of a whole pass adds the pages that it fills.  0: the windowed layers' pages are not apart. */
static int window_page_count(const kv_config *cfg)
{
    const int64_t all = (int64_t)cfg->max_seqs * kv_pages_for(cfg->n_ctx);
    int windowed = 0, others = 0;

    for (int l = 0; l < cfg->n_layer; l++) {
        windowed |= kv_has_attn(cfg, l) && (cfg->kinds[l] & KV_LAYER_WINDOW);
        others |= kv_has_attn(cfg, l) && !(cfg->kinds[l] & KV_LAYER_WINDOW);
    }
    if (cfg->window == 0 || !windowed || !others || kv_pages_for(cfg->n_ctx) <= window_keep(cfg))
        return 0;
    const int64_t n = (int64_t)cfg->max_seqs * window_keep(cfg) + cfg->n_ubatch / KVANT_PAGE + 2 +
                      (int64_t)cfg->n_snapshots * ((cfg->window + KVANT_PAGE - 2) / KVANT_PAGE);
    return n < all ? (int)n : 0;
}

/* Rows of page scope wait in the exact tail for the rest of their page. */
static int check_scope(const kv_config *cfg, const kvant_format *f, kvant_diag *diag)
{
    if (!(f->flags & KVANT_FORMAT_PAGE) || cfg->tail > 0)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "%s is encoded a page at a time: exact tail 0, want at least %d (--kv-tail)",
                      f->name, KVANT_PAGE);
}

int kv_measure(const kv_config *cfg, kv_sizes *out, kvant_diag *diag)
{
    const int n_windows = window_page_count(cfg);
    kv_sizes s = { 0 };
    s.n_tail_pages = tail_page_count(cfg);
    for (int l = 0; l < cfg->n_layer; l++) {
        const kv_types *t = &cfg->types[l];
        if (kv_has_state(cfg, l))
            s.state += (int64_t)(kv_state_bytes(cfg) + kv_conv_bytes(cfg)) * (cfg->max_seqs + cfg->n_snapshots) +
                       (int64_t)kv_ring_bytes(cfg);
        if (!kv_has_attn(cfg, l))
            continue;
        KVANT_TRY(kvant_format_check(t->k, t->d_k, diag));
        KVANT_TRY(kvant_format_check(t->v, t->d_v, diag));
        KVANT_TRY(check_scope(cfg, t->k, diag));
        KVANT_TRY(check_scope(cfg, t->v, diag));
        int64_t page = side_page_bytes(t->k, t->h_kv, t->d_k) + side_page_bytes(t->v, t->h_kv, t->d_v);
        if (n_windows > 0 && (cfg->kinds[l] & KV_LAYER_WINDOW)) {
            s.windows += page * n_windows;
        } else {
            s.pages += page * cfg->n_pages;
            s.per_token += page / KVANT_PAGE;
        }
        s.tail += wants_tail(cfg, t->k) ? (int64_t)kv_tail_bytes(t->h_kv, t->d_k) * s.n_tail_pages : 0;
        s.tail += wants_tail(cfg, t->v) ? (int64_t)kv_tail_bytes(t->h_kv, t->d_v) * s.n_tail_pages : 0;
    }
    *out = s;
    return KVANT_OK;
}

static int side_create(kv_cache *kv, const kv_place *at, kvant_kv_side *s, const kvant_format *f, const void *param,
                       int h_kv, int d, int n_pages, kvant_diag *diag)
{
    const kv_config *cfg = &kv->cfg;
    void *mem;

    s->fmt = f;
    s->param = f->flags & KVANT_FORMAT_PARAM ? param : NULL;
    s->row_bytes = kvant_format_row_bytes(f, d);
    s->head_bytes = s->row_bytes * KVANT_PAGE;
    s->page_bytes = s->head_bytes * (size_t)h_kv;
    s->encoder = cfg->encoder;
    KVANT_TRY(at->dev->vt->alloc(at->dev, s->page_bytes * (size_t)n_pages, &mem, diag));
    s->pages = mem;
    if (!wants_tail(cfg, f))
        return KVANT_OK;
    KVANT_TRY(at->dev->vt->alloc(at->dev, kv_tail_bytes(h_kv, d) * (size_t)kv->tails.n, &mem, diag));
    s->tail = mem;
    return KVANT_OK;
}

/* The parameter of layer l's formats: that of its place among the layers with K and V. */
static const void *param_of(const kv_config *cfg, const kv_place *at, int l)
{
    int i = 0;

    for (int before = 0; before < l; before++)
        i += kv_has_attn(cfg, before);
    return at->n_params == 0 ? NULL : at->params[i < at->n_params ? i : at->n_params - 1];
}

/* Asks the device for the order of bytes in full pages of a part of layer l. */
static void choose_layout(kv_cache *kv, int part, int l)
{
    const kv_config *cfg = &kv->cfg;
    const kv_types *t = &cfg->types[l];
    const int i = kv_at(cfg, part, l), h_kv = kv_heads(cfg, part, l);
    kvant_attn_args a = { .k = kv->k[i], .v = kv->v[i], .h = cfg->h / t->h_kv * h_kv, .h_kv = h_kv, .d_k = t->d_k,
                          .d_v = t->d_v, .compute = cfg->compute };
    kvant_device *dev = kv_dev(kv, part, l);

    if (!dev->vt->kv_layout)
        return;
    dev->vt->kv_layout(dev, &a);
    kv->k[i].layout = a.k.layout;
    kv->v[i].layout = a.v.layout;
}

/* The slots of all sequences and snapshots; a block without a state of this kind has no memory of it. */
static int slots_create(kv_cache *kv, kvant_device *dev, size_t bytes, void **mem, kvant_diag *diag)
{
    const size_t slots = (size_t)kv->cfg.max_seqs + (size_t)kv->cfg.n_snapshots;
    return bytes ? dev->vt->alloc(dev, bytes * slots, mem, diag) : KVANT_OK;
}

static int ring_create(const kv_cache *kv, kvant_device *dev, float **ring, kvant_diag *diag)
{
    const size_t bytes = kv_ring_bytes(&kv->cfg);
    void *mem = NULL;

    if (bytes)
        KVANT_TRY(dev->vt->alloc(dev, bytes, &mem, diag));
    *ring = mem;
    return KVANT_OK;
}

static int layer_create(kv_cache *kv, int part, int l, kvant_diag *diag)
{
    const kv_config *cfg = &kv->cfg;
    const int n_pages = kv_in_window(kv, l) ? kv->windows.n : kv->pages.n, i = kv_at(cfg, part, l);
    const int heads = kv_heads(cfg, part, l);
    const kv_types *t = &cfg->types[l];
    const kv_place *at = &cfg->places[kv_place_of(cfg, part, l)];
    void *conv = NULL;

    if (kv_has_attn(cfg, l)) {
        KVANT_TRY(side_create(kv, at, &kv->k[i], t->k, param_of(cfg, at, l), heads, t->d_k, n_pages, diag));
        KVANT_TRY(side_create(kv, at, &kv->v[i], t->v, param_of(cfg, at, l), heads, t->d_v, n_pages, diag));
        choose_layout(kv, part, l);
    }
    if (!kv_has_state(cfg, l))
        return KVANT_OK;
    KVANT_TRY(slots_create(kv, at->dev, kv_state_bytes(cfg), &kv->state[i], diag));
    KVANT_TRY(slots_create(kv, at->dev, kv_conv_bytes(cfg), &conv, diag));
    kv->conv[i] = conv;
    return ring_create(kv, at->dev, &kv->ring[i], diag);
}

static int layers_create(kv_cache *kv, kvant_diag *diag)
{
    for (int part = 0; part < kv_parts(&kv->cfg); part++)
        for (int l = 0; l < kv->cfg.n_layer; l++)
            KVANT_TRY(layer_create(kv, part, l, diag));
    return KVANT_OK;
}

/* A list of page numbers for every snapshot, all -1. */
static int32_t *snapshot_lists(const kv_cache *kv, int each)
{
    const size_t bytes = ((size_t)kv->cfg.n_snapshots * (size_t)each + 1) * sizeof(int32_t);
    int32_t *list = kvant_alloc(bytes);

    if (list)
        memset(list, 0xFF, bytes);
    return list;
}

static int host_create(kv_cache *kv, kvant_diag *diag)
{
    const kv_config *cfg = &kv->cfg;
    size_t n = (size_t)kv_parts(cfg) * (size_t)cfg->n_layer, s = (size_t)cfg->max_seqs, per = (size_t)kv->stride * 3;

    kv->k = kvant_calloc(n, sizeof *kv->k);
    kv->v = kvant_calloc(n, sizeof *kv->v);
    kv->state = kvant_calloc(n, sizeof *kv->state);
    kv->conv = kvant_calloc(n, sizeof *kv->conv);
    kv->ring = kvant_calloc(n, sizeof *kv->ring);
    kv->seqs = kvant_calloc(s, sizeof *kv->seqs);
    kv->tables = kvant_calloc(s * per, sizeof *kv->tables);
    kv->snap_tail = snapshot_lists(kv, kv_snap_tails(kv));
    kv->snap_window = snapshot_lists(kv, kv_snap_windows(kv));
    if (!kv->k || !kv->v || !kv->state || !kv->conv || !kv->ring || !kv->seqs || !kv->tables || !kv->snap_tail ||
        !kv->snap_window)
        return kvant_fail(diag, KVANT_ENOMEM, "cache: out of memory for %d sequences", cfg->max_seqs);
    for (size_t i = 0; i < s; i++) {
        kv->seqs[i].table = kv->tables + i * per;
        kv->seqs[i].tail = kv->tables + i * per + kv->stride;
        kv->seqs[i].window = kv->tables + i * per + 2 * (size_t)kv->stride;
    }
    return KVANT_OK;
}

int kv_create(const kv_config *cfg, kv_cache *kv, kvant_diag *diag)
{
    int code;
    memset(kv, 0, sizeof *kv);
    kv->cfg = *cfg;
    kv->stride = kv_pages_for(cfg->n_ctx);
    kv->tail_pages = tail_window(cfg);
    kv->sink_pages = sink_window(cfg);
    kv->late = all_have_tails(cfg);
    kv->window_pages = window_page_count(cfg) > 0 ? window_keep(cfg) : 0;
    code = page_pool_init(&kv->pages, cfg->n_pages, diag);
    if (code == KVANT_OK)
        code = page_pool_init(&kv->tails, tail_page_count(cfg), diag);
    if (code == KVANT_OK)
        code = page_pool_init(&kv->windows, window_page_count(cfg), diag);
    if (code == KVANT_OK)
        code = page_pool_init(&kv->snaps, cfg->n_snapshots, diag);
    if (code == KVANT_OK)
        code = host_create(kv, diag);
    if (code == KVANT_OK)
        code = layers_create(kv, diag);
    if (code == KVANT_OK)
        code = kv_copier_create(kv, diag);
    if (code < 0)
        kv_destroy(kv);
    return code;
}

static void layer_destroy(kv_cache *kv, int part, int l)
{
    const int at = kv_at(&kv->cfg, part, l);
    kvant_device *dev = kv_dev(kv, part, l);
    void *mem[] = { kv->k[at].pages, kv->k[at].tail, kv->v[at].pages, kv->v[at].tail,
                    kv->state[at],   kv->conv[at],   kv->ring[at] };

    for (size_t i = 0; i < sizeof mem / sizeof *mem; i++)
        if (mem[i])
            dev->vt->free(dev, mem[i]);
}

void kv_destroy(kv_cache *kv)
{
    const int any = kv->k && kv->v && kv->state && kv->conv && kv->ring;

    if (!kv->cfg.places)
        return;
    for (int i = 0; any && i < kv_parts(&kv->cfg) * kv->cfg.n_layer; i++)
        layer_destroy(kv, i / kv->cfg.n_layer, i % kv->cfg.n_layer);
    page_pool_free(&kv->pages);
    page_pool_free(&kv->tails);
    page_pool_free(&kv->windows);
    page_pool_free(&kv->snaps);
    kv_copier_free(kv);
    kvant_free(kv->snap_tail);
    kvant_free(kv->snap_window);
    kvant_free(kv->k);
    kvant_free(kv->v);
    kvant_free(kv->state);
    kvant_free(kv->conv);
    kvant_free(kv->ring);
    kvant_free(kv->seqs);
    kvant_free(kv->tables);
    memset(kv, 0, sizeof *kv);
}

void kv_seq_take(kv_cache *kv, int seq)
{
    kv_seq *s = &kv->seqs[seq];
    s->used = 1;
    s->serial = ++kv->serial;
    s->len = s->n_pages = s->broken = s->draft = s->hold = s->ring_n = 0;
    for (int j = 0; j < kv->stride; j++)
        s->table[j] = s->tail[j] = s->window[j] = -1;
}

int kv_seq_new(kv_cache *kv, int *seq, kvant_diag *diag)
{
    for (int i = 0; i < kv->cfg.max_seqs; i++) {
        if (kv->seqs[i].used)
            continue;
        kv_seq_take(kv, i);
        *seq = i;
        return KVANT_OK;
    }
    return kvant_fail(diag, KVANT_ENOSPC, "sequences: all %d are in use", kv->cfg.max_seqs);
}

int kv_seq_valid(const kv_cache *kv, int seq)
{
    return seq >= 0 && seq < kv->cfg.max_seqs && kv->seqs[seq].used;
}

int kv_draft_room(const kv_cache *kv, int seq)
{
    const int row = kv->seqs[seq].len % KVANT_PAGE, page = KVANT_PAGE - 2 - row;
    const int left = kv->cfg.n_ctx - kv->seqs[seq].len - 1;

    return page < 0 || left < 0 ? 0 : page < left ? page : left;
}

int kv_settle(const kv_cache *kv, int seq, kvant_diag *diag)
{
    return kv->seqs[seq].ring_n > 0 ? kv->fold(kv->fold_ctx, seq, diag) : KVANT_OK;
}

/* Entries [first, last) of a table give their pages back. */
static void drop(page_pool *pool, int32_t *table, int first, int last)
{
    for (int p = first; p < last; p++) {
        if (table[p] < 0)
            continue;
        page_pool_unref(pool, table[p]);
        table[p] = -1;
    }
}

void kv_trim(kv_cache *kv, int seq)
{
    kv_seq *s = &kv->seqs[seq];
    int keep = kv_pages_for(s->len);
    drop(&kv->tails, s->tail, keep, s->n_pages);
    drop(&kv->windows, s->window, keep, s->n_pages);
    drop(&kv->pages, s->table, kv_pages_at(kv, s->len), s->n_pages);
    s->n_pages = keep < s->n_pages ? keep : s->n_pages;
}

void kv_seq_free(kv_cache *kv, int seq)
{
    kv_seq *s = &kv->seqs[seq];
    s->len = s->ring_n = 0;
    kv_trim(kv, seq);
    s->used = 0;
}

int kv_pages_held(const kv_cache *kv, int seq)
{
    const kv_seq *s = &kv->seqs[seq];
    return s->n_pages - (s->n_pages > 0 && s->table[s->n_pages - 1] < 0);
}

int kv_pages_missing(const kv_cache *kv, int seq, int len)
{
    int missing = kv_pages_at(kv, len) - kv_pages_held(kv, seq);
    return missing > 0 ? missing : 0;
}

void kv_reserve(kv_cache *kv, int seq, int len)
{
    kv_seq *s = &kv->seqs[seq];
    for (int p = kv_pages_held(kv, seq); p < kv_pages_at(kv, len); p++)
        s->table[p] = page_pool_take(&kv->pages);
    s->n_pages = kv_pages_for(len) > s->n_pages ? kv_pages_for(len) : s->n_pages;
}

int kv_pass_fits(const kv_cache *kv, int seq, int pos0, int n)
{
    const kv_seq *s = &kv->seqs[seq];
    int tails = 0, windows = 0;

    for (int p = pos0 / KVANT_PAGE; p < kv_pages_for(pos0 + n); p++) {
        tails += s->tail[p] < 0;
        windows += s->window[p] < 0;
    }
    return (kv->tail_pages == 0 || tails <= kv->tails.n_free) &&
           (kv->window_pages == 0 || windows <= kv->windows.n_free);
}

void kv_pass_begin(kv_cache *kv, int seq, int pos0, int n, kv_seals *seals)
{
    kv_seq *s = &kv->seqs[seq];
    int end = pos0 + n;

    for (int p = pos0 / KVANT_PAGE; p < kv_pages_for(end); p++) {
        if (kv->window_pages > 0 && s->window[p] < 0)
            s->window[p] = page_pool_take(&kv->windows);
        if (kv->tail_pages > 0 && s->tail[p] < 0)
            s->tail[p] = page_pool_take(&kv->tails);
        if (kv->tail_pages > 0 && (p + 1) * KVANT_PAGE <= end) {
            seals->src[seals->n] = s->tail[p];
            seals->dst[seals->n] = s->table[p];
            seals->window[seals->n++] = s->window[p];
        }
    }
}

void kv_pass_end(kv_cache *kv, int seq, int pos_end)
{
    kv_seq *s = &kv->seqs[seq];
    pos_end = s->hold > 0 && s->hold < pos_end ? s->hold : pos_end;
    int keep = pos_end / KVANT_PAGE - kv->tail_pages + 1;   /* first page that the next query reads exactly */

    if (kv->tail_pages > 0)
        drop(&kv->tails, s->tail, kv->sink_pages, keep < s->n_pages ? keep : s->n_pages);
    if (kv->window_pages > 0)
        drop(&kv->windows, s->window, 0, kv_first_window(kv, pos_end));
}

/* Bytes of part `part` of layer l for so many pages of its pool and tail pages. */
static int64_t layer_bytes(const kv_cache *kv, int part, int l, int64_t pages, int64_t tails)
{
    const kv_config *cfg = &kv->cfg;
    const kv_types *t = &cfg->types[l];
    const int i = kv_at(cfg, part, l), heads = kv_heads(cfg, part, l);
    int64_t bytes = 0;

    if (kv_has_state(cfg, l))
        bytes += (int64_t)(kv_state_bytes(cfg) + kv_conv_bytes(cfg));
    if (!kv_has_attn(cfg, l))
        return bytes;
    bytes += (int64_t)(kv->k[i].page_bytes + kv->v[i].page_bytes) * pages;
    bytes += kv->k[i].tail ? tails * (int64_t)kv_tail_bytes(heads, t->d_k) : 0;
    return bytes + (kv->v[i].tail ? tails * (int64_t)kv_tail_bytes(heads, t->d_v) : 0);
}

int64_t kv_seq_bytes(const kv_cache *kv, int seq)
{
    const kv_config *cfg = &kv->cfg;
    const kv_seq *s = &kv->seqs[seq];
    int64_t bytes = 0, tails = 0, windows = 0;

    for (int p = 0; p < s->n_pages; p++) {
        tails += s->tail[p] >= 0;
        windows += s->window[p] >= 0;
    }
    for (int part = 0; part < kv_parts(cfg); part++)
        for (int l = 0; l < cfg->n_layer; l++)
            bytes += layer_bytes(kv, part, l, kv_in_window(kv, l) ? windows : kv_pages_held(kv, seq), tails);
    return bytes;
}
