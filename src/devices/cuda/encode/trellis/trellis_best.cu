/* trellis_best.cu: turbo3_tcq, `best`: a warp to a unit of 128 values, which walks twice at once
 * (trellis_walk.cuh). */
#include "devices/cuda/attn/decode/attn_decode.cuh"
#include "devices/cuda/encode/trellis/trellis_walk.cuh"

enum { PARTS = 16, PART = GROUP_MAX / PARTS, CALM = 16 };

/* The walks' factors, and the part of a row's energy that one of the paths has, or the costs were too many for 13 bits:
 * not 1 in 50000 ordinary rows, but those of a few great values side by side after the rotation. */
#define BEST_FIRST 0.95f
#define BEST_SECOND 1.08f
#define BEST_LEAST 0.94f

/* A warp keeps this.  step[t]: value t in both walks' steps, and the span that the costs behind it are to have for the
 * next one; two are read beyond the last.  back: two values' choices of two branches in both walks, four bits each. */
typedef struct __align__(16) best_desk {
    uint2 step[GROUP_MAX + 2];
    uint32_t cost[2][TCQ_BRANCHES], back[GROUP_MAX / 2][32];
} best_desk;

/* ---- values ---- */

static __device__ __forceinline__ int best_steps(float y, float by)
{
    return __float2int_rn(fminf(fmaxf(y * by, -(float)TRELLIS_END), (float)TRELLIS_END));
}

/* Y^2 / 2 of both values less what their first terms have too much, each in its half. */
static __device__ __forceinline__ uint32_t best_square(int first, int second)
{
    constexpr trellis_span last = trellis_spans[3];
    const int less = TRELLIS_SLACK - TRELLIS_ADD - (abs(second) >= last.from ? last.more : 0);
    const int a = (first * first + 1) / 2 + less, b = (second * second + 1) / 2 + less;
    return __byte_perm(8 * a, 8 * b, 0x5410);
}

/* This lane's four values, of a unit of length 1, to steps; returns what the costs before the first value are. */
static __device__ __forceinline__ uint32_t best_put(const float *y, best_desk &w)
{
    const int lane = threadIdx.x;
    uint32_t word[4], square[5];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int first = best_steps(y[k], BEST_FIRST * TRELLIS_STEPS);
        const int second = best_steps(y[k], BEST_SECOND * TRELLIS_STEPS);
        word[k] = (uint32_t)trellis_word(first, second);
        square[k] = best_square(first, second);
    }
    square[4] = __shfl_down_sync(0xffffffffu, square[0], 1);
#pragma unroll
    for (int k = 0; k < 2; k++)
        ((uint4 *)w.step)[2 * lane + k] =
            make_uint4(word[2 * k], square[2 * k + 1], word[2 * k + 1], square[2 * k + 2]);
    return __shfl_sync(0xffffffffu, square[0], 0);
}

/* ---- the walk ---- */

/* Costs that the next value can start from, to shared memory. */
static __device__ __forceinline__ void best_keep(const uint32_t *cost, uint32_t square, uint32_t *to)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        to[trellis_at(threadIdx.x + 32 * i)] = __viaddmin_u16x2(cost[i], square, 0xffffffffu);
    __syncwarp();
}

/* One value: new costs; returns the choices. */
static __device__ __forceinline__ uint32_t best_step(const trellis_lane &o, const uint32_t *from, uint2 step,
                                                     uint32_t *to, uint32_t *cost)
{
    uint32_t best[2];
    if ((int32_t)step.x < 0)
        trellis_near<true>(o, from, (int32_t)step.x, best);
    else
        trellis_near<false>(o, from, (int32_t)step.x, best);
    cost[0] = best[0] & 0xfff8fff8u;
    cost[1] = best[1] & 0xfff8fff8u;
    best_keep(cost, step.y, to);
    return __byte_perm(best[0], best[1], 0x6420);
}

/* Costs less the least of all. */
static __device__ __forceinline__ void best_calm(uint32_t *cost)
{
    const uint32_t least = __vminu2(cost[0], cost[1]);
    const uint32_t a = __reduce_min_sync(0xffffffffu, least & 0xffffu), b = __reduce_min_sync(0xffffffffu, least >> 16);
    cost[0] -= a + (b << 16);
    cost[1] -= a + (b << 16);
}

/* Both walks; returns the branch of least cost behind the last value, of walk lane / 16. */
static __device__ __forceinline__ int best_walk(best_desk &w, uint32_t square)
{
    const int lane = threadIdx.x;
    trellis_lane o;
    uint32_t cost[2], key[2];
    trellis_load(o, lane);
    w.cost[0][lane] = w.cost[0][lane + 32] = square;
    __syncwarp();
    uint2 even = w.step[0], odd = w.step[1];
#pragma unroll 1
    for (int t = 0; t < GROUP_MAX; t += CALM) {
        uint32_t last;
#pragma unroll 1
        for (int k = 0; k < CALM; k += 2) {     /* indices, not pointers: those are taken for a lane's own */
            const uint32_t a = best_step(o, w.cost[0], even, w.cost[1], cost);
            even = w.step[t + k + 2];
            const uint32_t b = best_step(o, w.cost[1], odd, w.cost[0], cost);
            last = odd.y;
            odd = w.step[t + k + 3];
            w.back[(t + k) / 2][lane] = a ^ ((a ^ b << 4) & 0xf0f0f0f0u);
        }
        best_calm(cost);
        best_keep(cost, last, w.cost[0]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t a = cost[0] >> 16 * i & 0xffffu, b = cost[1] >> 16 * i & 0xffffu;
        key[i] = __reduce_min_sync(0xffffffffu, min(a << 8 | lane, b << 8 | (lane + 32)));
    }
    return (int)((lane < 16 ? key[0] : key[1]) & 63u);
}

/* ---- the way back ---- */

/* Returns the bit of a branch's choices in a pair's words, but for the walk; and the branch. */
static __device__ __forceinline__ int best_place(int branch)
{
    return (branch & 31) * 4 | (branch >> 5) * 2;
}

static __device__ __forceinline__ int best_branch(int place)
{
    return (place >> 2 & 31) | (place & 2) << 4;
}

/* The places behind the values of part lane % 16, and before them (place[0]), of walk lane / 16, which ends in branch
 * `end`: all parts go back at once, each from where the one behind came to, until nothing changes.  A branch's
 * predecessor is its low three bits and the choice. */
static __device__ __forceinline__ void best_back(const best_desk &w, int end, int *place)
{
    const int lane = threadIdx.x, part = lane % PARTS;
    const uint8_t *back = (const uint8_t *)w.back[part * PART / 2] + lane / PARTS;
    for (place[PART] = part == PARTS - 1 ? best_place(end) : 0;;) {
#pragma unroll
        for (int k = PART - 1; k >= 0; k--) {
            const int at = place[k + 1], choice = back[k / 2 * 128 + at];
            place[k] = (at << 3 & 0x60) | (at >> 3 & 2) | ((k % 2 ? choice >> 2 : choice << 2) & 0x1c);
        }
        const int behind = __shfl_down_sync(0xffffffffu, place[0], 1), from = part == PARTS - 1 ? place[PART] : behind;
        if (!__any_sync(0xffffffffu, from != place[PART]))
            break;
        place[PART] = from;
    }
}

/* ---- scale and stream ---- */

/* Sums of a path: of the row's squares, its products with the levels, the levels' squares. */
typedef struct best_sums {
    float yy, yc, cc;
} best_sums;

/* y: the unit; this lane's part of walk lane / 16. */
static __device__ __forceinline__ best_sums best_sum(const float *y, const int *state)
{
    best_sums s = { 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < PART; k++) {
        const float v = y[threadIdx.x % PARTS * PART + k], c = fmt_c_turbo3_tcq_codebook[state[k]];
        s.yy = fmaf(v, v, s.yy);
        s.yc = fmaf(v, c, s.yc);
        s.cc = fmaf(c, c, s.cc);
    }
    s.yy = enc_sum<PARTS>(s.yy);
    s.yc = enc_sum<PARTS>(s.yc);
    s.cc = enc_sum<PARTS>(s.cc);
    return s;
}

/* A scale to store, and its squared error less |y|^2. */
typedef struct best_fit {
    float error;
    uint16_t scale;
} best_fit;

static __device__ __forceinline__ best_fit best_at(uint16_t scale, float along, float cc)
{
    const float s = enc_value(scale);
    return { s * (s * cc - 2.0f * along), scale };
}

/* Returns the fit of least squares, or upstream's, by the smaller error. */
static __device__ __forceinline__ best_fit best_fitted(float norm, const best_sums &s)
{
    const float along = norm * s.yc;
    const best_fit kept = best_at(enc_half(norm * rsqrtf(s.cc)), along, s.cc);
    const best_fit least = best_at(enc_storable(__fdividef(along, s.cc)), along, s.cc);
    return least.error < kept.error ? least : kept;
}

/* Symbols from the bit of the first state on: 30 bits. */
static __device__ __forceinline__ uint32_t best_stream(const int *state)
{
    uint32_t bits = (uint32_t)state[0];
#pragma unroll
    for (int k = 1; k < PART; k++)
        bits |= (uint32_t)(state[k] >> 6) << (6 + 3 * k);
    return bits;
}

/* Half word `lane` of the row, from the parts of walk `which`. */
static __device__ __forceinline__ uint16_t best_half(uint32_t bits, int which, uint16_t scale)
{
    const int lane = threadIdx.x, at = max(16 * lane - 16, 0), part = min(at / 24, PARTS - 1), r = at - 24 * part;
    const uint32_t low = __shfl_sync(0xffffffffu, bits, PARTS * which + part);
    const uint32_t high = __shfl_sync(0xffffffffu, bits, (PARTS * which + part + 1) % 32);
    return lane == 0 ? scale : (uint16_t)(low >> r | (part < PARTS - 1 ? high << (24 - r) : 0));
}

/* ---- a unit ---- */

/* Both walks again with costs in f32. */
typedef struct best_exact {
    tcq_room room;
    tcq_path path[2];
} best_exact;
static_assert(sizeof(best_exact) <= sizeof(best_desk::back));

static __device__ __noinline__ void best_again(const float *y, best_exact &e)
{
#pragma unroll 1
    for (int i = 0; i < 2; i++)
        tcq_walk(y, i == 0 ? BEST_FIRST : BEST_SECOND, e.room, &e.path[i]);
}

/* This lane's half word of a unit whose walks end in branch `end`. */
static __device__ __forceinline__ uint16_t best_code(best_desk &w, const float *y, float norm, int end)
{
    const int lane = threadIdx.x;
    int place[PART + 1], state[PART];
    ((float4 *)w.step)[lane] = make_float4(y[0], y[1], y[2], y[3]);
    __syncwarp();
    best_back(w, end, place);
#pragma unroll
    for (int k = 0; k < PART; k++)
        state[k] = best_branch(place[k + 1]) << 3 | (place[k] >> 2 & 7);
    best_sums s = best_sum((const float *)w.step, state);
    if (__all_sync(0xffffffffu, s.yc * s.yc < BEST_LEAST * s.yy * s.cc)) {
        best_exact &e = *(best_exact *)w.back;
        best_again((const float *)w.step, e);
#pragma unroll
        for (int k = 0; k < PART; k++)
            state[k] = e.path[lane / PARTS].state[lane % PARTS * PART + k];
        s = best_sum((const float *)w.step, state);
    }
    const best_fit fit = best_fitted(norm, s);
    const float other = __shfl_xor_sync(0xffffffffu, fit.error, PARTS);
    const int which = __shfl_sync(0xffffffffu, other < fit.error, 0);
    const int own = enc_unbiased_scale(__fdividef(norm * s.yy, s.yc), fit.scale);
    const int scale = __shfl_sync(0xffffffffu, own, PARTS * which);
    return best_half(isfinite(norm) ? best_stream(state) : 0, which, (uint16_t)scale);
}

/* ---- the launch ---- */

/* The arguments of a launch: the jobs, and the layouts of their pages. */
typedef struct best_jobs {
    jobs of;
    pack_shape shape[2];
} best_jobs;

/* Returns the target of this lane's half word of a unit. */
static __device__ __forceinline__ uint8_t *best_to(const pack_shape &s, const unit &o)
{
    const int rec = o.g / GROUP_MAX, r = o.at % KVANT_PAGE;
    if (s.role == PACK_ROWS)
        return o.row + rec * TCQ_BYTES + 2 * threadIdx.x;
    return o.row - r * s.row_bytes + r / PACK_BLOCK * s.block_bytes +
           2 * pack_trellis_to(&s, r % PACK_BLOCK, rec, threadIdx.x);
}

/* A block is a warp: then the compiler sees that a value is the same for all of it, and its branches cost little. */
static __global__ void __launch_bounds__(32, 21) encode_trellis_best_kernel(best_jobs js)
{
    __shared__ best_desk w;
    const encode_job &p = js.of.j[blockIdx.y];
    const int lane = threadIdx.x;
    unit o;
    float y[4];

    pdl_go();
    pdl_wait();
    if (!unit_at(p, blockIdx.x, &o))
        return;
    unit_load4<false>(p, o, 4 * lane, y);
    if (o.tail) {
        tail_store4<false>(p, o.tail, 4 * lane, o.count, y);
        return;
    }
    float inv;
    const float square = (y[0] * y[0] + y[1] * y[1]) + (y[2] * y[2] + y[3] * y[3]);
    const float norm = enc_unit_root(enc_sum<32>(square), &inv);
#pragma unroll
    for (int k = 0; k < 4; k++)
        y[k] *= inv;
    warp_rotate<4>(SPACE_R128, y, lane);
    const int end = best_walk(w, best_put(y, w));
    const uint16_t half = best_code(w, y, norm, end);
    if (lane < TCQ_BYTES / 2)
        enc_put(best_to(js.shape[blockIdx.y], o), half);
}

bool cuda_trellis_best_encode(cuda_device *d, const jobs &p, const pack_side *to, int sides)
{
    best_jobs js = { p, {} };
    if (p.j[0].side.encoder != KVANT_ENCODER_BEST)
        return false;
    for (int i = 0; to && i < sides; i++)
        js.shape[i] = to[i].shape;
    /* not ahead of its turn (cuda_launch): its blocks would crowd on the first multiprocessors that are free */
    encode_trellis_best_kernel<<<dim3(p.j[0].units, (unsigned)sides), 32, 0, d->stream>>>(js);
    return true;
}
