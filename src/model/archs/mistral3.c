/* archs/mistral3.c: Mistral 3 and Ministral 3: as Llama, with YaRN and, beyond the original context, a temperature of
 * attention that grows with the position. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    return read_attn_temp(g, hp, diag);
}

const arch_def arch_mistral3 = { "mistral3", shapes, request_plain_layer, build_plain_layer };
