// What the tests of the kernels share: a check that throws, numbers that are the same on every machine, a digest.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace foredraft::tests {

inline void require(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

// The standard's distributions differ between libraries, its engines do not.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<uint32_t>(n)); }
  float number() { return static_cast<float>(engine_() >> 8) * 0x1p-23f - 1; }  // in [-1, 1)
  std::vector<float> numbers(size_t count) {
    std::vector<float> out(count);
    for (float& x : out) x = number();
    return out;
  }

 private:
  std::mt19937 engine_;
};

// Null is a valid place of no numbers.
inline bool same_bits(const float* a, const float* b, size_t count) {
  return count == 0 || !std::memcmp(a, b, count * sizeof *a);
}

// Of the portable kernels' results: equal on every machine (FNV-1a).
class Digest {
 public:
  template <class T>
  void add(const std::vector<T>& numbers) {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    for (const T x : numbers) value_ = (value_ ^ std::bit_cast<Bits>(x)) * 0x100000001b3;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

// Each throws at the first difference and adds what the portable kernels gave to the digest.
void test_products(Digest& digest);
void test_layers(Digest& digest);
void test_attention(Digest& digest);
void test_sampling(Digest& digest);
void test_pool(Digest& digest);
void test_callers_at_once(Digest& digest);
void test_any_batch(Digest& digest);

}  // namespace foredraft::tests
