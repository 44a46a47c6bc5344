// The block formats of GGUF, decoded to integer codes and scales (ggml-common.h and ggml-quants.c state them).
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels.hpp"

namespace foredraft {

struct TypeInfo {
  int number;  // in GGUF files
  Format format;
  int block_inputs, block_bytes;
};

constexpr TypeInfo types[] = {
    {0, Format::F32, 1, 4},      {1, Format::F16, 1, 2},       {30, Format::BF16, 1, 2},    {2, Format::Q4_0, 32, 18},
    {3, Format::Q4_1, 32, 20},   {6, Format::Q5_0, 32, 22},    {7, Format::Q5_1, 32, 24},   {8, Format::Q8_0, 32, 34},
    {12, Format::Q4_K, 256, 144}, {13, Format::Q5_K, 256, 176}, {14, Format::Q6_K, 256, 210},
};

// Throws std::invalid_argument if there is none.
inline const TypeInfo& find_type(int number) {
  for (const auto& type : types)
    if (type.number == number) return type;
  throw std::invalid_argument("tensor type " + std::to_string(number) + " is not one that the kernels read");
}

// 32 inputs of a type with a half scale per block.
struct Decoded32 {
  uint8_t codes[32];
  Half scale{}, minimum{};
};

inline Decoded32 decode32(Format format, const uint8_t* p) {
  Decoded32 out;
  std::memcpy(&out.scale, p, 2);
  p += 2;
  if (format == Format::Q8_0) {
    std::memcpy(out.codes, p, 32);
    return out;
  }
  if (format == Format::Q4_1 || format == Format::Q5_1) {
    std::memcpy(&out.minimum, p, 2);
    p += 2;
  }
  uint32_t high = 0;
  if (format == Format::Q5_0 || format == Format::Q5_1) {
    std::memcpy(&high, p, 4);
    p += 4;
  }
  for (int i = 0; i < 16; i++) {
    out.codes[i] = (p[i] & 15) | (high >> i & 1) << 4;
    out.codes[i + 16] = p[i] >> 4 | (high >> (i + 16) & 1) << 4;
  }
  return out;
}

// 256 inputs of a K-quant: Q4_K and Q5_K have 8 scales and minima, Q6_K 16 signed scales.
struct Decoded256 {
  uint8_t codes[256], scales[16]{}, minima[8]{};
  Half super{}, super_minimum{};
};

inline void decode_scales(const uint8_t* p, Decoded256& out) {
  for (int g = 0; g < 4; g++) {
    out.scales[g] = p[g] & 63;
    out.minima[g] = p[g + 4] & 63;
    out.scales[g + 4] = (p[g + 8] & 15) | (p[g] >> 6) << 4;
    out.minima[g + 4] = p[g + 8] >> 4 | (p[g + 4] >> 6) << 4;
  }
}

inline Decoded256 decode_q6_k(const uint8_t* p) {
  Decoded256 out;
  const uint8_t *low = p, *high = p + 128;
  for (int i = 0; i < 256; i += 128, low += 64, high += 32)
    for (int l = 0; l < 32; l++)
      for (int part = 0; part < 4; part++) {
        const int nibble = low[l + 32 * (part % 2)] >> (4 * (part / 2)) & 15;
        out.codes[i + 32 * part + l] = nibble | (high[l] >> (2 * part) & 3) << 4;
      }
  std::memcpy(out.scales, p + 192, 16);
  std::memcpy(&out.super, p + 208, 2);
  return out;
}

inline Decoded256 decode256(Format format, const uint8_t* p) {
  if (format == Format::Q6_K) return decode_q6_k(p);
  Decoded256 out;
  std::memcpy(&out.super, p, 2);
  std::memcpy(&out.super_minimum, p + 2, 2);
  decode_scales(p + 4, out);
  const bool is_five_bits = format == Format::Q5_K;
  const uint8_t *high = p + 16, *low = p + (is_five_bits ? 48 : 16);
  for (int g = 0; g < 8; g++)
    for (int l = 0; l < 32; l++) {
      const int bit = is_five_bits ? high[l] >> g & 1 : 0;
      out.codes[32 * g + l] = (low[32 * (g / 2) + l] >> (4 * (g % 2)) & 15) | bit << 4;
    }
  return out;
}

}  // namespace foredraft
