/* model/template_impl.h: a chat format as data, and a prompt in pieces; shared by template.c and template_write.c. */
#ifndef KVANT_MODEL_TEMPLATE_IMPL_H
#define KVANT_MODEL_TEMPLATE_IMPL_H

#include "model/template.h"

enum style { CHATML, LLAMA3, MISTRAL, GEMMA };
/* Reasoning in earlier answers: kept; cut from all but the last message; kept only after the last question. */
enum think { THINK_KEEP, THINK_CUT, THINK_QWEN3, THINK_QWEN35 };
enum { N_MARKS = 3 };

struct chat_family {
    const char *name, *variant;
    enum style style;
    const char *marks[N_MARKS], *absent;
    const char *system; /* chatml: when the first message is none; llama3: before the system message */
    int qwen;           /* chatml: roles are system, user, assistant, tool */
    enum think think;
    const char *answer[2];                     /* chatml: after the header of the open answer: a marker, and text */
    const char *before, *after, *close, *lead; /* mistral: around [INST], before [/INST], before an answer */
    int system_last, system_tag;               /* mistral: folded into the last question; in [SYSTEM_PROMPT] */
    int trim_answer;
};

/* A piece of the prompt: a marker of the format, or text that must stay text. */
typedef struct piece {
    const char *s;
    size_t n;
    int marker;
} piece;

typedef struct pieces {
    piece *v;
    size_t n, cap;
    int failed; /* out of memory: later pieces are dropped, the writers need not look */
} pieces;

typedef struct chat {
    const kvant_chat_msg *msgs;
    int n, add_assistant;
} chat;

/* template.c: the error of a file whose template is not known. */
int chat_unknown(kvant_diag *diag);
/* template_write.c: checks the messages and writes them in f's format; f NULL: chat_unknown.  p->v is to be freed. */
int chat_write(pieces *p, const chat_family *f, const chat *c, kvant_diag *diag);

#endif
