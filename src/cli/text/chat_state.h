/* cli/text/chat_state.h: the conversation of `kvant run`, between run_chat.c, which answers, and run_commands.c, which
 * reads what a person types. */
#ifndef KVANT_CLI_CHAT_STATE_H
#define KVANT_CLI_CHAT_STATE_H

#include "base/text/jsonw.h"
#include "cli/text/generate.h"

typedef struct chat {
    generator g;
    kvant_chat_msg *msgs; /* contents are owned; roles are literals */
    int n, cap;
    int n_system; /* messages before the first turn */
    int in_cache; /* the first in_cache messages are in the sequence; 0: they are read again */
    char *front;  /* what /read put in front of the next message, or NULL */
    int ended, once; /* once: a first message has one answer, and that is all */
} chat;

int chat_add(chat *c, const char *role, const char *text, size_t len, kvant_diag *diag);
void chat_drop(chat *c, int keep);
/* The open object's member "messages". */
void chat_json(const chat *c, jsonw *w);

/* One message of the user and its answer.  An interrupted answer is kept; an interrupted prompt is forgotten, and so
 * is a message that fails. */
int chat_turn(chat *c, const char *text, size_t len, int *reason, kvant_diag *diag);
/* Another answer in the place of the last one, which stays if that fails.  KVANT_EINVAL: there is none. */
int chat_regenerate(chat *c, int *reason, kvant_diag *diag);

/* A chat whose generator is open, with its first message or NULL; also its report. */
int chat_run(chat *c, const char *first, size_t first_len, kvant_diag *diag);
void chat_close(chat *c); /* with its generator */
/* Messages and commands from standard input until it ends. */
int chat_converse(chat *c, kvant_diag *diag);

#endif
