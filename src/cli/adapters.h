/* cli/adapters.h: the adapters that --lora and --lora-scaled name. */
#ifndef KVANT_CLI_ADAPTERS_H
#define KVANT_CLI_ADAPTERS_H

#include "cli/options/options.h"
#include "kvant/engine.h"

typedef struct adapters {
    kvant_lora *list;              /* in the order given; the paths are ours */
    int n;
} adapters;

/* KVANT_EINVAL: a name or a scale is missing.  adapters_free also after an error. */
int adapters_from_opts(const opts *o, adapters *out, kvant_diag *diag);
void adapters_free(adapters *a);

#endif
