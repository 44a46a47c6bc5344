// Vectors of 256 bits with AVX-VNNI as well.
#pragma once

#include "lanes_avx2.hpp"

namespace foredraft {
namespace {

struct AvxVnniLanes : Avx2Lanes {
  template <int n>
  static I shift32(I v) {
    if constexpr (n > 0) return _mm256_slli_epi32(v, n);
    return _mm256_srai_epi32(v, -n);
  }
  static I flip_signs(I v) { return _mm256_xor_si256(v, bytes(-128)); }
  static I multiply(I a, I b) { return _mm256_mullo_epi32(a, b); }
  // Bytes, one for each lane, as 32-bit numbers.
  template <bool is_signed>
  static I spread(const void* p) {
    const __m128i bytes = _mm_loadl_epi64(static_cast<const __m128i*>(p));
    return is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
  }
  static I add_pairs(I sum, I a, I b) { return _mm256_dpwssd_epi32(sum, a, b); }
  static I add_dots(I sum, I weights, I activations) { return _mm256_dpbusd_epi32(sum, weights, activations); }
};

}  // namespace
}  // namespace foredraft
