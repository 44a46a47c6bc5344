// The thread pool and the runtime: every piece once, exceptions, sleeping threads, callers and settings at once.
#include "threads.hpp"

#include <chrono>
#include <thread>

#include "check.hpp"
#include "ops.hpp"
#include "runtime.hpp"
#include "tensors.hpp"

namespace foredraft::tests {
namespace {

// Plain integers: pieces done twice, or not seen by the caller at the end, are races.
void check_section(Pool& pool, int pieces) {
  std::vector<int> done(pieces), thread_of(pieces, -1);
  pool.run(pieces, [&](int piece, int thread) {
    done[piece]++;
    thread_of[piece] = thread;
  });
  for (int piece = 0; piece < pieces; piece++) {
    require(done[piece] == 1, "a piece was not done once");
    require(thread_of[piece] >= 0 && thread_of[piece] < pool.threads(), "a thread's number is out of range");
  }
}

void check_exceptions(Pool& pool, int pieces, int failing) {
  std::vector<int> done(pieces);
  bool has_failed = false;
  try {
    pool.run(pieces, [&](int piece, int) {
      done[piece]++;
      if (piece % failing == 0) throw std::runtime_error(std::to_string(piece));
    });
  } catch (const std::runtime_error&) {
    has_failed = true;
  }
  require(has_failed, "an exception was lost");
  for (int piece = 1; piece < pieces && pool.threads() > 1; piece++)
    require(done[piece] == 1, "a piece was not done after another had failed");
}

}  // namespace

void test_pool(Digest&) {
  for (int threads = 1; threads <= 4; threads++) {
    Pool pool(threads);
    for (int i = 0; i < 3000; i++) check_section(pool, i % 23);
    for (int i = 1; i < 100; i++) check_exceptions(pool, 1 + i % 17, 1 + i % 5);
    for (int i = 0; i < 50; i++) {  // longer than the threads spin: they sleep in between
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      check_section(pool, 2 + i % 7);
    }
    for (int i = 0; i < 20; i++)  // the caller sleeps
      pool.run(threads, [&](int piece, int) {
        if (piece) std::this_thread::sleep_for(std::chrono::microseconds(300));
      });
  }
  for (int i = 0; i < 1000; i++) {
    Pool pool(1 + i % 4);  // ends while its threads start, or have just seen a section
    if (i % 3) check_section(pool, i % 5);
  }
}

void test_callers_at_once(Digest&) {
  constexpr int outputs = 70, inputs = 256, rows = 5, num_callers = 3;
  Random random(8);
  const std::vector<uint8_t> data = random_tensor(types[8], outputs, inputs, random);
  const Matrix matrix(types[8].number, outputs, inputs, data.data(), data.size(), nullptr);
  auto run = [&](const std::vector<float>& x) {
    std::vector<float> y(rows * outputs);
    const Matrix* const matrices[] = {&matrix};
    float* const outs[] = {y.data()};
    project(x.data(), rows, nullptr, 0, matrices, outs);
    return y;
  };
  std::vector<std::vector<float>> x, alone;
  for (int caller = 0; caller < num_callers; caller++) {
    x.push_back(random.numbers(rows * inputs));
    alone.push_back(run(x.back()));
  }
  std::vector<int> num_wrong(num_callers);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < num_callers; caller++)
    callers.emplace_back([&, caller] {
      for (int i = 0; i < 100; i++) num_wrong[caller] += run(x[caller]) != alone[caller];
    });
  for (int i = 0; i < 100; i++) {
    set_threads(1 + i % 4);
    require(num_threads() == 1 + i % 4 && !isa().empty(), "a setting was lost");
  }
  for (auto& caller : callers) caller.join();
  for (const int wrong : num_wrong) require(wrong == 0, "callers at once disturb each other");
}

}  // namespace foredraft::tests
