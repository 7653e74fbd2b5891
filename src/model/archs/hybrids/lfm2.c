/* archs/hybrids/lfm2.c: LFM2: layers of gated short convolution, and attention with per-head q and k norms where
 * head_count_kv is not 0; SwiGLU. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->qk_norm = 1;
    hp->rope_neox = 1;
    hp->output_norm_name = "token_embd_norm";
    hp->n_dense_lead = hp->n_layer;
    return read_short_conv_shapes(g, hp, diag);
}

const arch_def arch_lfm2 = { "lfm2", shapes, request_short_conv_layer, build_short_conv_layer };
