// SPDX-License-Identifier: Apache-2.0
// A device cache with a context, and its next steps: what the step rows and the rows of choices time.
#pragma once

#include "device_limits.hpp"
#include "graph.hpp"

namespace zoomr_bench {

/// Some sequences of one text in a cache of one policy. The arena of a tiered store has room for 1/8 of all pages.
template <class Policy, head_count Heads = head_count{}>
class device_scene {
 public:
  static constexpr index_t batch = Heads.batch, kv_heads = Heads.kv_heads, group = Heads.group;
  using bfloat16 = zoomr::bfloat16;
  using cache_type = zoomr::device_cache<Policy, bfloat16, head_dim, group>;
  using step_type = typename cache_type::step_type;

  device_scene(const Policy& policy, const text& says, index_t layers)
      : says_(says),
        splits_(splits_for(batch * kv_heads, says.timed_from)),
        model_{layers, kv_heads * group, kv_heads, head_dim},
        limits_(device_limits<Heads>(policy, says, model_, splits_)),
        details_(cache_type::host_bytes(model_, policy, limits_) + 1),
        memory_(cache_type::bytes(model_, policy, limits_, splits_)),
        inputs_(Heads, says),
        out_(std::int64_t{batch} * model_.heads * head_dim),
        lse_(std::int64_t{batch} * model_.heads),
        cache_(model_, policy, limits_, memory_.data(), the_stream(), splits_, tiered ? details_.data() : nullptr) {
    for (index_t s = 0; s < batch; ++s) sequences_.push_back(cache_.open());
    while (position_ < says_.timed_from) write(inputs_.passed_with(position_).last);
  }

  /// The next token of each sequence.
  step_type begin(bool fixed) {
    if (position_ >= limits_.max_tokens) throw skipped("the context is full: fewer repetitions, or more slack");
    inputs_.fill(position_, position_ + 1);
    return cache_.begin(items(position_, position_ + 1), fixed);
  }
  /// Enqueues one pass over it.
  void enqueue(step_type& step, index_t pass) {
    pass == 0 ? step.start(the_stream()) : step.restart(the_stream());
    for (index_t layer = 0; layer < model_.layers; ++layer) {
      step.attend(layer, view<const bfloat16, 3>(inputs_.queries()), view<const bfloat16, 3>(inputs_.keys()),
                  view<const bfloat16, 3>(inputs_.values()),
                  view<bfloat16, 3>(out_.data(), {batch, model_.heads, head_dim}),
                  view<float, 2>(lse_.data(), {batch, model_.heads}), the_stream());
    }
  }
  void commit(step_type& step) {
    step.commit(accepted(1), the_stream());
    ++position_;
  }
  view<const index_t> accepted(index_t tokens) {
    accepted_.assign(sequences_.size(), tokens);
    return accepted_;
  }

  /// What the last step has given; `forget` makes it something else.
  std::pair<std::vector<bfloat16>, std::vector<float>> answers() const { return {out_.values(), lse_.values()}; }
  void forget() { fill_with_noise(out_.data(), out_.size(), 98), fill_with_noise(lse_.data(), lse_.size(), 99); }

  /// Too few tokens are left for the iterations of a row and for what is checked.
  bool used_up() const { return position_ + (toy ? 1 : 64) > limits_.max_tokens; }

  const cache_type& cache() const { return cache_; }
  const device_inputs& inputs() const { return inputs_; }
  index_t position() const { return position_; }
  const text& says() const { return says_; }
  const zoomr::shape& model() const { return model_; }
  static constexpr bool tiered = zoomr::tiered_placement<decltype(Policy::placement)>;
  graph graphs[2];  // of the first and the second pass
  bool captured[2] = {};

 private:
  void append(step_type& step, index_t layer) const {
    step.append(layer, view<const bfloat16, 3>(inputs_.keys()), view<const bfloat16, 3>(inputs_.values()),
                the_stream());
  }

  view<const zoomr::step_item> items(index_t first, index_t last, bool prompt_begins = false,
                                     bool prompt_ends = false) {
    ids_.clear(), items_.clear();
    for (index_t position = first; position < last; ++position) ids_.push_back(says_.at(position));
    for (const zoomr::sequence seq : sequences_) {
      items_.push_back({.seq = seq, .ids = ids_, .prompt_ends = prompt_ends, .prompt_begins = prompt_begins});
    }
    return items_;
  }

  // The tokens before `last`, a chunk of a prompt, whose attention nobody asks for: but for the prompt's end they make
  // no choice, and leave nothing but their keys and values.
  void write(index_t last) {
    const zoomr::token_range prompt = says_.prompt_at(position_);
    const bool ends_prompt = last == prompt.last;
    inputs_.fill(position_, last);
    auto step = cache_.begin(items(position_, last, position_ > 0 && position_ == prompt.first, ends_prompt));
    step.start(the_stream());
    for (index_t layer = 0; layer < model_.layers; ++layer) {
      append(step, layer);
      if (ends_prompt) step.observe(layer, view<const bfloat16, 3>(inputs_.queries()), the_stream());
    }
    step.commit(accepted(last - position_), the_stream());
    wait();
    position_ = last;
  }

  text says_;
  index_t splits_;
  zoomr::shape model_;
  zoomr::config limits_;
  zoomr::pinned_memory details_;  // of a tiered store
  device_buffer<std::byte> memory_;
  device_inputs inputs_;
  device_buffer<bfloat16> out_;
  device_buffer<float> lse_;
  cache_type cache_;
  std::vector<zoomr::sequence> sequences_;
  std::vector<zoomr::step_item> items_;
  std::vector<token_id> ids_;
  std::vector<index_t> accepted_;
  index_t position_ = 0;
};

}  // namespace zoomr_bench
