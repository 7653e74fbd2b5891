/* check_jinja_fuel.c: a template's steps cost what they do.  Templates made to be slow, over a request's data or by
 * themselves, end in under a second of processor: with a text or with an error, but not by hanging.  Those that are
 * innocent end well with large data. */
#include <time.h>
#include "base/mem.h"
#include "base/text/sbuf.h"
#include "support/check.h"
#include "text/jinja/jinja.h"

static double cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The variables of all templates: a, 400,000 times "a"; e, the same of two-byte characters; w, words; l, numbers;
 * m, 5,000 messages. */
static void set_data(jinja_run *r)
{
    sbuf b = { 0 };
    kvant_diag diag = { "" };

    for (int i = 0; i < 400000; i++)
        sbuf_puts(&b, "a");
    CHECK(jinja_set_string(r, "a", b.s, b.n, JINJA_DATA, &diag) == KVANT_OK, "%s", diag.text);
    sbuf_drop(&b, b.n);
    for (int i = 0; i < 200000; i++)
        sbuf_puts(&b, "\xC3\xA9");
    CHECK(jinja_set_string(r, "e", b.s, b.n, JINJA_DATA, &diag) == KVANT_OK, "%s", diag.text);
    sbuf_drop(&b, b.n);
    for (int i = 0; i < 100000; i++)
        sbuf_puts(&b, "ab ");
    CHECK(jinja_set_string(r, "w", b.s, b.n, JINJA_DATA, &diag) == KVANT_OK, "%s", diag.text);
    sbuf_drop(&b, b.n);
    sbuf_puts(&b, "[0");
    for (int i = 1; i < 50000; i++)
        sbuf_printf(&b, ",%d", i);
    sbuf_puts(&b, "]");
    CHECK(jinja_set_json(r, "l", b.s, b.n, &diag) == KVANT_OK, "%s", diag.text);
    sbuf_drop(&b, b.n);
    for (int i = 0; i < 5000; i++)
        sbuf_printf(&b, "%s{\"role\":\"user\",\"content\":\"message %d of many, with words in it\"}", i ? "," : "[", i);
    sbuf_puts(&b, "]");
    CHECK(jinja_set_json(r, "m", b.s, b.n, &diag) == KVANT_OK, "%s", diag.text);
    sbuf_free(&b);
}

static int run(const char *source, size_t n, double *took, kvant_diag *diag)
{
    jinja *t = NULL;
    jinja_run *r = NULL;
    jinja_text out;
    double from = cpu_s();
    int code = jinja_parse(source, n, &t, diag);

    *took = cpu_s() - from;
    if (code == KVANT_OK)
        code = jinja_run_open(t, &r, diag);
    if (code == KVANT_OK) {
        set_data(r);
        from = cpu_s();
        code = jinja_render(r, &out, diag);
        *took += cpu_s() - from;
    }
    jinja_run_close(r);
    jinja_free(t);
    return code;
}

static void check_time(const char *name, const char *source, size_t n)
{
    const double most = check_sanitized ? 12 : 1.5; /* 0.1 to 0.3 s on an idle machine */
    kvant_diag diag = { "" };
    double took;
    const int code = run(source, n, &took, &diag);

    CHECK(code == KVANT_OK || code == KVANT_EINVAL || code == KVANT_EFORMAT, "%s: %d: %s", name, code, diag.text);
    CHECK(took < most, "%s: %.2f s (%s)", name, took, code == KVANT_OK ? "ended well" : diag.text);
}

#define LOOP(body) "{% for i in range(100000) %}" body "{% endfor %}"
static const char *const slow[] = {
    LOOP("{{ a.rfind('ba') }}"),
    LOOP("{{ a.rfind(a[:200000] ~ 'b') }}"),
    "{% set n = 'b' ~ a[:100000] %}" LOOP("{{ a.rfind(n) }}"),
    "{% set n = a[:100000] ~ 'b' %}" LOOP("{{ a.find(n) }}{{ n in a }}"),
    LOOP("{{ a.rsplit('ba') | length }}"),
    "{% set n = 'b' ~ a[:100000] %}{{ a.rsplit(n) | length }}{{ a.rsplit(n, 5) }}{{ a.count(n) }}",
    LOOP("{{ a.replace('b', '') | length }}"),
    LOOP("{{ a.count('b') }}{{ a.partition('b') | length }}"),
    LOOP("{{ e[199999] }}"),
    LOOP("{{ e[5:199999] | length }}"),
    LOOP("{{ e | length }}{{ e | wordcount }}"),
    "{{ e[:32000][::2] | length }}" LOOP("{{ e[:32000][::-1] | length }}"),
    LOOP("{{ a.strip(e) }}"),
    "{{ a.strip(e ~ 'a') }}",
    "{{ e.strip(a ~ '\xC3\xA9') }}{{ a | trim(e ~ 'a') }}",
    LOOP("{{ w.split() | length }}"),
    LOOP("{{ w.rsplit() | length }}"),
    LOOP("{{ w.splitlines() | length }}"),
    LOOP("{{ a.startswith((a, a, a, a, a, a, a, a, a, a)) }}"),
    "{% set t = namespace(v=()) %}{% for i in range(4000) %}{% set t.v = t.v + (a,) %}{% endfor %}"
    LOOP("{{ a.startswith(t.v) }}"),
    "{% set t = namespace(v=()) %}{% for i in range(1000) %}{% set t.v = t.v + (i,) %}{% endfor %}"
    LOOP("{{ a.endswith(('b',) * 5000) }}"),
    "{% set d = {a: 1} %}" LOOP("{{ d[a] }}"),
    "{% set d = {a: 1, a ~ 'b': 2, a ~ 'c': 3} %}" LOOP("{{ d.get(a ~ 'c') }}"),
    LOOP("{% set d = dict({a: i}) %}"),
    "{% set ns = namespace(v={}) %}{% for i in range(3000) %}{% set ns.v = dict(ns.v, **{'k' ~ i: 1}) %}{% endfor %}",
    "{% set t = (1,) * 2000 %}{{ l | map('string') | map('list') | list | length }}"
    "{% set d = {(1, 2): 1, (2, 3): 1, (3, 4): 1} %}" LOOP("{{ d[(3, 4)] }}"),
    "{{ l | unique | list | length }}{{ l | batch(2) | map('list') | list | length }}",
    LOOP("{{ l | sort | length }}"),
    LOOP("{{ l | reverse | list | length }}{{ l[::2] | length }}"),
    LOOP("{{ l | map('string') | join | length }}"),
    LOOP("{{ l | sum }}{{ l | max }}{{ l | min }}"),
    LOOP("{{ 49999 in l }}{{ l.index(49999) }}{{ l.count(1) }}"),
    LOOP("{{ l == l }}"),
    LOOP("{{ a == a ~ '' }}{{ a < a ~ 'b' }}"),
    LOOP("{{ a | upper | length }}"),
    LOOP("{{ a | escape | length }}{{ a | tojson | length }}"),
    LOOP("{{ a.isalpha() }}{{ a.isupper() }}{{ a.isspace() }}"),
    LOOP("{{ '%s' | format(a) | length }}{{ '{}'.format(a) | length }}"),
    LOOP("{{ 0.1234567890123456 * i }}"),
    LOOP("{{ '%.30f' | format(1.0e300) }}{{ (1.0e300 + i) | round(15) }}"),
    LOOP("{{ '1.5e300' | float }}{{ ('  ' * 100000) | int }}"),
    LOOP("{{ strftime_now('%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c') }}"),
    LOOP("{{ 'a' * 100000 }}"),
    LOOP("{{ ['a'] * 100000 }}"),
    LOOP("{{ a | indent(1000) | length }}{{ w | replace(' ', '\n') | indent(1000) | length }}"),
    LOOP("{{ l | tojson | length }}{{ l | string | length }}"),
    LOOP("{{ m | selectattr('role', 'equalto', 'user') | list | length }}"),
    LOOP("{{ m | map(attribute='content') | map('upper') | join | length }}"),
    LOOP("{{ m | sort(attribute='content') | length }}"),
    LOOP("{{ loop.changed(a, l) }}"),
    LOOP("{% set x %}{{ a }}{% endset %}"),
    "{% macro f(x) %}{{ x }}{% endmacro %}" LOOP("{{ f(a) }}"),
    "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    LOOP("{% for c in a %}{% endfor %}"),
    LOOP("{{ a ~ a | length }}"),
};

static void check_slow(void)
{
    for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++)
        check_time(slow[i], slow[i], strlen(slow[i]));
}

/* ---- templates that are long themselves ---- */

static void repeat(sbuf *b, const char *format, int n)
{
    sbuf_drop(b, b->n);
    for (int i = 0; i < n && b->n < JINJA_MAX_SOURCE - 300; i++)
        sbuf_printf(b, format, i, i, i);
}

static void check_long(void)
{
    static const struct {
        const char *format, *end;
    } cases[] = {
        { "{{ v%x }}", "" },                                 /* 100,000 names */
        { "{%% set v%x = 1 %%}", "{% for i in range(100000) %}{{ v0 }}{% endfor %}" }, /* as many variables */
        { "{%% set v%x = 1 %%}", "{% for i in range(100000) %}{{ nowhere }}{% endfor %}" },
        { "{%% if v%x %%}{%% endif %%}", "" },
        { "{{ 1 if v%x else 2 }}", "" },
        { "{{ v.a%x }}", "" },
        { "{%% macro f%x() %%}{%% endmacro %%}", "{{ f0() }}" },
        { "{%% for i in l %%}{%% if v%x %%}{%% break %%}{%% endif %%}{%% endfor %%}", "" },
        { "{{ 'text %x' }}", "" },
        { "{# %x #}{{- 1 -}}\n", "" },
        { "{{ a | trim }}%x", "" },
        { "{{ a.strip() | length }}%x", "" },
        { "{{ a.rfind('%x') }}", "" },
    };
    sbuf b = { 0 };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        repeat(&b, cases[i].format, 200000);
        sbuf_puts(&b, cases[i].end);
        check_time(cases[i].format, b.s, b.n);
    }
    repeat(&b, "v%x + ", 100000);
    char *all = kvant_alloc(b.n + 16);
    const int n = sprintf(all, "{{ %s1 }}", b.s);
    check_time("one expression", all, (size_t)n);
    kvant_free(all);
    sbuf_free(&b);
}

/* ---- what is innocent ---- */

static void check_innocent(void)
{
    static const char *const well[] = {
        "{% for x in m %}<|im_start|>{{ x.role }}\n{{ x.content | trim }}<|im_end|>\n{% endfor %}",
        ("{% for x in m %}{% if x['role'] == 'user' and 'many' in x.content %}{{ x.content.split(' ')[1] }}{% endif %}"
         "{% endfor %}"),
        "{{ a }}{{ e }}{{ w }}{{ a | trim }}{{ a.strip('\\n') }}{{ e | length }}",
        "{{ a.split('</think>')[-1].lstrip('\\n') }}{{ w.replace('a', 'b') | length }}",
        "{% for x in m | reverse %}{{ loop.index0 }}{{ x | tojson }}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for x in m %}{% set ns.n = ns.n + x.content | length %}{% endfor %}{{ ns.n }}",
    };
    kvant_diag diag = { "" };
    double took;

    for (size_t i = 0; i < sizeof well / sizeof well[0]; i++)
        CHECK(run(well[i], strlen(well[i]), &took, &diag) == KVANT_OK, "%s: %s", well[i], diag.text);
}

/* ---- the caller's data stays as it is, and printing has a depth ---- */

static void refused(const char *source, const char *why)
{
    static const char data[] = "[{\"role\":\"user\",\"content\":[\"a\"],\"tool_calls\":[1,[2]]}]";
    kvant_diag diag = { "" };
    jinja *t = NULL;
    jinja_run *r = NULL;
    jinja_text out;

    CHECK(jinja_parse(source, strlen(source), &t, &diag) == KVANT_OK, "%s: %s", source, diag.text);
    if (t && jinja_run_open(t, &r, &diag) == KVANT_OK &&
        jinja_set_json(r, "messages", data, sizeof data - 1, &diag) == KVANT_OK)
        CHECK(jinja_render(r, &out, &diag) != KVANT_OK && strstr(diag.text, why), "%s: %s", source, diag.text);
    jinja_run_close(r);
    jinja_free(t);
}

static void check_refused(void)
{
    static const char *const changes[] = {
        "{{ messages.append(1) }}",
        "{% set _ = messages.append({'role': 'user'}) %}",
        "{{ messages[0].content.append('b') }}",
        "{{ messages[0]['tool_calls'].append(3) }}",
        "{{ messages[0].tool_calls[1].append(3) }}",
        "{% for m in messages %}{{ m.content.append('b') }}{% endfor %}",
        "{% set x = messages %}{{ x.append(1) }}",
        "{{ (messages | first).content.append(1) }}",
        "{{ messages.pop() }}",
        "{{ messages[0].content.pop(0) }}",
    };
    static const char *const deep[] = {
        "{{ ns.v }}", "{{ ns.v | string }}", "{{ ns.v ~ '' }}", "{{ ns.v | tojson }}", "{{ '%s' | format(ns.v) }}",
        "{{ [ns.v] | join }}", "{{ ns.v == ns.v ~ [] }}", "{{ {'a': ns.v} }}", "{{ (ns.v,) }}",
        "{{ '{}'.format(ns.v) }}"
    };
    char source[300];

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        refused(changes[i], "not allowed");
    for (size_t i = 0; i < sizeof deep / sizeof deep[0]; i++)
        for (int n = 70; n < 5000; n *= 8) {
            snprintf(source, sizeof source,
                     "{%% set ns = namespace(v=[1]) %%}{%% for i in range(%d) %%}{%% set ns.v = [ns.v] %%}"
                     "{%% endfor %%}%s", n, deep[i]);
            refused(source, "deep");
        }
}

/* A text that is put out is a step more than the instructions that put it there: 1,500,000 short ones are too many,
 * 1,000,000 are not. */
static void check_put(void)
{
    static const char head[] = "{% set t = 'x' %}{% for i in range(100000) %}", end[] = "{% endfor %}";
    kvant_diag diag = { "" };
    double took;

    for (int n = 10; n <= 15; n += 5) {
        char source[512];
        int at = snprintf(source, sizeof source, "%s", head);
        for (int i = 0; i < n; i++)
            at += snprintf(source + at, sizeof source - (size_t)at, "{{ t }}");
        snprintf(source + at, sizeof source - (size_t)at, "%s", end);
        const int code = run(source, strlen(source), &took, &diag);
        CHECK((code == KVANT_OK) == (n == 10), "%d texts a round: %d: %s", n, code, diag.text);
    }
}

int main(void)
{
    check_put();
    check_slow();
    check_long();
    check_innocent();
    check_refused();
    return check_end("check_jinja_fuel");
}
