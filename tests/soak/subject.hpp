// SPDX-License-Identifier: Apache-2.0
// A cache of any policy, storage type and store behind one interface, so that what drives it is compiled once.
#pragma once

#include <cache/support/saved_bytes.hpp>
#include <cache/support/small_policies.hpp>
#include <cache/support/tiered_limits.hpp>
#include <support/paged_engine.hpp>
#include <support/voters.hpp>
#include <zoomr/cache/key_rotation.hpp>
#include <zoomr/grouped_kv_cache.hpp>
#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <algorithm>   // std::all_of, std::copy, std::copy_n, std::min
#include <array>       // std::array
#include <functional>  // std::function
#include <memory>      // std::unique_ptr
#include <optional>    // std::optional
#include <stdexcept>   // std::logic_error
#include <string>      // std::string
#include <utility>     // std::forward
#include <vector>      // std::vector

namespace soak {

using zoomr::index_t;
using zoomr::view;

inline constexpr zoomr::shape model{2, 4, 2, 8};

/// How a cache stores the rows of `model`: with zeros behind keys and values, or values in keys, which then are them.
/// Under the scale of `model` it gives what a cache of `model` gives.
struct widths {
  index_t key = model.head_dim;
  index_t value = model.head_dim;
  bool values_in_keys = false;

  bool plain() const { return key == model.head_dim && value == model.head_dim && !values_in_keys; }
  zoomr::shape shape() const {
    return {model.layers, model.heads, model.kv_heads, key, plain() ? 0 : value, values_in_keys};
  }
  friend bool operator==(const widths&, const widths&) = default;
};

/// Rows of `model` with zeros behind them.
class wide_rows {
 public:
  view<const float, 3> of(view<const float, 3> rows, index_t width) {
    if (rows.extent(2) != model.head_dim) return rows;  // a mistake, which is refused
    const auto count = static_cast<std::size_t>(rows.extent(0) * rows.extent(1));
    numbers_.assign(count * static_cast<std::size_t>(width), 0.0f);
    const view<float, 3> made(numbers_.data(), {rows.extent(0), rows.extent(1), width});
    for (index_t t = 0; t < rows.extent(0); ++t) {
      for (index_t head = 0; head < rows.extent(1); ++head) {
        const view<const float> row = rows[t][head];
        std::copy(row.begin(), row.end(), made[t][head].data());
      }
    }
    return made;
  }

 private:
  std::vector<float> numbers_;
};

/// What is seen of one sequence from outside; a call that fails changes none of it.
struct looks {
  index_t tokens = 0;
  std::vector<zoomr::segment> segments;
  zoomr::memory_use use;
  std::int64_t counted_prompt_tokens = 0;
  std::int64_t counted_tokens = 0;
  friend bool operator==(const looks&, const looks&) = default;
};

/// What is done to a span of a sequence.
struct editing {
  enum class kind { erase, erase_and_turn, gap, shift, shift_and_turn };
  kind how = kind::erase;
  zoomr::token_range span{};
  index_t distance = 0;  // of a shift

  bool erases() const { return how < kind::shift; }
  index_t erased() const { return erases() ? span.size() : 0; }
  /// Keys and model positions are those of a sequence that never had the span.
  bool plain() const { return how == kind::erase; }
};

/// A cache, and the step that is in progress or was the last.
class subject {
 public:
  virtual ~subject() = default;
  virtual zoomr::sequence open() = 0;
  virtual zoomr::sequence fork(zoomr::sequence) = 0;
  virtual void fork(zoomr::sequence, zoomr::sequence into) = 0;
  virtual zoomr_test::saved_bytes save(zoomr::sequence) = 0;
  virtual zoomr::sequence load(const zoomr_test::saved_bytes&) = 0;
  virtual void close(zoomr::sequence) = 0;
  virtual void rollback(zoomr::sequence, index_t to) = 0;
  /// Keys that move are turned to their new positions, or as they are.
  virtual void edit(zoomr::sequence, const editing&) = 0;
  virtual index_t model_position(zoomr::sequence, index_t position) const = 0;
  virtual index_t tokens(zoomr::sequence) const = 0;
  virtual looks look(zoomr::sequence) const = 0;
  virtual void selected(zoomr::sequence, index_t row) const = 0;
  virtual void begin(view<const zoomr::step_item>) = 0;
  virtual void drop() = 0;  // the step
  virtual index_t step_tokens() const = 0;
  virtual index_t step_tokens(index_t item) const = 0;
  virtual index_t position(index_t item) const = 0;
  virtual bool active(index_t item) const = 0;
  virtual index_t packed(index_t item) const = 0;
  virtual const char* failure(index_t item) const = 0;
  virtual void append(index_t layer, view<const float, 3> keys, view<const float, 3> values) = 0;
  virtual void attend(index_t layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse) = 0;
  virtual void observe(index_t layer, view<const float, 3> queries) = 0;
  virtual bool needs_second_pass(view<const index_t> accepted) = 0;
  virtual void commit(view<const index_t> accepted) = 0;
};

/// @tparam Cache  an any_kv_cache, or an engine that has one
template <class Cache>
class subject_of final : public subject {
 public:
  template <class... Arguments>
  explicit subject_of(const widths& stored, Arguments&&... arguments)
      : stored_(stored), cache_(std::forward<Arguments>(arguments)...) {}

  zoomr::sequence open() override { return cache_.open(); }
  zoomr::sequence fork(zoomr::sequence seq) override { return cache_.fork(seq); }
  void fork(zoomr::sequence seq, zoomr::sequence into) override { cache_.fork(seq, into); }
  zoomr_test::saved_bytes save(zoomr::sequence seq) override {
    zoomr_test::memory_sink into;
    cache_.save(seq, into);
    return std::move(into.bytes);
  }
  zoomr::sequence load(const zoomr_test::saved_bytes& bytes) override {
    zoomr_test::memory_source from(bytes);
    return cache_.load(from);
  }
  void close(zoomr::sequence seq) override { cache_.close(seq); }
  void rollback(zoomr::sequence seq, index_t to) override { cache_.rollback(seq, to); }
  void edit(zoomr::sequence seq, const editing& made) override {
    static constexpr std::array frequencies{1.0f, 0.3f, 0.1f, 0.03f};  // of the model's dimensions
    static_assert(2 * frequencies.size() == model.head_dim);
    const auto turn = [](index_t distance) { return zoomr::key_rotation(view<const float>(frequencies), distance); };
    const zoomr::token_range span = made.span;
    switch (made.how) {
      case editing::kind::erase:
        return static_cast<void>(cache_.erase(seq, span));
      case editing::kind::erase_and_turn:
        return static_cast<void>(
            cache_.erase(seq, span, turn(model_position(seq, span.first) - model_position(seq, span.last))));
      case editing::kind::gap:
        return static_cast<void>(cache_.erase(seq, span, zoomr::position_gap{}));
      case editing::kind::shift:
        return cache_.shift(seq, span, made.distance);
      case editing::kind::shift_and_turn:
        return cache_.shift(seq, span, made.distance, turn(made.distance));
    }
  }
  index_t model_position(zoomr::sequence seq, index_t position) const override {
    return cache_.model_position(seq, position);
  }
  index_t tokens(zoomr::sequence seq) const override { return cache_.tokens(seq); }
  looks look(zoomr::sequence seq) const override {
    const auto all = cache_.segments(seq);
    const zoomr::statistics stats = cache_.stats(seq);
    return {cache_.tokens(seq), {all.begin(), all.end()}, cache_.bytes(seq), stats.prompt_tokens, stats.tokens};
  }
  void selected(zoomr::sequence seq, index_t row) const override { cache_.selected(seq, row); }
  void begin(view<const zoomr::step_item> items) override {
    std::vector<index_t> planned(static_cast<std::size_t>(items.size()));
    bool refused = false;
    try {
      cache_.plan(items, view<index_t>(planned));
    } catch (const std::exception&) {
      refused = true;  // `begin` does it too
    }
    auto made = cache_.begin(items);
    if (refused) throw std::logic_error("a step begins that was refused when it was planned");
    for (index_t i = 0; i < items.size(); ++i) {
      if (made.taken(i) != planned[static_cast<std::size_t>(i)])
        throw std::logic_error("a step takes other tokens than planned");
    }
    step_.reset();
    step_.emplace(std::move(made));
  }
  void drop() override { step_.reset(); }
  index_t step_tokens() const override { return step_->tokens(); }
  index_t step_tokens(index_t item) const override { return step_->taken(item); }
  index_t position(index_t item) const override { return step_->position(item); }
  bool active(index_t item) const override { return step_->active(item); }
  index_t packed(index_t item) const override { return step_->packed(item); }
  const char* failure(index_t item) const override { return step_->failure(item); }
  void append(index_t layer, view<const float, 3> keys, view<const float, 3> values) override {
    if (stored_.plain()) return step_->append(layer, keys, values);
    const bool mistaken = values.extent(2) != model.head_dim;
    if (stored_.values_in_keys && !mistaken) return step_->append(layer, keys_.of(keys, stored_.key));
    step_->append(layer, keys_.of(keys, stored_.key), values_.of(values, stored_.value));
  }
  void attend(index_t layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse) override {
    if (stored_.plain() || out.extent(2) != model.head_dim) return step_->attend(layer, queries, out, lse);
    const auto rows = static_cast<std::size_t>(out.extent(0) * model.heads);
    out_.assign(rows * static_cast<std::size_t>(stored_.value), 0.0f);
    const view<float, 3> wide(out_.data(), {out.extent(0), model.heads, stored_.value});
    step_->attend(layer, keys_.of(queries, stored_.key), wide, lse);
    for (index_t t = 0; t < out.extent(0); ++t) {
      for (index_t head = 0; head < model.heads; ++head) {
        const float* const row = wide[t][head].data();
        std::copy_n(row, model.head_dim, out[t][head].data());
        const bool beyond = std::all_of(row + model.head_dim, row + stored_.value,
                                        [&](float x) { return x == 0.0f || row[0] != row[0]; });  // NaN: a failed item
        if (!beyond) throw std::logic_error("values of zeros add up to something");
      }
    }
  }
  void observe(index_t layer, view<const float, 3> queries) override {
    step_->observe(layer, stored_.plain() ? queries : keys_.of(queries, stored_.key));
  }
  bool needs_second_pass(view<const index_t> accepted) override { return step_->needs_second_pass(accepted); }
  void commit(view<const index_t> accepted) override { step_->commit(accepted); }

 private:
  widths stored_;
  wide_rows keys_, values_;
  std::vector<float> out_;
  Cache cache_;
  std::optional<typename Cache::step_type> step_;  // ends before its cache
};

/// The model's layers in two groups: the first under a policy, the second under full attention.
template <class T>
class in_groups : public zoomr::grouped_kv_cache<T> {
  using base = zoomr::grouped_kv_cache<T>;

 public:
  template <class Policy>
  in_groups(const zoomr::shape& of, const Policy& policy, const zoomr::config& limits)
      : base(groups(of, policy, limits), view<const index_t>(layers_)) {}

  index_t model_position(zoomr::sequence seq, index_t position) const {
    return base::group(0).model_position(base::in_group(seq, 0), position);
  }
  auto segments(zoomr::sequence seq) const { return base::group(0).segments(base::in_group(seq, 0)); }
  const zoomr::selection_row& selected(zoomr::sequence seq, index_t row) const {
    return base::group(0).selected(base::in_group(seq, 0), row);
  }

 private:
  static constexpr std::array<index_t, 2> layers_{0, 1};

  template <class Policy>
  static std::vector<zoomr::any_kv_cache<T>> groups(zoomr::shape of, const Policy& policy, zoomr::config limits) {
    std::vector<zoomr::any_kv_cache<T>> made;
    of.layers = 1;
    const view<const float, 2> sinks = limits.logits.sinks;
    const auto sinks_of = [&](index_t layer) { return sinks.data() ? sinks.slice(layer, layer + 1) : sinks; };
    limits.logits.sinks = sinks_of(0);
    made.push_back(zoomr::kv_cache<Policy, T>(of, policy, zoomr_test::with_voters(policy, limits, of)));
    limits.logits.sinks = sinks_of(1);
    made.push_back(zoomr::kv_cache<zoomr::policy_of<zoomr::presets::full>, T>(of, zoomr::presets::full, limits));
    return made;
  }
};

template <class T, class Policy>
std::unique_ptr<subject> make_subject(const Policy& policy, const zoomr::config& limits, const widths& stored) {
  return std::make_unique<subject_of<zoomr::any_kv_cache<T, decltype(Policy::placement)>>>(
      stored, zoomr::kv_cache<Policy, T>(stored.shape(), policy, limits));
}

/// Blocks in memory, and where the file under them is made.
struct tier_sizes {
  index_t frames = 0;
  const char* path = nullptr;
};

/// A policy with a storage type, and how to make caches of it.
struct sort {
  std::string name;                        // of the preset
  std::string type;                        // of what is stored
  widths least = {};                       // rows as narrow as this type allows
  zoomr::byte_count at_hand = 0;           // over tiers, of each page: keys of voters that stay in memory
  bool frees_unreachable = false;          // pages that no query can reach: no deep rollback
  bool evicts = false;                     // tokens: no rollback behind that
  bool accumulates = false;                // attention from the first token on
  bool votes = false;                      // heads do, by the last queries
  index_t kept = 0;                        // tokens, of those that evict
  index_t pinned_room = zoomr::unlimited;  // tokens of pinned spans that a sequence may have
  bool questions = false;                  // spans may be questions
  bool threads = false;                    // a thread moves bytes: faults need not come in the same places again
  std::function<std::unique_ptr<subject>(const zoomr::config&, const widths&)> resident = {};
  /// In the pages of an engine; empty where these have no room for what is stored.
  std::function<std::unique_ptr<subject>(const zoomr::config&, const widths&, const zoomr_test::engine_layout&)>
      engine = {};
  /// In the caller's thread; empty where the policy reads keys at each choice.
  std::function<std::unique_ptr<subject>(const zoomr::config&, const widths&, const tier_sizes&)> tiered = {};
  std::function<std::unique_ptr<subject>(const zoomr::config&, const widths&)> grouped = {};
};

/// Adds the presets of one storage type: in a source for each, since each takes a while to compile.
template <class T>
void add(std::vector<sort>& all);
template <class... T>
void add_types(std::vector<sort>& all) {
  (add<T>(all), ...);
}

}  // namespace soak
