#include "threads.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#ifdef FOREDRAFT_X86
#include <immintrin.h>
#endif

namespace foredraft {
namespace {

constexpr int piece_bits = 24;
constexpr uint64_t piece_mask = (1u << piece_bits) - 1;
// Longer than the gap between two sections of a pass, far shorter than a time slice of a neighbor.
constexpr auto spin_time = std::chrono::microseconds(50);

void pause() {
#ifdef FOREDRAFT_X86
  _mm_pause();
#endif
}

template <class Condition>
bool spin_until(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 32; i++) {
      if (condition()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

Pool::Pool(int threads) {
  try {
    for (int thread = 1; thread < threads; thread++) workers_.emplace_back([this, thread] { work(thread); });
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  stopping_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Pool::share(int pieces, Call call, void* context) {
  call_ = call;
  context_ = context;
  pieces_ = pieces;
  done_.store(0, std::memory_order_relaxed);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  section_.store(static_cast<uint64_t>(generation & 0xffff) << (2 * piece_bits) |
                     static_cast<uint64_t>(pieces) << piece_bits,
                 std::memory_order_release);
  generation_.store(generation);
  generation_.notify_all();
  while (take(0)) {
  }
  auto ended = [&] { return done_.load(std::memory_order_acquire) == pieces; };
  while (!spin_until(ended)) {
    const int seen = done_.load(std::memory_order_acquire);
    if (seen != pieces) done_.wait(seen);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool Pool::take(int thread) {
  auto is_open = [](uint64_t section) { return (section & piece_mask) < (section >> piece_bits & piece_mask); };
  if (!is_open(section_.load(std::memory_order_acquire))) return false;
  const uint64_t claim = section_.fetch_add(1, std::memory_order_acq_rel);
  if (!is_open(claim)) return false;
  try {
    call_(context_, static_cast<int>(claim & piece_mask), thread);
  } catch (...) {
    std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
  const int pieces = pieces_;  // after the last piece is counted the next section may begin
  if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces) done_.notify_one();
  return true;
}

void Pool::work(int thread) {
  uint32_t seen = 0;
  while (true) {
    if (!spin_until([&] { return generation_.load(std::memory_order_acquire) != seen; })) generation_.wait(seen);
    // In this order: a thread that has seen the last generation also sees that it is the last.
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_acquire)) return;
    while (take(thread)) {
    }
  }
}

}  // namespace foredraft
