/* options_company.c: options that act only beside another one.  Given alone they are accepted, as by llama.cpp, and a
 * note says that they do nothing.  Not here: options whose group refuses that itself (--kv-events-*,
 * --kv-store-size). */
#include <string.h>

#include "base/log.h"
#include "cli/options/options.h"

static int has_draft_model(const opts *o)
{
    return opt_given(o, OPT_DRAFT_MODEL);
}

static int guesses(const opts *o)
{
    const int off = opt_is(o, OPT_SPEC, "off") || opt_is(o, OPT_SPEC, "none");

    return has_draft_model(o) || (opt_given(o, OPT_SPEC) && !off);
}

/* A draft model is the guesser, one of those that auto chooses from, or the file of a block (mtp, in bench too). */
static int model_guesses(const opts *o)
{
    static const char *const types[] = { "auto", "draft", "draft-simple", "mtp", "draft-mtp" };

    if (o->cmd == CMD_BENCH)
        return opt_given(o, OPT_BENCH_SPEC) && strncmp(opt_str(o, OPT_BENCH_SPEC), "mtp", 3) == 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (opt_is(o, OPT_SPEC, types[i]))
            return 1;
    return !opt_given(o, OPT_SPEC);
}

static int saves_slots(const opts *o)
{
    return opt_given(o, OPT_KV_DIR);
}

/* Formats have many options (-ctk, --cache-type-layers, --pairs ...): a value that names it is one of them. */
static int has_projected_format(const opts *o)
{
    for (int i = 0; i < o->n_all; i++)
        if (o->all[i].id != OPT_QJL_PROJECTION && strstr(o->all[i].text, "qjl1_256"))
            return 1;
    return 0;
}

static const struct {
    int id;
    int (*acts)(const opts *o);
    const char *why;
} company[] = {
    { OPT_DRAFT_DEVICE, has_draft_model, "without -md FILE there is no draft model" },
    { OPT_DRAFT_CTK, has_draft_model, "without -md FILE there is no draft model" },
    { OPT_DRAFT_CTV, has_draft_model, "without -md FILE there is no draft model" },
    { OPT_DRAFT_MODEL, model_guesses, "--spec asks for no draft model" },
    { OPT_DRAFT_P_MIN, guesses, "without --spec or -md nothing is guessed" },
    { OPT_DRAFT_MAX, guesses, "without --spec or -md nothing is guessed" },
    { OPT_DRAFT_MIN, guesses, "without --spec or -md nothing is guessed" },
    { OPT_SAVE_QUOTA, saves_slots, "without --slot-save-path DIR nothing is saved" },
    { OPT_SAVE_TOTAL, saves_slots, "without --slot-save-path DIR nothing is saved" },
    { OPT_QJL_PROJECTION, has_projected_format, "no cache format is qjl1_256" },
};

void opts_lonely(const opts *o)
{
    for (size_t i = 0; i < sizeof company / sizeof *company; i++)
        if (opt_given(o, company[i].id) && !company[i].acts(o))
            log_msg(LOG_INFO, "%s: no effect: %s", opt_origin(o, company[i].id), company[i].why);
}
