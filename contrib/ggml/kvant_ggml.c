/* kvant_ggml.c: kvant's CPU kernels inside a graph of an unmodified ggml, by GGML_OP_CUSTOM: scores and attention over pages of
 * compressed rows, causal convolution and the gated delta rule, each beside ggml's own op on the same numbers.
 *
 * An op of kvant is up to four stages with a barrier between them.  ggml has a barrier between nodes, so each stage is a
 * node: kvant needs no threads of its own here.  Rows are in pages of 64 tokens; ggml gets what they decode to, in f16,
 * and the difference then shows the kernels and ggml's f16, not the format.
 *
 *     kvant_ggml [THREADS [ROUNDS]]      prints one table; exit code 1 when a difference is beyond its bound */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ggml-cpu.h>
#include <ggml.h>
#include <kvant/ops.h>

enum { H = 8, H_KV = 2, D = 128, N = 2048, PAGES = N / KVANT_PAGE, MOST_THREADS = 64, TAPS = 4, CHANNELS = 1024, HEADS = 8, S = 128 };

static int threads = 1, rounds = 15, failed;

/* ---- numbers ---- */

static float *numbers(size_t n, float size)
{
    static unsigned state = 1;
    float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);

    for (size_t i = 0; x && i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = size * ((float)(state >> 8) / 8388608.0f - 1.0f);
    }
    if (!x)
        exit(2);
    return x;
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* ---- an op of kvant as nodes of a graph ---- */

typedef struct node_op {
    const kvant_cpu_kernel *kernel;
    const void *args;
    uint8_t *scratch;
    size_t shared, local;
    struct stage {
        struct node_op *op;
        int i;
    } stage[KVANT_MAX_STAGES];
} node_op;

static void run_stage(struct ggml_tensor *dst, int part, int parts, void *user)
{
    const struct stage *st = user;
    const node_op *op = st->op;
    const kvant_work work = { op->scratch, op->scratch + op->shared + (size_t)part * op->local };

    (void)dst; /* the args say where the result goes: its data, or memory of ours */
    op->kernel->fn[st->i](op->args, part, parts, &work);
}

/* Appends the nodes; returns the last, whose data[values] is the result where the args point there. */
static struct ggml_tensor *add_op(struct ggml_context *ctx, node_op *op, int id, const void *args, int64_t values)
{
    struct ggml_tensor *last = NULL;
    kvant_diag diag;

    if (kvant_op_check(id, args, &diag)) {
        fprintf(stderr, "kvant_ggml: %s\n", diag.text);
        exit(2);
    }
    op->kernel = kvant_op_cpu(id);
    op->args = args;
    op->shared = op->kernel->shared_bytes ? (op->kernel->shared_bytes(args) + 63) / 64 * 64 : 0;
    op->local = op->kernel->local_bytes ? (op->kernel->local_bytes(args) + 63) / 64 * 64 : 0;
    op->scratch = aligned_alloc(64, op->shared + op->local * (size_t)threads + 64);
    for (int i = 0; i < op->kernel->stages; i++) {
        op->stage[i].op = op;
        op->stage[i].i = i;
        last = ggml_custom_4d(ctx, GGML_TYPE_F32, i + 1 == op->kernel->stages ? values : 1, 1, 1, 1, &last, last != NULL,
                              run_stage, threads, &op->stage[i]);
    }
    return last;
}

/* ---- a case: our nodes and ggml's, in turns ---- */

typedef struct pair {
    struct ggml_context *ctx;
    struct ggml_cgraph *ours, *theirs;
    struct ggml_cplan plan[2];
} pair;

static pair begin_pair(void)
{
    const struct ggml_init_params p = { .mem_size = (size_t)128 << 20 };
    pair c = { .ctx = ggml_init(p) };

    if (!c.ctx)
        exit(2);
    return c;
}

static struct ggml_cgraph *graph_of(struct ggml_context *ctx, struct ggml_tensor *result)
{
    struct ggml_cgraph *g = ggml_new_graph(ctx);

    ggml_build_forward_expand(g, result);
    return g;
}

static double median_ms(double *ms)
{
    qsort(ms, (size_t)rounds, sizeof *ms, by_value);
    return ms[rounds / 2];
}

/* Runs both in turns, each round after `reset`; prints a line. */
static void measure(pair *c, const char *what, const float *ours, const float *theirs, size_t n, double bound,
                    void (*reset)(void))
{
    double *ms[2] = { calloc((size_t)rounds, sizeof(double)), calloc((size_t)rounds, sizeof(double)) }, worst = 0, size = 0;
    struct ggml_cgraph *g[2] = { c->ours, c->theirs };

    for (int k = 0; k < 2; k++) {
        c->plan[k] = ggml_graph_plan(g[k], threads, NULL);
        c->plan[k].work_data = malloc(c->plan[k].work_size + 64);
    }
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < 2; k++) {
            if (reset)
                reset();
            const double t = now_ms();
            ggml_graph_compute(g[k], &c->plan[k]);
            ms[k][r] = now_ms() - t;
        }
    for (size_t i = 0; i < n; i++) {
        const double e = fabs((double)ours[i] - (double)theirs[i]);
        worst = e > worst ? e : worst;
        size = fabs((double)theirs[i]) > size ? fabs((double)theirs[i]) : size;
    }
    const int bad = !(worst <= bound * size) || size == 0;
    failed |= bad;
    printf("| %-34s | %9.2e | %9.2e | %8.3f | %8.3f |%s\n", what, worst, size, median_ms(ms[0]), median_ms(ms[1]),
           bad ? " beyond its bound" : "");
    for (int k = 0; k < 2; k++) {
        free(c->plan[k].work_data);
        free(ms[k]);
    }
    ggml_free(c->ctx);
}

static struct ggml_tensor *tensor(struct ggml_context *ctx, const float *x, int64_t a, int64_t b, int64_t c, int64_t d)
{
    struct ggml_tensor *t = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, a, b, c, d);

    memcpy(t->data, x, ggml_nbytes(t));
    return t;
}

/* ---- rows ---- */

static struct rows {
    const kvant_format *f;
    size_t row;
    uint8_t *pages; /* [PAGES][H_KV][64] rows */
    float *decoded; /* [H_KV][N][D] */
} k_rows, v_rows;

static void encode_rows(struct rows *r, const char *format, const float *x)
{
    kvant_diag diag;

    if (kvant_format_parse(format, &r->f, &diag))
        exit(2);
    const kvant_format_kernels *k = kvant_format_best(r->f);
    r->row = kvant_format_row_bytes(r->f, D);
    r->pages = aligned_alloc(64, (size_t)N * H_KV * r->row + 64);
    r->decoded = numbers((size_t)H_KV * N * D, 0);
    for (int h = 0; h < H_KV; h++)
        for (int i = 0; i < N; i++) {
            const size_t at = ((size_t)h * N + (size_t)i) * D;
            uint8_t *row = r->pages + (((size_t)(i / KVANT_PAGE) * H_KV + (size_t)h) * KVANT_PAGE + (size_t)(i % KVANT_PAGE)) * r->row;
            k->encode(NULL, x + at, row, D, KVANT_ENCODER_BEST);
            kvant_row_decode(r->f, NULL, row, r->decoded + at, D);
        }
}

static void free_rows(struct rows *r)
{
    free(r->pages);
    free(r->decoded);
}

static kvant_kv_side side_of(const struct rows *r)
{
    kvant_kv_side s;

    memset(&s, 0, sizeof s);
    s.fmt = r->f;
    s.pages = r->pages;
    s.row_bytes = r->row;
    s.head_bytes = r->row * KVANT_PAGE;
    s.page_bytes = s.head_bytes * H_KV;
    return s;
}

/* f16[D, N, H_KV] of what the rows decode to. */
static struct ggml_tensor *halves(struct ggml_context *ctx, const struct rows *r)
{
    struct ggml_tensor *t = ggml_new_tensor_3d(ctx, GGML_TYPE_F16, D, N, H_KV);

    ggml_fp32_to_fp16_row(r->decoded, t->data, (int64_t)H_KV * N * D);
    return t;
}

/* ---- the cases ---- */

static int32_t table[PAGES], q0[2], pos, prompt, slot;

static kvant_seqs batch(int n, int at)
{
    kvant_seqs s;

    memset(&s, 0, sizeof s);
    q0[1] = n;
    pos = at;
    prompt = n > 1;
    for (int i = 0; i < PAGES; i++)
        table[i] = i;
    s.n_seqs = 1;
    s.n_tokens = n;
    s.n_few = s.few_rows = n == 1;
    s.q0 = q0;
    s.pos0 = &pos;
    s.prompt = &prompt;
    s.table = table;
    s.table_stride = PAGES;
    s.slot_in = s.slot_out = &slot;
    return s;
}

static struct score_args {
    const kvant_format_kernels *k;
    const struct rows *r;
    const float *q;
    float *out; /* [H][N] */
} score;

static void run_score(struct ggml_tensor *dst, int part, int parts, void *user)
{
    const struct score_args *a = user;
    float prepared[2 * D];

    (void)dst;
    for (int h = part; h < H; h += parts) {
        a->k->prep_q(NULL, a->q + (size_t)h * D, prepared, D);
        for (int p = 0; p < PAGES; p++)
            a->k->score(NULL, prepared, (size_t)kvant_format_sdim(a->r->f, D), 1,
                        a->r->pages + ((size_t)p * H_KV + (size_t)(h / (H / H_KV))) * KVANT_PAGE * a->r->row, a->r->row,
                        KVANT_PAGE, a->out + (size_t)h * N + (size_t)p * KVANT_PAGE, KVANT_PAGE, D);
    }
}

static void case_score(const char *format, const float *keys, const float *query)
{
    pair c = begin_pair();
    char what[64];

    encode_rows(&k_rows, format, keys);
    score = (struct score_args){ kvant_format_best(k_rows.f), &k_rows, query, numbers((size_t)H * N, 0) };
    c.ours = graph_of(c.ctx, ggml_custom_4d(c.ctx, GGML_TYPE_F32, 1, 1, 1, 1, NULL, 0, run_score, threads, &score));
    struct ggml_tensor *q = tensor(c.ctx, query, D, H / H_KV, H_KV, 1);
    struct ggml_tensor *theirs = ggml_mul_mat(c.ctx, halves(c.ctx, &k_rows), q); /* [N, H / H_KV, H_KV] */
    c.theirs = graph_of(c.ctx, theirs);
    snprintf(what, sizeof what, "scores, %s; MUL_MAT, f16", format);
    measure(&c, what, score.out, theirs->data, (size_t)H * N, 4e-3, NULL);
    free(score.out);
    free_rows(&k_rows);
}

/* n queries at the end of N tokens: their causal attention. */
static void case_attention(const char *format, const float *keys, const float *values, const float *query, int n)
{
    static kvant_attn_args a;
    static node_op op;
    pair c = begin_pair();
    char what[64];

    encode_rows(&k_rows, format, keys);
    encode_rows(&v_rows, format, values);
    memset(&a, 0, sizeof a);
    a.seqs = batch(n, N - n);
    a.k = side_of(&k_rows);
    a.v = side_of(&v_rows);
    a.q = query;
    a.out = numbers((size_t)n * H * D, 0);
    a.ldq = a.ldo = H * D;
    a.gq = D;
    a.h = H;
    a.h_kv = H_KV;
    a.d_k = a.d_v = D;
    a.scale = 1.0f / sqrtf(D);
    a.max_pos = N - 1;
    c.ours = graph_of(c.ctx, add_op(c.ctx, &op, KVANT_OP_ATTN, &a, 1));
    struct ggml_tensor *q = ggml_permute(c.ctx, tensor(c.ctx, query, D, H, n, 1), 0, 2, 1, 3); /* [D, n, H] */
    struct ggml_tensor *mask = ggml_new_tensor_2d(c.ctx, GGML_TYPE_F16, N, n);
    for (int i = 0; i < n * N; i++)
        ((ggml_fp16_t *)mask->data)[i] = ggml_fp32_to_fp16(i % N <= N - n + i / N ? 0.0f : -INFINITY);
    struct ggml_tensor *theirs = ggml_flash_attn_ext(c.ctx, q, halves(c.ctx, &k_rows), halves(c.ctx, &v_rows), mask, a.scale, 0, 0);
    ggml_flash_attn_ext_set_prec(theirs, GGML_PREC_F32);
    c.theirs = graph_of(c.ctx, theirs);
    snprintf(what, sizeof what, "attention, %d of %d, %s; f16", n, N, format);
    measure(&c, what, a.out, theirs->data, (size_t)n * H * D, 2e-2, NULL);
    free(a.out);
    free(op.scratch);
    free_rows(&k_rows);
    free_rows(&v_rows);
}

static float *state_now, *state_first;
static size_t state_n;

static void reset_state(void)
{
    memcpy(state_now, state_first, state_n * sizeof *state_now);
}

static void case_conv(int n)
{
    static kvant_conv_args a;
    static node_op op;
    float *x = numbers((size_t)n * CHANNELS, 1), *w = numbers(CHANNELS * TAPS, 1), *y = numbers((size_t)n * CHANNELS, 0);
    pair c = begin_pair();
    char what[64];

    state_n = CHANNELS * (TAPS - 1);
    state_first = numbers(state_n, 1);
    state_now = numbers(state_n, 0);
    memset(&a, 0, sizeof a);
    a.seqs = batch(n, 1); /* it goes on from a state */
    a.x = x;
    a.w = w;
    a.state = state_now;
    a.y = y;
    a.c = CHANNELS;
    a.k = TAPS;
    a.slot_stride = CHANNELS * (TAPS - 1);
    a.ldx = CHANNELS;
    a.linear = 1;
    c.ours = graph_of(c.ctx, add_op(c.ctx, &op, n > 1 ? KVANT_OP_CONV_CHUNK : KVANT_OP_CONV_STEP, &a, 1));
    struct ggml_tensor *sx = ggml_new_tensor_3d(c.ctx, GGML_TYPE_F32, TAPS - 1 + n, CHANNELS, 1);
    for (int i = 0; i < CHANNELS; i++)
        for (int t = 0; t < TAPS - 1 + n; t++)
            ((float *)sx->data)[(size_t)i * (size_t)(TAPS - 1 + n) + (size_t)t] =
                t < TAPS - 1 ? state_first[i * (TAPS - 1) + t] : x[(size_t)(t - TAPS + 1) * CHANNELS + (size_t)i];
    struct ggml_tensor *theirs = ggml_ssm_conv(c.ctx, sx, tensor(c.ctx, w, TAPS, CHANNELS, 1, 1));
    c.theirs = graph_of(c.ctx, theirs);
    snprintf(what, sizeof what, "convolution, %d tokens; SSM_CONV", n);
    measure(&c, what, y, theirs->data, (size_t)n * CHANNELS, 1e-5, reset_state);
    float *all[] = { x, w, y, state_now, state_first };
    for (int i = 0; i < 5; i++)
        free(all[i]);
    free(op.scratch);
}

static void unit_rows(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < S; j++)
            sum += (double)x[i * S + j] * x[i * S + j];
        for (int j = 0; j < S; j++)
            x[i * S + j] = (float)(x[i * S + j] / sqrt(sum));
    }
}

static void case_delta(int n)
{
    static kvant_gdn_args a;
    static node_op op;
    const int rows = n * HEADS;
    float *q = numbers((size_t)rows * S, 1), *k = numbers((size_t)rows * S, 1), *v = numbers((size_t)rows * S, 1);
    float *g = numbers((size_t)rows, 0.05f), *beta = numbers((size_t)rows, 0.5f), *o = numbers((size_t)rows * S, 0);
    pair c = begin_pair();
    char what[64];

    unit_rows(q, rows);
    unit_rows(k, rows);
    for (int i = 0; i < rows; i++) {
        g[i] = -fabsf(g[i]);
        beta[i] += 0.5f;
    }
    state_n = (size_t)HEADS * S * S;
    state_first = numbers(state_n, 0.1f);
    state_now = numbers(state_n, 0);
    memset(&a, 0, sizeof a);
    a.seqs = batch(n, 1);
    a.q = q;
    a.k = k;
    a.v = v;
    a.g = g;
    a.beta = beta;
    a.state = state_now;
    a.o = o;
    a.ldq = a.ldk = a.ldv = HEADS * S;
    a.slot_stride = HEADS * S * S;
    a.hk = a.hv = HEADS;
    a.dk = a.dv = S;
    c.ours = graph_of(c.ctx, add_op(c.ctx, &op, n > 1 ? KVANT_OP_GDN_CHUNK : KVANT_OP_GDN_STEP, &a, 1));
    struct ggml_tensor *theirs = ggml_gated_delta_net(
        c.ctx, tensor(c.ctx, q, S, HEADS, n, 1), tensor(c.ctx, k, S, HEADS, n, 1), tensor(c.ctx, v, S, HEADS, n, 1),
        tensor(c.ctx, g, 1, HEADS, n, 1), tensor(c.ctx, beta, 1, HEADS, n, 1), tensor(c.ctx, state_first, S, S, HEADS, 1), 1);
    c.theirs = graph_of(c.ctx, theirs);
    snprintf(what, sizeof what, "delta rule, %d tokens; GATED_DELTA_NET", n);
    measure(&c, what, o, theirs->data, (size_t)rows * S, 1e-4, reset_state);
    float *all[] = { q, k, v, g, beta, o, state_now, state_first };
    for (int i = 0; i < 8; i++)
        free(all[i]);
    free(op.scratch);
}

int main(int argc, char **argv)
{
    static const char *const formats[] = { "f16", "q8_0", "tbq4_0", "tbq3_0" };
    float *keys = numbers((size_t)H_KV * N * D, 1), *values = numbers((size_t)H_KV * N * D, 1), *query = numbers((size_t)64 * H * D, 3);

    threads = argc > 1 ? atoi(argv[1]) : 1;
    rounds = argc > 2 ? atoi(argv[2]) : 15;
    if (threads < 1 || threads > MOST_THREADS || rounds < 1)
        return 2;
    printf("| kvant; ggml (%d threads) | difference | largest | kvant ms | ggml ms |\n|---|--:|--:|--:|--:|\n", threads);
    for (int i = 0; i < 4; i++)
        case_score(formats[i], keys, query);
    for (int i = 0; i < 4; i++) {
        case_attention(formats[i], keys, values, query, 1);
        case_attention(formats[i], keys, values, query, 64);
    }
    case_conv(1);
    case_conv(64);
    case_delta(1);
    case_delta(64);
    free(keys);
    free(values);
    free(query);
    return failed;
}
