/* main.c: the program `kvant`: finds the command, parses its options, runs it and turns errors into exit codes. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cpu.h"
#include "base/error.h"
#include "base/trace.h"
#include "cli/common.h"
#include "cli/options/options.h"
#include "cli/term.h"
#include "kvant/kvant.h"

enum { NOT_MINE = -1000 }; /* no KVANT_E* code */

/* KVANT_EINVAL: KVANT_CPU names no rung, and would be read as if it were not there. */
static int cpu_rung_check(kvant_diag *diag)
{
    const char *cap = getenv("KVANT_CPU"), *name;
    char names[160] = "";
    uint32_t mask;
    size_t n = 0;

    if (!cap || !*cap || cpu_cap_find(cap, &mask))
        return KVANT_OK;
    for (int i = 0; n < sizeof names && (name = cpu_cap_at(i, &mask)); i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", name);
    return kvant_fail(diag, KVANT_EINVAL, "KVANT_CPU: found \"%.40s\", wanted one of %s", cap, names);
}

static void print_version(void)
{
    printf("kvant %s\n", kvant_version_text());
}

/* An option of the program itself, as its first word; NOT_MINE when it is none of them. */
static int program_option(int argc, char **argv, kvant_diag *diag)
{
    const char *a = argc > 1 ? argv[1] : "--help";

    if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0)
        doc_program_help(stdout);
    else if (strcmp(a, "--version") == 0)
        print_version();
    else if (strcmp(a, "--man") == 0)
        doc_man(stdout);
    else if (strcmp(a, "--options-md") == 0)
        doc_markdown(stdout);
    else if (strcmp(a, "--list-devices") == 0)
        list_devices(stdout);
    else if (strcmp(a, "--completion") == 0)
        return doc_completion(stdout, argc > 2 ? argv[2] : NULL, diag);
    else
        return NOT_MINE;
    return KVANT_OK;
}

/* "help run", "help eval kl". */
static int help_command(int argc, char **argv, kvant_diag *diag)
{
    char words[64];

    if (argc < 3) {
        doc_program_help(stdout);
        return KVANT_OK;
    }
    snprintf(words, sizeof words, "%s%s%s", argv[2], argc > 3 ? " " : "", argc > 3 ? argv[3] : "");
    int cmd = command_find(words);
    if (cmd < 0 && command_hint(words))
        return kvant_fail(diag, KVANT_EINVAL, "help: found \"%s\", wanted a command; did you mean %s?", words,
                          command_hint(words));
    if (cmd < 0)
        return kvant_fail(diag, KVANT_EINVAL, "help: found \"%s\", wanted a command; kvant --help lists them", words);
    doc_command_help(stdout, cmd, 0);
    return KVANT_OK;
}

static int unknown_command(const char *a, const char *b, kvant_diag *diag)
{
    char known[160] = "", given[80];

    snprintf(given, sizeof given, "%.40s%s%.20s", a, b ? " " : "", b ? b : "");
    const char *hint = command_hint(given), *option = program_option_hint(a);
    if (option)
        return kvant_fail(diag, KVANT_EINVAL, "%s: unknown option of kvant; did you mean %s?", a, option);
    if (hint)
        return kvant_fail(diag, KVANT_EINVAL, "found \"%s\", wanted a command; did you mean %s?", given, hint);
    for (int i = 0; i < CMD_COUNT; i++)
        if (strcmp(a, "eval") != 0 || strncmp(command_at(i)->words, "eval ", 5) == 0) {
            size_t n = strlen(known);
            snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", command_at(i)->words);
        }
    return kvant_fail(diag, KVANT_EINVAL, "found \"%s\", wanted a command: %s", given, known);
}

static int run_command(int cmd, int argc, char **argv, kvant_diag *diag)
{
    opts o;
    int code = opts_parse(&o, cmd, argc, argv, diag), end;
    kvant_diag trace_diag = { "" };

    if (code == KVANT_OK && (opt_given(&o, OPT_HELP) || opt_given(&o, OPT_HELP_ALL))) {
        doc_command_help(stdout, cmd, opt_given(&o, OPT_HELP_ALL));
        goto done;
    }
    if (code == KVANT_OK && opt_given(&o, OPT_VERSION)) {
        print_version();
        goto done;
    }
    if (code == KVANT_OK)
        code = term_setup(&o, diag);
    if (code != KVANT_OK)
        goto done;
    opts_notes(&o);
    opts_lonely(&o);
    if (opt_given(&o, OPT_LIST_DEVICES)) {
        list_devices(stdout);
        goto done;
    }
    code = pull_model(&o, diag);
    if (code == KVANT_OK)
        code = memory_limit_check(diag);
    if (code == KVANT_OK)
        code = cpu_rung_check(diag);
    if (code == KVANT_OK)
        code = choose_device(&o, diag);
    if (code == KVANT_OK)
        code = placement_check(&o, diag);
    if (code == KVANT_OK && opt_str(&o, OPT_TRACE))
        code = trace_open(opt_str(&o, OPT_TRACE), diag);
    if (code == KVANT_OK)
        code = command_at(cmd)->run(&o, diag);
    end = trace_close(&trace_diag);
    if (code == KVANT_OK && end != KVANT_OK) {
        code = end;
        *diag = trace_diag;
    }
done:
    opts_free(&o);
    return code;
}

static int dispatch(int argc, char **argv, kvant_diag *diag)
{
    char two[64];
    int cmd, code = program_option(argc, argv, diag);

    if (code != NOT_MINE)
        return code;
    if (strcmp(argv[1], "help") == 0)
        return help_command(argc, argv, diag);
    cmd = command_find(argv[1]);
    if (cmd >= 0)
        return run_command(cmd, argc - 2, argv + 2, diag);
    snprintf(two, sizeof two, "%s %s", argv[1], argc > 2 ? argv[2] : "");
    cmd = command_find(two);
    if (cmd >= 0)
        return run_command(cmd, argc - 3, argv + 3, diag);
    if (strcmp(argv[1], "eval") == 0 && argc > 2 && argv[2][0] == '-') { /* half a command: the program's own options */
        code = program_option(argc - 1, argv + 1, diag);
        if (code != NOT_MINE)
            return code;
    }
    return unknown_command(argv[1], argc > 2 && strcmp(argv[1], "eval") == 0 ? argv[2] : NULL, diag);
}

/* A descriptor that was closed at the start would be the first file that is opened: messages would go into it.  Results
 * written to a closed standard output are an error as they are for a full disk: it cannot be written to. */
static int open_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) != fd) /* the lowest free one */
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    kvant_diag diag = { "" };

    if (!open_standard())
        return kvant_error_exit(KVANT_EIO);
    signal(SIGXFSZ, SIG_IGN); /* a file that grows beyond RLIMIT_FSIZE is an error of that write (EFBIG) */
    (void)term_setup(NULL, &diag); /* without options nothing can fail */
    int code = dispatch(argc, argv, &diag);
    if (code == KVANT_OK)
        code = term_flush(&diag);
    else
        fflush(stdout);
    if (code != KVANT_OK)
        term_error(diag.text[0] ? diag.text : kvant_error_text(code));
    return code == KVANT_ECANCELED && term_interrupted() ? 128 + SIGINT : kvant_error_exit(code);
}
