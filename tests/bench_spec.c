/* bench_spec.c: decoding an edited copy of a text that stands in the prompt, without drafts and with n-grams, by turns.
 * Not a test, not built by default:
 *     cc -O2 -Iinclude -Isrc tests/bench_spec.c build/release/lib/libkvant{,-formats}-all.a \
 *         -lpcre2-8 -lutf8proc -lm -lpthread -ldl -o bench_spec
 *     bench_spec MODEL.gguf TEXT THREADS ROUNDS TYPE
 * The prompt is the first 2,000 tokens of TEXT; the answer is the same with ten tokens changed, which a mask dictates:
 * the tokens are those of an edit whatever the model knows, the work is that of a real one, and the drafter sees only
 * the prompt and what came.  Shown: tokens per second of each round, the medians, drafts checked and accepted. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "kvant/kvant.h"

enum { TOKENS = 2000, CHANGES = 10, MOST_ROUNDS = 32 };

static kvant_diag diag;
static int32_t prompt[TOKENS], answer[TOKENS];
static int at; /* tokens of the answer so far */
static kvant_timings times;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t over = PTHREAD_COND_INITIALIZER;
static int done;

static void must(int code)
{
    if (code == KVANT_OK)
        return;
    fprintf(stderr, "bench_spec: %s\n", diag.text);
    exit(1);
}

/* One logit stays finite. */
static int dictate(void *user, float *logits, int n_vocab)
{
    (void)user;
    for (int i = 0; i < n_vocab; i++)
        if (i != answer[at])
            logits[i] = -INFINITY;
    return KVANT_OK;
}

static void accepted(void *user, int32_t token)
{
    (void)user;
    (void)token;
    at++;
}

static int on_event(void *user, const kvant_event *ev)
{
    (void)user;
    if (ev->kind != KVANT_EVENT_END)
        return KVANT_EVENT_GO;
    pthread_mutex_lock(&lock);
    times = *ev->timings;
    done = 1;
    pthread_cond_signal(&over);
    pthread_mutex_unlock(&lock);
    return KVANT_EVENT_GO;
}

static double run(kvant_session *s)
{
    kvant_request q = kvant_request_defaults();
    uint64_t id;

    at = done = 0;
    q.prompt = prompt;
    q.n_prompt = TOKENS;
    q.max_tokens = TOKENS;
    q.ignore_eos = 1;
    q.mask = dictate;
    q.accepted = accepted;
    q.event = on_event;
    must(kvant_session_submit(s, &q, &id, &diag));
    pthread_mutex_lock(&lock);
    while (!done)
        pthread_cond_wait(&over, &lock);
    pthread_mutex_unlock(&lock);
    return (times.n_generated - 1) * 1e9 / (double)times.decode_ns;
}

static void read_text(const kvant_model *m, const char *path)
{
    static char text[65536];
    static int32_t ids[65536];
    FILE *f = fopen(path, "rb");
    const size_t len = f ? fread(text, 1, sizeof text, f) : 0;
    int n = 0;

    if (f)
        fclose(f);
    must(kvant_tokenize(m, text, len, 0, ids, 65536, &n, &diag));
    if (n < TOKENS + CHANGES) {
        fprintf(stderr, "%s: %d tokens, wanted %d\n", path, n, TOKENS + CHANGES);
        exit(1);
    }
    memcpy(prompt, ids, sizeof prompt);
    memcpy(answer, ids, sizeof answer);
    for (int i = 0; i < CHANGES; i++)
        answer[(2 * i + 1) * TOKENS / (2 * CHANGES)] = ids[TOKENS + i];
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const char *const names[] = { "off", "ngram", "auto" };
    double speed[3][MOST_ROUNDS];
    kvant_model_params mp = kvant_model_defaults();
    kvant_engine_params ep = kvant_engine_defaults();
    const int rounds = argc > 4 ? atoi(argv[4]) : 0;
    kvant_model *m;

    if (argc < 6 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_spec MODEL.gguf TEXT THREADS ROUNDS TYPE\n");
        return 2;
    }
    mp.path = argv[1];
    must(kvant_model_open(&mp, &m, &diag));
    read_text(m, argv[2]);
    ep.threads = atoi(argv[3]);
    ep.type_k = ep.type_v = argv[5];
    ep.n_ctx = 2 * TOKENS + KVANT_PAGE;
    ep.logits_rows = ep.draft_rows = 1 + KVANT_MOST_DRAFTS;
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < 3; k++) {
            kvant_session_params sp = kvant_session_defaults();
            kvant_engine *e;
            kvant_session *s;
            must(kvant_engine_create(m, &ep, &e, &diag));
            sp.spec = k == 0 ? KVANT_SPEC_OFF : k == 1 ? KVANT_SPEC_NGRAM : KVANT_SPEC_AUTO;
            must(kvant_session_create(e, &sp, &s, &diag));
            speed[k][r] = run(s);
            printf("%-6s %8.1f t/s, %d drafts, %d accepted\n", names[k], speed[k][r], times.n_drafted,
                   times.n_draft_accepted);
            fflush(stdout);
            kvant_session_free(s);
            kvant_engine_free(e);
        }
    for (int k = 0; k < 3; k++)
        qsort(speed[k], (size_t)rounds, sizeof(double), ascending);
    for (int k = 0; k < 3; k++)
        printf("median %-6s %8.1f t/s, %.2f times off\n", names[k], speed[k][rounds / 2],
               speed[k][rounds / 2] / speed[0][rounds / 2]);
    kvant_model_close(m);
    return 0;
}
