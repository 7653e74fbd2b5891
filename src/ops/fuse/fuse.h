/* ops/fuse/fuse.h: fused forms of ops (fused.def), found in a list before a device runs it.  Pure: owns no memory; any
 * thread. */
#ifndef KVANT_OPS_FUSE_H
#define KVANT_OPS_FUSE_H

#include "kvant/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FUSE_MOST = 9, FUSE_LINKS = 64 }; /* ops of a form; its links */

/* The ids of fused forms follow those of the ops.  A fused op is { id, the form's ops in the list }. */
#define FUSED(ID, name, on, ins, links, where) FUSED_##ID,
enum fused_id {
    FUSED_BEFORE = KVANT_OP_COUNT - 1,
#include "ops/fuse/fused.def"
    FUSED_END
};
enum { FUSED_COUNT = FUSED_END - FUSED_BEFORE - 1 };

/* In which state a form leaves a value to the form behind it.  ROWS: a norm's rows, as bf16 in the device's scratch;
 * KEPT: the same, and the rows are written too, for others read them.  HALVES: bf16 in the memory of the value.
 * ADDED: written, and already added to the residual row.
 * The id of a fused op that passes a value is FUSED_<ID> + FUSED_COUNT * pass. */
enum fuse_pass { PASS_NONE, PASS_ROWS, PASS_KEPT, PASS_HALVES, PASS_ADDED, PASS_COUNT };

/* Links of operands, each named by the address of its field in the arguments. */
typedef struct fuse_links {
    int n, differ; /* differ: a SAME of two addresses */
    struct {
        const void *a, *b;
        int spent;
    } list[FUSE_LINKS];     /* b NULL: a is GONE or SPENT */
    const kvant_op *behind; /* the op behind the form; NULL: the list ends */
    int from, pass, must;   /* enum fuse_pass; must: the form always passes something */
    const void *passed;     /* the field of what is passed, if it is not written; or NULL */
} fuse_links;

typedef struct fuse_form {
    const char *name;
    int n_ops, ids[FUSE_MOST];
    /* Returns 0 where sizes or strides are others; ops are as many as ids, and have these ids. */
    int (*fits)(const kvant_op *ops, fuse_links *links);
} fuse_form;

/* Returns 1 if the user's device takes a fused op. */
typedef int fuse_takes(void *user, const kvant_op *op);

void fuse_same(fuse_links *l, const void *a_field, const void *a, const void *b_field, const void *b);
void fuse_may(fuse_links *l, const void *a_field, const void *b_field);
void fuse_gone(fuse_links *l, const void *field);
void fuse_spent(fuse_links *l, const void *field);

/* Returns 1 if the list's first ops are this form: their ids, sizes and links, no other operands that overlap, and
 * nothing behind them reads a GONE value.  The end of a list reads everything. */
int fuse_is(const fuse_form *form, const kvant_op *ops, int n);
/* The form of a fused op's id; NULL: it is not one.  The id as FUSED_<ID>; what the op passes. */
const fuse_form *fuse_get(int id);
int fuse_id(int id);
enum fuse_pass fuse_passes(int id);
/* ops[0] (n >= 1), or the first fused op of the table that the list begins with and `takes` accepts, into *out.
 * Returns how many ops it stands for.  takes NULL: every form.  passed: what the op before this one passes; if that is
 * not PASS_NONE and no form takes it: 0. */
int fuse_next(const kvant_op *ops, int n, enum fuse_pass passed, fuse_takes *takes, void *user, kvant_op *out);
/* Fusion i of those that the device's own code does: its name, ops and file below src/devices/<device>; 0 past the
 * last. */
int fuse_own(const char *device, int i, const char **name, const char **ops, const char **file);

#ifdef __cplusplus
}
#endif

#endif
