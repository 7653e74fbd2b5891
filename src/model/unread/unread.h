/* model/unread/unread.h: what a file has and nobody read.  Once a model is open, every key and tensor that no code
 * asked for is found in a table (keys.def, tensors.def): harmless for a reason, a feature that is lost, which is said,
 * or one that changes the numbers, for which the model is refused.  An architecture has nothing to list: reading is
 * enough. */
#ifndef KVANT_MODEL_UNREAD_H
#define KVANT_MODEL_UNREAD_H

#include "model/model.h"

enum unread_action { UNREAD_READ, UNREAD_HARMLESS, UNREAD_LOST, UNREAD_REFUSED };

typedef struct unread_row {
    const char *name, *if_so, *why;
    int action, more;
} unread_row; /* more: of other writers */

/* The i-th row, NULL at the end; the row of a key (".rope.freq_base" for one of the architecture), NULL: none. */
const unread_row *unread_key_at(int i);
const unread_row *unread_key_find(const char *key, size_t n);
const unread_row *unread_tensor_at(int i);

/* KVANT_EUNSUPPORTED names the first that is refused, its value and what is wanted; warnings name the others.
 * Overrides that nobody read are named too. */
int unread_judge(const kvant_model *m, kvant_diag *diag);

/* ---- unread_value.c ---- */

/* Is the value one that the model has without the key?  neutral: as in keys.def. */
int unread_is_neutral(const kvant_model *m, const gguf_kv *kv, const char *neutral);
/* Names the values that neutral stands for, for a message: "0 or 1, or no such key". */
const char *unread_wanted(const char *neutral, char *buf, size_t cap);
/* A value as text: numbers as they are, of an array the first ones. */
const char *unread_show(const gguf_kv *kv, char *buf, size_t cap);
/* Does name[n] fit the pattern: * any text, # a number, -> *number? */
int unread_fits(const char *pattern, const char *name, size_t n, int *number);

#endif
