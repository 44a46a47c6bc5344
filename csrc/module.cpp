// The Python module: every array is checked here, nothing is copied that the kernels write.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "ops.hpp"
#include "runtime.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace foredraft {

void bind_sample(nb::module_& m);  // module_sample.cpp

namespace {

using Floats1 = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats2 = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using MutableFloats2 = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints1 = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints2 = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Pages = nb::ndarray<nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using MaybeFloats1 = std::optional<Floats1>;

void require(bool ok, const std::string& message) {
  if (!ok) throw std::invalid_argument(message);
}

template <class Array>
void require_shape(const Array& array, const char* name, int64_t rows, int64_t width) {
  if (static_cast<int64_t>(array.shape(0)) == rows && static_cast<int64_t>(array.shape(1)) == width) return;
  throw std::invalid_argument(std::string(name) + " has shape [" + std::to_string(array.shape(0)) + ", " +
                              std::to_string(array.shape(1)) + "], not [" + std::to_string(rows) + ", " +
                              std::to_string(width) + "]");
}

const float* optional_vector(const MaybeFloats1& array, const char* name, size_t width) {
  if (!array) return nullptr;
  if (array->shape(0) != width)
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(array->shape(0)) + " values, not " +
                                std::to_string(width));
  return array->data();
}

void py_embed(int type, Bytes table, Ints1 tokens, MutableFloats2 out) {
  require(out.shape(0) == tokens.shape(0), "out must have a row for each token");
  nb::gil_scoped_release release;
  embed(type, table.data(), table.shape(0), tokens.data(), static_cast<int>(out.shape(0)),
        static_cast<int>(out.shape(1)), out.data());
}

void py_project(Floats2 x, MaybeFloats1 norm, float eps, const std::vector<const Matrix*>& matrices,
                const std::vector<MutableFloats2>& outs) {
  require(matrices.size() == outs.size(), "as many outputs as matrices are needed");
  const int rows = static_cast<int>(x.shape(0)), inputs = static_cast<int>(x.shape(1));
  std::vector<float*> to;
  for (size_t i = 0; i < outs.size(); i++) {
    require_shape(x, "x", rows, matrices[i]->inputs());
    require_shape(outs[i], "out", rows, matrices[i]->outputs());
    to.push_back(outs[i].data());
  }
  const float* weight = optional_vector(norm, "norm", inputs);
  nb::gil_scoped_release release;
  project(x.data(), rows, weight, eps, matrices, to);
}

void py_accumulate(MutableFloats2 x, Floats2 y, const Matrix& matrix, MaybeFloats1 norm, float eps) {
  const int rows = static_cast<int>(x.shape(0));
  require_shape(x, "x", rows, matrix.outputs());
  require_shape(y, "y", rows, matrix.inputs());
  const float* weight = optional_vector(norm, "norm", matrix.outputs());
  nb::gil_scoped_release release;
  accumulate(x.data(), y.data(), rows, matrix, weight, eps);
}

Activation activation_named(const std::string& name) {
  require(name == "silu" || name == "gelu", "activation '" + name + "' is not silu or gelu");
  return name == "silu" ? Activation::silu : Activation::gelu;
}

void require_gated(const Matrix& gate, const Matrix& up, const Matrix& down) {
  require(up.inputs() == gate.inputs() && up.outputs() == gate.outputs(), "gate and up must have the same shape");
  require(down.inputs() == gate.outputs() && down.outputs() == gate.inputs(),
          "down must have the shape of gate turned");
}

void py_feed_forward(MutableFloats2 x, Floats1 norm, const Matrix& gate, const Matrix& up, const Matrix& down,
                     const std::string& activation, MaybeFloats1 post_norm, float eps) {
  require_gated(gate, up, down);
  const int rows = static_cast<int>(x.shape(0));
  require_shape(x, "x", rows, gate.inputs());
  require(norm.shape(0) == x.shape(1), "norm must be as wide as x");
  const Activation function = activation_named(activation);
  const float* post = optional_vector(post_norm, "post_norm", x.shape(1));
  nb::gil_scoped_release release;
  feed_forward(x.data(), rows, norm.data(), gate, up, down, function, post, eps);
}

std::vector<float> copy(const MaybeFloats1& array) {
  if (!array) return {};
  return {array->data(), array->data() + array->shape(0)};
}

Batch::Ints copy(const Ints1& array) { return {array.data(), array.data() + array.shape(0)}; }

AttentionSpec make_spec(int heads, int kv_heads, int head_dim, float scale, Floats1 frequencies, bool is_interleaved,
                        int window, MaybeFloats1 q_norm, MaybeFloats1 k_norm, float norm_eps) {
  require(kv_heads >= 1 && heads >= kv_heads && heads % kv_heads == 0, "heads must be a multiple of kv_heads");
  require(heads / kv_heads <= attend_max_queries, "at most 128 query heads may share a key-value head");
  require(head_dim >= 2 && head_dim % 2 == 0 && head_dim <= 4096, "head_dim must be even, 2 to 4096");
  require(frequencies.shape(0) == static_cast<size_t>(head_dim / 2), "rope_frequencies must have head_dim / 2 values");
  require(window >= 0, "window must be 0 or more");
  optional_vector(q_norm, "q_norm", head_dim);
  optional_vector(k_norm, "k_norm", head_dim);
  return {{heads, kv_heads, head_dim, 0, window}, scale, is_interleaved, copy(MaybeFloats1(frequencies)), copy(q_norm),
          copy(k_norm), norm_eps};
}

Batch make_batch(Ints1 positions, Ints1 sequences, Ints1 slots, Ints1 prefixes, Ints1 ancestors, Ints1 offsets,
                 Ints2 page_tables) {
  Batch::Ints tables(page_tables.data(), page_tables.data() + page_tables.size());
  return Batch(copy(positions), copy(sequences), copy(slots), copy(prefixes), copy(ancestors), copy(offsets),
               std::move(tables), static_cast<int>(page_tables.shape(1)));
}

Half* halves(const Pages& pages, const char* name) {
  require(pages.dtype() == nb::dlpack::dtype{static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1},
          std::string(name) + " must be float16");
  return static_cast<Half*>(pages.data());
}

Cache make_cache(const AttendShape& shape, const Pages& keys, const Pages& values) {
  const size_t heads = shape.num_kv_heads, dim = shape.head_dim, page_size = keys.shape(3);
  require(page_size >= 1 && page_size <= 4096, "pages must hold 1 to 4096 slots");
  require(keys.shape(1) == heads && keys.shape(2) == dim, "keys must be [pages, kv heads, head_dim, page_size]");
  require(values.shape(0) == keys.shape(0) && values.shape(1) == heads && values.shape(2) == page_size &&
              values.shape(3) == dim,
          "values must be [pages, kv heads, page_size, head_dim]");
  return {halves(keys, "keys"), halves(values, "values"), static_cast<int>(keys.shape(0)),
          static_cast<int>(page_size)};
}

void py_attend(MutableFloats2 q, MutableFloats2 k, Floats2 v, const AttentionSpec& spec, Pages keys, Pages values,
               Batch& batch, MutableFloats2 out) {
  const AttendShape& shape = spec.shape;
  const int64_t kv_width = static_cast<int64_t>(shape.num_kv_heads) * shape.head_dim;
  const int64_t width = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
  require_shape(q, "q", batch.num_rows(), width);
  require_shape(out, "out", batch.num_rows(), width);
  require_shape(k, "k", batch.num_rows(), kv_width);
  require_shape(v, "v", batch.num_rows(), kv_width);
  const Cache cache = make_cache(shape, keys, values);
  nb::gil_scoped_release release;
  attend(q.data(), k.data(), v.data(), spec, cache, batch, out.data());
}

Layer make_layer(const AttentionSpec& attention, Floats1 attention_norm, const Matrix& query, const Matrix& key,
                 const Matrix& value, const Matrix& output, MaybeFloats1 attention_post_norm, Floats1 ffn_norm,
                 const Matrix& gate, const Matrix& up, const Matrix& down, MaybeFloats1 ffn_post_norm,
                 const std::string& activation, float eps) {
  const int hidden = query.inputs(), head_dim = attention.shape.head_dim;
  require(query.outputs() == attention.shape.num_heads * head_dim, "query must have an output for each head's values");
  for (const Matrix* matrix : {&key, &value})
    require(matrix->outputs() == attention.shape.num_kv_heads * head_dim && matrix->inputs() == hidden,
            "key and value must have query's inputs, and an output for each key-value head's values");
  require(output.outputs() == hidden && output.inputs() == query.outputs(),
          "output must have the shape of query turned");
  require(gate.inputs() == hidden, "gate must have query's inputs");
  require_gated(gate, up, down);
  for (const auto& norm : {MaybeFloats1(attention_norm), MaybeFloats1(ffn_norm), attention_post_norm, ffn_post_norm})
    optional_vector(norm, "norm", hidden);
  return {attention, copy(MaybeFloats1(attention_norm)), copy(attention_post_norm), copy(MaybeFloats1(ffn_norm)),
          copy(ffn_post_norm), &query, &key, &value, &output, &gate, &up, &down, activation_named(activation), eps};
}

void py_forward(MutableFloats2 x, const Layer& layer, Pages keys, Pages values, Batch& batch) {
  require_shape(x, "x", batch.num_rows(), layer.query->inputs());
  const Cache cache = make_cache(layer.attention.shape, keys, values);
  nb::gil_scoped_release release;
  forward(x.data(), layer, cache, batch);
}

}  // namespace

NB_MODULE(_native, m) {
  nb::class_<Matrix>(m, "Matrix")
      .def(
          "__init__",
          [](Matrix* self, int type, int64_t outputs, int64_t inputs, Bytes data, MaybeFloats1 bias, bool is_mapped) {
            const float* values = optional_vector(bias, "bias", outputs);
            nb::gil_scoped_release release;
            new (self) Matrix(type, outputs, inputs, data.data(), data.shape(0), values, is_mapped);
          },
          "type"_a, "outputs"_a, "inputs"_a, "data"_a.noconvert(), "bias"_a = nb::none(), "is_mapped"_a = false)
      .def_prop_ro("outputs", &Matrix::outputs)
      .def_prop_ro("inputs", &Matrix::inputs)
      .def_prop_ro("num_bytes", [](const Matrix& m) { return m.num_blocks() * m.block_bytes(); });
  nb::class_<AttentionSpec>(m, "Attention")
      .def("__init__", [](AttentionSpec* self, int heads, int kv_heads, int head_dim, float scale, Floats1 frequencies,
                          bool is_interleaved, int window, MaybeFloats1 q_norm, MaybeFloats1 k_norm, float norm_eps) {
        new (self) AttentionSpec(make_spec(heads, kv_heads, head_dim, scale, frequencies, is_interleaved, window,
                                           q_norm, k_norm, norm_eps));
      }, "num_heads"_a, "num_kv_heads"_a, "head_dim"_a, "scale"_a, "rope_frequencies"_a, "is_interleaved"_a,
         "window"_a, "q_norm"_a.none(), "k_norm"_a.none(), "norm_eps"_a);
  using Weights = const Matrix&;
  nb::class_<Layer>(m, "Layer")
      .def("__init__", [](Layer* self, const AttentionSpec& attention, Floats1 attention_norm, Weights query,
                          Weights key, Weights value, Weights output, MaybeFloats1 attention_post_norm,
                          Floats1 ffn_norm, Weights gate, Weights up, Weights down, MaybeFloats1 ffn_post_norm,
                          const std::string& activation, float eps) {
        new (self) Layer(make_layer(attention, attention_norm, query, key, value, output, attention_post_norm, ffn_norm,
                                    gate, up, down, ffn_post_norm, activation, eps));
      }, "attention"_a, "attention_norm"_a, "query"_a, "key"_a, "value"_a, "output"_a, "attention_post_norm"_a.none(),
         "ffn_norm"_a, "gate"_a, "up"_a, "down"_a, "ffn_post_norm"_a.none(), "activation"_a, "eps"_a,
         // the matrices
         nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(), nb::keep_alive<1, 7>(),
         nb::keep_alive<1, 10>(), nb::keep_alive<1, 11>(), nb::keep_alive<1, 12>());
  nb::class_<Batch>(m, "Batch")
      .def("__init__", [](Batch* self, Ints1 positions, Ints1 sequences, Ints1 slots, Ints1 prefixes, Ints1 ancestors,
                          Ints1 offsets, Ints2 page_tables) {
        new (self) Batch(make_batch(positions, sequences, slots, prefixes, ancestors, offsets, page_tables));
      }, "positions"_a, "sequences"_a, "slots"_a, "prefixes"_a, "ancestors"_a, "ancestor_offsets"_a, "page_tables"_a);
  m.def("embed", &py_embed, "type"_a, "table"_a, "tokens"_a, "out"_a.noconvert());
  m.def("project", &py_project, "x"_a, "norm"_a.none(), "eps"_a, "matrices"_a, "outs"_a.noconvert());
  m.def("accumulate", &py_accumulate, "x"_a.noconvert(), "y"_a, "matrix"_a, "norm"_a.none(), "eps"_a);
  m.def("feed_forward", &py_feed_forward, "x"_a.noconvert(), "norm"_a, "gate"_a, "up"_a, "down"_a, "activation"_a,
        "post_norm"_a.none(), "eps"_a);
  m.def("attend", &py_attend, "q"_a.noconvert(), "k"_a.noconvert(), "v"_a, "attention"_a, "keys"_a.noconvert(),
        "values"_a.noconvert(), "batch"_a, "out"_a.noconvert());
  m.def("forward", &py_forward, "x"_a.noconvert(), "layer"_a, "keys"_a.noconvert(), "values"_a.noconvert(), "batch"_a);
  m.def("set_threads", &set_threads, "threads"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("num_threads", &num_threads, nb::call_guard<nb::gil_scoped_release>());
  m.def("set_isa", &set_isa, "name"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("isa", &isa, nb::call_guard<nb::gil_scoped_release>());
  m.def("available_isas", &available_isas);
  bind_sample(m);
}

}  // namespace foredraft
