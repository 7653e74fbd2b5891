/* memory.c: what an engine of a command may take of this machine's memory, or of a device's (rules: kvant/fit.h). */
#include <stdlib.h>
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

int64_t engine_memory(const kvant_engine_params *p)
{
    const int64_t devices = device_memory(p->device), cpu = p->gpu_layers > 0 ? device_memory(NULL) : 0;

    return devices < 0 || cpu < 0 ? -1 : devices + cpu;
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
    const int given = p->n_ctx;

    KVANT_TRY(kvant_fit_whole(m, engine_memory(p), p, NULL, diag));
    tell_context(m, given, p->n_ctx);
    return create_engine(m, p, loading_interrupted, NULL, e, diag);
}
