/* check_device_api: kvant/device.h: bad input has an error and runs nothing; adopted memory is written in place; pages
 * move; examples/device.c and check_install show the same against an installed library, there on Vulkan too. */
#include <string.h>

#include "kvant/device.h"
#include "support/check.h"

enum { D = 128, H = 2, N = 5 };

static kvant_device *opened(void)
{
    kvant_device_params p = kvant_device_defaults();
    kvant_device *d = NULL;
    kvant_diag diag = { "" };

    p.threads = 2;
    CHECK(kvant_device_open("cpu", &p, &d, &diag) == KVANT_OK, "%s", diag.text);
    return d;
}

static void check_open(void)
{
    kvant_device_params p = kvant_device_defaults();
    kvant_device *d = NULL;
    kvant_diag diag = { "" };
    int n = 0;

    while (kvant_device_name(n))
        n++;
    CHECK(n >= 2 && strcmp(kvant_device_name(0), "cpu") == 0 && !kvant_device_name(-1), "%d devices", n);
    CHECK(kvant_device_open("abacus", NULL, &d, &diag) == KVANT_EDEVICE && strstr(diag.text, "cpu, cuda"), "%s",
          diag.text);
    p.stream = &p;
    CHECK(kvant_device_open("cpu", &p, &d, &diag) == KVANT_EUNSUPPORTED && strstr(diag.text, "stream"), "%s",
          diag.text);
    p = kvant_device_defaults();
    p.threads = -1;
    CHECK(kvant_device_open("cpu", &p, &d, &diag) == KVANT_EINVAL && strstr(diag.text, "-1 threads"), "%s", diag.text);
    p.size = 3;
    CHECK(kvant_device_open("cpu", &p, &d, &diag) == KVANT_EINVAL && strstr(diag.text, "size: 3"), "%s", diag.text);
    CHECK(d == NULL, "an error wrote a device");
    kvant_device_close(NULL);
}

static void check_memory(kvant_device *d)
{
    float mine[4] = { 1, 2, 3, 4 }, add[4] = { 10, 20, 30, 40 }, back[4];
    void *x = NULL, *y = NULL;
    kvant_diag diag = { "" };

    CHECK(kvant_device_adopt(d, NULL, 4, &x, &diag) == KVANT_EINVAL && strstr(diag.text, "NULL"), "%s", diag.text);
    CHECK(kvant_device_adopt(d, mine, sizeof mine, &x, &diag) == KVANT_OK && x == mine, "%s", diag.text);
    CHECK(kvant_device_alloc(d, sizeof add, &y, &diag) == KVANT_OK && (uintptr_t)y % 64 == 0, "%s", diag.text);
    CHECK(kvant_device_copy_in(d, y, add, sizeof add, &diag) == KVANT_OK, "%s", diag.text);
    const kvant_add_args args = { x, y, 1, 4 }, bad = { x, NULL, 1, 4 };
    const kvant_op list[2] = { { KVANT_OP_ADD, &args }, { KVANT_OP_ADD, &bad } };
    CHECK(kvant_device_supports(d, &list[0], &diag) == KVANT_OK, "%s", diag.text);
    CHECK(kvant_device_submit(d, list, 2, 0, &diag) == KVANT_EINVAL && strstr(diag.text, "add"), "%s", diag.text);
    CHECK(kvant_device_submit(d, list, -1, 0, &diag) == KVANT_EINVAL && strstr(diag.text, "-1 ops"), "%s", diag.text);
    CHECK(kvant_device_sync(d, &diag) == KVANT_OK && mine[0] == 1, "a refused list ran: %g", (double)mine[0]);
    for (int i = 1; i <= 3; i++) /* the third may be a replay */
        CHECK(kvant_device_submit(d, list, 1, 7, &diag) == KVANT_OK &&
                  kvant_device_copy_out(d, back, x, sizeof back, &diag) == KVANT_OK && back[3] == (float)(4 + 40 * i) &&
                  mine[3] == back[3],
              "%g", (double)back[3]);
    const kvant_op unknown = { KVANT_OP_COUNT, &args };
    CHECK(kvant_device_supports(d, &unknown, &diag) == KVANT_EINVAL && strstr(diag.text, "unknown"), "%s", diag.text);
    kvant_device_free(d, y);
    kvant_device_free(d, NULL);
}

static void check_pages(kvant_device *d)
{
    const kvant_format *f = kvant_format_find("tbq4_0");
    const size_t row = kvant_format_row_bytes(f, D), page = row * KVANT_PAGE * H;
    unsigned char *rows = calloc(page, 1), *back = calloc(page, 1);
    kvant_kv_side s = { .fmt = f, .row_bytes = row, .head_bytes = row * KVANT_PAGE, .page_bytes = page };
    kvant_attn_args a = { .k = s, .v = s, .h = H, .h_kv = H, .d_k = D, .d_v = D };
    kvant_diag diag = { "" };
    void *at = NULL;

    a.k.layout = 9;
    kvant_device_layout(d, &a);
    CHECK(a.k.layout == KVANT_LAYOUT_ROWS && a.v.layout == KVANT_LAYOUT_ROWS, "layout %d", a.k.layout);
    for (size_t i = 0; i < page; i++)
        rows[i] = (unsigned char)(i * 7);
    CHECK(kvant_device_alloc(d, page * N, &at, &diag) == KVANT_OK, "%s", diag.text);
    s.pages = at;
    CHECK(kvant_device_page_write(d, &s, H, D, N - 1, rows, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(kvant_device_page_read(d, &s, H, D, N - 1, back, &diag) == KVANT_OK && memcmp(rows, back, page) == 0, "%s",
          diag.text);
    CHECK(kvant_device_page_read(d, &s, H, D, -1, back, &diag) == KVANT_EINVAL && strstr(diag.text, "page -1"), "%s",
          diag.text);
    CHECK(kvant_device_page_read(d, &s, H + 1, D, 0, back, &diag) == KVANT_EINVAL, "a head more than a page has");
    CHECK(kvant_device_page_read(d, &s, H, 2 * D, 0, back, &diag) == KVANT_EINVAL, "other rows than the side has");
    kvant_device_free(d, at);
    free(rows);
    free(back);
}

static void check_weight(kvant_device *d)
{
    static float w[8][256], x[256], y[8];
    kvant_weight weight = { .type = kvant_wtype_find("F32"),
                            .data = w,
                            .n_in = 256,
                            .n_out = 8,
                            .n_expert = 1,
                            .name = "w",
                            .use = KVANT_WEIGHT_MATMUL };
    kvant_diag diag = { "" };

    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 256; j++)
            w[i][j] = (float)(i + j % 2), x[j] = 1;
    CHECK(kvant_device_weight_load(d, &weight, KVANT_COMPUTE_F32, &diag) == KVANT_OK, "%s", diag.text);
    const kvant_matmul_args args = {
        .w = &weight, .x = x, .y = y, .ldx = 256, .ldy = 8, .m = 1, .compute = KVANT_COMPUTE_F32
    };
    const kvant_op op = { KVANT_OP_MATMUL, &args };
    CHECK(kvant_device_submit(d, &op, 1, 0, &diag) == KVANT_OK && kvant_device_sync(d, &diag) == KVANT_OK, "%s",
          diag.text);
    CHECK_CLOSE(y[7], 7 * 256 + 128, 0.01, "%g", (double)y[7]);
    kvant_device_weight_free(d, &weight);
}

int main(void)
{
    kvant_device *d = opened();

    check_open();
    check_memory(d);
    check_pages(d);
    check_weight(d);
    kvant_device_close(d);
    return check_end("check_device_api");
}
