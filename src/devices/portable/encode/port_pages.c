/* port_pages.c: page_seal of the formats of page scope: three kernels over units of 128 values of a head of a page
 * (pages.h says what they do); what they hand on lies in scratch memory, of so many units at a time. */
#include "devices/portable/encode/port_pages.h"
#include "devices/page_units.h"
#include "devices/portable/encode/encode_params.h"

/* n units from p->first on. */
static int seal(port_device *d, const kvant_page_seal_args *a, const port_side *s, const struct p_pages *p, int64_t n,
                kvant_diag *diag)
{
    const size_t work_bytes = (size_t)n * PAGE_UNIT_WORK, state_bytes = (size_t)n * PAGE_UNIT_STATES;
    void *work = d->scratch, *states = (char *)d->scratch + work_bytes;
    port_call mean = PORT_CALL(pages_mean, *p), walk = PORT_CALL(pages_walk, *p), pack = PORT_CALL(pages_pack, *p);

    port_side_tail(d, &mean, s, 0);
    port_write(&mean, work, work_bytes);
    port_read(&mean, a->src, (size_t)a->n * 4);
    port_write(&walk, work, work_bytes);
    port_write(&walk, states, state_bytes);
    port_side_pages(d, &pack, s, 1);
    port_read(&pack, work, work_bytes);
    port_read(&pack, states, state_bytes);
    port_read(&pack, a->dst, (size_t)a->n * 4);
    port_define(&mean, "FMT %s", s->card->name);
    port_define(&walk, "FMT %s", s->card->name);
    port_define(&pack, "FMT %s", s->card->name);
    KVANT_TRY(port_dispatch(d, &mean, n, 1, 1, diag));
    KVANT_TRY(port_dispatch(d, &walk, n * KVANT_PAGE, 1, 1, diag));
    return port_dispatch(d, &pack, n, 1, 1, diag);
}

int port_pages_seal(port_device *d, const kvant_page_seal_args *a, const port_side *s, kvant_diag *diag)
{
    const int64_t units = page_units_of(a), per = page_units_at_once(a);

    for (int64_t first = 0; first < units; first += per) {
        const struct p_pages p = {
            .page_bytes = (int64_t)a->side.page_bytes, .head_bytes = (int64_t)a->side.head_bytes, .first = first,
            .groups = s->dp / PAGE_UNIT, .h = a->h, .d = a->d,
        };
        KVANT_TRY(seal(d, a, s, &p, units - first < per ? units - first : per, diag));
    }
    return KVANT_OK;
}
