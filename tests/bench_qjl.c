/* bench_qjl.c: times of libqjl, as its users see them.  Not a test, not built by default:
 *     cc -O2 -Iinclude -Isrc tests/bench_qjl.c build/release/lib/libqjl.a -lm -lpthread -o bench_qjl
 *     for isa in ref avx2 avx512 all; do KVANT_CPU=$isa ./bench_qjl; done
 * Shown: the rung, then the least and the median of 21 rounds, ns for a key, a query, a score, an int8 score.  4096
 * keys are 139 KB: in the second cache.  One query at a time, and four that share their keys. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "qjl.h"

enum { KEYS = 4096, HEADS = 4, ROUNDS = 21, REPEAT = 8 };

static float pi[QJL_PROJECTION], keys[KEYS][QJL_DIM], sketch[KEYS][QJL_SKETCH], scores[HEADS * KEYS], scales[HEADS];
static block_qjl1_256 blocks[KEYS];
static int8_t q[HEADS][QJL_SKETCH];

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void quantize(int heads)
{
    (void)heads;
    qjl_quantize(pi, keys[0], KEYS, blocks);
}

static void project(int heads)
{
    (void)heads;
    qjl_project(pi, keys[0], KEYS, sketch[0]);
}

static void score(int heads)
{
    qjl_score(sketch[0], heads, blocks, 1, KEYS, scores);
}

static void score_i8(int heads)
{
    qjl_score_i8(q[0], scales, heads, blocks, 1, KEYS, scores);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, void (*what)(int), int heads)
{
    double ns[ROUNDS];

    what(heads);
    for (int i = 0; i < ROUNDS; i++) {
        const double begin = now_ns();
        for (int j = 0; j < REPEAT; j++)
            what(heads);
        ns[i] = (now_ns() - begin) / ((double)REPEAT * KEYS * heads);
    }
    qsort(ns, ROUNDS, sizeof *ns, ascending);
    printf("| %s | %.2f | %.2f |\n", name, ns[0], ns[ROUNDS / 2]);
}

int main(void)
{
    for (int i = 0; i < KEYS * QJL_DIM; i++)
        keys[i / QJL_DIM][i % QJL_DIM] = (float)rand() / (float)RAND_MAX - 0.5f;
    qjl_projection_build(QJL_SEED, pi);
    quantize(1);
    project(1);
    qjl_query_i8(sketch[0], HEADS, q[0], scales);
    printf("| %s, int8 %s | least ns | median ns |\n|---|--:|--:|\n", qjl_isa(), qjl_isa_i8());
    measure("quantize, a key", quantize, 1);
    measure("project, a query", project, 1);
    measure("score, one query", score, 1);
    measure("score, four queries, each", score, HEADS);
    measure("int8 score, one query", score_i8, 1);
    measure("int8 score, four queries, each", score_i8, HEADS);
    return 0;
}
