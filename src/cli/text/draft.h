/* cli/text/draft.h: the draft model of -md. */
#ifndef KVANT_CLI_TEXT_DRAFT_H
#define KVANT_CLI_TEXT_DRAFT_H

#include "cli/options/options.h"
#include "kvant/engine.h"

typedef struct draft_parts {
    kvant_model *m;
    kvant_engine *e;               /* NULL: none is wanted */
} draft_parts;

/* Opens the model of -md, if drafts are wanted, and an engine with as many sequences and as long a context as the
 * target's, in the memory that the target leaves.  KVANT_EINVAL: the options want one and name none; KVANT_ENOSPC: the
 * draft model does not fit; errors of open and create say that it is the draft model.  draft_close also after an
 * error. */
int draft_open(const opts *o, const kvant_engine *target, draft_parts *out, kvant_diag *diag);
/* Bytes of that engine's plan, by the target's parameters as they are given to create; 0: there is none. */
int draft_bytes(const opts *o, const kvant_engine_params *target, int64_t *bytes, kvant_diag *diag);
void draft_close(draft_parts *d);

#endif
