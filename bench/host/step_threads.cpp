// SPDX-License-Identifier: Apache-2.0
// How much two threads of a pool gain in a whole step for one token of one sequence, under `full`.
//   host/step_threads/full/SHAPE/context:N   as host/step, float16
//     SHAPE   KV heads and head_dim: 8x128 with groups of 4, 3x64 with groups of 3
// An iteration is a token with one thread and a token with two, in turn; its time is that of two. `times_one`: the
// median of one thread divided by that of two, in this repetition. `of_read_by_two`: the share of reading memory in
// order, by two threads as well; it counts nothing else.
// Checked: as host/step.
#include <zoomr/core/threads/thread_pool.hpp>

#include "../support/host.hpp"
#include "../support/host_policies.hpp"
#include "../support/host_scene.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

/// The pool of all rows, and how fast its threads read.
struct two_threads {
  thread_pool pool{2};
  double near = read_bandwidth(toy ? 1 << 14 : std::int64_t{8} << 20, pool);
  double far = read_bandwidth(toy ? 1 << 16 : std::int64_t{512} << 20, pool);
};
two_threads& both() {
  static two_threads made;
  return made;
}

template <index_t KvHeads, index_t HeadDim, index_t Group>
void add_shape(index_t context) {
  using scene = host_scene<std::remove_cvref_t<decltype(host_full)>, float16, KvHeads, HeadDim, Group>;
  const std::string name = "host/step_threads/full/" + std::to_string(KvHeads) + "x" + std::to_string(HeadDim) +
                           "/context:" + std::to_string(context);
  add_row(name, 24, [=](int iterations) {
    const auto shared = kept<scene>(
        name, [&] { return std::make_unique<scene>(host_full, context, false, executor(both().pool, 2, 1)); });
    const auto alone = kept<scene>(name + "/alone", [&] { return std::make_unique<scene>(host_full, context, false); });
    check_once(name, [&] { shared->expect_right(true); });
    const std::int64_t before = shared->stats().attended;
    std::vector<double> seconds, of_one;
    for (int i = 0; i < iterations; ++i) {
      of_one.push_back(alone->advance(1));
      seconds.push_back(shared->advance(1));
    }
    const double median = std::max(quantile(seconds, 0.5), 1e-12);
    const double attended = static_cast<double>(shared->stats().attended - before) / iterations / scene::heads;
    result of;
    of.bytes = 2.0 * attended * scene::kv_heads * scene::head_dim * sizeof(float16);
    of.figures = {{"times_one", quantile(of_one, 0.5) / median},
                  {"of_read_by_two", of.bytes / median / (of.bytes < (16 << 20) ? both().near : both().far)}};
    of.seconds = std::move(seconds);
    of.tokens = 1;
    return of;
  });
}

}  // namespace

void host::add_step_threads() {
  for (const index_t context : toy ? std::vector<index_t>{100} : std::vector<index_t>{1024, 4096, 8192, 32768}) {
    add_shape<8, 128, 4>(context);
    add_shape<3, 64, 3>(context);
  }
}

}  // namespace zoomr_bench
