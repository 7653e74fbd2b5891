/* hf_fields.c: see hf_fields.h.  Owns the look-up in the two tables and the words in which a field is named. */
#include "make/convert/fields/hf_fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"

enum { MAX_FIELD = 64 };

static const hf_class classes[] = {
#define HF_CLASS(name, type, architectures, text, fields, more, renamed) \
    { name, type, architectures, text, fields, more, renamed },
#include "make/convert/fields/hf_classes.def"
#undef HF_CLASS
};

static const hf_decision decisions[] = {
#define HF_DECISION(kind, cls, fields, text) { HF_##kind, cls, fields, text },
#include "make/convert/fields/hf_decisions.def"
#undef HF_DECISION
};

/* ---- words ---- */

/* 1: `word` of n bytes is one of `words`; a word that ends in '*' is the beginning of one. */
static int has_word(const char *words, const char *word, size_t n)
{
    while (*words) {
        const size_t m = strcspn(words, " ");
        const int star = m > 1 && words[m - 1] == '*';
        if (star ? n >= m - 1 && memcmp(words, word, m - 1) == 0 : n == m && memcmp(words, word, n) == 0)
            return 1;
        words += m + (words[m] == ' ');
    }
    return 0;
}

static gjson parsed(const char *json)
{
    gjson v = { NULL, 0 };
    kvant_diag none = { "" };

    return gjson_parse(json, strlen(json), &v, &none) == KVANT_OK ? v : (gjson){ NULL, 0 };
}

/* ---- the tables ---- */

const hf_class *hf_class_at(int i)
{
    return i >= 0 && i < (int)(sizeof classes / sizeof *classes) ? &classes[i] : NULL;
}

const hf_class *hf_class_named(const char *name)
{
    for (int i = 0; hf_class_at(i); i++)
        if (strcmp(classes[i].name, name) == 0)
            return &classes[i];
    return NULL;
}

const hf_decision *hf_decision_of(const char *cls, const char *field, int *named)
{
    const size_t n_cls = strlen(cls), n_field = strlen(field);

    for (*named = 1; *named >= 0; --*named)
        for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
            const int all = strcmp(decisions[i].classes, "*") == 0;
            if (*named ? !all && has_word(decisions[i].classes, cls, n_cls) : all)
                if (has_word(decisions[i].fields, field, n_field))
                    return &decisions[i];
        }
    return NULL;
}

int hf_class_has(const hf_class *cls, const char *field)
{
    const hf_class *common = hf_class_named("PreTrainedConfig");
    const char *const places[] = { cls->fields, cls->more, cls->renamed, common->fields, common->more };
    char quoted[MAX_FIELD + 2];
    int named;

    snprintf(quoted, sizeof quoted, "\"%.*s\"", MAX_FIELD - 1, field);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strstr(places[i], quoted))
            return 1;
    return hf_decision_of(cls->name, field, &named) && named;
}

int hf_class_undecided(const hf_class *cls, char *buf, size_t cap)
{
    gjson key = { NULL, 0 }, it = { NULL, 0 }, list = parsed(cls->fields);
    char name[MAX_FIELD];
    size_t at = 0;
    int n = 0, named;

    buf[0] = 0;
    for (int more = 0; more < 2; more++) {
        while (more ? gjson_next(list, &it) : gjson_member(list, &key, &it)) {
            gjson_text(more ? it : key, name, sizeof name);
            if (hf_decision_of(cls->name, name, &named))
                continue;
            at += (size_t)snprintf(buf + at, cap - at, "%s%s", n++ ? " " : "", name);
            at = at < cap ? at : cap - 1;
        }
        list = parsed(cls->more);
        it = (gjson){ NULL, 0 };
    }
    return n;
}

/* ---- classes of a file ---- */

static const hf_class *class_of_type(gjson type)
{
    char name[MAX_FIELD] = "";

    if (!gjson_text(type, name, sizeof name) || !*name)
        return NULL;
    for (int i = 0; hf_class_at(i); i++)
        if (strcmp(classes[i].model_type, name) == 0)
            return &classes[i];
    return NULL;
}

/* model_type decides which code Transformers runs: it has to be that of the architecture. */
static int check_type(const hf_class *cls, gjson type, kvant_diag *diag)
{
    const hf_class *other = class_of_type(type);

    if (!type.p || hf_is_word(type, cls->model_type))
        return KVANT_OK;
    if (other)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: model_type is %.*s, \"%s\" wanted for %s",
                          hf_shown(type), type.p, cls->model_type, cls->name);
    log_msg(LOG_WARN, "convert: model_type is %.*s, which is read as \"%s\"", hf_shown(type), type.p, cls->model_type);
    return KVANT_OK;
}

int hf_fields_classes(hf_config *c, const char *architecture, kvant_diag *diag)
{
    const gjson inner_type = gjson_get(c->inner, "model_type");

    c->cls = NULL;
    for (int i = 0; !c->cls && hf_class_at(i); i++)
        if (has_word(classes[i].architectures, architecture, strlen(architecture)))
            c->cls = &classes[i];
    if (!c->cls)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: no class is known of architecture \"%.50s\"",
                          architecture);
    KVANT_TRY(check_type(c->cls, gjson_get(c->root, "model_type"), diag));
    c->text_cls = c->cls;
    if (!c->inner.p)
        return KVANT_OK;
    if (*c->cls->text)
        c->text_cls = hf_class_named(c->cls->text);
    else
        c->text_cls = class_of_type(inner_type);
    if (!c->text_cls)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: text_config has model_type %.*s, which is not known",
                          inner_type.p ? hf_shown(inner_type) : 4, inner_type.p ? inner_type.p : "none");
    return check_type(c->text_cls, inner_type, diag);
}

/* ---- one field ---- */

/* A value is one of the words: as a text, as it is written, or as a number. */
static int is_one_of(gjson v, const char *words)
{
    if (!v.p)
        return has_word(words, "null", 4);
    if (*v.p == '"')
        return has_word(words, v.p + 1, v.n - 2);
    if (has_word(words, v.p, v.n))
        return 1;
    const double d = gjson_number(v);
    for (char *end; isfinite(d) && *words; words += strcspn(words, " "), words += *words == ' ')
        if (strtod(words, &end) == d && end != words)
            return 1;
    return 0;
}

typedef struct place {
    const char *file;
    const hf_class *cls;
    gjson fields, renamed;
    kvant_diag *diag;
} place;

static int refuse(const place *p, const char *field, gjson v, const char *wanted, int by_default)
{
    return kvant_fail(p->diag, KVANT_EUNSUPPORTED, "%s: %s is %.*s%s, %s%s wanted (%s)", p->file, field,
                      v.p ? hf_shown(v) : 4, v.p ? v.p : "null", by_default ? " where the file does not say" : "",
                      strchr(wanted, ' ') ? "one of " : "", wanted, p->cls->name);
}

static int is_neutral(gjson v)
{
    return !v.p || is_one_of(v, "null false 0 []");
}

static int check_field(const place *p, gjson key, gjson v)
{
    char name[MAX_FIELD], target[MAX_FIELD];
    int named;

    gjson_text(key, name, sizeof name);
    if (name[0] == '_') /* notes of Transformers to itself, which no model reads */
        return KVANT_OK;
    if (!gjson_text(gjson_get(p->renamed, name), target, sizeof target))
        snprintf(target, sizeof target, "%s", name);
    const int has = hf_class_has(p->cls, target);
    const hf_decision *d = hf_decision_of(p->cls->name, target, &named);
    if (!d || (!has && !named && d->kind == HF_ONLY) || (!has && !named && d->kind == HF_READ)) {
        if (!is_neutral(v))
            log_msg(LOG_WARN, "convert: %s: %s (%.*s) is not read: %s has no such field", p->file, name, hf_shown(v),
                    v.p, p->cls->name);
        return KVANT_OK;
    }
    if (d->kind == HF_ONLY && !is_one_of(v, d->text))
        return refuse(p, name, v, d->text, 0);
    if (d->kind == HF_TOLD && !is_neutral(v))
        log_msg(LOG_WARN, "convert: %s: %s (%.*s) is not written: requests say it", p->file, name, hf_shown(v), v.p);
    return KVANT_OK;
}

/* 1: the object has the field, under its name or another. */
static int says(const place *p, gjson object, const char *field)
{
    gjson key = { NULL, 0 }, it = { NULL, 0 };
    char name[MAX_FIELD];

    if (gjson_get(object, field).p)
        return 1;
    while (gjson_member(p->renamed, &key, &it)) {
        gjson_text(key, name, sizeof name);
        if (hf_is_word(it, field) && gjson_get(object, name).p)
            return 1;
    }
    return 0;
}

/* Two names of one field: the one that counts is the last in the file, so they have to agree. */
static int check_names(const place *p, gjson object)
{
    gjson key = { NULL, 0 }, it = { NULL, 0 };
    char name[MAX_FIELD], field[MAX_FIELD], other[MAX_FIELD];

    while (gjson_member(p->renamed, &key, &it)) {
        gjson_text(key, name, sizeof name);
        gjson_text(it, field, sizeof field);
        const gjson a = gjson_get(object, name), b = gjson_get(object, field);
        snprintf(other, sizeof other, "%.*s", b.p && b.n < MAX_FIELD ? (int)b.n : 0, b.p ? b.p : "");
        if (a.p && b.p && !is_one_of(a, other) && !(a.n == b.n && memcmp(a.p, b.p, a.n) == 0))
            return kvant_fail(p->diag, KVANT_EUNSUPPORTED,
                              "%s: %s is %.*s, and %s, another name of it, %.*s: equal ones wanted", p->file, name,
                              hf_shown(a), a.p, field, hf_shown(b), b.p);
    }
    return KVANT_OK;
}

/* A default that Transformers takes where the object says nothing has to be a value that kvant computes, too. */
static int check_defaults(const place *p, gjson object)
{
    gjson key = { NULL, 0 }, it = { NULL, 0 };
    char name[MAX_FIELD];
    int named;

    while (gjson_member(p->fields, &key, &it)) {
        gjson_text(key, name, sizeof name);
        const hf_decision *d = hf_decision_of(p->cls->name, name, &named);
        if (d && d->kind == HF_ONLY && !is_one_of(it, d->text) && !says(p, object, name))
            return refuse(p, name, it, d->text, 1);
    }
    return KVANT_OK;
}

static int check_object(gjson object, const hf_class *cls, const char *file, int defaults, kvant_diag *diag)
{
    const place p = { file, cls, parsed(cls->fields), parsed(cls->renamed), diag };
    gjson key = { NULL, 0 }, it = { NULL, 0 };

    while (gjson_member(object, &key, &it))
        KVANT_TRY(check_field(&p, key, it));
    KVANT_TRY(check_names(&p, object));
    return defaults ? check_defaults(&p, object) : KVANT_OK;
}

int hf_fields_check_object(gjson object, const char *cls, const char *file, kvant_diag *diag)
{
    return check_object(object, hf_class_named(cls), file, 0, diag);
}

/* ---- a file ---- */

static int check_rope(const hf_config *c, kvant_diag *diag)
{
    static const char file[] = "config.json: rope_parameters";
    gjson key = { NULL, 0 }, it = { NULL, 0 };

    const gjson scaling = hf_find(c, "rope_scaling"), rope = scaling.p && *scaling.p != '{' ? scaling : c->rope;
    if (rope.p && *rope.p != '{')
        return kvant_fail(diag, KVANT_EFORMAT, "%s: is %.*s, an object wanted", file, hf_shown(rope), rope.p);
    KVANT_TRY(hf_fields_check_object(c->rope, "RopeParameters", file, diag));
    while (gjson_member(c->rope, &key, &it))
        if (*it.p == '{')
            KVANT_TRY(hf_fields_check_object(it, "RopeParameters", file, diag));
    return KVANT_OK;
}

int hf_fields_check(const hf_config *c, kvant_diag *diag)
{
    const gjson quantization = hf_find(c, "quantization_config");
    const int mxfp4 = hf_is_word(gjson_get(quantization, "quant_method"), "mxfp4");

    KVANT_TRY(check_object(c->root, c->cls, "config.json", !c->inner.p, diag));
    if (c->inner.p)
        KVANT_TRY(check_object(c->inner, c->text_cls, "config.json: text_config", 1, diag));
    KVANT_TRY(check_rope(c, diag));
    return hf_fields_check_object(quantization, mxfp4 ? "Mxfp4Config" : "FineGrainedFP8Config",
                                  "config.json: quantization_config", diag);
}
