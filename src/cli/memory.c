/* memory.c: what an engine of a command may take of this machine's memory, or of a device's (rules: kvant/fit.h). */
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/log.h"
#include "cli/common.h"
#include "cli/term.h"
#include "kvant/fit.h"

/* KVANT_MEMORY=4G: a user's limit (and the tests' way to a small machine). */
static int64_t memory_limit(void)
{
    const char *s = getenv("KVANT_MEMORY");
    int64_t v;

    return s && *s && opt_parse_size(s, &v) && v > 0 ? v : 0;
}

int memory_limit_check(kvant_diag *diag)
{
    const char *s = getenv("KVANT_MEMORY");

    if (!s || !*s || memory_limit() > 0)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "KVANT_MEMORY: found \"%.40s\", wanted a size such as 6G", s);
}

int64_t device_memory(const char *device)
{
    return kvant_fit_memory(device, memory_limit());
}

static void at_most(int64_t *limit, int64_t bytes)
{
    if (bytes >= 0 && (*limit <= 0 || bytes < *limit))
        *limit = bytes;
}

void engine_memory(kvant_engine_params *p)
{
    const char *s = p->device ? p->device : "cpu";
    char name[64];

    for (int i = 0; i < KVANT_MOST_DEVICES && *s; i++) {
        const size_t n = strcspn(s, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, s);
        at_most(&p->device_memory[i], device_memory(name));
        s += n + (s[n] == ',');
    }
    at_most(&p->host_memory, device_memory(NULL));
}

void tell_placement(const kvant_model *m, const kvant_engine_params *p, int chosen)
{
    const int layers = kvant_model_get_info(m)->n_layer + 1;
    const int experts = p->cpu_experts < layers - 1 ? p->cpu_experts : layers - 1;
    kvant_plan_part part;
    char text[400], size[32];
    size_t used = 0;

    if (p->cpu_experts > 0 && kvant_model_get_info(m)->n_expert == 0)
        log_msg(LOG_INFO, "experts on the CPU: no effect: the model has none");
    if (!chosen || (p->cpu_experts <= 0 && p->gpu_layers == 0))
        return;
    for (int i = 0; used < sizeof text - 100 && kvant_plan_device(m, p, i, &part, NULL) == KVANT_OK; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.40s %s", i ? ", " : "", part.device,
                                 human_bytes(part.plan.total, size, sizeof size));
    if (p->gpu_layers > 0)
        log_msg(LOG_INFO, "placement: the model is larger than the device, which has %d of %d layers%s: %s", p->gpu_layers,
                layers, experts > 0 ? ", without routed experts" : "", text);
    else
        log_msg(LOG_INFO, "placement: the model is larger than the device; the CPU has the routed experts of %d of %d "
                "layers: %s", experts, layers - 1, text);
}

void tell_context(const kvant_model *m, int given, int n_ctx)
{
    const int train = kvant_model_get_info(m)->n_ctx_train;

    if (given == 0 && n_ctx < train)
        log_msg(LOG_INFO, "context: %d tokens, what fits in memory (training context %d)", n_ctx, train);
    if (given > train)
        log_msg(LOG_WARN, "context: %d tokens is more than the model was trained with (%d)", given, train);
}

/* A bar while weights are loaded, and the end of it. */
typedef struct loading {
    progress bar;
    int (*ended)(void *user);
    void *user;
} loading;

static int show_loading(void *user, int64_t done, int64_t total)
{
    loading *l = user;

    l->bar.total = total;
    progress_show(&l->bar, done);
    return l->ended(l->user);
}

int create_engine(kvant_model *m, const kvant_engine_params *p, int (*ended)(void *user), void *user, kvant_engine **e,
                  kvant_diag *diag)
{
    loading l = { .ended = ended, .user = user };
    kvant_engine_params q = *p;

    q.progress = show_loading;
    q.progress_user = &l;
    progress_start(&l.bar, "loading", 0);
    const int code = kvant_engine_create(m, &q, e, diag);
    progress_end(&l.bar);
    return code == KVANT_ECANCELED ? kvant_fail(diag, code, "stopped while the model was loaded") : code;
}

static int loading_interrupted(void *user)
{
    (void)user;
    return term_interrupted();
}

int open_engine(kvant_model *m, kvant_engine_params *p, kvant_engine **e, kvant_diag *diag)
{
    const int given = p->n_ctx, chosen = p->cpu_experts < 0;

    engine_memory(p);
    KVANT_TRY(kvant_fit_whole(m, -1, p, NULL, diag));
    tell_placement(m, p, chosen);
    tell_context(m, given, p->n_ctx);
    return create_engine(m, p, loading_interrupted, NULL, e, diag);
}
