// Matrix products and layers: against sums in double precision, and row by row against any number of rows and threads.
#include <cmath>

#include "check.hpp"
#include "ops.hpp"
#include "runtime.hpp"
#include "tensors.hpp"

namespace foredraft::tests {
namespace {

// Of every output of every row: the exact sum of weights times quantized activations, and that of their magnitudes.
struct Exact {
  std::vector<double> sums, sizes;
};

// What the kernels make of one row of activations. The codes lie in memory of exactly their size.
std::vector<double> quantized(const Kernels& kernels, const TypeInfo& type, const float* x, int inputs) {
  std::vector<double> out(x, x + inputs);
  if (type.block_inputs == 32) {
    std::vector<Codes32> codes(inputs / 32);
    kernels.quantize32(x, inputs, codes.data(), 1);
    for (int i = 0; i < inputs; i++) out[i] = static_cast<double>(codes[i / 32].scale) * codes[i / 32].codes[i % 32];
  } else if (type.block_inputs == 256) {
    std::vector<Codes256> codes(inputs / 256);
    kernels.quantize256(x, inputs, codes.data(), 1);
    for (int i = 0; i < inputs; i++)
      out[i] = static_cast<double>(codes[i / 256].scale) * codes[i / 256].codes[i % 256];
  }
  return out;
}

Exact exact(const Kernels& kernels, const TypeInfo& type, const std::vector<double>& weights, int outputs, int inputs,
            const std::vector<float>& x) {
  Exact out;
  for (size_t row = 0; row < x.size() / inputs; row++) {
    const std::vector<double> activations = quantized(kernels, type, &x[row * inputs], inputs);
    for (int output = 0; output < outputs; output++) {
      double sum = 0, size = 0;
      for (int i = 0; i < inputs; i++) {
        const double product = weights[static_cast<size_t>(output) * inputs + i] * activations[i];
        sum += product;
        size += std::abs(product);
      }
      out.sums.push_back(sum);
      out.sizes.push_back(size);
    }
  }
  return out;
}

std::vector<float> project_rows(const std::vector<float>& x, int first, int rows, const Matrix& matrix) {
  const std::vector<float> some(x.begin() + static_cast<size_t>(first) * matrix.inputs(),
                                x.begin() + static_cast<size_t>(first + rows) * matrix.inputs());
  std::vector<float> y(static_cast<size_t>(rows) * matrix.outputs());
  const Matrix* const matrices[] = {&matrix};
  float* const outs[] = {y.data()};
  project(some.data(), rows, nullptr, 0, matrices, outs);
  return y;
}

void check_products(const TypeInfo& type, int outputs, int blocks, int most_rows, Digest& digest) {
  const int inputs = blocks * type.block_inputs;
  const std::string name = isa() + ", type " + std::to_string(type.number) + ", [" + std::to_string(outputs) + ", " +
                           std::to_string(inputs) + "]";
  Random random(static_cast<uint32_t>(type.number * 1000 + outputs));
  const std::vector<uint8_t> data = random_tensor(type, outputs, inputs, random);
  set_threads(1);
  const Matrix matrix(type.number, outputs, inputs, data.data(), data.size(), nullptr);
  const std::vector<float> x = random.numbers(static_cast<size_t>(most_rows) * inputs);
  std::vector<float> alone;
  for (int row = 0; row < most_rows; row++)
    for (const float y : project_rows(x, row, 1, matrix)) alone.push_back(y);

  // Integer sums are exact; what is rounded are the totals of groups, of which K-quants subtract two large ones.
  const Exact expected = exact(Session().kernels(), type, decode(type, data), outputs, inputs, x);
  for (size_t i = 0; i < alone.size(); i++)
    require(std::abs(alone[i] - expected.sums[i]) <= 32 * 0x1p-24 * std::sqrt(inputs) * expected.sizes[i] + 1e-30,
            name + ": wrong product");
  for (int threads = 1; threads <= 4; threads++) {
    set_threads(threads);
    for (int rows = 1; rows <= most_rows; rows = rows < 12 ? rows + 1 : rows + 29) {
      const std::vector<float> y = project_rows(x, most_rows - rows, rows, matrix);
      require(same_bits(y.data(), &alone[static_cast<size_t>(most_rows - rows) * outputs], y.size()),
              name + ": rows depend on rows or threads");
    }
  }
  if (isa() == "portable") digest.add(alone);
}

void check_embedding(const TypeInfo& type, Random& random, Digest& digest) {
  constexpr int outputs = 6, inputs = 512;
  const std::vector<uint8_t> table = random_tensor(type, outputs, inputs, random);
  const std::vector<double> wanted = decode(type, table);
  const std::vector<int32_t> tokens{outputs - 1, 0, 2};
  std::vector<float> rows(tokens.size() * inputs);
  embed(type.number, table.data(), table.size(), tokens.data(), static_cast<int>(tokens.size()), inputs, rows.data());
  for (size_t i = 0; i < rows.size(); i++) {
    const double exact = wanted[static_cast<size_t>(tokens[i / inputs]) * inputs + i % inputs];
    require(std::abs(rows[i] - exact) <= 1e-5 * (std::abs(exact) + 1), "an embedding is not its row of the table");
  }
  digest.add(rows);
}

}  // namespace

void test_products(Digest& digest) {
  for (const auto& name : available_isas()) {
    set_isa(name);
    // Sizes grow, so that memory which is kept for reuse is exactly as large as what is asked for.
    for (const auto& type : types) check_products(type, 1, 1, 3, digest);
    for (const auto& type : types) check_products(type, 17, 3, 12, digest);
    for (const auto& type : types) check_products(type, 33, 3, 70, digest);
    for (const auto& type : types) check_products(type, 5, 9, 12, digest);
  }
  Random random(11);
  for (const auto& type : types) check_embedding(type, random, digest);
}

namespace {

const TypeInfo& type_of(Format format) {
  for (const auto& type : types)
    if (type.format == format) return type;
  throw std::runtime_error("no such format");
}

struct Layer {
  int width, hidden;
  Matrix gate, up, down;
  std::vector<float> norm;

  Layer(Format outer, Format inner, int width, int hidden, Random& random)
      : width(width),
        hidden(hidden),
        gate(make(outer, hidden, width, random)),
        up(make(outer, hidden, width, random)),
        down(make(inner, width, hidden, random)),
        norm(random.numbers(width)) {}

  static Matrix make(Format format, int outputs, int inputs, Random& random) {
    const TypeInfo& type = type_of(format);
    const std::vector<uint8_t> data = random_tensor(type, outputs, inputs, random);
    const std::vector<float> bias = random.numbers(outputs);
    return Matrix(type.number, outputs, inputs, data.data(), data.size(), bias.data());
  }

  std::vector<float> run(const std::vector<float>& x, int first, int rows, bool is_normed) const {
    std::vector<float> out(x.begin() + static_cast<size_t>(first) * width,
                           x.begin() + static_cast<size_t>(first + rows) * width);
    std::vector<float> y(static_cast<size_t>(rows) * hidden), z(y.size());
    const float* post = is_normed ? norm.data() : nullptr;
    feed_forward(out.data(), rows, norm.data(), gate, up, down, is_normed ? Activation::gelu : Activation::silu, post,
                 1e-6f);
    const Matrix* const matrices[] = {&gate, &up};
    float* const outs[] = {y.data(), z.data()};
    project(out.data(), rows, norm.data(), 1e-6f, matrices, outs);
    accumulate(out.data(), y.data(), rows, down, post, 1e-6f);
    return out;
  }
};

void check_layer(const Layer& layer, bool is_normed, Random& random, Digest& digest) {
  constexpr int most_rows = 13;
  const std::vector<float> x = random.numbers(static_cast<size_t>(most_rows) * layer.width);
  set_threads(1);
  std::vector<float> alone;
  for (int row = 0; row < most_rows; row++)
    for (const float y : layer.run(x, row, 1, is_normed)) alone.push_back(y);
  for (int threads = 1; threads <= 4; threads++) {
    set_threads(threads);
    for (const int rows : {0, 2, 5, 13})
      require(same_bits(layer.run(x, 0, rows, is_normed).data(), alone.data(), static_cast<size_t>(rows) * layer.width),
              isa() + ": a layer's rows depend on rows or threads");
  }
  if (isa() == "portable") digest.add(alone);
}

}  // namespace

void test_layers(Digest& digest) {
  for (const auto& name : available_isas()) {
    set_isa(name);
    Random random(1);
    for (const bool is_normed : {false, true}) {
      check_layer({Format::F32, Format::F16, 5, 19, random}, is_normed, random, digest);
      check_layer({Format::BF16, Format::Q4_0, 48, 96, random}, is_normed, random, digest);
      check_layer({Format::Q4_K, Format::Q6_K, 256, 512, random}, is_normed, random, digest);
    }
  }
}

}  // namespace foredraft::tests
