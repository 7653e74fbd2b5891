/* vk_mask.c: KVANT_VK_DISABLE takes capabilities away, so that the paths for lesser devices are tested on greater
 * ones: a comma-separated list of what `flags`, `limits` and `profiles` below name.  Nothing is ever added: on a device
 * that has less than a profile says, less stays. */
#include "devices/vulkan/core/vk_dev.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static const struct { const char *name; size_t at; } flags[] = {
    { "bda", offsetof(vk_caps, bda) },                     /* no device addresses: the plain form */
    { "subgroup", offsetof(vk_caps, subgroup) },           /* no arithmetic of subgroups: the plain form */
    { "half", offsetof(vk_caps, half) },                   /* no 16-bit arithmetic */
    { "subnormal", offsetof(vk_caps, subnormal16) },       /* subnormal halves may be zero */
    { "dot", offsetof(vk_caps, dot) },                     /* no integer dot products */
    { "coopmat", offsetof(vk_caps, khr) },                 /* no VK_KHR_cooperative_matrix */
    { "nvmatrix", offsetof(vk_caps, coopmat) },            /* no VK_NV_cooperative_matrix */
    { "wide", offsetof(vk_caps, wide) },                   /* prompts are attended by attn_tile */
    { "fuse", offsetof(vk_caps, fuse) },                   /* every op of a list by itself */
    { "indexing", offsetof(vk_caps, indexing) },           /* no dynamic indices into arrays of storage buffers */
};

/* name:N, at most N of `unit`; `wide`: a 64-bit value. */
static const struct { const char *name; size_t at; int wide; uint64_t unit; } limits[] = {
    { "range", offsetof(vk_caps, max_range), 1, 1 << 20 }, /* MiB in one storage buffer range */
    { "alloc", offsetof(vk_caps, most_alloc), 1, 1 << 20 }, /* MiB in one allocation */
    { "shared", offsetof(vk_caps, max_shared), 0, 1 << 10 }, /* KiB of shared memory in a workgroup */
    { "group", offsetof(vk_caps, max_invocations), 0, 1 }, /* threads of a workgroup */
    { "bindings", offsetof(vk_caps, max_bindings), 0, 1 }, /* storage buffers of a stage */
    { "push", offsetof(vk_caps, push_bytes), 0, 1 },       /* bytes of push constants */
};

/* The least of what drivers of each kind report (vulkan.gpuinfo.org, Mesa's and MoltenVK's sources), of devices with
 * Vulkan 1.1; what a device has beyond it is used where no mask is set.
 *   minimum    what the specification of Vulkan 1.1 promises, with the buffers that kvant must have
 *   moltenvk   Metal: 31 buffers, 32 KiB of threadgroup memory; no matrices, nothing said of subnormal halves;
 *              device addresses only with argument buffers of tier 2
 *   adreno     Adreno 6xx, Qualcomm's driver: ranges of 128 MiB, 24 buffers, 32 KiB, no device addresses, no matrices
 *   mali       Mali G7x: workgroups of 384, 35 buffers, ranges of 128 MiB, 32 KiB
 *   intel      ANV before Xe: device addresses, halves, dot products; 64 buffers, 64 KiB; no matrices
 *   radv       GCN and RDNA 1, 2: subgroups of 64 or 32, device addresses, halves; no dot products before RDNA 2, no
 *              matrices */
static const struct { const char *name, *mask; } profiles[] = {
    { "minimum", "bda,subgroup,half,subnormal,dot,matrix,range:128,alloc:1024,shared:16,group:128,bindings:17,push:128" },
    { "moltenvk", "bda,subnormal,dot,matrix,shared:32,group:1024,bindings:31" },
    { "adreno", "bda,subnormal,dot,matrix,range:128,alloc:1024,shared:32,group:1024,bindings:24,push:128" },
    { "mali", "subnormal,dot,matrix,range:128,alloc:1024,shared:32,group:384,bindings:35,push:128" },
    { "intel", "matrix,range:1024,shared:64,group:1024,bindings:64,push:128" },
    { "radv", "dot,matrix,shared:64,group:1024,push:256" },
};

static int is_name(const char *s, size_t len, const char *name)
{
    return len == strlen(name) && strncmp(s, name, len) == 0;
}

/* Value of "name:N" at s, or -1. */
static long long numbered(const char *s, size_t len, const char *name)
{
    const size_t n = strlen(name);
    char *end;
    long long v;
    if (len <= n + 1 || strncmp(s, name, n) != 0 || s[n] != ':')
        return -1;
    v = strtoll(s + n + 1, &end, 10);
    return end == s + len && v > 0 && v < 1 << 20 ? v : -1;
}

static void at_most(vk_caps *c, size_t at, int wide, uint64_t most)
{
    unsigned char *p = (unsigned char *)c + at;
    uint32_t narrow;
    uint64_t v;
    memcpy(&narrow, p, sizeof narrow);
    memcpy(&v, p, wide ? sizeof v : 0);
    v = wide ? v : narrow;
    v = v < most ? v : most;
    narrow = (uint32_t)v;
    memcpy(p, wide ? (const void *)&v : &narrow, wide ? sizeof v : sizeof narrow);
}

static int mask_one(vk_device *d, const char *s, size_t len)
{
    static const int none = 0;
    int found = 0;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (is_name(s, len, flags[i].name)) {
            memcpy((unsigned char *)&d->caps + flags[i].at, &none, sizeof none);
            return 1;
        }
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const long long n = numbered(s, len, limits[i].name);
        if (n > 0) {
            at_most(&d->caps, limits[i].at, limits[i].wide, (uint64_t)n * limits[i].unit);
            return 1;
        }
    }
    if (numbered(s, len, "device") > 0) {                  /* the device is reported lost at its N-th submission */
        d->lose_at = (int)numbered(s, len, "device");
        found = 1;
    } else if (is_name(s, len, "matrix")) {
        d->caps.coopmat = d->caps.khr = 0;
        found = 1;
    }
    return found;
}

/* All of a list; where an item is not known, that item, *len bytes. */
static const char *mask_list(vk_device *d, const char *mask, size_t *len)
{
    for (; mask && *mask; mask += *len + (mask[*len] == ',')) {
        *len = strcspn(mask, ",");
        if (!mask_one(d, mask, *len))
            return mask;
    }
    return NULL;
}

static const char *profile_of(const char *s, size_t len)
{
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++)
        if (is_name(s, len, profiles[i].name))
            return profiles[i].mask;
    return NULL;
}

static void names_of(char *text, size_t cap)
{
    size_t at = 0;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s, ", flags[i].name);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s:N, ", limits[i].name);
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s, ", profiles[i].name);
}

int vk_mask(vk_device *d, const char *mask, kvant_diag *diag)
{
    char names[300];
    size_t len;
    for (; mask && *mask; mask += len + (mask[len] == ',')) {
        len = strcspn(mask, ",");
        const char *profile = profile_of(mask, len);
        size_t within;
        if (profile ? mask_list(d, profile, &within) == NULL : mask_one(d, mask, len))
            continue;
        names_of(names, sizeof names);
        return kvant_fail(diag, KVANT_EINVAL, "KVANT_VK_DISABLE: \"%.*s\", wanted %smatrix or device:N",
                          (int)(len < 40 ? len : 40), mask, names);
    }
    return KVANT_OK;
}
