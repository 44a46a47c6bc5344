#include "project.hpp"

#include "ops.hpp"

namespace foredraft {
namespace {

bool has_groups_of_32(Format format) { return format >= Format::Q4_0 && format <= Format::Q8_0; }
bool has_groups_of_256(Format format) { return format >= Format::Q4_K; }

template <class Test>
bool any(std::span<const Matrix* const> matrices, Test&& test) {
  return std::any_of(matrices.begin(), matrices.end(), [&](const Matrix* m) { return test(m->format()); });
}

}  // namespace

Input prepare(Session& session, const float* x, int rows, int inputs, const float* norm, float eps,
              std::span<const Matrix* const> matrices) {
  Workspace& workspace = session.workspace();
  const Kernels& kernels = session.kernels();
  Input input{rows, x, nullptr, nullptr};
  const bool by32 = any(matrices, has_groups_of_32), by256 = any(matrices, has_groups_of_256);
  float* normalized = norm ? workspace.normalized.get<float>(static_cast<size_t>(rows) * inputs) : nullptr;
  if (norm) input.values = normalized;
  const size_t groups32 = inputs / 32, groups256 = inputs / 256;
  if (by32) input.by32 = workspace.by32.get<Codes32>(rows * groups32);
  if (by256) input.by256 = workspace.by256.get<Codes256>(rows * groups256);
  constexpr int rows_per_piece = 4;  // fewer rows are done before another thread has woken
  session.pool().run((rows + rows_per_piece - 1) / rows_per_piece, [&](int piece, int) {
    for (int row = piece * rows_per_piece; row < std::min(rows, (piece + 1) * rows_per_piece); row++) {
      const size_t at = static_cast<size_t>(row) * inputs;
      if (norm) kernels.rms_norm(x + at, norm, eps, inputs, normalized + at);
      if (by32) kernels.quantize32(input.values + at, inputs, input.by32 + row, rows);
      if (by256) kernels.quantize256(input.values + at, inputs, input.by256 + row, rows);
    }
  });
  return input;
}

void multiply_block(const Kernels& kernels, const Matrix& matrix, int block, const Input& input, int first, int count,
                    float* totals) {
  kernels.multiply[static_cast<int>(matrix.format())](matrix.block(block), matrix.inputs(), input, first, count,
                                                      totals);
  if (const float* bias = matrix.bias(block))
    for (int i = 0; i < count * tile_outputs; i++) totals[i] += bias[i % tile_outputs];
}

namespace {

// Calls put(output element, total) for the real outputs of a block, rows of `out` being `outputs` wide.
template <class Put>
void put_block(const Matrix& matrix, int block, int first, int count, const float* totals, float* out, Put&& put) {
  const int begin = block * tile_outputs, width = std::min(tile_outputs, matrix.outputs() - begin);
  for (int m = 0; m < count; m++) {
    float* to = out + static_cast<size_t>(first + m) * matrix.outputs() + begin;
    for (int i = 0; i < width; i++) put(to[i], totals[m * tile_outputs + i]);
  }
}

}  // namespace

void project(const float* x, int rows, const float* norm, float eps, std::span<const Matrix* const> matrices,
             std::span<float* const> outs) {
  if (matrices.empty()) return;
  Session session;
  const Kernels& kernels = session.kernels();
  const int inputs = matrices.front()->inputs();
  const Input input = prepare(session, x, rows, inputs, norm, eps, matrices);
  int count = 0;
  size_t bytes = 0;
  for (const Matrix* matrix : matrices) {
    count += matrix->num_blocks();
    bytes += matrix->num_blocks() * matrix->block_bytes();
  }
  share_blocks(session, count, bytes / count, rows, inputs, [&](int block, int first, int batch) {
    size_t i = 0;  // the matrix that the block is one of
    for (; block >= matrices[i]->num_blocks(); i++) block -= matrices[i]->num_blocks();
    alignas(64) float totals[max_row_batch * tile_outputs];
    multiply_block(kernels, *matrices[i], block, input, first, batch, totals);
    put_block(*matrices[i], block, first, batch, totals, outs[i],
              [](float& to, float total) { to = total; });
  });
}

namespace {

// x += [RMSNorm of] matrix * input.
void add_product(Session& session, float* x, const Input& input, int rows, const Matrix& matrix, const float* norm,
                 float eps) {
  const Kernels& kernels = session.kernels();
  const int outputs = matrix.outputs();
  float* y = norm ? session.workspace().projected.get<float>(static_cast<size_t>(rows) * outputs) : x;
  share_blocks(session, matrix.num_blocks(), matrix.block_bytes(), rows, matrix.inputs(),
               [&](int block, int first, int batch) {
                 alignas(64) float totals[max_row_batch * tile_outputs];
                 multiply_block(kernels, matrix, block, input, first, batch, totals);
                 if (norm)
                   put_block(matrix, block, first, batch, totals, y, [](float& to, float total) { to = total; });
                 else
                   put_block(matrix, block, first, batch, totals, y, [](float& to, float total) { to += total; });
               });
  if (!norm) return;
  session.pool().run((rows + 3) / 4, [&](int piece, int) {
    for (int row = piece * 4; row < std::min(rows, piece * 4 + 4); row++) {
      const size_t at = static_cast<size_t>(row) * outputs;
      kernels.rms_norm(y + at, norm, eps, outputs, y + at);
      for (int i = 0; i < outputs; i++) x[at + i] += y[at + i];
    }
  });
}

}  // namespace

void accumulate(float* x, const float* y, int rows, const Matrix& matrix, const float* norm, float eps) {
  Session session;
  const Matrix* const matrices[] = {&matrix};
  const Input input = prepare(session, y, rows, matrix.inputs(), nullptr, 0, matrices);
  add_product(session, x, input, rows, matrix, norm, eps);
}

void feed_forward(float* x, int rows, const float* norm, const Matrix& gate, const Matrix& up, const Matrix& down,
                  Activation activation, const float* post_norm, float eps) {
  Session session;
  const Kernels& kernels = session.kernels();
  const int width = gate.outputs();
  float* hidden = session.workspace().hidden.get<float>(static_cast<size_t>(rows) * width);
  const Matrix *const first_two[] = {&gate, &up}, *const last[] = {&down};
  Input input = prepare(session, x, rows, gate.inputs(), norm, eps, first_two);
  share_blocks(session, gate.num_blocks(), gate.block_bytes() + up.block_bytes(), rows, gate.inputs(),
               [&](int block, int first, int batch) {
                 alignas(64) float gates[max_row_batch * tile_outputs], ups[max_row_batch * tile_outputs];
                 multiply_block(kernels, gate, block, input, first, batch, gates);
                 multiply_block(kernels, up, block, input, first, batch, ups);
                 kernels.gate(activation, gates, ups, batch * tile_outputs);
                 put_block(gate, block, first, batch, gates, hidden, [](float& to, float total) { to = total; });
               });
  input = prepare(session, hidden, rows, width, nullptr, 0, last);
  add_product(session, x, input, rows, down, post_norm, eps);
}

}  // namespace foredraft
