/* coded_128.cu: the kernels of coded.cuh for 128 columns, ARCH_90. */
#include "devices/cuda/matmul/coded_90.cuh"

const coded_kernels *coded_128(int type, int warps)
{
#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) \
    { coded_of<WT_##sym, 128, 12>(), coded_of<WT_##sym, 128, 16>() },
    static const coded_kernels *const all[][2] = {
#include "cards/lists.inc"
    };
#undef CARD_WTYPE
    return all[type][warps == 16];
}
