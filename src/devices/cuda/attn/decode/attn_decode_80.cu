/* attn_decode_80.cu: kernels of decode attention of ARCH_80.  See attn_decode.cuh. */
#include "devices/cuda/attn/decode/decode_kernel.cuh"

template <int D, int KIND_K, int KIND_V> static void launch(cuda_device *d, const decode_job &p)
{
    launch_make<D, KIND_K, KIND_V, ARCH_80>(d, p);
}

void decode_choose_80(cuda_device *d, const decode_job &p)
{
    if (is_page(p.k.kind) || is_page(p.v.kind))
        return decode_choose_page_80(d, p);
    KINDS_FAST();
    KINDS_ALL();
}
