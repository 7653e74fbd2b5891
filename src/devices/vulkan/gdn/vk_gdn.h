/* vk_gdn.h: the gated delta rule over prompts in chunks (vk_chunks.c): vk_gdn.c asks whether they are taken. */
#ifndef KVANT_DEVICES_VK_GDN_H
#define KVANT_DEVICES_VK_GDN_H

#include "devices/vulkan/core/vk_dev.h"

/* Bytes of rows of `width` values, ld apart. */
size_t vk_gdn_rows(const kvant_seqs *q, int64_t ld, int64_t width);
/* takes: 1 if it can run.  scratch: bytes, of which the gathered states have the first `states`.  run: both passes. */
int vk_chunks_take(const vk_device *d, const kvant_gdn_args *a);
size_t vk_chunks_scratch(const kvant_gdn_args *a, size_t states);
int vk_chunks_run(vk_device *d, vk_list *l, const kvant_gdn_args *a, size_t states, kvant_diag *diag);

#endif
