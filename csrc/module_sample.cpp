// The sampler's part of the Python module.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <stdexcept>

#include "sample.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace foredraft {
namespace {

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void require(bool ok, const char* message) {
  if (!ok) throw std::invalid_argument(message);
}

int size_of(size_t size, int best) {
  require(size > 0 && size <= (1u << 30), "a row must have 1 to 2^30 numbers");
  require(best >= 0 && static_cast<size_t>(best) < size, "best is not a token of the row");
  return static_cast<int>(size);
}

Row make_row(const Vector<const float>& logits, int best, double temperature) {
  const int size = size_of(logits.shape(0), best);
  require(temperature > 0 && std::isfinite(temperature), "temperature must be above 0 and finite");
  require(std::isfinite(logits.data()[best]), "the best logit must be finite");
  return {logits.data(), size, best, temperature};
}

void py_truncate(Vector<const float> logits, int best, double temperature, int top_k, double top_p, double min_p,
                 Vector<float> out) {
  const Row row = make_row(logits, best, temperature);
  require(out.shape(0) == logits.shape(0), "out must be as long as logits");
  require(top_k >= 0 && top_p > 0 && top_p <= 1 && min_p >= 0 && min_p < 1, "a truncation is out of range");
  nb::gil_scoped_release release;
  truncate(row, {top_k, top_p, min_p}, out.data());
}

void py_softmax(Vector<const float> logits, int best, double temperature, Vector<double> out) {
  const Row row = make_row(logits, best, temperature);
  require(out.shape(0) == logits.shape(0), "out must be as long as logits");
  nb::gil_scoped_release release;
  softmax(row, out.data());
}

double py_log_sum_exp(Vector<const float> logits, int best) {
  const Row row = make_row(logits, best, 1);
  nb::gil_scoped_release release;
  return log_sum_exp(row);
}

std::vector<int> py_highest(Vector<const float> logits, int count) {
  const int size = size_of(logits.shape(0), 0);
  require(count >= 0, "count must be 0 or more");
  nb::gil_scoped_release release;
  return highest(logits.data(), size, count);
}

int py_draw(Vector<const float> logits, int best, double temperature, uint64_t state) {
  const Row row = make_row(logits, best, temperature);
  nb::gil_scoped_release release;
  return draw(row, state);
}

template <class Weight>
int py_draw_from(Vector<const Weight> law, int best, uint64_t state) {
  const int size = size_of(law.shape(0), best);
  require(law.data()[best] > 0 && std::isfinite(law.data()[best]), "the best weight must be positive and finite");
  nb::gil_scoped_release release;
  return draw_from(law.data(), size, best, state);
}

}  // namespace

void bind_sample(nb::module_& m) {
  m.def("truncate", &py_truncate, "logits"_a, "best"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a,
        "out"_a.noconvert());
  m.def("softmax", &py_softmax, "logits"_a, "best"_a, "temperature"_a, "out"_a.noconvert());
  m.def("log_sum_exp", &py_log_sum_exp, "logits"_a, "best"_a);
  m.def("highest", &py_highest, "logits"_a, "count"_a);
  m.def("draw", &py_draw, "logits"_a, "best"_a, "temperature"_a, "state"_a);
  m.def("draw_from", &py_draw_from<float>, "law"_a.noconvert(), "best"_a, "state"_a);
  m.def("draw_from", &py_draw_from<double>, "law"_a, "best"_a, "state"_a);
}

}  // namespace foredraft
