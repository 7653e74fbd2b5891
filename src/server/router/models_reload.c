/* models_reload.c: the list of models once more, while the server runs (GET /models?reload=1).  Owns what comes and
 * what goes: entries stay where they are, since requests and the loader hold them; one whose file is gone is no longer
 * listed.  On the loop thread alone. */
#include <string.h>
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/server_impl.h"

static served *entry(models *a, const char *name)
{
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
static int check_room(models *a, const server_model *list, int n, kvant_diag *diag)
{
    int more = 0;

    for (int i = 0; i < n; i++)
        more += !entry(a, list[i].name);
    if (a->n + more > a->room)
        return kvant_fail(diag, KVANT_ENOSPC, "models: %d are known already and %d are new, wanted at most %d; a restart "
                          "forgets those that went", (int)a->n, more, a->room);
    return KVANT_OK;
}

/* A model that is not loaded may have moved. */
static void take_path(served *m, server_model *from)
{
    models *a = &m->s->models;

    pthread_mutex_lock(&a->lock);
    if (m->state == SERVED_NOT && strcmp(m->path, from->path) != 0) {
        kvant_free(m->own_path);
        m->path = m->own_path = from->path;
        from->path = NULL;
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
    from->name = from->path = NULL;
    a->n = at + 1; /* from here on others see it */
}

int models_reload(server *s, kvant_diag *diag)
{
    models *a = &s->models;
    server_model *list = NULL;
    int n = 0, code = s->p.models_preset ? server_models_preset(s->p.models_preset, s->p.loader->hub, &list, &n, diag)
                                         : server_models_of(s->p.models_dir, &list, &n, diag);

    if (code == KVANT_OK)
        code = check_room(a, list, n, diag);
    for (int i = 0; i < a->n && code == KVANT_OK; i++) {
        a->list[i].unlisted = !is_in(list, n, a->list[i].name);
        if (a->list[i].unlisted)
            models_unload(&a->list[i]);
    }
    for (int i = 0; i < n && code == KVANT_OK; i++) {
        served *m = entry(a, list[i].name);
        if (m)
            take_path(m, &list[i]);
        else
            add(s, &list[i]);
    }
    server_models_free(list, n);
    if (code == KVANT_OK)
        log_msg(LOG_INFO, "the list of models was read again: %d", n);
    return code;
}
