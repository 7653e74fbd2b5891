/* blocks/moe_router.c: keys of mixtures: how gates become weights, groups of experts, shared experts,
 * leading dense layers. */
#include <stdio.h>

#include "model/build.h"

/* expert_gating_func as files count: 1 softmax, 2 sigmoid, 3 softmax of the chosen. */
static int read_gating(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag)
{
    char key[96];
    uint32_t gating = (uint32_t)hp->moe.gating + 1;
    int norm = !hp->moe.raw;

    snprintf(key, sizeof key, "%s.expert_weights_norm", arch);
    KVANT_TRY(gguf_bool(g, key, 0, &norm, diag));
    snprintf(key, sizeof key, "%s.expert_gating_func", arch);
    KVANT_TRY(gguf_u32(g, key, 0, &gating, diag));
    if (gating < 1 || gating > KVANT_GATING_SOFTMAX_CHOSEN + 1)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: %u, wanted 1 softmax, 2 sigmoid or 3 softmax of the chosen",
                          key, gating);
    hp->moe.gating = (int)gating - 1;
    hp->moe.raw = !norm;
    return KVANT_OK;
}

static int read_expert_groups(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag)
{
    char key[96];
    uint32_t n = 0, top = 0;
    const uint32_t experts = (uint32_t)hp->moe.n;

    snprintf(key, sizeof key, "%s.expert_group_used_count", arch);
    KVANT_TRY(gguf_u32(g, key, 0, &top, diag));
    snprintf(key, sizeof key, "%s.expert_group_count", arch);
    KVANT_TRY(gguf_u32(g, key, 0, &n, diag));
    if (n <= 1)
        return KVANT_OK;
    if (n > experts / 2 || experts % n)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted a divisor of %u experts, two or more in each", key, n,
                          experts);
    if (top < 1 || top > n || top * (experts / n) < (uint32_t)hp->moe.n_used)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u groups of which %u are used, too few for %d experts", key, n,
                          top, hp->moe.n_used);
    hp->moe.n_group = (int)n;
    hp->moe.n_top_group = (int)top;
    return KVANT_OK;
}

/* The shared experts are one of so many times a routed one's width. */
static int read_shared(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag)
{
    char key[96];
    uint32_t count = 0, width = 0;

    snprintf(key, sizeof key, "%s.expert_shared_count", arch);
    KVANT_TRY(gguf_u32(g, key, 0, &count, diag));
    if (count > (1u << 20) / (uint32_t)hp->moe.n_ff)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u of width %d, wanted at most %d together", key, count,
                          hp->moe.n_ff, 1 << 20);
    width = count * (uint32_t)hp->moe.n_ff;
    snprintf(key, sizeof key, "%s.expert_shared_feed_forward_length", arch);
    KVANT_TRY(gguf_u32(g, key, 0, &width, diag));
    if (width > 1u << 20)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted at most %d", key, width, 1 << 20);
    hp->moe.n_ff_shared = (int)width;
    return KVANT_OK;
}

static int arch_name(const gguf *g, char *arch, size_t cap, kvant_diag *diag)
{
    gguf_str name;

    KVANT_TRY(gguf_string(g, "general.architecture", 1, &name, diag));
    snprintf(arch, cap, "%.*s", (int)name.n, name.s);
    return KVANT_OK;
}

int read_moe_router(const gguf *g, hparams *hp, kvant_diag *diag)
{
    char arch[48];

    KVANT_TRY(arch_name(g, arch, sizeof arch, diag));
    KVANT_TRY(read_gating(g, arch, hp, diag));
    return read_expert_groups(g, arch, hp, diag);
}

int read_moe_lead(const gguf *g, hparams *hp, kvant_diag *diag)
{
    char arch[48], key[96];
    uint32_t lead = 0;
    const int dense = hp->n_ff;

    KVANT_TRY(arch_name(g, arch, sizeof arch, diag));
    snprintf(key, sizeof key, "%s.leading_dense_block_count", arch);
    KVANT_TRY(gguf_u32(g, key, 0, &lead, diag));
    if (lead > (uint32_t)hp->n_layer)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted at most the %d layers", key, lead, hp->n_layer);
    if (lead > 0 && dense < 1)
        return kvant_fail(diag, KVANT_EFORMAT, "%s.feed_forward_length: %d, wanted at least 1", arch, dense);
    KVANT_TRY(read_moe_shapes(g, hp, 0, diag));
    KVANT_TRY(read_shared(g, arch, hp, diag));
    hp->n_ff = dense;
    hp->moe.n_dense_lead = (int)lead;
    hp->moe.shared_plain = 1;
    return read_moe_router(g, hp, diag);
}
