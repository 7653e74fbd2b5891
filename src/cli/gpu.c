/* gpu.c: --device auto, -ngl where no device is named, and neither: which device of this machine that is.  Notes say
 * which was found, and why another was not taken: nobody runs on a slower device without knowing. */
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "cli/common.h"
#include "devices/device.h"

/* Notes why a device is no GPU; ctx: whether it is one. */
static void look(void *ctx, const char *name, kvant_device *d, const char *why)
{
    const int software = d && d->vt->is_software && d->vt->is_software(d);
    char about[256];

    *(int *)ctx = d && !software;
    if (!d)
        log_msg(LOG_INFO, "device auto: not %s: %s", name, why);
    if (!software)
        return;
    d->vt->describe(d, about, sizeof about);
    log_msg(LOG_INFO, "device auto: not %s: %s is no GPU", name, about);
}

static int is_gpu(const kvant_device_vt *vt)
{
    int gpu = 0;

    if (strcmp(vt->name, "cpu") != 0)
        one_device(vt, 0, vt->name, look, &gpu);
    return gpu;
}

/* Finds the first GPU by the order of devices.def, which puts the fastest of several devices for one GPU first; of each
 * kind the first counts, because loaders put software drivers last.  NULL: none. */
static const char *find_gpu(void)
{
    for (int i = 0; i < kvant_devices_count(); i++)
        if (is_gpu(kvant_devices_at(i)))
            return kvant_devices_at(i)->name;
    return NULL;
}

/* The default is an NVIDIA GPU by CUDA, whose kernels were run on one.  Device files of the Linux kernel are checked
 * first: opening a driver takes time. */
static const char *find_default(void)
{
    const int nvidia = access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
    const kvant_device_vt *vt;
    int index = 0;

    if (nvidia && kvant_device_find("cuda", &vt, &index, NULL) == KVANT_OK && is_gpu(vt))
        return vt->name;
    if (nvidia || access("/dev/dri/renderD128", F_OK) == 0)
        log_msg(LOG_INFO, "device cpu, although this machine has a GPU: --device auto tries others (--device cpu: no note)");
    return NULL;
}

/* On the CPU alone answers do not depend on what else runs. */
static int wants_cpu(const opts *o)
{
    return o->cmd == CMD_INSPECT || !opt_takes(opt_at(OPT_NGL), o->cmd) ||
           (opt_takes(opt_at(OPT_DETERMINISTIC), o->cmd) && opt_flag(o, OPT_DETERMINISTIC));
}

static void take_default(opts *o)
{
    const char *gpu = wants_cpu(o) ? NULL : find_default();

    if (!gpu)
        return;
    log_msg(LOG_INFO, "device %s, because this machine has a GPU (--device cpu: the CPU)", gpu);
    o->v[OPT_DEVICE].text = gpu;
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
    if (named && want == A_GPU && opt_is(o, OPT_DEVICE, "cpu"))
        return kvant_fail(diag, KVANT_EDEVICE, "%s %.20s: no GPU device is chosen; wanted 0 or auto, or --device cuda",
                          opt_origin(o, OPT_NGL), opt_str(o, OPT_NGL));
    if (!named && want == ANY)
        take_default(o);
    if (named ? !opt_is(o, OPT_DEVICE, "auto") : want != A_GPU)
        return KVANT_OK;
    const char *gpu = want == NO_GPU ? NULL : find_gpu();
    if (!gpu && want == A_GPU)
        return kvant_fail(diag, KVANT_EDEVICE,
                          "%s %.20s: no GPU that this build can use; wanted 0 or auto, or a --device that "
                          "kvant --list-devices shows",
                          opt_origin(o, OPT_NGL), opt_str(o, OPT_NGL));
    log_msg(LOG_INFO, "device auto: %s", gpu ? gpu : "cpu");
    o->v[OPT_DEVICE].text = gpu ? gpu : "cpu";
    return KVANT_OK;
}
