/* archs/olmo2.c: OLMo 2 and 3: norms after the blocks and none before them, q and k normed as whole rows, NEOX RoPE;
 * OLMo 3 has windows, files of it name the same architecture. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = QK_NORM_ROWS;
    hp->norm.no_pre = 1;
    hp->norm.post = 1;
    hp->rope.neox = 1;
    hp->rope.base_window = hp->rope.base;   /* OLMo 3: layers with a window have no scaling */
    KVANT_TRY(gguf_f32(g, "olmo2.rope.freq_base_swa", 0, &hp->rope.base_window, diag));
    if (!(hp->rope.base_window >= 1.0f && hp->rope.base_window <= 1e12f))
        return kvant_fail(diag, KVANT_EFORMAT, "olmo2.rope.freq_base_swa: %g, wanted 1 to 1e12",
                          (double)hp->rope.base_window);
    return read_window(g, hp, 4, diag);
}

const arch_def arch_olmo2 = { "olmo2", shapes, request_plain_layer, build_plain_layer };
