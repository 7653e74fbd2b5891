/* fuse.c: the table of fused forms and its matcher.  It decides by ids, sizes and addresses alone; which forms a device
 * has, and for which shapes, the device says. */
#include "ops/fuse/fuse.h"

#include <string.h>
#include "ops/fuse/fuse_where.h"
#include "ops/operands.h"

/* ---- the table ---- */

#define KVANT_OP(ID, name, args, tol, fused, text) typedef args args_of_##ID;
#include "kvant/ops.def"
#undef KVANT_OP

#define IN(i, ID, var)                                                                                                 \
    const args_of_##ID *var = ops[i].args;                                                                             \
    (void)var;
#define SAME(a, b) fuse_same(l, &(a), (a), &(b), (b));
#define MAY(a, b)  fuse_may(l, &(a), &(b));
#define GONE(a)    fuse_gone(l, &(a));
#define SPENT(a)   fuse_spent(l, &(a));
#define FROM(kind) l->from = PASS_##kind;
#define ALWAYS     l->must = 1;
#define PASS(kind, a, OP, var, cond)                                                                                   \
    if (l->behind && l->behind->id == KVANT_OP_##OP) {                                                                 \
        const args_of_##OP *var = l->behind->args;                                                                     \
        if (cond)                                                                                                      \
            l->pass = PASS_##kind, l->passed = a;                                                                      \
    }
#define FUSED(ID, name, on, ins, links, where)                                                                         \
    static int fits_##ID(const kvant_op *ops, fuse_links *l)                                                           \
    {                                                                                                                  \
        (void)l;                                                                                                       \
        ins links return where;                                                                                        \
    }
#include "ops/fuse/fused.def"
#undef IN

#define IN(i, ID, var)                         KVANT_OP_##ID,
#define COUNT(...)                             (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int))
#define FUSED(ID, name, on, ins, links, where) { #name, COUNT(ins), { ins }, fits_##ID },
static const fuse_form forms[] = {
#include "ops/fuse/fused.def"
};
enum { FORMS = sizeof forms / sizeof forms[0] };
#undef IN

#define FUSED_OWN(device, name, ops, file) { #device, #name, ops, file },
static const struct {
    const char *device, *name, *ops, *file;
} own[] = {
#include "ops/fuse/fused.def"
};

/* ---- the matcher ---- */

void fuse_may(fuse_links *l, const void *a_field, const void *b_field)
{
    assert(l->n < FUSE_LINKS);
    l->list[l->n].spent = 0;
    l->list[l->n].a = a_field;
    l->list[l->n++].b = b_field;
}

void fuse_same(fuse_links *l, const void *a_field, const void *a, const void *b_field, const void *b)
{
    fuse_may(l, a_field, b_field);
    l->differ |= a != b;
}

void fuse_gone(fuse_links *l, const void *field)
{
    fuse_may(l, field, NULL);
}

void fuse_spent(fuse_links *l, const void *field)
{
    fuse_may(l, field, NULL);
    l->list[l->n - 1].spent = 1;
}

/* The operands of a form, each with the address of its field. */
typedef struct form_operands {
    int n;
    op_operand list[FUSE_MOST * OPERANDS_MOST];
    const void *field[FUSE_MOST * OPERANDS_MOST];
} form_operands;

static void operands_of_form(const fuse_form *form, const kvant_op *ops, form_operands *o)
{
    o->n = 0;
    for (int i = 0; i < form->n_ops; i++) {
        const op_operands list = op_operands_of(ops[i].id, ops[i].args);
        for (int j = 0; j < list.n; j++)
            if (list.list[j].at && list.list[j].access != OPERAND_WEIGHT) {
                o->field[o->n] = (const char *)ops[i].args + list.list[j].offset;
                o->list[o->n++] = list.list[j];
            }
    }
}

static int is_linked(const fuse_links *l, const void *a, const void *b)
{
    for (int i = 0; i < l->n; i++)
        if ((l->list[i].a == a && l->list[i].b == b) || (l->list[i].a == b && l->list[i].b == a))
            return 1;
    return 0;
}

/* Returns 1 if two operands of several ops overlap, one of them written, that the form does not link. */
static int overlaps(const fuse_form *form, const fuse_links *l, const form_operands *o)
{
    if (form->n_ops == 1)
        return 0;
    for (int i = 0; i < o->n; i++)
        for (int j = 0; j < i; j++)
            if (((o->list[i].access | o->list[j].access) & OPERAND_WRITE) &&
                !operands_apart(&o->list[i], &o->list[j]) && !is_linked(l, o->field[i], o->field[j]))
                return 1;
    return 0;
}

/* Returns 1 if ops behind the form may read a value that it does not write. */
static int is_missed(const fuse_links *l, const form_operands *o, const kvant_op *behind, int n)
{
    for (int i = 0; i < l->n; i++)
        for (int j = 0; l->list[i].b == NULL && j < o->n; j++)
            if (o->field[j] == l->list[i].a &&
                (l->list[i].spent ? operands_first_use(behind, n, o->list[j].at) == OPERAND_READ
                                  : !operands_unread(behind, n, o->list[j].at, o->list[j].bytes)))
                return 1;
    return 0;
}

/* The ops, sizes and links of a form. */
static int has_shape(const fuse_form *form, const kvant_op *ops, int n, fuse_links *l)
{
    if (n < form->n_ops)
        return 0;
    for (int i = 0; i < form->n_ops; i++)
        if (ops[i].id != form->ids[i])
            return 0;
    l->n = l->differ = l->from = l->pass = l->must = 0;
    l->passed = NULL;
    l->behind = n > form->n_ops ? ops + form->n_ops : NULL;
    return form->fits(ops, l) && !l->differ;
}

/* With the shape: whether one kernel leaves the same memory as the ops. */
static int is_same(const fuse_form *form, const kvant_op *ops, int n, const fuse_links *l)
{
    form_operands o;
    if (form->n_ops == 1 && l->n == 0)
        return 1;
    operands_of_form(form, ops, &o);
    return !overlaps(form, l, &o) && !is_missed(l, &o, ops + form->n_ops, n - form->n_ops);
}

int fuse_is(const fuse_form *form, const kvant_op *ops, int n)
{
    fuse_links l;
    return has_shape(form, ops, n, &l) && is_same(form, ops, n, &l);
}

static int is_fused(int id)
{
    return id > FUSED_BEFORE && id < KVANT_OP_COUNT + FORMS * PASS_COUNT;
}

const fuse_form *fuse_get(int id)
{
    return is_fused(id) ? &forms[(id - KVANT_OP_COUNT) % FORMS] : NULL;
}

int fuse_id(int id)
{
    return is_fused(id) ? KVANT_OP_COUNT + (id - KVANT_OP_COUNT) % FORMS : id;
}

enum fuse_pass fuse_passes(int id)
{
    return is_fused(id) ? (enum fuse_pass)((id - KVANT_OP_COUNT) / FORMS) : PASS_NONE;
}

/* ---- values that a form leaves to the next in another state ---- */

/* How many ops the list begins with that take norms' rows, each from the one before. */
static int row_takers(const kvant_op *ops, int n, fuse_takes *takes, void *user)
{
    kvant_op op = { -1, NULL };
    int at = 0;
    do
        at += fuse_next(ops + at, n - at, PASS_ROWS, takes, user, &op);
    while (fuse_passes(op.id) == PASS_ROWS);
    return at;
}

/* Returns 1 if a value of the form's ops is not read by n ops. */
static int is_unread(const fuse_form *form, const kvant_op *ops, const void *field, const kvant_op *behind, int n)
{
    fuse_links l = { .n = 0 };
    form_operands o;
    operands_of_form(form, ops, &o);
    fuse_gone(&l, field);
    return !is_missed(&l, &o, behind, n);
}

/* Returns 1 if the list begins with the ops of form i, behind one that passes `passed`; *l: its links. */
static int stands(int i, const kvant_op *ops, int n, enum fuse_pass passed, fuse_takes *takes, void *user,
                  fuse_links *l)
{
    const kvant_op fused = { KVANT_OP_COUNT + i, ops };
    return has_shape(&forms[i], ops, n, l) && l->from == (int)passed && (!takes || takes(user, &fused)) &&
           is_same(&forms[i], ops, n, l);
}

static enum fuse_pass pass_of(const fuse_form *form, const kvant_op *ops, int n, const fuse_links *l, fuse_takes *takes,
                              void *user);

/* Returns 1 if a form at the list's begin takes what the one before it passes. */
static int is_taken(const kvant_op *ops, int n, enum fuse_pass passed, fuse_takes *takes, void *user)
{
    fuse_links l;
    for (int i = 0; i < FORMS; i++)
        if (stands(i, ops, n, passed, takes, user, &l) && (!l.must || pass_of(&forms[i], ops, n, &l, takes, user)))
            return 1;
    return 0;
}

/* Returns what the form at the list's begin passes to the next one, if that takes it. */
static enum fuse_pass pass_of(const fuse_form *form, const kvant_op *ops, int n, const fuse_links *l, fuse_takes *takes,
                              void *user)
{
    const kvant_op *behind = ops + form->n_ops;
    const int left = n - form->n_ops;
    if (!l->pass || !is_taken(behind, left, (enum fuse_pass)l->pass, takes, user))
        return PASS_NONE;
    if (!l->passed)
        return (enum fuse_pass)l->pass;
    const int readers = l->pass == PASS_ROWS ? row_takers(behind, left, takes, user) : 1;
    if (is_unread(form, ops, l->passed, behind + readers, left - readers))
        return (enum fuse_pass)l->pass;
    return l->pass == PASS_ROWS ? PASS_KEPT : PASS_NONE;
}

int fuse_next(const kvant_op *ops, int n, enum fuse_pass passed, fuse_takes *takes, void *user, kvant_op *out)
{
    fuse_links l;
    passed = passed == PASS_KEPT ? PASS_ROWS : passed;
    for (int i = 0; i < FORMS; i++) {
        if (!stands(i, ops, n, passed, takes, user, &l))
            continue;
        const enum fuse_pass pass = pass_of(&forms[i], ops, n, &l, takes, user);
        if (l.must && !pass)
            continue;
        *out = (kvant_op){ KVANT_OP_COUNT + i + FORMS * (int)pass, ops };
        return forms[i].n_ops;
    }
    *out = ops[0];
    return passed == PASS_NONE;
}

int fuse_own(const char *device, int i, const char **name, const char **ops, const char **file)
{
    for (size_t j = 0; j < sizeof own / sizeof own[0]; j++)
        if (strcmp(own[j].device, device) == 0 && i-- == 0) {
            *name = own[j].name;
            *ops = own[j].ops;
            *file = own[j].file;
            return 1;
        }
    return 0;
}
