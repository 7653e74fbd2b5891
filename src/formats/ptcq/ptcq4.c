/* ptcq4: 4416 bytes per page of 64 rows of 128 values: ptcq.h has the layout.
 * Source: docs/formats/ptcq.md. */
#include "formats/ptcq/ptcq.h"
#include "formats/rotate/rotate.h"
#include "cards/tables.inc"

static const float book[PTCQ_STATES] = { PTCQ4_BOOK };

PTCQ_FORMAT_DEFINE(ptcq4, 4, book)
