/* hf_vocab_spm.c: the pieces of a SentencePiece model (tokenizer.model, protobuf).  Owns the walk over its fields.
 *
 * ModelProto: repeated SentencePiece pieces = 1 { string piece = 1; float score = 2; enum type = 3 }; the rest (how it
 * was trained) is stepped over. */
#include <string.h>
#include "model/convert/hf_vocab.h"

typedef struct wire {
    const uint8_t *p, *end;
} wire;

/* One field: its number, and its bytes (length-delimited and fixed ones) or value (varints). */
typedef struct field {
    uint64_t number, value;
    int kind;
    wire bytes;
} field;

static int take_varint(wire *w, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 64 && w->p < w->end; shift += 7) {
        const uint8_t b = *w->p++;
        *v |= (uint64_t)(b & 0x7F) << shift;
        if (!(b & 0x80))
            return 1;
    }
    return 0;
}

static int take_field(wire *w, field *f)
{
    static const int fixed[] = { [1] = 8, [5] = 4 };
    uint64_t key, n;

    if (!take_varint(w, &key))
        return 0;
    f->number = key >> 3;
    f->kind = (int)(key & 7);
    if (f->kind == 0)
        return take_varint(w, &f->value);
    if (f->kind == 2 ? !take_varint(w, &n) : f->kind != 1 && f->kind != 5)
        return 0;
    if (f->kind != 2)
        n = (uint64_t)fixed[f->kind];
    if (n > (uint64_t)(w->end - w->p))
        return 0;
    f->bytes = (wire){ w->p, w->p + n };
    w->p += n;
    return 1;
}

/* The types count from 1 in the same order as GGUF's but for user-defined (4), unused (5) and byte (6); user-defined
 * pieces become normal ones, as the field's converter has it. */
static int token_type(uint64_t type)
{
    return type == TOKEN_USER ? TOKEN_NORMAL : (int)type;
}

static int read_piece(hf_vocab *v, wire w, uint32_t i, kvant_diag *diag)
{
    hf_vocab_token t = { .type = TOKEN_NORMAL };
    field f;

    while (w.p < w.end) {
        if (!take_field(&w, &f))
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.model: piece %u is cut short", i);
        if (f.number == 1 && f.kind == 2) {
            t.n = (size_t)(f.bytes.end - f.bytes.p);
            t.s = memcpy(v->names + v->n_names, f.bytes.p, t.n);
        } else if (f.number == 2 && f.kind == 5) {
            memcpy(&t.score, f.bytes.p, sizeof t.score);
        } else if (f.number == 3 && f.kind == 0) {
            if (f.value < 1 || f.value > 6)
                return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.model: piece %u has type %llu, 1 to 6 wanted", i,
                                  (unsigned long long)f.value);
            t.type = token_type(f.value);
        }
    }
    if (t.n == 0 || !(t.score - t.score == 0.0f))
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.model: piece %u has %s", i,
                          t.n ? "a score that is no number" : "no text");
    v->n_names += t.n;
    v->tokens[i] = t;
    return KVANT_OK;
}

int hf_vocab_read_spm(hf_vocab *v, const uint8_t *p, size_t n, kvant_diag *diag)
{
    wire w = { p, p + n };
    field f;
    uint32_t i = 0;

    while (w.p < w.end) {
        if (!take_field(&w, &f))
            return kvant_fail(diag, KVANT_EFORMAT,
                              "tokenizer.model: not a SentencePiece model, or cut short (byte %zu)", (size_t)(w.p - p));
        if (f.number != 1 || f.kind != 2)
            continue;
        if (i == v->n)
            return KVANT_OK; /* ids that the embedding has no row for */
        KVANT_TRY(read_piece(v, f.bytes, i++, diag));
    }
    return i ? KVANT_OK : kvant_fail(diag, KVANT_EFORMAT, "tokenizer.model: no pieces");
}
