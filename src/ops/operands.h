/* ops/operands.h: the memory that an op's arguments name, made of the cards (tools/gen_ops): for whoever moves
 * arguments to other addresses or asks whether a buffer is read again.  Pure; C and CUDA. */
#ifndef KVANT_OPS_OPERANDS_H
#define KVANT_OPS_OPERANDS_H

#include <assert.h>
#include <stddef.h>
#include "kvant/ops.h"

/* WEIGHT: the address of a kvant_weight. */
enum { OPERAND_READ = 1, OPERAND_WRITE = 2, OPERAND_WEIGHT = 4, OPERANDS_MOST = 24 };

/* An address of the argument struct, at byte `offset` of it.  bytes: how far the op reaches from there, 0 where the
 * arguments do not say (pages, states); dense: an op that writes there writes every byte of these. */
typedef struct op_operand {
    const void *at;
    size_t bytes;
    int offset, access, dense;
} op_operand;

typedef struct op_operands {
    int n;
    op_operand list[OPERANDS_MOST];
} op_operands;

/* Values from the first of n rows, ld apart, to the end of the last one, which is `width` long. */
static inline int64_t reach_of(int64_t n, int64_t ld, int64_t width)
{
    return n > 0 ? (n - 1) * ld + width : 0;
}

static inline void operand_put(op_operands *o, size_t offset, const void *at, int access, int64_t bytes, int dense)
{
    assert(o->n < OPERANDS_MOST);
    op_operand *to = &o->list[o->n++];
    to->at = at;
    to->bytes = (size_t)bytes;
    to->offset = (int)offset;
    to->access = access;
    to->dense = dense;
}

#include "ops/operands.inc"

/* The operands of an op, NULL ones too. */
static inline op_operands op_operands_of(int id, const void *args)
{
    op_operands o;
    o.n = 0;
    operands_fill(id, args, &o);
    return o;
}

#endif
