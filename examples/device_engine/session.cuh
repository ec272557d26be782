// SPDX-License-Identifier: Apache-2.0
// Device twin of ../session.hpp, for one sequence: a model and a cache at work, the prompt in chunks, then one token
// after the other. After the prompt each pass is a graph: the host plans the step, launches, and reads the logits.
#pragma once

#include <zoomr/device_cache.cuh>

#include <algorithm>  // std::copy, std::max, std::min

#include "../decode/voters.hpp"
#include "decoder.hpp"
#include "model.cuh"

namespace decode::device {

template <class Policy, index_t HeadDim, index_t Group>
class device_session : public decoder {
 public:
  using cache_type = zoomr::device_cache<Policy, float, HeadDim, Group>;

  /// @param tokens   of the sequence, at most
  /// @param classes  [V]  must outlive the session
  /// @param room     of a policy whose store is tiered
  device_session(device_model& net, const Policy& policy, index_t tokens, std::span<const zoomr::token_class> classes,
                 const details_room& room = {})
      : net_(net),
        limits_(limits(net, tokens, classes, room)),
        bytes_(cache_type::bytes(shape_of(net), policy, limits_)),
        host_bytes_(cache_type::host_bytes(shape_of(net), policy, limits_)),
        memory_(static_cast<std::size_t>(bytes_)),
        details_(static_cast<std::size_t>(std::max<byte_count>(1, host_bytes_))),
        cache_(shape_of(net), policy, limits_, memory_.data(), net.on(), 0, tiered ? details_.get().data() : nullptr),
        sequence_(cache_.open()),
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
    const zoomr::shape& model = cache_.model();
    if (cost_.tokens > 0) {
      const double heads = static_cast<double>(model.layers) * model.heads;
      made.attended_mean = static_cast<double>(attended) / (static_cast<double>(cost_.tokens) * heads);
    }
    const auto& sizes = cache_.arrays().sizes;
    const auto four = static_cast<byte_count>(sizeof(float));
    const auto number_bytes = static_cast<byte_count>(sizeof(zoomr::summary_number<decltype(Policy::summarize)>));
    const byte_count block = sizes.block_numbers() * four;
    made.reserved.details =
        (tiered ? std::int64_t{sizes.arena_frames} : std::int64_t{model.layers} * sizes.pages) * block;
    made.pinned = host_bytes_;
    const index_t scales = cache_.arrays().scales_of(sizes, sizes.segments);
    made.reserved.summaries =
        std::int64_t{model.kv_lanes()} * (sizes.segments * sizes.summary_numbers * number_bytes + scales * four);
    made.reserved.metadata = bytes_ - made.reserved.details - made.reserved.summaries;
    if constexpr (tiered) {
      zoomr::arena_counts counts;
      cache_.read_tiers(counts, net_.on());
      wait_for(net_.on());
      made.arena = cache_.tiers(counts);
    }
    return made;
  }

  cache_type& cache() { return cache_; }
  zoomr::sequence sequence() const { return sequence_; }

 private:
  static constexpr bool tiered = zoomr::tiered_placement<decltype(Policy::placement)>;

  // What the model's forward pass sees of a step.
  struct layers_of_step {
    typename cache_type::step_type& step;
    device_session& session;
    index_t pass;  // 0: first, 1: second
    bool counts;

    void append(index_t layer, zoomr::view<const float, 3> keys, zoomr::view<const float, 3> values) {
      step.append(layer, keys, values, session.net_.on());
    }
    void attend(index_t layer, zoomr::view<const float, 3> queries, zoomr::view<float, 3> out) {
      step.attend(layer, queries, out, {}, session.net_.on());
      if (!counts) return;
      auto arrays = session.cache_.arrays();
      arrays.table = session.cache_.table(pass);
      zoomr::launch({dim3(1), dim3(1)}, session.net_.on(), count_kernel<decltype(arrays)>, arrays,
                    session.attended_.data());
    }
  };

  static zoomr::shape shape_of(const device_model& net) {
    const auto& c = net.config();
    return {static_cast<index_t>(c.layers), static_cast<index_t>(c.heads), static_cast<index_t>(c.kv_heads),
            static_cast<index_t>(c.head_dim)};
  }

  static zoomr::config limits(const device_model& net, index_t tokens, std::span<const zoomr::token_class> classes,
                              const details_room& room) {
    zoomr::config limits{.max_sequences = 1,
                         .max_tokens = tokens,
                         .max_segments = room.segments > 0 ? room.segments : tokens,
                         .max_batched_tokens = net.chunk(),
                         .max_draft_tokens = 1,
                         .tiers = room.tiers,
                         .classes = classes};
    if constexpr (zoomr::share_aggregator<decltype(Policy::aggregate)>) {
      const model_config& c = net.config();
      expect_voters(c);
      limits.voters = {c.voters.data(), {static_cast<index_t>(c.layers), static_cast<index_t>(c.heads)}};
      c.bounds.set_in(limits);
    }
    return limits;
  }

  // One step: a first pass, a second one if the selection has just changed, then commit; and the logits of its last
  // token. It ends with the only time that the host waits.
  void pass(std::span<const token_id> ids, bool prompt_ends) {
    const bool decodes = !cache_.in_prompt(sequence_);
    const index_t first = cache_.tokens(sequence_);
    auto step = cache_.begin(sequence_, ids, prompt_ends, decodes);
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

  void enqueue_first(typename cache_type::step_type& step, index_t count, bool decodes) {
    const auto bytes = static_cast<byte_count>(sizeof(index_t)) * count;
    zoomr::copy_to_device(net_.tokens(), ids_.get().data(), bytes, net_.on());
    zoomr::copy_to_device(net_.positions(), positions_.get().data(), bytes, net_.on());
    step.start(net_.on());
    layers_of_step layers{step, *this, 0, decodes};
    net_.forward(layers, count);
  }
  void enqueue_second(typename cache_type::step_type& step) {
    step.restart(net_.on());
    layers_of_step layers{step, *this, 1, true};
    net_.forward(layers, 1);
  }

  device_model& net_;
  zoomr::config limits_;
  byte_count bytes_;                 // of the cache on the device
  byte_count host_bytes_;            // and under it
  device_array<std::byte> memory_;   // its own
  pinned_array<std::byte> details_;  // of a tiered placement
  cache_type cache_;
  zoomr::sequence sequence_;
  replayed first_pass_, second_pass_;
  run_cost cost_;
  device_array<std::int64_t> attended_;  // [1]  after the prompt, summed over query heads, layers and passes
  pinned_array<token_id> ids_;           // [chunk]
  pinned_array<index_t> positions_;      // [chunk]
  pinned_array<float> logits_;           // [V]
};

}  // namespace decode::device
