#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops.hpp"
#include "runtime.hpp"

namespace foredraft {
namespace {

const Rotations& rotations(Workspace& workspace, const std::vector<int32_t>& positions,
                           const std::vector<float>& frequencies) {
  for (const auto& r : workspace.recent)
    if (r.is_for(positions, frequencies)) return r;
  Rotations& filled = workspace.recent[workspace.oldest];
  filled.fill(positions, frequencies);
  workspace.oldest = 1 - workspace.oldest;
  return filled;
}

// Normalizes and rotates one row's heads in place.
void rotate_heads(const Kernels& kernels, const AttentionSpec& spec, const Rotations& angles, int row, float* x,
                  int heads, const std::vector<float>& norm, float scale) {
  const int dim = spec.shape.head_dim;
  for (int head = 0; head < heads; head++, x += dim) {
    if (!norm.empty()) kernels.rms_norm(x, norm.data(), spec.norm_eps, dim, x);
    kernels.rotate(x, angles.cosines(row), angles.sines(row), dim / 2, spec.is_interleaved, scale);
  }
}

// One row's keys (transposed) and values into their slot.
void store(const Kernels& kernels, const AttendShape& shape, const Cache& cache, std::pair<int, int> place,
           const float* k, const float* v) {
  const int dim = shape.head_dim, page_size = shape.page_size;
  const auto [page, offset] = place;
  Half halves[64];
  for (int head = 0; head < shape.num_kv_heads; head++, k += dim, v += dim) {
    const size_t at = (static_cast<size_t>(page) * shape.num_kv_heads + head) * dim * page_size;
    kernels.to_half(v, dim, cache.values + at + static_cast<size_t>(offset) * dim);
    for (int d = 0; d < dim; d += 64) {
      const int count = std::min(64, dim - d);
      kernels.to_half(k + d, count, halves);
      for (int i = 0; i < count; i++) cache.keys[at + static_cast<size_t>(d + i) * page_size + offset] = halves[i];
    }
  }
}

void write_rows(Session& session, float* q, float* k, const float* v, const AttentionSpec& spec, const Cache& cache,
                const AttendShape& shape, const Batch& batch) {
  const Kernels& kernels = session.kernels();
  const Rotations& angles = rotations(session.workspace(), batch.positions(), spec.frequencies);
  const size_t q_width = static_cast<size_t>(shape.num_heads) * shape.head_dim;
  const size_t kv_width = static_cast<size_t>(shape.num_kv_heads) * shape.head_dim;
  constexpr int rows_per_piece = 4;
  session.pool().run((batch.num_rows() + rows_per_piece - 1) / rows_per_piece, [&](int piece, int) {
    const int end = std::min(batch.num_rows(), (piece + 1) * rows_per_piece);
    for (int row = piece * rows_per_piece; row < end; row++) {
      rotate_heads(kernels, spec, angles, row, q + row * q_width, shape.num_heads, spec.q_norm, spec.scale);
      rotate_heads(kernels, spec, angles, row, k + row * kv_width, shape.num_kv_heads, spec.k_norm, 1);
      store(kernels, shape, cache, batch.page_and_offset(row, shape.page_size), k + row * kv_width,
            v + row * kv_width);
    }
  });
}

}  // namespace

void Rotations::fill(const std::vector<int32_t>& positions, const std::vector<float>& frequencies) {
  positions_.clear();  // and set last: an exception in between leaves angles of nothing
  frequencies_ = frequencies;
  half_ = frequencies.size();
  cosines_.resize(positions.size() * half_);
  sines_.resize(positions.size() * half_);
  for (size_t row = 0; row < positions.size(); row++)
    for (size_t i = 0; i < half_; i++) {
      const float angle = static_cast<float>(positions[row]) * frequencies[i];
      cosines_[row * half_ + i] = std::cos(angle);
      sines_[row * half_ + i] = std::sin(angle);
    }
  positions_ = positions;
}

size_t attend_workspace(const AttendShape& shape, int num_rows, int num_heads) {
  auto padded = [](int n) { return static_cast<size_t>(n + attend_padding - 1) / attend_padding * attend_padding; };
  const size_t dim = padded(shape.head_dim), page = padded(shape.page_size);
  return (attend_tile + 3 * dim) * page + static_cast<size_t>(num_rows) * num_heads * (dim + 16);
}

void attend(float* q, float* k, const float* v, const AttentionSpec& spec, const Cache& cache, Batch& batch,
            float* out) {
  if (batch.num_rows() == 0) return;
  Session session;
  batch.check(cache.page_size, cache.num_pages);
  AttendShape shape = spec.shape;
  shape.page_size = cache.page_size;
  write_rows(session, q, k, v, spec, cache, shape, batch);

  AttendRow* rows = session.workspace().attend_rows.get<AttendRow>(batch.num_rows());
  for (int row = 0; row < batch.num_rows(); row++) rows[row] = batch.row(row, shape.window);
  // All query heads of a key-value head together, unless that leaves threads without work.
  const int shared = shape.num_heads / shape.num_kv_heads, threads = session.pool().threads();
  const auto& groups = batch.groups();
  const int units = static_cast<int>(groups.size()) * shape.num_kv_heads;
  int splits = std::min(std::max(1, (threads + units - 1) / units), shared);
  splits = std::max(splits, (8 * shared + attend_max_queries - 1) / attend_max_queries);
  auto& workspaces = session.workspace().threads;
  for (auto& workspace : workspaces) workspace.get<float>(attend_workspace(shape, 8, shared));
  session.pool().run(units * splits, [&](int piece, int thread) {
    const RowGroup& group = groups[piece / splits / shape.num_kv_heads];
    const int kv_head = piece / splits % shape.num_kv_heads, split = piece % splits;
    const int begin = shared * split / splits, end = shared * (split + 1) / splits;
    float* workspace = workspaces[thread].get<float>(attend_workspace(shape, group.count, end - begin));
    session.kernels().attend({&shape, rows + group.first, group.count, batch.pages(group.sequence), kv_head,
                              kv_head * shared + begin, end - begin, q, out, cache.keys, cache.values, workspace});
  });
}

}  // namespace foredraft
