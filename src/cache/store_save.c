/* store_save.c: writing snapshot files.  See store.h and docs/snapshot.md. */
#include "cache/store_impl.h"

#include <string.h>

#include "base/file/crc32c.h"
#include "base/file/file_out.h"
#include "base/mem.h"
#include "cache/host_tier.h"
#include "cache/kv_image.h"

typedef struct snapshot_writer {
    const kv_cache *kv;
    file_out out;
    uint8_t *buf, *at; /* one chunk's payload */
    size_t cap;
    uint32_t n, crc;
} snapshot_writer;

static int put_chunk(snapshot_writer *w, uint32_t type, const void *payload, size_t bytes, kvant_diag *diag)
{
    store_chunk c = { type, w->n++, bytes, 0, 0 };

    c.crc = store_chunk_crc(&c, payload);
    w->crc = crc32c(w->crc, &c.crc, sizeof c.crc);
    KVANT_TRY(file_out_write(&w->out, &c, sizeof c, diag));
    return file_out_write(&w->out, payload, bytes, diag);
}

static int gather(void *ctx, const kv_range *r, kvant_diag *diag)
{
    snapshot_writer *w = ctx;
    KVANT_TRY(kv_range_read(r, w->at, diag));
    w->at += r->bytes;
    return KVANT_OK;
}

static int flush_chunk(snapshot_writer *w, uint32_t type, kvant_diag *diag)
{
    const size_t bytes = (size_t)(w->at - w->buf);
    w->at = w->buf;
    return put_chunk(w, type, w->buf, bytes, diag);
}

static int put_page(snapshot_writer *w, int page, int rows, kvant_diag *diag)
{
    KVANT_TRY(kv_walk_page(w->kv, page, rows, rows < KVANT_PAGE, gather, w, diag));
    return flush_chunk(w, CHUNK_PAGE, diag);
}

static int writer_begin(snapshot_writer *w, const kv_cache *kv, int dir, const char *name, store_header *h,
                        kvant_diag *diag)
{
    memset(w, 0, sizeof *w);
    w->out.fd = -1;
    w->kv = kv;
    w->cap = store_largest(kv);
    w->buf = w->at = kvant_alloc(w->cap);
    if (!w->buf)
        return kvant_fail(diag, KVANT_ENOMEM, "snapshot: out of memory for %zu bytes", w->cap);
    const int code = file_out_begin(dir, name, &w->out, diag);
    if (code < 0) {
        kvant_free(w->buf);
        return code;
    }
    h->crc = crc32c(0, h, sizeof *h - sizeof h->crc);
    return file_out_write(&w->out, h, sizeof *h, diag);
}

static int writer_end(snapshot_writer *w, int code, int64_t *bytes, kvant_diag *diag)
{
    const uint32_t all = w->crc;

    if (code == KVANT_OK)
        code = put_chunk(w, CHUNK_END, &all, sizeof all, diag);
    if (code == KVANT_OK)
        code = file_out_commit(&w->out, diag);
    if (code == KVANT_OK)
        *bytes = w->out.bytes;
    file_out_abort(&w->out);
    kvant_free(w->buf);
    return code;
}

store_header store_header_for(const kv_cache *kv, const store_key *key, int kind)
{
    store_header h = { .version = STORE_VERSION,
                       .endian = 0x01020304,
                       .kind = (uint32_t)kind,
                       .page_tokens = KVANT_PAGE,
                       .page_bytes = kv_page_image_bytes(kv),
                       .tail_bytes = kv_tail_image_bytes(kv),
                       .state_bytes = kv_state_image_bytes(kv),
                       .state_type = store_state_type(kv) };
    memcpy(h.magic, store_magic, sizeof h.magic);
    memcpy(h.fingerprint, key->fingerprint, sizeof h.fingerprint);
    if (kind == STORE_SEQUENCE)
        memcpy(h.salt, key->salt, sizeof h.salt);
    return h;
}

static int put_sequence(snapshot_writer *w, int seq, const int32_t *tokens, kvant_diag *diag)
{
    const kv_cache *kv = w->kv;
    const kv_seq *s = &kv->seqs[seq];

    KVANT_TRY(kv_settle(kv, seq, diag));
    KVANT_TRY(put_chunk(w, CHUNK_TOKENS, tokens, (size_t)s->len * sizeof *tokens, diag));
    for (int p = 0; p < kv_pages_for(s->len); p++) {
        const int rows = s->len - p * KVANT_PAGE;
        KVANT_TRY(put_page(w, s->table[p], rows < KVANT_PAGE ? rows : KVANT_PAGE, diag));
    }
    for (int p = kv_image_first_window(kv, s->len); p < kv_pages_for(s->len); p++) {
        const int rows = s->len - p * KVANT_PAGE, open = rows < KVANT_PAGE;
        KVANT_TRY(kv_walk_window(kv, s->window[p], open ? rows : KVANT_PAGE, open, gather, w, diag));
        KVANT_TRY(flush_chunk(w, CHUNK_WINDOW, diag));
    }
    for (int p = kv_image_next_tail(kv, s->len, 0); p < kv_pages_for(s->len);
         p = kv_image_next_tail(kv, s->len, p + 1)) {
        const int rows = s->len - p * KVANT_PAGE;
        KVANT_TRY(kv_walk_tail(kv, s->tail[p], rows < KVANT_PAGE ? rows : KVANT_PAGE, gather, w, diag));
        KVANT_TRY(flush_chunk(w, CHUNK_TAIL, diag));
    }
    KVANT_TRY(kv_walk_state(kv, seq, gather, w, diag));
    return flush_chunk(w, CHUNK_STATE, diag);
}

uint64_t store_whole_bytes(uint64_t payload, uint32_t n_chunks)
{
    return payload + sizeof(store_header) + sizeof(store_chunk) * ((uint64_t)n_chunks + 1) + sizeof(uint32_t);
}

static store_header sequence_header(const kv_cache *kv, const store_key *key, int seq)
{
    const int len = kv->seqs[seq].len;
    store_header h = store_header_for(kv, key, STORE_SEQUENCE);

    h.n_tokens = (uint32_t)len;
    h.n_chunks = (uint32_t)store_chunk_count(kv, len);
    h.file_bytes = store_whole_bytes((uint64_t)len * sizeof(int32_t) + kv_image_bytes(kv, len), h.n_chunks);
    return h;
}

int64_t store_sequence_bytes(const kv_cache *kv, int seq)
{
    const store_key none = { .vocab = 0 };
    return (int64_t)sequence_header(kv, &none, seq).file_bytes;
}

int store_save_sequence(const kv_cache *kv, const store_key *key, int seq, const int32_t *tokens, int dir,
                        const char *name, int64_t *bytes, kvant_diag *diag)
{
    store_header h = sequence_header(kv, key, seq);
    snapshot_writer w;

    int code = writer_begin(&w, kv, dir, name, &h, diag);
    if (!w.buf || w.out.fd < 0)
        return code;
    if (code == KVANT_OK)
        code = put_sequence(&w, seq, tokens, diag);
    return writer_end(&w, code, bytes, diag);
}

static int put_snap(snapshot_writer *w, int snap, kvant_diag *diag)
{
    const kv_cache *kv = w->kv;
    const int32_t *tail = kv->snap_tail + (size_t)snap * (size_t)kv_snap_tails(kv);
    const int32_t *window = kv->snap_window + (size_t)snap * (size_t)kv_snap_windows(kv);
    memset(w->buf, 0, store_snap_bytes(kv));
    for (int j = 0; j < kv_snap_windows(kv); j++) {
        if (window[j] >= 0)
            KVANT_TRY(kv_walk_window(kv, window[j], KVANT_PAGE, 0, gather, w, diag));
        else
            w->at += kv_window_image_bytes(kv);
    }
    for (int j = 0; j < kv_snap_tails(kv); j++) {
        if (tail[j] >= 0)
            KVANT_TRY(kv_walk_tail(kv, tail[j], KVANT_PAGE, gather, w, diag));
        else
            w->at += kv_tail_image_bytes(kv); /* no such page: zeros */
    }
    return kv_walk_state(kv, kv->cfg.max_seqs + snap, gather, w, diag);
}

int store_read_image(const kv_cache *kv, int what, int number, uint8_t *image, kvant_diag *diag)
{
    snapshot_writer w = { .kv = kv, .buf = image, .at = image };

    return what == BLOCK_PAGE ? kv_walk_page(kv, number, KVANT_PAGE, 0, gather, &w, diag) : put_snap(&w, number, diag);
}

static int put_node(snapshot_writer *w, const prefix_index *ix, int i, const int32_t *number, kvant_diag *diag)
{
    const prefix_node *n = &ix->nodes[i];
    store_node s = { .parent = n->parent < 0 ? -1 : number[n->parent], .has_snap = n->snap >= 0 };

    memcpy(s.salt, n->salt, sizeof s.salt);
    memcpy(s.tokens, n->tokens, sizeof s.tokens);
    KVANT_TRY(put_chunk(w, CHUNK_NODE, &s, sizeof s, diag));
    KVANT_TRY(put_page(w, n->page, KVANT_PAGE, diag));
    if (n->snap < 0)
        return KVANT_OK;
    KVANT_TRY(put_snap(w, n->snap, diag));
    return flush_chunk(w, CHUNK_STATE, diag);
}

static store_header prefix_header(const prefix_index *ix, const store_key *key)
{
    store_header h = store_header_for(ix->kv, key, STORE_PREFIX);
    uint64_t nodes = 0, snaps = 0;

    for (int i = ix->newest; i >= 0; i = ix->nodes[i].older) {
        nodes++;
        snaps += ix->nodes[i].snap >= 0;
    }
    h.n_chunks = (uint32_t)(2 * nodes + snaps);
    h.file_bytes = store_whole_bytes(nodes * (sizeof(store_node) + h.page_bytes) + snaps * store_snap_bytes(ix->kv),
                               h.n_chunks);
    return h;
}

int64_t store_prefix_bytes(const prefix_index *ix)
{
    const store_key none = { .vocab = 0 };
    return (int64_t)prefix_header(ix, &none).file_bytes;
}

/* Newest first: parents before their children (prefix.c). */
int store_save_prefix(const prefix_index *ix, const store_key *key, int dir, const char *name, int64_t *bytes,
                      kvant_diag *diag)
{
    const kv_cache *kv = ix->kv;
    store_header h = prefix_header(ix, key);
    int32_t *number = kvant_calloc((size_t)kv->pages.n + 1, sizeof *number), n = 0;
    snapshot_writer w;

    if (!number)
        return kvant_fail(diag, KVANT_ENOMEM, "snapshot: out of memory");
    for (int i = ix->newest; i >= 0; i = ix->nodes[i].older)
        number[i] = n++;
    int code = writer_begin(&w, kv, dir, name, &h, diag);
    for (int i = ix->newest; i >= 0 && code == KVANT_OK; i = ix->nodes[i].older)
        code = put_node(&w, ix, i, number, diag);
    kvant_free(number);
    if (!w.buf || w.out.fd < 0)
        return code;
    return writer_end(&w, code, bytes, diag);
}

int64_t store_block_bytes(const kv_cache *kv, int what)
{
    return (int64_t)store_whole_bytes(sizeof(store_block) + store_image_bytes(kv, what), 2);
}

int store_save_block(const kv_cache *kv, const store_key *key, const uint8_t *image, int dir, const char *name,
                     kvant_diag *diag)
{
    store_block b = { .what = key->what };
    store_header h = store_header_for(kv, key, STORE_BLOCK);
    int64_t bytes;
    snapshot_writer w;

    memcpy(b.id, key->block, sizeof b.id);
    h.n_chunks = 2;
    h.file_bytes = (uint64_t)store_block_bytes(kv, key->what);
    int code = writer_begin(&w, kv, dir, name, &h, diag);
    if (!w.buf || w.out.fd < 0)
        return code;
    if (code == KVANT_OK)
        code = put_chunk(&w, CHUNK_BLOCK, &b, sizeof b, diag);
    if (code == KVANT_OK)
        code = put_chunk(&w, key->what == BLOCK_PAGE ? CHUNK_PAGE : CHUNK_STATE, image,
                         store_image_bytes(kv, key->what), diag);
    return writer_end(&w, code, &bytes, diag);
}
