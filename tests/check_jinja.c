/* check_jinja.c: the Jinja interpreter against jinja2 (golden.jsonl), its limits and errors, and where bytes come from.
 *
 *   check_jinja                          the tests
 *   check_jinja --render FILE CASES      a template with each line of variables; a line {"text"} or {"error"} for each
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/text/jsonw.h"
#include "base/mem.h"
#include "base/rng.h"
#include "text/jinja/jinja_run.h"
#include "support/check.h"

#define FOLDER "tests/golden/template/"
enum { NOW = 1767225600 }; /* 2026-01-01 00:00 UTC, as in tools/make_template_golden.py */

static char *read_whole(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *s = malloc(1 << 24);

    if (!f) {
        printf("cannot open %s (run from the repository root)\n", path);
        exit(2);
    }
    *n = fread(s, 1, (1 << 24) - 1, f);
    s[*n] = 0;
    fclose(f);
    return s;
}

static jinja *parse(const char *source, kvant_diag *diag)
{
    jinja *t = NULL;

    jinja_parse(source, strlen(source), &t, diag);
    return t;
}

/* A run of t with every key of a dict as a variable. */
static jinja_run *begin_with(const jinja *t, const char *json, size_t n, kvant_diag *diag)
{
    jinja_run *r = NULL;
    jval v;

    if (jinja_run_open(t, &r, diag) < 0)
        return NULL;
    jinja_run_clock(r, NOW);
    int err = jinja_json(r, "variables", json, n, &v, diag);
    for (size_t i = 0; !err && i < v.u.d->n; i++)
        err = jinja_set(r, v.u.d->keys[i].u.s->s, v.u.d->vals[i], diag);
    if (err == 0)
        return r;
    jinja_run_close(r);
    return NULL;
}

static jinja_run *begin(const jinja *t, const char *json, kvant_diag *diag)
{
    return begin_with(t, json, strlen(json), diag);
}

/* The error of a template without variables; 0: it gave `want`. */
static int outcome(const char *source, const char *want, kvant_diag *diag)
{
    jinja_text out = { NULL, NULL, 0 };
    jinja *t = parse(source, diag);

    if (!t)
        return KVANT_EFORMAT;
    jinja_run *r = begin(t, "{}", diag);
    int err = r ? jinja_render(r, &out, diag) : KVANT_ENOMEM;
    CHECK(err || !want || strcmp(out.text, want) == 0, "%s: '%s', want '%s'", source, err ? "" : out.text,
          want ? want : "");
    jinja_run_close(r);
    jinja_free(t);
    return err;
}

/* ---- golden ---- */

typedef struct golden {
    jinja *empty, *t; /* t: the template of the lines that follow */
    jinja_run *data;  /* holds the conversations */
    jval conversations, tools;
    int texts, refusals, no;
} golden;

static jval field(jval line, const char *key)
{
    jval *v = jdict_text(line.u.d, key);

    return v ? *v : J_UNDEF_VALUE;
}

static void golden_text(golden *g, jinja_run *r, jval line, const char *source)
{
    kvant_diag diag = { "" };
    jinja_text out = { "", NULL, 0 };
    const jval want = field(line, "text");
    const int err = r ? jinja_render(r, &out, &diag) : KVANT_EFORMAT;

    if (want.type == J_STR)
        CHECK(err == 0 && out.n == want.u.s->n && memcmp(out.text, want.u.s->s, out.n) == 0,
              "golden.jsonl:%d: %s: %s\n--- got\n%s\n--- want\n%s", g->no, source, diag.text, err ? "" : out.text,
              want.u.s->s);
    else
        CHECK(err < 0, "golden.jsonl:%d: %s gives '%s', jinja2 refuses it", g->no, source, out.text);
    *(want.type == J_STR ? &g->texts : &g->refusals) += 1;
}

static void golden_case(golden *g, jval line)
{
    jinja_run *r = begin(g->t, "{\"documents\":null,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}", NULL);
    const jval more = field(line, "more");

    CHECK(r != NULL, "begin");
    jinja_set(r, "messages", g->conversations.u.l->v[field(line, "c").u.i], NULL);
    jinja_set(r, "tools", field(line, "tools").u.b ? g->tools : J_NONE_VALUE, NULL);
    jinja_set(r, "add_generation_prompt", field(line, "add"), NULL);
    for (size_t i = 0; i < more.u.d->n; i++)
        jinja_set(r, more.u.d->keys[i].u.s->s, more.u.d->vals[i], NULL);
    golden_text(g, r, line, "");
    jinja_run_close(r);
}

static void golden_line(golden *g, const char *s, size_t n)
{
    jinja_run *r = begin(g->empty, "{}", NULL);
    jval line;
    kvant_diag diag = { "" };

    CHECK(jinja_json(r, "golden.jsonl", s, n, &line, &diag) == 0, "%s", diag.text);
    if (field(line, "conversations").type == J_LIST) {
        g->data = r;
        g->conversations = field(line, "conversations");
        g->tools = field(line, "tools");
        return;
    }
    if (field(line, "file").type == J_STR) {
        char path[256];
        size_t len;
        snprintf(path, sizeof path, FOLDER "%s", field(line, "file").u.s->s);
        char *source = read_whole(path, &len);
        jinja_free(g->t);
        g->t = parse(source, &diag);
        CHECK(g->t && !jinja_unknown(g->t), "%s: %s", path, diag.text);
        free(source);
    } else if (field(line, "source").type == J_STR) {
        const char *source = field(line, "source").u.s->s;
        jinja *t = parse(source, &diag);
        jinja_run *run = t ? begin(t, "{}", NULL) : NULL;
        golden_text(g, run, line, source);
        jinja_run_close(run);
        jinja_free(t);
    } else {
        golden_case(g, line);
    }
    jinja_run_close(r);
}

static void test_golden(void)
{
    golden g = { .empty = parse("", NULL) };
    size_t n;
    char *all = read_whole(FOLDER "golden.jsonl", &n);

    for (char *line = all, *end; (end = strchr(line, '\n')); line = end + 1) {
        g.no++;
        golden_line(&g, line, (size_t)(end - line));
    }
    CHECK(g.texts > 700 && g.refusals > 50, "%d texts, %d refusals", g.texts, g.refusals);
    printf("golden: %d texts and %d refusals as jinja2's\n", g.texts, g.refusals);
    jinja_run_close(g.data);
    jinja_free(g.t);
    jinja_free(g.empty);
    free(all);
}

/* ---- errors ---- */

static void test_errors(void)
{
    static const struct {
        const char *source;
        int code;
        const char *says;
    } bad[] = {
        { "a\n {{ 1 + }}", KVANT_EFORMAT, "line 2, column 9: " },
        { "{% if x %}\nb", KVANT_EFORMAT, "want elif for line 1" },
        { "x {% for i in %}", KVANT_EFORMAT, "line 1, column 15" },
        { "{{ 'abc }}", KVANT_EFORMAT, "no end" },
        { "{% break %}", KVANT_EFORMAT, "outside of a loop" },
        { "\u00e9\n\u00e9 {{ x.y }}", KVANT_EINVAL, "line 2, column 8: 'x' is undefined" },
        { "{{ raise_exception('no: ' ~ 3) }}", KVANT_EINVAL, "refuses: no: 3" },
        { "{{ 'a' + 1 }}", KVANT_EINVAL, "str + int" },
        { "{{ 'a' | nope }}", KVANT_EUNSUPPORTED, "line 1, column 10: filter 'nope' is not supported" },
        { "{{ 'a' is nope }}", KVANT_EUNSUPPORTED, "test 'nope'" },
        { "{% import 'x' as y %}", KVANT_EUNSUPPORTED, "tag 'import'" },
        { "{% include '/etc/passwd' %}", KVANT_EUNSUPPORTED, "tag 'include'" },
        { "{% for x in [1] recursive %}{% endfor %}", KVANT_EUNSUPPORTED, "recursive" },
        { "{{ ''.__class__.__mro__ }}", KVANT_EINVAL, "'__class__' is undefined" },
        { "{{ [].append.__globals__['os'] }}", KVANT_EINVAL, "'__globals__' is undefined" },
        { "{{ cycler.__init__ }}", KVANT_EINVAL, "'cycler' is undefined" },
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kvant_diag diag = { "" };
        int err = outcome(bad[i].source, NULL, &diag);
        CHECK(err == bad[i].code && strstr(diag.text, bad[i].says), "%s: %d '%s', want %d '%s'", bad[i].source, err,
              diag.text, bad[i].code, bad[i].says);
    }
}

/* B10: a construct that is not known is told before the first use, and costs nothing where it is not come to. */
static void test_unknown(void)
{
    jinja *t = parse("ok{% if false %}\n{{ x | nope(1) }}{% block b %}{% endblock %}{% endif %}", NULL);

    CHECK(t && jinja_unknown(t) && strcmp(jinja_unknown(t), "line 2, column 8: filter 'nope' is not supported") == 0,
          "%s", t && jinja_unknown(t) ? jinja_unknown(t) : "none");
    jinja_free(t);
    CHECK(outcome("ok{% if false %}{{ x | nope }}{% endif %}", "ok", NULL) == 0, "not come to");
    t = parse("{{ 1 }}", NULL);
    CHECK(t && !jinja_unknown(t), "none");
    jinja_free(t);
}

/* ---- limits: T-08 ---- */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_limits(void)
{
    static const struct {
        const char *source, *says;
    } bombs[] = {
        { "{{ range(1000000000) }}", "range: more than" },
        { "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps" },
        { "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "MiB" },
        { "{{ 'abcdefgh' * 999999999999 }}", "" },
        { "{{ 'abc'.replace('', 'x' * 9999) * 9999 }}", "" },
        { "{% for i in range(99999) %}{{ '0123456789' * 1000 }}{% endfor %}", "MiB of text" },
        { "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros in macros" },
        { "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", "macros in macros" },
        { "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
          "nested deeper" },
        { "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
          "{{ ns.l | tojson }}",
          "nested deeper" },
        { "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
          "{{ ns.l == [ns.l] }}",
          "nested deeper" },
        { "{% set l = [] %}{% set _ = l.append(l) %}{{ l | string }}", "nested deeper" },
        { "{% set l = [] %}{% set _ = l.append(l) %}{{ l < l }}", "" },
        { "{{ [[1]] | map('map', 'map', 'map', 'map', 'map', 'upper') | list }}", "" },
        { "{{ 10 ** 99 }}", "64 bits" },
        { "{{ 9223372036854775807 + 1 }}", "64 bits" },
        { "{{ '%d' % 1e19 }}", "64 bits" },
    };

    for (size_t i = 0; i < sizeof bombs / sizeof bombs[0]; i++) {
        kvant_diag diag = { "" };
        double begun = seconds();
        int err = outcome(bombs[i].source, NULL, &diag);
        double took = seconds() - begun;
        CHECK(err == KVANT_EINVAL && strstr(diag.text, bombs[i].says) && took < 2, "%s: %d '%s' in %.3f s",
              bombs[i].source, err, diag.text, took);
        if (took > 0.05)
            printf("limits: %.0f ms: %s\n", 1e3 * took, bombs[i].source);
    }
}

static char *repeated(const char *a, const char *middle, const char *b, int n)
{
    char *s = malloc((strlen(a) + strlen(b)) * (size_t)n + strlen(middle) + 1), *at = s;

    for (int i = 0; i < n; i++)
        at = stpcpy(at, a);
    at = stpcpy(at, middle);
    for (int i = 0; i < n; i++)
        at = stpcpy(at, b);
    return s;
}

/* Deep sources are refused, and what is allowed fits a small stack. */
static void *test_depth(void *unused)
{
    static const char *const pairs[][3] = {
        { "(", "1", ")" },
        { "[", "", "]" },
        { "{'a':", "1", "}" },
        { "-", "1", "" },
        { "not ", "1", "" },
        { "1 if ", "1", " else 2" },
        { "x(", "", ")" },
        { "x[", "1", "]" },
        { "1 or not 2 < 3 + 4 ~ 5 * -(", "1", ")" },
        { "1 | default(", "1", ")" },
        { "'a' is in [", "", "]" },
    };
    static const char *const blocks[][2] = {
        { "{% if 1 %}", "{% endif %}" },       { "{% for i in [1] %}", "{% endfor %}" },
        { "{% set x %}", "{% endset %}" },     { "{% filter upper %}", "{% endfilter %}" },
        { "{% call m() %}", "{% endcall %}" }, { "{% macro m() %}", "{% endmacro %}" },
    };

    (void)unused;
    for (int n = 1; n < 200000; n = n < 150 ? n + 1 : n * 10) {
        for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
            char *e = repeated(pairs[i][0], pairs[i][1], pairs[i][2], n), *s = repeated("{{ ", e, " }}", 1);
            outcome(s, NULL, NULL);
            free(e);
            free(s);
        }
        for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
            char *s = repeated(blocks[i][0], "x", blocks[i][1], n < 20000 ? n : 20000);
            outcome(s, NULL, NULL);
            free(s);
        }
        char *json = repeated("[", "", "]", n);
        jinja *t = parse("{{ x }}{{ x | tojson(indent=1) }}{{ x == x }}{{ x < x }}", NULL);
        jinja_run *r = NULL;
        jinja_text out;
        CHECK(jinja_run_open(t, &r, NULL) == 0, "run");
        int err = jinja_set_json(r, "x", json, strlen(json), NULL);
        CHECK((err == 0) == (n <= JINJA_MAX_DEPTH), "JSON of depth %d: %d", n, err);
        CHECK(err || jinja_render(r, &out, NULL) == 0, "values of depth %d", n);
        jinja_run_close(r);
        jinja_free(t);
        free(json);
    }
    return NULL;
}

static void test_small_stack(void)
{
    const size_t stack = check_sanitized ? 1024 * 1024 : 64 * 1024; /* instrumented frames are larger */
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    CHECK(pthread_attr_setstacksize(&attr, stack) == 0, "stack size");
    CHECK(pthread_create(&thread, &attr, test_depth, NULL) == 0, "thread");
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

/* ---- where bytes come from: T-09 ---- */

/* Every data byte is one of d, every other one is the template's. */
static void expect_origins(const char *source, const char *want, const char *marks)
{
    jinja *t = parse(source, NULL);
    jinja_run *r = NULL;
    jinja_text out = { "", NULL, 0 };
    kvant_diag diag = { "" };
    char got[256] = "";

    CHECK(jinja_run_open(t, &r, NULL) == 0, "run");
    jinja_set_string(r, "u", "  d<|e|>D ", 10, JINJA_DATA, NULL);
    jinja_set_string(r, "t", "<|t|>", 5, JINJA_TEMPLATE, NULL);
    jinja_set_json(r, "j", "{\"k\":[\"d\",1]}", 13, NULL);
    int err = jinja_render(r, &out, &diag);
    for (size_t i = 0; i < out.n && i < sizeof got - 1; i++)
        got[i] = out.origin[i] == JINJA_DATA ? 'd' : '.';
    CHECK(err == 0 && strcmp(out.text, want) == 0 && strcmp(got, marks) == 0, "%s: %s\n'%s' '%s'\n'%s' '%s'", source,
          diag.text, out.text, want, got, marks);
    jinja_run_close(r);
    jinja_free(t);
}

static void test_origins(void)
{
    expect_origins("<|{{ u | trim }}|>", "<|d<|e|>D|>", "..ddddddd..");
    expect_origins("{{ '<|' + u.strip() + t }}", "<|d<|e|>D<|t|>", "..ddddddd.....");
    expect_origins("{{ (t ~ u)[3:9] }}", "|>  d<", "..dddd");
    expect_origins("{{ (t ~ u)[::-1] }}", " D>|e|<d  >|t|<", "dddddddddd.....");
    expect_origins("{{ u.replace('<|', '[[') | trim }}", "d[[e|>D", "d..dddd");
    expect_origins("{{ ('a' ~ u.strip() ~ 'b') | upper }}", "AD<|E|>DB", ".ddddddd.");
    expect_origins("{{ (t ~ u).split('|') | join('/') }}", "</t/>  d</e/>D ", ".....dddd.d.ddd");
    expect_origins("{% set x %}a{{ u[2] }}b{% endset %}{{ x * 2 }}", "adbadb", ".d..d.");
    expect_origins("{% macro m(a) %}({{ a }}){% endmacro %}{{ m(u[2]) | title }}", "(D)", ".d.");
    expect_origins("{{ j | tojson }}{{ {'a': 1} | tojson }}", "{\"k\": [\"d\", 1]}{\"a\": 1}",
                   "ddddddddddddddd........");
    expect_origins("{{ j }}", "{'k': ['d', 1]}", ".ddd...ddd.....");
    expect_origins("{{ '{}-%s'.format(u[2]) % t }}", "d-<|t|>", "d......");
    expect_origins("{{ ['x', u[2]] | join(', ') }}{{ (u | e)[2:9] }}", "x, dd&lt;|e", "...dddddddd");
    expect_origins("{{ ('a\n' ~ u[2]) | indent(2) }}", "a\n  d", "....d");
    expect_origins("{{ u.splitlines()[0].strip().partition('<')[2].removesuffix('D') }}", "|e|>", "dddd");
    expect_origins("{{ u.strip().title() }}{{ u.strip() | capitalize }}", "D<|E|>DD<|e|>d", "dddddddddddddd");
}

/* Contents of bytes that no template has: each one comes out as data, and nothing of the templates does. */
static void mask_contents(jval v, int content)
{
    if (v.type == J_STR && content)
        for (uint32_t i = 0; i < v.u.s->n; i++)
            ((char *)v.u.s->s)[i] = 1;
    for (size_t i = 0; v.type == J_LIST && i < v.u.l->n; i++)
        mask_contents(v.u.l->v[i], content);
    for (size_t i = 0; v.type == J_DICT && i < v.u.d->n; i++)
        mask_contents(v.u.d->vals[i], jstr_is(v.u.d->keys[i].u.s, "content") || jstr_is(v.u.d->keys[i].u.s, "text"));
}

static void check_masked(const char *file, const jinja_text *out)
{
    const char *const marks[] = {
        "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|eot_id|>", "[INST]", "<|end|>"
    };

    for (size_t i = 0; i < out->n; i++)
        CHECK(out->text[i] != 1 || out->origin[i] == JINJA_DATA, "%s: byte %zu is the template's", file, i);
    for (size_t k = 0; k < sizeof marks / sizeof marks[0]; k++)
        for (const char *at = out->text; (at = strstr(at, marks[k])); at++)
            for (size_t i = 0; marks[k][i]; i++)
                CHECK(out->origin[at - out->text + (long)i] == JINJA_TEMPLATE, "%s: %s is data", file, marks[k]);
}

static void test_origins_of_templates(void)
{
    const char *const files[] = { "chatml_tools.jinja", "headers_date.jinja", "inst_alternate.jinja",
                                  "channels_schema.jinja" };
    size_t n, lines;
    char *all = read_whole(FOLDER "golden.jsonl", &lines);
    int rendered = 0;

    for (int k = 0; k < 4; k++) {
        char path[256];
        snprintf(path, sizeof path, FOLDER "%s", files[k]);
        char *source = read_whole(path, &n);
        jinja *t = parse(source, NULL);
        for (int c = 0, more = 1; more; c++) {
            jinja_run *r = begin(t, "{\"tools\":null,\"add_generation_prompt\":true}", NULL);
            jinja_text out;
            jval data;
            jinja_json(r, "golden", all, strcspn(all, "\n"), &data, NULL);
            const jlist *list = field(data, "conversations").u.l;
            mask_contents(list->v[(size_t)c], 0);
            jinja_set(r, "messages", list->v[(size_t)c], NULL);
            more = (size_t)c + 1 < list->n;
            if (jinja_render(r, &out, NULL) == 0) {
                check_masked(files[k], &out);
                rendered++;
            }
            jinja_run_close(r);
        }
        jinja_free(t);
        free(source);
    }
    CHECK(rendered > 40, "%d conversations", rendered);
    free(all);
}

/* ---- the rest ---- */

/* Integers have no end, as in Python: printed as they came. */
static void test_wide_numbers(void)
{
    static const char *const same[] = { "18446744073709551615", "-9223372036854775809", "123456789012345678901234567890",
                                        "9223372036854775807", "1e400", "-1e999" };
    jinja *t = parse("{{ x }} {{ {'a': [x]} | tojson }}", NULL);

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        kvant_diag diag = { "" };
        jinja_run *r = NULL;
        jinja_text out = { 0 };
        char want[128];
        jinja_run_open(t, &r, NULL);
        CHECK(jinja_set_json(r, "x", same[i], strlen(same[i]), &diag) == KVANT_OK, "%s: %s", same[i], diag.text);
        CHECK(jinja_render(r, &out, &diag) == KVANT_OK, "%s: %s", same[i], diag.text);
        snprintf(want, sizeof want, "%s {\"a\": [%s]}", same[i], same[i]);
        CHECK(out.n == strlen(want) && memcmp(out.text, want, out.n) == 0, "%.*s, want %s", (int)out.n, out.text, want);
        jinja_run_close(r);
    }
    jinja_free(t);
}

static void test_bad_json(void)
{
    static const char *const bad[] = {
        "",      "{",     "[1,]", "{\"a\"}",   "{\"a\":1,}",           "\"a", "\"\\x\"",          "nul", "1 2",
        "[1 2]", "{1:2}", "-",    "\"\\u12\"", "[99999999999999999999", "[",   "{\"a\":1 \"b\":2}"
    };
    jinja *t = parse("{{ x }}", NULL);

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kvant_diag diag = { "" };
        jinja_run *r = NULL;
        jinja_run_open(t, &r, NULL);
        int err = jinja_set_json(r, "x", bad[i], strlen(bad[i]), &diag);
        CHECK(err == KVANT_EINVAL && strncmp(diag.text, "x: ", 3) == 0, "'%s': %d '%s'", bad[i], err, diag.text);
        jinja_run_close(r);
    }
    jinja_free(t);
}

static void test_out_of_memory(void)
{
    const char *source = "{% macro m(a) %}{{ a | upper }}{% endmacro %}{% for i in range(3) %}{{ m('x' * 9000) }}"
                         "{% endfor %}{{ {'a': [1, 2]} | tojson }}{% set x | trim %} y {% endset %}{{ x }}";
    int fails = 0;

    for (long at = 0; at < 500; at++) {
        kvant_diag diag = { "" };
        jinja *t = NULL;
        jinja_run *r = NULL;
        jinja_text out;
        mem_fail_after(at, 0);
        int err = jinja_parse(source, strlen(source), &t, &diag);
        if (err == 0)
            err = jinja_run_open(t, &r, &diag);
        if (err == 0)
            err = jinja_render(r, &out, &diag);
        mem_fail_after(-1, 0);
        jinja_run_close(r);
        jinja_free(t);
        if (err == 0)
            break;
        fails++;
        CHECK(err == KVANT_ENOMEM && diag.text[0], "allocation %ld: %d '%s'", at, err, diag.text);
    }
    CHECK(fails > 5 && fails < 500, "%d failing allocations", fails);
}

/* Random bytes and random pieces of the language: an error or a text, never more. */
static void test_random(void)
{
    static const char *const pieces[] = {
        "{{", "}}", "{%",   "%}",         " if ",      " for ",    " in ",    "x",       "'",        "|",      "(",
        ")",  "[",  "]",    "{",          "}",         " set ",    "=",       " endif ", " endfor ", " else ", ".",
        ",",  "1",  "~",    "-",          "+",         " is ",     " not ",   "items",   " macro ",  " call ", "#}",
        "{#", "\n", "\xff", " endmacro ", " endcall ", " endset ", " upper ", ":",       "\\",       "\""
    };
    rng r = { 5 };

    for (int i = 0; i < 20000; i++) {
        char s[512] = "";
        for (uint32_t k = rng_below(&r, 24); k-- > 0;)
            strcat(s, pieces[rng_below(&r, sizeof pieces / sizeof pieces[0])]);
        kvant_diag diag = { "" };
        int err = outcome(s, NULL, &diag);
        CHECK(err == 0 || diag.text[0], "'%s': %d without a text", s, err);
    }
}

static void bench(void)
{
    size_t n;
    char *source = read_whole(FOLDER "chatml_tools.jinja", &n), *json = malloc(1 << 20), *at = json;
    jinja *t = parse(source, NULL);
    double best = 1e9;

    at = stpcpy(at, "{\"add_generation_prompt\":true,\"messages\":[");
    for (int i = 0; i < 100; i++)
        at += sprintf(
            at, "%s{\"role\":\"%s\",\"content\":\"Message %d: some words of a conversation, one hundred of them.\"}",
            i ? "," : "", i % 2 ? "assistant" : "user", i);
    stpcpy(at, "]}");
    for (int i = 0; i < 50; i++) {
        jinja_text out;
        double begun = seconds();
        jinja_run *r = begin(t, json, NULL);
        CHECK(jinja_render(r, &out, NULL) == 0, "bench");
        jinja_run_close(r);
        best = seconds() - begun < best ? seconds() - begun : best;
    }
    printf("100 messages: %.3f ms\n", 1e3 * best);
    jinja_free(t);
    free(source);
    free(json);
}

static void render_line(const jinja *t, const char *line, size_t n)
{
    kvant_diag diag = { "" };
    jinja_text out;
    jsonw w;
    jinja_run *r = begin_with(t, line, n, &diag);

    jsonw_init(&w);
    jsonw_object(&w);
    if (r && jinja_render(r, &out, &diag) == 0) {
        jsonw_key(&w, "text");
        jsonw_strn(&w, out.text, out.n);
    } else {
        jsonw_kstr(&w, "error", diag.text);
    }
    jsonw_end(&w);
    printf("%s\n", w.buf);
    jsonw_free(&w);
    jinja_run_close(r);
}

static int render_file(const char *file, const char *cases)
{
    kvant_diag diag = { "" };
    size_t n;
    char *source = read_whole(file, &n), *lines = read_whole(cases, &n);
    jinja *t = parse(source, &diag);

    if (!t || jinja_unknown(t))
        fprintf(stderr, "%s: %s\n", file, t ? jinja_unknown(t) : diag.text);
    for (char *line = lines, *end; t && (end = strchr(line, '\n')); line = end + 1)
        render_line(t, line, (size_t)(end - line));
    jinja_free(t);
    free(source);
    free(lines);
    return t ? 0 : 1;
}

int main(int argc, char **argv)
{
    setenv("TZ", "UTC", 1);
    if (argc == 4 && strcmp(argv[1], "--render") == 0)
        return render_file(argv[2], argv[3]);
    test_golden();
    test_errors();
    test_unknown();
    test_limits();
    test_small_stack();
    test_origins();
    test_origins_of_templates();
    test_bad_json();
    test_wide_numbers();
    test_out_of_memory();
    test_random();
    bench();
    return check_end("check_jinja");
}
