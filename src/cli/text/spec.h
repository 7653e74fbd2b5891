/* cli/text/spec.h: the options of speculative decoding. */
#ifndef KVANT_CLI_TEXT_SPEC_H
#define KVANT_CLI_TEXT_SPEC_H

#include "cli/options/options.h"
#include "engine/draft/synth.h"
#include "kvant/session.h"

/* KVANT_SPEC_* that the options ask for. */
int spec_from_opts(const opts *o);
/* Rows of logits that drafts want beyond one per sequence. */
int spec_rows(const opts *o);
/* draft_rows of an engine of so many sequences. */
int spec_draft_rows(const opts *o, int seqs);
/* The engine of a model loads its block for further tokens: for mtp, and for auto where it can be of use. */
void spec_engine(const opts *o, const kvant_model *m, kvant_engine_params *p);
/* Fills the fields of speculation; draft: the draft model's engine or NULL.  auto means none on an engine that verifies
 * no drafts, and says so; of the others session creation refuses it. */
void spec_params(const opts *o, const kvant_engine *e, kvant_engine *draft, kvant_session_params *p);
/* --spec-synth-rates and --spec-synth-len; out->n 0: neither. */
int spec_synth(const opts *o, draft_synth *out, kvant_diag *diag);
/* A new session accepts drafts as they say, and a warning tells that its texts are not the model's. */
int spec_start_synth(const opts *o, kvant_session *s, kvant_diag *diag);

#endif
