/* store.c: writing snapshot files, and checking and reading them.  See store.h and docs/snapshot.md.
 *
 * Every number in a file is little-endian; kvant runs on little-endian machines only, and the header says so. */
#include "cache/store.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/file_out.h"
#include "base/half.h"
#include "base/mem.h"
#include "cache/kv_image.h"

enum { CHUNK_TOKENS = 1, CHUNK_PAGE = 2, CHUNK_TAIL = 3, CHUNK_STATE = 4, CHUNK_NODE = 5, CHUNK_END = 9 };

static const char store_magic[8] = "KVANTSNP";

typedef struct store_header {
    char magic[8];
    uint32_t version, endian, kind, page_tokens;
    unsigned char fingerprint[STORE_FINGERPRINT], salt[PREFIX_SALT];
    uint32_t n_tokens, n_chunks; /* the end chunk not counted */
    uint64_t file_bytes, page_bytes, tail_bytes, state_bytes;
    uint32_t state_type, zero[2], crc; /* enum kvant_state_type; crc: of all before it */
} store_header;

_Static_assert(sizeof(store_header) == 128, "docs/snapshot.md");

typedef struct store_chunk {
    uint32_t type, index;
    uint64_t bytes;
    uint32_t crc, zero; /* of type, index, bytes and the payload */
} store_chunk;

_Static_assert(sizeof(store_chunk) == 24, "docs/snapshot.md");

typedef struct store_node {
    int32_t parent; /* number of an earlier node, -1: none */
    int32_t has_snap;
    unsigned char salt[PREFIX_SALT];
    int32_t tokens[KVANT_PAGE];
} store_node;

static size_t snap_bytes(const kv_cache *kv)
{
    const size_t tails = kv->tail_pages > 1 ? (size_t)(kv->tail_pages - 1) : 0;
    return tails * kv_tail_image_bytes(kv) + kv_state_image_bytes(kv);
}

/* A cache without recurrent layers has states of no type. */
static uint32_t state_type(const kv_cache *kv)
{
    return kv_state_image_bytes(kv) > 0 ? (uint32_t)kv->cfg.state_type : KVANT_STATE_F32;
}

static uint32_t chunk_crc(const store_chunk *c, const void *payload)
{
    return crc32c(crc32c(0, c, 16), payload, (size_t)c->bytes);
}

/* ---- writing ---- */

typedef struct writer {
    const kv_cache *kv;
    file_out out;
    uint8_t *buf, *at; /* one chunk's payload */
    size_t cap;
    uint32_t n, crc;
} writer;

static int put_chunk(writer *w, uint32_t type, const void *payload, size_t bytes, kvant_diag *diag)
{
    store_chunk c = { type, w->n++, bytes, 0, 0 };

    c.crc = chunk_crc(&c, payload);
    w->crc = crc32c(w->crc, &c.crc, sizeof c.crc);
    KVANT_TRY(file_out_write(&w->out, &c, sizeof c, diag));
    return file_out_write(&w->out, payload, bytes, diag);
}

static int gather(void *ctx, const kv_range *r, kvant_diag *diag)
{
    writer *w = ctx;
    KVANT_TRY(kv_range_read(w->kv, r, w->at, diag));
    w->at += r->bytes;
    return KVANT_OK;
}

static int flush_chunk(writer *w, uint32_t type, kvant_diag *diag)
{
    const size_t bytes = (size_t)(w->at - w->buf);
    w->at = w->buf;
    return put_chunk(w, type, w->buf, bytes, diag);
}

static int put_page(writer *w, int page, int rows, kvant_diag *diag)
{
    KVANT_TRY(kv_walk_page(w->kv, page, rows, rows < KVANT_PAGE, gather, w, diag));
    return flush_chunk(w, CHUNK_PAGE, diag);
}

static size_t largest(const kv_cache *kv)
{
    size_t most = kv_page_image_bytes(kv),
           others[] = { kv_tail_image_bytes(kv), kv_state_image_bytes(kv), snap_bytes(kv) };
    for (int i = 0; i < 3; i++)
        most = others[i] > most ? others[i] : most;
    return most;
}

static int writer_begin(writer *w, const kv_cache *kv, const char *dir, const char *name, store_header *h,
                        kvant_diag *diag)
{
    memset(w, 0, sizeof *w);
    w->kv = kv;
    w->cap = largest(kv);
    w->buf = w->at = kvant_alloc(w->cap);
    if (!w->buf)
        return kvant_fail(diag, KVANT_ENOMEM, "snapshot: out of memory for %zu bytes", w->cap);
    const int code = file_out_begin(dir, name, &w->out, diag);
    if (code < 0) {
        kvant_free(w->buf);
        return code;
    }
    h->file_bytes += sizeof *h + sizeof(store_chunk) * ((uint64_t)h->n_chunks + 1) + sizeof w->crc;
    h->crc = crc32c(0, h, sizeof *h - sizeof h->crc);
    return file_out_write(&w->out, h, sizeof *h, diag);
}

static int writer_end(writer *w, int code, int64_t *bytes, kvant_diag *diag)
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

static store_header header_for(const kv_cache *kv, const store_key *key, int kind)
{
    store_header h = { .version = STORE_VERSION,
                       .endian = 0x01020304,
                       .kind = (uint32_t)kind,
                       .page_tokens = KVANT_PAGE,
                       .page_bytes = kv_page_image_bytes(kv),
                       .tail_bytes = kv_tail_image_bytes(kv),
                       .state_bytes = kv_state_image_bytes(kv),
                       .state_type = state_type(kv) };
    memcpy(h.magic, store_magic, sizeof h.magic);
    memcpy(h.fingerprint, key->fingerprint, sizeof h.fingerprint);
    if (kind == STORE_SEQUENCE)
        memcpy(h.salt, key->salt, sizeof h.salt);
    return h;
}

static int put_sequence(writer *w, int seq, const int32_t *tokens, kvant_diag *diag)
{
    const kv_cache *kv = w->kv;
    const kv_seq *s = &kv->seqs[seq];

    KVANT_TRY(put_chunk(w, CHUNK_TOKENS, tokens, (size_t)s->len * sizeof *tokens, diag));
    for (int p = 0; p < kv_pages_for(s->len); p++) {
        const int rows = s->len - p * KVANT_PAGE;
        KVANT_TRY(put_page(w, s->table[p], rows < KVANT_PAGE ? rows : KVANT_PAGE, diag));
    }
    for (int p = kv_image_first_tail(kv, s->len); p < kv_pages_for(s->len); p++) {
        const int rows = s->len - p * KVANT_PAGE;
        KVANT_TRY(kv_walk_tail(kv, s->tail[p], rows < KVANT_PAGE ? rows : KVANT_PAGE, gather, w, diag));
        KVANT_TRY(flush_chunk(w, CHUNK_TAIL, diag));
    }
    KVANT_TRY(kv_walk_state(kv, seq, gather, w, diag));
    return flush_chunk(w, CHUNK_STATE, diag);
}

static int tail_count(const kv_cache *kv, int len)
{
    const int n = kv_pages_for(len) - kv_image_first_tail(kv, len);
    return n > 0 ? n : 0;
}

int store_save_sequence(const kv_cache *kv, const store_key *key, int seq, const int32_t *tokens, const char *dir,
                        const char *name, int64_t *bytes, kvant_diag *diag)
{
    const int len = kv->seqs[seq].len;
    store_header h = header_for(kv, key, STORE_SEQUENCE);
    writer w;

    h.n_tokens = (uint32_t)len;
    h.n_chunks = (uint32_t)(2 + kv_pages_for(len) + tail_count(kv, len));
    h.file_bytes = (uint64_t)len * sizeof *tokens + kv_image_bytes(kv, len);
    int code = writer_begin(&w, kv, dir, name, &h, diag);
    if (!w.buf || w.out.dir < 0)
        return code;
    if (code == KVANT_OK)
        code = put_sequence(&w, seq, tokens, diag);
    return writer_end(&w, code, bytes, diag);
}

static int put_node(writer *w, const prefix_index *ix, int i, const int32_t *number, kvant_diag *diag)
{
    const prefix_node *n = &ix->nodes[i];
    store_node s = { .parent = n->parent < 0 ? -1 : number[n->parent], .has_snap = n->snap >= 0 };

    memcpy(s.salt, n->salt, sizeof s.salt);
    memcpy(s.tokens, n->tokens, sizeof s.tokens);
    KVANT_TRY(put_chunk(w, CHUNK_NODE, &s, sizeof s, diag));
    KVANT_TRY(put_page(w, n->page, KVANT_PAGE, diag));
    if (n->snap < 0)
        return KVANT_OK;
    const int32_t *tail = ix->kv->snap_tail + (size_t)n->snap * (size_t)(ix->kv->tail_pages + 1);
    memset(w->buf, 0, snap_bytes(ix->kv));
    for (int j = 0; j < ix->kv->tail_pages - 1; j++) {
        if (tail[j] >= 0)
            KVANT_TRY(kv_walk_tail(ix->kv, tail[j], KVANT_PAGE, gather, w, diag));
        else
            w->at += kv_tail_image_bytes(ix->kv); /* before the first token: zeros */
    }
    KVANT_TRY(kv_walk_state(ix->kv, ix->kv->cfg.max_seqs + n->snap, gather, w, diag));
    return flush_chunk(w, CHUNK_STATE, diag);
}

/* Newest first: parents before their children (prefix.c). */
int store_save_prefix(const prefix_index *ix, const store_key *key, const char *dir, const char *name, int64_t *bytes,
                      kvant_diag *diag)
{
    const kv_cache *kv = ix->kv;
    store_header h = header_for(kv, key, STORE_PREFIX);
    int32_t *number = kvant_calloc((size_t)kv->pages.n + 1, sizeof *number), n = 0, snaps = 0;
    writer w;

    if (!number)
        return kvant_fail(diag, KVANT_ENOMEM, "snapshot: out of memory");
    for (int i = ix->newest; i >= 0; i = ix->nodes[i].older) {
        number[i] = n++;
        snaps += ix->nodes[i].snap >= 0;
    }
    h.n_chunks = (uint32_t)(2 * n + snaps);
    h.file_bytes = (uint64_t)n * (sizeof(store_node) + h.page_bytes) + (uint64_t)snaps * snap_bytes(kv);
    int code = writer_begin(&w, kv, dir, name, &h, diag);
    for (int i = ix->newest; i >= 0 && code == KVANT_OK; i = ix->nodes[i].older)
        code = put_node(&w, ix, i, number, diag);
    kvant_free(number);
    if (!w.buf || w.out.dir < 0)
        return code;
    return writer_end(&w, code, bytes, diag);
}

/* ---- checking ---- */

static int bad(kvant_diag *diag, const char *what, uint64_t found, uint64_t wanted)
{
    return kvant_fail(diag, KVANT_EFORMAT, "snapshot: %s is %llu, wanted %llu", what, (unsigned long long)found,
                      (unsigned long long)wanted);
}

static const char *state_name(uint32_t type)
{
    return type == KVANT_STATE_F32 ? "f32" : type == KVANT_STATE_BF16 ? "bf16" : "of an unknown type";
}

static int check_header(const kv_cache *kv, const store_key *key, int kind, const store_header *h, size_t size,
                        kvant_diag *diag)
{
    if (memcmp(h->magic, store_magic, sizeof h->magic) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: not a snapshot file (its first 8 bytes)");
    if (h->version != STORE_VERSION)
        return bad(diag, "the version", h->version, STORE_VERSION);
    if (h->endian != 0x01020304)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: written on a machine of the other byte order");
    if (h->crc != crc32c(0, h, sizeof *h - sizeof h->crc))
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: the header is damaged (checksum)");
    if (h->file_bytes != size)
        return bad(diag, "the file's size", size, h->file_bytes);
    if (h->kind != (uint32_t)kind)
        return bad(diag, "the kind (1 sequence, 2 prefix cache)", h->kind, (uint64_t)kind);
    if (h->page_tokens != KVANT_PAGE)
        return bad(diag, "the page size in tokens", h->page_tokens, KVANT_PAGE);
    if (memcmp(h->fingerprint, key->fingerprint, sizeof h->fingerprint) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: made with another model or other cache formats");
    if (kind == STORE_SEQUENCE && memcmp(h->salt, key->salt, sizeof h->salt) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: belongs to another key");
    if (h->state_type != state_type(kv))
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: its recurrent states are %s, wanted %s",
                          state_name(h->state_type), state_name(state_type(kv)));
    if (h->page_bytes != kv_page_image_bytes(kv) || h->tail_bytes != kv_tail_image_bytes(kv) ||
        h->state_bytes != kv_state_image_bytes(kv))
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: pages or states of another size");
    if (h->zero[0] | h->zero[1])
        return bad(diag, "a reserved field", h->zero[0] | h->zero[1], 0);
    return KVANT_OK;
}

/* Walks the chunks; next_chunk gives the payload of the next one if it is of the type and size wanted. */
typedef struct reader {
    const uint8_t *data;
    size_t size, at;
    uint32_t n, crc;
} reader;

static int next_chunk(reader *r, uint32_t type, size_t bytes, store_chunk *c, const uint8_t **payload, kvant_diag *diag)
{
    if (r->size - r->at < sizeof *c)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: ends inside chunk %u", r->n);
    memcpy(c, r->data + r->at, sizeof *c);
    if (c->type != type || c->index != r->n || c->zero != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: chunk %u is of type %u, number %u; wanted type %u", r->n,
                          c->type, c->index, type);
    if (c->bytes != bytes || c->bytes > r->size - r->at - sizeof *c)
        return bad(diag, "the size of a chunk", c->bytes, bytes);
    *payload = r->data + r->at + sizeof *c;
    r->at += sizeof *c + bytes;
    r->n++;
    r->crc = crc32c(r->crc, &c->crc, sizeof c->crc);
    return KVANT_OK;
}

static int check_chunk(reader *r, uint32_t type, size_t bytes, const uint8_t **payload, kvant_diag *diag)
{
    store_chunk c;

    KVANT_TRY(next_chunk(r, type, bytes, &c, payload, diag));
    if (chunk_crc(&c, *payload) != c.crc)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: chunk %u is damaged (checksum)", c.index);
    return KVANT_OK;
}

static int check_tokens(const uint8_t *payload, int n, int vocab, kvant_diag *diag)
{
    for (int i = 0; i < n; i++) {
        int32_t t;
        memcpy(&t, payload + (size_t)i * sizeof t, sizeof t);
        if (t < 0 || t >= vocab)
            return kvant_fail(diag, KVANT_EFORMAT, "snapshot: token %d is %d, wanted 0 to %d", i, t, vocab - 1);
    }
    return KVANT_OK;
}

/* Values of f32, or of bf16, which is the upper half of one. */
static int check_values(const uint8_t *p, size_t bytes, size_t value_bytes, kvant_diag *diag)
{
    for (size_t i = 0; i + value_bytes <= bytes; i += value_bytes) {
        const uint8_t *top = p + i + value_bytes - 2;
        if ((top[1] & 0x7F) == 0x7F && (top[0] & 0x80))
            return kvant_fail(diag, KVANT_EFORMAT, "snapshot: a state holds a value that is not a finite number");
    }
    return KVANT_OK;
}

/* The state and the conv window of every recurrent layer. */
static int check_finite(const kv_cache *kv, const uint8_t *p, kvant_diag *diag)
{
    const kv_config *cfg = &kv->cfg;

    for (int l = 0; l < cfg->n_layer; l++) {
        if (cfg->is_attn[l])
            continue;
        KVANT_TRY(check_values(p, kv_state_bytes(cfg), kvant_state_bytes(cfg->state_type), diag));
        p += kv_state_bytes(cfg);
        KVANT_TRY(check_values(p, kv_conv_bytes(cfg), sizeof(float), diag));
        p += kv_conv_bytes(cfg);
    }
    return KVANT_OK;
}

static int check_halves(const uint8_t *rows, size_t bytes, kvant_diag *diag)
{
    for (size_t i = 0; i + 2 <= bytes; i += 2)
        if ((rows[i + 1] & 0x7C) == 0x7C)
            return kvant_fail(diag, KVANT_EFORMAT, "snapshot: the tail holds a value that is not a finite number");
    return KVANT_OK;
}

static int check_sequence(const kv_cache *kv, const store_key *key, const store_header *h, reader *r, kvant_diag *diag)
{
    const uint8_t *p;

    if (h->n_tokens < 1 || h->n_tokens > (uint32_t)kv->cfg.n_ctx)
        return bad(diag, "the number of tokens", h->n_tokens, (uint64_t)kv->cfg.n_ctx);
    const int len = (int)h->n_tokens;
    if (h->n_chunks != (uint32_t)(2 + kv_pages_for(len) + tail_count(kv, len)))
        return bad(diag, "the number of chunks", h->n_chunks, (uint64_t)(2 + kv_pages_for(len) + tail_count(kv, len)));
    KVANT_TRY(check_chunk(r, CHUNK_TOKENS, (size_t)len * sizeof(int32_t), &p, diag));
    KVANT_TRY(check_tokens(p, len, key->vocab, diag));
    for (int i = 0; i < kv_pages_for(len); i++)
        KVANT_TRY(check_chunk(r, CHUNK_PAGE, (size_t)h->page_bytes, &p, diag));
    for (int i = 0; i < tail_count(kv, len); i++) {
        KVANT_TRY(check_chunk(r, CHUNK_TAIL, (size_t)h->tail_bytes, &p, diag));
        KVANT_TRY(check_halves(p, (size_t)h->tail_bytes, diag));
    }
    KVANT_TRY(check_chunk(r, CHUNK_STATE, (size_t)h->state_bytes, &p, diag));
    return check_finite(kv, p, diag);
}

static int check_nodes(const kv_cache *kv, const store_key *key, const store_header *h, reader *r, kvant_diag *diag)
{
    const size_t tails = snap_bytes(kv) - kv_state_image_bytes(kv);
    const uint8_t *p;
    store_node node;

    for (int n = 0; r->n < h->n_chunks; n++) {
        KVANT_TRY(check_chunk(r, CHUNK_NODE, sizeof node, &p, diag));
        memcpy(&node, p, sizeof node);
        if (node.parent < -1 || node.parent >= n || node.has_snap < 0 || node.has_snap > 1)
            return kvant_fail(diag, KVANT_EFORMAT, "snapshot: node %d has the parent %d", n, node.parent);
        KVANT_TRY(check_tokens((const uint8_t *)node.tokens, KVANT_PAGE, key->vocab, diag));
        KVANT_TRY(check_chunk(r, CHUNK_PAGE, (size_t)h->page_bytes, &p, diag));
        if (!node.has_snap)
            continue;
        KVANT_TRY(check_chunk(r, CHUNK_STATE, snap_bytes(kv), &p, diag));
        KVANT_TRY(check_halves(p, tails, diag));
        KVANT_TRY(check_finite(kv, p + tails, diag));
    }
    return r->n == h->n_chunks ? KVANT_OK : bad(diag, "the number of chunks", r->n, h->n_chunks);
}

static int check_end(reader *r, kvant_diag *diag)
{
    const uint32_t all = r->crc;
    const uint8_t *p;

    KVANT_TRY(check_chunk(r, CHUNK_END, sizeof all, &p, diag));
    if (memcmp(p, &all, sizeof all) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: chunks are missing or exchanged (checksum of the whole)");
    return r->at == r->size ? KVANT_OK : bad(diag, "the end of the last chunk", r->at, r->size);
}

int store_open_bytes(const kv_cache *kv, const store_key *key, int kind, const void *data, size_t size, store_file *f,
                     kvant_diag *diag)
{
    reader r = { data, size, sizeof(store_header), 0, 0 };
    store_header h;

    memset(f, 0, sizeof *f);
    if (size < sizeof h)
        return bad(diag, "the file's size", size, sizeof h);
    memcpy(&h, data, sizeof h);
    KVANT_TRY(check_header(kv, key, kind, &h, size, diag));
    KVANT_TRY((kind == STORE_SEQUENCE ? check_sequence : check_nodes)(kv, key, &h, &r, diag));
    KVANT_TRY(check_end(&r, diag));
    f->data = data;
    f->size = size;
    f->kind = kind;
    f->n_tokens = (int)h.n_tokens;
    f->n_chunks = (int)h.n_chunks;
    return KVANT_OK;
}

int store_open(const kv_cache *kv, const store_key *key, int kind, const char *dir, const char *name, store_file *f,
               kvant_diag *diag)
{
    mapped_file map;

    KVANT_TRY(file_map_in(dir, name, &map, diag));
    int code = store_open_bytes(kv, key, kind, map.data, map.size, f, diag);
    if (code == KVANT_OK && file_poisoned(&map))
        code = kvant_fail(diag, KVANT_EFORMAT, "snapshot: the file was cut while it was read");
    if (code < 0)
        file_unmap(&map);
    else
        f->map = map;
    return code;
}

void store_close(store_file *f)
{
    file_unmap(&f->map);
    memset(f, 0, sizeof *f);
}

/* ---- loading ---- */

typedef struct loader {
    kv_cache *kv;
    reader r;
    uint8_t *buf; /* copy of one payload: the bytes that were checked are the bytes used */
    const uint8_t *at;
} loader;

static int loader_begin(loader *l, kv_cache *kv, const store_file *f, size_t most, kvant_diag *diag)
{
    *l = (loader){ kv, { f->data, f->size, sizeof(store_header), 0, 0 }, NULL, NULL };
    l->buf = kvant_alloc(most);
    return l->buf ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "snapshot: out of memory for %zu bytes", most);
}

static int copy_chunk(loader *l, uint32_t type, size_t bytes, kvant_diag *diag)
{
    const uint8_t *p = NULL;
    store_chunk c;

    KVANT_TRY(next_chunk(&l->r, type, bytes, &c, &p, diag));
    memcpy(l->buf, p, bytes);
    l->at = l->buf;
    if (chunk_crc(&c, l->buf) != c.crc)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: changed while it was read");
    return KVANT_OK;
}

static int scatter(void *ctx, const kv_range *r, kvant_diag *diag)
{
    loader *l = ctx;
    KVANT_TRY(kv_range_write(l->kv, r, l->at, diag));
    l->at += r->bytes;
    return KVANT_OK;
}

int store_pages(const kv_cache *kv, const store_file *f)
{
    return kv_pages_at(kv, f->n_tokens);
}

static int load_sequence(loader *l, const store_key *key, int seq, int len, int32_t *tokens, kvant_diag *diag)
{
    kv_cache *kv = l->kv;
    const kv_seq *s = &kv->seqs[seq];

    KVANT_TRY(copy_chunk(l, CHUNK_TOKENS, (size_t)len * sizeof *tokens, diag));
    KVANT_TRY(check_tokens(l->buf, len, key->vocab, diag));
    memcpy(tokens, l->buf, (size_t)len * sizeof *tokens);
    for (int p = 0; p < kv_pages_for(len); p++) {
        KVANT_TRY(copy_chunk(l, CHUNK_PAGE, kv_page_image_bytes(kv), diag));
        KVANT_TRY(kv_walk_page(kv, s->table[p], KVANT_PAGE, 0, scatter, l, diag));
    }
    for (int p = kv_image_first_tail(kv, len); p < kv_pages_for(len); p++) {
        KVANT_TRY(copy_chunk(l, CHUNK_TAIL, kv_tail_image_bytes(kv), diag));
        KVANT_TRY(kv_walk_tail(kv, s->tail[p], KVANT_PAGE, scatter, l, diag));
    }
    KVANT_TRY(copy_chunk(l, CHUNK_STATE, kv_state_image_bytes(kv), diag));
    return kv_walk_state(kv, seq, scatter, l, diag);
}

int store_load_sequence(kv_cache *kv, const store_key *key, const store_file *f, int seq, int32_t *tokens,
                        kvant_diag *diag)
{
    const size_t tokens_bytes = (size_t)f->n_tokens * sizeof *tokens, most = largest(kv);
    loader l;

    KVANT_TRY(loader_begin(&l, kv, f, most > tokens_bytes ? most : tokens_bytes, diag));
    kv_image_reserve(kv, seq, f->n_tokens);
    const int code = load_sequence(&l, key, seq, f->n_tokens, tokens, diag);
    kvant_free(l.buf);
    kv->seqs[seq].len = code == KVANT_OK ? f->n_tokens : 0;
    if (code < 0)
        kv_trim(kv, seq);
    return code;
}

/* The snapshot of a node from the chunk in the buffer; -1: no slot is free, which only costs a hit. */
static int load_snap(loader *l, int depth, int *snap, kvant_diag *diag)
{
    kv_cache *kv = l->kv;
    const int id = page_pool_take(&kv->snaps), tails = kv->tail_pages > 1 ? kv->tail_pages - 1 : 0;
    int32_t *tail = kv->snap_tail + (size_t)(id < 0 ? 0 : id) * (size_t)(kv->tail_pages + 1);
    int code = KVANT_OK;

    *snap = id;
    if (id < 0)
        return KVANT_OK;
    for (int j = 0; j < tails && code == KVANT_OK; j++) {
        tail[j] = j <= depth ? page_pool_take(&kv->tails) : -1;
        if (tail[j] >= 0)
            code = kv_walk_tail(kv, tail[j], KVANT_PAGE, scatter, l, diag);
        else
            l->at += kv_tail_image_bytes(kv);
        if (tail[j] < 0 && j <= depth)
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

static int load_page(loader *l, prefix_index *ix, int parent, const store_node *node, int *entered, kvant_diag *diag)
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

static int load_node(loader *l, prefix_index *ix, int32_t *number, int n, int *n_tokens, kvant_diag *diag)
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
    KVANT_TRY(copy_chunk(l, CHUNK_STATE, snap_bytes(l->kv), diag));
    if (number[n] < 0 || ix->nodes[number[n]].snap >= 0)
        return KVANT_OK;
    KVANT_TRY(load_snap(l, ix->nodes[number[n]].depth, &snap, diag));
    prefix_give_snap(ix, number[n], snap);
    return KVANT_OK;
}

int store_load_prefix(prefix_index *ix, const store_key *key, const store_file *f, int *n_tokens, kvant_diag *diag)
{
    const size_t most = largest(ix->kv);
    int32_t *number = kvant_calloc((size_t)f->n_chunks + 1, sizeof *number);
    loader l;
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
