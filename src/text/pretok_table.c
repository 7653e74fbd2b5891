/* pretok_table.c: see pretok_table.h.  Owns the patterns and the names.
 *
 * The patterns are those that the models' tokenizer.json files publish (Digits and ByteLevel written as the patterns
 * that they stand for), with two changes:
 *   - \s is written out as Unicode's White_Space: PCRE2 counts U+180E as a space, the tokenizers that made the
 *     vocabularies do not;
 *   - where a pattern would search a run again from each of its places, it is written so that the run is searched once.
 * \p{L}, \p{M}, \p{N} follow the Unicode version of the linked PCRE2 (14 in 10.42): a character assigned later counts
 * as "other".  NFC: GGUF has no key for it, so it is a column here. */
#include "text/pretok_table.h"

#include <string.h>
#include "text/pretok.h"

#define WS                                                                                                             \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"                                                   \
    "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define S1           "[" WS "]"
#define BLANKS       S1 "+(?![^" WS "])|" S1 "+"
#define SPACES       S1 "*[\\r\\n]+|" BLANKS
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD         "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define OTHERS       " ?[^" WS "\\p{L}\\p{N}]+"
#define MIXED        " ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*"
#define QWEN2        CONTRACTIONS "|" WORD "|\\p{N}|" MIXED "|" SPACES
#define LLAMA3       CONTRACTIONS "|" WORD "|\\p{N}{1,3}|" MIXED "|" SPACES
#define GPT2         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" OTHERS "|" BLANKS
/* Words that end where lower case meets upper case; `end` may follow a word. */
#define UPPER                     "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER                     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(up, low)            "[^\\r\\n\\p{L}\\p{N}]?" up "*" low "+"
#define UPCASE(up, low)           "[^\\r\\n\\p{L}\\p{N}]?" up "+" low "*"
#define CASED_WORDS(up, low, end) CASED(up, low) end "|" UPCASE(up, low) end
#define PATHS                     " ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define O200K(digits)             CASED_WORDS(UPPER, LOWER, CONTRACTIONS "?") "|" digits "|" PATHS
/* The classes above without Han: what is in none of these. */
#define UPPER_NO_HAN   "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define LOWER_NO_HAN   "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define CJK_KANA       "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define CJK_OLD        "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define ASCII_PUNCT    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK_WORDS ASCII_PUNCT "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
#define LATIN_TO_CYRILLIC                                                                                              \
    "[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-"          \
    "\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-"     \
    "\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-"        \
    "\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"         \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-"        \
    "\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"           \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-"        \
    "\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}"           \
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}"          \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}"           \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-"        \
    "\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"       \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"        \
    "\\x{1e900}-\\x{1e943}]+"
#define FULL_WIDTH_PUNCT "[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
#define YOUTU_EAST                                                                                                     \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}"       \
    "\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" CJK_KANA
/* A piece of characters that are no space and none of the signs between which these tokenizers cut. */
#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

enum {
    R_QWEN2,
    R_QWEN35,
    R_LLAMA3,
    R_GPT2,
    R_O200K,
    R_TEKKEN,
    R_GLM4,
    R_CHATGLM,
    R_DEEPSEEK_LLM,
    R_DEEPSEEK_CODER,
    R_DEEPSEEK_V3,
    R_SPARK,
    R_YOUTU,
    R_SMOLLM,
    R_COMMAND_R,
    R_FALCON,
    R_DEFAULT,
    R_MPT,
    R_STABLELM2,
    R_SEED_CODER,
    R_HUNYUAN,
    R_SOLAR,
    R_KIMI,
    R_SUPERBPE,
    R_TINY_AYA,
    R_BAILING,
    R_BLOOM,
    R_VIKING,
    R_JAIS2,
    R_DBRX,
    R_EXAONE_MOE,
    R_MINICPM5,
    R_LAGUNA,
    R_UFAKZEKA,
    R_CHAMELEON,
    R_GEMMA4,
};

static const pretok_row rows[] = {
    [R_QWEN2] = { .name = "qwen2", .stages = { QWEN2 }, .nfc = 1 },
    [R_QWEN35] = { .name = "qwen35",
                   .stages = { CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
                                            "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES },
                   .nfc = 1 },
    [R_LLAMA3] = { .name = "llama-bpe", .stages = { LLAMA3 }, .ignore_merges = 1, .add_bos = 1 },
    [R_GPT2] = { .name = "gpt-2", .stages = { GPT2 } },
    [R_O200K] = { .name = "gpt-4o", .stages = { O200K("\\p{N}{1,3}") } },
    [R_TEKKEN] = { .name = "tekken",
                   .stages = { CASED_WORDS(UPPER, LOWER, "") "|\\p{N}|" PATHS },
                   .ignore_merges = 1,
                   .add_bos = 1 },
    [R_GLM4] = { .name = "glm4", .stages = { LLAMA3 }, .ignore_merges = 1 },
    [R_CHATGLM] = { .name = "chatglm-bpe", .stages = { LLAMA3 } },
    [R_DEEPSEEK_LLM] = { .name = "deepseek-llm",
                         .stages = { "[\\r\\n]", S1 "?" LATIN_TO_CYRILLIC, S1 "?" FULL_WIDTH_PUNCT,
                                     "(?<!" S1 ")" S1 "++\\z", CJK_OLD, "\\p{N}" } },
    [R_DEEPSEEK_CODER] = { .name = "deepseek-coder",
                           .stages = { "[\\r\\n]", S1 "?\\p{L}+", S1 "?\\p{P}+", CJK_OLD, "\\p{N}" } },
    [R_DEEPSEEK_V3] = { .name = "deepseek-v3",
                        .stages = { "\\p{N}{1,3}", CJK_KANA, DEEPSEEK_WORDS "[\\r\\n]*|" SPACES } },
    [R_SPARK] = { .name = "spark2_5",
                  .stages = { "\\p{N}{1,3}", CJK_KANA, DEEPSEEK_WORDS "|[\\r\\n]|" BLANKS, "\\p{N}" } },
    [R_YOUTU] = { .name = "youtu", .stages = { YOUTU_EAST, O200K("\\p{N}") }, .ignore_merges = 1 },
    [R_SMOLLM] = { .name = "smollm", .stages = { "\\p{N}", GPT2 } },
    [R_COMMAND_R] = { .name = "command-r", .stages = { "\\p{N}", GPT2 }, .nfc = 1 },
    [R_FALCON] = { .name = "falcon", .stages = { "[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]" } },
    /* llama.cpp's rule for files that name none */
    [R_DEFAULT] = { .name = "default", .stages = { "[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" } },
    [R_MPT] = { .name = "mpt", .stages = { GPT2 }, .nfc = 1 },
    [R_STABLELM2] = { .name = "stablelm2", .stages = { QWEN2 }, .nfc = 1 },
    [R_SEED_CODER] = { .name = "seed-coder",
                       .stages = { CONTRACTIONS "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" SPACES } },
    [R_HUNYUAN] = { .name = "hunyuan", .stages = { QWEN2 }, .nfc = 1 },
    [R_SOLAR] = { .name = "solar-open", .stages = { QWEN2 } },
    [R_KIMI] = { .name = "kimi-k2",
                 .stages = { "\\p{Han}+|" CASED_WORDS(UPPER_NO_HAN, LOWER_NO_HAN,
                                                      CONTRACTIONS "?") "|\\p{N}{1,3}|" MIXED "|" SPACES } },
    [R_SUPERBPE] = { .name = "superbpe", .stages = { "\\p{N}+" }, .groups = 1 },
    [R_TINY_AYA] = { .name = "tiny_aya",
                     .stages = { "(?<!\\d)\\d++(?![\\p{L}\\p{M}\\p{N}\\p{Pc}])", O200K("\\p{N}{1,3}") },
                     .groups = 1 },
    [R_BAILING] = { .name = "bailingmoe",
                    .stages = { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS
                                "\\p{L}\\p{N}]++[\\r\\n]*|" S1 "*[\\r\\n]|" BLANKS } },
    [R_BLOOM] = { .name = "bloom", .stages = { BLOOM } },
    [R_VIKING] = { .name = "viking", .stages = { BLOOM, "\\p{N}" } },
    [R_JAIS2] = { .name = "jais-2",
                  .stages = { CONTRACTIONS "|" WORD "|\\p{N}{1,3}|" MIXED "|" S1 "*[\\r\\n]+|" S1 "{512}(?![^" WS
                                           "])|" S1 "{256}(?![^" WS "])|" S1 "{128}(?![^" WS "])|" S1 "{64}(?![^" WS
                                           "])|" S1 "{32}(?![^" WS "])|" S1 "{16}(?![^" WS "])|" S1 "{8}(?![^" WS
                                           "])|" S1 "{4}(?![^" WS "])|" S1 "{1,2}(?![^" WS "])|" S1 } },
    [R_DBRX] = { .name = "dbrx", .stages = { LLAMA3 } },
    [R_EXAONE_MOE] = { .name = "exaone-moe",
                       .stages = { CONTRACTIONS
                                   "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}[\\p{L}\\p{M}]*+(?: \\p{L}[\\p{L}\\p{M}]*+)*+|"
                                   "\\p{N}|" OTHERS "[\\r\\n/]?|" S1 "*[\\r\\n]|" BLANKS } },
    [R_MINICPM5] = { .name = "minicpm5",
                     .stages = { "\\p{N}{1,3}", CONTRACTIONS "|" WORD "|\\p{N}+|" MIXED "|" SPACES },
                     .ignore_merges = 1 },
    [R_LAGUNA] = { .name = "laguna", .stages = { "[^\\n]+|[\\n]+", QWEN2 } },
    [R_UFAKZEKA] = { .name = "ufakzeka", .stages = { WORD "|\\p{N}|" MIXED "|" SPACES } },
    [R_CHAMELEON] = { .name = "chameleon",
                      .stages = { "<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
                                  "[\\p{P}!-/:-@\\[-`{-~]", GPT2 },
                      .add_bos = 1 },
    [R_GEMMA4] = { .name = "gemma4", .add_bos = 1, .raw = 1 }, /* whole texts are merged */
};

/* Every name that the field's converter writes for these rules. */
static const struct {
    const char *name;
    int row;
} names[] = {
    { "qwen2", R_QWEN2 },
    { "qwen35", R_QWEN35 },
    { "llama-bpe", R_LLAMA3 },
    { "gpt-2", R_GPT2 },
    { "deepseek-r1-qwen", R_QWEN2 },
    { "kormo", R_QWEN2 },
    { "f2llmv2", R_QWEN2 },
    { "megrez", R_QWEN2 },
    { "llama3", R_LLAMA3 },
    { "llama-v3", R_LLAMA3 },
    { "falcon3", R_LLAMA3 },
    { "falcon-h1", R_LLAMA3 },
    { "pixtral", R_LLAMA3 },
    { "midm-2.0", R_LLAMA3 },
    { "lfm2", R_LLAMA3 },
    { "jina-v5-nano", R_LLAMA3 },
    { "phi-2", R_GPT2 },
    { "jina-es", R_GPT2 },
    { "jina-de", R_GPT2 },
    { "jina-v2-es", R_GPT2 },
    { "jina-v2-de", R_GPT2 },
    { "gigachat", R_GPT2 },
    { "a.x-4.0", R_GPT2 },
    { "mellum", R_GPT2 },
    { "modern-bert", R_GPT2 },
    { "exaone4", R_GPT2 },
    { "jais", R_GPT2 },
    { "trillion", R_GPT2 },
    { "granite-docling", R_GPT2 },
    { "gpt-4o", R_O200K },
    { "llama4", R_O200K },
    { "kanana2", R_O200K },
    { "talkie", R_O200K },
    { "minimax-m2", R_O200K },
    { "tekken", R_TEKKEN },
    { "glm4", R_GLM4 },
    { "glm5", R_GLM4 },
    { "chatglm-bpe", R_CHATGLM },
    { "deepseek-llm", R_DEEPSEEK_LLM },
    { "deepseek-coder", R_DEEPSEEK_CODER },
    { "deepseek-v3", R_DEEPSEEK_V3 },
    { "hunyuan-dense", R_DEEPSEEK_V3 },
    { "joyai-llm", R_DEEPSEEK_V3 },
    { "hy_v4", R_DEEPSEEK_V3 },
    { "spark2_5", R_SPARK },
    { "youtu", R_YOUTU },
    { "smollm", R_SMOLLM },
    { "starcoder", R_SMOLLM },
    { "refact", R_SMOLLM },
    { "codeshell", R_SMOLLM },
    { "exaone", R_SMOLLM },
    { "minerva-7b", R_SMOLLM },
    { "mellum2", R_SMOLLM },
    { "command-r", R_COMMAND_R },
    { "falcon", R_FALCON },
    { "default", R_DEFAULT },
    { "mpt", R_MPT },
    { "olmo", R_MPT },
    { "stablelm2", R_STABLELM2 },
    { "seed-coder", R_SEED_CODER },
    { "hunyuan", R_HUNYUAN },
    { "solar-open", R_SOLAR },
    { "grok-2", R_SOLAR },
    { "kimi-k2", R_KIMI },
    { "superbpe", R_SUPERBPE },
    { "tiny_aya", R_TINY_AYA },
    { "cohere2moe", R_TINY_AYA },
    { "bailingmoe", R_BAILING },
    { "bailingmoe2", R_BAILING },
    { "llada-moe", R_BAILING },
    { "bloom", R_BLOOM },
    { "poro-chat", R_BLOOM },
    { "gpt3-finnish", R_BLOOM },
    { "viking", R_VIKING },
    { "jais-2", R_JAIS2 },
    { "dbrx", R_DBRX },
    { "smaug-bpe", R_DBRX },
    { "exaone-moe", R_EXAONE_MOE },
    { "minicpm5", R_MINICPM5 },
    { "laguna", R_LAGUNA },
    { "ufakzeka", R_UFAKZEKA },
    { "chameleon", R_CHAMELEON },
    { "gemma4", R_GEMMA4 },
    { "sarvam-moe", R_GEMMA4 },
};

const char *pretok_known(int i)
{
    return i >= 0 && i < (int)(sizeof names / sizeof names[0]) ? names[i].name : NULL;
}

const pretok_row *pretok_row_find(const char *name, size_t len)
{
    for (int i = 0; pretok_known(i); i++)
        if (strlen(names[i].name) == len && memcmp(names[i].name, name, len) == 0)
            return &rows[names[i].row];
    return NULL;
}
