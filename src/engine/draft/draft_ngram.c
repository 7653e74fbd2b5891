/* draft_ngram.c: see draft_ngram.h. */
#include "engine/draft/draft_ngram.h"

#include <string.h>

#include "base/mem.h"

enum {
    LEAST_ROOM = 256,
    TRIES = 24,  /* earlier places that are looked at; arbitrary, not tuned */
    LONGEST = 48 /* tokens compared at each */
};

static uint32_t hash_at(const draft_ngram *g, const int32_t *tokens, int last)
{
    uint64_t h = 0;

    for (int i = last - DRAFT_GRAM + 1; i <= last; i++)
        h = (h + (uint32_t)tokens[i] + 1) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32) & (uint32_t)(g->room - 1);
}

/* Room for n tokens; 0: no memory.  A larger table begins empty. */
static int grow(draft_ngram *g, int n)
{
    int room = g->room ? g->room : LEAST_ROOM;

    while (room < n)
        room *= 2;
    if (room == g->room)
        return 1;
    draft_ngram_free(g);
    g->head = kvant_alloc((size_t)room * sizeof *g->head);
    g->prev = kvant_alloc((size_t)room * sizeof *g->prev);
    if (!g->head || !g->prev) {
        draft_ngram_free(g);
        return 0;
    }
    memset(g->head, 0xFF, (size_t)room * sizeof *g->head);
    g->room = room;
    return 1;
}

static int agreeing(const int32_t *tokens, int a, int b)
{
    int n = 0;

    while (n < LONGEST && n <= a && tokens[a - n] == tokens[b - n])
        n++;
    return n;
}

/* The last token of the earlier place that agrees longest with the end, the latest of equals; -1: none. */
static int best_place(const draft_ngram *g, const int32_t *tokens, int last, int *length)
{
    int best = -1;

    *length = DRAFT_GRAM - 1;
    for (int at = g->head[hash_at(g, tokens, last)], i = 0; at >= 0 && i < TRIES; at = g->prev[at], i++) {
        const int n = agreeing(tokens, at, last);
        if (n > *length) {
            *length = n;
            best = at;
        }
    }
    return best;
}

draft_guess draft_ngram_propose(draft_ngram *g, const int32_t *tokens, int n, int32_t *out, int k)
{
    static const int least[DRAFT_GRADES] = { DRAFT_GRAM, 5, 9, 17 };
    const int last = n - 1;
    draft_guess guess = { 0, 0 };
    int length;

    if (n <= DRAFT_GRAM || k < 1 || !grow(g, n))
        return guess;
    for (; g->n < last; g->n++)
        if (g->n >= DRAFT_GRAM - 1) {
            int32_t *head = &g->head[hash_at(g, tokens, g->n)];
            g->prev[g->n] = *head;
            *head = g->n;
        }
    const int at = best_place(g, tokens, last, &length);
    for (; at >= 0 && guess.n < k; guess.n++) /* a place near the end goes on with what is guessed itself */
        out[guess.n] = at + 1 + guess.n < n ? tokens[at + 1 + guess.n] : out[at + 1 + guess.n - n];
    while (guess.grade + 1 < DRAFT_GRADES && length >= least[guess.grade + 1])
        guess.grade++;
    return guess;
}

void draft_ngram_free(draft_ngram *g)
{
    kvant_free(g->head);
    kvant_free(g->prev);
    *g = (draft_ngram){ NULL, NULL, 0, 0 };
}
