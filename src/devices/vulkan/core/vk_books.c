/* vk_books.c: the tables that shaders look codes up in, one buffer per device.  Where each begins: cards/vulkan.h. */
#include "devices/vulkan/core/vk_dev.h"

#include "cards/tables.inc"

static const float books[] = { VK_BOOKS };
_Static_assert(sizeof books == VK_BOOK_FLOATS * sizeof(float), "cards/vulkan.h says where each table begins");

int vk_books_make(vk_device *d, kvant_diag *diag)
{
    KVANT_TRY(vk_alloc(&d->base, sizeof books, &d->books, diag));
    return vk_copy_in(&d->base, d->books, books, sizeof books, diag);
}
