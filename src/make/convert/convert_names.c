/* convert_names.c: names of tensors, Transformers' -> GGUF's.  Owns the common table; what an architecture names
 * differently is beside it (convert_arch.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "make/convert/convert_arch.h"

static const convert_name outer[] = {
    { "model.embed_tokens", "token_embd" },
    { "model.norm", "output_norm" },
    { "lm_head", "output" },
    { "model.embedding_norm", "token_embd_norm" },
};

static const convert_name in_layer[] = {
    { "input_layernorm", "attn_norm" },
    { "post_attention_layernorm", "ffn_norm" },
    { "self_attn.q_proj", "attn_q" },
    { "self_attn.k_proj", "attn_k" },
    { "self_attn.v_proj", "attn_v" },
    { "self_attn.qkv_proj", "attn_qkv" },
    { "self_attn.o_proj", "attn_output" },
    { "self_attn.q_norm", "attn_q_norm" },
    { "self_attn.k_norm", "attn_k_norm" },
    { "pre_feedforward_layernorm", "ffn_norm" },
    { "post_feedforward_layernorm", "post_ffw_norm" },
    { "mlp.gate_proj", "ffn_gate" },
    { "mlp.up_proj", "ffn_up" },
    { "mlp.gate_up_proj", "ffn_up" },
    { "mlp.down_proj", "ffn_down" },
    { "mlp.gate", "ffn_gate_inp" },
    { "mlp.experts.gate_proj", "ffn_gate_exps" },
    { "mlp.experts.up_proj", "ffn_up_exps" },
    { "mlp.experts.down_proj", "ffn_down_exps" },
    { "mlp.shared_expert.gate_proj", "ffn_gate_shexp" },
    { "mlp.shared_expert.up_proj", "ffn_up_shexp" },
    { "mlp.shared_expert.down_proj", "ffn_down_shexp" },
    { "mlp.shared_expert_gate", "ffn_gate_inp_shexp" },
    { "mlp.shared_experts.gate_proj", "ffn_gate_shexp" },
    { "mlp.shared_experts.up_proj", "ffn_up_shexp" },
    { "mlp.shared_experts.down_proj", "ffn_down_shexp" },
    { "eh_proj", "nextn.eh_proj" },
    { "enorm", "nextn.enorm" },
    { "hnorm", "nextn.hnorm" },
    { "embed_tokens", "nextn.embed_tokens" },
    { "shared_head.norm", "nextn.shared_head_norm" },
    { "shared_head.head", "nextn.shared_head_head" },
    { "block_sparse_moe.gate", "ffn_gate_inp" },
    { "block_sparse_moe.experts.w1", "ffn_gate_exps" },
    { "block_sparse_moe.experts.w2", "ffn_down_exps" },
    { "block_sparse_moe.experts.w3", "ffn_up_exps" },
};

/* Names without .weight or .bias behind them, and all of what they become. */
static const convert_name bare_in_layer[] = {
    { "mlp.gate.e_score_correction_bias", "exp_probs_b.bias" },
    { "mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias" },
    { "block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias" },
    { "feed_forward.expert_bias", "exp_probs_b.bias" },
    { "self_attn.sinks", "attn_sinks.weight" },
    { "linear_attn.A_log", "ssm_a" },
    { "linear_attn.dt_bias", "ssm_dt.bias" },
    { "mlp.experts.gate_proj_bias", "ffn_gate_exps.bias" },
    { "mlp.experts.up_proj_bias", "ffn_up_exps.bias" },
    { "mlp.experts.down_proj_bias", "ffn_down_exps.bias" },
};

static const char *find(const convert_name *list, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n && list[i].from; i++)
        if (strlen(list[i].from) == len && memcmp(list[i].from, name, len) == 0)
            return list[i].to;
    return NULL;
}

/* Tensors that are left out, and why; any other without a name here is an error. */
static const struct {
    const char *part;
    enum { HEAD, TAIL, INSIDE } where;
    const char *reason;
} left_out[] = {
    { "mtp.", HEAD, "predicts further tokens" },
    { "model.mtp", HEAD, "predicts further tokens" },
    { ".rotary_emb.inv_freq", TAIL, "follows from rope_theta" },
    { ".attention.masked_bias", TAIL, "a constant of old checkpoints" },
    { ".attention.bias", TAIL, "the causal mask of old checkpoints" },
    { "visual.", INSIDE, "of an eye" },
    { "vision.", INSIDE, "of an eye" },
    { "vision_", INSIDE, "of an eye" },
    { "patch_embed", INSIDE, "of an eye" },
    { "image_newline", INSIDE, "of an eye" },
    { "projector.", INSIDE, "between an eye or ear and the language model" },
    { "audio.", INSIDE, "of an ear" },
    { "audio_", INSIDE, "of an ear" },
};

const char *convert_left_out(const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        const char *part = left_out[i].part;
        const size_t m = strlen(part);
        if (left_out[i].where == HEAD   ? strncmp(name, part, m) == 0
            : left_out[i].where == TAIL ? n >= m && strcmp(name + n - m, part) == 0
                                        : strstr(name, part) != NULL)
            return left_out[i].reason;
    }
    return NULL;
}

int convert_layer(const char *name, int *layer, const char **rest)
{
    static const char head[] = "model.layers.";
    char *end;

    if (strncmp(name, head, sizeof head - 1) != 0 || name[sizeof head - 1] < '0' || name[sizeof head - 1] > '9')
        return 0;
    const long l = strtol(name + sizeof head - 1, &end, 10);
    if (*end != '.' || l < 0 || l > 99999)
        return 0;
    *layer = (int)l;
    *rest = end + 1;
    return 1;
}

int convert_tensor_name(const convert_arch *a, const char *name, char *out, size_t size, kvant_diag *diag)
{
    const char *rest = name, *dot = strrchr(name, '.'), *to;
    int layer = -1;

    out[0] = 0;
    if (convert_left_out(name))
        return KVANT_OK;
    const int inside = convert_layer(name, &layer, &rest);
    const int bare = !dot || dot < rest || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0);
    const size_t n = bare ? strlen(rest) : (size_t)(dot - rest);
    to = inside && bare ? find(bare_in_layer, sizeof bare_in_layer / sizeof *bare_in_layer, rest, n) : NULL;
    if (to) {
        snprintf(out, size, "blk.%d.%s", layer, to);
        return KVANT_OK;
    }
    to = a->names && inside ? find(a->names, SIZE_MAX, rest, n) : NULL;
    if (!to)
        to = inside ? find(in_layer, sizeof in_layer / sizeof *in_layer, rest, n)
                    : find(outer, sizeof outer / sizeof *outer, rest, n);
    if (!to || bare)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: no tensor of %s has this name", name, a->arch);
    if (inside)
        snprintf(out, size, "blk.%d.%s%s", layer, to, dot);
    else
        snprintf(out, size, "%s%s", to, dot);
    return KVANT_OK;
}
