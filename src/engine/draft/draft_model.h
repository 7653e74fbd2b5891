/* engine/draft/draft_model.h: a smaller model of the same vocabulary guesses the next tokens of several texts at once.
 *
 * It has an engine of its own: each text a sequence there, whose rows are the text's tokens and, behind them, its own
 * guesses.  Rows of guesses that were not accepted are overwritten: they lie in the open page, since guesses end where
 * those of the target do (kv_draft_room).  Whatever fails there costs the text its guesses and nothing else.  Owner
 * thread of both engines. */
#ifndef KVANT_ENGINE_DRAFT_DRAFT_MODEL_H
#define KVANT_ENGINE_DRAFT_DRAFT_MODEL_H

#include "engine/engine.h"

enum { DRAFT_MOST = 32 };

/* A text in the draft engine; begins as zeros. */
typedef struct draft_seq {
    int place;                     /* 1 + its sequence; 0: none */
    int off;                       /* it failed: no guesses for this text any more */
    int rows, n_fed;               /* rows of the text; guesses behind them */
    int32_t fed[DRAFT_MOST];
} draft_seq;

/* A text that wants guesses, for one step of the target. */
typedef struct draft_lane {
    draft_seq *at;
    const int32_t *tokens;         /* [n] */
    int n, most;                   /* tokens; guesses that it wants */
    int seq, fed, item;            /* MTP: its sequence of the target; guesses that the block has seen; its mtp_item */
    int live;                      /* the next round is for it too; rounds clear it where there is no guess */
    int32_t token;                 /* the guess of the last round, and how likely the drafter thinks it is */
    float p;
} draft_lane;

typedef struct draft_model {
    kvant_engine *e;               /* NULL: there is none */
    int n_vocab;                   /* of the target */
    int dead;                      /* its device failed: no guesses any more */
    kvant_item *items;             /* [max_seqs] of the engine */
    int *lane_of;                  /* [max_seqs] */
} draft_model;

/* KVANT_EINVAL: another vocabulary (token and both texts are named), fewer sequences than the target, or in use;
 * KVANT_EUNSUPPORTED: recurrent layers, which cannot take guesses back. */
int draft_model_create(draft_model *d, const kvant_engine *target, kvant_engine *e, kvant_diag *diag);
void draft_model_free(draft_model *d);
/* The first guess of each live lane, for which the drafter takes in what it has not seen of the text: at most one pass
 * of prompt in all; who waits for more of it has no guess.  likely: p is wanted.  Returns rows that were evaluated. */
int draft_model_begin(draft_model *d, draft_lane *lanes, int n, int likely);
/* One more guess behind lane.token. */
int draft_model_next(draft_model *d, draft_lane *lanes, int n, int likely);
/* The text is no more, or lost its sequence. */
void draft_model_drop(draft_model *d, draft_seq *at);

#endif
