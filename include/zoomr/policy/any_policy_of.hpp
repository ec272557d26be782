// SPDX-License-Identifier: Apache-2.0
// L5. Each component behind its interface (policy/any_policy.hpp). A member that a component does not have is never
// called, which a flag of the interface decides; it does nothing. A segmenter's state is
// bytes to its caller and is copied in and out, without alignment; summaries are read in place, as numbers.
#pragma once

#include <zoomr/core/cpu_path.hpp>
#include <zoomr/policy/any_policy.hpp>
#include <zoomr/policy/any_scorer_of.hpp>
#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/policy_text.hpp>

#include <algorithm>  // std::copy_n, std::max
#include <cstring>    // std::memcpy

namespace zoomr::inline v0::detail {

template <class Segmenter>
class any_segmenter_of final : public any_segmenter {
 public:
  explicit any_segmenter_of(const Segmenter& segmenter) : segmenter_(segmenter) {
    splits = !std::same_as<Segmenter, unsegmented>;
    cuts = cutting_segmenter<Segmenter>;
    longest = segmenter.longest;
    if constexpr (requires { segmenter.shortest(); }) shortest = segmenter.shortest();
    state_bytes = sizeof(state_type);
  }
  void open(std::byte* state) const override { write({}, state); }
  void feed(std::byte* state, token_class of_token, index_t position, closings& closed) const override {
    state_type fed = read(state);
    if constexpr (cutting_segmenter<Segmenter>) {
      if (has(of_token, token_class::cut)) [[unlikely]]
        segmenter_.cut(fed, position, closed);
    }
    segmenter_.feed(fed, of_token, position, closed);
    write(fed, state);
  }
  void end_of_prompt(std::byte* state, index_t position, closings& closed) const override {
    state_type fed = read(state);
    segmenter_.end_of_prompt(fed, position, closed);
    write(fed, state);
  }
  index_t open_begin(const std::byte* state) const override { return segmenter_.open_begin(read(state)); }

 private:
  using state_type = typename Segmenter::state;

  static state_type read(const std::byte* state) {
    state_type value;
    std::memcpy(&value, state, sizeof value);
    return value;
  }
  static void write(const state_type& value, std::byte* state) { std::memcpy(state, &value, sizeof value); }

  Segmenter segmenter_;
};

template <class Evictor>
class any_evictor_of final : public any_evictor {
 public:
  explicit any_evictor_of(const Evictor& evictor) : evictor_(evictor) {
    observes = Evictor::observes;
    if constexpr (Evictor::observes) {
      accumulates = Evictor::accumulates;
      reads_keys = Evictor::reads_keys;
      while_decoding = Evictor::while_decoding;
      updates_importance = importance_updater<Evictor>;
      if constexpr (Evictor::while_decoding) every = evictor.every;
    }
  }
  index_t kept(index_t tokens) const override { return evictor_.kept(tokens); }
  index_t observed(index_t tokens) const override {
    if constexpr (Evictor::observes) return evictor_.observed(tokens);
    return 0;
  }
  index_t safe(index_t tokens) const override {
    if constexpr (Evictor::observes) return evictor_.safe(tokens);
    return tokens;
  }
  void rate(const kv_lane_attention& seen, view<float> importance) const override {
    if constexpr (Evictor::observes) on_fastest_path([&] { evictor_.rate(seen, importance); });
  }
  void update_importance(const observed_query& observed, view<float> received) const override {
    if constexpr (importance_updater<Evictor>) on_fastest_path([&] { evictor_.update_importance(observed, received); });
  }

 private:
  Evictor evictor_;
};

template <class Summarizer>
class any_summarizer_of final : public any_summarizer {
 public:
  explicit any_summarizer_of(const Summarizer& summarizer) : summarizer_(summarizer) {
    rows = summary::rows;
    number_bytes = sizeof(number);
    scale_bytes = scales_summaries<number> ? sizeof(float) : 0;
    at_once = block_summarizer<Summarizer>;
  }
  void open(view<float, 2> cells) const override {
    if constexpr (dimension_summarizer<Summarizer>) {
      for (index_t d = 0; d < cells.extent(0); ++d) put(summarizer_.open(), cells.data() + d * summary::rows);
    }
  }
  void fold(view<float, 2> cells, const float* key) const override {
    if constexpr (dimension_summarizer<Summarizer>) {
      on_fastest_path([&] { each(cells, [&](cells_type& cell, index_t d) { summarizer_.fold(cell, key[d]); }); });
    }
  }
  void close(view<float, 2> cells, index_t count) const override {
    if constexpr (dimension_summarizer<Summarizer>) {
      each(cells, [&](cells_type& cell, index_t) { summarizer_.close(cell, count); });
    }
  }
  void make(view<const float, 2> keys, view<index_t> order, view<float> work, view<float, 2> cells) const override {
    if constexpr (block_summarizer<Summarizer>) on_fastest_path([&] { summarizer_.make(keys, order, work, cells); });
  }
  void store(view<const float, 2> cells, std::byte* out) const override {
    float scale = 1.0f;
    if constexpr (scales_summaries<number>) {
      std::uint32_t largest = 0;
      for (index_t d = 0; d < cells.extent(0); ++d) {
        for (index_t r = 0; r < summary::rows; ++r) largest = (std::max)(largest, summary_magnitude(cells(d, r)));
      }
      scale = summary_scale<number>(largest);
    }
    for (index_t d = 0; d < cells.extent(0); ++d) {
      for (index_t r = 0; r < summary::rows; ++r, out += sizeof(number)) {
        const number stored = stored_number<summary, number>(r, cells(d, r), scale);
        std::memcpy(out, &stored, sizeof stored);
      }
    }
    if constexpr (scales_summaries<number>) std::memcpy(out, &scale, sizeof scale);
  }

 private:
  using summary = typename Summarizer::summary;
  using number = summary_number<Summarizer>;
  using cells_type = cells<summary::rows>;

  static void put(const cells_type& cell, float* out) { std::copy_n(cell.row, summary::rows, out); }
  // change(cell, dimension)
  template <class Change>
  static void each(view<float, 2> cells, Change change) {
    for (index_t d = 0; d < cells.extent(0); ++d) {
      float* const row = cells.data() + d * summary::rows;
      cells_type cell;
      std::copy_n(row, summary::rows, cell.row);
      change(cell, d);
      put(cell, row);
    }
  }

  Summarizer summarizer_;
};

template <class QuerySource>
class any_query_source_of final : public any_query_source {
 public:
  explicit any_query_source_of(const QuerySource& source) : source_(source) { sums = QuerySource::sums; }
  void ask(view<const float> query, const float* query_sum, index_t count, float* out) const override {
    const float* const of_token = query.data();
    on_fastest_path([&] {
      for (index_t d = 0; d < query.size(); ++d) {
        out[d] =
            QuerySource::sums ? source_.query(of_token[d], query_sum[d], count) : source_.query(of_token[d], 0.0f, 1);
      }
    });
  }

 private:
  QuerySource source_;
};

template <class Aggregator>
class any_aggregator_of final : public any_aggregator {
 public:
  explicit any_aggregator_of(const Aggregator& aggregator) : aggregator_(aggregator) {
    per = aggregator.per;
    least = Aggregator::least;
    counts = Aggregator::counts;
    if constexpr (share_aggregator<Aggregator>) queries = aggregator.queries;
    if constexpr (requires { aggregator.question; }) question = aggregator.question;
    weighs = weighing_aggregator<Aggregator>;
    if constexpr (requires { Aggregator::pools; }) pools = Aggregator::pools, over_group = aggregator.over_group;
    if constexpr (gated_aggregator<Aggregator>) gate = aggregator.gate;
  }
  void add([[maybe_unused]] view<const float, 2> scores, [[maybe_unused]] view<const index_t> tokens,
           [[maybe_unused]] const score_logits& logits, [[maybe_unused]] view<votes_t> votes,
           [[maybe_unused]] view<index_t> order) const override {
    if constexpr (score_aggregator<Aggregator>) {
      on_fastest_path([&] { aggregator_.add(scores, tokens, logits, votes, order); });
    }
  }
  void add_weighted([[maybe_unused]] view<const float, 2> scores, [[maybe_unused]] view<const votes_t> weights,
                    [[maybe_unused]] view<const index_t> tokens, [[maybe_unused]] const score_logits& logits,
                    [[maybe_unused]] view<votes_t> votes, [[maybe_unused]] view<index_t> order) const override {
    if constexpr (weighing_aggregator<Aggregator>) {
      on_fastest_path([&] { aggregator_.add_weighted(scores, weights, tokens, logits, votes, order); });
    }
  }
  votes_t add_shares([[maybe_unused]] view<float, 2> shares, [[maybe_unused]] view<const float> weights,
                     [[maybe_unused]] view<votes_t> votes, [[maybe_unused]] none_class none) const override {
    votes_t of_none = 0;
    if constexpr (gated_aggregator<Aggregator>) {
      on_fastest_path([&] { of_none = aggregator_.add_shares(shares, weights, votes, none); });
    } else if constexpr (share_aggregator<Aggregator>) {
      on_fastest_path([&] { aggregator_.add_shares(shares, weights, votes); });
    }
    return of_none;
  }

 private:
  Aggregator aggregator_;
};

template <class Selector>
class any_selector_of final : public any_selector {
 public:
  explicit any_selector_of(const Selector& selector) : selector_(selector) {
    if constexpr (requires { selector.most_segments(); }) most_segments = selector.most_segments();
    if constexpr (limited_selector<Selector> && !brings_neighbours<Selector>) walks = selector.limits(0).share == 0.0f;
  }
  take_limits limits([[maybe_unused]] index_t room_used) const override {
    if constexpr (limited_selector<Selector>) return selector_.limits(room_used);
    return {};
  }
  byte_count work_bytes(index_t segments) const override { return work_bytes_of(selector_, segments); }
  void choose(best_first& best, const selection_input& input, selection_row& row) const override {
    selector_.choose(best, input, row);
  }

 private:
  Selector selector_;
};

template <class Refresh>
class any_refresh_of final : public any_refresh {
 public:
  explicit any_refresh_of(const Refresh& refresh) : refresh_(refresh) {
    second_pass = refresh.second_pass;
    each_token = refresh.each_token();
    only_after_prefill = std::same_as<Refresh, after_prefill>;
  }
  refresh_action due(const token_event& event) const override { return refresh_.due(event); }

 private:
  Refresh refresh_;
};

template <class Zones>
class any_zones_of final : public any_zones {
 public:
  explicit any_zones_of(const Zones& zones) : zones_(zones) {
    sinks = zones.sinks;
    prompt = zones.prompt;
    summaries = zones.summaries;
    own_summary = zones.own_summary;
    dense_layers = zones.dense_layers;
    preamble = zones.preamble;
    question = zones.question;
  }
  index_t front(index_t position, index_t prompt_end) const override { return zones_.front(position, prompt_end); }
  index_t back(index_t position, index_t prompt_end, index_t open_begin) const override {
    return zones_.back(position, prompt_end, open_begin);
  }

 private:
  Zones zones_;
};

/// The parts of any_policy_of that it refers to. They are a base of it, before any_policy: so they are there when that
/// is given its references, and still there when it goes.
template <class Policy>
struct any_components {
  any_segmenter_of<decltype(Policy::segment)> segment_;
  any_evictor_of<decltype(Policy::evict)> evict_;
  any_summarizer_of<decltype(Policy::summarize)> summarize_;
  any_query_source_of<decltype(Policy::query)> query_;
  any_scorer_of<decltype(Policy::score), decltype(Policy::summarize)> score_;
  any_aggregator_of<decltype(Policy::aggregate)> aggregate_;
  any_selector_of<decltype(Policy::select)> select_;
  any_refresh_of<decltype(Policy::refresh)> refresh_;
  any_zones_of<decltype(Policy::zone)> zone_;

  explicit any_components(const Policy& policy)
      : segment_(policy.segment),
        evict_(policy.evict),
        summarize_(policy.summarize),
        query_(policy.query),
        score_(policy.score),
        aggregate_(policy.aggregate),
        select_(policy.select),
        refresh_(policy.refresh),
        zone_(policy.zone) {}
};

/// A policy behind its interface.
template <class Policy>
class any_policy_of final : private any_components<Policy>, public any_policy {
  using components = any_components<Policy>;

 public:
  explicit any_policy_of(const Policy& policy)
      : components(policy),
        any_policy(components::segment_, components::evict_, components::summarize_, components::query_,
                   components::score_, components::aggregate_, components::select_, components::refresh_,
                   components::zone_,
                   {.prefetch = policy.placement.prefetch,
                    .details_on_host = policy.placement.details_on_host,
                    .frees_unreachable = policy.placement.frees_unreachable}),
        value(policy) {
    selects = Policy::selects;
    problem = policy.problem();
    Policy::each_component(policy, [&](const auto& part) {
      reads_classes = reads_classes || class_reader<std::remove_cvref_t<decltype(part)>>;
    });
  }

  void write_text(text_taker& out) const override { write_policy(value, out); }

  const Policy value;  // for what is compiled for this policy alone, such as kernels
};

}  // namespace zoomr::inline v0::detail
