/* bench_steps.c: how long a step takes whose sequences decode beside a piece of a prompt.  Not a test, not built by
 * default:
 *     cc -O2 -Iinclude -Isrc tests/bench_steps.c build/release/lib/libkvant{,-formats}-all.a \
 *         -lpcre2-8 -lutf8proc -lm -lpthread -ldl -o build/release/bin/bench_steps
 *     bench_steps MODEL DEVICE FORMAT SEQUENCES DEPTH ROUNDS TOKENS POSITION...
 * MODEL: a file, or NAME:TYPE as in `kvant bench --synthetic`.  SEQUENCES sequences decode, each DEPTH to DEPTH + 511
 * tokens long at first; beside them runs a piece of TOKENS (0: none) tokens of a prompt from POSITION on.  A round's
 * piece is a token shorter than that of the round before, as in a server no two are alike.  Shown: the median, least
 * and most of ROUNDS rounds, after two that are not counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "kvant/engine.h"

enum { MOST_SEQS = 512, MOST_TOKENS = 16384, MOST_ROUNDS = 64, UNCOUNTED = 2, SPREAD = 512, PASS = 2048 };

typedef struct steps {
    kvant_engine *e;
    int n, depth, rounds;
    int seq[MOST_SEQS];
} steps;

static kvant_diag diag;
static int32_t tokens[MOST_TOKENS];

static void must(int code)
{
    if (code >= 0)
        return;
    fprintf(stderr, "bench_steps: %s\n", diag.text);
    exit(1);
}

static int number(const char *text, int least, int most)
{
    char *end;
    const long v = strtol(text, &end, 10);

    if (*text && !*end && v >= least && v <= most)
        return (int)v;
    fprintf(stderr, "bench_steps: found \"%s\", wanted %d to %d\n", text, least, most);
    exit(2);
}

static void fill(steps *s, int seq, int n)
{
    const kvant_item all = { seq, tokens, n, 1, KVANT_LOGITS_NONE };

    must(kvant_step(s->e, &all, 1, &diag));
}

static void open_steps(steps *s, const char *model, const char *device, const char *format)
{
    kvant_model_params m = kvant_model_defaults();
    kvant_engine_params p = kvant_engine_defaults();
    kvant_model *opened;

    *(strchr(model, ':') ? &m.synthetic : &m.path) = model;
    must(kvant_model_open(&m, &opened, &diag));
    p.device = device;
    p.type_k = p.type_v = format;
    p.max_seqs = s->n + 1;
    p.n_ubatch = PASS;
    p.n_ctx = MOST_TOKENS;
    p.pool_tokens = (int64_t)s->n * (s->depth + SPREAD + MOST_ROUNDS * 64) + MOST_TOKENS;
    must(kvant_engine_create(opened, &p, &s->e, &diag));
    for (int i = 0; i < s->n; i++) {
        must(kvant_seq_new(s->e, &s->seq[i], &diag));
        fill(s, s->seq[i], s->depth + i * 37 % SPREAD);
    }
}

/* Milliseconds. */
static double round_of(steps *s, int n, int at)
{
    kvant_item items[MOST_SEQS + 1];
    int count = 0, seq = -1;

    for (int i = 0; i < s->n; i++)
        items[count++] = (kvant_item){ s->seq[i], tokens, 1, 0, KVANT_LOGITS_GREEDY };
    if (n > 0) {
        must(kvant_seq_new(s->e, &seq, &diag));
        if (at > 0)
            fill(s, seq, at);
        items[count++] = (kvant_item){ seq, tokens + at, n, 1, KVANT_LOGITS_GREEDY };
    }
    const int64_t begin = clock_ns();
    must(kvant_step(s->e, items, count, &diag));
    const int64_t end = clock_ns();
    if (seq >= 0)
        kvant_seq_free(s->e, seq);
    return (double)(end - begin) * 1e-6;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void show(steps *s, int n, int at)
{
    double ms[MOST_ROUNDS];

    for (int r = 0; r < UNCOUNTED + s->rounds; r++) {
        const double one = round_of(s, n > r ? n - r : n, at);
        if (r >= UNCOUNTED)
            ms[r - UNCOUNTED] = one;
    }
    qsort(ms, (size_t)s->rounds, sizeof *ms, by_size);
    printf("%d rows + %d tokens at %d: %.2f ms (%.2f to %.2f)\n", s->n, n, at, ms[s->rounds / 2], ms[0],
           ms[s->rounds - 1]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static steps s;

    if (argc < 9 || argc % 2 == 0) {
        fprintf(stderr, "bench_steps: wanted MODEL DEVICE FORMAT SEQUENCES DEPTH ROUNDS TOKENS POSITION...\n");
        return 2;
    }
    s.n = number(argv[4], 1, MOST_SEQS);
    s.depth = number(argv[5], 1, MOST_TOKENS / 2);
    s.rounds = number(argv[6], 1, MOST_ROUNDS);
    for (int i = 0; i < MOST_TOKENS; i++)
        tokens[i] = 300 + i * 7919 % 100000 % 1000;
    open_steps(&s, argv[1], argv[2], argv[3]);
    for (int i = 7; i + 1 < argc; i += 2)
        show(&s, number(argv[i], 0, MOST_TOKENS / 2), number(argv[i + 1], 0, MOST_TOKENS / 2));
    return 0;
}
