/* check_tiers.c: prefixes beyond the pool.  Prompts that a small pool gave up come back from host memory, and after a
 * restart, or in another session, from a folder: as many tokens as before, the same bits as alone.  Not for another
 * salt.  A damaged file is noticed, removed and its tokens are evaluated; the folder keeps its limit.  A pool that is
 * full takes what fits.  What is told of blocks is what is there. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/blocks/session_blocks.h"
#include "support/check.h"
#include "support/log_seen.h"
#include "support/serve_rig.h"
#include "support/session_audit.h"
#include "support/store_rig.h"

enum { PROMPTS = 6, N = 230, GEN = 5, PAGES = 14 };

static const unsigned char salts[2][16] = { { 1, 2, 3 }, { 4, 5, 6 } };
static char folder[64];
static int32_t prompts[PROMPTS][N], alone[PROMPTS][GEN];

static kvant_engine_params engine_params(int tail)
{
    kvant_engine_params p = kvant_engine_defaults();

    p.type_k = p.type_v = tail ? "tbq4_0" : "f16";
    p.threads = 1;
    p.max_seqs = 2;
    p.n_ctx = 320;
    p.n_ubatch = 128;
    p.pool_tokens = PAGES * KVANT_PAGE;
    p.snapshots = 6;
    p.kv_tail = tail;
    return p;
}

static kvant_session_params session_params(int64_t host, const char *dir, int64_t most)
{
    kvant_session_params p = kvant_session_defaults();

    p.host_bytes = host;
    p.store_dir = dir;
    p.store_bytes = most;
    return p;
}

static void audit(kvant_session *s)
{
    char why[256];

    CHECK(session_audit(s, why, sizeof why), "%s", why);
}

/* Prompt i: its tokens are those alone; returns how many came from a cache. */
static int ask(serve_rig *r, int i, const unsigned char *salt, const char *what)
{
    serve_out out = { .n = 0 };
    kvant_request q = store_request(prompts[i], N, GEN, -1, salt);

    serve_one(r, &q, &out);
    CHECK(out.n == GEN && memcmp(out.tokens, alone[i], sizeof alone[i]) == 0, "%s: prompt %d: %d tokens, or others: %s",
          what, i, out.n, out.text);
    return out.n_cached;
}

static int files(const char *ending, int64_t *bytes)
{
    DIR *d = opendir(folder);
    int n = 0;

    *bytes = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[400];
        struct stat st;
        const size_t len = strlen(e->d_name), k = strlen(ending);
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (len < k || strcmp(e->d_name + len - k, ending) != 0 || stat(path, &st) != 0)
            continue;
        n++;
        *bytes += st.st_size;
    }
    if (d)
        closedir(d);
    return n;
}

/* Calls each with the path of every file of that ending. */
static void each_file(const char *ending, void (*each)(const char *path))
{
    char list[128][160];
    DIR *d = opendir(folder);
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d)) != NULL && n < 128;) {
        const size_t len = strlen(e->d_name), k = strlen(ending);
        if (len >= k && len < 80 && strcmp(e->d_name + len - k, ending) == 0)
            snprintf(list[n++], sizeof *list, "%s/%.80s", folder, e->d_name);
    }
    if (d)
        closedir(d);
    for (int i = 0; i < n; i++)
        each(list[i]);
}

static void flip_byte(const char *path)
{
    FILE *f = fopen(path, "r+b");
    long size;
    int c;

    if (!f)
        return;
    fseek(f, 0, SEEK_END);
    size = ftell(f);
    fseek(f, size / 2, SEEK_SET);
    c = fgetc(f);
    fseek(f, size / 2, SEEK_SET);
    fputc(c ^ 4, f);
    fclose(f);
}

static void cut_half(const char *path)
{
    struct stat st;

    if (stat(path, &st) == 0 && truncate(path, st.st_size / 2) != 0)
        perror(path);
}

/* Every file gets the name of another one. */
static char name_before[160];
static void take_name(const char *path)
{
    char spare[160];

    snprintf(spare, sizeof spare, "%s/spare", folder);
    rename(path, name_before[0] ? name_before : spare);
    snprintf(name_before, sizeof name_before, "%s", path);
}

static void exchange_names(void)
{
    char spare[160];

    name_before[0] = 0;
    each_file("p.kvb", take_name);
    snprintf(spare, sizeof spare, "%s/spare", folder);
    rename(spare, name_before);
}

static void flip_all(void)
{
    each_file(".kvb", flip_byte);
}

static void cut_all(void)
{
    each_file(".kvb", cut_half);
}

static void remove_file(const char *path)
{
    unlink(path);
}

static int open_rig(serve_rig *r, const char *path, int tail, kvant_session_params sp)
{
    if (!serve_open(r, path, engine_params(tail), sp))
        return 0;
    atomic_store(&r->s->hooks.after_tick, audit);
    return 1;
}

static void make_prompts(const char *path, int tail)
{
    serve_rig r;

    for (int i = 0; i < PROMPTS; i++)
        serve_tokens(prompts[i], N, 300 + (uint64_t)i);
    memcpy(prompts[1], prompts[0], 130 * sizeof **prompts); /* two of them part behind two pages */
    if (!serve_open(&r, path, engine_params(tail), kvant_session_defaults()))
        return;
    kvant_session_free(r.s);
    r.s = NULL;
    for (int i = 0; i < PROMPTS; i++)
        serve_alone(r.e, prompts[i], N, GEN, alone[i]);
    serve_close(&r);
}

static const int all = (N - 1) / KVANT_PAGE * KVANT_PAGE;

/* ---- what is told ---- */

enum { TOLD = 256 };
static uint64_t told[2][TOLD]; /* hashes by medium */
static int n_told[2], bad_told;
static pthread_t teller; /* of the first event */

static int place_of(int medium, uint64_t hash)
{
    for (int i = 0; i < n_told[medium]; i++)
        if (told[medium][i] == hash)
            return i;
    return -1;
}

static void on_kv(void *user, const kvant_kv_event *ev)
{
    (void)user;
    if (n_told[0] + n_told[1] == 0)
        teller = pthread_self();
    bad_told += !pthread_equal(teller, pthread_self());
    if (ev->kind == KVANT_KV_CLEARED)
        n_told[0] = n_told[1] = 0;
    for (int i = 0; i < ev->n; i++) {
        const int m = ev->medium, at = place_of(m, ev->hashes[i]);
        const int parent = ev->kind == KVANT_KV_STORED && ev->has_parent;
        bad_told += (at >= 0) == (ev->kind == KVANT_KV_STORED);
        bad_told += parent && place_of(0, ev->parent) < 0 && place_of(1, ev->parent) < 0;
        if (ev->kind == KVANT_KV_STORED && n_told[m] < TOLD)
            told[m][n_told[m]++] = ev->hashes[i];
        else if (at >= 0)
            told[m][at] = told[m][--n_told[m]];
    }
}

/* The blocks that were told are those of the index, and those of host memory. */
static void check_told(const kvant_session *s)
{
    int n = 0;

    CHECK(bad_told == 0 && n_told[0] == s->prefix.n_nodes, "%d faults; %d blocks told of %d", bad_told,
          n_told[0], s->prefix.n_nodes);
    for (int i = s->prefix.oldest; i >= 0; i = s->prefix.nodes[i].newer)
        CHECK(place_of(0, block_hash(s->prefix.nodes[i].id)) >= 0, "a block of the index was not told");
    for (const host_entry *e = s->blocks->host.oldest; e; e = e->newer)
        n += e->what == BLOCK_PAGE;
    CHECK(n_told[1] == (blocks_tell_host(s) ? n : 0), "%d blocks of host memory told of %d", n_told[1], n);
}

/* ---- host memory ---- */

static void check_host(const char *path, int tail)
{
    kvant_session_stats st;
    serve_rig r;

    kvant_session_params sp = session_params(64 << 20, NULL, 0);
    sp.kv_event = on_kv;
    if (!open_rig(&r, path, tail, sp))
        return;
    for (int i = 0; i < PROMPTS; i++)
        ask(&r, i, salts[0], "host");
    for (int i = 0; i < PROMPTS; i++)
        CHECK(ask(&r, i, salts[0], "host, again") == all, "%s: prompt %d did not come back whole", path, i);
    CHECK(ask(&r, 2, salts[1], "host, another salt") == 0, "%s: another salt's prefix", path);
    kvant_session_get_stats(r.s, &st);
    CHECK(st.host_hits > 0 && st.host_bytes_used > 0 && st.evicted_pages > 0, "%s: %llu blocks from host memory", path,
          (unsigned long long)st.host_hits);
    check_told(r.s);
    store_act(&r, KVANT_CACHE_CLEAR, 0, NULL, salts[0]);
    CHECK(n_told[0] + n_told[1] == 0, "cleared, and %d blocks are told still", n_told[0] + n_told[1]);
    CHECK(ask(&r, 0, salts[0], "host, cleared") == 0, "%s: cleared, and found", path);
    serve_close(&r);
    CHECK(bad_told == 0, "the end: %d faults, or told on another thread", bad_told);
    CHECK(n_told[0] + n_told[1] == 0, "the session ended, and %d blocks are told still", n_told[0] + n_told[1]);
    sp.host_bytes = 200000;
    if (!open_rig(&r, path, tail, sp)) /* room for little: what is there serves, the rest is computed */
        return;
    for (int i = 0; i < 3 * PROMPTS; i++)
        ask(&r, i % PROMPTS, salts[0], "little host memory");
    kvant_session_get_stats(r.s, &st);
    check_told(r.s);
    CHECK(st.host_bytes_used <= 200000, "%lld bytes of 200000", (long long)st.host_bytes_used);
    serve_close(&r);
}

/* ---- the folder ---- */

static void check_folder(const char *path, int tail, int hybrid)
{
    kvant_session_stats st;
    serve_rig r, other;
    int64_t bytes;

    if (!open_rig(&r, path, tail, session_params(0, folder, 0)))
        return;
    for (int i = 0; i < PROMPTS; i++)
        ask(&r, i, salts[0], "folder");
    serve_close(&r); /* after all is written */
    const int pages = files("p.kvb", &bytes), states = files("s.kvb", &bytes);
    CHECK(pages == PROMPTS * 3 - 2 && (states > 0) == hybrid, "%s: %d pages and %d states in the folder",
          path, pages, states);
    if (!open_rig(&r, path, tail, session_params(0, folder, 0)) ||
        !open_rig(&other, path, tail, session_params(0, folder, 0)))
        return;
    for (int i = 0; i < PROMPTS; i++) {
        CHECK(ask(&r, i, salts[0], "restarted") == all, "%s: prompt %d is not found after a restart", path, i);
        CHECK(ask(&other, i, salts[0], "shared") == all, "%s: prompt %d is not found by another session", path, i);
    }
    CHECK(ask(&r, 3, salts[1], "folder, another salt") == 0, "%s: another salt's prefix from the folder", path);
    kvant_session_get_stats(r.s, &st);
    CHECK(st.store_hits == (uint64_t)pages && st.store_damaged == 0, "%llu of %d blocks found",
          (unsigned long long)st.store_hits, pages);
    serve_close(&r);
    serve_close(&other);
}

/* Each way to damage every file: the same tokens, nothing cached, a note, and the files are written anew. */
static void check_damage(const char *path, int tail, void (*damage)(void), const char *what)
{
    kvant_session_stats st;
    serve_rig r;
    int64_t bytes;

    log_seen_begin();
    damage();
    const int before = files(".kvb", &bytes);
    if (!open_rig(&r, path, tail, session_params(0, folder, 0)))
        return;
    for (int i = 0; i < PROMPTS; i++)
        if (i != 1) /* it has pages of prompt 0 by then */
            CHECK(ask(&r, i, salts[0], what) == 0, "%s: prompt %d: something damaged was used", what, i);
    kvant_session_get_stats(r.s, &st);
    CHECK(before > 0 && st.store_damaged >= PROMPTS - 1 && log_seen("is removed"), "%s: %llu noticed", what,
          (unsigned long long)st.store_damaged);
    serve_close(&r);
    if (!open_rig(&r, path, tail, session_params(0, folder, 0)))
        return;
    for (int i = 2; i < PROMPTS; i++)
        CHECK(ask(&r, i, salts[0], "written anew") == all, "%s: prompt %d is not there again", what, i);
    serve_close(&r);
}

static void check_limit(const char *path, int tail)
{
    const int64_t most = 8 * 90000;
    kvant_session_stats st;
    serve_rig r;
    int64_t bytes;

    if (!open_rig(&r, path, tail, session_params(0, folder, most)))
        return;
    for (int i = 0; i < PROMPTS; i++)
        ask(&r, i, salts[1], "limit");
    serve_close(&r);
    files(".kvb", &bytes);
    CHECK(bytes > 0 && bytes <= most, "%lld bytes in the folder, at most %lld wanted", (long long)bytes,
          (long long)most);
    if (!open_rig(&r, path, tail, session_params(0, folder, most)))
        return;
    CHECK(ask(&r, PROMPTS - 1, salts[1], "limit, again") == all, "the last prompt went though it was used last");
    kvant_session_get_stats(r.s, &st);
    serve_close(&r);
}

/* ---- small pools: what is fetched must not take the place of what it is appended to ---- */

static int open_small(serve_rig *r, const char *path, kvant_engine_params ep)
{
    if (!serve_open(r, path, ep, session_params(0, folder, 0)))
        return 0;
    atomic_store(&r->s->hooks.after_tick, audit);
    return 1;
}

/* A prompt of tenant `whose`: its tokens are first[GEN], which its first answer fills. */
static void ask_as(serve_rig *r, uint32_t whose, const int32_t *tokens, int n, int32_t *first)
{
    serve_out out = { .n = 0 };
    kvant_request q = store_request(tokens, n, GEN, -1, salts[whose - 1]);

    q.tenant = whose;
    serve_one(r, &q, &out);
    if (first && first[0] < 0)
        memcpy(first, out.tokens, GEN * sizeof *first);
    CHECK(out.n == GEN && (!first || memcmp(first, out.tokens, GEN * sizeof *first) == 0),
          "small pool: a prompt of %d: %d tokens, or others: %s", n, out.n, out.text);
}

/* Two prompts with two pages in common are in the folder; the pool is full of others when the second one is asked. */
static void check_branch(const char *path, int tail)
{
    kvant_engine_params ep = engine_params(tail);
    serve_rig r;

    for (int i = 1; i >= 0; i--) {
        if (!open_small(&r, path, ep))
            return;
        ask(&r, i, salts[0], "branch");
        serve_close(&r);
    }
    for (int pages = 6; pages <= PAGES; pages++) {
        ep.pool_tokens = pages * KVANT_PAGE;
        if (!open_small(&r, path, ep))
            return;
        ask(&r, 0, salts[0], "branch");
        for (int k = 0; k < (pages - 3) / 3; k++)
            ask(&r, 2 + k, salts[1], "branch, others");
        ask(&r, 1, salts[0], "branch, the second");
        serve_close(&r);
    }
    each_file(".kvb", remove_file);
}

/* A long prompt of one tenant is fetched into a pool that is full of another tenant's: soon its own holds more than its
 * part, and only the node that it is appended to could be evicted. */
static void check_tenants(const char *path, int tail)
{
    enum { LONG = 460 };
    int32_t tokens[LONG], first[GEN] = { -1 };
    kvant_engine_params ep = engine_params(tail);
    serve_rig r;

    serve_tokens(tokens, LONG, 777);
    ep.n_ctx = 640;
    for (int pages = 20; pages >= 10; pages = pages == 20 ? 13 : pages - 1) {
        ep.pool_tokens = pages * KVANT_PAGE;
        if (!open_small(&r, path, ep))
            return;
        for (int k = 0; k < pages / 3 && pages < 20; k++)
            ask_as(&r, 2, prompts[k], N, NULL);
        ask_as(&r, 1, tokens, LONG, first);
        serve_close(&r);
    }
    each_file(".kvb", remove_file);
}

/* One place for a snapshot: the fetched state takes that of the node behind its own. */
static void check_snaps(const char *path, int tail)
{
    int32_t whole[GEN] = { -1 }, part[GEN] = { -1 };
    kvant_engine_params ep = engine_params(tail);
    serve_rig r;

    for (int i = 0; i < 4; i++) {
        ep.snapshots = i < 2 ? 6 : i - 1;
        if (!open_small(&r, path, ep))
            return;
        if (i > 0)
            ask_as(&r, 1, prompts[0], N, whole);
        for (int k = 0; k < 2 && i != 1; k++)
            ask_as(&r, 1, prompts[0], 148, part);
        serve_close(&r);
    }
    each_file(".kvb", remove_file);
}

/* ---- a block in each tick ---- */

static _Atomic int n_unheard; /* ticks with a block in the index that was not told */

/* What was told can be resumed from: behind each block, or at it, is a snapshot. */
static void audit_told(kvant_session *s)
{
    const prefix_index *ix = &s->prefix;
    int resumable = 0;

    audit(s);
    for (int i = ix->oldest; i >= 0; i = ix->nodes[i].newer) {
        int found = s->pages_suffice;
        for (int k = ix->oldest; k >= 0 && !found; k = ix->nodes[k].newer)
            for (int up = k; up >= 0 && ix->nodes[k].snap >= 0 && !found; up = prefix_up(ix, up))
                found = up == i;
        resumable += found;
        CHECK(found || place_of(0, block_hash(ix->nodes[i].id)) < 0, "a block was told that nothing resumes from");
    }
    CHECK(n_told[0] == resumable, "%d blocks told, %d can be resumed from", n_told[0], resumable);
    n_unheard += resumable < ix->n_nodes;
}

/* No time at all to look and to fetch: a block comes in each tick, while another request runs, and alone. */
static void check_turns(const char *path, int tail, int hybrid)
{
    kvant_session_params sp = session_params(0, folder, 0);
    serve_out running = { .n = 0 }, out = { .n = 0 };
    kvant_diag diag = { "" };
    serve_rig r;

    sp.kv_event = on_kv;
    for (int i = 0; i < 2; i++) {
        if (!serve_open(&r, path, engine_params(tail), sp))
            return;
        r.s->blocks->turn_ns = 0;
        atomic_store(&r.s->hooks.after_tick, audit_told);
        for (int k = 2; k < 4; k++)
            CHECK(ask(&r, k, salts[0], "a block a tick") == i * all, "prompt %d: not all blocks, or some", k);
        serve_close(&r);
    }
    if (!serve_open(&r, path, engine_params(tail), sp))
        return;
    r.s->blocks->turn_ns = 0;
    atomic_store(&r.s->hooks.after_tick, audit_told);
    kvant_request other = store_request(prompts[5], N, 80, -1, salts[1]);
    kvant_request q = store_request(prompts[2], N, GEN, -1, salts[0]);
    CHECK(serve_submit(&r, &other, &running, &diag) == KVANT_OK && serve_submit(&r, &q, &out, &diag) == KVANT_OK, "%s",
          diag.text);
    serve_wait(&out);
    serve_wait(&running);
    CHECK(out.n_cached == all && memcmp(out.tokens, alone[2], sizeof alone[2]) == 0, "%d tokens cached", out.n_cached);
    CHECK(out.t.ended_ns < running.t.ended_ns, "the fetch waited for the end of the request that ran");
    serve_close(&r);
    CHECK((n_unheard > 0) == hybrid, "%d ticks with blocks that nothing resumes from", n_unheard);
    n_unheard = 0;
    each_file(".kvb", remove_file);
}

static void check_model(const char *path, int tail, int hybrid)
{
    make_prompts(path, tail);
    check_host(path, tail);
    check_folder(path, tail, hybrid);
    check_damage(path, tail, flip_all, "a bit flipped");
    check_damage(path, tail, cut_all, "cut short");
    check_damage(path, tail, exchange_names, "names exchanged");
    check_limit(path, tail);
    each_file(".kvb", remove_file);
    check_turns(path, tail, hybrid);
    check_branch(path, tail);
    check_tenants(path, tail);
    if (hybrid)
        check_snaps(path, tail);
}

static void check_refused(const char *path)
{
    kvant_session_params sp = session_params(0, "/nonexistent/folder", 0);
    kvant_engine_params ep = engine_params(0);
    const kvant_model_params mp = { .size = sizeof mp, .path = path };
    kvant_session *s = NULL;
    kvant_engine *e = NULL;
    kvant_model *m = NULL;
    kvant_diag d = { "" };

    if (kvant_model_open(&mp, &m, &d) != KVANT_OK || kvant_engine_create(m, &ep, &e, &d) != KVANT_OK)
        return;
    CHECK(kvant_session_create(e, &sp, &s, &d) == KVANT_ENOENT && strstr(d.text, "/nonexistent/folder"), "%s", d.text);
    sp = session_params(-1, NULL, 0);
    CHECK(kvant_session_create(e, &sp, &s, &d) == KVANT_EINVAL && strstr(d.text, "host memory"), "%s", d.text);
    kvant_engine_free(e);
    kvant_model_close(m);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/check_tiers.%d", (int)getpid());
    mkdir(folder, 0700);
    check_refused("tests/golden/tiny/qwen3.gguf");
    check_model("tests/golden/tiny/qwen3.gguf", 0, 0);
    check_model("tests/golden/tiny/qwen35.gguf", 0, 1);
    check_model("tests/golden/tiny/qwen35.gguf", 128, 1);
    rmdir(folder);
    return check_end("check_tiers");
}
