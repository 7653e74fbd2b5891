/* archs/gemma.c: Gemma, the first: GELU, embeddings times sqrt(n_embd).  The converter has added the one of (1 +
 * w) to the norms. */
#include <math.h>

#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->rope.neox = 1;
    hp->act = ACT_GELU;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    return KVANT_OK;
}

const arch_def arch_gemma = { "gemma", shapes, request_plain_layer, build_plain_layer };
