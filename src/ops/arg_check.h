/* ops/arg_check.h: what the argument checks of ops share; the checks themselves are made of the cards (checks.inc).
 * Each returns KVANT_OK, or KVANT_EINVAL with a text that names the op, the argument, the value found and the value
 * wanted. */
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

const char *arg_op(int id);
/* Pointers that must be set; the list ends with `names`. */
int arg_need(int id, const void *const *pointers, const char *names, kvant_diag *diag);
int arg_positive(int id, const char *name, int64_t value, kvant_diag *diag);
int arg_count(int id, const char *name, int64_t value, kvant_diag *diag);
int arg_range(int id, const char *name, int64_t value, int64_t low, int64_t high, kvant_diag *diag);
/* A stride is smaller than what lies between two rows: refused. */
int arg_narrow(int id, const char *name, long long value, long long least, const char *width, kvant_diag *diag);
int arg_compute(int id, int compute, kvant_diag *diag);
/* single: no experts. */
int arg_weight(int id, const kvant_weight *w, int single, kvant_diag *diag);
/* Sequences whose rows live in pages; whose states live in slots. */
int arg_seqs_pages(int id, const kvant_seqs *s, kvant_diag *diag);
int arg_seqs_slots(int id, const kvant_seqs *s, kvant_diag *diag);
/* A side of h heads of d values; seqs NULL: the op has none. */
int arg_side(int id, const char *which, const kvant_kv_side *c, int h, int d, const kvant_seqs *s, kvant_diag *diag);
/* A checked side that single rows are written to. */
int arg_rows_in(int id, const char *which, const kvant_kv_side *c, kvant_diag *diag);

#define KVANT_OP(ID, name, args, tol, fused, text) int check_##name##_args(const void *args, kvant_diag *diag);
#include "kvant/ops.def"
#undef KVANT_OP

#endif
