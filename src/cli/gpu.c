/* gpu.c: --device auto, -ngl where no device is named, and neither: which device of this machine that is.  Notes say
 * which was found, and why another was not taken: nobody runs on a slower device without knowing. */
#include <string.h>
#include "base/log.h"
#include "cli/common.h"
#include "kvant/fit.h"

static void note(void *user, const char *device, const char *why, int no_gpu)
{
    (void)user;
    log_msg(LOG_INFO, no_gpu ? "device auto: not %s: %s is no GPU" : "device auto: not %s: %s", device, why);
}

/* On the CPU alone answers do not depend on what else runs. */
static int wants_cpu(const opts *o)
{
    return o->cmd == CMD_INSPECT || !opt_takes(opt_at(OPT_NGL), o->cmd) ||
           (opt_takes(opt_at(OPT_DETERMINISTIC), o->cmd) && opt_flag(o, OPT_DETERMINISTIC));
}

static void take_default(opts *o)
{
    int passed_over;

    if (wants_cpu(o))
        return;
    const char *device = kvant_fit_device(&passed_over, note, NULL);
    if (passed_over)
        log_msg(LOG_INFO, "device cpu, although this machine has a GPU: --device auto tries others (--device cpu: no note)");
    if (device_is_cpu(device))
        return;
    log_msg(LOG_INFO, "device %s, because this machine has a GPU (--device cpu: the CPU)", device);
    o->v[OPT_DEVICE].text = device;
}

/* -ngl wants one of these: no GPU, whatever there is, or a GPU. */
enum { NO_GPU, ANY, A_GPU };

static int wanted(const opts *o)
{
    if (!opt_takes(opt_at(OPT_NGL), o->cmd) || opt_is(o, OPT_NGL, "auto"))
        return ANY;
    return opt_is(o, OPT_NGL, "0") ? NO_GPU : A_GPU;
}

static int check_layers(const opts *o, kvant_diag *diag)
{
    const char *ngl = opt_str(o, OPT_NGL);
    const size_t sign = ngl[0] == '-', digits = strspn(ngl + sign, "0123456789");

    if ((digits > 0 && !ngl[sign + digits]) || strcmp(ngl, "auto") == 0 || strcmp(ngl, "all") == 0)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.20s\", wanted a number, auto or all", opt_origin(o, OPT_NGL),
                      ngl);
}

int choose_device(opts *o, kvant_diag *diag)
{
    const int named = opt_given(o, OPT_DEVICE), want = wanted(o);

    if (!opt_takes(opt_at(OPT_DEVICE), o->cmd))
        return KVANT_OK;
    KVANT_TRY(check_layers(o, diag));
    if (named && want == A_GPU && device_is_cpu(opt_str(o, OPT_DEVICE)))
        return kvant_fail(diag, KVANT_EDEVICE, "%s %.20s: no GPU device is chosen; wanted 0 or auto, or --device cuda",
                          opt_origin(o, OPT_NGL), opt_str(o, OPT_NGL));
    if (!named && want == ANY)
        take_default(o);
    if (named ? !opt_is(o, OPT_DEVICE, "auto") : want != A_GPU)
        return KVANT_OK;
    const char *gpu = want == NO_GPU ? NULL : kvant_fit_gpu(note, NULL);
    if (!gpu && want == A_GPU)
        return kvant_fail(diag, KVANT_EDEVICE,
                          "%s %.20s: no GPU that this build can use; wanted 0 or auto, or a --device that "
                          "kvant --list-devices shows",
                          opt_origin(o, OPT_NGL), opt_str(o, OPT_NGL));
    log_msg(LOG_INFO, "device auto: %s", gpu ? gpu : "cpu");
    o->v[OPT_DEVICE].text = gpu ? gpu : "cpu";
    return KVANT_OK;
}
