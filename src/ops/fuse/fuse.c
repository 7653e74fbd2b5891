/* fuse.c: the table of fused forms and its matcher.  It decides by ids, sizes and addresses alone; which forms a device
 * has, and for which shapes, the device says. */
#include "ops/fuse/fuse.h"

#include <string.h>
#include "ops/operands.h"

/* ---- what `where` of a form asks ---- */

/* A norm in place and a rope of its rows. */
static int turns(const kvant_norm_rms_args *n, const kvant_rope_args *r)
{
    return n->ldx == n->ldy && n->gx == n->gy && r->ldx == n->ldx && r->gx == n->gx && r->n == n->n && r->h == n->h &&
           r->n_rot <= n->d && r->n_rot % 2 == 0;
}

/* The normed rows, whose heads lie side by side, are what the cache takes. */
static int writes_rows(const kvant_norm_rms_args *k, const kvant_cache_write_args *w)
{
    return w->ldx == k->ldx && k->gx == k->d && w->d == k->d && w->h == k->h && w->seqs.n_tokens == k->n;
}

/* swiglu of the halves of n rows of y, in place of the first. */
static int halves(const kvant_swiglu_args *s, const float *y, int64_t ldy, int64_t n, int64_t n_out)
{
    return s->up == y + s->f && s->ldg == ldy && s->ldu == ldy && s->ldy == ldy && s->n == n &&
           2 * (int64_t)s->f == n_out;
}

/* A product that is added to the residual rows, whose norm is what the next one takes. */
static int normed(const kvant_matmul_args *a, const kvant_norm_add_rms_args *n, const kvant_matmul_args *b)
{
    return n->n == a->m && n->d == a->w->n_out && a->ldy == n->d && b->m == n->n && b->ldx == n->d &&
           b->w->n_in == n->d;
}

/* ---- the table ---- */

#define KVANT_OP(ID, name, args, tol, fused, text) typedef args args_of_##ID;
#include "kvant/ops.def"
#undef KVANT_OP

#define IN(i, ID, var) const args_of_##ID *var = ops[i].args; (void)var;
#define SAME(a, b) fuse_same(l, &(a), (a), &(b), (b));
#define MAY(a, b) fuse_may(l, &(a), &(b));
#define GONE(a) fuse_gone(l, &(a));
#define FUSED(ID, name, on, ins, links, where)                                                                         \
    static int fits_##ID(const kvant_op *ops, fuse_links *l)                                                           \
    {                                                                                                                  \
        ins links return where;                                                                                        \
    }
#include "ops/fuse/fused.def"
#undef IN

#define IN(i, ID, var) KVANT_OP_##ID,
#define COUNT(...) (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int))
#define FUSED(ID, name, on, ins, links, where) { #name, COUNT(ins), { ins }, fits_##ID },
static const fuse_form forms[] = {
#include "ops/fuse/fused.def"
};
enum { FORMS = sizeof forms / sizeof forms[0] };
#undef IN

#define FUSED_OWN(device, name, ops, file) { #device, #name, ops, file },
static const struct { const char *device, *name, *ops, *file; } own[] = {
#include "ops/fuse/fused.def"
};

/* ---- the matcher ---- */

void fuse_may(fuse_links *l, const void *a_field, const void *b_field)
{
    assert(l->n < FUSE_LINKS);
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

/* Returns 1 if two operands overlap, one of them written, that the form does not link. */
static int overlaps(const fuse_links *l, const form_operands *o)
{
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
            if (o->field[j] == l->list[i].a && !operands_unread(behind, n, o->list[j].at, o->list[j].bytes))
                return 1;
    return 0;
}

/* The ops, sizes and links of a form. */
static int has_shape(const fuse_form *form, const kvant_op *ops, int n, fuse_links *l)
{
    l->n = l->differ = 0;
    if (n < form->n_ops)
        return 0;
    for (int i = 0; i < form->n_ops; i++)
        if (ops[i].id != form->ids[i])
            return 0;
    return form->fits(ops, l) && !l->differ;
}

/* With the shape: whether one kernel leaves the same memory as the ops. */
static int is_same(const fuse_form *form, const kvant_op *ops, int n, const fuse_links *l)
{
    form_operands o;
    operands_of_form(form, ops, &o);
    return !overlaps(l, &o) && !is_missed(l, &o, ops + form->n_ops, n - form->n_ops);
}

int fuse_is(const fuse_form *form, const kvant_op *ops, int n)
{
    fuse_links l;
    return has_shape(form, ops, n, &l) && is_same(form, ops, n, &l);
}

const fuse_form *fuse_get(int id)
{
    return id > FUSED_BEFORE && id < FUSED_END ? &forms[id - KVANT_OP_COUNT] : NULL;
}

int fuse_next(const kvant_op *ops, int n, int (*takes)(void *user, const kvant_op *op), void *user, kvant_op *out)
{
    for (int i = 0; i < FORMS; i++) {
        const kvant_op fused = { KVANT_OP_COUNT + i, ops };
        fuse_links l;
        if (has_shape(&forms[i], ops, n, &l) && (!takes || takes(user, &fused)) && is_same(&forms[i], ops, n, &l)) {
            *out = fused;
            return forms[i].n_ops;
        }
    }
    *out = ops[0];
    return 1;
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
