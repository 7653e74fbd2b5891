/* place.c: the layers of a model over several devices, in order: which has which, and the bytes of each. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/tensor/tensor.h"

/* ---- which layers ---- */

static int add_name(engine_split *s, const char *name, size_t n, kvant_diag *diag)
{
    const kvant_device_vt *vt;
    int index = 0;

    if (s->n == KV_MOST_PLACES)
        return kvant_fail(diag, KVANT_EINVAL, "devices: more than %d", KV_MOST_PLACES);
    if (n == 0 || n >= sizeof s->name[0])
        return kvant_fail(diag, KVANT_EINVAL, "device \"%.*s\": wanted a name such as cuda:0", (int)(n < 60 ? n : 60),
                          name);
    snprintf(s->name[s->n], sizeof s->name[0], "%.*s", (int)n, name);
    s->device[s->n] = -1;
    return kvant_device_find(s->name[s->n++], &vt, &index, diag);
}

/* llama.cpp's names of devices are ours in capitals and without a colon: CPU, CUDA0. */
static void own_name(const char *name, size_t n, char *out)
{
    size_t digits = n;

    while (digits > 0 && isdigit((unsigned char)name[digits - 1]))
        digits--;
    for (size_t i = 0; i < n; i++) {
        if (i == digits && i > 0 && isalpha((unsigned char)name[i - 1]))
            *out++ = ':';
        *out++ = (char)tolower((unsigned char)name[i]);
    }
    *out = 0;
}

int engine_split_find(engine_split *s, const char *name, size_t n, int *place, kvant_diag *diag)
{
    char own[64];

    if (n == 0 || n >= sizeof own - 2)
        return kvant_fail(diag, KVANT_EINVAL, "device \"%.*s\": wanted a name such as cpu or cuda:0",
                          (int)(n < 60 ? n : 60), name);
    own_name(name, n, own);
    for (*place = 0; *place < s->n; (*place)++)
        if (strcmp(s->name[*place], own) == 0)
            return KVANT_OK;
    return add_name(s, own, strlen(own), diag);
}

static int read_names(engine_split *s, const char *text, kvant_diag *diag)
{
    for (size_t n;; text += n + 1) {
        n = strcspn(text, ",");
        KVANT_TRY(add_name(s, text, n, diag));
        if (!text[n])
            return KVANT_OK;
    }
}

/* Separated by commas or slashes; NULL: equal. */
int engine_split_shares(const char *text, double *share, int n, kvant_diag *diag)
{
    const char *s = text;
    double sum = 0;

    for (int i = 0; i < n; i++) {
        char *end = NULL;
        share[i] = text ? strtod(s, &end) : 1;
        if (!text)
            continue;
        const int ends = i + 1 < n ? *end == ',' || *end == '/' : *end == 0;
        if (end == s || !(share[i] > 0) || !isfinite(share[i]) || !ends)
            return kvant_fail(diag, KVANT_EINVAL, "split \"%.60s\": wanted %d shares above 0, one for each device",
                              text, n);
        s = end + 1;
        sum += share[i];
    }
    if (!isfinite(sum))
        return kvant_fail(diag, KVANT_EINVAL, "split \"%.60s\": the sum of the shares is no number, wanted less than 1e308",
                          text);
    return KVANT_OK;
}

/* Layers [first, all) to the places from `begin` on. */
static int share_layers(engine_split *s, int begin, const double *share, int first, int all, kvant_diag *diag)
{
    double sum = 0, so_far = 0;

    for (int i = begin; i < s->n; i++)
        sum += share[i - begin];
    for (int i = begin, l = first; i < s->n; i++) {
        const int from = l;
        so_far += share[i - begin];
        for (const int end = first + (int)lround((all - first) * (so_far / sum)); l < end; l++)
            s->of[l] = (unsigned char)i;
        if (l == from)
            return kvant_fail(diag, KVANT_EINVAL, "device %s: its share is none of %d layers", s->name[i], all - first);
    }
    return KVANT_OK;
}

/* A layer that reads another one's K and V is where that is. */
static int check_shared(const kvant_model *m, const engine_split *s, kvant_diag *diag)
{
    for (int l = 0; l < m->hp.n_layer; l++) {
        const int from = m->hp.layer[l].kv_from;
        if (s->of[l] != s->of[from])
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "layer %d, on device %s, reads K and V of layer %d, on device %s; "
                              "wanted both on one", l, s->name[s->of[l]], from, s->name[s->of[from]]);
    }
    return KVANT_OK;
}

int engine_split_make(const kvant_model *m, const kvant_engine_params *p, engine_split *out, kvant_diag *diag)
{
    const int all = m->hp.n_layer + 1, cpu = p->gpu_layers > 0 && p->gpu_layers < all;
    double share[KV_MOST_PLACES];

    memset(out, 0, sizeof *out);
    if (p->gpu_layers < 0)
        return kvant_fail(diag, KVANT_EINVAL, "GPU layers: %d, wanted 0 or more", p->gpu_layers);
    if (cpu)
        KVANT_TRY(add_name(out, "cpu", 3, diag));
    KVANT_TRY(read_names(out, p->device, diag));
    for (int i = cpu; i < out->n; i++)
        out->device[i] = i - cpu;
    if (p->split_tensors)
        KVANT_TRY(tensor_check_beside(m, p, diag));
    if (p->split_tensors && out->n > 1)
        return tensor_split_make(m, p, out, diag);
    KVANT_TRY(engine_split_shares(p->split, share, out->n - cpu, diag));
    KVANT_TRY(share_layers(out, cpu, share, cpu ? all - p->gpu_layers : 0, all, diag));
    KVANT_TRY(check_shared(m, out, diag));
    return engine_split_experts(m, p, out, diag);
}

static int begins(const gguf_tensor *t, const char *with)
{
    return t->name.n > strlen(with) && memcmp(t->name.s, with, strlen(with)) == 0;
}

int engine_is_expert(const gguf_tensor *t, int *l)
{
    static const char *const kinds[] = { "gate_exps.", "up_exps.", "down_exps.", "gate_up_exps." };
    const char *s = t->name.s, *end = s + t->name.n;
    int n = 0;

    if (!begins(t, "blk."))
        return 0;
    for (s += 4; s < end && *s >= '0' && *s <= '9' && n <= MODEL_MAX_LAYERS; s++)
        n = 10 * n + (*s - '0');
    *l = n;
    if (end - s < 10 || memcmp(s, ".ffn_", 5) != 0)
        return 0;
    for (int i = 0; i < 4; i++) {
        const size_t k = strlen(kinds[i]);
        if ((size_t)(end - s - 5) > k && memcmp(s + 5, kinds[i], k) == 0)
            return 1;
    }
    return 0;
}

static int is_embedding(const gguf_tensor *t)
{
    return begins(t, "token_embd") || begins(t, "per_layer_");
}

long engine_tensor_layer(const gguf_tensor *t)
{
    return begins(t, "blk.") ? strtol(t->name.s + 4, NULL, 10) : -1;
}

int engine_tensor_place(const kvant_model *m, const engine_split *s, const gguf_tensor *t)
{
    const long l = engine_tensor_layer(t);

    return l >= 0 && l < m->hp.n_layer ? s->of[l] : s->of[is_embedding(t) ? 0 : m->hp.n_layer];
}

/* Embeddings are also at the head where that has no matrix of its own. */
int64_t engine_split_weights(const kvant_model *m, const engine_split *s, int place)
{
    const int both = m->output == m->token_embd && s->of[m->hp.n_layer] == place;
    int64_t bytes = 0;
    int l = 0;

    if (s->tensors)
        return tensor_weights(m, s, place);
    for (int i = 0; i < gguf_tensor_count(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        const int expert = engine_is_expert(t, &l) && l < m->hp.n_layer;
        const int here = expert ? s->experts[l] : engine_tensor_place(m, s, t);
        bytes += here == place || (both && is_embedding(t)) ? (int64_t)t->bytes : 0;
    }
    return bytes;
}
