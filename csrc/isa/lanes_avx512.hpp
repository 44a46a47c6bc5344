// Vectors of 512 bits with AVX-512 (F, BW, DQ, VL) and VNNI; see lanes_portable.hpp and lanes_avx2.hpp for what the
// functions mean.
#pragma once

#include "lanes_avx2.hpp"

namespace foredraft {
namespace {

struct Avx512Lanes {
  static constexpr int width = 16;
  using F = __m512;
  using I = __m512i;

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load(const Half* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static F load(const BFloat* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static void store(Half* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static F broadcast(float x) { return _mm512_set1_ps(x); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F v) { return _mm512_abs_ps(v); }
  static F select(F v, int first, int low, int high, F other) {
    const I lane = _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                    _mm512_set1_epi32(first));
    const __mmask16 from = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(low));
    return _mm512_mask_mov_ps(other, _mm512_mask_cmplt_epi32_mask(from, lane, _mm512_set1_epi32(high)), v);
  }
  static F scale_by_power(F v, F n) {
    const I exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_mul_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23)));
  }
  static F round(F v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static float sum(F v) { return Avx2Lanes::sum(_mm256_add_ps(_mm512_castps512_ps256(v), upper(v))); }
  static float max_lane(F v) { return Avx2Lanes::max_lane(_mm256_max_ps(_mm512_castps512_ps256(v), upper(v))); }
  static void store_codes(int8_t* out, const float* x, float factor) {
    const F v = _mm512_max_ps(_mm512_mul_ps(load(x), broadcast(factor)), broadcast(-127.f));
    const I codes = _mm512_cvtps_epi32(_mm512_min_ps(v, broadcast(127.f)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtsepi32_epi8(codes));
  }
  static void pair_sums(const int8_t* codes, int (&sums)[2]) { Avx2Lanes::pair_sums(codes, sums); }

  static I zero() { return _mm512_setzero_si512(); }
  static I bytes(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static I load_bytes(const void* p) { return _mm512_loadu_si512(p); }
  static I broadcast4(const void* p) {
    int32_t four;
    std::memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
  }
  static I both(I a, I b) { return _mm512_and_si512(a, b); }
  static I merge(I a, I b, I mask) { return _mm512_ternarylogic_epi32(a, b, mask, 0xf8); }
  template <int n>
  static I shift(I v) {
    if constexpr (n > 0) return _mm512_slli_epi16(v, n);
    if constexpr (n < 0) return _mm512_srli_epi16(v, -n);
    return v;
  }
  template <int n>
  static I shift32(I v) {
    if constexpr (n > 0) return _mm512_slli_epi32(v, n);
    return _mm512_srai_epi32(v, -n);
  }
  static I flip_signs(I v) { return _mm512_xor_si512(v, bytes(-128)); }
  static I add(I a, I b) { return _mm512_add_epi32(a, b); }
  static I multiply(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static I widen(const void* p) { return _mm512_cvtepu8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
  template <bool is_signed>
  static I spread(const void* p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
  }
  static I add_pairs(I sum, I a, I b) { return _mm512_dpwssd_epi32(sum, a, b); }
  static I add_dots(I sum, I weights, I activations) { return _mm512_dpbusd_epi32(sum, weights, activations); }
  static F to_float(I v) { return _mm512_cvtepi32_ps(v); }

 private:
  static __m256 upper(F v) { return _mm512_extractf32x8_ps(v, 1); }
};

}  // namespace
}  // namespace foredraft
