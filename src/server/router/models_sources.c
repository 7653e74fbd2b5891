/* models_sources.c: the list of a router's models from all places that it is told of: a folder or a preset, and the
 * hub's cache.  A name that both have is the folder's or the preset's. */
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/server_impl.h"

typedef struct gathered {
    server_model *list;
    int n, error;
} gathered;

static int is_known(const gathered *g, const char *name)
{
    for (int i = 0; i < g->n; i++)
        if (strcmp(g->list[i].name, name) == 0)
            return 1;
    return 0;
}

/* A preset of this file, or of this draft model, says that its entry of the cache is not to be shown beside it. */
static int is_shown_by_preset(const gathered *g, const char *path)
{
    for (int i = 0; i < g->n; i++) {
        const server_model *m = &g->list[i];
        if (m->dedup && (strcmp(m->path, path) == 0 || (m->draft && strcmp(m->draft, path) == 0)))
            return 1;
    }
    return 0;
}

static void add_cached(void *user, const char *name, const char *path)
{
    gathered *g = user;

    if (is_known(g, name))
        return;
    if (g->n == MODELS_MOST || !models_name_ok(name, strlen(name))) {
        log_msg(LOG_WARN, "--models-cache: %.100s is left out: %s", name,
                g->n == MODELS_MOST ? "there are 1024 models already" : "its name is too long");
        return;
    }
    server_model *m = &g->list[g->n];
    *m = (server_model){ .name = kvant_strdup(name), .path = kvant_strdup(path), .cached = 1 };
    m->hidden = is_shown_by_preset(g, path);
    g->error |= !m->name || !m->path;
    g->n++;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const server_model *)a)->name, ((const server_model *)b)->name);
}

static int read_cache(const server_sources *f, gathered *g, kvant_diag *diag)
{
    const int first = g->n;

    if (!g->list)
        g->list = kvant_calloc(MODELS_MOST, sizeof *g->list);
    if (!g->list)
        return kvant_fail(diag, KVANT_ENOMEM, "--models-cache: out of memory");
    KVANT_TRY(f->cache(add_cached, g, diag));
    qsort(g->list + first, (size_t)(g->n - first), sizeof *g->list, by_name);
    if (g->error)
        return kvant_fail(diag, KVANT_ENOMEM, "--models-cache: out of memory");
    if (g->n == 0 && !f->may_be_empty)
        return kvant_fail(diag, KVANT_ENOENT,
                          "--models-cache: found no model in the hub's cache, wanted one or more (kvant "
                          "pull USER/NAME fetches one, --models-download lets clients do so)");
    return KVANT_OK;
}

int server_models_read(const server_sources *f, server_model **list, int *n, kvant_diag *diag)
{
    gathered g = { .n = 0 };
    int code = KVANT_OK;

    if (f->preset)
        code = server_models_preset(f, &g.list, &g.n, diag);
    else if (f->dir)
        code = server_models_of(f->dir, &g.list, &g.n, diag);
    if (code == KVANT_OK && f->cache)
        code = read_cache(f, &g, diag);
    *list = g.list;
    *n = g.n;
    return code;
}
