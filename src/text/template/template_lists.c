/* template_lists.c: templates that read a message's content as a list of parts only ({% for part in content %}), as
 * those of models that see do: a text would be lost, or taken apart into letters.  Each role is tried: a short chat
 * is rendered with a text, and where its words do not come out, with a list; if they then do, the role gets lists. */
#include "text/template/template_impl.h"

#include <stdio.h>
#include <string.h>

enum { PROBE_STEPS = 200000 }; /* of a chat with three messages: arbitrary, not tuned */

#define WORDS "kvant words"
#define CALL                                                                                                           \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\","                      \
    "\"function\":{\"name\":\"probe_tool\",\"arguments\":{}}}]}"

static const struct {
    const char *role, *chat; /* of which one message, of this role, has the words */
} probes[] = {
    { "user", "[{\"role\":\"user\",\"content\":\"" WORDS "\"}]" },
    { "assistant", "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"" WORDS "\"},"
                   "{\"role\":\"user\",\"content\":\"q\"}]" },
    { "system", "[{\"role\":\"system\",\"content\":\"" WORDS "\"},{\"role\":\"user\",\"content\":\"q\"}]" },
    { "tool", "[{\"role\":\"user\",\"content\":\"q\"}," CALL ",{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\","
              "\"name\":\"probe_tool\",\"content\":\"" WORDS "\"}]" },
};

enum { N_PROBES = sizeof probes / sizeof probes[0] };

static unsigned bit_of(const jstr *role)
{
    for (unsigned i = 0; i < N_PROBES; i++)
        if (jstr_is(role, probes[i].role) || (i == 2 && jstr_is(role, "developer")))
            return 1u << i;
    return 0;
}

static int shows(const chat_template *c, int i)
{
    const kvant_chat_input in = { .messages = probes[i].chat, .end = KVANT_CHAT_CLOSED };
    jinja_run *run = NULL;
    jinja_text text;
    const jstr words = { WORDS, NULL, sizeof WORDS - 1, 0, 0 };

    if (chat_template_render(c, NULL, &in, &run, &text, NULL) != KVANT_OK)
        return 0;
    const jstr all = { text.text, NULL, (uint32_t)text.n, 0, 0 };
    const int found = jstr_find(&all, &words, 0, text.n, 0) != SIZE_MAX;
    jinja_run_close(run);
    return found;
}

void template_find_lists(chat_template *c)
{
    if (!strstr(c->source, "text")) /* nothing reads a part's text */
        return;
    c->steps = PROBE_STEPS;
    for (int i = 0; i < N_PROBES; i++) {
        if (shows(c, i))
            continue;
        c->lists |= 1u << i;
        if (!shows(c, i))
            c->lists &= ~(1u << i);
    }
    c->steps = 0;
}

int template_put(jinja_run *r, jval dict, const char *key, jval v)
{
    jval k;

    if (!j_string(&r->mem, key, strlen(key), JINJA_TEMPLATE, &k) || !jdict_put(&r->mem, dict.u.d, k, v, &r->mem.steps))
        return j_nomem(r);
    return KVANT_OK;
}

int template_put_lists(jinja_run *r, unsigned roles, jval messages)
{
    for (size_t i = 0; roles && i < messages.u.l->n; i++) {
        const jdict *m = messages.u.l->v[i].u.d;
        jval *content = jdict_text(m, "content"), list, part, type;
        if (!content || content->type != J_STR || !(bit_of(jdict_text(m, "role")->u.s) & roles))
            continue;
        if (!j_list(&r->mem, 1, &list) || !j_dict(&r->mem, 2, &part) ||
            !j_string(&r->mem, "text", 4, JINJA_TEMPLATE, &type))
            return j_nomem(r);
        KVANT_TRY(template_put(r, part, "type", type));
        KVANT_TRY(template_put(r, part, "text", *content));
        if (!jlist_add(&r->mem, list.u.l, part))
            return j_nomem(r);
        *content = list;
    }
    return KVANT_OK;
}
