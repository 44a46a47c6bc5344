#include "runtime.hpp"

#include <pthread.h>

#include <stdexcept>

namespace foredraft {
namespace {

struct Runtime {
  std::recursive_mutex mutex;
  int threads = 1;
  const Kernels* kernels = nullptr;
  std::unique_ptr<Pool> pool;
  Workspace workspace;
  std::weak_ptr<Slab> weights;  // with room for the next matrix
};

Runtime* current = nullptr;

// A forked child has none of the parent's threads and perhaps a locked mutex: it leaves the old runtime alone.
void renew_in_child() {
  auto* fresh = new Runtime;
  fresh->threads = current->threads;
  fresh->kernels = current->kernels;
  current = fresh;
}

std::vector<const Kernels*> available() {
  std::vector<const Kernels*> found;
#ifdef FOREDRAFT_X86
  __builtin_cpu_init();
  // These also ask whether the operating system saves the wide registers.
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni");
#ifdef FOREDRAFT_AVXVNNI_BY_AVX512
  const bool has_avxvnni = has_avx512;
#else
  const bool has_avxvnni = has_avx2 && __builtin_cpu_supports("avxvnni");
#endif
  if (has_avx512) found.push_back(&avx512vnni_kernels);
  if (has_avxvnni) found.push_back(&avxvnni_kernels);
  if (has_avx2) found.push_back(&avx2_kernels);
#endif
  found.push_back(&portable_kernels);
  return found;
}

Runtime& runtime() {
  static const bool is_ready = [] {
    current = new Runtime;  // never destroyed: threads may still run while the process exits
    current->kernels = available().front();
    pthread_atfork(nullptr, nullptr, renew_in_child);
    return true;
  }();
  (void)is_ready;
  return *current;
}

}  // namespace

Session::Session() : lock_(runtime().mutex) {
  Runtime& r = runtime();
  if (!r.pool) {
    r.workspace.threads.resize(r.threads);
    r.pool = std::make_unique<Pool>(r.threads);
  }
}

Pool& Session::pool() { return *runtime().pool; }
Workspace& Session::workspace() { return runtime().workspace; }
const Kernels& Session::kernels() { return *runtime().kernels; }
std::shared_ptr<uint8_t> Session::take_weights(size_t size) { return take(runtime().weights, size); }

void set_threads(int threads) {
  if (threads < 1 || threads > 1024) throw std::invalid_argument("threads must be 1 to 1024");
  Runtime& r = runtime();
  std::lock_guard lock(r.mutex);
  if (threads == r.threads) return;
  r.pool.reset();
  r.threads = threads;
}

int num_threads() {
  Runtime& r = runtime();
  std::lock_guard lock(r.mutex);
  return r.threads;
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const auto* kernels : available()) names.emplace_back(kernels->name);
  return names;
}

void set_isa(const std::string& name) {
  std::string known;
  for (const auto* kernels : available()) {
    if (kernels->name == name) {
      Runtime& r = runtime();
      std::lock_guard lock(r.mutex);
      r.kernels = kernels;
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(kernels->name);
  }
  throw std::invalid_argument("instruction set '" + name + "' is not available on this machine; available: " + known);
}

std::string isa() {
  Runtime& r = runtime();
  std::lock_guard lock(r.mutex);
  return r.kernels->name;
}

}  // namespace foredraft
