/* port_pages.h: page_seal of the formats of page scope, for port_cache.c. */
#ifndef KVANT_DEVICES_PORT_PAGES_H
#define KVANT_DEVICES_PORT_PAGES_H

#include "devices/portable/core/port_side.h"

/* The whole op, a->n > 0, of a format of page scope that port_side_of took. */
int port_pages_seal(port_device *d, const kvant_page_seal_args *a, const port_side *s, kvant_diag *diag);

#endif
