/* cli/common.h: what several commands do the same way: opening a model, engine parameters from options, the
 * memory check, texts and tokens, pairs of cache formats. */
#ifndef KVANT_CLI_COMMON_H
#define KVANT_CLI_COMMON_H

#include <stdio.h>
#include "base/text/jsonw.h"
#include "cli/options/options.h"
#include "engine/fit/fit_device.h"
#include "kvant/engine.h"

void list_devices(FILE *f);

/* Every device of this build and machine. */
void each_device(device_see see, void *ctx);

/* Puts a device's name in place of --device auto, and where -ngl wants a GPU and no device is named.  Once, before the
 * command: -ngl is looked at nowhere else.  KVANT_EDEVICE: no GPU, or -ngl with --device cpu. */
int choose_device(opts *o, kvant_diag *diag);
/* Options that lay a model out over devices: a note where nothing is missed, else an error.  After choose_device. */
int placement_check(const opts *o, kvant_diag *diag);
int several_devices(const opts *o); /* --device names more than one */
/* -ot, --cpu-moe, --n-cpu-moe, --fit and --device-memory, where they have an effect. */
void placement_from_opts(const opts *o, kvant_engine_params *p);

/* -m FILE or the first positional argument; KVANT_EINVAL when there is neither or both. */
int model_path(const opts *o, const char **path, kvant_diag *diag);
int pull_repo(const opts *o, const char *repo, char path[4096], kvant_diag *diag); /* hub_pull, with a bar */
/* -hf: fetches the file and puts it in the place of -m.  Before the command runs; errors of hub_pull. */
int pull_model(opts *o, kvant_diag *diag);
int open_model(const opts *o, kvant_model **m, kvant_diag *diag);
int open_model_at(const opts *o, const char *path, kvant_model **m, kvant_diag *diag); /* a file of no option */

/* Engine parameters from the options of o->cmd (those that the command has).  Cache formats only where the
 * command takes a single pair. */
void params_from_opts(const opts *o, kvant_engine_params *p);
/* Threads that 0 and -1 stand for. */
int threads_of(int64_t given);

int memory_limit_check(kvant_diag *diag); /* KVANT_EINVAL: KVANT_MEMORY is no size */
/* kvant_fit_memory, at most KVANT_MEMORY. */
int64_t device_memory(const char *device);
/* Memory of each device and of this machine, at most what p and KVANT_MEMORY say. */
void engine_memory(kvant_engine_params *p);
/* Says where layers and experts are, where that was chosen (kvant/fit.h), or that there are no experts to move. */
void tell_placement(const kvant_model *m, const kvant_engine_params *p, int chosen);
/* Says that a context is shorter than the model's where none was given (0), or longer. */
void tell_context(const kvant_model *m, int given, int n_ctx);
/* Makes an engine that fits; p->n_ctx 0: the training context, or the largest that fits (a note says so). */
int open_engine(kvant_model *m, kvant_engine_params *p, kvant_engine **e, kvant_diag *diag);
/* kvant_engine_create with a bar on a terminal; ended(user) is asked while weights are loaded: 1 stops it. */
int create_engine(kvant_model *m, const kvant_engine_params *p, int (*ended)(void *user), void *user, kvant_engine **e,
                  kvant_diag *diag);
/* --mlock, once the engine is there; a warning when the system refuses. */
void keep_in_memory(const opts *o, const kvant_model *m);

/* A file (regular, or "-": standard input) as text[size], NUL-terminated; kvant_free.  KVANT_EINVAL: empty, or
 * not UTF-8. */
int read_text(const char *path, char **text, size_t *size, kvant_diag *diag);
/* KVANT_EINVAL names `what`, the offset and the byte. */
int check_utf8(const char *what, const char *text, size_t n, kvant_diag *diag);
/* Tokens of text -> *ids (kvant_free), *n. */
int tokenize_all(const kvant_model *m, const char *text, size_t size, int flags, int32_t **ids, int *n,
                 kvant_diag *diag);

/* One K and V format of a run. */
typedef struct kv_pair {
    const char *k, *v;
} kv_pair;
enum { MAX_PAIRS = 1024 };
/* --pairs, else every -ctk with every -ctv.  Names are canonical. */
int pairs_from_opts(const opts *o, kv_pair *pairs, int cap, int *n, kvant_diag *diag);
/* 1 when neither side ever uses the exact tail or an encoder's search. */
int pair_is_wide(const kv_pair *p);
const char *encoder_name(int encoder);
int encoder_of(const char *name);

/* Appends ids[0..n) to seq as a prompt, in pieces of `piece` tokens (rounded up to 64) that end on the 64-token grid;
 * logits: what is asked of the last row, KVANT_LOGITS_*.  bar: title of a progress bar, or NULL.  Stops between pieces
 * at Ctrl-C: KVANT_ECANCELED. */
int feed_prompt(kvant_engine *e, int seq, const int32_t *ids, int n, int piece, int logits, const char *bar,
                kvant_diag *diag);

/* Prints the finished JSON text and a newline; KVANT_ENOMEM when the writer failed.  Frees w. */
int put_json(jsonw *w, kvant_diag *diag);

#endif
