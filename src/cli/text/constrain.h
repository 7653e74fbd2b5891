/* cli/text/constrain.h: answers of `run` that follow a grammar: --grammar, --json-schema and their files. */
#ifndef KVANT_CLI_CONSTRAIN_H
#define KVANT_CLI_CONSTRAIN_H

#include "cli/common.h"
#include "kvant/session.h"

typedef struct constrain constrain;

/* NULL -> *out: the options name no grammar.  KVANT_EINVAL: two of them, or one that does not compile;
 * KVANT_EUNSUPPORTED: this build has no grammars (it has no server). */
int constrain_open(const opts *o, const kvant_model *m, constrain **out, kvant_diag *diag);
void constrain_close(constrain *c); /* NULL accepted */
/* Before a request is submitted: the grammar begins anew, and the request asks it before each token (on the session's
 * thread).  NULL accepted: nothing. */
int constrain_begin(constrain *c, kvant_request *q, kvant_diag *diag);
/* After its end: 1 if nothing could follow the text, which ends such a request with an error that is none. */
int constrain_is_done(const constrain *c);
const char *constrain_error(const constrain *c); /* why it ended the request, or "" */

#endif
