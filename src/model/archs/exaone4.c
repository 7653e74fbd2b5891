/* archs/exaone4.c: EXAONE 4: norms after the blocks and none before them, per-head norms of q and k; where some layers
 * have a window, the others have no RoPE. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->norm.qk = QK_NORM_HEADS;
    hp->norm.no_pre = 1;
    hp->norm.post = 1;
    hp->rope.neox = 1;
    KVANT_TRY(read_window(g, hp, 4, diag));
    hp->rope.windowed_only = hp->window > 0;
    return KVANT_OK;
}

const arch_def arch_exaone4 = { "exaone4", shapes, request_plain_layer, build_plain_layer };
