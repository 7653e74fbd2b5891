/* archs/gemma2.c: Gemma 2: every other layer with a sliding window, caps of attention's scores and of the logits, norms
 * after blocks, GELU, embeddings times sqrt(n_embd).  The converter has added the one of (1 + w) to the norms. */
#include <math.h>

#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->rope.neox = 1;
    hp->act = ACT_GELU;
    hp->norm.post = 1;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->attn_cap = 50.0f;
    hp->logit_cap = 30.0f;
    if (hp->n_layer == 46 && !gguf_find(g, "gemma2.attention.scale"))  /* 27B: files have no key for it */
        hp->attn_scale = 1.0f / sqrtf((float)(hp->n_embd / hp->n_head));
    KVANT_TRY(read_caps(g, hp, diag));
    return read_window(g, hp, 2, diag);
}

const arch_def arch_gemma2 = { "gemma2", shapes, request_plain_layer, build_plain_layer };
