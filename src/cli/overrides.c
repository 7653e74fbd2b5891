/* overrides.c: see overrides.h. */
#include "cli/overrides.h"

#include <string.h>
#include "base/mem.h"

/* The entry at *text without its quotes, and *text behind it and its comma: as in a CSV line. */
static char *next_entry(const char **text)
{
    const char *s = *text;
    const int quoted = *s == '"';
    char *out = kvant_alloc(strlen(s) + 1);
    size_t n = 0;

    if (!out)
        return NULL;
    for (s += quoted; *s && (quoted || *s != ','); s++) {
        if (quoted && *s == '"' && *++s != '"')
            break;
        out[n++] = *s;
    }
    out[n] = 0;
    *text = s;
    return out;
}

static int add(overrides *a, const char *text, const char *given, kvant_diag *diag)
{
    for (;;) {
        char **list = kvant_realloc(a->list, (size_t)a->n * sizeof *list, ((size_t)a->n + 1) * sizeof *list);
        a->list = list ? list : a->list;
        char *entry = list ? next_entry(&text) : NULL;
        if (!entry)
            return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory", given);
        a->list[a->n++] = entry;
        if (!*text)
            return KVANT_OK;
        if (*text != ',')
            return kvant_fail(diag, KVANT_EINVAL, "%s: \"%.40s\" behind a closing quote, wanted a comma", given, text);
        text++;
    }
}

int overrides_from_opts(const opts *o, overrides *out, kvant_diag *diag)
{
    for (int i = 0; i < o->n_all; i++)
        if (o->all[i].id == OPT_OVERRIDE_KV)
            KVANT_TRY(add(out, o->all[i].text, opt_origin(o, OPT_OVERRIDE_KV), diag));
    return KVANT_OK;
}

void overrides_free(overrides *a)
{
    for (int i = 0; i < a->n; i++)
        kvant_free(a->list[i]);
    kvant_free(a->list);
    *a = (overrides){ 0 };
}
