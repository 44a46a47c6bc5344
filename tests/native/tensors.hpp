// Random tensors as a GGUF file has them, and what they mean.
#pragma once

#include <vector>

#include "check.hpp"
#include "gguf_types.hpp"
#include "half.hpp"

namespace foredraft::tests {

// Where a block has half-precision numbers, which must not be random bits.
inline std::vector<int> half_offsets(Format format) {
  switch (format) {
    case Format::Q4_1: case Format::Q5_1: case Format::Q4_K: case Format::Q5_K: return {0, 2};
    case Format::Q6_K: return {208};
    default: return {0};
  }
}

// [outputs, inputs] in blocks: every bit of the codes is used, scales are of ordinary size.
inline std::vector<uint8_t> random_tensor(const TypeInfo& type, int outputs, int inputs, Random& random) {
  std::vector<uint8_t> data(static_cast<size_t>(outputs) * (inputs / type.block_inputs) * type.block_bytes);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random.below(256));
  for (size_t at = 0; at < data.size(); at += type.block_bytes) {
    const float number = random.number();
    if (type.format == Format::F32) {
      std::memcpy(&data[at], &number, 4);
    } else if (type.format == Format::BF16) {
      std::memcpy(&data[at], reinterpret_cast<const char*>(&number) + 2, 2);
    } else {
      for (const int offset : half_offsets(type.format)) {
        const Half half = to_half(random.number() / 64);
        std::memcpy(&data[at + offset], &half, 2);
      }
    }
  }
  return data;
}

inline void decode_block(const TypeInfo& type, const uint8_t* block, double* out) {
  const Format format = type.format;
  if (type.block_inputs == 1) {
    float number;
    Half half;
    BFloat bfloat;
    std::memcpy(format == Format::F32 ? static_cast<void*>(&number) : format == Format::F16 ? static_cast<void*>(&half)
                : &bfloat, block, type.block_bytes);
    *out = format == Format::F32 ? number : format == Format::F16 ? to_float(half) : to_float(bfloat);
  } else if (type.block_inputs == 32) {
    const Decoded32 decoded = decode32(format, block);
    const int offset = format == Format::Q4_0 ? 8 : format == Format::Q5_0 ? 16 : 0;
    for (int i = 0; i < 32; i++) {
      const int code = format == Format::Q8_0 ? static_cast<int8_t>(decoded.codes[i]) : decoded.codes[i] - offset;
      out[i] = static_cast<double>(to_float(decoded.scale)) * code + to_float(decoded.minimum);
    }
  } else {
    const Decoded256 decoded = decode256(format, block);
    const double super = to_float(decoded.super), super_minimum = to_float(decoded.super_minimum);
    for (int i = 0; i < 256; i++)
      out[i] = format == Format::Q6_K ? super * static_cast<int8_t>(decoded.scales[i / 16]) * (decoded.codes[i] - 32)
                                      : super * decoded.scales[i / 32] * decoded.codes[i] -
                                            super_minimum * decoded.minima[i / 32];
  }
}

inline std::vector<double> decode(const TypeInfo& type, const std::vector<uint8_t>& data) {
  std::vector<double> out(data.size() / type.block_bytes * type.block_inputs);
  for (size_t i = 0; i < data.size() / type.block_bytes; i++)
    decode_block(type, &data[i * type.block_bytes], &out[i * type.block_inputs]);
  return out;
}

}  // namespace foredraft::tests
