/* check_windows.c: layers with a window have pages of their own, which go back when no later token sees them: the same
 * bits as an engine that keeps all pages, through cut prompts, decoding, forks, images and snapshots; no page is lost;
 * the plan counts them; and where they would save nothing they are not apart. */
#include "support/check.h"
#include "support/device_here.h"

#include <string.h>
#include <unistd.h>
#include "cache/kv_image.h"
#include "engine/engine.h"
#include "support/gguf_make.h"
#include "support/serve_rig.h"

enum { ROOM = 1024, PROMPT = 600, STEPS = 80, SEQS = 4 };

static const char *device = "cpu";
static char path[64], what[128];
static int32_t prompt[ROOM];

static kvant_engine_params params(const char *type, int tail, int full)
{
    kvant_engine_params p = kvant_engine_defaults();
    p.device = device;
    p.type_k = p.type_v = type;
    p.kv_tail = tail;
    p.threads = 1;
    p.n_ctx = ROOM;
    p.n_ubatch = 128;
    p.max_seqs = SEQS;
    p.snapshots = 2;
    p.full_windows = full;
    return p;
}

typedef struct pair { kvant_model *m; kvant_engine *apart, *full; } pair;

static int pair_open(pair *q, const char *type, int tail)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    const kvant_engine_params apart = params(type, tail, 0), full = params(type, tail, 1);
    kvant_diag d = { "" };

    memset(q, 0, sizeof *q);
    CHECK(kvant_model_open(&mp, &q->m, &d) == KVANT_OK &&
              kvant_engine_create(q->m, &apart, &q->apart, &d) == KVANT_OK &&
              kvant_engine_create(q->m, &full, &q->full, &d) == KVANT_OK,
          "%s: %s", what, d.text);
    return q->apart && q->full;
}

static void pair_close(pair *q)
{
    kvant_engine_free(q->apart);
    kvant_engine_free(q->full);
    kvant_model_close(q->m);
}

/* Tokens from `from` on, in pieces; the logits of the last one, or NULL. */
static const float *run(kvant_engine *e, int seq, int from, int n, int piece, int is_prompt)
{
    kvant_diag d = { "" };
    const float *logits = NULL;

    for (int at = from; at < from + n; at += piece) {
        const int k = from + n - at < piece ? from + n - at : piece;
        const kvant_item it = { seq, prompt + at, k, is_prompt, KVANT_LOGITS_LAST };
        CHECK(kvant_step(e, &it, 1, &d) == KVANT_OK, "%s: %s", what, d.text);
        logits = kvant_step_logits(e, 0, 0);
    }
    return logits;
}

/* The sequence holds the pages that its next token sees in a window, and no others of that pool. */
static void check_pages(const kvant_engine *e, int seq)
{
    const kv_seq *s = &e->kv.seqs[seq];
    for (int p = 0; p < s->n_pages; p++)
        CHECK((s->window[p] >= 0) == (p >= kv_first_window(&e->kv, s->len)), "%s: %d tokens, page %d is %d", what,
              s->len, p, s->window[p]);
}

static void same_logits(const pair *q, const float *a, const float *b, const char *where, int at)
{
    CHECK(a && b && memcmp(a, b, (size_t)q->m->hp.n_vocab * sizeof *a) == 0, "%s: other bits %s, token %d", what, where,
          at);
}

/* Both sequences go on for `n` tokens, one at a time. */
static void same_tokens(const pair *q, int apart, int full, int from, int n, const char *where)
{
    for (int i = 0; i < n; i++) {
        const float *a = run(q->apart, apart, from + i, 1, 1, 0), *b = run(q->full, full, from + i, 1, 1, 0);
        same_logits(q, a, b, where, i);
        check_pages(q->apart, apart);
    }
}

static int new_seq(kvant_engine *e)
{
    int seq = -1;
    kvant_diag d = { "" };
    CHECK(kvant_seq_new(e, &seq, &d) == KVANT_OK, "%s: %s", what, d.text);
    return seq;
}

/* A fork at an open page goes on as one at the same length in the other engine does. */
static void check_fork(const pair *q, int a, int b)
{
    int fork_a = -1, fork_b = -1;
    kvant_diag d = { "" };
    CHECK(kvant_seq_fork(q->apart, a, &fork_a, &d) == KVANT_OK && kvant_seq_fork(q->full, b, &fork_b, &d) == KVANT_OK,
          "%s: %s", what, d.text);
    const int len = kvant_seq_length(q->apart, a);
    same_tokens(q, a, b, len, 3, "beside a fork");
    same_tokens(q, fork_a, fork_b, len, 70, "in a fork");
    CHECK(kvant_seq_free(q->apart, fork_a) == KVANT_OK && kvant_seq_free(q->full, fork_b) == KVANT_OK, "%s", what);
}

/* Written to bytes, freed, and read back. */
static void check_image(const pair *q, int *a, int b)
{
    kv_cache *kv = &q->apart->kv;
    const int len = kvant_seq_length(q->apart, *a);
    const size_t bytes = kv_image_bytes(kv, len);
    uint8_t *image = malloc(bytes);
    kvant_diag d = { "" };

    CHECK(kv_image_save(kv, *a, image, &d) == KVANT_OK, "%s: %s", what, d.text);
    CHECK(bytes < kv_image_bytes(&q->full->kv, len), "%s: an image of %zu bytes, all pages %zu", what, bytes,
          kv_image_bytes(&q->full->kv, len));
    kvant_seq_free(q->apart, *a);
    *a = new_seq(q->apart);
    CHECK(kv_image_load(kv, *a, len, image, &d) == KVANT_OK, "%s: %s", what, d.text);
    free(image);
    same_tokens(q, *a, b, len, 70, "after an image");
}

/* Another sequence from the shared pages and the snapshot of a position, while its owner goes on. */
static void check_snapshot(const pair *q, int a, int b)
{
    kv_cache *kv = &q->apart->kv;
    const int len = kvant_seq_length(q->apart, a), to_grid = (KVANT_PAGE - len % KVANT_PAGE) % KVANT_PAGE;
    const int snap = page_pool_take(&kv->snaps);
    kvant_diag d = { "" };

    same_tokens(q, a, b, len, to_grid, "before a snapshot");
    CHECK(kv_snapshot_save(kv, a, snap, &d) == KVANT_OK, "%s: %s", what, d.text);
    const int seq = new_seq(q->apart), at = len + to_grid;
    int other = -1;
    kv_seq_share(kv, seq, kv->seqs[a].table, at / KVANT_PAGE);
    CHECK(kv_snapshot_load(kv, snap, seq, &d) == KVANT_OK, "%s: %s", what, d.text);
    check_pages(q->apart, seq);
    CHECK(kvant_seq_fork(q->full, b, &other, &d) == KVANT_OK, "%s: %s", what, d.text);
    same_tokens(q, a, b, at, 30, "beside a snapshot");
    same_tokens(q, seq, other, at, 70, "from a snapshot");
    kv_snapshot_free(kv, snap);
    kvant_seq_free(q->apart, seq);
    kvant_seq_free(q->full, other);
}

static void check_bits(const char *type, int tail)
{
    pair q;
    if (!pair_open(&q, type, tail))
        return;
    kv_cache *kv = &q.apart->kv;
    CHECK(kv->window_pages > 0 && q.full->kv.window_pages == 0, "%s: %d pages apart", what, kv->window_pages);
    int a = new_seq(q.apart), b = new_seq(q.full);
    run(q.apart, a, 0, PROMPT, 64, 1);
    run(q.full, b, 0, PROMPT, strcmp(device, "cpu") == 0 ? PROMPT : 64, 1);
    check_pages(q.apart, a);
    same_tokens(&q, a, b, PROMPT, STEPS, "while decoding");
    check_fork(&q, a, b);
    check_image(&q, &a, b);
    check_snapshot(&q, a, b);
    kvant_seq_free(q.apart, a);
    kvant_seq_free(q.full, b);
    CHECK(kv->windows.n_free == kv->windows.n && kv->pages.n_free == kv->pages.n && kv->tails.n_free == kv->tails.n,
          "%s: %d of %d pages of windows are free at the end", what, kv->windows.n_free, kv->windows.n);
    pair_close(&q);
}

/* Tokens 128 to 130 of eight sequences at once: each opens a page while its window still needs two, and there are not
 * so many: the pass is cut, and all get the bits of the first one. */
static void check_many(void)
{
    enum { MANY = 8 };
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    kvant_engine_params p = params("f16", 64, 0);
    kvant_item items[MANY];
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    kvant_diag d = { "" };

    p.max_seqs = MANY;
    p.n_ubatch = KVANT_PAGE;
    p.snapshots = 0;
    CHECK(kvant_model_open(&mp, &m, &d) == KVANT_OK && kvant_engine_create(m, &p, &e, &d) == KVANT_OK, "%s", d.text);
    for (int i = 0; e && i < MANY; i++) {
        items[i] = (kvant_item){ new_seq(e), prompt + 128, 1, 0, KVANT_LOGITS_LAST };
        run(e, items[i].seq, 0, 128, 64, 1);
    }
    const int held = e ? e->kv.windows.n - e->kv.windows.n_free : 0;
    CHECK(e && held == MANY * e->kv.window_pages && e->kv.windows.n_free < MANY, "%d pages of windows held", held);
    for (int k = 0; e && k < 3; k++) {
        CHECK(kvant_step(e, items, MANY, &d) == KVANT_OK, "%s", d.text);
        for (int i = 0; i < MANY; i++) {
            const float *one = kvant_step_logits(e, 0, 0), *other = kvant_step_logits(e, i, 0);
            CHECK(one && other && memcmp(one, other, (size_t)m->hp.n_vocab * sizeof *one) == 0, "sequence %d", i);
            items[i].tokens++;
        }
    }
    kvant_engine_free(e);
    kvant_model_close(m);
}

/* The plan is what the pools take; and all that a window saves. */
static void check_plan(void)
{
    pair q;
    kvant_plan apart, full;
    if (!pair_open(&q, "f16", 64))
        return;
    const kv_cache *kv = &q.apart->kv;
    CHECK(kvant_plan_make(q.m, &q.apart->p, &apart, NULL) == KVANT_OK &&
              kvant_plan_make(q.m, &q.full->p, &full, NULL) == KVANT_OK, "%s", what);
    CHECK(apart.window == (int64_t)kv_window_image_bytes(kv) * kv->windows.n && apart.window > 0 && full.window == 0,
          "%s: %lld bytes of windows planned", what, (long long)apart.window);
    CHECK(apart.kv == (int64_t)kv_page_image_bytes(kv) * kv->pages.n && 5 * apart.kv < full.kv &&
              apart.total < full.total, "%s: %lld bytes of pages planned, %lld without windows", what,
          (long long)apart.kv, (long long)full.kv);
    CHECK(apart.total - apart.kv - apart.window == full.total - full.kv, "%s: the rest of the plans differs", what);
    pair_close(&q);
}

/* As many pages as a context has, or every layer with a window: nothing is apart. */
static void check_not_apart(const char *file, int n_ctx)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = file };
    kvant_engine_params p = params("f16", 64, 0);
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    kvant_diag d = { "" };

    p.n_ctx = n_ctx;
    CHECK(kvant_model_open(&mp, &m, &d) == KVANT_OK && kvant_engine_create(m, &p, &e, &d) == KVANT_OK, "%s: %s", file,
          d.text);
    CHECK(e && e->kv.window_pages == 0, "%s: windows apart in a context of %d", file, n_ctx);
    kvant_engine_free(e);
    kvant_model_close(m);
}

static void make_window(const char *arch, const char *file, uint32_t window, const char *type, int tail)
{
    char key[64];

    snprintf(what, sizeof what, "%s, window %u, %s, tail %d", file, window, type, tail);
    snprintf(key, sizeof key, "%s.attention.sliding_window", arch);
    CHECK(gguf_copy_u32(file, path, key, window), "%s", path);
}

static void check_window(uint32_t window, const char *type, int tail)
{
    make_window("gemma3", "tests/archs/gemma3.gguf", window, type, tail);
    check_bits(type, tail);
}

/* Layers with a window have narrower rows than the others, and the last three read the pages of the first two. */
static void check_mixed(uint32_t window, const char *type, int tail)
{
    make_window("gemma4", "tests/archs/gemma4-e.gguf", window, type, tail);
    check_bits(type, tail);
}

/* check_windows [device]: another device promises the same bits for the same passes only. */
int main(int argc, char **argv)
{
    device = argc > 1 ? argv[1] : device;
    if (!device_here(device))
        return check_end("check_windows");
    snprintf(path, sizeof path, "/tmp/kvant-windows-%ld.gguf", (long)getpid());
    serve_tokens(prompt, ROOM, 5);
    check_mixed(150, "tbq4_0", 192);
    make_window("gemma3", "tests/archs/gemma3.gguf", 150, "tbq4_0", 192);
    if (strcmp(device, "vulkan") != 0 || getenv("KVANT_LONG"))
        check_bits("tbq4_0", 192);
    if (strcmp(device, "cpu") == 0) { /* software drivers take their time: one is all that they need to show */
        check_mixed(1, "q8_0", 0);
        check_mixed(65, "tbq4_0", 64);
        check_window(1, "f16", 64);
        check_window(2, "q8_0", 0);
        check_window(64, "f16", 0);
        check_window(65, "tbq4_0", 64);
        check_window(66, "q8_0", 128);
        check_many();
        check_window(200, "q8_0", 64);
    }
    check_plan();
    check_not_apart(path, 128);
    check_not_apart("tests/archs/phi3-window.gguf", ROOM);
    CHECK(remove(path) == 0, "%s", path);
    return check_end("check_windows");
}
