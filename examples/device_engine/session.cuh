// SPDX-License-Identifier: Apache-2.0
// Device twin of ../session.hpp, for one sequence: a model and a cache at work, the prompt in chunks, then one token
// after the other. After the prompt each pass is a graph: the host plans the step, launches, and reads the logits.
#pragma once

#include <zoomr/any_device_cache.cuh>
#include <zoomr/grouped_device_cache.cuh>
#include <zoomr/presets/full.hpp>

#include <algorithm>  // std::copy, std::max, std::min
#include <optional>   // std::optional
#include <vector>     // std::vector

#include "../decode/voters.hpp"
#include "decoder.hpp"
#include "model.cuh"

namespace decode::device {

/// A cache of some layers, and its memory.
class cache_in_memory {
 public:
  using cache_type = zoomr::any_device_cache<float>;

  /// @tparam Caches  zoomr::device_caches<...>, of which one is for the policy and the model
  /// @param layers   how many
  template <class Caches, class Policy>
  cache_in_memory(Caches, const model_config& c, std::size_t layers, const Policy& policy, const zoomr::config& limits,
                  zoomr::stream_ref on)
      : bytes_(Caches::bytes(shape_of(c, layers), policy, limits)),
        host_bytes_(Caches::host_bytes(shape_of(c, layers), policy, limits)),
        memory_(static_cast<std::size_t>(bytes_)),
        details_(static_cast<std::size_t>(std::max<byte_count>(1, host_bytes_))),
        cache_(Caches::make(shape_of(c, layers), policy, limits, memory_.data(), on, 0,
                            host_bytes_ > 0 ? details_.get().data() : nullptr)) {
    using number = zoomr::summary_number<decltype(Policy::summarize)>;
    const auto& sizes = cache_.arrays().sizes;
    const zoomr::shape& model = cache_.model();
    const auto four = static_cast<byte_count>(sizeof(float));
    const byte_count scale = zoomr::scales_summaries<number> && sizes.summary_numbers > 0 ? four : 0;
    reserved_.details = (tiered() ? std::int64_t{sizes.arena_frames} : std::int64_t{model.layers} * sizes.pages) *
                        sizes.block_numbers() * four;
    reserved_.summaries = std::int64_t{model.kv_lanes()} * sizes.segments *
                          (sizes.summary_numbers * static_cast<byte_count>(sizeof(number)) + scale);
    reserved_.metadata = bytes_ - reserved_.details - reserved_.summaries;
  }

  cache_type& cache() { return cache_; }
  bool tiered() const { return host_bytes_ > 0; }
  byte_count pinned() const { return host_bytes_; }
  const zoomr::memory_use& reserved() const { return reserved_; }

 private:
  byte_count bytes_;                 // on the device
  byte_count host_bytes_;            // and under it, of a tiered placement
  device_array<std::byte> memory_;   // its own
  pinned_array<std::byte> details_;  // of a tiered placement
  cache_type cache_;
  zoomr::memory_use reserved_;
};

/// As on the host, the policy is for all layers but those with a sliding window, which attend to all that is in theirs.
class device_session : public decoder {
  using cache_type = cache_in_memory::cache_type;

 public:
  /// @tparam Caches   zoomr::device_caches<...>, of which one is for the policy and the model
  /// @tparam Windows  the same for `full`, of a model that has layers with a sliding window
  /// @param tokens    of the sequence, at most
  /// @param classes   [V]  must outlive the session
  /// @param room      of a policy whose store is tiered
  template <class Caches, class Windows, class Policy>
  device_session(Caches caches, Windows windows, device_model& net, const Policy& policy, index_t tokens,
                 std::span<const zoomr::token_class> classes, const details_room& room = {})
      : net_(net),
        voters_(votes<Policy> ? policy_voters(net.config()) : std::vector<float>{}),
        group_of_(net.config().windows.begin(), net.config().windows.end()),
        chosen_(caches, net.config(), net.config().layers - net.config().layers_in_window(), policy,
                limits<Policy>(tokens, classes, room), net.on()),
        attended_(std::vector<std::int64_t>{0}, net.on()),
        ids_(static_cast<std::size_t>(net.chunk())),
        positions_(ids_.get().size()),
        logits_(net.config().vocab) {
    if (const std::size_t layers = net.config().layers_in_window(); layers > 0) {
      zoomr::config windowed = limits<Policy>(tokens, classes, room);
      windowed.logits.window = static_cast<index_t>(net.config().window), windowed.voters = {};
      in_window_.emplace(windows, net.config(), layers, zoomr::presets::full, windowed, net.on());
      in_groups_.emplace(zoomr::view<const index_t>(group_of_), chosen_.cache(), in_window_->cache());
    }
    with_cache([&](auto& whole) { sequence_ = whole.open(); });
  }

  void prompt(std::span<const token_id> ids, const std::function<void(std::size_t)>& passed) override {
    const auto chunk = static_cast<std::size_t>(net_.chunk());
    for (std::size_t first = 0; first < ids.size();) {
      const std::size_t left = ids.size() - first;
      const std::size_t count = left <= chunk ? left : std::min(chunk, left - chunk / 2);
      pass(ids.subspan(first, count), count == left);
      passed(first += count);
    }
  }

  void advance(std::span<const token_id> next) override { pass(next.first(1), false); }

  std::span<const float> logits() const override { return logits_.get(); }

  run_cost cost() override {
    std::int64_t attended = 0;
    copy_from_device(&attended, attended_.data(), sizeof attended, net_.on());
    wait_for(net_.on());
    run_cost made = cost_;
    if (cost_.tokens > 0) {
      const auto heads = static_cast<double>(net_.config().layers * net_.config().heads);
      made.attended_mean = static_cast<double>(attended) / (static_cast<double>(cost_.tokens) * heads);
    }
    made.reserved = chosen_.reserved(), made.pinned = chosen_.pinned();
    if (in_window_) made.reserved += in_window_->reserved();
    if (chosen_.tiered()) {
      zoomr::arena_counts counts;
      cache().read_tiers(counts, net_.on());
      wait_for(net_.on());
      made.arena = cache().tiers(counts);
    }
    return made;
  }

  /// Of the layers that the policy is for.
  cache_type& cache() { return chosen_.cache(); }

 private:
  template <class Policy>
  static constexpr bool votes = zoomr::share_aggregator<decltype(Policy::aggregate)>;

  // visit(cache) with that of all layers: of the policy alone, or of both groups.
  template <class Visit>
  void with_cache(Visit visit) {
    in_groups_ ? visit(*in_groups_) : visit(chosen_.cache());
  }

  // What the model's forward pass sees of a step.
  template <class Step>
  struct layers_of_step {
    Step& step;
    device_session& session;
    index_t pass;  // 0: first, 1: second
    bool counts;

    void append(index_t layer, zoomr::view<const float, 3> keys, zoomr::view<const float, 3> values) {
      step.append(layer, keys, values, session.net_.on());
    }
    void attend(index_t layer, zoomr::view<const float, 3> queries, zoomr::view<float, 3> out) {
      step.attend(layer, queries, out, zoomr::view<float, 2>{}, session.net_.on());
      if (!counts) return;
      const bool in_window = session.in_window_ && session.group_of_[static_cast<std::size_t>(layer)] == 1;
      const cache_type& cache = (in_window ? *session.in_window_ : session.chosen_).cache();
      auto arrays = cache.arrays();
      arrays.table = cache.table(pass);
      zoomr::launch({dim3(1), dim3(1)}, session.net_.on(), count_kernel<decltype(arrays)>, arrays,
                    session.attended_.data());
    }
  };

  template <class Policy>
  zoomr::config limits(index_t tokens, std::span<const zoomr::token_class> classes, const details_room& room) const {
    const model_config& c = net_.config();
    zoomr::config limits{.max_sequences = 1,
                         .max_tokens = tokens,
                         .max_segments = room.segments > 0 ? room.segments : tokens,
                         .max_batched_tokens = net_.chunk(),
                         .max_draft_tokens = 1,
                         .tiers = room.tiers,
                         .classes = classes};
    limits.logits.scale = static_cast<float>(c.attention_scale);
    if (votes<Policy>) {
      const auto heads = static_cast<index_t>(c.heads);
      limits.voters = {voters_.data(), {static_cast<index_t>(voters_.size()) / heads, heads}};
      c.bounds.set_in(limits);
    }
    return limits;
  }

  // One step: a first pass, a second one if the selection has just changed, then commit; and the logits of its last
  // token. It ends with the only time that the host waits.
  void pass(std::span<const token_id> ids, bool prompt_ends) {
    with_cache([&](auto& whole) { pass_in(whole, ids, prompt_ends); });
  }
  template <class Cache>
  void pass_in(Cache& whole, std::span<const token_id> ids, bool prompt_ends) {
    const bool decodes = !whole.in_prompt(sequence_);
    const index_t first = whole.tokens(sequence_);
    auto step = whole.begin(sequence_, ids, prompt_ends, decodes);
    const auto count = static_cast<index_t>(ids.size());
    std::copy(ids.begin(), ids.end(), ids_.get().begin());
    for (index_t t = 0; t < count; ++t) positions_.get()[static_cast<std::size_t>(t)] = first + t;
    step.upload(net_.on());  // no part of a graph
    if (decodes) {
      first_pass_([&] { enqueue_first(step, 1, true); }, net_.on());
      cost_.passes += 1;
    } else {
      enqueue_first(step, count, false);
    }
    if (step.needs_second_pass(count)) {  // the same token: its id and position are on the device
      step.upload(net_.on());
      second_pass_([&] { enqueue_second(step); }, net_.on());
      cost_.passes += 1;
    }
    copy_from_device(logits_.get().data(), net_.logits(), logits_.get().size_bytes(), net_.on());
    step.commit(count, net_.on());
    wait_for(net_.on());
    (decodes ? cost_.tokens : cost_.prompt_tokens) += count;
  }

  template <class Step>
  void enqueue_first(Step& step, index_t count, bool decodes) {
    const auto bytes = static_cast<byte_count>(sizeof(index_t)) * count;
    zoomr::copy_to_device(net_.tokens(), ids_.get().data(), bytes, net_.on());
    zoomr::copy_to_device(net_.positions(), positions_.get().data(), bytes, net_.on());
    step.start(net_.on());
    layers_of_step<Step> layers{step, *this, 0, decodes};
    net_.forward(layers, count);
    step.join(net_.on());
  }
  template <class Step>
  void enqueue_second(Step& step) {
    step.restart(net_.on());
    layers_of_step<Step> layers{step, *this, 1, true};
    net_.forward(layers, 1);
    step.join(net_.on());
  }

  device_model& net_;
  std::vector<float> voters_;      // [layers that the policy is for, heads], of heads that vote
  std::vector<index_t> group_of_;  // [layers]  1: with a window
  cache_in_memory chosen_;
  std::optional<cache_in_memory> in_window_;
  std::optional<zoomr::grouped_device_cache<cache_type, cache_type>> in_groups_;
  zoomr::sequence sequence_;
  replayed first_pass_, second_pass_;
  run_cost cost_;
  device_array<std::int64_t> attended_;  // [1]  after the prompt, summed over query heads, layers and passes
  pinned_array<token_id> ids_;           // [chunk]
  pinned_array<index_t> positions_;      // [chunk]
  pinned_array<float> logits_;           // [V]
};

}  // namespace decode::device
