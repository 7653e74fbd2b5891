/* tensor_cut.c: a program for one device -> a list of ops for each place, and exchanges between.  Knows which rows are
 * cut at each op and who reads them next; the ops that work on parts are tensor_ops.c's. */
#include <stddef.h>
#include <string.h>

#include "engine/tensor/tensor.h"

/* ---- addresses ---- */

/* The range that has this address of the first place; NULL: none. */
static const tensor_range *range_of(const engine_tensor *t, const void *at)
{
    const uintptr_t x = (uintptr_t)at;
    int lo = 0, hi = t->n_range;

    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (t->range[mid].hi <= x)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo == t->n_range || x < t->range[lo].lo ? NULL : &t->range[lo];
}

const void *tensor_there(engine_tensor *t, int place, const void *at)
{
    const tensor_range *r = range_of(t, at);

    if (!r) {
        t->error = t->error ? t->error : 2;
        return at;
    }
    return (const void *)(r->at[place] + ((uintptr_t)at - r->lo));
}

/* An operand that is the pages of a side of the cache: the whole side is the place's own, whose device may have another
 * order of bytes, and fewer heads. */
static void own_side(const engine_tensor *t, int place, const kvant_op *op, const op_operand *o, unsigned char *args)
{
    const int from = o->offset - (int)offsetof(kvant_kv_side, pages);
    const tensor_range *r = range_of(t, o->at);
    kvant_kv_side side;

    if (!r || !r->side[place] || from < 0 || (size_t)from + sizeof side > kvant_op_get(op->id)->args_bytes)
        return;
    memcpy(&side, (const unsigned char *)op->args + from, sizeof side);
    if (side.fmt == r->side[0]->fmt && side.pages == r->side[0]->pages)
        memcpy(args + from, r->side[place], sizeof side);
}

void *tensor_args(kvant_engine *e, int i, const kvant_op *op)
{
    engine_tensor *t = e->way.tensor;
    const size_t bytes = kvant_op_get(op->id)->args_bytes;
    const op_operands list = op_operands_of(op->id, op->args);
    unsigned char *args = arena_alloc(&t->args, bytes);

    if (!args) {
        t->error = 1;
        return NULL;
    }
    memcpy(args, op->args, bytes);
    for (int k = 0; k < list.n; k++) {
        const void *at = list.list[k].at;
        if (!at)
            continue;
        if (list.list[k].access != OPERAND_WEIGHT)
            own_side(t, i, op, &list.list[k], args);
        if (list.list[k].access == OPERAND_WEIGHT)
            at = &e->place[i].weights.w[(const kvant_weight *)at - e->place[0].weights.w];
        else
            at = tensor_there(t, i, at);
        memcpy(args + list.list[k].offset, &at, sizeof at);
    }
    return args;
}

void tensor_put(engine_tensor *t, int i, int id, const void *args)
{
    tensor_place *p = &t->place[i];

    if (!args || p->n == t->cap)
        t->error = 1;
    else
        p->ops[p->n++] = (kvant_op){ id, args };
}

/* The buffer that an address of place 0 is in. */
static const float *buffer_of(const kvant_engine *e, const float *at)
{
    const build_buffers *b = &e->place[0].buf;
    const float *const list[] = { b->x,      b->a,   b->delta, b->qkv,       b->att,    b->o,    b->alpha,  b->beta,
                                  b->ff,     b->ff2, b->router, b->route_wts, b->sh_gate, b->embd, b->embd_proj,
                                  b->xs,     b->keep, b->logits, b->lora_h,    b->lora_y };
    const float *found = list[0];

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] <= at && list[i] > found)
            found = list[i];
    return found;
}

/* Rows that begin at a column of their buffer's rows lie, without the others' columns, behind those before it. */
float *tensor_base(const kvant_engine *e, const tensor_rows *r, int i)
{
    const float *buffer = buffer_of(e, r->base);
    const ptrdiff_t at = r->base - buffer, col = at < r->ld ? at * r->rows : at;

    const ptrdiff_t bytes = (unsigned char *)(uintptr_t)buffer - e->place[0].scratch;

    return (float *)(void *)(e->way.tensor->place[i].shadow + bytes) + col;
}

float *tensor_local(const kvant_engine *e, const tensor_rows *r, int i, int k, int col)
{
    int col0 = 0;

    for (int j = 0; j < k; j++)
        col0 += tensor_part(&e->split, &r->shape, j, i);
    return tensor_base(e, r, i) + col0 + col - tensor_from(&e->split, &r->shape, k, i);
}

/* ---- rows that are cut ---- */

static op_operand columns(const tensor_rows *r, int col, int cols)
{
    const size_t f = sizeof(float), reach = (size_t)(r->rows - 1) * (size_t)r->ld + (size_t)cols;

    return (op_operand){ .at = r->base + col, .bytes = reach * f, .stride = (size_t)r->ld * f,
                         .row = (size_t)cols * f };
}

static int all_columns(const tensor_rows *r)
{
    return tensor_col(&r->shape, r->shape.n);
}

tensor_rows *tensor_find(engine_tensor *t, const void *at)
{
    for (int i = 0; i < t->n_live; i++) {
        tensor_rows *r = &t->live[i];
        const ptrdiff_t d = (const float *)at - r->base;
        if ((const float *)at >= r->base && d < (r->rows - 1) * r->ld + all_columns(r) && d % r->ld < all_columns(r))
            return r;
    }
    return NULL;
}

/* The op writes all of the columns, or their beginning, which they lose; 1: nothing is left. */
static int written(const kvant_op *op, const op_operand *o, op_operand *part)
{
    const uintptr_t a = (uintptr_t)part->at, b = a + part->bytes, x = (uintptr_t)o->at, y = x + o->bytes;

    if (o->access != OPERAND_WRITE || x > a || y <= a)
        return 0;
    if (o->dense) {
        part->at = (const void *)y;
        part->bytes = y < b ? b - y : 0;
        part->stride = part->row = 0;
        return y >= b;
    }
    return op_weight_use(op->id) == KVANT_WEIGHT_MATMUL && o->stride == part->stride && y >= b &&
           x + o->row >= a + part->row;
}

/* Op `first` or one behind it reads these columns as they are now. */
static int is_read(const kvant_engine *e, int first, op_operand part)
{
    for (int i = first; i < e->b.n_ops; i++) {
        const kvant_op *op = &e->ops[i];
        const op_operands list = op_operands_of(op->id, op->args);
        for (int k = 0; k < list.n; k++)
            if (list.list[k].at && (list.list[k].access & OPERAND_READ) && !operands_apart(&list.list[k], &part))
                return 1;
        for (int k = 0; k < list.n; k++)
            if (list.list[k].at && written(op, &list.list[k], &part))
                return 0;
    }
    return 0;
}

/* Logits and what is made of them: the first place alone has and reads them. */
static int is_output(const kvant_engine *e, const void *at)
{
    const build_buffers *b = &e->place[0].buf;
    const unsigned char *end = (const unsigned char *)(b->out_ids + (size_t)e->pass_rows * KVANT_STEP_TOP);

    return (const unsigned char *)at >= (const unsigned char *)b->logits && (const unsigned char *)at < end;
}

/* ---- exchanges ---- */

/* Rows that came side by side to a place's shadow go to their columns. */
static void unpack(kvant_engine *e, const tensor_exchange *x, int i)
{
    engine_tensor *t = e->way.tensor;
    const tensor_rows *r = &x->r;
    const float *from = tensor_base(e, r, i);
    float *to = (float *)(uintptr_t)tensor_there(t, i, r->base);

    for (int k = 0; k < r->shape.n; k++) {
        const int col = tensor_col(&r->shape, k), d = r->shape.cols[k];
        const kvant_rows_copy_args copy = { .x = from + (size_t)r->rows * (size_t)col, .y = to + col, .n = r->rows,
                                            .h = 1, .d = d, .ldx = d, .gx = d, .ldy = r->ld, .gy = d };
        void *args = x->parts >> k & 1 ? arena_alloc(&t->args, sizeof copy) : NULL;
        if (!(x->parts >> k & 1))
            continue;
        if (args)
            memcpy(args, &copy, sizeof copy);
        tensor_put(t, i, KVANT_OP_ROWS_COPY, args);
    }
}

/* Several rows, and a stretch of them is no block of memory. */
static int is_apart(const tensor_rows *r)
{
    return r->rows > 1 && (r->shape.n > 1 || r->shape.cols[0] != r->ld);
}

static int was_touched(const tensor_touched *t, const tensor_rows *r)
{
    const op_operand all = columns(r, 0, all_columns(r));

    for (int i = 0; i < t->n && i < TENSOR_TOUCHED; i++)
        if (!operands_apart(&t->list[i], &all))
            return 1;
    return t->n > TENSOR_TOUCHED;
}

/* Notes what op i, which is in the lists, used as whole rows. */
static void touch(kvant_engine *e, int i)
{
    tensor_touched *t = &e->way.tensor->touched;
    const op_operands list = op_operands_of(e->ops[i].id, e->ops[i].args);

    for (int k = 0; k < list.n; k++) {
        const op_operand *o = &list.list[k];
        if (!o->at || o->access == OPERAND_WEIGHT || tensor_find(e->way.tensor, o->at))
            continue;
        if (t->n < TENSOR_TOUCHED)
            t->list[t->n] = *o;
        t->n += t->n <= TENSOR_TOUCHED;
    }
}

static void exchange(kvant_engine *e, const tensor_rows *r, unsigned parts)
{
    engine_tensor *t = e->way.tensor;
    tensor_exchange *x = &t->exchange[t->n_exchange];

    if (t->n_exchange == t->cap_exchange) {
        t->error = 1;
        return;
    }
    t->n_exchange++;
    *x = (tensor_exchange){ .r = *r, .parts = parts, .first = is_output(e, r->base),
                            .wait = was_touched(&t->touched, r),
                            .staged = !t->direct && !t->meets && is_apart(r) };
    if (!t->direct && !t->meets && (size_t)r->rows * (size_t)all_columns(r) * sizeof(float) > t->host_bytes)
        t->error = t->error ? t->error : 3;
    t->touched.n = 0;
    for (int i = 0; i < t->n; i++)
        x->at[i] = t->place[i].n;
    for (int i = 0; x->staged && i < (x->first ? 1 : t->n); i++)
        unpack(e, x, i);
}

static unsigned parts_read(const kvant_engine *e, int first, const tensor_rows *r)
{
    unsigned parts = 0;

    for (int k = 0; k < r->shape.n; k++)
        if (is_read(e, first, columns(r, tensor_col(&r->shape, k), r->shape.cols[k])))
            parts |= 1u << k;
    return parts;
}

static void gather(kvant_engine *e, int first, tensor_rows *r)
{
    engine_tensor *t = e->way.tensor;
    const unsigned parts = first < e->b.n_ops ? parts_read(e, first, r) : (1u << r->shape.n) - 1;

    if (parts)
        exchange(e, r, parts);
    *r = t->live[--t->n_live];
}

static int is_kept(const void *at, const void *const *keep, int n)
{
    for (int i = 0; i < n; i++)
        if (keep[i] == at)
            return 1;
    return 0;
}

void tensor_settle(kvant_engine *e, int i, const void *const *keep, int n)
{
    engine_tensor *t = e->way.tensor;
    const op_operands list = op_operands_of(e->ops[i].id, e->ops[i].args);

    for (int k = 0; k < list.n; k++) {
        const op_operand *o = &list.list[k];
        if (!o->at || o->access == OPERAND_WEIGHT || is_kept(o->at, keep, n))
            continue;
        for (int j = t->n_live - 1; j >= 0; j--) {
            const op_operand all = columns(&t->live[j], 0, all_columns(&t->live[j]));
            if (!operands_apart(o, &all))
                gather(e, i, &t->live[j]);
        }
    }
}

void tensor_mark(engine_tensor *t, const tensor_rows *r)
{
    if (t->n_live == TENSOR_LIVE)
        t->error = 1;
    else
        t->live[t->n_live++] = *r;
}

/* ---- the program ---- */

/* All that the op writes is output of the model. */
static int is_last(const kvant_engine *e, const kvant_op *op)
{
    const op_operands list = op_operands_of(op->id, op->args);
    int n = 0;

    for (int k = 0; k < list.n; k++)
        if (list.list[k].at && list.list[k].access != OPERAND_WEIGHT && (list.list[k].access & OPERAND_WRITE)) {
            if (!is_output(e, list.list[k].at))
                return 0;
            n++;
        }
    return n > 0;
}

static void whole(kvant_engine *e, int i)
{
    const kvant_op *op = &e->ops[i];
    const int n = is_last(e, op) ? 1 : e->way.tensor->n;

    tensor_settle(e, i, NULL, 0);
    for (int place = 0; place < n; place++)
        tensor_put(e->way.tensor, place, op->id, tensor_args(e, place, op));
}

int tensor_check(const kvant_engine *e, kvant_diag *diag)
{
    const engine_tensor *t = e->way.tensor;

    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->place[i].n; k++)
            KVANT_TRY(kvant_op_check(t->place[i].ops[k].id, t->place[i].ops[k].args, diag));
    return KVANT_OK;
}

int tensor_cut(kvant_engine *e, kvant_diag *diag)
{
    static const char *const texts[] = { "", "too many ops", "memory that no device has",
                                         "an exchange that is larger than its memory" };
    engine_tensor *t = e->way.tensor;
    int last = 0;

    arena_reset(&t->args);
    t->n_exchange = t->n_live = t->error = 0;
    t->touched.n = TENSOR_TOUCHED + 1; /* nobody knows what the program before used last */
    for (int i = 0; i < t->n; i++)
        t->place[i].n = 0;
    for (int i = 0; i < e->b.n_ops && !t->error; i++) {
        if (!tensor_op(e, i))
            whole(e, i);
        touch(e, i);
        last = i;
    }
    for (int i = t->n_live - 1; i >= 0; i--)
        if (is_output(e, t->live[i].base))
            gather(e, e->b.n_ops, &t->live[i]);
    if (!t->error)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINTERNAL, "tensor split: op %d of %d, %s: %s", last, e->b.n_ops,
                      kvant_op_get(e->ops[last].id)->name, texts[t->error]);
}
