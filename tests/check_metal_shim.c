/* check_metal_shim.c: the shim finds what it says: tests/metal/planted.k with one planted fault after the other, and
 * the same kernel without one. */
#include <string.h>
#include "base/file/file.h"
#include "base/mem.h"
#include "devices/metal/shim/shim.h"
#include "devices/portable/core/port_dev.h"
#include "support/check.h"

enum { THREADS = 64, GROUPS = 2, N = THREADS * GROUPS };

static kvant_diag diag;
static char *planted;

typedef struct data { float x[N], gap[16], y[N], sums[GROUPS]; int32_t n; } data;

/* The kernel with this fault; the caller frees it. */
static char *text_of(int fault)
{
    char define[32], *norm = NULL, *out;

    snprintf(define, sizeof define, "#define FAULT %d\n", fault);
    CHECK(port_source("ops/norm.k", define, &norm, &diag) == KVANT_OK, "%s", diag.text);
    out = kvant_alloc(strlen(norm) + strlen(planted) + 1);
    strcpy(out, norm);
    strcat(out, planted);
    kvant_free(norm);
    return out;
}

static int run(int fault, data *d)
{
    shim_program program;
    char *text = text_of(fault);
    shim_launch l = { "planted", &program, { { d->x, sizeof d->x, 0 }, { d->y, sizeof d->y, 1 },
                      { d->sums, sizeof d->sums, 1 }, { &d->n, sizeof d->n, 0 } }, 4, THREADS, { GROUPS, 1, 1 } };

    int code = shim_program_load(&program, "planted", text, &diag);
    CHECK(code == KVANT_OK, "%s", diag.text);
    if (code == KVANT_OK)
        code = shim_run(&l, &diag);
    shim_program_free(&program);
    kvant_free(text);
    return code;
}

static void sound(void)
{
    data d = { .n = 1 };

    check_fill(d.x, N, -1.0f, 1.0f, 7);
    CHECK(run(0, &d) == KVANT_OK, "%s", diag.text);
    for (int g = 0; g < GROUPS; g++) {
        float sum = 0.0f;
        for (int t = 0; t < THREADS; t++) {
            const int other = THREADS - 1 - t;
            const float want = d.x[g * THREADS + other] * (float)((other & 3) + 1);
            CHECK(d.y[g * THREADS + t] == want, "value %d of group %d", t, g);
            sum += want;
        }
        CHECK_CLOSE(d.sums[g], sum, 1e-4, "sum of group %d", g);
    }
}

static void faults(void)
{
    static const struct { const char *what, *finds; } list[] = {
        { "reads past the end of a buffer", "outside of the buffers: the nearest is" },
        { "no barrier between write and read", "reads threadgroup memory that no thread" },
        { "writes past the end of a threadgroup array", "outside of its arrays" },
        { "half of the threads end before a barrier", "ends while thread" },
        { "groups write the same bytes", "another group of this launch wrote" },
        { "reads threadgroup memory that nobody wrote", "that no thread of the group wrote" },
        { "writes to a buffer that is bound for reading", "which is bound for reading" },
        { "a wrong simdgroup size", "no barrier between" },
        { "reads another thread's device memory", "no barrier for device memory between" },
        { "an odd address", "not at a multiple of 2" },
        { "barriers in a loop of different lengths", "waits at" },
        { "a matrix product of half a simdgroup", "which not every thread of its simdgroup calls" },
        { "simdgroups of 16 threads", "not the same, or not with the same arguments" },
        { "a matrix past the end of a threadgroup array", "outside of its arrays" },
        { "reads what a simdgroup stored", "no barrier between" },
        { "a matrix past the end of a buffer", "outside of the buffers" },
        { "writes what the others read, twice each", "writes threadgroup memory that several threads read" },
        { "reads what another thread wrote, read and wrote again", "reads threadgroup memory that thread" },
        { "a group writes a byte of another's word", "another group of this launch wrote" },
    };

    for (int f = 0; f < (int)(sizeof list / sizeof *list); f++) {
        data d = { .n = 1 };
        const int code = run(f + 1, &d);
        CHECK(code == KVANT_EINVAL, "%s: not found", list[f].what);
        CHECK(strstr(diag.text, list[f].finds), "%s: %s", list[f].what, diag.text);
        CHECK(strstr(diag.text, "planted"), "%s: the message lacks the kernel: %s", list[f].what, diag.text);
    }
}

static void compiler(void)
{
    shim_program p;

    CHECK(shim_program_load(&p, "broken", "#include <metal_stdlib>\nkernel void k_broken(uint3 a, uint3 b, uint c) { metal::erf(1.0f); }\n", &diag) < 0,
          "a broken kernel is compiled");
    CHECK(strstr(diag.text, "broken") && strstr(diag.text, "error"), "%s", diag.text);
    setenv("CXX", "/no/such/compiler", 1);
    CHECK(shim_program_load(&p, "planted", "", &diag) == KVANT_EDEVICE, "no compiler, no error");
    CHECK(strstr(diag.text, "/no/such/compiler"), "%s", diag.text);
    unsetenv("CXX");
}

/* An op with more values than an int numbers (port_elements.c) is refused before it runs. */
static void too_many(void)
{
    static const kvant_device_vt vt = { .name = "none" };
    port_device d = { .base = { &vt } };
    kvant_moe_combine_args a = { .n = 1 << 16, .k = 1, .d = (1 << 15) - 1 };

    CHECK(port_op_moe_combine.supports(&d, &a, &diag) == KVANT_OK, "%s", diag.text);
    a.d++;
    CHECK(port_op_moe_combine.supports(&d, &a, &diag) == KVANT_EUNSUPPORTED, "more values than an int numbers");
    CHECK(strstr(diag.text, "device none: moe_combine: 2147483648 values"), "%s", diag.text);
}

int main(void)
{
    size_t n;

    if (file_read("tests/metal/planted.k", 1 << 16, &planted, &n, &diag) != KVANT_OK) {
        CHECK(0, "%s", diag.text);
        return check_end("check_metal_shim");
    }
    sound();
    faults();
    compiler();
    too_many();
    kvant_free(planted);
    return check_end("check_metal_shim");
}
