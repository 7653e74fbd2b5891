/* store.c: opening a snapshot file: every byte of it is checked before anything is touched.  See store.h and
 * docs/snapshot.md; store_save.c writes, store_load.c takes what was checked. */
#include "cache/store_impl.h"

#include <string.h>

#include "base/file/crc32c.h"
#include "base/half.h"
#include "cache/host_tier.h"
#include "cache/kv_image.h"

const char store_magic[8] = "KVANTSNP";

size_t store_windows_bytes(const kv_cache *kv)
{
    return (size_t)kv_snap_windows(kv) * kv_window_image_bytes(kv);
}

size_t store_snap_bytes(const kv_cache *kv)
{
    return store_windows_bytes(kv) + (size_t)kv_snap_tails(kv) * kv_tail_image_bytes(kv) + kv_state_image_bytes(kv);
}

/* A cache without recurrent layers has states of no type. */
uint32_t store_state_type(const kv_cache *kv)
{
    return kv_state_image_bytes(kv) > 0 ? (uint32_t)kv->cfg.state_type : KVANT_STATE_F32;
}

uint32_t store_chunk_crc(const store_chunk *c, const void *payload)
{
    return crc32c(crc32c(0, c, 16), payload, (size_t)c->bytes);
}

size_t store_largest(const kv_cache *kv)
{
    size_t most = kv_page_image_bytes(kv),
           others[] = { kv_tail_image_bytes(kv), kv_state_image_bytes(kv), kv_window_image_bytes(kv),
                        store_snap_bytes(kv) };
    for (int i = 0; i < 4; i++)
        most = others[i] > most ? others[i] : most;
    return most;
}

int store_window_count(const kv_cache *kv, int len)
{
    return kv_pages_for(len) - kv_image_first_window(kv, len);
}

int store_chunk_count(const kv_cache *kv, int len)
{
    return 2 + kv_pages_for(len) + store_window_count(kv, len) + kv_image_tails(kv, len);
}

static int bad(kvant_diag *diag, const char *what, uint64_t found, uint64_t wanted)
{
    return kvant_fail(diag, KVANT_EFORMAT, "snapshot: %s is %llu, wanted %llu", what, (unsigned long long)found,
                      (unsigned long long)wanted);
}

static const char *state_name(uint32_t type)
{
    return type == KVANT_STATE_F32 ? "f32" : type == KVANT_STATE_BF16 ? "bf16" : "of an unknown type";
}

/* Says which part differs: the first one, as a change of weights often changes the others too. */
static int check_fingerprint(const unsigned char *found, const unsigned char *wanted, kvant_diag *diag)
{
    static const char *const what[STORE_PARTS] = {
        [STORE_WEIGHTS] = "another model (its tensors, or adapters, differ)",
        [STORE_HPARAMS] = "another model (same tensors, but its hyperparameters or its tokenizer differ)",
        [STORE_FORMATS] = "other cache formats (--cache-type-k, -v, -layers, --kv-tail, --kv-sink or --qjl-projection)",
        [STORE_COMPUTE] = "other arithmetic (--kv-encoder or --compute)"
    };
    enum { PART = STORE_FINGERPRINT / STORE_PARTS };

    for (int i = 0; i < STORE_PARTS; i++)
        if (memcmp(found + i * PART, wanted + i * PART, PART) != 0)
            return kvant_fail(diag, KVANT_EFORMAT, "snapshot: made with %s", what[i]);
    return KVANT_OK;
}

static int check_header(const kv_cache *kv, const store_key *key, int kind, const store_header *h, size_t size,
                        kvant_diag *diag)
{
    if (memcmp(h->magic, store_magic, sizeof h->magic) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: not a snapshot file (its first 8 bytes)");
    if (h->version != STORE_VERSION)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: the version is %u, wanted %d: save it again with this program",
                          h->version, STORE_VERSION);
    if (h->endian != 0x01020304)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: written on a machine of the other byte order");
    if (h->crc != crc32c(0, h, sizeof *h - sizeof h->crc))
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: the header is damaged (checksum)");
    if (h->file_bytes != size)
        return bad(diag, "the file's size", size, h->file_bytes);
    if (h->kind != (uint32_t)kind)
        return bad(diag, "the kind (1 sequence, 2 prefix cache, 3 block)", h->kind, (uint64_t)kind);
    if (h->page_tokens != KVANT_PAGE)
        return bad(diag, "the page size in tokens", h->page_tokens, KVANT_PAGE);
    KVANT_TRY(check_fingerprint(h->fingerprint, key->fingerprint, diag));
    if (kind == STORE_SEQUENCE && memcmp(h->salt, key->salt, sizeof h->salt) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: belongs to another key");
    if (h->state_type != store_state_type(kv))
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: its recurrent states are %s, wanted %s",
                          state_name(h->state_type), state_name(store_state_type(kv)));
    if (h->page_bytes != kv_page_image_bytes(kv) || h->tail_bytes != kv_tail_image_bytes(kv) ||
        h->state_bytes != kv_state_image_bytes(kv))
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: pages or states of another size");
    if (h->zero[0] | h->zero[1])
        return bad(diag, "a reserved field", h->zero[0] | h->zero[1], 0);
    return KVANT_OK;
}

int store_next_chunk(reader *r, uint32_t type, size_t bytes, store_chunk *c, const uint8_t **payload, kvant_diag *diag)
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

    KVANT_TRY(store_next_chunk(r, type, bytes, &c, payload, diag));
    if (store_chunk_crc(&c, *payload) != c.crc)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: chunk %u is damaged (checksum)", c.index);
    return KVANT_OK;
}

int store_check_tokens(const uint8_t *payload, int n, int vocab, kvant_diag *diag)
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
        if (!kv_has_state(cfg, l))
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
    if (h->n_chunks != (uint32_t)store_chunk_count(kv, len))
        return bad(diag, "the number of chunks", h->n_chunks, (uint64_t)store_chunk_count(kv, len));
    KVANT_TRY(check_chunk(r, CHUNK_TOKENS, (size_t)len * sizeof(int32_t), &p, diag));
    KVANT_TRY(store_check_tokens(p, len, key->vocab, diag));
    for (int i = 0; i < kv_pages_for(len); i++)
        KVANT_TRY(check_chunk(r, CHUNK_PAGE, (size_t)h->page_bytes, &p, diag));
    for (int i = 0; i < store_window_count(kv, len); i++)
        KVANT_TRY(check_chunk(r, CHUNK_WINDOW, kv_window_image_bytes(kv), &p, diag));
    for (int i = 0; i < kv_image_tails(kv, len); i++) {
        KVANT_TRY(check_chunk(r, CHUNK_TAIL, (size_t)h->tail_bytes, &p, diag));
        KVANT_TRY(check_halves(p, (size_t)h->tail_bytes, diag));
    }
    KVANT_TRY(check_chunk(r, CHUNK_STATE, (size_t)h->state_bytes, &p, diag));
    return check_finite(kv, p, diag);
}

int store_check_snap(const kv_cache *kv, const uint8_t *p, kvant_diag *diag)
{
    const size_t windows = store_windows_bytes(kv), tails = store_snap_bytes(kv) - kv_state_image_bytes(kv) - windows;

    KVANT_TRY(check_halves(p + windows, tails, diag));
    return check_finite(kv, p + windows + tails, diag);
}

static int check_block(const kv_cache *kv, const store_key *key, const store_header *h, reader *r, kvant_diag *diag)
{
    const uint8_t *p;
    store_block b;

    if (h->n_chunks != 2)
        return bad(diag, "the number of chunks", h->n_chunks, 2);
    KVANT_TRY(check_chunk(r, CHUNK_BLOCK, sizeof b, &p, diag));
    memcpy(&b, p, sizeof b);
    if (b.what != key->what || b.zero != 0 || memcmp(b.id, key->block, PREFIX_ID) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "snapshot: another block than its name says");
    KVANT_TRY(check_chunk(r, b.what == BLOCK_PAGE ? CHUNK_PAGE : CHUNK_STATE, store_image_bytes(kv, b.what), &p, diag));
    return b.what == BLOCK_PAGE ? KVANT_OK : store_check_snap(kv, p, diag);
}

static int check_nodes(const kv_cache *kv, const store_key *key, const store_header *h, reader *r, kvant_diag *diag)
{
    const uint8_t *p;
    store_node node;

    for (int n = 0; r->n < h->n_chunks; n++) {
        KVANT_TRY(check_chunk(r, CHUNK_NODE, sizeof node, &p, diag));
        memcpy(&node, p, sizeof node);
        if (node.parent < -1 || node.parent >= n || node.has_snap < 0 || node.has_snap > 1)
            return kvant_fail(diag, KVANT_EFORMAT, "snapshot: node %d has the parent %d", n, node.parent);
        KVANT_TRY(store_check_tokens((const uint8_t *)node.tokens, KVANT_PAGE, key->vocab, diag));
        KVANT_TRY(check_chunk(r, CHUNK_PAGE, (size_t)h->page_bytes, &p, diag));
        if (!node.has_snap)
            continue;
        KVANT_TRY(check_chunk(r, CHUNK_STATE, store_snap_bytes(kv), &p, diag));
        KVANT_TRY(store_check_snap(kv, p, diag));
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
    static int (*const check[])(const kv_cache *, const store_key *, const store_header *, reader *,
                                kvant_diag *) = {
        [STORE_SEQUENCE] = check_sequence, [STORE_PREFIX] = check_nodes, [STORE_BLOCK] = check_block
    };
    reader r = { data, size, sizeof(store_header), 0, 0 };
    store_header h;

    memset(f, 0, sizeof *f);
    if (size < sizeof h)
        return bad(diag, "the file's size", size, sizeof h);
    memcpy(&h, data, sizeof h);
    KVANT_TRY(check_header(kv, key, kind, &h, size, diag));
    KVANT_TRY(check[kind](kv, key, &h, &r, diag));
    KVANT_TRY(check_end(&r, diag));
    f->data = data;
    f->size = size;
    f->kind = kind;
    f->n_tokens = (int)h.n_tokens;
    f->n_chunks = (int)h.n_chunks;
    return KVANT_OK;
}

int store_open(const kv_cache *kv, const store_key *key, int kind, int dir, const char *name, store_file *f,
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
