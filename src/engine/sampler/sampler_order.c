/* sampler_order.c: candidates by their order, in heaps: nothing is allocated, and equal logits have one order on every
 * machine. */
#include "engine/sampler/sampler_impl.h"

#include <math.h>

int cand_before(cand a, cand b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

void cand_sift(cand *h, int n, int i, int worst)
{
    const cand x = h[i];

    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && cand_before(h[child + 1], h[child]) != worst)
            child++;
        if (cand_before(h[child], x) == worst)
            break;
        h[i] = h[child];
    }
    h[i] = x;
}

void cand_heapify(cand *h, int n, int worst)
{
    for (int i = n / 2; i-- > 0;)
        cand_sift(h, n, i, worst);
}

int sampler_collect(kvant_sampler *s, const float *logits, int k)
{
    int n = 0;

    if (k <= 0 || k > s->n_vocab)
        k = s->n_vocab;
    for (int i = 0; i < s->n_vocab; i++) {
        const cand c = { logits[i], i };
        if (!isfinite(c.logit))
            continue;
        if (n < k) {
            s->cands[n++] = c;
            if (n == k && k < s->n_vocab)
                cand_heapify(s->cands, n, 1);
        } else if (cand_before(c, s->cands[0])) {
            s->cands[0] = c;
            cand_sift(s->cands, n, 0, 1);
        }
    }
    return n;
}

void sampler_sort(cand *c, int n)
{
    cand_heapify(c, n, 1);
    for (int left = n - 1; left > 0; left--) {
        const cand last = c[0];
        c[0] = c[left];
        cand_sift(c, left, 0, 1);
        c[left] = last;
    }
}
