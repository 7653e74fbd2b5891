/* check_server_masks.c: the work of grammars has limits, and is done in slices beside the steps (finding A4); the
 * deepest stack that a grammar may have survives a new start of its automaton (A13).  Work is counted, so that no
 * check here depends on how fast the machine is. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "base/rng.h"
#include "server/grammar/grammar_states.h"
#include "server/grammar/grammar_work.h"
#include "support/check.h"

/* All bytes, all pairs of small letters, and longer words of them; the last one is an end token. */
enum { N_WORDS = 3000, N_VOCAB = 256 + 676 + N_WORDS + 1 };
static grammar_vocab *vocab;

static void make_vocab(void)
{
    static char pool[N_VOCAB][12];
    static const char *text[N_VOCAB];
    static int len[N_VOCAB];
    static unsigned char eog[N_VOCAB];
    rng r = { 11 };

    for (int i = 0; i < N_VOCAB; i++) {
        text[i] = pool[i];
        len[i] = i < 256 ? 1 : i < 932 ? 2 : 3 + (int)rng_below(&r, 6);
        for (int k = 0; k < len[i]; k++)
            pool[i][k] = (char)('a' + rng_below(&r, 26));
        if (i < 256)
            pool[i][0] = (char)i;
        else if (i < 932)
            memcpy(pool[i], (char[]){ (char)('a' + (i - 256) / 26), (char)('a' + (i - 256) % 26) }, 2);
    }
    eog[N_VOCAB - 1] = 1;
    CHECK(grammar_vocab_from_list(text, len, eog, N_VOCAB, &vocab, NULL) == KVANT_OK, "vocabulary");
}

static grammar *compiled(const char *text)
{
    kvant_diag diag = { "" };
    grammar *g = NULL;

    CHECK(grammar_compile(text, strlen(text), &g, &diag) == KVANT_OK, "%.60s: %s", text, diag.text);
    return g;
}

/* Classes that may each come 0 to 50 times: at any place all that follow are alive too, thousands of stacks. */
static grammar *bomb(int classes)
{
    static const char *const some[] = { "[a-z ]", "[a-m ]", "[n-z ]", "[aeiou ]", "[a-zA-Z ]", "[b-y ,]" };
    char text[8192];
    int n = snprintf(text, sizeof text, "root ::= ");

    for (int i = 0; i < classes; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s{0,50} ", some[i % 6]);
    snprintf(text + n, sizeof text - (size_t)n, "\"!\"");
    return compiled(text);
}

static grammar_run *run_of(grammar *g)
{
    grammar_run *r = NULL;

    CHECK(grammar_run_create(g, vocab, &r, NULL) == KVANT_OK, "run");
    return r;
}

/* The run's next mask, in slices; how many it took. */
static int make_mask(grammar_run *r, int *slices, kvant_diag *diag)
{
    int code = grammar_run_try(r, diag);

    for (*slices = 0; code == KVANT_EBUSY; ++*slices)
        code = grammar_run_work(r, diag);
    return code;
}

/* A4: one token's mask has a limit, and neither a try nor a slice does much more than its share of it. */
static void check_a4_mask(void)
{
    grammar *g = bomb(270);
    grammar_run *r = run_of(g);
    kvant_diag diag = { "" };
    int64_t most = 0, total = 0;
    int code = grammar_run_try(r, &diag), slices = 0;

    CHECK(code == KVANT_EBUSY, "A4 a try: %d", code);
    CHECK(g->spent > 0 && g->spent <= GRAMMAR_FUEL_TRY + 64, "A4 a try spent %lld", (long long)g->spent);
    total = g->spent;
    while (code == KVANT_EBUSY) {
        const int64_t before = g->spent;
        code = grammar_run_work(r, &diag);
        most = g->spent - before > most ? g->spent - before : most;
        total += g->spent - before;
        slices++;
    }
    CHECK(code == KVANT_EINVAL && strstr(diag.text, "67108864 units"), "A4 %d: %s", code, diag.text);
    CHECK(most <= GRAMMAR_FUEL_SLICE + GRAMMAR_FUEL_STEP + 64, "A4 a slice spent %lld", (long long)most);
    CHECK(total > GRAMMAR_FUEL_MASK && total <= GRAMMAR_FUEL_MASK + most, "A4 %lld units", (long long)total);
    CHECK(slices > 16, "A4 %d slices", slices);
    CHECK(grammar_run_work(r, &diag) == KVANT_EINVAL, "A4 it stays ended");
    CHECK(grammar_bytes(g) <= (size_t)HARD_BYTES + (1 << 20), "A4 %zu bytes", grammar_bytes(g));
    grammar_run_free(r);
    grammar_release(g);
}

/* A4: a try ends within a step too: here the first state alone is more than it may do. */
static void check_a4_step(void)
{
    char text[8192];
    kvant_diag diag = { "" };
    int n = snprintf(text, sizeof text, "root ::= \"a\""), slices;

    while (n < 8000)
        n += snprintf(text + n, sizeof text - (size_t)n, "|\"b\"");
    grammar *g = compiled(text);
    grammar_run *r = run_of(g);
    CHECK(grammar_run_try(r, &diag) == KVANT_EBUSY && g->spent <= GRAMMAR_FUEL_TRY + 64, "A4 a try spent %lld",
          (long long)g->spent);
    CHECK(make_mask(r, &slices, &diag) == KVANT_OK && slices > 0 && r->mask->left == 2, "A4 %s", diag.text);
    grammar_run_free(r);
    grammar_release(g);
}

/* A4: so has all of a request, whose tokens bring a little more each. */
static void check_a4_request(void)
{
    grammar *g = bomb(100);
    grammar_run *r = run_of(g);
    kvant_diag diag = { "" };
    int64_t before = 0;
    int code, slices, tokens = 0;
    rng random = { 5 };

    while ((code = make_mask(r, &slices, &diag)) == KVANT_OK && tokens < 10000) {
        before = r->spent;
        code = grammar_run_take(r, 'a' + (int)rng_below(&random, 26), &diag);
        if (code != KVANT_OK)
            break;
        tokens++;
    }
    const int64_t limit = GRAMMAR_FUEL_REQUEST + (int64_t)tokens * GRAMMAR_CREDIT * vocab->walk;
    CHECK(code == KVANT_EINVAL && strstr(diag.text, "this request took"), "A4 %d after %d: %s", code, tokens,
          diag.text);
    CHECK(r->spent > limit && r->spent <= limit + GRAMMAR_FUEL_SLICE + GRAMMAR_FUEL_STEP && before <= limit,
          "A4 a request of %d tokens spent %lld, limit %lld", tokens, (long long)r->spent, (long long)limit);
    grammar_run_free(r);
    grammar_release(g);
}

/* A4: a sane grammar never meets them: 3,000 tokens, each in a state of its own. */
static void check_a4_plain(void)
{
    grammar *g = compiled("root ::= \"<\" [a-z]{0,4096} \">\"");
    grammar_run *r = run_of(g);
    kvant_diag diag = { "" };
    int code, slices, tokens = 0;

    while ((code = make_mask(r, &slices, &diag)) == KVANT_OK && tokens < 3000)
        code = grammar_run_take(r, tokens++ ? 'a' + tokens % 26 : '<', &diag);
    CHECK(code == KVANT_OK && r->spent < r->allowed, "A4 %d after %d: %s; %lld spent", code, tokens, diag.text,
          (long long)r->spent);
    grammar_run_free(r);
    grammar_release(g);
}

/* A4: what a try leaves undone, slices finish, and the mask is the same as one made in one go or found. */
static void check_a4_same(void)
{
    static float one[N_VOCAB], two[N_VOCAB], three[N_VOCAB];
    grammar *g = bomb(20), *h = bomb(20);
    grammar_run *a = run_of(g), *b = run_of(g), *c = run_of(h);
    int left[3], complete, slices, again;

    CHECK(make_mask(a, &slices, NULL) == KVANT_OK && slices > 1, "A4 %d slices", slices);
    CHECK(make_mask(b, &again, NULL) == KVANT_OK && again == 0, "A4 the mask of a state is kept: %d", again);
    while (grammar_run_work(c, NULL) == KVANT_EBUSY)
        ;
    grammar_run_apply(a, one, N_VOCAB, &left[0], &complete, NULL);
    grammar_run_apply(b, two, N_VOCAB, &left[1], &complete, NULL);
    grammar_run_apply(c, three, N_VOCAB, &left[2], &complete, NULL);
    CHECK(left[0] > 1000 && left[0] == left[1] && left[0] == left[2] && memcmp(one, two, sizeof one) == 0 &&
              memcmp(one, three, sizeof one) == 0,
          "A4 masks of %d, %d, %d tokens", left[0], left[1], left[2]);
    CHECK(grammar_run_take(a, '9', NULL) == KVANT_EINVAL && grammar_run_try(a, NULL) == KVANT_EINVAL, "A4 no token");
    CHECK(grammar_run_apply(a, one, N_VOCAB, &left[0], &complete, NULL) == KVANT_EINTERNAL, "A4 no mask, no choice");
    grammar_run_free(a);
    grammar_run_free(b);
    grammar_run_free(c);
    grammar_release(g);
    grammar_release(h);
}

/* ---- compiling ---- */

static uint32_t name_hash(const char *s)
{
    uint32_t h = 2166136261u;

    while (*s)
        h = (h ^ (unsigned char)*s++) * 16777619u;
    return h;
}

/* Names that fall into few buckets of the parser's table for a text of `len` bytes. */
static size_t colliding_names(char *text, size_t len)
{
    const uint32_t buckets = (uint32_t)len / 2 + 17;
    size_t n = (size_t)snprintf(text, len, "root ::= \"x\"\n");
    char name[16];

    for (unsigned i = 0; n + 24 < len; i++) {
        snprintf(name, sizeof name, "%x", i);
        if (name_hash(name) % buckets < 64)
            n += (size_t)snprintf(text + n, len - n, "%s ::= \"\"\n", name);
    }
    memset(text + n, '\n', len - n);
    return len;
}

/* A4: no text makes compiling slow.  The first took minutes for 700 bytes: each of 400,000 references to a rule that
 * may be empty looked at all of its own rule again. */
static void check_a4_compile(void)
{
    char text[8192], *names = malloc(GRAMMAR_MAX_TEXT);
    kvant_diag diag = { "" };
    grammar *g = NULL;
    int n = snprintf(text, sizeof text, "root ::= ");
    const clock_t t0 = clock(); /* of this process's work */

    for (int i = 0; i < 90; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "x{4096} ");
    snprintf(text + n, sizeof text - (size_t)n, "\"y\"\nx ::= \"\" | \"a\"\n");
    g = compiled(text);
    grammar_release(g);
    const double took = (double)(clock() - t0) / CLOCKS_PER_SEC;
    CHECK(took < 5, "A4 compiling took %.1f s", took);
    g = NULL;
    CHECK(grammar_compile(names, colliding_names(names, GRAMMAR_MAX_TEXT), &g, &diag) == KVANT_EINVAL &&
              strstr(diag.text, "16777216 units of work to compile"),
          "A4 names that collide: %s", diag.text);
    for (n = snprintf(text, sizeof text, "root ::= "); n < 2000;)
        n += snprintf(text + n, sizeof text - (size_t)n, "(\"a\"{4096}) ");
    CHECK(grammar_compile(text, (size_t)n, &g, &diag) == KVANT_EINVAL && strstr(diag.text, "want at most 400000"),
          "A4 a limit is named with what was found: %s", diag.text);
    free(names);
}

/* ---- depth ---- */

static int open_groups(grammar_run *r, int n, kvant_diag *diag)
{
    int complete, code = KVANT_OK;

    while (n-- > 0 && code == KVANT_OK)
        code = grammar_run_bytes(r, "(", 1, &complete, diag);
    return code;
}

/* A13: GRAMMAR_MAX_DEPTH rules may be open and not one more; the deepest stack is whole after the automaton began
 * anew. */
static void check_a13_depth(void)
{
    grammar *g = compiled("root ::= \"(\" root \")\" | \"x\"");
    grammar_run *r = run_of(g), *beyond = run_of(g);
    kvant_diag diag = { "" };
    int complete = 0, code;

    CHECK(open_groups(beyond, GRAMMAR_MAX_DEPTH + 1, &diag) == KVANT_EINVAL, "A13 one group too many");
    CHECK(open_groups(r, GRAMMAR_MAX_DEPTH, &diag) == KVANT_OK, "A13 %s", diag.text);
    grammar_run_free(beyond);
    pthread_mutex_lock(&g->lock);
    const int states = g->n_states;
    code = gram_shrink(g, &diag);
    CHECK(code == KVANT_OK && g->n_states == 1 && states >= GRAMMAR_MAX_DEPTH, "A13 %s: %d states of %d", diag.text,
          g->n_states, states);
    pthread_mutex_unlock(&g->lock);
    code = grammar_run_bytes(r, "x", 1, &complete, &diag);
    for (int i = 0; i < GRAMMAR_MAX_DEPTH && code == KVANT_OK; i++) {
        CHECK(!complete, "A13 %d groups are closed", i);
        code = grammar_run_bytes(r, ")", 1, &complete, &diag);
    }
    CHECK(code == KVANT_OK && complete, "A13 all are closed: %s", diag.text);
    grammar_run_free(r);
    grammar_release(g);
}

/* ---- the thread ---- */

static _Atomic int n_done;

typedef struct waiter {
    _Atomic int code, place; /* 1: not done; in which order it was done */
    char text[128];
} waiter;

static void note(void *user, int code, const char *text)
{
    waiter *w = user;

    snprintf(w->text, sizeof w->text, "%s", text);
    atomic_store(&w->place, atomic_fetch_add(&n_done, 1));
    atomic_store(&w->code, code);
}

static void wait_for(waiter *w)
{
    while (atomic_load(&w->code) == 1)
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

/* A4: a small grammar is done before the bombs of another tenant that came before it, and before those of its own. */
static void check_a4_turns(void)
{
    enum { BOMBS = 2 };
    waiter w[BOMBS + 2] = { 0 };
    grammar *g[BOMBS + 2];
    grammar_work *work = NULL;

    CHECK(grammar_work_create(&work, NULL) == KVANT_OK, "thread");
    atomic_store(&n_done, 0);
    for (int i = 0; i < BOMBS + 2; i++) {
        atomic_store(&w[i].code, 1);
        g[i] = i < BOMBS ? bomb(268 + i) : compiled(i == BOMBS ? "root ::= [a-z]+" : "root ::= [a-y]+");
    }
    grammar_run *r[BOMBS + 2];
    pthread_mutex_lock(&g[0]->lock); /* the first one's slice begins when all are there */
    for (int i = 0; i < BOMBS + 2; i++) {
        r[i] = run_of(g[i]);
        grammar_work_add(work, r[i], i == BOMBS ? 2 : 1, note, &w[i]);
    }
    pthread_mutex_unlock(&g[0]->lock);
    for (int i = 0; i < BOMBS + 2; i++)
        wait_for(&w[i]);
    for (int i = 0; i < BOMBS; i++)
        CHECK(w[i].code == KVANT_EINVAL && strstr(w[i].text, "units of work"), "A4 bomb %d: %d %s", i, w[i].code,
              w[i].text);
    CHECK(w[BOMBS].code == KVANT_OK && w[BOMBS].place == 0, "A4 another tenant's was done as %d", w[BOMBS].place);
    CHECK(w[BOMBS + 1].code == KVANT_OK && w[BOMBS + 1].place == 1, "A4 its own was done as %d", w[BOMBS + 1].place);
    for (int i = 0; i < BOMBS + 2; i++) {
        grammar_work_discard(work, r[i]);
        grammar_release(g[i]);
    }
    grammar_work_free(work);
}

/* A4: a client that leaves while its mask is in work, an end of the server, and work that comes later. */
static void check_a4_leaving(void)
{
    grammar_work *work = NULL;
    waiter w[3] = { 0 };
    grammar *g = bomb(270);
    grammar_run *r[3];

    CHECK(grammar_work_create(&work, NULL) == KVANT_OK, "thread");
    for (int i = 0; i < 3; i++) {
        atomic_store(&w[i].code, 1);
        r[i] = run_of(g);
        if (i < 2)
            grammar_work_add(work, r[i], 7, note, &w[i]);
    }
    grammar_work_discard(work, r[0]);
    wait_for(&w[0]);
    CHECK(w[0].code == KVANT_ECANCELED, "A4 one that left: %d", w[0].code);
    grammar_work_stop(work);
    CHECK(w[1].code == KVANT_ECANCELED || w[1].code == KVANT_EINVAL, "A4 at the end: %d", w[1].code);
    grammar_work_add(work, r[2], 7, note, &w[2]);
    CHECK(w[2].code == KVANT_ECANCELED, "A4 after it: %d", w[2].code);
    grammar_work_discard(work, r[1]);
    grammar_work_discard(work, r[2]);
    grammar_work_free(work);
    CHECK(atomic_load(&g->refs) == 1 && !g->runs, "A4 every run is gone: %d", atomic_load(&g->refs));
    grammar_release(g);
}

int main(void)
{
    make_vocab();
    check_a4_mask();
    check_a4_step();
    check_a4_request();
    check_a4_plain();
    check_a4_same();
    check_a4_compile();
    check_a13_depth();
    check_a4_turns();
    check_a4_leaving();
    grammar_vocab_free(vocab);
    return check_end("check_server_masks");
}
