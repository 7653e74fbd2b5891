/* spec.c: see spec.h. */
#include "cli/text/spec.h"

#include "base/log.h"

int spec_from_opts(const opts *o)
{
    if (opt_is(o, OPT_SPEC, "off") || opt_is(o, OPT_SPEC, "none") || opt_int(o, OPT_DRAFT_MAX) == 0)
        return KVANT_SPEC_OFF;
    return opt_is(o, OPT_SPEC, "auto") ? KVANT_SPEC_AUTO : KVANT_SPEC_NGRAM;
}

int spec_rows(const opts *o)
{
    return spec_from_opts(o) == KVANT_SPEC_OFF ? 0 : (int)opt_int(o, OPT_DRAFT_MAX);
}

void spec_params(const opts *o, const kvant_engine *e, kvant_session_params *p)
{
    kvant_diag diag = { "" };

    p->spec = spec_from_opts(o);
    if (p->spec == KVANT_SPEC_OFF)
        return;
    p->draft_max = (int)opt_int(o, OPT_DRAFT_MAX);
    p->draft_min = (int)opt_int(o, OPT_DRAFT_MIN);
    if (p->spec != KVANT_SPEC_AUTO || kvant_engine_verifies(e, &diag) == KVANT_OK)
        return;
    p->spec = KVANT_SPEC_OFF;
    log_msg(LOG_INFO, "%s auto: off: %s", opt_origin(o, OPT_SPEC), diag.text);
}
