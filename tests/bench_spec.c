/* bench_spec.c: decoding an edited copy of a text that stands in the prompt, without drafts and with n-grams, by turns.
 * Not a test, not built by default:
 *     cc -O2 -Iinclude -Isrc -Ibuild/release/generated/include tests/bench_spec.c \
 *         build/release/lib/libkvant{,-formats}-all.a -lpcre2-8 -lutf8proc -lm -lpthread -ldl -o bench_spec
 *     bench_spec MODEL.gguf TEXT THREADS ROUNDS TYPE [SEQUENCES [HEAD.gguf]]
 * The prompt is the first 2,000 tokens of TEXT; the answer is the same with ten tokens changed, which a mask dictates:
 * the tokens are those of an edit whatever the model knows, the work is that of a real one, and the drafter sees only
 * the prompt and what came.  TEXT "-": random tokens, the answer others: nothing comes again.  With several SEQUENCES
 * each has its part of the 2,000 tokens, at least 64.
 * HEAD.gguf: the block for further tokens of a model without one, whose guesses (3 at most) stand in for n-grams; auto
 * has both.  The answer is then what the model itself writes behind the second half of TEXT, which tools/train_mtp.py
 * holds out; with "-" it is dictated as ever, and the block alone is left out.
 * Shown: tokens per second of each round, by the clock and by the CPU's time (which neighbours on the machine disturb
 * less), the medians, drafts checked and accepted. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/rng.h"
#include "kvant/kvant.h"

enum { TOKENS = 2000, CHANGES = 10, MOST_ROUNDS = 64, MOST_SEQS = 64, LEAST = 64, KINDS = 3, DEEP = 3 };

static kvant_diag diag;
static const char *head;            /* NULL: n-grams alone */
static int written;                 /* the model writes */
static int n_seqs = 1, n_tokens = TOKENS, done, drafted, accepted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t over = PTHREAD_COND_INITIALIZER;
static double begun; /* CPU seconds when the last prompt was done */
static int64_t begun_ns;
static int first;

static struct talk {
    int32_t prompt[TOKENS], answer[TOKENS];
    int at; /* tokens of the answer so far */
} talks[MOST_SEQS];

static void must(int code)
{
    if (code == KVANT_OK)
        return;
    fprintf(stderr, "bench_spec: %s\n", diag.text);
    exit(1);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One logit stays finite. */
static int dictate(void *user, float *logits, int n_vocab)
{
    const struct talk *t = user;
    for (int i = 0; i < n_vocab; i++)
        if (i != t->answer[t->at])
            logits[i] = -INFINITY;
    return KVANT_OK;
}

static void count(void *user, int32_t token)
{
    struct talk *t = user;
    (void)token;
    t->at++;
    if (t->at == 1 && ++first == n_seqs) {
        begun = cpu_seconds();
        begun_ns = clock_ns();
    }
}

static int on_event(void *user, const kvant_event *ev)
{
    (void)user;
    if (ev->kind != KVANT_EVENT_END)
        return KVANT_EVENT_GO;
    pthread_mutex_lock(&lock);
    drafted += ev->timings->n_drafted;
    accepted += ev->timings->n_draft_accepted;
    done++;
    pthread_cond_signal(&over);
    pthread_mutex_unlock(&lock);
    return KVANT_EVENT_GO;
}

/* Tokens per second once all prompts are done: by the clock, by the CPU's time. */
static void run(kvant_session *s, double *speed)
{
    done = drafted = accepted = first = 0;
    for (int i = 0; i < n_seqs; i++) {
        kvant_request q = kvant_request_defaults();
        uint64_t id;
        talks[i].at = 0;
        q.prompt = talks[i].prompt;
        q.n_prompt = n_tokens;
        q.max_tokens = n_tokens;
        q.ignore_eos = 1;
        q.mask = written ? NULL : dictate;
        q.accepted = count;
        q.mask_user = &talks[i];
        q.event = on_event;
        must(kvant_session_submit(s, &q, &id, &diag));
    }
    pthread_mutex_lock(&lock);
    while (done < n_seqs)
        pthread_cond_wait(&over, &lock);
    pthread_mutex_unlock(&lock);
    const double tokens = (double)n_seqs * (n_tokens - 1);
    speed[0] = tokens * 1e9 / (double)(clock_ns() - begun_ns);
    speed[1] = tokens / (cpu_seconds() - begun);
}

/* With a head: from the second half of the text. */
static int32_t *begin_of(int32_t *ids, int *n)
{
    if (!head)
        return ids;
    *n -= *n / 2;
    return ids + *n;
}

static void read_text(const kvant_model *m, const char *path)
{
    static char text[1 << 20];
    static int32_t all[1 << 20], *ids;
    FILE *f = fopen(path, "rb");
    const size_t len = f ? fread(text, 1, sizeof text, f) : 0;
    int n = 0;

    if (f)
        fclose(f);
    must(kvant_tokenize(m, text, len, 0, all, 1 << 20, &n, &diag));
    ids = begin_of(all, &n);
    if (n < TOKENS + CHANGES) {
        fprintf(stderr, "%s: %d tokens, wanted %d\n", path, n, TOKENS + CHANGES);
        exit(1);
    }
    for (int s = 0; s < n_seqs; s++) {
        const int32_t *from = ids + s * n_tokens % (TOKENS - n_tokens + 1);
        memcpy(talks[s].prompt, from, (size_t)n_tokens * sizeof *from);
        memcpy(talks[s].answer, from, (size_t)n_tokens * sizeof *from);
        for (int i = 0; i < CHANGES; i++)
            talks[s].answer[(2 * i + 1) * n_tokens / (2 * CHANGES)] = ids[TOKENS + i];
    }
}

static void make_random(const kvant_model *m)
{
    const uint32_t v = (uint32_t)kvant_model_get_info(m)->n_vocab;
    rng r = { 7 };

    for (int s = 0; s < n_seqs; s++)
        for (int i = 0; i < n_tokens; i++) {
            talks[s].prompt[i] = (int32_t)rng_below(&r, v);
            talks[s].answer[i] = (int32_t)rng_below(&r, v);
        }
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int n)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

int main(int argc, char **argv)
{
    const char *names[KINDS] = { "off", "ngram", "auto" };
    static double speed[KINDS][MOST_ROUNDS], by_cpu[KINDS][MOST_ROUNDS], ratio[MOST_ROUNDS];
    kvant_model_params mp = kvant_model_defaults();
    kvant_engine_params ep = kvant_engine_defaults();
    const int rounds = argc > 4 ? atoi(argv[4]) : 0;
    kvant_model *m;

    n_seqs = argc > 6 ? atoi(argv[6]) : 1;
    head = argc > 7 ? argv[7] : NULL;
    written = head && strcmp(argv[2], "-") != 0;
    names[1] = head ? "mtp" : names[1];
    if (argc < 6 || rounds < 1 || rounds > MOST_ROUNDS || n_seqs < 1 || n_seqs > MOST_SEQS) {
        fprintf(stderr, "usage: bench_spec MODEL.gguf TEXT THREADS ROUNDS TYPE [SEQUENCES [HEAD.gguf]]\n");
        return 2;
    }
    n_tokens = TOKENS / n_seqs > LEAST ? TOKENS / n_seqs : LEAST;
    mp.path = argv[1];
    mp.nextn = head;
    must(kvant_model_open(&mp, &m, &diag));
    if (strcmp(argv[2], "-") == 0)
        make_random(m);
    else
        read_text(m, argv[2]);
    ep.threads = atoi(argv[3]);
    ep.type_k = ep.type_v = argv[5];
    ep.n_ctx = 2 * n_tokens + KVANT_PAGE;
    ep.max_seqs = n_seqs;
    ep.logits_rows = ep.draft_rows = n_seqs + KVANT_PAGE;
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < KINDS; k++) {
            kvant_session_params sp = kvant_session_defaults();
            kvant_engine *e;
            kvant_session *s;
            double both[2];
            if (k == 1 && head && !written)
                continue;
            ep.mtp = head && k > 0;
            must(kvant_engine_create(m, &ep, &e, &diag));
            sp.spec = k == 0 ? KVANT_SPEC_OFF : k == 2 ? KVANT_SPEC_AUTO : head ? KVANT_SPEC_MTP : KVANT_SPEC_NGRAM;
            sp.draft_max = head ? DEEP : sp.draft_max;
            sp.no_prefix_cache = 1;
            must(kvant_session_create(e, &sp, &s, &diag));
            run(s, both);
            speed[k][r] = both[0];
            by_cpu[k][r] = both[1];
            printf("%-6s %8.1f t/s, %8.1f t per CPU s, %d drafts, %d accepted\n", names[k], both[0], both[1], drafted,
                   accepted);
            fflush(stdout);
            kvant_session_free(s);
            kvant_engine_free(e);
        }
    for (int k = 0; k < KINDS; k++) {
        if (by_cpu[k][0] == 0)
            continue;
        printf("median %-6s %8.1f t/s", names[k], median(speed[k], rounds));
        for (int which = 0; which < 2; which++) {
            for (int r = 0; r < rounds; r++)
                ratio[r] = which ? by_cpu[k][r] / by_cpu[0][r] : speed[k][r] / speed[0][r];
            printf(", %.3f times off of its round by the %s", median(ratio, rounds), which ? "CPU's time" : "clock");
        }
        printf("\n");
    }
    kvant_model_close(m);
    return 0;
}
