/* rank.c: the head of a reranker: a few rows that make scores of a text's last hidden state, and the prompt that its
 * model was trained with.  Owns their reading and their arithmetic, on the CPU: it is some thousand products a text. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/model.h"

enum { MOST_CLASSES = 64 };

static int check_head(const gguf_tensor *t, int n_embd, kvant_diag *diag)
{
    if (t->ne[0] == n_embd && t->ne[1] >= 1 && t->ne[1] <= MOST_CLASSES && t->ne[2] == 1 && t->ne[3] == 1)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EFORMAT, "cls.output.weight: shape [%lld, %lld, %lld], wanted [%d, 1 to %d, 1]",
                      (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], n_embd, MOST_CLASSES);
}

static int read_values(const gguf_tensor *t, const char *name, int64_t n, float *out, kvant_diag *diag)
{
    const kvant_wtype *type = kvant_wtype_by_id(t->type);

    if (!type || n % type->block)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: type number %d, wanted one of %s", name, t->type,
                          kvant_wtype_names());
    type->dequant(t->data, out, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(out[i]))
            return kvant_fail(diag, KVANT_EFORMAT, "%s: value %lld is not finite", name, (long long)i);
    return KVANT_OK;
}

int rank_open(const gguf *g, int n_embd, rank_head *r, kvant_diag *diag)
{
    const gguf_tensor *w = gguf_tensor_find(g, "cls.output.weight"), *bias = gguf_tensor_find(g, "cls.output.bias");

    KVANT_TRY(gguf_string(g, "tokenizer.chat_template.rerank", 0, &r->prompt, diag));
    if (gguf_tensor_find(g, "cls.weight"))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "cls.weight: a layer in front of the rank head is not supported, "
                          "wanted cls.output.weight alone");
    if (!w)
        return KVANT_OK;
    KVANT_TRY(check_head(w, n_embd, diag));
    if (bias && bias->ne[0] != w->ne[1])
        return kvant_fail(diag, KVANT_EFORMAT, "cls.output.bias: %lld values, wanted %lld", (long long)bias->ne[0],
                          (long long)w->ne[1]);
    const int64_t n = w->ne[1];
    r->w = kvant_calloc((size_t)(n * n_embd), sizeof *r->w);
    r->bias = kvant_calloc((size_t)n, sizeof *r->bias);
    if (!r->w || !r->bias)
        return kvant_fail(diag, KVANT_ENOMEM, "model: out of memory for the rank head");
    KVANT_TRY(read_values(w, "cls.output.weight", n * n_embd, r->w, diag));
    if (bias)
        KVANT_TRY(read_values(bias, "cls.output.bias", n, r->bias, diag));
    r->n = (int)n;
    return KVANT_OK;
}

void rank_close(rank_head *r)
{
    kvant_free(r->w);
    kvant_free(r->bias);
}

int kvant_model_rank_classes(const kvant_model *m)
{
    return m->rank.n;
}

/* ---- the prompt ---- */

typedef struct parts {
    char *text; /* with `origin` behind it; NULL while only the length is counted */
    uint8_t *origin;
    size_t n;
} parts;

static void put(parts *p, const char *s, size_t n, int origin)
{
    if (p->text) {
        memcpy(p->text + p->n, s, n);
        memset(p->origin + p->n, origin, n);
    }
    p->n += n;
}

static void fill_in(parts *p, gguf_str prompt, const char *query, const char *document)
{
    static const char q[] = "{query}", d[] = "{document}";
    size_t from = 0;

    p->n = 0;
    for (size_t i = 0; i < prompt.n;) {
        const int is_q = prompt.n - i >= sizeof q - 1 && memcmp(prompt.s + i, q, sizeof q - 1) == 0;
        const int is_d = prompt.n - i >= sizeof d - 1 && memcmp(prompt.s + i, d, sizeof d - 1) == 0;
        if (!is_q && !is_d) {
            i++;
            continue;
        }
        put(p, prompt.s + from, i - from, JINJA_TEMPLATE);
        put(p, is_q ? query : document, strlen(is_q ? query : document), JINJA_DATA);
        i += is_q ? sizeof q - 1 : sizeof d - 1;
        from = i;
    }
    put(p, prompt.s + from, prompt.n - from, JINJA_TEMPLATE);
}

static int with_prompt(const kvant_model *m, const char *query, const char *document, int32_t *ids, int cap, int *n,
                       kvant_diag *diag)
{
    parts p = { 0 };

    fill_in(&p, m->rank.prompt, query, document);
    p.text = kvant_alloc(2 * p.n + 1);
    if (!p.text)
        return kvant_fail(diag, KVANT_ENOMEM, "prompt: no memory for %zu bytes", p.n);
    p.origin = (uint8_t *)p.text + p.n;
    fill_in(&p, m->rank.prompt, query, document);
    const jinja_text text = { .text = p.text, .origin = p.origin, .n = p.n };
    const int code = template_text_ids(m->tok, &text, ids, cap, n, diag);
    kvant_free(p.text);
    return code;
}

/* Appends to ids[cap]; *n counts on beyond it. */
static void put_id(int32_t id, int wanted, int32_t *ids, int cap, int *n)
{
    if (!wanted || id < 0)
        return;
    if (*n < cap)
        ids[*n] = id;
    ++*n;
}

static int put_text(const kvant_model *m, const char *s, int32_t *ids, int cap, int *n, kvant_diag *diag)
{
    const int room = *n < cap ? cap - *n : 0;
    int more = 0;
    const int code = tokenizer_encode(m->tok, s, strlen(s), 0, room ? ids + *n : NULL, room, &more, diag);

    *n += more;
    return code == KVANT_ENOSPC ? KVANT_OK : code;
}

int kvant_rank_tokenize(const kvant_model *m, const char *query, const char *document, int32_t *ids, int cap, int *n,
                        kvant_diag *diag)
{
    const tokenizer *t = m->tok;
    const int ends = tokenizer_add_eos(t);

    *n = 0;
    if (m->rank.prompt.n)
        return with_prompt(m, query, document, ids, cap, n, diag);
    put_id(tokenizer_bos(t), tokenizer_add_bos(t), ids, cap, n);
    KVANT_TRY(put_text(m, query, ids, cap, n, diag));
    put_id(tokenizer_eos(t), ends, ids, cap, n);
    KVANT_TRY(put_text(m, document, ids, cap, n, diag));
    put_id(tokenizer_eos(t), ends, ids, cap, n);
    return *n <= cap ? KVANT_OK : kvant_fail(diag, KVANT_ENOSPC, "prompt: %d tokens, room for %d", *n, cap);
}

/* ---- the score ---- */

/* e^(x - largest) over their sum: nothing overflows. */
static void softmax(double *x, int n)
{
    double most = x[0], sum = 0;

    for (int i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int i = 0; i < n; i++)
        sum += x[i] = exp(x[i] - most);
    for (int i = 0; i < n; i++)
        x[i] /= sum;
}

int kvant_model_rank(const kvant_model *m, const float *hidden, float *score)
{
    const rank_head *r = &m->rank;
    const int d = m->hp.n_embd;
    double x[MOST_CLASSES];

    if (!r->n)
        return KVANT_EUNSUPPORTED;
    for (int c = 0; c < r->n; c++) {
        x[c] = r->bias[c];
        for (int i = 0; i < d; i++)
            x[c] += (double)r->w[(size_t)c * (size_t)d + (size_t)i] * (double)hidden[i];
    }
    if (r->n > 1)
        softmax(x, r->n);
    *score = (float)x[0];
    return KVANT_OK;
}
