/* fuzz_safetensors.c: libFuzzer target of what convert reads: a safetensors file (first byte even) or a SentencePiece
 * model (odd).  Promises: the tensors of an accepted file lie inside it, apart, and under names that find them; the
 * pieces of an accepted model lie in their room. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "make/convert/hf_vocab.h"
#include "make/convert/safetensors.h"
#include "support/promise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_tensors(const uint8_t *data, size_t size)
{
    st_files *s = NULL;
    kvant_diag diag;
    size_t total = 0;

    if (st_open_mem(data, size, &s, &diag) != KVANT_OK)
        return;
    for (int i = 0; i < st_count(s); i++) {
        const st_tensor *t = st_at(s, i);
        PROMISE(st_find(s, t->name) == t);
        PROMISE(t->data >= data && t->bytes <= size && t->data + t->bytes <= data + size);
        PROMISE(t->n_dims >= 0 && t->n_dims <= ST_DIMS);
        total += t->bytes;
    }
    PROMISE(total < size);
    st_close(s);
}

static void read_pieces(const uint8_t *data, size_t size)
{
    hf_vocab v = { .n = 64 };
    kvant_diag diag;

    v.tokens = kvant_calloc(v.n, sizeof *v.tokens);
    v.names = kvant_alloc(size + 1);
    if (v.tokens && v.names && hf_vocab_read_spm(&v, data, size, &diag) == KVANT_OK)
        for (uint32_t i = 0; i < v.n; i++)
            PROMISE(!v.tokens[i].s ||
                    (v.tokens[i].s >= v.names && v.tokens[i].s + v.tokens[i].n <= v.names + size && v.tokens[i].n > 0));
    hf_vocab_close(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] & 1)
        read_pieces(data + 1, size - 1);
    else if (size > 0)
        read_tensors(data + 1, size - 1);
    return 0;
}
