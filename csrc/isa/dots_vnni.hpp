// Products of bytes with VNNI, over vectors of 512 bits (AVX-512 VNNI) or 256 bits (AVX-VNNI).
//
// vpdpbusd multiplies bytes (weights unsigned, activations signed) and adds four neighbors to a 32-bit lane: one
// instruction for a chunk of four inputs, and no sum can overflow. Where an offset is part of the type, its share
// (`start`) is what a sum begins with.
#pragma once

#include "product.hpp"

namespace foredraft {
namespace {

template <class Lanes, int max_tile_>
struct VnniDots {
  using V = Lanes;
  using Ints = typename Vectors<V>::Ints;
  static constexpr int max_tile = max_tile_, parts = Vectors<V>::parts;

  // sums[m] = the products of one group of 32 inputs.
  template <class L, int M>
  __attribute__((always_inline)) static inline void group(const uint8_t* tile, const Codes32* rows, Ints (&sums)[M]) {
    unroll<0, M>([&](auto m) __attribute__((always_inline)) {
      typename V::I start = V::zero();
      if constexpr (L::bits == 8) start = V::template shift32<3>(V::broadcast4(&rows[m()].start));
      if constexpr (L::offset == 8) start = V::template shift32<-1>(V::broadcast4(&rows[m()].start));
      if constexpr (L::offset == 16) start = V::broadcast4(&rows[m()].start);
      unroll<0, parts>([&](auto part) __attribute__((always_inline)) { sums[m()][part()] = start; });
    });
    add_chunks<L::bits, 0, 8>(tile, rows, 0, sums);
  }

  // sums[m] += the products of group g of 256 inputs, scaled.
  template <class L, int M>
  __attribute__((always_inline)) static inline void add_group(const uint8_t* block, int g, const Codes256* rows,
                                                              Ints (&sums)[M]) {
    constexpr int halves = L::bits == 6 ? 2 : 1, depth = 8 / halves;
    unroll<0, halves>([&](auto half) __attribute__((always_inline)) {
      Ints dots[M];
      unroll<0, M>([&](auto m) __attribute__((always_inline)) {
        const typename V::I start = L::bits == 6 ? V::broadcast4(&rows[m()].starts[2 * g + half()]) : V::zero();
        unroll<0, parts>([&](auto part) __attribute__((always_inline)) { dots[m()][part()] = start; });
      });
      add_chunks<L::bits, half() * depth, depth>(block + L::codes + g * L::tile, rows, 32 * g, dots);
      const uint8_t* scales = block + L::scales + tile_outputs * (halves * g + half());
      unroll<0, parts>([&](auto part) __attribute__((always_inline)) {
        const typename V::I scale = V::template spread<L::bits == 6>(scales + V::width * part());
        unroll<0, M>([&](auto m) __attribute__((always_inline)) {
          sums[m()][part()] = V::add(sums[m()][part()], V::multiply(dots[m()][part()], scale));
        });
      });
    });
  }

 private:
  template <int bits, int first, int count, int M, class Codes>
  __attribute__((always_inline)) static inline void add_chunks(const uint8_t* tile, const Codes* rows, int at,
                                                               Ints (&sums)[M]) {
    unroll<first, count>([&](auto c) __attribute__((always_inline)) {
      Ints weights;
      unroll<0, parts>([&](auto part) __attribute__((always_inline)) {
        weights[part()] = chunk<V, bits, c()>(tile, part());
        if constexpr (bits == 8) weights[part()] = V::flip_signs(weights[part()]);  // adds 128
      });
      unroll<0, M>([&](auto m) __attribute__((always_inline)) {
        const typename V::I activations = V::broadcast4(rows[m()].codes + at + 4 * c());
        unroll<0, parts>([&](auto part) __attribute__((always_inline)) {
          sums[m()][part()] = V::add_dots(sums[m()][part()], weights[part()], activations);
        });
      });
    });
  }
};

}  // namespace
}  // namespace foredraft
