// A pool of threads that share out the pieces of one parallel section at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace foredraft {

// The caller works too, and a section ends when its pieces are done, not when all threads have woken: a thread that the
// system runs late costs nothing. Which thread does which piece varies; results must not depend on it.
// Not safe for concurrent `run` calls; the runtime holds a lock.
class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(piece, thread) once for every piece in [0, pieces). Rethrows the first exception after all have ended.
  template <class Work>
  void run(int pieces, Work&& work) {
    if (pieces <= 1 || workers_.empty()) {
      for (int piece = 0; piece < pieces; piece++) work(piece, 0);
      return;
    }
    share(pieces, [](void* context, int piece, int thread) { (*static_cast<Work*>(context))(piece, thread); },
          const_cast<void*>(static_cast<const void*>(&work)));
  }

 private:
  using Call = void (*)(void* context, int piece, int thread);

  void stop();
  void share(int pieces, Call call, void* context);
  void work(int thread);
  bool take(int thread);

  // The section in one word, so that a claim is one atomic step: generation, number of pieces, next piece.
  alignas(64) std::atomic<uint64_t> section_{0};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stopping_{false};
  Call call_ = nullptr;
  void* context_ = nullptr;
  int pieces_ = 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::vector<std::thread> workers_;
};

}  // namespace foredraft
