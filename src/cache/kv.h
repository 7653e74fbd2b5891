/* cache/kv.h: the paged KV cache and the recurrent state slots of one engine.
 *
 * Memory on the device, taken once: per attention layer and side a pool of pages (heads, row widths and formats may
 * differ per layer; a layer that reads another one's K and V has none and is none here) and, for formats under 16 bits,
 * a small f16 tail pool; per recurrent layer one state slot and one conv slot per sequence. One page id and one block
 * table serve all layers.  A live sequence keeps one permanent slot.
 *
 * Exact tail: with T = tail/64 pages, query i reads page p exactly iff i/64 - p < T.  A page stays in the tail pool
 * until no later query can read it exactly; it is encoded once, when it is full (docs/decisions/0003-exact-tail.md).
 * The first S = sink/64 pages of a sequence stay there for good: every query reads them exactly.  They have encoded
 * pages too, which nothing reads: tables, sharing and the prefix index know one kind of page.
 *
 * Windows: layers whose attention sees only the last `window` tokens have a pool and a table of their own, sized for
 * what all sequences and snapshots may read: pages that no later query sees go back after each pass.  Not where that
 * pool would be larger than the others' or no layer sees everything: then they are pages as all others.
 *
 * Snapshots: state (what the exact tail holds beyond the open page, what windows see) of a sequence at one position, in
 * slots behind those of the sequences.  Nobody writes a slot that another sequence of the batch reads: who starts from
 * a snapshot or from another sequence first gets a copy in its own slot (the step forms of conv and gdn run after the
 * chunk forms).
 *
 * Where every side has a tail, no encoded row of the open page exists: it gets a page of the pool only when it is full
 * (`late`).  Elsewhere it has one from its first token on.
 *
 * Ring: rows that may be taken back (drafts) leave recurrent states as they are; what the states would have had of them
 * waits in a ring of every recurrent layer, until it is known how many count.  The engine folds those in
 * (engine/draft/fold.c) before the next step, or before the state is copied or saved: kv_settle.
 *
 * Positions of a sequence: `len` tokens are in the cache.  Pages are reserved before a step and returned on failure.
 * Owner thread only. */
#ifndef KVANT_CACHE_KV_H
#define KVANT_CACHE_KV_H

#include "cache/page_pool.h"
#include "devices/device.h"
#include "kvant/format.h"

/* The rows of a layer: formats, KV heads, values of a head's row. */
typedef struct kv_types {
    const kvant_format *k, *v;
    int h_kv, d_k, d_v;
} kv_types;

enum { KV_LAYER_ATTN = 1, KV_LAYER_STATE = 2, KV_LAYER_WINDOW = 4 };

/* A device that holds the caches of some layers, and on it the projections of formats that need one: that of the i-th
 * layer with K and V, the last for those behind them. */
typedef struct kv_place {
    kvant_device *dev;
    void *const *params;
    int n_params;
} kv_place;

enum { KV_MOST_PLACES = 16 };

typedef struct kv_config {
    int n_layer, h;
    int compute;                   /* enum kvant_compute of the attention ops */
    const unsigned char *kinds;    /* [n_layer] KV_LAYER_*; both: K and V, and a state; 0: neither of its own */
    const kv_types *types;         /* [n_layer]; read where a layer has K and V */
    int window;                    /* tokens that a layer with KV_LAYER_WINDOW sees; 0: all, or keep all pages */
    int tail, sink;                /* tokens, multiples of 64; a sink wants a tail */
    int encoder;
    int max_seqs, n_ctx, n_ubatch;
    int n_pages;
    int n_snapshots;
    int64_t state_values, conv_floats;   /* per sequence and recurrent layer */
    int state_type;                /* enum kvant_state_type of the recurrent states; conv windows are f32 */
    int ring_rows;                 /* rows of each recurrent layer's ring, of all sequences; 0: none */
    int64_t ring_floats;           /* of a row */
    const kv_place *places;        /* [n_places] as long as the cache */
    int n_places;
    const unsigned char *place_of; /* [n_layer]; NULL: all layers are on the first */
    int n_parts;                   /* 0: layers are whole; else the first so many places have a part of each layer */
    const int *part_heads;         /* [n_parts][n_layer] KV heads of each part, in order; all of them: a copy each */
} kv_config;

typedef struct kv_seq {
    int used, len, broken;
    int draft;                     /* rows behind len that the last step made and nobody has accepted */
    uint64_t serial;               /* another one for each sequence that takes this place */
    int hold;                      /* not 0: what the row at this length reads is kept */
    int ring_at, ring_n;           /* the last so many of len are not in the state but in rows of the ring */
    int n_pages;                   /* pages in table */
    int32_t *table, *tail;         /* [stride] page id, -1: none yet (late); tail page id or -1 */
    int32_t *window;               /* [stride] page of the windowed layers or -1 */
} kv_seq;

typedef struct kv_cache {
    kv_config cfg;
    int stride;                    /* logical pages per sequence */
    int tail_pages, sink_pages;    /* T, S; S is 0 where T is */
    int late;                      /* every row of the open page is in the tail: it gets its page when it is full */
    int window_pages;              /* most pages of windowed layers that a sequence keeps; 0: they are not apart */
    page_pool pages, tails, windows;
    page_pool snaps;               /* snapshot ids; snapshot i lies in state slot max_seqs + i */
    int32_t *snap_tail;            /* [n_snapshots][kv_snap_tails] tail pages that a snapshot holds, -1: none: from its
                                    * last page back, then the first S of those before */
    int32_t *snap_window;          /* [n_snapshots][kv_snap_windows] the same of windows: from its last page back */
    /* [parts][n_layer]: kv_at */
    kvant_kv_side *k, *v;
    void **state;                  /* device memory [max_seqs + n_snapshots][state_values] */
    float **conv;                  /* the same, [conv_floats] */
    float **ring;                  /* device memory, ring_rows * ring_floats values: build_ring_keep */
    int (*fold)(void *ctx, int seq, kvant_diag *diag);   /* the engine's: rows of seq leave the ring */
    void *fold_ctx;
    struct kv_copier *copier;      /* kv_copy.c */
    kv_seq *seqs;                  /* [max_seqs] */
    uint64_t serial;               /* of the youngest */
    int32_t *tables;
} kv_cache;

/* Bytes of one sequence's recurrent state in one layer; of its conv window. */
static inline size_t kv_state_bytes(const kv_config *cfg)
{
    return (size_t)cfg->state_values * kvant_state_bytes(cfg->state_type);
}

static inline size_t kv_conv_bytes(const kv_config *cfg)
{
    return (size_t)cfg->conv_floats * sizeof(float);
}

static inline size_t kv_ring_bytes(const kv_config *cfg)
{
    return (size_t)cfg->ring_rows * (size_t)cfg->ring_floats * sizeof(float);
}

static inline int kv_has_attn(const kv_config *cfg, int l)
{
    return (cfg->kinds[l] & KV_LAYER_ATTN) != 0;
}

static inline int kv_has_state(const kv_config *cfg, int l)
{
    return (cfg->kinds[l] & KV_LAYER_STATE) != 0;
}

/* Parts of every layer; a whole one is part 0. */
static inline int kv_parts(const kv_config *cfg)
{
    return cfg->n_parts > 0 ? cfg->n_parts : 1;
}

/* The number of part `part` of layer l in the lists of kv_cache: part 0 of a layer has the layer's. */
static inline int kv_at(const kv_config *cfg, int part, int l)
{
    return part * cfg->n_layer + l;
}

/* KV heads of a part. */
static inline int kv_heads(const kv_config *cfg, int part, int l)
{
    return cfg->n_parts > 0 ? cfg->part_heads[kv_at(cfg, part, l)] : cfg->types[l].h_kv;
}

/* Every part of layer l has all heads. */
static inline int kv_is_copied(const kv_config *cfg, int l)
{
    return cfg->n_parts > 1 && cfg->part_heads[l] == cfg->types[l].h_kv;
}

/* The place of a part of a layer's cache and state. */
static inline int kv_place_of(const kv_config *cfg, int part, int l)
{
    return cfg->n_parts > 0 ? part : cfg->place_of ? cfg->place_of[l] : 0;
}

static inline kvant_device *kv_dev(const kv_cache *kv, int part, int l)
{
    return kv->cfg.places[kv_place_of(&kv->cfg, part, l)].dev;
}

/* Bytes of a tail page of one side of h_kv heads of d values: f16. */
static inline size_t kv_tail_bytes(int h_kv, int d)
{
    return (size_t)h_kv * KVANT_PAGE * (size_t)d * 2;
}

/* Layer l has pages of its own pool, kv->windows. */
static inline int kv_in_window(const kv_cache *kv, int l)
{
    return kv->window_pages > 0 && (kv->cfg.kinds[l] & KV_LAYER_WINDOW);
}

/* Pages of a window that a snapshot, whose length is on the grid, holds. */
static inline int kv_snap_windows(const kv_cache *kv)
{
    return kv->window_pages > 0 ? (kv->cfg.window + KVANT_PAGE - 2) / KVANT_PAGE : 0;
}

/* Tail pages that a snapshot, whose length is on the grid, holds: the newest without the open one, and the sink's. */
static inline int kv_snap_tails(const kv_cache *kv)
{
    return kv->tail_pages > 0 ? kv->tail_pages - 1 + kv->sink_pages : 0;
}

/* Logical page of entry j of a snapshot of m pages, or -1: it has none. */
static inline int kv_snap_tail_page(const kv_cache *kv, int m, int j)
{
    const int newest = kv->tail_pages - 1, p = j < newest ? m - 1 - j : j - newest;

    return p >= 0 && (j < newest || p < m - newest) ? p : -1;
}

/* Pages that hold this many tokens. */
static inline int kv_pages_for(int tokens)
{
    return (tokens + KVANT_PAGE - 1) / KVANT_PAGE;
}

/* Pages of the pool that a sequence of this length holds. */
static inline int kv_pages_at(const kv_cache *kv, int tokens)
{
    return kv->late ? tokens / KVANT_PAGE : kv_pages_for(tokens);
}

/* First page that a windowed layer reads for the token at position len, or for a later one. */
static inline int kv_first_window(const kv_cache *kv, int len)
{
    return len >= kv->cfg.window ? (len - kv->cfg.window + 1) / KVANT_PAGE : 0;
}

/* Bytes of the pools of a configuration: pages, windows, tail, state. */
typedef struct kv_sizes { int64_t pages, windows, tail, state, per_token; int n_tail_pages; } kv_sizes;
int kv_measure(const kv_config *cfg, kv_sizes *out, kvant_diag *diag);

int kv_create(const kv_config *cfg, kv_cache *kv, kvant_diag *diag);
void kv_destroy(kv_cache *kv);

int kv_seq_new(kv_cache *kv, int *seq, kvant_diag *diag);
/* As kv_seq_new, with a given id that is not in use. */
void kv_seq_take(kv_cache *kv, int seq);
int kv_seq_valid(const kv_cache *kv, int seq);
/* Draft rows that may stand behind one more row of seq: they and it lie in one page, which they do not fill, so that
 * no page is taken, encoded or given back for a row that may be taken back. */
int kv_draft_room(const kv_cache *kv, int seq);
/* The state of seq becomes that of its length. */
int kv_settle(const kv_cache *kv, int seq, kvant_diag *diag);
void kv_seq_free(kv_cache *kv, int seq);
/* Pages of the pool that seq holds now; that it needs beyond those to hold `len` tokens. */
int kv_pages_held(const kv_cache *kv, int seq);
int kv_pages_missing(const kv_cache *kv, int seq, int len);
/* Takes pages so that seq can hold len tokens; the caller has checked that enough are free. */
void kv_reserve(kv_cache *kv, int seq, int len);
/* Returns pages beyond its length (after a failed step). */
void kv_trim(kv_cache *kv, int seq);

/* Rows [pos0, pos0 + n) of a pass would find the tail pages and the pages of windows that they want. */
int kv_pass_fits(const kv_cache *kv, int seq, int pos0, int n);
/* The pages that become full in a pass: tail page -> page, and page of the windowed layers. */
typedef struct kv_seals { int32_t *src, *dst, *window; int n; } kv_seals;
/* A pass appends rows [pos0, pos0 + n) to seq: takes tail pages and pages of windows, and appends to the list. */
void kv_pass_begin(kv_cache *kv, int seq, int pos0, int n, kv_seals *seals);
/* After the pass: drops tail pages that no later query reads exactly, and pages that no window sees any more. */
void kv_pass_end(kv_cache *kv, int seq, int pos_end);

/* ---- kv_copy.c: sharing and copies ---- */

/* A position can be resumed from pages alone, without a snapshot: no recurrent layer, no window apart, no exact tail
 * beyond a page and no exact first pages. */
int kv_pages_suffice(const kv_cache *kv);
/* An empty sequence gets n shared full pages: its length becomes 64 n.  The caller loads a snapshot of that position
 * next, unless pages suffice. */
void kv_seq_share(kv_cache *kv, int seq, const int32_t *pages, int n);
/* Logical page p of seq, full, becomes this page, which has the same rows; its own loses a reference. */
void kv_seq_adopt(kv_cache *kv, int seq, int p, int page);
/* State, tail and windows of seq (length on the 64 grid, at least 64) -> snapshot id taken from `snaps`; and back. */
int kv_snapshot_save(kv_cache *kv, int seq, int snap, kvant_diag *diag);
int kv_snapshot_load(kv_cache *kv, int snap, int seq, kvant_diag *diag);
void kv_snapshot_free(kv_cache *kv, int snap);
/* dst (empty) becomes a copy of src; the caller has checked that a page is free where src ends inside one and
 * pages are not late. */
int kv_seq_fork(kv_cache *kv, int src, int dst, kvant_diag *diag);
int kv_copier_create(kv_cache *kv, kvant_diag *diag);
void kv_copier_free(kv_cache *kv);

/* Bytes that seq takes now: its pages, tail pages and state. */
int64_t kv_seq_bytes(const kv_cache *kv, int seq);

#endif
