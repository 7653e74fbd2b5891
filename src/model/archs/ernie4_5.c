/* archs/ernie4_5.c: ERNIE 4.5 dense: as Llama. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->rope.neox = 0;
    return KVANT_OK;
}

const arch_def arch_ernie4_5 = { "ernie4_5", shapes, request_plain_layer, build_plain_layer };
