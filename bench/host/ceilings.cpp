// SPDX-License-Identifier: Apache-2.0
// The two ceilings that the host's other rows are shares of, one thread each, the best of some tries.
//   host/ceiling/read_512MiB, read_8MiB   GB_per_second   floats read in order, from memory and from the last cache
//   host/ceiling/fma                      GFLOP_per_second   eight chains of fused multiply-adds of whole vectors
// Checked: the sum of what was read; one lane of the chains against the same recurrence in double.
#include "../support/host.hpp"

#include "../support/check.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

void expect_sum() {
  const std::int64_t count = toy ? 1 << 10 : 1 << 20;
  const std::vector<float> ones(static_cast<std::size_t>(count), 1.0f);
  comparison("sum of ones")
      .close(static_cast<double>(sum_in_order(ones)), static_cast<double>(count), tolerance::exact);
}

void expect_chains() {
  constexpr double factor = multiply_add_factor, term = multiply_add_term;
  const int rounds = toy ? 10 : 20000;
  double expected = 0, chain = term;
  for (int c = 0; c < 8; ++c, chain += term) {
    double x = chain;
    for (int r = 0; r < rounds; ++r) x = x * factor + term;
    expected += x;
  }
  // Each round's rounding is made smaller by all rounds behind it: 1 / (1 - factor) = 1,000 of them stand together.
  const double allowed = tolerance::reduction(2000) * expected;
  comparison("chains").close(static_cast<double>(multiply_add(rounds, multiply_add_factor, multiply_add_term)),
                             expected, allowed);
}

void add_ceiling(const std::string& of, double ceilings::*which, const std::string& unit, void (*expect)()) {
  const std::string name = "host/ceiling/" + of;
  add_row(name, 1, [=](int iterations) {
    check_once(name, expect);
    result made;
    made.seconds.assign(static_cast<std::size_t>(iterations), 1e-6);
    made.figures = {{unit, the_ceilings().*which * 1e-9}};
    return made;
  });
}

}  // namespace

void host::add_ceilings() {
  add_ceiling("read_512MiB", &ceilings::far, "GB_per_second", expect_sum);
  add_ceiling("read_8MiB", &ceilings::near, "GB_per_second", expect_sum);
  add_ceiling("fma", &ceilings::flops, "GFLOP_per_second", expect_chains);
}

}  // namespace zoomr_bench
