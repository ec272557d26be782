// SPDX-License-Identifier: Apache-2.0
// layer_kernel: all that a layer does before attention. Keys and values are stored, queries added to running sums,
// segments scored, heads agree, the best segments are taken, levels become ranges.
//   choose/POLICY/context:N/layer/cold, /warm   blocks share the segments of each KV head of each sequence; the last
//   one
//                                               makes the choice
// bytes_per_second: summaries; ceiling: of_copy, and the latency of the block that comes last.
// Checked: the sums of the first and the last sequence, exactly: the sum before plus the query; scores as score.cuh
// does; levels, cut and ranges of the first row of the first sequence and of the last row of the last one against the
// host's twins (aggregate, choose, resolve), given the same scores; exactly.
#pragma once

#include <zoomr/attention/resolve.hpp>

#include "../support/check.hpp"
#include "../support/choosing.hpp"
#include "score.cuh"

namespace zoomr_bench {

struct layer {
  static constexpr const char* name = "layer";

  template <class Choosing>
  static void enqueue(const Choosing& made) {
    using zoomr::detail::range_use;
    zoomr::detail::launch_layer<head_dim, Choosing::group>(made.policy, made.arrays(), made.layer_inputs(), true,
                                                           range_use::attention, Choosing::batch, the_stream());
  }

  template <class Choosing>
  static double bytes(const Choosing& made) {
    return score::bytes(made);
  }

  template <class Choosing>
  static void expect_right(const Choosing& made) {
    if constexpr (decltype(Choosing::policy_type::query)::sums) expect_sums(made);
    score::expect_right(made);
    expect_row(made, 0, 0);
    expect_row(made, Choosing::batch - 1, made.arrays().sizes.layer_rows - 1);
  }

 private:
  template <class Choosing>
  static void expect_sums(const Choosing& made) {
    comparison compared("sums of queries");
    for (const index_t t : {0, Choosing::batch - 1}) {
      const auto token = made.token(t);
      const auto before = made.sums(token, token.position - 1), after = made.sums(token, token.position);
      for (std::size_t i = 0; i < after.size(); ++i) {
        const auto row = static_cast<index_t>(i);
        const float query = made.query(t, row / head_dim, row % head_dim);
        const float expected = token.sums == 1 ? query : before[i] + query;
        compared.close(static_cast<double>(after[i]), static_cast<double>(expected), tolerance::exact);
      }
    }
    compared.expect_some();
  }
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
