/* sampling.c: see sampling.h. */
#include "cli/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "base/clock.h"
#include "base/mem.h"
#include "cli/text/escape.h"
#include "engine/sampler/sampler_words.h"

void sampling_numbers(const opts *o, kvant_sampler_params *p)
{
    p->temp = (float)opt_num(o, OPT_TEMP);
    p->top_k = (int)opt_int(o, OPT_TOP_K);
    p->top_p = (float)opt_num(o, OPT_TOP_P);
    p->min_p = (float)opt_num(o, OPT_MIN_P);
    p->repeat_penalty = (float)opt_num(o, OPT_REPEAT_PENALTY);
    p->presence_penalty = (float)opt_num(o, OPT_PRESENCE_PENALTY);
    p->frequency_penalty = (float)opt_num(o, OPT_FREQUENCY_PENALTY);
    p->penalty_last_n = (int)opt_int(o, OPT_REPEAT_LAST_N);
    p->typical_p = (float)opt_num(o, OPT_TYPICAL);
    p->top_n_sigma = (float)opt_num(o, OPT_TOP_N_SIGMA);
    p->xtc_probability = (float)opt_num(o, OPT_XTC_PROBABILITY);
    p->xtc_threshold = (float)opt_num(o, OPT_XTC_THRESHOLD);
    p->dynatemp_range = (float)opt_num(o, OPT_DYNATEMP_RANGE);
    p->dynatemp_exponent = (float)opt_num(o, OPT_DYNATEMP_EXP);
    p->mirostat = (int)opt_int(o, OPT_MIROSTAT);
    p->mirostat_eta = (float)opt_num(o, OPT_MIROSTAT_ETA);
    p->mirostat_tau = (float)opt_num(o, OPT_MIROSTAT_TAU);
    p->dry_multiplier = (float)opt_num(o, OPT_DRY_MULTIPLIER);
    p->dry_base = (float)opt_num(o, OPT_DRY_BASE);
    p->dry_allowed_length = (int)opt_int(o, OPT_DRY_ALLOWED);
    p->dry_last_n = (int)opt_int(o, OPT_DRY_LAST_N);
}

/* ---- bias ---- */

/* "15+1.5", "15-inf" -> id and value. */
static int parse_bias(const opts *o, const char *s, int n_vocab, int32_t *id, float *bias, kvant_diag *diag)
{
    char *end, *end2;
    long v = strtol(s, &end, 10);

    if (end != s && v >= 0 && v < n_vocab && (*end == '+' || *end == '-')) {
        double x = strtod(end, &end2);
        if (end2 != end + 1 && !*end2 && !isnan(x)) {
            *id = (int32_t)v;
            *bias = (float)x;
            return KVANT_OK;
        }
    }
    return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.60s\", wanted ID+X or ID-X with ID below %d",
                      opt_origin(o, OPT_LOGIT_BIAS), s, n_vocab);
}

static int read_bias(const opts *o, const kvant_model *m, sampling *s, kvant_diag *diag)
{
    const int n_vocab = kvant_model_get_info(m)->n_vocab;
    const size_t most = (size_t)n_vocab + (size_t)o->n_all;
    int n = 0;

    s->bias_ids = kvant_calloc(most, sizeof *s->bias_ids);
    s->bias = kvant_calloc(most, sizeof *s->bias);
    if (!s->bias_ids || !s->bias)
        return kvant_fail(diag, KVANT_ENOMEM, "logit bias: out of memory");
    for (int i = 0; i < o->n_all; i++)
        if (o->all[i].id == OPT_LOGIT_BIAS) {
            KVANT_TRY(parse_bias(o, o->all[i].text, n_vocab, &s->bias_ids[n], &s->bias[n], diag));
            n++;
        }
    for (int32_t id = 0; opt_flag(o, OPT_IGNORE_EOS) && id < n_vocab; id++)
        if (kvant_token_is_eog(m, id)) {
            s->bias_ids[n] = id;
            s->bias[n++] = -INFINITY;
        }
    s->p.bias_ids = s->bias_ids;
    s->p.bias = s->bias;
    s->p.n_bias = n;
    return KVANT_OK;
}

/* ---- which samplers run ---- */

enum { MOST_LISTED = 16, NAME_CAP = 32 }; /* more than there are: the first one too many is not in order */

/* "top_k;temperature" or, letters, "kt". */
static int read_order(const opts *o, int id, int letters, kvant_sampler_params *p, kvant_diag *diag)
{
    const char *at = opt_str(o, id), *names[MOST_LISTED];
    char text[MOST_LISTED][NAME_CAP];
    int n = 0;

    if (!at)
        return KVANT_OK;
    while (*at && n < MOST_LISTED) {
        const size_t len = letters ? 1 : strcspn(at, ";");
        snprintf(text[n], NAME_CAP, "%.*s", (int)(len < NAME_CAP ? len : NAME_CAP - 1), at);
        names[n] = text[n];
        n++;
        at += len + (!letters && at[len] == ';');
    }
    const int bad = sampler_only(p, names, n);
    if (bad < 0)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "%s: item %d, \"%s\": wanted names in this order: " SAMPLER_NAMES,
                      opt_origin(o, id), bad, names[bad]);
}

/* ---- DRY's breakers ---- */

typedef struct breakers {
    char text[SAMPLER_BREAKERS][NAME_CAP];
    const char *list[SAMPLER_BREAKERS];
    int n;
} breakers;

static int add_breaker(const opts *o, const char *given, breakers *b, kvant_diag *diag)
{
    char *text = b->text[b->n];

    snprintf(text, NAME_CAP, "%.*s", NAME_CAP - 1, given);
    if (!opt_flag(o, OPT_NO_ESCAPE))
        unescape(text);
    if (!sampler_is_breaker(text))
        return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.60s\", wanted one character or \"none\"",
                          opt_origin(o, OPT_RUN_BREAKER), given);
    b->list[b->n++] = text;
    return KVANT_OK;
}

/* "none" adds none, and as every other one takes the place of the usual ones. */
static int list_breakers(const opts *o, breakers *b, kvant_diag *diag)
{
    b->n = 0;
    for (int i = 0; i < o->n_all; i++)
        if (o->all[i].id == OPT_RUN_BREAKER && strcmp(o->all[i].text, "none") != 0) {
            if (b->n == SAMPLER_BREAKERS)
                return kvant_fail(diag, KVANT_EINVAL, "%s: found more than %d, wanted at most so many",
                                  opt_origin(o, OPT_RUN_BREAKER), SAMPLER_BREAKERS);
            KVANT_TRY(add_breaker(o, o->all[i].text, b, diag));
        }
    if (opt_given(o, OPT_RUN_BREAKER))
        return KVANT_OK;
    memcpy(b->list, sampler_usual_breakers, sizeof sampler_usual_breakers);
    b->n = 4;
    return KVANT_OK;
}

static int read_breakers(const opts *o, const kvant_model *m, sampling *s, kvant_diag *diag)
{
    const size_t width = (size_t)kvant_model_get_info(m)->n_vocab;
    breakers b;

    KVANT_TRY(list_breakers(o, &b, diag));
    if (s->p.dry_multiplier <= 0)
        return KVANT_OK;
    s->breakers = kvant_calloc(width, sizeof *s->breakers);
    if (!s->breakers)
        return kvant_fail(diag, KVANT_ENOMEM, "DRY: out of memory");
    s->p.n_dry_breakers = sampler_find_breakers(m, b.list, b.n, s->breakers);
    s->p.dry_breakers = s->breakers;
    return KVANT_OK;
}

/* ---- all of it ---- */

static uint64_t choose_seed(const opts *o)
{
    uint32_t v = 0;

    if (opt_int(o, OPT_SEED) >= 0)
        return (uint64_t)opt_int(o, OPT_SEED);
    if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v)
        v = (uint32_t)clock_ns();
    return v;
}

int sampling_open(const opts *o, const kvant_model *m, sampling *s, kvant_diag *diag)
{
    *s = (sampling){ .p = kvant_sampler_defaults() };
    sampling_numbers(o, &s->p);
    s->p.seed = choose_seed(o);
    if (opt_str(o, OPT_RUN_SAMPLERS) && opt_str(o, OPT_RUN_SAMPLER_SEQ))
        return kvant_fail(diag, KVANT_EINVAL, "samplers: found both %s and %s, wanted one",
                          opt_origin(o, OPT_RUN_SAMPLERS), opt_origin(o, OPT_RUN_SAMPLER_SEQ));
    KVANT_TRY(read_order(o, OPT_RUN_SAMPLERS, 0, &s->p, diag));
    KVANT_TRY(read_order(o, OPT_RUN_SAMPLER_SEQ, 1, &s->p, diag));
    KVANT_TRY(read_bias(o, m, s, diag));
    return read_breakers(o, m, s, diag);
}

void sampling_free(sampling *s)
{
    kvant_free(s->bias_ids);
    kvant_free(s->bias);
    kvant_free(s->breakers);
    *s = (sampling){ .p = kvant_sampler_defaults() };
}
