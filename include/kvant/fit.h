/* fit.h: what an engine takes where nobody says how much: the device, the context, the page pool and the snapshots that
 * fit into its memory, and passes that load a GPU's kernels.
 *
 * The kvant_fit_* functions that take a model are functions of the file's facts, of bytes that are free, and of the
 * request: they open no device and read no weights.  Any thread. */
#ifndef KVANT_FIT_H
#define KVANT_FIT_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/engine.h"
#include "kvant/error.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */

/* ---- which device, and its memory ---- */

/* Hears why a device was passed over: its name, a reason for people, and whether it was opened and is no GPU. */
typedef void (*kvant_fit_note)(void *user, const char *device, const char *why, int no_gpu);

/* The first GPU that this build can use, fastest kind first ("cuda", "vulkan", ...), or NULL.  Opens drivers.  note may
 * be NULL. */
const char *kvant_fit_gpu(kvant_fit_note note, void *user);
/* The device where nobody names one: "cuda" where the machine has an NVIDIA GPU that works, else "cpu".  *passed_over
 * 1: "cpu", although the machine has a GPU.  Opens a driver only where Linux knows a GPU. */
const char *kvant_fit_device(int *passed_over, kvant_fit_note note, void *user);
/* Bytes that an engine may have on a device (NULL: cpu): what is free, less what a GPU's driver may still want, and at
 * most `limit` where that is above 0; on several ("cuda:0,cuda:1") the sum.  -1: not known.  Opens the devices. */
int64_t kvant_fit_memory(const char *device, int64_t limit);

/* ---- what fits ---- */

enum { KVANT_FIT_SLOTS = 16,      /* sequences of a server where nobody says how many */
       KVANT_FIT_TOKENS = 8192 }; /* tokens that a sequence is given room for where nobody asked for more */

/* One sequence or more, each with room for its whole context.  n_ctx 0 becomes the training context, or the largest
 * that fits in `memory` bytes (-1: any).  KVANT_ENOSPC (both sizes), KVANT_EINVAL.  plan may be NULL. */
int kvant_fit_whole(const kvant_model *m, int64_t memory, kvant_engine_params *p, kvant_plan *plan, kvant_diag *diag);

/* Largest multiple of KVANT_PAGE, or max, whose plan with pages for `whole` sequences of that length takes at most
 * `memory` bytes; 0: none does. */
int kvant_fit_largest(const kvant_model *m, const kvant_engine_params *p, int max, int whole, int64_t memory);

/* Room that sequences share.  memory: bytes that the engine may have, -1: any.  share: bytes that it does with where
 * less will do; 0: the weights and half of what is left beside them.  pool_bytes: of pages, exact tails and windows
 * together; 0: by n_ctx and max_seqs.  snapshots: of the prefix cache; -1: by the model, fewer where memory is short.
 * slots_asked: 1: the pool wants pages for max_seqs sequences of n_ctx tokens; 0: for one, and of every other
 * KVANT_FIT_TOKENS. */
typedef struct kvant_fit_request {
    size_t size;                   /* of this struct: kvant_fit_request_init writes it */
    int64_t memory, share, pool_bytes;
    int snapshots, slots_asked;
} kvant_fit_request;

/* memory and snapshots -1, everything else 0. */
void kvant_fit_request_init(kvant_fit_request *r, size_t size);
static inline kvant_fit_request kvant_fit_request_defaults(void)
{
    kvant_fit_request r;
    kvant_fit_request_init(&r, sizeof r);
    return r;
}
/* Fills n_ctx (if it is 0), pool_tokens and snapshots of p, which says max_seqs and logits_rows.  If memory is short,
 * pages give way, then snapshots, then a context that was not given, down to KVANT_FIT_TOKENS.  *most (may be NULL):
 * bytes that pool_bytes could be; -1: any.  KVANT_ENOSPC: not even that fits; KVANT_EINVAL: a parameter, or pool_bytes
 * below a page. */
int kvant_fit_shared(const kvant_model *m, const kvant_fit_request *r, kvant_engine_params *p, kvant_plan *plan,
                     int64_t *most, kvant_diag *diag);

/* ---- warm-up ---- */

/* Passes of 64 tokens up to a full one, for at most about a second: a GPU's libraries load a kernel at its first use,
 * and another one for each range of sizes, 10 to 20 ms each, which the first requests would wait for.  Nothing on the
 * CPU.  *tokens (may be NULL): of the last pass.  The owner's thread, with a free sequence; KVANT_EDEVICE,
 * KVANT_ENOMEM. */
int kvant_engine_warm(kvant_engine *e, int *tokens, kvant_diag *diag);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
