// Integer matrix products in AVX2; product_portable.hpp states what they compute.
//
// vpmaddubsw multiplies bytes (weights unsigned, activations signed) into pair sums of 16 bits, which add up there for
// as many chunks as cannot overflow; vpmaddwd, by scales or ones, takes them to 32 bits. Bounds, with activations in
// -127..127: a pair of 4-bit products is at most 2 * 15 * 127 = 3810, 8 of them 30480; of 5-bit products 7874, 4 of
// them 31496. Where an offset is part of the type, its share (`offsets`) starts the sum: 16-bit additions wrap, and the
// end result is in range: 5 bits, -16 * 127 * 16 = -32512 after 8 chunks; 6 bits, -32 * 127 * 8 = -32512 after 4.
#pragma once

#include <immintrin.h>

#include "../layout.hpp"
#include "tiles.hpp"

namespace foredraft {
namespace {

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m256 load_halves(const void* p) { return _mm256_cvtph_ps(load128(p)); }
inline __m256i broadcast4(const void* p) {
  return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
}

// Chunk c of 8 outputs (half 0 or 1 of the tile) as 32 bytes, unsigned below 8 bits. See layout.hpp.
template <int bits, int c>
__attribute__((always_inline)) inline __m256i chunk(const uint8_t* tile, int half) {
  if constexpr (bits == 8) return load256(tile + 64 * c + 32 * half);
  __m256i low = load256(tile + 64 * (c % 4) + 32 * half);
  if constexpr (c >= 4) low = _mm256_srli_epi16(low, 4);
  low = _mm256_and_si256(low, _mm256_set1_epi8(15));
  if constexpr (bits == 5) {
    __m256i high = load256(tile + 256 + 32 * half);
    if constexpr (c < 4) high = _mm256_slli_epi16(high, 4 - c);
    if constexpr (c > 4) high = _mm256_srli_epi16(high, c - 4);
    low = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x10)));
  }
  if constexpr (bits == 6) {
    constexpr int k = c % 4;
    __m256i high = load256(tile + 256 + 64 * (c / 4) + 32 * half);
    if constexpr (k < 2) high = _mm256_slli_epi16(high, 4 - 2 * k);
    if constexpr (k > 2) high = _mm256_srli_epi16(high, 2 * k - 4);
    low = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
  }
  return low;
}

constexpr int prefetch_distance = 2048;

__attribute__((always_inline)) inline void prefetch(const uint8_t* p, int bytes) {
  const char* ahead = reinterpret_cast<const char*>(p + prefetch_distance);
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(ahead + i, _MM_HINT_T0);
}

// The codes of a row block's groups of 32 inputs, `stride` bytes apart.
template <int bits>
struct Weights {
  const uint8_t* tiles;
  int stride;
  template <int c>
  __m256i get(int group, int half) const {
    return chunk<bits, c>(tiles + static_cast<size_t>(group) * stride, half);
  }
};

// One vector for each half (8 outputs) of a tile.
using Ints = __m256i[2];
using Floats = __m256[2];

// For both halves of every row of a tile, unrolled: body(m, half).
template <int M, class Body>
__attribute__((always_inline)) inline void each(Body&& body) {
  unroll<0, 2 * M>([&](auto i) __attribute__((always_inline)) { body(i() / 2, i() % 2); });
}

// sums[m] += products of chunks first .. first + count with row m's activations, in 16 bits.
template <int first, int count, int bits, int M>
__attribute__((always_inline)) inline void add_chunks(const Weights<bits>& source, int group,
                                                      const int8_t* const (&codes)[M], Ints (&sums)[M]) {
  unroll<first, count>([&](auto c) __attribute__((always_inline)) {
    const __m256i weights[2] = {source.template get<c()>(group, 0), source.template get<c()>(group, 1)};
    unroll<0, M>([&](auto m) __attribute__((always_inline)) {
      const __m256i activations = broadcast4(codes[m()] + 4 * c());
      sums[m()][0] = _mm256_add_epi16(sums[m()][0], _mm256_maddubs_epi16(weights[0], activations));
      sums[m()][1] = _mm256_add_epi16(sums[m()][1], _mm256_maddubs_epi16(weights[1], activations));
    });
  });
}

// sums[m] += 16-bit `pairs` times 16-bit `scales`, in 32 bits.
template <int M>
__attribute__((always_inline)) inline void add_scaled(const Ints (&pairs)[M], const Ints& scales, Ints (&sums)[M]) {
  each<M>([&](int m, int half) __attribute__((always_inline)) {
    const __m256i products = _mm256_madd_epi16(pairs[m][half], scales[half]);
    sums[m][half] = _mm256_add_epi32(sums[m][half], products);
  });
}

template <int M>
__attribute__((always_inline)) inline void clear(Ints (&sums)[M]) {
  each<M>([&](int m, int half) __attribute__((always_inline)) { sums[m][half] = _mm256_setzero_si256(); });
}


// total += scale * scale of the row * sum, for both halves.
__attribute__((always_inline)) inline void add_product(const Floats& scale, float row_scale, const Ints& sum,
                                                       Floats& total) {
  const __m256 row = _mm256_set1_ps(row_scale);
  total[0] = _mm256_fmadd_ps(_mm256_mul_ps(scale[0], row), _mm256_cvtepi32_ps(sum[0]), total[0]);
  total[1] = _mm256_fmadd_ps(_mm256_mul_ps(scale[1], row), _mm256_cvtepi32_ps(sum[1]), total[1]);
}

constexpr int chunk_groups = 8;  // groups of 32 inputs between two visits of the totals
template <int M>
__attribute__((always_inline)) inline void load_totals(const float* totals, Floats (&total)[M]) {
  each<M>([&](int m, int half) __attribute__((always_inline)) {
    total[m][half] = _mm256_loadu_ps(totals + 16 * m + 8 * half);
  });
}

template <int M>
__attribute__((always_inline)) inline void store_totals(const Floats (&total)[M], float* totals) {
  each<M>([&](int m, int half) __attribute__((always_inline)) {
    _mm256_storeu_ps(totals + 16 * m + 8 * half, total[m][half]);
  });
}

// Types with a half scale per output and 32 inputs.
template <class L>
struct GroupedProduct {
  static constexpr int bits = L::bits, bytes = L::bytes, codes = L::codes, group_bytes = L::bytes;

  static const Codes32* rows(const Input& input) { return input.by32; }

  template <int M>
  static void tile(const uint8_t* block, const Weights<bits>& source, const Codes32* first, size_t stride, int count,
                   float* totals) {
    const Codes32* rows[M];
    unroll<0, M>([&](auto m) __attribute__((always_inline)) { rows[m()] = first + m() * stride; });
    Floats total[M];
    load_totals(totals, total);
    for (int g = 0; g < count; g++, block += bytes) {
      prefetch(block, bytes);
      Ints sums[M];
      group_sums(source, g, rows, sums);
      const Floats scale = {load_halves(block + L::scales), load_halves(block + L::scales + 16)};
      unroll<0, M>([&](auto m) __attribute__((always_inline)) {
        add_product(scale, rows[m()]->scale, sums[m()], total[m()]);
      });
      if constexpr (L::has_minimum) {
        const Floats minimum = {load_halves(block + L::minima), load_halves(block + L::minima + 16)};
        unroll<0, M>([&](auto m) __attribute__((always_inline)) {
          const __m256 sum = _mm256_broadcast_ss(&rows[m()]->scaled_sum);
          total[m()][0] = _mm256_fmadd_ps(minimum[0], sum, total[m()][0]);
          total[m()][1] = _mm256_fmadd_ps(minimum[1], sum, total[m()][1]);
        });
      }
      unroll<0, M>([&](auto m) __attribute__((always_inline)) { rows[m()]++; });
    }
    store_totals(total, totals);
  }

  template <int M>
  __attribute__((always_inline)) static inline void group_sums(const Weights<bits>& source, int g,
                                                               const Codes32* const (&rows)[M], Ints (&sums)[M]) {
    const Ints ones = {_mm256_set1_epi16(1), _mm256_set1_epi16(1)};
    const int8_t* codes[M];
    unroll<0, M>([&](auto m) __attribute__((always_inline)) { codes[m()] = rows[m()]->codes; });
    clear(sums);
    if constexpr (bits == 8) {
      signed_sums(source, g, codes, sums);
    } else if constexpr (bits == 5 && L::offset == 0) {
      Ints pairs[M];
      clear(pairs);
      add_chunks<0, 4>(source, g, codes, pairs);
      add_scaled(pairs, ones, sums);
      clear(pairs);
      add_chunks<4, 4>(source, g, codes, pairs);
      add_scaled(pairs, ones, sums);
    } else {
      if constexpr (L::offset != 0)
        unroll<0, M>([&](auto m) __attribute__((always_inline)) {
          __m256i start = broadcast4(rows[m()]->offsets);
          if constexpr (L::offset == 8) start = _mm256_srai_epi16(start, 1);
          sums[m()][0] = sums[m()][1] = start;
        });
      add_chunks<0, 8>(source, g, codes, sums);
      each<M>([&](int m, int half) __attribute__((always_inline)) {
        sums[m][half] = _mm256_madd_epi16(sums[m][half], ones[half]);
      });
    }
  }

  // Signed 8-bit weights: |w| * (a with w's sign); a pair may fill 16 bits (2 * 128 * 127), so none are added there.
  template <int M>
  __attribute__((always_inline)) static inline void signed_sums(const Weights<bits>& source, int g,
                                                                const int8_t* const (&codes)[M], Ints (&sums)[M]) {
    const __m256i one = _mm256_set1_epi16(1);
    unroll<0, 8>([&](auto c) __attribute__((always_inline)) {
      for (int half : {0, 1}) {
        const __m256i weights = source.template get<c()>(g, half), magnitude = _mm256_abs_epi8(weights);
        unroll<0, M>([&](auto m) __attribute__((always_inline)) {
          const __m256i activations = _mm256_sign_epi8(broadcast4(codes[m()] + 4 * c()), weights);
          const __m256i pairs = _mm256_maddubs_epi16(magnitude, activations);
          sums[m()][half] = _mm256_add_epi32(sums[m()][half], _mm256_madd_epi16(pairs, one));
        });
      }
    });
  }
};

// 8 bytes, one per output, as numbers in both 16-bit halves of their output's 32-bit lane.
template <bool is_signed>
__attribute__((always_inline)) inline __m256i spread(const uint8_t* p) {
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

// Q4_K, Q5_K and Q6_K: integer scales are applied to the 16-bit sums, floats only once per 256 inputs.
template <class L>
struct SuperProduct {
  static constexpr int bits = L::bits, bytes = L::bytes, codes = L::codes, group_bytes = L::tile;

  static const Codes256* rows(const Input& input) { return input.by256; }

  template <int M>
  static void tile(const uint8_t* block, const Weights<bits>& source, const Codes256* first, size_t stride, int,
                   float* totals) {
    const Codes256* rows[M];
    unroll<0, M>([&](auto m) __attribute__((always_inline)) { rows[m()] = first + m() * stride; });
    Ints sums[M];
    clear(sums);
    for (int g = 0; g < 8; g++) {
      prefetch(block + g * (bytes / 8), bytes / 8);
      group_sums(block, source, g, rows, sums);
    }
    Floats total[M];
    load_totals(totals, total);
    add_sums(block + L::supers, rows, sums, total);
    if constexpr (bits != 6) {
      add_minima(block, rows, sums);
      add_sums(block + L::super_minima, rows, sums, total);
    }
    store_totals(total, totals);
  }

  template <int M>
  __attribute__((always_inline)) static inline void group_sums(const uint8_t* block, const Weights<bits>& source, int g,
                                                               const Codes256* const (&rows)[M], Ints (&sums)[M]) {
    constexpr int parts = bits == 4 ? 1 : 2, depth = 8 / parts;
    const int8_t* codes[M];
    unroll<0, M>([&](auto m) __attribute__((always_inline)) { codes[m()] = rows[m()]->codes + 32 * g; });
    unroll<0, parts>([&](auto part) __attribute__((always_inline)) {
      Ints pairs[M];
      clear(pairs);
      if constexpr (bits == 6)
        unroll<0, M>([&](auto m) __attribute__((always_inline)) {
          const __m256i start = broadcast4(rows[m()]->offsets[2 * g + part()]);
          pairs[m()][0] = pairs[m()][1] = start;
        });
      add_chunks<part() * depth, depth>(source, g, codes, pairs);
      const uint8_t* bytes_of_scales = block + L::scales + 16 * (bits == 6 ? 2 * g + part() : g);
      const Ints scales = {spread<bits == 6>(bytes_of_scales), spread<bits == 6>(bytes_of_scales + 8)};
      add_scaled(pairs, scales, sums);
    });
  }

  // sums = the rows' negated sums of codes times the groups' minima.
  template <int M>
  __attribute__((always_inline)) static inline void add_minima(const uint8_t* block, const Codes256* const (&rows)[M],
                                                               Ints (&sums)[M]) {
    clear(sums);
    unroll<0, 4>([&](auto pair) __attribute__((always_inline)) {
      const uint8_t* p = block + L::minima + 32 * pair();
      const Ints minima = {_mm256_cvtepu8_epi16(load128(p)), _mm256_cvtepu8_epi16(load128(p + 16))};
      Ints two[M];
      unroll<0, M>([&](auto m) __attribute__((always_inline)) {
        const __m256i groups = broadcast4(rows[m()]->sums + 2 * pair());
        two[m()][0] = two[m()][1] = groups;
      });
      add_scaled(two, minima, sums);
    });
  }

  template <int M>
  __attribute__((always_inline)) static inline void add_sums(const uint8_t* halves, const Codes256* const (&rows)[M],
                                                             const Ints (&sums)[M], Floats (&total)[M]) {
    const Floats scale = {load_halves(halves), load_halves(halves + 16)};
    unroll<0, M>([&](auto m) __attribute__((always_inline)) {
      add_product(scale, rows[m()]->scale, sums[m()], total[m()]);
    });
  }
};

// One row block times `count` rows: chunks of 8 groups, tiles of rows within, so that memory is read at an even pace.
// Weights are unpacked anew for every tile of rows: keeping them unpacked for many rows gained nothing (Zen 3, 8 to 64).
template <class P>
struct Product {
  static constexpr int max_tile = 4;  // 16 registers: 8 sums, 2 of weights, activations, a mask
  static constexpr bool has_groups = P::bytes == P::group_bytes;  // else super-blocks of 8 groups

  static void multiply(const uint8_t* block, int inputs, const Input& input, int first, int count, float* totals) {
    const size_t stride = inputs / (has_groups ? 32 : 256);
    const auto* rows = P::rows(input) + first * stride;
    for (int i = 0; i < 16 * count; i++) totals[i] = 0;
    for (int left = inputs / 32; left > 0; left -= chunk_groups) {
      const int groups = left < chunk_groups ? left : chunk_groups;
      const Weights<P::bits> weights{block + P::codes, P::group_bytes};
      each_tile<max_tile>(count, [&](auto m, int row) {
        P::template tile<m()>(block, weights, rows + row * stride, stride, groups, totals + 16 * row);
      });
      block += has_groups ? groups * P::bytes : P::bytes;
      rows += has_groups ? groups : 1;
    }
  }
};

}  // namespace
}  // namespace foredraft
