/* placement.c: llama.cpp's options that lay a model out over devices.  kvant gives whole layers to devices (-dev A,B,
 * -ts, -ngl N), parts of every layer (-sm tensor) and routed experts apart from them (-ot, --cpu-moe, --n-cpu-moe):
 * what that already gives is a note, what a user would miss is an error that says what to do. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/log.h"
#include "cli/common.h"

int several_devices(const opts *o)
{
    return opt_str(o, OPT_DEVICE) && strchr(opt_str(o, OPT_DEVICE), ',') != NULL;
}

static int missed(const opts *o, int id, const char *wanted, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s %.80s: several devices have whole layers, or a part of every one; wanted %s",
                      opt_origin(o, id), opt_str(o, id) ? opt_str(o, id) : "", wanted);
}

/* Shares with commas or slashes between; at most one that is not 0. */
static int check_shares(const opts *o, kvant_diag *diag)
{
    const char *s = opt_str(o, OPT_TENSOR_SPLIT);
    int devices = 0;

    for (char *end = NULL;; s = end + 1) {
        const double share = strtod(s, &end);
        if (end == s || !(share >= 0 && share <= 1e6) || !strchr(",/", *end))
            return kvant_fail(diag, KVANT_EINVAL, "%s: \"%.60s\", wanted shares such as 3,1",
                              opt_origin(o, OPT_TENSOR_SPLIT), opt_str(o, OPT_TENSOR_SPLIT));
        devices += share > 0;
        if (!*end)
            break;
    }
    if (devices == 0)
        return kvant_fail(diag, KVANT_EINVAL, "%s: \"%.60s\", wanted one share above 0",
                          opt_origin(o, OPT_TENSOR_SPLIT), opt_str(o, OPT_TENSOR_SPLIT));
    if (devices < 2)
        return KVANT_OK;
    return missed(o, OPT_TENSOR_SPLIT, "one share (--device chooses whose), or as many devices: -dev A,B", diag);
}

/* The one device is this machine's CPU, and none that only has its name for tests (cpu:1). */
static int is_cpu_alone(const opts *o)
{
    return !opt_str(o, OPT_DEVICE) || opt_is(o, OPT_DEVICE, "cpu");
}

/* Rules that all name the CPU say nothing where it is the one device. */
static int rules_of_cpu(const opts *o)
{
    char item[256];

    for (int i = 0; opt_item(o, OPT_OVERRIDE_TENSOR, i, item, sizeof item); i++) {
        const char *eq = strrchr(item, '=');
        if (!eq || eq == item || strcasecmp(eq + 1, "cpu") != 0)
            return 0;
    }
    return is_cpu_alone(o);
}

/* Nobody says where layers and experts are. */
static int is_free(const opts *o)
{
    static const int ids[] = { OPT_OVERRIDE_TENSOR, OPT_CPU_MOE, OPT_CPU_MOE_LAYERS };

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (opt_given(o, ids[i]))
            return 0;
    return !is_cpu_alone(o) && opt_is(o, OPT_FIT, "on") && opt_is(o, OPT_NGL, "auto");
}

void placement_from_opts(const opts *o, kvant_engine_params *p)
{
    char item[64];

    if (!opt_takes(opt_at(OPT_CPU_MOE), o->cmd))
        return;
    if (opt_given(o, OPT_OVERRIDE_TENSOR) && !rules_of_cpu(o))
        p->tensors = opt_str(o, OPT_OVERRIDE_TENSOR);
    p->split_tensors = several_devices(o) && opt_given(o, OPT_SPLIT_MODE) && opt_is(o, OPT_SPLIT_MODE, "tensor");
    if (is_free(o))
        p->cpu_experts = -1;
    else if (!is_cpu_alone(o))
        p->cpu_experts = opt_flag(o, OPT_CPU_MOE) ? INT_MAX : (int)opt_int(o, OPT_CPU_MOE_LAYERS);
    for (int i = 0; i < KVANT_MOST_DEVICES && opt_item(o, OPT_DEVICE_MEMORY, i, item, sizeof item); i++)
        opt_parse_size(item, &p->device_memory[i]);
}

/* Sizes, one for each device. */
static int check_device_memory(const opts *o, kvant_diag *diag)
{
    int devices = 1, n = 0;
    char item[64];
    int64_t v;

    for (const char *s = opt_str(o, OPT_DEVICE); s && (s = strchr(s, ',')); s++)
        devices++;
    for (; opt_item(o, OPT_DEVICE_MEMORY, n, item, sizeof item); n++)
        if (!opt_parse_size(item, &v) || v <= 0)
            return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.40s\", wanted sizes such as 24G, or 24G,12G",
                              opt_origin(o, OPT_DEVICE_MEMORY), item);
    if (n == devices)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "%s: %d sizes for %d devices, wanted one for each",
                      opt_origin(o, OPT_DEVICE_MEMORY), n, devices);
}

/* 1: these options have an effect, which the engine checks. */
static int moves_experts(const opts *o, int id)
{
    if (id == OPT_OVERRIDE_TENSOR)
        return !rules_of_cpu(o);
    return (id == OPT_CPU_MOE || id == OPT_CPU_MOE_LAYERS) && !is_cpu_alone(o);
}

static int is_harmless(const opts *o, int id, kvant_diag *diag)
{
    switch (id) {
    case OPT_SPLIT_MODE:
        if (several_devices(o))
            return opt_is(o, id, "layer") || opt_is(o, id, "tensor") ? KVANT_OK
                                                                     : missed(o, id, "layer or tensor", diag);
        return opt_is(o, id, "row") ? missed(o, id, "none, layer or tensor", diag) : KVANT_OK;
    case OPT_TENSOR_SPLIT: return check_shares(o, diag);
    case OPT_MAIN_GPU:
        return opt_int(o, id) == 0 ? KVANT_OK : missed(o, id, "--device with that number (cuda:1)", diag);
    default: return KVANT_OK;
    }
}

/* Numbers of a report: what is none would be no rate, and no time of a token. */
static int check_bandwidth(const opts *o, kvant_diag *diag)
{
    char item[32], *end;

    for (int i = 0; opt_item(o, OPT_BANDWIDTH, i, item, sizeof item); i++) {
        const double rate = strtod(item, &end);
        if (end == item || *end || !(rate > 0 && rate < 1e9))
            return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%s\", wanted gigabytes per second above 0, one for each "
                              "device", opt_origin(o, OPT_BANDWIDTH), item);
    }
    return KVANT_OK;
}

int placement_check(const opts *o, kvant_diag *diag)
{
    const struct {
        int id, given;
    } rows[] = {
        { OPT_SPLIT_MODE, opt_given(o, OPT_SPLIT_MODE) },
        { OPT_TENSOR_SPLIT, opt_given(o, OPT_TENSOR_SPLIT) },
        { OPT_MAIN_GPU, opt_given(o, OPT_MAIN_GPU) },
        { OPT_OVERRIDE_TENSOR, opt_given(o, OPT_OVERRIDE_TENSOR) },
        { OPT_CPU_MOE_LAYERS, opt_given(o, OPT_CPU_MOE_LAYERS) },
        { OPT_CPU_MOE, opt_given(o, OPT_CPU_MOE) },
    };

    KVANT_TRY(check_bandwidth(o, diag));
    if (opt_given(o, OPT_DEVICE_MEMORY))
        KVANT_TRY(check_device_memory(o, diag));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i].given || (rows[i].id == OPT_TENSOR_SPLIT && several_devices(o)) || moves_experts(o, rows[i].id))
            continue; /* the engine's */
        KVANT_TRY(is_harmless(o, rows[i].id, diag));
        if (!several_devices(o))
            log_msg(LOG_INFO, "%s: no effect: the one device is %s", opt_origin(o, rows[i].id),
                    opt_str(o, OPT_DEVICE) ? opt_str(o, OPT_DEVICE) : "cpu");
    }
    return KVANT_OK;
}
