/* text/template/template_impl.h: shared by template.c and template_lists.c. */
#ifndef KVANT_TEXT_TEMPLATE_IMPL_H
#define KVANT_TEXT_TEMPLATE_IMPL_H

#include "text/jinja/jinja_run.h"
#include "text/template.h"

struct chat_template {
    jinja *t;        /* NULL: problem says why */
    jinja *tool_use; /* for chats with tools; NULL: t */
    const char *name;
    char *source;
    kvant_diag problem;
    unsigned lists; /* roles whose content the template reads as a list of parts, by their bits */
    int64_t steps;  /* while it is tried out: most steps; 0: as any */
};

/* Finds out c->lists, by rendering short chats. */
void template_find_lists(chat_template *c);
int template_put(jinja_run *r, jval dict, const char *key, jval v); /* dict[key] = v */
/* The texts of these roles' messages become lists of one part of type text. */
int template_put_lists(jinja_run *r, unsigned roles, jval messages);

#endif
