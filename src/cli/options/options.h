/* cli/options/options.h: the one option table and everything it drives: parsing, --help, the man page, shell
 * completion, environment names and the tables of the documentation.
 *
 * A row (options.def) says the spellings, the argument, its range, the default, which commands take it and
 * what it means.
 * Parsing: every spelling is matched whole (-ctk is one option, not three), the value is the next argument or
 * follows '='; a variable KVANT_ARG_<LONG_NAME>, else LLAMA_ARG_<name>, stands in for an option that was not given. */
#ifndef KVANT_CLI_OPTIONS_H
#define KVANT_CLI_OPTIONS_H

#include <stdint.h>
#include <stdio.h>
#include "base/error.h"

/* Commands: their index (CMD_RUN, ...) and, in option rows, their bit. */
#define KVANT_COMMAND(ID, words, fn, n_pos, usage, line, more) CMD_##ID,
enum command_id {
#include "cli/options/commands.def"
    CMD_COUNT
};
#undef KVANT_COMMAND

typedef struct opts opts;

typedef struct command {
    const char *words;                           /* "eval kl" */
    int (*run)(const opts *o, kvant_diag *diag); /* KVANT_OK or KVANT_E*; prints its report itself */
    int n_pos;                                   /* most positional arguments */
    const char *usage, *line, *more;
} command;
const command *command_at(int id);
int command_find(const char *words); /* id, or -1 */

#define KVANT_COMMAND(ID, words, fn, n_pos, usage, line, more) int fn(const opts *o, kvant_diag *diag);
#include "cli/options/commands.def"
#undef KVANT_COMMAND

typedef enum opt_type {
    OPT_T_FLAG, /* no value */
    OPT_T_INT,  /* integer; suffixes k and m are 1024 and 1048576 */
    OPT_T_NUM,  /* finite number */
    OPT_T_STR,
    OPT_T_FILE,    /* a path (completed as one) */
    OPT_T_CHOICE,  /* one of choices "a|b|c" */
    OPT_T_CHOICES, /* comma list of them */
    OPT_T_FORMAT,  /* a cache format */
    OPT_T_FORMATS, /* comma list of cache formats */
    OPT_T_INTS,    /* comma list of integers and ranges a-b, a-b+step, a-b*factor */
    OPT_T_SIZE,    /* bytes, with suffix K M G T (1024) */
    OPT_T_NOTED, /* known elsewhere and harmless here: taken (choices: the values that are harmless), one note says why
                  * it has no effect (help text) */
    OPT_T_REFUSED, /* known elsewhere; given here it is an error that says what to do instead (help text) */
} opt_type;

typedef enum opt_group {
    OPT_G_MODEL,
    OPT_G_PROMPT,
    OPT_G_SAMPLE,
    OPT_G_CONTEXT,
    OPT_G_CACHE,
    OPT_G_DEVICE,
    OPT_G_SERVER,
    OPT_G_TEST,
    OPT_G_OUTPUT,
    OPT_G_COUNT
} opt_group;

typedef struct opt_def {
    const char *names; /* "-c --ctx-size": all spellings, separated by spaces */
    opt_type type;
    opt_group group;
    const char *arg;       /* name of the value in help, "" for flags */
    double min, max;       /* range of INT, NUM, SIZE and of each of INTS; STR: min 1 wants a text */
    const char *choices;   /* of CHOICE(S), else "" */
    const char *def;       /* default as text, "" for none */
    uint32_t commands;     /* bits 1 << CMD_* */
    const char *llama_env; /* <name> of LLAMA_ARG_<name>, "" when llama.cpp has no such option */
    const char *help;
} opt_def;

enum { OPT_NAME_CAP = 64, OPT_SPELT_CAP = OPT_NAME_CAP + 16 }; /* a spelling and its end; a variable's name */

#define KVANT_OPTION(ID, ...) OPT_##ID,
enum opt_id {
#include "cli/options/options.def"
    OPT_COUNT
};
#undef KVANT_OPTION
const opt_def *opt_at(int id);

/* The value of one option after parsing. */
typedef struct opt_value {
    const char *text;   /* as given, or the default */
    const char *origin; /* "-c", "KVANT_ARG_CTX_SIZE"; NULL when it is the default */
    int64_t i;          /* INT, SIZE */
    double f;           /* NUM */
    int count;          /* times given; 0: default */
} opt_value;

typedef struct opt_repeat {
    int id;
    const char *name, *text; /* as spelled (may go on with =TEXT); NULL: from the environment */
} opt_repeat;

struct opts {
    int cmd;
    opt_value v[OPT_COUNT];
    char (*spelt)[OPT_SPELT_CAP]; /* [OPT_COUNT]: as an option or a variable was given, else the first long spelling */
    opt_repeat *all; /* every value given, in order (for options that may be repeated) */
    int n_all;
    const char *pos[4];
    int n_pos;
    char *pulled; /* the file of -hf, once it is there */
};

/* argv[0..argc) are the words after the command.  KVANT_EINVAL: unknown option (with the nearest one), missing or bad
 * value, too many positional arguments.  argv and the environment must outlive o.  opts_free also after an error. */
int opts_parse(opts *o, int cmd, int argc, char **argv, kvant_diag *diag);
void opts_free(opts *o);
/* One note (log level 2) for each row of options that were given and have no effect. */
void opts_notes(const opts *o);
/* options_company.c: one for each that acts only beside another one, which was not given. */
void opts_lonely(const opts *o);

int opt_given(const opts *o, int id);
int opt_flag(const opts *o, int id);
int64_t opt_int(const opts *o, int id);
double opt_num(const opts *o, int id);
const char *opt_str(const opts *o, int id); /* NULL when it has neither value nor default */
/* Returns 1 if a CHOICE has this value. */
int opt_is(const opts *o, int id, const char *choice);
/* How to name the option in a message: as the user wrote it, else its first long spelling. */
const char *opt_origin(const opts *o, int id);
/* The list of an INTS option -> v[cap], *n. */
int opt_ints(const opts *o, int id, int64_t *v, int cap, int *n, kvant_diag *diag);
/* The i-th item of a comma list (CHOICES, FORMATS, STR) -> buf; 0 past the last. */
int opt_item(const opts *o, int id, int i, char *buf, size_t cap);

/* "512M", "16GiB" -> bytes; 0 when it is no size. */
int opt_parse_size(const char *s, int64_t *v);

/* Rows that no code reads: OPT_T_NOTED and OPT_T_REFUSED.  They are not in --help, but in the documents. */
int opt_is_foreign(const opt_def *d);

/* First long spelling ("--ctx-size", else the first spelling); CTX_SIZE of KVANT_ARG_CTX_SIZE, "" when it has none. */
const char *opt_long(const opt_def *d, char *buf, size_t cap);
const char *opt_env(const opt_def *d, char *buf, size_t cap);
/* The option of cmd spelled name[len]; -1: none. */
int opt_find(int cmd, const char *name, size_t len);
/* KVANT_EINVAL that says where arg[len] belongs or what it may have meant; cmd does not know it. */
int opt_unknown(int cmd, const char *arg, size_t len, kvant_diag *diag);
/* KVANT_EINVAL that names a KVANT_ARG_ variable of the environment that no option of any command has. */
int opt_check_variables(kvant_diag *diag);
/* The command that `given` may have meant; NULL: none is like it. */
const char *command_hint(const char *given);
/* An option in front of any command, which `given` may have meant; NULL: none is like it. */
const char *program_option_hint(const char *given);
/* The n-th spelling -> buf; 0 past the last. */
int opt_spelling(const opt_def *d, int n, char *buf, size_t cap);
enum { SPELL_CAP = 480 }; /* all of them, with what stands between */
void opt_spellings(const opt_def *d, const char *sep, char *buf, size_t cap);
int opt_takes(const opt_def *d, int cmd); /* 1: a row of this command */

/* Documents made from the table; all write to f. */
void doc_program_help(FILE *f);
void doc_command_help(FILE *f, int cmd, int all); /* all 0: of many options those that are common */
void doc_man(FILE *f);
int doc_completion(FILE *f, const char *shell, kvant_diag *diag); /* bash zsh fish */
void doc_markdown(FILE *f);                                       /* the option tables of the documentation */

#endif
