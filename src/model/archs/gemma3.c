/* archs/gemma3.c: Gemma 3, the text model: layers with a sliding window and a rope base of their own between full ones,
 * per-head norms of q and k, norms after blocks, GELU, embeddings times sqrt(n_embd).  The converter has added the one
 * of (1 + w) to the norms. */
#include <math.h>

#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = QK_NORM_HEADS;
    hp->norm.post = 1;
    hp->rope.neox = 1;
    hp->act = ACT_GELU;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->rope.base_window = 10000.0f;
    if (hp->n_layer == 62 && !gguf_find(g, "gemma3.attention.scale"))  /* 27B: files have no key for it */
        hp->attn_scale = 1.0f / sqrtf((float)(hp->n_embd / hp->n_head));
    KVANT_TRY(gguf_f32(g, "gemma3.rope.freq_base_swa", 0, &hp->rope.base_window, diag));
    if (!(hp->rope.base_window >= 1.0f && hp->rope.base_window <= 1e12f))
        return kvant_fail(diag, KVANT_EFORMAT, "gemma3.rope.freq_base_swa: %g, wanted 1 to 1e12",
                          (double)hp->rope.base_window);
    KVANT_TRY(read_caps(g, hp, diag));
    return read_window(g, hp, 6, diag);
}

const arch_def arch_gemma3 = { "gemma3", shapes, request_plain_layer, build_plain_layer };
