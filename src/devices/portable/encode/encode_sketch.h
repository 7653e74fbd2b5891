/* encode_sketch.h: the encoder of signs of a 128 x 256 projection, by a group. */
#ifndef KVANT_PORTABLE_SKETCH_H
#define KVANT_PORTABLE_SKETCH_H

/* y[128] -> packed[] of thread 0: bit j = <y, column j> > 0, the sum in the reference's order; then the norm. */
FN void encode_sketch(GLOBAL const float *param, LOCAL const float *y, LOCAL float *dots, int t, OWN uint32_t *packed)
{
    struct dd square = dd_of(0.0f, 0.0f);
    BARRIER();
    for (int j = t; j < SKETCH_OUT; j += THREADS) {
        float sum = 0.0f;
        for (int i = 0; i < SKETCH_IN; i++)
            sum += y[i] * param[i * SKETCH_OUT + j];
        dots[j] = sum;
    }
    BARRIER();
    if (t != 0)
        return;
    for (int j = 0; j < SKETCH_OUT; j++)
        packed[j >> 5] |= (dots[j] > 0.0f ? 1u : 0u) << (j & 31);
    for (int i = 0; i < SKETCH_IN; i++)
        square = dd_add(square, dd_product(y[i], y[i]));
    packed[SKETCH_OUT / 32] = port_to_bf16(dd_sqrt(square));
}

#endif
