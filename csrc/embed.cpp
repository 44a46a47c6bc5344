#include <stdexcept>
#include <string>

#include "gguf_types.hpp"
#include "half.hpp"
#include "ops.hpp"

namespace foredraft {
namespace {

template <class Number>
float number_at(const uint8_t* p) {
  Number number;
  std::memcpy(&number, p, sizeof number);
  if constexpr (std::is_same_v<Number, float>) return number;
  else return to_float(number);
}

// Values of one block, by the arithmetic of ops/quants.py.
void decode(const TypeInfo& type, const uint8_t* block, float* out) {
  switch (type.format) {
    case Format::F32: *out = number_at<float>(block); return;
    case Format::F16: *out = number_at<Half>(block); return;
    case Format::BF16: *out = number_at<BFloat>(block); return;
    case Format::Q6_K: {
      const Decoded256 decoded = decode256(type.format, block);
      for (int i = 0; i < 256; i++)
        out[i] = to_float(decoded.super) * static_cast<int8_t>(decoded.scales[i / 16]) * (decoded.codes[i] - 32);
      return;
    }
    case Format::Q4_K: case Format::Q5_K: {
      const Decoded256 decoded = decode256(type.format, block);
      for (int i = 0; i < 256; i++)
        out[i] = to_float(decoded.super) * decoded.scales[i / 32] * decoded.codes[i] -
                 to_float(decoded.super_minimum) * decoded.minima[i / 32];
      return;
    }
    default: {
      const Decoded32 decoded = decode32(type.format, block);
      const int offset = type.format == Format::Q4_0 ? 8 : type.format == Format::Q5_0 ? 16 : 0;
      for (int i = 0; i < 32; i++) {
        const uint8_t code = decoded.codes[i];
        const int value = type.format == Format::Q8_0 ? static_cast<int8_t>(code) : code - offset;
        out[i] = to_float(decoded.scale) * value + to_float(decoded.minimum);
      }
    }
  }
}

}  // namespace

void embed(int type_number, const uint8_t* table, size_t size, const int32_t* tokens, int rows, int width, float* out) {
  const TypeInfo& type = find_type(type_number);
  const size_t row_bytes = static_cast<size_t>(width / type.block_inputs) * type.block_bytes;
  if (width % type.block_inputs || row_bytes == 0 || size % row_bytes)
    throw std::invalid_argument("the table's bytes are not whole rows of " + std::to_string(width) + " values");
  for (int row = 0; row < rows; row++) {
    if (tokens[row] < 0 || static_cast<size_t>(tokens[row]) >= size / row_bytes)
      throw std::invalid_argument("token " + std::to_string(tokens[row]) + " is not in the table");
    const uint8_t* block = table + tokens[row] * row_bytes;
    for (int i = 0; i < width; i += type.block_inputs, block += type.block_bytes)
      decode(type, block, out + static_cast<size_t>(row) * width + i);
  }
}

}  // namespace foredraft
