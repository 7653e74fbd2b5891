/* cli/inspect/inspect.h: a run of `kvant inspect`, shared by cmd_inspect.c and inspect_file.c.  Each section prints
 * itself as text or as one member of the JSON object. */
#ifndef KVANT_CLI_INSPECT_H
#define KVANT_CLI_INSPECT_H

#include "cli/common.h"
#include "model/gguf/gguf.h"

typedef struct inspect {
    const opts *o;
    gguf *g; /* NULL without a model file */
    const char *path;
    jsonw w;
    int json;
    int sections; /* printed so far, for the blank lines between */
} inspect;

/* ---- cmd_inspect.c ---- */
void inspect_section(inspect *s, const char *title, const char *key);

/* ---- inspect_file.c: what the model file holds ---- */
void inspect_summary(inspect *s);
void inspect_keys(inspect *s);
void inspect_types(inspect *s);
void inspect_tensors(inspect *s);

#endif
