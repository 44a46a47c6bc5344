// Truncation: which tokens of a row may be drawn.
#include <algorithm>
#include <cmath>
#include <vector>

#include "row.hpp"

namespace foredraft {
namespace {

// Calls visit(first, end) for the stretches of a row that hold a value not below `least`, which visit may raise. In most
// rows they are few.
template <class T, class Visit>
void scan(const T* values, int size, const T& least, Visit visit) {
  constexpr int stretch = 16;
  int i = 0;
  for (; i + stretch <= size; i += stretch) {
    int count = 0;
    for (int j = 0; j < stretch; j++) count += values[i + j] >= least;
    if (count) visit(i, i + stretch);
  }
  visit(i, size);
}

struct Token {
  float logit;
  int id;
};

bool is_better(const Token& a, const Token& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// The `count` best tokens in order.
std::vector<Token> best_tokens(const float* logits, int size, int count) {
  std::vector<Token> kept;
  if (count == 0) return kept;
  const size_t room = 2 * static_cast<size_t>(count);
  float least = -INFINITY;
  scan(logits, size, least, [&](int first, int end) {
    for (int id = first; id < end; id++) {
      if (logits[id] < least) continue;
      kept.push_back({logits[id], id});
      if (kept.size() < room) continue;
      std::nth_element(kept.begin(), kept.begin() + count - 1, kept.end(), is_better);
      kept.resize(count);
      least = kept.back().logit;
    }
  });
  std::sort(kept.begin(), kept.end(), is_better);
  if (kept.size() > static_cast<size_t>(count)) kept.resize(count);
  return kept;
}

// The token at which the exponentials of ordered tokens, added up, reach `mass`; the last if they do not.
Token where_reached(const std::vector<Token>& ordered, const Row& row, double mass) {
  double reached = 0;
  for (const Token& token : ordered) {
    reached += exponential(row, token.logit);
    if (reached >= mass) return token;
  }
  return ordered.back();
}

// The same out of all tokens, for a mass of top_p of the whole. Buckets of like scores are added up first, so that only
// the one in which the mass is reached has to be put in order.
Token end_of_nucleus(const Row& row, double top_p) {
  constexpr int num_buckets = 1024;
  constexpr double buckets_per_score = 32;
  const double best = row.logits[row.best], factor = factor_of(row.temperature) * buckets_per_score;
  auto bucket = [&](int id) {
    return static_cast<int>(std::min((best - row.logits[id]) * factor, num_buckets - 1.));
  };
  static thread_local std::vector<double> weights;
  weights.resize(row.size);
  exponentials(row, 0, row.size, weights.data());
  const double total = sum(weights.data(), row.size), mass = top_p * total;
  // All tokens below together hold less than half of what top-p leaves out.
  const float least = least_logit(row, log_positive((1 - top_p) * total / (2. * row.size)));
  double masses[num_buckets] = {}, before = 0;
  scan(row.logits, row.size, least, [&](int first, int end) {
    for (int id = first; id < end; id++) masses[bucket(id)] += weights[id];
  });
  int last = 0;
  while (last < num_buckets - 1 && before + masses[last] < mass) before += masses[last++];
  std::vector<Token> tokens;
  scan(row.logits, row.size, least, [&](int first, int end) {
    for (int id = first; id < end; id++)
      if (bucket(id) == last) tokens.push_back({row.logits[id], id});
  });
  std::sort(tokens.begin(), tokens.end(), is_better);
  return tokens.empty() ? Token{least, row.size} : where_reached(tokens, row, mass - before);
}

}  // namespace

void truncate(const Row& row, const Truncation& truncation, float* out) {
  Token last{-INFINITY, row.size};  // the worst that is kept
  if (truncation.top_k) {
    const std::vector<Token> tokens = best_tokens(row.logits, row.size, std::min(truncation.top_k, row.size));
    double total = 0;
    for (const Token& token : tokens) total += exponential(row, token.logit);
    last = truncation.top_p < 1 ? where_reached(tokens, row, truncation.top_p * total) : tokens.back();
  } else if (truncation.top_p < 1) {
    last = end_of_nucleus(row, truncation.top_p);
  }
  if (truncation.min_p > 0) {
    const double least = row.logits[row.best] + row.temperature * log_positive(truncation.min_p);
    float rounded_up = static_cast<float>(least);
    if (rounded_up < least) rounded_up = std::nextafter(rounded_up, INFINITY);
    if (rounded_up > last.logit) last = {rounded_up, row.size};
  }
  for (int id = 0; id < row.size; id++) {
    const float logit = row.logits[id];
    out[id] = (logit > last.logit) | ((logit == last.logit) & (id <= last.id)) ? logit : -INFINITY;
  }
}

std::vector<int> highest(const float* logits, int size, int count) {
  std::vector<int> ids;
  for (const Token& token : best_tokens(logits, size, std::min(count, size))) ids.push_back(token.id);
  return ids;
}

}  // namespace foredraft
