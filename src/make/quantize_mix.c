/* quantize_mix.c: see quantize_mix.h.  Owns the tables of rules; the first rule that fits a tensor decides. */
#include "make/quantize_mix.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Layers that a rule is for: all; the first and last eighth and every third between; the first two; the first
 * sixteenth. */
enum which { ALL, MORE, FIRST_TWO, FIRST_16TH };
enum { MOST_RULES = 8 };

typedef struct rule {
    const char *part;       /* of the tensor's name */
    enum which layers;
    const char *type;
} rule;

struct quantize_mix {
    const char *name, *base;
    int file_type;
    rule rules[MOST_RULES];
};

static const quantize_mix mixes[] = {
    { "Q2_K", "Q2_K", 10,
      { { "output.weight", ALL, "Q6_K" }, { "attn_v.", ALL, "Q4_K" }, { "attn_qkv.", ALL, "Q4_K" },
        { "ffn_down", ALL, "Q3_K" }, { "attn_output.", ALL, "Q3_K" } } },
    { "Q3_K_M", "Q3_K", 12,
      { { "output.weight", ALL, "Q6_K" }, { "attn_v.", FIRST_TWO, "Q5_K" }, { "attn_v.", ALL, "Q4_K" },
        { "attn_qkv.", ALL, "Q4_K" }, { "ffn_down", FIRST_16TH, "Q5_K" }, { "ffn_down", MORE, "Q4_K" },
        { "attn_output.", ALL, "Q4_K" } } },
    { "Q4_K_M", "Q4_K", 15,
      { { "output.weight", ALL, "Q6_K" }, { "attn_v.", MORE, "Q6_K" }, { "attn_qkv.", ALL, "Q5_K" },
        { "ffn_down", MORE, "Q6_K" } } },
    { "Q5_K_M", "Q5_K", 17,
      { { "output.weight", ALL, "Q6_K" }, { "attn_v.", MORE, "Q6_K" }, { "attn_qkv.", ALL, "Q6_K" },
        { "ffn_down", MORE, "Q6_K" } } },
};
enum { N_MIXES = sizeof mixes / sizeof mixes[0] };

const quantize_mix *quantize_mix_at(int i)
{
    return i >= 0 && i < N_MIXES ? &mixes[i] : NULL;
}

const quantize_mix *quantize_mix_find(const char *name)
{
    for (int i = 0; i < N_MIXES; i++)
        if (strcasecmp(mixes[i].name, name) == 0)
            return &mixes[i];
    return NULL;
}

const char *quantize_mix_name(const quantize_mix *mix)
{
    return mix->name;
}

const kvant_wtype *quantize_mix_base(const quantize_mix *mix)
{
    return kvant_wtype_find(mix->base);
}

int quantize_mix_file_type(const quantize_mix *mix)
{
    return mix->file_type;
}

static int layer_fits(enum which layers, int l, int n)
{
    switch (layers) {
    case MORE: return l < n / 8 || l >= 7 * n / 8 || (l - n / 8) % 3 == 2;
    case FIRST_TWO: return l < 2;
    case FIRST_16TH: return l < n / 16;
    default: return 1;
    }
}

/* output.weight is a whole name: attn_output.weight ends like it. */
static int name_fits(const char *part, const char *name)
{
    return strcmp(part, "output.weight") == 0 ? strcmp(name, part) == 0 : strstr(name, part) != NULL;
}

const kvant_wtype *quantize_mix_type(const quantize_mix *mix, const char *name, int n_layer)
{
    int l = 0;

    if (sscanf(name, "blk.%d.", &l) != 1)
        l = 0;
    for (int i = 0; i < MOST_RULES && mix->rules[i].part; i++)
        if (name_fits(mix->rules[i].part, name) && layer_fits(mix->rules[i].layers, l, n_layer))
            return kvant_wtype_find(mix->rules[i].type);
    return quantize_mix_base(mix);
}
