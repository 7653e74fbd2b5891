/* models_preset.c: a file that names models, as llama-server's --models-preset: an INI with a section for each model,
 * whose name it is, and the line `model = PATH`, or `hf-repo = USER/NAME[:QUANT]` for a file of the cache that `kvant
 * pull` fills; `model-draft` or `spec-draft-hf` likewise for a draft model of its own; `dedup-cache-models`, there or
 * in [*] for all.  Names may be any printable text, also with slashes and colons. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/error.h"
#include "base/file/file.h"
#include "base/mem.h"
#include "server/server_impl.h"

enum { MOST_BYTES = 1 << 20, PATH_BYTES = 4096 };

typedef struct preset {
    const server_sources *from;
    server_model *list;
    int n, line;
    int in_all, dedup_all; /* the section is [*]; the switch there */
    kvant_diag *diag;
} preset;

enum { UNSAID = -1 };

static int wrong(const preset *p, const char *found, const char *wanted)
{
    return kvant_fail(p->diag, KVANT_EINVAL, "--models-preset %.80s, line %d: found \"%.60s\", wanted %s",
                      p->from->preset, p->line, found, wanted);
}

/* s without the blanks around it. */
static char *trimmed(char *s)
{
    size_t n;

    s += strspn(s, " \t\r");
    for (n = strlen(s); n > 0 && strchr(" \t\r", s[n - 1]); n--)
        ;
    s[n] = 0;
    return s;
}

static int section(preset *p, char *name)
{
    const size_t n = strlen(name);

    if (n < 3 || name[n - 1] != ']')
        return wrong(p, name, "[NAME]");
    name[n - 1] = 0;
    name = trimmed(name + 1);
    p->in_all = strcmp(name, "*") == 0;
    if (p->in_all)
        return KVANT_OK;
    if (!models_name_ok(name, strlen(name)))
        return wrong(p, name, "a name of printable UTF-8, shorter than 256 bytes");
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->list[i].name, name) == 0)
            return wrong(p, name, "each name once");
    if (p->n == MODELS_MOST)
        return wrong(p, name, "at most 1024 models");
    p->list[p->n].dedup = UNSAID;
    p->list[p->n].name = kvant_strdup(name);
    return p->list[p->n++].name ? KVANT_OK : kvant_fail(p->diag, KVANT_ENOMEM, "--models-preset: out of memory");
}

static int take_path(preset *p, char **to, const char *path)
{
    *to = kvant_strdup(path);
    return *to ? KVANT_OK : kvant_fail(p->diag, KVANT_ENOMEM, "--models-preset: out of memory");
}

static int take_repo(preset *p, char **to, const char *key, const char *repo)
{
    char path[PATH_BYTES];
    kvant_diag why = { "" };
    const int code = p->from->hub(p->from->hub_user, repo, path, sizeof path, &why);

    if (code == KVANT_OK)
        return take_path(p, to, path);
    return kvant_fail(p->diag, KVANT_EINVAL, "--models-preset %.80s, line %d: %s: %.300s; kvant pull %.80s fetches it",
                      p->from->preset, p->line, key, why.text, repo);
}

static int take_switch(preset *p, int *to, const char *value)
{
    static const char *const on[] = { "1", "true", "on", "yes" }, *const off[] = { "0", "false", "off", "no" };

    for (int i = 0; i < 4; i++) {
        if (strcasecmp(value, on[i]) == 0 || strcasecmp(value, off[i]) == 0) {
            *to = strcasecmp(value, on[i]) == 0;
            return KVANT_OK;
        }
    }
    return wrong(p, value, "dedup-cache-models = 1 or 0");
}

static int is_one_of(const char *key, const char *a, const char *b)
{
    return strcmp(key, a) == 0 || strcmp(key, b) == 0;
}

/* A key of the model that is being described. */
static int model_key(preset *p, const char *key, const char *value)
{
    server_model *m = &p->list[p->n - 1];
    const int model = is_one_of(key, "model", "m"), repo = strcmp(key, "hf-repo") == 0;
    const int draft = is_one_of(key, "model-draft", "spec-draft-model");
    const int draft_repo = is_one_of(key, "spec-draft-hf", "hf-repo-draft");

    if (!model && !repo && !draft && !draft_repo)
        return wrong(p, key,
                     "model = PATH or hf-repo = USER/NAME behind [NAME], beside it model-draft, spec-draft-hf, "
                     "dedup-cache-models; all models have the options of the command line");
    if (p->from->of_hub && (model || draft))
        return wrong(p, key, "hf-repo or spec-draft-hf: a preset of a hub names no files of this machine");
    char **to = draft || draft_repo ? &m->draft : &m->path;
    if (!value[0] || *to)
        return wrong(p, key, "one path for each model");
    return repo || draft_repo ? take_repo(p, to, key, value) : take_path(p, to, value);
}

static int pair(preset *p, char *text)
{
    char *value = strchr(text, '=');

    if (!value)
        return wrong(p, text, "[NAME] or model = PATH");
    *value++ = 0;
    const char *key = trimmed(text);
    value = trimmed(value);
    if (p->n == 0 && strcmp(key, "version") == 0 && strcmp(value, "1") == 0)
        return KVANT_OK;
    if (strcmp(key, "dedup-cache-models") == 0 && (p->in_all || p->n))
        return take_switch(p, p->in_all ? &p->dedup_all : &p->list[p->n - 1].dedup, value);
    if (p->in_all)
        return wrong(p, key, "dedup-cache-models behind [*]; other options for all models stand on the command line");
    if (p->n == 0)
        return wrong(p, key, "model = PATH or hf-repo = USER/NAME behind [NAME]");
    return model_key(p, key, value);
}

static int read_lines(preset *p, char *text)
{
    for (char *next; text; text = next) {
        next = strchr(text, '\n');
        if (next)
            *next++ = 0;
        p->line++;
        char *s = trimmed(text);
        if (s[0] && s[0] != '#' && s[0] != ';')
            KVANT_TRY(s[0] == '[' ? section(p, s) : pair(p, s));
    }
    for (int i = 0; i < p->n; i++) {
        if (!p->list[i].path)
            return wrong(p, p->list[i].name, "model = PATH for each [NAME]");
        p->list[i].dedup = p->list[i].dedup == UNSAID ? p->dedup_all : p->list[i].dedup;
    }
    return p->n ? KVANT_OK : wrong(p, "nothing", "[NAME] and model = PATH");
}

int server_models_preset(const server_sources *f, server_model **list, int *n, kvant_diag *diag)
{
    preset p = { .from = f, .list = kvant_calloc(MODELS_MOST, sizeof *p.list), .diag = diag };
    char *text = NULL;
    size_t size;

    *list = p.list;
    *n = 0;
    if (!p.list)
        return kvant_fail(diag, KVANT_ENOMEM, "--models-preset: out of memory");
    KVANT_TRY(file_read(f->preset, MOST_BYTES, &text, &size, diag));
    const int code = read_lines(&p, text);
    kvant_free(text);
    *n = p.n;
    return code;
}
