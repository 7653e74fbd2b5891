/* serve_models.h: which models `kvant serve` has when it has several: a folder's, a preset's, the hub's cache's;
 * and the way to the hub for clients that may change that cache. */
#ifndef KVANT_CLI_SERVE_MODELS_H
#define KVANT_CLI_SERVE_MODELS_H

#include "cli/common.h"
#include "server/server.h"

int serve_router(const opts *o); /* the option that makes a router of the server; -1: none */
/* The list -> *list, p->models, p->n_models, and where it came from; the caller frees it after errors too. */
int serve_list(const opts *o, server_params *p, server_model **list, kvant_diag *diag);
const server_downloads *serve_downloads(const opts *o); /* NULL: clients change nothing */

#endif
