/* archs/seed_oss.c: Seed-OSS: as Qwen2, with the norm before the feed-forward under another name. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->rope.neox = 1;
    hp->norm_names.ffn = "post_attention_norm";
    return KVANT_OK;
}

const arch_def arch_seed_oss = { "seed_oss", shapes, request_plain_layer, build_plain_layer };
