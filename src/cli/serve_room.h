/* serve_room.h: what a model of `kvant serve` needs before its first request: memory for its context, pool and
 * snapshots (serve_room.c); on a GPU, passes that load kernels (serve_warm.c). */
#ifndef KVANT_CLI_SERVE_ROOM_H
#define KVANT_CLI_SERVE_ROOM_H

#include "cli/common.h"

/* Fills n_ctx, pool_tokens and snapshots of p, from the options or by what fits, and the bytes of the plan.
 * router: bytes of all models of a router together; 0: there is none. */
int serve_room(const opts *o, const kvant_model *m, kvant_engine_params *p, int64_t router, int64_t *bytes,
               kvant_diag *diag);

/* --no-warmup, or the CPU: nothing is run. */
int serve_warm(const opts *o, const kvant_model *m, kvant_engine *e, kvant_diag *diag);

#endif
