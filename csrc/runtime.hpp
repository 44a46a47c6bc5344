// What all operations of the process share: the thread pool, the chosen instruction set, reusable memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "kernels.hpp"
#include "slab.hpp"
#include "threads.hpp"

namespace foredraft {

// Memory that grows to the largest size asked for and is then reused. Its content does not survive the next `get`.
class Buffer {
 public:
  template <class T>
  T* get(size_t count) {
    const size_t size = (count * sizeof(T) + 63) / 64 * 64;
    if (size > size_) {
      data_.reset();
      data_.reset(std::aligned_alloc(64, size));
      size_ = data_ ? size : 0;
      if (!data_) throw std::bad_alloc();
    }
    return static_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  size_t size_ = 0;
};

// Cosines and sines of the rows' angles, [rows, half] each; a pass asks for the same ones in every layer.
class Rotations {
 public:
  const float* cosines(int row) const { return cosines_.data() + static_cast<size_t>(row) * half_; }
  const float* sines(int row) const { return sines_.data() + static_cast<size_t>(row) * half_; }

  bool is_for(const std::vector<int32_t>& positions, const std::vector<float>& frequencies) const {
    return positions_ == positions && frequencies_ == frequencies;
  }

  void fill(const std::vector<int32_t>& positions, const std::vector<float>& frequencies);

 private:
  size_t half_ = 0;
  std::vector<int32_t> positions_;
  std::vector<float> frequencies_, cosines_, sines_;
};

struct Workspace {
  Buffer normalized, hidden, projected, by32, by256, attend_rows;
  Buffer queries, keys, values, attended;  // of a layer
  std::vector<Buffer> threads;  // one for each thread of the pool
  Rotations recent[2];          // models use at most two sets of frequencies (local and global layers)
  int oldest = 0;
};

// The use of the runtime by one operation, and by those that it calls: operations of several Python threads take turns.
class Session {
 public:
  Session();
  Pool& pool();
  Workspace& workspace();
  const Kernels& kernels();
  std::shared_ptr<uint8_t> take_weights(size_t size);

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// Threads for the operations from now on, the caller's among them. Throws std::invalid_argument below 1.
void set_threads(int threads);
int num_threads();

// Instruction sets that this machine can run, best first.
std::vector<std::string> available_isas();
// Throws std::invalid_argument naming the available ones if `name` is not among them.
void set_isa(const std::string& name);
std::string isa();

}  // namespace foredraft
