/* encode_seal.cu: page_seal of whole pages by the encoder core (encode_core.cuh).
 * A team of eight warps takes a head of a page, whose rows lie one behind the other in the exact tail: each warp tiles
 * of 8 units, while the next tile's halves are on their way to shared memory.  The team's rows meet there and go to the
 * page as its layout has them: rows, or packed (pack_head.cuh). */
#include "devices/cuda/attn/decode/attn_decode.cuh"
#include "devices/cuda/attn/pack_head.cuh"
#include "devices/cuda/encode/encode_core.cuh"
#include "devices/cuda/encode/encode_job.cuh"

enum {
    TEAMS = 2, TEAM = 256, TEAM_WARPS = TEAM / 32, THREADS = TEAMS * TEAM, WARPS = THREADS / 32,
    STAGE = (int)TILE_UNITS * (int)GROUP_MAX * 2 /* bytes of a tile's halves */
};

/* The arguments of a launch: the jobs, their layouts, and the places of rows and tiles in shared memory. */
typedef struct seal_jobs {
    jobs of;
    pack_shape shape[2];
    uint32_t rows, stage;
} seal_jobs;

/* How pages of a format hold codes. */
#define CARD_FORMAT(name, values, bytes, space, cls, codes) { PACK_##cls, CODES_##codes },
struct seal_kind {
    int cls, codes;
};
static constexpr seal_kind seal_kinds[] = {
#include "cards/lists.inc"
};
#undef CARD_FORMAT

/* ---- values ---- */

/* Returns the place of chunk c of 8 halves of unit r: lanes that read together meet no bank twice. */
static __device__ __forceinline__ uint32_t seal_chunk(uint32_t stage, int r, int c)
{
    return stage + (uint32_t)(r * GROUP_MAX * 2 + ((c ^ c >> 3 ^ r % 2 * 6) << 4));
}

/* A tile of halves, which lie one behind the other, on its way. */
static __device__ __forceinline__ void seal_ask(const uint16_t *from, uint32_t stage)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < STAGE / 512; i++)
        async_copy16_all(seal_chunk(stage, 2 * i + lane / 16, lane % 16), from + 256 * i + 8 * lane);
}

/* This lane's own values of unit lane / 4, 32 (lane % 4) and on. */
static __device__ __forceinline__ void seal_read(uint32_t stage, float *v)
{
    const int r = threadIdx.x % 32 / 4, first = threadIdx.x % 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t w[4];
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(seal_chunk(stage, r, first + i)) : "memory");
#pragma unroll
        for (int k = 0; k < 4; k++) {
            v[8 * i + 2 * k] = low_half(w[k]);
            v[8 * i + 2 * k + 1] = high_half(w[k]);
        }
    }
}

/* ---- a tile ---- */

/* scale: f8_e4m3's parameter. */
template <int F, bool BEST, typename BOOKS>
static __device__ __forceinline__ void seal_encode(const BOOKS &books, float scale, float *v, uint8_t *out)
{
    if constexpr (enc_format<F>::plain) {
#pragma unroll
        for (int k = 0; k < 32; k += 4)
            enc_plain4<F>(scale, v + k, out + 32 * (threadIdx.x % 32) + k);
    } else {
        enc_of<F, BEST>::encode(books, v, out);
    }
}

/* ---- a head ---- */

/* Head n of the launch: its rows in the tail, and its page's. */
typedef struct seal_spot {
    const uint16_t *from;
    uint8_t *to;
} seal_spot;

static __device__ __forceinline__ seal_spot seal_at(const encode_job &p, unsigned n)
{
    const unsigned page = n / (unsigned)p.h;
    const int h = (int)(n - page * (unsigned)p.h);
    return { side_tail_row(p.side, p.src[page], p.h, h, 0), side_row(p.side, p.dst[page], h, 0) };
}

static __device__ __forceinline__ void team_meet(int team)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"((int)TEAM) : "memory");
}

/* The team's rows to the page of one side; heads of 128 values have a shape that the compiler knows. */
template <int F, int ROLE>
static __device__ __forceinline__ void seal_pack(const pack_shape &shape, uint8_t *to, const uint8_t *rows)
{
    constexpr int cls = seal_kinds[F].cls, codes = seal_kinds[F].codes;
    constexpr int rec = codes == CODES_PAIRS || codes == CODES_SIGNED ? 128 : codes == CODES_PLAIN ? 0 : 32;
    pack_shape p;
    if (shape.d == GROUP_MAX) {
        pack_shape_of(ROLE, cls, codes, GROUP_MAX, GROUP_MAX, enc_format<F>::unit_bytes, &p);
        head_codes(p, to, rows, threadIdx.x % TEAM, TEAM);
    } else {
        p = head_shape<cls, codes, rec>(shape);
        p.role = ROLE;
        head_codes(p, to, rows, threadIdx.x % TEAM, TEAM);
    }
}

template <int F>
static __device__ __forceinline__ void seal_store(const encode_job &p, const pack_shape &shape, uint8_t *to,
                                                  const uint8_t *rows)
{
    if constexpr (seal_kinds[F].cls != PACK_NONE) {
        if (shape.role == PACK_K)
            return seal_pack<F, PACK_K>(shape, to, rows);
        if (shape.role == PACK_V)
            return seal_pack<F, PACK_V>(shape, to, rows);
    }
    for (int i = threadIdx.x % TEAM; i < KVANT_PAGE * (int)p.side.row_bytes / 16; i += TEAM)
        ((uint4 *)to)[i] = ((const uint4 *)rows)[i];
}

template <int F, bool BEST> static __global__ void __launch_bounds__(THREADS, 1) encode_seal_kernel(seal_jobs js)
{
    extern __shared__ __align__(256) uint8_t seal_room[];
    typedef enc_of<F, BEST> rules;
    constexpr int unit_bytes = enc_format<F>::unit_bytes;
    const encode_job &p = js.of.j[blockIdx.y];
    const int warp = threadIdx.x / 32, team = warp / TEAM_WARPS, mine = warp % TEAM_WARPS;
    const float scale = side_scale(p.side);
    const unsigned heads = (unsigned)(p.n * p.h), step = gridDim.x * TEAMS;
    const int tiles = KVANT_PAGE / TILE_UNITS * p.groups, bytes = KVANT_PAGE * p.groups * unit_bytes;
    const uint32_t stage = shared_at(seal_room + js.stage) + (uint32_t)warp * STAGE;
    uint8_t *rows = seal_room + js.rows + team * 2 * bytes;
    enc_copy<typename rules::lines, THREADS> tables;
    unsigned n = blockIdx.x + (unsigned)team * gridDim.x;
    seal_spot at = { NULL, NULL };

    job_begin(p);
    tables.load(rules::data());
    if (n < heads)
        at = seal_at(p, n);     /* of the batch, which is there since before the list's first op */
    job_wait(p);
    if (n < heads)
        seal_ask(at.from + mine * (STAGE / 2), stage);
    async_commit();
    tables.store(seal_room);
    __syncthreads();
    const auto books = rules::books_of(seal_room);
    for (int turn = 0; n < heads; turn ^= 1) {
        const seal_spot now = at;
        uint8_t *out = rows + turn * bytes;
        n += step;
        if (n < heads)
            at = seal_at(p, n);
        for (int t = mine; t < tiles; t += TEAM_WARPS) {
            const int next = t + TEAM_WARPS;
            float v[32];
            async_wait<0>();
            __syncwarp();
            seal_read(stage, v);
            __syncwarp();
            if (next < tiles)
                seal_ask(now.from + next * (STAGE / 2), stage);
            else if (n < heads)
                seal_ask(at.from + mine * (STAGE / 2), stage);
            async_commit();
            seal_encode<F, BEST>(books, scale, v, out + t * TILE_UNITS * unit_bytes);
        }
        team_meet(team);        /* the rows before these have been read: two lie side by side */
        seal_store<F>(p, js.shape[blockIdx.y], now.to, out);
    }
    job_end(p);
}

/* ---- the host's side ---- */

template <int F, bool BEST> static bool seal_launch(cuda_device *d, seal_jobs js, int sides)
{
    const encode_job &p = js.of.j[0];
    const int rows = TEAMS * 2 * KVANT_PAGE * p.groups * enc_format<F>::unit_bytes;
    const unsigned heads = (unsigned)(p.n * p.h), most = cuda_blocks(d->n_sm, sides);
    js.stage = (uint32_t)enc_of<F, BEST>::lines::bytes;
    js.rows = js.stage + WARPS * STAGE;
    const size_t bytes = (size_t)js.rows + rows;
    if (bytes > d->smem_max)
        return false;
    cuda_smem(encode_seal_kernel<F, BEST>, bytes);
    cuda_launch(d, encode_seal_kernel<F, BEST>, dim3(heads < most ? heads : most, (unsigned)sides), THREADS, bytes, js);
    return true;
}

template <int F> static bool seal_either(cuda_device *d, const seal_jobs &js, int sides)
{
    for (int i = 0; i < sides; i++) {
        const side_dev &s = js.of.j[i].side;
        const size_t row = (size_t)js.of.j[i].groups * enc_format<F>::unit_bytes;
        const uintptr_t at = (uintptr_t)s.pages | s.page_bytes | s.head_bytes;
        if (!js.of.j[i].full || ((uintptr_t)s.tail & 15) || (at & 15) || s.row_bytes != row)
            return false;
    }
    constexpr bool searches = enc_format<F>::searches;
    if (searches && js.of.j[0].side.encoder == KVANT_ENCODER_BEST)
        return seal_launch<F, searches>(d, js, sides);
    return seal_launch<F, false>(d, js, sides);
}

/* Formats whose pages have a private layout, by class. */
template <int F> static bool seal_of(cuda_device *d, const jobs &p, const pack_side *to, int sides)
{
    if constexpr (card<F>::cls == CARD_TRELLIS)
        return cuda_trellis_best_encode(d, p, to, sides);
    else if constexpr (enc_format<F>::known && seal_kinds[F].codes != CODES_NONE)
        return seal_either<F>(d, { p, { to[0].shape, to[sides - 1].shape }, 0, 0 }, sides);
    else
        return card<F>::cls == CARD_SIGN && cuda_sketch_wide_encode(d, p, sides);
}

#define CARD_FORMAT(name, values, bytes, space, cls, codes) seal_of<FMT_##name>,
bool cuda_seal_encode(cuda_device *d, const jobs &p, const pack_side *to, int sides)
{
    static bool (*const of[])(cuda_device *d, const jobs &p, const pack_side *to, int sides) = {
#include "cards/lists.inc"
    };
    return of[p.j[0].side.fmt](d, p, to, sides);
}
#undef CARD_FORMAT
