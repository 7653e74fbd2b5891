/* vk_pages.c: page_seal of the formats of page scope: three shaders over units of 128 values of a head of a page
 * (pages.glsl says what they do); what they hand on lies in scratch memory, of so many units at a time. */
#include "devices/vulkan/encode/vk_pages.h"
#include "devices/page_units.h"

typedef struct pages_job {
    const kvant_page_seal_args *a;
    vk_side s;
    int64_t first, n, groups;              /* units of this turn; those of a head */
    void *work, *states;
} pages_job;

static int mean(vk_device *d, vk_list *l, const pages_job *p, kvant_diag *diag)
{
    const kvant_page_seal_args *a = p->a;
    vk_call c;

    vk_call_begin(&c, VK_SHADER_pages_mean);
    vk_side_tail(d, &c, &p->s, VK_READ);
    vk_ptr(&c, p->work, (size_t)p->n * PAGE_UNIT_WORK, VK_WRITE);
    vk_books_ptr(d, &c);
    vk_ptr(&c, a->src, (size_t)a->n * 4, VK_READ);
    vk_uint(&c, p->n);
    vk_uint(&c, p->first);
    vk_uint(&c, a->h);
    vk_uint(&c, a->d);
    vk_uint(&c, p->groups);
    return vk_dispatch(d, l, &c, (uint64_t)p->n, 1, 1, diag);
}

static void book(vk_call *c, const pages_job *p)
{
    vk_spec(c, (uint32_t)p->s.card.bits);
    vk_spec(c, p->s.card.book);
}

static int walk(vk_device *d, vk_list *l, const pages_job *p, kvant_diag *diag)
{
    vk_call c;

    vk_call_begin(&c, VK_SHADER_pages_walk);
    vk_ptr(&c, p->work, (size_t)p->n * PAGE_UNIT_WORK, VK_WRITE);
    vk_ptr(&c, p->states, (size_t)p->n * PAGE_UNIT_STATES, VK_WRITE);
    vk_books_ptr(d, &c);
    vk_uint(&c, p->n * KVANT_PAGE);
    vk_uint(&c, p->groups);
    vk_uint(&c, p->a->h);
    book(&c, p);
    return vk_dispatch(d, l, &c, (uint64_t)p->n * KVANT_PAGE, 1, 1, diag);
}

static int pack(vk_device *d, vk_list *l, const pages_job *p, kvant_diag *diag)
{
    const kvant_page_seal_args *a = p->a;
    vk_call c;

    vk_call_begin(&c, VK_SHADER_pages_pack);
    vk_side_pages(d, &c, &p->s, VK_WRITE);
    vk_ptr(&c, p->work, (size_t)p->n * PAGE_UNIT_WORK, VK_READ);
    vk_ptr(&c, p->states, (size_t)p->n * PAGE_UNIT_STATES, VK_READ);
    vk_books_ptr(d, &c);
    vk_ptr(&c, a->dst, (size_t)a->n * 4, VK_READ);
    vk_uint(&c, p->n);
    vk_uint(&c, p->first);
    vk_uint(&c, a->h);
    vk_uint(&c, p->groups);
    vk_side_strides(&c, &p->s);
    book(&c, p);
    return vk_dispatch(d, l, &c, (uint64_t)p->n, 1, 1, diag);
}

int vk_pages_seal(vk_device *d, vk_list *l, const kvant_page_seal_args *a, kvant_diag *diag)
{
    const int64_t units = page_units_of(a), per = page_units_at_once(a);
    pages_job p = { .a = a, .work = d->scratch, .states = (char *)d->scratch + per * PAGE_UNIT_WORK };

    KVANT_TRY(vk_side_of(d, &a->side, a->d, &p.s, diag));
    p.groups = p.s.dp / PAGE_UNIT;
    for (p.first = 0; p.first < units; p.first += per) {
        p.n = units - p.first < per ? units - p.first : per;
        KVANT_TRY(mean(d, l, &p, diag));
        KVANT_TRY(walk(d, l, &p, diag));
        KVANT_TRY(pack(d, l, &p, diag));
    }
    return KVANT_OK;
}
