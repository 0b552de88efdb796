// Vectors of floats in the widest registers that this compilation may use.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__AVX2__)  // Microsoft's flag for it includes FMA
#include <immintrin.h>
#elif defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512F__)
struct Floats {
    static constexpr int64_t LANES = 16;
    __m512 of;
    static Floats all(float x) { return {_mm512_set1_ps(x)}; }
    static Floats load(const float *p) { return {_mm512_loadu_ps(p)}; }
    void store(float *p) const { _mm512_storeu_ps(p, of); }
};
inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.of, b.of)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.of, b.of)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.of, b.of)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.of, b.of)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.of, b.of, c.of)}; }
inline Floats root(Floats a) { return {_mm512_sqrt_ps(a.of)}; }
// If one operand is NaN, the result is the second operand.
inline Floats larger(Floats a, Floats b) { return {_mm512_max_ps(a.of, b.of)}; }
inline Floats smaller(Floats a, Floats b) { return {_mm512_min_ps(a.of, b.of)}; }
// Returns 2 to the power of the nearest whole number, which is written to `whole`.
inline Floats power_of_two(Floats x, Floats &whole) {
    const __m512i n = _mm512_cvtps_epi32(x.of);
    whole.of = _mm512_cvtepi32_ps(n);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23))};
}
#elif defined(__AVX2__)
struct Floats {
    static constexpr int64_t LANES = 8;
    __m256 of;
    static Floats all(float x) { return {_mm256_set1_ps(x)}; }
    static Floats load(const float *p) { return {_mm256_loadu_ps(p)}; }
    void store(float *p) const { _mm256_storeu_ps(p, of); }
};
inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.of, b.of)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.of, b.of)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.of, b.of)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm256_div_ps(a.of, b.of)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {_mm256_fmadd_ps(a.of, b.of, c.of)}; }
inline Floats root(Floats a) { return {_mm256_sqrt_ps(a.of)}; }
inline Floats larger(Floats a, Floats b) { return {_mm256_max_ps(a.of, b.of)}; }
inline Floats smaller(Floats a, Floats b) { return {_mm256_min_ps(a.of, b.of)}; }
inline Floats power_of_two(Floats x, Floats &whole) {
    const __m256i n = _mm256_cvtps_epi32(x.of);
    whole.of = _mm256_cvtepi32_ps(n);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23))};
}
#elif defined(__SSE2__) || defined(_M_X64)
struct Floats {
    static constexpr int64_t LANES = 4;
    __m128 of;
    static Floats all(float x) { return {_mm_set1_ps(x)}; }
    static Floats load(const float *p) { return {_mm_loadu_ps(p)}; }
    void store(float *p) const { _mm_storeu_ps(p, of); }
};
inline Floats operator+(Floats a, Floats b) { return {_mm_add_ps(a.of, b.of)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm_sub_ps(a.of, b.of)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm_mul_ps(a.of, b.of)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm_div_ps(a.of, b.of)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
inline Floats root(Floats a) { return {_mm_sqrt_ps(a.of)}; }
inline Floats larger(Floats a, Floats b) { return {_mm_max_ps(a.of, b.of)}; }
inline Floats smaller(Floats a, Floats b) { return {_mm_min_ps(a.of, b.of)}; }
inline Floats power_of_two(Floats x, Floats &whole) {
    const __m128i n = _mm_cvtps_epi32(x.of);
    whole.of = _mm_cvtepi32_ps(n);
    return {_mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(n, _mm_set1_epi32(127)), 23))};
}
#elif defined(__ARM_NEON) && defined(__aarch64__)
struct Floats {
    static constexpr int64_t LANES = 4;
    float32x4_t of;
    static Floats all(float x) { return {vdupq_n_f32(x)}; }
    static Floats load(const float *p) { return {vld1q_f32(p)}; }
    void store(float *p) const { vst1q_f32(p, of); }
};
inline Floats operator+(Floats a, Floats b) { return {vaddq_f32(a.of, b.of)}; }
inline Floats operator-(Floats a, Floats b) { return {vsubq_f32(a.of, b.of)}; }
inline Floats operator*(Floats a, Floats b) { return {vmulq_f32(a.of, b.of)}; }
inline Floats operator/(Floats a, Floats b) { return {vdivq_f32(a.of, b.of)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {vfmaq_f32(c.of, a.of, b.of)}; }
inline Floats root(Floats a) { return {vsqrtq_f32(a.of)}; }
inline Floats larger(Floats a, Floats b) { return {vmaxq_f32(a.of, b.of)}; }  // NaN if one is
inline Floats smaller(Floats a, Floats b) { return {vminq_f32(a.of, b.of)}; }
inline Floats power_of_two(Floats x, Floats &whole) {
    const int32x4_t n = vcvtnq_s32_f32(x.of);
    whole.of = vcvtq_f32_s32(n);
    return {vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23))};
}
#else  // any other processor
struct Floats {
    static constexpr int64_t LANES = 1;
    float of;
    static Floats all(float x) { return {x}; }
    static Floats load(const float *p) { return {*p}; }
    void store(float *p) const { *p = of; }
};
inline Floats operator+(Floats a, Floats b) { return {a.of + b.of}; }
inline Floats operator-(Floats a, Floats b) { return {a.of - b.of}; }
inline Floats operator*(Floats a, Floats b) { return {a.of * b.of}; }
inline Floats operator/(Floats a, Floats b) { return {a.of / b.of}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {a.of * b.of + c.of}; }
inline Floats root(Floats a) { return {std::sqrt(a.of)}; }
inline Floats larger(Floats a, Floats b) { return {a.of > b.of ? a.of : b.of}; }
inline Floats smaller(Floats a, Floats b) { return {a.of < b.of ? a.of : b.of}; }
inline Floats power_of_two(Floats x, Floats &whole) {
    whole.of = std::nearbyint(x.of);
    return {std::ldexp(1.0f, static_cast<int>(whole.of))};
}
#endif

// Returns the sum of all lanes, always in the same order.
inline float total(Floats a) {
    float each[Floats::LANES], sum = 0;
    a.store(each);
    for (float one : each) sum += one;
    return sum;
}

// Writes the transpose of a 4 x 4 block; strides are in floats.
inline void transpose_block(const float *from, int64_t from_stride, float *to, int64_t to_stride) {
#if defined(__SSE2__) || defined(_M_X64)
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_stride);
    __m128 c = _mm_loadu_ps(from + 2 * from_stride), d = _mm_loadu_ps(from + 3 * from_stride);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_stride, b);
    _mm_storeu_ps(to + 2 * to_stride, c);
    _mm_storeu_ps(to + 3 * to_stride, d);
#else
    for (int64_t i = 0; i < 4; ++i)
        for (int64_t j = 0; j < 4; ++j) to[j * to_stride + i] = from[i * from_stride + j];
#endif
}

// Writes the transpose (n_columns, n_rows) of an (n_rows, n_columns) matrix.
inline void transpose_matrix(const float *from, int64_t from_stride, int64_t n_rows,
                             int64_t n_columns, float *to, int64_t to_stride) {
    const int64_t whole_rows = n_rows / 4 * 4, whole_columns = n_columns / 4 * 4;
    for (int64_t i = 0; i < whole_rows; i += 4)
        for (int64_t j = 0; j < whole_columns; j += 4)
            transpose_block(from + i * from_stride + j, from_stride, to + j * to_stride + i,
                            to_stride);
    for (int64_t i = 0; i < n_rows; ++i)
        for (int64_t j = i < whole_rows ? whole_columns : 0; j < n_columns; ++j)
            to[j * to_stride + i] = from[i * from_stride + j];
}

// Returns exp(x) to about one unit in the last place; NaN stays NaN. Below -87 the result is
// exp(-87), above 88 it is exp(88). The polynomial is that of the Cephes library.
inline Floats exponential(Floats x) {
    x = smaller(Floats::all(88.0f), larger(Floats::all(-87.0f), x));
    Floats n;
    const Floats scale = power_of_two(x * Floats::all(1.44269504f), n);
    Floats r = fma(n, Floats::all(-0.693359375f), x);
    r = fma(n, Floats::all(2.12194440e-4f), r);
    Floats p = Floats::all(1.9875691500e-4f);
    p = fma(p, r, Floats::all(1.3981999507e-3f));
    p = fma(p, r, Floats::all(8.3334519073e-3f));
    p = fma(p, r, Floats::all(4.1665795894e-2f));
    p = fma(p, r, Floats::all(1.6666665459e-1f));
    p = fma(p, r, Floats::all(5.0000001201e-1f));
    // NaN passes through the polynomial; converted to a whole number it would be lost.
    return fma(p, r * r, r + Floats::all(1.0f)) * scale;
}

}  // namespace
