/* archs/hybrids/lfm2.c: LFM2: layers of gated short convolution, and attention with per-head q and k norms where
 * head_count_kv is not 0; SwiGLU. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = 1;
    hp->rope.neox = 1;
    hp->norm_names.output = "token_embd_norm";
    hp->moe.n_dense_lead = hp->n_layer;
    return read_short_conv_shapes(g, hp, diag);
}

const arch_def arch_lfm2 = { "lfm2", shapes, request_short_conv_layer, build_short_conv_layer };
