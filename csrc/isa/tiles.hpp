// Compile-time loops and tiles of rows.
#pragma once

#include <utility>

namespace foredraft {
namespace {

template <int i>
using Index = std::integral_constant<int, i>;

// Calls body(Index<first>), ..., body(Index<first + count - 1>), unrolled; the numbers are constants in the body.
template <int first, int count, class Body>
__attribute__((always_inline)) inline void unroll(Body&& body) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (body(Index<first + i>{}), ...);
  }(std::make_integer_sequence<int, count>{});
}

// Cuts `count` rows into tiles of at most `most` and calls body(Index<rows>, first row) for each. Tiles are even: of at
// most 4, 5 rows are 3 + 2 and not 4 + 1.
template <int most, class Body>
inline void each_tile(int count, Body&& body) {
  for (int first = 0; first < count;) {
    const int left = (count - first + most - 1) / most, rows = (count - first + left - 1) / left;
    unroll<1, most>([&](auto i) {
      if (i() == rows) body(i, first);
    });
    first += rows;
  }
}

}  // namespace
}  // namespace foredraft
