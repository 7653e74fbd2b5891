/* place_rig.c: see place_rig.h. */
#include "support/place_rig.h"

#include <dirent.h>

static void note(place_record *r, const float *x, size_t n)
{
    CHECK(x && r->n + n <= PLACE_MOST, "no values, or more than %d", PLACE_MOST);
    if (!x || r->n + n > PLACE_MOST)
        return;
    memcpy(r->x + r->n, x, n * sizeof *x);
    r->n += n;
}

kvant_model *place_open(const char *path)
{
    kvant_model_params mp = kvant_model_defaults();
    kvant_model *m = NULL;
    kvant_diag diag = { "" };

    mp.path = path;
    CHECK(kvant_model_open(&mp, &m, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    return m;
}

kvant_engine_params place_params(const char *device, const char *split, const char *format)
{
    kvant_engine_params p = kvant_engine_defaults();

    p.device = device;
    p.split = split;
    p.threads = 1;
    p.n_ctx = 256;
    p.max_seqs = 4;
    p.n_ubatch = 64;
    p.type_k = p.type_v = format;
    p.logits_rows = 128;
    return p;
}

static void step(kvant_engine *e, kvant_item *items, int n, place_record *r)
{
    const size_t v = (size_t)kvant_model_get_info(kvant_engine_model(e))->n_vocab;
    kvant_diag diag = { "" };
    const float *top;
    const int32_t *ids;
    const int code = kvant_step(e, items, n, &diag);

    CHECK(code == KVANT_OK, "step: %s", diag.text);
    for (int i = 0; code == KVANT_OK && i < n; i++)
        if (items[i].logits == KVANT_LOGITS_TOP)
            note(r, (const float *)(kvant_step_top(e, i, &top, &ids) ? top : NULL), 8);
        else if (items[i].logits == KVANT_LOGITS_LAST)
            note(r, kvant_step_logits(e, i, 0), v);
        else if (items[i].logits == KVANT_LOGITS_ALL)
            for (int k = 0; k < items[i].n; k++)
                note(r, kvant_step_logits(e, i, k), v);
}

void place_steps(kvant_engine *e, place_record *r)
{
    const int d = kvant_model_get_info(kvant_engine_model(e))->n_embd;
    int32_t a[PLACE_PROMPT], b[PLACE_OTHER];
    float hidden[2 * 4096];
    int s[4];

    serve_tokens(a, PLACE_PROMPT, 1);
    serve_tokens(b, PLACE_OTHER, 2);
    for (int i = 0; i < 3; i++)
        CHECK(kvant_seq_new(e, &s[i], NULL) == KVANT_OK, "sequence");
    kvant_item one[] = { { s[0], a, PLACE_PROMPT, 1, KVANT_LOGITS_ALL } };
    step(e, one, 1, r);
    kvant_item two[] = { { s[0], b, 1, 0, KVANT_LOGITS_LAST }, { s[1], b, PLACE_OTHER, 1, KVANT_LOGITS_LAST } };
    step(e, two, 2, r);
    for (int i = 0; i < PLACE_STEPS; i++) {
        kvant_item both[] = { { s[0], a + i, 1, 0, KVANT_LOGITS_TOP }, { s[1], b + i, 1, 0, KVANT_LOGITS_LAST } };
        step(e, both, 2, r);
    }
    CHECK(kvant_seq_fork(e, s[0], &s[3], NULL) == KVANT_OK, "fork");
    kvant_item fork[] = { { s[3], a, 1, 0, KVANT_LOGITS_LAST } };
    step(e, fork, 1, r);
    kvant_item last[] = { { s[2], a, PLACE_PROMPT, 1, KVANT_LOGITS_HIDDEN } };
    step(e, last, 1, r);
    CHECK(d <= 4096 && kvant_seq_hidden(e, s[2], hidden, hidden + d) == KVANT_OK, "hidden states of %d values", d);
    note(r, hidden, 2 * (size_t)d);
}

int place_run(kvant_model *m, const kvant_engine_params *p, place_record *r, kvant_diag *diag)
{
    kvant_engine *e = NULL;
    const int code = kvant_engine_create(m, p, &e, diag);

    r->n = 0;
    if (code == KVANT_OK)
        place_steps(e, r);
    kvant_engine_free(e);
    return code;
}

void place_folder(const char *folder, int (*check)(const char *path), int each, const char *what)
{
    DIR *d = opendir(folder);
    char path[512];
    int files = 0, n = 0;

    CHECK(d != NULL, "%s", folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        const char *dot = strrchr(f->d_name, '.');
        if (!dot || strcmp(dot, ".gguf") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        n += check(path);
        files++;
    }
    if (d)
        closedir(d);
    printf("%s: %d models, %d %s\n", folder, files, n, what);
    CHECK(files > 5 && n > each * files, "%s: %d models, %d %s", folder, files, n, what);
}
