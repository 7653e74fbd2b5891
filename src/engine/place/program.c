/* program.c: the text of `inspect --program`: the ops of a decode step, and which of them a device runs as one. */
#include <stdio.h>

#include "base/text/sbuf.h"
#include "engine/engine.h"
#include "engine/tensor/tensor.h"
#include "ops/fuse/fuse.h"
#include "ops/operands.h"

/* Parts of layers on several devices: the first one's program. */
static int program_ops(const kvant_engine *e)
{
    return e->way.tensor ? e->way.tensor->place[0].n : e->b.n_ops;
}

static const kvant_op *program_op_at(const kvant_engine *e, int i)
{
    return e->way.tensor ? &e->way.tensor->place[0].ops[i] : &e->ops[i];
}

/* Columns are gathered before op i. */
static int exchanged(const kvant_engine *e, int i)
{
    for (int k = 0; e->way.tensor && k < e->way.tensor->n_exchange; k++)
        if (e->way.tensor->exchange[k].at[0] == i)
            return 1;
    return 0;
}

/* How many ops of the sample program, from op i on, its device runs as one; name: of the form, "" of a single op.
 * *id: of what runs before it, then of this. */
static int program_form(const kvant_engine *e, int i, int *id, const char **name)
{
    const int place = e->way.tensor ? 0 : engine_place_of_op(e, i);
    int n = 1;
    while (i + n < program_ops(e) && (e->way.tensor ? !exchanged(e, i + n) : engine_place_of_op(e, i + n) == place))
        n++;
    kvant_op op;
    n = device_next_op(e->place[place].dev, program_op_at(e, i), n, *id, &op);
    const fuse_form *form = fuse_get(op.id);
    *id = op.id;
    *name = form ? form->name : "";
    return n;
}

static void program_op(const kvant_engine *e, int i, const char *form, int part, int parts, sbuf *out)
{
    const kvant_op *op = program_op_at(e, i);
    const kvant_weight *w = op_weight_of(op->id, op->args);
    char more[64] = "";

    if (form[0])
        snprintf(more, sizeof more, "  [%.32s %d/%d]", form, part + 1, parts);
    if (exchanged(e, i))
        sbuf_printf(out, "     gather        columns of %d devices\n", e->split.n);
    if (w)
        sbuf_printf(out, "%4d %-13s %.48s %s%s\n", i, kvant_op_get(op->id)->name, w->name, w->type->name, more);
    else
        sbuf_printf(out, "%4d %-13s %s\n", i, kvant_op_get(op->id)->name, more);
}

/* Devices join more ops by their own code, which no list shows. */
static void program_own(const kvant_engine *e, sbuf *out)
{
    const char *name, *ops, *file;

    for (int d = 0; d < e->split.n; d++) {
        const char *device = e->place[d].dev->vt->name;
        for (int i = 0; fuse_own(device, i, &name, &ops, &file); i++)
            sbuf_printf(out, "%s may join: %s (%s in src/devices/%s/%s)\n", device, ops, name, device, file);
    }
}

int kvant_engine_program_text(kvant_engine *e, char **text, kvant_diag *diag)
{
    KVANT_TRY(engine_sample_program(e, 1, 0, diag));
    sbuf out = { 0 };
    for (int i = 0, id = 0; i < program_ops(e);) {
        const char *form;
        const int parts = program_form(e, i, &id, &form);
        for (int part = 0; part < parts; part++, i++)
            program_op(e, i, form, part, parts, &out);
    }
    program_own(e, &out);
    *text = out.s;
    if (!out.error)
        return KVANT_OK;
    sbuf_free(&out);
    return kvant_fail(diag, KVANT_ENOMEM, "program text: out of memory");
}
