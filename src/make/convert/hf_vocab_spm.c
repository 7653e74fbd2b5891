/* hf_vocab_spm.c: the pieces of a SentencePiece model (tokenizer.model, protobuf).  Owns the walk over its fields.
 *
 * ModelProto: repeated SentencePiece pieces = 1 { string piece = 1; float score = 2; enum type = 3 };
 * TrainerSpec trainer_spec = 2 { enum model_type = 3 (absent: unigram); bool treat_whitespace_as_suffix = 24 };
 * NormalizerSpec normalizer_spec = 3 { bytes precompiled_charsmap = 2; bool add_dummy_prefix = 3,
 * remove_extra_whitespaces = 4, escape_whitespaces = 5 (absent: true) }; the rest is stepped over. */
#include <string.h>
#include "make/convert/hf_vocab.h"

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

enum { MODEL_UNIGRAM = 1, MODEL_BPE };

static int read_trainer(hf_vocab *v, wire w, kvant_diag *diag)
{
    uint64_t model = MODEL_UNIGRAM, suffix = 0;
    field f;

    while (w.p < w.end) {
        if (!take_field(&w, &f))
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.model: trainer_spec is cut short");
        if (f.number == 3 && f.kind == 0)
            model = f.value;
        if (f.number == 24 && f.kind == 0)
            suffix = f.value;
    }
    if ((model != MODEL_UNIGRAM && model != MODEL_BPE) || suffix)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "tokenizer.model: model_type %llu%s, 1 (unigram) or 2 (BPE) wanted%s",
                          (unsigned long long)model, suffix ? ", treat_whitespace_as_suffix" : "",
                          suffix ? ", spaces before words" : "");
    v->unigram.on = model == MODEL_UNIGRAM;
    return KVANT_OK;
}

static int read_normalizer(hf_vocab *v, wire w, kvant_diag *diag)
{
    int escapes = 1;
    field f;

    while (w.p < w.end) {
        if (!take_field(&w, &f))
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.model: normalizer_spec is cut short");
        if (f.number == 2 && f.kind == 2) {
            v->unigram.n_map = (size_t)(f.bytes.end - f.bytes.p);
            v->unigram.map = memcpy(v->names + v->n_names, f.bytes.p, v->unigram.n_map);
            v->n_names += v->unigram.n_map;
        }
        if (f.number == 3 && f.kind == 0)
            v->unigram.space_prefix = f.value != 0;
        if (f.number == 4 && f.kind == 0)
            v->unigram.squeeze = f.value != 0;
        if (f.number == 5 && f.kind == 0)
            escapes = f.value != 0;
    }
    if (!escapes && v->unigram.on)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "tokenizer.model: escape_whitespaces is false, true wanted");
    return KVANT_OK;
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
            t.type = (int)f.value; /* as GGUF counts them */
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

    v->unigram.space_prefix = v->unigram.squeeze = 1;
    while (w.p < w.end) {
        if (!take_field(&w, &f))
            return kvant_fail(diag, KVANT_EFORMAT,
                              "tokenizer.model: not a SentencePiece model, or cut short (byte %zu)", (size_t)(w.p - p));
        if (f.number == 2 && f.kind == 2)
            KVANT_TRY(read_trainer(v, f.bytes, diag));
        if (f.number == 3 && f.kind == 2)
            KVANT_TRY(read_normalizer(v, f.bytes, diag));
        if (f.number == 1 && f.kind == 2 && i < v->n) /* the embedding has no row for others */
            KVANT_TRY(read_piece(v, f.bytes, i++, diag));
    }
    for (uint32_t k = 0; k < i && !v->unigram.on; k++) /* as the field's converter has it */
        if (v->tokens[k].type == TOKEN_USER)
            v->tokens[k].type = TOKEN_NORMAL;
    return i ? KVANT_OK : kvant_fail(diag, KVANT_EFORMAT, "tokenizer.model: no pieces");
}
