/* convert_fp8.c: see convert_fp8.h. */
#include "make/convert/convert_fp8.h"

#include <stdio.h>
#include <string.h>
#include "kvant/format.h"

enum { MOST_BLOCK = 1 << 20 };

static int read_block(convert_plan *plan, gjson size, kvant_diag *diag)
{
    uint32_t block[3] = { 0 };
    gjson it = { 0 };
    int n = 0;

    for (; n < 3 && gjson_next(size, &it); n++)
        KVANT_TRY(hf_to_u32(it, "weight_block_size", &block[n], diag));
    if (n != 2 || block[0] < 1 || block[1] < 1 || block[0] > MOST_BLOCK || block[1] > MOST_BLOCK)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: weight_block_size %.*s, two numbers of 1 to %d wanted",
                          hf_shown(size), size.p, MOST_BLOCK);
    plan->fp8.rows = block[0];
    plan->fp8.cols = block[1];
    return KVANT_OK;
}

int convert_fp8_open(convert_plan *plan, kvant_diag *diag)
{
    const gjson q = hf_find(plan->config, "quantization_config"), size = gjson_get(q, "weight_block_size");
    char method[16] = "";

    const kvant_format *f8 = kvant_format_find("f8_e4m3");

    gjson_text(gjson_get(q, "quant_method"), method, sizeof method);
    plan->fp8.on = strcmp(method, "fp8") == 0;
    if (!plan->fp8.on)
        return KVANT_OK;
    for (int i = 0; i < 256; i++) {
        const uint8_t code = (uint8_t)i;
        plan->fp8.values[i] = 0.0f;
        f8->ref.decode_acc(NULL, &code, 1, 1, &plan->fp8.values[i], 1);
    }
    return size.p && *size.p != 'n' ? read_block(plan, size, diag) : KVANT_OK;
}

static int is_fp8(const st_tensor *t)
{
    return strcmp(t->dtype, "F8_E4M3") == 0;
}

/* 1 and the name without `end`. */
static int without(const char *name, const char *end, char *out, size_t size)
{
    const size_t n = strlen(name), k = strlen(end);
    if (n <= k || strcmp(name + n - k, end) != 0)
        return 0;
    snprintf(out, size, "%.*s", (int)(n - k), name);
    return 1;
}

int convert_fp8_is_scale(const char *name)
{
    char of[ST_NAME];
    return without(name, "_scale_inv", of, sizeof of) || without(name, ".weight_scale", of, sizeof of) ||
           without(name, "_proj_scale", of, sizeof of);
}

int convert_fp8_skips(const convert_plan *plan, const st_tensor *t, int *skip, kvant_diag *diag)
{
    char name[ST_NAME];

    *skip = 0;
    if (!plan->fp8.on)
        return KVANT_OK;
    *skip = without(t->name, "activation_scale", name, sizeof name) ||
            without(t->name, "input_scale", name, sizeof name);
    if (*skip || !convert_fp8_is_scale(t->name))
        return KVANT_OK;
    if (!without(t->name, "_scale_inv", name, sizeof name))
        without(t->name, "_scale", name, sizeof name);
    const st_tensor *of = st_find(plan->files, name);
    *skip = 1;
    if (of && is_fp8(of))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EFORMAT, "%s: scales of %s, which is %s, F8_E4M3 wanted", t->name, name,
                      of ? of->dtype : "not there");
}

static const st_tensor *scales_of(const convert_plan *plan, const st_tensor *t)
{
    char name[ST_NAME + 16];

    snprintf(name, sizeof name, "%s_scale_inv", t->name);
    const st_tensor *scales = st_find(plan->files, name);
    snprintf(name, sizeof name, "%s_scale", t->name);
    return scales ? scales : st_find(plan->files, name);
}

/* Matrices of a tensor, their rows and columns, and how their scales lie. */
typedef struct blocks {
    int64_t matrices, rows, cols; /* of src */
    int64_t down, across;         /* scales of a matrix */
    int64_t tall, wide;           /* values of a block */
    int one;                      /* a scale for all matrices */
} blocks;

static blocks blocks_of(const convert_plan *plan, const st_tensor *t, const st_tensor *s)
{
    const int stacked = t->n_dims == 3;
    blocks b = { .matrices = stacked ? t->dim[0] : 1, .rows = t->dim[stacked], .cols = t->dim[stacked + 1] };

    b.tall = plan->fp8.rows ? plan->fp8.rows : b.rows;
    b.wide = plan->fp8.cols ? plan->fp8.cols : b.cols;
    b.down = b.rows ? (b.rows + b.tall - 1) / b.tall : 0;
    b.across = b.cols ? (b.cols + b.wide - 1) / b.wide : 0;
    b.one = !plan->fp8.rows && s->dim[0] == 1;
    return b;
}

static int scales_fit(const blocks *b, const st_tensor *t, const st_tensor *s)
{
    if (t->n_dims == 2)
        return s->n_dims <= 2 && s->dim[0] == b->down && s->dim[1] == b->across;
    return s->n_dims <= 3 && s->dim[0] == (b->one ? 1 : b->matrices) && s->dim[1] == b->down && s->dim[2] == b->across;
}

int convert_fp8_piece(const convert_plan *plan, convert_piece *piece, kvant_diag *diag)
{
    const st_tensor *t = piece->src, *s;

    if (!plan->fp8.on || !is_fp8(t))
        return KVANT_OK;
    s = scales_of(plan, t);
    if (!s)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: FP8 without scales, %s_scale_inv wanted", t->name, t->name);
    if (!s->type || t->n_dims < 2 || t->n_dims > 3)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "%s: %d dimensions, its scales are %s; 2 or 3 and F32, F16 or BF16 wanted", t->name,
                          t->n_dims, s->dtype);
    const blocks b = blocks_of(plan, t, s);
    if (!scales_fit(&b, t, s))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %lld x %lld x %lld scales, %lld x %lld%s wanted", s->name,
                          (long long)s->dim[0], (long long)s->dim[1], (long long)s->dim[2], (long long)b.down,
                          (long long)b.across, t->n_dims == 3 ? " for each expert" : "");
    piece->fp8 = s;
    return KVANT_OK;
}

void convert_fp8_read(const convert_plan *plan, const convert_piece *piece, int64_t from, int64_t step, int64_t n,
                      float *out)
{
    const st_tensor *t = piece->src, *s = piece->fp8;
    const blocks b = blocks_of(plan, t, s);

    for (int64_t i = 0, run; i < n; i += run) { /* values that share a scale */
        const int64_t at = from + i * step, row = at / b.cols, col = at % b.cols;
        const int64_t matrix = b.one ? 0 : row / b.rows;
        const int64_t of = (matrix * b.down + row % b.rows / b.tall) * b.across + col / b.wide;
        const int64_t left = b.wide - col % b.wide < b.cols - col ? b.wide - col % b.wide : b.cols - col;
        float scale;
        run = step != 1 ? 1 : left < n - i ? left : n - i;
        s->type->dequant(s->data + (size_t)of * (size_t)s->type->bytes, &scale, 1);
        for (int64_t k = 0; k < run; k++)
            out[i + k] = plan->fp8.values[t->data[at + k]] * scale;
    }
}
