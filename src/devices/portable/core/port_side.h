/* port_side.h: one side of a cache, K or V, as the portable kernels need it. */
#ifndef KVANT_DEVICES_PORT_SIDE_H
#define KVANT_DEVICES_PORT_SIDE_H

#include "devices/portable/core/port_dev.h"

enum port_encoder { PORT_ENCODER_FLOAT, PORT_ENCODER_GROUP, PORT_ENCODER_TRELLIS, PORT_ENCODER_SKETCH,
                    PORT_ENCODER_PAGE };

/* The contents of a format's card. */
typedef struct port_card {
    const char *name;
    int encoder;                           /* enum port_encoder */
    int unit, unit_bytes;                  /* values that are encoded together */
    int factor;                            /* values are multiplied by the parameter */
    int halves;                            /* whatever a row's bytes are, its finite values fit a half */
} port_card;

typedef struct port_side {
    const kvant_kv_side *s;
    const port_card *card;
    const void *param;                     /* on the device */
    size_t param_bytes;
    int d, dp, sdim;
    int factor;
} port_side;

/* Returns 1 for a format of page scope: its rows have no bytes of their own. */
static inline int port_paged(const port_side *s)
{
    return s->card->encoder == PORT_ENCODER_PAGE;
}

int port_side_supports(const port_device *d, const kvant_kv_side *s, int head_dim, kvant_diag *diag);
int port_side_of(port_device *d, const kvant_kv_side *s, int head_dim, port_side *out, kvant_diag *diag);
/* Buffers; pages and tail extend as their allocations do. */
void port_side_pages(const port_device *d, port_call *c, const port_side *s, int write);
void port_side_tail(const port_device *d, port_call *c, const port_side *s, int write);
void port_side_param(port_call *c, const port_side *s);
/* q0, pos0, table, tail_table. */
void port_seqs(port_call *c, const kvant_seqs *q, int tail);
void port_params_drop(port_device *d);     /* parameters that were given as host memory */

#endif
