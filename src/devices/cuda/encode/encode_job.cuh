/* encode_job.cuh: what the encoding kernels are told; where a unit of 128 values of a row comes from and goes to. */
#ifndef KVANT_CUDA_ENCODE_JOB_CUH
#define KVANT_CUDA_ENCODE_JOB_CUH

#include "devices/cuda/encode/encode_math.cuh"

/* Two launches that seal pages side by side: the second begins when what was before the first has ended, and ends
 * behind the first. */
enum job_beside { JOB_ALONE, JOB_FIRST, JOB_SECOND };

/* The source and target of rows; seal: src/dst pages, else rows of the batch. */
typedef struct encode_job {
    side_dev side;
    seqs_dev seqs;
    const float *x;
    int64_t ldx;
    const int32_t *src, *dst;
    int seal, n, h, groups; /* units per row, of 128 values */
    unsigned units;
    int vec;                /* x may be read by float4, tails by 8 bytes */
    int full;               /* and every unit has 128 values of the row, at an aligned place */
    int beside;             /* enum job_beside */
} encode_job;

/* Two sides in one launch: blockIdx.y. */
typedef struct jobs {
    encode_job j[2];
} jobs;

/* One unit: 128 values of one row.  tail: store f16 there instead of encoding. */
typedef struct unit {
    const float *x;
    const uint16_t *half;
    uint16_t *tail;
    uint8_t *row;
    int at, h;    /* token, or row of the sealed pages; head */
    int g, count; /* first value; how many of the row's d values it has */
} unit;

/* Unit `n` of a launch: g of its row, the row's head and token. */
typedef struct unit_spot {
    unsigned n;
    int token, h, g;
} unit_spot;

static __device__ __forceinline__ unit_spot spot_at(const encode_job &p, unsigned n)
{
    const unsigned row = n / (unsigned)p.groups, token = row / (unsigned)p.h;
    const unit_spot o = { n, (int)token, (int)(row - token * (unsigned)p.h), (int)(n - row * (unsigned)p.groups) };
    return o;
}

/* Finds the source of a unit's values; false past the end. */
static __device__ __forceinline__ bool unit_from(const encode_job &p, const unit_spot &u, unit *o)
{
    const side_dev &s = p.side;
    o->at = u.token;
    o->h = u.h;
    o->g = u.g * GROUP_MAX;
    o->count = s.d - o->g < GROUP_MAX ? s.d - o->g : GROUP_MAX;
    o->x = NULL;
    o->half = NULL;
    o->tail = NULL;
    o->row = NULL;
    if (u.n >= p.units)
        return false;
    if (p.seal)
        o->half = side_tail_row(s, p.src[o->at / KVANT_PAGE], p.h, o->h, o->at % KVANT_PAGE) + o->g;
    else
        o->x = p.x + o->at * p.ldx + o->h * s.d + o->g;
    return true;
}

/* Finds the target of a unit's values: reads that wait for one another. */
static __device__ __forceinline__ void unit_to(const encode_job &p, unit *o)
{
    const side_dev &s = p.side;
    if (p.seal) {
        o->row = side_row(s, p.dst[o->at / KVANT_PAGE], o->h, o->at % KVANT_PAGE);
        return;
    }
    const int q = seq_of(p.seqs, o->at), pos = pos_of(p.seqs, q, o->at), j = pos / KVANT_PAGE;
    const int t = side_tail_page(s, p.seqs, q, j, j, 1);
    if (t >= 0)
        o->tail = side_tail_row(s, t, p.h, o->h, pos % KVANT_PAGE) + o->g;
    else
        o->row = side_row(s, p.seqs.table[(size_t)q * p.seqs.stride + j], o->h, pos % KVANT_PAGE);
}

static __device__ __forceinline__ bool unit_at(const encode_job &p, unsigned u, unit *o)
{
    if (!unit_from(p, spot_at(p, u), o))
        return false;
    unit_to(p, o);
    return true;
}

static __device__ __forceinline__ float unit_value(const unit &o, int i)
{
    if (i >= o.count)
        return 0.0f; /* padding up to the group */
    return o.half ? __half2float(__ushort_as_half(o.half[i])) : o.x[i];
}

/* Values i .. i + 3 of the unit. */
template <bool FULL>
static __device__ __forceinline__ void unit_load4(const encode_job &p, const unit &o, int i, float *v)
{
    if (FULL || (p.vec && i + 4 <= o.count)) {
        if (p.seal) {
            const uint2 u = *(const uint2 *)(o.half + i);
            v[0] = __half2float(__ushort_as_half((unsigned short)u.x));
            v[1] = __half2float(__ushort_as_half((unsigned short)(u.x >> 16)));
            v[2] = __half2float(__ushort_as_half((unsigned short)u.y));
            v[3] = __half2float(__ushort_as_half((unsigned short)(u.y >> 16)));
        } else {
            const float4 u = __ldcs((const float4 *)(o.x + i));
            v[0] = u.x, v[1] = u.y, v[2] = u.z, v[3] = u.w;
        }
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = unit_value(o, i + k);
    }
}

/* Four values as halves. */
static __device__ __forceinline__ uint2 tail_halves(const float *v)
{
    return make_uint2(enc_half(v[0]) | (uint32_t)enc_half(v[1]) << 16, enc_half(v[2]) | (uint32_t)enc_half(v[3]) << 16);
}

/* Values i .. i + 3 to a tail of `count`; FULL: it has them all. */
template <bool FULL>
static __device__ __forceinline__ void tail_store4(const encode_job &p, uint16_t *tail, int i, int count,
                                                   const float *v)
{
    if (FULL || (p.vec && i + 4 <= count)) {
        *(uint2 *)(tail + i) = tail_halves(v);
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + k < count)
                tail[i + k] = enc_half(v[k]);
    }
}

/* First thing: the launch behind may begin, but for a second one. */
static __device__ __forceinline__ void job_begin(const encode_job &p)
{
    if (p.beside != JOB_FIRST)
        pdl_go();
}

/* Waits for the data that the job reads; then a second launch may begin. */
static __device__ __forceinline__ void job_wait(const encode_job &p)
{
    if (p.beside != JOB_SECOND)
        pdl_wait();
    if (p.beside == JOB_FIRST)
        pdl_go();
}

/* At the end of all blocks. */
static __device__ __forceinline__ void job_end(const encode_job &p)
{
    if (p.beside == JOB_SECOND && blockIdx.x == 0)
        pdl_wait();
}

/* Launches what encodes the rows of one job, or of two that agree in all but their rows.  Those that answer false leave
 * the job to another: they write the pages of a job that seals in their layouts (cuda_sketch_wide_encode: rows too). */
struct pack_side;
bool cuda_encodes(int fmt);
void cuda_encode(cuda_device *d, const jobs &p, int sides);
bool cuda_seal_encode(cuda_device *d, const jobs &p, const struct pack_side *to, int sides);
bool cuda_sketch_wide_encode(cuda_device *d, const jobs &p, int sides);
void cuda_sketch_encode(cuda_device *d, const jobs &p, int sides);
void cuda_trellis_encode(cuda_device *d, const jobs &p, int sides);
bool cuda_trellis_best_encode(cuda_device *d, const jobs &p, const struct pack_side *to, int sides);
/* Pages of the formats of page scope; what they need of the scratch block. */
bool cuda_pages_seal(cuda_device *d, const jobs &p, int sides);
size_t cuda_pages_scratch(const encode_job &p);
void cuda_tail_write(cuda_device *d, const jobs &p, int sides);

#endif
