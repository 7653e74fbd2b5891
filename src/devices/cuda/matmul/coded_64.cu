/* coded_64.cu: the kernels of coded.cuh for 64 columns, ARCH_90. */
#include "devices/cuda/matmul/coded_90.cuh"

const coded_kernels *coded_64(int type, int warps)
{
#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) \
    { coded_of<WT_##sym, 64, 12>(), coded_of<WT_##sym, 64, 16>() },
    static const coded_kernels *const all[][2] = {
#include "cards/lists.inc"
    };
#undef CARD_WTYPE
    return all[type][warps == 16];
}
