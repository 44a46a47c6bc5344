// Products of bytes in AVX2.
//
// vpmaddubsw multiplies bytes (weights unsigned, activations signed) into pair sums of 16 bits, which add up there for
// as many chunks as cannot overflow; vpmaddwd, by scales or ones, takes them to 32 bits. Bounds, with activations in
// -127..127: a pair of 4-bit products is at most 2 * 15 * 127 = 3810, 8 of them 30480; of 5-bit products 7874, 4 of
// them 31496. Where an offset is part of the type, its share (`offsets`) starts the sum: 16-bit additions wrap, and the
// end result is in range: 5 bits, -16 * 127 * 16 = -32512 after 8 chunks; 6 bits, -32 * 127 * 8 = -32512 after 4.
#pragma once

#include "lanes_avx2.hpp"
#include "product.hpp"

namespace foredraft {
namespace {

struct Avx2Dots {
  using V = Avx2Lanes;
  using Base = Vectors<V>;
  using Ints = Base::Ints;
  static constexpr int max_tile = 4;  // 16 registers: 8 sums, 2 of weights, activations, a mask

  // sums[m] = the products of one group of 32 inputs.
  template <class L, int M>
  __attribute__((always_inline)) static inline void group(const uint8_t* tile, const Codes32* rows, Ints (&sums)[M]) {
    const Ints ones = {_mm256_set1_epi16(1), _mm256_set1_epi16(1)};
    Base::clear(sums);
    if constexpr (L::bits == 8) {
      signed_group(tile, rows, sums);
    } else if constexpr (L::bits == 5 && L::offset == 0) {
      unroll<0, 2>([&](auto half) __attribute__((always_inline)) {
        Ints pairs[M];
        Base::clear(pairs);
        add_chunks<5, 4 * half(), 4>(tile, rows, 0, pairs);
        Base::add_scaled(pairs, ones, sums);
      });
    } else {
      if constexpr (L::offset != 0)
        unroll<0, M>([&](auto m) __attribute__((always_inline)) {
          __m256i start = V::broadcast4(rows[m()].offsets);
          if constexpr (L::offset == 8) start = _mm256_srai_epi16(start, 1);
          sums[m()][0] = sums[m()][1] = start;
        });
      add_chunks<L::bits, 0, 8>(tile, rows, 0, sums);
      Base::each<M>([&](int m, int part) __attribute__((always_inline)) {
        sums[m][part] = _mm256_madd_epi16(sums[m][part], ones[part]);
      });
    }
  }

  // sums[m] += the products of group g of 256 inputs, scaled.
  template <class L, int M>
  __attribute__((always_inline)) static inline void add_group(const uint8_t* block, int g, const Codes256* rows,
                                                              Ints (&sums)[M]) {
    constexpr int parts = L::bits == 4 ? 1 : 2, depth = 8 / parts;
    unroll<0, parts>([&](auto part) __attribute__((always_inline)) {
      Ints pairs[M];
      Base::clear(pairs);
      if constexpr (L::bits == 6)
        unroll<0, M>([&](auto m) __attribute__((always_inline)) {
          pairs[m()][0] = pairs[m()][1] = V::broadcast4(rows[m()].offsets[2 * g + part()]);
        });
      add_chunks<L::bits, part() * depth, depth>(block + L::codes + g * L::tile, rows, 32 * g, pairs);
      const uint8_t* bytes = block + L::scales + tile_outputs * (L::bits == 6 ? 2 * g + part() : g);
      const Ints scales = {spread<L::bits == 6>(bytes), spread<L::bits == 6>(bytes + 8)};
      Base::add_scaled(pairs, scales, sums);
    });
  }

 private:
  // sums[m] += products of chunks first .. first + count with row m's activations from `at` on, in 16 bits.
  template <int bits, int first, int count, int M, class Codes>
  __attribute__((always_inline)) static inline void add_chunks(const uint8_t* tile, const Codes* rows, int at,
                                                               Ints (&sums)[M]) {
    unroll<first, count>([&](auto c) __attribute__((always_inline)) {
      const Ints weights = {chunk<V, bits, c()>(tile, 0), chunk<V, bits, c()>(tile, 1)};
      unroll<0, M>([&](auto m) __attribute__((always_inline)) {
        const __m256i activations = V::broadcast4(rows[m()].codes + at + 4 * c());
        sums[m()][0] = _mm256_add_epi16(sums[m()][0], _mm256_maddubs_epi16(weights[0], activations));
        sums[m()][1] = _mm256_add_epi16(sums[m()][1], _mm256_maddubs_epi16(weights[1], activations));
      });
    });
  }

  // Signed 8-bit weights: |w| * (a with w's sign); a pair may fill 16 bits (2 * 128 * 127), so none are added there.
  template <int M>
  __attribute__((always_inline)) static inline void signed_group(const uint8_t* tile, const Codes32* rows,
                                                                 Ints (&sums)[M]) {
    unroll<0, 8>([&](auto c) __attribute__((always_inline)) {
      unroll<0, 2>([&](auto part) __attribute__((always_inline)) {
        const __m256i weights = chunk<V, 8, c()>(tile, part()), magnitude = _mm256_abs_epi8(weights);
        unroll<0, M>([&](auto m) __attribute__((always_inline)) {
          const __m256i activations = _mm256_sign_epi8(V::broadcast4(rows[m()].codes + 4 * c()), weights);
          const __m256i pairs = _mm256_maddubs_epi16(magnitude, activations);
          sums[m()][part()] = V::add_pairs(sums[m()][part()], pairs, _mm256_set1_epi16(1));
        });
      });
    });
  }

  // 8 bytes, one per output, as numbers in both 16-bit halves of their output's 32-bit lane.
  template <bool is_signed>
  __attribute__((always_inline)) static inline __m256i spread(const uint8_t* p) {
    const __m256i bytes = _mm256_castpd_si256(_mm256_broadcast_sd(reinterpret_cast<const double*>(p)));
    constexpr int x = -1;  // gives a zero byte
    if constexpr (is_signed) {
      const __m256i high = _mm256_setr_epi8(x, 0, x, 0, x, 1, x, 1, x, 2, x, 2, x, 3, x, 3,  //
                                            x, 4, x, 4, x, 5, x, 5, x, 6, x, 6, x, 7, x, 7);
      return _mm256_srai_epi16(_mm256_shuffle_epi8(bytes, high), 8);
    }
    const __m256i low = _mm256_setr_epi8(0, x, 0, x, 1, x, 1, x, 2, x, 2, x, 3, x, 3, x,  //
                                         4, x, 4, x, 5, x, 5, x, 6, x, 6, x, 7, x, 7, x);
    return _mm256_shuffle_epi8(bytes, low);
  }
};

}  // namespace
}  // namespace foredraft
