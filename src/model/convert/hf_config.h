/* model/convert/hf_config.h: config.json of a model's folder, as the architectures ask it.
 *
 * A value is looked for in "text_config", then at the root, then in the defaults of the architecture (what Transformers
 * takes when the file does not say); null counts as absent.  `keys` are names with a space between: the first that is
 * there counts. */
#ifndef KVANT_MODEL_HF_CONFIG_H
#define KVANT_MODEL_HF_CONFIG_H

#include <stdint.h>
#include "base/error.h"
#include "base/text/json.h"

typedef struct hf_config {
    char *text;
    gjson root, inner, defaults;
    gjson rope; /* rope_parameters, or rope_scaling */
} hf_config;

int hf_config_open(const char *folder, hf_config *c, kvant_diag *diag);
/* defaults: a JSON object, or NULL. */
int hf_config_defaults(hf_config *c, const char *defaults, kvant_diag *diag);
void hf_config_close(hf_config *c);

gjson hf_find(const hf_config *c, const char *keys);
/* Absent: *v untouched and KVANT_OK when `required` is 0.  Errors name the keys, the value and what is wanted. */
int hf_u32(const hf_config *c, const char *keys, int required, uint32_t *v, kvant_diag *diag);
int hf_number(const hf_config *c, const char *keys, int required, double *v, kvant_diag *diag);
int hf_is_true(const hf_config *c, const char *key);
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
