#include "row.hpp"

namespace foredraft {

FOREDRAFT_FOR_EACH_ISA
void exponentials_of(const float* __restrict logits, int count, double best, double factor, double* __restrict out) {
  for (int i = 0; i < count; i++) out[i] = exp_negative((logits[i] - best) * factor);
}

void exponentials(const Row& row, int first, int count, double* out) {
  exponentials_of(row.logits + first, count, row.logits[row.best], factor_of(row.temperature), out);
}

double sum(const double* values, int size) {
  double lanes[8] = {};
  int i = 0;
  for (; i + 8 <= size; i += 8)
    for (int j = 0; j < 8; j++) lanes[j] += values[i + j];
  for (; i < size; i++) lanes[i % 8] += values[i];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

void softmax(const Row& row, double* law) {
  exponentials(row, 0, row.size, law);
  const double factor = 1 / sum(law, row.size);
  for (int i = 0; i < row.size; i++) law[i] *= factor;
}

double log_sum_exp(const Row& row) {
  constexpr int block = 512;  // stays in the innermost cache
  double values[block], total = 0;
  for (int first = 0; first < row.size; first += block) {
    const int count = std::min(block, row.size - first);
    exponentials(row, first, count, values);
    total += sum(values, count);
  }
  return log_positive(total);
}

}  // namespace foredraft
