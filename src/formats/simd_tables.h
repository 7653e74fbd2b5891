/* simd_tables.h: centroid tables as bit patterns, for kernels that look up one byte plane at a time (vpshufb, tbl).
 * Same values as the references' tables; check_kernels compares every decoded value. */
#ifndef KVANT_FORMATS_SIMD_TABLES_H
#define KVANT_FORMATS_SIMD_TABLES_H

/* X(bits) for every entry, ascending code. */
#define TBQ4_BITS(X)                                                                                                   \
    X(0xc02edb53u)                                                                                                     \
    X(0xc0046265u) X(0xbfcf0b09u) X(0xbfa0bc0fu) X(0xbf712152u) X(0xbf280bd8u) X(0xbec6931fu) X(0xbe036772u)           \
        X(0x3e036772u) X(0x3ec6931fu) X(0x3f280bd8u) X(0x3f712152u) X(0x3fa0bc0fu) X(0x3fcf0b09u) X(0x40046265u)       \
            X(0x402edb53u)
#define TURBO4_66_BITS(X)                                                                                              \
    X(0xbe775a75u)                                                                                                     \
    X(0xbe3b4bf9u) X(0xbe127aeau) X(0xbde3760cu) X(0xbdaaa21au) X(0xbd6dd9c2u) X(0xbd0c89b1u) X(0xbc3a01efu)           \
        X(0x3c3a01efu) X(0x3d0c89b1u) X(0x3d6dd9c2u) X(0x3daaa21au) X(0x3de3760cu) X(0x3e127aeau) X(0x3e3b4bf9u)       \
            X(0x3e775a75u)
#define POLAR4_BITS(X)                                                                                                 \
    X(0xc0304759u)                                                                                                     \
    X(0xc005fceeu) X(0xbfd24f2fu) X(0xbfa3ce83u) X(0xbf766fa4u) X(0xbf2c21e4u) X(0xbecbb92bu) X(0xbe06eb83u)           \
        X(0x3e06eb83u) X(0x3ecbb92bu) X(0x3f2c21e4u) X(0x3f766fa4u) X(0x3fa3ce83u) X(0x3fd24f2fu) X(0x4005fceeu)       \
            X(0x40304759u)
#define TBQ3_BITS(X)                                                                                                   \
    X(0xc009b97au)                                                                                                     \
    X(0xbfac0538u) X(0xbf418990u) X(0xbe7af9f9u) X(0x3e7af9f9u) X(0x3f418990u) X(0x3fac0538u) X(0x4009b97au)
#define TURBO3_BITS(X)                                                                                                 \
    X(0xbe4342eeu)                                                                                                     \
    X(0xbdf151e7u) X(0xbd8696a2u) X(0xbcafcce2u) X(0x3cafcce2u) X(0x3d8696a2u) X(0x3df151e7u) X(0x3e4342eeu)

/* The nearest-centroid rule of tbq (a tie to the lower code) as thresholds: code = number of k with !(v <= limit[k]).
 * limit[k] is the largest f32 v with v - c[k] <= c[k+1] - v in f32 arithmetic, found by bisection. */
#define TBQ4_LIMITS(X)                                                                                                 \
    X(0xc0199edcu)                                                                                                     \
    X(0xbfebe7eau) X(0xbfb7e38cu) X(0xbf8ca65cu) X(0xbf4c9695u) X(0xbf05aab4u) X(0xbe84236cu) X(0x32000000u)           \
        X(0x3e84236cu) X(0x3f05aab3u) X(0x3f4c9695u) X(0x3f8ca65cu) X(0x3fb7e38cu) X(0x3febe7e9u) X(0x40199edcu)
#define TBQ3_LIMITS(X) \
    X(0xbfdfbc16u) X(0xbf866500u) X(0xbf002407u) X(0x31ffffffu) X(0x3f002407u) X(0x3f866500u) X(0x3fdfbc16u)

#define TABLE_WORD(bits) (bits),
#define TABLE_PLANE0(bits) (uint8_t)((bits) & 255u),
#define TABLE_PLANE1(bits) (uint8_t)((bits) >> 8 & 255u),
#define TABLE_PLANE2(bits) (uint8_t)((bits) >> 16 & 255u),
#define TABLE_PLANE3(bits) (uint8_t)((bits) >> 24),
/* An initialiser of uint8_t[4][16]: the four byte planes of a table of 16 f32. */
#define TABLE_PLANES(LIST)                                                                                             \
    {                                                                                                                  \
        { LIST(TABLE_PLANE0) }, { LIST(TABLE_PLANE1) }, { LIST(TABLE_PLANE2) },                                        \
        {                                                                                                              \
            LIST(TABLE_PLANE3)                                                                                         \
        }                                                                                                              \
    }

/* Centroids as 7-bit codes for the integer path: value = STEP * (u - 64).  STEP is the least-squares one on a Gaussian;
 * the squared error it adds is 5.4e-5 (4 bits) and 2.1e-5 (3 bits) of the variance, 0.6 % and 0.06 % of the
 * format's. */
enum { INT_CENTRE = 64 };
/* The 16 bytes u as signed bytes u - 64. */
#define CENTRED_BYTES(...) CENTRED_BYTES_(__VA_ARGS__)
#define CENTRED_BYTES_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                                              \
    (uint8_t)((a) - 64), (uint8_t)((b) - 64), (uint8_t)((c) - 64), (uint8_t)((d) - 64), (uint8_t)((e) - 64),        \
        (uint8_t)((f) - 64), (uint8_t)((g) - 64), (uint8_t)((h) - 64), (uint8_t)((i) - 64), (uint8_t)((j) - 64),    \
        (uint8_t)((k) - 64), (uint8_t)((l) - 64), (uint8_t)((m) - 64), (uint8_t)((n) - 64), (uint8_t)((o) - 64),    \
        (uint8_t)((p) - 64)
#define TBQ4_STEP 0.0433672458f
#define TBQ4_BYTES 1, 16, 27, 35, 42, 49, 55, 61, 67, 73, 79, 86, 93, 101, 112, 127
#define TURBO4_66_STEP 0.0038342223f
#define TURBO4_66_BYTES TBQ4_BYTES
#define POLAR4_STEP 0.0443134140f
#define POLAR4_BYTES 2, 17, 27, 35, 42, 49, 55, 61, 67, 73, 79, 86, 93, 101, 111, 126
#define TBQ3_STEP 0.0345498280f
#define TBQ3_BYTES 2, 25, 42, 57, 71, 86, 103, 126
#define TURBO3_STEP 0.0034673647f
#define TURBO3_LOW_BYTES 9, 30, 45, 58
#define TURBO3_HIGH_BYTES 70, 83, 98, 119

/* Centroids as 8-bit codes, where products take an unsigned byte (vpdpbusd): value = STEP8 * (u - 128).  The squared
 * error is 1.0e-5 to 1.5e-5 (4 bits) and 2e-6 (3 bits) of the variance. */
enum { INT_CENTRE8 = 128 };
#define TBQ4_STEP8 0.0261288603f
#define TBQ4_BYTES8 23, 49, 66, 80, 92, 103, 113, 123, 133, 143, 153, 164, 176, 190, 207, 233
#define TURBO4_66_STEP8 0.00231351969f
#define TURBO4_66_BYTES8 24, 49, 66, 80, 92, 103, 113, 123, 133, 143, 153, 164, 176, 190, 207, 232
#define POLAR4_STEP8 0.0224437675f
#define POLAR4_BYTES8 5, 35, 55, 71, 85, 98, 110, 122, 134, 146, 158, 171, 185, 201, 221, 251
#define TBQ3_STEP8 0.0189011547f
#define TBQ3_BYTES8 14, 57, 88, 115, 141, 168, 199, 242
#define TURBO3_STEP8 0.00152809599f
#define TURBO3_BYTES8 3, 51, 85, 114, 142, 171, 205, 253

#endif
