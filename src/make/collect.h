/* make/collect.h: sums for an importance matrix: while an engine on the CPU runs, the squares of everything
 * that a matrix of a layer is multiplied with.  One thread, the engine's. */
#ifndef KVANT_MAKE_COLLECT_H
#define KVANT_MAKE_COLLECT_H

#include "engine/engine.h"

typedef struct collect collect;

/* From now on e's steps are counted.  KVANT_EUNSUPPORTED: e runs on another device than the CPU. */
int collect_open(kvant_engine *e, collect **out, kvant_diag *diag);
/* Ends it; e must still be there.  NULL is accepted. */
void collect_close(collect *c);
/* KVANT_ENUMERIC: a value that was not finite came by; else *matrices is how many tensors the file has. */
int collect_save(collect *c, const char *path, const char *dataset, uint32_t chunks, uint32_t chunk_size, int *matrices,
                 kvant_diag *diag);

#endif
