#include "slab.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace foredraft {
namespace {

#ifdef __SANITIZE_ADDRESS__
// Every matrix has memory of exactly its size, so that a read beyond it is seen.
constexpr size_t large_page = 64, slab_bytes = 0;
#else
constexpr size_t large_page = size_t{2} << 20, slab_bytes = size_t{64} << 20;
#endif

size_t rounded_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

Slab::Slab(size_t size) : size_(rounded_up(size, large_page)) {
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(large_page, size_)));
  if (!data_) throw std::bad_alloc();
#ifdef __linux__
  if (slab_bytes) madvise(data_.get(), size_, MADV_HUGEPAGE);
#endif
}

void Slab::Free::operator()(uint8_t* p) const { std::free(p); }

uint8_t* Slab::take(size_t size) {
  size = rounded_up(size, 64);
  if (size > size_ - used_) return nullptr;
  used_ += size;
  return data_.get() + used_ - size;
}

std::shared_ptr<uint8_t> take(std::weak_ptr<Slab>& current, size_t size) {
  std::shared_ptr<Slab> slab = current.lock();
  uint8_t* data = slab ? slab->take(size) : nullptr;
  if (!data) {
    current = slab = std::make_shared<Slab>(std::max(size, slab_bytes));
    data = slab->take(size);
  }
  return {slab, data};
}

}  // namespace foredraft
