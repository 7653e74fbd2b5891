/* gpu.c: --device auto, and -ngl where no device is named: which device of this machine that is.  What was found, and
 * why another was not taken, is said in notes: nobody runs on a slower device without knowing. */
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "cli/common.h"
#include "devices/device.h"

/* The first device of a kind, unless it is the CPU again; the loaders put software drivers last. */
static int is_gpu(const kvant_device_vt *vt)
{
    const kvant_device_config cfg = { 0, 0 };
    kvant_device *d = NULL;
    kvant_diag diag = { "" };
    char about[256];

    if (vt->open(&cfg, &d, &diag) != KVANT_OK) {
        log_msg(LOG_INFO, "device auto: not %s: %s", vt->name, diag.text);
        return 0;
    }
    const int gpu = !vt->is_software || !vt->is_software(d);
    vt->describe(d, about, sizeof about);
    vt->close(d);
    if (!gpu)
        log_msg(LOG_INFO, "device auto: not %s: %s is no GPU", vt->name, about);
    return gpu;
}

/* In the order of devices.def: what is fastest where several reach one GPU comes first.  NULL: none. */
static const char *find_gpu(void)
{
    for (int i = 0; i < kvant_devices_count(); i++)
        if (strcmp(kvant_devices_at(i)->name, "cpu") != 0 && is_gpu(kvant_devices_at(i)))
            return kvant_devices_at(i)->name;
    return NULL;
}

/* What a Linux kernel shows of GPUs; opening one would take a second. */
static void hint(void)
{
    if (access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dri/renderD128", F_OK) == 0)
        log_msg(LOG_INFO, "device cpu, although this machine has a GPU: --device auto takes it (--device cpu: no note)");
}

/* What -ngl wants: no GPU, whatever there is, or a GPU. */
enum { NO_GPU, ANY, A_GPU };

static int wanted(const opts *o)
{
    if (!opt_takes(opt_at(OPT_NGL), o->cmd) || opt_is(o, OPT_NGL, "auto"))
        return ANY;
    return opt_is(o, OPT_NGL, "0") ? NO_GPU : A_GPU;
}

int choose_device(opts *o, kvant_diag *diag)
{
    const int takes = opt_takes(opt_at(OPT_DEVICE), o->cmd), named = opt_given(o, OPT_DEVICE), want = wanted(o);

    if (takes && !named && want == ANY)
        hint();
    if (!takes || (named ? !opt_is(o, OPT_DEVICE, "auto") : want != A_GPU))
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
