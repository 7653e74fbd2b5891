/* search.h: the encoders `best`: for a fixed codebook, first the codes, then the scale that is stored with them.
 *
 * The decoder gives scale * (c[code] + offset): the search works on exactly that, with the scale as it will be
 * stored, so any decoder of the format sees the gain.  It tries a few scales around a start, refits by least
 * squares, and never returns more error than the start it was given (the upstream bytes).
 *
 * Least squares shrinks: it stores a row at cos^2 of its length, and every score with it is too small by that
 * factor. Beside exact rows (the tail) that is a bias of the softmax, so the last step stretches the scale until the
 * decoded row has the product <y, y> with the row that it stands for: scores are then right on the mean
 * (docs/formats/encoders.md). */
#ifndef KVANT_FORMATS_SEARCH_H
#define KVANT_FORMATS_SEARCH_H

#include <stdint.h>

enum { SEARCH_MAX = 128 };

typedef struct search_book {
    const float *c;        /* centroids, ascending, c[n]; NULL: the integers lo..hi */
    int n;                 /* at most 16 */
    int lo, hi;
    const float *offset;   /* f32[count] added to each centroid, or NULL */
} search_book;

/* In: y f32[count] (count a multiple of 32, at most SEARCH_MAX) and a start: codes, fp16 scale.
 * Out: codes and scale of least error found; unchanged when nothing is better.  guess: the scale to search around
 * (the start's, before rounding).  Codes are indices into c, or the integers themselves. */
void search_scale(const search_book *book, const float *y, int count, float guess, int *code, uint16_t *scale);

/* The scale for these codes that makes <y, decoded> = <y, y>, as stored; `scale` itself where there is none (zero
 * rows, NaN, Inf, or a scale that fp16 cannot hold). */
uint16_t search_unbiased(const search_book *book, const float *y, int count, const int *code, uint16_t scale);

/* search_scale, then search_unbiased. */
void search_best(const search_book *book, const float *y, int count, float guess, int *code, uint16_t *scale);

/* search_unbiased from its two sums. */
uint16_t search_unbiased_scale(double yy, double yv, uint16_t scale);

/* A scale as it will be stored: fp16, never zero and never infinite, so that tiny and huge rows still decode to
 * something near. */
uint16_t search_storable(float s);

/* sum (y - scale*v)^2 in double, v = c[code] + offset. */
double search_error(const search_book *book, const float *y, int count, const int *code, uint16_t scale);

#endif
