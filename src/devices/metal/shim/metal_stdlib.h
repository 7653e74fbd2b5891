/* metal_stdlib.h: what the kernels may use of MSL 3, as C++17: the shim's <metal_stdlib>, behind shim_abi.h.  It
 * includes no header, so that what MSL does not have is an error here too.  With KVANT_SHIM_CHECK address spaces are
 * those of clang, and nothing runs (tools/check_msl); without it they are empty, and the compiler's calls for accesses
 * go to the shim. */
#ifndef KVANT_SHIM_METAL_STDLIB
#define KVANT_SHIM_METAL_STDLIB

typedef __INT8_TYPE__ int8_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __INT16_TYPE__ int16_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
typedef unsigned int uint;
struct uint3 { uint x, y, z; };
#if defined(__clang__) || defined(__aarch64__)
typedef __fp16 half;
#else
typedef _Float16 half;
#endif
#if defined(__clang__) && defined(__x86_64__) && !defined(KVANT_SHIM_CHECK) /* else a library is called */
#pragma clang attribute push(__attribute__((target("f16c"))), apply_to = function)
#define SHIM_END _Pragma("clang attribute pop")
#else
#define SHIM_END
#endif

#ifdef KVANT_SHIM_CHECK
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2))) const
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant const
#define threadgroup
#endif
#define thread
#define kernel

template <class To, class From> inline To as_type(From v)
{
    static_assert(sizeof(To) == sizeof(From), "as_type: one size");
    return __builtin_bit_cast(To, v);
}

namespace metal {
#define SHIM_ONE(name) inline float name(float v) { return __builtin_##name##f(v); }
SHIM_ONE(exp) SHIM_ONE(log) SHIM_ONE(sin) SHIM_ONE(cos) SHIM_ONE(tanh) SHIM_ONE(sqrt) SHIM_ONE(floor) SHIM_ONE(ceil)
SHIM_ONE(rint) SHIM_ONE(fabs) SHIM_ONE(exp2) SHIM_ONE(log2)
#undef SHIM_ONE
inline float pow(float a, float b) { return __builtin_powf(a, b); }
inline float fmin(float a, float b) { return __builtin_fminf(a, b); }
inline float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline int abs(int v) { return v < 0 ? -v : v; }
#define SHIM_INTEGER(type)                                                                                             \
    inline type min(type a, type b) { return b < a ? b : a; }                                                          \
    inline type max(type a, type b) { return a < b ? b : a; }
SHIM_INTEGER(int32_t) SHIM_INTEGER(uint32_t) SHIM_INTEGER(int64_t) SHIM_INTEGER(uint64_t)
#undef SHIM_INTEGER
inline uint32_t popcount(uint32_t v) { return (uint32_t)__builtin_popcount(v); }
inline int32_t popcount(int32_t v) { return __builtin_popcount((uint32_t)v); }
inline uint32_t clz(uint32_t v) { return v ? (uint32_t)__builtin_clz(v) : 32u; }
}

#define LOCAL_ARRAY(type, name, n) threadgroup type *name = (threadgroup type *)shim_array(sizeof(type) * (n));
#define BARRIER() shim_barrier(0, __LINE__)
#define BARRIER_ALL() shim_barrier(1, __LINE__)

#ifdef KVANT_SHIM_CHECK
__UINTPTR_TYPE__ shim_array(__SIZE_TYPE__ bytes);
void shim_barrier(int device_memory, int line);
void shim_matrix(int kind, int line, float **parts, const void *p, uint64_t stride, int bytes);
#define SHIM_ADDRESS(p) nullptr
#else
#define SHIM_ADDRESS(p) (p)
extern "C" {
__attribute__((visibility("default"))) const shim_hooks *kvant_shim_hooks;
extern __attribute__((visibility("hidden"))) const char __ehdr_start[], _end[];
extern __attribute__((visibility("default"))) const char *const kvant_shim_image[2] = { __ehdr_start, _end };
}

#define SHIM_QUIET extern "C" __attribute__((no_sanitize("thread"), visibility("hidden")))
SHIM_QUIET void *shim_array(__SIZE_TYPE__ bytes)
{
    return kvant_shim_hooks->local(bytes);
}
SHIM_QUIET void shim_barrier(int device_memory, int line)
{
    kvant_shim_hooks->barrier(device_memory, line);
}

SHIM_QUIET void shim_matrix(int kind, int line, float **parts, const void *p, uint64_t stride, int bytes)
{
    kvant_shim_hooks->matrix(kind, line, parts, p, stride, bytes);
}

/* ---- what the compiler calls at each access ---- */

#define SHIM_CALL SHIM_QUIET void
#define SHIM_STACK_RETURNS                                                                                             \
    char here;                                                                                                         \
    const __UINTPTR_TYPE__ at = (__UINTPTR_TYPE__)p;                                                                   \
    const shim_view *view = (const shim_view *)((__UINTPTR_TYPE__)&here / SHIM_REGION * SHIM_REGION);                  \
    if (at - view->stacks < view->stacks_bytes)                                                                        \
        return;
/* Whose accesses change nothing; more than 32 bits: of another moment. */
#define SHIM_CALM(at, view) (view->calm[(at - view->local) / 4] - ((uint64_t)view->moment << 32))
#define SHIM_ASK(n, write)                                                                                             \
    if (n == 4)                                                                                                        \
        kvant_shim_hooks->word(p, write);                                                                              \
    else                                                                                                               \
        kvant_shim_hooks->access(p, n, write);
#define SHIM_READ(name, n, wants)                                                                                      \
    SHIM_CALL name(void *p)                                                                                            \
    {                                                                                                                  \
        SHIM_STACK_RETURNS                                                                                             \
        if (n == 4 && at - view->local < 2 * SHIM_LOCAL) {                                                             \
            const uint64_t whose = SHIM_CALM(at, view);                                                                \
            if (at % wants == 0 && (whose == (uint32_t)view->runs || whose == 0xffffffffu))                           \
                return;                                                                                                \
        } else if (at % wants == 0) {                                                                                  \
            const auto &open = view->open[at / SHIM_PAGE % SHIM_OPEN];                                                 \
            if (at - open.from < open.bytes && at - open.from + n <= open.bytes)                                       \
                return;                                                                                                \
        }                                                                                                              \
        SHIM_ASK(n, 0)                                                                                                 \
    }
#define SHIM_WRITE(name, n)                                                                                            \
    SHIM_CALL name(void *p)                                                                                            \
    {                                                                                                                  \
        SHIM_STACK_RETURNS                                                                                             \
        if (n == 4 && at - view->local < 2 * SHIM_LOCAL && at % 4 == 0 &&                                              \
            SHIM_CALM(at, view) == (uint32_t)view->runs)                                                               \
            return;                                                                                                    \
        SHIM_ASK(n, 1)                                                                                                 \
    }
#define SHIM_ACCESS(n, wants)                                                                                          \
    SHIM_READ(__tsan_read##n, n, wants)                                                                                \
    SHIM_WRITE(__tsan_write##n, n)
#define SHIM_UNALIGNED(n, wants)                                                                                       \
    SHIM_READ(__tsan_unaligned_read##n, n, wants)                                                                      \
    SHIM_WRITE(__tsan_unaligned_write##n, n)
SHIM_ACCESS(1, 1) SHIM_ACCESS(2, 2) SHIM_ACCESS(4, 4) SHIM_ACCESS(8, 8) SHIM_ACCESS(16, 1)
SHIM_UNALIGNED(2, 2) SHIM_UNALIGNED(4, 4) SHIM_UNALIGNED(8, 8) SHIM_UNALIGNED(16, 1)
SHIM_CALL __tsan_read_range(void *p, long n) { kvant_shim_hooks->access(p, (int)n, 0); }
SHIM_CALL __tsan_write_range(void *p, long n) { kvant_shim_hooks->access(p, (int)n, 1); }
SHIM_CALL __tsan_memcpy(void *to, const void *from, long n)
{
    kvant_shim_hooks->access(from, (int)n, 0);
    kvant_shim_hooks->access(to, (int)n, 1);
    __builtin_memcpy(to, from, (__SIZE_TYPE__)n);
}
SHIM_CALL __tsan_init() {}
SHIM_CALL __tsan_func_entry(void *) {}
SHIM_CALL __tsan_func_exit() {}

/* ---- how the shim calls a kernel: with pointers to its arguments, one after the other ---- */

template <class T> struct shim_as { static T of(void *p) { return (T)p; } };
template <class T> struct shim_as<T &> { static T &of(void *p) { return *(T *)p; } };
template <> struct shim_as<uint3> { static uint3 of(void *p) { return *(uint3 *)p; } };
template <> struct shim_as<uint> { static uint of(void *p) { return *(uint *)p; } };
template <class... A> struct shim_call {
    shim_call(void (*f)(A...), A... a) { f(a...); }
};
template <class... A> void shim_start(void (*f)(A...), void **v)
{
    shim_call<A...>{ f, shim_as<A>::of(*v++)... };
}
template <class... A> constexpr int shim_args(void (*)(A...))
{
    return (int)sizeof...(A) - 3;
}
#define SHIM_ENTRY(name)                                                                                               \
    extern "C" {                                                                                                       \
    __attribute__((visibility("default"))) void kvant_shim_entry(void **v) { shim_start(k_##name, v); }                \
    __attribute__((visibility("default"))) extern const int kvant_shim_args = shim_args(k_##name);                     \
    }                                                                                                                  \
    SHIM_END
#endif

/* ---- matrices of 8 x 8, made by the 32 threads of a simdgroup together (shim_matrix.c) ----
 * A thread has two elements; which, no kernel may know.  Stores and additions are in float. */

namespace metal {
enum { SHIM_LOAD, SHIM_STORE, SHIM_MULTIPLY };         /* shim.h has them too */
template <class T, int columns, int rows> struct simdgroup_matrix {
    static_assert(columns == 8 && rows == 8, "simdgroup matrices are 8 x 8");
    float shim_part[2];
    simdgroup_matrix() : shim_part{ __builtin_nanf(""), __builtin_nanf("") } {}
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;

template <class T, int columns, int rows>
inline simdgroup_matrix<T, columns, rows> make_filled_simdgroup_matrix(float v)
{
    simdgroup_matrix<T, columns, rows> m;
    m.shim_part[0] = m.shim_part[1] = v;
    return m;
}

template <class A, class B>
inline void simdgroup_multiply_accumulate(simdgroup_float8x8 &d, simdgroup_matrix<A, 8, 8> &a,
                                          simdgroup_matrix<B, 8, 8> &b, simdgroup_float8x8 &c,
                                          int line = __builtin_LINE())
{
    float *parts[4] = { d.shim_part, a.shim_part, b.shim_part, c.shim_part };
    shim_matrix(SHIM_MULTIPLY, line, parts, nullptr, 0, 0);
}

#define SHIM_MOVES(space)                                                                                              \
    template <class T>                                                                                                 \
    inline void simdgroup_load(simdgroup_matrix<T, 8, 8> &d, const space T *p, uint64_t elements_per_row = 8,          \
                               int line = __builtin_LINE())                                                            \
    {                                                                                                                  \
        float *parts[4] = { d.shim_part, d.shim_part, d.shim_part, d.shim_part };                                      \
        shim_matrix(SHIM_LOAD, line, parts, SHIM_ADDRESS(p), elements_per_row, sizeof(T));                             \
    }                                                                                                                  \
    inline void simdgroup_store(simdgroup_float8x8 &a, space float *p, uint64_t elements_per_row = 8,                  \
                                int line = __builtin_LINE())                                                           \
    {                                                                                                                  \
        float *parts[4] = { a.shim_part, a.shim_part, a.shim_part, a.shim_part };                                      \
        shim_matrix(SHIM_STORE, line, parts, SHIM_ADDRESS(p), elements_per_row, 4);                                    \
    }
SHIM_MOVES(threadgroup)
#ifdef KVANT_SHIM_CHECK                                /* else the same function: spaces are empty */
SHIM_MOVES(device)
#endif
#undef SHIM_MOVES
}
#endif
