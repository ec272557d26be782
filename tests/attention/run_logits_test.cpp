// SPDX-License-Identifier: Apache-2.0
// Logits that go through a hook on their way to weights: those of models, and hooks of the caller's own.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/naive_attention.hpp>
#include <support/rounded_weights.hpp>
#include <zoomr/attention/gather.hpp>

#include <cmath>   // std::abs, std::sqrt, std::tanh
#include <vector>  // std::vector

namespace zoomr {

namespace {

std::vector<cpu_path> all_paths() {
  std::vector<cpu_path> has{cpu_path::portable};
  for (const cpu_path path : {cpu_path::avx2, cpu_path::avx512, cpu_path::avx512_bf16, cpu_path::neon}) {
    if (has_cpu_path(path)) has.push_back(path);
  }
  return has;
}

/// Ascending positions of so many tokens that are left of twice as many.
std::vector<index_t> kept_positions(unit::random& random, index_t count) {
  std::vector<index_t> made;
  for (index_t t = 0, at = 0; t < count; ++t) made.push_back(at += random.between(1, 3));
  return made;
}

/// Some tokens in one piece of memory, page after page, and queries of heads that share them.
template <class T>
struct lane_and_queries {
  index_t head_dim, group, tokens;
  std::vector<index_t> pages;
  std::vector<T> memory;
  std::vector<float> queries;  // [group, head_dim]
  std::vector<index_t> kept;   // positions of the tokens; empty: all are kept
  std::vector<float> slopes;
  float scale, soft_cap = 0.0f;

  lane_and_queries(unit::random& random, index_t dims, index_t heads, index_t count, float size = 3.0f)
      : head_dim(dims),
        group(heads),
        tokens(count),
        memory(unit::size(pages_for(count) * 2 * page_tokens * dims)),
        queries(random.floats(unit::size(heads * dims), -size, size)),
        scale(random.uniform(0.5f, 2.0f) / std::sqrt(static_cast<float>(dims))) {
    for (index_t page = 0; page < pages_for(count); ++page) pages.push_back(page);
    for (T& number : memory) number = from_float<T>(random.uniform(-1.0f, 1.0f));
  }
  paged_kv_lane<T> lane() {
    return {memory.data(), std::int64_t{2} * page_tokens * head_dim, kv_rows::in_page<T>({1, 1, 1, head_dim}, 1, 0),
            pages};
  }
  slot_map slots() const { return {view<const index_t>(kept), kept.empty() ? 0 : kept.back() + 7}; }
  index_t position() const { return slots().position_of(tokens - 1) + 2; }
  model_logits hook() const { return {{soft_cap, view<const float>(slopes), slots()}, group, position()}; }

  struct answer {
    std::vector<float> out;
    std::vector<attention_state> states;
  };
  template <class Hook>
  answer attend(cpu_path path, const Hook& by) {
    answer made{std::vector<float>(unit::size(group * head_dim)), std::vector<attention_state>(unit::size(group))};
    for (index_t head = 0; head < group; ++head) {
      made.states[unit::size(head)].out = made.out.data() + head * head_dim;
    }
    const token_range all{0, tokens};
    gather_attend({&all, {1}}, lane(), {queries.data(), {group, head_dim}}, scale, view<attention_state>(made.states),
                  path, by);
    return made;
  }
  double logit(index_t head, index_t slot) {
    const float* const query = queries.data() + head * head_dim;
    return zoomr_test::naive_dot(head_dim, query, lane().key(slot)) * double{scale};
  }
  // change(logit, head, slot): what the hook should make of it
  template <class Change>
  void check(answer& made, double off, Change change) {
    for (index_t head = 0; head < group; ++head) {
      const auto exact = zoomr_test::naive_attention(
          tokens, head_dim, [&](index_t t) { return change(logit(head, t), head, t); },
          [&](index_t t) { return lane().value(t); });
      const double lse = made.states[unit::size(head)].finish(head_dim);
      REQUIRE(std::abs(lse - exact.lse) <= 4e-5 + 1e-6 * std::abs(lse));
      for (index_t d = 0; d < head_dim; ++d) {
        const double got = made.out[unit::size(head * head_dim + d)];
        REQUIRE(std::abs(got - exact.out[unit::size(d)]) <= off + 4e-5);
      }
    }
  }
};

template <class Answer>
bool same_bits(const Answer& a, const Answer& b) {
  for (std::size_t i = 0; i < a.out.size(); ++i) {
    if (!unit::same_bits(a.out[i], b.out[i])) return false;
  }
  for (std::size_t i = 0; i < a.states.size(); ++i) {
    if (!unit::same_bits(a.states[i].max, b.states[i].max) || !unit::same_bits(a.states[i].sum, b.states[i].sum))
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("logits of a row have the same bits on every path, whatever they are") {
  unit::random random(61);
  const float odd[] = {infinity, -infinity, not_a_number, 3e38f, -3e38f, 1e-40f, -0.0f, 0.0f, 0.625f, -0.625f};
  for (int round = 0; round < 300; ++round) {
    const index_t count = random.between(1, 90), first = random.below(50);
    std::vector<float> given = random.floats(unit::size(count), -90.0f, 90.0f);
    for (float& logit : given) logit = random.below(6) == 0 ? odd[random.below(10)] : logit;
    const std::vector<index_t> kept = kept_positions(random, random.below(count + first + 1));
    const std::vector<float> slopes{random.uniform(0.0f, 1.0f)};
    constexpr float caps[] = {0.0f, 1e-30f, 0.1f, 30.0f, 1e30f};
    model_logits by{{caps[round % 5], {}, {}}, 1, random.below(1000)};
    if (random.below(2) == 0) by.lane.slopes = view<const float>(slopes);
    if (random.below(2) == 0 && !kept.empty()) by.lane.slots = {view<const index_t>(kept), kept.back() + 3};
    std::vector<float> right = given;
    for (index_t t = 0; t < count; ++t) {
      right[unit::size(t)] = by.lane(given[unit::size(t)], 0, first + t, by.first_position);
    }
    for (const cpu_path path : all_paths()) {
      std::vector<float> made = given;
      detail::change_row(path, by, made, first);
      CAPTURE(name_of(path));
      for (index_t t = 0; t < count; ++t) {
        CAPTURE(given[unit::size(t)]);
        REQUIRE(unit::same_bits(made[unit::size(t)], right[unit::size(t)]));
      }
    }
  }
}

TEST_CASE_TEMPLATE("soft caps and biases by distance are those of the softmax in double, on every path", T, float,
                   bfloat16) {
  unit::random random(62);
  for (int round = 0; round < 60; ++round) {
    constexpr index_t dims[] = {8, 16, 40, 64, 128}, groups[] = {1, 2, 4, 5, 8, 19};
    const bool peaked = round % 4 == 3;
    lane_and_queries<T> of(random, dims[round % 5], groups[round % 6], random.between(1, 100), peaked ? 30.0f : 3.0f);
    if (round % 3 != 0) of.soft_cap = peaked ? 2.0f : random.uniform(0.2f, 5.0f);
    if (round % 3 != 1) of.slopes = random.floats(unit::size(of.group), 0.0f, 0.5f);
    if (round % 2 == 0) of.kept = kept_positions(random, random.between(1, of.tokens));
    const auto right = [&](double logit, index_t head, index_t slot) {
      if (of.soft_cap > 0.0f) logit = double{of.soft_cap} * std::tanh(logit / double{of.soft_cap});
      if (of.slopes.empty()) return logit;
      return logit + double{of.slopes[unit::size(head)]} * (of.slots().position_of(slot) - of.position());
    };
    const auto portable = of.attend(cpu_path::portable, of.hook());
    for (const cpu_path path : all_paths()) {
      auto made = of.attend(path, of.hook());
      CAPTURE(name_of(path));
      CAPTURE(round);
      const double off = zoomr_test::tolerance::of_path<T>(of.head_dim, path);
      if (off == 0.0) REQUIRE(same_bits(made, portable));
      if (!peaked || of.soft_cap > 0.0f) of.check(made, off, right);
    }
  }
}

TEST_CASE("what no sum can hold passes the hook of a model with the same bits on every path") {
  unit::random random(63);
  const float odd[] = {infinity, -infinity, not_a_number, 1e38f, -1e38f, 1e-40f, -0.0f, 0.0f};
  for (int round = 0; round < 200; ++round) {
    lane_and_queries<float> of(random, 32, 4, random.between(1, 70));
    for (index_t i = random.below(4); i >= 0; --i) {
      of.lane().key(random.below(of.tokens))[random.below(32)] = odd[random.below(8)];
    }
    if (random.below(3) == 0) of.queries[unit::size(random.below(128))] = odd[random.below(8)];
    if (round % 3 != 0) of.soft_cap = round % 2 == 0 ? 1e-30f : 20.0f;
    if (round % 3 != 1) of.slopes = random.floats(4, 0.0f, 0.5f);
    const auto portable = of.attend(cpu_path::portable, of.hook());
    for (const cpu_path path : all_paths()) REQUIRE(same_bits(of.attend(path, of.hook()), portable));
  }
}

TEST_CASE("a model that does nothing to its logits has the bits of none") {
  unit::random random(64);
  for (const index_t group : {1, 3, 4, 8}) {
    lane_and_queries<float> of(random, 64, group, 83);
    for (const cpu_path path : all_paths()) {
      CHECK(same_bits(of.attend(path, of.hook()), of.attend(path, plain_logits{})));
    }
  }
}

// A hook of the caller's own: a bias for each distance, which grows by its logarithm (T5), and tokens before a position
// that are not seen.
TEST_CASE("a caller's own hook sees the logits of all tokens and queries, and where they are") {
  unit::random random(65);
  for (const index_t head_dim : {24, 64}) {
    for (const index_t group : {1, 4, 7, 18}) {
      lane_and_queries<float> of(random, head_dim, group, random.between(30, 90));
      of.kept = kept_positions(random, of.tokens / 2);
      const slot_map slots = of.slots();
      const index_t position = of.position(), seen_from = slots.position_of(5);
      std::vector<float> bias(unit::size(group * 8));  // [heads, buckets]
      for (float& number : bias) number = random.uniform(-2.0f, 2.0f);
      const auto bucket = [](index_t distance) {
        index_t made = 0;
        while (distance > 1 && made < 7) distance /= 2, ++made;
        return made;
      };
      const auto hook = [&](const run_logits& run) {
        for (index_t t = 0; t < run.tokens; ++t) {
          const index_t at = slots.position_of(run.first_slot + t);
          for (index_t q = 0; q < run.queries; ++q) {
            float& logit = run.at(t, q);
            logit += bias[unit::size((run.first_query + q) * 8 + bucket(position - at))];
            if (at < seen_from) logit = -infinity;
          }
        }
      };
      const auto portable = of.attend(cpu_path::portable, hook);
      for (const cpu_path path : all_paths()) {
        auto made = of.attend(path, hook);
        REQUIRE(same_bits(made, portable));
        of.check(made, 0.0, [&](double logit, index_t head, index_t slot) {
          const index_t at = slots.position_of(slot);
          return at < seen_from ? -1e200 : logit + double{bias[unit::size(head * 8 + bucket(position - at))]};
        });
      }
    }
  }
}

}  // namespace zoomr
