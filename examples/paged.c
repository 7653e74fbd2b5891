/* paged.c: attention over a paged cache, as an engine runs it: the ops cache_write and attn of kvant/ops.h through the
 * CPU's kernels.  The library owns neither memory nor threads: pages, block table and scratch are this program's, and
 * it could give each part of an op to a thread of its own.
 *
 *     cc paged.c $(pkg-config --cflags --libs kvant-formats) -lm -o paged && ./paged tbq4_0 tbq3_0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <kvant/ops.h>

enum { TOKENS = 300, H = 8, H_KV = 2, D = 128, PAGES = (TOKENS + KVANT_PAGE - 1) / KVANT_PAGE, SIDE = PAGES * H_KV };

static float keys[TOKENS][H_KV][D], values[TOKENS][H_KV][D], query[H][D], out[H][D], exact[H][D];
static uint8_t k_pages[SIDE * KVANT_PAGE * D * 4], v_pages[SIDE * KVANT_PAGE * D * 4], scratch[1 << 20];

/* One op from its arguments: checked once, then stage by stage; here in one part, on this thread. */
static int run(int id, const void *args)
{
    kvant_diag diag;
    const kvant_cpu_kernel *kernel = kvant_op_cpu(id);
    uint8_t *at = scratch + (64 - (uintptr_t)scratch % 64) % 64;
    size_t shared = kernel->shared_bytes ? kernel->shared_bytes(args) : 0;
    size_t local = kernel->local_bytes ? kernel->local_bytes(args) : 0;
    if (kvant_op_check(id, args, &diag)) {
        fprintf(stderr, "paged: %s\n", diag.text);
        return 1;
    }
    shared = (shared + 63) / 64 * 64;
    if (shared + local + 64 > sizeof scratch)
        return 1;
    kvant_work work = { at, at + shared };
    for (int stage = 0; stage < kernel->stages; stage++)
        kernel->fn[stage](args, 0, 1, &work);
    return 0;
}

static kvant_kv_side side_of(const kvant_format *f, uint8_t *pages)
{
    kvant_kv_side s;
    memset(&s, 0, sizeof s);
    s.fmt = f;
    s.pages = pages;
    s.row_bytes = kvant_format_row_bytes(f, D);
    s.head_bytes = s.row_bytes * KVANT_PAGE;
    s.page_bytes = s.head_bytes * H_KV;
    s.encoder = KVANT_ENCODER_BEST;
    return s;
}

/* The ragged batch of one sequence: rows [0, n) at positions pos, pos + 1, ...; its pages lie in any order. */
static kvant_seqs batch(const int32_t *q0, const int32_t *pos, const int32_t *prompt, const int32_t *table)
{
    kvant_seqs s;
    memset(&s, 0, sizeof s);
    s.n_seqs = 1;
    s.n_tokens = q0[1];
    s.q0 = q0;
    s.pos0 = pos;
    s.prompt = prompt;
    s.table = table;
    s.table_stride = PAGES;
    return s;
}

static int attend(const kvant_format *kf, const kvant_format *vf, float *o)
{
    int32_t all[2] = { 0, TOKENS }, one[2] = { 0, 1 }, first = 0, last = TOKENS - 1, yes = 1, no = 0, table[PAGES];
    for (int i = 0; i < PAGES; i++)
        table[i] = PAGES - 1 - i;
    kvant_kv_side k = side_of(kf, k_pages), v = side_of(vf, v_pages);
    kvant_cache_write_args write_k = { batch(all, &first, &yes, table), k, &keys[0][0][0], H_KV * D, H_KV, D };
    kvant_cache_write_args write_v = { batch(all, &first, &yes, table), v, &values[0][0][0], H_KV * D, H_KV, D };
    kvant_attn_args a;
    memset(&a, 0, sizeof a);
    a.seqs = batch(one, &last, &no, table);
    a.k = k;
    a.v = v;
    a.q = &query[0][0];
    a.out = o;
    a.ldq = a.ldo = H * D;
    a.gq = D;
    a.h = H;
    a.h_kv = H_KV;
    a.d_k = a.d_v = D;
    a.scale = 1.0f / sqrtf(D);
    a.max_pos = last;
    return run(KVANT_OP_CACHE_WRITE, &write_k) || run(KVANT_OP_CACHE_WRITE, &write_v) || run(KVANT_OP_ATTN, &a);
}

/* Any numbers will do; the same ones on every machine. */
static void fill(float *x, int n, float size)
{
    static unsigned state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = size * ((float)(state >> 8) / 8388608.0f - 1.0f);
    }
}

int main(int argc, char **argv)
{
    const kvant_format *kf, *vf, *f32 = kvant_format_find("f32");
    kvant_diag diag = { "a format with a projection found (see qjl.c), one without wanted" };
    if (kvant_format_parse(argc > 1 ? argv[1] : "tbq4_0", &kf, &diag) ||
        kvant_format_parse(argc > 2 ? argv[2] : "tbq4_0", &vf, &diag) || (kf->flags | vf->flags) & KVANT_FORMAT_PARAM) {
        fprintf(stderr, "paged: %s\n", diag.text);
        return 2;
    }
    fill(&keys[0][0][0], TOKENS * H_KV * D, 1.0f);
    fill(&values[0][0][0], TOKENS * H_KV * D, 1.0f);
    fill(&query[0][0], H * D, 3.0f);
    if (attend(kf, vf, &out[0][0]) || attend(f32, f32, &exact[0][0]))
        return 1;
    double error = 0, size = 0;
    for (int i = 0; i < H * D; i++) {
        double x = exact[i / D][i % D], e = out[i / D][i % D] - x;
        error += e * e;
        size += x * x;
    }
    printf("K %s, V %s: %d query heads over %d pages of %zu bytes, relative error of the output %.4f\n", kf->name, vf->name,
           H, PAGES, (kvant_format_row_bytes(kf, D) + kvant_format_row_bytes(vf, D)) * KVANT_PAGE * H_KV,
           sqrt(error / size));
    return error < 0.0625 * size ? 0 : 1;
}
