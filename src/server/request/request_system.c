/* request_system.c: how many tokens of a chat's prompt are its system part: those with which any conversation of the
 * same system messages and tools begins.  A model that is resumed from snapshots alone gets one there, so that the
 * second conversation finds it. */
#include "server/request/request_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/request/json_scan.h"

static int is_system(const json_t *message)
{
    const char *role = body_text(json_object_get(message, "role"));

    return role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

/* The system messages that a chat begins with, and a question that nobody asks; *out: free(). */
static int opening_of(const char *chat, char **out)
{
    json_t *list = NULL, *question = json_pack("{s:s,s:s}", "role", "user", "content", "?");
    size_t n = 0;
    int code = json_read(chat, strlen(chat), &list, NULL);

    while (code == KVANT_OK && n < json_array_size(list) && is_system(json_array_get(list, n)))
        n++;
    while (code == KVANT_OK && json_array_size(list) > n)
        json_array_remove(list, json_array_size(list) - 1);
    if (code == KVANT_OK && (json_array_append(list, question) < 0 || !(*out = json_text(list, JSON_COMPACT))))
        code = KVANT_ENOMEM;
    json_decref(question);
    json_decref(list);
    return code;
}

static int common(const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    int n = 0;

    while (n < n_a && n < n_b && a[n] == b[n])
        n++;
    return n;
}

int prompt_find_system(const request_env *env, const kvant_chat_input *in, prompt *p, api_error *e)
{
    const int room = p->n + KVANT_PAGE;
    char *opening = NULL;
    int n = 0;

    if (env->snapshots == 0 || p->n <= KVANT_PAGE)
        return API_OK;
    int32_t *ids = kvant_alloc((size_t)room * sizeof *ids);
    int code = ids ? opening_of(in->messages, &opening) : KVANT_ENOMEM;
    kvant_chat_input other = *in;
    other.messages = opening;
    other.end = KVANT_CHAT_OPEN;
    if (code == KVANT_OK)
        code = kvant_chat_encode(env->model, &other, ids, room, &n, NULL);
    if (code == KVANT_OK)
        p->n_system = common(ids, n, p->ids, p->n);
    kvant_free(ids);
    free(opening); /* jansson's */
    /* A template that refuses such a chat leaves it at 0: only what goes on with this conversation is resumed then. */
    return code == KVANT_ENOMEM ? api_no_memory(e) : API_OK;
}
