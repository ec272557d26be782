// SPDX-License-Identifier: Apache-2.0
#include "player.hpp"

#include <algorithm>  // std::max, std::min
#include <chrono>     // std::chrono::steady_clock
#include <cmath>      // std::exp, std::sqrt
#include <utility>    // std::move, std::swap

#include "../decode/report/observe.hpp"
#include "ranges.hpp"

namespace replay {
namespace {

using clock = std::chrono::steady_clock;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Of the last pass of one query.
struct query_figures {
  double error = 0, captured = 0, recall = 0;
  index_t attended = 0;
  index_t earlier = 0, fresh = 0;  // attended beside itself; of these, not a token before
};

/// Of all queries of one head.
struct head_sums {
  double error = 0, worst_error = 0, captured = 0, recall = 0;
  std::int64_t attended = 0, earlier = 0, fresh = 0;

  void add(const query_figures& query) {
    error += query.error, captured += query.captured, recall += query.recall;
    worst_error = std::max(worst_error, query.error);
    attended += query.attended, earlier += query.earlier, fresh += query.fresh;
  }
  head_figures means(std::int64_t queries) const {
    const double count = queries > 0 ? static_cast<double>(queries) : 1.0;
    return {error / count,
            worst_error,
            captured / count,
            recall / count,
            static_cast<double>(attended) / count,
            earlier > 0 ? static_cast<double>(fresh) / static_cast<double>(earlier) : 0.0};
  }
};

template <class Cache>
class player_of final : public player {
 public:
  player_of(Cache cache, opened known, const trace& from)
      : cache_(std::move(cache)), known_(std::move(known)), model_(from.facts().model), prompt_(from.facts().prompt) {
    for (index_t t = 0; t < from.facts().tokens; ++t)
      ids_.push_back(from.classes().empty() ? 0 : static_cast<zoomr::token_id>(from.classes()[at(t)]));
    const std::size_t heads = at(std::int64_t{model_.layers} * model_.heads);
    sums_.resize(heads), now_.resize(heads), sets_.resize(heads), before_.resize(heads);
    out_.resize(at(std::int64_t{model_.heads} * model_.value_width())), lse_.resize(at(model_.heads));
    cache_.trace(&records_);
    seq_ = cache_.open();
  }
  player_of(const player_of&) = delete;

  void record(report::recorder* into) override {
    recorder_ = into;
    cache_.trace_choices(into == nullptr ? nullptr : &into->choices);
  }
  const report::policy_facts& facts() const override { return known_.facts; }

  void prompt(trace& from, const std::function<void(index_t)>& passed) override {
    for (index_t first = 0; first < prompt_;) {
      const index_t left = prompt_ - first;
      // the last chunk is never short: retention observes the last tokens of the prompt
      const index_t count = left <= known_.chunk ? left : std::min(known_.chunk, left - known_.chunk / 2);
      pass_prompt(from, {first, first + count});
      passed(first += count);
    }
    if constexpr (zoomr::tiered_placement<typename Cache::placement_type>) prompt_in_ = cache_.tiers().bytes_in;
    if (recorder_ != nullptr) recorder_->begin(report::view_of(cache_, seq_));
  }

  void play(const token_rows& rows, const exact_answers& exact) override {
    for (index_t position = rows.tokens.first; position < rows.tokens.last; ++position) pass(rows, exact, position);
  }

  replay_result result() const override {
    replay_result made;
    made.policy = known_.text;
    made.options = known_.options;
    made.stats = cache_.stats(seq_);
    made.attended_mean = made.stats.attended_mean(model_);
    made.queries = made.stats.tokens * static_cast<std::int64_t>(sums_.size());
    made.dense = known_.dense;
    made.active = active_;
    made.active_tokens = active_tokens_;
    for (const head_sums& one : sums_) made.heads.push_back(one.means(made.stats.tokens));
    made.bytes = cache_.bytes(seq_);
    made.capacity = cache_.capacity();
    if constexpr (zoomr::tiered_placement<typename Cache::placement_type>) made.tiers = cache_.tiers();
    made.prompt_in = prompt_in_;
    made.seconds = seconds_;
    return made;
  }

 private:
  using rows_view = zoomr::view<const float, 3>;

  rows_view keys_of(const float* rows, index_t tokens) const {
    return {rows, {tokens, model_.kv_heads, model_.head_dim}};
  }
  rows_view values_of(const float* rows, index_t tokens) const {
    return {rows, {tokens, model_.kv_heads, model_.value_width()}};
  }
  rows_view queries_of(const float* rows, index_t tokens) const {
    return {rows, {tokens, model_.heads, model_.head_dim}};
  }
  zoomr::view<const zoomr::token_id> ids(token_range tokens) const {
    return {ids_.data() + tokens.first, {tokens.size()}};
  }

  // Runs a call of the cache, whose time counts.
  template <class Call>
  auto timed(Call call) {
    struct stopwatch {
      double& seconds;
      clock::time_point begin = clock::now();
      ~stopwatch() { seconds += std::chrono::duration<double>(clock::now() - begin).count(); }
    } running{seconds_};
    return call();
  }

  // Attention is dense there whatever the policy is, so that nobody needs its outputs.
  void pass_prompt(trace& from, token_range tokens) {
    auto step = timed([&] { return cache_.begin(seq_, ids(tokens), tokens.last == prompt_); });
    for (index_t layer = 0; layer < model_.layers; ++layer) {
      from.read(layer, part::keys, tokens, chunk_.keys);
      from.read(layer, part::values, tokens, chunk_.values);
      from.read(layer, part::queries, tokens, chunk_.queries);
      timed([&] {
        step.append(layer, keys_of(chunk_.keys.data(), tokens.size()), values_of(chunk_.values.data(), tokens.size()));
        step.observe(layer, queries_of(chunk_.queries.data(), tokens.size()));
      });
    }
    timed([&] { step.commit(); });
  }

  void pass(const token_rows& rows, const exact_answers& exact, index_t position) {
    auto step = timed([&] { return cache_.begin(seq_, ids({position, position + 1})); });
    do {
      for (index_t layer = 0; layer < model_.layers; ++layer) attend(step, rows, exact, layer, position);
    } while (timed([&] { return step.needs_second_pass(1); }));
    timed([&] { step.commit(); });
    const std::int64_t active_before = active_;
    for (std::size_t head = 0; head < sums_.size(); ++head) {
      sums_[head].add(now_[head]);
      active_ += now_[head].attended <= position ? 1 : 0;
    }
    active_tokens_ += active_ > active_before ? 1 : 0;
    std::swap(before_, sets_);
    if (recorder_ != nullptr) recorder_->step(report::view_of(cache_, seq_));
  }

  template <class Step>
  void attend(Step& step, const token_rows& rows, const exact_answers& exact, index_t layer, index_t position) {
    const token_rows::layer& all = rows.layers[at(layer)];
    const std::int64_t row = position - rows.tokens.first;
    const float* const key = &all.keys[at(row * model_.kv_heads * model_.head_dim)];
    const float* const value = &all.values[at(row * model_.kv_heads * model_.value_width())];
    const float* const query = &all.queries[at(row * model_.heads * model_.head_dim)];
    timed([&] {
      step.append(layer, keys_of(key, 1), values_of(value, 1));
      step.attend(layer, queries_of(query, 1), {out_.data(), {1, model_.heads, model_.value_width()}},
                  {lse_.data(), {1, model_.heads}});
    });
    for (index_t head = 0; head < model_.heads; ++head) compare(exact, layer, position, head);
    for (const zoomr::attended_record& record : records_) count(exact, record);
    if (recorder_ != nullptr) std::ranges::move(records_, std::back_inserter(recorder_->attended));
    records_.clear();
  }

  // Outputs.
  void compare(const exact_answers& exact, index_t layer, index_t position, index_t head) {
    const std::size_t width = at(model_.value_width()), query = exact.query(layer, position, head);
    const float* const wanted = &exact.out[query * width];
    const float* const got = &out_[at(head) * width];
    double apart = 0, norm = 0;
    for (std::size_t d = 0; d < width; ++d) {
      apart += (double{got[d]} - wanted[d]) * (double{got[d]} - wanted[d]);
      norm += double{wanted[d]} * wanted[d];
    }
    query_figures& figures = now_[at(std::int64_t{layer} * model_.heads + head)];
    figures = {};
    figures.error = apart == 0 ? 0 : std::sqrt(apart / std::max(norm, 1e-60));
    figures.captured = std::exp(double{lse_[at(head)]} - exact.lse[query]);
  }

  // What was attended.
  void count(const exact_answers& exact, const zoomr::attended_record& record) {
    const std::size_t head = at(std::int64_t{record.layer} * model_.heads + record.head);
    const index_t top = exact.top_count(record.position);
    const std::size_t first = exact.query(record.layer, record.position, record.head) * at(exact.top_keys);
    query_figures& figures = now_[head];
    collect(record.positions, sets_[head]);
    figures.attended = static_cast<index_t>(record.positions.size());
    figures.recall = static_cast<double>(hits(sets_[head], {&exact.top[first], {top}})) / top;
    if (before_[head].empty()) return;  // nothing was attended a token before
    figures.earlier = figures.attended - hits(sets_[head], {&record.position, {1}});
    figures.fresh = figures.earlier - overlap(sets_[head], before_[head]);
  }

  Cache cache_;
  opened known_;
  zoomr::shape model_;
  index_t prompt_;
  zoomr::sequence seq_;
  std::vector<zoomr::token_id> ids_;  // [tokens]  the class of each: it has no other meaning to a cache
  zoomr::attention_trace records_;
  report::recorder* recorder_ = nullptr;
  token_rows::layer chunk_;
  std::vector<float> out_, lse_;          // [heads, value width]; [heads]
  std::vector<query_figures> now_;        // [layers, heads]  of the token that passes
  std::vector<range_set> sets_, before_;  // [layers, heads]  what it attends; what the token before it did
  std::vector<head_sums> sums_;           // [layers, heads]
  std::int64_t active_ = 0;
  index_t active_tokens_ = 0;
  zoomr::byte_count prompt_in_ = 0;  // that came to memory for the prompt
  double seconds_ = 0;
};

}  // namespace

std::unique_ptr<player> play_on(zoomr::any_kv_cache<float, zoomr::placement> cache, opened known, const trace& from) {
  return std::make_unique<player_of<decltype(cache)>>(std::move(cache), std::move(known), from);
}
std::unique_ptr<player> play_on(zoomr::any_kv_cache<float, zoomr::tiered<>> cache, opened known, const trace& from) {
  return std::make_unique<player_of<decltype(cache)>>(std::move(cache), std::move(known), from);
}

}  // namespace replay
