/* check_spec.c: a text with drafts is the text without: tokens and log-probabilities byte by byte, whatever the drafter
 * says, in company, across page ends, with samplers, penalties, bias and masks; and what a step with drafts keeps.
 *
 *   check_spec [MODEL]
 *
 * Every model of tests/archs and tests/golden/tiny that the engine verifies, cache formats by turns, 16 requests at
 * once with 0 to 7 drafts each; drafters: one that mostly knows the text, one that guesses at random, the n-gram
 * lookup. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "support/check.h"
#include "support/spec_scene.h"

/* 0: the engine does not verify drafts of this model. */
static int run_scene(const char *path, const char *type, int tail)
{
    static spec_scene c;
    kvant_session_params sp = kvant_session_defaults();

    if (!spec_scene_open(&c, path, type, tail))
        return 0;
    sp.spec = KVANT_SPEC_NGRAM;
    spec_scene_run(&c, "a knowing drafter", sp, 850);
    spec_scene_run(&c, "a hostile drafter", sp, 0);
    spec_scene_run(&c, "n-grams", sp, -1);
    sp.spec = KVANT_SPEC_AUTO;
    spec_scene_run(&c, "auto", sp, 499);
    return 1;
}

static int ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int run_folder(const char *folder, int *skipped)
{
    static const struct {
        const char *type;
        int tail;
    } formats[] = { { "f16", 64 }, { "tbq4_0", 64 }, { "q8_0", 0 }, { "tbq3_0", 128 }, { "tbq4_0", 0 } };
    static char names[200][128];
    int n = 0, done = 0;
    DIR *dir = opendir(folder);

    CHECK(dir != NULL, "no folder %s", folder);
    for (struct dirent *f; dir && n < 200 && (f = readdir(dir)) != NULL;)
        if (ends_with(f->d_name, ".gguf"))
            snprintf(names[n++], sizeof *names, "%s/%.90s", folder, f->d_name);
    if (dir)
        closedir(dir);
    qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 0; i < n; i += check_sanitized ? 4 : 1) {
        const int took = run_scene(names[i], formats[i % 5].type, formats[i % 5].tail);
        done += took;
        *skipped += !took;
    }
    return done;
}

int main(int argc, char **argv)
{
    int skipped = 0, done;

    if (argc > 1)
        done = run_scene(argv[1], "tbq4_0", 64);
    else
        done = run_folder("tests/golden/tiny", &skipped) + run_folder("tests/archs", &skipped);
    printf("check_spec: %d models, %d that the engine verifies no drafts of\n", done, skipped);
    CHECK(done > 0 && skipped == 0, "%d models, %d without drafts", done, skipped);
    return check_end("check_spec");
}
