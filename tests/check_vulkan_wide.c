/* check_vulkan_wide.c [fast]: attention of prompts on matrix units (vk_wide.c) beside attn_tile, which --compute f32
 * leaves alone: prompts that end inside a tile, that go on where another ended, several at once, in parts of the
 * context; exact pages, which hold other values here than the encoded ones; what no query sees is no number.  In the
 * plain form, where every driver makes the products one by one; fast: on a GPU's matrix units.  Without a Vulkan driver
 * it says so and passes. */
#include <math.h>
#include <stdlib.h>

#include "base/half.h"
#include "devices/device.h"
#include "kvant/qjl.h"
#include "support/check.h"

enum { SEQS = 2, STRIDE = 24, PAGES = SEQS * STRIDE, AT = 150, CUT = 11 };

/* of: positions of a sequence; ask: how many of them, the last ones, are queries.  at: a value that is no number. */
typedef struct scene {
    const char *k, *v;
    int h, h_kv, d, of[SEQS], ask[SEQS], tail, window;
    float softcap;
    int sinks;
    uint16_t bad;
} scene;

static const scene scenes[] = {
    { "f16", "f16", 4, 4, 64, { 70, 0 }, { 70, 0 }, 0, 0, 0.0f, 0, 0 },
    { "f16", "f16", 8, 2, 128, { 130, 70 }, { 66, 70 }, 0, 0, 0.0f, 0, 0 },
    { "q8_0", "q8_0", 8, 1, 64, { 300, 33 }, { 64, 33 }, 2, 0, 0.0f, 0, 0 },
    { "tbq4_0", "tbq4_0", 4, 1, 128, { 192, 65 }, { 128, 40 }, 1, 0, 0.0f, 0, 0 },
    { "turbo3", "q4_polar", 6, 2, 128, { 100, 64 }, { 100, 1 }, 1, 0, 0.0f, 1, 0 },
    { "q4_polar", "f16", 7, 1, 64, { 130, 0 }, { 130, 0 }, 3, 50, 0.0f, 0, 0 },
    { "qjl1_256", "tbq4_0", 2, 1, 128, { 64, 90 }, { 64, 26 }, 1, 0, 2.0f, 0, 0 },
    { "f16", "tbq4_0", 3, 1, 256, { 97, 0 }, { 40, 0 }, 1, 70, 1.5f, 1, 0 },
    { "q8_0", "f16", 4, 4, 64, { 1210, 0 }, { 70, 0 }, 1, 0, 0.0f, 1, 0 },
    { "q8_0", "q8_0", 4, 4, 64, { 1300, 0 }, { 300, 0 }, 0, 200, 0.0f, 0, 0 },
    { "f16", "f16", 4, 2, 64, { 230, 20 }, { 130, 20 }, 0, 0, 0.0f, 0, 0x7c00 },
    { "f16", "f16", 4, 2, 128, { 230, 0 }, { 130, 0 }, 0, 60, 0.0f, 0, 0x7e01 },
    { "tbq4_0", "f16", 1, 1, 64, { 230, 0 }, { 130, 0 }, 4, 0, 0.0f, 0, 0xfc00 },
};

/* More heads of a KV head than a tile has rows: in ranges of 2 MiB attn_tile has no room for them. */
static const scene many_heads = { "f8_e4m3", "qjl1_256", 72, 1, 64, { 40, 0 }, { 40, 0 }, 0, 0, 0.0f, 1, 0 };

static kvant_device *dev;
static kvant_diag diag;
static float projection[KVANT_QJL_VALUES];

/* On the device; whatever was there before is the caller's to forget: a test is short. */
static void *room(const void *from, size_t bytes)
{
    void *at = NULL;
    CHECK(dev->vt->alloc(dev, bytes + 4, &at, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->copy_in(dev, at, from, bytes, &diag) == KVANT_OK, "%s", diag.text);
    return at;
}

static int32_t page_id(int seq, int j, int exact)
{
    return (seq * STRIDE + j) * 29 % PAGES ^ exact; /* PAGES and 29 have no common factor */
}

/* One page's rows that are written; the others stay what no number is. */
static void fill_page(const scene *s, int side, const kvant_format *f, int seq, int j, uint8_t *to, uint16_t *tail)
{
    float x[256] = { 0 };
    const size_t row = kvant_format_row_bytes(f, s->d);
    for (int h = 0; h < s->h_kv; h++)
        for (int r = 0; r < KVANT_PAGE && j * KVANT_PAGE + r < s->of[seq]; r++) {
            const int at = h * KVANT_PAGE + r, one = ((seq * STRIDE + j) * 8 + h) * KVANT_PAGE + r;
            check_fill_normal(x, (size_t)s->d, (unsigned long long)(4 * one + 2 * side));
            f->ref.encode(f->flags & KVANT_FORMAT_PARAM ? projection : NULL, x, to + (size_t)at * row,
                          kvant_format_padded(f, s->d), KVANT_ENCODER_UPSTREAM);
            check_fill_normal(x, (size_t)s->d, (unsigned long long)(4 * one + 2 * side + 1));
            for (int e = 0; e < s->d; e++)
                tail[at * s->d + e] = f32_to_half(x[e]);
            if (s->bad && side == 1 && j * KVANT_PAGE + r == AT) {
                tail[at * s->d + 5] = s->bad;
                if (strcmp(f->name, "f16") == 0)
                    memcpy(to + (size_t)at * row + 10, &s->bad, 2);
            }
        }
}

static kvant_kv_side side_of(const scene *s, int which)
{
    const kvant_format *f = kvant_format_find(which ? s->v : s->k);
    kvant_kv_side o = { .fmt = f,
                        .row_bytes = kvant_format_row_bytes(f, s->d),
                        .param = f->flags & KVANT_FORMAT_PARAM ? projection : NULL };
    o.head_bytes = o.row_bytes * KVANT_PAGE;
    o.page_bytes = o.head_bytes * (size_t)s->h_kv + 16;
    const size_t tail_values = (size_t)(s->h_kv * KVANT_PAGE * s->d), bytes = PAGES * o.page_bytes,
                 tail_bytes = PAGES * tail_values * 2;
    uint8_t *pages = malloc(bytes);
    uint16_t *tail = malloc(tail_bytes);
    memset(pages, 0xff, bytes);
    memset(tail, 0xff, tail_bytes);
    for (int i = 0; i < SEQS; i++)
        for (int j = 0; j * KVANT_PAGE < s->of[i]; j++)
            fill_page(s, which, f, i, j, pages + (size_t)page_id(i, j, 0) * o.page_bytes,
                      tail + (size_t)page_id(i, j, 1) * tail_values);
    o.pages = room(pages, bytes);
    o.tail = s->tail ? room(tail, tail_bytes) : NULL;
    free(pages);
    free(tail);
    return o;
}

static kvant_seqs seqs_of(const scene *s, int *top)
{
    int32_t q0[SEQS + 1] = { 0 }, pos0[SEQS], table[PAGES], tails[PAGES];
    kvant_seqs q = { .n_seqs = SEQS, .table_stride = STRIDE };
    *top = 0;
    for (int i = 0; i < SEQS; i++) {
        q0[i + 1] = q0[i] + s->ask[i];
        pos0[i] = s->of[i] - s->ask[i];
        *top = s->of[i] - 1 > *top ? s->of[i] - 1 : *top;
        for (int j = 0; j < STRIDE; j++) {
            table[i * STRIDE + j] = page_id(i, j, 0);
            tails[i * STRIDE + j] = j == 1 && i == 1 ? -1 : page_id(i, j, 1);
        }
    }
    q.n_tokens = q0[SEQS];
    q.q0 = room(q0, sizeof q0);
    q.pos0 = room(pos0, sizeof pos0);
    q.table = room(table, sizeof table);
    q.tail_table = s->tail ? room(tails, sizeof tails) : NULL;
    return q;
}

static void attend(kvant_attn_args a, int compute, float *got, size_t n)
{
    const kvant_op op = { KVANT_OP_ATTN, &a };
    a.compute = compute;
    memset(got, 0xff, n * sizeof *got);
    a.out = room(got, n * sizeof *got);
    CHECK(dev->vt->submit(dev, &op, 1, 0, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->copy_out(dev, got, a.out, n * sizeof *got, &diag) == KVANT_OK, "%s", diag.text);
    dev->vt->free(dev, a.out);
}

/* Numbers where the other has some, and none where it has none; these are then left out.  How many. */
static int leave_out(float *got, float *want, size_t n)
{
    int count = 0, wrong = 0;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(got[i]) || !isfinite(want[i])) {
            wrong += isfinite(got[i]) || isfinite(want[i]);
            got[i] = want[i] = 0.0f;
            count++;
        }
    CHECK(wrong == 0, "%d of %d values are numbers in one of both only", wrong, count);
    return count;
}

/* A prompt that was cut has the same bits behind the cut: `whole` is of all its queries. */
static void cut(const scene *s, kvant_attn_args a, const float *whole, size_t n)
{
    const size_t before = (size_t)(CUT * a.ldo);
    float *got = malloc(n * sizeof *got);
    scene less = *s;
    int top;
    less.ask[0] -= CUT;
    a.seqs = seqs_of(&less, &top);
    a.q += CUT * a.ldq;
    attend(a, KVANT_COMPUTE_AUTO, got, n - before);
    CHECK(memcmp(got, whole + before, (n - before) * sizeof *got) == 0, "%s:%s: %d queries and %d of them differ", s->k,
          s->v, s->ask[0], less.ask[0]);
    free(got);
}

static void compare(const scene *s, int same)
{
    int top;
    const kvant_seqs q = seqs_of(s, &top);
    const int gq = s->d + 4, ldq = s->h * gq, ldo = s->h * s->d;
    const size_t n = (size_t)q.n_tokens * (size_t)ldo, n_q = (size_t)(q.n_tokens * ldq);
    float *x = malloc(n_q * sizeof *x), *got = malloc(n * sizeof *got), *want = malloc(n * sizeof *want), sinks[128];
    check_fill_normal(x, n_q, 77);
    check_fill_normal(sinks, 128, 78);
    for (size_t i = 0; i < n_q / 2; i++)
        x[i] *= 3.0f;
    const kvant_attn_args a = { .seqs = q,
                                .k = side_of(s, 0),
                                .v = side_of(s, 1),
                                .q = room(x, n_q * sizeof *x),
                                .ldq = ldq,
                                .gq = gq,
                                .ldo = ldo,
                                .h = s->h,
                                .h_kv = s->h_kv,
                                .d_k = s->d,
                                .d_v = s->d,
                                .scale = 1.0f / sqrtf((float)s->d),
                                .tail_pages = s->tail,
                                .max_pos = top,
                                .window = s->window,
                                .softcap = s->softcap,
                                .sinks = s->sinks ? room(sinks, sizeof sinks) : NULL };
    attend(a, KVANT_COMPUTE_F32, want, n);
    attend(a, KVANT_COMPUTE_AUTO, got, n);
    if (!s->ask[1] && s->ask[0] >= 16 * SEQS + CUT && !s->bad && !same) /* fewer: attn_tile */
        cut(s, a, got, n);
    CHECK((leave_out(got, want, n) > 0) == (s->bad != 0), "values that are no numbers, wanted %d", s->bad != 0);
    const double error = check_nmse(got, want, n);
    CHECK(error <= 1e-6, "%s:%s, %d/%d heads of %d, %d of %d: error %g, wanted 1e-6", s->k, s->v, s->h, s->h_kv, s->d,
          s->ask[0], s->of[0], error);
    CHECK(same ? error == 0.0 : error > 1e-12, "error %g: %s", error, same ? "one kernel differs" : "no halves used");
    free(x);
    free(got);
    free(want);
}

/* Ranges of 2 MiB: contexts of more than 1024 keys of four heads of 64, two sequences, are taken in parts. */
static int open_with(const char *mask, int fast)
{
    const kvant_device_config config = { .threads = 1 };
    char all[64];
    snprintf(all, sizeof all, "bda%s%s", *mask ? "," : "", mask);
    if (fast && !*mask)
        unsetenv("KVANT_VK_DISABLE");
    else
        setenv("KVANT_VK_DISABLE", fast ? mask : all, 1);
    setenv("KVANT_VK_FORCE", fast ? "" : "matrix", 1);
    return device_open("vulkan", &config, &dev, &diag);
}

int main(int argc, char **argv)
{
    const int fast = argc > 1 && strcmp(argv[1], "fast") == 0;
    kvant_qjl_projection_build(KVANT_QJL_SEED, projection);
    if (open_with("range:2", fast) != KVANT_OK) {
        printf("skipped: %s\n", diag.text);
        return check_end("check_vulkan_wide");
    }
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++)
        compare(&scenes[i], 0);
    dev->vt->close(dev);
    CHECK(open_with("", fast) == KVANT_OK, "%s", diag.text);
    compare(&many_heads, 0);
    dev->vt->close(dev);
    CHECK(open_with("wide", fast) == KVANT_OK, "%s", diag.text);
    compare(&scenes[0], 1);
    dev->vt->close(dev);
    return check_end("check_vulkan_wide");
}
