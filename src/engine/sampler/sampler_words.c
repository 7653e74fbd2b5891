/* sampler_words.c: see sampler_words.h. */
#include "engine/sampler/sampler_words.h"

#include <string.h>

/* ---- which of them run ---- */

enum { PENALTIES, DRY, TOP_N_SIGMA, TOP_K, TYPICAL, TOP_P, MIN_P, XTC, TEMPERATURE, SAMPLERS };

static const char *const known[SAMPLERS][2] = {
    { "penalties", "penalties" }, { "dry", "dry" },         { "top_n_sigma", "top_n_sigma" },
    { "top_k", "top-k" },         { "typ_p", "typical_p" }, { "top_p", "top-p" },
    { "min_p", "min-p" },         { "xtc", "xtc" },         { "temperature", "temp" }
};

static void switch_off(kvant_sampler_params *p, int which)
{
    switch (which) {
    case PENALTIES:
        p->repeat_penalty = 1;
        p->presence_penalty = p->frequency_penalty = 0;
        break;
    case DRY: p->dry_multiplier = 0; break;
    case TOP_N_SIGMA: p->top_n_sigma = 0; break;
    case TOP_K: p->top_k = 0; break;
    case TYPICAL: p->typical_p = 1; break;
    case TOP_P: p->top_p = 1; break;
    case MIN_P: p->min_p = 0; break;
    case XTC: p->xtc_probability = 0; break;
    default: p->temp = 1; p->dynatemp_range = 0;
    }
}

/* SAMPLERS: none. */
static int find(const char *name)
{
    static const char letters[] = "edskypmxt";
    int which = 0;

    if (name[0] && !name[1])
        return strchr(letters, name[0]) ? (int)(strchr(letters, name[0]) - letters) : SAMPLERS;
    while (which < SAMPLERS && strcmp(name, known[which][0]) != 0 && strcmp(name, known[which][1]) != 0)
        which++;
    return which;
}

int sampler_only(kvant_sampler_params *p, const char *const *names, int n)
{
    int listed[SAMPLERS] = { 0 }, last = -1;

    for (int i = 0; i < n; i++) {
        const int which = names[i] ? find(names[i]) : SAMPLERS;
        if (which == SAMPLERS || which <= last)
            return i;
        listed[last = which] = 1;
    }
    for (int k = 0; k < SAMPLERS; k++)
        if (!listed[k])
            switch_off(p, k);
    return -1;
}

/* ---- DRY's breakers ---- */

enum { TOKEN_TEXT = 4096 };

const char *const sampler_usual_breakers[4] = { "\n", ":", "\"", "*" };

int sampler_is_breaker(const char *text)
{
    size_t n = text[0] != 0;

    while (n && ((unsigned char)text[n] & 0xC0) == 0x80)
        n++;
    return n && !text[n];
}

int sampler_find_breakers(const kvant_model *m, const char *const *texts, int n, int32_t *ids)
{
    const int width = kvant_model_get_info(m)->n_vocab;
    char text[TOKEN_TEXT];
    int found = 0;

    for (int32_t t = 0; t < width; t++) {
        const int len = kvant_token_bytes(m, t, 1, text, sizeof text);
        int hit = 0;
        for (int i = 0; i < n && len > 0 && len <= TOKEN_TEXT && !hit; i++)
            hit = memmem(text, (size_t)len, texts[i], strlen(texts[i])) != NULL;
        if (hit)
            ids[found++] = t;
    }
    return found;
}
