/* tbq.h: what the formats of this folder share: the block transform and the nearest-centroid rule. */
#ifndef KVANT_FORMATS_TBQ_H
#define KVANT_FORMATS_TBQ_H

enum { TBQ_BLOCK = 32 };

/* Index of the centroid nearest to v; a tie takes the LOWER code, NaN the last.  c ascending, n >= 2. */
int tbq_nearest(const float *c, int n, float v);

/* y = P32(x); returns d = sqrt(sum y^2 / 32). */
float tbq_precondition(const float *x, float *y);

#endif
