/* models_preset.c: a file that names models, as llama-server's --models-preset: an INI with a section for each model,
 * whose name it is, and the line `model = PATH`, or `hf-repo = USER/NAME[:QUANT]` for a file of the cache that `kvant
 * pull` fills.  Names may be any printable text, also with slashes and colons. */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/file/file.h"
#include "base/mem.h"
#include "server/server_impl.h"

enum { MOST_BYTES = 1 << 20, PATH_BYTES = 4096 };

typedef struct preset {
    const char *file;
    server_hub hub;
    server_model *list;
    int n, line;
    kvant_diag *diag;
} preset;

static int wrong(const preset *p, const char *found, const char *wanted)
{
    return kvant_fail(p->diag, KVANT_EINVAL, "--models-preset %.80s, line %d: found \"%.60s\", wanted %s", p->file,
                      p->line, found, wanted);
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
    if (!models_name_ok(name, strlen(name)))
        return wrong(p, name, "a name of printable UTF-8, shorter than 256 bytes");
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->list[i].name, name) == 0)
            return wrong(p, name, "each name once");
    if (p->n == MODELS_MOST)
        return wrong(p, name, "at most 1024 models");
    p->list[p->n].name = kvant_strdup(name);
    return p->list[p->n++].name ? KVANT_OK : kvant_fail(p->diag, KVANT_ENOMEM, "--models-preset: out of memory");
}

static int take_path(preset *p, const char *path)
{
    server_model *m = &p->list[p->n - 1];

    m->path = kvant_strdup(path);
    return m->path ? KVANT_OK : kvant_fail(p->diag, KVANT_ENOMEM, "--models-preset: out of memory");
}

static int take_repo(preset *p, const char *repo)
{
    char path[PATH_BYTES];
    kvant_diag why = { "" };
    const int code = p->hub(repo, path, sizeof path, &why);

    if (code == KVANT_OK)
        return take_path(p, path);
    return kvant_fail(p->diag, KVANT_EINVAL, "--models-preset %.80s, line %d: hf-repo: %.300s; kvant pull %.80s fetches it",
                      p->file, p->line, why.text, repo);
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
    const int repo = strcmp(key, "hf-repo") == 0;
    if (p->n == 0 || (!repo && strcmp(key, "model") != 0 && strcmp(key, "m") != 0))
        return wrong(p, key, "model = PATH or hf-repo = USER/NAME behind [NAME]; all models have the options of the command line");
    if (!value[0] || p->list[p->n - 1].path)
        return wrong(p, key, "one path for each model");
    return repo ? take_repo(p, value) : take_path(p, value);
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
    for (int i = 0; i < p->n; i++)
        if (!p->list[i].path)
            return wrong(p, p->list[i].name, "model = PATH for each [NAME]");
    return p->n ? KVANT_OK : wrong(p, "nothing", "[NAME] and model = PATH");
}

int server_models_preset(const char *file, server_hub hub, server_model **list, int *n, kvant_diag *diag)
{
    preset p = { .file = file, .hub = hub, .list = kvant_calloc(MODELS_MOST, sizeof *p.list), .diag = diag };
    char *text = NULL;
    size_t size;

    *list = p.list;
    *n = 0;
    if (!p.list)
        return kvant_fail(diag, KVANT_ENOMEM, "--models-preset: out of memory");
    KVANT_TRY(file_read(file, MOST_BYTES, &text, &size, diag));
    const int code = read_lines(&p, text);
    kvant_free(text);
    *n = p.n;
    return code;
}
