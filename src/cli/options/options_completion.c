/* options_completion.c: completion scripts of shells, from the tables of commands and options. */
#include <string.h>
#include "base/error.h"
#include "cli/options/options.h"
#include "kvant/format.h"

/* Words a value may take: the choices, the format names, or "". */
static void value_words(const opt_def *d, char *buf, size_t cap)
{
    buf[0] = 0;
    if (d->type == OPT_T_FORMAT || d->type == OPT_T_FORMATS) {
        for (int i = 0; i < kvant_format_count(); i++) {
            size_t n = strlen(buf);
            snprintf(buf + n, cap - n, "%s%s", i ? " " : "", kvant_format_at(i)->name);
        }
        return;
    }
    snprintf(buf, cap, "%s", d->choices);
    for (char *p = buf; *p; p++)
        if (*p == '|')
            *p = ' ';
}

static void completion_bash(FILE *f)
{
    char names[SPELL_CAP], words[1024];

    fputs("# bash completion for kvant: source <(kvant --completion bash)\n_kvant()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]}\n"
          "    COMPREPLY=()\n    [ \"$cmd\" = eval ] && cmd=\"eval ${COMP_WORDS[2]}\"\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W \"",
          f);
    for (int i = 0; i < CMD_COUNT; i++)
        fprintf(f, "%.*s ", (int)strcspn(command_at(i)->words, " "), command_at(i)->words);
    fputs(
        "--help --version --man --completion --list-devices\" -- \"$cur\"))\n        return\n    fi\n"
        "    if [ \"$COMP_CWORD\" -eq 2 ] && [ \"${COMP_WORDS[1]}\" = eval ]; then\n        COMPREPLY=($(compgen -W \"",
        f);
    for (int i = 0; i < CMD_COUNT; i++)
        if (strncmp(command_at(i)->words, "eval ", 5) == 0)
            fprintf(f, "%s ", command_at(i)->words + 5);
    fputs("\" -- \"$cur\"))\n        return\n    fi\n    case \"$cmd $prev\" in\n", f);
    for (int c = 0; c < CMD_COUNT; c++)
        for (int i = 0; i < OPT_COUNT; i++) {
            const opt_def *d = opt_at(i);
            if (!opt_takes(opt_at(i), c) || opt_is_foreign(opt_at(i)) || d->type == OPT_T_FLAG)
                continue;
            char sep[80];
            snprintf(sep, sizeof sep, "\"|\"%s ", command_at(c)->words);
            opt_spellings(d, sep, names, sizeof names);
            value_words(d, words, sizeof words);
            fprintf(f, "    \"%s %s\") ", command_at(c)->words, names);
            if (words[0])
                fprintf(f, "COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return ;;\n", words);
            else
                fputs(d->type == OPT_T_FILE ? "COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n" : "return ;;\n", f);
        }
    fputs("    esac\n    case \"$cmd\" in\n", f);
    for (int c = 0; c < CMD_COUNT; c++) {
        fprintf(f, "    \"%s\") COMPREPLY=($(compgen -W \"", command_at(c)->words);
        for (int i = 0; i < OPT_COUNT; i++)
            if (opt_takes(opt_at(i), c) && !opt_is_foreign(opt_at(i))) {
                opt_spellings(opt_at(i), " ", names, sizeof names);
                fprintf(f, "%s ", names);
            }
        fputs("\" -- \"$cur\") $(compgen -f -- \"$cur\")) ;;\n", f);
    }
    fputs("    esac\n    return 0\n}\ncomplete -o filenames -F _kvant kvant\n", f);
}

/* One word of _arguments: brackets, colons and quotes of the help text would end it. */
static void zsh_text(FILE *f, const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", f);
        else if (strchr("[]:\\", *s))
            fprintf(f, "\\%c", *s);
        else
            fputc(*s, f);
    }
}

static void completion_zsh(FILE *f)
{
    char word[64], words[1024];

    fputs(
        "#compdef kvant\n# zsh completion for kvant: kvant --completion zsh > a folder of $fpath, as _kvant\n_kvant() {\n"
        "  local cmd=$words[2]\n  [[ $cmd == eval ]] && cmd=\"eval $words[3]\"\n  if (( CURRENT == 2 )); then\n    compadd --",
        f);
    for (int i = 0; i < CMD_COUNT; i++)
        fprintf(f, " %.*s", (int)strcspn(command_at(i)->words, " "), command_at(i)->words);
    fputs("\n    return\n  fi\n  if (( CURRENT == 3 )) && [[ $words[2] == eval ]]; then\n    compadd --", f);
    for (int i = 0; i < CMD_COUNT; i++)
        if (strncmp(command_at(i)->words, "eval ", 5) == 0)
            fprintf(f, " %s", command_at(i)->words + 5);
    fputs("\n    return\n  fi\n  case $cmd in\n", f);
    for (int c = 0; c < CMD_COUNT; c++) {
        fprintf(f, "  \"%s\")\n    _arguments", command_at(c)->words);
        for (int i = 0; i < OPT_COUNT; i++) {
            const opt_def *d = opt_at(i);
            for (int j = 0; opt_takes(d, c) && !opt_is_foreign(d) && opt_spelling(d, j, word, sizeof word); j++) {
                fprintf(f, " \\\n      '*%s[", word);
                zsh_text(f, d->help);
                fputc(']', f);
                value_words(d, words, sizeof words);
                if (d->type != OPT_T_FLAG) {
                    fputc(':', f);
                    zsh_text(f, d->arg);
                    fprintf(f, ":%s%s%s",
                            d->type == OPT_T_FILE ? "_files"
                            : words[0]            ? "("
                                                  : " ",
                            words, words[0] ? ")" : "");
                }
                fputc('\'', f);
            }
        }
        fputs(" \\\n      '*:file:_files' ;;\n", f);
    }
    fputs("  esac\n}\n_kvant \"$@\"\n", f);
}

static void fish_text(FILE *f, const char *s)
{
    fputc('\'', f);
    for (; *s; s++)
        fprintf(f, "%s%c", *s == '\'' || *s == '\\' ? "\\" : "", *s);
    fputc('\'', f);
}

static void fish_option(FILE *f, int c, const opt_def *d)
{
    char word[64], words[1024];
    const char *second = strchr(command_at(c)->words, ' ');

    fprintf(f, "complete -c kvant -n '__fish_seen_subcommand_from %.*s", (int)strcspn(command_at(c)->words, " "),
            command_at(c)->words);
    if (second)
        fprintf(f, "; and __fish_seen_subcommand_from%s", second);
    fputc('\'', f);
    for (int j = 0; opt_spelling(d, j, word, sizeof word); j++)
        fprintf(f, " %s %s",
                strncmp(word, "--", 2) == 0 ? "-l"
                : strlen(word) == 2         ? "-s"
                                            : "-o",
                word + (strncmp(word, "--", 2) == 0 ? 2 : 1));
    if (d->type != OPT_T_FLAG)
        fputs(d->type == OPT_T_FILE ? " -r -F" : " -x", f);
    value_words(d, words, sizeof words);
    if (words[0]) {
        fputs(" -a ", f);
        fish_text(f, words);
    }
    fputs(" -d ", f);
    fish_text(f, d->help);
    fputc('\n', f);
}

static void completion_fish(FILE *f)
{
    fputs("# fish completion for kvant: kvant --completion fish > ~/.config/fish/completions/kvant.fish\n", f);
    for (int c = 0; c < CMD_COUNT; c++) {
        const char *second = strchr(command_at(c)->words, ' ');
        if (second)
            fprintf(f,
                    "complete -c kvant -n '__fish_use_subcommand' -f -a %.*s\n"
                    "complete -c kvant -n '__fish_seen_subcommand_from %.*s' -f -a%s -d ",
                    (int)(second - command_at(c)->words), command_at(c)->words, (int)(second - command_at(c)->words),
                    command_at(c)->words, second);
        else
            fprintf(f, "complete -c kvant -n '__fish_use_subcommand' -f -a %s -d ", command_at(c)->words);
        fish_text(f, command_at(c)->line);
        fputc('\n', f);
        for (int i = 0; i < OPT_COUNT; i++)
            if (opt_takes(opt_at(i), c) && !opt_is_foreign(opt_at(i)))
                fish_option(f, c, opt_at(i));
    }
}

int doc_completion(FILE *f, const char *shell, kvant_diag *diag)
{
    static const struct {
        const char *name;
        void (*fn)(FILE *);
    } shells[] = {
        { "bash", completion_bash },
        { "zsh", completion_zsh },
        { "fish", completion_fish },
    };

    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (shell && strcmp(shell, shells[i].name) == 0) {
            shells[i].fn(f);
            return KVANT_OK;
        }
    return kvant_fail(diag, KVANT_EINVAL, "--completion: found \"%.40s\", wanted bash, zsh or fish",
                      shell ? shell : "nothing");
}
