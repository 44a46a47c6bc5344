// A weight matrix, repacked once from GGUF bytes into the layout that the kernels read (layout.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.hpp"

namespace foredraft {

struct TypeInfo;

class Matrix {
 public:
  // `data` is the tensor's bytes, [outputs, inputs] row after row, in GGUF type number `type`; `bias` is [outputs] or
  // null. Where the data is that of a mapped file (`is_mapped`), its pages are given back to the system as they are
  // packed: a load takes little more memory than the packed model, and who reads them again gets them from the file.
  // Throws std::invalid_argument if the type is unknown or the sizes do not fit together.
  Matrix(int type, int64_t outputs, int64_t inputs, const uint8_t* data, size_t size, const float* bias,
         bool is_mapped = false);

  Format format() const { return format_; }
  int outputs() const { return outputs_; }
  int inputs() const { return inputs_; }
  int num_blocks() const { return (outputs_ + tile_outputs - 1) / tile_outputs; }
  size_t block_bytes() const { return block_bytes_; }
  const uint8_t* block(int index) const { return data_.get() + index * block_bytes_; }
  // 16 biases of a row block, zeros beyond the outputs; null without a bias.
  const float* bias(int index) const { return bias_.empty() ? nullptr : bias_.data() + index * tile_outputs; }

 private:
  void pack(const TypeInfo& type, const uint8_t* data, size_t row_bytes, bool is_mapped);

  Format format_;
  int outputs_, inputs_;
  size_t block_bytes_;
  std::shared_ptr<uint8_t> data_;
  std::vector<float> bias_;
};

}  // namespace foredraft
