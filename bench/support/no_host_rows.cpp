// SPDX-License-Identifier: Apache-2.0
// host_bench with one row that takes no time, to test what its options do.
#include <stdexcept>  // std::logic_error

#include "kernels.hpp"
#include "rows.hpp"

namespace zoomr_bench::host {

namespace {

constexpr int own_iterations = 3;

/// A scene with room for two repetitions.
struct scene {
  int left = 2 * own_iterations;
  bool used_up() const { return left < own_iterations; }
};

result run(scene& from, int iterations) {
  from.left -= iterations;
  if (from.left < 0 || iterations > own_iterations) throw std::logic_error("more iterations than there is room for");
  result measured;
  measured.seconds.assign(static_cast<std::size_t>(iterations), 1e-3);
  measured.bytes = 8;
  measured.figures = {{"two", 2}};
  return measured;
}

}  // namespace

void add_ceilings() {
  add_row("a_millisecond", own_iterations, [](int iterations) {
    return run(*kept<scene>("a_millisecond", [] { return std::make_unique<scene>(); }), iterations);
  });
}
void add_gather_attend() {}
void add_score() {}
void add_fill_budget() {}
void add_checks() {}
void add_step() {}
void add_prompt() {}
void add_step_engine_pages() {}
void add_step_listed() {}
void add_step_threads() {}
void add_block_file() {}

}  // namespace zoomr_bench::host
