/* draft.c: see draft.h. */
#include "cli/text/draft.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/common.h"
#include "cli/text/spec.h"

static kvant_engine_params params_of(const opts *o, const kvant_engine_params *target)
{
    kvant_engine_params p = kvant_engine_defaults();
    const char *device = opt_str(o, OPT_DRAFT_DEVICE);

    p.device = device && *device ? device : target->device;
    p.threads = target->threads;
    p.n_ctx = target->n_ctx;
    p.max_seqs = target->max_seqs;
    p.pool_tokens = target->pool_tokens;
    p.type_k = opt_str(o, OPT_DRAFT_CTK);
    p.type_v = opt_str(o, OPT_DRAFT_CTV);
    return p;
}

/* The next name of a list of devices; 0: there is none. */
static int next_name(const char **list, char *name, size_t cap)
{
    const size_t n = strcspn(*list, ",");

    snprintf(name, cap, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return n > 0;
}

/* Bytes that the target leaves of a device; 0: any. */
static int64_t left_of(const kvant_engine *target, const char *device)
{
    const kvant_engine_params *t = kvant_engine_get_params(target);
    int64_t limit = strcmp(device, "cpu") == 0 ? t->host_memory : 0, used = 0;
    const char *names = t->device ? t->device : "cpu";
    kvant_plan_part part;
    char name[64];

    for (int i = 0; i < KVANT_MOST_DEVICES && next_name(&names, name, sizeof name); i++)
        limit = strcmp(name, device) == 0 ? t->device_memory[i] : limit;
    for (int i = 0; kvant_plan_device(kvant_engine_model(target), t, i, &part, NULL) == KVANT_OK; i++)
        used += strcmp(part.device, device) == 0 ? part.plan.total : 0;
    return limit <= 0 ? 0 : limit > used ? limit - used : 1;
}

/* It may have as much as the target leaves, and no more than is free. */
static void give_memory(const kvant_engine *target, kvant_engine_params *p)
{
    const char *names = p->device ? p->device : "cpu";
    char name[64];

    for (int i = 0; i < KVANT_MOST_DEVICES && next_name(&names, name, sizeof name); i++)
        p->device_memory[i] = left_of(target, name);
    p->host_memory = left_of(target, "cpu");
    engine_memory(p);
}

/* The error says that the draft model is meant. */
static int of_draft(int code, const kvant_diag *why, kvant_diag *diag)
{
    return code == KVANT_OK ? KVANT_OK : kvant_fail(diag, code, "draft model: %s", why->text);
}

/* *out NULL: no draft model is wanted. */
static int open_draft(const opts *o, kvant_model **out, kvant_diag *diag)
{
    const int spec = spec_from_opts(o);
    const char *path = opt_str(o, OPT_DRAFT_MODEL);
    kvant_model_params mp = kvant_model_defaults();
    kvant_diag why = { "" };

    *out = NULL;
    if (spec == KVANT_SPEC_DRAFT && (!path || !*path))
        return kvant_fail(diag, KVANT_EINVAL, "%s draft: found no draft model, wanted -md FILE.gguf",
                          opt_origin(o, OPT_SPEC));
    if ((spec != KVANT_SPEC_DRAFT && spec != KVANT_SPEC_AUTO) || !path || !*path)
        return KVANT_OK;
    mp.path = path;
    return of_draft(kvant_model_open(&mp, out, &why), &why, diag);
}

int draft_bytes(const opts *o, const kvant_engine_params *target, int64_t *bytes, kvant_diag *diag)
{
    const kvant_engine_params p = params_of(o, target);
    kvant_diag why = { "" };
    kvant_plan plan = { 0 };
    kvant_model *m;

    KVANT_TRY(open_draft(o, &m, diag));
    const int code = m ? kvant_plan_make(m, &p, &plan, &why) : KVANT_OK;
    kvant_model_close(m);
    *bytes = plan.total;
    return of_draft(code, &why, diag);
}

int draft_open(const opts *o, const kvant_engine *target, draft_parts *out, kvant_diag *diag)
{
    kvant_engine_params p = params_of(o, kvant_engine_get_params(target));
    kvant_diag why = { "" };

    *out = (draft_parts){ NULL, NULL };
    KVANT_TRY(open_draft(o, &out->m, diag));
    if (!out->m)
        return KVANT_OK;
    give_memory(target, &p);
    KVANT_TRY(of_draft(kvant_engine_create(out->m, &p, &out->e, &why), &why, diag));
    log_msg(LOG_INFO, "draft model: %s", kvant_model_get_info(out->m)->desc);
    return KVANT_OK;
}

void draft_close(draft_parts *d)
{
    kvant_engine_free(d->e);
    kvant_model_close(d->m);
    *d = (draft_parts){ NULL, NULL };
}
