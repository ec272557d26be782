// SPDX-License-Identifier: Apache-2.0
// A cache of the host with a context, and its next steps: one layer, as a rule of 8 KV heads and 32 heads of 128
// dimensions.
#pragma once

#include <zoomr/policy/placement/engine_pages.hpp>
#include <zoomr/zoomr.hpp>

#include <algorithm>  // std::shuffle
#include <array>      // std::array
#include <random>     // std::mt19937

#include "../../tests/support/rounded_weights.hpp"
#include "noise.hpp"
#include "reference.hpp"
#include "texts.hpp"

namespace zoomr_bench {

/// Sentences of 24 tokens; or after a prompt thoughts of 400 with summaries of 30.
inline text host_text(index_t context, bool thoughts) {
  if (!thoughts) return {.prompt = context};
  return {.prompt = std::min<index_t>(512, context / 4), .thought = 400, .summary = 30};
}

/// How an engine's pages lie (zoomr::engine_memory).
struct engine_layout {
  const char* name;
  bool heads_first;
  zoomr::index_t page_tokens;
  bool shuffled = false;  // pages come in no order
};

/// One sequence; each call of `advance` makes tokens.
template <class Policy, class T, index_t KvHeads = 8, index_t HeadDim = 128, index_t Group = 4>
class host_scene {
  template <class Number>
  using packed = zoomr::view<Number, 3>;

 public:
  static constexpr index_t head_dim = toy ? 16 : HeadDim, kv_heads = toy ? 2 : KvHeads, group = Group;
  static constexpr index_t heads = kv_heads * group;

  /// @param on    whose threads work
  /// @param lies  of a policy whose pages are an engine's
  host_scene(const Policy& policy, index_t context, bool thoughts, const zoomr::executor& on = {},
             const engine_layout& lies = {"", false, zoomr::page_tokens})
      : says_(host_text(context, thoughts)),
        room_(context + slack),
        pages_of_engine_(context, lies),
        cache_(model, policy, limits(context, on)),
        seq_(cache_.open()) {
    while (position_ < context) {
      const bool prompt = position_ < says_.prompt;
      advance(prompt ? std::min<index_t>(256, says_.prompt - position_) : 1);
    }
    for (index_t warm_up = 0; warm_up < 24; ++warm_up) advance(1);
  }

  const zoomr::statistics& stats() const { return cache_.stats(seq_); }
  /// Too few tokens are left for the iterations of a row and the one that is checked.
  bool used_up() const { return position_ + 25 > room_; }

  /// @return  seconds of the step, without the making of its inputs
  double advance(index_t tokens) {
    const bool prompt = position_ < says_.prompt;
    const auto keys = filled(keys_, tokens, kv_heads, 1, 1.0f), values = filled(values_, tokens, kv_heads, 2, 1.0f);
    const auto queries = filled(queries_, tokens, heads, 3, query_scale);
    for (float& number : queries_) number = as_engine_has<T>(number);
    out_.resize(queries_.size());
    std::vector<zoomr::token_id> ids;
    for (index_t t = 0; t < tokens; ++t) ids.push_back(says_.at(position_ + t));
    const double from = now();
    const zoomr::step_item item{seq_, ids, prompt && position_ + tokens == says_.prompt, pages_of_engine_.table};
    auto step = cache_.begin(zoomr::view<const zoomr::step_item>(&item, {1}));
    step.append(0, keys, values);
    if (prompt) {
      step.observe(0, queries);
    } else {
      step.attend(0, queries, packed<float>(out_.data(), {{tokens, heads, head_dim}}));
    }
    step.commit(tokens);
    position_ += tokens;
    return now() - from;
  }

  /// Makes a token and compares one head of each KV head with attention, in double, over the positions that it says it
  /// has attended, whose keys and values are made again. Which positions those must be is the tests' business, and
  /// that of the rows of scoring and choosing; here they must be as many as `stats` counts and, of `full`, all.
  /// @throws wrong
  void expect_right(bool full) {
    zoomr::attention_trace trace;
    cache_.trace(&trace);
    const std::int64_t before = stats().attended;
    advance(1);
    cache_.trace(nullptr);
    comparison attended("attended");
    std::int64_t counted = 0;
    for (const auto& of : trace) {
      counted += static_cast<std::int64_t>(of.positions.size());
      if (full) attended.same(static_cast<std::int64_t>(of.positions.size()), position_);
      if (of.head % group != 0) continue;
      const auto number = [&](index_t t, index_t d, std::uint32_t stream) {
        const std::int64_t row = std::int64_t{of.positions[static_cast<std::size_t>(t)]} * kv_heads + of.head / group;
        return zoomr::to_float(stored_noise<T>(row * head_dim + d, stream));
      };
      const auto query = queries_.begin() + of.head * head_dim;
      const auto expected = attention(
          {query, query + head_dim}, static_cast<index_t>(of.positions.size()),
          [&](index_t t, index_t d) { return number(t, d, 1); }, [&](index_t t, index_t d) { return number(t, d, 2); });
      const float* given = out_.data() + of.head * head_dim;
      expect_outputs(expected, [&](index_t d) { return given[d]; }, {.of_weights = tolerance::of_path<T>(head_dim)});
    }
    attended.same(stats().attended - before, counted);
    attended.same(static_cast<std::int64_t>(trace.size()), heads);
  }

 private:
  static constexpr zoomr::shape model{1, heads, kv_heads, head_dim};
  static constexpr index_t slack = 512;  // tokens after the context

  // The pool of an engine, and the block table of its sequence: nothing where the cache has pages.
  struct engine_side {
    engine_side(index_t context, const engine_layout& lies) {
      if (zoomr::pool_of<decltype(Policy::placement), T>::owns_pages) return;
      const index_t pages = (context + slack) / lies.page_tokens + 1;
      for (index_t page = 0; page < pages; ++page) table.push_back(page);
      if (lies.shuffled) std::shuffle(table.begin(), table.end(), std::mt19937(1));
      numbers = zoomr::buffer<T>(std::int64_t{2} * pages * lies.page_tokens * kv_heads * head_dim);
      keys[0] = numbers.data(), values[0] = numbers.data() + numbers.size() / 2;
      memory = lies.heads_first ? zoomr::engine_memory::hnd(keys, values, pages, lies.page_tokens, model)
                                : zoomr::engine_memory::nhd(keys, values, pages, lies.page_tokens, model);
    }
    zoomr::buffer<T> numbers;
    std::array<void*, 1> keys{}, values{};
    std::vector<index_t> table;
    zoomr::engine_memory memory;
  };

  zoomr::config limits(index_t context, const zoomr::executor& on) const {
    zoomr::config made;
    made.engine = pages_of_engine_.memory;
    made.max_tokens = context + slack;
    made.threads = on;
    made.classes = text::classes;
    static constexpr std::array<float, std::size_t{heads}> first_head_votes{1.0f};
    made.voters = {first_head_votes.data(), {1, heads}};
    return made;
  }
  // Those of the next tokens, which a reference can make again.
  packed<const float> filled(std::vector<float>& numbers, index_t tokens, index_t of, std::uint32_t stream,
                             float scale) const {
    const std::int64_t each = std::int64_t{of} * head_dim;
    numbers.resize(static_cast<std::size_t>(tokens * each));
    for (std::int64_t i = 0; i < tokens * each; ++i) {
      numbers[static_cast<std::size_t>(i)] = noise_at(position_ * each + i, stream) * scale;
    }
    return {numbers.data(), {{tokens, of, head_dim}}};
  }

  text says_;
  index_t room_;
  engine_side pages_of_engine_;
  zoomr::kv_cache<Policy, T> cache_;
  zoomr::sequence seq_;
  std::vector<float> keys_, values_, queries_, out_;
  index_t position_ = 0;
};

}  // namespace zoomr_bench
