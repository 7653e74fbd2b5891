/* server/tools/tool_traits.h: what a model's chats can: tools, in which dialect, and thoughts.  Found once, when the
 * model is there, by rendering a probe: the dialect is the one whose parser finds the call that the template writes.
 * Immutable, any thread. */
#ifndef KVANT_SERVER_TOOLS_TOOL_TRAITS_H
#define KVANT_SERVER_TOOLS_TOOL_TRAITS_H

#include "kvant/engine.h"
#include "server/grammar/grammar.h"
#include "server/tools/dialect.h"

enum { THOUGHT_END_IDS = 32 };

typedef struct tool_traits {
    const dialect *d;                 /* how calls are read */
    int renders_tools;                /* the template tells the model about them */
    int guessed;                      /* d is none that the template writes or tells of */
    int shows_calls, shows_results;   /* the template writes those of earlier turns */
    int takes_system;                 /* ... and a system's message */
    const thinking *t;                /* NULL: the model has no thoughts of its own */
    unsigned char *shown;             /* [n_vocab] control tokens that d or t are written with; NULL: none */
    grammar_vocab *vocab;             /* those with their texts; NULL: there are none */
    int32_t end_ids[THOUGHT_END_IDS]; /* what ends a thought that has become too long */
    int n_end;
} tool_traits;

/* chosen: a dialect's name in place of what the template tells; NULL. */
int tool_traits_open(const kvant_model *m, const char *chosen, tool_traits **out, kvant_diag *diag);
void tool_traits_free(tool_traits *t);
/* Returns 1 if a prompt ends within a thought: its template has begun one. */
int tool_traits_opened(const tool_traits *t, const kvant_model *m, const int32_t *ids, int n);

#endif
