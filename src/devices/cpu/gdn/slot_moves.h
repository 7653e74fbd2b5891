/* slot_moves.h: which states of a batch have to be copied before anything is written (conv_body.h, gdn_body.h). */
#ifndef KVANT_DEVICES_CPU_SLOT_MOVES_H
#define KVANT_DEVICES_CPU_SLOT_MOVES_H

#include "ops/op_util.h"

/* A state that is read from a slot other than the sequence's own can be overwritten before it is read; and one that is
 * not written (slot_out -1), zeros too, has no other place to be worked on. */
static inline int is_moved(const kvant_seqs *seqs, int s)
{
    return seqs->slot_out[s] < 0 || (seqs->slot_in[s] >= 0 && seqs->slot_in[s] != seqs->slot_out[s]);
}

static inline size_t count_moved(const kvant_seqs *seqs, int phase)
{
    size_t n = 0;

    for (int s = 0; s < seqs->n_seqs; s++)
        n += takes_part(seqs, s, phase) && is_moved(seqs, s);
    return n;
}

#endif
