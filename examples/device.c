/* device.c: rows are encoded and attended to on any device, in memory of the program where the device takes it; with
 * -DWITH_CUDA on the program's own CUDA stream too.  The result is compared with attention over the exact rows.
 *
 *     cc device.c $(pkg-config --cflags --libs kvant) -lm -o device && ./device vulkan tbq4_0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <kvant/device.h>
#ifdef WITH_CUDA
#include <cuda_runtime_api.h>
#endif

enum { T = 200, D = 128, PAGES = (T + KVANT_PAGE - 1) / KVANT_PAGE };   /* tokens, values of the one head, pages */

static float k[T][D], v[T][D], q[D], out[D];
/* q0[2], pos0, prompt of the rows; of the query; the table of pages */
static const int32_t ints[] = { 0, T, 0, 1, 0, 1, T - 1, 0, PAGES - 1, 2, 1, 0 };
static uint8_t own[1 << 20];

/* Memory of the program: CUDA's, or an array where the device is the CPU; else the device's, with a copy. */
static void *memory(kvant_device *d, const void *from, size_t bytes, kvant_diag *diag)
{
    static size_t used;
    void *addr = NULL, *mine = own + used;
#ifdef WITH_CUDA
    cudaMalloc(&mine, bytes);
#endif
    used += (bytes + 63) / 64 * 64;
    if (kvant_device_adopt(d, mine, bytes, &addr, diag) && kvant_device_alloc(d, bytes, &addr, diag))
        return NULL;
    return from && kvant_device_copy_in(d, addr, from, bytes, diag) ? NULL : addr;
}

static kvant_kv_side side(kvant_device *d, const kvant_format *f, kvant_diag *diag)
{
    kvant_kv_side s;
    memset(&s, 0, sizeof s);
    s.fmt = f;
    s.row_bytes = kvant_format_row_bytes(f, D);
    s.head_bytes = s.page_bytes = s.row_bytes * KVANT_PAGE;
    s.pages = (uint8_t *)memory(d, NULL, PAGES * s.page_bytes, diag);
    s.encoder = KVANT_ENCODER_BEST;
    return s;
}

static int attend(kvant_device *d, const kvant_format *f, kvant_diag *diag)
{
    const int32_t *i = (const int32_t *)memory(d, ints, sizeof ints, diag);
    kvant_seqs rows = { 1, T, 0, 0, i, i + 2, i + 3, i + 8, NULL, PAGES, NULL, NULL };
    kvant_seqs last = { 1, 1, 1, 1, i + 4, i + 6, i + 7, i + 8, NULL, PAGES, NULL, NULL };
    kvant_cache_write_args write_k = { rows, side(d, f, diag), (float *)memory(d, k, sizeof k, diag), D, 1, D };
    kvant_cache_write_args write_v = { rows, side(d, f, diag), (float *)memory(d, v, sizeof v, diag), D, 1, D };
    kvant_attn_args a;
    memset(&a, 0, sizeof a);
    a.seqs = last, a.k = write_k.side, a.v = write_v.side;
    a.q = (float *)memory(d, q, sizeof q, diag), a.out = (float *)memory(d, NULL, sizeof out, diag);
    a.ldq = a.gq = a.ldo = a.d_k = a.d_v = D, a.h = a.h_kv = 1, a.scale = 1 / sqrtf((float)D), a.max_pos = T - 1;
    kvant_op list[] = { { KVANT_OP_CACHE_WRITE, &write_k }, { KVANT_OP_CACHE_WRITE, &write_v }, { KVANT_OP_ATTN, &a } };
    int rc = kvant_device_submit(d, list, 3, 0, diag);
    return rc ? rc : kvant_device_copy_out(d, out, a.out, sizeof out, diag);
}

/* The relative error of out, by attention in double over the rows as they were before they were encoded. */
static double error_of(void)
{
    double w[T], sum = 0, off = 0, all = 0;
    for (int t = 0; t < T; t++) {
        double s = 0;
        for (int j = 0; j < D; j++)
            s += (double)q[j] * k[t][j];
        sum += w[t] = exp(s / sqrt((double)D));
    }
    for (int j = 0; j < D; j++) {
        double x = 0;
        for (int t = 0; t < T; t++)
            x += w[t] / sum * v[t][j];
        off += (out[j] - x) * (out[j] - x), all += x * x;
    }
    return sqrt(off / all);
}

int main(int argc, char **argv)
{
    kvant_diag diag = { "" };
    kvant_device_params params = kvant_device_defaults();
    const kvant_format *f;
    kvant_device *d = NULL;
    char text[160];
    float *all[] = { &k[0][0], &v[0][0], q };
    int counts[] = { T * D, T * D, D };
    unsigned seed = 1;
    for (int a = 0; a < 3; a++)
        for (int i = 0; i < counts[a]; i++)
            all[a][i] = (float)((seed = seed * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1.0f;
#ifdef WITH_CUDA
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    params.stream = stream;
#endif
    if (kvant_format_parse(argc > 2 ? argv[2] : "tbq4_0", &f, &diag) ||
        kvant_device_open(argc > 1 ? argv[1] : "cpu", &params, &d, &diag) || attend(d, f, &diag)) {
        fprintf(stderr, "device: %s\n", diag.text);
        return 1;
    }
    kvant_device_describe(d, text, sizeof text);
    printf("%s: %s, %d tokens, relative error of the output %.4f\n", text, f->name, T, error_of());
    kvant_device_close(d);
    return error_of() < 0.25 ? 0 : 1;
}
