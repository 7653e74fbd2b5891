/* place_experts.c: which device has the routed experts of a layer: rules "PATTERN=DEVICE,..." over the names of the
 * file's tensors, the first that matches counts, and a number of layers whose experts are the CPU's. */
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

enum { MOST_RULES = 64, MOST_PATTERN = 256 };

typedef struct place_rule {
    char pattern[MOST_PATTERN], device[64];
    regex_t re;
    int matches;
} place_rule;

typedef struct place_rules {
    place_rule list[MOST_RULES];
    int n;
    gguf_str first[MODEL_MAX_LAYERS];   /* the tensor of a layer's experts that was seen first */
} place_rules;

/* ---- rules ---- */

/* \d, which POSIX has not, as [0-9]. */
static int put_pattern(place_rule *r, const char *s, size_t n)
{
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        const int pair = s[i] == '\\' && i + 1 < n, digit = pair && s[i + 1] == 'd';
        const size_t k = digit ? 5 : pair ? 2 : 1;
        if (used + k >= sizeof r->pattern)
            return 0;
        memcpy(r->pattern + used, digit ? "[0-9]" : s + i, k);
        used += k;
        i += (size_t)pair;
    }
    r->pattern[used] = 0;
    return n > 0;
}

/* One "PATTERN=DEVICE" of n characters. */
static int read_rule(place_rules *r, const char *s, size_t n, kvant_diag *diag)
{
    const char *eq = memchr(s, '=', n);
    const size_t before = eq ? (size_t)(eq - s) : 0, after = eq ? n - before - 1 : 0;
    place_rule *o = &r->list[r->n];
    engine_split known = { 0 };
    char why[80];
    int place;

    if (r->n == MOST_RULES)
        return kvant_fail(diag, KVANT_EINVAL, "tensors: more than %d rules", MOST_RULES);
    if (after == 0 || after >= sizeof o->device || !put_pattern(o, s, before))
        return kvant_fail(diag, KVANT_EINVAL, "tensors: \"%.*s\", wanted PATTERN=DEVICE", (int)(n < 80 ? n : 80), s);
    snprintf(o->device, sizeof o->device, "%.*s", (int)after, eq + 1);
    KVANT_TRY(engine_split_find(&known, o->device, after, &place, diag));
    const int bad = regcomp(&o->re, o->pattern, REG_EXTENDED | REG_NOSUB);
    if (bad) {
        regerror(bad, &o->re, why, sizeof why);
        return kvant_fail(diag, KVANT_EINVAL, "tensors: \"%.80s\", wanted an extended regular expression: %s",
                          o->pattern, why);
    }
    r->n++;
    return KVANT_OK;
}

/* A pattern may have commas, a device has none. */
static int read_rules(place_rules *r, const char *text, kvant_diag *diag)
{
    for (const char *s = text; s;) {
        const size_t eq = strcspn(s, "="), n = eq + strcspn(s + eq, ",");
        KVANT_TRY(read_rule(r, s, n, diag));
        s = s[n] ? s + n + 1 : NULL;
    }
    return KVANT_OK;
}

static place_rule *match(place_rules *r, const gguf_tensor *t)
{
    char name[128];

    if (r->n > 0)
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.s);
    for (int i = 0; i < r->n; i++)
        if (regexec(&r->list[i].re, name, 0, NULL, 0) == 0) {
            r->list[i].matches++;
            return &r->list[i];
        }
    return NULL;
}

/* ---- tensors ---- */

/* The place of a device, which may be the one that the tensor is on anyway. */
static int place_of(engine_split *s, const char *device, int own, int *place, kvant_diag *diag)
{
    engine_split one = { .n = 1 };
    int same;

    memcpy(one.name[0], s->name[own], sizeof one.name[0]);
    KVANT_TRY(engine_split_find(&one, device, strlen(device), &same, diag));
    *place = own;
    return same == 0 ? KVANT_OK : engine_split_find(s, device, strlen(device), place, diag);
}

/* Tensors that are no routed experts stay where their layer is. */
static int check_stays(engine_split *s, const gguf_tensor *t, const place_rule *by, int own, kvant_diag *diag)
{
    int place = own;

    KVANT_TRY(place_of(s, by->device, own, &place, diag));
    if (place == own)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "tensors: \"%s=%s\" matches %.*s, which stays on %s; wanted routed experts "
                      "(ffn_*_exps) alone", by->pattern, by->device, (int)t->name.n, t->name.s, s->name[own]);
}

static int put_expert(const kvant_engine_params *p, engine_split *s, place_rules *r, const gguf_tensor *t, int l,
                      const place_rule *by, kvant_diag *diag)
{
    int place = s->of[l];

    if (by || l < p->cpu_experts)
        KVANT_TRY(place_of(s, by ? by->device : "cpu", s->of[l], &place, diag));
    if (!r->first[l].n) {
        r->first[l] = t->name;
        s->experts[l] = (unsigned char)place;
    }
    if (s->experts[l] == place)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "tensors: %.*s on %s, but %.*s on %s; wanted a layer's experts on one device",
                      (int)r->first[l].n, r->first[l].s, s->name[s->experts[l]], (int)t->name.n, t->name.s,
                      s->name[place]);
}

static int put_tensor(const kvant_model *m, const kvant_engine_params *p, engine_split *s, place_rules *r,
                      const gguf_tensor *t, kvant_diag *diag)
{
    const place_rule *by = match(r, t);
    int l = 0;

    if (engine_is_expert(t, &l) && l < m->hp.n_layer)
        return put_expert(p, s, r, t, l, by, diag);
    return by ? check_stays(s, t, by, engine_tensor_place(m, s, t), diag) : KVANT_OK;
}

static int put_tensors(const kvant_model *m, const kvant_engine_params *p, engine_split *s, place_rules *r,
                       kvant_diag *diag)
{
    if (p->tensors)
        KVANT_TRY(read_rules(r, p->tensors, diag));
    for (int i = 0; i < gguf_tensor_count(m->file); i++)
        KVANT_TRY(put_tensor(m, p, s, r, gguf_tensor_at(m->file, i), diag));
    for (int i = 0; i < r->n; i++)
        if (r->list[i].matches == 0)
            return kvant_fail(diag, KVANT_EINVAL, "tensors: \"%s=%s\" matches none of %d tensors that no rule before it has",
                              r->list[i].pattern, r->list[i].device, gguf_tensor_count(m->file));
    return KVANT_OK;
}

int engine_split_experts(const kvant_model *m, const kvant_engine_params *p, engine_split *s, kvant_diag *diag)
{
    memcpy(s->experts, s->of, sizeof s->experts);
    if (p->cpu_experts < -1)
        return kvant_fail(diag, KVANT_EINVAL, "layers with experts on the CPU: %d, wanted 0 or more", p->cpu_experts);
    if (p->cpu_experts <= 0 && !p->tensors)
        return KVANT_OK;
    place_rules *r = kvant_calloc(1, sizeof *r);
    if (!r)
        return kvant_fail(diag, KVANT_ENOMEM, "tensors: out of memory");
    const int code = put_tensors(m, p, s, r, diag);
    for (int i = 0; i < r->n; i++)
        regfree(&r->list[i].re);
    kvant_free(r);
    return code;
}
