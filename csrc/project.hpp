// Matrix products over all threads: preparing the input once, then sharing out row blocks of any number of matrices.
#pragma once

#include <algorithm>
#include <span>

#include "matrix.hpp"
#include "runtime.hpp"

namespace foredraft {

// Pieces of about this much weight memory: large against a claim, small against a thread that is held up.
constexpr size_t piece_bytes = 128 << 10;
// Activation codes of a row batch stay in the second-level cache while the weights pass by.
constexpr int batch_bytes = 192 << 10;

// x [rows, inputs], RMS-normalized where `norm` is given, in the forms that the matrices' formats read. The result lies
// in the workspace until the next call (x itself may be part of it).
Input prepare(Session& session, const float* x, int rows, int inputs, const float* norm, float eps,
              std::span<const Matrix* const> matrices);

// Splits `count` row blocks of block_bytes each into pieces and calls each_block(block, first row, rows) for all blocks
// and batches of rows, a piece on one thread.
template <class EachBlock>
void share_blocks(Session& session, int count, size_t block_bytes, int rows, int inputs, EachBlock&& each_block) {
  if (rows == 0) return;
  const int batch = std::clamp(batch_bytes / inputs / 4 * 4, 8, max_row_batch);
  const size_t wanted = std::max<size_t>(1, count * block_bytes * ((rows + 3) / 4) / piece_bytes);
  const int pieces = static_cast<int>(std::min<size_t>({wanted, static_cast<size_t>(count),
                                                        static_cast<size_t>(session.pool().threads()) * 16}));
  session.pool().run(pieces, [&](int piece, int) {
    const int begin = static_cast<int>(static_cast<int64_t>(count) * piece / pieces);
    const int end = static_cast<int>(static_cast<int64_t>(count) * (piece + 1) / pieces);
    for (int first = 0; first < rows; first += batch)
      for (int block = begin; block < end; block++) each_block(block, first, std::min(batch, rows - first));
  });
}

// totals [count, 16] of one row block, bias added.
void multiply_block(const Kernels& kernels, const Matrix& matrix, int block, const Input& input, int first, int count,
                    float* totals);

}  // namespace foredraft
