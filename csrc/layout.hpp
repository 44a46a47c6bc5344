// How packed weights lie in memory: tiles of 16 outputs x 32 inputs, 8 of them in a super-block of 16 outputs x 256 inputs,
// those in row blocks of 16 outputs x all inputs. Codes begin on multiples of 64 bytes.
//
// A tile's codes are cut into 8 chunks of 4 inputs. A chunk is 64 bytes, byte 4 * output + input, so that a vector of
// bytes times a broadcast of 4 activations adds up per output. Codes below 8 bits share bytes:
//   line j of 4 (64 bytes each): low nibbles are chunk j, high nibbles chunk j + 4;
//   5 bits: one more line, whose bit c is the high bit of chunk c;
//   6 bits: two more lines, whose bits 2k, 2k + 1 are the high bits of chunk k (first line) and 4 + k (second line);
//   8 bits: line c is chunk c, signed.
#pragma once

#include <cstdint>

#include "kernels.hpp"

namespace foredraft::layout {

template <int bits>
constexpr int code_bytes = 64 * bits;

// The code of one weight, as stored (unsigned below 8 bits).
template <int bits>
inline int code(const uint8_t* tile, int output, int input) {
  const int chunk = input / 4, byte = 4 * output + input % 4;
  if constexpr (bits == 8) return static_cast<int8_t>(tile[64 * chunk + byte]);
  int value = (tile[64 * (chunk % 4) + byte] >> (4 * (chunk / 4))) & 15;
  if constexpr (bits == 5) value |= ((tile[256 + byte] >> chunk) & 1) << 4;
  if constexpr (bits == 6) value |= ((tile[256 + 64 * (chunk / 4) + byte] >> (2 * (chunk % 4))) & 3) << 4;
  return value;
}

// Types with a half scale (and minimum) per output and 32 inputs, groups of them in a super-block, the last of a row
// block perhaps fewer than 8: scales [groups, 16], minima [groups, 16], tiles of codes.
// weight = scale * (code - offset) + minimum.
template <int bits_, int offset_, bool has_minimum_>
struct Grouped {
  static constexpr int bits = bits_, offset = offset_, tile = code_bytes<bits>;
  static constexpr bool has_minimum = has_minimum_;
  static constexpr int scales = 0;
  static constexpr int minima(int groups) { return 32 * groups; }
  static constexpr int codes(int groups) { return (32 * groups * (has_minimum ? 2 : 1) + 63) / 64 * 64; }
  static constexpr int bytes(int groups) { return codes(groups) + groups * tile; }
};
using Q4_0 = Grouped<4, 8, false>;
using Q4_1 = Grouped<4, 0, true>;
using Q5_0 = Grouped<5, 16, false>;
using Q5_1 = Grouped<5, 0, true>;
using Q8_0 = Grouped<8, 0, false>;

// Q4_K and Q5_K, 256 inputs: byte scales [8 groups, 16], byte minima [4 pairs of groups, 16, 2], half super-scales [16]
// and super-minima [16], tiles of codes. weight = super * scale * code - super_minimum * minimum.
template <int bits_>
struct SuperMinimum {
  static constexpr int bits = bits_, tile = code_bytes<bits>;
  static constexpr int scales = 0, minima = 128, supers = 256, super_minima = 288, codes = 320;
  static constexpr int bytes = codes + 8 * tile;
};
using Q4_K = SuperMinimum<4>;
using Q5_K = SuperMinimum<5>;

// Q6_K, 256 inputs: signed byte scales [16 groups of 16 inputs, 16], half super-scales [16], a gap, tiles of codes.
// weight = super * scale * (code - 32).
struct Q6_K {
  static constexpr int bits = 6, tile = code_bytes<6>;
  static constexpr int scales = 0, supers = 256, codes = 320;
  static constexpr int bytes = codes + 8 * tile;
};

}  // namespace foredraft::layout
