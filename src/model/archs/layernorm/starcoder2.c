/* archs/layernorm/starcoder2.c: StarCoder2: LayerNorms and products with biases, GELU without gate.  Files have no
 * key for the window that some of the models were trained with; as elsewhere, it is not applied. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    (void)g;
    (void)diag;
    hp->norm.layer = 1;
    hp->act = ACT_GELU_ALONE;
    hp->rope.neox = 1;
    return KVANT_OK;
}

const arch_def arch_starcoder2 = { "starcoder2", shapes, request_plain_layer, build_plain_layer };
