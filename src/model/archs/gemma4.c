/* archs/gemma4.c: Gemma 4, the text model: layers with a sliding window between full ones, which differ in KV heads,
 * head size and RoPE; norms of q, k and v; no V projection where the file has none; the last layers read the K and V of
 * an earlier one; embeddings of every layer of its own (E2B, E4B); a dense FFN beside the experts (26B-A4B).  Full
 * layers turn only some pairs: rope_freqs divides the frequencies of the others by 1e30. */
#include <math.h>

#include "model/build.h"

static int read_size(const gguf *g, const char *key, uint32_t max, int *v, kvant_diag *diag)
{
    uint32_t u = (uint32_t)*v;

    KVANT_TRY(gguf_u32(g, key, 0, &u, diag));
    if (u > max)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted at most %u", key, u, max);
    *v = (int)u;
    return KVANT_OK;
}

/* Heads and RoPE of layers with a window; the others' are the common keys. */
static int read_windowed(const gguf *g, hparams *hp, kvant_diag *diag)
{
    int d_k = hp->d_k, d_v = hp->d_v, n_rot;

    KVANT_TRY(read_window(g, hp, 6, diag));
    if (hp->window == 0)
        return kvant_fail(diag, KVANT_EFORMAT, "gemma4.attention.sliding_window: 0 or missing, wanted at least 1");
    KVANT_TRY(read_size(g, "gemma4.attention.key_length_swa", MODEL_MAX_HEAD_DIM, &d_k, diag));
    KVANT_TRY(read_size(g, "gemma4.attention.value_length_swa", MODEL_MAX_HEAD_DIM, &d_v, diag));
    n_rot = d_k;
    KVANT_TRY(read_size(g, "gemma4.rope.dimension_count_swa", (uint32_t)d_k, &n_rot, diag));
    if (d_k < 1 || d_v < 1 || n_rot < 2 || n_rot % 2)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "gemma4: windowed layers have heads of %d (K) and %d (V) values, %d of them "
                          "rotated; wanted at least 1, an even number rotated",
                          d_k, d_v, n_rot);
    for (int l = 0; l < hp->n_layer; l++)
        if (hp->windowed[l]) {
            hp->layer[l].d_k = d_k;
            hp->layer[l].d_v = d_v;
            hp->layer[l].n_rot = n_rot;
        }
    hp->rope.base_window = 10000.0f;
    KVANT_TRY(gguf_f32(g, "gemma4.rope.freq_base_swa", 0, &hp->rope.base_window, diag));
    if (!(hp->rope.base_window >= 1.0f && hp->rope.base_window <= 1e12f))
        return kvant_fail(diag, KVANT_EFORMAT, "gemma4.rope.freq_base_swa: %g, wanted 1 to 1e12",
                          (double)hp->rope.base_window);
    return KVANT_OK;
}

/* The last layers read what the last layer of their kind before them has in the cache. */
static int read_sharing(const gguf *g, hparams *hp, kvant_diag *diag)
{
    int shared = 0;

    KVANT_TRY(read_size(g, "gemma4.attention.shared_kv_layers", (uint32_t)hp->n_layer - 1, &shared, diag));
    for (int l = 0; l < hp->n_layer; l++) {
        int from = l;
        if (hp->no_attn[l])
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "gemma4.attention.head_count_kv: 0 in layer %d, wanted at "
                              "least 1", l);
        if (l >= hp->n_layer - shared)
            for (from = hp->n_layer - shared - 1; from >= 0 && hp->windowed[from] != hp->windowed[l];)
                from--;
        if (from < 0)
            return kvant_fail(diag, KVANT_EFORMAT,
                              "gemma4.attention.shared_kv_layers: %d, and layer %d finds no earlier "
                              "one of its kind",
                              shared, l);
        if (hp->layer[l].h_kv != hp->layer[from].h_kv)
            return kvant_fail(diag, KVANT_EFORMAT,
                              "gemma4.attention.head_count_kv: layer %d has %d, and layer %d, which "
                              "reads its K and V, %d",
                              from, hp->layer[from].h_kv, l, hp->layer[l].h_kv);
        hp->layer[l].kv_from = from;
    }
    hp->n_kv_from = shared;
    return KVANT_OK;
}

static int read_experts(const gguf *g, hparams *hp, kvant_diag *diag)
{
    const int dense = hp->n_ff;
    int n = 0;

    KVANT_TRY(read_size(g, "gemma4.expert_count", 4096, &n, diag));
    if (n == 0)
        return KVANT_OK;
    KVANT_TRY(read_moe_shapes(g, hp, 0, diag));
    KVANT_TRY(read_moe_router(g, hp, diag));
    hp->n_ff = dense;
    hp->moe.beside = 1;
    return KVANT_OK;
}

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->layers_vary = 1;
    hp->norm.qk = QK_NORM_HEADS;
    hp->norm.v = 1;
    hp->norm.post = 1;
    hp->rope.neox = 1;
    hp->act = ACT_GELU;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->attn_scale = 1.0f;         /* the norms of q and k have it */
    KVANT_TRY(read_caps(g, hp, diag));
    KVANT_TRY(read_windowed(g, hp, diag));
    KVANT_TRY(read_sharing(g, hp, diag));
    KVANT_TRY(read_experts(g, hp, diag));
    return read_size(g, "gemma4.embedding_length_per_layer_input", (1u << 24) / (uint32_t)hp->n_layer,
                     &hp->n_embd_layer, diag);
}

static int request(kvant_model *m, int l, kvant_diag *diag)
{
    if (m->hp.rope.freqs < 0)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "tensor rope_freqs.weight: missing, wanted [%d]: which pairs full layers "
                          "turn",
                          m->hp.n_rot / 2);
    KVANT_TRY(request_attention(m, l, diag));
    KVANT_TRY(request_norms_after(m, l, diag));
    KVANT_TRY(request_ffn_dense(m, l, diag));
    if (m->hp.moe.n)
        KVANT_TRY(request_ffn_beside(m, l, diag));
    if (m->hp.n_embd_layer)
        KVANT_TRY(request_layer_embd(m, l, diag));
    return request_layer_scale(m, l, diag);
}

static void build(builder *b, int l)
{
    const layer_weights *w = &b->m->layers[l];

    build_norm(b, w->attn_norm);
    build_attention(b, l);
    build_norm_after(b, w->attn_post_norm);
    build_norm(b, w->ffn_norm);
    if (b->m->hp.moe.n)
        build_ffn_beside(b, l);
    else
        build_ffn_dense(b, l);
    build_norm_after(b, w->ffn_post_norm);
    if (b->m->hp.n_embd_layer)
        build_layer_embd(b, l);
    build_layer_scale(b, l);
}

const arch_def arch_gemma4 = { "gemma4", shapes, request, build };
