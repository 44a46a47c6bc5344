#include "ops.hpp"
#include "runtime.hpp"

namespace foredraft {
namespace {

const float* or_null(const std::vector<float>& norm) { return norm.empty() ? nullptr : norm.data(); }

}  // namespace

void forward(float* x, const Layer& layer, const Cache& cache, Batch& batch) {
  Session session;  // held throughout: what passes from one operation to the next lies in the workspace
  Workspace& workspace = session.workspace();
  const int rows = batch.num_rows();
  const auto width = [&](const Matrix* matrix) { return static_cast<size_t>(rows) * matrix->outputs(); };
  float* q = workspace.queries.get<float>(width(layer.query));
  float* k = workspace.keys.get<float>(width(layer.key));
  float* v = workspace.values.get<float>(width(layer.value));
  float* attended = workspace.attended.get<float>(width(layer.query));
  const Matrix* const matrices[] = {layer.query, layer.key, layer.value};
  float* const outs[] = {q, k, v};
  project(x, rows, layer.attention_norm.data(), layer.eps, matrices, outs);
  attend(q, k, v, layer.attention, cache, batch, attended);
  accumulate(x, attended, rows, *layer.output, or_null(layer.attention_post_norm), layer.eps);
  feed_forward(x, rows, layer.ffn_norm.data(), *layer.gate, *layer.up, *layer.down, layer.activation,
               or_null(layer.ffn_post_norm), layer.eps);
}

}  // namespace foredraft
