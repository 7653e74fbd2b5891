/* bench_rounds.c: cache pairs against each other in the engine, round by round.  Not a test, not built by default:
 *     cc -O2 -Iinclude -Isrc tests/bench_rounds.c build/release/lib/libkvant{,-formats}-all.a \
 *         -lpcre2-8 -lutf8proc -lm -lpthread -ldl -o bench_rounds
 *     bench_rounds MODEL.gguf THREADS ROUNDS DEPTH TOKENS PAIR... [--stop]
 * One engine per pair.  DEPTH > 0: each first fills a sequence with DEPTH tokens; a round decodes TOKENS in every
 * engine, one after the other.  DEPTH 0: a round is a prompt of TOKENS in every engine.  Shown: the median of the
 * rounds, and the ratio to the first pair of the same round (median, least, most).  So a machine whose speed drifts
 * still compares.
 * --stop: stops (SIGSTOP) after the fill, so that only the rounds need be given the machine (chrt -a, then SIGCONT). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "kvant/engine.h"

enum { MAX_PAIRS = 12, MAX_ROUNDS = 64, MAX_TOKENS = 65536 };

typedef struct side {
    char k[32], v[32];
    kvant_engine *e;
    int seq;
    double speed[MAX_ROUNDS], ratio[MAX_ROUNDS];
} side;

static kvant_diag diag;
static int32_t tokens[MAX_TOKENS];

static void must(int code)
{
    if (code == KVANT_OK)
        return;
    fprintf(stderr, "bench_rounds: %s\n", diag.text);
    exit(1);
}

static void decode(side *s, int n)
{
    for (int i = 0; i < n; i++) {
        const kvant_item one = { s->seq, tokens + i, 1, 0, KVANT_LOGITS_GREEDY };
        must(kvant_step(s->e, &one, 1, &diag));
    }
}

static void prompt(side *s, int n)
{
    const kvant_item all = { s->seq, tokens, n, 1, KVANT_LOGITS_LAST };
    must(kvant_step(s->e, &all, 1, &diag));
}

static void side_open(side *s, kvant_model *m, const char *pair, int threads, int depth, int total)
{
    kvant_engine_params p = kvant_engine_defaults();
    const char *colon = strchr(pair, ':');

    snprintf(s->k, sizeof s->k, "%.*s", colon ? (int)(colon - pair) : (int)strlen(pair), pair);
    snprintf(s->v, sizeof s->v, "%s", colon ? colon + 1 : pair);
    p.type_k = s->k;
    p.type_v = s->v;
    p.threads = threads;
    p.n_ctx = depth + total;
    must(kvant_engine_create(m, &p, &s->e, &diag));
    must(kvant_seq_new(s->e, &s->seq, &diag));
    if (depth > 0)
        prompt(s, depth);
}

/* Tokens per second of one round. */
static double measure(side *s, int depth, int n)
{
    int64_t t = clock_ns();
    if (depth > 0)
        decode(s, n);
    else
        prompt(s, n);
    t = clock_ns() - t;
    if (depth == 0) {
        kvant_seq_free(s->e, s->seq);
        must(kvant_seq_new(s->e, &s->seq, &diag));
    }
    return n * 1e9 / (double)t;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sorted_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

int main(int argc, char **argv)
{
    static side sides[MAX_PAIRS];
    const int stop = argc > 1 && strcmp(argv[argc - 1], "--stop") == 0, n_sides = argc - 6 - stop;
    if (n_sides < 1 || n_sides > MAX_PAIRS) {
        fprintf(stderr, "usage: bench_rounds MODEL THREADS ROUNDS DEPTH TOKENS PAIR... [--stop]\n");
        return 2;
    }
    const int threads = atoi(argv[2]), rounds = atoi(argv[3]), depth = atoi(argv[4]), n = atoi(argv[5]);
    const int total = depth > 0 ? n * (rounds + 1) : n;
    if (rounds < 1 || rounds > MAX_ROUNDS || n < 1 || depth < 0 || depth > MAX_TOKENS || n > MAX_TOKENS)
        return 2;

    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = argv[1] };
    kvant_model *m;
    must(kvant_model_open(&mp, &m, &diag));
    for (int i = 0; i < MAX_TOKENS; i++)
        tokens[i] = (int32_t)((unsigned)i * 2654435761u % (unsigned)kvant_model_get_info(m)->n_vocab);
    for (int i = 0; i < n_sides; i++)
        side_open(&sides[i], m, argv[6 + i], threads, depth, total);
    if (stop)
        raise(SIGSTOP);
    for (int r = -1; r < rounds; r++)      /* round -1 warms up */
        for (int i = 0; i < n_sides; i++) {
            const double speed = measure(&sides[i], depth, n);
            if (r < 0)
                continue;
            sides[i].speed[r] = speed;
            sides[i].ratio[r] = speed / sides[0].speed[r];
        }
    for (int i = 0; i < n_sides; i++) {
        side *s = &sides[i];
        const double speed = sorted_median(s->speed, rounds), ratio = sorted_median(s->ratio, rounds);
        printf("| %s : %s | %d | %d | %.1f | %.2f | %.2f to %.2f |\n", s->k, s->v, depth, n, speed, ratio, s->ratio[0],
               s->ratio[rounds - 1]);
        kvant_engine_free(s->e);
    }
    kvant_model_close(m);
    return 0;
}
