/* make/convert/hf_config.h: config.json of a model's folder, as the architectures ask it.
 *
 * A value is looked for in "text_config" (a file without one: at the root), then, for what belongs to the whole model,
 * at the root, then in the defaults of the configuration's class (what Transformers takes when the file does not say).
 * null counts as absent, and no default stands for it.  `keys` are names with a space between: the first that is there
 * counts. */
#ifndef KVANT_MAKE_HF_CONFIG_H
#define KVANT_MAKE_HF_CONFIG_H

#include <stdint.h>
#include "base/error.h"
#include "base/text/json.h"

struct hf_class;

typedef struct hf_config {
    char *text;
    gjson root, inner, defaults;
    gjson rope; /* rope_scaling, or rope_parameters */
    /* Classes of the root, and of text_config or the root again. */
    const struct hf_class *cls, *text_cls;
    uint32_t further; /* layers behind the trunk that the new file has: convert_further.c */
} hf_config;

int hf_config_open(const char *folder, hf_config *c, kvant_diag *diag);
/* The class of the architecture, its defaults, and every field of the file read, known or named (hf_fields.h). */
int hf_config_class(hf_config *c, const char *architecture, kvant_diag *diag);
void hf_config_close(hf_config *c);

gjson hf_find(const hf_config *c, const char *keys);
/* Absent: *v untouched and KVANT_OK when `required` is 0.  Errors name the keys, the value and what is wanted. */
int hf_u32(const hf_config *c, const char *keys, int required, uint32_t *v, kvant_diag *diag);
int hf_number(const hf_config *c, const char *keys, int required, double *v, kvant_diag *diag);
int hf_is_true(const hf_config *c, const char *key);
/* 1: v is the text `word`. */
int hf_is_word(gjson v, const char *word);
/* A value of the RoPE of full attention, where layers differ. */
gjson hf_rope(const hf_config *c, const char *key);
int hf_rope_number(const hf_config *c, const char *key, double *v, kvant_diag *diag); /* absent: *v untouched */

/* A JSON file of the folder; absent: *text NULL and *root absent. */
int hf_read(const char *folder, const char *name, char **text, gjson *root, kvant_diag *diag);
/* A value as a finite number or a whole one of 32 bits; the error names `what`. */
int hf_to_number(gjson v, const char *what, double *out, kvant_diag *diag);
int hf_to_u32(gjson v, const char *what, uint32_t *out, kvant_diag *diag);
/* Bytes of v that an error shows. */
int hf_shown(gjson v);

#endif
