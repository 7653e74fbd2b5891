/* create_ops.c: which ops the devices of an engine take fused, and which run as the ops that they are made of. */
#include <string.h>

#include "engine/engine.h"
#include "engine/tensor/tensor.h"

/* A place that does not take a fused op runs what it is made of, and 1 comes back: the program changes.  Other ops that
 * it lacks are named in missing[cap]. */
static int choose_op(engine_place *at, engine_place *first, const kvant_op *op, char *missing, size_t cap,
                     kvant_diag *why)
{
    const kvant_op_info *info = kvant_op_get(op->id);

    if (at->dev->vt->supports(at->dev, op, why) == KVANT_OK)
        return 0;
    if (info->fused[0] && first->fused[op->id])
        return first->fused[op->id] = 0, 1;
    if (!strstr(missing, info->name) && strlen(missing) + strlen(info->name) + 2 < cap)
        strcat(strcat(missing, " "), info->name);
    return 0;
}

/* Looks at every op of the sample program; parts of layers on several places have one program, the first place's. */
static int choose_all(kvant_engine *e, char *missing, size_t cap, kvant_diag *why)
{
    int changed = 0;

    for (int i = 0; !e->way.tensor && i < e->b.n_ops; i++) {
        engine_place *at = &e->place[engine_place_of_op(e, i)];
        changed |= choose_op(at, at, &e->ops[i], missing, cap, why);
    }
    for (int p = 0; e->way.tensor && p < e->split.n; p++)
        for (int i = 0; i < e->way.tensor->place[p].n; i++)
            changed |= choose_op(&e->place[p], &e->place[0], &e->way.tensor->place[p].ops[i], missing, cap, why);
    return changed;
}

int engine_choose_ops(kvant_engine *e, kvant_diag *diag)
{
    char missing[160] = "";
    kvant_diag why = { "" };

    for (int prompt = 0; prompt < 2; prompt++) {
        for (int again = 0, changed = 1; changed && again < 2; again++) {
            missing[0] = 0;
            KVANT_TRY(engine_sample_program(e, prompt ? KVANT_PAGE : 1, prompt, diag));
            changed = choose_all(e, missing, sizeof missing, &why);
        }
        if (missing[0])
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s cannot run:%s (%.60s)", e->p.device, missing,
                              why.text);
    }
    return KVANT_OK;
}
