/* ops/arg_check.h: what the argument checks of ops share.  Each returns KVANT_OK, or KVANT_EINVAL with a text that
 * names the op, the argument, the value found and the value wanted. */
#ifndef KVANT_OPS_ARG_CHECK_H
#define KVANT_OPS_ARG_CHECK_H

#include "base/error.h"
#include "ops/op_util.h"

#define BAD(...) return kvant_fail(diag, KVANT_EINVAL, __VA_ARGS__)

/* Far above any model; keeps every product of sizes (scratch of the kernels) inside 64 bits. */
enum { MAX_HEADS = 65536, MAX_SEQS = 65536, MAX_CHANNELS = 1 << 24 };

/* The list ends with the pointer to the names itself, which no argument can equal. */
#define NEED(id, names, ...)                                                                                           \
    do {                                                                                                               \
        static const char names_[] = names;                                                                            \
        const void *const list_[] = { __VA_ARGS__, names_ };                                                           \
        KVANT_TRY(arg_need(id, list_, names_, diag));                                                                  \
    } while (0)

/* ---- check.c ---- */
const char *arg_op(int id);
/* Pointers that must be set; the list ends with `names`. */
int arg_need(int id, const void *const *pointers, const char *names, kvant_diag *diag);
int arg_positive(int id, const char *name, int64_t value, kvant_diag *diag);
int arg_count(int id, int64_t n, kvant_diag *diag);
/* n rows of h groups of d values: groups gx apart, rows ldx apart, none overlapping. */
int arg_groups(int id, const char *name, int64_t ld, int64_t g, int n, int h, int d, kvant_diag *diag);
int arg_row_stride(int id, const char *name, int64_t ld, int n, int64_t width, kvant_diag *diag);
int arg_epsilon(int id, float eps, kvant_diag *diag);
int arg_weight(int id, const kvant_weight *w, kvant_diag *diag);
int arg_compute(int id, int compute, kvant_diag *diag);

/* One line of ops.def without its check (check_rows.c, check_seqs.c) does not link. */
#define KVANT_OP(ID, name, args, tol, fused, text) int check_##name(const void *args, kvant_diag *diag);
#include "kvant/ops.def"
#undef KVANT_OP

#endif
