/* vk_books.c: the tables that shaders look codes up in, a buffer for those of the cache formats and one for the grids
 * of weight types.  The begin of each: cards/vulkan.h. */
#include "devices/vulkan/core/vk_dev.h"

#include "cards/grids.h"
#include "cards/tables.inc"

static const float books[] = { VK_BOOKS };
_Static_assert(sizeof books == VK_BOOK_FLOATS * sizeof(float), "cards/vulkan.h says where each table begins");
static const uint16_t grids[] = { VK_GRIDS };              /* two to a word, the first below */
_Static_assert(sizeof grids == VK_GRID_WORDS * 4, "cards/vulkan.h says where each grid begins");

int vk_books_make(vk_device *d, kvant_diag *diag)
{
    KVANT_TRY(vk_alloc(&d->base, sizeof books, &d->books, diag));
    KVANT_TRY(vk_copy_in(&d->base, d->books, books, sizeof books, diag));
    KVANT_TRY(vk_alloc(&d->base, sizeof grids, &d->grids, diag));
    return vk_copy_in(&d->base, d->grids, grids, sizeof grids, diag);
}
