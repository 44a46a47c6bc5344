// The sampler: draws equal the plain evaluation of every token, truncations and laws are the same everywhere.
#include <algorithm>
#include <cmath>
#include <limits>

#include "check.hpp"
#include "elementary.hpp"
#include "sample.hpp"

namespace foredraft::tests {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<float> random_logits(int size, float spread, Random& random) {
  std::vector<float> logits = random.numbers(size);
  for (float& logit : logits) logit = random.below(4) ? logit * spread : -INFINITY;
  logits[random.below(size)] = spread;
  return logits;
}

double noise(uint64_t state, int token) {
  uint64_t z = state + (token + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return -log_positive(-log_positive(1 - (static_cast<double>(z >> 32) + 0.5) / 0x1p32));
}

template <class Score>
int plain_draw(int size, uint64_t state, Score score) {
  int winner = 0;
  double most = -infinity;
  for (int token = 0; token < size; token++)
    if (const double sum = score(token) + noise(state, token); sum > most) {
      most = sum;
      winner = token;
    }
  return winner;
}

void check_elementary() {
  for (double x = -700; x <= 0; x += 0.37)
    require(std::abs(exp_negative(x) / std::exp(x) - 1) < 1e-15, "exp is wrong at " + std::to_string(x));
  require(exp_negative(0) == 1 && exp_negative(-800) == 0 && exp_negative(-infinity) == 0, "exp is wrong at its ends");
  for (double x = 1e-320; x < 1e300; x *= 1.7)
    require(std::abs(log_positive(x) - std::log(x)) <= 3e-16 * std::abs(std::log(x)), "log is wrong");
  require(log_positive(1) == 0 && log_positive(0) == -infinity, "log is wrong at its ends");
}

}  // namespace

void test_sampling(Digest& digest) {
  check_elementary();
  Random random(9);
  for (const int size : {1, 2, 15, 31, 32, 33, 64, 1000, 4099}) {
    for (const double temperature : {5e-324, 0.3, 1., 100.}) {
      const std::vector<float> logits = random_logits(size, 12, random);
      const int best = static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      const Row row{logits.data(), size, best, temperature};
      std::vector<double> law(size);
      softmax(row, law.data());
      digest.add(law);
      digest.add(std::vector<double>{log_sum_exp(row)});
      for (const Truncation& truncation : {Truncation{3, 1, 0}, {0, 0.9, 0}, {0, 1, 0.1}, {40, 0.7, 0.01}}) {
        std::vector<float> kept(size);
        truncate(row, truncation, kept.data());
        require(kept[best] == logits[best], "the best token was not kept");
        digest.add(kept);
      }
      for (uint64_t state = 0; state < 20; state++) {
        const int drawn = draw(row, state), from_law = draw_from(law.data(), size, best, state);
        require(drawn == plain_draw(size, state, [&](int t) {
          return (logits[t] - static_cast<double>(logits[best])) / temperature;
        }), "a draw is not the best sum");
        require(from_law == plain_draw(size, state, [&](int t) { return log_positive(law[t]); }),
                "a draw from a law is not the best sum");
        digest.add(std::vector<int>{drawn, from_law});
      }
      digest.add(highest(logits.data(), size, 20));
    }
  }
}

}  // namespace foredraft::tests
