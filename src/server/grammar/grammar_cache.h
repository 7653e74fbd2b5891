/* server/grammar/grammar_cache.h: compiled grammars of earlier requests, by their exact GBNF text: equal texts share
 * rules, states and token masks.  Bounded in number and bytes (the masks of what is kept grow while it runs: they
 * are counted at each call), least recently used first out; a run keeps what it uses.  Any thread.
 *
 * Tenants share it.  They can see how fast a grammar compiles: whether somebody used the same text lately. */
#ifndef KVANT_SERVER_GRAMMAR_CACHE_H
#define KVANT_SERVER_GRAMMAR_CACHE_H

#include "server/grammar/grammar.h"

enum { GRAMMAR_CACHE_ENTRIES = 64, GRAMMAR_CACHE_BYTES = 64 << 20 };

typedef struct grammar_cache grammar_cache;

grammar_cache *grammar_cache_new(void); /* NULL: no memory */
void grammar_cache_free(grammar_cache *c);
/* grammar_compile, or the one that is kept; *out has a reference for the caller.  c NULL: compiles.  vocab: a grammar's
 * masks belong to the vocabulary that it runs with: equal texts of other ones are other grammars. */
int grammar_cache_get(grammar_cache *c, const grammar_vocab *vocab, const char *text, size_t len, grammar **out,
                      kvant_diag *diag);

typedef struct grammar_cache_stats {
    uint64_t hits, misses;
    int entries;
    size_t bytes;
} grammar_cache_stats;
void grammar_cache_get_stats(grammar_cache *c, grammar_cache_stats *out);

#endif
