/* cli/eval/eval_logits.h: logits of a base in a file, so that it is computed once, or by another program.
 *
 * kvant's own file, little-endian: "kvantlog", u32 version 1, n_ctx, n_vocab, n_chunk; u8[32] SHA-256 of the
 * vocabulary (each token's length as u32 and bytes, in order), u8[32] SHA-256 of the token ids, char[192] what the base
 * is; i32 ids[n_chunk][n_ctx]; then f32[n_vocab] of every scored row.
 * llama.cpp's (--kl-divergence-base): "_logits_", i32 n_ctx, n_vocab, n_chunk, ids[n_chunk][n_ctx]; then of every
 * scored row f32 scale, f32 least, u16 q[n_vocab], padded to an even number: log p = scale q + least.  q = 0 is any p
 * below e^-16 and comes as -INFINITY, which the divergence leaves out, as llama.cpp does.
 * The rows are those of eval.h. */
#ifndef KVANT_CLI_EVAL_LOGITS_H
#define KVANT_CLI_EVAL_LOGITS_H

#include "cli/eval/eval.h"

enum { EVAL_LOGITS_NAME = 192 };

/* Writes all rows of the store; what: one line, of which 191 bytes are kept.  On errors no file has the name. */
int eval_logits_save(const char *path, const eval_text *t, const eval_store *rows, const char *what, kvant_diag *diag);
/* Calls fn for every row; what: char[EVAL_LOGITS_NAME], as saved.  KVANT_EFORMAT: not such a file, or cut short;
 * KVANT_EINVAL: of another context, number of chunks, vocabulary or text, named with the first token that differs. */
int eval_logits_load(const char *path, const eval_text *t, eval_row_fn fn, void *user, char *what, kvant_diag *diag);

#endif
