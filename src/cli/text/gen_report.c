/* gen_report.c: how long a generator took, and what its sequence holds, for people and as JSON. */
#include <inttypes.h>

#include "base/log.h"
#include "cli/text/generate.h"

const char *stop_text(int reason)
{
    static const char *const text[] = { "none", "eos", "length", "context", "interrupt" };
    return text[reason];
}

static double per_second(int64_t n, int64_t ns)
{
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0.0;
}

/* The sequence, as it lies in its slot between requests. */
static kvant_slot_info sequence(const generator *g)
{
    kvant_slot_info slot = { 0 };

    kvant_session_slots(g->s, &slot, 1);
    return slot;
}

int gen_stats(const generator *g, int i, char *buf, size_t cap)
{
    const kvant_engine_params *p = kvant_engine_get_params(g->e);
    const kvant_slot_info seq = sequence(g);
    char size[32];

    if (i == 0)
        snprintf(buf, cap, "prompt: %" PRId64 " tokens in %.1f ms, %.1f t/s", g->prompt_n, (double)g->prompt_ns / 1e6,
                 per_second(g->prompt_n, g->prompt_ns));
    else if (i == 1)
        snprintf(buf, cap, "decode: %" PRId64 " tokens in %.1f ms, %.1f t/s", g->decode_n, (double)g->decode_ns / 1e6,
                 per_second(g->decode_n, g->decode_ns));
    else if (i == 2)
        snprintf(buf, cap, "cache: %s for %d tokens (K %s, V %s), load %.1f ms",
                 human_bytes(seq.bytes, size, sizeof size), seq.n_tokens, p->type_k, p->type_v,
                 (double)g->load_ns / 1e6);
    else if (i == 3 && g->drafted > 0)
        snprintf(buf, cap, "drafts: %" PRId64 " tokens, %" PRId64 " accepted", g->drafted, g->accepted);
    return i < 3 + (g->drafted > 0);
}

void gen_report(const generator *g)
{
    char text[256];

    for (int i = 0; !opt_flag(g->o, OPT_NO_PERF) && gen_stats(g, i, text, sizeof text); i++)
        log_msg(LOG_INFO, "%s", text);
}

static void json_timings(const generator *g, jsonw *w)
{
    jsonw_key(w, "timings");
    jsonw_object(w);
    jsonw_knum(w, "load_ms", (double)g->load_ns / 1e6);
    jsonw_kint(w, "prompt_n", g->prompt_n);
    jsonw_knum(w, "prompt_ms", (double)g->prompt_ns / 1e6);
    jsonw_knum(w, "prompt_per_second", per_second(g->prompt_n, g->prompt_ns));
    jsonw_kint(w, "predicted_n", g->decode_n);
    jsonw_knum(w, "predicted_ms", (double)g->decode_ns / 1e6);
    jsonw_knum(w, "predicted_per_second", per_second(g->decode_n, g->decode_ns));
    if (g->drafted > 0) {
        jsonw_kint(w, "draft_n", g->drafted);
        jsonw_kint(w, "draft_n_accepted", g->accepted);
    }
    jsonw_end(w);
}

void gen_json(const generator *g, jsonw *w)
{
    const kvant_engine_params *p = kvant_engine_get_params(g->e);
    const kvant_slot_info seq = sequence(g);
    char dev[200];

    json_timings(g, w);
    jsonw_key(w, "cache");
    jsonw_object(w);
    jsonw_kstr(w, "type_k", p->type_k);
    jsonw_kstr(w, "type_v", p->type_v);
    jsonw_kstr(w, "type_layers", p->type_layers);
    jsonw_kint(w, "tail", p->kv_tail);
    jsonw_kint(w, "sink", p->kv_sink);
    jsonw_kstr(w, "encoder", encoder_name(p->encoder));
    jsonw_kint(w, "tokens", seq.n_tokens);
    jsonw_kint(w, "bytes", seq.bytes);
    jsonw_kint(w, "context", p->n_ctx);
    jsonw_end(w);
    kvant_engine_describe(g->e, dev, sizeof dev);
    jsonw_kstr(w, "device", dev);
    jsonw_kstr(w, "compute", p->compute == KVANT_COMPUTE_F32 ? "f32" : "auto");
    jsonw_kint(w, "seed", g->seed);
}
