// SPDX-License-Identifier: Apache-2.0
// A device cache with the calls of the host's, so that the same drivers play it: what they give is copied to the
// device, what they get is copied back, and the ranges that the device has found become a trace. It waits for what an
// engine waits for, and no longer: for the outputs of a pass when all its layers are enqueued; for nothing after a
// commit, nor between the chunks of a prompt whose outputs nobody wants, unless the cache is not ready.
#pragma once

#include <zoomr/device_cache.cuh>

#include <cache/support/driving.hpp>
#include <support/device_memory.hpp>
#include <support/sentence_of.hpp>

#include <algorithm>   // std::copy, std::transform
#include <functional>  // std::function
#include <memory>      // std::unique_ptr
#include <utility>     // std::exchange

namespace zoomr_test {

/// Numbers of some tokens in one layer.
inline std::vector<float> numbers(const shape& of, role what, view<const token_id> ids, index_t position, index_t layer,
                                  index_t pass) {
  const tensors all{of, kind::peaked, 7};
  const index_t rows = what == role::query ? of.heads : of.kv_heads;
  std::vector<float> made(static_cast<std::size_t>(ids.size() * rows * of.head_dim));
  for (index_t t = 0; t < ids.size(); ++t) {
    for (index_t row = 0; row < rows; ++row) {
      all.fill(what, ids[t], position + t, layer, row, pass, made.data() + (t * rows + row) * of.head_dim);
    }
  }
  return made;
}

/// How the pages of tiered caches that are made from now on come.
inline zoomr::transfer_plan plan_of_caches;

/// The plan of caches until the end of a scope.
struct scoped_plan {
  explicit scoped_plan(zoomr::transfer_plan plan) { plan_of_caches = plan; }
  scoped_plan(const scoped_plan&) = delete;
  scoped_plan& operator=(const scoped_plan&) = delete;
  ~scoped_plan() { plan_of_caches = {}; }
};

/// Steps and rollbacks of all device caches so far.
inline std::int64_t operations_on_device = 0;

/// @tparam Number  what keys, values, queries and outputs are on the device
template <class Policy, class T, index_t HeadDim, index_t Group, class Number = float,
          class Values = zoomr::values_apart<HeadDim>, class Ranks = zoomr::one_rank>
class device_as_host {
 public:
  using cache_type = zoomr::device_cache<Policy, T, HeadDim, Group, Values, Ranks>;
  static constexpr bool among_ranks = std::is_same_v<Ranks, zoomr::several_ranks>;

  class step_type {
   public:
    step_type(device_as_host& cache, typename cache_type::step_type step) : cache_(cache), step_(std::move(step)) {}

    void upload() { step_.upload(cache_.on_); }
    index_t tokens() const { return step_.tokens(); }
    index_t taken(index_t item) const { return step_.taken(item); }
    index_t position(index_t item) const { return step_.position(item); }
    bool active(index_t item) const { return step_.active(item); }
    index_t packed(index_t item) const { return step_.packed(item); }
    index_t items() const { return step_.items(); }
    index_t passes() const { return step_.passes(); }

    void append(index_t layer, view<const float, 3> keys, view<const float, 3> values = {}) {
      if (!started_) pass_ == 0 ? step_.start(cache_.on_) : step_.restart(cache_.on_);
      started_ = true;
      auto& k = cache_.kept(copied(keys));
      append_now();
      brought_ = {layer, on_device(k, keys), {}};
      if (values.data() != nullptr) brought_.values = on_device(cache_.kept(copied(values)), values);
      // of every other layer with attention, in one call
      if (std::exchange(cache_.at_once_, !cache_.at_once_)) append_now();
    }
    void observe(index_t layer, view<const float, 3> queries) {
      append_now();
      auto& q = cache_.kept(copied(queries));
      step_.observe(layer, on_device(q, queries), cache_.on_);
    }
    void attend(index_t layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse) {
      auto& q = cache_.kept(copied(queries));
      const index_t tokens = room(out.extent(0));
      auto& o = cache_.kept(
          std::vector<Number>(static_cast<std::size_t>(tokens * out.stride(0)), zoomr::from_float<Number>(77.0f)));
      auto& l = cache_.kept(std::vector<float>(static_cast<std::size_t>(tokens * lse.stride(0)), 77.0f));
      const view<Number, 3> outputs(o.data(), {tokens, out.extent(1), out.extent(2)});
      const view<float, 2> ends(l.data(), {tokens, lse.extent(1)});
      if (brought_.layer == layer) {
        step_.attend(layer, on_device(q, queries), brought_.keys, brought_.values, outputs, ends, cache_.on_);
        brought_ = {};
      } else {
        step_.attend(layer, on_device(q, queries), outputs, ends, cache_.on_);
      }
      auto outs = cache_.sent(o.data(), static_cast<std::size_t>(out.extent(0) * out.stride(0)));
      auto lses = cache_.sent(l.data(), static_cast<std::size_t>(lse.extent(0) * lse.stride(0)));
      auto memory = cache_.sent(cache_.memory_.data(), cache_.memory_bytes_);
      arriving_.push_back([=, this] {
        std::transform(outs->begin(), outs->end(), out.data(), [](Number number) { return zoomr::to_float(number); });
        std::copy(lses->begin(), lses->end(), lse.data());
        cache_.record(layer, pass_ == 1, *memory);
      });
    }
    /// Waits for the outputs of this pass, if there are any.
    void arrive() {
      if (arriving_.empty()) return;
      zoomr::stream_event outputs;
      outputs.record(cache_.on_);
      outputs.wait();
#if defined(ZOOMR_SIMT)
      // But for choices of voters, which commit waits for, and other ranks.
      constexpr bool goes_on_beside = zoomr::share_aggregator<decltype(Policy::aggregate)>;
      for (const auto& other : simt::streams.queues) {
        const bool joined = other == simt::streams.first || other->pending.empty() || among_ranks;
        if (!joined && !goes_on_beside) throw std::logic_error("after the last layer something still goes on beside");
      }
#endif
      for (const auto& each : std::exchange(arriving_, {})) each();
      cache_.done();
    }
    bool needs_second_pass(view<const index_t> accepted) {
      append_now();
      if (!step_.needs_second_pass(accepted)) return false;
      pass_ = 1;
      started_ = false;
      return true;
    }
    void commit(view<const index_t> accepted) {
      append_now();
      step_.commit(accepted, cache_.on_);
    }

   private:
    struct layer_rows {
      index_t layer = -1;  // -1: none
      view<const Number, 3> keys, values;
    };
    void append_now() {
      const layer_rows now = std::exchange(brought_, {});
      if (now.layer >= 0) step_.append(now.layer, now.keys, now.values, cache_.on_);
    }
    // Room for the tokens of any step, as a graph needs it; what is behind this step's tokens is NaN.
    index_t room(index_t tokens) const { return std::max(tokens, cache_.cache_.arrays().sizes.decode_tokens); }
    std::vector<Number> copied(view<const float, 3> numbers) const {
      std::vector<Number> made(static_cast<std::size_t>(room(numbers.extent(0)) * numbers.stride(0)),
                               zoomr::from_float<Number>(zoomr::not_a_number));
      std::transform(numbers.data(), numbers.data() + std::int64_t{numbers.extent(0)} * numbers.stride(0), made.begin(),
                     zoomr::from_float<Number>);
      return made;
    }
    view<const Number, 3> on_device(device_array<Number>& copy, view<const float, 3> like) const {
      return {copy.data(), {room(like.extent(0)), like.extent(1), like.extent(2)}};
    }

    device_as_host& cache_;
    typename cache_type::step_type step_;
    index_t pass_ = 0;
    bool started_ = false;
    layer_rows brought_;  // that wait for their queries
    std::vector<std::function<void()>> arriving_;
  };

  /// @param on  the stream of all that it enqueues
  device_as_host(const shape& model, const Policy& policy, const zoomr::config& limits, zoomr::stream_ref on = {})
      : on_(on),
        memory_bytes_(static_cast<std::size_t>(cache_type::bytes(model, policy, limits, splits)) + 256),
        memory_(static_cast<std::int64_t>(memory_bytes_), std::byte{0xff}),
        details_(poisoned(cache_type::host_bytes(model, policy, limits) + 1)),
        cache_(model, policy, limits, aligned(), on_, splits,
               zoomr::tiered_placement<decltype(policy.placement)> ? details_->data() : nullptr, plan_of_caches) {}

  const shape& model() const { return cache_.model(); }
  zoomr::sequence open() { return cache_.open(); }
  void close(zoomr::sequence seq) { cache_.close(seq); }
  zoomr::sequence fork(zoomr::sequence from) { return cache_.fork(from, on_); }
  void fork(zoomr::sequence from, zoomr::sequence into) { cache_.fork(from, into, on_); }
  void plan(view<const zoomr::step_item> items, view<index_t> taken) const { cache_.plan(items, taken); }
  step_type begin(view<const zoomr::step_item> items) {
    ++operations_on_device;
    if (!cache_.ready()) cache_.wait();
    step_type made{*this, cache_.begin(items, fixed && after_prompt(items))};
    if (uploads_early) made.upload();
    return made;
  }
  void rollback(zoomr::sequence seq, index_t position) {
    ++operations_on_device;
    cache_.rollback(seq, position);
  }
  index_t tokens(zoomr::sequence seq) const { return cache_.tokens(seq); }
  bool in_prompt(zoomr::sequence seq) const { return cache_.in_prompt(seq); }
  view<const zoomr::segment> segments(zoomr::sequence seq) const { return cache_.segments(seq); }
  std::vector<zoomr::pinned_range> pinned(zoomr::sequence seq) const { return cache_.pinned(seq); }
  void trace(zoomr::attention_trace* into) { trace_ = into; }

  /// What the arena of a tiered placement has done so far.
  zoomr::arena_counts tiers() { return read(cache_.arrays().arena.counts, 0, memory_.values()); }

  cache_type& cache() { return cache_; }

  bool fixed = false;          // steps after the prompt are begun as for a graph
  bool uploads_early = false;  // of each step at once, even if it is dropped before anything else

 private:
  static constexpr index_t splits = 3;
  bool at_once_ = false;

  // Memory on the device that work which was enqueued reads or writes; until the outputs of a later pass have come.
  template <class Object>
  device_array<Object>& kept(std::vector<Object> values) {
    auto made = std::make_shared<device_array<Object>>(std::move(values));
    kept_.push_back(made);
    return *made;
  }
  // What lies there when the device comes to it; to be looked at after a wait.
  template <class Object>
  std::shared_ptr<std::vector<Object>> sent(const Object* from, std::size_t count) {
    auto made = std::make_shared<std::vector<Object>>(count);
    kept_.push_back(made);
    copy_from_device(made->data(), from, count * sizeof(Object), on_);
    return made;
  }
  void done() { kept_.clear(); }

  void* aligned() {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (256 - at % 256) % 256;
  }
  static std::unique_ptr<zoomr::pinned_memory> poisoned(zoomr::byte_count bytes) {
    auto made = std::make_unique<zoomr::pinned_memory>(bytes);
    std::memset(made->data(), 0xff, static_cast<std::size_t>(bytes));
    return made;
  }

  // Object `at` of an array on the device, from a copy of all memory.
  template <class Object>
  Object read(const Object* p, std::int64_t at, const std::vector<std::byte>& all) {
    Object value;
    const auto from = reinterpret_cast<std::uintptr_t>(p + at) - reinterpret_cast<std::uintptr_t>(memory_.data());
    std::memcpy(&value, all.data() + from, sizeof value);
    return value;
  }

  // Turns the ranges of a layer into records, head by head.
  void record(index_t layer, bool second_pass, const std::vector<std::byte>& all) {
    const auto& a = cache_.arrays();
    const auto read = [&](const auto* p, std::int64_t at) { return this->read(p, at, all); };
    const zoomr::detail::device_table table = cache_.table(second_pass ? 1 : 0);
    const shape& m = model();
    for (index_t t = 0; t < read(table.counts, 0).tokens; ++t) {
      const zoomr::detail::device_token token = read(table.tokens, t);
      if (token.prompt) continue;
      for (index_t head = 0; head < m.heads; ++head) {
        const index_t row = a.sizes.layer_rows == 1 ? 0 : a.sizes.layer_rows == m.heads ? head : head / m.group();
        const std::int64_t at = a.token_row(t, row);
        const zoomr::attended_size size = read(a.read, at);
        zoomr::attended_record made{token.sequence, token.position, layer, head, second_pass, {}};
        index_t counted = 0;
        for (index_t r = 0; r < size.ranges; ++r) {
          const zoomr::token_range one = read(a.ranges, at * a.sizes.most_ranges() + r);
          if (read(a.before, at * a.sizes.most_ranges() + r) != counted) throw std::logic_error("`before` is wrong");
          for (index_t slot = one.first; slot < one.last; ++slot) {
            const bool kept = slot < token.held.kept;
            const index_t kv_lane = layer * m.kv_heads + head / m.group();
            made.positions.push_back(
                kept ? read(a.eviction.kept_of(token.sequence, kv_lane, token.held.kept).data(), slot)
                     : slot - token.held.kept + token.held.compacted_end);
          }
          counted += one.size();
        }
        if (counted != size.tokens) throw std::logic_error("the runs hold another number of tokens");
        trace_->push_back(std::move(made));
      }
    }
  }

  bool after_prompt(view<const zoomr::step_item> items) const {
    for (const zoomr::step_item& item : items) {
      if (cache_.in_prompt(item.seq) || item.prompt_begins) return false;
    }
    return true;
  }

  zoomr::stream_ref on_;
  std::size_t memory_bytes_;
  device_array<std::byte> memory_;
  std::unique_ptr<zoomr::pinned_memory> details_;  // of a tiered placement
  cache_type cache_;
  std::vector<std::shared_ptr<void>> kept_;
  zoomr::attention_trace* trace_ = nullptr;
};

}  // namespace zoomr_test
