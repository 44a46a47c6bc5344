// The rows of a pass as attention sees them, checked once.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels.hpp"

namespace foredraft {

// Consecutive rows of one sequence, which share the loads of its pages.
struct RowGroup {
  int first, count, sequence;
};

class Batch {
 public:
  using Ints = std::vector<int32_t>;
  // Arrays as in ops/base.py's Batch; page_tables is [num_sequences, max_pages]. Throws std::invalid_argument if they
  // contradict each other or an entry is out of range.
  Batch(Ints positions, Ints sequences, Ints slots, Ints prefixes, Ints ancestors, Ints offsets, Ints page_tables,
        int max_pages);

  int num_rows() const { return static_cast<int>(slots_.size()); }
  const Ints& positions() const { return positions_; }
  const std::vector<RowGroup>& groups() const { return groups_; }
  const int32_t* pages(int sequence) const { return page_tables_.data() + static_cast<size_t>(sequence) * max_pages_; }
  std::pair<int, int> page_and_offset(int row, int page_size) const {
    return {pages(sequences_[row])[slots_[row] / page_size], slots_[row] % page_size};
  }
  AttendRow row(int index, int window) const;

  // Throws std::invalid_argument if a slot that a row touches is not on a page of a cache of that size.
  void check(int page_size, int num_pages);

 private:
  int max_pages_;
  Ints positions_, sequences_, slots_, prefixes_, ancestors_, offsets_, page_tables_;
  std::vector<RowGroup> groups_;
  int checked_page_size_ = 0, checked_num_pages_ = 0;
};

}  // namespace foredraft
