/* archs/granite.c: Granite 3 and 4 dense: as Llama, with factors of the embedding, of what each block adds and of the
 * logits. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    hp->rope.neox = 0;
    return read_granite_factors(g, hp, diag);
}

const arch_def arch_granite = { "granite", shapes, request_plain_layer, build_plain_layer };
