/* check_quantize.c: GGUF to GGUF.  A small model with every kind of tensor goes to every type and is read back: what
 * had to change changed to the right values, what had to stay stayed byte for byte, keys survived, nothing is left
 * behind. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "make/quantize.h"
#include "model/gguf/gguf.h"
#include "support/check.h"
#include "support/gguf_build.h"
#include "support/gguf_change.h"

static char temp_dir[256];
static kvant_diag diag;

static const char *temp_path(const char *name)
{
    static char path[4][512];
    static int next;
    char *p = path[next++ % 4];

    snprintf(p, sizeof path[0], "%s/%s", temp_dir, name);
    return p;
}

/* ---- the source model
 * --------------------------------------------------------------------------------------------- */

typedef struct source {
    const char *name;
    uint32_t n_dims, type; /* F32 0, BF16 30 */
    int64_t ne[3];
    const char *expect; /* NULL: kept */
    int action;
} source;

/* expect "T": the wanted type; otherwise what it falls back to when the wanted type does not fit. */
static const source sources[] = {
    { "token_embd.weight", 2, 30, { 256, 8, 1 }, "T", 0 },
    { "output_norm.weight", 1, 0, { 256, 1, 1 }, NULL, 0 },
    { "blk.0.attn_q.weight", 2, 30, { 256, 16, 1 }, "T", 0 },
    { "blk.0.attn_v.weight", 2, 0, { 256, 8, 1 }, "T", 0 },
    { "blk.0.attn_q_norm.weight", 1, 0, { 64, 1, 1 }, NULL, 0 },
    { "blk.0.ffn_gate_inp.weight", 2, 0, { 256, 4, 1 }, NULL, 0 },
    { "blk.0.ffn_up_exps.weight", 3, 30, { 256, 8, 4 }, "T", 0 },
    { "blk.0.ffn_down.weight", 2, 30, { 96, 16, 1 }, "Q8_0", 0 },
    { "blk.0.odd.weight", 2, 0, { 40, 4, 1 }, "F16", 0 },
    { "blk.0.ssm_conv1d.weight", 2, 0, { 4, 256, 1 }, NULL, 0 },
    { "blk.0.ssm_alpha.weight", 2, 30, { 256, 4, 1 }, NULL, 0 },
    { "blk.0.ssm_a", 1, 0, { 4, 1, 1 }, NULL, 0 },
    { "blk.0.table", 2, 0, { 256, 2, 1 }, NULL, 0 },
    { "output.weight", 2, 30, { 256, 8, 1 }, "T", 0 },
};
enum { N_SOURCES = sizeof sources / sizeof sources[0], N_KV = 5 };

static size_t source_values(const source *s)
{
    return (size_t)(s->ne[0] * s->ne[1] * s->ne[2]);
}

/* Values of the size of real weights; the first expert ten times the others, so that one scale for all would show. */
static void put_values(gb *b, const source *s, uint64_t seed, float first)
{
    rng r = { seed };

    for (size_t i = 0; i < source_values(s); i++) {
        float x = 0.02f * rng_normal(&r) * (s->n_dims == 3 && i < source_values(s) / 4 ? 10.0f : 1.0f);
        uint32_t u;
        if (i == 0 && first != 0.0f)
            x = first;
        memcpy(&u, &x, 4);
        if (s->type == 30)
            gb_bytes(b, (uint8_t *)&u + 2, 2);
        else
            gb_bytes(b, &u, 4);
    }
    gb_pad(b, 64);
}

/* spoiled: the tensor whose first value is `first`, or -1. */
static void build(gb *b, int spoiled, float first)
{
    static const char *const tokens[] = { "a", "bc", "" };
    uint64_t at = 0;

    gb_begin(b, 3, N_SOURCES, N_KV + 1);
    gb_kv_u32(b, "general.alignment", 64);
    gb_kv_str(b, "general.architecture", "qwen3");
    gb_kv_u32(b, "general.file_type", 32);
    gb_kv_strings(b, "tokenizer.ggml.tokens", tokens, 3);
    gb_kv_f32(b, "x.eps", 1e-6f);
    gb_kv_u16(b, "split.count", 1);
    for (int i = 0; i < N_SOURCES; i++) {
        gb_tensor(b, sources[i].name, sources[i].n_dims, sources[i].ne, sources[i].type, at);
        at += (source_values(&sources[i]) * (sources[i].type ? 2 : 4) + 63) / 64 * 64;
    }
    gb_pad(b, 64);
    for (int i = 0; i < N_SOURCES; i++)
        put_values(b, &sources[i], (uint64_t)i + 1, i == spoiled ? first : 0.0f);
}

/* ---- reading back
 * ------------------------------------------------------------------------------------------------- */

typedef struct seen {
    int events, kept, converted, fallback, stop_at;
} seen;

static int count_event(void *user, const quantize_event *e)
{
    seen *s = user;

    CHECK(e->i == s->events && e->n == N_SOURCES, "event %d of %d", e->i, e->n);
    CHECK(e->note && (e->action != QUANTIZE_CONVERTED) == (e->note[0] != 0), "%s: note \"%s\"", e->name, e->note);
    s->events++;
    s->kept += e->action == QUANTIZE_KEPT;
    s->converted += e->action == QUANTIZE_CONVERTED;
    s->fallback += e->action == QUANTIZE_FALLBACK;
    return s->stop_at && s->events >= s->stop_at;
}

static float *decode(const gguf *g, const gguf_tensor *t)
{
    const kvant_wtype *w = kvant_wtype_by_id(t->type);
    const int64_t n = t->ne[0] * t->ne[1] * t->ne[2];
    float *x = malloc((size_t)n * sizeof *x);
    char name[80];

    w->dequant(t->data, x, n);
    snprintf(name, sizeof name, "%.*s.scale", (int)t->name.n - 7, t->name.s);
    const gguf_tensor *s = gguf_tensor_find(g, name);
    for (int64_t i = 0; s && i < n; i++) {
        float scale;
        memcpy(&scale, s->data + 4 * (i / (n / s->ne[0])), 4);
        x[i] *= scale;
    }
    return x;
}

/* Largest NMSE of a conversion of normal values (see check_weights.c). */
static double bound(const char *type)
{
    static const struct {
        const char *name;
        double nmse;
    } bounds[] = { { "F32", 0 },       { "F16", 1e-6 },    { "BF16", 3e-6 },  { "Q8_0", 4e-5 },   { "Q4_0", 1.1e-2 },
                   { "Q4_K", 6.5e-3 }, { "Q6_K", 4.2e-4 }, { "MXFP4", 2e-2 }, { "NVFP4", 1.2e-2 },
                   { "Q4_1", 8e-3 },   { "Q5_0", 2.5e-3 }, { "Q5_1", 2e-3 },  { "Q5_K", 1.7e-3 }, { "Q2_K", 9.0e-2 },
                   { "Q3_K", 3e-2 },   { "IQ4_NL", 8e-3 }, { "IQ4_XS", 8e-3 }, { "TQ1_0", 8.3e-1 },
                   { "TQ2_0", 8.3e-1 } };

    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (strcmp(bounds[i].name, type) == 0)
            return bounds[i].nmse;
    return 0;
}

/* The field's types for rows that blocks of 256 do not divide. */
static const char *narrow(const char *wide)
{
    static const char *const pairs[][2] = { { "Q4_K", "Q5_0" },   { "Q5_K", "Q5_1" },   { "Q6_K", "Q8_0" },
                                            { "Q2_K", "IQ4_NL" }, { "Q3_K", "IQ4_NL" }, { "IQ4_XS", "IQ4_NL" },
                                            { "TQ1_0", "Q4_0" },  { "TQ2_0", "Q4_0" } };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (strcmp(pairs[i][0], wide) == 0)
            return pairs[i][1];
    return "Q8_0";
}

/* The type that source s has after going to `to`. */
static const char *expected(const source *s, const kvant_wtype *to)
{
    if (!s->expect)
        return s->type ? "BF16" : "F32";
    if (s->ne[0] % to->block)
        return s->ne[0] % 32 ? "F16" : narrow(to->name);
    return strcmp(to->name, "NVFP4") == 0 && strcmp(s->name, "token_embd.weight") == 0 ? "Q8_0" : to->name;
}

static void check_tensor(const gguf *a, const gguf *b, const source *s, const kvant_wtype *to)
{
    const gguf_tensor *ta = gguf_tensor_find(a, s->name), *tb = gguf_tensor_find(b, s->name);
    const char *want = expected(s, to), *found = "none";

    if (tb)
        kvant_ggml_type_info(tb->type, &found, NULL, NULL);
    CHECK(tb && strcmp(found, want) == 0, "%s to %s: %s, %s wanted", s->name, to->name, found, want);
    if (!tb)
        return;
    CHECK(tb->n_dims == ta->n_dims && memcmp(tb->ne, ta->ne, sizeof ta->ne) == 0, "%s: shape", s->name);
    if (ta->type == tb->type) {
        CHECK(ta->bytes == tb->bytes && memcmp(ta->data, tb->data, ta->bytes) == 0, "%s to %s: bytes differ", s->name,
              to->name);
        return;
    }
    float *xa = decode(a, ta), *xb = decode(b, tb);
    const size_t n = source_values(s), part = s->n_dims == 3 ? n / 4 : n;
    for (size_t i = 0; i < n; i += part) {
        const double e = check_nmse(xb + i, xa + i, part);
        CHECK(e <= bound(want), "%s to %s, from value %zu: NMSE %.3g, at most %.3g wanted", s->name, to->name, i, e,
              bound(want));
    }
    free(xa);
    free(xb);
}

static void check_keys(const gguf *a, const gguf *b, const kvant_wtype *to)
{
    static const char *const same[] = { "general.architecture", "general.alignment", "tokenizer.ggml.tokens", "x.eps" };
    uint32_t type = 99, version = 99;

    for (size_t i = 0; i < 4; i++) {
        const gguf_kv *ka = gguf_find(a, same[i]), *kb = gguf_find(b, same[i]);
        CHECK(kb && ka->type == kb->type && ka->count == kb->count && ka->bytes == kb->bytes &&
                  memcmp(ka->value, kb->value, ka->bytes) == 0,
              "key %s", same[i]);
    }
    CHECK(gguf_u32(b, "general.file_type", 1, &type, &diag) == 0 && type == (uint32_t)to->file_type, "file_type %u",
          type);
    CHECK(gguf_u32(b, "general.quantization_version", 1, &version, &diag) == 0 && version == 2, "version %u", version);
    CHECK(!gguf_find(b, "split.count") && gguf_kv_count(b) == 6, "%d keys", gguf_kv_count(b));
}

static void check_type(const kvant_wtype *to)
{
    const quantize_params p = { .type = to };
    quantize_result sum = { 0 };
    seen s = { 0 };
    gguf *a = NULL, *b = NULL;
    char *one = NULL, *two = NULL;
    size_t n1 = 0, n2 = 0;

    const int rc = model_quantize(temp_path("in.gguf"), temp_path("out.gguf"), &p, count_event, &s, &sum, &diag);
    CHECK(rc == KVANT_OK, "to %s: %s", to->name, diag.text);
    CHECK(gguf_open(temp_path("in.gguf"), &a, &diag) == 0 && gguf_open(temp_path("out.gguf"), &b, &diag) == 0, "%s: %s",
          to->name, diag.text);
    if (!a || !b)
        return;
    for (int i = 0; i < N_SOURCES; i++)
        check_tensor(a, b, &sources[i], to);
    check_keys(a, b, to);
    CHECK(s.events == N_SOURCES && sum.n_tensors == N_SOURCES && sum.n_fallback == s.fallback &&
              sum.n_converted == s.converted + s.fallback,
          "%s: counts", to->name);
    CHECK(sum.out_bytes == (size_t)gguf_file_bytes(b) && sum.in_bytes == (size_t)gguf_file_bytes(a), "%s: sizes",
          to->name);
    const int scales = strcmp(to->name, "NVFP4") == 0 ? 4 : 0; /* attn_q attn_v ffn_up_exps output */
    CHECK(gguf_tensor_count(b) == N_SOURCES + scales, "%s: %d tensors", to->name, gguf_tensor_count(b));
    gguf_close(a);
    gguf_close(b);
    CHECK(model_quantize(temp_path("in.gguf"), temp_path("again.gguf"), &p, NULL, NULL, NULL, &diag) == 0, "%s",
          diag.text);
    CHECK(file_read(temp_path("out.gguf"), 1 << 24, &one, &n1, &diag) == 0, "%s", diag.text);
    CHECK(file_read(temp_path("again.gguf"), 1 << 24, &two, &n2, &diag) == 0, "%s", diag.text);
    CHECK(n1 == n2 && memcmp(one, two, n1) == 0, "%s: two runs differ", to->name);
    kvant_free(one);
    kvant_free(two);
}

/* ---- refusals
 * ----------------------------------------------------------------------------------------------------- */

/* Files in the directory, to see that nothing is left behind. */
static int files(void)
{
    DIR *d = opendir(temp_dir);
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void fails(const char *in, const char *out, const quantize_params *p, int want, const char *says)
{
    const int before = files();
    const int rc = model_quantize(in, out, p, NULL, NULL, NULL, &diag);

    CHECK(rc == want && strstr(diag.text, says), "%s (%s), %s with \"%s\" wanted", kvant_error_name(rc), diag.text,
          kvant_error_name(want), says);
    CHECK(files() == before, "%d files, %d before", files(), before);
}

static void check_refusals(void)
{
    quantize_params p = { .type = kvant_wtype_find("Q8_0") };
    const quantize_params none = { 0 };
    char in[512];

    snprintf(in, sizeof in, "%s", temp_path("in.gguf"));

    fails(in, temp_path("x.gguf"), &none, KVANT_EINVAL, "a type wanted");
    fails(in, in, &p, KVANT_EINVAL, "is the input");
    CHECK(symlink(in, temp_path("link.gguf")) == 0, "symlink");
    fails(in, temp_path("link.gguf"), &p, KVANT_EINVAL, "is the input");
    fails(in, temp_dir, &p, KVANT_EINVAL, "not a regular file");
    fails(in, temp_path("no/such/dir.gguf"), &p, KVANT_EIO, "cannot create");
    for (int i = 0; i < kvant_wtype_count(); i++) {
        const quantize_params read_only = { .type = kvant_wtype_at(i) };
        char why[80];
        snprintf(why, sizeof why, "%s can be read but not written", read_only.type->name);
        if (!read_only.type->quant)
            fails(in, temp_path("x.gguf"), &read_only, KVANT_EUNSUPPORTED, why);
    }
    fails(temp_path("absent.gguf"), temp_path("x.gguf"), &p, KVANT_ENOENT, "no such file");
    CHECK(model_quantize(in, temp_path("q8.gguf"), &p, NULL, NULL, NULL, &diag) == 0, "%s", diag.text);
    p.type = kvant_wtype_find("Q4_0");
    fails(temp_path("q8.gguf"), temp_path("x.gguf"), &p, KVANT_EUNSUPPORTED,
          "is Q8_0 already, F32, F16 or BF16 wanted (or --allow-requantize)");
    p.allow_requantize = 1;
    CHECK(model_quantize(temp_path("q8.gguf"), temp_path("q4.gguf"), &p, NULL, NULL, NULL, &diag) == 0, "%s",
          diag.text);
    seen s = { .stop_at = 5 };
    const int before = files();
    CHECK(model_quantize(in, temp_path("x.gguf"), &p, count_event, &s, NULL, &diag) == KVANT_ECANCELED && s.events == 5,
          "cancel: %s", diag.text);
    CHECK(files() == before, "a cancelled run left a file");
}

static void check_spoiled(void)
{
    static const struct {
        float x;
        const char *type;
        int want;
    } cases[] = { { NAN, "Q8_0", KVANT_ENUMERIC },        { INFINITY, "Q4_K", KVANT_ENUMERIC },
                  { -INFINITY, "NVFP4", KVANT_ENUMERIC }, { NAN, "BF16", KVANT_ENUMERIC },
                  { 70000.0f, "F16", KVANT_ENUMERIC },    { 70000.0f, "Q6_K", KVANT_ENUMERIC },
                  { 70000.0f, "MXFP4", KVANT_OK },        { 70000.0f, "NVFP4", KVANT_OK } };
    gb b = { 0 };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const quantize_params p = { .type = kvant_wtype_find(cases[i].type) };
        build(&b, 3, cases[i].x);
        CHECK(gb_write(&b, temp_path("bad.gguf")) == 0, "write");
        if (cases[i].want == KVANT_OK)
            CHECK(model_quantize(temp_path("bad.gguf"), temp_path("y.gguf"), &p, NULL, NULL, NULL, &diag) == 0, "%s",
                  diag.text);
        else
            fails(temp_path("bad.gguf"), temp_path("x.gguf"), &p, cases[i].want,
                  "blk.0.attn_v.weight: value 0 of row 0");
    }
    gb_free(&b);
}

/* A full disk (here: a limit on the file size) is an error, and the old output stays. */
static void check_disk_full(void)
{
    const quantize_params p = { .type = kvant_wtype_find("F32") };
    struct rlimit old, small = { 20000, 20000 };
    struct stat st, st2;

    signal(SIGXFSZ, SIG_IGN);
    CHECK(stat(temp_path("out.gguf"), &st) == 0 && getrlimit(RLIMIT_FSIZE, &old) == 0, "before");
    small.rlim_max = old.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0, "setrlimit");
    fails(temp_path("in.gguf"), temp_path("out.gguf"), &p, KVANT_EIO, "cannot write");
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0, "setrlimit back");
    CHECK(stat(temp_path("out.gguf"), &st2) == 0 && st.st_ino == st2.st_ino && st.st_size == st2.st_size, "old output");
}

static void check_options(void)
{
    quantize_params p = { .type = kvant_wtype_find("Q4_0"), .output_type = kvant_wtype_find("Q6_K"), .keep_embd = 1 };
    gguf *g = NULL;
    const gguf_tensor *t;

    CHECK(model_quantize(temp_path("in.gguf"), temp_path("opt.gguf"), &p, NULL, NULL, NULL, &diag) == 0, "%s",
          diag.text);
    CHECK(gguf_open(temp_path("opt.gguf"), &g, &diag) == 0, "%s", diag.text);
    if (!g)
        return;
    t = gguf_tensor_find(g, "token_embd.weight");
    CHECK(t && t->type == 30, "token_embd kept");
    t = gguf_tensor_find(g, "output.weight");
    CHECK(t && t->type == 14, "output as Q6_K");
    t = gguf_tensor_find(g, "blk.0.attn_q.weight");
    CHECK(t && t->type == 2, "attn_q as Q4_0");
    gguf_close(g);
}

/* The types of a mixture in a model of 32 layers, as the field's own tool gives them. */
static void check_mix(void)
{
    static const struct {
        const char *mix, *tensor, *type;
    } wanted[] = {
        { "q4_k_m", "output.weight", "Q6_K" },          { "Q4_K_M", "token_embd.weight", "Q4_K" },
        { "Q4_K_M", "blk.3.attn_v.weight", "Q6_K" },    { "Q4_K_M", "blk.4.attn_v.weight", "Q4_K" },
        { "Q4_K_M", "blk.6.ffn_down.weight", "Q6_K" },  { "Q4_K_M", "blk.28.ffn_down_exps.weight", "Q6_K" },
        { "Q4_K_M", "blk.9.attn_qkv.weight", "Q5_K" },  { "Q4_K_M", "blk.0.attn_output.weight", "Q4_K" },
        { "Q5_K_M", "blk.5.ffn_down.weight", "Q5_K" },  { "Q5_K_M", "blk.31.attn_v.weight", "Q6_K" },
        { "Q3_K_M", "blk.1.attn_v.weight", "Q5_K" },    { "Q3_K_M", "blk.2.attn_v.weight", "Q4_K" },
        { "Q3_K_M", "blk.1.ffn_down.weight", "Q5_K" },  { "Q3_K_M", "blk.5.ffn_down.weight", "Q3_K" },
        { "Q3_K_M", "blk.7.attn_output.weight", "Q4_K" }, { "Q2_K", "blk.7.ffn_up.weight", "Q2_K" },
    };

    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const char *found = quantize_mix_type(quantize_mix_find(wanted[i].mix), wanted[i].tensor, 32)->name;
        CHECK(strcmp(found, wanted[i].type) == 0, "%s: %s is %s, %s wanted", wanted[i].mix, wanted[i].tensor, found,
              wanted[i].type);
    }
    CHECK(!quantize_mix_find("Q4_K_") && !quantize_mix_at(-1) && !quantize_mix_find("Q4_K"), "unknown names are found");
}

/* A mixture in a file: types by tensor, and the file's own number. */
static void check_mix_file(void)
{
    const quantize_params p = { .mix = quantize_mix_find("Q4_K_M") };
    gguf *g = NULL;
    uint32_t type = 99;

    CHECK(model_quantize(temp_path("in.gguf"), temp_path("mix.gguf"), &p, NULL, NULL, NULL, &diag) == 0, "%s",
          diag.text);
    CHECK(gguf_open(temp_path("mix.gguf"), &g, &diag) == 0, "%s", diag.text);
    if (!g)
        return;
    const gguf_tensor *out = gguf_tensor_find(g, "output.weight"), *q = gguf_tensor_find(g, "blk.0.attn_q.weight");
    CHECK(out && out->type == 14 && q && q->type == 12, "output as Q6_K, attn_q as Q4_K");
    CHECK(gguf_u32(g, "general.file_type", 1, &type, &diag) == 0 && type == 15, "file_type %u", type);
    gguf_close(g);
}

/* Without output.weight the embedding is the output's matrix, and gets its type; an option for either comes first. */
static void check_tied(void)
{
    static const char *const mixes[] = { "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M" };
    const kvant_wtype *q8 = kvant_wtype_find("Q8_0"), *q5 = kvant_wtype_find("Q5_K");
    const gguf_change c = { .without = "output.weight" };
    gguf *in = NULL;

    CHECK(gguf_open(temp_path("in.gguf"), &in, &diag) == 0 && gguf_change_write(in, &c, temp_path("tied.gguf")) == 0,
          "%s", diag.text);
    gguf_close(in);
    for (int i = 0; i < 12; i++) {
        quantize_params p = { .mix = quantize_mix_find(mixes[i % 4]) };
        gguf *g = NULL;
        p.output_type = i >= 4 ? q8 : NULL;
        p.embd_type = i >= 8 ? q5 : NULL;
        CHECK(model_quantize(temp_path("tied.gguf"), temp_path("t.gguf"), &p, NULL, NULL, NULL, &diag) == 0 &&
                  gguf_open(temp_path("t.gguf"), &g, &diag) == 0,
              "%s", diag.text);
        const gguf_tensor *t = g ? gguf_tensor_find(g, "token_embd.weight") : NULL;
        CHECK(t && t->type == (i < 4 ? 14 : i < 8 ? 8 : 13), "%s %d: type %d", mixes[i % 4], i, t ? t->type : -1);
        gguf_close(g);
    }
}

static void check_memory_faults(void)
{
    const quantize_params p = { .type = kvant_wtype_find("NVFP4") };
    int rc = KVANT_ENOMEM, n;

    for (n = 0; n < 100 && rc == KVANT_ENOMEM; n++) {
        const int before = files();
        mem_fail_after(n, 0);
        rc = model_quantize(temp_path("in.gguf"), temp_path("mem.gguf"), &p, NULL, NULL, NULL, &diag);
        mem_fail_after(-1, 0);
        CHECK(rc == KVANT_OK || (rc == KVANT_ENOMEM && files() == before), "allocation %d: %s", n,
              kvant_error_name(rc));
    }
    CHECK(rc == KVANT_OK && n > 8, "worked after %d failed allocations", n - 1);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    char command[400];
    gb b = { 0 };

    snprintf(temp_dir, sizeof temp_dir, "%.200s/kvant-quant-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(temp_dir))
        return 1;
    build(&b, -1, 0.0f);
    CHECK(gb_write(&b, temp_path("in.gguf")) == 0, "write");
    for (int i = 0; i < kvant_wtype_count(); i++)
        if (kvant_wtype_at(i)->quant)
            check_type(kvant_wtype_at(i));
    check_refusals();
    check_spoiled();
    check_disk_full();
    check_options();
    check_mix();
    check_mix_file();
    check_tied();
    check_memory_faults();
    gb_free(&b);
    snprintf(command, sizeof command, "rm -rf '%s'", temp_dir);
    if (system(command) != 0)
        printf("could not remove %s\n", temp_dir);
    return check_end("check_quantize");
}
