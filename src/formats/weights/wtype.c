/* wtype.c: registry of weight types and the table of all ggml type numbers.  Owns no arithmetic. */
#include "formats/weights/wtype_internal.h"

#include <ctype.h>

static const kvant_wtype wtypes[] = {
#define CARD_WREFERENCE(sym, name, id, block, bytes, file_type, quant)                                                 \
    { name, id, block, bytes, file_type, wtype_##sym##_dequant, quant },
#include "cards/lists.inc"
#undef CARD_WREFERENCE
};
enum { N_WTYPES = sizeof wtypes / sizeof wtypes[0] };

/* Every type a GGUF file may carry, so that the reader can size tensors it cannot multiply.  Numbers not listed were
 * withdrawn (4, 5, 31-33, 36-38) or belong to forks (42 and up). */
static const struct {
    const char *name;
    int id, block, bytes;
} ggml_types[] = {
    { "F32", 0, 1, 4 },         { "F16", 1, 1, 2 },         { "Q4_0", 2, 32, 18 },      { "Q4_1", 3, 32, 20 },
    { "Q5_0", 6, 32, 22 },      { "Q5_1", 7, 32, 24 },      { "Q8_0", 8, 32, 34 },      { "Q8_1", 9, 32, 36 },
    { "Q2_K", 10, 256, 84 },    { "Q3_K", 11, 256, 110 },   { "Q4_K", 12, 256, 144 },   { "Q5_K", 13, 256, 176 },
    { "Q6_K", 14, 256, 210 },   { "Q8_K", 15, 256, 292 },   { "IQ2_XXS", 16, 256, 66 }, { "IQ2_XS", 17, 256, 74 },
    { "IQ3_XXS", 18, 256, 98 }, { "IQ1_S", 19, 256, 50 },   { "IQ4_NL", 20, 32, 18 },   { "IQ3_S", 21, 256, 110 },
    { "IQ2_S", 22, 256, 82 },   { "IQ4_XS", 23, 256, 136 }, { "I8", 24, 1, 1 },         { "I16", 25, 1, 2 },
    { "I32", 26, 1, 4 },        { "I64", 27, 1, 8 },        { "F64", 28, 1, 8 },        { "IQ1_M", 29, 256, 56 },
    { "BF16", 30, 1, 2 },       { "TQ1_0", 34, 256, 54 },   { "TQ2_0", 35, 256, 66 },   { "MXFP4", 39, 32, 17 },
    { "NVFP4", 40, 64, 36 },    { "Q1_0", 41, 128, 18 },
};
enum { N_GGML_TYPES = sizeof ggml_types / sizeof ggml_types[0] };

int kvant_wtype_count(void)
{
    return N_WTYPES;
}

const kvant_wtype *kvant_wtype_at(int i)
{
    return i >= 0 && i < N_WTYPES ? &wtypes[i] : NULL;
}

const kvant_wtype *kvant_wtype_by_id(int ggml_id)
{
    for (int i = 0; i < N_WTYPES; i++)
        if (wtypes[i].ggml_id == ggml_id)
            return &wtypes[i];
    return NULL;
}

static int same_name(const char *a, const char *b)
{
    while (*a && tolower((unsigned char)*a) == tolower((unsigned char)*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

const kvant_wtype *kvant_wtype_find(const char *name)
{
    for (int i = 0; name && i < N_WTYPES; i++)
        if (same_name(wtypes[i].name, name))
            return &wtypes[i];
    return NULL;
}

/* Found by the quant that it stands beside: a name would have to be spelled twice. */
static const struct {
    void (*quant)(const float *src, uint8_t *dst, int64_t n);
    void (*weighted)(const float *src, const float *importance, uint8_t *dst, int64_t n);
} weighted[] = {
#define KVANT_WEIGHTED(sym) { wtype_##sym##_quant, wtype_##sym##_weighted },
#include "formats/weights/wtypes_weighted.def"
#undef KVANT_WEIGHTED
};

int kvant_wtype_quant_weighted(const kvant_wtype *t, const float *src, const float *importance, uint8_t *dst,
                               int64_t n)
{
    for (size_t i = 0; t->quant && i < sizeof weighted / sizeof weighted[0]; i++)
        if (weighted[i].quant == t->quant) {
            weighted[i].weighted(src, importance, dst, n);
            return 1;
        }
    return 0;
}

const char *kvant_wtype_names(void)
{
#define CARD_WTYPE(sym, name, id, block, bytes, file_type) " " name
    static const char names[] =
#include "cards/lists.inc"
        ;
#undef CARD_WTYPE
    return names + 1;
}

int kvant_ggml_type_info(int ggml_id, const char **name, int *block, int *bytes)
{
    for (int i = 0; i < N_GGML_TYPES; i++) {
        if (ggml_types[i].id != ggml_id)
            continue;
        if (name)
            *name = ggml_types[i].name;
        if (block)
            *block = ggml_types[i].block;
        if (bytes)
            *bytes = ggml_types[i].bytes;
        return 1;
    }
    return 0;
}
