// Matrix products over the row blocks of layout.hpp, written once over a vector type V (lanes_*.hpp) and the way in
// which an instruction set multiplies bytes (dots_*.hpp); product_portable.hpp states what they compute.
#pragma once

#include <immintrin.h>

#include "../layout.hpp"
#include "tiles.hpp"

namespace foredraft {
namespace {

// Part `part` of chunk c of a tile, unsigned below 8 bits. See layout.hpp.
template <class V, int bits, int c>
__attribute__((always_inline)) inline typename V::I chunk(const uint8_t* tile, int part) {
  const uint8_t* p = tile + part * sizeof(typename V::I);
  if constexpr (bits == 8) return V::load_bytes(p + 64 * c);
  typename V::I low = V::load_bytes(p + 64 * (c % 4));
  if constexpr (c >= 4) low = V::template shift<-4>(low);
  low = V::both(low, V::bytes(15));
  if constexpr (bits == 5) low = V::merge(low, V::template shift<4 - c>(V::load_bytes(p + 256)), V::bytes(0x10));
  if constexpr (bits == 6)
    low = V::merge(low, V::template shift<4 - 2 * (c % 4)>(V::load_bytes(p + 256 + 64 * (c / 4))), V::bytes(0x30));
  return low;
}

// Into the second-level cache: more lines can be on their way there than to the first (Zen 4: 1.2 to 1.5 times faster at
// 4 and 8 rows). The distance is what memory delivers in about 200 ns.
constexpr int prefetch_distance = 6144;

__attribute__((always_inline)) inline void prefetch(const uint8_t* p, int bytes) {
  const char* ahead = reinterpret_cast<const char*>(p + prefetch_distance);
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(ahead + i, _MM_HINT_T1);
}

template <class V>
struct Vectors {
  static constexpr int parts = tile_outputs / V::width;  // vectors for the outputs of a tile
  using Ints = typename V::I[parts];
  using Floats = typename V::F[parts];

  // For all parts of every row of a tile, unrolled: body(m, part).
  template <int M, class Body>
  __attribute__((always_inline)) static inline void each(Body&& body) {
    unroll<0, M * parts>([&](auto i) __attribute__((always_inline)) { body(i() / parts, i() % parts); });
  }

  template <int M>
  __attribute__((always_inline)) static inline void clear(Ints (&sums)[M]) {
    each<M>([&](int m, int part) __attribute__((always_inline)) { sums[m][part] = V::zero(); });
  }

  // sums[m] += products of 16-bit pairs.
  template <int M>
  __attribute__((always_inline)) static inline void add_scaled(const Ints (&pairs)[M], const Ints& scales,
                                                               Ints (&sums)[M]) {
    each<M>([&](int m, int part) __attribute__((always_inline)) {
      sums[m][part] = V::add_pairs(sums[m][part], pairs[m][part], scales[part]);
    });
  }

  template <int M>
  __attribute__((always_inline)) static inline void load_totals(const float* totals, Floats (&total)[M]) {
    each<M>([&](int m, int part) __attribute__((always_inline)) {
      total[m][part] = V::load(totals + tile_outputs * m + V::width * part);
    });
  }

  template <int M>
  __attribute__((always_inline)) static inline void store_totals(const Floats (&total)[M], float* totals) {
    each<M>([&](int m, int part) __attribute__((always_inline)) {
      V::store(totals + tile_outputs * m + V::width * part, total[m][part]);
    });
  }

  __attribute__((always_inline)) static inline void load_halves(const uint8_t* p, Floats& out) {
    unroll<0, parts>([&](auto part) __attribute__((always_inline)) {
      out[part()] = V::load(reinterpret_cast<const Half*>(p) + V::width * part());
    });
  }

  // total[m] += scale * scale of row m * sums[m].
  template <int M, class Codes>
  __attribute__((always_inline)) static inline void add_sums(const uint8_t* scales, const Codes* rows,
                                                             const Ints (&sums)[M], Floats (&total)[M]) {
    Floats scale;
    load_halves(scales, scale);
    unroll<0, M>([&](auto m) __attribute__((always_inline)) {
      const typename V::F row = V::broadcast(rows[m()].scale);
      unroll<0, parts>([&](auto part) __attribute__((always_inline)) {
        total[m()][part()] = V::fma(scale[part()] * row, V::to_float(sums[m()][part()]), total[m()][part()]);
      });
    });
  }
};

// Types with a half scale per output and 32 inputs.
template <class Dots, class L>
struct GroupedProduct : Vectors<typename Dots::V> {
  using V = typename Dots::V;
  using Base = Vectors<V>;

  static const Codes32* rows(const Input& input) { return input.by32; }
  static constexpr int steps(int groups) { return groups; }
  static constexpr int bytes(int groups) { return L::bytes(groups); }

  // totals [M, 16] += a super-block of `groups` groups times the rows, whose groups lie `stride` apart.
  template <int M>
  static void tile(const uint8_t* block, int groups, const Codes32* rows, size_t stride, float* totals) {
    typename Base::Floats total[M];
    Base::load_totals(totals, total);
    const uint8_t *tile = block + L::codes(groups), *scales = block + L::scales, *minima = block + L::minima(groups);
    for (int g = 0; g < groups; g++, tile += L::tile, rows += stride, scales += 32, minima += 32) {
      prefetch(block + g * (bytes(8) / 8), bytes(8) / 8);
      typename Base::Ints sums[M];
      Dots::template group<L>(tile, rows, sums);
      Base::add_sums(scales, rows, sums, total);
      if constexpr (L::has_minimum) add_minima(minima, rows, total);
    }
    Base::store_totals(total, totals);
  }

  template <int M>
  __attribute__((always_inline)) static inline void add_minima(const uint8_t* minima, const Codes32* rows,
                                                               typename Base::Floats (&total)[M]) {
    typename Base::Floats minimum;
    Base::load_halves(minima, minimum);
    Base::template each<M>([&](int m, int part) __attribute__((always_inline)) {
      total[m][part] = V::fma(minimum[part], V::broadcast(rows[m].scaled_sum), total[m][part]);
    });
  }
};

// Q4_K, Q5_K and Q6_K: scales are applied to integer sums, floats only once per 256 inputs.
template <class Dots, class L>
struct SuperProduct : Vectors<typename Dots::V> {
  using V = typename Dots::V;
  using Base = Vectors<V>;

  static const Codes256* rows(const Input& input) { return input.by256; }
  static constexpr int steps(int) { return 1; }
  static constexpr int bytes(int) { return L::bytes; }

  template <int M>
  static void tile(const uint8_t* block, int, const Codes256* rows, size_t, float* totals) {
    typename Base::Ints sums[M];
    Base::clear(sums);
    for (int g = 0; g < 8; g++) {
      prefetch(block + g * (L::bytes / 8), L::bytes / 8);
      Dots::template add_group<L>(block, g, rows, sums);
    }
    typename Base::Floats total[M];
    Base::load_totals(totals, total);
    Base::add_sums(block + L::supers, rows, sums, total);
    if constexpr (L::bits != 6) {
      Base::clear(sums);
      add_minima(block + L::minima, rows, sums);
      Base::add_sums(block + L::super_minima, rows, sums, total);
    }
    Base::store_totals(total, totals);
  }

  // sums += the rows' negated sums of codes times the groups' minima, two groups at a time.
  template <int M>
  __attribute__((always_inline)) static inline void add_minima(const uint8_t* minima, const Codes256* rows,
                                                               typename Base::Ints (&sums)[M]) {
    unroll<0, 4>([&](auto pair) __attribute__((always_inline)) {
      typename Base::Ints minimum;
      unroll<0, Base::parts>([&](auto part) __attribute__((always_inline)) {
        minimum[part()] = V::widen(minima + 32 * pair() + 2 * V::width * part());
      });
      Base::template each<M>([&](int m, int part) __attribute__((always_inline)) {
        sums[m][part] = V::add_pairs(sums[m][part], V::broadcast4(rows[m].sums + 2 * pair()), minimum[part]);
      });
    });
  }
};

// One row block times `count` rows: super-blocks, tiles of rows within, so that memory is read at an even pace.
// Weights are unpacked anew for every tile of rows: keeping them unpacked for many rows gained nothing (Zen 3, 8 to 64).
template <class Dots, class P>
void multiply(const uint8_t* block, int inputs, const Input& input, int first, int count, float* totals) {
  const auto* rows = P::rows(input) + first;
  for (int i = 0; i < tile_outputs * count; i++) totals[i] = 0;
  for (int left = inputs / 32; left > 0; left -= 8) {
    const int groups = left < 8 ? left : 8;
    each_tile<Dots::max_tile>(count, [&](auto m, int row) {
      P::template tile<m()>(block, groups, rows + row, input.rows, totals + tile_outputs * row);
    });
    block += P::bytes(groups);
    rows += static_cast<size_t>(P::steps(groups)) * input.rows;
  }
}

// The products of all quantized formats.
template <class Dots>
struct Products {
  template <class L>
  static constexpr Multiply grouped = multiply<Dots, GroupedProduct<Dots, L>>;
  template <class L>
  static constexpr Multiply super = multiply<Dots, SuperProduct<Dots, L>>;
};

}  // namespace
}  // namespace foredraft
