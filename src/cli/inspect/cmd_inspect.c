/* cmd_inspect.c: `kvant inspect`: what a model file holds (inspect_file.c), what this build can do, and the op program
 * of a step. */
#include <string.h>
#include "base/cpu.h"
#include "cli/place/place_show.h"
#include "kvant/fit.h"
#include "cli/inspect/inspect.h"
#include "cli/overrides.h"
#include "cli/term.h"
#include "devices/device.h"
#include "kvant/kvant.h"

void inspect_section(inspect *s, const char *title, const char *key)
{
    if (s->json)
        jsonw_key(&s->w, key);
    else
        printf("%s%s%s%s\n", s->sections ? "\n" : "", term_color(stdout, 1), title, term_color(stdout, 0));
    s->sections++;
}

/* ---- formats and devices ---- */

static void format_variants(const kvant_format *f, char *buf, size_t cap)
{
    const char *name;
    int usable;

    buf[0] = 0;
    for (int i = 0; kvant_format_variant(f, i, &name, &usable); i++) {
        size_t n = strlen(buf);
        snprintf(buf + n, cap - n, "%s%s%s", n ? " " : "", name, usable ? "" : "(no)");
    }
}

static void show_formats(inspect *s)
{
    char variants[160];

    inspect_section(s, "Cache formats (row of a head of 128; variants: what this build has, (no) = not on this CPU)",
                    "formats");
    if (s->json)
        jsonw_array(&s->w);
    else
        printf("%-12s %6s %10s %10s  %-10s %s\n", "name", "group", "bytes/128", "bits/value", "aliases", "variants");
    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        size_t row = kvant_format_row_bytes(f, 128);
        format_variants(f, variants, sizeof variants);
        if (!s->json) {
            printf("%-12s %6d %10zu %10.3f  %-10s %s\n", f->name, f->group, row,
                   (double)row * 8 / kvant_format_padded(f, 128), f->aliases[0] ? f->aliases : "-", variants);
            continue;
        }
        jsonw_object(&s->w);
        jsonw_kstr(&s->w, "name", f->name);
        jsonw_kstr(&s->w, "aliases", f->aliases);
        jsonw_kint(&s->w, "group", f->group);
        jsonw_kint(&s->w, "row_bytes_128", (int64_t)row);
        jsonw_knum(&s->w, "bits_per_value", (double)row * 8 / kvant_format_padded(f, 128));
        jsonw_kbool(&s->w, "wide", f->flags & KVANT_FORMAT_WIDE);
        jsonw_kstr(&s->w, "variants", variants);
        jsonw_end(&s->w);
    }
    if (s->json)
        jsonw_end(&s->w);
}

static void show_weight_types(inspect *s)
{
    inspect_section(s, "Weight types", "weight_types");
    if (s->json)
        jsonw_array(&s->w);
    for (int i = 0; i < kvant_wtype_count(); i++) {
        const kvant_wtype *t = kvant_wtype_at(i);
        if (!s->json) {
            printf("%-8s %4d values in %4d bytes (%.3f bits)%s\n", t->name, t->block, t->bytes,
                   8.0 * t->bytes / t->block, t->quant ? "  kvant quantize can write it" : "");
            continue;
        }
        jsonw_object(&s->w);
        jsonw_kstr(&s->w, "name", t->name);
        jsonw_kint(&s->w, "block", t->block);
        jsonw_kint(&s->w, "bytes", t->bytes);
        jsonw_kbool(&s->w, "quantize", t->quant != NULL);
        jsonw_end(&s->w);
    }
    if (s->json)
        jsonw_end(&s->w);
}

static void show_devices(inspect *s)
{
    char cpu[128], have[256];

    cpu_model_name(cpu, sizeof cpu);
    kvant_cpu_text(kvant_cpu_features(), have, sizeof have);
    inspect_section(s, "Devices", "devices");
    if (!s->json) {
        list_devices(stdout);
        printf("CPU: %s, %d usable threads, %s\n", cpu, cpu_count(), have);
        return;
    }
    jsonw_object(&s->w);
    jsonw_kstr(&s->w, "cpu", cpu);
    jsonw_kstr(&s->w, "cpu_features", have);
    jsonw_kint(&s->w, "cpu_threads", cpu_count());
    jsonw_key(&s->w, "list");
    jsonw_array(&s->w);
    for (int i = 0; i < kvant_devices_count(); i++)
        jsonw_str(&s->w, kvant_devices_at(i)->name);
    jsonw_end(&s->w);
    jsonw_end(&s->w);
}

/* ---- program ---- */

static int show_program(inspect *s, kvant_diag *diag)
{
    kvant_engine_params p;
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    char *text = NULL;
    int code;

    params_from_opts(s->o, &p);
    KVANT_TRY(open_model(s->o, &m, diag));
    if (p.n_ctx == 0) /* the program does not depend on the context: a small one loads at once */
        p.n_ctx = kvant_model_get_info(m)->n_ctx_train < 512 ? kvant_model_get_info(m)->n_ctx_train : 512;
    code = open_engine(m, &p, &e, diag);
    if (code == KVANT_OK)
        code = kvant_engine_program_text(e, &text, diag);
    if (code == KVANT_OK) {
        inspect_section(s, "Program of one decode step", "program");
        if (s->json)
            jsonw_str(&s->w, text);
        else
            fputs(text, stdout);
        kvant_text_free(text);
    }
    kvant_engine_free(e);
    kvant_model_close(m);
    return code;
}

/* ---- placement ---- */

static int show_placement(inspect *s, kvant_diag *diag)
{
    kvant_engine_params p;
    kvant_model *m = NULL;

    params_from_opts(s->o, &p);
    KVANT_TRY(open_model(s->o, &m, diag));
    engine_memory(&p);
    const int code = kvant_fit_whole(m, -1, &p, NULL, diag);
    if (code == KVANT_OK && !s->json)
        printf("Placement, context of %d tokens\n", p.n_ctx);
    if (code == KVANT_OK)
        place_show(s->o, m, &p, s->json ? &s->w : NULL, 1);
    kvant_model_close(m);
    return code;
}

/* ---- the command ---- */

/* The keys are shown as a model is made of them. */
static int override_keys(inspect *s, kvant_diag *diag)
{
    overrides keys = { 0 };
    int code = overrides_from_opts(s->o, &keys, diag);

    if (code == KVANT_OK)
        code = gguf_override(s->g, (const char *const *)keys.list, keys.n, diag);
    overrides_free(&keys);
    return code;
}

static int show_all(inspect *s, kvant_diag *diag)
{
    const opts *o = s->o;
    int file = opt_flag(o, OPT_KEYS) || opt_flag(o, OPT_TENSORS) || opt_flag(o, OPT_TYPES) ||
               opt_flag(o, OPT_PROGRAM) || opt_flag(o, OPT_PLACEMENT);
    int other = opt_flag(o, OPT_FORMATS) || opt_flag(o, OPT_DEVICES);

    if (file || !other || o->n_pos || opt_given(o, OPT_MODEL)) {
        KVANT_TRY(model_path(o, &s->path, diag));
        KVANT_TRY(gguf_open(s->path, &s->g, diag));
        KVANT_TRY(override_keys(s, diag));
    }
    if (s->json)
        jsonw_object(&s->w);
    if (s->g && !file)
        inspect_summary(s);
    if (opt_flag(o, OPT_KEYS) || (s->g && !file && !other))
        inspect_keys(s);
    if (opt_flag(o, OPT_TYPES) || (s->g && !file && !other))
        inspect_types(s);
    if (opt_flag(o, OPT_TENSORS))
        inspect_tensors(s);
    if (opt_flag(o, OPT_FORMATS)) {
        show_formats(s);
        show_weight_types(s);
    }
    if (opt_flag(o, OPT_DEVICES))
        show_devices(s);
    if (opt_flag(o, OPT_PROGRAM))
        KVANT_TRY(show_program(s, diag));
    if (opt_flag(o, OPT_PLACEMENT))
        KVANT_TRY(show_placement(s, diag));
    if (!s->json)
        return KVANT_OK;
    jsonw_end(&s->w);
    return put_json(&s->w, diag);
}

int cmd_inspect(const opts *o, kvant_diag *diag)
{
    inspect s;

    memset(&s, 0, sizeof s);
    s.o = o;
    s.json = opt_flag(o, OPT_JSON);
    jsonw_init(&s.w);
    int code = show_all(&s, diag);
    jsonw_free(&s.w);
    gguf_close(s.g);
    return code;
}
