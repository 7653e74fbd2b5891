/* archs/hybrids/mamba2.c: Mamba2 alone: every layer is one, behind a norm; no attention, no feed-forward block. */
#include <string.h>
#include "model/build.h"

static int shapes(const gguf *g, hparams *hp, kvant_diag *diag)
{
    memset(hp->no_attn, 1, (size_t)hp->n_layer);
    memset(hp->no_ffn, 1, (size_t)hp->n_layer);
    return read_one_block_shapes(g, hp, diag);
}

const arch_def arch_mamba2 = { "mamba2", shapes, request_one_block, build_one_block };
