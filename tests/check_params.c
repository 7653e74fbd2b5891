/* check_params: parameter structs that begin with their size, as programs built with an older or a newer header have
 * them; the version as a number, the log hook and the progress callback of kvant_engine_create. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kvant/kvant.h"
#include "support/check.h"

/* A later version's struct: this library's and a field more. */
typedef struct later {
    kvant_engine_params p;
    int64_t more;
} later;
static const char *const tiny = "tests/golden/tiny/qwen3.gguf";

static kvant_model *opened(void)
{
    kvant_model_params mp = kvant_model_defaults();
    kvant_model *m = NULL;
    mp.path = tiny;
    CHECK(kvant_model_open(&mp, &m, NULL) == KVANT_OK, "open");
    return m;
}

static void check_older(const kvant_model *m)
{
    unsigned char block[sizeof(kvant_engine_params)];
    kvant_engine_params *old = malloc(sizeof *old);
    const size_t size = offsetof(kvant_engine_params, progress); /* before this field was there */
    kvant_plan plan, same;
    kvant_engine_params p = kvant_engine_defaults();

    memset(block, 0x5A, sizeof block);
    memcpy(old, block, sizeof block);
    kvant_engine_params_init(old, size);
    CHECK(memcmp((char *)old + size, block + size, sizeof block - size) == 0, "init wrote beyond the caller's struct");
    CHECK(old->size == size && old->kv_tail == -1 && old->n_ctx == 0, "size %zu, tail %d", old->size, old->kv_tail);
    p.n_ctx = old->n_ctx = 256;
    CHECK(kvant_plan_make(m, old, &plan, NULL) == KVANT_OK, "an older struct");
    CHECK(kvant_plan_make(m, &p, &same, NULL) == KVANT_OK && memcmp(&plan, &same, sizeof plan) == 0, "another plan");
    free(old);
}

static void check_newer(const kvant_model *m)
{
    kvant_diag d = { "" };
    kvant_plan plan;
    later l;

    kvant_engine_params_init(&l.p, sizeof l);
    CHECK(l.p.size == sizeof l && l.more == 0, "size %zu", l.p.size);
    l.p.n_ctx = 256;
    CHECK(kvant_plan_make(m, &l.p, &plan, &d) == KVANT_OK, "%s", d.text);
    l.more = 1;
    CHECK(kvant_plan_make(m, &l.p, &plan, &d) == KVANT_EUNSUPPORTED && strstr(d.text, "older than the header"), "%s",
          d.text);
}

static void check_refused(const kvant_model *m)
{
    const size_t bad[] = { 0, 8, (size_t)-1 };
    kvant_engine_params p = kvant_engine_defaults();
    kvant_sampler_params sp = kvant_sampler_defaults();
    kvant_model_params mp = { .path = tiny };
    kvant_sampler *s = NULL;
    kvant_model *other = NULL;
    kvant_plan plan;
    kvant_diag d = { "" };

    for (int i = 0; i < 3; i++) {
        p.size = bad[i];
        CHECK(kvant_plan_make(m, &p, &plan, &d) == KVANT_EINVAL && strstr(d.text, "kvant_engine_params.size"), "%s",
              d.text);
    }
    sp.size = 0;
    CHECK(kvant_sampler_create(&sp, 10, &s, &d) == KVANT_EINVAL && strstr(d.text, "kvant_sampler_params.size"), "%s",
          d.text);
    CHECK(kvant_model_open(&mp, &other, &d) == KVANT_EINVAL && strstr(d.text, "kvant_model_params.size"), "%s", d.text);
}

typedef struct seen {
    int calls;
    int64_t done, total;
    int stop_at;
} seen;

static int loaded(void *user, int64_t done, int64_t total)
{
    seen *s = user;
    CHECK(done > s->done && done <= total && (s->calls == 0 || total == s->total), "%lld of %lld", (long long)done,
          (long long)total);
    *s = (seen){ s->calls + 1, done, total, s->stop_at };
    return s->calls == s->stop_at;
}

static void check_progress(kvant_model *m)
{
    kvant_engine_params p = kvant_engine_defaults();
    kvant_engine *e = NULL;
    kvant_diag d = { "" };
    seen s = { 0 };

    p.n_ctx = 64;
    p.progress = loaded;
    p.progress_user = &s;
    CHECK(kvant_engine_create(m, &p, &e, &d) == KVANT_OK, "%s", d.text);
    CHECK(s.calls > 2 && s.done == s.total, "%d calls, %lld of %lld", s.calls, (long long)s.done, (long long)s.total);
    kvant_engine_free(e);
    s = (seen){ .stop_at = 2 };
    CHECK(kvant_engine_create(m, &p, &e, &d) == KVANT_ECANCELED && s.calls == 2, "%s", d.text);
}

static void listen(void *user, int level, const char *text)
{
    char *out = user;
    CHECK(level == KVANT_LOG_WARN, "level %d", level);
    strcpy(out, text);
}

static void check_log(void)
{
    char text[2048] = "";

    kvant_log_set(listen, text, KVANT_LOG_WARN);
    log_msg(LOG_INFO, "too quiet");
    log_msg(LOG_WARN, "heard %d\n", 7);
    CHECK(strcmp(text, "heard 7\\n") == 0, "%s", text);
    kvant_log_set(NULL, NULL, 0);
    log_msg(LOG_WARN, "nobody");
    CHECK(strcmp(text, "heard 7\\n") == 0, "%s", text);
}

int main(void)
{
    kvant_model *m = opened();
    char text[32];

    snprintf(text, sizeof text, "%d.%d.%d", KVANT_VERSION_MAJOR, KVANT_VERSION_MINOR, KVANT_VERSION_PATCH);
    CHECK(kvant_version() == KVANT_VERSION && strncmp(kvant_version_text(), text, strlen(text)) == 0, "%d %s",
          kvant_version(), kvant_version_text());
    check_older(m);
    check_newer(m);
    check_refused(m);
    check_progress(m);
    check_log();
    kvant_model_close(m);
    return check_end("check_params");
}
