// Vectors of 256 bits with AVX2, FMA and F16C; see lanes_portable.hpp for what the functions of floats mean.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "../kernels.hpp"

namespace foredraft {
namespace {

struct Avx2Lanes {
  static constexpr int width = 8;
  using F = __m256;
  using I = __m256i;

  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load(const Half* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static F load(const BFloat* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static void store(Half* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static F broadcast(float x) { return _mm256_set1_ps(x); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F abs(F v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.f), v); }
  static F select(F v, int first, int low, int high, F other) {
    const __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
    const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(low), lane);
    const __m256i inside = _mm256_andnot_si256(below, _mm256_cmpgt_epi32(_mm256_set1_epi32(high), lane));
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(inside));
  }
  static F scale_by_power(F v, F n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  static F round(F v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static float sum(F v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static float max_lane(F v) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }
  static void store_codes(int8_t* out, const float* x, float factor) {
    const __m256i words = _mm256_packs_epi32(code8(x, factor), code8(x + 8, factor));
    const __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
    const __m128i bytes = _mm_packs_epi16(_mm_unpacklo_epi64(low, high), _mm_unpackhi_epi64(low, high));
    // packs works per 128-bit lane: words holds 0-3, 8-11 | 4-7, 12-15
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
  }
  static void pair_sums(const int8_t* codes, int (&sums)[2]) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
    pairs = _mm_add_epi16(pairs, _mm_shuffle_epi32(pairs, 0x4e));
    pairs = _mm_add_epi16(pairs, _mm_shuffle_epi32(pairs, 0xb1));
    sums[0] = static_cast<int16_t>(_mm_extract_epi16(pairs, 0));
    sums[1] = static_cast<int16_t>(_mm_extract_epi16(pairs, 1));
  }

  static I zero() { return _mm256_setzero_si256(); }
  static I bytes(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static I load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  // The four bytes at p in every 32-bit lane.
  static I broadcast4(const void* p) {
    int32_t four;
    std::memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
  }
  static I both(I a, I b) { return _mm256_and_si256(a, b); }
  static I merge(I a, I b, I mask) { return _mm256_or_si256(a, _mm256_and_si256(b, mask)); }
  // 16-bit lanes n bits to the left, to the right where n is negative.
  template <int n>
  static I shift(I v) {
    if constexpr (n > 0) return _mm256_slli_epi16(v, n);
    if constexpr (n < 0) return _mm256_srli_epi16(v, -n);
    return v;
  }
  static I add(I a, I b) { return _mm256_add_epi32(a, b); }
  static I widen(const void* p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
  // 32-bit lanes += products of their 16-bit pairs.
  static I add_pairs(I sum, I a, I b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
  static F to_float(I v) { return _mm256_cvtepi32_ps(v); }

 private:
  static __m256i code8(const float* x, float factor) {
    const __m256 v = _mm256_max_ps(_mm256_mul_ps(load(x), broadcast(factor)), broadcast(-127.f));
    return _mm256_cvtps_epi32(_mm256_min_ps(v, broadcast(127.f)));
  }
};

}  // namespace
}  // namespace foredraft
