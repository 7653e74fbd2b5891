/* arch.cuh: the only place that knows compute capabilities: what a copy to shared memory, a barrier and a step of the
 * tensor cores are on each, and what kernels and launches ask about them.
 *
 * Kernels come in two makes.  ARCH_80: cp.async and mma.sync, which every GPU from 8.0 on has.  ARCH_90: bulk copies
 * that count on mbarriers, wgmma (wgmma.cuh), clusters: 9.0 alone has them all.  The host chooses (arch.cu), by what
 * the GPU has or KVANT_CUDA_MASK leaves of it. */
#ifndef KVANT_CUDA_ARCH_CUH
#define KVANT_CUDA_ARCH_CUH

#include <stdint.h>

enum arch_make { ARCH_80, ARCH_90 };

/* The code that is being compiled may use these; 0 on the host's pass. */
#if defined(__CUDA_ARCH__)
#define ARCH_GROUPS (__CUDA_ARCH__ == 900) /* wgmma, and clusters that kernels are written for */
#define ARCH_BULK (__CUDA_ARCH__ >= 900)   /* bulk copies, launches that begin before the last one's end */
#define ARCH_E4M3 (__CUDA_ARCH__ >= 890)   /* an instruction for e4m3 */
#else
#define ARCH_GROUPS 0
#define ARCH_BULK 0
#define ARCH_E4M3 0
#endif

/* Returns true if kernels of a make have a body in this pass. */
static __host__ __device__ constexpr bool arch_has(int make)
{
#if defined(__CUDA_ARCH__)
    return make == ARCH_80 || ARCH_GROUPS;
#else
    return false;
#endif
}

/* pdl_wait: everything that earlier launches wrote is there; before it only weights and arguments may be read, and
 * nothing written.  pdl_go: the next launch may start its blocks; what it may read is still decided by its pdl_wait. */
static __device__ __forceinline__ void pdl_wait(void)
{
#if ARCH_BULK
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void pdl_go(void)
{
#if ARCH_BULK
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void bar_init(uint32_t bar, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

/* Makes initialised mbarriers visible to the copy engine. */
static __device__ __forceinline__ void bar_publish(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void bar_wait(uint32_t bar, uint32_t parity)
{
    asm volatile(
        "{\n.reg .pred p;\nw: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra w;\n}\n" ::"r"(bar),
        "r"(parity)
        : "memory");
}

static __device__ __forceinline__ void bar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

static __device__ __forceinline__ void bar_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

/* One lane: bytes from global memory (16-byte aligned) to shared memory; bar counts them. */
static __device__ __forceinline__ void bulk_start(uint32_t to, const void *from, uint32_t bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

/* Whole warp: one lane asks for bytes; bar's phase ends when they are there. */
static __device__ __forceinline__ void warp_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t bar)
{
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
                 "@p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%3], %2;\n"
                 "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n}" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

/* One lane: brings bytes (16-byte aligned) to the L2. */
static __device__ __forceinline__ void bulk_warm(const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/* Two sources, one behind the other; bar's phase ends when they are there. */
static __device__ __forceinline__ void bulk_copy_two(uint32_t to, const void *a, uint32_t a_bytes, const void *b,
                                                     uint32_t b_bytes, uint32_t bar)
{
    bar_expect(bar, a_bytes + b_bytes);
    bulk_start(to, a, a_bytes, bar);
    bulk_start(to + a_bytes, b, b_bytes, bar);
}

/* 16 bytes from global to shared memory, or zeros, asynchronously; groups of copies; waits for all but N groups. */
static __device__ __forceinline__ void async_copy16(uint32_t to, const void *from, bool live)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(live ? 16 : 0) : "memory");
}

static __device__ __forceinline__ void async_copy16_all(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ void async_copy4(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ void async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> static __device__ __forceinline__ void async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* An arrival at the mbarrier when this thread's copies so far are there. */
static __device__ __forceinline__ void bar_behind_copies(uint32_t bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

/* This thread's stores to shared memory are seen by the copy engine and by wgmma. */
static __device__ __forceinline__ void proxy_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The cluster: its blocks, this one's number. */
static __device__ __forceinline__ uint32_t cluster_blocks(void)
{
    uint32_t n;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
    return n;
}

static __device__ __forceinline__ uint32_t cluster_rank(void)
{
    uint32_t n;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(n));
    return n;
}

/* All threads of all blocks of the cluster: what each wrote before it arrived, all read after they have waited. */
static __device__ __forceinline__ void cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

static __device__ __forceinline__ void cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

static __device__ __forceinline__ void cluster_meet(void)
{
    cluster_arrive();
    cluster_wait();
}

/* Returns this place in the shared memory of block `rank` of the cluster. */
static __device__ __forceinline__ const float *of_block(const float *p, uint32_t rank)
{
    uint64_t to;
    asm("mapa.u64 %0, %1, %2;" : "=l"(to) : "l"(p), "r"(rank));
    return (const float *)to;
}

/* v to a place in the shared memory of block `rank` of the cluster, whose mbarrier `bar` counts its bytes; both named
 * as in this block. */
static __device__ __forceinline__ void store_to_block(uint32_t at, float v, uint32_t bar, uint32_t rank)
{
    asm volatile("{\n.reg .b32 a, b;\nmapa.shared::cluster.u32 a, %0, %3;\nmapa.shared::cluster.u32 b, %2, %3;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [a], %1, [b];\n}" ::"r"(at),
                 "r"(__float_as_uint(v)), "r"(bar), "r"(rank)
                 : "memory");
}

/* bar_wait for arrivals from other blocks of the cluster, and for what they store. */
static __device__ __forceinline__ void bar_wait_cluster(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nw: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra w;\n}\n" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}

/* Brings a line of global memory to the L1. */
static __device__ __forceinline__ void warm_line(const void *from)
{
    asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}

/* 16 bits from shared memory, FROM bytes behind `at`; of a table, which does not change. */
template <int FROM> static __device__ __forceinline__ uint32_t shared_half(uint32_t at)
{
    uint32_t v;
    asm("ld.shared.u16 %0, [%1 + %2];" : "=r"(v) : "r"(at), "n"(FROM));
    return v;
}

/* c[16x8] += a[16x16] b[16x8], halves with f32 sums. */
static __device__ __forceinline__ void mma16816(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c[16x8] += a[16x8] b[8x8], halves with f32 sums. */
static __device__ __forceinline__ void mma1688(float *c, uint32_t a0, uint32_t a1, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
}

/* c[16x8] += a[16x16] b[16x8], bf16 with f32 sums. */
static __device__ __forceinline__ void mma_bf16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c[16x8] += number of bits that are set in both rows of a[16x256] and columns of b[256x8]. */
static __device__ __forceinline__ void mma168256(int *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Transposes an 8x8 matrix of halves spread over the warp. */
static __device__ __forceinline__ uint32_t transpose8(uint32_t x)
{
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* Four 8x8 matrices of 16-bit values from shared memory; lane i names row i % 8 of matrix i / 8.  TRANSPOSED: a lane
 * gets of a column what it else gets of a row. */
template <bool TRANSPOSED> static __device__ __forceinline__ void load_matrices(uint32_t *x, uint32_t at)
{
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(at)
                     : "memory");
}

#endif
