/* turbo3_tcq_avx2.c: 52 bytes per 128 values: [norm fp16][qs u8 x 49][pad] (see turbo3_tcq.c).
 * State t is the 9 bits of the stream at bit 3t: 8 states lie in one 32-bit word at byte 3t/8 (bits 0 to 29).
 * The codebook is by spiritbuun (tcq_tables.inc). */
#include "formats/format.h"
#include "formats/tcq/tcq.h"
#include "formats/tcq/tcq_pairs.inc"
#include "formats/tcq/tcq_tables.inc"
#include "formats/turbo/turbo_avx2.h"

static const float codebook[512] = { TCQ_CODEBOOK };

/* 8 values from the 3 bytes (and a bit) at p */
static inline vf tcq_chunk(const uint8_t *p, vf norm)
{
    int32_t w;
    memcpy(&w, p, sizeof w);
    __m256i state = _mm256_srlv_epi32(_mm256_set1_epi32(w), _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21));
    return vf_mul(_mm256_i32gather_ps(codebook, _mm256_and_si256(state, _mm256_set1_epi32(511)), 4), norm);
}

static inline void tcq_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 4) * 52, *qs = group + 2 + b % 4 * 12;
    vf norm = vf_splat_f16(group);
    v[0] = tcq_chunk(qs, norm);
    v[1] = tcq_chunk(qs + 3, norm);
    v[2] = tcq_chunk(qs + 6, norm);
    v[3] = tcq_chunk(qs + 9, norm);        /* of the last block: bytes 47 to 50, before the pad */
}

#define BLOCK_DECODE tcq_decode32
#include "formats/simd_blocks.h"

/* The trellis search, with the 512 costs as cost[a][b][c].  A state is three octal digits (h, m, l); a step takes the
 * minimum over l and its new digit comes in front: (sym, h, m).  So the axis that was l takes the new digit, and the
 * others stay where they are:
 *   step 0 of 3: (h, m, l) = (a, b, c), afterwards (c, a, b): the minimum runs over lanes, through a transposition
 *   step 1:      (h, m, l) = (c, a, b), afterwards (b, c, a)
 *   step 2:      (h, m, l) = (b, c, a), afterwards (a, b, c) */
enum { TCQ_STATES = 512, TCQ_STEPS = 128 };

typedef struct trellis {
    float cost[TCQ_STATES], book[3][TCQ_STATES];     /* book[k]: the codebook as laid out after a step k */
    int32_t back[TCQ_STEPS][64];
} trellis;

static void trellis_open(trellis *t)
{
    memset(t->cost, 0, sizeof t->cost);
    for (int a = 0; a < 8; a++)
        for (int b = 0; b < 8; b++)
            for (int c = 0; c < 8; c++) {
                int at = 64 * a + 8 * b + c;
                t->book[0][at] = codebook[64 * c + 8 * a + b];
                t->book[1][at] = codebook[64 * b + 8 * c + a];
                t->book[2][at] = codebook[at];
            }
}

/* best, which: the least of v0 .. v7 lane by lane, and the first index of it. */
#define LEAST_STEP(p)                                                                                       \
    {                                                                                                       \
        vf less = _mm256_cmp_ps(v##p, best, _CMP_LT_OQ);                                                    \
        best = _mm256_blendv_ps(best, v##p, less);                                                          \
        which = _mm256_blendv_ps(which, _mm256_castsi256_ps(_mm256_set1_epi32(p)), less);                   \
    }
#define LEAST8                                                                                              \
    vf best = v0, which = vf_zero();                                                                        \
    LEAST_STEP(1) LEAST_STEP(2) LEAST_STEP(3) LEAST_STEP(4) LEAST_STEP(5) LEAST_STEP(6) LEAST_STEP(7)

static inline vf extended(vf best, vf y, const float *book)
{
    vf e = _mm256_sub_ps(y, vf_load(book));
    return _mm256_add_ps(best, vf_mul(e, e));
}

static inline void put_which(int32_t *back, vf which)
{
    _mm256_storeu_si256((__m256i *)(void *)back, _mm256_castps_si256(which));
}

static void step_lanes(trellis *t, vf y, int32_t *back)
{
    for (int a = 0; a < 8; a++) {
        float *cost = t->cost + 64 * a, low[8];
        const float *book = t->book[0] + 64 * a;
        /* rows b, lanes l -> rows l, lanes b; every even/odd pair, then every second pair, then halves */
#define TCQ_PAIR(i, j) vf e##i = _mm256_unpacklo_ps(vf_load(cost + 8 * i), vf_load(cost + 8 * j)), \
                          e##j = _mm256_unpackhi_ps(vf_load(cost + 8 * i), vf_load(cost + 8 * j));
        TCQ_PAIR(0, 1) TCQ_PAIR(2, 3) TCQ_PAIR(4, 5) TCQ_PAIR(6, 7)
        vf f0 = _mm256_shuffle_ps(e0, e2, 0x44), f1 = _mm256_shuffle_ps(e0, e2, 0xee);
        vf f2 = _mm256_shuffle_ps(e1, e3, 0x44), f3 = _mm256_shuffle_ps(e1, e3, 0xee);
        vf f4 = _mm256_shuffle_ps(e4, e6, 0x44), f5 = _mm256_shuffle_ps(e4, e6, 0xee);
        vf f6 = _mm256_shuffle_ps(e5, e7, 0x44), f7 = _mm256_shuffle_ps(e5, e7, 0xee);
        vf v0 = _mm256_permute2f128_ps(f0, f4, 0x20), v4 = _mm256_permute2f128_ps(f0, f4, 0x31);
        vf v1 = _mm256_permute2f128_ps(f1, f5, 0x20), v5 = _mm256_permute2f128_ps(f1, f5, 0x31);
        vf v2 = _mm256_permute2f128_ps(f2, f6, 0x20), v6 = _mm256_permute2f128_ps(f2, f6, 0x31);
        vf v3 = _mm256_permute2f128_ps(f3, f7, 0x20), v7 = _mm256_permute2f128_ps(f3, f7, 0x31);
        LEAST8
        vf_store(low, best);
        put_which(back + 8 * a, which);
#define TCQ_SPREAD(b) vf_store(cost + 8 * (b), extended(vf_set1(low[b]), y, book + 8 * (b)));
        REP8(TCQ_SPREAD)
    }
}

/* The digit at distance OVER is replaced; ALONG is the distance of the other axis that is not in lanes. */
#define TCQ_OVER(p, over) vf v##p = vf_load(cost + (over) * (p));
#define TCQ_EXTEND(p, over) vf_store(cost + (over) * (p), extended(best, y, book + (over) * (p)));
#define TCQ_EACH(M, over) M(0, over) M(1, over) M(2, over) M(3, over) M(4, over) M(5, over) M(6, over) M(7, over)
#define TCQ_STEP(name, BOOK, OVER, ALONG)                                                                   \
    static void name(trellis *t, vf y, int32_t *back)                                                       \
    {                                                                                                       \
        for (int k = 0; k < 8; k++) {                                                                       \
            float *cost = t->cost + (ALONG) * k;                                                            \
            const float *book = t->book[BOOK] + (ALONG) * k;                                                \
            TCQ_EACH(TCQ_OVER, OVER)                                                                        \
            LEAST8                                                                                          \
            put_which(back + 8 * k, which);                                                                 \
            TCQ_EACH(TCQ_EXTEND, OVER)                                                                      \
        }                                                                                                   \
    }

TCQ_STEP(step_b, 1, 8, 64)
TCQ_STEP(step_a, 2, 64, 8)

/* The first least final state; after 128 steps (h, m, l) = (b, c, a). */
static int trellis_end(const trellis *t)
{
    int s = 0;
    float best = t->cost[0];
    for (int i = 1; i < TCQ_STATES; i++) {
        float c = t->cost[64 * (i & 7) + 8 * (i >> 6) + (i >> 3 & 7)];
        if (c < best) {
            best = c;
            s = i;
        }
    }
    return s;
}

static void tcq_viterbi(const float *y, uint16_t *state, int *start)
{
    trellis t;
    trellis_open(&t);
    for (int i = 0; i < TCQ_STEPS; i++) {
        vf v = vf_set1(y[i]);
        if (i % 3 == 0)
            step_lanes(&t, v, t.back[i]);
        else if (i % 3 == 1)
            step_b(&t, v, t.back[i]);
        else
            step_a(&t, v, t.back[i]);
    }
    int s = trellis_end(&t);
    for (int i = TCQ_STEPS - 1; i >= 0; i--) {
        int g = s & 63, at = i % 3 == 1 ? (g & 7) * 8 + (g >> 3) : g;    /* back of step 1 lies at [m][h] */
        state[i] = (uint16_t)s;
        s = g << 3 | t.back[i][at];
    }
    *start = s;
}

static void tcq_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int g = 0; g < d; g += 128, row += 52)
        tcq_encode_group(tcq_viterbi, x + g, row, encoder);
}

/* The integer path looks up two values at once: 12 bits of the stream, a table of 8 KiB.  (AVX2 gathers are five times
 * slower.)  Bits 6p .. 6p+11 from p hold pair p. */
static const uint16_t pairs[4096] = { TCQ_PAIRS };

static inline __m128i tcq_bytes16(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    __m128i x = _mm_cvtsi32_si128(pairs[w & 4095]);
#define TCQ_INSERT(k) x = _mm_insert_epi16(x, pairs[w >> (6 * (k)) & 4095], k);
    TCQ_INSERT(1) TCQ_INSERT(2) TCQ_INSERT(3) TCQ_INSERT(4) TCQ_INSERT(5) TCQ_INSERT(6) TCQ_INSERT(7)
    return x;
}

static inline __m256i tcq_bytes(const uint8_t *row, int b)
{
    const uint8_t *qs = row + (size_t)(b / 4) * 52 + 2 + b % 4 * 12;
    return _mm256_set_m128i(tcq_bytes16(qs + 6), tcq_bytes16(qs));
}

static inline __m256i tcq_signed(const uint8_t *row, int b)
{
    return _mm256_sub_epi8(tcq_bytes(row, b), _mm256_set1_epi8(64));
}

#define INT_CODES tcq_bytes
#define INT_SIGNED tcq_signed
#define INT_SCALE(row, g) ((row) + (size_t)(g) * 52)
#define INT_GROUP 4
#define INT_STEP TCQ_STEP_VALUE
#define INT_OFFSET 64
#define INT_WIDE_QUERY 0
#include "formats/simd_int_avx2.h"

const kvant_format_kernels kvant_turbo3_tcq_kernels_avx2 = {
    .encode = tcq_encode, .prep_q = turbo_prep_q, .finish_out = turbo_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    .prep_q8 = int_prep_q8, .score_q8 = int_score_q8, .axpy_q8 = int_axpy_q8,
};
