/* draft.c: see draft.h. */
#include "cli/text/draft.h"

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

/* The error says that the draft model is meant. */
static int of_draft(int code, const kvant_diag *why, kvant_diag *diag)
{
    return code == KVANT_OK ? KVANT_OK : kvant_fail(diag, code, "draft model: %s", why->text);
}

int draft_open(const opts *o, const kvant_engine *target, draft_parts *out, kvant_diag *diag)
{
    const int spec = spec_from_opts(o);
    const char *path = opt_str(o, OPT_DRAFT_MODEL);
    kvant_model_params mp = kvant_model_defaults();
    kvant_diag why = { "" };

    *out = (draft_parts){ NULL, NULL };
    if (spec == KVANT_SPEC_DRAFT && (!path || !*path))
        return kvant_fail(diag, KVANT_EINVAL, "%s draft: found no draft model, wanted -md FILE.gguf",
                          opt_origin(o, OPT_SPEC));
    if ((spec != KVANT_SPEC_DRAFT && spec != KVANT_SPEC_AUTO) || !path || !*path)
        return KVANT_OK;
    mp.path = path;
    KVANT_TRY(of_draft(kvant_model_open(&mp, &out->m, &why), &why, diag));
    const kvant_engine_params p = params_of(o, kvant_engine_get_params(target));
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
