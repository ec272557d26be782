// SPDX-License-Identifier: Apache-2.0
// A choice on the host, from votes to levels, one thread.
//   host/fill_budget/segments:N   a budget of 2,048 tokens (68 in zones) is filled with segments of 24, best first
// The time is that of a heap over all segments and of what is taken from it; no ceiling applies, and bytes are not
// counted.
// Checked: all levels and the cut against a stable sort of all segments, exactly.
#include <zoomr/policy/select/fill_budget.hpp>

#include <numeric>  // std::iota

#include "../support/check.hpp"
#include "../support/host.hpp"
#include "../support/kernels.hpp"
#include "../support/noise.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

constexpr index_t budget = toy ? 150 : 2048;
constexpr index_t in_zones = 68;
constexpr index_t each = 24;  // tokens of a segment

struct scene {
  index_t segments;
  std::vector<votes_t> votes;
  std::vector<index_t> tokens, order;
  std::vector<level> levels;
  selection_row made;

  explicit scene(index_t count)
      : segments(count), tokens(static_cast<std::size_t>(count), each), order(tokens.size()), levels(tokens.size()) {
    for (const float score : noise(segments, 3)) votes.push_back(order_key(score));
  }

  void choose() {
    made = {view<level>(levels)};
    for (level& of : levels) of = level::summary;
    best_first best(segments, by_votes{votes}, view<index_t>(order));
    fill_budget{.tokens = budget}.choose(best, selection_input{tokens, in_zones, not_eligible + 1, 0, 0}, made);
    use(static_cast<float>(made.cut_tokens));
  }

  void expect_right() {
    choose();
    std::vector<index_t> best(votes.size());
    std::iota(best.begin(), best.end(), 0);
    std::stable_sort(best.begin(), best.end(), [&](index_t a, index_t b) {
      return votes[static_cast<std::size_t>(a)] > votes[static_cast<std::size_t>(b)];
    });
    std::vector<level> expected(votes.size(), level::summary);
    index_t room = budget - in_zones, cut_segment = -1, cut_tokens = 0;
    for (const index_t id : best) {
      if (room <= 0) break;
      expected[static_cast<std::size_t>(id)] = level::details;
      if (each > room) cut_segment = id, cut_tokens = room;
      room -= each;
    }
    comparison compared("levels");
    for (std::size_t id = 0; id < expected.size(); ++id) {
      compared.same(static_cast<int>(levels[id]), static_cast<int>(expected[id]));
    }
    compared.same(made.cut_segment, cut_segment), compared.same(made.cut_tokens, cut_tokens);
  }
};

}  // namespace

void host::add_fill_budget() {
  for (const index_t segments : toy ? std::vector<index_t>{10} : std::vector<index_t>{341, 1365, 5461}) {
    const std::string name = "host/fill_budget/segments:" + std::to_string(segments);
    add_row(name, 20, [=](int iterations) {
      scene made(segments);
      check_once(name, [&] { made.expect_right(); });
      return against_ceilings(timed_on_host(iterations, [&] { made.choose(); }), 0, 0, true);
    });
  }
}

}  // namespace zoomr_bench
