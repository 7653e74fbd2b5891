/* template.c: which template a model has, and the variables it is run with, as Transformers' apply_chat_template gives
 * them: messages, tools, documents, add_generation_prompt, bos_token, eos_token, and the caller's own.
 *
 * Roles that are known count as the template's text: templates make markers of them ('<|' + role + '|>').  All other
 * strings of a request are data.  Arguments of tool calls come as text in OpenAI's API; templates want objects: a text
 * that is a JSON object is read, and where the template then refuses, the texts are tried as they came.
 *
 * A file may have a second template for chats with tools (tokenizer.chat_template.tool_use), which those are run with.
 * Templates that read a message's content as a list of parts only get lists (template_lists.c finds out). */
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "text/template/template_impl.h"

/* ---- built-in templates ---- */

static const char chatml[] = "{% for message in messages %}"
                             "{{ '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' }}"
                             "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static const char llama3[] =
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + "
    "(message.content or '') | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";

static const char mistral[] =
    "{{ bos_token }}{% set ns = namespace(system='', last=0) %}{% for message in messages %}"
    "{% if message.role == 'system' %}{% set ns.system = message.content + '\n\n' %}"
    "{% if not loop.first %}{{ raise_exception('the system message must be the first') }}{% endif %}"
    "{% elif message.role == 'user' %}{% set ns.last = loop.index %}{% endif %}{% endfor %}"
    "{% for message in messages %}{% if message.role == 'user' %}"
    "{{ '[INST] ' + (ns.system if loop.index == ns.last else '') + message.content + '[/INST]' }}"
    "{% elif message.role == 'assistant' %}{{ ' ' + (message.content or '') | trim + eos_token }}"
    "{% elif message.role != 'system' %}{{ raise_exception('no role ' + message.role + ' in this format') }}{% endif %}"
    "{% endfor %}";

static const char gemma[] =
    "{{ bos_token }}{% set ns = namespace(system='') %}{% for message in messages %}"
    "{% if message.role == 'system' %}{% set ns.system = message.content + '\n\n' %}"
    "{% if not loop.first %}{{ raise_exception('the system message must be the first') }}{% endif %}"
    "{% elif message.role in ['user', 'assistant'] %}"
    "{{ '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\n' }}"
    "{% if message.role == 'user' %}{{ ns.system }}{% set ns.system = '' %}{% endif %}"
    "{{ (message.content or '') | trim + '<end_of_turn>\n' }}"
    "{% else %}{{ raise_exception('no role ' + message.role + ' in this format') }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}";

static const char command_r[] = /* its vocabularies put the first token before every text */
    "{% for message in messages %}{% if message.role in ['system', 'user', 'assistant'] %}"
    "{{ '<|START_OF_TURN_TOKEN|><|' + ('CHATBOT' if message.role == 'assistant' else message.role | upper) + "
    "'_TOKEN|>' + (message.content or '') | trim + '<|END_OF_TURN_TOKEN|>' }}"
    "{% else %}{{ raise_exception('no role ' + message.role + ' in this format') }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}";

static const struct {
    const char *name, *source;
} built_in[] = { { "chatml", chatml }, { "llama3", llama3 }, { "mistral", mistral }, { "gemma", gemma },
               { "command-r", command_r } };
#define BUILT_IN_NAMES "chatml, llama3, mistral, gemma, command-r"

/* ---- opening ---- */

static int parse(chat_template *c, const char *name, const char *source, size_t n, kvant_diag *diag)
{
    c->name = name;
    c->source = kvant_strndup(source, n);
    if (!c->source)
        return kvant_fail(diag, KVANT_ENOMEM, "chat template: out of memory");
    return jinja_parse(source, n, &c->t, diag);
}

static int parse_choice(chat_template *c, const char *choice, kvant_diag *diag)
{
    for (size_t i = 0; i < sizeof built_in / sizeof built_in[0]; i++)
        if (strcmp(built_in[i].name, choice) == 0)
            return parse(c, choice = built_in[i].name, built_in[i].source, strlen(built_in[i].source), diag);
    if (strstr(choice, "{{") || strstr(choice, "{%"))
        return parse(c, "jinja", choice, strlen(choice), diag);
    return kvant_fail(diag, KVANT_EINVAL, "--chat-template: '%.40s', want one of " BUILT_IN_NAMES ", or a template",
                      choice);
}

static int parse_file(chat_template *c, gguf_str text, kvant_diag *diag)
{
    int code = parse(c, "jinja", text.s, text.n, &c->problem);

    if (code != KVANT_EFORMAT)
        return code == KVANT_OK ? code : kvant_fail(diag, code, "%s", c->problem.text);
    c->name = "unknown";
    return KVANT_OK;
}

/* The file's template for chats with tools; one that is no program is not taken. */
static int open_tool_use(chat_template *c, const gguf *g, kvant_diag *diag)
{
    static const char key[] = "tokenizer.chat_template.tool_use";
    gguf_str text = { NULL, 0 };
    kvant_diag why = { "" };

    KVANT_TRY(gguf_string(g, key, 0, &text, diag));
    if (!text.n)
        return KVANT_OK;
    const int code = jinja_parse(text.s, text.n, &c->tool_use, &why);
    if (code == KVANT_EFORMAT)
        log_msg(LOG_WARN, "%s: %s; chats with tools take tokenizer.chat_template", key, why.text);
    else if (code == KVANT_OK && jinja_unknown(c->tool_use))
        log_msg(LOG_WARN, "%s: %s; prompts that need it will be refused", key, jinja_unknown(c->tool_use));
    return code == KVANT_EFORMAT ? KVANT_OK : code;
}

static int is_name(gguf_str s, const char *name)
{
    return s.n == strlen(name) && memcmp(s.s, name, s.n) == 0;
}

/* Names of tokenizer.chat_templates that nothing takes. */
static void tell_others(const gguf *g)
{
    gguf_iter it;
    gguf_str name;
    int n = 0;

    if (gguf_strings(g, "tokenizer.chat_templates", 0, &it, &n, NULL) != KVANT_OK)
        return;
    for (int i = 0; i < n && i < 16 && gguf_next(&it, &name); i++)
        if (!is_name(name, "tool_use") && !is_name(name, "default") && !is_name(name, "rerank"))
            log_msg(LOG_INFO, "chat template '%.*s' is not taken by itself (--chat-template-file takes any)",
                    name.n < 40 ? (int)name.n : 40, name.s);
}

/* tokenizer.chat_template, or the one that is named default. */
static int find_text(const gguf *g, gguf_str *text, kvant_diag *diag)
{
    KVANT_TRY(gguf_string(g, "tokenizer.chat_template", 0, text, diag));
    return text->n ? KVANT_OK : gguf_string(g, "tokenizer.chat_template.default", 0, text, diag);
}

int chat_template_open(const gguf *g, const char *choice, chat_template **out, int *from_file, kvant_diag *diag)
{
    gguf_str text = { NULL, 0 };

    KVANT_TRY(find_text(g, &text, diag));
    chat_template *c = kvant_calloc(1, sizeof *c);
    if (!c)
        return kvant_fail(diag, KVANT_ENOMEM, "chat template: out of memory");
    int code = choice || !text.n ? parse_choice(c, choice ? choice : "chatml", diag) : parse_file(c, text, diag);
    if (code == KVANT_OK && !choice && c->t) {
        tell_others(g);
        code = open_tool_use(c, g, diag);
    }
    if (code == KVANT_OK && c->t)
        template_find_lists(c);
    if (code != KVANT_OK) {
        chat_template_close(c);
        return code;
    }
    *from_file = choice || text.n > 0;
    *out = c;
    return KVANT_OK;
}

void chat_template_close(chat_template *c)
{
    if (!c)
        return;
    jinja_free(c->t);
    jinja_free(c->tool_use);
    kvant_free(c->source);
    kvant_free(c);
}

const char *chat_template_name(const chat_template *c)
{
    return c->name;
}

const char *chat_template_source(const chat_template *c)
{
    return c->source;
}

const char *chat_template_problem(const chat_template *c)
{
    return c->t ? jinja_unknown(c->t) : c->problem.text;
}

/* ---- messages ---- */

/* The text that marks where the last message's own text ends; a template that strips texts takes its space away. */
static const char mark[] = "\002continue\002 ";

static int from_c(jinja_run *r, const kvant_chat_input *in, jval *out)
{
    if (!j_list(&r->mem, (size_t)in->n, out))
        return j_nomem(r);
    for (int i = 0; i < in->n; i++) {
        const kvant_chat_msg *m = &in->msgs[i];
        jval dict, role, content;
        if (!m->role || !m->content)
            return kvant_fail(r->diag, KVANT_EINVAL, "message %d: no role or no content", i);
        if (!j_dict(&r->mem, 4, &dict) || !j_string(&r->mem, m->role, strlen(m->role), JINJA_DATA, &role) ||
            !j_string(&r->mem, m->content, strlen(m->content), JINJA_DATA, &content))
            return j_nomem(r);
        KVANT_TRY(template_put(r, dict, "role", role));
        KVANT_TRY(template_put(r, dict, "content", content));
        out->u.l->v[out->u.l->n++] = dict;
    }
    out->u.l->fixed = 1;
    return KVANT_OK;
}

static int check_role(jinja_run *r, size_t i, jval message)
{
    static const char *const known[] = { "system", "user", "assistant", "tool", "developer", "function", "ipython" };
    jval *role = message.type == J_DICT ? jdict_text(message.u.d, "role") : NULL;

    if (!role || role->type != J_STR || role->u.s->n == 0)
        return kvant_fail(r->diag, KVANT_EINVAL, "message %zu: no role", i);
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (jstr_is(role->u.s, known[k]))
            return j_text(r, known[k], role);
    return KVANT_OK;
}

/* Arguments of one tool call as an object; *texts counts those that came as text. */
static void read_arguments(jinja_run *r, jval call, int *texts)
{
    jval *function = call.type == J_DICT ? jdict_text(call.u.d, "function") : NULL, v;
    jval *arguments = function && function->type == J_DICT ? jdict_text(function->u.d, "arguments") : NULL;
    kvant_diag *diag = r->diag;

    if (!arguments || arguments->type != J_STR)
        return;
    ++*texts;
    if (jinja_json(r, "arguments", arguments->u.s->s, arguments->u.s->n, &v, NULL) == KVANT_OK && v.type == J_DICT)
        *arguments = v;
    r->diag = diag;
}

static int message_list(jinja_run *r, const kvant_chat_input *in, int objects, int *texts, jval *out)
{
    if (in->messages)
        KVANT_TRY(jinja_json(r, "messages", in->messages, strlen(in->messages), out, r->diag));
    else if (in->n > 0 && in->msgs)
        KVANT_TRY(from_c(r, in, out));
    if ((!in->messages && (in->n < 1 || !in->msgs)) || out->type != J_LIST || out->u.l->n == 0)
        return kvant_fail(r->diag, KVANT_EINVAL, "messages: %d, want at least one", in->messages ? 0 : in->n);
    for (size_t i = 0; i < out->u.l->n; i++) {
        KVANT_TRY(check_role(r, i, out->u.l->v[i]));
        const jval *calls = jdict_text(out->u.l->v[i].u.d, "tool_calls");
        for (size_t k = 0; objects && calls && calls->type == J_LIST && k < calls->u.l->n; k++)
            read_arguments(r, calls->u.l->v[k], texts);
    }
    return KVANT_OK;
}

/* KVANT_CHAT_CONTINUE: the last message gets a mark behind its text. */
static int mark_last(jinja_run *r, jval messages)
{
    const jval last = messages.u.l->v[messages.u.l->n - 1];
    jval *content = jdict_text(last.u.d, "content"), m;
    const jstr *role = jdict_text(last.u.d, "role")->u.s;

    if (!jstr_is(role, "assistant"))
        return kvant_fail(r->diag, KVANT_EINVAL, "the last message is of role '%.24s', want assistant to continue it",
                          role->s);
    if (!content || content->type != J_STR || content->u.s->n == 0)
        return kvant_fail(r->diag, KVANT_EINVAL, "the last message has no text that could be continued");
    if (!j_string(&r->mem, mark, sizeof mark - 1, JINJA_DATA, &m))
        return j_nomem(r);
    return j_binary(r, JB_CONCAT, *content, m, content);
}

/* The text up to the mark. */
static int cut_at_mark(jinja_run *r, jinja_text *t)
{
    const jstr all = { t->text, NULL, (uint32_t)t->n, 0, 0 }, m = { mark, NULL, sizeof mark - 2, 0, 0 };
    const size_t at = jstr_find(&all, &m, 0, t->n, 1);

    if (at == SIZE_MAX || t->origin[at] != JINJA_DATA)
        return kvant_fail(r->diag, KVANT_EINVAL,
                          "the chat template does not write the last message as it is: it cannot be continued");
    size_t n = at;
    if (at + m.n >= t->n || t->text[at + m.n] != ' ' || t->origin[at + m.n] != JINJA_DATA)
        while (n && t->origin[n - 1] == JINJA_DATA && j_is_space((uint8_t)t->text[n - 1])) /* it strips texts */
            n--;
    char *s = jarena_alloc(&r->mem, n + 1);
    if (!s)
        return j_nomem(r);
    memcpy(s, t->text, n);
    s[n] = 0;
    t->text = s;
    t->n = n;
    return KVANT_OK;
}

/* ---- variables ---- */

static int set_token(jinja_run *r, const char *name, const tokenizer *t, int32_t id)
{
    char text[TOKENIZER_MAX_TEXT];
    int n = t && id >= 0 ? tokenizer_bytes(t, id, 1, text, sizeof text) : 0;

    return jinja_set_string(r, name, text, n > 0 && n <= (int)sizeof text ? (size_t)n : 0, JINJA_TEMPLATE, r->diag);
}

static int set_json(jinja_run *r, const char *name, const char *json)
{
    return json ? jinja_set_json(r, name, json, strlen(json), r->diag) : jinja_set_none(r, name, r->diag);
}

/* The caller's variables: any but those that kvant sets. */
static int set_own(jinja_run *r, const char *json)
{
    static const char *const taken[] = { "messages",  "tools",     "documents", "add_generation_prompt",
                                         "bos_token", "eos_token", "loop" };
    jval v;

    if (!json)
        return KVANT_OK;
    KVANT_TRY(jinja_json(r, "chat_template_kwargs", json, strlen(json), &v, r->diag));
    if (v.type != J_DICT)
        return kvant_fail(r->diag, KVANT_EINVAL, "chat_template_kwargs: want an object");
    for (size_t i = 0; i < v.u.d->n; i++) {
        const jstr *key = v.u.d->keys[i].u.s;
        for (size_t k = 0; k < sizeof taken / sizeof taken[0]; k++)
            if (jstr_is(key, taken[k]))
                return kvant_fail(r->diag, KVANT_EINVAL, "chat_template_kwargs: '%s' is set by the server", key->s);
        KVANT_TRY(jinja_set(r, key->s, v.u.d->vals[i], r->diag));
    }
    return KVANT_OK;
}

static int set_all(jinja_run *r, const chat_template *c, const tokenizer *t, const kvant_chat_input *in, int objects,
                   int *texts)
{
    jval messages = J_NONE_VALUE;

    KVANT_TRY(message_list(r, in, objects, texts, &messages));
    if (in->end == KVANT_CHAT_CONTINUE)
        KVANT_TRY(mark_last(r, messages));
    KVANT_TRY(template_put_lists(r, c->lists, messages));
    KVANT_TRY(jinja_set(r, "messages", messages, r->diag));
    KVANT_TRY(jinja_set_bool(r, "add_generation_prompt", in->end == KVANT_CHAT_OPEN, r->diag));
    KVANT_TRY(set_token(r, "bos_token", t, t ? tokenizer_bos(t) : -1));
    KVANT_TRY(set_token(r, "eos_token", t, t ? tokenizer_eos(t) : -1));
    KVANT_TRY(set_json(r, "tools", in->tools));
    KVANT_TRY(set_json(r, "documents", in->documents));
    return set_own(r, in->kwargs);
}

/* ---- rendering ---- */

static int render(const chat_template *c, const tokenizer *t, const kvant_chat_input *in, int objects, int *texts,
                  jinja_run **run, jinja_text *out, kvant_diag *diag)
{
    jinja_run *r = NULL;

    KVANT_TRY(jinja_run_open(in->tools && c->tool_use ? c->tool_use : c->t, &r, diag));
    r->diag = diag;
    if (c->steps)
        r->mem.steps = c->steps;
    int code = set_all(r, c, t, in, objects, texts);
    if (code == KVANT_OK)
        code = jinja_render(r, out, diag);
    if (code == KVANT_OK && in->end == KVANT_CHAT_CONTINUE)
        code = cut_at_mark(r, out);
    if (code != KVANT_OK) {
        jinja_run_close(r);
        return code;
    }
    *run = r;
    return KVANT_OK;
}

int chat_template_render(const chat_template *c, const tokenizer *t, const kvant_chat_input *in, jinja_run **run,
                         jinja_text *out, kvant_diag *diag)
{
    int texts = 0;

    if (!c->t)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "%s (--chat-template with one of " BUILT_IN_NAMES " chooses another)", c->problem.text);
    int code = render(c, t, in, 1, &texts, run, out, diag);
    if (code != KVANT_EINVAL || !texts)
        return code;
    return render(c, t, in, 0, &texts, run, out, NULL) == KVANT_OK ? KVANT_OK : code;
}
