/* engine/draft/pass.h: a device pass as step.c and mtp_rows.c fill it. */
#ifndef KVANT_ENGINE_DRAFT_PASS_H
#define KVANT_ENGINE_DRAFT_PASS_H

#include "engine/engine.h"

typedef struct step_pass {
    int n_seqs, n_tokens, n_out, n_seal, stride, max_pos;
    int any_prompt, any_decode, top, hidden;
    int seals_read;                /* some row may read a page that this pass seals */
    int lora0, n_lora;             /* token rows with adapters: neighbours */
    int lora_out0, n_lora_out;     /* rows of logits with adapters */
    int n_ones;                    /* the first sequences, of one row each */
    int ring0, n_ring;             /* rows that recurrent states do not take yet: neighbours */
    int guess;                     /* the MTP block alone: what it says behind the tokens */
} pass;

/* Block tables of the pass for the sequences seq[n_seqs]; the upload of its inputs; its ops in e->b. */
void pass_tables(kvant_engine *e, pass *p, const int *seq);
int pass_upload(kvant_engine *e, const pass *p, kvant_diag *diag);
void pass_build(kvant_engine *e, const pass *p);

#endif
