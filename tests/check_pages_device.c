/* check_pages_device.c: formats of page scope on devices that encode without doubles: sealed pages have the reference's
 * bytes, whatever the rows are, and pages of any bytes are read as the reference reads them.  Devices that are not here
 * say so in a line.
 *   check_pages_device [DEVICE ...]        default: vulkan opencl */
#include <math.h>
#include "base/half.h"
#include "base/rng.h"
#include "devices/device.h"
#include "support/check.h"
#include "support/device_here.h"

enum { HEADS = 2, PAGES = 2, MOST_D = 256, ROWS = KVANT_PAGE, MOST_BYTES = PAGES * HEADS * ROWS * MOST_D };

static kvant_device *dev;
static kvant_diag diag;
static uint16_t tail[PAGES * HEADS * ROWS * MOST_D];
static uint8_t want[MOST_BYTES], got[MOST_BYTES];
static float x[ROWS * MOST_D], y[PAGES * ROWS * HEADS * MOST_D], acc[MOST_D], row[MOST_D];

typedef struct scene {
    const kvant_format *f;
    int d, dp;
    size_t head_bytes, bytes;
    uint8_t *pages;
    uint16_t *tail;
    int32_t *index;                        /* src, dst; then pages and rows to read */
    float *y;
} scene;

/* ---- on the device ---- */

static void *room(size_t bytes, const void *from)
{
    void *at = NULL;
    CHECK(dev->vt->alloc(dev, bytes, &at, &diag) == KVANT_OK, "%s", diag.text);
    if (from)
        CHECK(dev->vt->copy_in(dev, at, from, bytes, &diag) == KVANT_OK, "%s", diag.text);
    return at;
}

static void run(int id, const void *args)
{
    const kvant_op op = { .id = id, .args = args };
    CHECK(kvant_op_check(id, args, &diag) == KVANT_OK && dev->vt->supports(dev, &op, &diag) == KVANT_OK &&
              dev->vt->submit(dev, &op, 1, 0, &diag) == KVANT_OK, "%s", diag.text);
}

static kvant_kv_side side_of(const scene *s)
{
    return (kvant_kv_side){ .fmt = s->f, .pages = s->pages, .page_bytes = HEADS * s->head_bytes, .tail = s->tail,
                            .head_bytes = s->head_bytes, .row_bytes = s->head_bytes / ROWS,
                            .encoder = KVANT_ENCODER_BEST };
}

/* ---- sealing ---- */

/* What a head's rows are: a mean and noise; rows of many sizes with an empty one; rows of which some are not finite;
 * zeros.  Largest sizes are those whose scale an f16 does not hold. */
static float value_of(int kind, int r, int e, const float *noise, const float *mean)
{
    static const float sizes[] = { 1e-6f, 1e-3f, 0.1f, 1.0f, 30.0f, 3e4f };
    if (kind == 1)
        return r == 5 ? 0.0f : noise[r * MOST_D + e] * sizes[r % 6];
    if (kind == 2 && (r == 7 || r == 40) && e == 3 * r)
        return r == 7 ? NAN : INFINITY;
    return kind == 3 ? 0.0f : noise[r * MOST_D + e] + 0.7f * mean[e];
}

static void fill(const scene *s)
{
    static float noise[ROWS * MOST_D], mean[MOST_D];

    check_fill_normal(mean, MOST_D, 4);
    for (int head = 0; head < PAGES * HEADS; head++) {
        check_fill_normal(noise, ROWS * MOST_D, (unsigned long long)head + 20);
        memset(x, 0, sizeof x);
        for (int r = 0; r < ROWS; r++)
            for (int e = 0; e < s->d; e++) {
                uint16_t *to = &tail[(head * ROWS + r) * s->d + e];
                *to = f32_to_half(value_of(head, r, e, noise, mean));
                x[r * s->dp + e] = half_to_f32(*to);
            }
        s->f->ref.encode_page(NULL, x, (size_t)s->dp, want + (size_t)head * s->head_bytes, s->dp, KVANT_ENCODER_BEST);
    }
}

static void check_seal(scene *s)
{
    static const int32_t index[2 * PAGES] = { 0, 1, 0, 1 };

    fill(s);
    s->tail = room(sizeof *tail * PAGES * HEADS * ROWS * (size_t)s->d, tail);
    CHECK(dev->vt->copy_in(dev, s->index, index, sizeof index, &diag) == KVANT_OK, "%s", diag.text);
    const kvant_page_seal_args a = { .side = side_of(s), .src = s->index, .dst = s->index + PAGES, .n = PAGES,
                                     .h = HEADS, .d = s->d };
    run(KVANT_OP_PAGE_SEAL, &a);
    CHECK(dev->vt->copy_out(dev, got, s->pages, s->bytes, &diag) == KVANT_OK, "%s", diag.text);
    for (int head = 0; head < PAGES * HEADS; head++) {
        int differ = 0;
        for (size_t b = 0; b < s->head_bytes; b++)
            differ += got[(size_t)head * s->head_bytes + b] != want[(size_t)head * s->head_bytes + b];
        CHECK(differ == 0, "%s d %d, rows of kind %d: %d bytes of the page are not the reference's", s->f->name, s->d, head,
              differ);
    }
    dev->vt->free(dev, s->tail);
    s->tail = NULL;
}

/* ---- reading ---- */

static int row_differs(const scene *s, int page, int r, int head)
{
    const float *read = y + ((page * ROWS + r) * HEADS + head) * s->d;
    int differ = 0;

    s->f->ref.decode_page(NULL, want + (size_t)(page * HEADS + head) * s->head_bytes, r, 1, acc, s->dp);
    s->f->ref.finish_out(NULL, acc, row, s->dp);
    for (int e = 0; e < s->d; e++)
        differ |= !(read[e] == row[e] || (isnan(read[e]) && isnan(row[e])));
    return differ;
}

static void check_any_bytes(scene *s)
{
    int32_t index[2 * PAGES * ROWS];
    rng random = { 7 };
    int differ = 0;

    for (size_t b = 0; b < s->bytes; b++)
        want[b] = b < s->head_bytes ? 0xff : (uint8_t)rng_below(&random, 256);
    for (int i = 0; i < PAGES * ROWS; i++) {
        index[i] = i / ROWS;
        index[PAGES * ROWS + i] = i % ROWS;
    }
    CHECK(dev->vt->copy_in(dev, s->pages, want, s->bytes, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->copy_in(dev, s->index, index, sizeof index, &diag) == KVANT_OK, "%s", diag.text);
    const kvant_cache_read_args a = { .side = side_of(s), .page = s->index, .row = s->index + PAGES * ROWS, .y = s->y,
                                      .n = PAGES * ROWS, .h = HEADS, .d = s->d };
    run(KVANT_OP_CACHE_READ, &a);
    CHECK(dev->vt->copy_out(dev, y, s->y, sizeof *y * PAGES * ROWS * HEADS * (size_t)s->d, &diag) == KVANT_OK, "%s",
          diag.text);
    for (int i = 0; i < PAGES * ROWS * HEADS; i++)
        differ += row_differs(s, i / HEADS / ROWS, i / HEADS % ROWS, i % HEADS);
    CHECK(differ == 0, "%s d %d: %d rows of pages of any bytes are not the reference's", s->f->name, s->d, differ);
}

static void check_format(const char *name, int d)
{
    scene s = { .f = kvant_format_find(name), .d = d };

    s.dp = kvant_format_padded(s.f, d);
    s.head_bytes = ROWS * kvant_format_row_bytes(s.f, d);
    s.bytes = PAGES * HEADS * s.head_bytes;
    s.pages = room(s.bytes, NULL);
    s.index = room(2 * PAGES * ROWS * sizeof *s.index, NULL);
    s.y = room(sizeof *y * PAGES * ROWS * HEADS * (size_t)d, NULL);
    check_seal(&s);
    check_any_bytes(&s);
    dev->vt->free(dev, s.pages);
    dev->vt->free(dev, s.index);
    dev->vt->free(dev, s.y);
}

static void check_device(const char *name)
{
    if (!device_here(name) || device_open(name, NULL, &dev, &diag) != KVANT_OK)
        return;
    check_format("ptcq2", 64);
    check_format("ptcq3", 256);
    check_format("ptcq4", 128);
    dev->vt->close(dev);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        check_device(argv[i]);
    if (argc < 2) {
        check_device("vulkan");
        check_device("opencl");
    }
    return check_end("check_pages_device");
}
