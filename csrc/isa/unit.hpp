// The table of one instruction set, from its vectors and its products.
#pragma once

#include "attention.hpp"
#include "../layout.hpp"

namespace foredraft {
namespace {

template <class V, class Products>
constexpr Kernels unit(const char* name) {
  return {
      .name = name,
      .rms_norm = Elementwise<V>::rms_norm,
      .quantize32 = Elementwise<V>::quantize32,
      .quantize256 = Elementwise<V>::quantize256,
      .multiply =
          {
              FloatMatrix<V, float>::multiply,
              FloatMatrix<V, Half>::multiply,
              FloatMatrix<V, BFloat>::multiply,
              Products::template grouped<layout::Q4_0>,
              Products::template grouped<layout::Q4_1>,
              Products::template grouped<layout::Q5_0>,
              Products::template grouped<layout::Q5_1>,
              Products::template grouped<layout::Q8_0>,
              Products::template super<layout::Q4_K>,
              Products::template super<layout::Q5_K>,
              Products::template super<layout::Q6_K>,
          },
      .gate = Elementwise<V>::gate,
      .rotate = Elementwise<V>::rotate,
      .to_half = Elementwise<V>::to_half,
      .attend = Attention<V>::attend,
  };
}

}  // namespace
}  // namespace foredraft
