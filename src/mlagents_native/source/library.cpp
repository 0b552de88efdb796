// Functions that the loader, `mlagents_native/library.py`, calls before it uses a library.
#include <cstdint>

#include "exports.h"

#if defined(_MSC_VER) && defined(_M_X64)
#include <intrin.h>

static bool has_bits(int leaf, int reg, unsigned bits) {
    int of[4];
    __cpuidex(of, leaf, 0);
    return (static_cast<unsigned>(of[reg]) & bits) == bits;
}

static int instruction_sets() {
    constexpr int B = 1, C = 2;
    constexpr unsigned OSXSAVE = 1u << 27, FMA = 1u << 12, AVX2 = 1u << 5;
    constexpr unsigned AVX512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
    if (!has_bits(1, C, OSXSAVE | FMA)) return 0;
    const unsigned long long kept = _xgetbv(0);  // registers that the system saves
    const bool avx2 = (kept & 0x6) == 0x6 && has_bits(7, B, AVX2);
    const bool avx512 = avx2 && (kept & 0xe6) == 0xe6 && has_bits(7, B, AVX512);
    return (avx2 ? 1 : 0) | (avx512 ? 2 : 0);
}
#elif defined(__x86_64__)
static int instruction_sets() {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return (avx2 ? 1 : 0) | (avx512 ? 2 : 0);
}
#else
static int instruction_sets() { return 0; }
#endif

// Returns the instruction sets of this processor beyond the baseline: 1 for AVX2 with FMA, plus 2
// for AVX-512 (F, BW, DQ, VL). The library for the baseline answers for the others.
NATIVE_EXPORT int native_instruction_sets() { return instruction_sets(); }

// Returns the sum of x[i] * y[i].
NATIVE_EXPORT double native_dot(const double *x, const double *y, int64_t n) {
    double sum[8] = {};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; ++lane) sum[lane] += x[i + lane] * y[i + lane];
    for (; i < n; ++i) sum[0] += x[i] * y[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}
