/* copy.c: see copy.h. */
#include "base/thread/copy.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include "base/cpu.h"

enum { COPY_THREADS = 8, PIECES_PER_THREAD = 4 };

typedef struct copying { const copy_piece *list; int n; atomic_int next; } copying;

static void *take_pieces(void *user)
{
    copying *c = user;
    for (int i = atomic_fetch_add(&c->next, 1); i < c->n; i = atomic_fetch_add(&c->next, 1))
        memcpy(c->list[i].to, c->list[i].from, c->list[i].bytes);
    return NULL;
}

void copy_pieces(const copy_piece *list, int n)
{
    copying c = { list, n, 0 };
    pthread_t thread[COPY_THREADS];
    const int most = n / PIECES_PER_THREAD, cpus = cpu_count();
    const int want = most < cpus ? most : cpus;
    int others = 0;
    while (others < want - 1 && others < COPY_THREADS && pthread_create(&thread[others], NULL, take_pieces, &c) == 0)
        others++;
    take_pieces(&c);
    while (others > 0)
        pthread_join(thread[--others], NULL);
}
