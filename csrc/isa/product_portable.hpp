// Integer matrix products in plain C++: the statement of what every instruction set computes, number for number.
#pragma once

#include "../half.hpp"
#include "../layout.hpp"

namespace foredraft {
namespace {

inline float half_at(const uint8_t* p, int index) { return to_float(reinterpret_cast<const Half*>(p)[index]); }

// The integer sum of one group (or part of one) for one output.
template <int bits>
int dot(const uint8_t* tile, int output, const int8_t* codes, int first, int last, int offset) {
  int sum = 0;
  for (int i = first; i < last; i++) sum += (layout::code<bits>(tile, output, i) - offset) * codes[i];
  return sum;
}

template <class L>
float grouped_total(const uint8_t* block, int inputs, const Codes32* row, size_t stride, int output) {
  float total = 0;
  for (int left = inputs / 32; left > 0; left -= 8) {
    const int groups = left < 8 ? left : 8;
    for (int g = 0; g < groups; g++, row += stride) {
      const int sum = dot<L::bits>(block + L::codes(groups) + g * L::tile, output, row->codes, 0, 32, L::offset);
      total += half_at(block + L::scales + 32 * g, output) * row->scale * static_cast<float>(sum);
      if constexpr (L::has_minimum) total += half_at(block + L::minima(groups) + 32 * g, output) * row->scaled_sum;
    }
    block += L::bytes(groups);
  }
  return total;
}

template <class L>
float super_total(const uint8_t* block, int inputs, const Codes256* row, size_t stride, int output) {
  float total = 0;
  for (int s = 0; s < inputs / 256; s++, block += L::bytes, row += stride) {
    int sum = 0, minimum = 0;
    for (int g = 0; g < 8; g++) {
      const uint8_t* tile = block + L::codes + L::tile * g;
      sum += block[L::scales + 16 * g + output] * dot<L::bits>(tile, output, row->codes + 32 * g, 0, 32, 0);
      minimum += block[L::minima + 32 * (g / 2) + 2 * output + g % 2] * row->sums[g];
    }
    total += half_at(block + L::supers, output) * row->scale * static_cast<float>(sum);
    total += half_at(block + L::super_minima, output) * row->scale * static_cast<float>(minimum);
  }
  return total;
}

template <>
inline float super_total<layout::Q6_K>(const uint8_t* block, int inputs, const Codes256* row, size_t stride,
                                       int output) {
  using L = layout::Q6_K;
  float total = 0;
  for (int s = 0; s < inputs / 256; s++, block += L::bytes, row += stride) {
    int sum = 0;
    for (int g = 0; g < 16; g++) {
      const int begin = 16 * (g % 2);
      sum += static_cast<int8_t>(block[L::scales + 16 * g + output]) *
             dot<6>(block + L::codes + L::tile * (g / 2), output, row->codes + 32 * (g / 2), begin, begin + 16, 32);
    }
    total += half_at(block + L::supers, output) * row->scale * static_cast<float>(sum);
  }
  return total;
}

struct PortableProducts {
  template <class L>
  static void grouped(const uint8_t* block, int inputs, const Input& input, int first, int count, float* totals) {
    for (int i = 0; i < count * tile_outputs; i++)
      totals[i] = grouped_total<L>(block, inputs, input.by32 + first + i / tile_outputs, input.rows, i % tile_outputs);
  }

  template <class L>
  static void super(const uint8_t* block, int inputs, const Input& input, int first, int count, float* totals) {
    for (int i = 0; i < count * tile_outputs; i++)
      totals[i] = super_total<L>(block, inputs, input.by256 + first + i / tile_outputs, input.rows, i % tile_outputs);
  }
};

}  // namespace
}  // namespace foredraft
