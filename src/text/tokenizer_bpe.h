/* text/tokenizer_bpe.h: byte-pair merging over token ids.  Knows ids and ranks, nothing of texts.
 *
 * A bpe is the table of merges (left id, right id) -> (rank, merged id): immutable once filled, any thread.
 * A bpe_work holds the buffers of one call of the tokenizer: one thread, grows, is reused from piece to piece. */
#ifndef KVANT_TEXT_TOKENIZER_BPE_H
#define KVANT_TEXT_TOKENIZER_BPE_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct bpe_merge {
    uint32_t left, right, merged;
} bpe_merge;

typedef struct bpe {
    bpe_merge *merges; /* by rank */
    uint32_t n_merges;
    uint32_t *slots; /* open addressing: rank + 1, 0 empty */
    uint32_t mask;
    uint32_t *order; /* by rank: what goes first, equal for equals; NULL: the rank itself */
    int ordered;     /* every merge ranks above all merges that make its parts: see tokenizer_bpe.c */
} bpe;

/* Room for n merges; they are then added in rank order. */
int bpe_init(bpe *b, uint32_t n, kvant_diag *diag);
/* KVANT_EFORMAT when the pair is there already (*rank: where) or the table clusters beyond all chance. */
int bpe_add(bpe *b, uint32_t left, uint32_t right, uint32_t merged, uint32_t *rank);
/* After the last add; n_vocab bounds the ids. */
int bpe_finish(bpe *b, uint32_t n_vocab, kvant_diag *diag);
void bpe_free(bpe *b);

enum { BPE_NONE = -1 };
/* Rank of a pair, -1 if it does not merge. */
int64_t bpe_rank(const bpe *b, uint32_t left, uint32_t right);

enum bpe_method { BPE_AUTO, BPE_HEAP, BPE_BUCKETS }; /* the latter two: tests; BPE_BUCKETS needs b->ordered */

typedef struct bpe_work {
    uint32_t *id, *prev, *next, *rank; /* symbols: a doubly linked list, in place */
    uint32_t *up, *down;               /* buckets: links among symbols of one rank */
    uint64_t *heap;
    size_t cap, cap_links, cap_heap, n_heap;
    uint32_t *head;   /* buckets: first symbol by rank */
    uint64_t *active; /* buckets: one bit per rank */
    enum bpe_method method;
} bpe_work;

/* Room for n symbols in w->id, which the caller fills. */
int bpe_reserve(bpe_work *w, size_t n);
/* Merges w->id[0..n) in place: lowest rank (order) first, leftmost among equals.  *n_out ids remain in
 * w->id[0..*n_out).  KVANT_ENOMEM.  O(n log n), O(n) when the table is ordered. */
int bpe_merge_ids(const bpe *b, bpe_work *w, size_t n, size_t *n_out);
void bpe_work_free(bpe_work *w);

#endif
