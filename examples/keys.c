/* keys.c: scores of a query against keys of 34 bytes each, with libqjl alone.
 *     cc keys.c $(pkg-config --cflags --libs qjl) -o keys && ./keys */
#include <stdio.h>
#include <stdlib.h>
#include <qjl.h>

enum { KEYS = 512 };
static float pi[QJL_PROJECTION], keys[KEYS][QJL_DIM], query[QJL_DIM], sketch[QJL_SKETCH], scores[KEYS], scores8[KEYS];
static block_qjl1_256 blocks[KEYS];

int main(void)
{
    int8_t q[QJL_SKETCH];
    float scale, most = 0, apart = 0;

    for (int i = 0; i < KEYS * QJL_DIM; i++)
        keys[i / QJL_DIM][i % QJL_DIM] = (float)rand() / (float)RAND_MAX - 0.5f;
    for (int j = 0; j < QJL_DIM; j++)
        query[j] = keys[99][j];         /* key 99 is the one to find */
    qjl_projection_build(QJL_SEED, pi);
    qjl_quantize(pi, keys[0], KEYS, blocks);
    qjl_project(pi, query, 1, sketch);
    qjl_query_i8(sketch, 1, q, &scale);
    if (qjl_score(sketch, 1, blocks, 1, KEYS, scores) || qjl_score_i8(q, &scale, 1, blocks, 1, KEYS, scores8))
        return 1;
    for (int i = 0; i < KEYS; i++) {
        most = scores[i] > most ? scores[i] : most;
        apart = scores[i] - scores8[i] > apart ? scores[i] - scores8[i] : apart;
    }
    printf("%s: key 99 scores %.2f, the largest %.2f; int8 is at most %.3f below\n", qjl_isa(),
           (double)scores[99], (double)most, (double)apart);
    return scores[99] < most || apart > 0.1f;
}
