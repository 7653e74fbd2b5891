/* gguf_alias.c: other names that writers of GGUF files have for the keys of the architecture: old ones, Ollama's.  A
 * reader of a key finds its value under either; the name that readers use comes first. */
#include "model/gguf/gguf_internal.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *other; /* behind "<arch>" */
} names[] = {
    { ".rope.scaling.factor", ".rope.scale_linear" },   /* 2023: long-context Llama 2 */
    { ".rope.freq_base_swa", ".rope.local.freq_base" }, /* Ollama's converters, from here on */
    { ".rope.freq_base", ".rope.global.freq_base" },       { ".expert_weights_norm", ".norm_top_k_prob" },
    { ".rope.dimension_sections", ".rope.mrope_section" }, { ".rope.dimension_sections", ".mrope_sections" },
};
enum { N_NAMES = sizeof names / sizeof names[0] };

int gguf_alias(const char *key, int i, char *buf, size_t cap)
{
    const char *dot = strchr(key, '.');

    for (int j = 0; dot && j < N_NAMES; j++) {
        if (strcmp(dot, names[j].name) != 0 || i-- > 0)
            continue;
        const int n = snprintf(buf, cap, "%.*s%s", (int)(dot - key), key, names[j].other);
        return n > 0 && (size_t)n < cap;
    }
    return 0;
}
