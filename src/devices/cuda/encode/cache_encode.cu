/* cache_encode.cu: encodes the rows of a job, or has them encoded.
 *
 * Eight lanes encode 128 values of a row (encode.cuh), a warp four at once; blocks stay for several, with the next
 * values on their way while the present ones are encoded. */
#include "devices/cuda/encode/cache_job.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, UNITS = 4 };
enum { MANY = 384 };                /* units: fewer keep more of the GPU busy four to a warp */

/* This lane's values of a unit, as enc_unit wants them; past the end: zeros. */
template <bool FULL>
static __device__ __forceinline__ void unit_load(const job &p, const spot &u, unit *o, float *v)
{
    const bool some = unit_from(p, u, o);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (some)
            unit_load4<FULL>(p, *o, 32 * j + 4 * (threadIdx.x % 8), v + 4 * j);
        else
            v[4 * j] = v[4 * j + 1] = v[4 * j + 2] = v[4 * j + 3] = 0.0f;
    }
}

template <bool FULL> static __device__ __forceinline__ void tail_store(const job &p, const unit &o, const float *v)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        tail_store4<FULL>(p, o.tail, 32 * j + 4 * (threadIdx.x % 8), o.count, v + 4 * j);
}

/* Blocks of a multiprocessor: what its registers hold. */
template <int F, bool BEST> static constexpr int encode_blocks()
{
    return !BEST ? 6 : enc_format<F>::kind == ENC_INT || enc_format<F>::kind == ENC_RMS32 ? 8 : 5;
}

template <int F, bool BEST, bool FULL>
static __global__ void __launch_bounds__(THREADS, encode_blocks<F, BEST>()) encode_kernel(jobs js)
{
    const job &p = js.j[blockIdx.y];
    const unsigned lane = threadIdx.x % 32;
    const enc_book book = enc_book_make<F>();
    const spot step = spot_at(p, gridDim.x * WARPS * UNITS);
    spot u = spot_at(p, (blockIdx.x * WARPS + threadIdx.x / 32) * UNITS + lane / 8);
    unit o, next;
    float v[16], w[16];

    pdl_go();
    pdl_wait();
    unit_load<FULL>(p, u, &o, v);
    while (u.n - lane / 8 < p.units) {
        const bool some = u.n < p.units;
        spot_add(p, &u, step);
        if (!BEST)
            unit_load<FULL>(p, u, &next, w);
        if (some)
            unit_to(p, &o);
        if (o.tail)
            tail_store<FULL>(p, o, v);
        if (__any_sync(0xffffffffu, o.row != NULL)) /* a warp whose units all go to the tail has nothing to encode */
            enc_unit<F, BEST, FULL>(book, side_scale(p.side), v, o.row, o.g, p.side.dp - o.g, o.count);
        if (BEST)
            unit_load<FULL>(p, u, &next, w);
        o = next;
#pragma unroll
        for (int k = 0; k < 16; k++)
            v[k] = w[k];
    }
}

/* ---- dispatch ---- */

template <int F, bool BEST, bool FULL> static void launch_encode(cuda_device *d, const jobs &p, int sides)
{
    const unsigned want = cuda_blocks(p.j[0].units, WARPS * UNITS), most = d->n_sm * encode_blocks<F, BEST>();
    cuda_launch(d, encode_kernel<F, BEST, FULL>, dim3(want < most ? want : most, (unsigned)sides), THREADS, 0, p);
}

template <int F> static void launch(cuda_device *d, const jobs &p, int sides)
{
    constexpr bool searches = enc_format<F>::kind != ENC_PLAIN;
    const bool best = searches && p.j[0].side.encoder == KVANT_ENCODER_BEST;
    const bool full = p.j[0].full && (sides < 2 || p.j[1].full);
    const bool many = full && !p.j[0].seal && p.j[0].units >= MANY;
    if (many && (cuda_run_encode(d, p, sides) || cuda_tile_encode(d, p, sides)))
        return;
    if (best && full)
        launch_encode<F, searches, true>(d, p, sides);
    else if (best)
        launch_encode<F, searches, false>(d, p, sides);
    else if (full)
        launch_encode<F, false, true>(d, p, sides);
    else
        launch_encode<F, false, false>(d, p, sides);
}

template <> void launch<FMT_turbo3_tcq>(cuda_device *d, const jobs &p, int sides)
{
    cuda_trellis_encode(d, p, sides);
}

template <> void launch<FMT_qjl1_256>(cuda_device *d, const jobs &p, int sides)
{
    if (!cuda_sketch_wide_encode(d, p, sides) && !cuda_sketch_encode(d, p, sides))
        cuda_sketch_split_encode(d, p, sides);
}

#define CARD_FORMAT(name, values, bytes, space, cls, codes) launch<FMT_##name>,
static void (*const launches[])(cuda_device *d, const jobs &p, int sides) = {
#include "cards/lists.inc"
};
#undef CARD_FORMAT

void cuda_encode(cuda_device *d, const jobs &p, int sides)
{
    if (p.j[0].side.layout && !p.j[0].seal)
        cuda_tail_write(d, p, sides);
    else
        launches[p.j[0].side.fmt](d, p, sides);
}
