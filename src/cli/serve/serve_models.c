/* serve_models.c: see serve_models.h. */
#include "cli/common.h"

#ifdef KVANT_HAVE_SERVER
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "cli/serve/serve_models.h"
#include "hub/hub.h"

static const int router_options[] = { OPT_MODELS_PRESET, OPT_MODELS_DIR, OPT_MODELS_CACHE, OPT_MODELS_DOWNLOAD };

int serve_router(const opts *o)
{
    for (size_t i = 0; i < sizeof router_options / sizeof *router_options; i++)
        if (opt_given(o, router_options[i]))
            return router_options[i];
    return -1;
}

static int check_router(const opts *o, kvant_diag *diag)
{
    const char *origin = opt_origin(o, serve_router(o));
    static const int alone[] = { OPT_MODEL, OPT_ALIAS, OPT_TAGS, OPT_STRICT_MODEL };

    if (opt_given(o, OPT_MODELS_PRESET) && opt_given(o, OPT_MODELS_DIR))
        return kvant_fail(diag, KVANT_EINVAL, "%s and %s: wanted one of them", origin, opt_origin(o, OPT_MODELS_DIR));
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (opt_given(o, alone[i]))
            return kvant_fail(diag, KVANT_EINVAL, "%s and %s: wanted one of them; files name the models of a router",
                              origin, opt_origin(o, alone[i]));
    for (int i = OPT_LORA; i <= OPT_LORA_SCALED; i++)
        if (opt_given(o, i))
            return kvant_fail(diag, KVANT_EINVAL, "%s and %s: wanted one of them; an adapter belongs to one model",
                              origin, opt_origin(o, i));
    if (opt_flag(o, OPT_MODELS_DOWNLOAD) && opt_flag(o, OPT_OFFLINE))
        return kvant_fail(diag, KVANT_EINVAL, "%s and %s: wanted one of them", opt_origin(o, OPT_MODELS_DOWNLOAD),
                          opt_origin(o, OPT_OFFLINE));
    if (o->n_pos)
        return kvant_fail(diag, KVANT_EINVAL, "%s and %.60s: wanted one of them", origin, o->pos[0]);
    return KVANT_OK;
}

/* ---- the hub ---- */

/* A preset is also read while the server runs: nothing is fetched. */
static int cached_file(void *user, const char *repo, char *path, size_t cap, kvant_diag *diag)
{
    const hub_ask ask = { .repo = repo, .offline = 1 };
    char found[HUB_PATH];

    (void)user;
    KVANT_TRY(hub_pull(&ask, found, diag));
    snprintf(path, cap, "%s", found);
    return KVANT_OK;
}

/* At the start: what a preset of the hub names is fetched as -hf fetches a model.  user: the options. */
static int fetched_file(void *user, const char *repo, char *path, size_t cap, kvant_diag *diag)
{
    char found[HUB_PATH];

    KVANT_TRY(pull_repo(user, repo, found, diag));
    snprintf(path, cap, "%s", found);
    return KVANT_OK;
}

static int fetch(const char *repo, const server_fetch *tell, kvant_diag *diag)
{
    const hub_ask ask = { .repo = repo, .begun = tell->begun, .progress = tell->progress, .ended = tell->ended,
                          .user = tell->user };
    char path[HUB_PATH];

    return hub_pull(&ask, path, diag);
}

const server_downloads *serve_downloads(const opts *o)
{
    static const server_downloads door = { fetch, hub_remove };

    return opt_flag(o, OPT_MODELS_DOWNLOAD) ? &door : NULL;
}

int serve_list(const opts *o, server_params *p, server_model **list, kvant_diag *diag)
{
    const int changes = opt_flag(o, OPT_MODELS_DOWNLOAD), cache = changes || opt_flag(o, OPT_MODELS_CACHE);

    KVANT_TRY(check_router(o, diag));
    p->sources = (server_sources){ .dir = opt_str(o, OPT_MODELS_DIR),
                                   .preset = opt_str(o, OPT_MODELS_PRESET),
                                   .hub = cached_file,
                                   .cache = cache ? hub_models : NULL,
                                   .may_be_empty = changes };
    p->sources.of_hub = opt_given(o, OPT_HF_REPO);
    server_sources now = p->sources;
    now.hub = p->sources.of_hub ? fetched_file : cached_file;
    now.hub_user = (void *)(uintptr_t)o;
    const int code = server_models_read(&now, list, &p->n_models, diag);
    p->models = *list;
    return code;
}

#endif
