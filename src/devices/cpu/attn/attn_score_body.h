/* attn_score_body.h: attn_score, the K side of attention alone; included by attn_<isa>.c after attn_body.h. */

static page_call score_call(const kvant_attn_score_args *a)
{
    const kvant_attn_args as = { .seqs = a->seqs,
                                 .k = a->k,
                                 .v = a->k,
                                 .q = a->q,
                                 .ldq = a->ldq,
                                 .gq = a->gq,
                                 .h = a->h,
                                 .h_kv = a->h_kv,
                                 .d_k = a->d_k,
                                 .d_v = a->d_k,
                                 .scale = a->scale,
                                 .tail_pages = a->tail_pages,
                                 .sink_pages = a->sink_pages,
                                 .compute = KVANT_COMPUTE_F32 };
    page_call c = call_of(&as);

    c.seqs = &a->seqs;
    c.k.side = &a->k;
    c.v.side = &a->k;
    return c;
}

/* All scores of one block and KV head, page by page. */
static void score_block(const kvant_attn_score_args *a, const page_call *c, const block *bl, int h, part_scratch *b)
{
    load_queries(c, bl, h, b);
    for (int j = 0; j <= bl->page; j++) {
        const source k = page_source(c, &c->k, bl, h, j, keys_seen(c, bl, j, bl->n * c->g - 1), b);

        for (int t = 0; t < bl->n; t++) {
            const int keys = keys_seen(c, bl, j, t * c->g);

            score_rows(&k, t * c->g, c->g, 0, keys, b);
            for (int row = t * c->g; row < (t + 1) * c->g; row++) {
                float *out = a->s + ((int64_t)(bl->first + t) * a->h + h * c->g + row % c->g) * a->lds + j * KVANT_PAGE;
                for (int i = 0; i < keys; i++)
                    out[i] = b->s[(size_t)row * KVANT_PAGE + (size_t)i] * c->scale;
            }
        }
    }
}

static void attn_score(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_attn_score_args *a = args;
    const page_call c = score_call(a);
    int64_t unit = 0;
    part_scratch b;

    bench_layout(&c, work->local, &b);
    for (int s = 0; s < a->seqs.n_seqs; s++)
        for (int first = a->seqs.q0[s]; first < a->seqs.q0[s + 1];) {
            const block bl = block_at(&a->seqs, s, first);

            for (int h = 0; h < a->h_kv; h++)
                if (unit++ % parts == part)
                    score_block(a, &c, &bl, h, &b);
            first += bl.n;
        }
}

static size_t attn_score_local(const void *args)
{
    const page_call c = score_call(args);

    return bench_layout(&c, NULL, NULL) * sizeof(float);
}

const kvant_cpu_kernel VF_KERNEL(attn_score) = { .stages = 1, .fn = { attn_score }, .local_bytes = attn_score_local };
