/* write.h: what cache_write and page_seal share: a unit (a group of values, or WIDTH values of a format without
 * groups) is encoded by a thread, or by a group of threads where ENCODE_BY_GROUP.  The host defines FMT, BEST and
 * WIDTH. */
#ifndef KVANT_PORTABLE_WRITE_H
#define KVANT_PORTABLE_WRITE_H

#ifndef FMT
#define FMT q4_0
#define BEST 0
#define WIDTH 32
#endif

#define CARDS_ENCODE
#include "devices/portable/encode/exact.h"
#include "devices/portable/encode/group.h"
#include "cards/portable.h"
#include "devices/portable/encode/encode.h"
#include "devices/portable/encode/space.h"

#define UNIT_BYTES (WIDTH / JOIN(unit_, FMT) * JOIN(unit_bytes_, FMT))

/* The arrays of a unit: `y` takes its values, set for each e by UNIT_LOOP. */
#if JOIN(encoder_, FMT) == ENCODER_TRELLIS
#include "devices/portable/encode/encode_trellis.h"
#define UNIT_LOCAL LOCAL_ARRAY(float, y, 128) LOCAL_ARRAY(float, cost, 2 * STATES) \
    LOCAL_ARRAY(uint32_t, back, BACK_WORDS) LOCAL_ARRAY(int32_t, path, 2 * PATH)
#define UNIT_ENCODE(param, factor, count) encode_trellis(y, cost, back, path, t, BEST, &g)
#elif JOIN(encoder_, FMT) == ENCODER_SKETCH
#include "devices/portable/encode/encode_sketch.h"
#define UNIT_LOCAL LOCAL_ARRAY(float, y, 128) LOCAL_ARRAY(float, dots, SKETCH_OUT)
#define UNIT_ENCODE(param, factor, count) encode_sketch(param, y, dots, t, g.packed)
#elif JOIN(encoder_, FMT) == ENCODER_FLOAT
#define UNIT_LOCAL
#define UNIT_ENCODE(param, factor, count) encode_floats(&g, count, UNIT_BYTES / WIDTH, factor)
#elif JOIN(encoder_, FMT) == ENCODER_PAGE              /* nothing: pages.h */
#define UNIT_LOCAL
#define UNIT_ENCODE(param, factor, count)
#else
#define UNIT_LOCAL
#define UNIT_ENCODE(param, factor, count) encode_group(&g, BEST)
#endif

#if JOIN(encoder_, FMT) == ENCODER_TRELLIS || JOIN(encoder_, FMT) == ENCODER_SKETCH
#define ENCODE_BY_GROUP 1
#define UNIT_AT(x, t) (x)
#define UNIT_LOOP(e, t) for (int e = t; e < 128; e += THREADS)
#define UNIT_VALUES y
#else
#define ENCODE_BY_GROUP 0
#define UNIT_AT(x, t) ((int64_t)(x) * THREADS + (t))
#define UNIT_LOOP(e, t) for (int e = 0; e < WIDTH; e++)
#define UNIT_VALUES g.y
#endif

FN void unit_clear(OWN struct group *g)
{
    for (int i = 0; i < PACKED_WORDS; i++)
        g->packed[i] = 0u;
}

/* The unit's bytes; one without groups may be cut to `count` values. */
FN void unit_store(OWN const struct group *g, GLOBAL uint8_t *to, int count, int t)
{
    const int n = JOIN(paged_, FMT)                    ? 0
                  : JOIN(encoder_, FMT) == ENCODER_FLOAT ? count * (UNIT_BYTES / WIDTH) : UNIT_BYTES;
    for (int i = 0; i < (ENCODE_BY_GROUP * t == 0 ? n : 0); i++)
        to[i] = (uint8_t)(g->packed[i >> 2] >> 8 * (i & 3));
}

#endif
