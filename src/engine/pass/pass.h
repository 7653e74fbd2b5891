/* engine/pass/pass.h: a device pass as step.c and mtp_rows.c fill it. */
#ifndef KVANT_ENGINE_PASS_H
#define KVANT_ENGINE_PASS_H

#include "engine/engine.h"

/* Decode rows of a sequence, at most, that count as few (kvant_seqs): one and its drafts. */
enum { PASS_FEW = ENGINE_MTP_ROWS };

typedef struct step_pass {
    int n_seqs, n_tokens, n_out, n_seal, stride, max_pos;
    int any_prompt, any_decode, top, hidden;
    int seals_read;                /* some row may read a page that this pass seals */
    int lora0, n_lora;             /* token rows with adapters: neighbours */
    int lora_out0, n_lora_out;     /* rows of logits with adapters */
    int n_few, few_rows;           /* the first sequences, of up to PASS_FEW decode rows each; their rows */
    int ring0, n_ring;             /* rows that recurrent states do not take yet: neighbours */
    int guess;                     /* the MTP block alone: what it says behind the tokens */
    int rests;                     /* the MTP block has no rows */
} pass;

/* The upper two bits of a key say what it is of; 0: rows of the ring into the states (fold.c). */
enum { PASS_KEY_FOLD, PASS_KEY_STEP, PASS_KEY_RING, PASS_KEY_GUESS };
/* The shape of a pass that a device may have recorded, or 0; then max_pos must be the last of the tables' positions. */
uint64_t pass_key(const kvant_engine *e, const pass *p);
/* How many of the likeliest tokens of its last row an item asks for; its rows of logits, host: those that come back. */
int item_top(const kvant_item *it);
int item_logits(const kvant_item *it, int drafts, int host);
/* Appends rows [off, off + n) of an item to the pass; its sequence becomes pass sequence p->n_seqs. */
void pass_add(kvant_engine *e, pass *p, const kvant_item *it, int drafts, int off, int n);
/* All of what follows, for the sequences seq[n_seqs]. */
int pass_run(kvant_engine *e, pass *p, const int *seq, kvant_diag *diag);
/* Block tables of the pass for the sequences seq[n_seqs]; the upload of its inputs; its ops in e->b. */
void pass_tables(kvant_engine *e, pass *p, const int *seq);
int pass_upload(kvant_engine *e, const pass *p, kvant_diag *diag);
void pass_build(kvant_engine *e, const pass *p);

#endif
