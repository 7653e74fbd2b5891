/* masks.c: which token may come next: the masks of a grammar, and the words that end a thought which is too long.
 *
 * A token is chosen under a mask that is there before the row of logits is: made in the callback of the token before it
 * where that costs little, else by the grammar thread, and until then the session holds the request.
 *
 * A grammar may begin later than the answer: behind a thought, or with a tool call.  Until then a parser of the
 * choice's own (the gate) reads the tokens' bytes; the token that lets the grammar begin gives it the bytes behind that
 * place.
 *
 * A model that is sure of another form of a call than its dialect's (the token it prefers has more than half of the
 * probability, and the parser reads that form) is let go its way: no grammar holds that answer any more, and its calls
 * are told when they are whole. */
#include <math.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/server_impl.h"

int job_stop_waiting(choice *c, int why)
{
    c->waits &= ~why;
    if (c->waits || !c->held)
        return 0;
    c->held = 0;
    return !c->ended;
}

static void mask_failed(choice *c, int code, const char *text)
{
    job *j = c->job;
    const int kind = code == KVANT_EINVAL ? API_INVALID : api_kind_of(code);

    pthread_mutex_lock(&j->lock);
    if (!j->error.kind && !c->ended)
        api_fail(&j->error, kind, "", "%s", text);
    pthread_mutex_unlock(&j->lock);
}

/* The call is written in another form, or is none (the grammar refuses the rest of the very token): the answer's parser
 * finds out, without a grammar. */
static void let_go(choice *c)
{
    c->gate.run = GATE_SHUT;
    pthread_mutex_lock(&c->job->lock);
    c->unguarded = 1;
    pthread_mutex_unlock(&c->job->lock);
}

/* Grammar thread: the mask is there, or never will be.  One failed choice ends the others (on_event). */
static void mask_ready(void *user, int code, const char *text)
{
    choice *c = user;
    job *j = c->job;

    if (code == KVANT_EINVAL && c->gate.run == GATE_JUST_OPEN)
        let_go(c);
    else if (code == KVANT_ECANCELED)
        mask_failed(c, KVANT_EDEVICE, "the server is shutting down");
    else if (code < 0)
        mask_failed(c, code, text);
    pthread_mutex_lock(&j->lock);
    const int failed = j->error.kind, go_on = job_stop_waiting(c, WAIT_MASK);
    const uint64_t id = go_on ? c->id : 0; /* it may not be submitted yet */
    pthread_mutex_unlock(&j->lock);
    if (go_on && failed)
        kvant_session_cancel(j->m->session, id);
    else if (go_on)
        kvant_session_resume(j->m->session, id);
    job_release(j);
}

static void wait_for_mask(choice *c)
{
    job *j = c->job;

    pthread_mutex_lock(&j->lock);
    c->waits |= WAIT_MASK;
    pthread_mutex_unlock(&j->lock);
    atomic_fetch_add(&j->refs, 1);
    grammar_work_add(j->m->masks, c->run, j->lane, mask_ready, c);
}

/* ---- the gate ---- */

int masks_constrain(const choice *c)
{
    return c->run && (c->gate.run == GATE_OPEN || c->gate.run == GATE_JUST_OPEN);
}

static int is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Returns 1 if the gate's parser has come to the place where the grammar begins. */
static int has_come(const choice *c)
{
    const tool_parser *p = &c->gate.parser;

    if (c->job->gen.grammar_begins != GRAMMAR_AT_CALL)
        return p->state == PARSE_TEXT;
    return p->d->by_name ? p->state >= PARSE_MIDDLE && p->state < PARSE_LOOSE && !p->other : tool_parser_framed(p);
}

static int gate_read(gate *g, char c)
{
    if (g->parser.state >= PARSE_OPEN)
        sbuf_put(&g->since, &c, 1);
    else
        g->since.n = 0;
    return g->since.error ? KVANT_ENOMEM : tool_parser_feed(&g->parser, &c, 1);
}

/* A name has made a call of what began as a bracket: the grammar reads all that came since, at once (a name, and the
 * rest of a token), so that the answer's parser, whose turn is next, knows whether it is one. */
static int begin_by_name(choice *c, const char *text, size_t n)
{
    kvant_diag diag = { "" };
    gate *g = &c->gate;
    int complete;

    sbuf_put(&g->since, text, n);
    if (g->since.error)
        return KVANT_ENOMEM;
    g->run = GATE_OPEN;
    const int code = grammar_run_bytes(c->run, sbuf_text(&g->since), g->since.n, &complete, &diag);
    if (code == KVANT_EINVAL)
        let_go(c);
    return code == KVANT_EINVAL ? KVANT_OK : code;
}

/* The grammar holds: the gate goes on reading, for prefers_another.  The grammar knows nothing of a value that ended
 * without its marker. */
static int follow_call(choice *c, const char *text, size_t n)
{
    gate *g = &c->gate;

    if (c->job->gen.grammar_begins != GRAMMAR_AT_CALL || g->run == GATE_SHUT)
        return KVANT_OK;
    const int code = tool_parser_feed(&g->parser, text, n);
    if (g->parser.mended)
        let_go(c);
    return code;
}

/* The bytes of one token; once the grammar begins, it gets those behind that place. */
static int gate_take(choice *c, int32_t token)
{
    size_t n, i = 0;
    const char *text = grammar_vocab_text(c->job->gen.gate_vocab, token, &n);

    if (c->gate.run != GATE_CLOSED && c->job->gen.grammar_begins != GRAMMAR_AT_START)
        return follow_call(c, text, n);
    while (i < n && !(c->gate.run == GATE_CLOSED && has_come(c)))
        if (gate_read(&c->gate, text[i++]) != KVANT_OK)
            return KVANT_ENOMEM;
    if (c->gate.run != GATE_CLOSED || !has_come(c))
        return KVANT_OK;
    while (c->job->gen.grammar_begins == GRAMMAR_AFTER_THOUGHT && i < n && is_blank(text[i]))
        i++;
    c->gate.forcing = 0; /* the thought is over; the rest of what ends it would not fit the grammar */
    if (c->job->gen.grammar_begins == GRAMMAR_AT_CALL && c->gate.parser.d->by_name)
    {
        const int code = begin_by_name(c, text + i, n - i);
        return code == KVANT_OK ? follow_call(c, text + i, n - i) : code;
    }
    c->gate.run = GATE_JUST_OPEN;
    grammar_run_begin(c->run, text + i, n - i);
    return follow_call(c, text + i, n - i);
}

/* Counts a thought's tokens; the last that it may have is followed by what ends it. */
static void count_thought(choice *c)
{
    job *j = c->job;

    if (c->gate.forcing) {
        c->gate.forcing = ++c->gate.force_at < j->gen.n_thought_end;
    } else if (c->gate.parser.state == PARSE_THINK && j->gen.thoughts.budget >= 0 &&
               c->gate.thought++ >= j->gen.thoughts.budget) {
        c->gate.forcing = j->gen.n_thought_end > 0;
        c->gate.force_at = 0;
    }
}

/* Returns 1 if the session has to ask before each token. */
static int open_gate(choice *c)
{
    const job *j = c->job;
    gate *g = &c->gate;

    g->run = j->gen.grammar_begins == GRAMMAR_AT_START ? GATE_OPEN : GATE_CLOSED;
    g->parser = (tool_parser){ .d = j->gen.grammar_begins == GRAMMAR_AT_CALL ? j->gen.traits->d : NULL,
                               .t = j->gen.traits ? j->gen.traits->t : NULL,
                               .tools = j->gen.tools };
    tool_parser_begin(&g->parser, j->gen.thoughts.begun);
    g->forcing = j->gen.thoughts.begun && j->gen.thoughts.budget == 0 && j->gen.n_thought_end > 0;
    return j->gen.min_tokens > 0 || c->run || (j->gen.thoughts.budget >= 0 && g->parser.t);
}

/* ---- callbacks of the session: owner thread ---- */

/* Unless nothing else may come. */
static void mask_ends(const job *j, float *logits, int n_vocab)
{
    int left = 0;

    for (int i = 0; i < n_vocab && !left; i++)
        left = logits[i] > -INFINITY && !kvant_token_is_eog(j->m->model, i);
    for (int i = 0; i < n_vocab && left; i++)
        if (kvant_token_is_eog(j->m->model, i))
            logits[i] = -INFINITY;
}

static void force(float *logits, int n_vocab, int32_t token)
{
    for (int i = 0; i < n_vocab; i++)
        logits[i] = i == token ? 0 : -INFINITY;
}

/* The token that the model would choose, where it is sure of it and the grammar refuses it; -1. */
static int refused(const choice *c, const float *logits, int n_vocab)
{
    double sum = 0;
    int best = 0;

    for (int i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    if (grammar_run_allows(c->run, best))
        return -1;
    for (int i = 0; i < n_vocab; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    return sum < 2 ? best : -1;
}

/* Arguments that begin as the dialect has them, with a key that the tool does not know: the grammar holds. */
static int unknown_key(const tool_parser *p, const char *s, size_t n)
{
    const char *key;
    json_t *v;
    size_t k = 0;

    if (p->state != PARSE_JSON || n < 3 || s[0] != '{' || s[1] != '"')
        return 0;
    json_t *known = p->tools->tools[p->tool].properties;
    while (k + 2 < n && s[k + 2] != '"')
        k++;
    json_object_foreach(known, key, v) if (strncmp(key, s + 2, k) == 0) return 0;
    return json_object_size(known) > 0;
}

/* Within the frame of a call: text goes on in a form that the parser reads, or is none of a call. */
static int another_form(const tool_parser *p, const char *text, size_t n)
{
    while (n > 0 && is_blank(text[n - 1]))
        n--; /* blanks alone are no form of their own, nor is a quote */
    while (n > 0 && is_blank(*text)) {
        text++;
        n--;
    }
    if (n == 0 || (n == 1 && *text == '"') || unknown_key(p, text, n))
        return 0;
    return tool_parser_goes_on(p, text, n) || (p->d->at_start && p->state <= PARSE_NAME && !p->n_calls);
}

/* Returns 1 if the model is sure of a token that the grammar of calls refuses and that the parser reads: another form,
 * what completes a call, or the end behind its arguments. */
static int prefers_another(const choice *c, const float *logits, int n_vocab)
{
    const tool_parser *p = &c->gate.parser;
    size_t n;

    if (c->job->gen.grammar_begins != GRAMMAR_AT_CALL || p->state < PARSE_OPEN)
        return 0;
    const int token = refused(c, logits, n_vocab);
    if (token < 0)
        return 0;
    const char *text = grammar_vocab_text(c->job->gen.gate_vocab, token, &n);
    if (kvant_token_is_eog(c->job->m->model, token))
        return tool_parser_completes(p, NULL, 0);
    return tool_parser_framed(p) ? another_form(p, text, n) : n > 0 && tool_parser_completes(p, text, n);
}

int masks_logits(void *user, float *logits, int n_vocab)
{
    choice *c = user;
    kvant_diag diag = { "" };
    int left, complete;

    if (c->gate.forcing)
        force(logits, n_vocab, c->job->gen.thought_end[c->gate.force_at]);
    else if (answer_is_early(c) && !masks_constrain(c))
        mask_ends(c->job, logits, n_vocab);
    if (!masks_constrain(c) || c->gate.forcing)
        return KVANT_OK;
    if (prefers_another(c, logits, n_vocab)) {
        let_go(c);
        return KVANT_OK;
    }
    const int code = grammar_run_apply(c->run, logits, n_vocab, &left, &complete, &diag);
    if (code == KVANT_OK && complete && left == 0) { /* no end token to pick: the end is here */
        c->grammar_done = 1;
        return KVANT_ECANCELED;
    }
    if (code < 0)
        mask_failed(c, code, diag.text);
    else if (answer_is_early(c))
        mask_ends(c->job, logits, n_vocab);
    return code;
}

/* An error ends the request when this token's event is answered. */
void masks_accepted(void *user, int32_t token)
{
    choice *c = user;
    kvant_diag diag = { "" };
    int code = KVANT_OK;

    if (c->gate.run == GATE_JUST_OPEN)
        c->gate.run = GATE_OPEN;
    const int constrained = masks_constrain(c);
    if (gate_take(c, token) != KVANT_OK)
        mask_failed(c, KVANT_ENOMEM, "out of memory");
    count_thought(c);
    if (constrained)
        code = grammar_run_take(c->run, token, &diag);
    if (code == KVANT_OK && masks_constrain(c))
        code = grammar_run_try(c->run, &diag);
    if (code == KVANT_EBUSY)
        wait_for_mask(c);
    else if (code == KVANT_EINVAL && c->gate.run == GATE_JUST_OPEN)
        let_go(c);
    else if (code < 0)
        mask_failed(c, code, diag.text);
}

/* The mask of the first token: made here where that costs little, else the request is submitted on hold. */
int masks_first(choice *c, grammar *g, int *held, kvant_diag *diag)
{
    job *j = c->job;
    int code = KVANT_OK;

    *held = 0;
    if (g)
        KVANT_TRY(grammar_run_create(g, j->gen.vocab, &c->run, diag));
    c->masked = open_gate(c);
    if (masks_constrain(c))
        code = grammar_run_try(c->run, diag);
    *held = code == KVANT_EBUSY;
    if (*held)
        wait_for_mask(c); /* before it is submitted: its end takes c->run away */
    return *held ? KVANT_OK : code;
}
