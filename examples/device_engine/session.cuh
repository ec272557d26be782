// SPDX-License-Identifier: Apache-2.0
// Device twin of ../session.hpp, for one sequence: a model and a cache at work, the prompt in chunks, then one token
// after the other. After the prompt each pass is a graph: the host plans the step, launches, and reads the logits.
#pragma once

#include <zoomr/device_cache.cuh>
#include <zoomr/grouped_device_cache.cuh>
#include <zoomr/presets/full.hpp>

#include <algorithm>    // std::copy, std::max, std::min
#include <type_traits>  // std::conditional_t
#include <vector>       // std::vector

#include "../decode/voters.hpp"
#include "decoder.hpp"
#include "model.cuh"

namespace decode::device {

/// A cache of some layers, and its memory.
template <class Policy, index_t HeadDim, index_t Group>
class cache_in_memory {
 public:
  using cache_type = zoomr::device_cache<Policy, float, HeadDim, Group>;
  static constexpr bool tiered = zoomr::tiered_placement<decltype(Policy::placement)>;

  /// @param layers  how many
  cache_in_memory(const model_config& c, std::size_t layers, const Policy& policy, const zoomr::config& limits,
                  zoomr::stream_ref on)
      : bytes_(cache_type::bytes(shape_of(c, layers), policy, limits)),
        host_bytes_(cache_type::host_bytes(shape_of(c, layers), policy, limits)),
        memory_(static_cast<std::size_t>(bytes_)),
        details_(static_cast<std::size_t>(std::max<byte_count>(1, host_bytes_))),
        cache_(shape_of(c, layers), policy, limits, memory_.data(), on, 0, tiered ? details_.get().data() : nullptr) {}

  cache_type& cache() { return cache_; }
  byte_count pinned() const { return host_bytes_; }
  zoomr::memory_use reserved() const {
    zoomr::memory_use all;
    const zoomr::shape& model = cache_.model();
    const auto& sizes = cache_.arrays().sizes;
    const auto four = static_cast<byte_count>(sizeof(float));
    const auto number_bytes = static_cast<byte_count>(sizeof(zoomr::summary_number<decltype(Policy::summarize)>));
    const byte_count block = sizes.block_numbers() * four;
    all.details = (tiered ? std::int64_t{sizes.arena_frames} : std::int64_t{model.layers} * sizes.pages) * block;
    const index_t scales = cache_.arrays().scales_of(sizes, sizes.segments);
    all.summaries =
        std::int64_t{model.kv_lanes()} * (sizes.segments * sizes.summary_numbers * number_bytes + scales * four);
    all.metadata = bytes_ - all.details - all.summaries;
    return all;
  }

 private:
  byte_count bytes_;                 // on the device
  byte_count host_bytes_;            // and under it
  device_array<std::byte> memory_;   // its own
  pinned_array<std::byte> details_;  // of a tiered placement
  cache_type cache_;
};

/// The cache of a model whose layers are alike.
template <class Policy, index_t HeadDim, index_t Group>
class layers_alike {
 public:
  layers_alike(const device_model& net, const Policy& policy, const zoomr::config& limits)
      : chosen_(net.config(), net.config().layers, policy, limits, net.on()) {}

  auto& whole() { return chosen_.cache(); }
  auto& chosen() { return chosen_; }
  /// Calls visit(cache_in_memory) for each.
  template <class Visit>
  void each(Visit visit) {
    visit(chosen_);
  }
  /// Calls visit(device_cache) with that of a layer.
  template <class Visit>
  void of_layer(index_t, Visit visit) {
    visit(chosen_.cache());
  }

 private:
  cache_in_memory<Policy, HeadDim, Group> chosen_;
};

/// As on the host: the policy is for all layers but those with a sliding window, which attend to all that is in theirs.
template <class Policy, index_t HeadDim, index_t Group>
class layers_in_two {
  using all_in_window = zoomr::policy_of<zoomr::presets::full>;

 public:
  layers_in_two(const device_model& net, const Policy& policy, const zoomr::config& limits)
      : group_of_(net.config().windows.begin(), net.config().windows.end()),
        chosen_(net.config(), net.config().layers - net.config().layers_in_window(), policy, limits, net.on()),
        in_window_(net.config(), net.config().layers_in_window(), all_in_window(zoomr::presets::full),
                   windowed(limits, net.config()), net.on()),
        whole_(zoomr::view<const index_t>(group_of_), chosen_.cache(), in_window_.cache()) {}

  auto& whole() { return whole_; }
  auto& chosen() { return chosen_; }
  template <class Visit>
  void each(Visit visit) {
    visit(chosen_), visit(in_window_);
  }
  template <class Visit>
  void of_layer(index_t layer, Visit visit) {
    group_of_[static_cast<std::size_t>(layer)] == 0 ? visit(chosen_.cache()) : visit(in_window_.cache());
  }

 private:
  static zoomr::config windowed(zoomr::config limits, const model_config& c) {
    limits.logits.window = static_cast<index_t>(c.window), limits.voters = {};
    return limits;
  }

  std::vector<index_t> group_of_;  // [layers]  1: with a window
  cache_in_memory<Policy, HeadDim, Group> chosen_;
  cache_in_memory<all_in_window, HeadDim, Group> in_window_;
  zoomr::grouped_device_cache<typename cache_in_memory<Policy, HeadDim, Group>::cache_type,
                              typename cache_in_memory<all_in_window, HeadDim, Group>::cache_type>
      whole_;
};

/// @tparam Windows  some layers have a sliding window
template <class Policy, index_t HeadDim, index_t Group, bool Windows = false>
class device_session : public decoder {
 public:
  /// @param tokens   of the sequence, at most
  /// @param classes  [V]  must outlive the session
  /// @param room     of a policy whose store is tiered
  device_session(device_model& net, const Policy& policy, index_t tokens, std::span<const zoomr::token_class> classes,
                 const details_room& room = {})
      : net_(net),
        voters_(votes ? policy_voters(net.config()) : std::vector<float>{}),
        caches_(net, policy, limits(tokens, classes, room)),
        sequence_(caches_.whole().open()),
        attended_(std::vector<std::int64_t>{0}, net.on()),
        ids_(static_cast<std::size_t>(net.chunk())),
        positions_(ids_.get().size()),
        logits_(net.config().vocab) {}

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
    caches_.each([&](auto& in) { made.reserved += in.reserved(), made.pinned += in.pinned(); });
    if constexpr (tiered) {
      zoomr::arena_counts counts;
      cache().read_tiers(counts, net_.on());
      wait_for(net_.on());
      made.arena = cache().tiers(counts);
    }
    return made;
  }

  /// Of the layers that the policy is for.
  auto& cache() { return caches_.chosen().cache(); }

 private:
  static constexpr bool tiered = zoomr::tiered_placement<decltype(Policy::placement)>;
  static constexpr bool votes = zoomr::share_aggregator<decltype(Policy::aggregate)>;

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
      session.caches_.of_layer(layer, [&](auto& cache) {
        auto arrays = cache.arrays();
        arrays.table = cache.table(pass);
        zoomr::launch({dim3(1), dim3(1)}, session.net_.on(), count_kernel<decltype(arrays)>, arrays,
                      session.attended_.data());
      });
    }
  };

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
    if constexpr (votes) {
      const auto heads = static_cast<index_t>(c.heads);
      limits.voters = {voters_.data(), {static_cast<index_t>(voters_.size()) / heads, heads}};
      c.bounds.set_in(limits);
    }
    return limits;
  }

  // One step: a first pass, a second one if the selection has just changed, then commit; and the logits of its last
  // token. It ends with the only time that the host waits.
  void pass(std::span<const token_id> ids, bool prompt_ends) {
    const bool decodes = !caches_.whole().in_prompt(sequence_);
    const index_t first = caches_.whole().tokens(sequence_);
    auto step = caches_.whole().begin(sequence_, ids, prompt_ends, decodes);
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
  }
  template <class Step>
  void enqueue_second(Step& step) {
    step.restart(net_.on());
    layers_of_step<Step> layers{step, *this, 1, true};
    net_.forward(layers, 1);
  }

  device_model& net_;
  std::vector<float> voters_;  // [layers that the policy is for, heads], of heads that vote
  std::conditional_t<Windows, layers_in_two<Policy, HeadDim, Group>, layers_alike<Policy, HeadDim, Group>> caches_;
  zoomr::sequence sequence_;
  replayed first_pass_, second_pass_;
  run_cost cost_;
  device_array<std::int64_t> attended_;  // [1]  after the prompt, summed over query heads, layers and passes
  pinned_array<token_id> ids_;           // [chunk]
  pinned_array<index_t> positions_;      // [chunk]
  pinned_array<float> logits_;           // [V]
};

}  // namespace decode::device
