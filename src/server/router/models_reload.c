/* models_reload.c: the list of models once more, while the server runs (GET /models?reload=1).  Owns what comes and
 * what goes: entries stay where they are, since requests and the loader hold them; one whose file is gone is no longer
 * listed.  On the loop thread alone. */
#include <string.h>
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/server_impl.h"

served *models_entry(server *s, const char *name)
{
    models *a = &s->models;

    for (int i = 0; i < a->n; i++)
        if (strcmp(a->list[i].name, name) == 0)
            return &a->list[i];
    return NULL;
}

static int is_in(const server_model *list, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return 1;
    return 0;
}

/* Before anything is changed. */
static int check_room(server *s, const server_model *list, int n, kvant_diag *diag)
{
    const models *a = &s->models;
    int more = 0;

    for (int i = 0; i < n; i++)
        more += !models_entry(s, list[i].name);
    if (a->n + more > a->room)
        return kvant_fail(diag, KVANT_ENOSPC, "models: %d are known already and %d are new, wanted at most %d; a restart "
                          "forgets those that went", (int)a->n, more, a->room);
    return KVANT_OK;
}

static int same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* A model that is not loaded may have moved. */
static void take_path(served *m, server_model *from)
{
    models *a = &m->s->models;

    pthread_mutex_lock(&a->lock);
    m->cached = from->cached;
    m->hidden = from->hidden;
    if (m->state == SERVED_NOT && (!same(m->path, from->path) || !same(m->draft, from->draft))) {
        kvant_free(m->own_path);
        kvant_free(m->own_draft);
        m->path = m->own_path = from->path;
        m->draft = m->own_draft = from->draft;
        from->path = from->draft = NULL;
    }
    pthread_mutex_unlock(&a->lock);
}

static void add(server *s, server_model *from)
{
    models *a = &s->models;
    const int at = a->n;
    served *m = &a->list[at];
    m->s = s;
    m->name = m->own_name = from->name;
    m->path = m->own_path = from->path;
    m->draft = m->own_draft = from->draft;
    m->cached = from->cached;
    m->hidden = from->hidden;
    from->name = from->path = from->draft = NULL;
    a->n = at + 1; /* from here on others see it */
}

served *models_add(server *s, const char *name)
{
    models *a = &s->models;
    served *m = models_entry(s, name);
    server_model fresh = { .name = kvant_strdup(name), .path = kvant_strdup(""), .cached = 1 };

    if (!m && fresh.name && fresh.path && a->n < a->room) {
        add(s, &fresh);
        m = &a->list[a->n - 1];
    }
    kvant_free(fresh.name);
    kvant_free(fresh.path);
    return m;
}

int models_reload(server *s, kvant_diag *diag)
{
    models *a = &s->models;
    server_model *list = NULL;
    int n = 0, code = server_models_read(&s->p.sources, &list, &n, diag);

    if (code == KVANT_OK)
        code = check_room(s, list, n, diag);
    for (int i = 0; i < a->n && code == KVANT_OK; i++) {
        if (a->list[i].fetching)
            continue;
        a->list[i].unlisted = !is_in(list, n, a->list[i].name);
        if (a->list[i].unlisted)
            models_unload(&a->list[i]);
    }
    for (int i = 0; i < n && code == KVANT_OK; i++) {
        served *m = models_entry(s, list[i].name);
        if (m && m->fetching)
            continue;
        if (m)
            take_path(m, &list[i]);
        else
            add(s, &list[i]);
    }
    server_models_free(list, n);
    if (code == KVANT_OK)
        models_tell(s, "models_reload", "*", NULL);
    if (code == KVANT_OK)
        log_msg(LOG_INFO, "the list of models was read again: %d", n);
    return code;
}
