/* text/template.h: chat templates: the file's Jinja text (text/jinja), or a built-in one, with what a model
 * gives it. Immutable once opened, any thread. */
#ifndef KVANT_TEXT_TEMPLATE_H
#define KVANT_TEXT_TEMPLATE_H

#include "kvant/engine.h"
#include "model/gguf/gguf.h"
#include "text/jinja/jinja.h"
#include "text/tokenizer.h"

typedef struct chat_template chat_template;

/* choice: NULL (the file's template, or ChatML where it has none), the name of a built-in one, or a template itself (a
 * text with {{ or {%).  *from_file: 0 when the file has none and ChatML is assumed.  A choice that cannot be used is an
 * error.  A template of the file that cannot be is not: chat_template_problem says why, and every use fails with it. */
int chat_template_open(const gguf *g, const char *choice, chat_template **out, int *from_file, kvant_diag *diag);
void chat_template_close(chat_template *c);
/* "jinja" (a text), "chatml", ... (built in), "unknown" (it cannot be used) */
const char *chat_template_name(const chat_template *c);
const char *chat_template_source(const chat_template *c);
/* Why it cannot be used, or what of it is not supported and will be refused when come to; NULL: nothing. */
const char *chat_template_problem(const chat_template *c);

/* A prompt as text with origins; it lives as long as *run, which jinja_run_close frees. */
int chat_template_render(const chat_template *c, const tokenizer *t, const kvant_chat_input *in, jinja_run **run,
                         jinja_text *out, kvant_diag *diag);
/* The text alone, without the BOS that tokenising it would add. */
int chat_template_format(const chat_template *c, const tokenizer *t, const kvant_chat_input *in, char **text,
                         kvant_diag *diag);
/* Control tokens are parsed in what the template wrote, never in data. */
int chat_template_tokenize(const chat_template *c, const tokenizer *t, const kvant_chat_input *in, int32_t *ids,
                           int cap, int *n_ids, kvant_diag *diag);
/* As chat_template_tokenize, for any text with origins.  KVANT_ENOSPC: *n_ids are wanted. */
int template_text_ids(const tokenizer *t, const jinja_text *text, int32_t *ids, int cap, int *n_ids, kvant_diag *diag);

#endif
