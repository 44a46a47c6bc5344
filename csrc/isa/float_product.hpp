// Products of float rows with float, half or bfloat matrices, each output one fixed-order chain of multiply-adds.
#pragma once

#include "../kernels.hpp"
#include "tiles.hpp"

namespace foredraft {
namespace {

// sums[q][n] += sum over k in [first, last) of a[q][k] * b[k, n-th vector], in the order of k.
template <class V, int Q, int N, class B>
inline void accumulate_product(const float* const* a, int first, int last, const B* b, size_t stride,
                               typename V::F (&sums)[Q][N]) {
  for (int k = first; k < last; k++) {
    typename V::F vectors[N];
    unroll<0, N>([&](auto n) { vectors[n()] = V::load(b + k * stride + n() * V::width); });
    unroll<0, Q>([&](auto q) {
      const typename V::F scalar = V::broadcast(a[q()][k]);
      unroll<0, N>([&](auto n) { sums[q()][n()] = V::fma(scalar, vectors[n()], sums[q()][n()]); });
    });
  }
}

template <class V, class B>
struct FloatMatrix {
  static constexpr int vectors = tile_outputs / V::width;

  template <int Q>
  static void tile(const B* block, int inputs, const float* x, float* totals) {
    const float* rows[Q];
    typename V::F sums[Q][vectors];
    for (int q = 0; q < Q; q++) {
      rows[q] = x + static_cast<size_t>(q) * inputs;
      for (int n = 0; n < vectors; n++) sums[q][n] = V::broadcast(0);
    }
    accumulate_product<V, Q, vectors>(rows, 0, inputs, block, tile_outputs, sums);
    for (int q = 0; q < Q; q++)
      for (int n = 0; n < vectors; n++) V::store(totals + q * tile_outputs + n * V::width, sums[q][n]);
  }

  static void multiply(const uint8_t* block, int inputs, const Input& input, int first, int count, float* totals) {
    const B* weights = reinterpret_cast<const B*>(block);
    const float* x = input.values + static_cast<size_t>(first) * inputs;
    each_tile<4>(count, [&](auto rows, int row) {
      tile<rows()>(weights, inputs, x + static_cast<size_t>(row) * inputs, totals + row * tile_outputs);
    });
  }
};

}  // namespace
}  // namespace foredraft
