/* check_gguf.c: the GGUF reader against files built to break it.  Names G-xx: the reliability test list.
 *
 * Every hostile file must give KVANT_EFORMAT with a text that names the thing, leave the result untouched, and read
 * nothing outside of its bytes (the buffer ends at an inaccessible page).  Files on disk: check_gguf_files.c. */
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/rng.h"
#include "model/gguf/gguf.h"
#include "support/check.h"
#include "support/gguf_build.h"

static kvant_diag diag;

/* ---- memory that ends at a wall ------------------------------------------------------------ */

static uint8_t *wall; /* first inaccessible byte */
enum { WALL_BYTES = 4 << 20 };

static void wall_make(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p = mmap(NULL, WALL_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || mprotect(p + WALL_BYTES, page, PROT_NONE) != 0)
        abort();
    wall = p + WALL_BYTES;
}

/* Opens the first n bytes of data from a copy that ends at the wall. */
static int open_bytes(const uint8_t *data, size_t n, gguf **g)
{
    if (n > WALL_BYTES)
        abort();
    if (n)
        memcpy(wall - n, data, n);
    *g = NULL;
    memset(&diag, 0, sizeof diag);
    return gguf_open_mem(wall - n, n, g, &diag);
}

/* The file must be refused with a text containing `says`. */
static void refused(const gb *b, const char *says, const char *what)
{
    gguf *g;
    const int rc = open_bytes(b->data, b->n, &g);

    CHECK(rc == KVANT_EFORMAT && !g, "%s: %s (%s)", what, kvant_error_name(rc), diag.text);
    CHECK(strstr(diag.text, says) != NULL, "%s: text \"%s\", \"%s\" wanted in it", what, diag.text, says);
    gguf_close(g);
}

static gguf *accepted(const gb *b, const char *what)
{
    gguf *g;
    const int rc = open_bytes(b->data, b->n, &g);

    CHECK(rc == KVANT_OK && g, "%s: %s (%s)", what, kvant_error_name(rc), diag.text);
    return g;
}

static const int64_t shape_a[] = { 64, 4 }, shape_c[] = { 7 };

static void check_good(void)
{
    gb b = { 0 };

    for (uint32_t version = 2; version <= 3; version++) {
        gb_good_model(&b, version, 0);
        gguf *g = accepted(&b, "good model");
        if (!g)
            continue;
        const gguf_tensor *t = gguf_tensor_find(g, "blk.0.b.weight");
        CHECK(gguf_version(g) == (int)version && gguf_file_bytes(g) == (int64_t)b.n, "version %d", gguf_version(g));
        CHECK(gguf_kv_count(g) == GB_GOOD_KV && gguf_tensor_count(g) == GB_GOOD_TENSORS, "counts");
        CHECK(t && t->n_dims == 3 && t->ne[0] == 256 && t->ne[1] == 2 && t->ne[2] == 3 && t->ne[3] == 1 &&
                  t->type == 12 && t->bytes == 864 && t->shard == 0,
              "tensor b");
        CHECK(t && memcmp(t->data, b.data + (b.n - 1920 - 176 + 1024), 864) == 0, "data of tensor b");
        CHECK(!gguf_tensor_find(g, "blk.0.b") && !gguf_tensor_find(g, "") && !gguf_tensor_find(g, "zzz"),
              "absent tensors");
        CHECK(gguf_find(g, "x.u32") && !gguf_find(g, "x.u3") && !gguf_find(g, "x.u322") && !gguf_find(g, ""), "keys");
        CHECK(!gguf_kv_at(g, -1) && !gguf_kv_at(g, GB_GOOD_KV) && !gguf_tensor_at(g, GB_GOOD_TENSORS),
              "index out of range");
        CHECK(gb_walk(g) > 0 && !gguf_poisoned(g), "walk");
        gguf_close(g);
    }
    gguf_close(NULL);
    gb_free(&b);
}

/* ---- getters (G-07) ------------------------------------------------------------ */

static void check_values(void)
{
    static const size_t token_bytes[] = { 1, 0, 22, 2 };
    gb b = { 0 };
    gb_good_model(&b, 3, 0);
    gguf *g = accepted(&b, "good model");
    uint32_t u = 99;
    float f = 99;
    int i = 99, n = 99;
    int32_t v[4];
    gguf_str s = { NULL, 0 };
    gguf_iter it;

    CHECK(gguf_u32(g, "x.u32", 1, &u, &diag) == 0 && u == 42, "u32 %u", u);
    CHECK(gguf_u32(g, "x.u16", 1, &u, &diag) == 0 && u == 65535, "u16 %u", u);
    CHECK(gguf_u32(g, "x.u8", 1, &u, &diag) == 0 && u == 200, "u8 %u", u);
    CHECK(gguf_u32(g, "x.u64", 1, &u, &diag) == 0 && u == 1234567, "u64 %u", u);
    CHECK(gguf_u32(g, "x.i32", 1, &u, &diag) == 0 && u == 77, "i32 %u", u);
    CHECK(gguf_u32(g, "x.i8", 1, &u, &diag) == KVANT_EFORMAT && strstr(diag.text, "x.i8: -3"), "i8: %s", diag.text);
    CHECK(gguf_u32(g, "x.i16", 1, &u, &diag) == KVANT_EFORMAT && strstr(diag.text, "-300"), "i16: %s", diag.text);
    CHECK(gguf_u32(g, "x.i64", 1, &u, &diag) == KVANT_EFORMAT && strstr(diag.text, "-5"), "i64: %s", diag.text);
    CHECK(u == 77, "a failed getter wrote %u", u);
    CHECK(gguf_u32(g, "x.gone", 0, &u, &diag) == 0 && u == 77, "absent, optional");
    CHECK(gguf_u32(g, "x.gone", 1, &u, &diag) == KVANT_EFORMAT && strstr(diag.text, "x.gone"), "absent: %s", diag.text);
    CHECK(gguf_f32(g, "x.f32", 1, &f, &diag) == 0 && f == 1.25f, "f32 %g", f);
    CHECK(gguf_f32(g, "x.f64", 1, &f, &diag) == 0 && f == 3.5f, "f64 %g", f);
    CHECK(gguf_bool(g, "x.bool", 1, &i, &diag) == 0 && i == 1, "bool %d", i);
    CHECK(gguf_string(g, "general.architecture", 1, &s, &diag) == 0 && s.n == 5 && memcmp(s.s, "qwen3", 5) == 0,
          "string");
    CHECK(gguf_string(g, "x.empty", 1, &s, &diag) == 0 && s.n == 0, "empty string");
    CHECK(gguf_i32s(g, "x.i32s", 1, v, 4, &n, &diag) == 0 && n == 4 && v[1] == 11 && v[3] == 0, "i32s");
    CHECK(gguf_i32s(g, "x.none", 1, v, 0, &n, &diag) == 0 && n == 0, "empty array");
    CHECK(gguf_i32s(g, "x.i32s", 1, v, 3, &n, &diag) == KVANT_EFORMAT, "i32s into three");
    CHECK(gguf_strings(g, "x.tokens", 1, &it, &n, &diag) == 0 && n == 4, "strings");
    for (n = 0; gguf_next(&it, &s); n++)
        CHECK(s.n == token_bytes[n], "token %d has %zu bytes", n, s.n);
    CHECK(n == 4 && gguf_next(&it, &s) == 0, "%d tokens", n);
    gguf_close(g);
    gb_free(&b);
}

/* Every getter on every scalar type and every array type: the value 1 (or what its first byte makes of a float),
 * converted exactly or refused.  An array of one value is that value. */
static void check_type_matrix(void)
{
    static const size_t size[13] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    static const char ok_u32[13] = { 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0 };
    gb b = { 0 };

    for (uint32_t type = 0; type < 26; type++) {
        const int array = type >= 13;
        const uint32_t elem = type % 13;
        uint8_t one[8] = { 1 };
        uint32_t u;
        float f;
        int i, n;
        int32_t v[4];
        gguf_str s;
        gguf_iter it;
        const uint8_t *raw;
        if (elem == 9)
            continue;
        gb_begin(&b, 3, 0, 1);
        if (array)
            gb_kv_array(&b, "k", elem, 1, one, elem == 8 ? 8 : size[elem]);
        else
            gb_kv(&b, "k", elem, one, elem == 8 ? 8 : size[elem]);
        if (elem == 8)
            gb_bytes(&b, "z", 1);
        gguf *g = accepted(&b, "one key");
        if (!g)
            continue;
        CHECK((gguf_u32(g, "k", 1, &u, NULL) == 0) == ok_u32[elem], "u32 of type %u", type);
        CHECK((gguf_f32(g, "k", 1, &f, NULL) == 0) == (elem != 7 && elem != 8), "f32 of type %u", type);
        CHECK((gguf_bool(g, "k", 1, &i, NULL) == 0) == (ok_u32[elem] || elem == 7), "bool of type %u", type);
        CHECK((gguf_string(g, "k", 1, &s, NULL) == 0) == (!array && elem == 8), "string of type %u", type);
        CHECK((gguf_i32s(g, "k", 1, v, 4, &n, NULL) == 0) == ok_u32[elem], "i32s of type %u", type);
        CHECK((gguf_strings(g, "k", 1, &it, &n, NULL) == 0) == (array && elem == 8), "strings of type %u", type);
        for (int want = 0; want < 13; want++)
            CHECK((gguf_raw_array(g, "k", 1, want, &raw, &n, NULL) == 0) == (array && elem == (uint32_t)want),
                  "raw array of type %u as %d", type, want);
        gguf_close(g);
    }
    gb_free(&b);
}

/* Numbers that writers give in other types, and arrays for one value. */
static void check_other_types(void)
{
    static const double whole = 4096, half = 0.5, large = 1e300;
    static const float base = 500000;
    static const uint64_t wide = 32, bits = UINT32_MAX;
    static const int16_t same[] = { 8, 8, 8 }, mixed[] = { 8, 8, 4 }, minus[] = { -1 };
    static const uint8_t yes = 1, two = 2;
    const struct {
        const char *what;
        uint32_t type, elem, count;
        const void *p;
        size_t n;
        double u32, f32;
        int is;
    } cases[] = {
        { "f64 for a count", 12, 0, 1, &whole, 8, 4096, 4096, -1 },
        { "f64 .5", 12, 0, 1, &half, 8, -1, .5, -1 },
        { "f64 too large", 12, 0, 1, &large, 8, -1, -1, -1 },
        { "f32 for a count", 6, 0, 1, &base, 4, 5e5, 5e5, -1 },
        { "u64 for a factor", 10, 0, 1, &wide, 8, 32, 32, -1 },
        { "u64 of 32 bits", 10, 0, 1, &bits, 8, 4294967295.0, 4294967295.0, -1 },
        { "i16 array of one value", 9, 3, 3, same, 6, 8, 8, -1 },
        { "i16 array of two values", 9, 3, 3, mixed, 6, -1, -1, -1 },
        { "i16 array of -1", 9, 3, 1, minus, 2, -1, -1e9, -1 },
        { "u8 for a bool", 0, 0, 1, &yes, 1, 1, 1, 1 },
        { "u8 2 for a bool", 0, 0, 1, &two, 1, 2, 2, -1 },
        { "empty array", 9, 4, 0, mixed, 0, -1, -1, -1 },
        { "bool array", 9, 7, 1, &yes, 1, -1, -1, 1 },
        { "f64 array", 9, 12, 1, &whole, 8, 4096, 4096, -1 },
    };
    gb b = { 0 };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t u = 0;
        float f = 0;
        int is = 0;
        gb_begin(&b, 3, 0, 1);
        if (cases[i].type == 9)
            gb_kv_array(&b, "k", cases[i].elem, cases[i].count, cases[i].p, cases[i].n);
        else
            gb_kv(&b, "k", cases[i].type, cases[i].p, cases[i].n);
        gguf *g = accepted(&b, cases[i].what);
        const double got = gguf_u32(g, "k", 1, &u, &diag) == 0 ? (double)u : -1;
        CHECK(got == cases[i].u32, "%s as u32: %g, %s", cases[i].what, got, diag.text);
        const int ok = gguf_f32(g, "k", 1, &f, &diag) == 0;
        CHECK(cases[i].f32 == -1e9 ? ok && f == -1
              : ok                 ? (double)f == (double)(float)cases[i].f32
                                   : cases[i].f32 == -1,
              "%s as f32: %g", cases[i].what, (double)f);
        CHECK((gguf_bool(g, "k", 1, &is, &diag) == 0 ? is : -1) == cases[i].is, "%s as bool: %d", cases[i].what, is);
        gguf_close(g);
    }
    gb_free(&b);
}

static void value_refused(gb *b, int (*get)(const gguf *g), const char *what)
{
    gguf *g = accepted(b, what);
    CHECK(g && get(g) == KVANT_EFORMAT && strstr(diag.text, "key k:"), "%s: %s", what, diag.text);
    gguf_close(g);
}

static int get_u32(const gguf *g)
{
    uint32_t u;
    return gguf_u32(g, "k", 1, &u, &diag);
}

static int get_f32(const gguf *g)
{
    float f;
    return gguf_f32(g, "k", 1, &f, &diag);
}

static int get_bool(const gguf *g)
{
    int i;
    return gguf_bool(g, "k", 1, &i, &diag);
}

static int get_i32s(const gguf *g)
{
    int32_t v[4];
    int n;
    return gguf_i32s(g, "k", 1, v, 4, &n, &diag);
}

static void check_ranges(void)
{
    static const uint64_t above[] = { (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX };
    static const double odd[] = { NAN, INFINITY, -INFINITY, 1e39, -1e300 };
    const uint32_t minus = 0x80000000u;
    gb b = { 0 };

    for (size_t i = 0; i < 3; i++) {
        gb_begin(&b, 3, 0, 1);
        gb_kv(&b, "k", 10, &above[i], 8);
        value_refused(&b, get_u32, "u64 above u32");
    }
    for (size_t i = 0; i < 5; i++) {
        gb_begin(&b, 3, 0, 1);
        gb_kv(&b, "k", 12, &odd[i], 8);
        value_refused(&b, get_f32, "f64 out of range");
    }
    gb_begin(&b, 3, 0, 1);
    gb_kv_f32(&b, "k", NAN);
    value_refused(&b, get_f32, "f32 NaN");
    gb_begin(&b, 3, 0, 1);
    gb_kv_bool(&b, "k", 2);
    value_refused(&b, get_bool, "bool 2");
    gb_begin(&b, 3, 0, 1);
    gb_kv_array(&b, "k", 4, 1, &minus, 4);
    value_refused(&b, get_i32s, "u32 element above i32");
    gb_free(&b);
}

/* ---- header (G-01, G-02) ------------------------------------------------------------ */

static void check_header(void)
{
    static const uint32_t versions[] = { 0, 1, 4, 100, 0x02000000u, 0x03000000u, UINT32_MAX };
    gb b = { 0 };
    gguf *g;

    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        gb_good_model(&b, versions[i], 0);
        refused(&b, (versions[i] & 0xffff) || !versions[i] ? "version" : "big-endian", "version");
    }
    gb_good_model(&b, 3, 0);
    for (size_t i = 0; i < 4; i++) {
        b.data[i] ^= 0x20;
        refused(&b, "magic", "magic");
        b.data[i] ^= 0x20;
    }
    for (size_t n = 0; n <= 64; n++) {
        uint8_t junk[64];
        memset(junk, 'G', sizeof junk);
        CHECK(open_bytes(junk, n, &g) == KVANT_EFORMAT && !g, "%zu bytes of junk", n);
        CHECK(open_bytes(b.data, n, &g) == KVANT_EFORMAT && !g && (n >= 24 || strstr(diag.text, "truncated")),
              "%zu bytes: %s", n, diag.text);
    }
    CHECK(gguf_open_mem(NULL, 0, &g, NULL) == KVANT_EFORMAT, "no bytes, no diag");
    CHECK(gguf_open_mem(NULL, 5, &g, &diag) == KVANT_EINVAL && gguf_open_mem(b.data, b.n, NULL, &diag) == KVANT_EINVAL,
          "NULL arguments");
    gb_begin(&b, 3, 0, 0);
    g = accepted(&b, "no keys, no tensors");
    gguf_close(g);
    gb_free(&b);
}

/* Every count, length, dimension and offset of the good model set to every hostile value. */
static void check_hostile_counts(void)
{
    static const uint64_t bad[] = { (uint64_t)1 << 63,
                                    UINT64_MAX,
                                    UINT64_MAX - 7,
                                    UINT64_MAX - 31,
                                    (uint64_t)1 << 31,
                                    (uint64_t)1 << 32,
                                    ((uint64_t)1 << 42) + 1,
                                    (uint64_t)1 << 61,
                                    (uint64_t)1 << 62,
                                    0x7FFFFFFFFFFFFFC0u,
                                    ((uint64_t)1 << 32) + 1,
                                    ((uint64_t)1 << 30) + 1,
                                    100000 };
    gb b = { 0 };
    gguf *g;

    gb_good_model(&b, 3, 0);
    CHECK(b.n_marks > 40, "%d fields to spoil", b.n_marks);
    for (int m = 0; m < b.n_marks; m++) {
        uint64_t saved;
        memcpy(&saved, b.data + b.marks[m], sizeof saved);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            gb_poke_u64(&b, b.marks[m], bad[i]);
            const int rc = open_bytes(b.data, b.n, &g);
            CHECK(rc == KVANT_EFORMAT && !g && diag.text[0], "field at %zu = %#llx: %s", b.marks[m],
                  (unsigned long long)bad[i], kvant_error_name(rc));
            gguf_close(g);
        }
        gb_poke_u64(&b, b.marks[m], saved);
    }
    g = accepted(&b, "the good model after all");
    gguf_close(g);
    gb_free(&b);
}

/* ---- keys and values (G-03, G-06, duplicates) ------------------------------------------------------------ */

static void check_keys(void)
{
    gb b = { 0 };
    char name[70000];

    static const uint32_t types[] = { 13, 14, 255, 0x80000000u, UINT32_MAX };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        gb_begin(&b, 3, 0, 1);
        gb_kv(&b, "bad.type", types[i], "12345678", 8);
        refused(&b, "bad.type: value type", "value type");
        gb_begin(&b, 3, 0, 1);
        gb_kv_array(&b, "bad.elem", types[i], 1, "12345678", 8);
        refused(&b, "bad.elem: array element type", "element type");
    }
    gb_begin(&b, 3, 0, 1); /* arrays of arrays, a thousand deep: the first is refused */
    gb_kv(&b, "nested", 9, NULL, 0);
    for (int i = 0; i < 1000; i++) {
        gb_u32(&b, 9);
        gb_u64(&b, 1);
    }
    refused(&b, "nested: array of arrays", "nested arrays");
    gb_begin(&b, 3, 0, 2);
    gb_kv_u32(&b, "same.key", 1);
    gb_kv_str(&b, "same.key", "2");
    refused(&b, "same.key: found twice", "duplicate key");
    gb_begin(&b, 3, 0, 1);
    gb_kv_u32(&b, "", 1);
    refused(&b, "length 0", "empty key");
    memset(name, 'k', sizeof name - 1);
    name[sizeof name - 1] = 0;
    gb_begin(&b, 3, 0, 1);
    gb_kv_u32(&b, name, 1);
    refused(&b, "length 69999", "long key");
    gb_begin(&b, 3, 0, 1);
    gb_u64(&b, 3);
    gb_bytes(&b, "a\0b", 3);
    gb_u32(&b, 4);
    gb_u32(&b, 0);
    refused(&b, "NUL", "NUL in a key");
    gb_begin(&b, 3, 0, 1);
    gb_kv_array(&b, "strings", 8, 3, "\1\0\0\0\0\0\0\0x\2\0\0\0\0\0\0\0yy\5\0\0\0\0\0\0\0z", 28);
    refused(&b, "truncated in string array", "missing tail of a string array");
    gb_free(&b);
}

static void alignment_model(gb *b, uint32_t alignment, size_t really)
{
    gb_begin(b, 3, 1, 1);
    gb_kv_u32(b, "general.alignment", alignment);
    gb_tensor(b, "t", 1, shape_c, 0, 0);
    gb_pad(b, really);
    gb_fill(b, 28, 1);
}

static void check_alignment(void)
{
    static const uint32_t bad[] = { 0, 3, 5, 13, 24, 33, 1u << 21, 1u << 31, UINT32_MAX };
    gb b = { 0 };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        alignment_model(&b, bad[i], 32);
        refused(&b, "general.alignment", "alignment");
    }
    for (uint32_t a = 1; a < 8; a *= 2) /* the data happens to lie right, or not */
        for (int right = 0; right < 2; right++) {
            gb_begin(&b, 3, 1, 1);
            gb_kv_u32(&b, "general.alignment", a);
            gb_tensor(&b, right ? "tensor7" : "te", 1, shape_c, 0, 0);
            gb_pad(&b, a);
            gb_fill(&b, 28, 1);
            if (right)
                gguf_close(accepted(&b, "small alignment"));
            else
                refused(&b, "tensor te: data at byte", "small alignment");
        }
    for (uint32_t a = 8; a <= 1u << 20; a *= 2) {
        alignment_model(&b, a, a);
        gguf *g = accepted(&b, "alignment");
        gguf_close(g);
    }
    gb_begin(&b, 3, 0, 1);
    gb_kv(&b, "general.alignment", 10, "\x20\0\0\0\0\0\0\0", 8);
    gguf_close(accepted(&b, "alignment as u64"));
    gb_begin(&b, 3, 0, 1);
    gb_kv_str(&b, "general.alignment", "32");
    refused(&b, "general.alignment: type string", "alignment as a text");
    gb_begin(&b, 3, 0, 1);
    gb_kv_str(&b, "general.alignment", "32");
    refused(&b, "general.alignment: type string", "alignment as string");
    gb_begin(&b, 3, 0, 2);
    gb_kv_u32(&b, "general.alignment", 32);
    gb_kv_u32(&b, "general.alignment", 32);
    refused(&b, "found twice", "alignment twice");
    gb_free(&b);
}

/* ---- tensors (G-04, G-05, G-09) ------------------------------------------------------------ */

/* A file with one tensor record and `bytes` of data. */
static void one_tensor(gb *b, uint32_t n_dims, const int64_t *ne, uint32_t type, uint64_t offset, size_t bytes)
{
    gb_begin(b, 3, 1, 0);
    gb_tensor(b, "the.tensor", n_dims, ne, type, offset);
    gb_pad(b, 32);
    gb_fill(b, bytes, 2);
}

static void check_shapes(void)
{
    static const int64_t shapes[][4] = {
        { 0, 1, 1, 1 },
        { 1, 0, 1, 1 },
        { -1, 1, 1, 1 },
        { 8, -8, 1, 1 },
        { INT64_MIN, 1, 1, 1 },
        { 1, 1, 1, INT64_MIN },
        { ((int64_t)1 << 42) + 1, 1, 1, 1 },
        { (int64_t)1 << 32, (int64_t)1 << 32, 1, 1 }, /* 2^64 */
        { (int64_t)1 << 31, (int64_t)1 << 31, 2, 2 }, /* 2^64 */
        { (int64_t)1 << 33, (int64_t)1 << 31, 1, 1 }, /* 2^64, wraps to 0 */
        { INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX },
        { 0x7FFFFFFFFFFFFFC0, 1, 1, 1 },
        { (int64_t)1 << 62, 1, 1, 1 },
        { (int64_t)1 << 40, 1, 1, 1 },
    };
    gb b = { 0 };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        one_tensor(&b, 4, shapes[i], 0, 0, 4096);
        refused(&b, "the.tensor", "shape");
    }
    one_tensor(&b, 0, NULL, 0, 0, 4096); /* a single value */
    gguf_close(accepted(&b, "no dimensions"));
    static const uint32_t dims[] = { 5, 8, 1u << 31, UINT32_MAX };
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        const int64_t ne[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
        one_tensor(&b, dims[i], ne, 0, 0, 4096);
        refused(&b, "dimensions", "n_dims");
    }
    static const struct {
        uint32_t type;
        int64_t bad;
    } blocks[] = { { 2, 33 }, { 8, 31 }, { 12, 128 }, { 14, 255 }, { 39, 16 }, { 40, 32 }, { 13, 257 } };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        const int64_t ne[2] = { blocks[i].bad, 4 };
        one_tensor(&b, 2, ne, blocks[i].type, 0, 65536);
        refused(&b, "multiple of", "ne[0] and the block");
    }
    static const uint32_t types[] = { 4, 5, 31, 36, 42, 45, 46, 255, 1u << 31, UINT32_MAX };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        one_tensor(&b, 2, shape_a, types[i], 0, 65536);
        refused(&b, "the.tensor: type number", "type number");
    }
    gb_free(&b);
}

static void check_offsets(void)
{
    static const uint64_t bad[] = { 1,         16, 31, 32, 4096, (uint64_t)1 << 40, (uint64_t)1 << 63, UINT64_MAX - 31,
                                    UINT64_MAX };
    gb b = { 0 };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) { /* 1024 bytes of data: only offset 0 fits */
        one_tensor(&b, 2, shape_a, 0, bad[i], 1024);
        refused(&b, "the.tensor", "offset");
    }
    one_tensor(&b, 2, shape_a, 0, 0, 1023);
    refused(&b, "truncated", "one byte short");
    one_tensor(&b, 2, shape_a, 0, 0, 1024);
    gguf *g = accepted(&b, "exact");
    gguf_close(g);
    one_tensor(&b, 2, shape_a, 0, 64, 1024 + 64 + 100); /* a gap before and bytes after: allowed */
    g = accepted(&b, "gap");
    gguf_close(g);
    gb_free(&b);
}

static void two_tensors(gb *b, const char *name, uint64_t offset, uint32_t type)
{
    const int64_t big[1] = { 0x1FFFFFFFFFFFFFF0 };

    gb_begin(b, 3, 2, 0);
    gb_tensor(b, "first", type == 99 ? 1 : 2, type == 99 ? big : shape_a, 0, 0);
    gb_tensor(b, name, type == 99 ? 1 : 2, type == 99 ? big : shape_a, type == 99 ? 0 : type, offset);
    gb_pad(b, 32);
    gb_fill(b, 4096, 3);
}

/* A13: by one byte to 31: what lies between the alignment's steps. */
static void check_small_overlaps(void)
{
    enum { I8 = 24 };
    const int64_t second[1] = { 64 };
    gb b = { 0 };

    for (int64_t over = 0; over < 32; over++) {
        const int64_t first[1] = { 32 + over };
        gb_begin(&b, 3, 2, 0);
        gb_tensor(&b, "first", 1, first, I8, 0);
        gb_tensor(&b, "second", 1, second, I8, 32);
        gb_pad(&b, 32);
        gb_fill(&b, 96, 3);
        if (over > 0)
            refused(&b, "overlaps", "A13 small overlap");
        else
            gguf_close(accepted(&b, "side by side"));
    }
    gb_free(&b);
}

static void check_pairs(void)
{
    static const uint64_t over[] = { 0, 32, 512, 992 };
    char name[80];
    gb b = { 0 };

    for (size_t i = 0; i < sizeof over / sizeof over[0]; i++) {
        two_tensors(&b, "second", over[i], 0);
        refused(&b, "overlaps", "overlap");
    }
    two_tensors(&b, "second", 1024, 0);
    gguf *g = accepted(&b, "side by side");
    gguf_close(g);
    two_tensors(&b, "first", 1024, 0);
    refused(&b, "first: found twice", "duplicate tensor name");
    two_tensors(&b, "second", 1024, 99); /* sizes of 0x7FFFFFFFFFFFFFC0 whose sum wraps */
    refused(&b, "first", "sum of sizes wraps");
    memset(name, 'n', sizeof name);
    name[64] = 0;
    two_tensors(&b, name, 1024, 0);
    refused(&b, "length 64", "long tensor name");
    name[63] = 0;
    two_tensors(&b, name, 1024, 0);
    g = accepted(&b, "63 bytes of name");
    gguf_close(g);
    two_tensors(&b, "", 1024, 0);
    refused(&b, "length 0", "empty tensor name");
    gb_free(&b);
}

/* Tensors in another order than their data, and many of them: lookup finds each. */
static void check_many(void)
{
    enum { N = 5000 };
    const int64_t ne[] = { 8 };
    char name[32];
    gb b = { 0 };

    gb_begin(&b, 3, N, 0);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "t%d", i * 7919 % N);
        gb_tensor(&b, name, 1, ne, 0, (uint64_t)((N - 1 - i) * 32));
    }
    gb_pad(&b, 32);
    gb_fill(&b, N * 32, 4);
    gguf *g = accepted(&b, "many tensors");
    for (int i = 0; i < N && g; i++) {
        snprintf(name, sizeof name, "t%d", i * 7919 % N);
        const gguf_tensor *t = gguf_tensor_find(g, name);
        CHECK(t && t == gguf_tensor_at(g, i), "%s", name);
    }
    gguf_close(g);
    gb_free(&b);
}

/* ---- truncation and mutation (G-05, G-15) ------------------------------------------------------------ */

static void check_prefixes(void)
{
    gb b = { 0 };
    gguf *g;
    int bad = 0;

    gb_good_model(&b, 3, 62 * 1024);
    g = accepted(&b, "the whole model");
    gguf_close(g);
    for (size_t n = 0; n < b.n; n++) {
        if (open_bytes(b.data, n, &g) != KVANT_EFORMAT || g || !diag.text[0])
            bad++;
        gguf_close(g);
    }
    CHECK(bad == 0, "%d of %zu prefixes were not refused", bad, b.n);
    gb_free(&b);
}

static void check_mutations(void)
{
    gb b = { 0 };
    rng r = { 20261121 };
    int opened = 0;
    uint64_t sum = 0;

    gb_good_model(&b, 3, 0);
    const size_t head = b.n - GB_GOOD_DATA;
    for (int n = 0; n < 12000; n++) {
        uint8_t saved[8];
        size_t at[8];
        const int flips = 1 + (int)rng_below(&r, 8);
        gguf *g;
        for (int i = 0; i < flips; i++) {
            at[i] = rng_below(&r, (uint32_t)(n % 4 ? head : b.n));
            saved[i] = b.data[at[i]];
            b.data[at[i]] = (uint8_t)(rng_below(&r, 3) ? saved[i] ^ 1u << rng_below(&r, 8) : rng_u64(&r));
        }
        const int rc = open_bytes(b.data, b.n, &g);
        CHECK((rc == KVANT_OK) == (g != NULL) && (rc == KVANT_OK || rc == KVANT_EFORMAT), "mutation %d: %d", n, rc);
        if (g) {
            opened++;
            sum += gb_walk(g);
        }
        gguf_close(g);
        for (int i = flips; i-- > 0;)
            b.data[at[i]] = saved[i];
    }
    printf("  12000 mutations, %d opened (checksum %llx)\n", opened, (unsigned long long)sum);
    gb_free(&b);
}

int main(void)
{
    wall_make();
    check_good();
    check_values();
    check_type_matrix();
    check_other_types();
    check_ranges();
    check_header();
    check_hostile_counts();
    check_keys();
    check_alignment();
    check_shapes();
    check_offsets();
    check_pairs();
    check_small_overlaps();
    check_many();
    check_prefixes();
    check_mutations();
    return check_end("check_gguf");
}
