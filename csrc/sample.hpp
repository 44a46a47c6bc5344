// From a row's processed logits to its token: truncation, softmax and draws by position-keyed noise.
// sampling/reference.py and sampling/noise.py state what these compute. Every result is a function of its arguments
// alone, in every bit, on any instruction set.
#pragma once

#include <cstdint>
#include <vector>

namespace foredraft {

// A row whose largest logit is a finite number, at token `best`; none is not-a-number, masked ones are -inf.
// Its law is the softmax of (logit - logits[best]) / temperature.
struct Row {
  const float* logits;
  int size, best;
  double temperature;  // above 0
};

struct Truncation {
  int top_k;    // 0 is off
  double top_p;  // 1 is off
  double min_p;  // 0 is off
};

// out [size]: the row's logits, those that truncation removes at -inf.
void truncate(const Row& row, const Truncation& truncation, float* out);

// law [size]: the row's law.
void softmax(const Row& row, double* law);

// The logarithm of the sum of exp((logit - logits[best]) / temperature).
double log_sum_exp(const Row& row);

// The `count` largest logits' tokens, by (logit descending, id ascending).
std::vector<int> highest(const float* logits, int size, int count);

// argmax of score + Gumbel noise, the lowest id on ties; token t's noise comes from output number t + 1 of the SplitMix64
// generator in that state.
int draw(const Row& row, uint64_t state);

// The same for scores that are logarithms of a law's weights, which need not add up to 1; law[best] is the largest.
template <class Weight>
int draw_from(const Weight* law, int size, int best, uint64_t state);

}  // namespace foredraft
