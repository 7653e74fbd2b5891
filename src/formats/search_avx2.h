/* search_avx2.h: search_scale of search.h on AVX2. */
#ifndef KVANT_FORMATS_SEARCH_AVX2_H
#define KVANT_FORMATS_SEARCH_AVX2_H

#include "formats/search.h"

/* As search_scale.  Sums are taken in another order, so a near tie of two scales may be decided otherwise. */
void search_scale_avx2(const search_book *book, const float *y, int count, float guess, int *code, uint16_t *scale);

#endif
