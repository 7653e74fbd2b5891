/* check_fit: context, pool and snapshots as a function of a file's facts, of bytes that are free, and of the request
 * (kvant/fit.h): whatever the memory, what comes back fits, and asks for no more than it was told to. */
#include "kvant/fit.h"

#include <limits.h>
#include "engine/place/place_stream.h"
#include "support/check.h"

enum { PAGE = 64 };
static const int64_t GiB = (int64_t)1 << 30;

static kvant_model *open_shape(const char *name, const char *path)
{
    kvant_model_params mp = kvant_model_defaults();
    kvant_model *m = NULL;
    kvant_diag diag = { "" };

    mp.path = path;
    mp.synthetic = name;
    CHECK(kvant_model_open(&mp, &m, &diag) == KVANT_OK, "%s", diag.text);
    return m;
}

static kvant_engine_params params(const char *device, int seqs)
{
    kvant_engine_params p = kvant_engine_defaults();

    p.device = device;
    p.max_seqs = seqs;
    p.logits_rows = seqs + PAGE;
    return p;
}

static kvant_fit_request request(int64_t memory, int slots_asked)
{
    kvant_fit_request r = kvant_fit_request_defaults();

    r.memory = memory;
    r.slots_asked = slots_asked;
    return r;
}

static int64_t pages(int tokens)
{
    return ((int64_t)tokens + PAGE - 1) / PAGE * PAGE;
}

static int shared(const kvant_model *m, kvant_fit_request r, kvant_engine_params *p, kvant_plan *plan, int64_t *most)
{
    kvant_diag diag = { "" };
    const int code = kvant_fit_shared(m, &r, p, plan, most, &diag);

    CHECK((code == KVANT_OK) == (diag.text[0] == 0), "%d: %s", code, diag.text);
    return code;
}

/* A server of an 8B model on a GPU of 140 GiB with nobody there. */
static void test_modest(void)
{
    kvant_model *m = open_shape("qwen3-8b:q4_K", NULL);
    kvant_engine_params p = params("cuda", 16), asked, given;
    kvant_plan plan, all;
    int64_t most;

    p.n_ctx = 40960;
    asked = given = p;
    CHECK(shared(m, request(140 * GiB, 0), &p, &plan, &most) == KVANT_OK, "fit");
    CHECK(p.n_ctx == 40960 && p.pool_tokens == pages(p.n_ctx) + 15 * KVANT_FIT_TOKENS,
          "context %d, pool %lld", p.n_ctx, (long long)p.pool_tokens);
    CHECK(plan.total < 40 * GiB, "takes %.1f GiB of 140", (double)plan.total / (double)GiB);
    CHECK(most > 110 * GiB && most < 140 * GiB - plan.weights, "could have %.1f GiB", (double)most / (double)GiB);

    /* Slots that were asked for want full contexts, within half of what the weights leave. */
    kvant_fit_request r = request(140 * GiB, 1);
    CHECK(shared(m, r, &asked, &all, NULL) == KVANT_OK && asked.pool_tokens > p.pool_tokens, "pool %lld",
          (long long)asked.pool_tokens);
    CHECK(all.total <= all.weights + (140 * GiB - all.weights) / 2, "takes %.1f GiB", (double)all.total / (double)GiB);

    /* A number takes what it says. */
    r.pool_bytes = most;
    CHECK(shared(m, r, &given, &all, NULL) == KVANT_OK && all.total > 125 * GiB && all.total < 140 * GiB, "%.1f GiB",
          (double)all.total / (double)GiB);
    kvant_model_close(m);
}

/* Every memory from nothing to plenty: it fits or is refused, more memory gives no less, and the share is kept where
 * the context is longer than anybody needs. */
static void sweep(const kvant_model *m, const char *device, int seqs, int asked)
{
    const int train = kvant_model_get_info(m)->n_ctx_train;
    const int least = train < KVANT_FIT_TOKENS ? train : KVANT_FIT_TOKENS;
    int64_t last = 0;
    int fitted = 0, refused = 0;

    for (int64_t memory = 1 << 16; memory < 4096 * GiB; memory += memory / 3) {
        kvant_engine_params p = params(device, seqs);
        kvant_plan plan, again;
        int64_t most = 0;
        const kvant_fit_request r = request(memory, asked);
        const int code = shared(m, r, &p, &plan, &most);
        if (code != KVANT_OK) {
            CHECK(code == KVANT_ENOSPC && !fitted, "memory %lld: code %d", (long long)memory, code);
            refused++;
            continue;
        }
        fitted++;
        CHECK(kvant_plan_make(m, &p, &again, NULL) == KVANT_OK && again.total == plan.total, "the engine's plan");
        CHECK(plan.total <= memory, "takes %lld of %lld", (long long)plan.total, (long long)memory);
        CHECK(p.n_ctx >= last && p.n_ctx > 0, "context %d after %lld", p.n_ctx, (long long)last);
        CHECK(p.pool_tokens >= pages(p.n_ctx) && p.pool_tokens <= seqs * pages(p.n_ctx), "pool %lld of context %d",
              (long long)p.pool_tokens, p.n_ctx);
        CHECK(most >= plan.kv + plan.window + plan.tail, "most %lld", (long long)most);
        CHECK(p.n_ctx <= least || plan.total <= plan.weights + (memory - plan.weights) / 2, "more than half of %lld",
              (long long)memory);
        last = p.n_ctx;
    }
    CHECK(fitted > 10 && refused > 0, "%d fitted, %d refused", fitted, refused);
    CHECK(last == train, "context %lld with plenty", (long long)last);
}

static void test_given(const kvant_model *m)
{
    kvant_engine_params p = params("cpu", 4), q = p, none = p;
    kvant_fit_request r = request(-1, 0);
    kvant_plan plan;

    p.n_ctx = 200;
    r.snapshots = 3;
    r.slots_asked = 1;
    CHECK(shared(m, r, &p, &plan, NULL) == KVANT_OK, "any memory");
    CHECK(p.n_ctx == 200 && p.pool_tokens == 4 * 256 && p.snapshots == 3, "%d, %lld, %d", p.n_ctx,
          (long long)p.pool_tokens, p.snapshots);
    const int64_t fixed = plan.tail + plan.window, token = plan.kv_bytes_per_token;
    r.snapshots = 0;
    r.pool_bytes = fixed + token * 10 * PAGE + 1;
    CHECK(shared(m, r, &q, &plan, NULL) == KVANT_OK && q.pool_tokens == 10 * PAGE && q.n_ctx <= 10 * PAGE,
          "pool %lld", (long long)q.pool_tokens);
    r.pool_bytes = fixed + token * PAGE - 1;
    CHECK(shared(m, r, &none, &plan, NULL) == KVANT_EINVAL, "less than a page");
}

static void test_whole(const kvant_model *m)
{
    kvant_engine_params p = params("cuda", 1), half = p;
    kvant_plan plan;
    const int train = kvant_model_get_info(m)->n_ctx_train;

    CHECK(kvant_fit_whole(m, -1, &p, &plan, NULL) == KVANT_OK && p.n_ctx == train, "context %d", p.n_ctx);
    const int64_t memory = plan.total / 2;
    CHECK(kvant_fit_whole(m, memory, &half, &plan, NULL) == KVANT_OK && half.n_ctx < train && half.n_ctx > train / 4,
          "context %d", half.n_ctx);
    CHECK(plan.total <= memory, "takes %lld of %lld", (long long)plan.total, (long long)memory);
    half.n_ctx = kvant_fit_largest(m, &p, train, 1, memory);
    CHECK(kvant_fit_whole(m, memory, &half, &plan, NULL) == KVANT_OK && plan.total > memory - memory / 16, "largest %d",
          half.n_ctx);
    CHECK(kvant_fit_whole(m, memory, &p, NULL, NULL) == KVANT_ENOSPC && p.n_ctx == train, "a given context stays");
}

/* ---- models that are larger than a GPU ---- */

static kvant_engine_params placed(int64_t device, int64_t host)
{
    kvant_engine_params p = params("cuda", 1);

    p.cpu_experts = -1;
    p.device_memory[0] = device;
    p.host_memory = host;
    return p;
}

/* The parts of the GPU and of this machine. */
static void parts(const kvant_model *m, const kvant_engine_params *p, kvant_plan_part *gpu, kvant_plan_part *host)
{
    kvant_plan_part part;

    memset(gpu, 0, sizeof *gpu);
    memset(host, 0, sizeof *host);
    for (int i = 0; kvant_plan_device(m, p, i, &part, NULL) == KVANT_OK; i++)
        *(strcmp(part.device, "cpu") == 0 ? host : gpu) = part;
}

/* Every memory of the GPU, from plenty to nothing: what comes back fits each device, experts leave before layers, fewer
 * bytes never keep more on the GPU, and the engine that create would make is the one of the plan. */
static void sweep_devices(const char *name, int context, int shared_room)
{
    kvant_model *m = open_shape(name, NULL);
    const int layers = kvant_model_get_info(m)->n_layer, mixture = kvant_model_get_info(m)->n_expert > 0;
    int experts = 0, gpu = layers + 1, apart = 0, cut = 0, refused = 0, lost = 0;

    for (int64_t memory = 64 * GiB; memory > 1 << 24; memory -= memory / 7) {
        kvant_engine_params p = placed(memory, 96 * GiB);
        kvant_plan_part on_gpu, on_host;
        kvant_fit_request r = request(-1, 0);
        p.n_ctx = context;
        const int code = shared_room ? kvant_fit_shared(m, &r, &p, NULL, NULL, NULL)
                                     : kvant_fit_whole(m, -1, &p, NULL, NULL);
        if (code != KVANT_OK) {
            CHECK(code == KVANT_ENOSPC, "%s, %lld: code %d", name, (long long)memory, code);
            refused++;
            continue;
        }
        CHECK(!refused, "%s, %lld: fits again", name, (long long)memory);
        parts(m, &p, &on_gpu, &on_host);
        const int now = p.gpu_layers ? p.gpu_layers : layers + 1, no_slots = engine_stream_lost(m, &p);
        if (no_slots && !lost)     /* the slots' room is for experts again */
            experts = 0;
        lost |= no_slots;
        CHECK(on_gpu.plan.total <= memory && on_host.plan.total <= 96 * GiB, "%s, %lld: takes %lld", name,
              (long long)memory, (long long)on_gpu.plan.total);
        CHECK(p.cpu_experts >= experts && now <= gpu, "%s, %lld: %d experts after %d, %d layers after %d", name,
              (long long)memory, p.cpu_experts, experts, now, gpu);
        CHECK(now == layers + 1 || !mixture || p.cpu_experts == layers, "%s: layers leave before experts", name);
        CHECK(!context || p.n_ctx == context, "%s: context %d", name, p.n_ctx);
        CHECK(p.cpu_experts >= 0, "%s: nothing was chosen", name);
        apart += p.cpu_experts > 0 && p.gpu_layers == 0;
        cut += p.gpu_layers > 0;
        experts = p.cpu_experts;
        gpu = now;
    }
    CHECK(apart > (mixture ? 3 : -1) && (mixture || apart == 0) && cut > 2, "%s: %d apart, %d cut", name, apart, cut);
    CHECK(refused > 0, "%s: never refused", name);
    kvant_model_close(m);
}

/* A GPU is filled: an expert more does not fit, but for the sixteenth that stays free.  Too little RAM is refused. */
static void test_filled(void)
{
    kvant_model *m = open_shape("qwen3moe-30b-a3b:q4_K", NULL);
    kvant_engine_params p = placed(12 * GiB, 96 * GiB), more, small = placed(4 * GiB, 8 * GiB);
    kvant_plan_part gpu, host;

    p.n_ctx = small.n_ctx = 16384;
    CHECK(kvant_fit_whole(m, -1, &p, NULL, NULL) == KVANT_OK && p.cpu_experts > 0 && p.gpu_layers == 0, "%d, %d",
          p.cpu_experts, p.gpu_layers);
    parts(m, &p, &gpu, &host);
    CHECK(gpu.plan.total > 10 * GiB && gpu.plan.kv > 0 && host.plan.kv == 0, "the GPU has %lld",
          (long long)gpu.plan.total);
    more = p;
    more.cpu_experts--;
    parts(m, &more, &gpu, &host);
    CHECK(!engine_stream_lost(m, &p) && engine_stream_lost(m, &more), "an expert more fits beside slots: %lld",
          (long long)gpu.plan.total);
    CHECK(kvant_fit_whole(m, -1, &small, NULL, NULL) == KVANT_ENOSPC, "8 GiB of RAM are enough");
    kvant_model_close(m);
}

/* A GPU that holds all but the experts, and not the slots of prompts beside: no layer leaves it, the slots do. */
static void test_slots(const char *name)
{
    kvant_model *m = open_shape(name, NULL);
    const int layers = kvant_model_get_info(m)->n_layer;
    kvant_engine_params p = placed(64 * GiB, 96 * GiB), all = p, tight;
    kvant_plan_part with, gpu, host;

    all.n_ctx = 4096;
    all.pool_tokens = 4096;
    all.cpu_experts = layers;
    parts(m, &all, &with, &host);
    all.device_memory[0] = GiB / 2;
    parts(m, &all, &gpu, &host);
    CHECK(with.plan.total > gpu.plan.total && with.plan.total - gpu.plan.total == with.plan.scratch - gpu.plan.scratch,
          "slots are in the plan where they have room: %lld, %lld", (long long)with.plan.total,
          (long long)gpu.plan.total);
    for (int i = 0; i < 2; i++) {
        const int64_t want = i ? with.plan.total : (with.plan.total + gpu.plan.total) / 2;
        tight = p;
        tight.n_ctx = 4096;
        tight.device_memory[0] = want * 16 / 15 + 16;
        CHECK(kvant_fit_whole(m, -1, &tight, NULL, NULL) == KVANT_OK && tight.gpu_layers == 0,
              "%s: %d layers, %d experts", name, tight.gpu_layers, tight.cpu_experts);
        CHECK(engine_stream_lost(m, &tight) == !i, "%s: slots in %lld bytes", name, (long long)want);
    }
    kvant_model_close(m);
}

/* Equal shares of unequal devices: their sum is enough, and still one of them is too small. */
static void test_each_device(void)
{
    kvant_model *m = open_shape("qwen3-8b:q4_K", NULL);
    kvant_engine_params p = params("cuda:0,cuda:1", 1);
    kvant_diag diag = { "" };

    p.n_ctx = 4096;
    p.device_memory[0] = 40 * GiB;
    p.device_memory[1] = GiB;
    p.cpu_experts = 0;
    CHECK(kvant_fit_whole(m, -1, &p, NULL, &diag) == KVANT_ENOSPC && strstr(diag.text, "device cuda:1: "), "%s",
          diag.text);
    p.split = "20,1";
    CHECK(kvant_fit_whole(m, -1, &p, NULL, &diag) == KVANT_OK, "%s", diag.text);
    p.split = NULL;
    CHECK(kvant_fit_largest(m, &p, 1 << 20, 1, -1) == 0, "a context fits");
    kvant_model_close(m);
}

/* The largest number there is, as a limit of the context. */
static void test_largest(const kvant_model *m)
{
    const kvant_engine_params p = params("cpu", 1);

    for (int64_t memory = GiB; memory < 4096 * GiB; memory *= 16)
        CHECK(kvant_fit_largest(m, &p, INT_MAX, 1, memory) == kvant_fit_largest(m, &p, 1 << 24, 1, memory),
              "%lld bytes: %d of any, %d of 16 M tokens", (long long)memory,
              kvant_fit_largest(m, &p, INT_MAX, 1, memory), kvant_fit_largest(m, &p, 1 << 24, 1, memory));
}

int main(void)
{
    static const char *const files[] = { "tests/golden/tiny/llama.gguf", "tests/golden/tiny/qwen35.gguf",
                                         "tests/golden/tiny/qwen3moe.gguf" };

    test_modest();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        kvant_model *m = open_shape(NULL, files[i]);
        for (int asked = 0; asked < 2; asked++) {
            sweep(m, "cpu", 16, asked);
            sweep(m, "cuda", 3, asked);
        }
        test_given(m);
        kvant_model_close(m);
    }
    kvant_model *large = open_shape("qwen3-8b:q4_K", NULL);
    sweep(large, "cuda", 16, 0);
    test_whole(large);
    test_largest(large);
    kvant_model_close(large);
    for (int shared_room = 0; shared_room < 2; shared_room++) {
        sweep_devices("qwen3moe-30b-a3b:q4_K", 8192, shared_room);
        sweep_devices("qwen35moe-35b-a3b:q4_K", 0, shared_room);
        sweep_devices("qwen3-8b:q4_K", 4096, shared_room);
    }
    test_filled();
    test_slots("qwen3moe-30b-a3b:q4_K");
    test_slots("qwen35moe-35b-a3b:q4_K");
    test_each_device();
    return check_end("check_fit");
}
