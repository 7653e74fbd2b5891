/* cache_trellis.cu: turbo3_tcq, a block of 64 threads to a unit of 128 values. */
#include "devices/cuda/cache_job.cuh"

enum { STATES = 512, BRANCHES = 64 };

/* The unit of this block with its values in v[128]; false: nothing to encode. */
static __device__ bool block_unit(const job &p, unsigned u, unit *o, float *v)
{
    if (!unit_at(p, u, o))
        return false;
    if (o->tail) {
        for (int i = threadIdx.x; i < o->count; i += blockDim.x)
            o->tail[i] = enc_half(o->x[i]);
        return false;
    }
    for (int i = threadIdx.x; i < GROUP_MAX; i += blockDim.x)
        v[i] = unit_value(*o, i);
    return true;
}

/* The trellis search of one block of 64 threads: thread g owns the branch of the eight predecessors g*8 .. g*8+7. */
typedef struct trellis {
    float y[GROUP_MAX], wide[GROUP_MAX], cost[2][STATES];
    uint8_t back[GROUP_MAX][BRANCHES];
    uint16_t state[2][GROUP_MAX];
    int start[2];
    float norm;
} trellis;

static __device__ void tcq_viterbi(trellis &w, const float *y, int which)
{
    const int g = threadIdx.x;
    for (int s = g; s < STATES; s += BRANCHES)
        w.cost[0][s] = 0.0f;
    __syncthreads();
    for (int t = 0; t < GROUP_MAX; t++) {
        const float *cost = w.cost[t & 1];
        float best = cost[g << 3];
        int from = 0;
        for (int q = 1; q < 8; q++)
            if (cost[g << 3 | q] < best) {
                best = cost[g << 3 | q];
                from = q;
            }
        w.back[t][g] = (uint8_t)from;
        for (int s = g; s < STATES; s += BRANCHES) {
            const float e = y[t] - fmt_c_tcq[s];
            w.cost[~t & 1][s] = best + e * e;
        }
        __syncthreads();
    }
    if (g == 0) {
        int s = 0;
        for (int i = 1; i < STATES; i++)
            if (w.cost[0][i] < w.cost[0][s])
                s = i;
        for (int t = GROUP_MAX - 1; t >= 0; t--) {
            w.state[which][t] = (uint16_t)s;
            s = (s & 63) << 3 | w.back[t][s & 63];
        }
        w.start[which] = s;
    }
    __syncthreads();
}

static __device__ double tcq_error(const trellis &w, int which, uint16_t scale)
{
    double err = 0.0;
    for (int t = 0; t < GROUP_MAX; t++) {
        double e = (double)w.y[t] * w.norm - (double)fmt_c_tcq[w.state[which][t]] * half_to_f32(scale);
        err += e * e;
    }
    return err;
}

static __device__ uint16_t tcq_refit(const trellis &w, int which)
{
    double yv = 0.0, vv = 0.0;
    for (int t = 0; t < GROUP_MAX; t++) {
        const double c = fmt_c_tcq[w.state[which][t]];
        yv += (double)w.y[t] * c;
        vv += c * c;
    }
    return enc_storable((float)(w.norm * yv / vv));
}

/* The norm that leaves scores unbiased, as turbo3_tcq.c. */
static __device__ uint16_t tcq_unbiased(const trellis &w, int which, uint16_t scale)
{
    double yy = 0.0, yv = 0.0;
    for (int t = 0; t < GROUP_MAX; t++) {
        yy += (double)w.y[t] * w.y[t];
        yv += (double)w.y[t] * fmt_c_tcq[w.state[which][t]];
    }
    return enc_unbiased_scale((float)(w.norm * yy / yv), scale);
}

static __device__ void tcq_store(const trellis &w, int which, uint16_t scale, uint8_t *out)
{
    uint32_t word = (uint32_t)w.start[which] >> 3, have = 6;
    uint8_t *b = out + 2;
    enc_put(out, scale);
    for (int t = 0; t < GROUP_MAX; t++) {
        word |= (uint32_t)(w.state[which][t] >> 6) << have;
        for (have += 3; have >= 8; have -= 8, word >>= 8)
            *b++ = (uint8_t)word;
    }
    *b = (uint8_t)word; /* bits 384 .. 389 */
    out[51] = 0;
}

static __global__ void __launch_bounds__(BRANCHES) tcq_kernel(jobs js)
{
    __shared__ trellis w;
    const job &p = js.j[blockIdx.y];
    unit o;

    pdl_go();
    pdl_wait();
    if (!block_unit(p, blockIdx.x, &o, w.y))
        return;
    __syncthreads();
    if (threadIdx.x == 0) {
        float s = 0.0f;
        for (int i = 0; i < GROUP_MAX; i++)
            s += w.y[i] * w.y[i];
        w.norm = sqrtf(s);
    }
    __syncthreads();
    const float inv = w.norm > 1e-10f ? 1.0f / w.norm : 0.0f;
    for (int i = threadIdx.x; i < GROUP_MAX; i += BRANCHES)
        w.y[i] *= inv;
    space_rotate(SPACE_R128, 0, w.y, GROUP_MAX);
    tcq_viterbi(w, w.y, 0);
    if (p.side.encoder == KVANT_ENCODER_BEST) {
        for (int i = threadIdx.x; i < GROUP_MAX; i += BRANCHES)
            w.wide[i] = w.y[i] * (1.0f / 0.94f);
        __syncthreads();
        tcq_viterbi(w, w.wide, 1);
    }
    if (threadIdx.x != 0)
        return;
    float r = 0.0f;
    for (int t = 0; t < GROUP_MAX; t++)
        r += fmt_c_tcq[w.state[0][t]] * fmt_c_tcq[w.state[0][t]];
    const float rn = sqrtf(r);
    uint16_t scale = f32_to_half(rn > 1e-10f ? w.norm / rn : w.norm);
    int which = 0;
    if (p.side.encoder == KVANT_ENCODER_BEST) {
        uint16_t h = tcq_refit(w, 0);
        double err = tcq_error(w, 0, scale), refit = tcq_error(w, 0, h);
        if (refit < err || (!isfinite(err) && isfinite(refit))) {
            scale = h;
            err = refit;
        }
        h = tcq_refit(w, 1);
        if (tcq_error(w, 1, h) < err) {
            which = 1;
            scale = h;
        }
        scale = tcq_unbiased(w, which, scale);
    }
    tcq_store(w, which, scale, o.row + o.g / GROUP_MAX * 52);
}

void cuda_trellis_encode(cuda_device *d, const jobs &p, int sides)
{
    cuda_launch(d, tcq_kernel, dim3(p.j[0].units, (unsigned)sides), BRANCHES, 0, p);
}
