/* options_hint.c: what is said about a spelling that a command does not know, and about a variable that is no option's.
 * Owns the rule of "did you mean". */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cli/options/options.h"

enum { NAME_CAP = OPT_NAME_CAP };

/* Edit distance (insert, delete, replace, swap of neighbours), for the suggestion; both at most NAME_CAP - 1 long. */
static int edit_distance(const char *a, const char *b)
{
    int row[3][NAME_CAP + 1], n = (int)strlen(a), m = (int)strlen(b);

    for (int j = 0; j <= m; j++)
        row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *cur = row[i % 3], *up = row[(i - 1) % 3], *up2 = row[(i + 1) % 3];
        cur[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = up[j - 1] + (a[i - 1] != b[j - 1]);
            best = up[j] + 1 < best ? up[j] + 1 : best;
            best = cur[j - 1] + 1 < best ? cur[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            cur[j] = best;
        }
    }
    return row[n % 3][m];
}

/* How far a spelling may be from what was typed to be shown as "did you mean": both long or both short, the same first
 * letter, a third of the letters (a quarter of long ones) wrong at most.  A wrong hint is worse than none. */
static int plausible(const char *given, const char *word)
{
    const int dashes = strncmp(given, "--", 2) == 0 ? 2 : 1, letters = (int)strlen(given) - dashes;
    const int most = letters < 3 ? 0 : letters < 8 ? letters / 3 : letters / 4;

    return (strncmp(word, "--", 2) == 0) == (dashes == 2) && given[dashes] == word[dashes] &&
           edit_distance(given, word) <= most;
}

/* The nearest plausible spelling among the options that cmd takes and does not refuse -> best[NAME_CAP]; 0: none. */
static int nearest_spelling(int cmd, const char *given, char *best)
{
    char word[NAME_CAP];
    int best_d = NAME_CAP;

    for (int i = 0; i < OPT_COUNT; i++) {
        const opt_def *d = opt_at(i);
        if (!opt_takes(d, cmd) || d->type == OPT_T_REFUSED)
            continue;
        for (int j = 0; opt_spelling(d, j, word, sizeof word); j++) {
            int away = edit_distance(given, word);
            if (away < best_d && plausible(given, word)) {
                best_d = away;
                memcpy(best, word, sizeof word);
            }
        }
    }
    return best_d < NAME_CAP;
}

const char *command_hint(const char *given)
{
    const int letters = (int)strlen(given);
    const char *best = NULL;
    int least = letters < 4 ? 1 : letters / 3;

    for (int i = 0; i < CMD_COUNT && letters < NAME_CAP; i++) {
        const char *words = command_at(i)->words;
        const int away = edit_distance(given, words);
        if (away <= least) {
            best = words;
            least = away - 1;
        }
    }
    return best;
}

const char *program_option_hint(const char *given)
{
    static const char *const own[] = { "--help", "--version", "--list-devices", "--man", "--completion",
                                       "--options-md" };

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (given[0] == '-' && strlen(given) < NAME_CAP && plausible(given, own[i]))
            return own[i];
    return NULL;
}

/* The first other command that has an option of its own (not one it merely knows) spelled so; NULL: none. */
static const command *other_owner(const char *given)
{
    for (int c = 0; c < CMD_COUNT; c++) {
        int id = opt_find(c, given, strlen(given));
        if (id >= 0 && !opt_is_foreign(opt_at(id)))
            return command_at(c);
    }
    return NULL;
}

int opt_unknown(int cmd, const char *arg, size_t len, kvant_diag *diag)
{
    char given[NAME_CAP], best[NAME_CAP];
    const char *words = command_at(cmd)->words;

    snprintf(given, sizeof given, "%.*s", (int)len, arg);
    const command *other = other_owner(given);
    if (other)
        return kvant_fail(diag, KVANT_EINVAL, "%s: not an option of kvant %s, but of kvant %s", given, words,
                          other->words);
    if (nearest_spelling(cmd, given, best))
        return kvant_fail(diag, KVANT_EINVAL, "%s: unknown option of kvant %s; did you mean %s?", given, words, best);
    return kvant_fail(diag, KVANT_EINVAL, "%s: unknown option of kvant %s; kvant %s --help lists them", given, words,
                      words);
}

/* ---- the environment ---- */

extern char **environ; /* POSIX: no header declares it */

/* NAME -> --name, as the variable of an option is made of its spelling. */
static void spelling_of(const char *tail, size_t len, char *word, size_t cap)
{
    size_t n = (size_t)snprintf(word, cap, "--");

    for (size_t i = 0; i < len && n + 1 < cap; i++)
        word[n++] = (char)(tail[i] == '_' ? '-' : tolower((unsigned char)tail[i]));
    word[n] = 0;
}

/* The variable of an option that has a spelling near this one, of any command -> env[NAME_CAP]; 0: none. */
static int nearest_variable(const char *given, char *env)
{
    char word[NAME_CAP];
    int best_d = NAME_CAP;

    for (int i = 0; i < OPT_COUNT; i++)
        for (int j = 0; !opt_is_foreign(opt_at(i)) && opt_spelling(opt_at(i), j, word, sizeof word); j++) {
            const int away = edit_distance(given, word);
            if (away < best_d && plausible(given, word)) {
                best_d = away;
                opt_env(opt_at(i), env, NAME_CAP);
            }
        }
    return best_d < NAME_CAP;
}

static int is_variable(const char *tail, size_t len)
{
    char env[NAME_CAP];

    for (int i = 0; len > 0 && i < OPT_COUNT; i++)
        if (strlen(opt_env(opt_at(i), env, sizeof env)) == len && strncmp(env, tail, len) == 0)
            return 1;
    return 0;
}

int opt_check_variables(kvant_diag *diag)
{
    char given[NAME_CAP], best[NAME_CAP];

    for (char **at = environ; at && *at; at++) {
        const char *tail = *at + strlen("KVANT_ARG_");
        if (strncmp(*at, "KVANT_ARG_", strlen("KVANT_ARG_")) != 0 || is_variable(tail, strcspn(tail, "=")))
            continue;
        spelling_of(tail, strcspn(tail, "="), given, sizeof given);
        const int near = nearest_variable(given, best);
        return kvant_fail(diag, KVANT_EINVAL, "%.*s: no option has this variable%s%s%s", (int)strcspn(*at, "="), *at,
                          near ? "; did you mean KVANT_ARG_" : "", near ? best : "", near ? "?" : "");
    }
    return KVANT_OK;
}
