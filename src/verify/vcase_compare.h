/* verify/vcase_compare.h: the device's image of a case against the reference's. */
#ifndef KVANT_VERIFY_VCASE_COMPARE_H
#define KVANT_VERIFY_VCASE_COMPARE_H

#include "verify/vcase.h"

typedef struct vcase_verdict {
    double worst, limit;        /* largest error; limit 1 where bounds differ by value */
    long boundary;
    char text[160];             /* "" when everything holds */
} vcase_verdict;

/* c->got (device) against c->image (reference), buffer by buffer and the bytes between them. */
void vcase_compare(const vcase *c, double limit, vcase_verdict *v);

#endif
