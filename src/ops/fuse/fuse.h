/* ops/fuse/fuse.h: fused forms of ops (fused.def), found in a list before a device runs it.  Pure: owns no memory; any
 * thread. */
#ifndef KVANT_OPS_FUSE_H
#define KVANT_OPS_FUSE_H

#include "kvant/ops.h"

enum { FUSE_MOST = 8, FUSE_LINKS = 24 };       /* ops of a form; its links */

/* The ids of fused forms follow those of the ops.  A fused op is { id, the form's ops in the list }. */
#define FUSED(ID, name, on, ins, links, where) FUSED_##ID,
enum fused_id {
    FUSED_BEFORE = KVANT_OP_COUNT - 1,
#include "ops/fuse/fused.def"
    FUSED_END
};

/* Links of operands, each named by the address of its field in the arguments. */
typedef struct fuse_links {
    int n, differ;                             /* differ: a SAME of two addresses */
    struct { const void *a, *b; } list[FUSE_LINKS];    /* b NULL: a is GONE */
} fuse_links;

typedef struct fuse_form {
    const char *name;
    int n_ops, ids[FUSE_MOST];
    /* Returns 0 where sizes or strides are others; ops are as many as ids, and have these ids. */
    int (*fits)(const kvant_op *ops, fuse_links *links);
} fuse_form;

void fuse_same(fuse_links *l, const void *a_field, const void *a, const void *b_field, const void *b);
void fuse_may(fuse_links *l, const void *a_field, const void *b_field);
void fuse_gone(fuse_links *l, const void *field);

/* Returns 1 if the list's first ops are this form: their ids, sizes and links, no other operands that overlap, and
 * nothing behind them reads a GONE value.  The end of a list reads everything. */
int fuse_is(const fuse_form *form, const kvant_op *ops, int n);
/* The form of a fused op's id; NULL: not one. */
const fuse_form *fuse_get(int id);
/* ops[0] (n >= 1), or the first fused op of the table that the list begins with and `takes` accepts, into *out.
 * Returns how many ops it stands for.  takes NULL: every form. */
int fuse_next(const kvant_op *ops, int n, int (*takes)(void *user, const kvant_op *op), void *user, kvant_op *out);
/* Fusion i of those that the device's own code does: its name, ops and file below src/devices/<device>; 0 past the
 * last. */
int fuse_own(const char *device, int i, const char **name, const char **ops, const char **file);

#endif
