/* check_cuda_attn.c: attention over pages in the private layout: every pair of formats, decode and prompt rows, against
 * the general kernel on the same rows (which `kvant verify` compares with the reference).  Prints "skipped: no device"
 * without a GPU.
 *
 *   check_cuda_attn          every pair
 *   check_cuda_attn small    a fifth of them
 *   check_cuda_attn bars     no check: medians of 30 launches at the shapes of the speed bars (bench_attn.h) */
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include "devices/cuda/core/bench_attn.h"
#include "support/check.h"

static char library[4096];

static int find_library(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    (void)ctx;
    if (strstr(info->dlpi_name, "libkvant-cuda.so") && strlen(info->dlpi_name) < sizeof library)
        memcpy(library, info->dlpi_name, strlen(info->dlpi_name) + 1);
    return library[0] != 0;
}

/* The function of the library that device_open has loaded. */
static kvant_cuda_bench_attn_fn find_bench(void)
{
    kvant_cuda_bench_attn_fn fn = NULL;
    dl_iterate_phdr(find_library, NULL);
    void *lib = library[0] ? dlopen(library, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *symbol = lib ? dlsym(lib, "kvant_cuda_bench_attn") : NULL;
    memcpy(&fn, &symbol, sizeof fn);
    return fn;
}

static int fast;

/* Returns whether it was not the general kernel. */
static int check_case(kvant_device *dev, kvant_cuda_bench_attn_fn bench, kvant_cuda_attn_case c)
{
    kvant_cuda_attn_time t;
    kvant_diag diag = { 0 };
    c.check = 1;
    const int rc = bench(dev, &c, &t, &diag);
    CHECK(rc == KVANT_OK, "%s x %s d %d new %d: %s", c.k->name, c.v->name, c.d, c.new_tokens, diag.text);
    CHECK(rc < 0 || t.nmse <= 1e-5,
          "%s x %s h %d/%d d %d len %d tail %d new %d seqs %d window %d sinks %d cap %g: NMSE %.3g, wanted 1e-5",
          c.k->name, c.v->name, c.h, c.h_kv, c.d, c.len, c.tail_pages, c.new_tokens, c.seqs, c.window, c.sinks,
          (double)c.softcap, t.nmse);
    fast += rc == KVANT_OK && t.fast;
    return rc == KVANT_OK && t.fast;
}

/* Pairs with their own kernels (bf16 rows, residuals, page scope), which must take them: 1 to 16 heads of a KV head. */
static void check_own(kvant_device *dev, kvant_cuda_bench_attn_fn bench)
{
    static const char *const pairs[][2] = {
        { "bf16", "bf16" },   { "bf16", "f16" },        { "f16", "bf16" },
        { "bf16", "tbq4_0" }, { "bf16", "turbo3_tcq" }, { "turbo4_66", "bf16" },
        { "q8_0", "bf16" },   { "qjl1_256", "bf16" },   { "q4_polar_r", "q4_polar_r" },
        { "ptcq2", "ptcq2" }, { "ptcq3", "ptcq3" },     { "ptcq4", "ptcq4" },
        { "ptcq3", "q8_0" },  { "q8_0", "ptcq2" },     { "ptcq4", "f16" }
    };
    static const int dims[] = { 128, 64, 256 };

    for (int i = 0; i < (int)(sizeof pairs / sizeof pairs[0]); i++)
        for (int group = 1; group <= 16; group++) {
            kvant_cuda_attn_case c = { .k = kvant_format_find(pairs[i][0]), .v = kvant_format_find(pairs[i][1]) };
            c.d = c.k->group == 128 || c.v->group == 128 ? 128 : dims[(i + group) % 3];
            if ((c.k->flags | c.v->flags) & KVANT_FORMAT_PAGE)
                c.d = group % 3 == 1 ? 256 : 128;
            c.h_kv = 2;
            c.h = 2 * group;
            c.seqs = group % 2 ? 2 : 40;
            c.len = 90 + 137 * group;
            c.tail_pages = 1 + group % 2;
            c.new_tokens = 1;
            CHECK(check_case(dev, bench, c), "%s x %s d %d: not by these kernels", c.k->name, c.v->name, c.d);
            c.seqs = 2;
            c.new_tokens = 30 + 11 * group;
            CHECK(check_case(dev, bench, c), "%s x %s d %d, prompt: not by these kernels", c.k->name, c.v->name, c.d);
        }
}

/* Windows that begin inside a page, in the exact tail, in an earlier split; caps; sinks; alone and together.  The pairs
 * have kernels of their own, which must take them: decode rows (one launch for few units, a line of steps for many),
 * prompts whose blocks make their own tiles and such that find them made. */
static void check_variants(kvant_device *dev, kvant_cuda_bench_attn_fn bench)
{
    static const char *const pairs[][2] = {
        { "tbq4_0", "tbq4_0" }, { "turbo4_66", "turbo4_66" }, { "turbo3_tcq", "turbo3_tcq" },
        { "q8_0", "q8_0" },     { "f16", "f16" },             { "bf16", "bf16" },
        { "bf16", "tbq3_0" },   { "qjl1_256", "tbq3_0" },     { "q4_polar_r", "q4_polar_r" },
        { "ptcq2", "ptcq2" },   { "ptcq3", "ptcq3" },         { "ptcq4", "ptcq4" }
    };
    static const kvant_cuda_attn_case kinds[] = {
        { .window = 1 },   { .window = 100 },  { .window = 128 }, { .window = 1090 },
        { .softcap = 3 },  { .sinks = 1 },     { .window = 333, .softcap = 2, .sinks = 1 }
    };
    static const kvant_cuda_attn_case shapes[] = {
        { .seqs = 2, .h = 16, .len = 1500, .new_tokens = 1 }, { .seqs = 70, .h = 8, .len = 1300, .new_tokens = 1 },
        { .seqs = 1, .h = 8, .len = 60000, .new_tokens = 1 }, { .seqs = 2, .h = 8, .len = 700, .new_tokens = 30 },
        { .seqs = 1, .h = 10, .len = 1500, .new_tokens = 1000 }
    };
    for (int i = 0; i < (int)(sizeof pairs / sizeof pairs[0]); i++)
        for (int j = 0; j < (int)(sizeof kinds / sizeof kinds[0]); j++)
            for (int s = 0; s < (int)(sizeof shapes / sizeof shapes[0]); s++) {
                kvant_cuda_attn_case c = shapes[s];
                const kvant_format *k = kvant_format_find(pairs[i][0]), *v = kvant_format_find(pairs[i][1]);
                c.k = k;
                c.v = v;
                c.h_kv = 2;
                c.d = k->group == 128 || v->group == 128 || (i + s) % 3 == 0 ? 128 : (i + s) % 3 == 1 ? 64 : 256;
                c.tail_pages = 1 + (i + j + s) % 3;
                c.window = kinds[j].window;
                c.softcap = kinds[j].softcap;
                c.sinks = kinds[j].sinks;
                CHECK(check_case(dev, bench, c), "%s x %s d %d: not by these kernels", k->name, v->name, c.d);
            }
}

/* A mask that names nothing is refused by name. */
static void check_mask(void)
{
    const kvant_device_config cfg = { 0 };
    const char *own = getenv("KVANT_CUDA_MASK");
    char before[64] = "";
    kvant_device *dev = NULL;
    kvant_diag diag = { 0 };
    if (own)
        snprintf(before, sizeof before, "%s", own);
    setenv("KVANT_CUDA_MASK", "sm75", 1);
    CHECK(device_open("cuda", &cfg, &dev, &diag) == KVANT_EINVAL, "KVANT_CUDA_MASK=sm75 was taken");
    CHECK(strstr(diag.text, "'sm75'") && strstr(diag.text, "sm80, sm86, sm89 or sm120"), "text: %s", diag.text);
    if (own)
        setenv("KVANT_CUDA_MASK", before, 1);
    else
        unsetenv("KVANT_CUDA_MASK");
}

static void time_case(kvant_device *dev, kvant_cuda_bench_attn_fn bench, kvant_cuda_attn_case c)
{
    kvant_cuda_attn_time t;
    kvant_diag diag = { 0 };
    c.runs = 30;
    c.tail_pages = 1;
    CHECK(bench(dev, &c, &t, &diag) == KVANT_OK, "%s x %s: %s", c.k->name, c.v->name, diag.text);
    printf("%-10s x %-10s %2d x %d KV heads x d %d x %6d, %d rows, GQA %d", c.k->name, c.v->name, c.seqs, c.h_kv, c.d,
           c.len, c.new_tokens, c.h / c.h_kv);
    if (c.window > 0 || c.sinks || c.softcap > 0)
        printf(", window %d, sinks %d, cap %g: %7.1f us (least %.1f)", c.window, c.sinks, (double)c.softcap,
               t.median_s * 1e6, t.least_s * 1e6);
    else
        printf(": %7.1f us (least %.1f), %.3f TB/s", t.median_s * 1e6, t.least_s * 1e6, t.bytes / t.median_s / 1e12);
    printf("%s\n", t.fast ? "" : ", general kernel");
}

static void time_bars(kvant_device *dev, kvant_cuda_bench_attn_fn bench)
{
    static const char *const pairs[][2] = {
        { "tbq4_0", "tbq4_0" }, { "turbo4_66", "turbo4_66" },   { "turbo3", "turbo3" },
        { "tbq3_0", "tbq3_0" }, { "turbo3_tcq", "turbo3_tcq" }, { "qjl1_256", "tbq3_0" },
        { "q8_0", "q8_0" },     { "f8_e4m3", "f8_e4m3" },       { "f16", "f16" },
        { "bf16", "bf16" },     { "q4_polar_r", "q4_polar_r" }, { "ptcq2", "ptcq2" },
        { "ptcq3", "ptcq3" },   { "ptcq4", "ptcq4" }
    };
    static const kvant_cuda_attn_case shapes[] = {
        { .seqs = 32, .h = 32, .h_kv = 8, .d = 128, .len = 32768, .new_tokens = 1 },
        { .seqs = 1, .h = 16, .h_kv = 4, .d = 128, .len = 262144, .new_tokens = 1 },
        { .seqs = 16, .h = 16, .h_kv = 2, .d = 256, .len = 32768, .new_tokens = 1 },
        { .seqs = 1, .h = 32, .h_kv = 8, .d = 128, .len = 8192, .new_tokens = 8192 },
        { .seqs = 32, .h = 32, .h_kv = 8, .d = 128, .len = 32768, .new_tokens = 1, .window = 128, .sinks = 1 },
        { .seqs = 1, .h = 32, .h_kv = 8, .d = 128, .len = 8192, .new_tokens = 8192, .window = 1024, .softcap = 50 },
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t j = 0; j < (i == 0 || i == 3 ? sizeof pairs / sizeof pairs[0] : 2); j++) {
            kvant_cuda_attn_case c = shapes[i];
            c.k = kvant_format_find(pairs[j][0]);
            c.v = kvant_format_find(pairs[j][1]);
            time_case(dev, bench, c);
        }
}

int main(int argc, char **argv)
{
    const int small = argc > 1 && strcmp(argv[1], "small") == 0, n = kvant_format_count();
    const kvant_device_config cfg = { 0 };
    kvant_device *dev = NULL;
    kvant_diag diag = { 0 };

    setenv("KVANT_CUDA_ATTN", "fast", 1);
    if (device_open("cuda", &cfg, &dev, &diag) < 0) {
        printf("skipped: no device (%s)\n", diag.text);
        return check_end("check_cuda_attn");
    }
    check_mask();
    kvant_cuda_bench_attn_fn bench = find_bench();
    CHECK(bench != NULL, "libkvant-cuda.so has no kvant_cuda_bench_attn");
    if (bench && argc > 1 && strcmp(argv[1], "bars") == 0) {
        time_bars(dev, bench);
        dev->vt->close(dev);
        return check_end("check_cuda_attn");
    }
    for (int i = 0; i < n && bench; i++)
        for (int j = 0; j < n; j++) {
            const kvant_format *k = kvant_format_at(i), *v = kvant_format_at(j);
            kvant_cuda_attn_case c = { .k = k,
                                       .v = v,
                                       .seqs = 2,
                                       .h = 8,
                                       .h_kv = 2,
                                       .d = 128,
                                       .len = 1500,
                                       .tail_pages = 1 + (i + j) % 2,
                                       .new_tokens = 1 };
            if (small && (i + j) % 5)
                continue;
            check_case(dev, bench, c);
            c.new_tokens = 70;
            check_case(dev, bench, c);
            c.new_tokens = 200; /* tiles of keys are made ahead */
            check_case(dev, bench, c);
            c.new_tokens = 1;
            c.seqs = 70; /* too many units for a cluster each */
            c.len = 300;
            check_case(dev, bench, c);
            if (small)
                continue;
            c.d = (i + j) % 2 ? 64 : 256;
            c.h = 24;
            c.seqs = (i / 2 + j) % 2 ? 40 : 2;
            c.len = i == j ? 1 : 10 + 100 * i;
            check_case(dev, bench, c);
            c.seqs = 2;
            c.new_tokens = 70;
            c.h = 10;
            c.len = 1500;
            check_case(dev, bench, c);
        }
    for (int i = 0; i < n && bench; i++) /* few units: too long for a cluster each; as many blocks as one can have */
        for (int d = 128; d <= 256; d += 128) {
            const kvant_format *f = kvant_format_at(i);
            kvant_cuda_attn_case c = { .k = f, .v = f, .seqs = 1, .h = 8, .h_kv = 2, .d = d, .len = 60000 };
            c.tail_pages = c.new_tokens = 1;
            check_case(dev, bench, c);
            c.len = d == 128 ? 5000 : 3100;
            check_case(dev, bench, c);
        }
    if (bench)
        check_variants(dev, bench);
    if (bench)
        check_own(dev, bench);
    if (bench) { /* more rows than one launch takes */
        const kvant_format *f = kvant_format_find("turbo4_66");
        kvant_cuda_attn_case c = { .k = f, .v = f, .seqs = 300, .h = 8, .h_kv = 2, .d = 128, .len = 700 };
        c.tail_pages = c.new_tokens = 1;
        check_case(dev, bench, c);
    }
    printf("%d cases not by the general kernel\n", fast);
    dev->vt->close(dev);
    return check_end("check_cuda_attn");
}
