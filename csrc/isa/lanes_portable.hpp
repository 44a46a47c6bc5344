// Vectors of floats in plain C++ (GCC's and Clang's vector types), the same interface as every lanes_*.hpp.
#pragma once

#include <cmath>
#include <cstring>

#include "../half.hpp"

namespace foredraft {
namespace {

struct PortableLanes {
  static constexpr int width = 8;
  typedef float F __attribute__((vector_size(32)));
  typedef int32_t I __attribute__((vector_size(32)));

  static F load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static F load(const Half* p) {
    F v;
    for (int i = 0; i < width; i++) v[i] = to_float(p[i]);
    return v;
  }
  static F load(const BFloat* p) {
    F v;
    for (int i = 0; i < width; i++) v[i] = to_float(p[i]);
    return v;
  }
  static void store(float* p, F v) { std::memcpy(p, &v, sizeof v); }
  static void store(Half* p, F v) {
    for (int i = 0; i < width; i++) p[i] = foredraft::to_half(v[i]);
  }
  static F broadcast(float x) { return F{} + x; }
  static F fma(F a, F b, F c) { return a * b + c; }
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F abs(F v) { return v < 0 ? -v : v; }
  // Where lane + first lies in [low, high) the value, else `other`.
  static F select(F v, int first, int low, int high, F other) {
    for (int i = 0; i < width; i++) v[i] = first + i >= low && first + i < high ? v[i] : other[i];
    return v;
  }
  // v * 2^n for whole n in -126..127.
  static F scale_by_power(F v, F n) { return v * (F)((__builtin_convertvector(n, I) + 127) << 23); }
  static F round(F v) {
    const F magic = broadcast(12582912.f);  // 1.5 * 2^23: the sum has no fraction bits left
    return (v + magic) - magic;
  }
  static float sum(F v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
  static float max_lane(F v) {
    float most = v[0];
    for (int i = 1; i < width; i++) most = v[i] > most ? v[i] : most;
    return most;
  }
  // 16 codes: x * factor rounded to nearest even and clamped to -127..127 (not-a-number becomes -127).
  static void store_codes(int8_t* out, const float* x, float factor) {
    for (int i = 0; i < 16; i++) {
      float v = x[i] * factor;
      v = v > -127.f ? v : -127.f;
      out[i] = static_cast<int8_t>(std::nearbyint(v < 127.f ? v : 127.f));
    }
  }
  // Sums of 16 codes: inputs 4i and 4i + 1 in the first number, 4i + 2 and 4i + 3 in the second.
  static void pair_sums(const int8_t* codes, int (&sums)[2]) {
    sums[0] = sums[1] = 0;
    for (int i = 0; i < 16; i++) sums[i / 2 % 2] += codes[i];
  }
};

}  // namespace
}  // namespace foredraft
