/* check_store.c: snapshot files.  A saved and restored sequence goes on as if nothing had happened, to the last bit;
 * the prefix cache comes back; damaged and foreign files are refused and change nothing; a writer that fails or dies at
 * any call to the system leaves the old file or the new one.  Ids in the texts (P-01 ...) are those of the reliability
 * specification. */
#include "cache/store.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file/crc32c.h"
#include "base/file/file_out.h"
#include "base/file/folder.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cache/kv_image.h"
#include "engine/session_impl.h"
#include "support/check.h"
#include "support/snapshot_fix.h"
#include "support/store_rig.h"

static const unsigned char salt_a[16] = "tenant a", salt_b[16] = "tenant b";
/* What the names of tenant a's slot files begin with: its salt's first 8 bytes. */
#define OWN "74656e616e742061+"
static char dir[64];
static int folder; /* dir, opened */

static const char *state_type; /* of the engines from here on; NULL: the default */

static int sink; /* exact first tokens of the engines from here on */

static kvant_engine_params engine_params(const char *type, int tail)
{
    kvant_engine_params p = kvant_engine_defaults();
    p.state_type = state_type;
    p.type_k = p.type_v = type;
    p.threads = 1;
    p.max_seqs = 4;
    p.n_ctx = 320;
    p.n_ubatch = 128;
    p.pool_tokens = 24 * KVANT_PAGE;
    p.snapshots = 6;
    p.kv_tail = tail;
    p.kv_sink = sink;
    return p;
}

static kvant_session_params session_params(void)
{
    kvant_session_params p = kvant_session_defaults();
    p.batch_tokens = 256;
    p.ladder = 64;
    p.snapshot_dir = dir;
    return p;
}

static kvant_request request_for(const int32_t *prompt, int n, int gen, int slot)
{
    return store_request(prompt, n, gen, slot, salt_a);
}

/* ---- P-06, P-07: restore, then continue ---- */

/* Turn 1 (n prompt tokens, gen generated), then turn 2 that appends to it; with a save, an erase and a restore in
 * between, in the same session or in a new one.  The same bits; nothing of the first turn is computed again. */
static void check_continue(const char *path, const char *type, int tail, int n, int gen)
{
    static serve_out one, plain, restored;
    int32_t prompt[320], more[320];
    serve_rig r;
    char what[160];

    snprintf(what, sizeof what, "P-07 %s %s tail %d, %d+%d tokens", path, type, tail, n, gen);
    serve_tokens(prompt, n, 77);
    if (!serve_open(&r, path, engine_params(type, tail), session_params()))
        return;
    kvant_request q = request_for(prompt, n, gen, 1);
    serve_one(&r, &q, &one);
    memcpy(more, prompt, (size_t)n * 4);
    memcpy(more + n, one.tokens, (size_t)one.n * 4);
    serve_tokens(more + n + one.n, 20, 78);
    const reply saved = store_act(&r, KVANT_SLOT_SAVE, 1, "turn1", salt_a);
    CHECK(saved.r.code == KVANT_OK && saved.r.n_tokens == n + gen - 1, "%s: %s, %d tokens", what, saved.text,
          saved.r.n_tokens);
    kvant_request q2 = request_for(more, n + gen + 20, 8, 1);
    serve_one(&r, &q2, &plain);
    CHECK(plain.n == 8 && plain.n_cached == n + gen - 1, "%s: %d cached", what, plain.n_cached);
    serve_close(&r);

    if (!serve_open(&r, path, engine_params(type, tail), session_params()))
        return;
    const reply back = store_act(&r, KVANT_SLOT_RESTORE, 2, "turn1", salt_a);
    CHECK(back.r.code == KVANT_OK && back.r.n_tokens == n + gen - 1, "%s: %s", what, back.text);
    kvant_request q3 = request_for(more, n + gen + 20, 8, 2);
    serve_one(&r, &q3, &restored);
    CHECK(restored.n_cached == n + gen - 1 && serve_same(&plain, &restored),
          "%s: %d cached, other tokens or bits", what,
          restored.n_cached);
    serve_close(&r);
}

/* The prefix cache comes back: hits, and the bits of a cold run.  S-04: not for another salt. */
static void check_cache(const char *path, const char *type, int tail)
{
    static serve_out cold, warm, other;
    int32_t prompt[300];
    serve_rig r;
    char what[160];

    snprintf(what, sizeof what, "P-07 cache %s %s tail %d", path, type, tail);
    serve_tokens(prompt, 300, 5);
    if (!serve_open(&r, path, engine_params(type, tail), session_params()))
        return;
    kvant_request q = request_for(prompt, 300, 6, -1);
    serve_one(&r, &q, &cold);
    const reply saved = store_act(&r, KVANT_CACHE_SAVE, 0, "all", salt_a);
    CHECK(saved.r.code == KVANT_OK && saved.r.n_tokens >= 256, "%s: %s, %d tokens", what, saved.text, saved.r.n_tokens);
    serve_close(&r);
    if (!serve_open(&r, path, engine_params(type, tail), session_params()))
        return;
    const reply back = store_act(&r, KVANT_CACHE_RESTORE, 0, "all", salt_a);
    CHECK(back.r.code == KVANT_OK && back.r.n_tokens == saved.r.n_tokens, "%s: %s, %d tokens", what, back.text,
          back.r.n_tokens);
    serve_one(&r, &q, &warm);
    CHECK(warm.n_cached == 256 && serve_same(&cold, &warm), "%s: %d cached, other bits", what, warm.n_cached);
    memcpy(q.salt, salt_b, 16);
    serve_one(&r, &q, &other);
    CHECK(other.n_cached == 0 && serve_same(&cold, &other),
          "S-04 %s: another tenant got %d tokens", what, other.n_cached);
    serve_close(&r);
}

/* ---- P-04: damage ---- */

typedef struct bytes {
    uint8_t *data;
    size_t n;
} bytes;

static bytes read_file(const char *name)
{
    char path[128];
    char *data = NULL;
    bytes b = { NULL, 0 };

    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (file_read(path, 1 << 24, &data, &b.n, NULL) == KVANT_OK)
        b.data = (uint8_t *)data;
    return b;
}

static store_key key_of(const kvant_session *s)
{
    store_key k = { .vocab = s->n_vocab };
    memcpy(k.fingerprint, s->files.fingerprint, sizeof k.fingerprint);
    memcpy(k.salt, salt_a, sizeof k.salt);
    return k;
}

static int open_bytes(serve_rig *r, int kind, const bytes *b, kvant_diag *d)
{
    const store_key k = key_of(r->s);
    store_file f;
    const int code = store_open_bytes(&r->e->kv, &k, kind, b->data, b->n, &f, d);

    if (code == KVANT_OK)
        store_close(&f);
    return code;
}

static void refused(serve_rig *r, int kind, const bytes *b, const char *what, size_t at)
{
    kvant_diag d = { "" };
    const int code = open_bytes(r, kind, b, &d);

    CHECK(code == KVANT_EFORMAT && d.text[0], "P-04 %s at %zu: %s", what, at, kvant_error_name(code));
}

static void damage(serve_rig *r, int kind, const char *name, int random_bits)
{
    bytes b = read_file(name);
    rng random = { 3 };

    CHECK(b.data != NULL, "P-04: %s cannot be read", name);
    if (!b.data)
        return;
    for (size_t bit = 0; bit < 8 * 128; bit++) { /* every bit of the header */
        b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        refused(r, kind, &b, "header bit", bit);
        b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (int i = 0; i < random_bits; i++) {
        const size_t bit = rng_u64(&random) % (8 * b.n);
        b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        refused(r, kind, &b, "bit", bit);
        b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    const size_t whole = b.n;
    for (b.n = 0; b.n < whole; b.n += b.n < 600 ? 1 : 997)
        refused(r, kind, &b, "cut", b.n);
    b.n = whole;
    refused(r, 3 - kind, &b, "other kind", 0);
    kvant_free(b.data);
}

/* Two pages exchanged, with their chunk numbers left as they were. */
static void exchanged(serve_rig *r, const char *name)
{
    bytes b = read_file(name);
    const size_t page = 24 + kv_page_image_bytes(&r->e->kv), first = 128 + 24 + 4 * (size_t)150;
    uint8_t *tmp = b.data ? kvant_alloc(page) : NULL;

    if (!tmp)
        return;
    memcpy(tmp, b.data + first, page);
    memmove(b.data + first, b.data + first + page, page);
    memcpy(b.data + first + page, tmp, page);
    refused(r, STORE_SEQUENCE, &b, "pages exchanged", first);
    kvant_free(tmp);
    kvant_free(b.data);
}

/* Files whose checksums are right but whose content is not. */
static void forged(serve_rig *r, const char *name)
{
    bytes b = read_file(name);
    const uint32_t next = 3, huge = 1u << 30, nan = 0x7FC07FC0u; /* of f32, and twice of bf16 */
    const int32_t token = 1 << 29;
    const size_t state = b.n - 28 - kv_state_image_bytes(&r->e->kv);

    if (!b.data)
        return;
    uint8_t *copy = kvant_alloc(b.n);
    const struct {
        size_t at;
        const void *v;
        const char *what;
    } cases[] = { { 8, &next, "version" },    { 72, &huge, "number of tokens" },     { 76, &huge, "number of chunks" },
                  { 20, &huge, "page size" }, { 88, &huge, "another size" },         { 112, &next, "unknown type" },
                  { 116, &next, "reserved" }, { 152, &token, "token 0" },            { state, &nan, "not a finite" },
                  { b.n - 28 - 4, &nan, "not a finite" } };
    for (size_t i = 0; copy && i <= sizeof cases / sizeof *cases; i++) {
        const int unchanged = i == sizeof cases / sizeof *cases;
        const bytes f = { copy, b.n };
        kvant_diag d = { "" };
        memcpy(copy, b.data, b.n);
        if (!unchanged)
            memcpy(copy + cases[i].at, cases[i].v, 4);
        snapshot_fix(copy, b.n);
        const int code = open_bytes(r, STORE_SEQUENCE, &f, &d);
        if (unchanged)
            CHECK(code == KVANT_OK && memcmp(copy, b.data, b.n) == 0, "checksums of a good file: %s", d.text);
        else
            CHECK(code == KVANT_EFORMAT && strstr(d.text, cases[i].what), "P-04 P-09 P-11: \"%s\", wanted \"%s\"",
                  d.text, cases[i].what);
    }
    kvant_free(copy);
    kvant_free(b.data);
}

static void check_damage(const char *path, const char *type)
{
    static serve_out one, two, live;
    int32_t prompt[320], more[320];
    serve_rig r;

    serve_tokens(prompt, 150, 9);
    if (!serve_open(&r, path, engine_params(type, 64), session_params()))
        return;
    kvant_request q = request_for(prompt, 150, 1, 1);
    serve_one(&r, &q, &one);
    CHECK(store_act(&r, KVANT_SLOT_SAVE, 1, "one", salt_a).r.code == KVANT_OK, "save");
    CHECK(store_act(&r, KVANT_CACHE_SAVE, 1, "cache", salt_a).r.code == KVANT_OK, "save");
    damage(&r, STORE_SEQUENCE, OWN "one.kvs", 3000);
    damage(&r, STORE_PREFIX, "cache.kvs", 1000);
    exchanged(&r, OWN "one.kvs");
    forged(&r, OWN "one.kvs");

    /* a bad file over a live slot: refused, and the slot goes on as it would have (llama.cpp 27068) */
    memcpy(more, prompt, sizeof prompt);
    serve_tokens(more + 149, 30, 10);
    bytes b = read_file(OWN "one.kvs");
    char bad_path[128];
    snprintf(bad_path, sizeof bad_path, "%s/" OWN "bad.kvs", dir);
    b.data[b.n / 2] ^= 1;
    FILE *f = fopen(bad_path, "wb");
    CHECK(f && fwrite(b.data, 1, b.n, f) == b.n && fclose(f) == 0, "write %s", bad_path);
    const reply no = store_act(&r, KVANT_SLOT_RESTORE, 1, "bad", salt_a);
    CHECK(no.r.code == KVANT_EFORMAT, "P-04: %s", no.text);
    kvant_request q2 = request_for(more, 170, 5, 1);
    serve_one(&r, &q2, &live);
    CHECK(live.n_cached == 0 || live.n_cached == 128 || live.n_cached == 150, "%d cached", live.n_cached);
    CHECK(store_act(&r, KVANT_SLOT_RESTORE, 1, "one", salt_a).r.code == KVANT_OK, "restore");
    memcpy(more, prompt, 150 * 4);
    kvant_request q3 = request_for(more, 170, 5, 1);
    serve_one(&r, &q3, &two);
    CHECK(two.n_cached == 150, "P-04: %d cached after a good restore", two.n_cached);
    const reply foreign = store_act(&r, KVANT_SLOT_RESTORE, 2, "one", salt_b);
    CHECK(foreign.r.code == KVANT_ENOENT && strstr(foreign.text, "no such file of this key"), "S-04: %s", foreign.text);
    CHECK(store_act(&r, KVANT_SLOT_SAVE, 1, "x", salt_b).r.code == KVANT_ENOENT, "another tenant's slot was saved");
    CHECK(store_act(&r, KVANT_SLOT_ERASE, 1, "", salt_b).r.code == KVANT_ENOENT, "another tenant's slot was erased");
    CHECK(store_act(&r, KVANT_SLOT_SAVE, 3, "x", salt_a).r.code == KVANT_ENOENT, "P-06: an empty slot was saved");
    CHECK(store_act(&r, KVANT_SLOT_RESTORE, 1, "absent", salt_a).r.code == KVANT_ENOENT, "an absent file");
    const char *names[] = { "",    "..",       "a/b",
                            ".ab", "\xC3\xA9", "12345678901234567890123456789012345678901234567890123456789012345" };
    for (int i = 0; i < 6; i++)
        CHECK(store_act(&r, KVANT_SLOT_SAVE, 1, names[i], salt_a).r.code == KVANT_EINVAL, "A-05: name %d taken", i);
    char link[128];
    snprintf(link, sizeof link, "%s/" OWN "link.kvs", dir);
    unlink(link); /* of an earlier call */
    CHECK(symlink(OWN "one.kvs", link) == 0, "symlink");
    CHECK(store_act(&r, KVANT_SLOT_RESTORE, 1, "link", salt_a).r.code < 0, "A-05: a symbolic link was followed");
    kvant_free(b.data);
    serve_close(&r);
}

/* P-05: no room for what a file holds while a request that is paused keeps its pages: refused, what lay in the slot and
 * the request go on as they would have; afterwards there is room. */
static void check_full_pool(const char *path)
{
    static serve_out one, two, paused, plain, live;
    int32_t long_one[320], prompt[320], more[320];
    kvant_engine_params ep = engine_params("tbq4_0", 64);
    kvant_session_params sp = session_params();
    serve_rig r;
    kvant_diag d = { "" };

    ep.pool_tokens = 6 * KVANT_PAGE;
    sp.no_prefix_cache = 1;
    serve_tokens(long_one, 290, 21);
    serve_tokens(prompt, 200, 22);
    serve_tokens(more, 90, 23);
    if (!serve_open(&r, path, ep, sp))
        return;
    kvant_request q = request_for(long_one, 290, 1, 1);
    serve_one(&r, &q, &one);
    CHECK(store_act(&r, KVANT_SLOT_SAVE, 1, "long", salt_a).r.code == KVANT_OK, "save");
    CHECK(store_act(&r, KVANT_SLOT_ERASE, 1, "", salt_a).r.code == KVANT_OK, "erase");
    for (int full = 0; full < 2; full++) {
        q = request_for(more, 70, 1, 2);
        serve_one(&r, &q, &two);
        kvant_request held = request_for(prompt, 200, 10, -1);
        paused.stop_after = full;
        paused.stop_how = KVANT_EVENT_PAUSE;
        CHECK(serve_submit(&r, &held, &paused, &d) == KVANT_OK, "%s", d.text);
        kvant_session_stats st = { 0 };
        for (int i = 0; full && i < 5000 && st.paused == 0; i++, nanosleep(&(struct timespec){ 0, 1000000 }, NULL))
            kvant_session_get_stats(r.s, &st);
        if (full) {
            const reply no = store_act(&r, KVANT_SLOT_RESTORE, 2, "long", salt_a);
            CHECK(no.r.code == KVANT_ENOSPC && strstr(no.text, "pages"), "P-05: %s", no.text);
            kvant_session_resume(r.s, paused.id);
        }
        serve_wait(&paused);
        kvant_request on = request_for(more, 90, 5, 2);
        serve_one(&r, &on, &live);
        CHECK(live.n_cached == 70 && paused.n == 10, "P-05: %d cached, %d tokens", live.n_cached, paused.n);
        CHECK(!full || serve_same(&plain, &live), "P-05: the slot goes on with other bits");
        plain = live;
        CHECK(store_act(&r, KVANT_SLOT_ERASE, 2, "", salt_a).r.code == KVANT_OK, "erase");
    }
    CHECK(store_act(&r, KVANT_SLOT_RESTORE, 2, "long", salt_a).r.code == KVANT_OK, "P-05: now there is room");
    CHECK(r.e->kv.pages.n_free == 2, "P-05: %d of 6 pages are free beside 290 tokens", r.e->kv.pages.n_free);
    serve_close(&r);
}

/* Another model, other formats, another tail: refused by name. */
static void check_foreign(void)
{
    const struct {
        const char *path, *type;
        int tail, sink;
        const char *wanted;
    } other[] = { { "tests/golden/tiny/qwen35moe.gguf", "tbq4_0", 64, 0, "another model (its tensors, or adapters, differ)" },
                  { "tests/golden/tiny/qwen35.gguf", "f16", 64, 0, "other cache formats" },
                  { "tests/golden/tiny/qwen35.gguf", "tbq4_0", 128, 0, "other cache formats" },
                  { "tests/golden/tiny/qwen35.gguf", "tbq4_0", 64, 64, "other cache formats" } };
    serve_rig r;

    for (int i = 0; i < 4; i++) {
        sink = other[i].sink;
        if (!serve_open(&r, other[i].path, engine_params(other[i].type, other[i].tail), session_params()))
            return;
        const reply no = store_act(&r, KVANT_SLOT_RESTORE, 1, "one", salt_a);
        CHECK(no.r.code == KVANT_EFORMAT && strstr(no.text, other[i].wanted), "P-04 foreign %d: %s", i, no.text);
        serve_close(&r);
    }
    sink = 0;
}

/* States of another type, both ways; then the file's own. */
static void check_foreign_states(void)
{
    const char *const path = "tests/golden/tiny/qwen35.gguf", *const types[] = { "f32", "bf16", "f32" };
    static serve_out out;
    int32_t prompt[100];
    serve_rig r;

    serve_tokens(prompt, 100, 5);
    for (int i = 0; i < 3; i++) {
        char wanted[80];
        state_type = types[i];
        if (!serve_open(&r, path, engine_params("tbq4_0", 64), session_params()))
            break;
        if (i > 0) {
            snprintf(wanted, sizeof wanted, "recurrent states are %s, wanted %s", types[i - 1], types[i]);
            const reply no = store_act(&r, KVANT_SLOT_RESTORE, 1, "typed", salt_a);
            CHECK(no.r.code == KVANT_EFORMAT && strstr(no.text, wanted), "found \"%s\", wanted \"%s\"", no.text,
                  wanted);
        }
        kvant_request q = request_for(prompt, 100, 2, 1);
        serve_one(&r, &q, &out);
        const reply saved = store_act(&r, KVANT_SLOT_SAVE, 1, "typed", salt_a);
        const reply back = store_act(&r, KVANT_SLOT_RESTORE, 2, "typed", salt_a);
        CHECK(saved.r.code == KVANT_OK && back.r.code == KVANT_OK, "%s: %s %s", types[i], saved.text, back.text);
        serve_close(&r);
    }
    state_type = NULL;
}

/* ---- P-01, P-02, R-01: a writer that fails, or dies, anywhere ---- */

typedef struct plain_rig {
    kvant_model *m;
    kvant_engine *e;
    int seq, n;
    int32_t tokens[200];
    store_key key;
} plain_rig;

static int plain_open(plain_rig *r, const char *path)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    const kvant_engine_params ep = engine_params("tbq4_0", 64);
    kvant_diag d = { "" };

    memset(r, 0, sizeof *r);
    CHECK(kvant_model_open(&mp, &r->m, &d) == KVANT_OK && kvant_engine_create(r->m, &ep, &r->e, &d) == KVANT_OK, "%s",
          d.text);
    if (!r->e)
        return 0;
    r->n = 100;
    r->key.vocab = kvant_model_get_info(r->m)->n_vocab;
    serve_tokens(r->tokens, 200, 4);
    kvant_seq_new(r->e, &r->seq, NULL);
    const kvant_item it = { r->seq, r->tokens, r->n, 1, 0 };
    CHECK(kvant_step(r->e, &it, 1, &d) == KVANT_OK, "%s", d.text);
    return 1;
}

static int plain_save(plain_rig *r, kvant_diag *d)
{
    int64_t size;
    return store_save_sequence(&r->e->kv, &r->key, r->seq, r->tokens, folder, "f.kvs", &size, d);
}

/* Tokens of the file, 0: there is none, -1: there is a bad one. */
static int plain_check(plain_rig *r)
{
    store_file f;
    const int code = store_open(&r->e->kv, &r->key, STORE_SEQUENCE, folder, "f.kvs", &f, NULL);
    const int n = code == KVANT_OK ? f.n_tokens : code == KVANT_ENOENT ? 0 : -1;

    if (code == KVANT_OK)
        store_close(&f);
    return n;
}

static void longer(plain_rig *r)
{
    const kvant_item it = { r->seq, r->tokens + r->n, 1, 0, 0 };
    CHECK(kvant_step(r->e, &it, 1, NULL) == KVANT_OK, "step");
    r->n++;
}

static void check_write_faults(plain_rig *r)
{
    const int errors[] = { EIO, ENOSPC, EINTR, EDQUOT, EROFS, 0 };
    kvant_diag d = { "" };

    CHECK(plain_save(r, &d) == KVANT_OK, "%s", d.text);
    file_out_fail_after(-1, 0, 0, NULL);
    CHECK(plain_save(r, &d) == KVANT_OK, "%s", d.text);
    const long calls = file_out_fail_after(-1, 0, 0, NULL);
    CHECK(calls > 8, "P-02: %ld calls", calls);
    for (int k = 0; k < 6; k++)
        for (int sticky = 0; sticky < 2 - (errors[k] == EINTR); sticky++)
            for (long at = 0; at < calls; at++) {
                const int before = plain_check(r);
                longer(r);
                if (r->n > 190)
                    return;
                file_out_fail_after(at, sticky, errors[k], NULL);
                const int code = plain_save(r, &d);
                file_out_fail_after(-1, 0, 0, NULL);
                const int after = plain_check(r);
                CHECK(after == r->n || (code < 0 && after == before), "P-02 errno %d, call %ld: %d tokens, code %d",
                      errors[k], at, after, code);
                CHECK(file_out_sweep(folder) == 0, "P-02 errno %d, call %ld: a temporary file is left", errors[k], at);
                r->n--; /* one longer for each try would outgrow the test; its cache too */
                r->e->kv.seqs[r->seq].len--;
                kv_trim(&r->e->kv, r->seq);
            }
}

/* What kill -9 leaves behind. */
static void die(void)
{
    _exit(137);
}

static void check_kill(plain_rig *r)
{
    kvant_diag d = { "" };
    int left = 0;

    for (long at = 0; at < 40; at++) {
        const int before = plain_check(r);
        const pid_t child = fork();
        if (child == 0) {
            file_out_fail_after(at, 0, 0, die);
            _exit(plain_save(r, &d) == KVANT_OK ? 0 : 1);
        }
        int status = 0;
        CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork");
        const int after = plain_check(r);
        CHECK(after == before || after == r->n, "P-01 call %ld: %d tokens after a kill, %d before", at, after, before);
        left += file_out_sweep(folder);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            break;
    }
    CHECK(left > 0, "P-01: no kill left a temporary file, so none was in the middle");
}

static void check_memory(plain_rig *r)
{
    int32_t tokens[200];
    kvant_diag d = { "" };
    int failed = 0, other = 0;

    for (long at = 0; at < 100; at++) {
        mem_fail_after(at, 0);
        const int code = plain_save(r, &d);
        mem_fail_after(-1, 0);
        CHECK(code == KVANT_OK || code == KVANT_ENOMEM, "R-01 save: %s", d.text);
        failed += code < 0;
        if (code == KVANT_OK)
            break;
    }
    CHECK(kvant_seq_new(r->e, &other, &d) == KVANT_OK, "%s", d.text);
    const int free_pages = r->e->kv.pages.n_free, free_tails = r->e->kv.tails.n_free;
    for (long at = 0; at < 100; at++) {
        store_file f;
        mem_fail_after(at, 0);
        int code = store_open(&r->e->kv, &r->key, STORE_SEQUENCE, folder, "f.kvs", &f, &d);
        if (code == KVANT_OK) {
            code = store_load_sequence(&r->e->kv, &r->key, &f, other, tokens, &d);
            store_close(&f);
        }
        mem_fail_after(-1, 0);
        failed += code < 0;
        if (code == KVANT_OK)
            break;
        CHECK(code == KVANT_ENOMEM && r->e->kv.seqs[other].len == 0 && r->e->kv.pages.n_free == free_pages &&
                  r->e->kv.tails.n_free == free_tails,
              "P-05 R-01 restore: %s, %d pages", d.text, r->e->kv.pages.n_free);
    }
    CHECK(failed >= 3, "R-01: only %d allocations were made to fail", failed);
}

static void check_writer(void)
{
    plain_rig r;

    if (plain_open(&r, "tests/golden/tiny/qwen35.gguf")) {
        check_write_faults(&r);
        check_kill(&r);
        check_memory(&r);
    }
    kvant_engine_free(r.e);
    kvant_model_close(r.m);
}

/* P-09: a file of this version that was written when the version was new; one of the version before is refused by name,
 * because its fingerprint does not say enough. */
static void check_golden(void)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = "tests/golden/tiny/qwen3moe.gguf" };
    kvant_engine_params ep = engine_params("tbq4_0", 0);
    store_key key = { .vocab = 512 };
    int32_t tokens[40], wanted[40];
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    kvant_diag d = { "" };
    store_file f;
    int seq, golden = -1;

    CHECK(folder_open("tests/golden/snapshot", &golden, &d) == KVANT_OK, "%s", d.text);
    serve_tokens(wanted, 40, 41);
    CHECK(kvant_model_open(&mp, &m, &d) == KVANT_OK && kvant_engine_create(m, &ep, &e, &d) == KVANT_OK, "%s", d.text);
    memcpy(key.fingerprint, "version 2 golden file", 22);
    memcpy(key.salt, salt_a, 16);
    if (e && getenv("KVANT_MAKE_GOLDEN")) {
        int64_t size;
        kvant_seq_new(e, &seq, NULL);
        kvant_step(e, &(kvant_item){ seq, wanted, 40, 1, 0 }, 1, NULL);
        store_save_sequence(&e->kv, &key, seq, wanted, golden, "v2.kvs", &size, &d);
        kvant_seq_free(e, seq);
    }
    const int code = e ? store_open(&e->kv, &key, STORE_SEQUENCE, golden, "v2.kvs", &f, &d) : -1;
    CHECK(code == KVANT_OK, "P-09: %s", d.text);
    if (code == KVANT_OK) {
        kvant_seq_new(e, &seq, NULL);
        CHECK(store_load_sequence(&e->kv, &key, &f, seq, tokens, &d) == KVANT_OK && f.n_tokens == 40 &&
                  memcmp(tokens, wanted, sizeof wanted) == 0,
              "P-09: %s", d.text);
        store_close(&f);
    }
    CHECK(e && store_open(&e->kv, &key, STORE_SEQUENCE, golden, "v1.kvs", &f, &d) == KVANT_EFORMAT &&
              strstr(d.text, "the version is 1, wanted 2"),
          "P-09: %s", d.text);
    close(golden);
    kvant_engine_free(e);
    kvant_model_close(m);
}

int main(void)
{
    const char *hybrid = "tests/golden/tiny/qwen35.gguf", *dense = "tests/golden/tiny/llama.gguf",
               *moe = "tests/golden/tiny/qwen3moe.gguf";

    CHECK(crc32c(0, "123456789", 9) == 0xE3069283u, "crc32c of the standard's example");
    CHECK(crc32c(crc32c(0, "1234", 4), "56789", 5) == 0xE3069283u, "crc32c in two parts");
    snprintf(dir, sizeof dir, "/tmp/kvant-store-XXXXXX");
    CHECK(mkdtemp(dir) != NULL && folder_open(dir, &folder, NULL) == KVANT_OK, "mkdtemp");
    const struct {
        int n, gen;
    } turns[] = { { 1, 1 }, { 30, 5 }, { 64, 1 }, { 65, 64 }, { 128, 2 }, { 190, 70 } };
    for (int i = 0; i < 6; i++) {
        check_continue(hybrid, "tbq4_0", 64, turns[i].n, turns[i].gen);
        check_continue(dense, i % 2 ? "f16" : "tbq4_0", i % 3 ? 64 : 192, turns[i].n, turns[i].gen);
    }
    check_continue(hybrid, "turbo3", 128, 150, 20);
    check_continue(hybrid, "ptcq3", 64, 150, 20);
    check_continue(dense, "ptcq2", 192, 190, 70);
    check_continue(moe, "q8_0", 0, 150, 20);
    check_continue(hybrid, "f16", 64, 150, 20);
    check_cache(dense, "f16", 64);
    check_cache(dense, "tbq4_0", 192);
    check_cache(hybrid, "tbq4_0", 64);
    check_cache(hybrid, "q8_0", 128);
    check_cache(dense, "ptcq3", 64);
    check_damage(hybrid, "tbq4_0");
    check_full_pool(hybrid);
    check_full_pool(dense);
    check_foreign();
    check_foreign_states();
    sink = 128;
    check_continue(hybrid, "tbq4_0", 64, 190, 70);
    check_continue(dense, "ptcq3", 128, 190, 70);
    check_continue(dense, "tbq4_0", 64, 100, 5);
    check_cache(dense, "tbq4_0", 64);
    check_cache(hybrid, "tbq4_0", 128);
    sink = 0;
    state_type = "bf16";
    check_continue(hybrid, "tbq4_0", 64, 65, 64);
    check_continue(hybrid, "f16", 64, 190, 70);
    check_cache(hybrid, "tbq4_0", 64);
    check_damage(hybrid, "tbq4_0");
    state_type = NULL;
    check_writer();
    check_golden();
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK(system(command) == 0, "rm");
    return check_end("check_store");
}
