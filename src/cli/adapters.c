/* adapters.c: see adapters.h. */
#include "cli/adapters.h"

#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

/* "FILE:SCALE": cuts the scale off; a file's name may have colons too. */
static int take_scale(const char *given, char *path, float *scale, kvant_diag *diag)
{
    char *colon = strrchr(path, ':'), *end = NULL;

    *scale = colon ? strtof(colon + 1, &end) : 0.0f;
    if (!colon || colon == path || end == colon + 1 || *end || !(*scale >= -KVANT_LORA_MOST) ||
        *scale > KVANT_LORA_MOST)
        return kvant_fail(diag, KVANT_EINVAL, "%s: \"%.80s\", wanted FILE:SCALE with a scale of -%d to %d", given, path,
                          KVANT_LORA_MOST, KVANT_LORA_MOST);
    *colon = 0;
    return KVANT_OK;
}

static int add(adapters *a, const char *name, size_t n, int scaled, const char *given, kvant_diag *diag)
{
    kvant_lora *list = kvant_realloc(a->list, (size_t)a->n * sizeof *list, ((size_t)a->n + 1) * sizeof *list);
    char *path = kvant_strndup(name, n);
    float scale = 1.0f;

    a->list = list ? list : a->list;
    if (!list || !path) {
        kvant_free(path);
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory", given);
    }
    a->list[a->n++] = (kvant_lora){ path, 0.0f };
    if (n == 0)
        return kvant_fail(diag, KVANT_EINVAL, "%s: an empty name, wanted files with a comma between", given);
    if (scaled)
        KVANT_TRY(take_scale(given, path, &scale, diag));
    a->list[a->n - 1].scale = scale;
    return KVANT_OK;
}

static int add_all(adapters *a, const char *text, int scaled, const char *given, kvant_diag *diag)
{
    for (;;) {
        const size_t n = strcspn(text, ",");
        KVANT_TRY(add(a, text, n, scaled, given, diag));
        if (!text[n])
            return KVANT_OK;
        text += n + 1;
    }
}

int adapters_from_opts(const opts *o, adapters *out, kvant_diag *diag)
{
    for (int i = 0; i < o->n_all; i++) {
        const int id = o->all[i].id;
        if (id == OPT_LORA || id == OPT_LORA_SCALED)
            KVANT_TRY(add_all(out, o->all[i].text, id == OPT_LORA_SCALED, opt_origin(o, id), diag));
    }
    if (opt_flag(o, OPT_LORA_WITHOUT_APPLY))
        for (int i = 0; i < out->n; i++)
            out->list[i].scale = 0.0f;
    return KVANT_OK;
}

void adapters_free(adapters *a)
{
    for (int i = 0; i < a->n; i++)
        kvant_free((void *)(uintptr_t)a->list[i].path);
    kvant_free(a->list);
    *a = (adapters){ 0 };
}
