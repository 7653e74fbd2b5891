/* wtype_sample.c: see wtype_sample.h. */
#include "formats/weights/wtype_sample.h"

#include <string.h>
#include "base/rng.h"
#include "formats/weights/wtype_internal.h"

enum { MOST = 256 };           /* values of a block that has no encoder */

void kvant_wtype_set_halves(const kvant_wtype *t, uint8_t *block, float scale, float least)
{
#define CARD_WHALVES(name, scale, nibbles, least) { name, scale, nibbles, least },
    static const struct {
        const char *name;
        int scale, nibbles, least;
    } halves[] = {
#include "cards/lists.inc"
    };
#undef CARD_WHALVES
    int i = 0;

    while (strcmp(halves[i].name, t->name) != 0)
        i++;
    if (halves[i].scale >= 0)
        store_u16(block + halves[i].scale, f32_to_half(scale));
    if (halves[i].nibbles >= 0)
        wtype_set_nibbles(block + halves[i].nibbles, f32_to_half(scale));
    if (halves[i].least >= 0)
        store_u16(block + halves[i].least, f32_to_half(least));
}

void kvant_wtype_sample(const kvant_wtype *t, const float *x, uint8_t *to, int64_t n)
{
    float unit[MOST];
    rng r = { 20261123 };      /* arbitrary */

    if (t->quant) {
        t->quant(x, to, n);
        return;
    }
    for (; n >= t->block; n -= t->block, x += t->block, to += t->bytes) {
        for (int i = 0; i < t->bytes; i++)
            to[i] = (uint8_t)(rng_u64(&r) >> 40);
        kvant_wtype_set_halves(t, to, 1.0f, 0.0f);
        t->dequant(to, unit, t->block);
        kvant_wtype_set_halves(t, to, wtype_amax(x, t->block) / wtype_amax(unit, t->block), 0.0f);
    }
}
