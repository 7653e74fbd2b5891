/* cli/overrides.h: --override-kv: values that stand in place of a model file's. */
#ifndef KVANT_CLI_OVERRIDES_H
#define KVANT_CLI_OVERRIDES_H

#include "cli/options/options.h"

typedef struct overrides {
    char **list; /* "KEY=TYPE:VALUE" */
    int n;
} overrides;

/* Every --override-kv in its order; a value is a list with commas between, and an entry in double quotes may have
 * commas ("" is a quote in it).  overrides_free also after an error. */
int overrides_from_opts(const opts *o, overrides *out, kvant_diag *diag);
void overrides_free(overrides *a);

#endif
