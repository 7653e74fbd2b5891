/* convert_further.c: blocks behind the trunk that predict further tokens (MTP; nextn in GGUF files): their names as
 * layers behind the others, and which of them a folder has whole.  Names, keys and order are the field's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "make/convert/convert_plan.h"

/* Qwen has "mtp.layers.I.REST", and these once. */
static const convert_name qwen[] = {
    { "fc.weight", "eh_proj.weight" },
    { "pre_fc_norm_embedding.weight", "enorm.weight" },
    { "pre_fc_norm_hidden.weight", "hnorm.weight" },
    { "norm.weight", "shared_head.norm.weight" },
    { "embed_tokens.weight", "embed_tokens.weight" },
};

/* Without them a block is none. */
static const char *const needed[] = { "eh_proj.weight", "enorm.weight", "hnorm.weight", "input_layernorm.weight" };

/* The name without what a model with an eye or ear puts around its language model. */
static void plain_name(const char *name, char *out, size_t size)
{
    static const char part[] = "language_model.";
    const char *at = strstr(name, part);

    if (at)
        snprintf(out, size, "%.*s%s", (int)(at - name), name, at + sizeof part - 1);
    else
        snprintf(out, size, "%s", name);
}

int convert_further_name(const convert_plan *p, const char *name, char *out, size_t size)
{
    static const char head[] = "mtp.", layers[] = "layers.";
    char plain[2 * ST_NAME], *end;
    const char *at = plain;

    plain_name(name, plain, sizeof plain);
    snprintf(out, size, "%s", plain);
    at += strncmp(at, "model.", 6) == 0 ? 6 : 0;
    if (!(p->arch->flags & CONVERT_FURTHER) || strncmp(at, head, sizeof head - 1) != 0)
        return 0;
    at += sizeof head - 1;
    for (size_t i = 0; i < sizeof qwen / sizeof *qwen; i++)
        if (strcmp(at, qwen[i].from) == 0)
            snprintf(out, size, "model.layers.%u.%s", p->layers, qwen[i].to);
    if (strncmp(at, layers, sizeof layers - 1) != 0)
        return 1;
    const unsigned long i = strtoul(at + sizeof layers - 1, &end, 10);
    if (*end == '.' && i < CONVERT_MOST_FURTHER)
        snprintf(out, size, "model.layers.%lu.%s", p->layers + i, end + 1);
    return 1;
}

/* 1: the folder has `rest` of the layer; "": anything.  *named: by a name of its own. */
static int has(const convert_plan *p, uint32_t layer, const char *rest, int *named)
{
    char name[2 * ST_NAME];
    const char *of;
    int l;

    for (int i = 0; i < st_count(p->files); i++) {
        *named = convert_further_name(p, st_at(p->files, i)->name, name, sizeof name);
        if (convert_layer(name, &l, &of) && (uint32_t)l == layer && (!*rest || strcmp(of, rest) == 0))
            return 1;
    }
    return 0;
}

int convert_further_find(convert_plan *p, kvant_diag *diag)
{
    const int takes = (p->arch->flags & CONVERT_FURTHER) != 0;
    uint32_t n = 0;
    int named = 0, any;

    KVANT_TRY(hf_u32(p->config, "num_nextn_predict_layers num_mtp_layers", 0, &p->layers_more, diag));
    if (p->layers_more > CONVERT_MOST_FURTHER)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: num_nextn_predict_layers is %u, at most %d wanted",
                          p->layers_more, CONVERT_MOST_FURTHER);
    for (; n < CONVERT_MOST_FURTHER && takes && has(p, p->layers + n, "", &any); n++)
        named |= any;
    if (named) /* whatever config.json counts */
        p->layers_more = n;
    for (size_t i = 0; n > 0 && i < sizeof needed / sizeof *needed; i++)
        if (!has(p, p->layers, needed[i], &any))
            p->further_lacks = needed[i];
    p->layers_kept = p->further_lacks || p->no_further ? 0 : n < p->layers_more ? n : p->layers_more;
    return KVANT_OK;
}
