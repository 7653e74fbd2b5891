/* coded_80_64.cu: the kernels of coded.cuh for 64 columns, ARCH_80. */
#include "devices/cuda/matmul/coded_80.cuh"

const coded_kernels *coded_80_64(int type, size_t most)
{
#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) of_80<WT_##sym, 64>,
    static const coded_kernels *(*const all[])(size_t most) = {
#include "cards/lists.inc"
    };
#undef CARD_WTYPE
    return all[type](most);
}
