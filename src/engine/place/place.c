/* place.c: the layers of a model over several devices, in order: which has which, and the residual stream that goes
 * from one to the next through host memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

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
    return kvant_device_find(s->name[s->n++], &vt, &index, diag);
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

/* share[n] of devices, separated by commas or slashes; NULL: equal. */
static int read_shares(const char *text, double *share, int n, kvant_diag *diag)
{
    const char *s = text;

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
    }
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
    KVANT_TRY(read_shares(p->split, share, out->n - cpu, diag));
    KVANT_TRY(share_layers(out, cpu, share, cpu ? all - p->gpu_layers : 0, all, diag));
    return check_shared(m, out, diag);
}

/* Embeddings are where the first layer is, and also at the head where that has no matrix of its own. */
int64_t engine_split_weights(const kvant_model *m, const engine_split *s, int place)
{
    const int head = s->of[m->hp.n_layer];
    int64_t bytes = 0;

    for (int i = 0; i < gguf_tensor_count(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        const int block = t->name.n > 4 && memcmp(t->name.s, "blk.", 4) == 0;
        const long l = block ? strtol(t->name.s + 4, NULL, 10) : -1;
        const int embd = (t->name.n > 10 && memcmp(t->name.s, "token_embd", 10) == 0) ||
                         (t->name.n > 10 && memcmp(t->name.s, "per_layer_", 10) == 0);
        const int here = block && l >= 0 && l < m->hp.n_layer ? s->of[l] : embd ? 0 : head;
        if (here == place || (embd && m->output == m->token_embd && head == place))
            bytes += (int64_t)t->bytes;
    }
    return bytes;
}

/* ---- the program ---- */

int engine_place_of_op(const kvant_engine *e, int i)
{
    int k = e->n_cross;

    while (k > 0 && e->cross[k - 1].op > i)
        k--;
    return k ? e->cross[k - 1].to : e->split.of[0];
}

void engine_bind(kvant_engine *e, int place)
{
    const engine_place *at = &e->place[place];
    builder *b = &e->b;

    b->w = at->weights.w;
    b->vec = at->weights.vec;
    b->inv_freq = at->weights.inv_freq;
    b->inv_freq_window = at->weights.inv_freq_window;
    b->heads = at->weights.heads;
    b->ones = at->weights.ones;
    b->suppress = at->weights.suppress;
    b->fused = at->fused;
    b->lora_row = at->lora_rows;
    b->buf = at->buf;
}

static void put(engine_crossing *c, int part, const float *from, float *at, size_t n)
{
    c->from[part] = from;
    c->at[part] = at;
    c->n[part] = n;
}

void engine_cross(kvant_engine *e, int from, int to)
{
    builder *b = &e->b;
    const build_buffers *old = &e->place[from].buf, *now = &e->place[to].buf;
    const hparams *hp = &e->m->hp;
    const size_t rows = (size_t)b->rows, width = (size_t)hp->n_embd;
    engine_crossing *c = &e->cross[e->n_cross++];

    memset(c, 0, sizeof *c);
    c->op = b->n_ops;
    c->to = to;
    float *x = b->x == old->xs ? now->xs : now->x, *embd = b->embd == old->embd_proj ? now->embd_proj : now->embd;
    put(c, STREAM_X, b->x, x, rows * width);
    if (b->have_delta)
        put(c, STREAM_DELTA, old->delta, now->delta, rows * width);
    if (hp->n_embd_layer)
        put(c, STREAM_EMBD, b->embd, embd, rows * (size_t)hp->n_layer * (size_t)hp->n_embd_layer);
    engine_bind(e, to);
    b->x = x;
    b->embd = embd;
}

/* The stream from the place that has it to the next. */
static int cross_over(kvant_engine *e, const engine_crossing *c, kvant_device *from, kvant_diag *diag)
{
    kvant_device *to = e->place[c->to].dev;
    float *host = e->cross_host;

    for (int i = 0; i < STREAM_PARTS; host += c->n[i++])
        if (c->n[i])
            KVANT_TRY(from->vt->copy_out(from, host, c->from[i], c->n[i] * sizeof *host, diag));
    KVANT_TRY(from->vt->sync(from, diag));
    host = e->cross_host;
    for (int i = 0; i < STREAM_PARTS; host += c->n[i++])
        if (c->n[i])
            KVANT_TRY(to->vt->copy_in(to, c->at[i], host, c->n[i] * sizeof *host, diag));
    return KVANT_OK;
}

int engine_submit(kvant_engine *e, int n, uint64_t key, kvant_diag *diag)
{
    kvant_device *dev = e->place[e->split.of[0]].dev;
    int first = 0;

    for (int i = 0; i < e->n_cross; i++) {
        const engine_crossing *c = &e->cross[i];
        if (c->op > first)
            KVANT_TRY(dev->vt->submit(dev, e->ops + first, c->op - first, key, diag));
        KVANT_TRY(cross_over(e, c, dev, diag));
        dev = e->place[c->to].dev;
        first = c->op;
    }
    return n > first ? dev->vt->submit(dev, e->ops + first, n - first, key, diag) : KVANT_OK;
}
