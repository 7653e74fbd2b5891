/* check_cli: the program as users meet it: options, errors, exit codes, reports.  It starts the program
 * (KVANT_BIN, else the
 * `kvant` beside this test) on the tiny models of tests/golden/tiny; run from the top of the tree. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/rng.h"
#include "support/check.h"
#include "support/json.h"

enum { MAX_ARGS = 64, OUT_CAP = 1 << 20 };

#define DENSE   "tests/golden/tiny/llama.gguf"
#define DENSE_LAYERS 2
#define EXPERTS "tests/golden/tiny/qwen3moe.gguf"
#define QWEN3   "tests/golden/tiny/qwen3.gguf"
#define HYBRID  "tests/golden/tiny/qwen35.gguf"

static char program[512], work[64], file_out[128], file_err[128];
static char *out, *err; /* what the last run printed, NUL-terminated */
static size_t out_len;
static const char *stdin_path = "/dev/null";
static int closed_out; /* the program starts without a standard output */

static size_t slurp(const char *path, char *buf)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(buf, 1, OUT_CAP - 1, f) : 0;
    if (f)
        fclose(f);
    buf[n] = 0;
    return n;
}

static pid_t start(char **argv)
{
    remove(file_out);
    pid_t pid = fork();
    if (pid == 0) {
        int in = open(stdin_path, O_RDONLY), o = open(file_out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        int e = open(file_err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(in, 0);
        dup2(o, 1);
        dup2(e, 2);
        if (closed_out)
            close(1);
        execv(program, argv);
        _exit(127);
    }
    return pid;
}

/* Exit code, or -signal. */
static int finish(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    out_len = slurp(file_out, out);
    slurp(file_err, err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void collect(char **argv, va_list ap)
{
    int n = 0;
    argv[n++] = program;
    for (const char *a; n < MAX_ARGS - 1 && (a = va_arg(ap, const char *));)
        argv[n++] = (char *)a;
    argv[n] = NULL;
}

/* Runs the program with words up to NULL. */
static int run(const char *first, ...)
{
    char *argv[MAX_ARGS];
    va_list ap;

    va_start(ap, first);
    collect(argv + 1, ap);
    va_end(ap);
    argv[0] = program;
    argv[1] = (char *)first;
    return finish(start(argv));
}

#define EXPECT(code, text, ...)                                                                                        \
    do {                                                                                                               \
        int got_ = run(__VA_ARGS__, (char *)NULL);                                                                     \
        CHECK(got_ == (code), "%s: exit %d, want %d; %s", #__VA_ARGS__, got_, code, err);                              \
        CHECK(strstr(err, text) != NULL, "%s: want \"%s\" in: %s", #__VA_ARGS__, text, err);                           \
        CHECK(out_len == 0, "%s: an error must not print a report: %.60s", #__VA_ARGS__, out);                         \
    } while (0)

#define EXPECT_OK(...)                                                                                                 \
    do {                                                                                                               \
        int got_ = run(__VA_ARGS__, (char *)NULL);                                                                     \
        CHECK(got_ == 0, "%s: exit %d; %s", #__VA_ARGS__, got_, err);                                                  \
    } while (0)

#define EXPECT_JSON(...)                                                                                               \
    do {                                                                                                               \
        EXPECT_OK(__VA_ARGS__);                                                                                        \
        CHECK(json_valid(out, out_len), "%s: not JSON: %.200s", #__VA_ARGS__, out);                                    \
    } while (0)

static const char *in_work(const char *name)
{
    static char path[4][160];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", work, name);
    return path[turn];
}

static const char *write_file(const char *name, const void *data, size_t n)
{
    const char *path = in_work(name);
    FILE *f = fopen(path, "w");
    if (f) {
        fwrite(data, 1, n, f);
        fclose(f);
    }
    return path;
}

static int json_text_is(const char *path, const char *want)
{
    size_t n;
    const char *p = json_at(out, path, &n);
    return p && n == strlen(want) + 2 && memcmp(p + 1, want, n - 2) == 0;
}

/* ---- options ---- */

static void test_usage(void)
{
    EXPECT_OK("--help");
    CHECK(strstr(out, "eval needle") && strstr(out, "Exit codes"), "help: %.100s", out);
    EXPECT_OK("--version");
    CHECK(strncmp(out, "kvant ", 6) == 0, "version: %s", out);
    EXPECT_OK("help", "eval", "kl");
    EXPECT_OK("eval", "kl", "--help-all");
    CHECK(strstr(out, "--kl-base-type") && strstr(out, "tbq4_0"), "help: %.100s", out);
    EXPECT(2, "\"runn\", wanted a command; did you mean run?", "runn");
    EXPECT(2, "did you mean serve?", "server");
    EXPECT(2, "--versoin: unknown option of kvant; did you mean --version?", "--versoin");
    EXPECT(2, "did you mean eval needle?", "eval", "needel");
    EXPECT(2, "did you mean quantize?", "help", "quantise");
    EXPECT(2, "wanted a command: run, ", "xyzzy");
    EXPECT(2, "eval kl", "eval");
    EXPECT(2, "eval kl", "eval", "klx");
    EXPECT_OK("--list-devices");
    CHECK(strstr(out, "cpu") != NULL, "devices: %s", out);
    EXPECT_OK("bench", "--list-devices");
}

static void test_closed_output(void)
{
    closed_out = 1;
    int code = run("--version", NULL);
    CHECK(code == 1 && strstr(err, "standard output: "), "exit %d: %s", code, err);
    code = run("inspect", DENSE, NULL);
    CHECK(code == 1 && strstr(err, "standard output: "), "exit %d: %s", code, err);
    closed_out = 0;
}

static void test_option_errors(void)
{
    EXPECT(2, "did you mean --ctx-size?", "run", "-m", DENSE, "--ctx-sise", "5");
    EXPECT(2, "did you mean -ctk?", "run", "-m", DENSE, "-ckt", "f16");
    EXPECT(2, "of kvant bench", "run", "-m", DENSE, "--n-depth", "4");
    EXPECT(2, "found nothing after it", "run", "-m");
    EXPECT(2, "--temp: found \"hot\"", "run", "-m", DENSE, "--temp", "hot");
    EXPECT(2, "from 0 to 1", "run", "-m", DENSE, "--top-p", "1.5");
    EXPECT(2, "--temp: found \"nan\"", "run", "-m", DENSE, "--temp", "nan");
    EXPECT(2, "-c: found \"99999999999999999999\"", "run", "-m", DENSE, "-c", "99999999999999999999");
    EXPECT(2, "-c: found \"-5\"", "run", "-m", DENSE, "-c", "-5");
    EXPECT(2, "-c: found \"12x\"", "run", "-m", DENSE, "-c", "12x");
    EXPECT(2, "takes no value", "run", "-m", DENSE, "--special=1");
    EXPECT(2, "wanted one of auto|f32", "run", "-m", DENSE, "--compute", "f64");
    EXPECT(2, "tbq4_0", "run", "-m", DENSE, "-ctk", "q9_0");
    EXPECT(2, "tbq4_0", "bench", "-m", DENSE, "-ctk", "f16,q9_0");
    EXPECT(2, "wanted a range that grows", "bench", "-m", DENSE, "-p", "64-16");
    EXPECT_OK("bench", "-m", DENSE, "-n", "0", "-r", "1", "-p", "4-9*9223372036854775807,2-3+9223372036854775807");
    CHECK(strstr(out, " pp4 ") && strstr(out, " pp2 ") && !strstr(out, " pp-"), "steps beyond the range: %s", out);
    EXPECT(2, "--log-file: found \"\", wanted FILE", "run", "-m", DENSE, "-p", "x", "--log-file", "");
    EXPECT(2, "--cache-type-layers: found \"\", wanted SPEC", "run", "-m", DENSE, "-p", "x", "--cache-type-layers", "");
    EXPECT(2, "-devd: found \"\", wanted NAME", "run", "-m", DENSE, "-p", "x", "-devd", "");
    EXPECT(2, "--spec: found \"\", wanted TYPE:K", "bench", "-m", DENSE, "--spec", "");
    EXPECT(2, "--bandwidth: found \"fast\", wanted gigabytes", "plan", "-m", DENSE, "--bandwidth", "fast");
    EXPECT(2, "--bandwidth: found \"nan\"", "inspect", "-m", DENSE, "--placement", "--bandwidth", "40,nan");
    EXPECT(2, "--bandwidth: found \"-5\"", "plan", "-m", DENSE, "--bandwidth", "-5");
    EXPECT_OK("bench", "-m", DENSE, "-n", "0", "-r", "1", "-p", "4", "-md", "none.gguf");
    CHECK(strstr(err, "-md: no effect") != NULL, "bench: %s", err);
    EXPECT(2, "--grammar-file: found \"\", wanted FILE", "run", "-m", DENSE, "-p", "x", "--grammar-file=");
    EXPECT(2, "--spec draft: found no draft model", "run", "-m", DENSE, "-p", "x", "--spec=draft");
    EXPECT(2, "-d: found \"5-x\"", "bench", "-m", DENSE, "-d", "5-x");
    EXPECT(2, "wanted PP,TG", "bench", "-m", DENSE, "-pg", "512");
    EXPECT(2, "found none, wanted -m", "run", "-p", "x");
    EXPECT(2, "found both", "run", "-m", DENSE, DENSE, "-p", "x");
    EXPECT(2, "takes only", "inspect", DENSE, HYBRID);
    EXPECT(2, "found both -p and -f", "run", "-m", DENSE, "-p", "x", "-f", "y");
    EXPECT(2, "wanted -p TEXT or -f FILE", "run", "-m", DENSE, "-no-cnv");
    EXPECT(2, "wanted bash, zsh or fish", "--completion", "tcsh");
    EXPECT(2, "takes no further words", "verify", "x");
}

/* As on a machine without a GPU, whatever this one has. */
static void test_no_gpu(void)
{
    static const char *const hide[] = { "CUDA_VISIBLE_DEVICES", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "OCL_ICD_VENDORS" };

    for (int i = 0; i < 4; i++)
        setenv(hide[i], i ? "/no/such" : "", 1);
    EXPECT(5, "-ngl 99: no GPU that this build can use", "run", "-m", DENSE, "-p", "x", "-ngl", "99");
    EXPECT(2, "-ngl: found \"many\", wanted a number, auto or all", "run", "-m", DENSE, "-p", "x", "-ngl", "many");
    EXPECT(2, "-ngl: found \"9x\", wanted a number, auto or all", "bench", "-m", DENSE, "--device", "auto", "-ngl", "9x");
    EXPECT(5, "device auto:1: unknown", "run", "-m", DENSE, "-p", "x", "--device", "auto:1");
    EXPECT(5, "no GPU device is chosen", "run", "-m", DENSE, "-p", "x", "-ngl", "99", "--device", "cpu");
    EXPECT_OK("run", "-m", DENSE, "-p", "x", "-n", "1", "--device", "auto");
    CHECK(strstr(err, "device auto: not cuda: ") && strstr(err, "device auto: cpu\n"), "notes: %s", err);
    EXPECT_OK("run", "-m", DENSE, "-p", "x", "-n", "1", "--device", "auto", "-ngl", "0");
    CHECK(!strstr(err, "not cuda"), "-ngl 0 looks for no GPU: %s", err);
    for (int i = 0; i < 4; i++)
        unsetenv(hide[i]);
}

static void test_refused(void)
{
    EXPECT(2, "HF_TOKEN", "run", "-hft", "t", "-p", "x");
    EXPECT(2, "wanted USER/NAME", "run", "-hf", "model", "-p", "x");
    EXPECT(2, "wanted together with -hf", "run", "-hff", "a.gguf", "-p", "x");
    EXPECT(2, "merge them into the model", "run", "-m", DENSE, "--control-vector", "x");
    EXPECT(2, "wanted FILE:SCALE", "run", "-m", DENSE, "-p", "x", "--lora-scaled", "x");
    EXPECT(2, "wanted FILE:SCALE", "run", "-m", DENSE, "-p", "x", "--lora-scaled", "x:1,y:nan");
    EXPECT(2, "an empty name", "run", "-m", DENSE, "-p", "x", "--lora", "x,,y");
    EXPECT(3, "x: no such file", "run", "-m", DENSE, "-p", "x", "--lora", "x");
    EXPECT(3, "general.type", "run", "-m", DENSE, "-p", "x", "--lora", DENSE);
    EXPECT(2, "wanted one of them", "run", "-m", DENSE, "--chat-template", "chatml", "--chat-template-file", "x");
    EXPECT(2, "not a Jinja template", "run", "-m", DENSE, "--chat-template-file", "LICENSE", "-p", "x");
    EXPECT(2, "wanted none", "run", "-m", DENSE, "--reasoning-format", "deepseek", "-p", "x");
    test_no_gpu();
    EXPECT(5, "unknown; this build has", "run", "-m", DENSE, "-p", "x", "--device", "tpu");
    EXPECT_OK("run", "-m", DENSE, "-p", "x", "-ngl", "0", "-fa", "on", "-n", "1");
    EXPECT(2, "2 shares above 0", "run", "-m", DENSE, "-p", "x", "-dev", "cpu,cpu", "-ts", "1,1,1");
    EXPECT(2, "its share is none", "run", "-m", DENSE, "-p", "x", "-dev", "cpu,cpu", "-ts", "1000,1");
    EXPECT(2, "wanted layer", "run", "-m", DENSE, "-p", "x", "-dev", "cpu,cpu", "-sm", "none");
    EXPECT(5, "unknown; this build has", "run", "-m", DENSE, "-p", "x", "-dev", "cpu,tpu");
}

static void test_environment(void)
{
    setenv("KVANT_ARG_CTX_SIZE", "many", 1);
    EXPECT(2, "KVANT_ARG_CTX_SIZE: found \"many\"", "run", "-m", DENSE, "-p", "x");
    EXPECT_JSON("run", "-m", DENSE, "-p", "x", "-n", "1", "-c", "192", "--json");
    CHECK(json_num(out, "cache.context") == 192, "an argument wins over the environment: %s", out);
    setenv("KVANT_ARG_API_KEYFILE", "keys.txt", 1);
    EXPECT(2, "did you mean KVANT_ARG_API_KEY_FILE?", "serve", "-m", DENSE);
    setenv("KVANT_ARG_API_KEYFILE", "", 1);
    EXPECT(2, "KVANT_ARG_API_KEYFILE: no option has this variable", "inspect", "-m", DENSE);
    unsetenv("KVANT_ARG_API_KEYFILE");
    setenv("KVANT_ARG_N_PREDICT", "1", 1);
    EXPECT(2, "did you mean KVANT_ARG_PREDICT?", "run", "-m", DENSE, "-p", "x");
    unsetenv("KVANT_ARG_N_PREDICT");
    setenv("KVANT_ARG_MODELS_MAX", "2", 1); /* of another command */
    setenv("KVANT_ARG_CTX_SIZE", "128", 1);
    setenv("LLAMA_ARG_CTX_SIZE", "256", 1);
    setenv("LLAMA_ARG_CACHE_TYPE_K", "q8_0", 1);
    setenv("LLAMA_ARG_MODEL", DENSE, 1);
    setenv("KVANT_ARG_JSON", "true", 1);
    EXPECT_JSON("run", "-p", "x", "-n", "1");
    CHECK(json_num(out, "cache.context") == 128, "own variable first: %s", out);
    CHECK(json_text_is("cache.type_k", "q8_0"), "LLAMA_ARG_ is honoured: %s", out);
    unsetenv("KVANT_ARG_CTX_SIZE");
    unsetenv("KVANT_ARG_MODELS_MAX");
    setenv("KVANT_ARG_JSON", "off", 1);
    EXPECT_OK("run", "-p", "x", "-n", "1");
    CHECK(strstr(err, "context 256") != NULL, "LLAMA_ARG_CTX_SIZE: %s", err);
    setenv("KVANT_ARG_JSON", "perhaps", 1);
    EXPECT(2, "KVANT_ARG_JSON: found \"perhaps\"", "run", "-p", "x", "-n", "1");
    unsetenv("LLAMA_ARG_CTX_SIZE");
    unsetenv("LLAMA_ARG_CACHE_TYPE_K");
    unsetenv("LLAMA_ARG_MODEL");
    unsetenv("KVANT_ARG_JSON");
}

/* In the table of one command no spelling may appear twice; every row of a table has the same number of columns. */
static void test_documents(void)
{
    char seen[16384] = "", word[96];
    int columns = 0;

    EXPECT_OK("--options-md");
    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "## ", 3) == 0) {
            seen[0] = 0;
            columns = strcmp(line, "## Refused") == 0 || strncmp(line, "## Accepted", 11) == 0 ? 2 : 3;
        }
        if (strncmp(line, "| `", 3) != 0)
            continue;
        int bars = 0;
        for (char *p = line; *p; p++)
            bars += *p == '|' && (p == line || p[-1] != '\\');
        CHECK(bars == columns + 1, "%d bars in %s", bars, line);
        char *end = strstr(line + 1, " | ");
        for (char *p = strchr(line, '`'); p && p < end; p = strchr(strchr(p + 1, '`') + 1, '`')) {
            snprintf(word, sizeof word, " %.*s ", (int)strcspn(p + 1, "`"), p + 1);
            CHECK(!strstr(seen, word), "%s appears twice: %s", word, line);
            strncat(seen, word, sizeof seen - strlen(seen) - 1);
        }
    }
    char *page = malloc(OUT_CAP);
    EXPECT_OK("--options-md");
    CHECK(page && slurp("docs/options.md", page) > 0 && strcmp(page, out) == 0,
          "docs/options.md is stale: kvant --options-md > docs/options.md");
    free(page);
    EXPECT_OK("--man");
    CHECK(strncmp(out, ".TH KVANT 1", 11) == 0 && strstr(out, ".SH EXIT STATUS"), "man page: %.80s", out);
    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n"))
        CHECK(*line != '\'', "a roff line begins with a quote: %s", line);
}

static void test_completion(void)
{
    char cmd[1200];
    static const char *const shells[] = { "bash", "zsh", "fish" };

    for (int i = 0; i < 3; i++) {
        EXPECT_OK("--completion", shells[i]);
        CHECK(strstr(out, "cache-type-k") && strstr(out, "tbq4_0"), "%s: %.80s", shells[i], out);
    }
    snprintf(
        cmd, sizeof cmd,
        "bash -c 'source <(\"%s\" --completion bash) && COMP_WORDS=(kvant eval kl -ctk tbq) && COMP_CWORD=4 && _kvant && "
        "[[ \"${COMPREPLY[*]}\" == *tbq4_0* ]] && COMP_WORDS=(kvant run --cache-type-l) && COMP_CWORD=2 && _kvant && "
        "[[ \"${COMPREPLY[*]}\" == --cache-type-layers ]]' >/dev/null 2>&1",
        program);
    if (system("command -v bash >/dev/null 2>&1") == 0)
        CHECK(system(cmd) == 0, "bash completion: %s", cmd);
}

/* ---- bad files ---- */

/* The tiny model with `from` replaced by `to` (same length) at its first place after `after`. */
static const char *patched(const char *name, const char *after, const char *from, const char *to)
{
    FILE *f = fopen(QWEN3, "r");
    static char data[4 << 20];
    size_t n = f ? fread(data, 1, sizeof data, f) : 0, at = 0;

    if (f)
        fclose(f);
    while (at + strlen(after) < n && memcmp(data + at, after, strlen(after)) != 0)
        at++;
    while (at + strlen(from) < n && memcmp(data + at, from, strlen(from)) != 0)
        at++;
    CHECK(at + strlen(from) < n, "%s: no %s after %s", QWEN3, from, after);
    if (at + strlen(from) < n)
        memcpy(data + at, to, strlen(to));
    return write_file(name, data, n);
}

static void test_bad_files(void)
{
    const char *empty = write_file("empty.gguf", "", 0),
               *junk = write_file("junk.gguf", "not a model at all, but text", 28);

    EXPECT(3, "/no/such/file.gguf", "run", "-m", "/no/such/file.gguf", "-p", "x");
    EXPECT(3, work, "run", "-m", work, "-p", "x");
    EXPECT(3, "empty.gguf", "run", "-m", empty, "-p", "x");
    EXPECT(3, "junk.gguf", "run", "-m", junk, "-p", "x");
    EXPECT(3, "junk.gguf", "bench", "-m", junk);
    EXPECT(3, "junk.gguf", "inspect", junk);
    EXPECT(3, "junk.gguf", "plan", junk);
    EXPECT(3, "junk.gguf", "quantize", junk, in_work("out.gguf"), "q8_0");
    const char *arch = patched("arch.gguf", "general.architecture", "qwen3", "qwenX");
    CHECK(run("run", "-m", arch, "-p", "x", NULL) != 0 && strstr(err, "qwenX"), "unknown architecture: %s", err);
    EXPECT_JSON("inspect", arch, "--json");
    CHECK(strstr(out, "\"runs\":false") && strstr(out, "qwenX"), "inspect shows why: %.300s", out);
    const char *pre = patched("pre.gguf", "tokenizer.ggml.pre", "qwen2", "qwenX");
    CHECK(run("run", "-m", pre, "-p", "x", "-n", "1", NULL) == 0 && strstr(err, "qwenX"), "unknown pre-tokenizer: %s",
          err);
    EXPECT(3, "no/such/text", "run", "-m", DENSE, "-f", "/no/such/text");
    EXPECT(2, "wanted text", "run", "-m", DENSE, "-f", write_file("empty.txt", "", 0));
    EXPECT(2, "found byte 0xff at offset 2", "run", "-m", DENSE, "-f", write_file("bad.txt", "ab\xff", 3));
    EXPECT(1, "trace", "run", "-m", DENSE, "-p", "x", "-n", "1", "--trace", "/no/such/dir/trace.json");
}

static void test_bad_prompts(void)
{
    char big[8000];

    for (size_t i = 0; i + 2 < sizeof big; i += 2)
        memcpy(big + i, "ab", 3);
    EXPECT(2, "found 0 tokens", "run", "-m", QWEN3, "-p", "");
    EXPECT_OK("run", "-m", DENSE, "-p", "", "-n", "2"); /* this one begins with a BOS token */
    EXPECT(2, "found byte 0xc3 at offset 1", "run", "-m", DENSE, "-p", "a\xc3");
    EXPECT(4, "wanted at most 64 (context of 64 tokens", "run", "-m", DENSE, "-p", big, "-c", "64");
    EXPECT(2, "ID below", "run", "-m", DENSE, "-p", "x", "--logit-bias", "99999999+1");
    EXPECT(2, "wanted ID+X", "run", "-m", DENSE, "-p", "x", "-l", "5*3");
    setenv("KVANT_MEMORY", "20M", 1);
    EXPECT(4, "needs", "run", "-m", DENSE, "-p", "x", "-c", "100000", "-ctk", "f32", "-ctv", "f32");
    EXPECT_JSON("run", "-m", HYBRID, "-p", "x", "-n", "1", "--json", "-ctk", "f32", "-ctv", "f32");
    CHECK(json_num(out, "cache.context") <= 1024, "%s", out);
    EXPECT(4, "draft model: device cpu: 15.1 MiB wanted", "run", "-m", QWEN3, "-p", "x", "-c", "4096", "-md", QWEN3,
           "-ctkd", "f32", "-ctvd", "f32");
    EXPECT_OK("run", "-m", QWEN3, "-p", "x", "-n", "2", "-c", "512", "-md", QWEN3);
    setenv("KVANT_MEMORY", "100K", 1);
    EXPECT(4, "with any context", "run", "-m", DENSE, "-p", "x");
    unsetenv("KVANT_MEMORY");
    EXPECT(4, "draft model: device cpu:1: 15.1 MiB wanted", "run", "-m", QWEN3, "-p", "x", "-c", "4096", "--device",
           "cpu:1", "--device-memory", "11M", "-md", QWEN3, "-ctkd", "f32", "-ctvd", "f32");
    EXPECT(2, "cache type layers", "run", "-m", DENSE, "-p", "x", "--cache-type-layers", "99=f16");
    EXPECT(2, "multiple of 64", "run", "-m", DENSE, "-p", "x", "--kv-tail", "10");
    EXPECT(2, "head_dim 80", "run", "-m", QWEN3, "-p", "x", "-ctk", "q8_0");
    EXPECT(2, "cnv", "run", "-m", DENSE, "-cnv", "-no-cnv", "-p", "x");
    EXPECT(2, "--json", "run", "-m", DENSE, "-cnv", "--json");
}

/* ---- run ---- */

static void test_run(void)
{
    char text[4096];

    EXPECT_OK("run", "-m", DENSE, "-p", "Hello there", "-n", "16", "--temp", "0");
    CHECK(out_len > 0 && strstr(err, "prompt:") && strstr(err, "decode:") && strstr(err, "cache:"), "notes: %s", err);
    snprintf(text, sizeof text, "%s", out);
    EXPECT_OK("run", "-m", DENSE, "-p", "Hello there", "-n", "16", "--temp", "0", "-t", "1", "-lv", "0");
    CHECK(strcmp(text, out) == 0, "threads change the text: %s / %s", text, out);
    CHECK(err[0] == 0, "-lv 0 must be silent: %s", err);
    EXPECT_OK("run", DENSE, "-f", write_file("prompt.txt", "Hello there\n", 12), "-n", "16", "--temp", "0");
    CHECK(strcmp(text, out) == 0, "-f differs from -p: %s / %s", text, out);
    EXPECT_OK("run", "-m", DENSE, "-p", "Hello\\x20there", "-n", "16", "--temp", "0");
    CHECK(strcmp(text, out) == 0, "escapes: %s / %s", text, out);
    EXPECT_OK("run", "-m", DENSE, "-p", "Hello there", "-n", "0");
    CHECK(out_len == 0, "-n 0 prints nothing: %s", out);
    EXPECT_OK("run", "-m", DENSE, "-p", "no", "-n", "8", "-p", "Hello", "-n", "0", "--display-prompt");
    CHECK(strcmp(out, "Hello") == 0, "an option given twice is not the last one: %s", out);
    EXPECT_OK("run", "-m", DENSE, "-p", "Hello there", "-n", "0", "--display-prompt");
    CHECK(strcmp(out, "Hello there") == 0, "--display-prompt: %s", out);
    EXPECT_JSON("run", "-m", DENSE, "-p", "Hello \"there\"\n", "-n", "8", "--temp", "0", "--json");
    CHECK(json_num(out, "timings.prompt_n") >= 1 && json_num(out, "ids.7") >= 0, "json: %s", out);
    CHECK(json_num(out, "cache.bytes") > 0 && strstr(out, "\"stop\":\"length\""), "json: %s", out);
    EXPECT_JSON("run", "-m", HYBRID, "-p", "Hello", "-n", "-1", "-c", "64", "--ignore-eos", "--json");
    CHECK(strstr(out, "\"stop\":\"context\"") && json_num(out, "cache.tokens") == 64, "context full: %s", out);
}

/* A long prompt in pieces gives the same continuation as in one; so does the same seed twice. */
static void test_run_repeats(void)
{
    char prompt[500], first[2][4096];
    rng r = { 3 };
    size_t n;

    for (size_t i = 0; i + 1 < sizeof prompt; i++)
        prompt[i] = "etaoin shrdlu,. "[rng_below(&r, 16)];
    prompt[sizeof prompt - 1] = 0;
    for (int m = 0; m < 2; m++) {
        const char *model = m ? HYBRID : DENSE;
        static const char *const batch[] = { "2048", "64", "1" };
        for (int i = 0; i < 3; i++) {
            EXPECT_JSON("run", "-m", model, "-p", prompt, "-n", "12", "-s", "7", "-b", batch[i], "--json");
            const char *ids = json_at(out, "ids", &n);
            if (!ids)
                continue;
            snprintf(first[i > 0], sizeof first[0], "%.*s", (int)n, ids);
            CHECK(i == 0 || strcmp(first[0], first[1]) == 0, "-b %s: %s, want %s", batch[i], first[1], first[0]);
        }
    }
    EXPECT_JSON("run", "-m", DENSE, "-p", "Hello", "-n", "20", "-s", "1", "--temp", "2", "--json");
    const char *ids = json_at(out, "ids", &n);
    snprintf(first[0], sizeof first[0], "%.*s", ids ? (int)n : 0, ids ? ids : "");
    EXPECT_JSON("run", "-m", DENSE, "-p", "Hello", "-n", "20", "-s", "2", "--temp", "2", "--json");
    ids = json_at(out, "ids", &n);
    CHECK(ids && strncmp(first[0], ids, n) != 0, "another seed, the same tokens");
}

static void test_chat(void)
{
    EXPECT_JSON("run", "-m", DENSE, "-cnv", "-sys", "Be brief.", "-p", "Hi", "-n", "6", "--temp", "0", "--json",
                "--chat-template", "chatml");
    CHECK(json_text_is("messages.0.role", "system") && json_text_is("messages.2.role", "assistant"), "chat: %s", out);
    double one = json_num(out, "cache.tokens");
    stdin_path = write_file("turns.txt", "Hi\n\nAgain\n/clear\nHi\n", 20);
    EXPECT_OK("run", "-m", DENSE, "-n", "6", "--temp", "0", "-v");
    CHECK(strstr(err, "read again") == NULL, "a second turn must not read the conversation again: %s", err);
    CHECK(strstr(err, "chatml is assumed") != NULL, "no template: %s", err);
    stdin_path = write_file("turns.txt", "Hi\n/exit\nHi\n", 12);
    EXPECT_OK("run", "-m", HYBRID, "-n", "6", "--temp", "0");
    stdin_path = write_file("turns.txt", "a\xff\n", 3);
    CHECK(run("run", "-m", DENSE, "-n", "2", NULL) == 2 && strstr(err, "message: found byte 0xff"), "bad message: %s",
          err);
    stdin_path = "/dev/null";
    EXPECT_OK("run", "-m", DENSE, "-cnv", "-st", "-p", "Hi", "-n", "6");
    CHECK(one > 6, "%g tokens", one);
}

/* A second turn appends to the cache: its tokens are those of the conversation read in one go. */
static void test_chat_cache(void)
{
    stdin_path = write_file("turns.txt", "Hello you\nAnd now?\n", 19);
    EXPECT_OK("run", "-m", DENSE, "-n", "5", "--temp", "0", "-ctk", "f32", "-ctv", "f32", "--logit-bias", "0-inf");
    stdin_path = "/dev/null";
    CHECK(strstr(err, "prompt:") != NULL, "%s", err);
}

static void test_interrupt(void)
{
    char *argv[] = { program, "run", "-m", DENSE, "-p", "Hello", "-n", "-1", "-c", "1000000", "--ignore-eos", NULL };
    struct stat st = { 0 };
    pid_t pid = start(argv);

    for (int i = 0; i < 2000 && (stat(file_out, &st) != 0 || st.st_size == 0); i++)
        usleep(5000);
    kill(pid, SIGINT);
    int code = finish(pid);
    CHECK(code == 0, "Ctrl-C: exit %d; %s", code, err);
    CHECK(out_len > 0 && strstr(err, "decode:"), "Ctrl-C: timings are wanted: %s", err);
    pid = start(argv);
    for (int i = 0; i < 2000 && (stat(file_out, &st) != 0 || st.st_size == 0); i++)
        usleep(5000);
    for (int i = 0; i < 200 && kill(pid, SIGINT) == 0; i++)
        usleep(100);
    code = finish(pid);
    CHECK(code == 130 || code == 0, "two Ctrl-C: exit %d; %s", code, err);
}

/* ---- bench, eval, inspect, plan, quantize, verify ---- */

/* Column `i` (launches 0, microseconds 1) of a profile's line; -1: no such line. */
static double profile_cell(const char *text, const char *op, int i)
{
    char cell[64];
    double v[2] = { -1, -1 };
    snprintf(cell, sizeof cell, "\n| %-48s |", op);
    const char *at = strstr(text, cell);
    return at && sscanf(at + strlen(cell), "%lf | %lf", &v[0], &v[1]) == 2 ? v[i] : -1;
}

/* Each of the layers has one attention, and the lines come to the last one. */
static void test_bench_profile(void)
{
    double sum[2] = { 0, 0 };

    EXPECT_OK("bench", "-m", DENSE, "-p", "0", "-n", "4", "-r", "1", "--profile");
    const char *table = strstr(out, "Profile of tg4: one pass of 4");
    CHECK(table, "bench --profile: no table: %.400s", out);
    for (const char *at = table ? strstr(table, "-: |\n") : NULL; at && (at = strchr(at, '\n')) && at[1] == '|'; at++) {
        double v[2];
        if (sscanf(at + 1, "| %*[^|] | %lf | %lf", &v[0], &v[1]) == 2 && strncmp(at + 1, "| all", 5) != 0) {
            sum[0] += v[0];
            sum[1] += v[1];
        }
    }
    CHECK(profile_cell(out, "attn", 0) == DENSE_LAYERS, "attn: %.900s", out);
    for (int i = 0; i < 2; i++)
        CHECK_CLOSE(profile_cell(out, "all", i), sum[i], 2, "the sum of column %d", i);
    EXPECT_OK("bench", "-m", DENSE, "-dev", "cpu,cpu", "-sm", "tensor", "-p", "0", "-n", "4", "-r", "1", "--profile");
    CHECK(strstr(out, "one pass of 4"), "passes of a tensor split: %.400s", out);
    EXPECT(2, "--profile prints tables: found -o json, wanted md", "bench", "-m", DENSE, "--profile", "-o", "json");
}

static void test_bench(void)
{
    static const char fields[] =
        "build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,model_size,model_n_params,n_batch,"
        "n_ubatch,n_threads,cpu_mask,cpu_strict,poll,type_k,type_v,n_gpu_layers,n_cpu_moe,split_mode,main_gpu,no_kv_offload,"
        "flash_attn,devices,tensor_split,tensor_buft_overrides,use_mmap,use_direct_io,embeddings,no_op_offload,no_host,repack,"
        "fit_target,fit_min_ctx,n_prompt,n_gen,n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts,";

    EXPECT_JSON("bench", "-m", DENSE, "-p", "16", "-n", "4", "-r", "2", "-o", "json");
    for (const char *f = fields; *f; f += strcspn(f, ",") + 1) {
        char path[64];
        size_t n;
        snprintf(path, sizeof path, "1.%.*s", (int)strcspn(f, ","), f);
        CHECK(json_at(out, path, &n), "llama-bench's field %s is missing: %.700s", path, out);
    }
    EXPECT_JSON("bench-kernels", "--formats", "f16,tbq4_0", "--ops", "score,axpy_q8", "--queries", "4", "--tokens",
                "64,256", "-r", "1", "--min-us", "1", "--json");
    CHECK(strstr(out, "\"fma_gflops\"") && strstr(out, "\"read_share\"") && strstr(out, "\"x_f16\"") &&
              strstr(out, "\"error_best\""),
          "bench-kernels: peaks, shares, factors and errors wanted in the JSON object");
    EXPECT_JSON("bench", "-m", DENSE, "-p", "8-32*2", "-n", "2", "-pg", "8,3", "-d", "0,70", "-r", "2", "-ctk",
                "f16,q8_0", "-o", "json");
    CHECK(json_num(out, "19.n_gen") == 3 && isnan(json_num(out, "20.n_gen")), "20 tests wanted: %.200s", out);
    CHECK(json_num(out, "9.n_depth") == 70 && json_num(out, "9.samples_ts.1") > 0, "json: %.200s", out);
    double a = json_num(out, "0.samples_ts.0"), b = json_num(out, "0.samples_ts.1");
    CHECK_CLOSE(json_num(out, "0.avg_ts"), (a + b) / 2, 1e-4 * (a + b), "avg_ts");
    CHECK_CLOSE(json_num(out, "0.stddev_ts"), fabs(a - b) / sqrt(2.0), 1e-4 * (a + b), "stddev_ts");
    EXPECT_OK("bench", "-m", DENSE, "-p", "8", "-n", "0", "-r", "1", "-o", "jsonl", "-oe", "md");
    CHECK(json_valid(out, out_len) && strstr(err, "| test |") == NULL && strstr(err, "pp8"), "jsonl and md: %s / %s",
          out, err);
    EXPECT_OK("bench", "-m", DENSE, "-p", "8", "-n", "0", "-r", "1", "-d", "64");
    CHECK(strstr(out, "pp8 @ d64") && strstr(out, " \xC2\xB1 "), "md: %s", out);
    test_bench_profile();
    EXPECT(2, "md|json|jsonl", "bench", "-m", DENSE, "-o", "sql");
    EXPECT(2, "found no test", "bench", "-m", DENSE, "-p", "0", "-n", "0");
}

static const char *text_file(void)
{
    static char text[6000];
    rng r = { 5 };
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = "the cat sat on a mat.\n"[rng_below(&r, 22)];
    return write_file("eval.txt", text, sizeof text - 1);
}

/* The f32 rows of a file of --save-logits as llama.cpp stores them: 16 bits between the least log p >= -16 and 0. */
static const char *as_llama(const char *path, int n_ctx, int n_vocab)
{
    static char to[1200];
    const int rows = n_ctx - 1 - n_ctx / 2, head = 24 + 64 + 192;
    FILE *in = fopen(path, "rb"), *f = fopen((snprintf(to, sizeof to, "%s.llama", path), to), "wb");
    int32_t shape[3] = { n_ctx, n_vocab, 1 };
    float *x = malloc((size_t)n_vocab * sizeof *x);
    uint16_t *q = calloc((size_t)n_vocab + 1, sizeof *q);

    fwrite("_logits_", 1, 8, f);
    fwrite(shape, sizeof shape, 1, f);
    fseek(in, head, SEEK_SET);
    for (int i = 0, id; i < n_ctx && fread(&id, 4, 1, in) == 1; i++)
        fwrite(&id, 4, 1, f);
    for (int r = 0; r < rows && fread(x, sizeof *x, (size_t)n_vocab, in) == (size_t)n_vocab; r++) {
        double sum = 0, most = -INFINITY;
        for (int i = 0; i < n_vocab; i++) {
            sum += exp((double)x[i]);
            most = x[i] > most ? (double)x[i] : most;
        }
        const double lse = log(sum), top = most - lse, low = top - 16;
        const float scale[2] = { (float)((top - low) / 65535), (float)low };
        for (int i = 0; i < n_vocab; i++) {
            const double v = (double)x[i] - lse;
            q[i] = (uint16_t)(v > low ? lrint((v - low) / (double)scale[0]) : 0);
        }
        fwrite(scale, sizeof scale, 1, f);
        fwrite(q, sizeof *q, (size_t)((n_vocab + 1) / 2 * 2), f);
    }
    fclose(in);
    fclose(f);
    free(x);
    free(q);
    return to;
}

/* A base that was saved gives the divergence of the computed one; a file of something else is refused by name. */
static void test_logits(void)
{
    char text[200], path[220], *damaged = NULL;
    size_t n = 0;

#define KL(...) "eval", "kl", "-f", text, "-c", "64", "--chunks", "1", "--pairs", "q4_0", "--kv-tail", "0", __VA_ARGS__
#define KL_DAMAGED KL("-m", DENSE, "--base-logits", write_file("damaged.logits", damaged, n))
    snprintf(text, sizeof text, "%s", text_file());
    snprintf(path, sizeof path, "%s.logits", text);
    EXPECT_JSON(KL("-m", DENSE, "--save-logits", path, "--json"));
    const double mean = json_num(out, "results.0.mean"), max = json_num(out, "results.0.max");
    CHECK(mean > 0, "%s", out);
    EXPECT_JSON(KL("-m", DENSE, "--base-logits", path, "--json"));
    CHECK(json_num(out, "results.0.mean") == mean && json_num(out, "results.0.max") == max, "saved: %.17g: %s", mean,
          out);
    CHECK(strstr(out, "\"base_logits\":\"") && strstr(out, "f16/f16 on the prefill path"), "what it is: %s", out);
    EXPECT(2, "chunks of 64 tokens", KL("-m", DENSE, "--chunks", "2", "--base-logits", path));
    EXPECT(2, "--base-compute: found beside --base-logits",
           KL("-m", DENSE, "--base-logits", path, "--base-compute", "f32"));
    EXPECT(2, "it is of another text", KL("-m", HYBRID, "--base-logits", path));

    FILE *f = fopen(path, "rb");
    damaged = malloc(1 << 24);
    n = fread(damaged, 1, 1 << 24, f);
    fclose(f);
    uint32_t n_vocab;
    memcpy(&n_vocab, damaged + 16, sizeof n_vocab);
    EXPECT_JSON(KL("-m", DENSE, "--base-logits", as_llama(path, 64, (int)n_vocab), "--json"));
    CHECK_CLOSE(json_num(out, "results.0.mean"), mean, 0.02 * mean + 1e-6, "llama.cpp's 16 bits");
    n -= 5;
    EXPECT(3, "bytes found, wanted", KL_DAMAGED);
    n += 5;
    damaged[24] ^= 1;
    EXPECT(2, "SHA-256 of the vocabulary", KL_DAMAGED);
    damaged[24] ^= 1;
    damaged[24 + 64 + 192 + 40] ^= 1;
    EXPECT(2, "token 10 is", KL_DAMAGED);
    damaged[0] = 'x';
    EXPECT(3, "found neither", KL_DAMAGED);
    free(damaged);
#undef KL_DAMAGED
#undef KL
}

static void test_eval(void)
{
    const char *text;

    test_logits();
    text = text_file();

    EXPECT_JSON("eval", "ppl", "-m", HYBRID, "-f", text, "-c", "128", "--chunks", "2", "--path", "both", "--json");
    CHECK(json_num(out, "results.0.ppl") > 1 && json_num(out, "results.1.rows") == 2 * 63, "ppl: %s", out);
    CHECK_CLOSE(json_num(out, "results.0.nll"), json_num(out, "results.1.nll"), 1e-3, "the two paths");
    EXPECT_JSON("eval", "kl", "-m", DENSE, "-f", text, "-c", "128", "--chunks", "2", "--pairs", "f16,q4_0:f16",
                "--kv-tail", "0,64", "--path", "both", "--json");
    CHECK(json_num(out, "results.0.mean") == 0 && json_num(out, "results.0.same_top") == 1, "f16 against itself: %s",
          out);
    CHECK(json_num(out, "results.1.mean") == 0, "f16 by decode steps has the bits of prefill: %s", out);
    CHECK(json_num(out, "results.2.mean") > 0 && json_num(out, "results.2.max") >= json_num(out, "results.2.p99_9"),
          "%s", out);
    CHECK(json_num(out, "results.4.mean") < json_num(out, "results.2.mean"), "the exact tail must help: %s", out);
    CHECK(isnan(json_num(out, "results.6.mean")), "a wide pair has no tail variants: %s", out);
    EXPECT_OK("eval", "kl", "-m", DENSE, "-f", text, "-c", "130", "--chunks", "1", "--pairs", "tbq4", "--kl-base-type",
              "f32");
    CHECK(strstr(out, "| tbq4_0 | tbq4_0 |") && strstr(out, "base f32/f32"), "canonical names: %s", out);
    CHECK(run("eval", "kl", "-m", DENSE, "-f", text, "-c", "64", "--chunks", "1", "--pairs", "q4_0", "--kv-tail", "0",
              "--gate", "1e-12", NULL) == 6 &&
              strstr(err, "wanted at most"),
          "gate: %s", err);
    EXPECT_JSON("eval", "kl", "-m", DENSE, "-f", text, "-c", "64", "--chunks", "1", "--pairs", "f16", "--base-model",
                DENSE, "--base-compute", "f32", "--json");
    CHECK(json_num(out, "results.0.mean") < 0.01 && strstr(out, "\"base_compute\":\"f32\""), "another compute: %s",
          out);
    EXPECT(2, "wanted the tested model's vocabulary", "eval", "kl", "-m", DENSE, "-f", text, "-c", "64", "--chunks",
           "1", "--pairs", "f16", "--base-model", HYBRID);
    EXPECT(2, "is encoded a page at a time", "run", "-m", DENSE, "-p", "a", "-n", "1", "-ctk", "ptcq3", "--kv-tail",
           "0");
    EXPECT(2, "wanted at least one chunk", "eval", "ppl", "-m", DENSE, "-f", text, "-c", "100000");
    EXPECT(2, "wanted 1 or more", "eval", "ppl", "-m", DENSE, "-f", text, "--chunks", "0");
    EXPECT_JSON("eval", "needle", "-m", DENSE, "-f", text, "--lengths", "1200,1300", "--seeds", "1-3", "--json");
    CHECK(json_num(out, "results.1.documents") == 3 && json_num(out, "results.1.accuracy") <= 1, "needle: %s", out);
    CHECK(run("eval", "needle", "-m", DENSE, "-f", text, "--lengths", "1200", "--seeds", "1", "--gate", "1", NULL) == 6,
          "a random model finds nothing: %s", out);
    EXPECT(2, "six notes and a question", "eval", "needle", "-m", DENSE, "-f", text, "--lengths", "256", "--seeds",
           "1");
}

static void test_inspect_plan(void)
{
    EXPECT_OK("inspect", DENSE);
    CHECK(strstr(out, "general.architecture") && strstr(out, "BF16"), "inspect: %.200s", out);
    EXPECT_JSON("inspect", "-m", HYBRID, "--keys", "--tensors", "--types", "--program", "--formats", "--devices",
                "--json");
    CHECK(strstr(out, "\"program\"") && strstr(out, "gdn_step") && strstr(out, "tbq3_0"), "inspect: %.200s", out);
    EXPECT_OK("inspect", "--formats");
    EXPECT(2, "wanted -m", "inspect");
    EXPECT_JSON("plan", DENSE, "--memory", "1G", "-c", "1024,4096", "--json");
    CHECK(json_num(out, "memory") == 1073741824.0 && json_num(out, "rows.0.total") > 0, "plan: %.200s", out);
    double fits = json_num(out, "rows.0.largest_context");
    CHECK(fits > 4096 && fits < 16777216, "largest context %g", fits);
    EXPECT_JSON("plan", DENSE, "--memory", "1K", "-c", "1024", "-ctk", "f16", "--json");
    CHECK(json_num(out, "rows.0.largest_context") == 0 && strstr(out, "\"fits\":false"), "plan: %s", out);
    CHECK(strstr(out, "\"run\":null") && strstr(out, "\"serve\":null"), "plan: %s", out);
    EXPECT_JSON("plan", DENSE, "--memory", "1G", "-ctk", "f16", "-ctv", "q8_0", "-np", "3", "-c", "64", "--json");
    CHECK(json_num(out, "serve.sequences") == 3 && json_num(out, "run.sequences") == 1, "plan: %s", out);
    EXPECT_OK("plan", HYBRID);
    CHECK(strstr(out, "kvant run takes") && strstr(out, "kvant serve takes"), "plan: %s", out);
}

/* Layers over devices: the text of one device, and the plan's parts. */
static void test_devices(void)
{
    char alone[4096];

    EXPECT_OK("run", "-m", DENSE, "-p", "The ship", "-n", "12", "--temp", "0", "--device", "cpu");
    snprintf(alone, sizeof alone, "%s", out);
    EXPECT_OK("run", "-m", DENSE, "-p", "The ship", "-n", "12", "--temp", "0", "-dev", "cpu,cpu", "-ts", "3,1", "-sm",
              "layer");
    CHECK(strcmp(out, alone) == 0 && strstr(err, "layers on CPU"), "%s instead of %s: %s", out, alone, err);
    EXPECT_OK("run", "-m", DENSE, "-p", "The ship", "-n", "12", "--temp", "0", "-dev", "cpu,cpu", "-ngl", "2");
    CHECK(strcmp(out, alone) == 0 && strstr(err, "1 layers on CPU"), "%s instead of %s: %s", out, alone, err);
    EXPECT(5, "no GPU device is chosen", "run", "-m", DENSE, "-p", "x", "-dev", "cpu:1", "-ngl", "2");
    EXPECT_JSON("plan", DENSE, "-dev", "cpu,cpu", "-ngl", "2", "-c", "64", "-ctk", "f16", "--json", "--memory", "1G");
    CHECK(json_num(out, "devices.1.layers") == 1 && json_num(out, "devices.2.layers") == 1, "%s", out);
    CHECK(json_num(out, "devices.0.total") + json_num(out, "devices.1.total") + json_num(out, "devices.2.total") ==
              json_num(out, "run.total"),
          "%s", out);
    EXPECT_OK("plan", DENSE, "-dev", "cpu,cpu", "-c", "64", "-ctk", "f16", "--memory", "1G");
    CHECK(strstr(out, "  cpu: "), "%s", out);
}

#define RUN(model, ...)                                                                                                \
    "run", "-m", model, "-p", "The ship", "-n", "12", "--temp", "0", "-c", "128", "-ub", "64", __VA_ARGS__

/* A model larger than its device: the text of one that is large enough, a note, and no more bytes than were given. */
static void test_small_device(void)
{
    static const struct { const char *model, *memory, *note; } list[] = {
        { EXPERTS, "1900K", "has the routed experts of " },
        { EXPERTS, "1M", ", without routed experts: cpu " },
        { DENSE, "1300K", "which has 1 of 3 layers: cpu " },
    };
    char alone[4096];

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        EXPECT_OK(RUN(list[i].model, "--device", "cpu"));
        CHECK(!strstr(err, "placement"), "%s", err);
        snprintf(alone, sizeof alone, "%s", out);
        EXPECT_OK(RUN(list[i].model, "--device", "cpu:1", "--device-memory", list[i].memory));
        CHECK(strcmp(out, alone) == 0 && strstr(err, list[i].note), "%s in %s: %s instead of %s: %s", list[i].model,
              list[i].memory, out, alone, err);
        EXPECT(4, "free on device cpu:1", RUN(list[i].model, "--device", "cpu:1", "--device-memory", list[i].memory,
                                              "--fit", "off"));
        EXPECT(4, "free on device cpu:1", RUN(list[i].model, "--device", "cpu:1", "--device-memory", list[i].memory,
                                              "-ngl", "auto", "-ncmoe", "0"));
    }
    EXPECT(4, "free on device cpu:1", RUN(DENSE, "--device", "cpu:1", "--device-memory", "100K"));
    EXPECT(4, "device cpu:2: ", RUN(DENSE, "-dev", "cpu:1,cpu:2", "--device-memory", "64M,100K", "--fit", "off"));
    EXPECT_OK(RUN(DENSE, "--device", "cpu:1", "--cpu-moe"));
    CHECK(strstr(err, "experts on the CPU: no effect: the model has none"), "%s", err);
    EXPECT_JSON("plan", EXPERTS, "--device", "cpu:1", "--device-memory", "1900K", "-c", "128", "-ub", "64", "-ctk",
                "f16", "--json");
    CHECK(strstr(out, "\"fits\":true") && strstr(out, "\"device\":\"cpu\",") &&
              json_num(out, "devices.1.total") <= 1900 * 1024 && json_num(out, "devices.1.layers") == 2 &&
              strstr(out, "\"group\":\"routed experts\""),
          "%s", out);
}

/* Groups of tensors are all of the file; the bound is bytes by bandwidth. */
static void test_placement(void)
{
    double bytes = 0;
    char path[64];

    EXPECT_JSON("inspect", EXPERTS, "--placement", "--device", "cpu:1", "--cpu-moe", "-c", "128", "--json");
    for (int d = 0; d < 2; d++)
        for (int g = 0; g < 5; g++) {
            snprintf(path, sizeof path, "devices.%d.groups.%d.bytes", d, g);
            bytes += json_num(out, path) > 0 ? json_num(out, path) : 0;
        }
    const double routed = json_num(out, "devices.1.groups.0.bytes");
    CHECK(json_num(out, "devices.1.groups.0.token_bytes") * 4 == routed, "2 of 8 experts: %s", out);
    EXPECT_JSON("bench", EXPERTS, "--device", "cpu:1", "--cpu-moe", "-p", "0", "-n", "2", "-r", "1", "-o", "json");
    CHECK(json_num(out, "0.cpu_experts_bytes") > 0 && json_num(out, "0.cpu_experts_ns") > 0 &&
              json_num(out, "0.memory_read_gbs") > 0,
          "experts' bytes, time and memory's rate: %.700s", out);
    EXPECT_OK("bench", EXPERTS, "--device", "cpu:1", "--cpu-moe", "-p", "16", "-n", "2", "-r", "1", "-o", "md");
    CHECK(strstr(out, "experts GB/s |") && strstr(out, "GB/s\nat which") && strstr(out, "|                |\n"),
          "a column of experts' reads, empty for a prompt: %.900s", out);
    EXPECT_OK("bench", EXPERTS, "--device", "cpu:1", "--cpu-moe", "-p", "16", "-n", "0", "-r", "1", "-o", "json");
    CHECK(strstr(out, "\"cpu:1+cpu\"") && strstr(out, "\"n_cpu_moe\":2,"), "%s", out);
    EXPECT_JSON("plan", EXPERTS, "-c", "128", "-ctk", "f16", "--json");
    CHECK(bytes == json_num(out, "rows.0.weights"), "%.0f bytes in groups: %s", bytes, out);
    EXPECT_OK("inspect", EXPERTS, "--placement", "--device", "cpu:1", "--cpu-moe", "-c", "128", "--bandwidth", "1,0.5");
    CHECK(strstr(out, "bound: ") && strstr(out, "at 1 GB/s"), "%s", out);
    EXPECT_OK("inspect", EXPERTS, "--placement", "-c", "128");
    CHECK(!strstr(out, "bound: ") && strstr(out, "  cpu: 3 layers"), "%s", out);
}

static double plan_scratch(const char *model, const char *device, const char *sequences, const char *ubatch)
{
    EXPECT_JSON("plan", model, "--device", device, "-np", sequences, "-ub", ubatch, "-c", "64", "--json");
    return json_num(out, "rows.0.scratch");
}

/* Tokens of a pass where -ub is not given, or 0: 512, and 2048 on CUDA for many sequences or experts. */
static void test_pass_tokens(void)
{
    static const struct { const char *model, *device, *sequences, *like; } list[] = {
        { DENSE, "cpu", "16", "512" },    { DENSE, "cuda:1", "15", "512" }, { DENSE, "cuda:1", "16", "2048" },
        { EXPERTS, "cuda", "1", "2048" }, { EXPERTS, "cpu", "1", "512" },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        CHECK(plan_scratch(list[i].model, list[i].device, list[i].sequences, "0") ==
                  plan_scratch(list[i].model, list[i].device, list[i].sequences, list[i].like),
              "%s, %s, %s sequences: not as with %s tokens", list[i].model, list[i].device, list[i].sequences,
              list[i].like);
    CHECK(plan_scratch(DENSE, "cuda", "16", "2048") > plan_scratch(DENSE, "cuda", "16", "512"),
          "more tokens, no more scratch");
}

/* The report of several jobs is that of one. */
static void test_verify_jobs(void)
{
    EXPECT_JSON("verify", "--quick", "--ops", "add,rope,cache_write,attn", "--pairs", "f16:f16", "-j", "1", "--json", "-");
    CHECK(json_num(out, "passed") > 50, "verify -j 1: %.300s", out);
    char *one = strdup(out);
    EXPECT_JSON("verify", "--quick", "--ops", "add,rope,cache_write,attn", "--pairs", "f16:f16", "--jobs", "3", "--json", "-");
    CHECK(strcmp(one, out) == 0, "verify --jobs 3: %.300s", out);
    free(one);
    EXPECT(2, "64", "verify", "--ops", "add", "-j", "65");
}

static void test_quantize_verify(void)
{
    const char *q8 = in_work("q8.gguf");

    EXPECT_JSON("quantize", DENSE, q8, "q8_0", "--json");
    CHECK(json_num(out, "n_converted") > 0 && json_num(out, "out_bytes") < json_num(out, "in_bytes"),
          "quantize: %.200s", out);
    EXPECT_OK("run", "-m", q8, "-p", "Hello", "-n", "3");
    EXPECT(2, "wanted one of", "quantize", DENSE, q8, "q5_x");
    const char *im = in_work("im.gguf");
    EXPECT_JSON("imatrix", DENSE, "-f", "README.md", "-c", "64", "--chunks", "2", "-o", im, "--json");
    CHECK(json_num(out, "matrices") > 5 && json_num(out, "chunks") == 2, "imatrix: %.200s", out);
    EXPECT_JSON("quantize", DENSE, q8, "iq4_nl", "--imatrix", im, "--json");
    CHECK(json_num(out, "n_weighted") > 0, "quantize: %.200s", out);
    EXPECT(3, "general.type", "quantize", DENSE, q8, "iq4_nl", "--imatrix", DENSE);
    EXPECT(2, "wanted IN.gguf", "quantize", DENSE);
    EXPECT_JSON("verify", "--formats", "tbq4_0", "--ops", "attn,cache_write", "--pairs", "tbq4_0:f16", "--json", "-");
    CHECK(json_num(out, "failed") == 0 && json_num(out, "passed") > 10, "verify: %.300s", out);
    EXPECT_JSON("verify", "--golden", "tests/golden", "--json", "-");
    CHECK(json_num(out, "failed") == 0 && json_num(out, "passed") > 100, "verify: %.300s", out);
    EXPECT_JSON("verify", "--all", "--quick", "--ops", "add", "--json", "-");
    CHECK(json_num(out, "failed") == 0 && strstr(out, "\"reports\"") && strstr(out, "\"name\":\"cpu\"") &&
              strstr(out, "\"op\":\"add\""),
          "verify --all: %.300s", out);
    EXPECT(2, "found --all and --device cpu, wanted one of them", "verify", "--all", "--device", "cpu");
    EXPECT(2, "unknown name \"atn\"", "verify", "--all", "--ops", "atn");
    EXPECT(2, "unknown name \"atn\"", "verify", "--ops", "atn");
    EXPECT(2, "verify: --ops; known: add argmax", "verify", "--ops", "atn"); /* B23 */
    CHECK(strstr(err, "attn_score") && strstr(err, "slot_zero"), "all ops are listed: %s", err);
    EXPECT(2, "unknown name \"tbq5_0\"; known: f32 f16", "verify", "--formats", "tbq4_0,tbq5_0", "--ops", "attn");
    EXPECT(2, "unknown name \"f16:x\"; known: all, ci, and K:V of f32 f16", "verify", "--pairs", "f16:x");
    EXPECT(5, "unknown; this build has", "verify", "--device", "abacus");
    EXPECT(5, "unknown; this build has", "plan", "-m", DENSE, "--device", "abacus");
    EXPECT(3, "no/such", "verify", "--golden", "/no/such");
    EXPECT(3, "want 131072", "run", "-m", DENSE, "-p", "x", "-n", "1", "-ctk", "qjl1_256", "--qjl-projection", q8);
    EXPECT(3, "no/such", "run", "-m", DENSE, "-p", "x", "-n", "1", "-ctk", "qjl1_256", "--qjl-projection", "/no/such");
    EXPECT_OK("run", "-m", DENSE, "-p", "x", "-n", "2", "--trace", in_work("trace.json"));
    size_t n = slurp(in_work("trace.json"), out);
    CHECK(json_valid(out, n), "trace: %.100s", out);
}

static void find_program(const char *self)
{
    const char *env = getenv("KVANT_BIN"), *slash = strrchr(self, '/');

    if (env && *env)
        snprintf(program, sizeof program, "%s", env);
    else
        snprintf(program, sizeof program, "%.*s/kvant", slash ? (int)(slash - self) : 1, slash ? self : ".");
}

int main(int argc, char **argv)
{
    (void)argc;
    out = malloc(OUT_CAP);
    err = malloc(OUT_CAP);
    find_program(argv[0]);
    snprintf(work, sizeof work, "/tmp/kvant_cli_XXXXXX");
    if (!out || !err || !mkdtemp(work) || access(program, X_OK) != 0) {
        printf("FAIL %s: cannot be started (KVANT_BIN), or no folder in /tmp\ncheck_cli: 0 passed, 1 failed\n",
               program);
        return 1;
    }
    snprintf(file_out, sizeof file_out, "%s/out", work);
    snprintf(file_err, sizeof file_err, "%s/err", work);
    test_usage();
    test_closed_output();
    test_option_errors();
    test_refused();
    test_environment();
    test_documents();
    test_completion();
    test_bad_files();
    test_bad_prompts();
    test_run();
    test_run_repeats();
    test_chat();
    test_chat_cache();
    test_interrupt();
    test_bench();
    test_eval();
    test_inspect_plan();
    test_pass_tokens();
    test_devices();
    test_small_device();
    test_placement();
    test_quantize_verify();
    test_verify_jobs();
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", work);
    if (system(cmd) != 0)
        printf("could not remove %s\n", work);
    return check_end("check_cli");
}
