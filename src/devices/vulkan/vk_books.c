/* vk_books.c: the tables that shaders look codes up in, one buffer per device, from the lists that the references read
 * too.  Where each table begins: vk_numbers.h. */
#include "devices/vulkan/vk_dev.h"

#include "formats/polar/polar_tables.inc"
#include "formats/rotate/rotate_tables.inc"
#include "formats/tbq/tbq_tables.inc"
#include "formats/tcq/tcq_tables.inc"
#include "formats/turbo/turbo_tables.inc"

static const float books[] = {
    ROTATE_SIGNS1,     ROTATE_SIGNS2,    ROTATE_SIGNS32,   TBQ4_CENTROIDS,     TBQ3_CENTROIDS,
    TURBO3_CENTROIDS,  TURBO3_MIDPOINTS, TURBO4_CENTROIDS, TURBO4_MIDPOINTS,   TURBO4_66_CENTROIDS,
    TURBO4_66_MIDPOINTS, POLAR_CENTROIDS, POLAR_SIGNS,     POLAR_BOUNDARIES,   TCQ_CODEBOOK,
};
_Static_assert(sizeof books == VK_BOOK_FLOATS * sizeof(float), "vk_numbers.h says where each table begins");

int vk_books_make(vk_device *d, kvant_diag *diag)
{
    KVANT_TRY(vk_alloc(&d->base, sizeof books, &d->books, diag));
    return vk_copy_in(&d->base, d->books, books, sizeof books, diag);
}
