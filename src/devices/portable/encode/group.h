/* group.h: one group of up to 128 values while one thread encodes it, and what the format of the program (FMT) says
 * of it. */
#ifndef KVANT_PORTABLE_GROUP_H
#define KVANT_PORTABLE_GROUP_H

#define MOST_VALUES 128                    /* of a group */
#define PACKED_WORDS 32                    /* most bytes of a group, by four */

#define LEVEL(k) JOIN(levels_, FMT)[k]
#define SIGN(j) JOIN(signs_, FMT)[j]
#define EDGE(k) JOIN(edges_, FMT)[k]
#define N_LEVELS JOIN(n_levels_, FMT)      /* 0: codes are integers LOW .. HIGH, stored with CENTRE added */
#define LOW JOIN(low_, FMT)
#define HIGH JOIN(high_, FMT)
#define CENTRE JOIN(centre_, FMT)
#define GROUP_VALUES JOIN(unit_, FMT)
#define HAS_RESIDUAL JOIN(has_residual_, FMT)
#define RESIDUAL JOIN(residual_, FMT)

struct group {
    float y[MOST_VALUES];
    int code[MOST_VALUES], found[MOST_VALUES], first[MOST_VALUES];
    uint32_t packed[PACKED_WORDS];
};

/* Up to 16 bits to bit `bit` on. */
FN void put_bits(OWN uint32_t *packed, uint32_t bit, uint32_t v)
{
    const uint32_t shift = bit & 31u;
    packed[bit >> 5] |= v << shift;
    if (shift > 16u && v >> (32u - shift) != 0u)
        packed[(bit >> 5) + 1u] |= v >> (32u - shift);
}

#endif
