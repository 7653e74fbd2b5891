/* params.c: engine parameters: defaults, cache types per layer, and the memory plan.  Reads no weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/abi/sized.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/place/place_stream.h"
#include "engine/tensor/tensor.h"

void kvant_engine_params_init(kvant_engine_params *p, size_t size)
{
    const kvant_engine_params defaults = { .kv_tail = -1, .encoder = KVANT_ENCODER_BEST };

    params_give(p, size, &defaults, sizeof defaults);
}

int engine_in_range(const char *name, int64_t v, int64_t lo, int64_t hi, kvant_diag *diag)
{
    if (v >= lo && v <= hi)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "%s: %lld, wanted %lld to %lld", name, (long long)v, (long long)lo,
                      (long long)hi);
}

int engine_pass_rows(const kvant_engine_params *p)
{
    return p->logits_rows < p->n_ubatch ? p->logits_rows : p->n_ubatch;
}

/* enum kvant_state_type of a name, or -1. */
static int state_type_of(const char *name)
{
    static const char *const names[] = { [KVANT_STATE_F32] = "f32", [KVANT_STATE_BF16] = "bf16" };

    for (int i = 0; i < 2; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Tokens of a pass where nobody asks for a number: what the device that wants most wants. */
static int pass_tokens(const kvant_model *m, const kvant_engine_params *p, const engine_split *s)
{
    const kvant_device_vt *vt;
    int most = 0, index = 0;

    for (int i = 0; i < s->n; i++)
        if (kvant_device_find(s->name[i], &vt, &index, NULL) == KVANT_OK) {
            most = larger(most, p->max_seqs >= KVANT_MANY_SEQS ? vt->pass_many : 0);
            most = larger(most, m->hp.moe.n ? vt->pass_experts : 0);
        }
    return most ? most : KVANT_PASS_TOKENS;
}

int engine_resolve(const kvant_model *m, const kvant_engine_params *in, kvant_engine_params *out, kvant_diag *diag)
{
    kvant_engine_params p = kvant_engine_defaults();
    const int big = 1 << 24;
    engine_split split;

    KVANT_TRY(params_take(&p, sizeof p, in, "kvant_engine_params", diag));
    p.device = p.device ? p.device : "cpu";
    p.type_k = p.type_k ? p.type_k : "f16";
    p.type_v = p.type_v ? p.type_v : "f16";
    p.state_type = p.state_type ? p.state_type : "f32";
    p.n_ctx = p.n_ctx ? p.n_ctx : m->hp.n_ctx_train;
    p.max_seqs = p.max_seqs ? p.max_seqs : 1;
    KVANT_TRY(engine_split_make(m, &p, &split, diag));
    p.n_ubatch = p.n_ubatch ? p.n_ubatch : pass_tokens(m, &p, &split);
    p.kv_tail = p.kv_tail < 0 ? KVANT_PAGE : p.kv_tail;
    KVANT_TRY(engine_in_range("MTP", p.mtp, 0, 1, diag));
    if (p.mtp && !m->n_mtp)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "MTP: the model has no block that predicts further tokens");
    KVANT_TRY(engine_in_range("threads", p.threads, 0, 256, diag));
    KVANT_TRY(engine_in_range("context size", p.n_ctx, 1, big, diag));
    KVANT_TRY(engine_in_range("sequences", p.max_seqs, 1, 4096, diag));
    KVANT_TRY(engine_in_range("ubatch size", p.n_ubatch, 1, 65536, diag));
    p.n_ubatch = (p.n_ubatch + KVANT_PAGE - 1) / KVANT_PAGE * KVANT_PAGE;
    KVANT_TRY(engine_in_range("exact tail", p.kv_tail, 0, 65536, diag));
    if (p.kv_tail % KVANT_PAGE)
        return kvant_fail(diag, KVANT_EINVAL, "exact tail: %d tokens, wanted a multiple of %d", p.kv_tail, KVANT_PAGE);
    KVANT_TRY(engine_in_range("exact first tokens", p.kv_sink, 0, 65536, diag));
    if (p.kv_sink > 0 && p.kv_tail == 0)
        return kvant_fail(diag, KVANT_EINVAL,
                          "exact first tokens: %d with an exact tail of 0, wanted a tail of %d or more", p.kv_sink,
                          KVANT_PAGE);
    p.kv_sink = (p.kv_sink + KVANT_PAGE - 1) / KVANT_PAGE * KVANT_PAGE;
    if (state_type_of(p.state_type) < 0)
        return kvant_fail(diag, KVANT_EINVAL, "state type: \"%.40s\", wanted f32 or bf16", p.state_type);
    KVANT_TRY(engine_in_range("encoder", p.encoder, 0, 1, diag));
    KVANT_TRY(engine_in_range("compute mode", p.compute, 0, 1, diag));
    p.logits_rows = p.logits_rows ? p.logits_rows : p.max_seqs;
    KVANT_TRY(engine_in_range("snapshots", p.snapshots, 0, 65536, diag));
    KVANT_TRY(engine_in_range("draft rows", p.draft_rows, 0, big, diag));
    p.draft_rows = p.draft_rows < p.n_ubatch ? p.draft_rows : p.n_ubatch;
    KVANT_TRY(engine_in_range("full windows", p.full_windows, 0, 1, diag));
    KVANT_TRY(engine_in_range("logits rows", p.logits_rows, 1, big, diag));
    if (p.pool_tokens == 0)
        p.pool_tokens = (int64_t)p.max_seqs * ((p.n_ctx + KVANT_PAGE - 1) / KVANT_PAGE * KVANT_PAGE);
    KVANT_TRY(engine_in_range("pool tokens", p.pool_tokens, KVANT_PAGE, (int64_t)1 << 36, diag));
    *out = p;
    return KVANT_OK;
}

/* ---- cache types per layer ---- */

static int parse_pair(const char *text, size_t n, kv_types *t, kvant_diag *diag)
{
    char buf[80];
    if (n >= sizeof buf)
        return kvant_fail(diag, KVANT_EINVAL, "cache type: %zu characters, wanted fewer than %zu", n, sizeof buf);
    memcpy(buf, text, n);
    buf[n] = 0;
    char *colon = strchr(buf, ':');
    if (colon)
        *colon = 0;
    KVANT_TRY(kvant_format_parse(buf, &t->k, diag));
    return kvant_format_parse(colon ? colon + 1 : buf, &t->v, diag);
}

/* "first[-last]=K[:V]" */
static int parse_entry(const char *s, const char *end, int n_layer, kv_types *types, kvant_diag *diag)
{
    char *p;
    kv_types t;
    long first = strtol(s, &p, 10), last = first;
    if (p == s)
        goto bad;
    if (*p == '-') {
        const char *q = p + 1;
        last = strtol(q, &p, 10);
        if (p == q)
            goto bad;
    }
    if (*p != '=' || p >= end)
        goto bad;
    if (first < 0 || last < first || last >= n_layer)
        return kvant_fail(diag, KVANT_EINVAL, "cache type layers: %ld-%ld, wanted layers 0 to %d", first, last,
                          n_layer - 1);
    KVANT_TRY(parse_pair(p + 1, (size_t)(end - p - 1), &t, diag));
    for (long l = first; l <= last; l++)
        types[l].k = t.k, types[l].v = t.v;
    return KVANT_OK;
bad:
    return kvant_fail(diag, KVANT_EINVAL, "cache type layers: \"%.*s\", wanted LAYER[-LAYER]=TYPE[:TYPE]",
                      (int)(end - s < 60 ? end - s : 60), s);
}

int engine_types(const kvant_model *m, const kvant_engine_params *p, kv_types *types, kvant_diag *diag)
{
    kv_types t;
    const int n = m->hp.n_layer, all = n + p->mtp;

    KVANT_TRY(kvant_format_parse(p->type_k, &t.k, diag));
    KVANT_TRY(kvant_format_parse(p->type_v, &t.v, diag));
    for (int l = 0; l < all; l++) {
        const layer_shape *s = &m->hp.layer[l];
        types[l] = (kv_types){ t.k, t.v, s->h_kv, s->d_k, s->d_v };
    }
    for (const char *s = p->type_layers; s && *s;) {
        const char *end = strchr(s, ',');
        end = end ? end : s + strlen(s);
        KVANT_TRY(parse_entry(s, end, n, types, diag));
        s = *end ? end + 1 : end;
    }
    return KVANT_OK;
}

void engine_kv_config(const kvant_model *m, const kvant_engine_params *p, const kv_types *types, unsigned char *kinds,
                      kv_config *cfg)
{
    const hparams *hp = &m->hp;

    memset(cfg, 0, sizeof *cfg);
    for (int l = 0; l < hp->n_layer + p->mtp; l++)
        kinds[l] = (unsigned char)((m->layers[l].is_attn ? KV_LAYER_ATTN : 0) |
                                   (m->layers[l].is_state ? KV_LAYER_STATE : 0) |
                                   (hp->windowed[l] ? KV_LAYER_WINDOW : 0));
    cfg->n_layer = hp->n_layer + p->mtp;
    cfg->h = hp->n_head;
    cfg->compute = p->compute;
    cfg->kinds = kinds;
    cfg->types = types;
    cfg->window = p->full_windows ? 0 : hp->window;
    cfg->tail = p->kv_tail;
    cfg->sink = p->kv_sink;
    cfg->encoder = p->encoder;
    cfg->max_seqs = p->max_seqs;
    cfg->n_ctx = p->n_ctx;
    cfg->n_ubatch = p->n_ubatch;
    cfg->n_snapshots = p->snapshots;
    cfg->n_pages = (int)((p->pool_tokens + KVANT_PAGE - 1) / KVANT_PAGE);
    cfg->state_type = state_type_of(p->state_type);
    cfg->state_values = hp->rec.state_values;
    const ring_widths ring = build_ring_widths(m);
    cfg->ring_floats = (int64_t)ring.x + ring.alpha + ring.beta;
    cfg->ring_rows = cfg->ring_floats > 0 ? p->draft_rows : 0;
    cfg->conv_floats = (int64_t)hp->rec.conv_channels * (hp->rec.conv_k > 0 ? hp->rec.conv_k - 1 : 0);
}

/* Pools of a place, or of all (-1). */
static int plan_pools(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int place,
                      kvant_plan *o, kvant_diag *diag)
{
    kv_types *types = kvant_calloc((size_t)m->hp.n_layer + 1, sizeof *types);
    unsigned char *kinds = kvant_calloc((size_t)m->hp.n_layer + 1, 1);
    kv_config cfg;
    kv_sizes sizes = { 0 };
    int code = types && kinds ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "plan: out of memory");

    if (code == KVANT_OK)
        code = engine_types(m, p, types, diag);
    if (code == KVANT_OK) {
        engine_kv_config(m, p, types, kinds, &cfg);
        for (int l = 0; place >= 0 && l < m->hp.n_layer + p->mtp; l++)
            if (s->tensors)
                types[l].h_kv = tensor_heads(m, s, place, l);
            else
                kinds[l] = s->of[l] == place ? kinds[l] : 0;
        code = kv_measure(&cfg, &sizes, diag);
    }
    kvant_free(types);
    kvant_free(kinds);
    o->kv = sizes.pages;
    o->window = sizes.windows;
    o->tail = sizes.tail;
    o->state = sizes.state;
    o->kv_bytes_per_token = sizes.per_token;
    return code;
}

/* Parts of every layer: each place has buffers twice, and its columns and heads. */
static int plan_parts(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, kvant_plan *out,
                      kvant_diag *diag)
{
    kvant_plan sum = { .n_ctx = p->n_ctx, .max_seqs = p->max_seqs }, one;

    for (int i = 0; i < s->n; i++) {
        KVANT_TRY(engine_plan_place(m, p, s, i, &one, diag));
        sum.weights += one.weights;
        sum.kv += one.kv;
        sum.window += one.window;
        sum.tail += one.tail;
        sum.state += one.state;
        sum.scratch += one.scratch;
        sum.total += one.total;
        sum.kv_bytes_per_token += one.kv_bytes_per_token;
    }
    *out = sum;
    return KVANT_OK;
}

int engine_plan_base(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int place,
                     kvant_plan *out, kvant_diag *diag)
{
    kvant_plan o = { .n_ctx = p->n_ctx, .max_seqs = p->max_seqs };
    const int n = place < 0 ? s->n : 1, head = s->of[m->hp.n_layer];
    build_buffers buf;

    if (s->tensors && place < 0)
        return plan_parts(m, p, s, out, diag);
    KVANT_TRY(plan_pools(m, p, s, place, &o, diag));
    for (int i = 0; i < s->n; i++) {
        const int64_t bytes = place < 0 || place == i ? engine_split_weights(m, s, i) : 0;
        if (bytes < 0)
            return kvant_fail(diag, KVANT_ENOMEM, "plan: out of memory");
        o.weights += bytes;
    }
    o.weights += m->lora.bytes;
    o.scratch = n * (int64_t)build_layout(m, p->n_ubatch, engine_pass_rows(p), p->mtp * p->max_seqs, NULL, &buf);
    o.scratch *= s->tensors ? 2 : 1;
    if (place < 0 || place == head) {
        o.scratch += (int64_t)p->logits_rows * m->hp.n_vocab * 4;
        o.scratch += p->mtp * (int64_t)m->hp.n_embd * (ENGINE_MTP_ROWS + 3) * p->max_seqs * 4;
        o.scratch += (int64_t)m->hp.n_embd * (12 * p->max_seqs + 4 * KVANT_PAGE); /* hidden states */
    }
    o.total = o.weights + o.kv + o.window + o.tail + o.state + o.scratch;
    *out = o;
    return KVANT_OK;
}

int engine_plan_place(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int place,
                      kvant_plan *out, kvant_diag *diag)
{
    const int64_t slots = engine_stream_memory(m, p, s, place);

    KVANT_TRY(engine_plan_base(m, p, s, place, out, diag));
    out->scratch += slots;
    out->total += slots;
    return KVANT_OK;
}

int kvant_plan_make(const kvant_model *m, const kvant_engine_params *params, kvant_plan *out, kvant_diag *diag)
{
    kvant_engine_params p;
    engine_split s;

    KVANT_TRY(engine_resolve(m, params, &p, diag));
    KVANT_TRY(engine_split_make(m, &p, &s, diag));
    return engine_plan_place(m, &p, &s, -1, out, diag);
}

int kvant_plan_device(const kvant_model *m, const kvant_engine_params *params, int i, kvant_plan_part *out,
                      kvant_diag *diag)
{
    kvant_engine_params p;
    engine_split s;

    KVANT_TRY(engine_resolve(m, params, &p, diag));
    KVANT_TRY(engine_split_make(m, &p, &s, diag));
    KVANT_TRY(engine_in_range("device", i, 0, s.n - 1, diag));
    memset(out, 0, sizeof *out);
    memcpy(out->device, s.name[i], sizeof s.name[i]);
    for (int l = 0; l <= m->hp.n_layer; l++)
        out->layers += s.tensors || s.of[l] == i;
    return engine_plan_place(m, &p, &s, i, &out->plan, diag);
}
