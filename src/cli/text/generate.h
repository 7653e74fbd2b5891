/* cli/text/generate.h: one sequence that is prompted and continued: the part of `run` that plain text and chat
 * share. */
#ifndef KVANT_CLI_GENERATE_H
#define KVANT_CLI_GENERATE_H

#include "cli/common.h"

enum stop_reason { STOP_NONE, STOP_EOG, STOP_LENGTH, STOP_CONTEXT, STOP_INTERRUPT };
const char *stop_text(int reason);

typedef struct generator {
    const opts *o;
    kvant_model *m;
    kvant_engine *e;
    kvant_sampler *sampler;
    int seq;
    uint64_t seed;
    kvant_detok detok;
    int32_t pending;    /* generated but not yet in the sequence; -1: none */
    int special, quiet; /* print control tokens; keep the text, print nothing */
    char *text;         /* everything since gen_text_reset, NUL-terminated */
    size_t text_len, text_cap;
    int32_t *ids; /* generated tokens since gen_text_reset */
    int n_ids, cap_ids;
    int64_t prompt_n, prompt_ns, decode_n, decode_ns;
    int64_t load_ns;
} generator;

/* Opens model, engine, sampler and sequence as o says.  gen_close also after an error. */
int gen_open(generator *g, const opts *o, kvant_diag *diag);
void gen_close(generator *g);
/* Appends prompt tokens (ids stay the caller's) and keeps the logits of the last one. */
int gen_prompt(generator *g, const int32_t *ids, int n, kvant_diag *diag);
/* Generates at most n tokens (n < 0: no limit), printing text as it comes.  *reason says why it ended. */
int gen_continue(generator *g, int64_t n, int *reason, kvant_diag *diag);
void gen_text_reset(generator *g);
/* Empties the sequence. */
int gen_restart(generator *g, kvant_diag *diag);
/* Line i of timings and cache size -> buf; 0 past the last. */
int gen_stats(const generator *g, int i, char *buf, size_t cap);
/* Timings and cache size: as notes on standard error (unless --no-perf), or as members of the open JSON object. */
void gen_report(const generator *g);
void gen_json(const generator *g, jsonw *w);

#endif
