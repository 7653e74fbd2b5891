/* arch.cu: what a GPU's compute capability means for the host's choices, or what KVANT_CUDA_MASK leaves of it. */
#include <stdlib.h>
#include "devices/cuda/core/device.cuh"

/* Shared memory: of a block, in KiB. */
typedef struct mask {
    const char *name;
    int major, minor, shared;
} mask;

static const mask masks[] = {
    { "sm80", 8, 0, 163 }, { "sm86", 8, 6, 99 }, { "sm89", 8, 9, 99 }, { "sm120", 12, 0, 99 }
};

enum { MASKS = sizeof masks / sizeof masks[0] };

static int find_mask(const char *name, const mask **out, kvant_diag *diag)
{
    *out = NULL;
    for (int i = 0; name && i < MASKS; i++)
        if (strcmp(name, masks[i].name) == 0)
            *out = &masks[i];
    if (name && !*out)
        return cuda_fail(diag, KVANT_EINVAL, "KVANT_CUDA_MASK: '%.40s' is unknown; wanted sm80, sm86, sm89 or sm120",
                         name);
    return KVANT_OK;
}

int cuda_arch_of(const cudaDeviceProp *prop, cuda_arch *o, kvant_diag *diag)
{
    const mask *m;
    CUDA_TRY(find_mask(getenv("KVANT_CUDA_MASK"), &m, diag));
    o->major = m ? m->major : prop->major;
    o->minor = m ? m->minor : prop->minor;
    o->smem_max = prop->sharedMemPerBlockOptin;
    if (m && o->smem_max > (size_t)m->shared * 1024)
        o->smem_max = (size_t)m->shared * 1024;
    o->make = o->major == 9 && o->minor == 0 ? ARCH_90 : ARCH_80;
    o->bulk = o->major >= 9 && prop->major >= 9;
    return KVANT_OK;
}
