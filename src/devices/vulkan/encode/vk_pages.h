/* vk_pages.h: page_seal of the formats of page scope, for vk_cache.c. */
#ifndef KVANT_DEVICES_VK_PAGES_H
#define KVANT_DEVICES_VK_PAGES_H

#include "devices/vulkan/core/vk_dev.h"

/* The whole op, a->n > 0, of a format of page scope that vk_side_supports took. */
int vk_pages_seal(vk_device *d, vk_list *l, const kvant_page_seal_args *a, kvant_diag *diag);

#endif
