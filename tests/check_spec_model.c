/* check_spec_model.c: drafts of a draft model.  A text with them is the text without, whatever the drafter is (the
 * model itself, one of other weights, one without room), in company, with prefix hits, in a small pool; which engines
 * are refused as drafters; and that nothing of a text is left there.
 *
 *   check_spec_model */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file/file.h"
#include "base/mem.h"
#include "engine/session_impl.h"
#include "support/check.h"
#include "support/spec_scene.h"

typedef struct drafter {
    kvant_model *m;
    kvant_engine *e;
} drafter;

static int open_drafter(drafter *d, const char *path, int64_t pool, int n_ctx, int tail)
{
    kvant_model_params mp = kvant_model_defaults();
    kvant_engine_params p = kvant_engine_defaults();
    kvant_diag diag = { "" };

    *d = (drafter){ NULL, NULL };
    mp.path = path;
    p.threads = 1;
    p.max_seqs = SCENE_REQUESTS;
    p.n_ctx = n_ctx;
    p.n_ubatch = 128;
    p.pool_tokens = pool;
    p.kv_tail = tail;
    CHECK(kvant_model_open(&mp, &d->m, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    if (d->m)
        CHECK(kvant_engine_create(d->m, &p, &d->e, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    return d->e != NULL;
}

static void close_drafter(drafter *d)
{
    kvant_engine_free(d->e);
    kvant_model_close(d->m);
}

/* All sequences of the drafter went with their requests. */
static void check_idle(const drafter *d, const char *name)
{
    for (int i = 0; i < d->e->p.max_seqs; i++)
        CHECK(!d->e->kv.seqs[i].used, "%s: sequence %d of the draft model is left", name, i);
    CHECK(d->e->kv.pages.n_free == d->e->kv.pages.n, "%s: %d of %d pages are free", name, d->e->kv.pages.n_free,
          d->e->kv.pages.n);
}

/* Runs the scene with the drafter of this file; p_min below 0: auto.  Returns what was accepted. */
static uint64_t run_with(spec_scene *c, const char *name, const char *path, int64_t pool, int n_ctx, float p_min)
{
    kvant_session_params sp = kvant_session_defaults();
    drafter d;

    if (!open_drafter(&d, path, pool, n_ctx, c->tail))
        return 0;
    sp.spec = p_min < 0 ? KVANT_SPEC_AUTO : KVANT_SPEC_DRAFT;
    sp.draft = d.e;
    sp.draft_p_min = p_min < 0 ? 0 : p_min;
    spec_scene_run(c, name, sp, -1);
    check_idle(&d, name);
    close_drafter(&d);
    return c->accepted;
}

static void run_model(const char *path, const char *other, const char *type, int tail)
{
    static spec_scene c;

    if (!spec_scene_open(&c, path, type, tail))
        return;
    const uint64_t own = run_with(&c, "itself", path, 0, 256, 0);
    CHECK(own > 300, "%s: itself: %d of %d accepted", path, (int)own, (int)c.drafted);
    run_with(&c, "another model", other, 0, 256, 0);
    CHECK(c.drafted > 500, "%s: another model: %d drafted", path, (int)c.drafted);
    run_with(&c, "one that is sure", path, 0, 256, 0.5f);
    run_with(&c, "auto", path, 0, 256, -1);
    run_with(&c, "one without room", path, 8 * 64, 256, 0);
    run_with(&c, "one of short context", path, 0, 128, 0);
    c.pool_tokens = 10 * 64; /* of 16 sequences with up to 4 pages each */
    run_with(&c, "itself, in a small pool", path, 0, 256, 0);
}

/* ---- who is refused ---- */

static void refused(const drafter *target, const drafter *d, const char *what)
{
    kvant_session_params sp = kvant_session_defaults();
    kvant_session *s = NULL;
    kvant_diag diag = { "" };

    sp.spec = KVANT_SPEC_DRAFT;
    sp.draft = d ? d->e : NULL;
    CHECK(kvant_session_create(target->e, &sp, &s, &diag) < 0 && strstr(diag.text, what), "found \"%s\", wanted \"%s\"",
          diag.text, what);
    kvant_session_free(s);
}

/* A place in the file of a token's text, behind its length. */
static char *text_at(char *file, size_t n, const char *text, size_t len)
{
    const uint64_t wide = len;

    for (size_t i = 0; i + 8 + len <= n; i++)
        if (memcmp(file + i, &wide, 8) == 0 && memcmp(file + i + 8, text, len) == 0)
            return file + i + 8;
    return NULL;
}

/* Writes the model's file with two tokens of two letters swapped; returns the lower id, 0: no such file. */
static int swap_tokens(const drafter *d, const char *path, const char *to)
{
    char text[2][8], *file, *at[2] = { NULL, NULL };
    int found = 0, first = 0;
    size_t n;

    if (file_read(path, (size_t)1 << 26, &file, &n, NULL) != KVANT_OK)
        return 0;
    for (int id = 256; id < d->e->m->hp.n_vocab && found < 2; id++) {
        if (kvant_token_bytes(d->m, id, 1, text[found], 8) != 2 || !isalpha((unsigned char)text[found][0]))
            continue;
        at[found] = text_at(file, n, text[found], 2);
        first = found == 0 ? id : first;
        found += at[found] != NULL;
    }
    CHECK(found == 2, "%s: no two tokens of two letters", path);
    if (found == 2) {
        memcpy(at[0], text[1], 2);
        memcpy(at[1], text[0], 2);
    }
    FILE *f = fopen(to, "wb");
    const int written = f && fwrite(file, 1, n, f) == n;
    if (f)
        fclose(f);
    kvant_free(file);
    return written && found == 2 ? first : 0;
}

static void check_swapped(const drafter *target)
{
    char path[] = "/tmp/check_spec_model_XXXXXX", what[64];
    drafter b;
    const int fd = mkstemp(path), id = swap_tokens(target, "tests/golden/tiny/llama.gguf", path);

    snprintf(what, sizeof what, "token %d is", id);
    CHECK(fd >= 0 && id > 0, "%s is not written", path);
    if (id > 0 && open_drafter(&b, path, 0, 128, 64)) {
        refused(target, &b, what);
        close_drafter(&b);
    }
    close(fd);
    unlink(path);
}

static void check_refused(void)
{
    drafter a, b;
    int seq;

    if (!open_drafter(&a, "tests/golden/tiny/qwen3.gguf", 0, 128, 64))
        return;
    a.e->p.logits_rows = a.e->p.max_seqs + 1; /* for drafts */
    refused(&a, NULL, "found none");
    refused(&a, &a, "another one");
    check_swapped(&a);
    if (open_drafter(&b, "tests/golden/tiny/qwen35.gguf", 0, 128, 64))
        refused(&a, &b, "is recurrent");
    close_drafter(&b);
    if (open_drafter(&b, "tests/golden/tiny/llama.gguf", 0, 128, 64)) {
        CHECK(kvant_seq_new(b.e, &seq, NULL) == KVANT_OK, "no sequence");
        refused(&a, &b, "is in use");
    }
    close_drafter(&b);
    if (open_drafter(&b, "tests/archs/gemma.gguf", 0, 128, 64))
        refused(&a, &b, "a vocabulary of 272 tokens, wanted the model's 512");
    close_drafter(&b);
    close_drafter(&a);
}

/* ---- texts beside each other ---- */

enum { LANES = 3, ROWS = 512 };

typedef struct lanes_of {
    drafter target, own;
    draft_model model;
    draft_seq at[LANES];
    draft_lane lane[LANES];
    int32_t tokens[LANES][128];
} lanes_of;

/* Texts of 70, 30 and 20 tokens for a drafter of ROWS tokens beside a model that has more. */
static int open_lanes(lanes_of *l, int64_t pool)
{
    static const int n[LANES] = { 70, 30, 20 };
    static const char path[] = "tests/golden/tiny/qwen3.gguf";
    kvant_diag d = { "" };

    memset(l, 0, sizeof *l);
    if (!open_drafter(&l->target, path, 0, 128, 64) || !open_drafter(&l->own, path, pool, 128, 64))
        return 0;
    l->target.m->hp.n_vocab = ROWS + 40; /* it evaluates nothing */
    if (draft_model_create(&l->model, l->target.e, l->own.e, &d) != KVANT_OK) {
        CHECK(0, "%s: %s", path, d.text);
        return 0;
    }
    for (int i = 0; i < LANES; i++) {
        serve_tokens(l->tokens[i], n[i], 31 + (uint64_t)i);
        l->lane[i] = (draft_lane){ .at = &l->at[i], .tokens = l->tokens[i], .n = n[i], .most = 4, .live = 1 };
    }
    return 1;
}

static void close_lanes(lanes_of *l)
{
    for (int i = 0; i < LANES; i++)
        draft_model_drop(&l->model, &l->at[i]);
    check_idle(&l->own, "lanes");
    draft_model_free(&l->model);
    close_drafter(&l->own);
    close_drafter(&l->target);
}

static void check_rows(const lanes_of *l, int i)
{
    const draft_seq *at = &l->at[i];
    const int len = at->place ? kvant_seq_length(l->own.e, at->place - 1) : 0;

    CHECK(len == at->rows + at->n_fed, "text %d: %d rows and %d guesses, the sequence has %d", i, at->rows, at->n_fed,
          len);
}

/* A token that the drafter lacks, in the middle or at the end of a text, turns that text off and no other. */
static void check_unknown(int where)
{
    lanes_of l;

    if (!open_lanes(&l, 0))
        return;
    l.tokens[1][where] = ROWS;
    for (int round = 0; round < 3; round++) {
        const int rows = (round ? draft_model_next : draft_model_begin)(&l.model, l.lane, LANES, 0);
        CHECK(rows == (round ? 2 : 90), "token %d, round %d: %d rows", where, round, rows);
        for (int i = 0; i < LANES; i++) {
            CHECK(l.lane[i].live == (i != 1) && l.at[i].off == (i == 1), "token %d, round %d: text %d: live %d, off %d",
                  where, round, i, l.lane[i].live, l.at[i].off);
            check_rows(&l, i);
        }
    }
    close_lanes(&l);
}

/* A step without room: the longest text has no guesses any more, and the others go on in the next one. */
static void check_room(void)
{
    lanes_of l;

    if (!open_lanes(&l, 3 * 64))
        return;
    CHECK(draft_model_begin(&l.model, l.lane, LANES, 0) == 0 && l.at[0].off, "3 pages: 4 were taken");
    for (int i = 0; i < LANES; i++)
        check_rows(&l, i);
    l.lane[1].live = l.lane[2].live = 1;
    CHECK(draft_model_begin(&l.model, l.lane, LANES, 0) == 50, "the others do not go on");
    CHECK(!l.lane[0].live && l.lane[1].live && l.lane[2].live, "live: %d %d %d", l.lane[0].live, l.lane[1].live,
          l.lane[2].live);
    close_lanes(&l);
}

int main(void)
{
    check_refused();
    check_unknown(3);
    check_unknown(29);
    check_room();
    run_model("tests/golden/tiny/qwen3.gguf", "tests/golden/tiny/llama.gguf", "f16", 64);
    run_model("tests/golden/tiny/llama.gguf", "tests/golden/tiny/qwen3.gguf", "tbq4_0", 0);
    return check_end("check_spec_model");
}
