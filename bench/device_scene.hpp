// SPDX-License-Identifier: Apache-2.0
// A device cache with a context, and its next steps: what the step rows and the rows of choices time.
#pragma once

#include <zoomr/store/tiered.hpp>
#include <zoomr/zoomr.cuh>

#include <device.hpp>

#include <array>  // std::array

namespace zoomr_bench {

using zoomr::bfloat16;
using zoomr::token_class;
using zoomr::token_id;

inline constexpr index head_dim = 128;

/// How many sequences make their steps together, and the heads of their model.
struct head_count {
  index batch = toy ? 2 : 8;
  index kv_heads = toy ? 2 : 8;
  index group = 4;
};
/// The model and batch that Quest's kernels are measured with: each query head has keys of its own.
inline constexpr head_count quest_heads{.batch = 1, .kv_heads = toy ? 3 : 32, .group = 1};

/// What a text looks like: how long its prompt is, what is written after it, and where sentences end.
struct text {
  index prompt = 0;
  index sentence = 24;   // tokens from delimiter to delimiter, while steps are timed
  index thought = 0;     // tokens of a thought, after the prompt; 0: none
  index summary = 0;     // tokens of its summary, markers included
  index timed_from = 0;  // the context

  static constexpr token_id plain = 0, delimiter = 1, summary_begin = 2,
                            summary_end = 4;  // the next one ends a sentence
  static constexpr std::array<token_class, 6> classes{
      token_class::plain,         token_class::delimiter,
      token_class::summary_begin, token_class::summary_begin | token_class::delimiter,
      token_class::summary_end,   token_class::summary_end | token_class::delimiter};

  /// While the context is written there are no delimiters: no choice is made that nobody attends under.
  bool ends_sentence(index position) const { return position >= timed_from && (position + 1) % sentence == 0; }
  token_id at(index position) const {
    token_id of = plain;
    if (thought > 0 && position >= prompt) {
      const index of_pair = (position - prompt) % (thought + summary);
      if (of_pair == thought) of = summary_begin;
      if (of_pair == thought + summary - 1) of = summary_end;
    }
    return of + (ends_sentence(position) ? delimiter : plain);
  }
};

/// Some sequences of one text in a cache of one policy. The arena of a tiered store has room for 1/8 of all pages.
template <class Policy, head_count Heads = head_count{}>
class scene {
 public:
  static constexpr index batch = Heads.batch, kv_heads = Heads.kv_heads, group = Heads.group;
  using cache_type = zoomr::device_cache<Policy, bfloat16, head_dim, group>;
  using step_type = typename cache_type::step_type;
  static constexpr index slack = toy ? 64 : 2048;  // steps that can be timed
  static constexpr index chunk = toy ? 64 : 1024;  // of each sequence's prompt

  scene(const Policy& policy, const text& says, index layers)
      : says_(says),
        splits_(splits_for(batch * kv_heads, says.timed_from)),
        model_{layers, kv_heads * group, kv_heads, head_dim},
        limits_(limits_for(policy)),
        details_(cache_type::host_bytes(model_, policy, limits_) + 1),
        memory_(cache_type::bytes(model_, policy, limits_, splits_)),
        queries_(std::int64_t{limits_.step_tokens} * model_.heads * head_dim),
        keys_(std::int64_t{limits_.step_tokens} * kv_heads * head_dim),
        values_(keys_.size()),
        out_(std::int64_t{batch} * model_.heads * head_dim),
        lse_(std::int64_t{batch} * model_.heads),
        cache_(model_, policy, limits_, memory_.data(), the_stream(), splits_, tiered ? details_.data() : nullptr) {
    for (index s = 0; s < batch; ++s) sequences_.push_back(cache_.open());
    write_prompt();
    while (position_ < says_.timed_from) write_token();
    wait();
  }

  /// The next token of each sequence.
  step_type begin(bool fixed) {
    if (position_ >= limits_.tokens) throw skipped("the context is full: fewer repetitions, or more slack");
    next_noise(batch);
    return cache_.begin(items(position_, position_ + 1, false), fixed);
  }
  /// Enqueues one pass over it.
  void enqueue(step_type& step, index pass) {
    pass == 0 ? step.start(the_stream()) : step.restart(the_stream());
    for (index layer = 0; layer < model_.layers; ++layer) {
      step.append(layer, view<const bfloat16, 3>(keys()), view<const bfloat16, 3>(values()), the_stream());
      step.attend(layer, view<const bfloat16, 3>(queries()), out(), lse(), the_stream());
    }
  }
  void commit(step_type& step) {
    step.commit(accepted(1), the_stream());
    ++position_;
  }
  view<const index> accepted(index tokens) {
    accepted_.assign(sequences_.size(), tokens);
    return accepted_;
  }

  /// Tokens that a query attended in the last layer of the last step, on average.
  double attended() const {
    const auto& a = cache_.arrays();
    const auto rows = static_cast<std::size_t>(batch * a.sizes.layer_rows);
    std::vector<zoomr::attended_size> sizes(rows);
    copy_to_host(sizes.data(), a.read, static_cast<std::int64_t>(rows * sizeof(zoomr::attended_size)));
    double sum = 0;
    for (const zoomr::attended_size& size : sizes) sum += size.tokens;
    return sum / static_cast<double>(rows);
  }
  /// What the arena of a tiered store has done so far.
  zoomr::arena_counts tiers() const {
    zoomr::arena_counts counts;
    if constexpr (tiered) copy_to_host(&counts, cache_.tiers(), sizeof counts);
    return counts;
  }
  /// Of a page in one layer.
  double block_bytes() const { return static_cast<double>(cache_.arrays().sizes.page_numbers()) * sizeof(bfloat16); }
  /// What the last step has given; `forget` makes it something else.
  std::pair<std::vector<bfloat16>, std::vector<float>> answers() const { return {out_.values(), lse_.values()}; }
  void forget() {
    fill_with_noise(out_.data(), out_.size(), 99);
    fill_with_noise(lse_.data(), lse_.size(), 99);
  }

  const cache_type& cache() const { return cache_; }
  view<bfloat16, 3> queries() const { return {queries_.data(), {limits_.step_tokens, model_.heads, head_dim}}; }
  index position() const { return position_; }
  const text& says() const { return says_; }
  const zoomr::shape& model() const { return model_; }
  graph graphs[2];  // of the first and the second pass
  bool captured[2] = {};

 private:
  static constexpr bool tiered = zoomr::tiered_store<decltype(Policy::store)>;

  zoomr::config limits_for(const Policy& policy) const {
    zoomr::config limits;
    limits.sequences = batch;
    limits.tokens = says_.timed_from + slack;
    limits.segments = limits.tokens / (toy ? 8 : 20) + 16;
    limits.step_tokens = batch * chunk;
    limits.draft_tokens = 1;
    limits.classes = text::classes;
    if constexpr (tiered) {
      const auto resident = with_store(policy, zoomr::resident{});
      using resident_cache = zoomr::device_cache<std::remove_const_t<decltype(resident)>, bfloat16, head_dim, group>;
      const std::int64_t all = cache_type::host_bytes(model_, policy, limits);
      limits.tiers.device = resident_cache::bytes(model_, resident, limits, splits_) - all + all / 8 + (64 << 10);
    }
    return limits;
  }

  view<bfloat16, 3> keys() const { return {keys_.data(), {limits_.step_tokens, kv_heads, head_dim}}; }
  view<bfloat16, 3> values() const { return {values_.data(), {limits_.step_tokens, kv_heads, head_dim}}; }
  view<bfloat16, 3> out() const { return {out_.data(), {batch, model_.heads, head_dim}}; }
  view<float, 2> lse() const { return {lse_.data(), {batch, model_.heads}}; }

  // Other keys, values and queries for each step.
  void next_noise(index tokens) {
    const auto seed = static_cast<std::uint32_t>(3 * position_ + 1);
    fill_with_noise(queries_.data(), std::int64_t{tokens} * model_.heads * head_dim, seed);
    fill_with_noise(keys_.data(), std::int64_t{tokens} * kv_heads * head_dim, seed + 1);
    fill_with_noise(values_.data(), std::int64_t{tokens} * kv_heads * head_dim, seed + 2);
  }

  view<const zoomr::step_item> items(index first, index last, bool prompt_ends) {
    ids_.clear(), items_.clear();
    for (index position = first; position < last; ++position) ids_.push_back(says_.at(position));
    for (const zoomr::sequence seq : sequences_) items_.push_back({seq, ids_, prompt_ends});
    return items_;
  }

  void write_prompt() {
    while (position_ < says_.prompt) {
      const index last = std::min(says_.prompt, position_ + chunk);
      next_noise(batch * (last - position_));
      auto step = cache_.begin(items(position_, last, last == says_.prompt));
      step.start(the_stream());
      for (index layer = 0; layer < model_.layers; ++layer) {
        step.append(layer, view<const bfloat16, 3>(keys()), view<const bfloat16, 3>(values()), the_stream());
        if (last == says_.prompt) step.observe(layer, view<const bfloat16, 3>(queries()), the_stream());
      }
      step.commit(accepted(last - position_), the_stream());
      wait();
      position_ = last;
    }
  }

  // A token whose attention nobody asks for: it makes no choice, and leaves nothing but its keys and values.
  void write_token() {
    next_noise(batch);
    auto step = cache_.begin(items(position_, position_ + 1, false));
    step.start(the_stream());
    for (index layer = 0; layer < model_.layers; ++layer) {
      step.append(layer, view<const bfloat16, 3>(keys()), view<const bfloat16, 3>(values()), the_stream());
    }
    wait();
    commit(step);
  }

  text says_;
  index splits_;
  zoomr::shape model_;
  zoomr::config limits_;
  zoomr::pinned_memory details_;  // of a tiered store
  device_buffer<std::byte> memory_;
  device_buffer<bfloat16> queries_, keys_, values_, out_;
  device_buffer<float> lse_;
  cache_type cache_;
  std::vector<zoomr::sequence> sequences_;
  std::vector<zoomr::step_item> items_;
  std::vector<token_id> ids_;
  std::vector<index> accepted_;
  index position_ = 0;
};

/// The policies of the rows, and their texts.
inline constexpr auto full = zoomr::policies::full;
template <class Summarizer>
constexpr auto sentences_by(Summarizer means) {
  return zoomr::compose(zoomr::sentences{.longest = toy ? 8 : 24}, means, zoomr::mean_dot{}, zoomr::running_mean{},
                        zoomr::fill_budget{.tokens = toy ? 40 : 2048}, zoomr::every_token{},
                        zoomr::zones{.sinks = 4, .recent = toy ? 8 : 32, .open = toy ? 8 : 24});
}
inline constexpr auto sentence_kv_f32 = sentences_by(zoomr::key_mean{});
inline constexpr auto sentence_kv = sentences_by(zoomr::stored_as<bfloat16>(zoomr::key_mean{}));
inline constexpr auto quest = zoomr::compose(zoomr::fixed_pages{.longest = 16}, zoomr::key_box{}, zoomr::box_bound{},
                                             zoomr::best_segments{.segments = toy ? 2 : 128}, zoomr::every_token{},
                                             zoomr::zones{.sinks = 4, .recent = toy ? 8 : 32, .open = 16});
/// Quest as its kernels do it: boxes in 16 bits, each head alone, 2,048 tokens in pages of 16.
inline constexpr auto quest_published = zoomr::compose(
    zoomr::fixed_pages{.longest = 16}, zoomr::stored_as<zoomr::float16>(zoomr::key_box{}), zoomr::box_bound{},
    zoomr::best_segments{.segments = toy ? 2 : 128}, zoomr::every_token{}, zoomr::zones{.open = 16});

/// ZoomR with c = 2 and a window of 256.
template <class Policy>
constexpr auto zooming(Policy published) {
  published.zone.recent = toy ? 8 : 256;
  published.select.segments = 2;
  return published;
}
inline constexpr auto zoomr_mass = zooming(zoomr::policies::zoomr_mass);
inline constexpr auto zoomr_focus = zooming(zoomr::policies::zoomr_focus);

/// All of the context is the prompt.
inline text long_prompt(index context) { return {.prompt = context, .sentence = toy ? 8 : 24, .timed_from = context}; }
/// A short prompt; the context is thoughts with their summaries.
inline text thoughts_after_prompt(index context) {
  return {.prompt = toy ? 16 : 512,
          .sentence = toy ? 8 : 24,
          .thought = toy ? 20 : 400,
          .summary = toy ? 6 : 30,
          .timed_from = context};
}

}  // namespace zoomr_bench
