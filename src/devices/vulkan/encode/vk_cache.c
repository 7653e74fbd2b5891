/* vk_cache.c: cache_write, page_seal, cache_read. */
#include "devices/page_units.h"
#include "devices/vulkan/encode/vk_pages.h"

enum { PLAIN_RUN = 4 };            /* values of a unit of a format without groups: few, so that threads are many */

/* The unit that one thread (or workgroup) encodes. */
typedef struct vk_unit {
    int width, bytes, n, by_group;
} vk_unit;

static vk_unit unit_of(const vk_side *s)
{
    const vk_card *c = &s->card;
    if (c->encoder == VK_ENCODE_PAGE)      /* the exact tail alone is written a row at a time */
        return (vk_unit){ PLAIN_RUN, 0, (s->d + PLAIN_RUN - 1) / PLAIN_RUN, 0 };
    const int run = c->encoder == VK_ENCODE_FLOAT ? PLAIN_RUN : 1;
    const int by_group = c->encoder == VK_ENCODE_TRELLIS || c->encoder == VK_ENCODE_SKETCH;
    vk_unit u = { run * c->unit, run * c->unit_bytes, 0, by_group };
    u.n = (s->dp + u.width - 1) / u.width;
    return u;
}

static void write_specs(vk_call *c, const vk_side *s, const vk_unit *u)
{
    vk_spec(c, (uint32_t)s->fmt);
    vk_spec(c, s->s->encoder == KVANT_ENCODER_BEST);
    vk_spec(c, (uint32_t)u->width);
    vk_spec(c, (uint32_t)u->bytes);
    vk_spec(c, s->card.book);
    vk_spec(c, s->card.encode);
    vk_spec(c, (uint32_t)s->card.encoder);
}

static uint64_t unit_groups(const vk_unit *u, uint64_t rows)
{
    const uint64_t units = rows * (uint64_t)u->n;
    return u->by_group ? units : (units + VK_GROUP - 1) / VK_GROUP;
}

static int write_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = args;
    KVANT_TRY(vk_side_supports(d, &a->side, a->d, diag));
    return vk_fits("cache_write", (int64_t)a->seqs.n_tokens * a->ldx, diag);
}

static int write_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = args;
    const kvant_seqs *q = &a->seqs;
    const int tail = a->side.tail && q->tail_table;
    vk_side s;
    vk_call c;

    if (q->n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(vk_side_of(d, &a->side, a->d, &s, diag));
    const vk_unit u = unit_of(&s);
    vk_call_begin(&c, VK_SHADER_cache_write);
    vk_ptr(&c, a->x, (size_t)((q->n_tokens - 1) * a->ldx + (int64_t)a->h * a->d) * 4, VK_READ);
    vk_side_pages(d, &c, &s, VK_WRITE);
    vk_side_tail(d, &c, &s, VK_WRITE);
    vk_books_ptr(d, &c);
    vk_side_param(&c, &s);
    vk_seqs_ptr(&c, q, tail);
    vk_uint(&c, q->n_tokens);
    vk_uint(&c, q->n_seqs);
    vk_uint(&c, q->table_stride);
    vk_uint(&c, a->ldx);
    vk_uint(&c, a->h);
    vk_uint(&c, a->d);
    vk_uint(&c, u.n);
    vk_side_strides(&c, &s);
    vk_uint(&c, tail);
    vk_uint(&c, s.factor);
    write_specs(&c, &s, &u);
    return vk_dispatch(d, l, &c, unit_groups(&u, (uint64_t)q->n_tokens * (uint64_t)a->h), 1, 1, diag);
}

static int seal_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = args;
    return vk_side_supports(d, &a->side, a->d, diag);
}

static size_t seal_scratch(vk_device *d, const void *args)
{
    const kvant_page_seal_args *a = args;
    (void)d;
    return page_units_scratch(a);
}

static int seal_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = args;
    vk_side s;
    vk_call c;

    if (a->n <= 0)
        return KVANT_OK;
    KVANT_TRY(vk_side_of(d, &a->side, a->d, &s, diag));
    if (vk_paged(&s))
        return vk_pages_seal(d, l, a, diag);
    const vk_unit u = unit_of(&s);
    vk_call_begin(&c, VK_SHADER_page_seal);
    vk_side_pages(d, &c, &s, VK_WRITE);
    vk_side_tail(d, &c, &s, VK_READ);
    vk_books_ptr(d, &c);
    vk_side_param(&c, &s);
    vk_ptr(&c, a->src, (size_t)a->n * 4, VK_READ);
    vk_ptr(&c, a->dst, (size_t)a->n * 4, VK_READ);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_uint(&c, a->d);
    vk_uint(&c, u.n);
    vk_side_strides(&c, &s);
    vk_uint(&c, s.factor);
    write_specs(&c, &s, &u);
    return vk_dispatch(d, l, &c, unit_groups(&u, (uint64_t)a->n * KVANT_PAGE * (uint64_t)a->h), 1, 1, diag);
}

static int read_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_read_args *a = args;
    KVANT_TRY(vk_side_supports(d, &a->side, a->d, diag));
    return vk_fits("cache_read", (int64_t)a->n * a->h * a->d, diag);
}

static int read_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_cache_read_args *a = args;
    vk_side s;
    vk_call c;

    if (a->n <= 0)
        return KVANT_OK;
    KVANT_TRY(vk_side_of(d, &a->side, a->d, &s, diag));
    vk_call_begin(&c, VK_SHADER_cache_read);
    vk_side_pages(d, &c, &s, VK_READ);
    vk_ptr(&c, a->page, (size_t)a->n * 4, VK_READ);
    vk_ptr(&c, a->row, (size_t)a->n * 4, VK_READ);
    vk_ptr(&c, a->y, (size_t)a->n * (size_t)(a->h * a->d) * 4, VK_WRITE);
    vk_books_ptr(d, &c);
    vk_side_param(&c, &s);
    vk_uint(&c, a->n);
    vk_uint(&c, a->h);
    vk_side_strides(&c, &s);
    vk_uint(&c, s.factor);
    vk_spec(&c, (uint32_t)s.fmt);
    vk_spec(&c, (uint32_t)s.card.space);
    vk_spec(&c, (uint32_t)s.d);
    vk_spec(&c, (uint32_t)s.dp);
    vk_spec(&c, (uint32_t)s.sdim);
    vk_spec(&c, s.card.book);
    vk_spec(&c, s.card.decode);
    return vk_dispatch(d, l, &c, (uint64_t)a->n * (uint64_t)a->h, 1, 1, diag);
}

const vk_op vk_op_cache_write = { .supports = write_supports, .run = write_run };
const vk_op vk_op_page_seal = { .supports = seal_supports, .scratch = seal_scratch, .run = seal_run };
const vk_op vk_op_cache_read = { .supports = read_supports, .run = read_run };
