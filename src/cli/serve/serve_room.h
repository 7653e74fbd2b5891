/* serve_room.h: parameters of an engine of `kvant serve`, by the options and by what fits (kvant/fit.h). */
#ifndef KVANT_CLI_SERVE_ROOM_H
#define KVANT_CLI_SERVE_ROOM_H

#include "cli/common.h"
#include "kvant/fit.h"

/* Sequences and rows of logits of a server; given < 1: as many as where nobody says. */
void serve_slots(kvant_engine_params *p, int64_t given);
/* Fills n_ctx, pool_tokens and snapshots of p, from the options or by what fits, and the bytes of the plan; says what
 * the pool takes.  router: bytes of all models of a router together; 0: there is none. */
int serve_room(const opts *o, const kvant_model *m, kvant_engine_params *p, int64_t router, int64_t *bytes,
               kvant_diag *diag);
int serve_check_alone(const opts *o, kvant_diag *diag); /* options that mean nothing without another one */
int serve_check_texts(const opts *o, kvant_diag *diag); /* those that become headers and paths */

#endif
