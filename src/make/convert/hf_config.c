/* hf_config.c: see hf_config.h.  Owns the text of config.json and the order of places where a value is looked for. */
#include "make/convert/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/file/file.h"
#include "base/mem.h"
#include "make/convert/fields/hf_fields.h"

/* The largest tokenizer.json in use has 35 MB.  A configuration is searched for fields that stand in it twice. */
enum { MAX_JSON = 256 << 20, MAX_CONFIG = 4 << 20, MAX_FIELDS = 1024, MAX_KEY = 64 };

int hf_shown(gjson v)
{
    return v.n < 40 ? (int)v.n : 40;
}

int hf_read(const char *folder, const char *name, char **text, gjson *root, kvant_diag *diag)
{
    char path[4096];
    size_t size = 0;
    kvant_diag none = { "" };

    *text = NULL;
    *root = (gjson){ NULL, 0 };
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return kvant_fail(diag, KVANT_EINVAL, "%.120s: its name is too long", folder);
    const int rc = file_read(path, MAX_JSON, text, &size, &none);
    if (rc == KVANT_ENOENT)
        return KVANT_OK;
    if (rc < 0)
        return kvant_fail(diag, rc, "%.220s", none.text);
    if (gjson_parse(*text, size, root, &none) == KVANT_OK && *root->p == '{')
        return KVANT_OK;
    kvant_free(*text);
    *text = NULL;
    *root = (gjson){ NULL, 0 };
    return kvant_fail(diag, KVANT_EFORMAT, "%.120s: %.80s; a JSON object wanted", path, none.text);
}

/* Readers of JSON take the first or the last of two values; a field that has two is refused. */
static int check_once(gjson object, kvant_diag *diag)
{
    gjson key = { 0 }, value = { 0 };

    for (int n = 0; gjson_member(object, &key, &value); n++) {
        gjson other = key, rest = value;
        if (n == MAX_FIELDS)
            return kvant_fail(diag, KVANT_EFORMAT, "config.json: an object of more than %d fields", MAX_FIELDS);
        while (gjson_member(object, &other, &rest))
            if (other.n == key.n && memcmp(other.p, key.p, key.n) == 0)
                return kvant_fail(diag, KVANT_EFORMAT, "config.json: found %.*s twice, wanted once", hf_shown(key),
                                  key.p);
    }
    return KVANT_OK;
}

/* The objects that fields are read from. */
static int check_fields_once(const hf_config *c, kvant_diag *diag)
{
    static const char *const within[] = { "rope_scaling", "rope_parameters", "quantization_config" };

    KVANT_TRY(check_once(c->root, diag));
    KVANT_TRY(check_once(c->inner, diag));
    for (size_t i = 0; i < sizeof within / sizeof *within; i++) {
        KVANT_TRY(check_once(gjson_get(c->root, within[i]), diag));
        KVANT_TRY(check_once(gjson_get(c->inner, within[i]), diag));
    }
    return KVANT_OK;
}

int hf_config_open(const char *folder, hf_config *c, kvant_diag *diag)
{
    memset(c, 0, sizeof *c);
    KVANT_TRY(hf_read(folder, "config.json", &c->text, &c->root, diag));
    if (!c->root.p)
        return kvant_fail(diag, KVANT_ENOENT, "%.120s: no config.json", folder);
    if (c->root.n > MAX_CONFIG)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: %zu bytes, wanted at most %d", c->root.n, MAX_CONFIG);
    c->inner = gjson_get(c->root, "text_config");
    return check_fields_once(c, diag);
}

void hf_config_close(hf_config *c)
{
    kvant_free(c->text);
    memset(c, 0, sizeof *c);
}

static int is_null(gjson v)
{
    return !v.p || (v.n == 4 && memcmp(v.p, "null", 4) == 0);
}

static int is_of_whole(const char *key)
{
    static const char *const names[] = { "tie_word_embeddings", "quantization_config", "vocab_size" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i]) == 0)
            return 1;
    return 0;
}

/* `said`: 1 once a place has the key, if only as null.  A key that cls does not have is not there: Transformers does
 * not read it either (NULL: no matter). */
static gjson find_in(gjson place, const char *keys, const hf_class *cls, int whole_only, int *said)
{
    while (*keys) {
        char key[MAX_KEY];
        const size_t n = strcspn(keys, " ");
        snprintf(key, sizeof key, "%.*s", (int)n, keys);
        gjson v = gjson_get(place, key);
        if ((whole_only && !is_of_whole(key)) || (v.p && cls && !is_of_whole(key) && !hf_class_has(cls, key)))
            v = (gjson){ NULL, 0 };
        *said |= v.p != NULL;
        if (!is_null(v))
            return v;
        keys += n + (keys[n] == ' ');
    }
    return (gjson){ NULL, 0 };
}

gjson hf_find(const hf_config *c, const char *keys)
{
    int said = 0;
    gjson v = find_in(c->inner.p ? c->inner : c->root, keys, c->text_cls, 0, &said);

    if (!v.p && c->inner.p)
        v = find_in(c->root, keys, NULL, 1, &said);
    return v.p || said ? v : find_in(c->defaults, keys, NULL, 0, &said);
}

int hf_config_class(hf_config *c, const char *architecture, kvant_diag *diag)
{
    KVANT_TRY(hf_fields_classes(c, architecture, diag));
    KVANT_TRY(gjson_parse(c->text_cls->fields, strlen(c->text_cls->fields), &c->defaults, diag));
    c->rope = hf_find(c, "rope_scaling");
    if (!c->rope.p || *c->rope.p != '{' || c->rope.n < 4)
        c->rope = hf_find(c, "rope_parameters");
    return hf_fields_check(c, diag);
}

int hf_to_number(gjson v, const char *what, double *out, kvant_diag *diag)
{
    const double d = gjson_number(v);

    if (!isfinite(d))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: is %.*s, a number wanted", what, v.p ? hf_shown(v) : 6,
                          v.p ? v.p : "absent");
    *out = d;
    return KVANT_OK;
}

int hf_to_u32(gjson v, const char *what, uint32_t *out, kvant_diag *diag)
{
    const double d = gjson_number(v);

    if (!(d >= 0.0 && d <= 4294967295.0 && d == floor(d)))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: is %.*s, a whole number up to 2^32 - 1 wanted", what,
                          v.p ? hf_shown(v) : 6, v.p ? v.p : "absent");
    *out = (uint32_t)d;
    return KVANT_OK;
}

static int missing(const char *keys, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EFORMAT, "config.json: has none of: %s", keys);
}

int hf_u32(const hf_config *c, const char *keys, int required, uint32_t *v, kvant_diag *diag)
{
    const gjson found = hf_find(c, keys);

    if (found.p)
        return hf_to_u32(found, keys, v, diag);
    return required ? missing(keys, diag) : KVANT_OK;
}

int hf_number(const hf_config *c, const char *keys, int required, double *v, kvant_diag *diag)
{
    const gjson found = hf_find(c, keys);

    if (found.p)
        return hf_to_number(found, keys, v, diag);
    return required ? missing(keys, diag) : KVANT_OK;
}

int hf_is_true(const hf_config *c, const char *key)
{
    const gjson v = hf_find(c, key);
    return v.n == 4 && memcmp(v.p, "true", 4) == 0;
}

/* Old files have rope_theta and the like beside rope_scaling, and "type" for "rope_type". */
gjson hf_rope(const hf_config *c, const char *key)
{
    static const char beside[] = "rope_theta partial_rotary_factor", original[] = "original_max_position_embeddings";
    const gjson full = gjson_get(c->rope, "full_attention");
    gjson v = strcmp(key, original) == 0 ? hf_find(c, key) : (gjson){ NULL, 0 }; /* the one that counts before */

    if (is_null(v))
        v = gjson_get(full.p ? full : c->rope, key);

    if (is_null(v) && strcmp(key, "rope_type") == 0)
        v = gjson_get(full.p ? full : c->rope, "type");
    if (is_null(v) && strstr(beside, key))
        v = hf_find(c, key);
    return is_null(v) ? (gjson){ NULL, 0 } : v;
}

int hf_is_word(gjson v, const char *word)
{
    const size_t n = strlen(word);
    return v.n == n + 2 && *v.p == '"' && memcmp(v.p + 1, word, n) == 0;
}

int hf_rope_number(const hf_config *c, const char *key, double *v, kvant_diag *diag)
{
    const gjson found = hf_rope(c, key);

    return found.p ? hf_to_number(found, key, v, diag) : KVANT_OK;
}
