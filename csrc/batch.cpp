#include "batch.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace foredraft {
namespace {

constexpr int rows_per_group = 8;

void require(bool ok, const char* message) {
  if (!ok) throw std::invalid_argument(message);
}

}  // namespace

Batch::Batch(Ints positions, Ints sequences, Ints slots, Ints prefixes, Ints ancestors, Ints offsets, Ints page_tables,
             int max_pages)
    : max_pages_(max_pages),
      positions_(std::move(positions)),
      sequences_(std::move(sequences)),
      slots_(std::move(slots)),
      prefixes_(std::move(prefixes)),
      ancestors_(std::move(ancestors)),
      offsets_(std::move(offsets)),
      page_tables_(std::move(page_tables)) {
  const size_t rows = slots_.size();
  require(positions_.size() == rows && sequences_.size() == rows && prefixes_.size() == rows,
          "positions, sequences, slots and prefixes must have one entry for each row");
  require(offsets_.size() == rows + 1 && offsets_.front() == 0 &&
              offsets_.back() == static_cast<int64_t>(ancestors_.size()),
          "ancestor_offsets must go from 0 to the number of ancestors in rows + 1 entries");
  const int num_sequences = max_pages > 0 ? static_cast<int>(page_tables_.size() / max_pages) : 0;
  for (size_t r = 0; r < rows; r++) {
    require(sequences_[r] >= 0 && sequences_[r] < num_sequences, "a row's sequence has no page table");
    require(positions_[r] >= 0 && slots_[r] >= 0 && prefixes_[r] >= 0,
            "positions, slots and prefixes must not be negative");
    require(offsets_[r] < offsets_[r + 1] && offsets_[r + 1] <= offsets_.back(), "every row needs an ancestor, itself");
    const bool starts = groups_.empty() || groups_.back().sequence != sequences_[r] ||
                        groups_.back().count == rows_per_group;
    if (starts) groups_.push_back({static_cast<int>(r), 0, sequences_[r]});
    groups_.back().count++;
  }
}

AttendRow Batch::row(int index, int window) const {
  const int32_t* ancestors = ancestors_.data() + offsets_[index];
  const int count = offsets_[index + 1] - offsets_[index], prefix = prefixes_[index];
  int linear = prefix;
  while (linear - prefix < count && ancestors[linear - prefix] == linear) linear++;
  const int length = prefix + count;
  return {index, prefix, linear, window > 0 ? std::max(0, length - window) : 0, length, ancestors};
}

void Batch::check(int page_size, int num_pages) {
  if (page_size == checked_page_size_ && num_pages == checked_num_pages_) return;
  for (int r = 0; r < num_rows(); r++) {
    const int32_t* table = pages(sequences_[r]);
    auto require_slot = [&](int slot) {
      const int page = slot >= 0 && slot / page_size < max_pages_ ? table[slot / page_size] : -1;
      if (page < 0 || page >= num_pages)
        throw std::invalid_argument("slot " + std::to_string(slot) + " of row " + std::to_string(r) +
                                    " is not on a page of the cache");
    };
    require_slot(slots_[r]);
    for (int slot = 0; slot < prefixes_[r]; slot += page_size) require_slot(slot);
    for (int i = offsets_[r]; i < offsets_[r + 1]; i++) require_slot(ancestors_[i]);
  }
  checked_page_size_ = page_size;
  checked_num_pages_ = num_pages;
}

}  // namespace foredraft
