/* ptcq3: 3392 bytes per page of 64 rows of 128 values: ptcq.h has the layout.
 * Source: docs/formats/ptcq.md. */
#include "formats/ptcq/ptcq.h"
#include "formats/rotate/rotate.h"
#include "cards/tables.inc"

static const float book[PTCQ_STATES] = { PTCQ3_BOOK };

PTCQ_FORMAT_DEFINE(ptcq3, 3, book)
