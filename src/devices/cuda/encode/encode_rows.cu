/* encode_rows.cu: rows to pages by the encoder core (encode_core.cuh), and whose turn it is otherwise.  A warp encodes
 * runs of tiles, of one tile more or less, so that all warps end together; a tile's values are asked for as soon as the
 * one before is in registers.  Rows of the batch; also pages that are sealed, where encode_seal.cu cannot. */
#include "devices/cuda/encode/encode_core.cuh"
#include "devices/cuda/encode/encode_runs.cuh"

enum { THREADS = 512, WARPS = THREADS / 32 };

/* A warp keeps this in shared memory; plain values go straight to their rows. */
template <int F> struct __align__(128) rows_desk {
    uint8_t stage[TILE_STAGE];
    uint8_t out[enc_format<F>::plain ? 16 : (TILE_UNITS * enc_format<F>::unit_bytes + 15) / 16 * 16];
};

/* Four warps after four: what is asked for first is there first. */
template <bool WAIT> static __device__ __forceinline__ void rows_turn(int turn)
{
    if (turn == 0 || turn >= WARPS / 4)
        return;
    if (WAIT)
        asm volatile("barrier.sync %0, 256;" ::"r"(turn) : "memory");
    else
        asm volatile("barrier.arrive %0, 256;" ::"r"(turn) : "memory");
}

/* Bytes of a tile in registers, to its rows. */
template <int F, bool BEST, typename BOOKS>
static __device__ __forceinline__ void rows_encode(const BOOKS &books, float *v, uint8_t *out)
{
    if constexpr (!enc_format<F>::plain) {
        enc_of<F, BEST>::encode(books, v, out);
        __syncwarp();
    }
}

/* desks: warps that have one; the others help with the tables. */
template <int F, bool BEST>
static __global__ void __launch_bounds__(THREADS, 1)
    encode_rows_kernel(const __grid_constant__ jobs js, unsigned per, unsigned longer, int desks)
{
    extern __shared__ __align__(1024) uint8_t rows_shared[];
    typedef enc_of<F, BEST> rules;
    constexpr int bytes = enc_format<F>::unit_bytes;
    const encode_job &p = js.j[blockIdx.y];
    const int warp = threadIdx.x / 32;
    rows_desk<F> &desk = ((rows_desk<F> *)(rows_shared + rules::lines::bytes))[warp];
    const uint32_t stage = shared_at(desk.stage);
    const run_work w = { p.units / (unsigned)p.h, gridDim.x * desks, per, longer };
    run_spot t = run_at(p, w, warp < desks ? blockIdx.x + gridDim.x * warp : p.units);

    pdl_go();
    enc_copy<typename rules::lines, THREADS> tables;
    tables.load(rules::data());
    pdl_wait();
    run_unit unit = run_find(p, (int)t.first, t.left); /* not waited for before values are asked for */
    rows_turn<true>(warp / 4);
    tile_ask(p, t, stage);
    rows_turn<false>(warp / 4 + 1);
    tables.store(rows_shared);
    __syncthreads();
    const auto books = rules::books_of(rows_shared);
    run_slot slot;
    run_to to;
    unsigned tails = 0;
    for (int first = 0; t.left > 0;) {
        const bool fresh = t.start;
        const int at = first, units = t.left;
        float v[32];
        if (fresh) {
            slot = run_slot_of(p, unit, t.h, bytes);
            tails = p.side.tail ? __ballot_sync(0xffffffffu, slot.tail >= 0) : 0;
        }
        async_wait<0>();
        __syncwarp();
        const unsigned gone = tails >> at & 255u;
        if (gone)
            run_tails(p, gone, slot, at, stage);
        tile_read<enc_format<F>::plain>(stage, v);
        __syncwarp();
        run_next(p, w, &t);
        first = t.start ? 0 : first + TILE_UNITS;
        tile_ask(p, t, stage);
        if (gone != 255u)
            rows_encode<F, BEST>(books, v, desk.out);
        if (fresh)
            to = run_target_whole(p, slot, units, bytes);
        if (t.start)
            unit = run_find(p, (int)t.first, t.left);
        if constexpr (enc_format<F>::plain)
            run_write_plain<F>(p, to, slot, at, v);
        else
            run_write<F>(p, to, slot, at, desk.out);
    }
}

/* ---- the host's side ---- */

template <int F, bool BEST> static void rows_launch(cuda_device *d, const jobs &p, int sides)
{
    constexpr int64_t tables = enc_of<F, BEST>::lines::bytes, desk = sizeof(rows_desk<F>);
    const int64_t room = ((int64_t)d->smem_max - tables) / desk, desks = room < WARPS ? room : WARPS;
    const unsigned h = (unsigned)p.j[0].h, tiles = cuda_blocks(p.j[0].units / h, TILE_UNITS);
    const unsigned blocks = cuda_blocks(d->n_sm, sides), runs = run_count(tiles, h, blocks * (unsigned)desks);
    const size_t bytes = (size_t)(tables + desks * desk);
    cuda_smem(encode_rows_kernel<F, BEST>, bytes);
    const dim3 grid(runs * h < blocks ? runs * h : blocks, (unsigned)sides);
    cuda_launch(d, encode_rows_kernel<F, BEST>, grid, THREADS, bytes, p, tiles / runs, tiles % runs, (int)desks);
}

/* Whose turn it is, by the format's class. */
template <int F> static void rows_of(cuda_device *d, const jobs &p, int sides)
{
    if constexpr (card<F>::cls == CARD_TRELLIS) {
        cuda_trellis_encode(d, p, sides);
    } else if constexpr (card<F>::cls == CARD_SIGN) {
        if (!cuda_sketch_wide_encode(d, p, sides))
            cuda_sketch_encode(d, p, sides);
    } else if constexpr (enc_format<F>::known) {
        if (enc_format<F>::searches && p.j[0].side.encoder == KVANT_ENCODER_BEST)
            rows_launch<F, enc_format<F>::searches>(d, p, sides);
        else
            rows_launch<F, false>(d, p, sides);
    }
}

#define CARD_FORMAT(name, values, bytes, space, cls, codes) \
    { rows_of<FMT_##name>, CARD_##cls == CARD_TRELLIS || CARD_##cls == CARD_SIGN || enc_format<FMT_##name>::known },
static const struct {
    void (*launch)(cuda_device *d, const jobs &p, int sides);
    bool known;
} rows_formats[] = {
#include "cards/lists.inc"
};
#undef CARD_FORMAT

bool cuda_encodes(int fmt)
{
    return fmt >= FMT_COUNT || rows_formats[fmt].known; /* of page scope: encode_pages.cu */
}

void cuda_encode(cuda_device *d, const jobs &p, int sides)
{
    if ((p.j[0].side.layout || p.j[0].side.fmt >= FMT_COUNT) && !p.j[0].seal)
        cuda_tail_write(d, p, sides);
    else
        rows_formats[p.j[0].side.fmt].launch(d, p, sides);
}
