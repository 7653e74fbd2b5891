/* archs/mistral3.c: Mistral 3 and Ministral 3: as Llama, with YaRN and, beyond the original context, a temperature of
 * attention that grows with the position. */
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    KVANT_TRY(gguf_f32(g, "mistral3.attention.temperature_scale", 0, &hp->rope.temp, diag));
    if (!(hp->rope.temp >= 0 && hp->rope.temp <= 1e3f))
        return kvant_fail(diag, KVANT_EFORMAT, "mistral3.attention.temperature_scale: %g, wanted 0 to 1000",
                          (double)hp->rope.temp);
    return KVANT_OK;
}

const arch_def arch_mistral3 = { "mistral3", shapes, request_plain_layer, build_plain_layer };
