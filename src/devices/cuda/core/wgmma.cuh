/* wgmma.cuh: the warpgroup's matrix instructions: 64 rows, N columns, halves or bf16 with f32 sums.  A lane's sums
 * c[N/8][4] are those of mma.m16n8k16 for 16 rows of its warp, column group by column group. */
#ifndef KVANT_CUDA_WGMMA_CUH
#define KVANT_CUDA_WGMMA_CUH

#include "devices/cuda/core/arch.cuh"

/* The value in place k of a product whose lanes have neighbours: a lane's four places of a step, two and two, are four
 * values one behind the other. */
static __host__ __device__ __forceinline__ int group_value(int k)
{
    return k / 16 * 16 + k % 8 / 2 * 4 + k % 16 / 8 * 2 + k % 2;
}

/* An operand in shared memory whose rows are 128 bytes, swizzled, 8 rows 1024 bytes apart; lead: bytes between panels
 * of 64 columns (MN-major operands only). */
static __device__ __forceinline__ uint64_t swizzled(uint32_t at, uint32_t lead)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(lead >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

/* The compiler may not move the sums across. */
template <int N> static __device__ __forceinline__ void group_pin(float (*c)[4])
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        asm volatile("" : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])::"memory");
}

/* Before the first product into c.  Every product that begins anew wants an array of its own: ptxas (13.0) has taken
 * two in one array, one after the other, for one. */
template <int N> static __device__ __forceinline__ void group_open(float (*c)[4])
{
    group_pin<N>(c);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* The products since the last one of these are a group. */
static __device__ __forceinline__ void group_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits for all groups but the last OPEN; c: sums of a group that is over then. */
template <int N, int OPEN> static __device__ __forceinline__ void group_wait(float (*c)[4])
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(OPEN) : "memory");
    group_pin<N>(c);
}

/* Waits for all products. */
template <int N> static __device__ __forceinline__ void group_close(float (*c)[4])
{
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    group_pin<N>(c);
}

/* A warp's sums to memory, [column][COLUMN]; part: of row 0 of the first warp. */
template <int N, int COLUMN> static __device__ __forceinline__ void group_leave(float (*c)[4], float *part)
{
    const int lane = threadIdx.x % 32;
    part += 16 * (threadIdx.x / 32) + lane / 4 + 2 * (lane % 4) * COLUMN;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            part[(8 * j + i % 2) * COLUMN + 8 * (i / 2)] = c[j][i];
}

#define SUMS_4(c, j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define SUMS_16(c, j) SUMS_4(c, j), SUMS_4(c, j + 1), SUMS_4(c, j + 2), SUMS_4(c, j + 3)
#define SUMS_32(c) SUMS_16(c, 0)
#define SUMS_64(c) SUMS_16(c, 0), SUMS_16(c, 4)
#define SUMS_128(c) SUMS_64(c), SUMS_16(c, 8), SUMS_16(c, 12)
#define NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_64 NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_128 \
    NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
             "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
/* width, type; then the names of what follows the sums: operands, and the immediates. */
#define GROUP_MMA(n, type, operands, add, majors) \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" \
    NAMES_##n "}, " operands ", p, 1, 1, " majors ";\n}"

/* c += a b, or c = a b where not ADD, halves or bf16: a in registers, as of mma.m16n8k16; b in shared memory, K-major
 * (MAJOR 0) or MN-major (1). */
#define GROUP_MMA_REGS_32(type)                                                                                        \
    asm volatile(GROUP_MMA(32, type, "{%16, %17, %18, %19}, %20", "%21", "%22")                                        \
                 : SUMS_32(c)                                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(MAJOR))
#define GROUP_MMA_REGS_64(type)                                                                                        \
    asm volatile(GROUP_MMA(64, type, "{%32, %33, %34, %35}, %36", "%37", "%38")                                        \
                 : SUMS_64(c)                                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(MAJOR))
#define GROUP_MMA_REGS_128(type)                                                                                       \
    asm volatile(GROUP_MMA(128, type, "{%64, %65, %66, %67}, %68", "%69", "%70")                                       \
                 : SUMS_128(c)                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(MAJOR))

template <int N, int MAJOR, int ADD = 1, bool BF16 = false>
static __device__ __forceinline__ void group_mma_regs(float (*c)[4], const uint32_t *a, uint64_t b, int add = ADD)
{
    static_assert(N == 64 || N == 128 || (N == 32 && BF16));
    if constexpr (N == 32)
        GROUP_MMA_REGS_32("bf16");
    else if constexpr (N == 64 && BF16)
        GROUP_MMA_REGS_64("bf16");
    else if constexpr (N == 64)
        GROUP_MMA_REGS_64("f16");
    else if constexpr (BF16)
        GROUP_MMA_REGS_128("bf16");
    else
        GROUP_MMA_REGS_128("f16");
}

/* As group_mma_regs, with a in shared memory too, both K-major. */
template <int N> static __device__ __forceinline__ void group_mma_placed(float (*c)[4], uint64_t a, uint64_t b)
{
    static_assert(N == 64);
    asm volatile(GROUP_MMA(64, "f16", "%32, %33", "1", "0, 0") : SUMS_64(c) : "l"(a), "l"(b));
}

/* c = a b, or c += a b where `add`, in bf16, both in shared memory and K-major. */
template <int N> static __device__ __forceinline__ void group_mma_rows(float (*c)[4], uint64_t a, uint64_t b, int add)
{
    static_assert(N == 32 || N == 64);
    if constexpr (N == 32)
        asm volatile(GROUP_MMA(32, "bf16", "%16, %17", "%18", "0, 0") : SUMS_32(c) : "l"(a), "l"(b), "r"(add));
    else
        asm volatile(GROUP_MMA(64, "bf16", "%32, %33", "%34", "0, 0") : SUMS_64(c) : "l"(a), "l"(b), "r"(add));
}

/* c = a b, or c += a b where ADD, in bf16, both in shared memory; a's major as MAJOR, b MN-major. */
template <int N, int MAJOR, int ADD>
static __device__ __forceinline__ void group_mma_bf16(float (*c)[4], uint64_t a, uint64_t b)
{
    static_assert(N == 32 || N == 64);
    if constexpr (N == 32)
        asm volatile(GROUP_MMA(32, "bf16", "%16, %17", "%18", "%19, 1")
                     : SUMS_32(c)
                     : "l"(a), "l"(b), "n"(ADD), "n"(MAJOR));
    else
        asm volatile(GROUP_MMA(64, "bf16", "%32, %33", "%34", "%35, 1")
                     : SUMS_64(c)
                     : "l"(a), "l"(b), "n"(ADD), "n"(MAJOR));
}

#undef SUMS_4
#undef SUMS_16
#undef SUMS_32
#undef SUMS_64
#undef SUMS_128
#undef NAMES_32
#undef NAMES_64
#undef NAMES_128
#undef GROUP_MMA
#undef GROUP_MMA_REGS_32
#undef GROUP_MMA_REGS_64
#undef GROUP_MMA_REGS_128

#endif
