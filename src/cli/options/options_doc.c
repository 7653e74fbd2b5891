/* options_doc.c: everything people read about the options: --help, the man page and a page of markdown.  It all comes
 * from the two tables (commands.def, options.def); nothing is written twice. */
#include <string.h>
#include "base/error.h"
#include "cli/options/options.h"
#include "kvant/format.h"
#include "kvant/kvant.h"

static const char *const group_titles[OPT_G_COUNT] = {
    [OPT_G_MODEL] = "Model",       [OPT_G_PROMPT] = "Prompt and text",
    [OPT_G_SAMPLE] = "Sampling",   [OPT_G_CONTEXT] = "Context and batch",
    [OPT_G_CACHE] = "KV cache",    [OPT_G_DEVICE] = "Device",
    [OPT_G_SERVER] = "Server",     [OPT_G_TEST] = "This command",
    [OPT_G_OUTPUT] = "Output and messages",
};

/* Exit codes: text beside the numbers of KVANT_ERRORS; the numbers are a contract with scripts (README.md). */
static const struct {
    int code;
    const char *text;
} exit_codes[] = {
    { 0, "success" },
    { 1, "failure while running" },
    { 2, "usage or configuration error" },
    { 3, "model or input file unreadable or invalid" },
    { 4, "does not fit in memory or in the context" },
    { 5, "device unavailable" },
    { 6, "a verification gate failed" },
    { 130, "stopped by Ctrl-C before its work was done, or by a second one" },
    { 143, "serve: ended by a second SIGTERM, before all requests were done" },
};

enum { HELP_WIDTH = 100, HELP_COLUMN = 34, MD_WIDTH = 120 };

/* A word that begins a list or a title where a line of markdown begins with it. */
static int begins_block(const char *word, int len)
{
    return strchr("-+*#>", word[0]) && (len == 1 || word[0] == '#' || word[0] == '>');
}

/* Text in words, wrapped at `width`, with `indent` spaces from the second line on; `at` is the current column. */
static void put_wrapped_at(FILE *f, const char *text, int indent, int at, int width)
{
    int space = 0;

    while (*text) {
        int len = (int)strcspn(text, " ");
        if (space && at + 1 + len > width && !(width == MD_WIDTH && begins_block(text, len))) {
            fprintf(f, "\n%*s", indent, "");
            at = indent;
            space = 0;
        }
        fprintf(f, "%s%.*s", space ? " " : "", len, text);
        at += space + len;
        space = 1;
        text += len + (text[len] == ' ');
    }
    fputc('\n', f);
}

static void put_wrapped(FILE *f, const char *text, int indent, int at)
{
    put_wrapped_at(f, text, indent, at, HELP_WIDTH);
}

/* "help text (a|b|c; default: x)"; a text that tells its default itself gets no other. */
static void full_help(const opt_def *d, char *buf, size_t cap)
{
    int choices = d->choices[0] != 0, def = d->def[0] != 0 && !strstr(d->help, "default:");

    snprintf(buf, cap, "%s%s%s%s%s%s%s", d->help, choices || def ? " (" : "", d->choices, choices && def ? "; " : "",
             def ? "default: " : "", def ? d->def : "", choices || def ? ")" : "");
}

static void help_row(FILE *f, const opt_def *d)
{
    char names[SPELL_CAP], text[512], left[SPELL_CAP + 32];

    opt_spellings(d, ", ", names, sizeof names);
    full_help(d, text, sizeof text);
    snprintf(left, sizeof left, "  %s%s%s", names, d->arg[0] ? " " : "", d->arg);
    fputs(left, f);
    if ((int)strlen(left) + 2 > HELP_COLUMN)
        fprintf(f, "\n%*s", HELP_COLUMN, "");
    else
        fprintf(f, "%*s", HELP_COLUMN - (int)strlen(left), "");
    put_wrapped(f, text, HELP_COLUMN, HELP_COLUMN);
}

/* Most people need these of a command that has many options. */
static const int common[] = {
    OPT_MODEL, OPT_HF_REPO, OPT_CHAT_TEMPLATE, OPT_LORA, OPT_PROMPT, OPT_FILE, OPT_SYSTEM, OPT_CNV, OPT_NO_CNV,
    OPT_SINGLE_TURN, OPT_PREDICT, OPT_GRAMMAR, OPT_JSON_SCHEMA, OPT_TEMP, OPT_TOP_P, OPT_TOP_K, OPT_SEED, OPT_CTX,
    OPT_EVAL_CTX, OPT_PLAN_CTX, OPT_CTK, OPT_CTV, OPT_CTK_LIST, OPT_CTV_LIST, OPT_PAIRS, OPT_DEVICE, OPT_NGL,
    OPT_THREADS, OPT_THREADS_LIST, OPT_LIST_DEVICES, OPT_HOST, OPT_PORT, OPT_ALIAS, OPT_API_KEY_FILE,
    OPT_SERVE_PARALLEL, OPT_POOL, OPT_MODELS_DIR, OPT_KV_DIR, OPT_TEXT, OPT_CHUNKS, OPT_N_PROMPT, OPT_N_GEN,
    OPT_DEPTH, OPT_REPS, OPT_BENCH_PARALLEL, OPT_KEYS, OPT_TENSORS, OPT_TYPES, OPT_FORMATS, OPT_DEVICES, OPT_MEMORY,
    OPT_JSON, OPT_OUTPUT, OPT_VERBOSE, OPT_HELP, OPT_HELP_ALL,
};
enum { FEW_OPTIONS = 30 }; /* so many are shown whole; arbitrary: a screen */

static int is_common(int id)
{
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (common[i] == id)
            return 1;
    return 0;
}

static int is_shown(int id, int cmd)
{
    return opt_takes(opt_at(id), cmd) && !opt_is_foreign(opt_at(id));
}

/* The rows of a command under their groups' titles; only: the common ones.  Returns how many are left out. */
static int help_rows(FILE *f, int cmd, int only)
{
    int left = 0;

    for (int g = 0; g < OPT_G_COUNT; g++) {
        int head = 0;
        for (int i = 0; i < OPT_COUNT; i++) {
            if ((int)opt_at(i)->group != g || !is_shown(i, cmd))
                continue;
            if (only && !is_common(i)) {
                left++;
                continue;
            }
            if (!head++)
                fprintf(f, "\n%s:\n", group_titles[g]);
            help_row(f, opt_at(i));
        }
    }
    return left;
}

void doc_command_help(FILE *f, int cmd, int all)
{
    const command *c = command_at(cmd);
    int n = 0;

    for (int i = 0; i < OPT_COUNT; i++)
        n += is_shown(i, cmd);

    fprintf(f, "Usage: kvant %s%s%s [options]\n\n%s.\n", c->words, c->usage[0] ? " " : "", c->usage, c->line);
    put_wrapped(f, c->more, 0, 0);
    const int left = help_rows(f, cmd, !all && n > FEW_OPTIONS);
    if (left)
        fprintf(f, "\n%d more options: kvant %s --help-all\n", left, c->words);
    fputs("\nCache formats: ", f);
    for (int i = 0; i < kvant_format_count(); i++)
        fprintf(f, "%s%s", i ? " " : "", kvant_format_at(i)->name);
    fputs(
        "\nMore options of llama.cpp are accepted without effect or refused with a reason: docs/options.md lists them."
        "\nEnvironment: KVANT_ARG_<LONG_NAME> (or llama.cpp's LLAMA_ARG_ name) stands in for an option that is not given.\n"
        "A KVANT_ARG_ name of no option is an error.\n",
        f);
}

void doc_program_help(FILE *f)
{
    fprintf(f,
            "kvant %s: runs language models with a paged, compressed KV cache, and proves what it computes\n\n"
            "Usage: kvant COMMAND [options]\n\nCommands:\n",
            kvant_version_text());
    for (int i = 0; i < CMD_COUNT; i++)
        fprintf(f, "  %-14s %s\n", command_at(i)->words, command_at(i)->line);
    fputs("\nkvant COMMAND --help shows the options of a command that are common, --help-all all of them.\n\nOther:\n"
          "  --version                   version of the program and library\n"
          "  --list-devices              devices of this build\n"
          "  --man                       manual page (kvant --man | man -l -)\n"
          "  --completion bash|zsh|fish  completion script for a shell\n"
          "  --options-md                all options in markdown\n\nExit codes:\n",
          f);
    for (size_t i = 0; i < sizeof exit_codes / sizeof exit_codes[0]; i++)
        fprintf(f, "  %-4d %s\n", exit_codes[i].code, exit_codes[i].text);
}

/* ---- man page ---- */

/* roff: a backslash and a hyphen have meanings of their own, and a line must not begin with a dot or a quote. */
static void roff(FILE *f, const char *s)
{
    if (*s == '.' || *s == '\'')
        fputs("\\&", f);
    for (; *s; s++) {
        if (*s == '\\')
            fputs("\\e", f);
        else if (*s == '-')
            fputs("\\-", f);
        else
            fputc(*s, f);
    }
}

static void man_option(FILE *f, const opt_def *d)
{
    char word[64], text[512];

    fputs(".TP\n", f);
    for (int i = 0; opt_spelling(d, i, word, sizeof word); i++) {
        fputs(i ? ", \\fB" : "\\fB", f);
        roff(f, word);
        fputs("\\fR", f);
    }
    if (d->arg[0]) {
        fputs(" \\fI", f);
        roff(f, d->arg);
        fputs("\\fR", f);
    }
    fputc('\n', f);
    full_help(d, text, sizeof text);
    roff(f, text);
    fputs(".\n", f);
}

static void man_command(FILE *f, int cmd)
{
    const command *c = command_at(cmd);

    fprintf(f, ".SS kvant %s", c->words);
    fputc('\n', f);
    roff(f, c->line);
    fputs(".\n", f);
    roff(f, c->more);
    fputc('\n', f);
    for (int i = 0; i < OPT_COUNT; i++)
        if (opt_takes(opt_at(i), cmd) && !opt_is_foreign(opt_at(i)))
            man_option(f, opt_at(i));
}

/* Options that llama.cpp has and kvant only knows: the two kinds, and how they are introduced. */
static const struct {
    opt_type type;
    const char *title, *line;
} foreign_kinds[] = {
    { OPT_T_NOTED, "Accepted without effect",
      "Known from llama.cpp; given here they change nothing, and a note (log level 2) says why" },
    { OPT_T_REFUSED, "Refused", "Known from llama.cpp; given here they end the program with code 2 and this sentence" },
};
enum { N_FOREIGN_KINDS = sizeof foreign_kinds / sizeof foreign_kinds[0] };

static void man_foreign(FILE *f)
{
    for (int k = 0; k < N_FOREIGN_KINDS; k++) {
        fprintf(f, ".SH LLAMA.CPP'S OPTIONS: %s\n%s.\n", k ? "REFUSED" : "ACCEPTED WITHOUT EFFECT",
                foreign_kinds[k].line);
        for (int i = 0; i < OPT_COUNT; i++)
            if (opt_at(i)->type == foreign_kinds[k].type)
                man_option(f, opt_at(i));
    }
}

void doc_man(FILE *f)
{
    fprintf(
        f,
        ".TH KVANT 1 \"\" \"kvant %s\" \"User Commands\"\n.SH NAME\nkvant \\- language models with a paged, compressed "
        "KV cache\n.SH SYNOPSIS\n.B kvant\n.I command\n[\\fIoptions\\fR]\n.SH DESCRIPTION\n",
        kvant_version_text());
    fputs(
        "kvant runs GGUF models with a paged key/value cache whose rows may be stored in compressed formats, and measures "
        "what that costs: perplexity, KL divergence, retrieval and speed.\n.SH COMMANDS\n",
        f);
    for (int i = 0; i < CMD_COUNT; i++)
        man_command(f, i);
    man_foreign(f);
    fputs(".SH CACHE FORMATS\n", f);
    for (int i = 0; i < kvant_format_count(); i++)
        fprintf(f, "%s%s", i ? ", " : "", kvant_format_at(i)->name);
    fputs("\n.SH EXIT STATUS\n", f);
    for (size_t i = 0; i < sizeof exit_codes / sizeof exit_codes[0]; i++)
        fprintf(f, ".TP\n%d\n%s\n", exit_codes[i].code, exit_codes[i].text);
    fputs(
        ".SH ENVIRONMENT\n.TP\n.B KVANT_ARG_<LONG_NAME>\nThe value of an option that is not given; for a flag 1, on, true or 0, "
        "off, false. For example KVANT_ARG_CTX_SIZE for \\-\\-ctx\\-size.\n.TP\n.B LLAMA_ARG_<NAME>\nThe same under "
        "llama.cpp's name, when the former is not set.\n.TP\n.B KVANT_CPU\nLowers the instruction sets that are used, for "
        "example avx2.\n.TP\n.B KVANT_MEMORY\nMemory to plan with, for example 4G, when it is less than what the machine "
        "has.\n.TP\n.B KVANT_MODELS\nFolder of the test models and texts.\n.TP\n.B NO_COLOR\nSwitches colours "
        "off.\n.SH EXAMPLES\n.EX\nkvant run \\-m model.gguf \\-p \"Once upon a time\" \\-n 64\n"
        "kvant run \\-m model.gguf \\-cnv \\-ctk tbq4_0 \\-ctv tbq4_0\n"
        "kvant bench \\-m model.gguf \\-p 512 \\-n 128 \\-d 0,4096 \\-ctk f16,tbq4_0\n"
        "kvant eval kl \\-m model.gguf \\-f text.txt \\-c 2048 \\-\\-pairs tbq4_0,turbo3 \\-\\-path both\n"
        "kvant plan \\-m model.gguf \\-\\-memory 16G\n.EE\n",
        f);
}

/* ---- markdown ---- */

/* Rows of a table cannot be wrapped; items of a list can. */
static void md_item(FILE *f, const opt_def *d, const char *arg, const char *text, const char *env)
{
    char names[SPELL_CAP], line[SPELL_CAP + 1024];

    opt_spellings(d, "`, `", names, sizeof names);
    snprintf(line, sizeof line, "`%s`%s%s%s%s%s: %s", names, arg[0] ? " " : "", arg, env[0] ? " (`" : "", env,
             env[0] ? "`)" : "", text);
    fputs("- ", f);
    put_wrapped_at(f, line, 2, 2, MD_WIDTH);
}

/* Choices with a comma between them, so that a line can end there. */
static void md_row(FILE *f, const opt_def *d)
{
    char text[512], wide[1024], env[64];
    size_t n = 0;

    full_help(d, text, sizeof text);
    for (const char *p = text; *p && n + 3 < sizeof wide; p++) {
        const int between = *p == '|' && p[-1] != ' ' && p[1] != ' ';
        wide[n++] = between ? ',' : *p;
        if (between)
            wide[n++] = ' ';
    }
    wide[n] = 0;
    opt_env(d, env, sizeof env);
    md_item(f, d, d->arg, wide, env);
}

void doc_markdown(FILE *f)
{
    fputs("<!-- made by kvant --options-md; do not edit -->\n# Options of kvant\n\nIn parentheses: the name after "
          "`KVANT_ARG_` of the environment variable that stands in for the option; such a variable of no\n"
          "option is an error.\n"
          "An option that is given twice counts as it was given last, as in llama.cpp, unless it says that it may be "
          "repeated.\n",
          f);
    for (int c = 0; c < CMD_COUNT; c++) {
        fprintf(f, "\n## kvant %s\n\n%s.\n", command_at(c)->words, command_at(c)->line);
        put_wrapped_at(f, command_at(c)->more, 0, 0, MD_WIDTH);
        fputc('\n', f);
        for (int g = 0; g < OPT_G_COUNT; g++)
            for (int i = 0; i < OPT_COUNT; i++)
                if ((int)opt_at(i)->group == g && opt_takes(opt_at(i), c) && !opt_is_foreign(opt_at(i)))
                    md_row(f, opt_at(i));
    }
    for (int k = 0; k < N_FOREIGN_KINDS; k++) {
        fprintf(f, "\n## %s\n\n%s.\n\n", foreign_kinds[k].title, foreign_kinds[k].line);
        for (int i = 0; i < OPT_COUNT; i++)
            if (opt_at(i)->type == foreign_kinds[k].type)
                md_item(f, opt_at(i), opt_at(i)->choices, opt_at(i)->help, "");
    }
}
