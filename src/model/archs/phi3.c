/* archs/phi3.c: Phi-3, Phi-3.5, Phi-4: q, k and v in one tensor, gate and up in another, NEOX RoPE with LongRoPE's
 * factors where the file has them, a window where it is narrower than the context. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->ffn_fused = 1;
    hp->rope.neox = 1;
    KVANT_TRY(read_window(g, hp, 0, diag));
    if (hp->window >= hp->n_ctx_train)
        hp->window = 0;
    return KVANT_OK;
}

const arch_def arch_phi3 = { "phi3", shapes, request_plain_layer, build_plain_layer };
