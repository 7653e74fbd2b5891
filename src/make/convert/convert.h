/* make/convert/convert.h: a folder with safetensors, config.json and tokenizer files -> GGUF, with the names and keys
 * of the field's converter.
 *
 * Matrices named *.weight become the wanted type; vectors, norms, routers and what is not named .weight F32; a row that
 * is no multiple of the type's block F16.  Tensors are read from the mapped files and written row by row: memory is a
 * row and the keys.  The result is written beside `out` and renamed. */
#ifndef KVANT_MAKE_CONVERT_H
#define KVANT_MAKE_CONVERT_H

#include <stddef.h>
#include "base/error.h"
#include "kvant/wtype.h"

typedef struct convert_params {
    const kvant_wtype *type; /* F32, F16, BF16 or Q8_0; NULL: BF16 where the first matrix is, else F16 */
    const char *name;        /* general.name; NULL: from the folder's name */
    const char *pre;         /* tokenizer.ggml.pre; NULL: found by what tokenizer.json does */
    int no_mtp;              /* 1: without the blocks that predict further tokens */
} convert_params;

typedef struct convert_result {
    const char *arch, *type;
    int n_tensors, n_left_out; /* written; tensors of the files that no language model has */
    int n_mtp;                 /* blocks behind the trunk that predict further tokens */
    size_t bytes;              /* of the new file */
} convert_result;

/* i of n tensors are done; non-zero stops: KVANT_ECANCELED, and nothing is left behind. */
typedef int (*convert_progress)(void *user, int i, int n);

/* KVANT_ENOENT, KVANT_EFORMAT (files that are wrong), KVANT_EUNSUPPORTED (architecture, tokenizer, tensor type),
 * KVANT_EIO, KVANT_ENOMEM, KVANT_ECANCELED.  progress may be NULL. */
int model_convert(const char *folder, const char *out, const convert_params *p, convert_progress progress, void *user,
                  convert_result *result, kvant_diag *diag);

#endif
