/* store_load.c: sequences and the prefix index out of a checked snapshot file.  See store.h. */
#include "cache/store_impl.h"

#include <string.h>

#include "base/mem.h"
#include "cache/host_tier.h"
#include "cache/kv_image.h"

typedef struct snapshot_loader {
    kv_cache *kv;
    reader r;
    uint8_t *buf; /* copy of one payload: the bytes that were checked are the bytes used */
    const uint8_t *at;
} snapshot_loader;

static int loader_begin(snapshot_loader *l, kv_cache *kv, const store_file *f, size_t most, kvant_diag *diag)
{
    *l = (snapshot_loader){ kv, { f->data, f->size, sizeof(store_header), 0, 0 }, NULL, NULL };
    l->buf = kvant_alloc(most);
    return l->buf ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "snapshot: out of memory for %zu bytes", most);
}

static int copy_chunk(snapshot_loader *l, uint32_t type, size_t bytes, kvant_diag *diag)
{
    const uint8_t *p = NULL;
    store_chunk c;

    KVANT_TRY(store_next_chunk(&l->r, type, bytes, &c, &p, diag));
    memcpy(l->buf, p, bytes);
    l->at = l->buf;
    if (store_chunk_crc(&c, l->buf) != c.crc)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: changed while it was read");
    return KVANT_OK;
}

static int scatter(void *ctx, const kv_range *r, kvant_diag *diag)
{
    snapshot_loader *l = ctx;
    KVANT_TRY(kv_range_write(r, l->at, diag));
    l->at += r->bytes;
    return KVANT_OK;
}

int store_pages(const kv_cache *kv, const store_file *f)
{
    return kv_pages_at(kv, f->n_tokens);
}

static int load_sequence(snapshot_loader *l, const store_key *key, int seq, int len, int32_t *tokens, kvant_diag *diag)
{
    kv_cache *kv = l->kv;
    const kv_seq *s = &kv->seqs[seq];

    KVANT_TRY(copy_chunk(l, CHUNK_TOKENS, (size_t)len * sizeof *tokens, diag));
    KVANT_TRY(store_check_tokens(l->buf, len, key->vocab, diag));
    memcpy(tokens, l->buf, (size_t)len * sizeof *tokens);
    for (int p = 0; p < kv_pages_for(len); p++) {
        KVANT_TRY(copy_chunk(l, CHUNK_PAGE, kv_page_image_bytes(kv), diag));
        KVANT_TRY(kv_walk_page(kv, s->table[p], KVANT_PAGE, 0, scatter, l, diag));
    }
    for (int p = kv_image_first_window(kv, len); p < kv_pages_for(len); p++) {
        KVANT_TRY(copy_chunk(l, CHUNK_WINDOW, kv_window_image_bytes(kv), diag));
        KVANT_TRY(kv_walk_window(kv, s->window[p], KVANT_PAGE, 0, scatter, l, diag));
    }
    for (int p = kv_image_next_tail(kv, len, 0); p < kv_pages_for(len); p = kv_image_next_tail(kv, len, p + 1)) {
        KVANT_TRY(copy_chunk(l, CHUNK_TAIL, kv_tail_image_bytes(kv), diag));
        KVANT_TRY(kv_walk_tail(kv, s->tail[p], KVANT_PAGE, scatter, l, diag));
    }
    KVANT_TRY(copy_chunk(l, CHUNK_STATE, kv_state_image_bytes(kv), diag));
    return kv_walk_state(kv, seq, scatter, l, diag);
}

int store_load_sequence(kv_cache *kv, const store_key *key, const store_file *f, int seq, int32_t *tokens,
                        kvant_diag *diag)
{
    const size_t tokens_bytes = (size_t)f->n_tokens * sizeof *tokens, most = store_largest(kv);
    snapshot_loader l;

    KVANT_TRY(loader_begin(&l, kv, f, most > tokens_bytes ? most : tokens_bytes, diag));
    kv_image_reserve(kv, seq, f->n_tokens);
    const int code = load_sequence(&l, key, seq, f->n_tokens, tokens, diag);
    kvant_free(l.buf);
    kv->seqs[seq].len = code == KVANT_OK ? f->n_tokens : 0;
    if (code < 0)
        kv_trim(kv, seq);
    return code;
}

static int load_snap_windows(snapshot_loader *l, int id, int depth, kvant_diag *diag)
{
    kv_cache *kv = l->kv;
    int32_t *window = kv->snap_window + (size_t)id * (size_t)kv_snap_windows(kv);

    for (int j = 0; j < kv_snap_windows(kv); j++) {
        window[j] = j <= depth ? page_pool_take(&kv->windows) : -1;
        if (window[j] < 0 && j <= depth)
            return kvant_fail(diag, KVANT_ENOSPC, "snapshot: no page of a window is free");
        if (window[j] >= 0)
            KVANT_TRY(kv_walk_window(kv, window[j], KVANT_PAGE, 0, scatter, l, diag));
        else
            l->at += kv_window_image_bytes(kv);
    }
    return KVANT_OK;
}

/* The snapshot of a node from the chunk in the buffer; -1: no slot is free, which only costs a hit. */
static int load_snap(snapshot_loader *l, int depth, int *snap, kvant_diag *diag)
{
    kv_cache *kv = l->kv;
    const int id = page_pool_take(&kv->snaps), tails = kv_snap_tails(kv);
    int32_t *tail = kv->snap_tail + (size_t)(id < 0 ? 0 : id) * (size_t)tails;

    *snap = id;
    if (id < 0)
        return KVANT_OK;
    int code = load_snap_windows(l, id, depth, diag);
    for (int j = 0; j < tails && code == KVANT_OK; j++) {
        const int page = kv_snap_tail_page(kv, depth + 1, j);
        tail[j] = page >= 0 ? page_pool_take(&kv->tails) : -1;
        if (tail[j] >= 0)
            code = kv_walk_tail(kv, tail[j], KVANT_PAGE, scatter, l, diag);
        else
            l->at += kv_tail_image_bytes(kv);
        if (tail[j] < 0 && page >= 0)
            code = kvant_fail(diag, KVANT_ENOSPC, "snapshot: no tail page is free");
    }
    if (code == KVANT_OK)
        code = kv_walk_state(kv, kv->cfg.max_seqs + id, scatter, l, diag);
    if (code < 0) {
        kv_snapshot_free(kv, id);
        *snap = -1;
    }
    return code;
}

size_t store_image_bytes(const kv_cache *kv, int what)
{
    return what == BLOCK_PAGE ? kv_page_image_bytes(kv) : store_snap_bytes(kv);
}

int store_write_page(kv_cache *kv, int page, const uint8_t *image, kvant_diag *diag)
{
    snapshot_loader l = { .kv = kv, .at = image };

    return kv_walk_page(kv, page, KVANT_PAGE, 0, scatter, &l, diag);
}

int store_write_snap(kv_cache *kv, int depth, const uint8_t *image, int *snap, kvant_diag *diag)
{
    snapshot_loader l = { .kv = kv, .at = image };

    KVANT_TRY(load_snap(&l, depth, snap, diag));
    return *snap >= 0 ? KVANT_OK : kvant_fail(diag, KVANT_ENOSPC, "snapshot: no place is free");
}

int store_load_block(const kv_cache *kv, const store_file *f, int what, uint8_t *image, kvant_diag *diag)
{
    snapshot_loader l = { .r = { f->data, f->size, sizeof(store_header), 0, 0 }, .buf = image };

    KVANT_TRY(copy_chunk(&l, CHUNK_BLOCK, sizeof(store_block), diag));
    KVANT_TRY(copy_chunk(&l, what == BLOCK_PAGE ? CHUNK_PAGE : CHUNK_STATE, store_image_bytes(kv, what), diag));
    return what == BLOCK_PAGE ? KVANT_OK : store_check_snap(kv, image, diag);
}

static int load_page(snapshot_loader *l, prefix_index *ix, int parent, const store_node *node, int *entered,
                     kvant_diag *diag)
{
    kv_cache *kv = l->kv;

    *entered = prefix_child(ix, parent, node->salt, node->tokens);
    KVANT_TRY(copy_chunk(l, CHUNK_PAGE, kv_page_image_bytes(kv), diag));
    if (*entered >= 0)
        return KVANT_OK;
    const int page = page_pool_take(&kv->pages);
    if (page < 0)
        return KVANT_OK;
    const int code = kv_walk_page(kv, page, KVANT_PAGE, 0, scatter, l, diag);
    if (code == KVANT_OK)
        *entered = prefix_append(ix, parent, node->salt, node->tokens, page);
    page_pool_unref(&kv->pages, page); /* the index has its own reference */
    return code;
}

static int load_node(snapshot_loader *l, prefix_index *ix, int32_t *number, int n, int *n_tokens, kvant_diag *diag)
{
    store_node node;
    int snap = -1;

    KVANT_TRY(copy_chunk(l, CHUNK_NODE, sizeof node, diag));
    memcpy(&node, l->buf, sizeof node);
    if (node.parent < -1 || node.parent >= n)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: changed while it was read");
    const int parent = node.parent < 0 ? -1 : number[node.parent], orphan = node.parent >= 0 && parent < 0;
    const int too_deep = parent >= 0 && ix->nodes[parent].depth + 1 >= ix->kv->stride;
    number[n] = -1;
    if (orphan || too_deep)
        KVANT_TRY(copy_chunk(l, CHUNK_PAGE, kv_page_image_bytes(l->kv), diag));
    else
        KVANT_TRY(load_page(l, ix, parent, &node, &number[n], diag));
    *n_tokens += number[n] >= 0 ? KVANT_PAGE : 0;
    if (!node.has_snap)
        return KVANT_OK;
    KVANT_TRY(copy_chunk(l, CHUNK_STATE, store_snap_bytes(l->kv), diag));
    if (number[n] < 0 || ix->nodes[number[n]].snap >= 0)
        return KVANT_OK;
    KVANT_TRY(load_snap(l, ix->nodes[number[n]].depth, &snap, diag));
    prefix_give_snap(ix, number[n], snap);
    return KVANT_OK;
}

int store_load_prefix(prefix_index *ix, const store_key *key, const store_file *f, int *n_tokens, kvant_diag *diag)
{
    const size_t most = store_largest(ix->kv);
    int32_t *number = kvant_calloc((size_t)f->n_chunks + 1, sizeof *number);
    snapshot_loader l;
    int code;

    (void)key; /* compared by store_open */
    *n_tokens = 0;
    if (!number)
        return kvant_fail(diag, KVANT_ENOMEM, "snapshot: out of memory");
    code = loader_begin(&l, ix->kv, f, most > sizeof(store_node) ? most : sizeof(store_node), diag);
    for (int n = 0; code == KVANT_OK && l.r.n < (uint32_t)f->n_chunks; n++)
        code = load_node(&l, ix, number, n, n_tokens, diag);
    prefix_trim(ix);
    kvant_free(l.buf);
    kvant_free(number);
    return code;
}
