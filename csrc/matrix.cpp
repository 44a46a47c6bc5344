#include "matrix.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "gguf_types.hpp"
#include "layout.hpp"
#include "runtime.hpp"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace foredraft {
namespace {

uint32_t word(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}

// One output's 32 codes into its place in a tile (layout.hpp), four bytes of a chunk at a time.
template <int bits>
void place(uint8_t* tile, int output, const uint8_t* codes) {
  auto put = [&](int line, uint32_t value) { std::memcpy(tile + 64 * line + 4 * output, &value, 4); };
  if constexpr (bits == 8) {
    for (int c = 0; c < 8; c++) put(c, word(codes + 4 * c));
    return;
  }
  for (int j = 0; j < 4; j++)
    put(j, (word(codes + 4 * j) & 0x0f0f0f0f) | (word(codes + 16 + 4 * j) & 0x0f0f0f0f) << 4);
  if constexpr (bits == 5) {
    uint32_t plane = 0;
    for (int c = 0; c < 8; c++) plane |= (word(codes + 4 * c) >> 4 & 0x01010101) << c;
    put(4, plane);
  }
  if constexpr (bits == 6)
    for (int line = 0; line < 2; line++) {
      uint32_t plane = 0;
      for (int k = 0; k < 4; k++) plane |= (word(codes + 16 * line + 4 * k) >> 4 & 0x03030303) << (2 * k);
      put(4 + line, plane);
    }
}

void put_half(uint8_t* halves, int output, Half value) { std::memcpy(halves + 2 * output, &value, 2); }

// One output's row of GGUF blocks into its place in a row block.
using PackRow = void (*)(const TypeInfo& type, const uint8_t* row, int output, int inputs, uint8_t* block);

template <class Number>
void pack_numbers(const TypeInfo&, const uint8_t* row, int output, int inputs, uint8_t* block) {
  for (int k = 0; k < inputs; k++)
    std::memcpy(block + (static_cast<size_t>(k) * tile_outputs + output) * sizeof(Number), row + k * sizeof(Number),
                sizeof(Number));
}

template <class L>
void pack_grouped(const TypeInfo& type, const uint8_t* row, int output, int inputs, uint8_t* block) {
  for (int left = inputs / 32; left > 0; left -= 8) {
    const int groups = std::min(left, 8);
    for (int g = 0; g < groups; g++, row += type.block_bytes) {
      const Decoded32 decoded = decode32(type.format, row);
      place<L::bits>(block + L::codes(groups) + g * L::tile, output, decoded.codes);
      put_half(block + L::scales + 32 * g, output, decoded.scale);
      if constexpr (L::has_minimum) put_half(block + L::minima(groups) + 32 * g, output, decoded.minimum);
    }
    block += L::bytes(groups);
  }
}

template <class L>
void pack_super(const TypeInfo& type, const uint8_t* row, int output, int inputs, uint8_t* block) {
  for (int s = 0; s < inputs / 256; s++, block += L::bytes, row += type.block_bytes) {
    const Decoded256 decoded = decode256(type.format, row);
    for (int g = 0; g < 8; g++) place<L::bits>(block + L::codes + g * L::tile, output, decoded.codes + 32 * g);
    put_half(block + L::supers, output, decoded.super);
    if constexpr (L::bits == 6) {
      for (int g = 0; g < 16; g++) block[L::scales + 16 * g + output] = decoded.scales[g];
    } else {
      for (int g = 0; g < 8; g++) {
        block[L::scales + 16 * g + output] = decoded.scales[g];
        block[L::minima + 32 * (g / 2) + 2 * output + g % 2] = decoded.minima[g];
      }
      put_half(block + L::super_minima, output, decoded.super_minimum);
    }
  }
}

struct Packing {
  PackRow row;
  size_t block_bytes;
};

template <class L>
Packing pack_groups(int inputs) {
  const int groups = inputs / 32, rest = groups % 8;
  return {pack_grouped<L>, static_cast<size_t>(groups / 8) * L::bytes(8) + (rest ? L::bytes(rest) : 0)};
}

template <class L>
Packing pack_supers(int inputs) {
  return {pack_super<L>, static_cast<size_t>(inputs / 256) * L::bytes};
}

Packing packing(Format format, int inputs) {
  using namespace layout;
  switch (format) {
    case Format::F32: return {pack_numbers<float>, size_t{64} * inputs};
    case Format::F16: return {pack_numbers<Half>, size_t{32} * inputs};
    case Format::BF16: return {pack_numbers<BFloat>, size_t{32} * inputs};
    case Format::Q4_0: return pack_groups<Q4_0>(inputs);
    case Format::Q4_1: return pack_groups<Q4_1>(inputs);
    case Format::Q5_0: return pack_groups<Q5_0>(inputs);
    case Format::Q5_1: return pack_groups<Q5_1>(inputs);
    case Format::Q8_0: return pack_groups<Q8_0>(inputs);
    case Format::Q4_K: return pack_supers<Q4_K>(inputs);
    case Format::Q5_K: return pack_supers<Q5_K>(inputs);
    case Format::Q6_K: return pack_supers<Q6_K>(inputs);
  }
  throw std::invalid_argument("unknown format");
}

// Bytes that a thread packs before it looks for more: large against a call of the system.
constexpr size_t packed_at_once = 512 << 10;

#ifdef __linux__
// About the pages of a mapped file that the bytes lie on.
void advise(const uint8_t* data, size_t size, int advice) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data) / page * page, end = reinterpret_cast<uintptr_t>(data) + size;
  madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}
void read_ahead(const uint8_t* data, size_t size) { advise(data, size, MADV_WILLNEED); }
void give_back(const uint8_t* data, size_t size) { advise(data, size, MADV_DONTNEED); }
#else
void read_ahead(const uint8_t*, size_t) {}
void give_back(const uint8_t*, size_t) {}
#endif

}  // namespace

Matrix::Matrix(int type_number, int64_t outputs, int64_t inputs, const uint8_t* data, size_t size, const float* bias,
               bool is_mapped) {
  const TypeInfo& type = find_type(type_number);
  constexpr int64_t most = std::numeric_limits<int>::max() / 2;
  if (outputs < 1 || inputs < 1 || outputs > most || inputs > most || inputs % type.block_inputs != 0)
    throw std::invalid_argument("shape [" + std::to_string(outputs) + ", " + std::to_string(inputs) +
                                "] is not possible: both sizes must be at least 1, inputs a multiple of " +
                                std::to_string(type.block_inputs));
  const size_t row_bytes = static_cast<size_t>(inputs / type.block_inputs) * type.block_bytes;
  if (size / row_bytes != static_cast<size_t>(outputs) || size % row_bytes != 0)
    throw std::invalid_argument("data has " + std::to_string(size) + " bytes; its type and shape need " +
                                std::to_string(row_bytes) + " for each of " + std::to_string(outputs) + " outputs");
  format_ = type.format;
  outputs_ = static_cast<int>(outputs);
  inputs_ = static_cast<int>(inputs);
  const Packing packed = packing(format_, inputs_);
  block_bytes_ = packed.block_bytes;
  if (bias) {
    bias_.resize(static_cast<size_t>(num_blocks()) * tile_outputs);
    std::copy(bias, bias + outputs, bias_.begin());
  }
  pack(type, data, row_bytes, is_mapped);
}

void Matrix::pack(const TypeInfo& type, const uint8_t* data, size_t row_bytes, bool is_mapped) {
  Session session;
  data_ = session.take_weights(num_blocks() * block_bytes_);
  const PackRow pack_row = packing(format_, inputs_).row;
  const int blocks_per_piece = static_cast<int>(std::max<size_t>(1, packed_at_once / (tile_outputs * row_bytes)));
  const int rows_per_piece = blocks_per_piece * tile_outputs;
  const size_t size = outputs_ * row_bytes;
  if (is_mapped) read_ahead(data, size);
  session.pool().run((outputs_ + rows_per_piece - 1) / rows_per_piece, [&](int piece, int) {
    const int first = piece * rows_per_piece, last = std::min(first + rows_per_piece, outputs_);
    for (int output = first; output < last; output++) {
      uint8_t* block = data_.get() + output / tile_outputs * block_bytes_;
      const bool is_partial = outputs_ - output < tile_outputs;
      if (output % tile_outputs == 0 && is_partial) std::memset(block, 0, block_bytes_);
      pack_row(type, data + output * row_bytes, output % tile_outputs, inputs_, block);
    }
    if (is_mapped) give_back(data + first * row_bytes, (last - first) * row_bytes);
  });
  if (is_mapped) give_back(data, size);  // pages that came back when a neighbor of theirs was read
}

}  // namespace foredraft
