// Memory of weights: matrices lie side by side on slabs of large pages, which a pass walks through from end to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace foredraft {

class Slab {
 public:
  // Throws std::bad_alloc. Memory that nobody has written to costs nothing.
  explicit Slab(size_t size);

  // 64-byte aligned, not zeroed; null where less than `size` is left.
  uint8_t* take(size_t size);

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t[], Free> data_;
  size_t size_, used_ = 0;
};

// `size` bytes from `current`, or from a new slab that takes its place. A slab lives as long as anything on it.
std::shared_ptr<uint8_t> take(std::weak_ptr<Slab>& current, size_t size);

}  // namespace foredraft
