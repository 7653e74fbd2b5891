/* convert_check.c: fields of config.json that say which tensors there are: a file that says otherwise is refused,
 * because Transformers would leave a tensor out, or fill one with noise, and the new file would compute something
 * else. */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "make/convert/convert_plan.h"
#include "make/convert/fields/hf_fields.h"

typedef struct tensor_rule {
    const char *classes; /* words; "*": all that have the field */
    const char *field;   /* "": none, the class never has the tensors; "!": it always has */
    const char *tensors; /* behind "model.layers.N." */
} tensor_rule;

#define QKV "self_attn.q_proj.bias self_attn.k_proj.bias self_attn.v_proj.bias"
#define MLP "mlp.gate_proj.bias mlp.up_proj.bias mlp.down_proj.bias"

/* The first row that fits counts. */
static const tensor_rule rules[] = {
    { "Qwen2Config", "!", QKV },
    { "Qwen2MoeConfig", "qkv_bias", QKV },
    { "Ernie4_5Config Ernie4_5_MoeConfig", "use_bias", QKV },
    { "*", "attention_bias", QKV },
    { "MistralConfig MixtralConfig Ministral3Config MiniMaxM2Config Lfm2Config Lfm2MoeConfig", "", QKV },
    { "SeedOssConfig", "attention_out_bias", "self_attn.o_proj.bias" },
    { "Ernie4_5Config Ernie4_5_MoeConfig", "use_bias", "self_attn.o_proj.bias" },
    { "Glm4Config Glm4MoeConfig Qwen2Config Qwen2MoeConfig", "", "self_attn.o_proj.bias" },
    { "*", "attention_bias", "self_attn.o_proj.bias" },
    { "MistralConfig MixtralConfig Ministral3Config", "", "self_attn.o_proj.bias" },
    { "*", "mlp_bias", MLP },
    { "Ernie4_5Config", "use_bias", MLP },
    { "MistralConfig Ministral3Config Qwen2Config Qwen3Config", "", MLP },
    { "Glm4MoeConfig", "use_qk_norm", "self_attn.q_norm.weight self_attn.k_norm.weight" },
    { "Lfm2MoeConfig", "use_expert_bias", "feed_forward.expert_bias" },
};

static int has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return 1;
    return 0;
}

static int is_of(const tensor_rule *r, const hf_config *c)
{
    char quoted[64];

    if (strcmp(r->classes, "*") != 0)
        return has_word(r->classes, c->text_cls->name);
    snprintf(quoted, sizeof quoted, "\"%s\"", r->field);
    return strstr(c->text_cls->fields, quoted) != NULL;
}

/* The first tensor of a layer that has one of the names; NULL: none. */
static const st_tensor *find(const st_files *files, const char *names)
{
    for (int i = 0; i < st_count(files); i++) {
        const st_tensor *t = st_at(files, i);
        const char *at = strstr(t->name, "model.layers."), *rest = NULL;
        int layer;
        if (at && convert_layer(at, &layer, &rest) && has_word(names, rest))
            return t;
    }
    return NULL;
}

static int check_rule(const convert_plan *p, const tensor_rule *r, kvant_diag *diag)
{
    const int always = strcmp(r->field, "!") == 0, on = always || (*r->field && hf_is_true(p->config, r->field));
    const st_tensor *t = find(p->files, r->tensors);

    if (on == (t != NULL))
        return KVANT_OK;
    if (on)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: %s%s, and no layer has %.*s",
                          always ? p->config->text_cls->name : r->field, always ? "" : " is true",
                          (int)strcspn(r->tensors, " "), r->tensors);
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: %s%s (%s): it is not read by Transformers", t->name,
                      *r->field ? r->field : "the class has no such tensor", *r->field ? " is not true" : "",
                      p->config->text_cls->name);
}

/* A tied output is the embedding; a file that says neither that nor has one of its own has none. */
static int check_output(const convert_plan *p, kvant_diag *diag)
{
    const hf_config *c = p->config;

    for (int i = 0; i < p->n; i++)
        if (strcmp(p->items[i].name, "output.weight") == 0)
            return KVANT_OK;
    const gjson said = hf_find(c, "tie_embedding"), root = gjson_get(c->root, "tie_word_embeddings");
    gjson def = { NULL, 0 };
    KVANT_TRY(gjson_parse(c->cls->fields, strlen(c->cls->fields), &def, diag));
    const gjson tied = said.p ? said : root.p ? root : gjson_get(def, "tie_word_embeddings");
    if ((tied.p && *tied.p == 't') || hf_is_true(c, "tie_word_embeddings"))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EFORMAT, "config.json: tie_word_embeddings is false%s, and there is no lm_head.weight",
                      gjson_get(c->root, "tie_word_embeddings").p ? "" : " where the file does not say");
}

/* Transformers would fill a layer without tensors with noise. */
static int check_layers(const convert_plan *p, kvant_diag *diag)
{
    uint8_t *seen = kvant_calloc((size_t)p->layers + 1, 1);
    unsigned l = 0, first = 0;

    if (!seen)
        return kvant_fail(diag, KVANT_ENOMEM, "convert: no memory for %u layers", (unsigned)p->layers);
    for (int i = 0; i < p->n; i++)
        if (sscanf(p->items[i].name, "blk.%u.", &l) == 1 && l < p->layers)
            seen[l] = 1;
    while (first < p->layers && seen[first])
        first++;
    kvant_free(seen);
    if (first == p->layers)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EFORMAT, "config.json: num_hidden_layers is %u, and no tensor of layer %u is there",
                      (unsigned)p->layers, first);
}

int convert_check_tensors(const convert_plan *p, kvant_diag *diag)
{
    KVANT_TRY(check_layers(p, diag));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        int before = 0;
        for (size_t j = 0; j < i; j++)
            before |= strcmp(rules[j].tensors, rules[i].tensors) == 0 && is_of(&rules[j], p->config);
        if (!before && is_of(&rules[i], p->config))
            KVANT_TRY(check_rule(p, &rules[i], diag));
    }
    return check_output(p, diag);
}
