// What truncation and draws share: a row's scores, and sums of their exponentials.
#pragma once

#include <algorithm>
#include <cmath>

#include "elementary.hpp"
#include "sample.hpp"

// For a function that becomes one for each instruction set, of which the loader takes the best. Other systems' loaders
// cannot, and sanitizers are not ready yet when a loader chooses. Call such a function from its own file only: compilers
// do not agree on its name.
#if defined(FOREDRAFT_X86) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FOREDRAFT_FOR_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOREDRAFT_FOR_EACH_ISA
#endif

namespace foredraft {

// 1 / temperature, but finite: 0 times it has to be 0, and any other difference of logits is far enough from 0.
inline double factor_of(double temperature) { return std::min(1 / temperature, 1e300); }

inline double score_of(const Row& row, float logit) {
  return (logit - static_cast<double>(row.logits[row.best])) / row.temperature;
}

// No number whose score reaches this one is below. A margin of 1e-9 and a step cover all rounding.
inline float least_logit(const Row& row, double score) {
  const double logit = row.logits[row.best] + row.temperature * (score - 1e-9);
  return std::nextafter(static_cast<float>(logit), -INFINITY);
}

inline double exponential(const Row& row, float logit) {
  return exp_negative((logit - static_cast<double>(row.logits[row.best])) * factor_of(row.temperature));
}

// out [count]: exponential() of the logits from `first` on.
void exponentials(const Row& row, int first, int count, double* out);

double sum(const double* values, int size);

}  // namespace foredraft
