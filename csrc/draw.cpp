// Draws by keyed noise: Gumbel-max, with as little of the noise computed as decides.
#include <algorithm>
#include <bit>
#include <cmath>

#include "row.hpp"

namespace foredraft {

constexpr int draw_block = 32;  // tokens that are looked at together

// SplitMix64 with random access: the bits of tokens first .. first + draw_block, and the smallest of them.
FOREDRAFT_FOR_EACH_ISA
uint32_t random_bits(uint64_t state, int first, uint32_t* __restrict bits) {
  uint32_t smallest = UINT32_MAX;
  for (int i = 0; i < draw_block; i++) {
    uint64_t z = state + (static_cast<uint64_t>(first) + i + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    bits[i] = static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
    smallest = std::min(smallest, bits[i]);
  }
  return smallest;
}

namespace {

constexpr double log_2 = 0x1.62e42fefa39efp-1;

double gumbel(uint32_t bits) {
  const double v = (bits + 0.5) * 0x1p-32;  // 1 - v is exact
  return -log_positive(-log_positive(1 - v));
}

// Of a block; halved step by step, as vectors are.
template <class T>
T largest(const T* values) {
  T lanes[16];
  for (int i = 0; i < 16; i++) lanes[i] = std::max(values[i], values[16 + i]);
  for (int i = 0; i < 8; i++) lanes[i] = std::max(lanes[i], lanes[8 + i]);
  for (int i = 0; i < 4; i++) lanes[i] = std::max(lanes[i], lanes[4 + i]);
  return std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3]));
}

// argmax of score(value) + noise, without computing what cannot win. The best sum so far is a bar, and noise is at most
// -log(v), where v is at least 2^-(z + 1) for bits that begin with z zeros: it takes a value of at least least[z] to
// reach the bar. `least_value(score)`: no value with that score or a better one is below it.
template <class T, class Score, class LeastValue>
int race(const T* values, int size, int best, uint64_t state, Score score, LeastValue least_value) {
  uint32_t bits[draw_block];
  random_bits(state, best, bits);
  int winner = best;
  double bar = score(values[best]) + gumbel(bits[0]);
  T least[33];
  auto set_bar = [&](double sum) {
    bar = sum;
    for (int z = 0; z <= 32; z++) least[z] = least_value(bar - (z + 1) * log_2);
  };
  set_bar(bar);
  for (int first = 0; first < size; first += draw_block) {
    T padded[draw_block];
    const T* block = values + first;
    if (size - first < draw_block) {
      std::fill(std::copy(block, values + size, padded), padded + draw_block, T(-INFINITY));
      block = padded;
    }
    const T most = largest(block);
    if (!(most >= least[32])) continue;
    int zeros = 32;  // as many as the bits must begin with
    while (zeros > 0 && most >= least[zeros - 1]) zeros--;
    if (std::countl_zero(random_bits(state, first, bits)) < zeros) continue;
    for (int i = 0; i < draw_block; i++) {
      if (block[i] < least[std::countl_zero(bits[i])]) continue;
      const double sum = score(block[i]) + gumbel(bits[i]);
      if (sum < bar || (sum == bar && first + i >= winner)) continue;
      winner = first + i;
      set_bar(sum);
    }
  }
  return winner;
}

}  // namespace

int draw(const Row& row, uint64_t state) {
  return race(row.logits, row.size, row.best, state, [&](float logit) { return score_of(row, logit); },
              [&](double score) { return least_logit(row, score); });
}

template <class Weight>
int draw_from(const Weight* law, int size, int best, uint64_t state) {
  const double most = log_positive(law[best]);
  auto least_weight = [&](double score) -> Weight {
    const double gap = score - 1e-9 - most;  // the margin as in least_logit
    if (gap > 0) return INFINITY;
    return std::nextafter(static_cast<Weight>(law[best] * exp_negative(gap)), Weight(0));
  };
  return race(law, size, best, state, [](double weight) { return log_positive(weight); }, least_weight);
}

template int draw_from<float>(const float*, int, int, uint64_t);
template int draw_from<double>(const double*, int, int, uint64_t);

}  // namespace foredraft
