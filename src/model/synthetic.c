/* synthetic.c: see synthetic.h.  Owns the shapes, the header that describes them, and the random blocks. */
#include "model/synthetic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/mem.h"
#include "base/pick.h"
#include "base/rng.h"
#include "formats/weights/wtype_sample.h"

typedef struct synthetic_shape {
    const char *name, *arch;
    int layers, embd, ff, heads, heads_kv, head_dim, n_rot, vocab;
    float theta;
    int hk, hv, state, experts, used, ff_exp, ff_shared, flags;
} synthetic_shape;

enum { TIED = 1, NORMS = 2, GROUPED = 4 };

#define KVANT_SHAPE(...) { __VA_ARGS__ },
static const synthetic_shape shapes[] = {
#include "model/synthetic.def"
};
#undef KVANT_SHAPE

enum {
    N_SHAPES = sizeof shapes / sizeof shapes[0],
    ALIGN = 64,
    CONV = 4,
    INTERVAL = 4,
    CONTEXT = 1 << 20, /* what fits is asked of the engine, not of the model */
    TABLE_VALUES = 1 << 16,
    TABLE_BLOCKS = 4096,
    MAX_TYPES = 16
};

struct synthetic {
    uint8_t *map;
    size_t map_bytes;
    struct {
        const kvant_wtype *type;
        uint8_t *data;
        int n;
    } tables[MAX_TYPES];
};

/* ---- the header ---- */

typedef struct synthetic_writer {
    uint8_t *p;
    size_t n, cap;
    int failed;
    uint64_t keys, tensors, data; /* data: bytes of the data section so far */
    const synthetic_shape *s;
    const kvant_wtype *type;
    int mtp; /* blocks behind the trunk that predict further tokens: 0 or 1 */
} synthetic_writer;

static void put(synthetic_writer *w, const void *p, size_t n)
{
    if (!w->failed && w->n + n > w->cap) {
        const size_t cap = 2 * (w->n + n) + 4096;
        uint8_t *bigger = kvant_realloc(w->p, w->cap, cap);
        w->failed = !bigger;
        w->p = bigger ? bigger : w->p;
        w->cap = bigger ? cap : w->cap;
    }
    if (w->failed)
        return;
    memcpy(w->p + w->n, p, n);
    w->n += n;
}

static void put_u32(synthetic_writer *w, uint32_t v)
{
    put(w, &v, sizeof v);
}

static void put_u64(synthetic_writer *w, uint64_t v)
{
    put(w, &v, sizeof v);
}

static void put_text(synthetic_writer *w, const char *s)
{
    put_u64(w, strlen(s));
    put(w, s, strlen(s));
}

static void key(synthetic_writer *w, const char *name, int type)
{
    put_text(w, name);
    put_u32(w, (uint32_t)type);
    w->keys++;
}

static void key_text(synthetic_writer *w, const char *name, const char *v)
{
    key(w, name, GGUF_STRING);
    put_text(w, v);
}

/* "<arch>.<suffix>" */
static void key_u32(synthetic_writer *w, const char *suffix, int v)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", w->s->arch, suffix);
    key(w, name, GGUF_U32);
    put_u32(w, (uint32_t)v);
}

static void key_f32(synthetic_writer *w, const char *suffix, float v)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", w->s->arch, suffix);
    key(w, name, GGUF_F32);
    put(w, &v, sizeof v);
}

/* A vocabulary of one token: benchmarks feed ids, and the matrices have the rows of the real one. */
static void put_tokenizer(synthetic_writer *w)
{
    key_text(w, "tokenizer.ggml.model", "gpt2");
    key_text(w, "tokenizer.ggml.pre", "qwen2");
    key(w, "tokenizer.ggml.tokens", GGUF_ARRAY);
    put_u32(w, GGUF_STRING);
    put_u64(w, 1);
    put_text(w, "a");
    key(w, "tokenizer.ggml.merges", GGUF_ARRAY);
    put_u32(w, GGUF_STRING);
    put_u64(w, 0);
}

static void put_keys(synthetic_writer *w)
{
    const synthetic_shape *s = w->s;

    key_text(w, "general.architecture", s->arch);
    key_text(w, "general.name", s->name);
    key(w, "general.alignment", GGUF_U32);
    put_u32(w, ALIGN);
    key_u32(w, "block_count", s->layers + w->mtp);
    if (w->mtp)
        key_u32(w, "nextn_predict_layers", w->mtp);
    key_u32(w, "context_length", CONTEXT);
    key_u32(w, "embedding_length", s->embd);
    key_u32(w, "feed_forward_length", s->ff);
    key_u32(w, "attention.head_count", s->heads);
    key_u32(w, "attention.head_count_kv", s->heads_kv);
    key_u32(w, "attention.key_length", s->head_dim);
    key_u32(w, "attention.value_length", s->head_dim);
    key_u32(w, "rope.dimension_count", s->n_rot);
    key_f32(w, "rope.freq_base", s->theta);
    key_f32(w, "attention.layer_norm_rms_epsilon", 1e-6f);
    if (s->experts) {
        key_u32(w, "expert_count", s->experts);
        key_u32(w, "expert_used_count", s->used);
        key_u32(w, "expert_feed_forward_length", s->ff_exp);
        key_u32(w, "expert_shared_feed_forward_length", s->ff_shared);
    }
    if (s->hv) {
        key_u32(w, "ssm.conv_kernel", CONV);
        key_u32(w, "ssm.state_size", s->state);
        key_u32(w, "ssm.group_count", s->hk);
        key_u32(w, "ssm.time_step_rank", s->hv);
        key_u32(w, "ssm.inner_size", s->hv * s->state);
        key_u32(w, "full_attention_interval", INTERVAL);
    }
    put_tokenizer(w);
}

static void tensor(synthetic_writer *w, int layer, const char *part, const kvant_wtype *type, int64_t n_in,
                   int64_t n_out, int64_t n_expert)
{
    char name[80];
    const int dims = n_expert ? 3 : n_out ? 2 : 1;
    const int64_t ne[3] = { n_in, n_out, n_expert };
    uint64_t bytes = (uint64_t)(n_in / type->block) * (uint64_t)type->bytes;

    if (layer < 0)
        snprintf(name, sizeof name, "%s", part);
    else
        snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    put_text(w, name);
    put_u32(w, (uint32_t)dims);
    for (int i = 0; i < dims; i++) {
        put_u64(w, (uint64_t)ne[i]);
        bytes *= i ? (uint64_t)ne[i] : 1;
    }
    put_u32(w, (uint32_t)type->ggml_id);
    put_u64(w, w->data);
    w->data += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    w->tensors++;
}

static void matrix(synthetic_writer *w, int layer, const char *part, int64_t n_in, int64_t n_out)
{
    tensor(w, layer, part, w->type, n_in, n_out, 0);
}

static void vector(synthetic_writer *w, int layer, const char *part, int64_t n)
{
    tensor(w, layer, part, kvant_wtype_find("F32"), n, 0, 0);
}

static void put_attention(synthetic_writer *w, int l)
{
    const synthetic_shape *s = w->s;
    const int64_t q = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->heads_kv * s->head_dim;

    matrix(w, l, "attn_q.weight", s->embd, s->hv ? 2 * q : q);
    matrix(w, l, "attn_k.weight", s->embd, kv);
    matrix(w, l, "attn_v.weight", s->embd, kv);
    matrix(w, l, "attn_output.weight", q, s->embd);
    if (s->flags & NORMS) {
        vector(w, l, "attn_q_norm.weight", s->head_dim);
        vector(w, l, "attn_k_norm.weight", s->head_dim);
    }
}

static void put_gdn(synthetic_writer *w, int l)
{
    const synthetic_shape *s = w->s;
    const int64_t v = (int64_t)s->hv * s->state, c = 2 * (int64_t)s->hk * s->state + v;

    matrix(w, l, "attn_qkv.weight", s->embd, c);
    matrix(w, l, "attn_gate.weight", s->embd, v);
    if (s->flags & GROUPED) {
        matrix(w, l, "ssm_ba.weight", s->embd, 2 * s->hv);
    } else {
        matrix(w, l, "ssm_beta.weight", s->embd, s->hv);
        matrix(w, l, "ssm_alpha.weight", s->embd, s->hv);
    }
    tensor(w, l, "ssm_conv1d.weight", kvant_wtype_find("F32"), CONV, c, 0);
    vector(w, l, "ssm_dt.bias", s->hv);
    vector(w, l, "ssm_a", s->hv);
    vector(w, l, "ssm_norm.weight", s->state);
    matrix(w, l, "ssm_out.weight", v, s->embd);
}

static void put_ffn(synthetic_writer *w, int l)
{
    const synthetic_shape *s = w->s;
    const kvant_wtype *f32 = kvant_wtype_find("F32");

    if (!s->experts) {
        matrix(w, l, "ffn_gate.weight", s->embd, s->ff);
        matrix(w, l, "ffn_up.weight", s->embd, s->ff);
        matrix(w, l, "ffn_down.weight", s->ff, s->embd);
        return;
    }
    tensor(w, l, "ffn_gate_inp.weight", f32, s->embd, s->experts, 0);
    tensor(w, l, "ffn_gate_exps.weight", w->type, s->embd, s->ff_exp, s->experts);
    tensor(w, l, "ffn_up_exps.weight", w->type, s->embd, s->ff_exp, s->experts);
    tensor(w, l, "ffn_down_exps.weight", w->type, s->ff_exp, s->embd, s->experts);
    if (s->ff_shared) {
        vector(w, l, "ffn_gate_inp_shexp.weight", s->embd);
        matrix(w, l, "ffn_gate_shexp.weight", s->embd, s->ff_shared);
        matrix(w, l, "ffn_up_shexp.weight", s->embd, s->ff_shared);
        matrix(w, l, "ffn_down_shexp.weight", s->ff_shared, s->embd);
    }
}

static void put_tensors(synthetic_writer *w)
{
    const synthetic_shape *s = w->s;

    matrix(w, -1, "token_embd.weight", s->embd, s->vocab);
    vector(w, -1, "output_norm.weight", s->embd);
    if (!(s->flags & TIED))
        matrix(w, -1, "output.weight", s->embd, s->vocab);
    for (int l = 0; l < s->layers + w->mtp; l++) {
        vector(w, l, "attn_norm.weight", s->embd);
        vector(w, l, s->hv ? "post_attention_norm.weight" : "ffn_norm.weight", s->embd);
        if (s->hv && (l + 1) % INTERVAL && l < s->layers)
            put_gdn(w, l);
        else
            put_attention(w, l);
        put_ffn(w, l);
    }
    if (w->mtp) {
        matrix(w, s->layers, "nextn.eh_proj.weight", 2 * (int64_t)s->embd, s->embd);
        vector(w, s->layers, "nextn.enorm.weight", s->embd);
        vector(w, s->layers, "nextn.hnorm.weight", s->embd);
    }
}

static int put_header(synthetic_writer *w, kvant_diag *diag)
{
    const uint32_t version = 3;

    put(w, "GGUF", 4);
    put(w, &version, sizeof version);
    put_u64(w, 0); /* counts: known at the end */
    put_u64(w, 0);
    put_keys(w);
    put_tensors(w);
    if (w->failed)
        return kvant_fail(diag, KVANT_ENOMEM, "synthetic model: no memory for its header");
    memcpy(w->p + 8, &w->tensors, 8);
    memcpy(w->p + 16, &w->keys, 8);
    return KVANT_OK;
}

/* ---- open, close ---- */

static void known_shapes(char *buf, size_t cap)
{
    buf[0] = 0;
    for (int i = 0; i < N_SHAPES; i++)
        if (strncmp(shapes[i].name, "tiny-", 5) != 0) {
            strncat(buf, i ? " " : "", cap - strlen(buf) - 1);
            strncat(buf, shapes[i].name, cap - strlen(buf) - 1);
        }
}

/* NAME:TYPE or NAME:TYPE+mtp */
static int parse_spec(const char *spec, const synthetic_shape **s, const kvant_wtype **type, int *mtp,
                      kvant_diag *diag)
{
    const char *colon = strrchr(spec, ':'), *plus = colon ? strchr(colon, '+') : NULL;
    const size_t n = colon ? (size_t)(colon - spec) : strlen(spec);
    char known[200], name[32] = "";

    *s = NULL;
    for (int i = 0; i < N_SHAPES; i++)
        if (strlen(shapes[i].name) == n && memcmp(shapes[i].name, spec, n) == 0)
            *s = &shapes[i];
    known_shapes(known, sizeof known);
    if (!*s)
        return kvant_fail(diag, KVANT_EINVAL, "synthetic model \"%.40s\": wanted NAME:TYPE with one of: %s", spec,
                          known);
    *mtp = plus && strcmp(plus, "+mtp") == 0;
    if (plus && !*mtp)
        return kvant_fail(diag, KVANT_EINVAL, "synthetic model \"%.60s\": found \"%.20s\" behind the type, wanted +mtp "
                          "or nothing", spec, plus);
    if (colon)
        snprintf(name, sizeof name, "%.*s", plus ? (int)(plus - colon - 1) : (int)sizeof name, colon + 1);
    *type = kvant_wtype_find(name);
    if (!*type || !(*type)->quant)
        return kvant_fail(diag, KVANT_EINVAL,
                          "synthetic model \"%.60s\": wanted a weight type after a colon, such as bf16", spec);
    return KVANT_OK;
}

static int reserve(synthetic *y, const synthetic_writer *w, kvant_diag *diag)
{
    const size_t head = (w->n + ALIGN - 1) / ALIGN * ALIGN;

    y->map_bytes = head + (size_t)w->data;
    void *p = mmap(NULL, y->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return kvant_fail(diag, KVANT_ENOMEM, "synthetic model: no address space for %zu bytes", y->map_bytes);
    y->map = p;
    if (mprotect(p, head, PROT_READ | PROT_WRITE) != 0)
        return kvant_fail(diag, KVANT_ENOMEM, "synthetic model: no memory for its header");
    memcpy(y->map, w->p, w->n);
    return KVANT_OK;
}

int synthetic_open(const char *spec, synthetic **out, gguf **file, kvant_diag *diag)
{
    synthetic_writer w = { 0 };
    synthetic *y;
    int code;

    KVANT_TRY(parse_spec(spec, &w.s, &w.type, &w.mtp, diag));
    y = kvant_calloc(1, sizeof *y);
    if (!y)
        return kvant_fail(diag, KVANT_ENOMEM, "synthetic model: out of memory");
    code = put_header(&w, diag);
    if (code == KVANT_OK)
        code = reserve(y, &w, diag);
    kvant_free(w.p);
    if (code == KVANT_OK)
        code = gguf_open_mem(y->map, y->map_bytes, file, diag);
    if (code < 0) {
        synthetic_close(y);
        return code;
    }
    *out = y;
    return KVANT_OK;
}

void synthetic_close(synthetic *s)
{
    if (!s)
        return;
    for (int i = 0; i < MAX_TYPES; i++)
        kvant_free(s->tables[i].data);
    if (s->map)
        munmap(s->map, s->map_bytes);
    kvant_free(s);
}

/* ---- weights ---- */

static int make_table(const kvant_wtype *type, uint8_t **data, int n, kvant_diag *diag)
{
    const size_t values = (size_t)n * (size_t)type->block;
    float *x = kvant_calloc(values, sizeof *x);
    uint8_t *b = kvant_calloc((size_t)n, (size_t)type->bytes);
    rng r = { 20260102 }; /* arbitrary */

    if (x && b) {
        for (size_t i = 0; i < values; i++)
            x[i] = 0.02f * rng_normal(&r);
        kvant_wtype_sample(type, x, b, (int64_t)values);
    }
    kvant_free(x);
    if (!x || !b) {
        kvant_free(b);
        return kvant_fail(diag, KVANT_ENOMEM, "synthetic model: no memory for %d blocks", n);
    }
    *data = b;
    return KVANT_OK;
}

int synthetic_table(synthetic *s, const kvant_wtype *type, const uint8_t **table, int *n, kvant_diag *diag)
{
    int i = 0;

    while (i < MAX_TYPES - 1 && s->tables[i].type && s->tables[i].type != type)
        i++;
    if (!s->tables[i].type) {
        s->tables[i].n = type->block == 1 ? TABLE_VALUES : TABLE_BLOCKS;
        KVANT_TRY(make_table(type, &s->tables[i].data, s->tables[i].n, diag));
        s->tables[i].type = type;
    }
    *table = s->tables[i].data;
    *n = s->tables[i].n;
    return KVANT_OK;
}

uint64_t synthetic_seed(int id)
{
    return (uint64_t)(id + 1) << 40; /* no matrix has 2^40 blocks */
}

void synthetic_fill(const uint8_t *table, int n, size_t block_bytes, uint64_t seed, uint64_t n_blocks, uint8_t *dst)
{
    for (uint64_t i = 0; i < n_blocks; i++)
        memcpy(dst + i * block_bytes, table + pick_block(seed, i, (uint32_t)n) * block_bytes, block_bytes);
}

void synthetic_vector(const char *name, float *dst, int64_t n)
{
    rng r = { 20260103 };
    const int decay = strstr(name, "ssm_a") != NULL, bias = strstr(name, "ssm_dt") != NULL,
              taps = strstr(name, "conv1d") != NULL;

    for (int64_t i = 0; i < n; i++) {
        const double u = rng_unit(&r);
        dst[i] = decay  ? (float)(-1.0 - 15.0 * u)
                 : bias ? (float)(-6.0 + 3.0 * u)
                 : taps ? 0.5f * rng_normal(&r)
                        : 1.0f;
    }
}
