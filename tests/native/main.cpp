// The kernels' tests without Python, to be built with sanitizers or for another processor (make sanitize, test-arm).
#include <chrono>
#include <cstdio>
#include <exception>

#include "check.hpp"

using namespace foredraft::tests;

int main() {
  const struct {
    const char* name;
    void (*run)(Digest&);
  } tests[] = {{"products", test_products},
               {"layers", test_layers},
               {"attention", test_attention},
               {"any batch", test_any_batch},
               {"sampling", test_sampling},
               {"pool", test_pool},
               {"callers at once", test_callers_at_once}};
  int failed = 0;
  for (const auto& test : tests) {
    const auto begin = std::chrono::steady_clock::now();
    Digest digest;
    try {
      test.run(digest);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      std::printf("%s: ok, digest %016llx\n", test.name, static_cast<unsigned long long>(digest.value()));
      std::fprintf(stderr, "%s: %.1f s\n", test.name, seconds.count());
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", test.name, error.what());
      failed++;
    }
    std::fflush(stdout);
  }
  return failed ? 1 : 0;
}
