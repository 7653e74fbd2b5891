/* model/template.h: chat templates as the known families (ChatML/Qwen, Llama 3, Mistral, Gemma), in C.
 * The family is recognised from the file's Jinja text; an unknown text is an error that names --chat-template. */
#ifndef KVANT_MODEL_TEMPLATE_H
#define KVANT_MODEL_TEMPLATE_H

#include "kvant/engine.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

typedef struct chat_family chat_family;

/* override: family name or NULL.  *from_file 0 when the file has no template (ChatML assumed).  An unknown template in
 * the file is not an error here: *out is NULL, diag has the message that names --chat-template, and every later use
 * fails with it. */
int chat_family_choose(const gguf *g, const char *override, const chat_family **out, int *from_file, kvant_diag *diag);
const char *chat_family_name(const chat_family *f);
/* Which template of the family, for reports and tests: "qwen2.5", "v3-tekken", ... */
const char *chat_family_variant(const chat_family *f);
/* end: enum kvant_chat_end */
int chat_family_format(const chat_family *f, const kvant_chat_msg *msgs, int n, int end, char **text,
                       kvant_diag *diag);
/* Pieces: control markers are tokenised as special, message text as plain text. */
int chat_family_tokenize(const chat_family *f, const tokenizer *t, const kvant_chat_msg *msgs, int n, int end,
                         int32_t *ids, int cap, int *n_ids, kvant_diag *diag);

#endif
