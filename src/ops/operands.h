/* ops/operands.h: the memory that an op's arguments name, made of the cards (tools/gen_ops): for whoever moves
 * arguments to other addresses or asks whether a buffer is read again.  Pure; C and CUDA. */
#ifndef KVANT_OPS_OPERANDS_H
#define KVANT_OPS_OPERANDS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include "kvant/ops.h"

/* WEIGHT: the address of a kvant_weight. */
enum { OPERAND_READ = 1, OPERAND_WRITE = 2, OPERAND_WEIGHT = 4, OPERANDS_MOST = 24 };

/* An address of the argument struct, at byte `offset` of it.  bytes: how far the op reaches from there, 0 where the
 * arguments do not say (pages, states); dense: an op that writes there writes every byte of these.  stride, row: bytes
 * from a row of it to the next, and how far each reaches; 0 where the rows follow each other. */
typedef struct op_operand {
    const void *at;
    size_t bytes, stride, row;
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
    to->stride = to->row = 0;
}

/* Tells of the last operand that its rows of `row` bytes lie `stride` bytes apart. */
static inline void operand_rows(op_operands *o, int64_t stride, int64_t row)
{
    o->list[o->n - 1].stride = (size_t)stride;
    o->list[o->n - 1].row = (size_t)row;
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

/* The weight that an op reads; NULL: none. */
static inline const kvant_weight *op_weight_of(int id, const void *args)
{
    const op_operands o = op_operands_of(id, args);
    for (int i = 0; i < o.n; i++)
        if (o.list[i].access == OPERAND_WEIGHT)
            return (const kvant_weight *)o.list[i].at;
    return NULL;
}

/* KVANT_WEIGHT_MATMUL or KVANT_WEIGHT_EMBED of an op that reads a weight, else 0. */
static inline int op_weight_use(int id)
{
    return operands_weight_use(id);
}

/* Returns 1 if no byte belongs to both: they lie behind each other, or their rows between each other's.  An operand of
 * unknown reach (pages, states) is memory of its own: its first byte is compared. */
static inline int operands_apart(const op_operand *a, const op_operand *b)
{
    const uintptr_t x = (uintptr_t)a->at, y = (uintptr_t)b->at;
    if (x + (a->bytes ? a->bytes : 1) <= y || y + (b->bytes ? b->bytes : 1) <= x)
        return 1;
    if (a->stride == 0 || a->stride != b->stride)
        return 0;
    const size_t behind = (y > x ? y - x : a->stride - (x - y) % a->stride) % a->stride;
    return behind >= a->row && behind + b->row <= a->stride;
}

/* Returns 1 if the ops write all of these bytes before one of them may read any.  The end of the list reads all. */
static inline int operands_unread(const kvant_op *ops, int n, const void *at, size_t bytes)
{
    const uintptr_t from = (uintptr_t)at, to = from + bytes;
    for (int i = 0; bytes && i < n; i++) {
        const op_operands list = op_operands_of(ops[i].id, ops[i].args);
        int gone = 0;
        for (int j = 0; j < list.n; j++) {
            const op_operand *o = &list.list[j];
            const uintptr_t mine = (uintptr_t)o->at;
            if (o->access == OPERAND_WEIGHT || mine >= to || mine + (o->bytes ? o->bytes : 1) <= from)
                continue;
            if (o->access != OPERAND_WRITE || !o->dense || mine > from || mine + o->bytes < to)
                return 0;
            gone = 1;
        }
        if (gone)
            return 1;
    }
    return 0;
}

/* Returns what the first of these ops that touches a byte does: OPERAND_WRITE, else OPERAND_READ; 0: none does. */
static inline int operands_first_use(const kvant_op *ops, int n, const void *at)
{
    for (int i = 0; i < n; i++) {
        const op_operands list = op_operands_of(ops[i].id, ops[i].args);
        int use = 0;
        for (int j = 0; j < list.n; j++) {
            const op_operand *o = &list.list[j];
            const size_t behind = (size_t)((uintptr_t)at - (uintptr_t)o->at);
            if (o->access != OPERAND_WEIGHT && (uintptr_t)at >= (uintptr_t)o->at &&
                behind < (o->bytes ? o->bytes : 1) && (o->stride == 0 || behind % o->stride < o->row))
                use |= o->access;
        }
        if (use)
            return use & OPERAND_READ ? OPERAND_READ : OPERAND_WRITE;
    }
    return 0;
}

#endif
