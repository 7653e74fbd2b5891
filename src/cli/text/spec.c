/* spec.c: see spec.h. */
#include "cli/text/spec.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/common.h"

/* A draft model without a word of --spec is to draft. */
int spec_from_opts(const opts *o)
{
    const int model = opt_given(o, OPT_DRAFT_MODEL) && !opt_given(o, OPT_SPEC);

    if (opt_int(o, OPT_DRAFT_MAX) == 0)
        return KVANT_SPEC_OFF;
    if (model || opt_is(o, OPT_SPEC, "draft") || opt_is(o, OPT_SPEC, "draft-simple"))
        return KVANT_SPEC_DRAFT;
    if (opt_is(o, OPT_SPEC, "off") || opt_is(o, OPT_SPEC, "none"))
        return KVANT_SPEC_OFF;
    if (opt_is(o, OPT_SPEC, "mtp") || opt_is(o, OPT_SPEC, "draft-mtp"))
        return KVANT_SPEC_MTP;
    return opt_is(o, OPT_SPEC, "auto") ? KVANT_SPEC_AUTO : KVANT_SPEC_NGRAM;
}

int spec_rows(const opts *o)
{
    return spec_from_opts(o) == KVANT_SPEC_OFF ? 0 : (int)opt_int(o, OPT_DRAFT_MAX);
}

int spec_draft_rows(const opts *o, int seqs)
{
    const int most = seqs * (1 + (int)opt_int(o, OPT_DRAFT_MAX)), room = seqs + KVANT_PAGE;

    if (spec_from_opts(o) == KVANT_SPEC_OFF)
        return 0;
    return most < room ? most : room;
}

/* "0.9,0.5": a number for each guess. */
static int read_rates(const opts *o, double *rates, int n, kvant_diag *diag)
{
    const char *text = opt_str(o, OPT_SYNTH_RATES), *s = text, *origin = opt_origin(o, OPT_SYNTH_RATES);
    int k = 0;

    for (char *end;; s = end + 1, k++) {
        const double rate = strtod(s, &end);
        if (end == s || (*end && *end != ','))
            return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.60s\", wanted numbers with commas", origin, text);
        if (k < n)
            rates[k] = rate;
        if (!*end)
            break;
    }
    if (++k == n)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "%s: found %d numbers, wanted %d, one for each guess of --draft-max", origin,
                      k, n);
}

int spec_synth(const opts *o, draft_synth *out, kvant_diag *diag)
{
    const int rates = opt_given(o, OPT_SYNTH_RATES), length = opt_given(o, OPT_SYNTH_LENGTH);
    const int option = rates ? OPT_SYNTH_RATES : OPT_SYNTH_LENGTH, n = (int)opt_int(o, OPT_DRAFT_MAX);
    double list[KVANT_MOST_DRAFTS];
    kvant_diag why = { "" };

    *out = (draft_synth){ .n = 0 };
    if (!rates && !length)
        return KVANT_OK;
    if (rates && length)
        return kvant_fail(diag, KVANT_EINVAL, "%s and %s: wanted one of them", opt_origin(o, OPT_SYNTH_RATES),
                          opt_origin(o, OPT_SYNTH_LENGTH));
    if (spec_from_opts(o) == KVANT_SPEC_OFF)
        return kvant_fail(diag, KVANT_EINVAL, "%s: wanted with guesses (--spec), found none", opt_origin(o, option));
    if (rates)
        KVANT_TRY(read_rates(o, list, n, diag));
    const int code = rates ? synth_from_rates(list, n, out, &why)
                           : synth_from_length(opt_num(o, OPT_SYNTH_LENGTH), n, out, &why);
    return code < 0 ? kvant_fail(diag, code, "%s: %s", opt_origin(o, option), why.text) : KVANT_OK;
}

int spec_start_synth(const opts *o, kvant_session *s, kvant_diag *diag)
{
    draft_synth synth;

    KVANT_TRY(spec_synth(o, &synth, diag));
    if (synth.n == 0)
        return KVANT_OK;
    synth_set(s, &synth);
    log_msg(
        LOG_WARN,
        "guesses are accepted by chance, %.2f tokens a step on average (%s): this measures, texts are not the model's",
        synth_length(&synth), opt_given(o, OPT_SYNTH_RATES) ? "--spec-synth-rates" : "--spec-synth-len");
    return KVANT_OK;
}

/* NULL: the block can be loaded; else why not.  It wants all layers on one device, and beside it the context that
 * decides about placements too (fit_place.c). */
static const char *block_stays_out(const kvant_model *m, const kvant_engine_params *p)
{
    const int train = kvant_model_get_info(m)->n_ctx_train, least = train < KVANT_FIT_TOKENS ? train : KVANT_FIT_TOKENS;
    kvant_engine_params q = *p;

    if (device_is_cpu(p->device))
        return NULL;
    if (strchr(p->device, ',') || p->gpu_layers > 0 || p->cpu_experts > 0 || p->tensors || p->split_tensors)
        return "one device with all layers is wanted";
    engine_memory(&q);
    q.cpu_experts = 0;
    q.mtp = 1;
    q.n_ctx = p->n_ctx ? p->n_ctx : least;
    return kvant_fit_largest(m, &q, q.n_ctx, 1, -1) >= q.n_ctx ? NULL : "the device's memory has no room for it";
}

/* auto, without another model that guesses. */
static int block_of_auto(const opts *o, const kvant_model *m, const kvant_engine_params *p)
{
    const char *why;

    if (!kvant_model_get_info(m)->n_mtp || opt_given(o, OPT_DRAFT_MODEL))
        return 0;
    why = block_stays_out(m, p);
    log_msg(LOG_INFO, "%s auto: the block that predicts further tokens is %s%s%s", opt_origin(o, OPT_SPEC),
            why ? "not loaded: " : "loaded", why ? why : "", why ? " (--spec mtp wants it)" : "");
    return why == NULL;
}

void spec_engine(const opts *o, const kvant_model *m, kvant_engine_params *p)
{
    const int spec = spec_from_opts(o);

    p->mtp = spec == KVANT_SPEC_MTP || (spec == KVANT_SPEC_AUTO && block_of_auto(o, m, p));
}

void spec_params(const opts *o, const kvant_engine *e, kvant_engine *draft, kvant_session_params *p)
{
    kvant_diag diag = { "" };

    p->spec = spec_from_opts(o);
    if (p->spec == KVANT_SPEC_OFF)
        return;
    p->draft = draft;
    p->draft_max = (int)opt_int(o, OPT_DRAFT_MAX);
    p->draft_min = (int)opt_int(o, OPT_DRAFT_MIN);
    if (p->spec != KVANT_SPEC_AUTO || opt_given(o, OPT_DRAFT_P_MIN))
        p->draft_p_min = (float)opt_num(o, OPT_DRAFT_P_MIN);
    if (p->spec != KVANT_SPEC_AUTO || kvant_engine_verifies(e, &diag) == KVANT_OK)
        return;
    p->spec = KVANT_SPEC_OFF;
    log_msg(LOG_INFO, "%s auto: off: %s", opt_origin(o, OPT_SPEC), diag.text);
}
