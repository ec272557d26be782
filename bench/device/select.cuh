// SPDX-License-Identifier: Apache-2.0
// select_kernel: from scores to ranges. Heads agree, the best segments are taken, levels become ranges.
//   choose/POLICY/context:N/select/cold, /warm   a block for each row of a selection: one for each sequence, or one for
//                                                each of its heads
// Ceiling: its launch (nothing/cold) and the latency of one block; bytes are not counted.
// Checked: levels, cut and ranges of the first row of the first sequence and of the last row of the last one against
// the host's twins (aggregate, choose, resolve), given the same scores; exactly.
#pragma once

#include <zoomr/attention/resolve.hpp>

#include "../support/check.hpp"
#include "../support/choosing.hpp"

namespace zoomr_bench {

struct select {
  static constexpr const char* name = "select";
  template <class Policy>
  static constexpr bool needed = true;

  template <class Choosing>
  static void enqueue(const Choosing& made) {
    using policy_type = typename Choosing::policy_type;
    const dim3 grid(static_cast<unsigned>(Choosing::batch), static_cast<unsigned>(made.arrays().sizes.layer_rows));
    zoomr::launch({grid, dim3(zoomr::choose_threads)}, the_stream(),
                  zoomr::detail::select_kernel<policy_type, zoomr::bfloat16>, made.policy, made.arrays(), 0, true);
  }

  template <class Choosing>
  static double bytes(const Choosing&) {
    return 0;
  }

  template <class Choosing>
  static void expect_right(const Choosing& made) {
    expect_row(made, 0, 0);
    expect_row(made, Choosing::batch - 1, made.arrays().sizes.layer_rows - 1);
  }

 private:
  template <class Choosing>
  static void expect_row(const Choosing& made, index_t t, index_t row) {
    using aggregator = decltype(Choosing::policy_type::aggregate);
    const auto& a = made.arrays();
    const auto token = made.token(t);
    const index_t count = token.segments, heads = Choosing::heads / a.sizes.layer_rows;
    const std::vector<zoomr::segment> segments = made.on_host(a.segments_of(token.sequence, count).data(), count);
    const std::vector<float> scores = made.scores(t, row * heads, (row + 1) * heads, count);

    std::vector<index_t> left, order(segments.size());
    std::vector<zoomr::votes_t> votes;
    index_t room_used = token.zone.tokens({});
    for (const zoomr::segment& s : segments) {
      left.push_back(zoomr::between_zones(s.begin, s.split, token.zone, {}).size());
      votes.push_back(left.back() > 0 ? 0 : zoomr::not_eligible);
      room_used += zoomr::between_zones(s.split, s.end, token.zone, {}).size();
    }
    made.policy.aggregate.add(view<const float, 2>(scores.data(), {heads, count}), left, head_dim,
                              view<zoomr::votes_t>(votes), view<index_t>(order));
    std::vector<zoomr::level> levels(segments.size(), zoomr::level::summary);
    const auto least = zoomr::least_attended<aggregator>(made.policy.zone.summaries);
    for (std::size_t id = 0; id < levels.size(); ++id) {
      if (votes[id] != zoomr::not_eligible && votes[id] < least) levels[id] = zoomr::level::dropped;
    }
    zoomr::selection_row expected{view<zoomr::level>(levels)};
    zoomr::best_first best(count, zoomr::by_votes{votes}, view<index_t>(order));
    made.policy.select.choose(best, zoomr::selection_input{left, room_used, aggregator::least}, expected);

    const zoomr::selection_row got = made.on_host(a.rows + a.place_row(token.chooses, 0, row), 1)[0];
    const std::vector<zoomr::level> got_levels = made.on_host(got.levels.data(), got.levels.size());
    comparison compared("the choice");
    compared.same(got.levels.size(), count);
    for (std::size_t id = 0; id < levels.size(); ++id) {
      compared.same(static_cast<int>(got_levels[id]), static_cast<int>(levels[id]));
    }
    compared.same(got.cut_segment, expected.cut_segment), compared.same(got.cut_tokens, expected.cut_tokens);

    std::vector<zoomr::token_range> memory(static_cast<std::size_t>(a.sizes.most_ranges()));
    zoomr::range_list list(memory);
    zoomr::resolve(segments, expected, token.zone, made.policy.zone.own_summary, {}, list);
    const std::int64_t at = a.token_row(t, row);
    const zoomr::attended_size size = made.on_host(a.read + at, 1)[0];
    const auto ranges = made.on_host(a.ranges + at * a.sizes.most_ranges(), size.ranges);
    comparison resolved("ranges");
    resolved.same(size.tokens, list.tokens()), resolved.same(size.ranges, list.ranges().size());
    for (index_t r = 0; r < size.ranges; ++r) {
      resolved.same(ranges[static_cast<std::size_t>(r)].first, list.ranges()[r].first);
      resolved.same(ranges[static_cast<std::size_t>(r)].last, list.ranges()[r].last);
    }
  }
};

}  // namespace zoomr_bench
