#include "matrix.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

#include "gguf_types.hpp"
#include "layout.hpp"
#include "runtime.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace foredraft {
namespace {

const TypeInfo& find_type(int number) {
  for (const auto& type : types)
    if (type.number == number) return type;
  throw std::invalid_argument("tensor type " + std::to_string(number) + " is not one that the kernels read");
}

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

// Zeroed memory on large pages where the system has them: a pass walks through all of it.
uint8_t* allocate(size_t size) {
  constexpr size_t large_page = size_t{2} << 20;
  const size_t alignment = size >= large_page ? large_page : 64;
  void* p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (!p) throw std::bad_alloc();
#ifdef __linux__
  if (alignment == large_page) madvise(p, size, MADV_HUGEPAGE);
#endif
  std::memset(p, 0, size);
  return static_cast<uint8_t*>(p);
}

}  // namespace

Matrix::Matrix(int type_number, int64_t outputs, int64_t inputs, const uint8_t* data, size_t size, const float* bias) {
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
  const Packing pack = packing(format_, inputs_);
  block_bytes_ = pack.block_bytes;
  data_.reset(allocate(num_blocks() * block_bytes_));
  if (bias) {
    bias_.resize(static_cast<size_t>(num_blocks()) * tile_outputs);
    std::copy(bias, bias + outputs, bias_.begin());
  }
  Session session;
  session.pool().run(num_blocks(), [&](int block, int) {
    const int last = std::min((block + 1) * tile_outputs, outputs_);
    for (int output = block * tile_outputs; output < last; output++)
      pack.row(type, data + output * row_bytes, output % tile_outputs, inputs_, data_.get() + block * block_bytes_);
  });
}

}  // namespace foredraft
