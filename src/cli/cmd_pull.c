/* cmd_pull.c: `kvant pull`, and -hf of every command that takes a model: the face of hub_pull. */
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "cli/common.h"
#include "cli/term.h"
#include "hub/hub.h"

typedef struct pull_view {
    progress bar;
    char file[80];
} pull_view;

static int on_bytes(void *user, const char *file, int64_t done, int64_t total)
{
    pull_view *v = user;
    char size[32];

    if (strncmp(v->file, file, sizeof v->file - 1) != 0) {
        if (v->file[0])
            progress_end(&v->bar);
        snprintf(v->file, sizeof v->file, "%s", file);
        log_msg(LOG_INFO, "fetching %s, %s", file, human_bytes(total, size, sizeof size));
        progress_start(&v->bar, "pull", total);
    }
    progress_show(&v->bar, done);
    return 0;
}

static int is_interrupted(void *user)
{
    (void)user;
    return term_interrupted();
}

static int pull(const opts *o, const char *repo, const char *file, const char *instead, char path[HUB_PATH],
                kvant_diag *diag)
{
    pull_view v = { .file = "" };
    const hub_ask ask = { .repo = repo,
                          .file = file,
                          .instead = instead,
                          .offline = opt_flag(o, OPT_OFFLINE),
                          .progress = on_bytes,
                          .ended = is_interrupted,
                          .user = &v };

    term_catch_interrupt();
    const int code = hub_pull(&ask, path, diag);
    if (v.file[0])
        progress_end(&v.bar);
    return code;
}

int pull_repo(const opts *o, const char *repo, char path[HUB_PATH], kvant_diag *diag)
{
    return pull(o, repo, NULL, NULL, path, diag);
}

int cmd_pull(const opts *o, kvant_diag *diag)
{
    const char *repo = o->n_pos ? o->pos[0] : opt_str(o, OPT_HF_REPO);
    char path[HUB_PATH];

    if (!repo || (o->n_pos && opt_given(o, OPT_HF_REPO)))
        return kvant_fail(diag, KVANT_EINVAL, "found %s, wanted USER/NAME or USER/NAME:QUANT",
                          repo ? "two repositories" : "no repository");
    KVANT_TRY(pull(o, repo, opt_str(o, OPT_HF_FILE), NULL, path, diag));
    printf("%s\n", path);
    return KVANT_OK;
}

/* kvant serve takes a repository that describes models, and has them all (cli/serve/serve_models.c). */
static const char PRESET[] = "preset.ini";

int pull_model(opts *o, kvant_diag *diag)
{
    char path[HUB_PATH];
    const char *file = opt_str(o, OPT_HF_FILE);

    if (!opt_given(o, OPT_HF_REPO) || o->cmd == CMD_PULL)
        return opt_given(o, OPT_HF_FILE) && o->cmd != CMD_PULL
                   ? kvant_fail(diag, KVANT_EINVAL, "%s: wanted together with -hf", opt_origin(o, OPT_HF_FILE))
                   : KVANT_OK;
    if (o->n_pos || (opt_given(o, OPT_MODEL) && o->v[OPT_MODEL].origin[0] == '-'))
        return kvant_fail(diag, KVANT_EINVAL, "model: found both %s and a file, wanted one",
                          opt_origin(o, OPT_HF_REPO));
    KVANT_TRY(pull(o, opt_str(o, OPT_HF_REPO), file, o->cmd == CMD_SERVE ? PRESET : NULL, path, diag));
    o->pulled = kvant_strdup(path);
    if (!o->pulled)
        return kvant_fail(diag, KVANT_ENOMEM, "out of memory");
    const int preset = o->cmd == CMD_SERVE && !file && strcmp(strrchr(path, '/') + 1, PRESET) == 0;
    if (preset && opt_given(o, OPT_MODELS_PRESET))
        return kvant_fail(diag, KVANT_EINVAL, "%s and %s: wanted one of them", opt_origin(o, OPT_HF_REPO),
                          opt_origin(o, OPT_MODELS_PRESET));
    o->v[preset ? OPT_MODELS_PRESET : OPT_MODEL] =
        (opt_value){ .text = o->pulled, .origin = o->v[OPT_HF_REPO].origin, .count = 1 };
    return KVANT_OK;
}
